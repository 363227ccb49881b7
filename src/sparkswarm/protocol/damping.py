"""Damping: do not chase hotspots that flicker.

Owns the answer to "has the load been still for long enough to act on it?". It sees only the
executors' costs and what they were expected to be. The idea is that of route-flap damping in
internet routing: the first change is believed at once, and each further one within memory
must last twice as long before it is believed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from sparkswarm.protocol.decision import KEEP, Ruling
from sparkswarm.protocol.messages import Reason

SURPRISE = 0.10
"""A round surprises when this share of the load is not where it was expected."""

CHANCE = 1.2
"""Times the root of executors / arrivals: twice the total variation that chance makes."""

MOST_SUSPICION = 8.0
"""More jumps than that say nothing new; less would be forgotten too soon."""


class Damping:
    """Hold rebalancing back while the load keeps jumping.

    Parameters
    ----------
    memory
        Rounds of calm after which half of the suspicion is gone.
    longest
        Never hold for more than this many calm rounds.
    """

    def __init__(self, memory: float = 10.0, longest: int = 16) -> None:
        self._keep = 0.5 ** (1.0 / memory)
        self._longest = longest
        self._suspicion = 0.0
        self._hold = 0
        self._expected: dict[int, float] | None = None

    def observe(self, costs: Mapping[int, float], received: float = math.inf) -> Ruling | None:
        """Take in a round's costs; return why to hold still, or None.

        A surprise adds one to the suspicion s and asks for 2^(s-1) - 1 calm rounds. What
        chance alone can do with so few arrivals as ``received`` is no surprise.
        """
        surprise = self._surprise(costs)
        if surprise > max(SURPRISE, CHANCE * math.sqrt(len(costs) / max(received, 1.0))):
            self._suspicion = min(self._suspicion + 1.0, MOST_SUSPICION)
            self._hold = min(self._longest, round(2.0 ** (self._suspicion - 1.0)) - 1)
        else:
            self._suspicion *= self._keep
            self._hold = max(0, self._hold - 1)
        self._expected = dict(costs)
        if self._hold == 0:
            return None
        numbers = {"surprise": surprise, "rounds": self._hold}
        return Ruling(kind=KEEP, reason=Reason.LOAD_UNSTABLE, numbers=numbers)

    def expect(self, m_high: int, m_low: int, cost: float) -> None:
        """Account for cost that was moved, so that our own moves never surprise us."""
        if self._expected is not None:
            self._expected[m_high] = self._expected.get(m_high, 0.0) - cost
            self._expected[m_low] = self._expected.get(m_low, 0.0) + cost

    def forget(self) -> None:
        """Expect nothing: what happened to the load since is not known."""
        self._expected = None

    def _surprise(self, costs: Mapping[int, float]) -> float:
        """Total variation between the shares expected and seen, of executors in both."""
        both = [m for m in costs if self._expected and m in self._expected]
        expected = {m: max(0.0, self._expected[m]) for m in both} if self._expected else {}
        whole, expected_whole = sum(costs[m] for m in both), sum(expected.values())
        if whole <= 0 or expected_whole <= 0:
            return 0.0
        return 0.5 * sum(abs(costs[m] / whole - expected[m] / expected_whole) for m in both)
