"""Points as they are read: taken in chunks, told from operations, and checked.

Runs in the tasks that read the rows of a batch, for each chunk. What is rejected goes to the
quarantine, with the reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkswarm.compiled import BoolArray, FloatArray, LongArray
from sparkswarm.errors import StoreError
from sparkswarm.geometry import Fault
from sparkswarm.spark.columns import INPUT_PARTITION, OPERATIONS, POINT_FILE
from sparkswarm.spark.tasks.packing import nulls
from sparkswarm.spark.tasks.point_files import read_point_files
from sparkswarm.store.quarantine import (
    FAULT_REASONS,
    FUTURE_TIME,
    NULL_ID,
    NULL_TIME,
    NULL_VALUE,
    POINT,
    Quarantine,
    first_reason,
)
from sparkswarm.store.queries import ID, TIME, X, Y

if TYPE_CHECKING:
    from sparkswarm.spark.tasks.context import BatchContext


def row_chunks(batches: Iterable[pa.RecordBatch], size: int) -> Iterator[pa.Table]:
    """Yield rows in tables of about ``size`` rows."""
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        waiting.append(batch)
        rows += batch.num_rows
        if rows >= size:
            yield pa.Table.from_batches(waiting)
            waiting, rows = [], 0
    if waiting:
        yield pa.Table.from_batches(waiting)


def input_points(
    ctx: BatchContext, batches: Iterable[pa.RecordBatch], size: int
) -> Iterator[tuple[int, pa.Table]]:
    """Yield the points of a task in tables of about ``size`` rows, with its input partition."""
    wanted = ctx.input.point_files
    for chunk in row_chunks(batches, size):
        rows = points_of(ctx, chunk)
        if not rows.num_rows:
            continue
        number = rows.column(INPUT_PARTITION)[0].as_py()
        if wanted is None:
            yield number, rows.drop_columns([INPUT_PARTITION])
        else:
            paths = rows.column(POINT_FILE).to_pylist()
            for points in row_chunks(read_point_files(paths, wanted, size // 4), size):
                yield number, points


def points_of(ctx: BatchContext, rows: pa.Table) -> pa.Table:
    """Return the points among the rows of a batch; the driver has read the operations."""
    if OPERATIONS not in rows.column_names:
        return rows
    operations = rows.column(OPERATIONS)
    if operations.null_count < len(operations):
        if not ctx.input.operations:
            raise StoreError(
                f"batch {ctx.epoch.batch} has operations that the driver did not find: this "
                "version of Spark plans a union in another way; nothing was lost, please report it"
            )
        rows = rows.filter(pc.is_null(operations))
    return rows.drop_columns([OPERATIONS])


def coordinates(points: pa.Table) -> tuple[FloatArray, FloatArray]:
    """Return x and y of points, NaN where one is null."""
    x, y = (np.asarray(points.column(name), np.float64) for name in (X, Y))
    return x, y


def times_of(points: pa.Table) -> LongArray:
    """Return the times of points, 0 where one is null; floats could not tell them all apart."""
    times = points.column(TIME)
    found: LongArray = (times.fill_null(0) if times.null_count else times).to_numpy()
    return found


def rejected_points(
    ctx: BatchContext,
    points: pa.Table,
    x: FloatArray,
    y: FloatArray,
    outside: BoolArray,
    quarantine: Quarantine,
) -> LongArray:
    """Return the rows of invalid points, which go to the quarantine.

    ``outside`` are those that have no cell.
    """
    required = [name for name in (ID, TIME) if name in points.column_names]
    future = _from_the_future(ctx, points)
    missing = any(points.column(name).null_count for name in required)
    if not missing and not outside.any() and not future.any():
        return np.empty(0, np.int64)
    faults = ctx.grid.point_faults(x, y)
    reasons = first_reason(
        len(x),
        [
            (nulls(points, ID), NULL_ID),
            (nulls(points, X) | nulls(points, Y), NULL_VALUE),
            *((faults == fault, FAULT_REASONS[fault]) for fault in Fault if fault),
            *([(nulls(points, TIME), NULL_TIME)] if TIME in required else []),
            (future, FUTURE_TIME),
        ],
    )
    bad = np.flatnonzero(reasons != None)  # noqa: E711 (elementwise)
    quarantine.add(POINT, points.take(bad), ctx.input.point_columns, reasons[bad])
    return bad


def _from_the_future(ctx: BatchContext, points: pa.Table) -> BoolArray:
    """Return which points have a time after the latest that the batch allows."""
    if TIME not in points.column_names:
        return np.zeros(points.num_rows, dtype=bool)
    late = pc.greater(points.column(TIME), ctx.epoch.latest_time)
    return np.asarray(pc.fill_null(late, False), dtype=bool)
