"""Route: every point to the executor that serves its place.

Runs in a task for each partition of the batch's rows. It checks the rows, puts rejected ones into
quarantine, and packs the others, so that they go through the shuffle as few large values. A task
that runs again packs the same rows in the same way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from sparkswarm.observe.progress import Counts
from sparkswarm.policies import PointRouter
from sparkswarm.spark.task_output import TaskOutput, TaskStage
from sparkswarm.spark.tasks.lending import Lender
from sparkswarm.spark.tasks.packing import (
    PackedRows,
    RowKind,
    group_rows,
    pack_rows,
    packed,
)
from sparkswarm.spark.tasks.points import coordinates, input_points, rejected_points
from sparkswarm.store.quarantine import (
    Quarantine,
)

if TYPE_CHECKING:
    from sparkswarm.spark.tasks.context import BatchContext

CHUNK_ROWS = 131_072
"""Rows routed at once: enough to make large packages, few enough to stay in the cache."""

PACKAGE_BYTES = 200_000
"""Approximate size of packed rows. Spark sends up to ten thousand of them to Python in one Arrow
batch, which must stay below two gigabytes whatever the size of the micro-batch."""


def route_task(ctx: BatchContext, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Check the rows of an input partition and pack them for those who serve them."""
    quarantine = ctx.quarantine(f"route-{ctx.task}")
    counts = Counts()
    prices = ctx.input.lending
    lender = Lender(ctx, prices) if prices is not None else None
    if ctx.task == 0:
        # An executor knows its number from its rows, so each gets some, if only empty ones.
        yield packed([(RowKind.POINTS, m, None) for m in range(ctx.plan.executors)])
    for _, points in input_points(ctx, batches, CHUNK_ROWS):
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
            candidates=lender.candidates if lender else None,
        )
    )


def assign_points(
    ctx: BatchContext, points: pa.Table, router: PointRouter, quarantine: Quarantine
) -> tuple[int, list[PackedRows]]:
    """Return the number of valid points, and the points packed for their executors."""
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
