"""Lending in the route task: points are priced by their cells, and what is above the mean is lent.

Runs in the route tasks, for each chunk of points. How the work of a chunk is divided is in
``protocol/lending.py``; here are the prices: of points, and of fetching queries to another host. A
task that runs again lends the same points.
"""

from __future__ import annotations

from collections import Counter
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from sparkswarm.compiled import FloatArray, IntArray, LongArray, compiled
from sparkswarm.observe.progress import Loan
from sparkswarm.policies import BlockSums, LendingPrices
from sparkswarm.protocol.lending import lend, lend_among_hosts

if TYPE_CHECKING:
    from sparkswarm.spark.tasks.context import BatchContext


BYTES_TO_FETCH = "bytes_to_fetch"
"""What is computed once for all tasks of a batch on a worker."""


class Lender:
    """Assigns the points of a task to executors, chunk by chunk."""

    def __init__(self, ctx: BatchContext, prices: LendingPrices) -> None:
        self._ctx = ctx
        self._raster = ctx.price_raster
        hosts = ctx.input.hosts
        self._hosts = np.array(hosts, np.int32) if hosts else None
        self._fetching: FloatArray | None = None
        if hosts:
            if BYTES_TO_FETCH not in ctx.computed:
                ctx.computed[BYTES_TO_FETCH] = _bytes_to_fetch(ctx)
            self._fetching = prices.per_byte * ctx.computed[BYTES_TO_FETCH]
        self._batch_points = prices.batch_points
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
        fetching = self._fetching
        if fetching is not None and self._batch_points:
            # Queries are fetched once for all chunks of the batch.
            fetching = fetching * min(1.0, len(x) / self._batch_points)
        if self._hosts is None or fetching is None:
            lent = lend(*given, executors, slots=partitions)
        else:
            lent = lend_among_hosts(*given, executors, self._hosts, partitions, fetching)
        loans = zip(lent.lender, lent.borrower, lent.slot, lent.points, strict=True)
        for lender, borrower, slot, points in loans:
            partition = ctx.plan.partitions[slot].id
            self._loans[int(lender), int(borrower), partition] += int(points)
        if self._hosts is None:
            return lent.executor
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


def _bytes_to_fetch(ctx: BatchContext) -> FloatArray:
    """Return how many bytes each host lacks of the queries of each partition.

    A host has the bases of its executors' partitions, and those of partitions that its executors
    borrowed in the last batch. Of deltas it has its own parts; those of another host are about as
    large.
    """
    hosts, partitions, manifest = ctx.input.hosts, ctx.plan.partitions, ctx.epoch.manifest
    stored = [[s.base for s in manifest.partitions[p.id] if s.base] for p in partitions]
    number = {base: i for i, base in enumerate(dict.fromkeys(chain.from_iterable(stored)))}
    size = np.array([base.size for base in number], dtype=np.float64)
    base = np.array([number[one] for some in stored for one in some], dtype=np.int64)
    slot = np.repeat(np.arange(len(partitions)), list(map(len, stored)))
    users = [(ctx.slot_of[p.id], m) for p in partitions for m in p.owners]
    borrowed = [
        (ctx.slot_of[partition], borrower)
        for partition, borrower in ctx.input.borrowed
        if partition < len(ctx.slot_of) and ctx.slot_of[partition] >= 0 and borrower < len(hosts)
    ]
    uses = np.zeros((len(partitions), max(hosts) + 1), dtype=bool)
    for user_slot, m in users + borrowed:
        uses[user_slot, hosts[m]] = True
    has = np.zeros((len(number), max(hosts) + 1), dtype=bool)
    np.logical_or.at(has, base, uses[slot])
    changed = {d.batch: sum(f.size for f in d.parts.files) for d in manifest.deltas if d.parts}
    new, every = changed.get(ctx.epoch.batch, 0), sum(changed.values())
    lacking = np.where(uses, new, every) / len(set(hosts))
    np.add.at(lacking, slot, size[base, None] * ~has[base])
    return lacking


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
            # Unsigned indices, and no division where there is none: both cost as much as the rest.
            at, beside = np.uint64(row[i]), np.uint64(column[i])
            block = np.uint64(of_row[at] + of_column[beside])
            if factor > 1:
                at, beside = at // np.uint64(factor), beside // np.uint64(factor)
            queries = counts[at, beside]
            price[i] += per_query[block] * queries
            candidates[block] += queries
    return price
