"""Lineage: who held these cells before, for as long as their data live.

SWARM does not move data. A partition's earlier data stay with its parents' owners until
they expire; a query over the past follows the chain of parents (paper, "Correctness of
Query Execution").
"""

from __future__ import annotations

from typing import NamedTuple

from sparkswarm.geometry import CellRect
from sparkswarm.protocol.partition import Partition, PlanChange


class Link(NamedTuple):
    """A former partition to ask, and about which of its cells.

    The cells matter: when a partition was split, both halves ask the same parent, each for
    its own part, and no point is answered twice.
    """

    partition: Partition
    cells: CellRect


class Lineage:
    """The partitions that are retired but still hold data.

    Times are plain numbers that the caller keeps in one order (a batch, a second).
    """

    def __init__(self) -> None:
        self._retired: dict[int, tuple[Partition, float]] = {}

    def record(self, change: PlanChange, time: float) -> None:
        """Remember the partitions that a change retires at ``time``."""
        for partition in change.retired:
            self._retired[partition.id] = (partition, time)

    def chain(self, partition: Partition) -> list[Link]:
        """Return every former holder of data of ``partition``'s cells, newest first.

        Newest is what was retired last.
        """
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
        """Cut the chains: forget what was retired before ``before``, and return it.

        A partition receives nothing after it is retired, so when all data older than
        ``before`` have expired, everything it held is gone, and so is what its parents held.
        """
        gone = [p for p, time in self._retired.values() if time < before]
        for partition in gone:
            del self._retired[partition.id]
        return gone

    def __len__(self) -> int:
        return len(self._retired)
