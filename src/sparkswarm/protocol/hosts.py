"""Hosts: which executors share one, and what it takes a host to serve more queries.

Owns the price of state. Queries that move within a host cost nothing to bring; another host fetches
them, and they are the dearer the more it holds already, so that a host gets more than its share
only for much work.
"""

from __future__ import annotations

from dataclasses import dataclass

CROWDING = 8
"""Power of a host's state, as a share of the mean, with which fetching gets dearer: at 1.3 of the
mean, 8 times."""


@dataclass(frozen=True, slots=True)
class Hosts:
    """The hosts of the executors.

    Attributes
    ----------
    of
        The host of each executor, from 0; empty where all share one.
    held
        The number of queries that each host holds; empty where it is not known.
    """

    of: tuple[int, ...] = ()
    held: tuple[int, ...] = ()

    def are_one(self, one: int, other: int) -> bool:
        """Return whether two executors share a host."""
        return max(one, other) >= len(self.of) or self.of[one] == self.of[other]

    def to_fetch(self, giver: int, receiver: int, queries: float) -> float:
        """Return how many queries the receiver's host must fetch, more if it gets crowded."""
        if self.are_one(giver, receiver):
            return 0.0
        total = sum(self.held)
        if not total:
            return queries
        share = (self.held[self.of[receiver]] + queries) * len(self.held) / total
        return float(queries * max(1.0, share) ** CROWDING)


ONE_HOST = Hosts()
"""All executors share it."""
