"""Lots: points that were matched together, and the rows that become of them.

Runs in the tasks that match points. A lot refers to queries by their positions in the files that
have them, so that ids, names and properties are looked up side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from sparkswarm.apps.events import objects as events
from sparkswarm.compiled import IntArray, LongArray, compiled
from sparkswarm.index.layout import NEVER, RangeIndex, readonly
from sparkswarm.store.cache import OpenDelta
from sparkswarm.store.names import gather_names, values_of_names
from sparkswarm.store.queries import ID, TIME, X, Y
from sparkswarm.store.segments import Base, Segment

Label = Callable[[Base], pa.LargeBinaryArray | None]
"""Returns a column of bytes of queries, such as their names."""

_BLANK = pa.array([b""], pa.large_binary())

_LABELS: Mapping[str, Label] = {
    events.NAMES: lambda base: base.names,
    events.PROPERTIES: lambda base: base.properties,
    events.STANDING: lambda base: base.standing,
}


def labels_of(bound: events.BoundEvents) -> dict[str, Label]:
    """Return the columns of bytes of fences that events need."""
    return {name: _LABELS[name] for name in bound.labels}


def texts_of(sources: Sequence[tuple[Base, IntArray]], label: Label) -> pa.StringArray:
    """Return names or properties at some positions of some bases, one base after another."""
    return gather_names(
        [
            (_BLANK, np.zeros_like(positions))
            if (values := label(base)) is None
            else (values, positions)
            for base, positions in sources
            if len(positions)
        ]
    )


class LotPart(NamedTuple):
    """Points of a lot that lie in one segment: a range of the lot's points."""

    partition_id: int
    segment: Segment
    low: int
    high: int
    positions: IntArray
    """Positions of the matching queries in the segment's base, point after point."""


class DeltaMatches(NamedTuple):
    """The queries of one delta that the points of a lot match."""

    delta: OpenDelta
    counts: IntArray
    """For each point of the lot."""
    positions: IntArray
    """Point after point."""


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
    deltas
        Matches in deltas, which are for all segments together; those without any are left out.
    """

    points: pa.Table
    rows: LongArray
    column: IntArray
    row: IntArray
    counts: IntArray
    checks: IntArray
    parts: list[LotPart]
    deltas: list[DeltaMatches]

    def results(
        self, include: Sequence[str], id_type: pa.DataType, properties: bool, pairs: bool
    ) -> list[pa.Array]:
        """Return the columns of results, with a row for each point that has matches.

        ``include`` are the points' columns that come back, ``properties`` whether those of queries
        do. With ``pairs`` there is a row for each match: those with queries of bases come first,
        then those with queries of each delta.
        """
        of_matches = [self._query_ids(id_type, pairs)]
        if properties:
            of_matches.append(self._texts(lambda base: base.properties, pairs))
        if pairs:
            counts = self._counts_by_file()
            return [*(self._repeated(name, counts) for name in (ID, *include)), *of_matches]
        some = self.counts > 0
        rows = self.rows[some]
        offsets = np.zeros(len(rows) + 1, np.int32)
        np.cumsum(self.counts[some], out=offsets[1:])
        of_matches = [pa.ListArray.from_arrays(pa.array(offsets), v) for v in of_matches]
        matched = self.points.select([ID, *include]).take(pa.array(rows))
        return [*(c.combine_chunks() for c in matched.columns), *of_matches]

    def _repeated(self, name: str, counts: IntArray) -> pa.Array:
        """Return a column of the points, with a row for each match, file after file."""
        column = self.points.column(name).combine_chunks()
        if column.null_count or column.type not in (pa.int64(), pa.float64()):
            rows = np.tile(self.rows, len(counts))
            return column.take(pa.array(np.repeat(rows, counts.ravel())))
        values = readonly(column.to_numpy().view(np.int64), np.int64)
        repeated = repeat_values(values, self.rows, counts, int(self.counts.sum()))
        return pa.array(repeated.view(column.to_numpy().dtype))

    def _query_ids(self, kind: pa.DataType, by_file: bool) -> pa.Array:
        """Return the ids of the matching queries, point after point or file after file."""
        if kind == pa.int64():
            return pa.array(self._numbers(lambda index: index.ids, by_file))
        return values_of_names(self._texts(lambda base: base.names, by_file), kind)

    def fixes(self, labels: Mapping[str, Label], order: LongArray) -> pa.Table:
        """Return a row for each point: its object, and the fences that contain it.

        ``labels`` are the columns of bytes of fences that are wanted, ``order`` the points of the
        lot in the order that is wanted.
        """
        points = self.points.select([ID, TIME, X, Y]).take(pa.array(self.rows[order]))
        table = points.rename_columns([events.OBJECT, events.TIME, events.X, events.Y])
        offsets, matches = reordered(self.counts, order)
        columns = {
            events.FENCES: pa.array(self._numbers(lambda index: index.ids)[matches]),
            events.UNTIL: pa.array(self._numbers(lambda index: index.expires)[matches]),
            **{name: self._texts(label).take(pa.array(matches)) for name, label in labels.items()},
        }
        for name, values in columns.items():
            lists = pa.ListArray.from_arrays(pa.array(offsets), values)
            table = table.append_column(name, lists)
        return table

    def _texts(self, label: Label, by_file: bool = False) -> pa.StringArray:
        """Return names or properties of the matching queries, point after point or by file."""
        sources = [(part.segment.base, part.positions) for part in self.parts]
        sources += [(found.delta.delta.added, found.positions) for found in self.deltas]
        texts = texts_of(sources, label)
        if by_file or not self.deltas:
            return texts
        order = interleave(np.arange(len(texts)), self._counts_by_file())
        return texts.take(pa.array(order))

    def _numbers(
        self, column: Callable[[RangeIndex], LongArray], by_file: bool = False
    ) -> LongArray:
        """Return a column of the matching queries, point after point or file after file.

        The column, that of expiry, may be empty.
        """
        ids = np.empty(int(self.counts.sum()), np.int64)
        start = 0
        for part in self.parts:
            stop = start + len(part.positions)
            take_values(column(part.segment.base.index), part.positions, ids[start:stop])
            start = stop
        for found in self.deltas:
            stop = start + len(found.positions)
            added = found.delta.delta.added.index
            take_values(column(added), found.positions, ids[start:stop])
            start = stop
        return interleave(ids, self._counts_by_file()) if self.deltas and not by_file else ids

    def _counts_by_file(self) -> IntArray:
        """Return the counts of matches in bases, then in each delta, a row each."""
        counts = np.empty((1 + len(self.deltas), len(self.rows)), np.int32)
        counts[0] = self.counts
        for i, found in enumerate(self.deltas):
            counts[i + 1] = found.counts
            counts[0] -= found.counts
        return counts


@compiled
def take_values(values: LongArray, positions: IntArray, out: LongArray) -> None:
    """Write the values at some positions to ``out``; NEVER where there are no values."""
    if len(values) == 0:
        out[:] = NEVER
        return
    for i in range(len(positions)):
        out[i] = values[np.uint32(positions[i])]


@compiled
def reordered(counts: IntArray, order: LongArray) -> tuple[IntArray, LongArray]:
    """Return where the matches of each point begin in another order of points, and which they are.

    ``counts`` has the number of matches of each point, which lie point after point.
    """
    starts = np.zeros(len(counts) + 1, np.int64)
    for i in range(len(counts)):
        starts[i + 1] = starts[i] + counts[i]
    offsets = np.zeros(len(order) + 1, np.int32)
    matches = np.empty(starts[-1], np.int64)
    n = 0
    for i in range(len(order)):
        for j in range(starts[order[i]], starts[order[i] + 1]):
            matches[n] = j
            n += 1
        offsets[i + 1] = n
    return offsets, matches[:n]


@compiled
def repeat_values(values: LongArray, rows: LongArray, counts: IntArray, total: int) -> LongArray:
    """Return the value of each row as often as it counts, once for each row of ``counts``.

    ``total`` is the sum of the counts.
    """
    out = np.empty(total, np.int64)
    n = 0
    for source in range(len(counts)):
        for i in range(len(rows)):
            value = values[rows[i]]
            for _ in range(counts[source, i]):
                out[np.uint64(n)] = value
                n += 1
    return out


@compiled
def interleave(ids: LongArray, counts: IntArray) -> LongArray:
    """Return the ids of several sources point after point.

    ``ids`` has them source after source, and ``counts`` the number of each source and point.
    """
    sources, points = counts.shape
    at = np.zeros(sources, np.int64)
    for source in range(sources - 1):
        at[source + 1] = at[source] + counts[source].sum()
    out = np.empty(len(ids), np.int64)
    n = 0
    for point in range(points):
        for source in range(sources):
            for _ in range(counts[source, point]):
                out[np.uint64(n)] = ids[np.uint64(at[source])]
                at[source] += 1
                n += 1
    return out
