"""Space: the bounds, the grid of cells laid over them, and rectangles of cells.

Owns the mapping from coordinates to cells; knows neither partitions nor executors. Columns count
from ``min_x``, rows from ``min_y``. The paper draws row 0 at the top; nothing depends on that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sparkswarm.compiled import BoolArray, FloatArray, IntArray, compiled
from sparkswarm.errors import GeometryError

NO_CELL = -1
"""Column and row of a point without a cell."""

MAX_CELLS = 2**31 - 1
"""Cells are numbered with 32-bit integers."""


class Fault(IntEnum):
    """Why a point or a query has no cell; ``NONE`` where it has one."""

    NONE = 0
    NAN = 1
    INFINITE = 2
    OUTSIDE = 3
    INVERTED = 4


@dataclass(frozen=True, slots=True)
class Bounds:
    """The rectangle of space that points and queries lie in, edges included."""

    min_x: float
    min_y: float
    max_x: float
    max_y: float

    def __post_init__(self) -> None:
        if not all(map(math.isfinite, (self.min_x, self.min_y, self.max_x, self.max_y))):
            raise GeometryError(f"bounds must be finite numbers, got {self}")
        if not (self.min_x < self.max_x and self.min_y < self.max_y):
            raise GeometryError(
                f"bounds need min_x < max_x and min_y < max_y, got {self}; "
                "the order is (min_x, min_y, max_x, max_y)"
            )
        if not (math.isfinite(self.width) and math.isfinite(self.height)):
            raise GeometryError(f"bounds are too wide for 64-bit floats: {self}")

    @property
    def edges(self) -> tuple[float, float, float, float]:
        """The tuple (min_x, min_y, max_x, max_y)."""
        return self.min_x, self.min_y, self.max_x, self.max_y

    @property
    def is_world(self) -> bool:
        """Whether these are all longitudes in degrees."""
        return (self.min_x, self.max_x) == (-180.0, 180.0)

    @property
    def width(self) -> float:
        """Extent along x."""
        return self.max_x - self.min_x

    @property
    def height(self) -> float:
        """Extent along y."""
        return self.max_y - self.min_y


WORLD = Bounds(-180, -90, 180, 90)
"""All longitudes and latitudes, in degrees."""

CONTIGUOUS_US = Bounds(-125, 24, -66, 50)
"""The United States without Alaska and Hawaii, in degrees; a little of Canada and Mexico too."""

NAMED_BOUNDS = {"usa": CONTIGUOUS_US, "us": CONTIGUOUS_US, "world": WORLD}
"""Bounds that can be given by a word."""


class Box(NamedTuple):
    """A rectangle of space, such as the range of a query; edges included."""

    min_x: float
    min_y: float
    max_x: float
    max_y: float


EVERYWHERE = Box(-math.inf, -math.inf, math.inf, math.inf)


class CellRect(NamedTuple):
    """A rectangle of cells, half open like Python's ranges: the stops are not included."""

    col_start: int
    row_start: int
    col_stop: int
    row_stop: int

    @property
    def columns(self) -> int:
        """Number of columns."""
        return self.col_stop - self.col_start

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self.row_stop - self.row_start

    @property
    def area(self) -> int:
        """Number of cells; 0 where the rectangle is empty."""
        return max(0, self.columns) * max(0, self.rows)

    @property
    def slices(self) -> tuple[slice, slice]:
        """Index of these cells in an array of shape ``(rows, columns)``."""
        return slice(self.row_start, self.row_stop), slice(self.col_start, self.col_stop)

    def contains(self, other: CellRect) -> bool:
        """Whether all cells of ``other`` are in this rectangle."""
        return (
            self.col_start <= other.col_start
            and self.row_start <= other.row_start
            and other.col_stop <= self.col_stop
            and other.row_stop <= self.row_stop
        )

    def contains_cells(self, column: IntArray, row: IntArray) -> BoolArray:
        """Return for each cell whether it is in this rectangle."""
        inside = (column >= self.col_start) & (column < self.col_stop)
        return inside & (row >= self.row_start) & (row < self.row_stop)

    def intersection(self, other: CellRect) -> CellRect:
        """Return the common cells; a rectangle of area 0 where there are none."""
        col_start = max(self.col_start, other.col_start)
        row_start = max(self.row_start, other.row_start)
        return CellRect(
            col_start,
            row_start,
            max(col_start, min(self.col_stop, other.col_stop)),
            max(row_start, min(self.row_stop, other.row_stop)),
        )

    def overlaps(self, other: CellRect) -> bool:
        """Whether there is a common cell."""
        return self.intersection(other).area > 0

    def split_rows(self, line: int) -> tuple[CellRect, CellRect]:
        """Split into the first ``line`` rows and the rest; neither may be empty."""
        if not 0 < line < self.rows:
            raise GeometryError(f"cannot split {self.rows} rows after row {line}")
        cut = self.row_start + line
        return self._replace(row_stop=cut), self._replace(row_start=cut)

    def split_columns(self, line: int) -> tuple[CellRect, CellRect]:
        """Split into the first ``line`` columns and the rest; neither may be empty."""
        if not 0 < line < self.columns:
            raise GeometryError(f"cannot split {self.columns} columns after column {line}")
        cut = self.col_start + line
        return self._replace(col_stop=cut), self._replace(col_start=cut)


class QueryCells(NamedTuple):
    """The cells that each of n queries overlaps, clipped to the grid (stops excluded).

    A query with a fault has an empty rectangle.
    """

    col_start: IntArray
    row_start: IntArray
    col_stop: IntArray
    row_stop: IntArray
    fault: npt.NDArray[np.uint8]

    def rect(self, i: int) -> CellRect:
        """Return the cells of query ``i``."""
        return CellRect(
            int(self.col_start[i]),
            int(self.row_start[i]),
            int(self.col_stop[i]),
            int(self.row_stop[i]),
        )

    def take(self, rows: npt.NDArray[np.intp] | npt.NDArray[np.bool_]) -> QueryCells:
        """Return the chosen queries, by position or by mask."""
        return QueryCells(
            self.col_start[rows],
            self.row_start[rows],
            self.col_stop[rows],
            self.row_stop[rows],
            self.fault[rows],
        )

    def overlapping(self, cells: CellRect) -> npt.NDArray[np.bool_]:
        """Return which queries overlap ``cells``."""
        return (
            (self.col_start < cells.col_stop)
            & (self.row_start < cells.row_stop)
            & (self.col_stop > cells.col_start)
            & (self.row_stop > cells.row_start)
        )

    def clipped_all(self, cells: CellRect) -> QueryCells:
        """Return every query clipped to ``cells``; empty where it does not overlap them."""
        return QueryCells(
            np.maximum(self.col_start, np.int32(cells.col_start)),
            np.maximum(self.row_start, np.int32(cells.row_start)),
            np.minimum(self.col_stop, np.int32(cells.col_stop)),
            np.minimum(self.row_stop, np.int32(cells.row_stop)),
            self.fault,
        )

    def clipped(self, cells: CellRect) -> QueryCells:
        """Return the queries that overlap ``cells``, clipped to them."""
        return self.take(self.overlapping(cells)).clipped_all(cells)

    @classmethod
    def concat(cls, parts: list[QueryCells]) -> QueryCells:
        """Return the queries of all parts in order."""
        return cls(
            np.concatenate([part.col_start for part in parts]),
            np.concatenate([part.row_start for part in parts]),
            np.concatenate([part.col_stop for part in parts]),
            np.concatenate([part.row_stop for part in parts]),
            np.concatenate([part.fault for part in parts]),
        )

    @classmethod
    def of(cls, rects: list[CellRect]) -> QueryCells:
        """Return these rectangles as columns."""
        edges = np.array(rects, dtype=np.int32).reshape(len(rects), 4).T
        col_start, row_start, col_stop, row_stop = map(np.ascontiguousarray, edges)
        fault = np.zeros(len(rects), dtype=np.uint8)
        return cls(col_start, row_start, col_stop, row_stop, fault)


class Scale(NamedTuple):
    """A grid as plain numbers, for compiled kernels."""

    min_x: float
    min_y: float
    max_x: float
    max_y: float
    columns_per_unit: float
    rows_per_unit: float
    columns: int
    rows: int


@dataclass(frozen=True, slots=True)
class Grid:
    """C1 columns by C2 rows of equal cells over the bounds (paper, "The Global Index").

    The column of ``x`` is ``floor((x - min_x) * columns_per_unit)``; the far edge belongs to the
    last column. The formula never decreases as ``x`` grows, rounding included, so a point in a
    query lies in a cell between the cells of the query's corners: queries that are routed by the
    same formula miss no point.
    """

    bounds: Bounds
    columns: int
    rows: int

    def __post_init__(self) -> None:
        if self.columns < 1 or self.rows < 1:
            raise GeometryError(
                f"a grid needs at least one column and one row, got {self.columns} x {self.rows}"
            )
        if self.columns * self.rows > MAX_CELLS:
            raise GeometryError(
                f"a grid of {self.columns} x {self.rows} has more than {MAX_CELLS} cells; "
                "choose larger cells"
            )
        if not (math.isfinite(self.columns_per_unit) and math.isfinite(self.rows_per_unit)):
            raise GeometryError(f"bounds are too narrow for this grid: {self.bounds}")

    @property
    def columns_per_unit(self) -> float:
        """Columns in one unit of x."""
        return self.columns / self.bounds.width

    @property
    def rows_per_unit(self) -> float:
        """Rows in one unit of y."""
        return self.rows / self.bounds.height

    @property
    def cells(self) -> CellRect:
        """All cells."""
        return CellRect(0, 0, self.columns, self.rows)

    def place_points(self, x: FloatArray, y: FloatArray) -> tuple[IntArray, IntArray]:
        """Return the column and the row of every point; ``NO_CELL`` where it has no cell."""
        x, y = _coordinates("x", x), _coordinates("y", y)
        _same_length(x, y)
        return _place_points(x, y, self.scale)

    def point_faults(self, x: FloatArray, y: FloatArray) -> npt.NDArray[np.uint8]:
        """Return the :class:`Fault` of every point, ``NONE`` where it has a cell.

        A point with one NaN and one infinite coordinate counts as NaN.
        """
        x, y = _coordinates("x", x), _coordinates("y", y)
        _same_length(x, y)
        b = self.bounds
        inside = (x >= b.min_x) & (x <= b.max_x) & (y >= b.min_y) & (y <= b.max_y)
        faults = np.where(inside, Fault.NONE, Fault.OUTSIDE).astype(np.uint8)
        faults[np.isinf(x) | np.isinf(y)] = Fault.INFINITE
        faults[np.isnan(x) | np.isnan(y)] = Fault.NAN
        return faults

    def place_queries(
        self, min_x: FloatArray, min_y: FloatArray, max_x: FloatArray, max_y: FloatArray
    ) -> QueryCells:
        """Return the cells of every query rectangle, edges included, clipped to the bounds.

        The paper's ``mapQueryToIndex``. Rectangles that are NaN, infinite, inverted or outside
        the bounds have a fault and no cells.
        """
        min_x, min_y = _coordinates("min_x", min_x), _coordinates("min_y", min_y)
        max_x, max_y = _coordinates("max_x", max_x), _coordinates("max_y", max_y)
        _same_length(min_x, min_y, max_x, max_y)
        return QueryCells(*_place_queries(min_x, min_y, max_x, max_y, self.scale))

    @property
    def scale(self) -> Scale:
        """The grid for compiled kernels."""
        b = self.bounds
        return Scale(
            *(b.min_x, b.min_y, b.max_x, b.max_y),
            *(self.columns_per_unit, self.rows_per_unit),
            *(self.columns, self.rows),
        )

    def space(self, cells: CellRect) -> Box:
        """Return the space that some cells cover, up to rounding."""
        b = self.bounds
        return Box(
            b.min_x + cells.col_start / self.columns_per_unit,
            b.min_y + cells.row_start / self.rows_per_unit,
            b.min_x + cells.col_stop / self.columns_per_unit,
            b.min_y + cells.row_stop / self.rows_per_unit,
        )


def _coordinates(name: str, values: FloatArray) -> FloatArray:
    array = np.ascontiguousarray(values, dtype=np.float64)
    if array.ndim != 1:
        raise GeometryError(f"{name} must be one-dimensional, got shape {array.shape}")
    return array


def _same_length(*arrays: FloatArray) -> None:
    if len({len(array) for array in arrays}) > 1:
        raise GeometryError(f"arrays differ in length: {[len(array) for array in arrays]}")


_NAN, _INFINITE, _OUTSIDE, _INVERTED = (
    int(fault) for fault in (Fault.NAN, Fault.INFINITE, Fault.OUTSIDE, Fault.INVERTED)
)


@compiled
def place(x: float, y: float, scale: Scale) -> tuple[int, int]:
    """Return the (column, row) of one point, or (NO_CELL, NO_CELL).

    The comparisons are false for NaN and infinities, so these need no test of their own.
    """
    if x >= scale.min_x and x <= scale.max_x and y >= scale.min_y and y <= scale.max_y:
        column = int((x - scale.min_x) * scale.columns_per_unit)
        row = int((y - scale.min_y) * scale.rows_per_unit)
        return min(column, scale.columns - 1), min(row, scale.rows - 1)
    return NO_CELL, NO_CELL


@compiled
def _place_points(x: FloatArray, y: FloatArray, scale: Scale) -> tuple[IntArray, IntArray]:
    n = len(x)
    columns = np.empty(n, dtype=np.int32)
    rows = np.empty(n, dtype=np.int32)
    for i in range(n):
        columns[i], rows[i] = place(x[i], y[i], scale)
    return columns, rows


@compiled
def _place_queries(
    min_x: FloatArray, min_y: FloatArray, max_x: FloatArray, max_y: FloatArray, scale: Scale
) -> tuple[IntArray, IntArray, IntArray, IntArray, npt.NDArray[np.uint8]]:
    n = len(min_x)
    col_start = np.zeros(n, dtype=np.int32)
    row_start = np.zeros(n, dtype=np.int32)
    col_stop = np.zeros(n, dtype=np.int32)
    row_stop = np.zeros(n, dtype=np.int32)
    fault = np.zeros(n, dtype=np.uint8)
    for i in range(n):
        x1, y1, x2, y2 = min_x[i], min_y[i], max_x[i], max_y[i]
        if np.isnan(x1) or np.isnan(y1) or np.isnan(x2) or np.isnan(y2):
            fault[i] = _NAN
        elif np.isinf(x1) or np.isinf(y1) or np.isinf(x2) or np.isinf(y2):
            fault[i] = _INFINITE
        elif x1 > x2 or y1 > y2:
            fault[i] = _INVERTED
        elif x2 < scale.min_x or x1 > scale.max_x or y2 < scale.min_y or y1 > scale.max_y:
            fault[i] = _OUTSIDE
        else:
            col_start[i], row_start[i] = place(max(x1, scale.min_x), max(y1, scale.min_y), scale)
            last_column, last_row = place(min(x2, scale.max_x), min(y2, scale.max_y), scale)
            col_stop[i], row_stop[i] = last_column + 1, last_row + 1
    return col_start, row_start, col_stop, row_stop, fault
