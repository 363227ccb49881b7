"""Route: every point to the executor that serves its place, every operation to its bucket.

Owns the task that reads a batch. It checks the rows, puts the bad ones into quarantine, and
packs the good ones into one parcel for each executor: a parcel of a hundred thousand points
goes through Spark's shuffle as one row, which is many times faster than as a hundred thousand.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import Accumulator, TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from sparkswarm.compiled import IntArray, LongArray, compiled
from sparkswarm.geometry import Fault
from sparkswarm.spark.columns import OPERATIONS
from sparkswarm.spark.task_input import Report, RouteReport
from sparkswarm.spark.tasks.context import Desk, desk
from sparkswarm.spark.tasks.operations import deal_operations
from sparkswarm.spark.tasks.packing import (
    PARCELS,
    POINTS,
    Task,
    from_bytes,
    nulls,
    parcels,
    to_bytes,
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

CHUNK = 131_072
"""Rows routed, and points matched, at once: enough to make large parcels, few enough to stay in
the cache."""

PARCEL = 200_000
"""Bytes of a parcel, more or less. Spark sends parcels to Python by up to ten thousand in one
Arrow batch, which must stay below two gigabytes whatever the size of the micro-batch."""


def route(
    batch: DataFrame,
    briefing: bytes,
    targets: int,
    reports: Accumulator[list[Report]],
    names: dict[str, str],
) -> DataFrame:
    """Return the batch as parcels, all that have the same target together.

    Parameters
    ----------
    batch
        Rows under our own names.
    briefing
        The briefing, pickled.
    targets
        How many there are: executors, or buckets of the ledger where those are more. A target
        may be both.
    reports
        Where the tasks say what they read.
    names
        What the user calls the columns, for the quarantine.
    """
    packed = batch.mapInArrow(_task(briefing, reports, names), PARCELS)
    return packed.repartitionById(targets, F.col("target"))


def _task(briefing: bytes, reports: Accumulator[list[Report]], names: dict[str, str]) -> Task:
    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        at = desk(briefing)
        context = TaskContext.get()
        number = context.partitionId() if context else 0
        quarantine = Quarantine(at.briefing.files, at.briefing.epoch.batch, f"route-{number}")
        points = operations = asks = 0
        if number == 0:
            # So that every executor has a first parcel to know itself by, points or none.
            yield parcels([(POINTS, m, None) for m in range(at.briefing.epoch.plan.executors)])
        for chunk in _chunks(batches):
            if OPERATIONS in chunk.column_names:
                packed = chunk.column(OPERATIONS).drop_null()
                if len(packed):
                    chunk = chunk.filter(pc.is_null(chunk.column(OPERATIONS)))
                    table = from_bytes(value.as_buffer() for value in packed)
                    dealt_out = deal_operations(at, table, quarantine)
                    operations += dealt_out.operations
                    asks += dealt_out.asks
                    yield parcels(dealt_out.parcels)
                chunk = chunk.drop_columns([OPERATIONS])
            if chunk.num_rows:
                good, dealt = _deal_points(at, chunk, quarantine, names)
                points += good
                yield parcels([(POINTS, executor, rows) for executor, rows in dealt])
        quarantine.write()
        batch, faults = at.briefing.epoch.batch, quarantine.faults()
        reports.add([RouteReport(batch, number, points, operations, asks, faults)])

    return task


def _chunks(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        waiting.append(batch)
        rows += batch.num_rows
        if rows >= CHUNK:
            yield pa.Table.from_batches(waiting)
            waiting, rows = [], 0
    if waiting:
        yield pa.Table.from_batches(waiting)


def _deal_points(
    at: Desk, points: pa.Table, quarantine: Quarantine, names: dict[str, str]
) -> tuple[int, list[tuple[int, bytes]]]:
    """Return how many points are good, and a parcel for each executor that gets some."""
    x, y = _doubles(points, X), _doubles(points, Y)
    executors = at.briefing.epoch.plan.executors
    owners = at.policy.owners(at.index, executors, x, y, np.arange(len(x)))
    lacking = [name for name in (ID, TIME) if name in points.column_names]
    if any(points.column(name).null_count for name in lacking) or (owners < 0).any():
        faults = at.grid.point_faults(x, y)
        null_value = nulls(points, X) | nulls(points, Y)
        reasons = first_reason(
            len(x),
            [
                (nulls(points, ID), NULL_ID),
                (null_value, NULL_VALUE),
                *((faults == fault, FAULT_REASONS[fault]) for fault in Fault if fault),
                *([(nulls(points, TIME), NULL_TIME)] if TIME in lacking else []),
            ],
        )
        bad = np.flatnonzero(reasons != None)  # noqa: E711 (elementwise)
        quarantine.add(POINT, points.take(bad), names, reasons[bad])
        owners[bad] = -1
    order, starts = grouped(owners, executors)
    points = points.combine_chunks().take(pa.array(order))
    rows = max(1, PARCEL * len(order) // max(points.nbytes, 1))
    dealt = [
        (m, to_bytes(points.slice(start, min(rows, starts[m + 1] - start))))
        for m in range(executors)
        for start in range(starts[m], starts[m + 1], rows)
    ]
    return len(order), dealt


def _doubles(rows: pa.Table, name: str) -> npt.NDArray[np.float64]:
    """Return a column as an array, NaN where it is null."""
    return rows.column(name).to_numpy(zero_copy_only=False)


@compiled
def grouped(group: IntArray, groups: int) -> tuple[LongArray, LongArray]:
    """Return the positions of each group's members, and where each group starts in them.

    Members of no group have a negative number and are left out. A counting sort.
    """
    starts = np.zeros(groups + 1, dtype=np.int64)
    for i in range(len(group)):
        if group[i] >= 0:
            starts[group[i] + 1] += 1
    for g in range(groups):
        starts[g + 1] += starts[g]
    next_free = starts[:-1].copy()
    order = np.empty(starts[-1], dtype=np.int64)
    for i in range(len(group)):
        if group[i] >= 0:
            order[next_free[group[i]]] = i
            next_free[group[i]] += 1
    return order, starts
