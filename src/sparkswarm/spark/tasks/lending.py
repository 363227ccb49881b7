"""Lending in the route task: points are priced by their cells, and what is above the mean is lent.

Runs in the route tasks, for each chunk of points. How the work of a chunk is divided is in
``protocol/lending.py``; here are the prices. A task that runs again lends the same points.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from sparkswarm.compiled import FloatArray, IntArray, LongArray, compiled
from sparkswarm.observe.progress import Loan
from sparkswarm.policies import LendingPrices
from sparkswarm.protocol.lending import lend

if TYPE_CHECKING:
    from sparkswarm.spark.tasks.context import BatchContext


class Lender:
    """Assigns the points of a task to executors, chunk by chunk.

    Attributes
    ----------
    candidates
        Queries in the cells of the assigned points, by the raster of prices.
    """

    def __init__(self, ctx: BatchContext, prices: LendingPrices) -> None:
        self._ctx = ctx
        self._prices = prices
        self._raster = ctx.price_raster
        self._loans: Counter[tuple[int, int, int]] = Counter()
        self.candidates = 0.0

    def assign(self, x: FloatArray, y: FloatArray, keys: LongArray) -> IntArray:
        """Return the executor of every point, -1 where it lies outside the grid."""
        ctx, prices = self._ctx, self._prices
        routed = ctx.index.route(x, y, keys)
        price, candidates = _priced(
            routed.column,
            routed.row,
            self._raster.counts,
            self._raster.factor,
            prices.per_point,
            prices.per_query,
        )
        self.candidates += candidates
        slots = ctx.slot_of[routed.partition]
        lent = lend(price, slots, routed.owner, ctx.plan.executors, slots=len(ctx.plan.partitions))
        loans = zip(lent.lender, lent.borrower, lent.slot, lent.points, strict=True)
        for lender, borrower, slot, points in loans:
            partition = ctx.plan.partitions[slot].id
            self._loans[int(lender), int(borrower), partition] += int(points)
        return lent.executor

    @property
    def loans(self) -> tuple[Loan, ...]:
        """What was lent."""
        return tuple(Loan(*key, points) for key, points in self._loans.items())


@compiled
def _priced(
    column: IntArray,
    row: IntArray,
    counts: IntArray,
    factor: int,
    per_point: float,
    per_query: float,
) -> tuple[FloatArray, float]:
    """Return the price of each point, and the number of queries in all their cells."""
    price = np.empty(len(column))
    total = 0.0
    for i in range(len(column)):
        price[i] = per_point
        if column[i] >= 0:
            queries = counts[row[i] // factor, column[i] // factor]
            price[i] += per_query * queries
            total += queries
    return price, total
