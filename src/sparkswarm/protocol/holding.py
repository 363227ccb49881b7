"""A holding: a partition together with its statistics on one executor."""

from __future__ import annotations

from dataclasses import dataclass

from sparkswarm.geometry import QueryCells
from sparkswarm.protocol.partition import Partition
from sparkswarm.protocol.statistics import Statistics


@dataclass(frozen=True, slots=True)
class Holding:
    """A partition and its statistics on the executor that holds it.

    The entry of the paper's HashMap of partitions. Where the partition is shared, the
    statistics are those of this owner's share.
    """

    partition: Partition
    statistics: Statistics


def inherited(
    created: Partition, owner: int, old: Holding, holder: int, queries: QueryCells | None = None
) -> Statistics:
    """Work out ``owner``'s statistics for a part of what ``holder`` has statistics of.

    ``queries``, those of the part, are recounted exactly where they are given.
    """
    part = old.statistics.restricted_to(created.cells, queries)
    share = created.shares[owner] / old.partition.shares[holder]
    return part if share == 1 else part.scaled(share)
