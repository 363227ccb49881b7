"""The durable state of a partition on one executor, and what of it passes to a successor.

Owns queries with their versions and running counts, and which tuples have been seen. How a
partition's state moves, splits, merges and is shared is all here, in :func:`portion` and
:meth:`Record.absorb`; when it does is the executor's business.
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
    """A query as one partition knows it: the newest operation, and its running counts.

    Where the operation is a removal, or has moved the rectangle out of the partition, the
    entry is a *tombstone*: it keeps older operations, which may still be on their way, from
    bringing the query back.
    """

    operation: Operation
    counts: dict[Lane, int] = field(default_factory=dict)

    def lives_in(self, cells: CellRect) -> bool:
        """Whether points in these cells can match."""
        covered = self.operation.cells
        return covered is not None and covered.overlaps(cells)


class Seen:
    """Which tuples a partition has processed: all below a low-water mark, and some above."""

    __slots__ = ("above", "low")

    def __init__(self) -> None:
        self.low: dict[int, int] = {}
        self.above: dict[int, set[int]] = {}

    def __contains__(self, item: Point | Operation) -> bool:
        return item.number < self.low.get(item.source, 0) or item.number in self.above.get(
            item.source, ()
        )

    def add(self, item: Point) -> None:
        """Note a point that has been processed."""
        self.above.setdefault(item.source, set()).add(item.number)

    def advance(self, source: int, low: int) -> bool:
        """Learn that everything of a source below ``low`` is done; whether that is news."""
        if low <= self.low.get(source, 0):
            return False
        self.low[source] = low
        above = self.above.get(source)
        if above:
            self.above[source] = {number for number in above if number >= low}
        return True

    def absorb(self, other: Seen) -> None:
        """Add what another partition has seen."""
        for source, numbers in other.above.items():
            self.above.setdefault(source, set()).update(numbers)
        for source, low in other.low.items():
            self.advance(source, low)

    def copy(self) -> Seen:
        """Return the same, to be changed apart."""
        seen = Seen()
        seen.absorb(self)
        return seen


@dataclass(slots=True)
class Record:
    """What an executor keeps durable of one partition.

    Attributes
    ----------
    partition
        Which.
    missing
        The previous holders whose state has not arrived yet. Until all have, the executor
        may not process anything of the partition.
    retired_by
        The change that retired the partition, once the executor has learnt of it. Then, and
        when nothing is missing, the record is final.
    """

    partition: Partition
    missing: list[Holder] = field(default_factory=list)
    entries: dict[int, Entry] = field(default_factory=dict)
    seen: Seen = field(default_factory=Seen)
    retired_by: PlanChange | None = None

    @property
    def is_final(self) -> bool:
        """Whether it will never change again."""
        return self.retired_by is not None and not self.missing

    def copy(self) -> Record:
        """Return the same, to be changed apart."""
        entries = {q: Entry(e.operation, dict(e.counts)) for q, e in self.entries.items()}
        return replace(self, missing=list(self.missing), entries=entries, seen=self.seen.copy())

    def apply(self, operation: Operation) -> bool:
        """Take in an operation on a query; whether it was newer than what was known."""
        known = self.entries.get(operation.query)
        if known is None:
            self.entries[operation.query] = Entry(operation)
            return True
        if known.operation.version >= operation.version:
            return False
        known.operation = operation
        return True

    def absorb(self, content: Content) -> None:
        """Add what a previous holder handed over."""
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
        """Return the results of a point, and how many queries were checked for them.

        Without ``matching`` every query matches whose rectangle contains the point.
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
        """Return a result, and count it where the query counts."""
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
        """Learn a low-water mark, and drop the tombstones that nothing older can reach now."""
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


def new_record(change: PlanChange, partition_id: int, executor: int) -> Record:
    """Return the record of a partition that a change creates: it waits for all before it."""
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
    """What one holder hands over to another.

    ``named`` are queries that were sent ahead: (query, version, counts).
    """

    entries: tuple[Entry, ...]
    seen: Seen
    named: tuple[tuple[int, int, dict[Lane, int]], ...] = ()

    def __repr__(self) -> str:
        """Show what the trace needs: every query, its version and its counts."""
        entries = [(e.operation.query, e.operation.version, e.counts) for e in self.entries]
        return f"Content({entries} {self.named})"

    def without(self, known: Mapping[int, int]) -> Content:
        """Only name the queries that the other has in the same version."""
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
    """Return what of a final record passes to one owner of one of its successors.

    Queries, tombstones and what was seen go to everyone whom they may concern. A running
    count goes to one heir only.
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
    """Return who goes on with the running counts: the giver itself, if it may."""
    reached = [p for p in change.created if entry.operation.reach.overlaps(p.cells)]
    living = [p for p in reached if entry.lives_in(p.cells)]
    heir = (living or reached)[0]
    return heir.id, giver if giver in heir.owners else heir.owners[0]
