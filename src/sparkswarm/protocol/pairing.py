"""Pairing: which executors give, and to whom.

Owns the choice of m_high and m_low from the costs alone. An executor that gives to several
levels itself with all of them: with receivers l1..lk it aims for (h + l1 + .. + lk) / (k + 1),
which for one receiver is the paper's C_max = (C(m_high) - C(m_low)) / 2.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple


class Group(NamedTuple):
    """One giver, the executors it gives to, and the cost at which all of them level."""

    m_high: int
    m_lows: tuple[int, ...]
    level: float


def pair(
    costs: Sequence[float],
    max_pairs: int,
    max_receivers: int = 1,
    tolerance: float = 0.0,
    givers: Sequence[int] | None = None,
    receivers: Sequence[int] | None = None,
) -> list[Group]:
    """Choose givers and receivers, each executor in at most one group.

    With ``max_pairs=1`` this is the paper's choice: the highest gives to the lowest. Each
    further pair takes the executor that would be slowest after the pairs so far, and the
    least loaded executor that is still free.

    Parameters
    ----------
    costs
        C(m) by executor id.
    max_pairs
        (m_high, m_low) pairs in all.
    max_receivers
        How many executors one may give to; 1 makes the pairs disjoint.
    tolerance
        Stop when nobody is above the mean by more than this fraction.
    givers, receivers
        Restrict who may give and who may receive, all by default.
    """
    everyone = range(len(costs))
    free = deque(sorted(everyone if receivers is None else receivers, key=lambda m: (costs[m], m)))
    m_lows: dict[int, list[int]] = {m: [] for m in (everyone if givers is None else givers)}
    levels = [(-costs[m], m) for m in m_lows]
    heapq.heapify(levels)
    enough = (1.0 + tolerance) * sum(costs) / len(costs) if tolerance else 0.0
    groups: dict[int, Group] = {}
    received: set[int] = set()
    while levels and free and len(received) < max_pairs:
        minus_level, m_high = heapq.heappop(levels)
        m_low = free[0]
        if -minus_level <= enough:
            break
        if m_high in received or len(m_lows[m_high]) == max_receivers:
            continue
        chosen = [*m_lows[m_high], m_low]
        level = (costs[m_high] + sum(costs[m] for m in chosen)) / (len(chosen) + 1)
        if m_low == m_high or m_low in groups or level >= -minus_level:
            break
        received.add(free.popleft())
        m_lows[m_high] = chosen
        groups[m_high] = Group(m_high, tuple(chosen), level)
        heapq.heappush(levels, (-level, m_high))
    return sorted(groups.values(), key=lambda group: (-costs[group.m_high], group.m_high))


def predicted_slowest(costs: Sequence[float]) -> float:
    """Return the cost of the slowest executor after as many pairs as it takes."""
    groups = pair(costs, max_pairs=len(costs), max_receivers=len(costs))
    after = list(costs)
    for group in groups:
        for m in (group.m_high, *group.m_lows):
            after[m] = group.level
    return max(after, default=0.0)
