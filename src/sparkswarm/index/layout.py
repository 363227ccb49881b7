"""Layout of the range index: the arrays in which rectangles can be found by point.

Owns the arrays and the formula from coordinates to cells; knows neither the protocol nor Spark. A
point matches a rectangle when ``min_x <= x <= max_x`` and ``min_y <= y <= max_y``, compared exactly
in 64-bit floats.

Rectangles are grouped into **levels** by width and height: those of one level differ by less than a
factor of two in either, and the level's cells are about half as wide and high as the largest, so a
rectangle overlaps 2 to 9 cells whatever its shape; cells are larger where these would be many more
than the rectangles. A cell lists the rectangles that overlap it. The
formula from a coordinate to its cell never decreases as the coordinate grows, so a point in a cell
strictly between those of a rectangle's two edges is strictly between the edges: a rectangle without
an edge in a cell needs no comparison there. A cell with many rectangles lists them in ten
**sections** by which of their edges are in the cell. A section with one edge is sorted by it, so
that a binary search finds the end of the matches, and only corners are compared one by one. See
:class:`RangeIndex` for the arrays.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sparkswarm.compiled import FloatArray, IntArray, LongArray, compiled

NEVER = 2**63 - 1
"""Expiry of a query that does not expire."""

# Columns of RangeIndex.levels.
SCALE_X = 0  # cells per unit of x
SCALE_Y = 1
COLUMNS = 2
ROWS = 3
FIRST = 4  # where the level's buckets begin in ``starts``
SHIFT = 5  # 0: every cell has its own bucket; else the hash is shifted by this
LEVEL_FIELDS = 6

SECTIONED = 128
"""A cell with at least this many rectangles lists them in sections."""
HEADER = 9
"""Length of the header of a cell with sections: the end of each section but the last."""
_HASH = np.uint64(0x9E3779B97F4A7C15)

# The sections, by the edges that are in the cell. The matches of the first three are contiguous,
# and so are those of the next two.
MIN_X = 0
THROUGH = 1
MAX_X = 2
MIN_Y = 3
MAX_Y = 4
MIN_X_MIN_Y = 5
MIN_X_MAX_Y = 6
MAX_X_MIN_Y = 7
MAX_X_MAX_Y = 8
OTHER = 9
SECTIONS = 10


class RangeIndex(NamedTuple):
    """Rectangles that can be found by point; plain arrays that can be stored and mapped.

    Bucket ``b`` is ``entries[starts[b] : starts[b + 1]]``. An entry is a position in ``ids`` and
    ``boxes``. A level has a bucket for each cell, row by row; a level with too many cells has a
    hash table instead, in which cells may share a bucket, and whose entries are all compared in
    full. Outside hash tables, a bucket of at least ``SECTIONED`` numbers begins with the ends of
    its sections, counted from its start.
    """

    ids: LongArray
    """Of shape (n,): the ids of the queries, by level and within it by cell."""
    boxes: FloatArray
    """Of shape (n, 4): min_x, min_y, max_x, max_y, not clipped."""
    expires: LongArray
    """Of shape (n,), or (0,) where none expires: a query matches points before this time."""
    origin: FloatArray
    """Of shape (2,): the region's min_x and min_y."""
    levels: FloatArray
    """Of shape (levels, 6): cells per unit of x and of y, columns, rows, first bucket, and the
    shift of the hash (0 where there is no hash table)."""
    starts: IntArray
    """Of shape (buckets + 1,)."""
    entries: IntArray
    """Of shape (starts[-1],)."""

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(array.nbytes for array in self)


def frozen(index: RangeIndex) -> RangeIndex:
    """Return the index with arrays of the type that the kernel is compiled for."""
    return RangeIndex(*(readonly(array, array.dtype) for array in index))


def readonly(array: npt.ArrayLike, dtype: npt.DTypeLike) -> Any:
    """Return a contiguous read-only view: one type of array, one compilation."""
    plain = np.require(array, dtype, ["C", "A"])
    if plain.flags.writeable or type(plain) is not np.ndarray:
        plain = plain.view(np.ndarray)
        plain.flags.writeable = False
    return plain


@compiled
def place_of(value: float, low: float, scale: float, number: int) -> int:
    """Return the cell of a coordinate; it never decreases with the coordinate, and is 0 for NaN."""
    at = (value - low) * scale
    if not at > 0.0:
        return 0
    return int(at) if at < number else number - 1


@compiled
def bucket_of_cell(column: int, row: int, columns: int, first: int, shift: int) -> int:
    """Return the bucket of a cell of a level."""
    cell = row * columns + column
    if shift:
        cell = int(np.int64((np.uint64(cell) * _HASH) >> np.uint64(shift)))
    return first + cell


EMPTY = frozen(
    RangeIndex(
        ids=np.empty(0, np.int64),
        boxes=np.empty((0, 4)),
        expires=np.empty(0, np.int64),
        origin=np.zeros(2),
        levels=np.empty((0, LEVEL_FIELDS)),
        starts=np.zeros(1, np.int32),
        entries=np.empty(0, np.int32),
    )
)
"""An index without queries."""
