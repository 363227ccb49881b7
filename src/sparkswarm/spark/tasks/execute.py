"""Execute: one task for each executor; it matches its points and minds its load.

Owns the task of an executor m. It takes the parcels of m, matches the points against the
queries of their partitions, and lets m's load-balancing unit collect statistics and answer the
Coordinator. What the unit knows lies in a file between batches, because the next batch's task
may run anywhere; losing it costs one less informed round.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark import Accumulator
from pyspark.sql import DataFrame

from sparkswarm.apps.application import Pairs
from sparkswarm.apps.bound import BoundApplication
from sparkswarm.index.match import Matches, match
from sparkswarm.policies.agent import Balance, Said
from sparkswarm.protocol.global_index import RoutedPoints
from sparkswarm.spark.task_input import ExecutorReport, Report
from sparkswarm.spark.tasks.blocks import Keeper
from sparkswarm.spark.tasks.context import Desk, desk
from sparkswarm.spark.tasks.packing import Task, from_bytes
from sparkswarm.spark.tasks.route import CHUNK, grouped
from sparkswarm.spark.tasks.state import deal_partials
from sparkswarm.spark.wanted import Returned, Wanted
from sparkswarm.store.queries import ID, TIME, X, Y

LOT = 24 * CHUNK
"""Bytes of parcels taken together: about so many points."""

MOST_MATCHES = 8_000_000
"""Matches in one lot of results, more or less: 64 MB."""


def execute(
    routed: DataFrame, briefing: bytes, reports: Accumulator[list[Report]], wanted: Wanted
) -> DataFrame:
    """Return the results of a batch: one row for each point that a query matches.

    Parameters
    ----------
    routed
        Parcels of points, those of an executor together.
    briefing
        The briefing, pickled.
    reports
        Where the executors say what they did.
    wanted
        What to return.
    """
    # No column is left out or renamed on the way: Spark would copy every parcel for it.
    return routed.mapInArrow(_task(briefing, reports, wanted), wanted.fields)


def _task(briefing: bytes, reports: Accumulator[list[Report]], wanted: Wanted) -> Task:
    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        work: _Work | None = None
        for executor, points in _lots(batches):
            work = work or _Work(desk(briefing), executor, Returned(wanted))
            if points is not None:
                yield from work.match(points)
        if work:
            if wanted.partials:
                yield work.partials()
            reports.add([work.report()])

    return task


def _lots(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, pa.Table | None]]:
    """Yield points in lots of a good size, and whose they are; at least one lot, empty or not.

    An executor knows itself by its parcels alone: the number of its task is another where a
    sink puts these results together with something else.
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
            if size >= LOT:
                yield executor, from_bytes(waiting)
                waiting, size = [], 0
    if executor >= 0:
        yield executor, from_bytes(waiting) if waiting else None


class _Known:
    """Points as the application knows them, those of a piece together.

    So it is given no more points than it is asked about, however many pieces there are.
    """

    def __init__(
        self, application: BoundApplication | None, points: pa.Table, order: npt.NDArray[np.int64]
    ) -> None:
        self._application = application
        self._points = points
        self._order = order.copy()

    def of(
        self, which: npt.NDArray[np.int64], low: int, high: int
    ) -> tuple[pa.Table, npt.NDArray[np.int64]]:
        """Return the points from ``low`` to ``high`` of the order, and where some are in them."""
        return self._table.slice(low, high - low), self._place[which] - low

    @cached_property
    def _table(self) -> pa.Table:
        assert self._application is not None
        chosen = self._application.points(self._points)
        return chosen.take(pa.array(self._order)).combine_chunks()

    @cached_property
    def _place(self) -> npt.NDArray[np.int64]:
        place = np.empty(self._points.num_rows, np.int64)
        place[self._order] = np.arange(len(self._order))
        return place


class _Work:
    """What one executor does in one batch."""

    def __init__(self, at: Desk, executor: int, form: Returned) -> None:
        self._at = at
        self._executor = executor
        self._form = form
        began = time.thread_time()
        self._balance = Balance(at, executor) if at.briefing.control else None
        self._keeper: Keeper | None = None
        if at.briefing.window is not None:
            self._keeper = Keeper(at, executor, form.wanted.names)
        self._collected: list[pa.Table] = []
        self._points = self._matches = self._checks = 0
        self._loads: Counter[int] = Counter()
        self._clock = 0
        self._size = CHUNK
        self._busy = time.thread_time() - began

    def match(self, points: pa.Table) -> Iterator[pa.RecordBatch]:
        """Yield the results of some points."""
        points = points.combine_chunks()
        start = 0
        while start < points.num_rows:
            began = time.thread_time()
            some = points.slice(start, self._size)
            start += some.num_rows
            results = self._match(some)
            self._busy += time.thread_time() - began
            if results is not None:
                yield results

    def _match(self, points: pa.Table) -> pa.RecordBatch | None:
        at = self._at
        x, y = points.column(X).to_numpy(), points.column(Y).to_numpy()
        has_time = TIME in points.column_names
        when = points.column(TIME).to_numpy() if has_time else np.empty(0, np.int64)
        if len(when):
            self._clock = max(self._clock, int(when.max()))
        elif self._keeper:
            self._clock = at.briefing.epoch.clock
        routed = at.index.route(x, y)
        plan = at.briefing.epoch.plan
        order, starts = grouped(at.slot_of[routed.partition], len(plan.partitions))
        runs = [
            (partition.id, number, low + begin, low + end)
            for slot, partition in enumerate(plan.partitions)
            for low, high in [(int(starts[slot]), int(starts[slot + 1]))]
            if low < high
            for number, begin, end in self._by_piece(partition.id, routed, order[low:high])
        ]
        known = _Known(at.briefing.application, points, order)
        counts = np.empty(len(order), np.int32)
        checks = np.empty(len(order), np.float64)
        found: list[npt.NDArray[np.int64]] = []
        for partition_id, number, low, high in runs:
            matches = self._match_piece(partition_id, number, x, y, when, order, low, high, known)
            order[low:high] = matches.points
            counts[low:high] = matches.counts
            checks[low:high] = matches.checks
            found.append(matches.ids)
        for slot, partition in enumerate(plan.partitions):
            which = order[starts[slot] : starts[slot + 1]]
            if not len(which):
                continue
            self._loads[partition.id] += len(which)
            if self._keeper:
                self._keeper.add(partition.id, points, which)
            if self._balance:
                here = checks[starts[slot] : starts[slot + 1]]
                self._balance.collect(partition.id, routed.column[which], routed.row[which], here)
        ids = np.concatenate(found) if found else np.empty(0, np.int64)
        self._points += len(order)
        self._matches += len(ids)
        self._checks += int(checks.sum())
        self._size = max(256, min(CHUNK, len(order) * MOST_MATCHES // max(len(ids), 1)))
        return self._results(points, order, counts, ids)

    def _match_piece(
        self, partition_id: int, number: int,
        x: npt.NDArray[np.float64], y: npt.NDArray[np.float64], when: npt.NDArray[np.int64],
        order: npt.NDArray[np.int64], low: int, high: int, known: _Known,
    ) -> Matches:  # fmt: skip
        """Match points against the queries of one piece; the application has the last word."""
        at, which = self._at, order[low:high]
        piece = at.pieces(partition_id)[number]
        base, delta = piece.base.index, piece.delta.index
        dead, now = at.dead(partition_id, number), at.briefing.epoch.clock
        application = at.briefing.application
        built = at.built(application, partition_id, number) if application else (None, None)
        if application is None or all(made is None for made in built):
            return match(x, y, when, which, base, dead, delta, now)
        base_places, delta_places = at.places(partition_id, number)
        found = match(x, y, when, which, base_places, dead, delta_places, now)
        border = len(base.ids)
        stateful = application.stateful
        keep = np.ones(len(found.ids), dtype=bool)
        pair = np.repeat(np.arange(len(found.points)), found.counts)
        points, place = known.of(found.points, low, high)
        for made, first, here in zip(
            built, (0, border), (found.ids < border, found.ids >= border), strict=True
        ):
            if made is not None and here.any():
                pairs = Pairs(place[pair[here]], found.ids[here] - first)
                matches = application.match(made, points, pairs)
                if stateful:
                    kept = matches & stateful.collects(made)[pairs.queries]
                    self._collect(application, made, points, pairs, kept)
                    matches &= ~kept
                keep[here] = matches
        counts = np.bincount(pair[keep], minlength=len(found.points)).astype(np.int32)
        places = found.ids[keep]
        old = places < border
        ids = np.empty(len(places), np.int64)
        ids[old], ids[~old] = base.ids[places[old]], delta.ids[places[~old] - border]
        return Matches(found.points, counts, found.checks, ids)

    def _collect(
        self, application: BoundApplication, made: Any, points: pa.Table, pairs: Pairs,
        which: npt.NDArray[np.bool_],
    ) -> None:  # fmt: skip
        """Take in the pairs that add to the state of their queries."""
        if which.any():
            chosen = Pairs(pairs.points[which], pairs.queries[which])
            self._collected.append(application.collect(made, points, chosen))
            self._matches += len(chosen.points)

    def partials(self) -> pa.RecordBatch:
        """Return what was added to the state of queries, for the executors that keep it."""
        began = time.thread_time()
        parcels = self._form.of_parcels(deal_partials(self._at, self._collected, self._executor))
        self._busy += time.thread_time() - began
        return parcels

    def _by_piece(
        self, partition_id: int, routed: RoutedPoints, which: npt.NDArray[np.int64]
    ) -> Iterator[tuple[int, int, int]]:
        """Put a partition's points in the order of its pieces; yield each piece's run."""
        pieces = self._at.pieces(partition_id)
        if len(pieces) == 1:
            yield 0, 0, len(which)
            return
        column, row = routed.column[which], routed.row[which]
        piece_of = np.full(len(which), -1, np.int32)
        for i, piece in enumerate(pieces):
            c = piece.cells
            inside = (column >= c.col_start) & (column < c.col_stop)
            piece_of[inside & (row >= c.row_start) & (row < c.row_stop)] = i
        within, cuts = grouped(piece_of, len(pieces))
        which[:] = which[within]
        for i in range(len(pieces)):
            if cuts[i] < cuts[i + 1]:
                yield i, int(cuts[i]), int(cuts[i + 1])

    def _results(
        self,
        points: pa.Table,
        order: npt.NDArray[np.int64],
        counts: npt.NDArray[np.int32],
        ids: npt.NDArray[np.int64],
    ) -> pa.RecordBatch | None:
        """Return one row for each point that has matches; None where nobody wants them."""
        if self._form.wanted.schema is None:
            return None
        some = counts > 0
        matched = points.select([ID, *self._form.wanted.keep]).take(pa.array(order[some]))
        offsets = np.concatenate([np.zeros(1, np.int32), np.cumsum(counts[some], dtype=np.int32)])
        lists = pa.ListArray.from_arrays(pa.array(offsets), pa.array(ids))
        columns = [column.combine_chunks() for column in matched.columns]
        return self._form.of_results([*columns, lists])

    def report(self) -> ExecutorReport:
        """Close the batch for this executor and say what it did."""
        began = time.thread_time()
        said = self._balance.close() if self._balance else Said()
        blocks = self._keeper.close() if self._keeper else ()
        self._busy += time.thread_time() - began
        return ExecutorReport(
            self._at.briefing.epoch.batch, self._executor,
            self._points, self._matches, self._checks, self._busy, self._clock,
            said.messages, said.parcels, said.state, dict(self._loads), blocks,
        )  # fmt: skip
