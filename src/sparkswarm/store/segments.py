"""Segments: the queries of a partition, indexed, in files that never change.

Owns how a partition's queries are stored, changed and opened. They are a *base*, and a small
*delta* of what was added and removed since, rewritten with each change; when the delta has grown,
both become the next base. So a partition has two files to map, however long it lives.

A partition that came from others by a split, a move or a merge inherits their files: each
*segment* of its cells refers to the files for these cells. Queries in the files that lie outside
the cells do no harm, because no point of the segment can match them; they are left out when a new
base is written. Runs in tasks: opened by every task that matches, written once per partition and
batch with operations; each attempt writes its own files.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sparkswarm.compiled import ByteArray, IntArray, LongArray, compiled
from sparkswarm.geometry import CellRect, Grid
from sparkswarm.index.build import build_index
from sparkswarm.index.layout import EMPTY, RangeIndex, frozen, readonly
from sparkswarm.store.files import FileRef, Files
from sparkswarm.store.formats import arrays_from_bytes, arrays_to_bytes
from sparkswarm.store.ledger import DELTA_LEAST, DELTA_SHARE
from sparkswarm.store.manifest import SegmentRef
from sparkswarm.store.queries import NEVER, Queries, positions_of

VERSION = 1

NONE_REMOVED: ByteArray = readonly((), np.uint8)


@dataclass(frozen=True)
class Base:
    """The queries of a partition at some time.

    Attributes
    ----------
    index
        The queries, ready to be matched.
    by_id
        Positions in the index, sorted by id.
    attributes
        The application's columns of each query; None where it has none.
    """

    index: RangeIndex
    by_id: IntArray
    attributes: pa.LargeBinaryArray | None = None

    @classmethod
    def build(cls, queries: Queries, grid: Grid, cells: CellRect) -> Base:
        """Index queries for the points of ``cells``."""
        index, attributes = _indexed(queries, grid, cells)
        return cls(index, np.argsort(index.ids, kind="stable").astype(np.int32), attributes)

    @cached_property
    def _sorted_ids(self) -> LongArray:
        return self.index.ids[self.by_id]

    def positions_of(self, ids: LongArray) -> IntArray:
        """Return the positions of those of ``ids`` that exist."""
        found = positions_of(ids, self._sorted_ids)
        return self.by_id[found[found >= 0]]

    @property
    def queries(self) -> Queries:
        """All queries of the file, removed ones included, in the order of the index."""
        return _queries(self.index, self.attributes)

    def to_bytes(self) -> pa.Buffer:
        """Return the content of its file."""
        return _to_bytes(self.index, {"by_id": self.by_id}, self.attributes)

    @classmethod
    def from_bytes(cls, content: pa.Buffer) -> Base:
        """Read what :meth:`to_bytes` returned."""
        arrays = arrays_from_bytes(content, VERSION)
        return cls(_index_of(arrays), arrays["by_id"], _attributes_of(arrays))


@dataclass(frozen=True)
class Delta:
    """What changed since the base was written.

    Attributes
    ----------
    index
        The queries added.
    removed
        Positions in the base of queries that don't count any more.
    attributes
        The application's columns of the queries added; None where it has none.
    """

    index: RangeIndex
    removed: IntArray
    attributes: pa.LargeBinaryArray | None = None

    @property
    def queries(self) -> Queries:
        """The queries added, in the order of the index."""
        return _queries(self.index, self.attributes)

    def to_bytes(self) -> pa.Buffer:
        """Return the content of its file."""
        return _to_bytes(self.index, {"dead": self.removed}, self.attributes)

    @classmethod
    def from_bytes(cls, content: pa.Buffer) -> Delta:
        """Read what :meth:`to_bytes` returned."""
        arrays = arrays_from_bytes(content, VERSION)
        return cls(_index_of(arrays), arrays["dead"], _attributes_of(arrays))


NO_BASE = Base(EMPTY, np.empty(0, np.int32))
NO_DELTA = Delta(EMPTY, np.empty(0, np.int32))


@dataclass(frozen=True, slots=True)
class Segment:
    """Cells of a partition, with the base and the delta that hold their queries."""

    cells: CellRect
    base: Base
    delta: Delta

    def removed_mask(self) -> ByteArray:
        """Return 1 for each query of the base that was removed; empty where none was."""
        if not len(self.delta.removed):
            return NONE_REMOVED
        mask = np.zeros(len(self.base.index.ids), np.uint8)
        mask[self.delta.removed] = 1
        return mask

    def ids_at(self, positions: IntArray, out: LongArray | None = None) -> LongArray:
        """Return the ids of the queries at some positions, those of the base first.

        They are written to ``out`` where that is given.
        """
        if out is None:
            out = np.empty(len(positions), np.int64)
        _ids_at(readonly(positions, np.int32), self.base.index.ids, self.delta.index.ids, out)
        return out

    def live_queries(self, grid: Grid) -> Queries:
        """Return the queries that overlap the cells and were not removed.

        Queries elsewhere may be outdated: their removal is in the files of other partitions.
        """
        alive = np.ones(len(self.base.index.ids), dtype=bool)
        alive[self.delta.removed] = False
        queries = Queries.concat([self.base.queries.take(alive), self.delta.queries])
        return queries.take(queries.cells(grid).overlapping(self.cells))


@compiled
def _ids_at(positions: IntArray, base: LongArray, delta: LongArray, out: LongArray) -> None:
    for i in range(len(positions)):
        k = np.uint32(positions[i])
        out[i] = base[k] if k < len(base) else delta[k - np.uint32(len(base))]


def live_queries(segments: list[Segment], grid: Grid) -> Queries:
    """Return the queries of a partition, each once.

    Where segments disagree about a query, one has it as it was before it expired, was purged and
    was registered again: the one that expires later counts.
    """
    queries = Queries.concat([segment.live_queries(grid) for segment in segments])
    if len(segments) > 1:
        longest_first = np.lexsort((~queries.expires, queries.ids))
        _, first = np.unique(queries.ids[longest_first], return_index=True)
        queries = queries.take(longest_first[first])
    return queries


def apply_changes(
    segments: list[Segment],
    grid: Grid,
    cells: CellRect,
    removed: LongArray,
    added: Queries,
    purge_before: int,
) -> Base | Delta:
    """Remove queries from a partition and add others.

    Returns
    -------
    Base or Delta
        The file to write: a delta that replaces the one of the only segment, or a base that
        replaces everything. It has no queries that expired before ``purge_before``.
    """
    # An id that expired long ago may be registered again: the ledger has purged it, but the
    # segment may still hold it.
    removed = np.union1d(removed, added.ids)
    if len(segments) == 1:
        base, delta = segments[0].base, segments[0].delta
        kept = delta.queries.take(np.isin(delta.index.ids, removed, invert=True))
        new = unexpired(Queries.concat([kept, added]), purge_before)
        gone = np.union1d(delta.removed, base.positions_of(removed)).astype(np.int32)
        if len(new.ids) + len(gone) / 2 <= max(DELTA_LEAST, DELTA_SHARE * len(base.index.ids)):
            index, attributes = _indexed(new, grid, cells)
            return Delta(index, gone, attributes)
    queries = live_queries(segments, grid)
    queries = queries.take(np.isin(queries.ids, removed, invert=True))
    return Base.build(unexpired(Queries.concat([queries, added]), purge_before), grid, cells)


def unexpired(queries: Queries, purge_before: int) -> Queries:
    """Return the queries that did not expire before a time."""
    return queries.take(queries.expires >= purge_before)


def _queries(index: RangeIndex, attributes: pa.LargeBinaryArray | None) -> Queries:
    expires = index.expires if len(index.expires) else np.full(len(index.ids), NEVER)
    return Queries(index.ids, index.boxes, expires, attributes)


def _indexed(
    queries: Queries, grid: Grid, cells: CellRect
) -> tuple[RangeIndex, pa.LargeBinaryArray | None]:
    never = not len(queries.ids) or bool((queries.expires == NEVER).all())
    expires = np.empty(0, np.int64) if never else queries.expires
    index = build_index(queries.ids, queries.boxes, expires, grid.space(cells))
    if queries.attributes is None:
        return index, None
    # The index has an order of its own; ids are distinct.
    by_id = np.argsort(queries.ids, kind="stable")
    rows = by_id[np.searchsorted(queries.ids, index.ids, sorter=by_id)]
    return index, queries.attributes.take(pa.array(rows))


# -- files -------------------------------------------------------------------------------------


def _to_bytes(
    index: RangeIndex, more: dict[str, IntArray], attributes: pa.LargeBinaryArray | None
) -> pa.Buffer:
    arrays: dict[str, npt.NDArray[Any]] = {
        "ids": index.ids,
        "boxes": index.boxes,
        "expires": index.expires,
        "origin": index.origin,
        "levels": index.levels,
        "starts": index.starts,
        "entries": index.entries,
        **more,
    }
    if attributes is not None:
        # A null becomes an empty value, which attributes never are.
        filled = pc.fill_null(attributes, b"")
        _, offsets, data = filled.buffers()
        starts = np.frombuffer(offsets, np.int64, len(filled) + 1, 8 * filled.offset)
        content = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
        arrays["starts_of_details"] = starts - starts[0]
        arrays["details"] = content[starts[0] : starts[-1]]
    return arrays_to_bytes(arrays, VERSION)


def _index_of(arrays: dict[str, npt.NDArray[Any]]) -> RangeIndex:
    index = RangeIndex(
        ids=arrays["ids"],
        boxes=arrays["boxes"],
        expires=arrays["expires"],
        origin=arrays["origin"],
        levels=arrays["levels"],
        starts=arrays["starts"],
        entries=arrays["entries"],
    )
    return frozen(index)


def _attributes_of(arrays: dict[str, npt.NDArray[Any]]) -> pa.LargeBinaryArray | None:
    if "details" not in arrays:
        return None
    starts, content = arrays["starts_of_details"], arrays["details"]
    buffers = [None, pa.py_buffer(starts), pa.py_buffer(content)]
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(starts) - 1, buffers)


# -- cache -------------------------------------------------------------------------------------

_File = TypeVar("_File", Base, Delta)


class SegmentCache:
    """Opened segments of one checkpoint, kept by a worker process from batch to batch.

    What belongs to a file is cached by file: the mapped arrays, the mask of removed queries, and
    what an application built from the queries. Everything can be computed again from the files.
    """

    def __init__(self, files: Files) -> None:
        self._files = files
        self._mapped: dict[FileRef, Base | Delta] = {}
        self._removed: dict[FileRef, ByteArray] = {}
        self._built: dict[FileRef, Any] = {}

    def retain(self, refs: Collection[FileRef]) -> None:
        """Drop everything about other files than these."""
        for cached in (self._mapped, self._removed, self._built):
            for ref in cached.keys() - set(refs):
                del cached[ref]

    def drop_built(self) -> None:
        """Drop what an application built, before another application builds."""
        self._built.clear()

    def open(self, ref: SegmentRef) -> Segment:
        """Return a segment; its files are mapped when first opened."""
        base = self._open(ref.files.base, Base, NO_BASE)
        return Segment(ref.cells, base, self._open(ref.files.delta, Delta, NO_DELTA))

    def removed(self, ref: SegmentRef) -> ByteArray:
        """Return the mask of removed queries of a segment, see :meth:`Segment.removed_mask`."""
        delta = ref.files.delta
        if delta is None:
            return NONE_REMOVED
        if delta not in self._removed:
            self._removed[delta] = readonly(self.open(ref).removed_mask(), np.uint8)
        return self._removed[delta]

    def built(self, ref: SegmentRef, build: Callable[[Queries], Any]) -> tuple[Any, Any]:
        """Return what ``build`` made of the queries of the base and of the delta.

        None for a file without queries. ``build`` must be the same in all calls.
        """
        segment = self.open(ref)
        return (
            self._build(ref.files.base, segment.base, build),
            self._build(ref.files.delta, segment.delta, build),
        )

    def _open(self, ref: FileRef | None, kind: type[_File], missing: _File) -> _File:
        if ref is None:
            return missing
        if ref not in self._mapped:
            self._mapped[ref] = kind.from_bytes(self._files.mmap(ref))
        return cast(_File, self._mapped[ref])

    def _build(
        self, ref: FileRef | None, stored: Base | Delta, build: Callable[[Queries], Any]
    ) -> Any:
        if ref is None or not len(stored.index.ids):
            return None
        if ref not in self._built:
            self._built[ref] = build(stored.queries)
        return self._built[ref]
