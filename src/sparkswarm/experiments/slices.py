"""The simulated cluster: advances its queues by slices of virtual time, a tenth of a second each.

Owns the queues of all stations and what happens in a slice: how many tuples the sources emit,
how long tuples wait, how busy stations are, and the background work of moving queries. It is
the same for every policy; a policy only decides where tuples go.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sparkswarm.compiled import FloatArray
from sparkswarm.experiments.machines import Machines
from sparkswarm.experiments.placement import Load, Moves
from sparkswarm.experiments.queues import allowed, serve
from sparkswarm.experiments.service import Service

BACKGROUND = 0.5
"""Share of a core or a link that background work gets while there is any; in the paper it runs
"as a background task" beside the stream."""


class Passed(NamedTuple):
    """What happened in one slice.

    Attributes
    ----------
    emitted, processed
        Numbers of tuples that left the sources, and that were processed.
    latency
        Mean seconds from a source until processed, of the tuples emitted.
    busy
        Busy seconds of each station.
    """

    emitted: float
    processed: float
    latency: float
    busy: FloatArray


class Slices:
    """The stations of a cluster and their queues.

    Parameters
    ----------
    machines
        The cluster.
    service
        Service times.
    collects
        Whether executors collect statistics.
    """

    def __init__(self, machines: Machines, service: Service, collects: bool) -> None:
        self.machines = machines
        self._service = service
        self._collect = service.collect_point if collects else 0.0
        stations = machines.stations
        self._backlog: FloatArray = np.zeros(stations)
        self._background: FloatArray = np.zeros(stations)
        self._per_tuple: FloatArray = np.zeros(stations)
        self._busy: FloatArray = np.zeros(stations)
        self._wait: FloatArray = np.zeros(stations)
        self._load: Load | None = None

    @property
    def pending(self) -> float:
        """Number of queued tuples."""
        held = np.zeros_like(self._backlog)
        np.divide(self._backlog, self._per_tuple, out=held, where=self._per_tuple > 0)
        return float(held.sum())

    def carry(self, load: Load, emitted: float | None = None) -> Passed:
        """Advance by one slice.

        Parameters
        ----------
        load
            Load that a tuple puts on each executor.
        emitted
            Number of tuples; by default as many as the limit on pending tuples allows.
        """
        m = self.machines
        self._follow(load)
        background = np.minimum(self._background, BACKGROUND * m.slice_seconds)
        self._background -= background
        capacity = m.slice_seconds - background
        under_way = m.hops * m.hop_seconds + self._in_service
        if emitted is None:
            travelling = under_way / m.slice_seconds
            emitted = allowed(
                self._backlog, self._demand, self._per_tuple, capacity, m.window, travelling
            )
        before = self.pending
        serve(
            self._backlog, self._demand, capacity, emitted, m.slice_seconds, self._busy, self._wait
        )
        latency = float(self._visits @ self._wait) + under_way
        processed = max(0.0, emitted + before - self.pending)
        return Passed(emitted, processed, latency, self._busy + background)

    def _follow(self, load: Load) -> None:
        """Recompute the demand of a tuple at every station, if the load has changed."""
        if load is self._load:
            return
        self._load = load
        per_point = self._service.point_seconds(load.held) + self._collect
        seconds = per_point * load.share + self._service.per_match * load.matches
        self._demand, self._visits = self.machines.demand(
            load.share, seconds, self._service.route_point
        )
        self._in_service = float(self._demand.sum())
        np.divide(self._demand, self._visits, out=self._per_tuple, where=self._visits > 0)

    def register(self, queries: FloatArray) -> None:
        """Add the work of registering new queries; ``queries`` is their number per executor."""
        self._background[: len(queries)] += queries * self._service.per_query

    def move(self, moves: Moves) -> None:
        """Add the work of moving queries: on both executors, and on the links.

        Files that borrowers fetch are mapped as they are: only links have work.
        """
        m = self.machines
        work = moves.queries.sum(axis=0) + moves.queries.sum(axis=1)
        self._background[: m.executors] += work * self._service.per_query
        host = m.host_of_executors()
        between = np.zeros((m.hosts, m.hosts))
        sent = moves.queries if moves.fetched is None else moves.queries + moves.fetched
        np.add.at(between, (host[:, None], host[None, :]), sent)
        np.fill_diagonal(between, 0.0)
        links = self._background[m.executors + m.routers :]
        links[: m.hosts] += between.sum(axis=1) * m.link_seconds(m.query_bytes)
        links[m.hosts :] += between.sum(axis=0) * m.link_seconds(m.query_bytes)
