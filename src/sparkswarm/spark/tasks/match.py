"""Matching: points in, the queries that contain them out.

Runs in the tasks that match points: those of executors, and those that read the points where all
executors share a host. Points are matched in *lots* that are cut by what they can match, so that a
lot has a bounded number of results whatever the queries are. Matching again gives the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparkswarm.apps.application import Pairs
from sparkswarm.apps.bound import BoundApplication
from sparkswarm.compiled import BoolArray, ByteArray, IntArray, LongArray, compiled
from sparkswarm.index.layout import readonly
from sparkswarm.index.match import (
    ChosenPoints,
    add_bounds,
    add_candidates,
    match_index,
    sort_rows,
)
from sparkswarm.index.shapes import keep_covered
from sparkswarm.protocol.global_index import RoutedPoints
from sparkswarm.spark.tasks.lots import DeltaMatches, Lot, LotPart
from sparkswarm.spark.tasks.packing import group_rows
from sparkswarm.spark.tasks.points import times_of
from sparkswarm.store.cache import OpenDelta
from sparkswarm.store.files import FileRef
from sparkswarm.store.manifest import PART_BLOCKS
from sparkswarm.store.queries import TIME, X, Y
from sparkswarm.store.segments import Base, Segment

if TYPE_CHECKING:
    from sparkswarm.spark.tasks.context import BatchContext

CHUNK_ROWS = 262_144
"""Points that are sorted together: few enough to stay in the cache."""

LOT_MATCHES = 500_000
"""Matches that a lot of several points can have at most: 4 MB of ids. Spark takes one lot while the
next is matched, so that even a task of few points keeps two cores busy; each lot costs it time too.
"""


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


class DeltaRun(NamedTuple):
    """Points of a chunk that a delta may have queries for."""

    delta: OpenDelta
    candidates: LongArray
    """Ascending places in the chunk's order."""


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
        times = times_of(points) if TIME in points.column_names else ()
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
        deltas = list(self._delta_runs(chunk, order, bounds))
        application = ctx.input.application
        view = PointView(application, chunk.points, order) if application else None
        for low, high in lots(bounds, LOT_MATCHES):
            yield self._match_lot(chunk, order, bounds, runs, deltas, low, high, view)

    def _delta_runs(
        self, chunk: PointChunk, order: LongArray, bounds: LongArray
    ) -> Iterator[DeltaRun]:
        """Yield the deltas, or the parts of them that these points need; add their bounds."""
        ctx, block = self._ctx, np.empty(0, np.int64)
        blocks = np.zeros(PART_BLOCKS**2, dtype=bool)
        if any(ref.parts for ref in ctx.epoch.manifest.deltas):
            block = ctx.part_blocks.of(chunk.routed.column[order], chunk.routed.row[order])
            blocks[block] = True
        for one in ctx.deltas(blocks):
            index = one.delta.added.index
            if not len(index.ids):
                continue
            if one.blocks is None:
                yield DeltaRun(one, add_candidates(chunk.x, chunk.y, order, index, bounds))
                continue
            places = np.flatnonzero(one.blocks[block])
            here = np.zeros(len(places), np.int64)
            found = add_candidates(chunk.x, chunk.y, order[places], index, here)
            bounds[places] += here
            yield DeltaRun(one, places[found])

    def _runs(
        self, partition_id: int, routed: RoutedPoints, order: LongArray, low: int, high: int
    ) -> Iterator[SegmentRun]:
        """Put a partition's points in the order of its segments; yield each segment's run."""
        ctx = self._ctx
        refs = ctx.epoch.manifest.partitions[partition_id]
        if len(refs) == 1:
            yield SegmentRun(partition_id, 0, ctx.segment(refs[0]), low, high)
            return
        rows = order[low:high]
        column, row = routed.column[rows], routed.row[rows]
        segment_of = np.full(len(rows), -1, np.int32)
        for i, ref in enumerate(refs):
            segment_of[ref.cells.contains_cells(column, row)] = i
        within, cuts = group_rows(segment_of, len(refs))
        rows[:] = rows[within]
        for i, ref in enumerate(refs):
            # Files of others are not needed.
            if cuts[i] < cuts[i + 1]:
                start, stop = low + int(cuts[i]), low + int(cuts[i + 1])
                yield SegmentRun(partition_id, i, ctx.segment(ref), start, stop)

    def _match_lot(
        self,
        chunk: PointChunk,
        order: LongArray,
        bounds: LongArray,
        runs: list[SegmentRun],
        deltas: list[DeltaRun],
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
                segment = run.segment
                ref = self._ctx.base_ref(run.partition_id, run.number)
                counts[here], positions = self._match_file(
                    self._chosen(chunk, order[first:stop]),
                    *(ref, segment.base, segment.removed, checks[here]),
                    int(bounds[first:stop].sum()),
                    view.between(first, stop) if view else None,
                )
                parts.append(LotPart(run.partition_id, segment, here.start, here.stop, positions))
        found = []
        for one, candidates in deltas:
            first, stop = np.searchsorted(candidates, [low, high])
            some = candidates[first:stop] - low
            if not len(some):
                continue
            new_counts, new_checks = np.zeros_like(counts), np.zeros(len(some), np.int32)
            new_counts[some], positions = self._match_file(
                self._chosen(chunk, rows[some]),
                *(one.ref, one.delta.added, one.removed, new_checks),
                int(bounds[candidates[first:stop]].sum()),
                view.between(low, high).take(pa.array(some)) if view else None,
            )
            checks[some] += new_checks
            if len(positions):
                counts += new_counts
                found.append(DeltaMatches(one, new_counts, positions))
        return Lot(
            points=chunk.points,
            rows=rows,
            column=chunk.routed.column[rows],
            row=chunk.routed.row[rows],
            counts=counts,
            checks=checks,
            parts=parts,
            deltas=found,
        )

    def _chosen(self, chunk: PointChunk, rows: LongArray) -> ChosenPoints:
        return ChosenPoints(chunk.x, chunk.y, chunk.time, self._ctx.epoch.clock, rows)

    def _match_file(
        self,
        chosen: ChosenPoints,
        ref: FileRef | None,
        stored: Base,
        removed: ByteArray,
        checks: IntArray,
        most: int,
        points: pa.Table | None,
    ) -> tuple[IntArray, IntArray]:
        """Match points with the queries of one file; return counts and positions.

        Rectangles are compared first, then shapes.
        The application decides which count; ``points`` are the chosen ones as it sees them.
        """
        counts, positions = match_index(chosen, stored.index, removed, checks, most)
        shapes = self._ctx.queries.shapes(ref, stored) if len(positions) else None
        if shapes is not None:
            counts, positions = keep_covered(
                shapes, chosen.x, chosen.y, chosen.rows, counts, positions
            )
        application = self._ctx.input.application
        if application is None or points is None or not len(positions):
            return counts, positions
        built = self._ctx.built(application, ref, stored)
        if built is None:
            return counts, positions
        pairs = Pairs(*matched_pairs(counts, positions))
        keep = application.match(built, points, pairs)
        if application.stateful:
            collected = keep & application.stateful.collects(built)[pairs.queries]
            self._collect(application, built, points, pairs, collected)
            keep = keep & ~collected
        return kept_matches(counts, positions, keep)

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


@compiled
def matched_pairs(counts: IntArray, positions: IntArray) -> tuple[LongArray, LongArray]:
    """Return the point and the query of each match: matches are given point after point."""
    points = np.empty(len(positions), np.int64)
    queries = np.empty(len(positions), np.int64)
    n = 0
    for i in range(len(counts)):
        for _ in range(counts[i]):
            points[np.uint64(n)] = i
            queries[np.uint64(n)] = positions[np.uint64(n)]
            n += 1
    return points, queries


@compiled
def kept_matches(
    counts: IntArray, positions: IntArray, keep: BoolArray
) -> tuple[IntArray, IntArray]:
    """Return the number of matches that each point keeps, and the positions that are kept."""
    kept = np.zeros(len(counts), np.int32)
    out = np.empty(len(positions), np.int32)
    n = kept_before = at = 0
    for i in range(len(counts)):
        for _ in range(counts[i]):
            out[np.uint64(n)] = positions[np.uint64(at)]
            n += keep[np.uint64(at)]
            at += 1
        kept[i] = n - kept_before
        kept_before = n
    return kept, out[:n].copy()


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
