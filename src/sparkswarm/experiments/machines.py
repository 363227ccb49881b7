"""The paper's cluster: machines, hosts and links, as stations with a capacity.

Owns the numbers of machines and their placement on hosts, the capacity of links, and the demand
of a tuple at every station on its way: source, link, GlobalIndex machine, link, executor.
Independent of policies and of time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from sparkswarm.compiled import FloatArray
from sparkswarm.errors import ConfigError

BITS = 8


class StationDemand(NamedTuple):
    """The demand of an emitted tuple at every station.

    Stations are the executors, the GlobalIndex machines, then the outgoing and the incoming
    link of every host.
    """

    seconds: FloatArray
    """Seconds of work, averaged over all tuples."""
    visits: FloatArray
    """Share of the tuples that visit the station."""


@dataclass(frozen=True, slots=True)
class Machines:
    """The cluster of the paper's evaluation: 40 virtual machines on five hosts.

    Attributes
    ----------
    executors, routers, sources
        Virtual machines of one core each; routers are the GlobalIndex machines.
    hosts
        Machines are assigned to hosts in turn; those of a host share its link.
    memory_bytes
        Memory of an executor.
    link_bits, achievable
        Bits per second of a host's link, each way, and the share of them that is achievable.
    point_bytes, query_bytes
        Size on the wire: a billion tweets were 140 GB; a query is an id and four edges.
    hop_seconds
        Latency from one machine to the next, without the time on the link.
    max_pending
        Maximum number of pending tuples of a source; Storm's ``max.spout.pending``.
    round_seconds, slice_seconds
        Length of a round, and of a slice of virtual time.
    """

    executors: int = 22
    routers: int = 8
    sources: int = 10
    hosts: int = 5
    memory_bytes: float = 4.0 * 2**30
    link_bits: float = 10e9
    achievable: float = 0.8
    point_bytes: float = 140.0
    query_bytes: float = 40.0
    hop_seconds: float = 100e-6
    max_pending: int = 5000
    round_seconds: float = 15.0
    slice_seconds: float = 0.1

    def __post_init__(self) -> None:
        if min(self.executors, self.sources, self.hosts) < 1 or self.routers < 0:
            raise ConfigError("a cluster needs at least one executor, one source and one host")
        if self.slices_a_round < 1:
            raise ConfigError("a round cannot be shorter than a slice")

    @property
    def stations(self) -> int:
        """Number of stations."""
        return self.executors + self.routers + 2 * self.hosts

    @property
    def slices_a_round(self) -> int:
        """Slices in a round."""
        return round(self.round_seconds / self.slice_seconds)

    @property
    def window(self) -> float:
        """Maximum number of pending tuples of all sources together."""
        return float(self.sources * self.max_pending)

    @property
    def hops(self) -> int:
        """Hops of a tuple: to a GlobalIndex machine, if there are any, and to an executor."""
        return 2 if self.routers else 1

    def without_routers(self) -> Machines:
        """Return the same machines, all of them executors (paper, "Replicated")."""
        return replace(self, executors=self.executors + self.routers, routers=0)

    def host_of_executors(self) -> np.ndarray:
        """Return the host of every executor: machines are assigned in turn."""
        first = self.sources + self.routers
        return np.arange(first, first + self.executors) % self.hosts

    def demand(self, share: FloatArray, seconds: FloatArray, route_point: float) -> StationDemand:
        """Return the demand of a tuple at every station.

        Parameters
        ----------
        share
            Share of the tuples that goes to each executor.
        seconds
            Work per tuple on each executor, averaged over all tuples.
        route_point
            Seconds to route a tuple.
        """
        routers = np.full(self.routers, 1.0 / self.routers if self.routers else 0.0)
        crossing = np.concatenate(self._crossing(share))
        return StationDemand(
            np.concatenate([seconds, routers * route_point, crossing * self.tuple_on_link]),
            np.concatenate([share, routers, crossing]),
        )

    @property
    def tuple_on_link(self) -> float:
        """Seconds of a link per point."""
        return self.link_seconds(self.point_bytes)

    def link_seconds(self, amount: float) -> float:
        """Return the seconds of a link for a number of bytes."""
        return amount * BITS / (self.link_bits * self.achievable)

    def _crossing(self, share: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the tuples that leave and that enter each host; within a host there is no link."""
        sources = self._share_of_hosts(0, self.sources)
        executors = np.bincount(self.host_of_executors(), share, self.hosts)
        if not self.routers:
            return sources * (1 - executors), executors * (1 - sources)
        routers = self._share_of_hosts(self.sources, self.routers)
        return (
            sources * (1 - routers) + routers * (1 - executors),
            routers * (1 - sources) + executors * (1 - routers),
        )

    def _share_of_hosts(self, first: int, number: int) -> FloatArray:
        hosts = np.arange(first, first + number) % self.hosts
        counts: FloatArray = np.bincount(hosts, minlength=self.hosts).astype(np.float64)
        return counts / number
