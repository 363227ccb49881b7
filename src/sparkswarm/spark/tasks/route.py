"""Route: every point to the executor that serves its place, every operation to its bucket.

Runs in a task for each partition of the batch's rows. It checks the rows, puts rejected ones into
quarantine, and packs the others, so that they go through the shuffle as few large values. A task
that runs again packs the same rows in the same way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sparkswarm.geometry import Fault
from sparkswarm.observe.progress import Counts
from sparkswarm.spark.columns import OPERATIONS
from sparkswarm.spark.task_output import TaskOutput, TaskStage
from sparkswarm.spark.tasks.operations import check_operations
from sparkswarm.spark.tasks.packing import (
    PackedRows,
    RowKind,
    group_rows,
    nulls,
    pack_rows,
    packed,
    unpack_rows,
)
from sparkswarm.store.quarantine import (
    FAULT_REASONS,
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

CHUNK_ROWS = 131_072
"""Rows routed at once: enough to make large packages, few enough to stay in the cache."""

PACKAGE_BYTES = 200_000
"""Approximate size of packed rows. Spark sends up to ten thousand of them to Python in one Arrow
batch, which must stay below two gigabytes whatever the size of the micro-batch."""


def route_task(ctx: BatchContext, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Check the rows of an input partition and pack them for those who serve them."""
    quarantine = Quarantine(ctx.input.files, ctx.epoch.batch, f"route-{ctx.task}")
    counts = Counts()
    if ctx.task == 0:
        # An executor knows its number from its rows, so each gets some, if only empty ones.
        yield packed([(RowKind.POINTS, m, None) for m in range(ctx.plan.executors)])
    for chunk in _chunks(batches):
        if OPERATIONS in chunk.column_names:
            operations = chunk.column(OPERATIONS).drop_null()
            if len(operations):
                chunk = chunk.filter(pc.is_null(chunk.column(OPERATIONS)))
                table = unpack_rows(value.as_buffer() for value in operations)
                checked = check_operations(ctx, table, quarantine)
                counts += checked.counts
                yield packed(checked.rows)
            chunk = chunk.drop_columns([OPERATIONS])
        if chunk.num_rows:
            points, rows = assign_points(ctx, chunk, quarantine)
            counts += Counts(points=points)
            yield packed(rows)
    quarantine.write()
    ctx.collect(
        TaskOutput(
            batch=ctx.epoch.batch,
            stage=TaskStage.ROUTE,
            task=ctx.task,
            counts=counts,
            rejected=quarantine.faults(),
        )
    )


def _chunks(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        waiting.append(batch)
        rows += batch.num_rows
        if rows >= CHUNK_ROWS:
            yield pa.Table.from_batches(waiting)
            waiting, rows = [], 0
    if waiting:
        yield pa.Table.from_batches(waiting)


def assign_points(
    ctx: BatchContext, points: pa.Table, quarantine: Quarantine
) -> tuple[int, list[PackedRows]]:
    """Return the number of valid points, and the points packed for their executors."""
    x, y = _doubles(points, X), _doubles(points, Y)
    executors = ctx.plan.executors
    executor = ctx.router.assign(x, y, np.arange(len(x)))
    required = [name for name in (ID, TIME) if name in points.column_names]
    if any(points.column(name).null_count for name in required) or (executor < 0).any():
        faults = ctx.grid.point_faults(x, y)
        null_value = nulls(points, X) | nulls(points, Y)
        reasons = first_reason(
            len(x),
            [
                (nulls(points, ID), NULL_ID),
                (null_value, NULL_VALUE),
                *((faults == fault, FAULT_REASONS[fault]) for fault in Fault if fault),
                *([(nulls(points, TIME), NULL_TIME)] if TIME in required else []),
            ],
        )
        bad = np.flatnonzero(reasons != None)  # noqa: E711 (elementwise)
        quarantine.add(POINT, points.take(bad), ctx.input.point_columns, reasons[bad])
        executor[bad] = -1
    order, starts = group_rows(executor, executors)
    points = points.combine_chunks().take(pa.array(order))
    size = max(1, PACKAGE_BYTES * len(order) // max(points.nbytes, 1))
    return len(order), [
        (RowKind.POINTS, m, pack_rows(points.slice(start, min(size, starts[m + 1] - start))))
        for m in range(executors)
        for start in range(starts[m], starts[m + 1], size)
    ]


def _doubles(rows: pa.Table, name: str) -> npt.NDArray[np.float64]:
    """Return a column as an array, NaN where it is null."""
    return np.asarray(rows.column(name), np.float64)
