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
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sparkswarm.compiled import IntArray, LongArray
from sparkswarm.geometry import CellRect, Grid
from sparkswarm.index.build import build_index
from sparkswarm.index.layout import EMPTY, RangeIndex
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
    details
        What the application wants to know of each; None where it wants nothing.
    """

    index: RangeIndex
    by_id: IntArray
    details: pa.LargeBinaryArray | None = None

    @classmethod
    def of(cls, queries: Queries, grid: Grid, cells: CellRect) -> Base:
        """Index some queries for the points of ``cells``."""
        index, details = _indexed(queries, grid, cells)
        return cls(index, np.argsort(index.ids, kind="stable").astype(np.int32), details)

    @cached_property
    def _sorted_ids(self) -> LongArray:
        return self.index.ids[self.by_id]

    def find(self, ids: LongArray) -> IntArray:
        """Return the positions of those of ``ids`` that are here."""
        found = find(self._sorted_ids, ids)
        return self.by_id[found[found >= 0]]

    def to_bytes(self) -> pa.Buffer:
        """Return the content of its file."""
        return pack({**self.index._asdict(), "by_id": self.by_id, **_packed(self.details)})

    @classmethod
    def from_bytes(cls, content: pa.Buffer) -> Base:
        """Read what :meth:`to_bytes` wrote."""
        arrays, _ = unpack(content)
        by_id, details = arrays.pop("by_id"), _unpacked(arrays)
        return cls(RangeIndex(**arrays), by_id, details)


@dataclass(frozen=True)
class Delta:
    """What changed since the base was written.

    Attributes
    ----------
    index
        The queries added.
    dead
        Positions in the base that no longer count.
    details
        As in the base, of the queries added.
    """

    index: RangeIndex
    dead: IntArray
    details: pa.LargeBinaryArray | None = None

    def to_bytes(self) -> pa.Buffer:
        """Return the content of its file."""
        return pack({**self.index._asdict(), "dead": self.dead, **_packed(self.details)})

    @classmethod
    def from_bytes(cls, content: pa.Buffer) -> Delta:
        """Read what :meth:`to_bytes` wrote."""
        arrays, _ = unpack(content)
        dead, details = arrays.pop("dead"), _unpacked(arrays)
        return cls(RangeIndex(**arrays), dead, details)


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
        queries = Queries.joined([queries_of(self.base).take(alive), queries_of(self.delta)])
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
    removed: LongArray,
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
        kept = queries_of(delta)
        kept = kept.take(np.isin(kept.ids, removed, invert=True))
        new = _fresh(Queries.joined([kept, added]), purge_before)
        dead = np.union1d(delta.dead, base.find(removed)).astype(np.int32)
        if len(new.ids) + len(dead) / 2 <= max(DELTA_LEAST, DELTA_SHARE * len(base.index.ids)):
            index, details = _indexed(new, grid, cells)
            return Delta(index, dead, details)
    queries = live_queries(pieces, grid)
    queries = queries.take(np.isin(queries.ids, removed, invert=True))
    return Base.of(_fresh(Queries.joined([queries, added]), purge_before), grid, cells)


def _fresh(queries: Queries, purge_before: int) -> Queries:
    return queries.take(queries.expires >= purge_before)


def queries_of(stored: Base | Delta) -> Queries:
    """Return all queries of a file, dead or alive, in the order of its index."""
    index = stored.index
    expires = index.expires if len(index.expires) else np.full(len(index.ids), NEVER)
    return Queries(index.ids, index.boxes, expires, stored.details)


def _indexed(
    queries: Queries, grid: Grid, cells: CellRect
) -> tuple[RangeIndex, pa.LargeBinaryArray | None]:
    never = not len(queries.ids) or bool((queries.expires == NEVER).all())
    expires = np.empty(0, np.int64) if never else queries.expires
    index = build_index(queries.ids, queries.boxes, expires, grid.space(cells))
    if queries.details is None:
        return index, None
    # The index has an order of its own; ids are distinct.
    by_id = np.argsort(queries.ids, kind="stable")
    at = by_id[np.searchsorted(queries.ids, index.ids, sorter=by_id)]
    return index, queries.details.take(pa.array(at))


def _packed(details: pa.LargeBinaryArray | None) -> dict[str, npt.NDArray[Any]]:
    """Return details as arrays. A null becomes no bytes at all, which no details are."""
    if details is None:
        return {}
    details = pc.fill_null(details, b"")
    _, offsets, data = details.buffers()
    starts = np.frombuffer(offsets, np.int64, len(details) + 1, 8 * details.offset)
    content = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    return {"starts_of_details": starts - starts[0], "details": content[starts[0] : starts[-1]]}


def _unpacked(arrays: dict[str, npt.NDArray[Any]]) -> pa.LargeBinaryArray | None:
    """Take details out of the arrays of a file; None where it has none."""
    if "details" not in arrays:
        return None
    starts, content = arrays.pop("starts_of_details"), arrays.pop("details")
    buffers = [None, pa.py_buffer(starts), pa.py_buffer(content)]
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(starts) - 1, buffers)
