"""The raster of prices: number of queries in each cell.

Owns the file that is written with the bases, and how deltas correct it. Written on the driver,
read in tasks that lend points to other executors.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparkswarm.compiled import IntArray, compiled
from sparkswarm.geometry import Grid
from sparkswarm.store.formats import arrays_from_bytes, arrays_to_bytes

VERSION = 1

MAX_SIDE = 2048
"""Columns and rows of a raster at most: a finer grid is coarsened."""


@dataclass(frozen=True)
class PriceRaster:
    """Number of queries that overlap each cell of a raster.

    Attributes
    ----------
    counts
        Of shape (rows, columns).
    factor
        Cells of the grid in one cell of the raster, in each direction: cell (column, row) of the
        grid is ``counts[row // factor, column // factor]``.
    """

    counts: IntArray
    factor: int

    @classmethod
    def empty(cls, grid: Grid) -> PriceRaster:
        """Return the raster of a run without queries."""
        factor = -(-max(grid.columns, grid.rows) // MAX_SIDE)
        shape = -(-grid.rows // factor), -(-grid.columns // factor)
        return cls(np.zeros(shape, np.int32), factor)

    def corrected(
        self,
        added: Iterable[npt.NDArray[Any]] = (),
        removed: Iterable[npt.NDArray[Any]] = (),
    ) -> PriceRaster:
        """Return the raster with more queries and without others.

        Both are cells in arrays of shape (n, 4); a query whose cells are all 0 does not count.
        """
        rows, columns = self.counts.shape
        edges = np.zeros((rows + 1, columns + 1), np.int32)
        for weight, arrays in ((1, added), (-1, removed)):
            for cells in arrays:
                _add_edges(edges, np.ascontiguousarray(cells, np.int32), weight, self.factor)
        return PriceRaster(_summed(edges, self.counts), self.factor)

    def to_bytes(self) -> pa.Buffer:
        """Return the content of its file."""
        arrays = {"counts": self.counts, "factor": np.array([self.factor], np.int32)}
        # Every host reads it, and most cells are alike.
        return arrays_to_bytes(arrays, VERSION, compressed=True)

    @classmethod
    def from_bytes(cls, content: pa.Buffer) -> PriceRaster:
        """Read what :meth:`to_bytes` returned."""
        arrays = arrays_from_bytes(content, VERSION)
        return cls(arrays["counts"], int(arrays["factor"][0]))


@compiled
def _add_edges(edges: IntArray, cells: IntArray, weight: int, factor: int) -> None:
    """Add where each rectangle begins and ends, so that sums over rows and columns count them."""
    for i in range(len(cells)):
        if cells[i, 2] > cells[i, 0]:
            left, low = cells[i, 0] // factor, cells[i, 1] // factor
            right, high = (cells[i, 2] - 1) // factor + 1, (cells[i, 3] - 1) // factor + 1
            edges[low, left] += weight
            edges[low, right] -= weight
            edges[high, left] -= weight
            edges[high, right] += weight


@compiled
def _summed(edges: IntArray, counts: IntArray) -> IntArray:
    """Return the counts plus the sums of the edges above and to the left."""
    rows, columns = counts.shape
    out = np.empty((rows, columns), np.int32)
    above = np.zeros(columns, np.int32)
    for row in range(rows):
        here = np.int32(0)
        for column in range(columns):
            here += edges[row, column]
            above[column] += here
            out[row, column] = counts[row, column] + above[column]
    return out
