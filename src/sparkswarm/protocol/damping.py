"""Damping: holds rebalancing back where the load only goes to and fro.

Owns the memory of where the load was. Runs in the Coordinator, once a round. A load that goes to
new places is followed, however fast; one that comes back to where it was is waited out, because
moves for it undo each other (as in route-flap damping in internet routing).
"""

from __future__ import annotations

import math
from collections.abc import Mapping

SURPRISE = 0.10
"""Share of the load in another place from which on two rounds differ."""

CHANCE_OF_SURPRISE = 1.2
"""Times the root of executors / arrivals: twice the total variation expected by chance."""

JUMPS_BEFORE_WATCHING = 4.0
"""Jumps within memory that are followed before the first watch."""

LONGER = 3.0
"""Times as many jumps are followed before the next watch, each time nothing came back."""

MOST_JUMPS = 100.0
"""Upper bound of the jumps that are followed before the next watch."""

NEW_PLACES = 2
"""Jumps to new places in a row that end a hold."""

MOST_SUSPICION = 4.0
"""Upper bound of the suspicion: further returns add nothing, and it must fade in finite time."""


class Damping:
    """Holds rebalancing back while the load keeps coming back to where it was.

    Only under one plan can two rounds be compared. So after some jumps that were followed, a
    *watch* begins: a few rounds without moves. If the load comes back in them, it flickers, and
    rebalancing waits: each return adds one to a suspicion s and asks for 2^s - 1 calm rounds. If it
    stays where it is for a round, or goes to new places twice in a row, it is followed again; in
    the latter case it drifts, and the next watch begins later.

    Parameters
    ----------
    memory
        Rounds of calm after which half of the suspicion is gone.
    longest
        Never hold for more than this many calm rounds.
    recent
        Rounds for which places of the load are remembered.
    """

    def __init__(self, memory: float = 10.0, longest: int = 15, recent: int = 10) -> None:
        self._keep = 0.5 ** (1.0 / memory)
        self._longest = longest
        self._recent = recent
        self._suspicion = 0.0
        self._hold = 0
        self._jumps = 0.0
        self._patience = JUMPS_BEFORE_WATCHING
        self._new_places = 0
        self._watches = False
        self._expected: dict[int, float] | None = None
        self._seen: list[dict[int, float]] = []

    def observe(
        self, costs: Mapping[int, float], received: float = math.inf
    ) -> Mapping[str, float] | None:
        """Take in a round's costs; return the numbers of a hold, or None.

        Differences that chance explains, given ``received`` arrivals, do not count.
        """
        allowed = max(SURPRISE, CHANCE_OF_SURPRISE * math.sqrt(len(costs) / max(received, 1.0)))
        surprise = _variation(costs, self._expected)
        if surprise <= allowed:
            self._calm()
        elif any(_variation(costs, earlier) <= allowed for earlier in self._seen):
            self._suspicion = min(self._suspicion + 1.0, MOST_SUSPICION)
            self._wait(round(2.0**self._suspicion) - 1)
        elif self._hold:
            self._new_places += 1
            if self._new_places == NEW_PLACES:
                self._hold = 0
                self._patience = min(self._patience * LONGER, MOST_JUMPS)
        else:
            self._jumps += 1.0
            if self._jumps >= self._patience:
                self._wait(NEW_PLACES + 1)
                self._watches = True
        self._expected = dict(costs)
        self._seen = [*self._seen, dict(costs)][-self._recent :]
        return {"surprise": surprise, "rounds": self._hold} if self._hold else None

    def _calm(self) -> None:
        self._hold = 0 if self._watches else max(0, self._hold - 1)
        self._watches = False
        self._suspicion *= self._keep
        self._jumps *= self._keep
        self._patience = max(self._patience * self._keep, JUMPS_BEFORE_WATCHING)
        self._new_places = 0

    def _wait(self, rounds: int) -> None:
        self._hold = min(self._longest, rounds)
        self._watches = False
        self._jumps = 0.0
        self._new_places = 0

    def expect(self, m_high: int, m_low: int, cost: float) -> None:
        """Account for cost that was moved, so that our own moves are no surprise."""
        if self._expected is not None:
            self._expected[m_high] = self._expected.get(m_high, 0.0) - cost
            self._expected[m_low] = self._expected.get(m_low, 0.0) + cost
        # Under another plan the same load is seen at other executors.
        self._seen.clear()

    def forget(self) -> None:
        """Expect nothing of the next round."""
        self._expected = None
        self._seen.clear()


def _variation(costs: Mapping[int, float], other: Mapping[int, float] | None) -> float:
    """Return the total variation between the shares of executors in both."""
    both = [m for m in costs if other and m in other]
    expected = {m: max(0.0, other[m]) for m in both} if other else {}
    whole, expected_whole = sum(costs[m] for m in both), sum(expected.values())
    if whole <= 0 or expected_whole <= 0:
        return 0.0
    return 0.5 * sum(abs(costs[m] / whole - expected[m] / expected_whole) for m in both)
