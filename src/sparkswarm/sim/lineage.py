"""Lineage: the retired partitions that still hold data, and how to find them.

SWARM does not move data. A partition's earlier data stay with its parents' owners until
they expire; a query over the past follows the chain of parents (paper, "Correctness of
Query Execution").
"""

from __future__ import annotations

from typing import NamedTuple

from sparkswarm.geometry import CellRect
from sparkswarm.protocol.partition import Partition, PlanChange


class Link(NamedTuple):
    """A retired partition, and the cells to ask it about.

    After a split both halves have the same parent. Each asks it for its own cells only, so no
    point is returned twice.
    """

    partition: Partition
    cells: CellRect


class Lineage:
    """The retired partitions that still hold data.

    Times are numbers that grow, such as batches or seconds.
    """

    def __init__(self) -> None:
        self._retired: dict[int, tuple[Partition, float]] = {}

    def record(self, change: PlanChange, time: float) -> None:
        """Add the partitions that a change retires at ``time``."""
        for partition in change.retired:
            self._retired[partition.id] = (partition, time)

    def chain(self, partition: Partition) -> list[Link]:
        """Return the ancestors that may hold data of ``partition``'s cells, last retired first."""
        links: list[Link] = []
        queue = [(parent, partition.cells) for parent in partition.parents]
        while queue:
            parent_id, wanted = queue.pop(0)
            if parent_id not in self._retired:
                continue
            parent, _ = self._retired[parent_id]
            cells = wanted.intersection(parent.cells)
            if cells.area:
                links.append(Link(parent, cells))
                queue += [(grandparent, cells) for grandparent in parent.parents]
        return sorted(links, key=lambda link: -self._retired[link.partition.id][1])

    def expire(self, before: float) -> list[Partition]:
        """Remove the partitions that were retired before ``before``, and return them.

        A partition receives nothing after it is retired, so when all data older than
        ``before`` have expired, it holds nothing any more, and neither do its parents.
        """
        gone = [p for p, time in self._retired.values() if time < before]
        for partition in gone:
            del self._retired[partition.id]
        return gone

    def __len__(self) -> int:
        return len(self._retired)
