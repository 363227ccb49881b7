"""Pairing: which executors give, and to whom.

Owns the choice of m_high and m_low from the costs alone. Two ways: the paper's, extended to
several disjoint pairs, where the highest and the lowest meet in the middle; and its
generalisation, where an executor may give to several and take from several, and all aim for
the mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

ROUNDING = 1e-9
"""A gift below this fraction of the mean is left over from rounding."""


class Group(NamedTuple):
    """One giver and the executors it gives to.

    Attributes
    ----------
    m_high
        The giver.
    m_lows, c_lows
        The receivers, and the cost each is to be reckoned with. For a pair of its own that
        is C(m_low). Where a receiver is to get something from others too, what they bring
        is counted in, so that every giver, levelling itself with its receivers, arrives at
        the mean.
    """

    m_high: int
    m_lows: tuple[int, ...]
    c_lows: tuple[float, ...]


def level(c_high: float, c_lows: Sequence[float]) -> float:
    """Return the cost at which a giver and its receivers are even.

    For one receiver, the distance to it is the paper's C_max = (C(m_high) - C(m_low)) / 2.
    """
    return (c_high + sum(c_lows)) / (len(c_lows) + 1)


def pair(
    costs: Sequence[float],
    max_pairs: int,
    max_receivers: int,
    tolerance: float = 0.0,
    givers: Sequence[int] | None = None,
    receivers: Sequence[int] | None = None,
) -> list[Group]:
    """Choose givers and receivers.

    Parameters
    ----------
    costs
        C(m) by executor id.
    max_pairs
        (m_high, m_low) pairs in all; 1 is the paper's choice, the highest and the lowest.
    max_receivers
        How many executors one may give to. With 1, pairs are disjoint and meet in the middle.
    tolerance
        Executors above the mean by no more than this fraction need not give.
    givers, receivers
        Restrict who may give and who may receive, all by default.
    """
    mean = sum(costs) / len(costs)
    everyone = range(len(costs))
    highs = sorted(everyone if givers is None else givers, key=lambda m: (-costs[m], m))
    highs = [m for m in highs if costs[m] > mean * (1.0 + tolerance)]
    lows = sorted(everyone if receivers is None else receivers, key=lambda m: (costs[m], m))
    if max_receivers == 1:
        return [
            Group(m_high, (m_low,), (costs[m_low],))
            for m_high, m_low in list(zip(highs, lows, strict=False))[:max_pairs]
            if costs[m_low] < mean
        ]
    least = ROUNDING * mean
    room = {m: mean - costs[m] for m in lows if costs[m] < mean - least}
    groups = []
    for m_high in highs:
        surplus = costs[m_high] - mean
        gifts: dict[int, float] = {}
        for m_low in list(room):
            if surplus <= least or max_pairs == 0 or len(gifts) == max_receivers:
                break
            gifts[m_low] = min(surplus, room[m_low])
            surplus -= gifts[m_low]
            room[m_low] -= gifts[m_low]
            if room[m_low] <= least:
                del room[m_low]
            max_pairs -= 1
        if gifts:
            c_lows = tuple(mean - gift for gift in gifts.values())
            groups.append(Group(m_high, tuple(gifts), c_lows))
    return groups
