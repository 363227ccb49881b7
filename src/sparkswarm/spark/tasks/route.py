"""Route: every point to the executor that serves its place, every operation to its bucket.

Runs in a task for each partition of the batch's rows. It checks the rows, puts rejected ones into
quarantine, and packs the others, so that they go through the shuffle as few large values. A task
that runs again packs the same rows in the same way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkswarm.compiled import BoolArray, FloatArray, LongArray
from sparkswarm.geometry import Fault
from sparkswarm.observe.progress import Counts
from sparkswarm.policies import PointRouter
from sparkswarm.spark.columns import INPUT_PARTITION, OPERATIONS
from sparkswarm.spark.task_output import TaskOutput, TaskStage
from sparkswarm.spark.tasks.lending import Lender
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
    prices = ctx.input.lending
    lender = Lender(ctx, prices) if prices is not None else None
    if ctx.task == 0:
        # An executor knows its number from its rows, so each gets some, if only empty ones.
        yield packed([(RowKind.POINTS, m, None) for m in range(ctx.plan.executors)])
    for chunk in row_chunks(batches, CHUNK_ROWS):
        operations, points = separated(chunk)
        if operations is not None:
            checked = check_operations(ctx, operations, quarantine)
            counts += checked.counts
            yield packed(checked.rows)
        if points.num_rows:
            number, rows = assign_points(ctx, points, lender or ctx.router, quarantine)
            counts += Counts(points=number)
            yield packed(rows)
    quarantine.write()
    loans = lender.loans if lender else ()
    counts += Counts(lent=sum(loan.points for loan in loans))
    ctx.collect(
        TaskOutput(
            batch=ctx.epoch.batch,
            stage=TaskStage.ROUTE,
            task=ctx.task,
            counts=counts,
            rejected=quarantine.faults(),
            loans=loans,
            candidates=lender.candidates if lender else 0.0,
        )
    )


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


def separated(rows: pa.Table) -> tuple[pa.Table | None, pa.Table]:
    """Return the operations among the rows of a batch, unpacked, and the points."""
    if OPERATIONS not in rows.column_names:
        return None, rows
    packed_operations = rows.column(OPERATIONS)
    operations = packed_operations.drop_null()
    points = rows.filter(pc.is_null(packed_operations)) if len(operations) else rows
    found = unpack_rows(value.as_buffer() for value in operations) if len(operations) else None
    return found, points.drop_columns([OPERATIONS])


def assign_points(
    ctx: BatchContext, points: pa.Table, router: PointRouter, quarantine: Quarantine
) -> tuple[int, list[PackedRows]]:
    """Return the number of valid points, and the points packed for their executors."""
    if INPUT_PARTITION in points.column_names:
        points = points.drop_columns([INPUT_PARTITION])
    x, y = coordinates(points)
    executors = ctx.plan.executors
    executor = router.assign(x, y, np.arange(len(x)))
    executor[rejected_points(ctx, points, x, y, executor < 0, quarantine)] = -1
    order, starts = group_rows(executor, executors)
    points = points.combine_chunks().take(pa.array(order))
    size = max(1, PACKAGE_BYTES * len(order) // max(points.nbytes, 1))
    return len(order), [
        (RowKind.POINTS, m, pack_rows(points.slice(start, min(size, starts[m + 1] - start))))
        for m in range(executors)
        for start in range(starts[m], starts[m + 1], size)
    ]


def coordinates(points: pa.Table) -> tuple[FloatArray, FloatArray]:
    """Return x and y of points, NaN where one is null."""
    x, y = (np.asarray(points.column(name), np.float64) for name in (X, Y))
    return x, y


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
    if not any(points.column(name).null_count for name in required) and not outside.any():
        return np.empty(0, np.int64)
    faults = ctx.grid.point_faults(x, y)
    reasons = first_reason(
        len(x),
        [
            (nulls(points, ID), NULL_ID),
            (nulls(points, X) | nulls(points, Y), NULL_VALUE),
            *((faults == fault, FAULT_REASONS[fault]) for fault in Fault if fault),
            *([(nulls(points, TIME), NULL_TIME)] if TIME in required else []),
        ],
    )
    bad = np.flatnonzero(reasons != None)  # noqa: E711 (elementwise)
    quarantine.add(POINT, points.take(bad), ctx.input.point_columns, reasons[bad])
    return bad
