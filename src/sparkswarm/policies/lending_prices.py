"""Prices of points before they are matched, for lending.

Owns what earlier batches tell about the candidates of a point: the queries that overlap its cell.
How many of them are checked and match depends on where in the cell points and queries are: at an
airport nearly all, at its edge few. So prices are learnt by blocks of cells; a partition would be
too coarse, and another after each change of the plan. Learnt on the driver, once a batch; the sums
are collected in tasks.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from sparkswarm.compiled import FloatArray, IntArray, compiled
from sparkswarm.geometry import Grid
from sparkswarm.protocol.cost import PER_BYTE_FETCHED, Prices

SIDE = 64
"""Columns, and rows, of blocks that divide the grid."""

DECAY = 0.8
"""Factor applied in each batch to what earlier ones told."""

PRIOR = 2e-4
"""Weight of the common price in that of a block, as a share of all candidates."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LendingPrices:
    """Prices of a point before it is matched, in seconds.

    Attributes
    ----------
    per_point
        Of a point in a cell without queries.
    per_query
        Of each query that overlaps the point's cell.
    factors
        Factor of ``per_query`` in each block; None where nothing is known of blocks.
    per_byte
        Of queries that a host must fetch.
    batch_points
        Number of points of the last batch; 0 where it is not known.
    """

    per_point: float
    per_query: float
    factors: FloatArray | None = None
    per_byte: float = PER_BYTE_FETCHED
    batch_points: int = 0

    def by_block(self) -> FloatArray:
        """Return the price of a query in each block."""
        return self.per_query * (np.ones(SIDE * SIDE) if self.factors is None else self.factors)


class BlockSums(NamedTuple):
    """Sums by block, without the blocks where they are 0."""

    block: IntArray
    amount: FloatArray

    @classmethod
    def of(cls, sums: FloatArray) -> BlockSums:
        """Return the sums of all blocks in this form."""
        block = np.flatnonzero(sums)
        return cls(block.astype(np.int32), sums[block])


class Blocks(NamedTuple):
    """The blocks of a grid: the block of a cell is ``of_row[row] + of_column[column]``."""

    of_column: IntArray
    of_row: IntArray

    @classmethod
    def of(cls, grid: Grid) -> Blocks:
        """Return the blocks of a grid."""
        columns, rows = (np.arange(n) * SIDE // n for n in (grid.columns, grid.rows))
        return cls(columns.astype(np.int32), (rows * SIDE).astype(np.int32))

    def add(self, sums: FloatArray, column: IntArray, row: IntArray, amount: FloatArray) -> None:
        """Add amounts in cells to the sums of their blocks."""
        _add(sums, self.of_column, self.of_row, column, row, amount)


class CandidatePrice:
    """Learns the time to which a candidate leads."""

    def __init__(self) -> None:
        self._seconds = 0.0
        self._candidates: FloatArray = np.zeros(SIDE * SIDE)
        self._found: FloatArray = np.zeros(SIDE * SIDE)

    def observe(
        self, seconds: float, candidates: Iterable[BlockSums], found: Iterable[BlockSums]
    ) -> None:
        """Take in a batch.

        Parameters
        ----------
        seconds
            The time of all checks and results.
        candidates, found
            By task, the candidates of its points, and the checks and results in any unit.
        """
        before, after = _total(candidates), _total(found)
        if not before.any():
            return
        self._seconds = DECAY * self._seconds + seconds
        self._candidates = DECAY * self._candidates + before
        # In units of the batch's candidates: what a check is to a result changes with the prices.
        after = after * (before.sum() / after.sum()) if after.any() else before
        self._found = DECAY * self._found + after

    def prices(self, learnt: Prices) -> LendingPrices:
        """Return the prices for the next batch."""
        candidates = float(self._candidates.sum())
        if not candidates:
            return LendingPrices(per_point=learnt.per_point, per_query=learnt.per_match)
        prior = PRIOR * candidates
        return LendingPrices(
            per_point=learnt.per_point,
            per_query=self._seconds / candidates,
            factors=(self._found + prior) / (self._candidates + prior),
        )


def _total(some: Iterable[BlockSums]) -> FloatArray:
    sums: FloatArray = np.zeros(SIDE * SIDE)
    for one in some:
        sums[one.block] += one.amount
    return sums


@compiled
def _add(
    sums: FloatArray,
    of_column: IntArray,
    of_row: IntArray,
    column: IntArray,
    row: IntArray,
    amount: FloatArray,
) -> None:
    for i in range(len(column)):
        sums[of_row[row[i]] + of_column[column[i]]] += amount[i]
