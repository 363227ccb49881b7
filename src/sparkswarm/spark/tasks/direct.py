"""Direct matching: the task that reads points matches them, without a shuffle.

Runs in a task for each partition of the batch's rows, where all executors share the memory of one
host and nothing needs the points of a partition together. Statistics of the load are collected by
partition all the same, and what points add to the state of queries goes to the homes of these. A
task that runs again gives the same results.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from sparkswarm.observe.progress import Counts
from sparkswarm.spark.task_output import TaskOutput, TaskStage, Written
from sparkswarm.spark.tasks.events import FixFiles, fix_rows
from sparkswarm.spark.tasks.match import CHUNK_ROWS, Matcher
from sparkswarm.spark.tasks.points import coordinates, input_points, rejected_points, times_of
from sparkswarm.spark.tasks.results import ResultOutput
from sparkswarm.spark.tasks.state import route_partial_state
from sparkswarm.spark.tasks.tally import TaskTally
from sparkswarm.store.blocks import MIN_TIME
from sparkswarm.store.queries import TIME

if TYPE_CHECKING:
    from sparkswarm.spark.tasks.context import BatchContext


def match_task(ctx: BatchContext, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Check the points of an input partition and match them."""
    work: DirectWork | None = None
    for number, points in input_points(ctx, batches, CHUNK_ROWS):
        work = work or DirectWork(ctx, number)
        yield from work.match(points)
    if ctx.input.output_schema.partial_state:
        yield partial_state(ctx, work)
    if work is not None:
        ctx.collect(work.close())


def partial_state(ctx: BatchContext, work: DirectWork | None) -> pa.RecordBatch:
    """Return additions to the state of queries, packed for the executors that keep it.

    Each of these has a package, if only an empty one: time passes also where no point came.
    """
    schema, everyone = ctx.input.output_schema, range(ctx.plan.executors)
    if work is None:
        return schema.packed_rows(route_partial_state(ctx, (), everyone), schema.result_types)
    return work.partial_state(everyone)


class DirectWork:
    """What one task does in one batch: tables of points in, results out."""

    def __init__(self, ctx: BatchContext, input_partition: int) -> None:
        self._ctx = ctx
        self._number = input_partition
        self._quarantine = ctx.quarantine(f"match-{input_partition}")
        self._matcher = Matcher(ctx)
        self._tally = TaskTally(ctx)
        self._results = ResultOutput(ctx, str(input_partition))
        self._result_types = ctx.input.output_schema.result_types
        self._fixes = FixFiles(ctx, str(input_partition)) if ctx.input.fix_files else None
        self._max_event_time = MIN_TIME
        self._busy_s = 0.0

    def match(self, points: pa.Table) -> Iterator[pa.RecordBatch]:
        """Yield the results of a table of points, some of which may be invalid."""
        started = time.thread_time()
        points = points.combine_chunks()
        x, y = coordinates(points)
        routed = self._ctx.index.route(x, y)
        bad = rejected_points(self._ctx, points, x, y, routed.partition < 0, self._quarantine)
        routed.partition[bad] = -1
        self._see_time(points, bad)
        for lot in self._matcher.match(points, routed):
            self._tally.add(lot)
            results = self._results.add(lot)
            if self._fixes is not None:
                self._fixes.add(lot)
            self._busy_s += time.thread_time() - started
            if results is not None:
                self._result_types = results.schema.types[: len(self._result_types)]
                yield from self._results.slices(results)
            started = time.thread_time()
            if self._ctx.input.output_schema.fixes:
                yield fix_rows(self._ctx, lot, results)
        self._busy_s += time.thread_time() - started

    def _see_time(self, points: pa.Table, bad: np.ndarray[tuple[int], np.dtype[np.int64]]) -> None:
        if TIME in points.column_names:
            times = np.delete(times_of(points), bad)
            if len(times):
                self._max_event_time = max(self._max_event_time, int(times.max()))

    def partial_state(self, executors: Iterable[int]) -> pa.RecordBatch:
        """Return additions to the state of queries, packed; something for each of ``executors``."""
        started = time.thread_time()
        rows = route_partial_state(self._ctx, self._matcher.collected, executors)
        result = self._ctx.input.output_schema.packed_rows(rows, self._result_types)
        self._busy_s += time.thread_time() - started
        return result

    def close(self) -> TaskOutput:
        """End the batch for this task; return what the driver must know."""
        started = time.thread_time()
        tally = self._tally
        self._quarantine.write()
        collected = tally.collected(f"t{self._number}")
        result_files = self._results.close()
        fixes = self._fixes.close() if self._fixes is not None else ()
        self._busy_s += time.thread_time() - started
        matches = tally.matches + self._matcher.collected_pairs
        return TaskOutput(
            batch=self._ctx.epoch.batch,
            stage=TaskStage.MATCH,
            task=self._number,
            counts=Counts(points=tally.points, matches=matches, checks=tally.checks),
            written=Written(fixes=fixes),
            rejected=self._quarantine.faults(),
            points=tally.points,
            pieces=tally.pieces,
            points_by_partition=dict(tally.points_by_partition),
            busy_s=self._busy_s,
            max_event_time=self._max_event_time,
            collected=collected,
            result_files=result_files,
            spark_task=self._ctx.spark_task,
        )
