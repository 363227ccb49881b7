"""Deltas: what operations changed since the bases were written.

Owns how a batch's operations are applied and stored. A batch with operations writes one file: the
queries that it registered, indexed for the whole space, the ids of all queries that it changed, and
where the versions are that don't count any more, in bases and in older deltas. Deltas are merged
with the ones before them so that each is much larger than the next, and :func:`is_compaction_due`
says when bases should take them in.

Operations may be repeated: registering a query that is registered replaces it, unregistering one
that is not does nothing. Runs on the driver, once a batch with operations. A batch that runs again
writes another file with the same content.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparkswarm.compiled import BoolArray, IntArray, LongArray, compiled
from sparkswarm.geometry import Grid
from sparkswarm.store.directory import Directory, find_sorted
from sparkswarm.store.formats import Arrays, arrays_from_bytes, arrays_to_bytes
from sparkswarm.store.manifest import Manifest
from sparkswarm.store.queries import Op, Operations, Queries, cell_array
from sparkswarm.store.segments import VERSIONS, Base, unexpired

COMPACT_SHARE = 0.125
"""Deltas may change this share of the queries in bases before they are compacted."""
COMPACT_LEAST = 8192
"""Deltas may always change this many queries."""
COMPACT_SEGMENTS = 4
"""There may be this many segments for each partition, or base, before all are compacted."""
MERGE_RATIO = 2
"""A delta is merged with the next unless it is more than this many times as large."""

_TARGET_BITS = 32


def delta_target(batch: int) -> int:
    """Return the number under which a delta is a target; bases have theirs from 0."""
    return -2 - batch


def positions_in(dead: LongArray, target: int) -> LongArray:
    """Return the positions in one target."""
    low, high = np.searchsorted(dead, [target << _TARGET_BITS, (target + 1) << _TARGET_BITS])
    return dead[low:high] - (target << _TARGET_BITS)


@dataclass(frozen=True, kw_only=True)
class Changes:
    """What happened to n queries.

    Attributes
    ----------
    ids
        Sorted ids of the queries that were registered, replaced or unregistered.
    batches
        The batch of the last change of each.
    before
        Of shape (n, 4): the cells of each before, as in :class:`~sparkswarm.geometry.QueryCells`;
        all 0 where it did not exist.
    added
        The queries that exist now, by id.
    dead
        Where the versions before are: sorted numbers of target and position. A target is a base,
        by its number in the manifest, or an older delta, see :func:`delta_target`.
    """

    ids: LongArray
    batches: LongArray
    before: IntArray
    added: Queries
    dead: LongArray

    def after(self, older: Changes, batch: int, purge_before: int) -> Changes:
        """Return these changes merged with those of the delta before, which ``batch`` wrote.

        Queries that expired before ``purge_before`` are left out.
        """
        start, stop = find_sorted(self.ids, older.ids)
        both = stop > start
        before = self.before.copy()
        before[both] = older.before[start[both]]
        alone = np.ones(len(older.ids), dtype=bool)
        alone[start[both]] = False
        ids = np.concatenate([older.ids[alone], self.ids])
        order = np.argsort(ids, kind="stable")
        start, stop = find_sorted(older.added.ids, self.ids)
        kept = older.added.take(stop == start)
        added = unexpired(Queries.concat([kept, self.added]), purge_before)
        target = delta_target(batch) << _TARGET_BITS
        elsewhere = (self.dead < target) | (self.dead >= target + (1 << _TARGET_BITS))
        return Changes(
            ids=ids[order],
            batches=np.concatenate([older.batches[alone], self.batches])[order],
            before=np.concatenate([older.before[alone], before])[order],
            added=added.take(np.argsort(added.ids, kind="stable")),
            dead=np.sort(np.concatenate([older.dead, self.dead[elsewhere]]), kind="stable"),
        )


@dataclass(frozen=True)
class Delta:
    """Changes as a file has them: with the queries indexed for the whole space.

    Attributes
    ----------
    added
        The queries that exist now, ready to be matched.
    positions
        The position in the index of each of ``ids``, -1 where the query is gone.
    ids, batches, before, dead
        As in :class:`Changes`.
    """

    added: Base
    positions: IntArray
    ids: LongArray
    batches: LongArray
    before: IntArray
    dead: LongArray

    @classmethod
    def build(cls, changes: Changes, grid: Grid) -> Delta:
        """Index the queries of changes."""
        added = Base.build(changes.added, grid, grid.cells)
        positions = np.full(len(changes.ids), -1, np.int32)
        exists, _ = find_sorted(changes.added.ids, changes.ids)
        positions[exists] = np.argsort(added.index.ids, kind="stable")
        return cls(added, positions, changes.ids, changes.batches, changes.before, changes.dead)

    @property
    def changes(self) -> Changes:
        """The changes, without the index."""
        return Changes(
            ids=self.ids,
            batches=self.batches,
            before=self.before,
            added=self.added.queries.take(self.positions[self.positions >= 0]),
            dead=self.dead,
        )

    def to_bytes(self) -> pa.Buffer:
        """Return the content of its file."""
        arrays: Arrays = {
            "positions": self.positions,
            "changed": self.ids,
            "batches": self.batches,
            "before": self.before,
            "dead": self.dead,
        }
        return arrays_to_bytes({**self.added.arrays(), **arrays}, self.added.version)

    @classmethod
    def from_bytes(cls, content: pa.Buffer) -> Delta:
        """Read what :meth:`to_bytes` returned."""
        arrays = arrays_from_bytes(content, *VERSIONS)
        return cls(
            Base.from_arrays(arrays),
            arrays["positions"],
            arrays["changed"],
            arrays["batches"],
            arrays["before"],
            arrays["dead"],
        )


class Found(NamedTuple):
    """The present versions of n queries.

    Attributes
    ----------
    exists
        Whether there is one.
    cells, expires
        Its cells and its expiry; 0 where there is none.
    dead
        Where they all are, as in :class:`Changes`.
    """

    exists: BoolArray
    cells: IntArray
    expires: LongArray
    dead: LongArray


def find_queries(
    ids: LongArray,
    directories: Sequence[tuple[int, Directory]],
    deltas: Sequence[tuple[int, Delta]],
    grid: Grid,
) -> Found:
    """Find queries by their sorted ids.

    ``directories`` come with the number of the first base of each, ``deltas`` with their batches,
    oldest first.
    """
    exists = np.zeros(len(ids), dtype=bool)
    cells = np.zeros((len(ids), 4), np.int32)
    expires = np.zeros(len(ids), np.int64)
    dead = [np.empty(0, np.int64)]
    # What the newest delta with an id says about it counts; the bases are the oldest.
    left = np.arange(len(ids))
    for batch, delta in reversed(deltas):
        start, stop = find_sorted(ids[left], delta.ids)
        known = stop > start
        positions = delta.positions[start[known]]
        here, positions = left[known][positions >= 0], positions[positions >= 0]
        queries = delta.added.queries.rectangles().take(positions)
        exists[here] = True
        cells[here] = cell_array(queries.cells(grid))
        expires[here] = queries.expires
        dead.append((delta_target(batch) << _TARGET_BITS) + positions.astype(np.int64))
        left = left[~known]
    for first, directory in directories:
        start, stop = find_sorted(ids[left], directory.ids)
        number = stop - start
        here = left[number > 0]
        entry = start[number > 0]
        exists[here] = True
        cells[here] = directory.cells[entry]
        expires[here] = directory.expiry_at(entry)
        # A query may be in several bases.
        total = int(number.sum())
        offset = np.arange(total) - np.repeat(np.cumsum(number) - number, number)
        entries = np.repeat(start, number) + offset
        target = directory.base[entries].astype(np.int64) + first
        dead.append((target << _TARGET_BITS) + directory.position[entries])
    return Found(exists, cells, expires, np.sort(np.concatenate(dead)))


class Settled(NamedTuple):
    """The outcome of a batch of operations."""

    changes: Changes
    applied: int
    """Operations that took effect."""
    replaced: int
    """Of these, registrations of queries that were registered already."""
    ignored: int
    """Operations that unregister what is not registered."""


def settle_operations(
    operations: Operations,
    directories: Sequence[tuple[int, Directory]],
    deltas: Sequence[tuple[int, Delta]],
    grid: Grid,
    now: int,
    batch: int,
) -> Settled:
    """Apply operations to the stored queries, those on one query in their order.

    The last one counts. A query that expired at ``now`` or before is not registered any more.
    """
    order, ids, starts = grouped_by_id(operations)
    found = find_queries(ids, directories, deltas, grid)
    last, replaced, ignored = _settle(
        order,
        starts,
        operations.op,
        operations.queries.expires > now,
        found.exists & (found.expires > now),
    )
    changed = (last >= 0) | ((last == _UNREGISTERED) & found.exists)
    if not changed.all():
        found = find_queries(ids[changed], directories, deltas, grid)
    changes = Changes(
        ids=ids[changed],
        batches=np.full(len(found.exists), batch, np.int64),
        before=found.cells,
        added=operations.queries.take(last[last >= 0]),
        dead=found.dead,
    )
    return Settled(changes, len(order) - ignored, replaced, ignored)


def grouped_by_id(operations: Operations) -> tuple[LongArray, LongArray, LongArray]:
    """Return the order by id and within it by ``order``, the ids, and where each starts."""
    ids = operations.queries.ids
    order = np.lexsort((operations.order, ids))
    distinct, first = np.unique(ids[order], return_index=True)
    return order, distinct, np.append(first, len(order))


_UNCHANGED = -2
_UNREGISTERED = -1
_REGISTER, _UNREGISTER = int(Op.REGISTER), int(Op.UNREGISTER)


@compiled
def _settle(
    order: LongArray,
    starts: LongArray,
    op: npt.NDArray[np.int8],
    lives: BoolArray,
    registered: BoolArray,
) -> tuple[LongArray, int, int]:
    """Return the last operation on each id that takes effect, and how many replace or do nothing.

    ``lives`` says of each operation whether its query has yet to expire, ``registered`` of each id
    whether it is registered before.
    """
    last = np.full(len(registered), _UNCHANGED, dtype=np.int64)
    replaced = ignored = 0
    for i in range(len(registered)):
        there = registered[i]
        for j in range(starts[i], starts[i + 1]):
            at = order[j]
            if op[at] == _UNREGISTER:
                if there:
                    last[i] = _UNREGISTERED
                else:
                    ignored += 1
            else:
                replaced += there and op[at] == _REGISTER
                last[i] = at
            there = op[at] != _UNREGISTER and lives[at]
    return last, replaced, ignored


class ChangedQueries(Protocol):
    """Which queries changed."""

    @property
    def ids(self) -> LongArray:
        """Their sorted ids."""

    @property
    def batches(self) -> LongArray:
        """The batch of the last change of each."""


def changed_after(ids: LongArray, batch: int, deltas: Sequence[ChangedQueries]) -> BoolArray:
    """Return which queries were changed after a batch."""
    changed = np.zeros(len(ids), dtype=bool)
    for delta in deltas:
        at = np.minimum(np.searchsorted(delta.ids, ids), len(delta.ids) - 1)
        changed |= (delta.ids[at] == ids) & (delta.batches[at] > batch)
    return changed


def is_compaction_due(manifest: Manifest) -> bool:
    """Return whether the queries of all partitions should be written anew."""
    changed = sum(delta.file.rows for delta in manifest.deltas)
    bases = [base for group in manifest.bases for base in group.bases]
    stored = sum(base.rows for base in bases)
    segments = sum(map(len, manifest.partitions.values()))
    return changed > max(
        COMPACT_LEAST, COMPACT_SHARE * stored
    ) or segments > COMPACT_SEGMENTS * max(len(manifest.partitions), len(bases))
