"""Segments: the queries of a partition, indexed, in files that never change.

Owns the *bases*: one file for each partition, written when queries are loaded in bulk and when they
are compacted (:mod:`sparkswarm.spark.tasks.compaction`). What happens to queries in between is in
*deltas*, which are for all partitions together (:mod:`sparkswarm.store.deltas`); they say which
queries of a base don't count any more.

A partition that came from others by a split, a move or a merge inherits their bases: each *segment*
of its cells refers to the base for these cells. Queries of the base that lie outside the cells do
no harm, because no point of the segment can match them; they are left out when the next base is
written. Runs in tasks; each attempt writes its own files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sparkswarm.compiled import ByteArray, FloatArray
from sparkswarm.geometry import CellRect, Grid
from sparkswarm.index.build import build_index
from sparkswarm.index.layout import EMPTY, RangeIndex, frozen, readonly
from sparkswarm.index.shapes import STANDING_WORDS, PreparedShapes, prepare_shapes
from sparkswarm.store.formats import arrays_from_bytes, arrays_to_bytes
from sparkswarm.store.queries import NEVER, Queries, Values, take_rows

VERSION = 1
SHAPES_VERSION = 2
"""Of files with shapes, so that a version of sparkswarm that would ignore them refuses them."""
NAMES_VERSION = 3
"""Of files with names, for the same reason."""
VERSIONS = (VERSION, SHAPES_VERSION, NAMES_VERSION)

_VALUE_NAMES = ("details", "shapes", "names", "properties")

NONE_REMOVED: ByteArray = readonly((), np.uint8)


@dataclass(frozen=True)
class Base:
    """Queries, indexed for the points of some cells.

    Attributes
    ----------
    index
        The queries, ready to be matched.
    attributes
        The application's columns of each query; None where it has none.
    shapes
        The record of the shape of each query, as in :mod:`sparkswarm.index.shapes`; None where
        all are rectangles.
    names, properties
        As in :class:`~sparkswarm.store.queries.Queries`; without nulls.
    """

    index: RangeIndex
    attributes: pa.LargeBinaryArray | None = None
    shapes: pa.LargeBinaryArray | None = None
    names: pa.LargeBinaryArray | None = None
    properties: pa.LargeBinaryArray | None = None

    @classmethod
    def build(cls, queries: Queries, grid: Grid, cells: CellRect) -> Base:
        """Index queries for the points of ``cells``."""
        never = not len(queries.ids) or bool((queries.expires == NEVER).all())
        expires = np.empty(0, np.int64) if never else queries.expires
        index = build_index(queries.ids, queries.boxes, expires, grid.space(cells))
        shapes = queries.shapes
        if shapes is not None and not pc.any(pc.greater(pc.binary_length(shapes), 0)).as_py():
            shapes = None
        values = queries._replace(shapes=shapes).values
        if all(column is None for column in values):
            return cls(index)
        # The index has an order of its own; ids are distinct.
        by_id = np.argsort(queries.ids, kind="stable")
        rows = by_id[np.searchsorted(queries.ids, index.ids, sorter=by_id)]
        attributes, shapes, *labels = take_rows(values, rows)
        filled = (None if column is None else pc.fill_null(column, b"") for column in labels)
        return cls(index, attributes, shapes, *filled)

    @property
    def queries(self) -> Queries:
        """All queries of the file, removed ones included, in the order of the index."""
        index = self.index
        expires = index.expires if len(index.expires) else np.full(len(index.ids), NEVER)
        return Queries(index.ids, index.boxes, expires, *self._values)

    @property
    def _values(self) -> Values:
        return self.attributes, self.shapes, self.names, self.properties

    @property
    def version(self) -> int:
        """The version of the files that it is written to."""
        if self.names is not None:
            return NAMES_VERSION
        return VERSION if self.shapes is None else SHAPES_VERSION

    @cached_property
    def standing(self) -> pa.LargeBinaryArray | None:
        """What standing points ask for, as text: kind of circle, k, x, y; None without any.

        Empty for other queries.
        """
        if self.shapes is None:
            return None
        starts, words = flat_records(self.shapes)
        rows = np.flatnonzero(np.diff(starts) == STANDING_WORDS)
        if not len(rows):
            return None
        texts = [b""] * len(starts[1:])
        for row in rows.tolist():
            kind, x, y, _, k = words[starts[row] : starts[row + 1]].tolist()
            texts[row] = f"{kind:.0f} {k:.0f} {x!r} {y!r}".encode()
        return pa.array(texts, pa.large_binary())

    def prepare_shapes(self) -> PreparedShapes:
        """Return the shapes of the queries, ready for points; they must have some."""
        starts, words = flat_records(self.shapes)
        return prepare_shapes(words, starts, self.index.boxes)

    def live_queries(self, removed: ByteArray, cells: CellRect, grid: Grid) -> Queries:
        """Return the queries that overlap some cells and were not removed."""
        queries = self.queries
        if len(removed):
            queries = queries.take(removed == 0)
        return queries.take(queries.cells(grid).overlapping(cells))

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return the arrays of its file."""
        index = self.index
        arrays: dict[str, npt.NDArray[Any]] = {
            "ids": index.ids,
            "boxes": index.boxes,
            "expires": index.expires,
            "origin": index.origin,
            "levels": index.levels,
            "starts": index.starts,
            "entries": index.entries,
        }
        for name, values in zip(_VALUE_NAMES, self._values, strict=True):
            if values is not None:
                arrays[f"starts_of_{name}"], arrays[name] = _flat_values(values)
        return arrays

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, npt.NDArray[Any]]) -> Base:
        """Take over what :meth:`arrays` returned."""
        index = frozen(RangeIndex(*(arrays[name] for name in RangeIndex._fields)))
        return cls(index, *(_stored_values(arrays, name) for name in _VALUE_NAMES))

    def to_bytes(self) -> pa.Buffer:
        """Return the content of its file."""
        return arrays_to_bytes(self.arrays(), self.version)

    @classmethod
    def from_bytes(cls, content: pa.Buffer) -> Base:
        """Read what :meth:`to_bytes` returned."""
        return cls.from_arrays(arrays_from_bytes(content, *VERSIONS))


NO_BASE = Base(EMPTY)


def _flat_values(values: pa.LargeBinaryArray) -> tuple[npt.NDArray[np.int64], ByteArray]:
    """Return where each value begins, and all of them side by side; a null becomes empty."""
    filled = pc.fill_null(values, b"")
    _, offsets, data = filled.buffers()
    starts = np.frombuffer(offsets, np.int64, len(filled) + 1, 8 * filled.offset)
    content = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    return starts - starts[0], content[starts[0] : starts[-1]]


def flat_records(shapes: pa.LargeBinaryArray) -> tuple[npt.NDArray[np.int64], FloatArray]:
    """Return where the record of each shape begins, and all of them side by side."""
    starts, content = _flat_values(shapes)
    return starts // 8, np.ascontiguousarray(content).view(np.float64)


def _stored_values(arrays: Mapping[str, npt.NDArray[Any]], name: str) -> pa.LargeBinaryArray | None:
    """Return what :func:`_flat_values` made flat; None where the file does not have it."""
    if name not in arrays:
        return None
    starts, content = arrays[f"starts_of_{name}"], arrays[name]
    buffers = [None, pa.py_buffer(starts), pa.py_buffer(content)]
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(starts) - 1, buffers)


@dataclass(frozen=True, slots=True)
class Segment:
    """Cells of a partition, and the base that holds their queries.

    Attributes
    ----------
    cells, base
        The cells, and the queries; there may be others in the base.
    removed
        1 for each query of the base that does not count any more; empty where all count.
    """

    cells: CellRect
    base: Base
    removed: ByteArray

    def live_queries(self, cells: CellRect, grid: Grid) -> Queries:
        """Return the queries of the segment that overlap some cells and were not removed."""
        return self.base.live_queries(self.removed, self.cells.intersection(cells), grid)


def each_once(parts: Sequence[Queries]) -> Queries:
    """Return queries of several segments; one that overlaps several is returned once.

    Files of format 2 may disagree about a query: one has it as it was before it expired, was purged
    and was registered again. The one that expires later counts.
    """
    queries = Queries.concat(list(parts))
    if len(parts) > 1:
        longest_first = np.lexsort((~queries.expires, queries.ids))
        _, first = np.unique(queries.ids[longest_first], return_index=True)
        queries = queries.take(longest_first[first])
    return queries


def unexpired(queries: Queries, purge_before: int) -> Queries:
    """Return the queries that did not expire before a time."""
    return queries.take(queries.expires >= purge_before)


def with_own_delta(base: Base, content: pa.Buffer, cells: CellRect, grid: Grid) -> Segment:
    """Return a segment of format 2, in which every segment had a delta of its own."""
    arrays = arrays_from_bytes(content, VERSION)
    removed = np.zeros(len(base.index.ids), np.uint8)
    removed[arrays["dead"]] = 1
    delta = Base.from_arrays(arrays)
    parts = [base.live_queries(removed, cells, grid), delta.live_queries(NONE_REMOVED, cells, grid)]
    return Segment(cells, Base.build(Queries.concat(parts), grid, cells), NONE_REMOVED)
