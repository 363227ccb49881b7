"""Matching: points in, the queries that contain them out.

Runs in the tasks that match points: those of executors, and those that read the points where all
executors share a host. Points are matched in *lots* that are cut by what they can match, so that a
lot has a bounded number of results whatever the queries are. Matching again gives the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparkswarm.apps.application import Pairs
from sparkswarm.apps.bound import BoundApplication
from sparkswarm.compiled import IntArray, LongArray, compiled
from sparkswarm.index.layout import readonly
from sparkswarm.index.match import ChosenPoints, add_bounds, match_both, sort_rows
from sparkswarm.protocol.global_index import RoutedPoints
from sparkswarm.spark.task_output import OutputSchema
from sparkswarm.spark.tasks.packing import group_rows
from sparkswarm.store.queries import ID, TIME, X, Y
from sparkswarm.store.segments import Segment

if TYPE_CHECKING:
    from sparkswarm.spark.tasks.context import BatchContext

CHUNK_ROWS = 262_144
"""Points that are sorted together: few enough to stay in the cache."""

LOT_MATCHES = 2_000_000
"""Matches that a lot of several points can have at most: 16 MB of ids."""


class PointChunk(NamedTuple):
    """Points that are sorted together; ``time`` is empty where they have no event time."""

    points: pa.Table
    x: npt.NDArray[np.float64]
    y: npt.NDArray[np.float64]
    time: npt.NDArray[np.int64]
    routed: RoutedPoints


class SegmentRun(NamedTuple):
    """Points of a chunk that lie in one segment: a range of the chunk's order."""

    partition_id: int
    number: int
    segment: Segment
    low: int
    high: int


class LotPart(NamedTuple):
    """Points of a lot that lie in one segment: a range of the lot's points."""

    partition_id: int
    segment: Segment
    low: int
    high: int
    positions: IntArray
    """Positions of the matching queries in the segment, point after point."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lot:
    """Points that were matched together, those of a segment side by side.

    Attributes
    ----------
    points
        A table that contains them.
    rows
        Their rows in that table.
    column, row
        Their cells.
    counts, checks
        For each point, the number of matches and of queries that it was compared with.
    parts
        The lot by segment, in the order of ``rows``.
    """

    points: pa.Table
    rows: LongArray
    column: IntArray
    row: IntArray
    counts: IntArray
    checks: IntArray
    parts: list[LotPart]

    def results(self, schema: OutputSchema) -> pa.RecordBatch:
        """Return a row for each point that has matches."""
        some = self.counts > 0
        matched = self.points.select([ID, *schema.include]).take(pa.array(self.rows[some]))
        offsets = np.zeros(matched.num_rows + 1, np.int32)
        np.cumsum(self.counts[some], out=offsets[1:])
        ids = np.empty(offsets[-1], np.int64)
        start = 0
        for part in self.parts:
            part.segment.ids_at(part.positions, ids[start : start + len(part.positions)])
            start += len(part.positions)
        lists = pa.ListArray.from_arrays(pa.array(offsets), pa.array(ids))
        return schema.result_rows([*(c.combine_chunks() for c in matched.columns), lists])


class PointView:
    """Points as the application sees them, those of a segment together.

    So it is given no more points than it is asked about, however many segments there are.
    """

    def __init__(
        self, application: BoundApplication, points: pa.Table, order: npt.NDArray[np.int64]
    ) -> None:
        self._application = application
        self._points = points
        self._order = order

    def between(self, low: int, high: int) -> pa.Table:
        """Return the points of a range of the order."""
        return self._table.slice(low, high - low)

    @cached_property
    def _table(self) -> pa.Table:
        chosen = self._application.points(self._points)
        return chosen.take(pa.array(self._order)).combine_chunks()


class Matcher:
    """Matches points of one batch in one task.

    Attributes
    ----------
    collected
        What matched points add to the state of queries.
    collected_pairs
        Number of pairs among them; these are not results.
    """

    def __init__(self, ctx: BatchContext) -> None:
        self._ctx = ctx
        self.collected: list[pa.Table] = []
        self.collected_pairs = 0

    def match(self, points: pa.Table, routed: RoutedPoints | None = None) -> Iterator[Lot]:
        """Match the points of a table, about a chunk, except those with a negative partition."""
        points = points.combine_chunks()
        x, y = (readonly(points.column(name), np.float64) for name in (X, Y))
        times = points.column(TIME).to_numpy() if TIME in points.column_names else ()
        routed = routed or self._ctx.index.route(x, y)
        yield from self._match_chunk(PointChunk(points, x, y, readonly(times, np.int64), routed))

    def _match_chunk(self, chunk: PointChunk) -> Iterator[Lot]:
        ctx, routed = self._ctx, chunk.routed
        partitions = ctx.plan.partitions
        order, starts = group_rows(ctx.slot_of[routed.partition], len(partitions))
        runs = [
            run
            for slot in np.flatnonzero(np.diff(starts)).tolist()
            for run in self._runs(
                partitions[slot].id, routed, order, int(starts[slot]), int(starts[slot + 1])
            )
        ]
        bounds = np.zeros(len(order), np.int64)
        for run in runs:
            rows, index = order[run.low : run.high], run.segment.base.index
            sort_rows(chunk.x, chunk.y, rows, index)
            add_bounds(chunk.x, chunk.y, rows, index, bounds[run.low : run.high])
            delta = run.segment.delta.index
            if len(delta.ids):
                add_bounds(chunk.x, chunk.y, rows, delta, bounds[run.low : run.high])
        application = ctx.input.application
        view = PointView(application, chunk.points, order) if application else None
        for low, high in lots(bounds, LOT_MATCHES):
            yield self._match_lot(chunk, order, bounds, runs, low, high, view)

    def _runs(
        self, partition_id: int, routed: RoutedPoints, order: LongArray, low: int, high: int
    ) -> Iterator[SegmentRun]:
        """Put a partition's points in the order of its segments; yield each segment's run."""
        segments = self._ctx.segments(partition_id)
        if len(segments) == 1:
            yield SegmentRun(partition_id, 0, segments[0], low, high)
            return
        rows = order[low:high]
        column, row = routed.column[rows], routed.row[rows]
        segment_of = np.full(len(rows), -1, np.int32)
        for i, segment in enumerate(segments):
            segment_of[segment.cells.contains_cells(column, row)] = i
        within, cuts = group_rows(segment_of, len(segments))
        rows[:] = rows[within]
        for i, segment in enumerate(segments):
            if cuts[i] < cuts[i + 1]:
                start, stop = low + int(cuts[i]), low + int(cuts[i + 1])
                yield SegmentRun(partition_id, i, segment, start, stop)

    def _match_lot(
        self,
        chunk: PointChunk,
        order: LongArray,
        bounds: LongArray,
        runs: list[SegmentRun],
        low: int,
        high: int,
        view: PointView | None,
    ) -> Lot:
        rows = order[low:high]
        counts, checks = np.zeros(high - low, np.int32), np.zeros(high - low, np.int32)
        parts = []
        for run in runs:
            first, stop = max(run.low, low), min(run.high, high)
            if first < stop:
                here = slice(first - low, stop - low)
                here_view = view.between(first, stop) if view else None
                most = int(bounds[first:stop].sum())
                counts[here], positions = self._match_run(
                    chunk, order[first:stop], run, checks[here], most, here_view
                )
                parts.append(
                    LotPart(run.partition_id, run.segment, here.start, here.stop, positions)
                )
        return Lot(
            points=chunk.points,
            rows=rows,
            column=chunk.routed.column[rows],
            row=chunk.routed.row[rows],
            counts=counts,
            checks=checks,
            parts=parts,
        )

    def _match_run(
        self,
        chunk: PointChunk,
        rows: LongArray,
        run: SegmentRun,
        checks: IntArray,
        most: int,
        points: pa.Table | None,
    ) -> tuple[IntArray, IntArray]:
        """Match points of one segment; return counts and positions. The application decides."""
        ctx, segment = self._ctx, run.segment
        chosen = ChosenPoints(chunk.x, chunk.y, chunk.time, ctx.epoch.clock, rows)
        removed = ctx.removed(run.partition_id, run.number)
        base, delta = segment.base.index, segment.delta.index
        counts, positions = match_both(chosen, base, removed, delta, checks, most)
        application = ctx.input.application
        if application is None or points is None or not len(positions):
            return counts, positions
        built = ctx.built(application, run.partition_id, run.number)
        border = len(base.ids)
        stateful = application.stateful
        keep = np.ones(len(positions), dtype=bool)
        pair = np.repeat(np.arange(len(rows)), counts)
        for made, first, here in zip(
            built, (0, border), (positions < border, positions >= border), strict=True
        ):
            if made is not None and here.any():
                queries = np.subtract(positions[here], first, dtype=np.int64)
                pairs = Pairs(pair[here], queries)
                matches = application.match(made, points, pairs)
                if stateful:
                    collected = matches & stateful.collects(made)[pairs.queries]
                    self._collect(application, made, points, pairs, collected)
                    matches &= ~collected
                keep[here] = matches
        kept = np.bincount(pair[keep], minlength=len(rows)).astype(np.int32)
        return kept, positions[keep]

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
            self.collected.append(application.collect(made, points, some))
            self.collected_pairs += len(some.points)


def lots(bounds: LongArray, most: int) -> list[tuple[int, int]]:
    """Return ranges of points that can have ``most`` matches together, or are a single point."""
    cuts = _cut(bounds, most)
    return list(zip([0, *cuts.tolist()], [*cuts.tolist(), len(bounds)], strict=True))


@compiled
def _cut(bounds: LongArray, most: int) -> LongArray:
    cuts = np.empty(len(bounds), np.int64)
    number = 0
    total = 0
    for i in range(len(bounds)):
        if i > 0 and total + bounds[i] > most:
            cuts[number] = i
            number += 1
            total = 0
        total += bounds[i]
    return cuts[:number]
