"""Lending in the route task: points are priced by their cells, and what is above the mean is lent.

Runs in the route tasks, for each chunk of points. How the work of a chunk is divided is in
``protocol/lending.py``; here are the prices. A task that runs again lends the same points.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from sparkswarm.compiled import ByteArray, FloatArray, IntArray, LongArray, compiled
from sparkswarm.observe.progress import Loan
from sparkswarm.policies import BlockSums, LendingPrices
from sparkswarm.protocol.lending import lend

if TYPE_CHECKING:
    from sparkswarm.spark.tasks.context import BatchContext


class Lender:
    """Assigns the points of a task to executors, chunk by chunk."""

    def __init__(self, ctx: BatchContext, prices: LendingPrices) -> None:
        self._ctx = ctx
        self._raster = ctx.price_raster
        hosts = ctx.input.hosts
        self._hosts = np.array(hosts, np.int32) if hosts else None
        self._held = _held(ctx)
        self._loans: Counter[tuple[int, int, int]] = Counter()
        self._per_point = prices.per_point
        self._per_query = prices.by_block()
        self._candidates: FloatArray = np.zeros(len(self._per_query))

    def assign(self, x: FloatArray, y: FloatArray, keys: LongArray) -> IntArray:
        """Return the executor of every point, -1 where it lies outside the grid."""
        ctx = self._ctx
        routed = ctx.index.route(x, y, keys)
        price = _priced(
            routed.column,
            routed.row,
            self._raster.counts,
            self._raster.factor,
            ctx.blocks.of_column,
            ctx.blocks.of_row,
            self._per_point,
            self._per_query,
            self._candidates,
        )
        slots, owner = ctx.slot_of[routed.partition], routed.owner
        executors, partitions = ctx.plan.executors, len(ctx.plan.partitions)
        order: slice | LongArray = slice(None)
        if self._hosts is not None:
            # Points are lent in this order: those of a segment need the same files.
            segment = ctx.segment_numbers[routed.row, routed.column]
            order = np.argsort(segment, kind="stable")
        given = price[order], slots[order], owner[order]
        lent = lend(*given, executors, self._hosts, partitions, self._held)
        loans = zip(lent.lender, lent.borrower, lent.slot, lent.points, strict=True)
        for lender, borrower, slot, points in loans:
            partition = ctx.plan.partitions[slot].id
            self._loans[int(lender), int(borrower), partition] += int(points)
        executor = np.empty_like(lent.executor)
        executor[order] = lent.executor
        return executor

    @property
    def loans(self) -> tuple[Loan, ...]:
        """What was lent."""
        return tuple(Loan(*key, points) for key, points in self._loans.items())

    @property
    def candidates(self) -> BlockSums:
        """Queries in the cells of the points assigned, by block of cells."""
        return BlockSums.of(self._candidates)


def _held(ctx: BatchContext) -> ByteArray | None:
    """Return which hosts have which partitions, as far as loans of the last batch tell."""
    hosts = ctx.input.hosts
    if not hosts:
        return None
    held = np.zeros((len(ctx.plan.partitions), max(hosts) + 1), np.uint8)
    for partition, borrower in ctx.input.borrowed:
        if partition < len(ctx.slot_of) and borrower < len(hosts):
            slot = ctx.slot_of[partition]
            if slot >= 0:
                held[slot, hosts[borrower]] = 1
    return held


@compiled
def _priced(
    column: IntArray,
    row: IntArray,
    counts: IntArray,
    factor: int,
    of_column: IntArray,
    of_row: IntArray,
    per_point: float,
    per_query: FloatArray,
    candidates: FloatArray,
) -> FloatArray:
    """Return the price of each point; add the queries in its cell to those of its block."""
    price = np.empty(len(column))
    for i in range(len(column)):
        price[i] = per_point
        if column[i] >= 0:
            queries = counts[row[i] // factor, column[i] // factor]
            block = of_row[row[i]] + of_column[column[i]]
            price[i] += per_query[block] * queries
            candidates[block] += queries
    return price
