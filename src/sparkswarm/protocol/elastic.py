"""Elasticity: the same partitions for another number of executors.

Owns who takes over from executors that leave. New executors are given nothing here: they
report no cost, and so are the first to be given load in the next round. Loads are not known
here either; the rounds that follow put right what was dealt unevenly.
"""

from __future__ import annotations

import heapq
from collections import Counter
from dataclasses import replace
from typing import NamedTuple

from sparkswarm.errors import PlanError
from sparkswarm.protocol.partition import ChangeKind, Partition, PlanChange, successor
from sparkswarm.protocol.plan import Plan


class _Stake(NamedTuple):
    """What one executor has in one partition: all of it, or its tickets."""

    partition: Partition
    owner: int
    tickets: int

    @property
    def size(self) -> int:
        """Cells, weighed with the tickets."""
        return self.partition.cells.area * self.tickets


def resized(plan: Plan, executors: int) -> tuple[Plan, tuple[PlanChange, ...]]:
    """Return the plan for that many executors, and the changes that lead to it.

    Growing changes no partition. Shrinking moves whatever the executors from ``executors``
    on have, one change for each partition concerned: from the largest to the smallest, each
    stake goes to the executor that has been given the fewest so far, or the fewest cells
    where several have. Stakes of executors that stay are not touched. The version counts one
    up, unless the number is what it was: then the plan is returned as it is.

    What an executor had before does not count: those who stay are balanced already, however
    many partitions each needs for that, and to make up for few of them would undo it. From
    22 executors to 16, the efficiency measured was 0.67 so, and 0.59 with holdings counted.

    Raises
    ------
    PlanError
        If there would be no executor.
    """
    if executors < 1:
        raise PlanError(f"a plan needs at least one executor, got {executors}")
    if executors == plan.executors:
        return plan, ()
    dealt = _deal(plan, executors)
    ids, plan = plan.reserve(len(dealt))
    changes = tuple(
        PlanChange(
            ChangeKind.MOVE,
            (partition,),
            (successor(fresh_id, partition.cells, shares, partition),),
        )
        for fresh_id, (partition, shares) in zip(ids, dealt, strict=True)
    )
    return replace(plan, executors=executors).apply(changes), changes


def _deal(plan: Plan, executors: int) -> list[tuple[Partition, Counter[int]]]:
    """Return the partitions that must change hands, each with its new shares."""
    stakes = [_Stake(p, owner, n) for p in plan.partitions for owner, n in p.shares.items()]
    staying = [stake for stake in stakes if stake.owner < executors]
    leaving = [stake for stake in stakes if stake.owner >= executors]
    takers = [(0, 0, m) for m in range(executors)]  # Sorted, and so a heap.
    shares: dict[Partition, Counter[int]] = {}
    touched = {stake.partition for stake in leaving}
    for stake in staying:
        if stake.partition in touched:
            shares.setdefault(stake.partition, Counter())[stake.owner] = stake.tickets
    for stake in sorted(leaving, key=lambda s: (-s.size, s.partition.id, s.owner)):
        received, cells, taker = takers[0]
        shares.setdefault(stake.partition, Counter())[taker] += stake.tickets
        heapq.heapreplace(takers, (received + 1, cells + stake.size, taker))
    return sorted(shares.items(), key=lambda item: item[0].id)
