"""Segments: the queries of a partition, indexed, in files that never change.

Owns how a partition's queries are stored and change. They are a *base*, and a small *delta*
of what was added and removed since, rewritten with each change; when the delta has grown,
both become the next base. So a partition has two files to map, however long it lives.

A partition that came from others by a split, a move or a merge goes on with their files: each
*piece* of its cells names the files that serve it. What those files know beyond the piece does
no harm, because no point of the piece lies there; it is left out when a new base is written.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparkswarm.apps.range_index import EMPTY, RangeIndex, build_index
from sparkswarm.protocol.geometry import CellRect, Grid, IntArray
from sparkswarm.protocol.global_index import IdArray
from sparkswarm.store.arrays import pack, unpack
from sparkswarm.store.ledger import DELTA_LEAST, DELTA_SHARE
from sparkswarm.store.queries import NEVER, Queries, find


@dataclass(frozen=True)
class Base:
    """The queries of a partition as they were at some time.

    Attributes
    ----------
    index
        The queries, ready to be matched.
    by_id
        Their positions in the order of their ids.
    """

    index: RangeIndex
    by_id: IntArray

    @classmethod
    def of(cls, queries: Queries, grid: Grid, cells: CellRect) -> Base:
        """Index some queries for the points of ``cells``."""
        index = _indexed(queries, grid, cells)
        return cls(index, np.argsort(index.ids, kind="stable").astype(np.int32))

    @cached_property
    def _sorted_ids(self) -> IdArray:
        return self.index.ids[self.by_id]

    def find(self, ids: IdArray) -> IntArray:
        """Return the positions of those of ``ids`` that are here."""
        found = find(self._sorted_ids, ids)
        return self.by_id[found[found >= 0]]

    def to_bytes(self) -> pa.Buffer:
        """Return the content of its file."""
        return pack({**self.index._asdict(), "by_id": self.by_id})

    @classmethod
    def from_bytes(cls, content: pa.Buffer) -> Base:
        """Read what :meth:`to_bytes` wrote."""
        arrays, _ = unpack(content)
        by_id = arrays.pop("by_id")
        return cls(RangeIndex(**arrays), by_id)


@dataclass(frozen=True)
class Delta:
    """What changed since the base was written.

    Attributes
    ----------
    index
        The queries added.
    dead
        Positions in the base that no longer count.
    """

    index: RangeIndex
    dead: IntArray

    def to_bytes(self) -> pa.Buffer:
        """Return the content of its file."""
        return pack({**self.index._asdict(), "dead": self.dead})

    @classmethod
    def from_bytes(cls, content: pa.Buffer) -> Delta:
        """Read what :meth:`to_bytes` wrote."""
        arrays, _ = unpack(content)
        dead = arrays.pop("dead")
        return cls(RangeIndex(**arrays), dead)


NO_BASE = Base(EMPTY, np.empty(0, np.int32))
NO_DELTA = Delta(EMPTY, np.empty(0, np.int32))


class Stored(NamedTuple):
    """A piece of a partition and what its files hold."""

    cells: CellRect
    base: Base
    delta: Delta

    def dead_mask(self) -> npt.NDArray[np.uint8]:
        """Say for each query of the base whether it is dead; empty where none is."""
        if not len(self.delta.dead):
            return np.empty(0, np.uint8)
        mask = np.zeros(len(self.base.index.ids), np.uint8)
        mask[self.delta.dead] = 1
        return mask

    def live(self, grid: Grid) -> Queries:
        """Return the queries that serve this piece.

        Only those that overlap it: of the others the files may know what is long past.
        """
        alive = np.ones(len(self.base.index.ids), dtype=bool)
        alive[self.delta.dead] = False
        queries = Queries.joined([_of(self.base.index).take(alive), _of(self.delta.index)])
        return queries.take(queries.placed(grid).overlapping(self.cells))


def live_queries(pieces: list[Stored], grid: Grid) -> Queries:
    """Return the queries of a partition, each once.

    Where pieces differ about a query, one knows it as it was before it expired, was forgotten
    and was registered anew: the one that stays longer counts.
    """
    queries = Queries.joined([piece.live(grid) for piece in pieces])
    if len(pieces) > 1:
        longest_first = np.lexsort((~queries.expires, queries.ids))
        _, first = np.unique(queries.ids[longest_first], return_index=True)
        queries = queries.take(longest_first[first])
    return queries


def changed(
    pieces: list[Stored],
    grid: Grid,
    cells: CellRect,
    removed: IdArray,
    added: Queries,
    purge_before: int,
) -> Base | Delta:
    """Take queries out of a partition and put others in.

    Returns
    -------
    Base or Delta
        The file to write: a delta that replaces the one of the only piece, or a base that
        replaces everything. Queries that expired before ``purge_before`` are left out of it.
    """
    # An id may still be here that the ledger has forgotten, long expired, and now gives anew.
    removed = np.union1d(removed, added.ids)
    if len(pieces) == 1:
        base, delta = pieces[0].base, pieces[0].delta
        kept = _of(delta.index)
        kept = kept.take(np.isin(kept.ids, removed, invert=True))
        new = _fresh(Queries.joined([kept, added]), purge_before)
        dead = np.union1d(delta.dead, base.find(removed)).astype(np.int32)
        if len(new.ids) + len(dead) / 2 <= max(DELTA_LEAST, DELTA_SHARE * len(base.index.ids)):
            return Delta(_indexed(new, grid, cells), dead)
    queries = live_queries(pieces, grid)
    queries = queries.take(np.isin(queries.ids, removed, invert=True))
    return Base.of(_fresh(Queries.joined([queries, added]), purge_before), grid, cells)


def _fresh(queries: Queries, purge_before: int) -> Queries:
    return queries.take(queries.expires >= purge_before)


def _indexed(queries: Queries, grid: Grid, cells: CellRect) -> RangeIndex:
    never = not len(queries.ids) or bool((queries.expires == NEVER).all())
    expires = np.empty(0, np.int64) if never else queries.expires
    return build_index(queries.ids, queries.boxes, expires, grid.space(cells))


def _of(index: RangeIndex) -> Queries:
    expires = index.expires if len(index.expires) else np.full(len(index.ids), NEVER)
    return Queries(index.ids, index.boxes, expires)
