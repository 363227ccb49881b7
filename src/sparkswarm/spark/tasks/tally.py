"""Counts what a task matched: in all, by partition, and the statistics of partitions.

Runs in the tasks that match points, whoever owns their partitions. Statistics go to the agents of
the owners when they next run.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from sparkswarm.compiled import FloatArray
from sparkswarm.policies import Collected
from sparkswarm.policies.lending_prices import SIDE, BlockSums
from sparkswarm.protocol.statistics import PointCounts
from sparkswarm.store.files import Folder
from sparkswarm.store.statistics import keep

if TYPE_CHECKING:
    from sparkswarm.spark.tasks.context import BatchContext
    from sparkswarm.spark.tasks.lots import Lot


class TaskTally:
    """Counts what a task matches.

    Parameters
    ----------
    ctx
        The task's context.
    """

    def __init__(self, ctx: BatchContext) -> None:
        self._ctx = ctx
        self._collects = ctx.input.collect_statistics
        self._match_weight = ctx.input.match_weight
        self._statistics: dict[int, PointCounts] = {}
        self.points = self.matches = self.checks = self.pieces = 0
        self.points_by_partition: Counter[int] = Counter()
        self._lends = ctx.input.lending is not None
        self._by_block: FloatArray = np.zeros(SIDE * SIDE if self._lends else 0)

    def add(self, lot: Lot) -> None:
        """Count the points of a lot."""
        self.points += len(lot.rows)
        self.matches += int(lot.counts.sum())
        self.checks += int(lot.checks.sum())
        self.pieces += len(lot.parts)
        work = lot.checks + self._match_weight * lot.counts if self._collects else None
        if work is not None and self._lends:
            self._ctx.blocks.add(self._by_block, lot.column, lot.row, work)
        for part in lot.parts:
            here = slice(part.low, part.high)
            self.points_by_partition[part.partition_id] += part.high - part.low
            if work is not None:
                counts = self._of(part.partition_id)
                counts.collect(lot.column[here], lot.row[here], work[here])

    def _of(self, partition_id: int) -> PointCounts:
        if partition_id not in self._statistics:
            cells = self._ctx.partition(partition_id).cells
            self._statistics[partition_id] = PointCounts(cells)
        return self._statistics[partition_id]

    @property
    def found(self) -> BlockSums | None:
        """Checks of points by block, results among them; None where nothing may be lent."""
        return BlockSums.of(self._by_block) if self._lends and self._collects else None

    def collected(self, name: str) -> Collected | None:
        """Return the statistics, if there are any; ``name`` is that of the task."""
        if not self._statistics:
            return None
        ctx = self._ctx
        points = keep(
            ctx.input.files,
            {key: one.values for key, one in self._statistics.items()},
            ctx.plan.executors,
            lambda: ctx.file_name(Folder.SOFT, f"{name}-collected"),
        )
        return Collected(points=points, partitions=tuple(self._statistics))
