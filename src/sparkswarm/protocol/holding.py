"""A holding: a partition together with its statistics on one executor."""

from __future__ import annotations

from dataclasses import dataclass

from sparkswarm.geometry import QueryCells
from sparkswarm.protocol.partition import Partition
from sparkswarm.protocol.statistics import Statistics


@dataclass(frozen=True, slots=True)
class Holding:
    """A partition and its statistics on one executor: an entry of the paper's HashMap.

    Of a shared partition, the statistics are those of this owner's share.
    """

    partition: Partition
    statistics: Statistics


def inherited(
    created: Partition, owner: int, old: Holding, holder: int, queries: QueryCells | None = None
) -> Statistics:
    """Derive ``owner``'s statistics of a part of the partition that ``holder`` holds.

    With ``queries``, those of the part, they are recounted exactly.
    """
    part = old.statistics.restricted_to(created.cells, queries)
    share = created.shares[owner] / old.partition.shares[holder]
    return part if share == 1 else part.scaled(share)
