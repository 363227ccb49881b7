"""Damping: do not chase hotspots that flicker.

Owns the answer to "has the load been still for long enough to act on it?". It sees only the
executors' costs and what they were expected to be. The idea is that of route-flap damping in
internet routing: the first change is believed at once, and each further one within memory
must last twice as long before it is believed.
"""

from __future__ import annotations

from collections.abc import Mapping

SURPRISE = 0.10
"""A round surprises when this share of the load is not where it was expected."""


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

    def observe(self, costs: Mapping[int, float]) -> str | None:
        """Take in a round's costs; return why to hold still, or None.

        A surprise adds one to the suspicion s and asks for 2^(s-1) - 1 calm rounds.
        """
        surprise = self._surprise(costs)
        if surprise > SURPRISE:
            self._suspicion += 1.0
            self._hold = min(self._longest, int(2.0 ** (self._suspicion - 1.0)) - 1)
        else:
            self._suspicion *= self._keep
            self._hold = max(0, self._hold - 1)
        self._expected = dict(costs)
        if self._hold == 0:
            return None
        return (
            f"the load keeps jumping ({surprise:.0%} of it was not where it was expected); "
            f"waiting for {self._hold} more calm rounds"
        )

    def expect(self, m_high: int, m_low: int, cost: float) -> None:
        """Account for cost that was moved, so that our own moves never surprise us."""
        if self._expected is not None:
            self._expected[m_high] = self._expected.get(m_high, 0.0) - cost
            self._expected[m_low] = self._expected.get(m_low, 0.0) + cost

    def _surprise(self, costs: Mapping[int, float]) -> float:
        """Total variation between the shares expected and the shares seen."""
        if self._expected is None:
            return 0.0
        expected = {m: max(0.0, cost) for m, cost in self._expected.items()}
        whole, expected_whole = sum(costs.values()), sum(expected.values())
        if whole <= 0 or expected_whole <= 0:
            return 0.0
        return 0.5 * sum(
            abs(costs.get(m, 0.0) / whole - expected.get(m, 0.0) / expected_whole)
            for m in costs.keys() | expected.keys()
        )
