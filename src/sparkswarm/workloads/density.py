"""Densities: a weight for every cell of a grid, from which points and queries are drawn.

Owns sampling and the formats of density files. Knows nothing of time, rounds or executors, and
keeps no random state: the caller passes a :class:`numpy.random.Generator`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from sparkswarm.compiled import FloatArray, compiled
from sparkswarm.errors import WorkloadError
from sparkswarm.geometry import Bounds, Grid
from sparkswarm.workloads import _checks

QUERY_SIDE = 0.0016
"""Side of a query as a share of the side of the space (paper, "Experiments": 0.16%)."""

MAX_FILE_CELLS = 10**8
"""Maximum number of cells of a file; larger indices are taken for a mistake."""

COUNT_COLUMNS = ("tweets", "count")
"""Names of the column of counts in a file, in order of preference."""


class Rectangles(NamedTuple):
    """The edges of n query rectangles, in the order of the arguments of ``Grid.place_queries``."""

    min_x: FloatArray
    min_y: FloatArray
    max_x: FloatArray
    max_y: FloatArray


@dataclass(frozen=True, eq=False)
class Density:
    """The probability of a point in each cell of a grid over the bounds.

    Parameters
    ----------
    name
        Name in reports and pictures.
    bounds
        The space that the cells tile.
    weights
        One weight per cell, of shape ``(rows, columns)``: finite, non-negative, at least one
        positive. Row 0 touches ``min_y`` (south), column 0 touches ``min_x`` (west). They may
        have any scale, as counts do; a read-only copy that sums to 1 is stored.

    Raises
    ------
    WorkloadError
        If the weights are not of this form.
    """

    name: str
    bounds: Bounds
    weights: FloatArray = field(repr=False)

    def __post_init__(self) -> None:
        """Check the weights, scale them to a sum of 1 and make them read-only."""
        weights = _normalised(self.name, self.weights)
        weights.setflags(write=False)
        object.__setattr__(self, "weights", weights)
        _ = self.grid  # raises now rather than at the first use if there is no such grid

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the cached tables of sampling, which are large and quick to rebuild."""
        return {"name": self.name, "bounds": self.bounds, "weights": self.weights}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Make the weights read-only again, which pickle does not preserve."""
        self.__dict__.update(state)
        self.weights.setflags(write=False)

    @property
    def grid(self) -> Grid:
        """The grid of the weights."""
        rows, columns = self.weights.shape
        return Grid(self.bounds, columns, rows)

    def sample_counts(self, rng: np.random.Generator, n: int) -> npt.NDArray[np.int64]:
        """Return how many of ``n`` points fall in each cell, of shape ``(rows, columns)``.

        One multinomial draw: its time depends on the number of cells and hardly on ``n``.
        """
        n = _checks.whole_number("n", n, 0)
        flat = self.weights.ravel()
        # numpy gives the rest after rounding to the last cell, which therefore must have a weight.
        stop = int(np.flatnonzero(flat)[-1]) + 1
        counts = np.zeros(flat.size, dtype=np.int64)
        counts[:stop] = rng.multinomial(n, flat[:stop])
        return counts.reshape(self.weights.shape)

    def sample_points(self, rng: np.random.Generator, n: int) -> tuple[FloatArray, FloatArray]:
        """Return the coordinates ``(x, y)`` of ``n`` independent points, inside the bounds.

        Draws a cell by weight, then a uniform position in that cell.
        """
        n = _checks.whole_number("n", n, 0)
        rows, columns = self.weights.shape
        row, column = np.divmod(_draw(rng.random(n), self._cumulative, self._guide), columns)
        b = self.bounds
        x = b.min_x + (column + rng.random(n)) * (b.width / columns)
        y = b.min_y + (row + rng.random(n)) * (b.height / rows)
        # Rounding can move a point of the last cell just beyond the far edge.
        return np.minimum(x, b.max_x, out=x), np.minimum(y, b.max_y, out=y)

    def sample_queries(
        self, rng: np.random.Generator, n: int, side: float = QUERY_SIDE
    ) -> Rectangles:
        """Return ``n`` query rectangles centred on points drawn from the density.

        ``side`` is a share of each side of the bounds. A rectangle near an edge extends beyond
        the bounds.
        """
        side = _checks.side("the side of a query", side)
        return rectangles_around(*self.sample_points(rng, n), side, self.bounds)

    @cached_property
    def _cumulative(self) -> FloatArray:
        total = np.cumsum(self.weights.ravel())
        return np.asarray(total / total[-1])

    @cached_property
    def _guide(self) -> npt.NDArray[np.int64]:
        """For each of as many equal slices of [0, 1) as there are cells, the first cell in it."""
        size = self._cumulative.size
        return np.searchsorted(self._cumulative, np.arange(size) / size, side="right")


def rectangles_around(x: FloatArray, y: FloatArray, side: float, bounds: Bounds) -> Rectangles:
    """Return rectangles centred on the points, ``side`` times as wide and high as the bounds."""
    half_width, half_height = side * bounds.width / 2, side * bounds.height / 2
    return Rectangles(x - half_width, y - half_height, x + half_width, y + half_height)


def load_density(path: str | PathLike[str], bounds: Bounds | None = None) -> Density:
    """Read a density from a file; its name is that of the file without the suffix.

    Parameters
    ----------
    path
        ``.parquet`` or ``.csv``: a row per cell with the integer columns ``lat_idx`` and
        ``lon_idx``, counted from 0, and a column ``tweets`` or ``count``. Cells not listed
        are empty, cells listed twice add up, and the grid ends at the largest index. If
        there are columns ``lat`` and ``lon`` too, they are the **centres** of the cells: the
        bounds follow from them, and an axis along which they decrease is reversed, so that
        row 0 is south and column 0 west. Without them indices increase northward and eastward.

        ``.npy``: a two-dimensional array of counts, row 0 south and column 0 west.
    bounds
        The bounds of the density, instead of those implied by the file. Required if the file
        implies none.

    Raises
    ------
    WorkloadError
        If the file is missing or unreadable, lacks a column, has an invalid index, count or
        coordinate, or implies no bounds and none are given.

    Notes
    -----
    The grid of US tweets that the benchmarks use (``us_tweet_counts_grid.parquet``) gives
    cell centres: they equal ``min + (index + 0.5) * extent / 1000`` to the last bit for
    latitudes 24.396308 to 49.384358 and longitudes -124.848974 to -66.885444, and its
    ``lat_idx`` grows northward.
    """
    path = Path(path)
    if not path.is_file():
        raise WorkloadError(f"there is no file {str(path)!r}; check the path of the density")
    suffix = path.suffix.lower()
    readers = {".parquet": _read_parquet, ".csv": _read_csv, ".npy": _read_npy}
    if suffix not in readers:
        raise WorkloadError(
            f"unknown suffix {suffix!r} of {str(path)!r}; use one of {', '.join(readers)}"
        )
    try:
        weights, implied = readers[suffix](path)
    except WorkloadError as error:
        raise WorkloadError(f"{path}: {error}") from error
    except (pa.ArrowException, OSError, ValueError, EOFError) as error:
        raise WorkloadError(
            f"{path} is not a readable {suffix} file: {error}; write it again or choose another"
        ) from error
    bounds = bounds or implied
    if bounds is None:
        raise WorkloadError(
            f"{path} does not contain the bounds of its cells; pass bounds=Bounds(...), or use "
            "a table with the columns lat and lon for cells of at least two rows and columns"
        )
    return Density(path.stem, bounds, weights)


def _normalised(name: str, values: npt.ArrayLike) -> FloatArray:
    weights = np.asarray(values)
    if weights.dtype.kind not in "biuf":
        raise WorkloadError(
            f"the weights of density {name!r} must be real numbers, got an array of {weights.dtype}"
        )
    if weights.ndim != 2:
        raise WorkloadError(
            f"the weights of density {name!r} must have two dimensions (rows, columns), "
            f"got shape {weights.shape}; reshape them"
        )
    weights = np.ascontiguousarray(weights, dtype=np.float64)
    for fault, what in ((~np.isfinite(weights), "finite"), (weights < 0, "non-negative")):
        if fault.any():
            row, column = (int(i) for i in np.argwhere(fault)[0])
            raise WorkloadError(
                f"the weights of density {name!r} must be {what}, got {weights[row, column]} in "
                f"row {row}, column {column} ({int(fault.sum())} such); clean them first"
            )
    peak = weights.max(initial=0.0)
    if peak == 0:
        raise WorkloadError(
            f"density {name!r} of shape {weights.shape} has no positive weight; "
            "nothing could be drawn from it, give at least one cell a weight"
        )
    weights = weights / peak  # so that the sum neither overflows nor vanishes
    return np.asarray(weights / weights.sum())


@compiled
def _draw(
    uniform: FloatArray, cumulative: FloatArray, guide: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Return for each number in [0, 1) the first cell whose cumulative weight exceeds it.

    The guide gives a cell at or before the right one. However skewed the weights are, a
    search visits two cells on average; a binary search in a million cells visits twenty that
    are far apart in memory. Cells of weight 0 are never returned.
    """
    cells = np.empty(len(uniform), dtype=np.int64)
    last = len(guide) - 1
    for i in range(len(uniform)):
        cell = guide[min(int(uniform[i] * len(guide)), last)]
        while cumulative[cell] <= uniform[i]:
            cell += 1
        cells[i] = cell
    return cells


_Content = tuple[npt.NDArray[Any], Bounds | None]
"""Contents of a file: the weights, and the bounds if it implies any."""


def _read_npy(path: Path) -> _Content:
    return np.load(path, allow_pickle=False), None


def _read_parquet(path: Path) -> _Content:
    return _from_table(pyarrow.parquet.ParquetFile(path).read())


def _read_csv(path: Path) -> _Content:
    return _from_table(pyarrow.csv.read_csv(path))


def _from_table(table: pa.Table) -> _Content:
    """Return the rows of a table on the grid that their indices span."""
    names = table.column_names
    count_name = next((name for name in COUNT_COLUMNS if name in names), None)
    if count_name is None or not {"lat_idx", "lon_idx"} <= set(names):
        raise WorkloadError(
            f"needs the columns lat_idx, lon_idx and one of {' or '.join(COUNT_COLUMNS)}, "
            f"found {', '.join(names)}; rename or add them"
        )
    if table.num_rows == 0:
        raise WorkloadError("has no rows; add some cells")
    count = _numbers(table, count_name)
    if (wrong := ~(np.isfinite(count) & (count >= 0))).any():
        raise WorkloadError(
            f"{count_name} must be finite and non-negative, got {count[wrong][0]} "
            f"({int(wrong.sum())} such); clean the counts first"
        )
    row, column = _indices(table, "lat_idx"), _indices(table, "lon_idx")
    rows, columns = int(row.max()) + 1, int(column.max()) + 1
    if rows * columns > MAX_FILE_CELLS:
        raise WorkloadError(
            f"{rows} x {columns} cells, as the largest lat_idx and lon_idx ask for, are more than "
            f"{MAX_FILE_CELLS}; look for an index out of range, or use larger cells"
        )
    weights = np.bincount(row * columns + column, weights=count, minlength=rows * columns)
    weights = weights.reshape(rows, columns)
    south_north, west_east = _edges(table, "lat", row), _edges(table, "lon", column)
    if south_north is not None and south_north[0] > south_north[1]:
        weights, south_north = weights[::-1], south_north[::-1]
    if west_east is not None and west_east[0] > west_east[1]:
        weights, west_east = weights[:, ::-1], west_east[::-1]
    if south_north is None or west_east is None:
        return weights, None
    return weights, Bounds(west_east[0], south_north[0], west_east[1], south_north[1])


def _numbers(table: pa.Table, name: str) -> FloatArray:
    column = table[name]
    if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        raise WorkloadError(f"column {name} must hold numbers, its type is {column.type}")
    if column.null_count:
        raise WorkloadError(f"column {name} lacks {column.null_count} values; fill or drop them")
    return np.asarray(column.to_numpy(), dtype=np.float64)


def _indices(table: pa.Table, name: str) -> npt.NDArray[np.int64]:
    index = _numbers(table, name)
    if not pa.types.is_integer(table[name].type):
        raise WorkloadError(f"column {name} must hold integers, its type is {table[name].type}")
    for worst in (index.min(), index.max()):
        if not 0 <= worst < MAX_FILE_CELLS:
            raise WorkloadError(
                f"{name} counts cells from 0, got {worst:.0f}, which is out of range; "
                "shift or correct the indices"
            )
    return index.astype(np.int64)


def _edges(table: pa.Table, name: str, index: npt.NDArray[np.int64]) -> tuple[float, float] | None:
    """Return where the first cell begins and the last one ends, given the cells' centres.

    None where the table has no such column, or only one line of cells, whose width is unknown.
    """
    first, last = int(index.argmin()), int(index.argmax())
    if name not in table.column_names or index[first] == index[last]:
        return None
    centre = _numbers(table, name)
    step = float((centre[last] - centre[first]) / (index[last] - index[first]))
    start = float(centre[first] - (index[first] + 0.5) * step)
    off = np.abs(start + (index + 0.5) * step - centre)
    # A tenth of a cell forgives rounded coordinates; NaN fails the comparison.
    if step == 0 or not (off <= abs(step) / 10).all():
        raise WorkloadError(
            f"{name} must be the centre of cell {name}_idx of an even grid, but some values are "
            f"off by {off.max() / abs(step) if step else math.inf:.2g} cells; correct or drop it"
        )
    return start, start + (int(index[last]) + 1) * step
