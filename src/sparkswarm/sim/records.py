"""The durable state of a partition on one executor, and the part that a successor inherits.

Owns queries with their versions and running counts, and which tuples have been seen. How the
state of a partition is moved, split, merged and shared is in :func:`portion` and
:meth:`Record.absorb`; the executor decides when.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import compress
from typing import TYPE_CHECKING

from sparkswarm.geometry import CellRect
from sparkswarm.protocol.partition import Partition, PlanChange
from sparkswarm.sim.bugs import Bug
from sparkswarm.sim.tuples import Final, Lane, Match, Operation, Point

if TYPE_CHECKING:
    from sparkswarm.sim.matching import Matching

Holder = tuple[int, int]
"""A partition and one of its owners."""


@dataclass(slots=True)
class Entry:
    """A query in one partition: its newest operation, and its running counts.

    If the operation removed the query, or moved its rectangle out of the partition, the entry
    is a *tombstone*: it keeps older operations that arrive later from restoring the query.
    """

    operation: Operation
    counts: dict[Lane, int] = field(default_factory=dict)

    def lives_in(self, cells: CellRect) -> bool:
        """Whether points in these cells can match the query."""
        covered = self.operation.cells
        return covered is not None and covered.overlaps(cells)


class Seen:
    """The tuples that a partition has processed: all below a low-water mark, and some above."""

    __slots__ = ("above", "low")

    def __init__(self) -> None:
        self.low: dict[int, int] = {}
        self.above: dict[int, set[int]] = {}

    def __contains__(self, item: Point | Operation) -> bool:
        return item.number < self.low.get(item.source, 0) or item.number in self.above.get(
            item.source, ()
        )

    def add(self, item: Point) -> None:
        """Add a processed point."""
        self.above.setdefault(item.source, set()).add(item.number)

    def advance(self, source: int, low: int) -> bool:
        """Raise the low-water mark of a source; return False if it is not higher than before."""
        if low <= self.low.get(source, 0):
            return False
        self.low[source] = low
        above = self.above.get(source)
        if above:
            self.above[source] = {number for number in above if number >= low}
        return True

    def absorb(self, other: Seen) -> None:
        """Add the tuples that another partition has processed."""
        for source, numbers in other.above.items():
            self.above.setdefault(source, set()).update(numbers)
        for source, low in other.low.items():
            self.advance(source, low)

    def copy(self) -> Seen:
        """Return an independent copy."""
        seen = Seen()
        seen.absorb(self)
        return seen


@dataclass(slots=True)
class Record:
    """The durable state of one partition on an executor.

    Attributes
    ----------
    partition
        The partition.
    missing
        The previous holders whose state has not arrived. While there are any, the executor
        must not process tuples of the partition.
    retired_by
        The change that retired the partition, once the executor follows it. The record is
        final when it is retired and nothing is missing.
    """

    partition: Partition
    missing: list[Holder] = field(default_factory=list)
    entries: dict[int, Entry] = field(default_factory=dict)
    seen: Seen = field(default_factory=Seen)
    retired_by: PlanChange | None = None

    @property
    def is_final(self) -> bool:
        """Whether it cannot change any more."""
        return self.retired_by is not None and not self.missing

    def copy(self) -> Record:
        """Return an independent copy."""
        entries = {q: Entry(e.operation, dict(e.counts)) for q, e in self.entries.items()}
        return replace(self, missing=list(self.missing), entries=entries, seen=self.seen.copy())

    def apply(self, operation: Operation) -> bool:
        """Apply an operation on a query; return False if a newer one has been applied."""
        known = self.entries.get(operation.query)
        if known is None:
            self.entries[operation.query] = Entry(operation)
            return True
        if known.operation.version >= operation.version:
            return False
        known.operation = operation
        return True

    def absorb(self, content: Content) -> None:
        """Add the state that a previous holder handed over."""
        for given in content.entries:
            known = self.entries.get(given.operation.query)
            if known is None:
                self.entries[given.operation.query] = Entry(given.operation, dict(given.counts))
                continue
            if given.operation.version > known.operation.version:
                known.operation = given.operation
            known.counts.update(given.counts)
        self.seen.absorb(content.seen)

    def match(
        self, point: Point, executor: int, matching: Matching | None = None
    ) -> tuple[list[Match], int]:
        """Return the results of a point, and the number of queries that were checked.

        Without ``matching`` a query matches if its rectangle contains the point.
        """
        found: list[Entry] = []
        checks = 0
        for entry in self.entries.values():
            operation = entry.operation
            if operation.rectangle is None:
                continue
            checks += 1
            x1, y1, x2, y2 = operation.rectangle
            if x1 <= point.x <= x2 and y1 <= point.y <= y2:
                found.append(entry)
        if matching is not None:
            pairs = [(0, i) for i in range(len(found))]
            decided = matching.decide([point], [entry.operation for entry in found], pairs)
            found = list(compress(found, decided))
        return [self._result(entry, point, executor) for entry in found], checks

    def _result(self, entry: Entry, point: Point, executor: int) -> Match:
        """Return a result, and count it if the query is stateful."""
        query, version = entry.operation.query, entry.operation.version
        lane, count = None, 0
        if entry.operation.stateful:
            own = (query, version, self.partition.id, executor)
            lane = min(entry.counts, default=own)
            count = entry.counts[lane] = entry.counts.get(lane, 0) + 1
        return Match(query, version, point.source, point.number, lane, count)

    def close_counts(self) -> list[Final]:
        """End the running counts of queries that have left the partition."""
        finals: list[Final] = []
        for entry in self.entries.values():
            if entry.counts and not entry.lives_in(self.partition.cells):
                finals += [Final(lane, count) for lane, count in sorted(entry.counts.items())]
                entry.counts.clear()
        return finals

    def advance(self, source: int, low: int) -> None:
        """Raise a low-water mark, and drop tombstones that no older operation can follow."""
        if self.seen.advance(source, low):
            gone = [
                query
                for query, entry in self.entries.items()
                if entry.operation.source == source
                and entry.operation.number < low
                and not entry.lives_in(self.partition.cells)
            ]
            for query in gone:
                del self.entries[query]


def new_record(change: PlanChange, partition_id: int) -> Record:
    """Return the record of a partition that a change creates, with all predecessors missing."""
    created = next(p for p in change.created if p.id == partition_id)
    missing = [
        (retired.id, owner)
        for retired in change.retired
        if retired.cells.overlaps(created.cells)
        for owner in retired.owners
    ]
    return Record(created, missing)


@dataclass(frozen=True, slots=True)
class Content:
    """The state that one holder hands over to another.

    ``named`` are queries that were sent ahead: (query, version, counts).
    """

    entries: tuple[Entry, ...]
    seen: Seen
    named: tuple[tuple[int, int, dict[Lane, int]], ...] = ()

    def __repr__(self) -> str:
        """Return what the trace needs: every query, its version and its counts."""
        entries = [(e.operation.query, e.operation.version, e.counts) for e in self.entries]
        return f"Content({entries} {self.named})"

    def without(self, known: Mapping[int, int]) -> Content:
        """Reduce queries that the receiver has in the same version to their names."""
        named = []
        entries = []
        for entry in self.entries:
            query, version = entry.operation.query, entry.operation.version
            if known.get(query) == version:
                named.append((query, version, entry.counts))
            else:
                entries.append(entry)
        return replace(self, entries=tuple(entries), named=tuple(named))


def portion(
    record: Record,
    giver: int,
    change: PlanChange,
    created: Partition,
    taker: int,
    bugs: frozenset[Bug],
) -> Content:
    """Return the part of a final record that one owner of a successor inherits.

    Queries, tombstones and the processed tuples go to every successor that they may concern. A
    running count goes to one successor only.
    """
    entries = []
    for entry in record.entries.values():
        if not entry.operation.reach.overlaps(created.cells):
            continue
        if (
            Bug.TOMBSTONE_LOST in bugs
            and len(change.created) > 1
            and not entry.lives_in(created.cells)
        ):
            continue
        inherits = bool(entry.counts) and _heir(entry, change, giver) == (created.id, taker)
        if Bug.STATE_LEFT_BEHIND in bugs and giver != taker:
            inherits = False
        entries.append(replace(entry, counts=dict(entry.counts) if inherits else {}))
    keeps_seen = Bug.SEEN_NOT_MOVED not in bugs or giver == taker
    return Content(tuple(entries), record.seen.copy() if keeps_seen else Seen())


def _heir(entry: Entry, change: PlanChange, giver: int) -> Holder:
    """Return the holder that continues the running counts: the giver itself where possible."""
    reached = [p for p in change.created if entry.operation.reach.overlaps(p.cells)]
    living = [p for p in reached if entry.lives_in(p.cells)]
    heir = (living or reached)[0]
    return heir.id, giver if giver in heir.owners else heir.owners[0]
