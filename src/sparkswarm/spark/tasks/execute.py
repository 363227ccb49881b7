"""Execute: matches the points of an executor against the queries of their partitions.

Runs in a task for each executor and batch; a sink that reads results twice runs it twice, with the
same results. Statistics of the load are collected on the way and lie in files between batches,
because the task of the next batch may run anywhere.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparkswarm.apps.application import Pairs
from sparkswarm.apps.bound import BoundApplication
from sparkswarm.index.match import Matches, match
from sparkswarm.observe.progress import Counts
from sparkswarm.policies import Agent, AgentContext, make_policy
from sparkswarm.protocol.global_index import RoutedPoints
from sparkswarm.spark.task_output import TaskOutput, TaskStage, Written
from sparkswarm.spark.tasks.blocks import BlockWriter
from sparkswarm.spark.tasks.packing import group_rows, unpack_rows
from sparkswarm.spark.tasks.state import route_partial_state
from sparkswarm.store.queries import ID, TIME, X, Y
from sparkswarm.store.segments import Segment

if TYPE_CHECKING:
    from sparkswarm.spark.tasks.context import BatchContext

CHUNK_ROWS = 131_072
"""Points matched at once: few enough to stay in the cache."""

CHUNK_BYTES = 24 * CHUNK_ROWS
"""Bytes of packed points taken together: about a chunk."""

MATCHES_PER_BATCH = 8_000_000
"""Approximate number of matches in one record batch of results: 64 MB."""


def execute_task(ctx: BatchContext, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Match the packed points of one executor."""
    matcher: Matcher | None = None
    for executor, points in point_chunks(batches):
        matcher = matcher or Matcher(ctx, executor)
        if points is not None:
            yield from matcher.match(points)
    if matcher:
        if ctx.input.output_schema.partial_state:
            yield matcher.partial_state()
        ctx.collect(matcher.close())


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


class PointChunk(NamedTuple):
    """Points that are matched together; ``time`` is empty where they have no event time."""

    points: pa.Table
    x: npt.NDArray[np.float64]
    y: npt.NDArray[np.float64]
    time: npt.NDArray[np.int64]
    routed: RoutedPoints


class SegmentRun(NamedTuple):
    """Points of a chunk that lie in one segment: a range of the chunk's order."""

    partition_id: int
    segment: int
    low: int
    high: int


class PointView:
    """Points as the application sees them, those of a segment together.

    So it is given no more points than it is asked about, however many segments there are.
    """

    def __init__(
        self, application: BoundApplication, points: pa.Table, order: npt.NDArray[np.int64]
    ) -> None:
        self._application = application
        self._points = points
        self._order = order.copy()

    def between(
        self, low: int, high: int, rows: npt.NDArray[np.int64]
    ) -> tuple[pa.Table, npt.NDArray[np.int64]]:
        """Return the points of a range of the order, and the positions of ``rows`` in it."""
        return self._table.slice(low, high - low), self._position[rows] - low

    @cached_property
    def _table(self) -> pa.Table:
        chosen = self._application.points(self._points)
        return chosen.take(pa.array(self._order)).combine_chunks()

    @cached_property
    def _position(self) -> npt.NDArray[np.int64]:
        position = np.empty(self._points.num_rows, np.int64)
        position[self._order] = np.arange(len(self._order))
        return position


class Matcher:
    """Matches the points of one executor in one batch: tables of points in, results out."""

    def __init__(self, ctx: BatchContext, executor: int) -> None:
        self._ctx = ctx
        self._executor = executor
        self._schema = ctx.input.output_schema
        results = self._schema.results
        self._result_types = [] if results is None else [field.type for field in results]
        started = time.thread_time()
        self._agent = _agent(ctx, executor) if ctx.input.control is not None else None
        self._blocks = BlockWriter(ctx, executor) if ctx.input.window is not None else None
        self._collected: list[pa.Table] = []
        self._points = self._matches = self._checks = 0
        self._points_by_partition: Counter[int] = Counter()
        self._max_event_time = 0
        self._chunk_rows = CHUNK_ROWS
        self._busy_s = time.thread_time() - started

    def match(self, points: pa.Table) -> Iterator[pa.RecordBatch]:
        """Yield the results of a table of points."""
        points = points.combine_chunks()
        start = 0
        while start < points.num_rows:
            started = time.thread_time()
            chunk = points.slice(start, self._chunk_rows)
            start += chunk.num_rows
            results = self._match_chunk(self._chunk(chunk))
            self._busy_s += time.thread_time() - started
            if results is not None:
                yield results

    def _chunk(self, points: pa.Table) -> PointChunk:
        x, y = points.column(X).to_numpy(), points.column(Y).to_numpy()
        has_time = TIME in points.column_names
        times = points.column(TIME).to_numpy() if has_time else np.empty(0, np.int64)
        if len(times):
            self._max_event_time = max(self._max_event_time, int(times.max()))
        elif self._blocks:
            self._max_event_time = self._ctx.epoch.clock
        return PointChunk(points, x, y, times, self._ctx.index.route(x, y))

    def _match_chunk(self, chunk: PointChunk) -> pa.RecordBatch | None:
        ctx, points, routed = self._ctx, chunk.points, chunk.routed
        partitions = ctx.plan.partitions
        order, starts = group_rows(ctx.slot_of[routed.partition], len(partitions))
        runs = [
            run
            for slot, partition in enumerate(partitions)
            for run in self._runs(partition.id, routed, order, starts[slot], starts[slot + 1])
        ]
        application = ctx.input.application
        view = PointView(application, points, order) if application else None
        counts = np.empty(len(order), np.int32)
        checks = np.empty(len(order), np.float64)
        found: list[tuple[Segment, npt.NDArray[np.int32]]] = []
        for run in runs:
            matches = self._match_segment(run, chunk, order, view)
            order[run.low : run.high] = matches.points
            counts[run.low : run.high] = matches.counts
            checks[run.low : run.high] = matches.checks
            segment = ctx.segments(run.partition_id)[run.segment]
            found.append((segment, matches.positions))
        for slot, partition in enumerate(partitions):
            rows = order[starts[slot] : starts[slot + 1]]
            if not len(rows):
                continue
            self._points_by_partition[partition.id] += len(rows)
            if self._blocks:
                self._blocks.add(partition.id, points, rows)
            if self._agent:
                here = checks[starts[slot] : starts[slot + 1]]
                self._agent.collect(partition.id, routed.column[rows], routed.row[rows], here)
        total = sum(len(positions) for _, positions in found)
        self._points += len(order)
        self._matches += total
        self._checks += int(checks.sum())
        fitting = len(order) * MATCHES_PER_BATCH // max(total, 1)
        self._chunk_rows = max(256, min(CHUNK_ROWS, fitting))
        return self.results(points, order, counts, found)

    def _runs(
        self,
        partition_id: int,
        routed: RoutedPoints,
        order: npt.NDArray[np.int64],
        low: int,
        high: int,
    ) -> Iterator[SegmentRun]:
        """Put a partition's points in the order of its segments; yield each segment's run."""
        if low == high:
            return
        segments = self._ctx.segments(partition_id)
        if len(segments) == 1:
            yield SegmentRun(partition_id, 0, int(low), int(high))
            return
        rows = order[low:high]
        column, row = routed.column[rows], routed.row[rows]
        segment_of = np.full(len(rows), -1, np.int32)
        for i, segment in enumerate(segments):
            c = segment.cells
            inside = (column >= c.col_start) & (column < c.col_stop)
            segment_of[inside & (row >= c.row_start) & (row < c.row_stop)] = i
        within, cuts = group_rows(segment_of, len(segments))
        rows[:] = rows[within]
        for i in range(len(segments)):
            if cuts[i] < cuts[i + 1]:
                yield SegmentRun(partition_id, i, int(low + cuts[i]), int(low + cuts[i + 1]))

    def _match_segment(
        self,
        run: SegmentRun,
        chunk: PointChunk,
        order: npt.NDArray[np.int64],
        view: PointView | None,
    ) -> Matches:
        """Match points against the queries of one segment; the application has the last word."""
        ctx, rows = self._ctx, order[run.low : run.high]
        x, y, times = chunk.x, chunk.y, chunk.time
        segment = ctx.segments(run.partition_id)[run.segment]
        base, delta = segment.base.index, segment.delta.index
        removed, now = ctx.removed(run.partition_id, run.segment), ctx.epoch.clock
        application = ctx.input.application
        built: tuple[Any, Any] = (None, None)
        if application is not None:
            built = ctx.built(application, run.partition_id, run.segment)
        if application is None or view is None or all(made is None for made in built):
            return match(x, y, times, rows, base, removed, delta, now)
        found = match(x, y, times, rows, base, removed, delta, now)
        border = len(base.ids)
        stateful = application.stateful
        keep = np.ones(len(found.positions), dtype=bool)
        pair = np.repeat(np.arange(len(found.points)), found.counts)
        points, position = view.between(run.low, run.high, found.points)
        for made, first, here in zip(
            built, (0, border), (found.positions < border, found.positions >= border), strict=True
        ):
            if made is not None and here.any():
                queries = np.subtract(found.positions[here], first, dtype=np.int64)
                pairs = Pairs(position[pair[here]], queries)
                matches = application.match(made, points, pairs)
                if stateful:
                    collected = matches & stateful.collects(made)[pairs.queries]
                    self._collect(application, made, points, pairs, collected)
                    matches &= ~collected
                keep[here] = matches
        counts = np.bincount(pair[keep], minlength=len(found.points)).astype(np.int32)
        return Matches(found.points, counts, found.checks, found.positions[keep])

    def _collect(
        self,
        application: BoundApplication,
        made: Any,
        points: pa.Table,
        pairs: Pairs,
        chosen: npt.NDArray[np.bool_],
    ) -> None:
        """Collect the pairs that add to the state of their queries."""
        if chosen.any():
            some = Pairs(pairs.points[chosen], pairs.queries[chosen])
            self._collected.append(application.collect(made, points, some))
            self._matches += len(some.points)

    def results(
        self,
        points: pa.Table,
        order: npt.NDArray[np.int64],
        counts: npt.NDArray[np.int32],
        found: list[tuple[Segment, npt.NDArray[np.int32]]],
    ) -> pa.RecordBatch | None:
        """Return a row for each point that has matches; None where nobody reads results.

        ``found`` has the positions of the queries in each segment, in the order of the points.
        """
        if self._schema.results is None:
            return None
        some = counts > 0
        matched = points.select([ID, *self._schema.include]).take(pa.array(order[some]))
        offsets = np.concatenate([np.zeros(1, np.int32), np.cumsum(counts[some], dtype=np.int32)])
        ids = np.empty(offsets[-1], np.int64)
        start = 0
        for segment, positions in found:
            segment.ids_at(positions, ids[start : start + len(positions)])
            start += len(positions)
        lists = pa.ListArray.from_arrays(pa.array(offsets), pa.array(ids))
        columns = [*(column.combine_chunks() for column in matched.columns), lists]
        self._result_types = [column.type for column in columns]
        return self._schema.result_rows(columns)

    def partial_state(self) -> pa.RecordBatch:
        """Return additions to the state of queries, packed for the executors that keep it."""
        started = time.thread_time()
        rows = route_partial_state(self._ctx, self._collected, self._executor)
        result = self._schema.packed_rows(rows, self._result_types)
        self._busy_s += time.thread_time() - started
        return result

    def close(self) -> TaskOutput:
        """End the batch for this executor; return what the driver must know."""
        started = time.thread_time()
        agent = self._agent.close() if self._agent else None
        blocks = self._blocks.close() if self._blocks else ()
        self._busy_s += time.thread_time() - started
        if agent is not None:
            agent = replace(agent, points=self._points, checks=self._checks, busy_s=self._busy_s)
        return TaskOutput(
            batch=self._ctx.epoch.batch,
            stage=TaskStage.EXECUTE,
            task=self._executor,
            # Points are counted by the route tasks, which check them.
            counts=Counts(matches=self._matches, checks=self._checks),
            written=Written(blocks=blocks),
            points_by_partition=dict(self._points_by_partition),
            points=self._points,
            busy_s=self._busy_s,
            max_event_time=self._max_event_time,
            agent=agent,
        )


def _agent(ctx: BatchContext, executor: int) -> Agent | None:
    """Return the policy's agent of an executor."""
    return make_policy(ctx.input.config.policy).agent(
        AgentContext(
            executor=executor,
            plan=ctx.plan,
            config=ctx.input.config,
            control=ctx.input.control,
            files=ctx.input.files,
            file_name=ctx.file_name,
            queries_in=ctx.queries_in,
            query_changes=ctx.input.query_changes,
        )
    )
