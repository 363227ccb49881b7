"""Counts what a task matched: in all, by partition, and the statistics of partitions.

Runs in the tasks that match points. Statistics that the owner of a partition cannot collect,
because another task matched the points, are left in a soft file that the owner reads later.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from sparkswarm.policies import Agent, Collected
from sparkswarm.protocol.statistics import Statistics
from sparkswarm.store import statistics as statistics_file
from sparkswarm.store.files import Folder

if TYPE_CHECKING:
    from sparkswarm.spark.tasks.context import BatchContext
    from sparkswarm.spark.tasks.match import Lot


class TaskTally:
    """What a task matched so far.

    Parameters
    ----------
    ctx
        The task's context.
    agent
        The agent of the executor whose task this is; None where there is none.
    owned
        Ids of the partitions whose statistics that agent keeps.
    """

    def __init__(
        self, ctx: BatchContext, agent: Agent | None = None, owned: frozenset[int] = frozenset()
    ) -> None:
        self._ctx = ctx
        self._agent, self._owned = agent, owned
        self._collects = agent is not None or ctx.input.collect_statistics
        self._match_weight = ctx.input.match_weight
        self._others: dict[int, Statistics] = {}
        self.points = self.matches = self.checks = self.pieces = 0
        self.points_by_partition: Counter[int] = Counter()

    def add(self, lot: Lot) -> None:
        """Count the points of a lot."""
        self.points += len(lot.rows)
        self.matches += int(lot.counts.sum())
        self.checks += int(lot.checks.sum())
        self.pieces += len(lot.parts)
        work = lot.checks + self._match_weight * lot.counts if self._collects else None
        for part in lot.parts:
            here = slice(part.low, part.high)
            self.points_by_partition[part.partition_id] += part.high - part.low
            if work is None:
                continue
            if self._agent is not None and part.partition_id in self._owned:
                self._agent.collect(part.partition_id, lot.column[here], lot.row[here], work[here])
            else:
                statistics = self._statistics(part.partition_id)
                statistics.collect_points(lot.column[here], lot.row[here], work[here])

    def _statistics(self, partition_id: int) -> Statistics:
        if partition_id not in self._others:
            cells = self._ctx.partition(partition_id).cells
            self._others[partition_id] = Statistics(cells)
        return self._others[partition_id]

    def write(self, name: str) -> Collected | None:
        """Write the statistics of partitions that others own, if there are any."""
        if not self._others:
            return None
        content = statistics_file.points_to_bytes(self._others)
        name = self._ctx.file_name(Folder.SOFT, f"{name}-collected")
        ref = self._ctx.input.files.write(name, content, durable=False)
        return Collected(file=ref, partitions=tuple(self._others))
