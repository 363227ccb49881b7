"""Execute: matches the points of an executor against the queries of their partitions.

Runs in a task for each executor and batch; a sink that reads results twice runs it twice, with the
same results. Statistics of the load are collected on the way.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from sparkswarm.observe.progress import Counts
from sparkswarm.spark.task_output import TaskOutput, TaskStage, Written
from sparkswarm.spark.tasks.blocks import BlockWriter
from sparkswarm.spark.tasks.events import fix_rows
from sparkswarm.spark.tasks.lots import Lot
from sparkswarm.spark.tasks.match import CHUNK_ROWS, Matcher
from sparkswarm.spark.tasks.packing import unpack_rows
from sparkswarm.spark.tasks.results import ResultOutput
from sparkswarm.spark.tasks.state import route_partial_state
from sparkswarm.spark.tasks.tally import TaskTally
from sparkswarm.store.blocks import MIN_TIME
from sparkswarm.store.queries import TIME

if TYPE_CHECKING:
    from sparkswarm.spark.tasks.context import BatchContext

CHUNK_BYTES = 24 * CHUNK_ROWS
"""Bytes of packed points taken together: about a chunk."""


def execute_task(ctx: BatchContext, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Match the packed points of one executor."""
    work: ExecutorWork | None = None
    for executor, points in point_chunks(batches):
        work = work or ExecutorWork(ctx, executor)
        if points is not None:
            yield from work.match(points)
    if work:
        if ctx.input.output_schema.partial_state:
            yield work.partial_state()
        ctx.collect(work.close())


def point_chunks(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, pa.Table | None]]:
    """Yield an executor's points in large tables; at least one, None where it has no points.

    The executor's number comes from its rows: the number of its task is another where a sink
    puts these results together with something else.
    """
    waiting: list[pa.Buffer] = []
    executor = -1
    size = 0
    for batch in batches:
        if batch.num_rows:
            executor = batch.column("target")[0].as_py()
        for value in batch.column("rows").drop_null():
            waiting.append(value.as_buffer())
            size += waiting[-1].size
            if size >= CHUNK_BYTES:
                yield executor, unpack_rows(waiting)
                waiting, size = [], 0
    if executor >= 0:
        yield executor, unpack_rows(waiting) if waiting else None


class ExecutorWork:
    """What one executor does in one batch: tables of points in, results out."""

    def __init__(self, ctx: BatchContext, executor: int) -> None:
        self._ctx = ctx
        self._executor = executor
        self._schema = ctx.input.output_schema
        self._result_types = self._schema.result_types
        started = time.thread_time()
        self._matcher = Matcher(ctx)
        self._tally = TaskTally(ctx)
        self._results = ResultOutput(ctx, str(executor))
        self._blocks = BlockWriter(ctx, executor) if ctx.input.window is not None else None
        self._max_event_time = MIN_TIME
        self._busy_s = time.thread_time() - started

    def match(self, points: pa.Table) -> Iterator[pa.RecordBatch]:
        """Yield the results of a table of points."""
        self._see_time(points)
        lots = self._matcher.match(points)
        while True:
            started = time.thread_time()
            lot = next(lots, None)
            results = fixes = None
            if lot is not None:
                self._count(lot)
                results = self._results.add(lot)
                if results is not None:
                    self._result_types = results.schema.types[: len(self._result_types)]
                if self._schema.fixes:
                    fixes = fix_rows(self._ctx, lot, results)
            self._busy_s += time.thread_time() - started
            if lot is None:
                return
            if results is not None:
                yield from self._results.slices(results)
            if fixes is not None:
                yield fixes

    def _see_time(self, points: pa.Table) -> None:
        if TIME in points.column_names and points.num_rows:
            latest = int(points.column(TIME).to_numpy().max())
            self._max_event_time = max(self._max_event_time, latest)
        elif self._blocks:
            self._max_event_time = self._ctx.epoch.clock

    def _count(self, lot: Lot) -> None:
        """Count the points of a lot; keep them where there is a window."""
        self._tally.add(lot)
        if self._blocks:
            for part in lot.parts:
                rows = lot.rows[part.low : part.high]
                self._blocks.add(part.partition_id, lot.points, rows)

    def partial_state(self) -> pa.RecordBatch:
        """Return additions to the state of queries, packed for the executors that keep it."""
        started = time.thread_time()
        rows = route_partial_state(self._ctx, self._matcher.collected, [self._executor])
        result = self._schema.packed_rows(rows, self._result_types)
        self._busy_s += time.thread_time() - started
        return result

    def close(self) -> TaskOutput:
        """End the batch for this executor; return what the driver must know."""
        started = time.thread_time()
        tally = self._tally
        blocks = self._blocks.close() if self._blocks else ()
        collected = tally.collected(f"m{self._executor}")
        result_files = self._results.close()
        self._busy_s += time.thread_time() - started
        matches = tally.matches + self._matcher.collected_pairs
        return TaskOutput(
            batch=self._ctx.epoch.batch,
            stage=TaskStage.EXECUTE,
            task=self._executor,
            # Points are counted by the route tasks, which check them.
            counts=Counts(matches=matches, checks=tally.checks),
            written=Written(blocks=blocks),
            points_by_partition=dict(tally.points_by_partition),
            points=tally.points,
            pieces=tally.pieces,
            busy_s=self._busy_s,
            max_event_time=self._max_event_time,
            collected=collected,
            found=tally.found,
            result_files=result_files,
            spark_task=self._ctx.spark_task,
            used=self._ctx.queries.used() if self._ctx.input.hosts else (),
        )
