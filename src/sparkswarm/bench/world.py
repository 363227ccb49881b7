"""Simulated rounds: a synthetic workload on the protocol, to measure how it divides the work.

There is no Spark, no network and no clock. Points are drawn per cell from a density, messages
arrive at once, and the work of an executor is the points it receives times (1 + 0.02 x the
candidate queries of their cell). Used by ``bench balance``, ``bench overhead`` and the
experiments.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sparkswarm.compiled import FloatArray, IntArray
from sparkswarm.config import SwarmConfig
from sparkswarm.geometry import Grid, QueryCells
from sparkswarm.protocol.lending import agree
from sparkswarm.protocol.local import LocalSwarm
from sparkswarm.protocol.messages import Decision
from sparkswarm.protocol.partition import TICKETS, Partition, PlanChange
from sparkswarm.workloads import QUERY_SIDE, Density, Hotspot

CHECK_WORK = 0.02
"""Work of comparing a point with one candidate query; receiving a point is 1."""

SECONDS_PER_WORK = 1e-6
"""Seconds per unit of work on the simulated executors."""


@dataclass(frozen=True, slots=True)
class Played:
    """The result of one round.

    Attributes
    ----------
    work
        Work of each executor.
    static_work
        Work that each would have done with the first plan.
    lent_work
        Work that each would have done with the same plan and lending.
    changes
        Changes of the plan at the end of the round.
    log
        Decisions of the protocol.
    """

    work: FloatArray
    static_work: FloatArray
    lent_work: FloatArray
    changes: tuple[PlanChange, ...]
    log: tuple[Decision, ...]

    @property
    def efficiency(self) -> float:
        """Balance efficiency: mean work / maximum work of an executor, 1 is perfect."""
        return _efficiency(self.work)

    @property
    def static_efficiency(self) -> float:
        """Balance efficiency with the first plan."""
        return _efficiency(self.static_work)

    @property
    def lent_efficiency(self) -> float:
        """Balance efficiency with lending."""
        return _efficiency(self.lent_work)


def _efficiency(work: FloatArray) -> float:
    most = float(work.max())
    return float(work.mean()) / most if most else 1.0


class RoundWorld:
    """A workload in rounds, on a :class:`LocalSwarm`.

    Parameters
    ----------
    config
        The settings; its bounds and grid must be the density's.
    density
        Distribution of points and queries.
    hotspot
        A hotspot in some rounds; its queries are registered when it starts and removed when it
        ends.
    points, queries
        Points per round, and queries registered before the first.
    seed
        Seed of all random numbers.
    throttled
        Whether sources slow down to the slowest executor, as the paper's spouts do; R(S) is
        then a measure of throughput.
    """

    def __init__(
        self,
        config: SwarmConfig,
        density: Density,
        hotspot: Hotspot | None = None,
        points: int = 1_000_000,
        queries: int = 1_000_000,
        seed: int = 0,
        throttled: bool = False,
    ) -> None:
        self.config = config
        self._rng = np.random.default_rng(seed)
        self._density = density
        self._hotspot = hotspot
        self._hot_density = hotspot.points_density(density) if hotspot else density
        self._points = points
        self._throttled = throttled
        self._efficiency = 1.0
        self._checks: FloatArray = np.zeros(density.weights.shape)
        self._cells = sample_cells(density, self._rng, queries, None)
        self._held: dict[int, npt.NDArray[np.intp]] = {}
        self.round = -1
        self.swarm = LocalSwarm(config, queries_of=self._queries_of)
        self._first_owner = np.empty(density.weights.shape, dtype=np.int64)
        for partition in self.swarm.plan.partitions:
            self._first_owner[partition.cells.slices] = partition.owners[0]
        self._register(self._cells, np.arange(queries))
        extra = 0
        if hotspot:
            extra = round(queries * hotspot.query_share / (1 - hotspot.query_share))
            hot = sample_cells(density, self._rng, extra, hotspot)
            self._cells = QueryCells.concat([self._cells, hot])
        self._hot_queries = np.arange(queries, queries + extra)

    def play(self) -> Played:
        """Run the next round and let the protocol act on it."""
        self.round += 1
        hot = self._hotspot is not None and self._hotspot.active(self.round)
        if self._hotspot and self.round == self._hotspot.start:
            self._register(self._cells.take(self._hot_queries), self._hot_queries)
        if self._hotspot and self.round == self._hotspot.stop:
            self._unregister(self._cells.take(self._hot_queries), self._hot_queries)
        density = self._hot_density if hot else self._density
        points = round(self._points * (self._efficiency if self._throttled else 1.0))
        counts = density.sample_counts(self._rng, points)
        static_work: FloatArray = np.bincount(
            self._first_owner.ravel(),
            (counts * (1.0 + CHECK_WORK * self._checks)).ravel(),
            len(self.swarm.units),
        ).astype(np.float64)
        owner, cost = self._stream(counts)
        executors = len(self.swarm.units)
        work: FloatArray = np.bincount(owner, cost, executors).astype(np.float64)
        loans = agree(owner, cost, executors)
        lent_work = work.copy()
        np.subtract.at(lent_work, owner[loans.group], loans.amount)
        np.add.at(lent_work, loans.borrower, loans.amount)
        busy = {m: float(w) * SECONDS_PER_WORK for m, w in enumerate(work)}
        log = self.swarm.close_round(self.round, busy)
        changes = tuple(self.swarm.changes)
        current = {partition.id for partition in self.swarm.plan.partitions}
        for partition in self.swarm.plan.partitions:
            self._ids_of(partition)
        self._held = {key: ids for key, ids in self._held.items() if key in current}
        played = Played(work, static_work, lent_work, changes, tuple(log))
        self._efficiency = played.efficiency
        return played

    def _stream(self, counts: npt.NDArray[np.int64]) -> tuple[IntArray, FloatArray]:
        """Send a round's points to their executors.

        Returns the owner and the work of each (partition, owner).
        """
        owners: list[int] = []
        work: list[float] = []
        for partition in self.swarm.plan.partitions:
            where = np.nonzero(counts[partition.cells.slices])
            rows = where[0].astype(np.int32) + np.int32(partition.cells.row_start)
            columns = where[1].astype(np.int32) + np.int32(partition.cells.col_start)
            left, checks = counts[rows, columns], self._checks[rows, columns]
            tickets_left = TICKETS
            for owner, tickets in partition.shares.items():
                # A hash distributes the points of a shared cell: each part is binomial.
                part = self._rng.binomial(left, tickets / tickets_left)
                left = left - part
                tickets_left -= tickets
                self.swarm.units[owner].statistics(partition.id).collect_points(
                    columns, rows, checks, part.astype(np.float64)
                )
                owners.append(owner)
                work.append(float((part * (1.0 + CHECK_WORK * checks)).sum()))
        return np.array(owners, dtype=np.int32), np.array(work)

    # -- queries ---------------------------------------------------------------------------

    def _register(self, cells: QueryCells, ids: npt.NDArray[np.intp]) -> None:
        self._count(cells, 1.0)
        routed = self.swarm.index.route_queries(cells)
        for partition in self.swarm.plan.partitions:
            mine = routed.partition == partition.id
            which = np.unique(routed.query[mine])
            old = self._held.get(partition.id, np.empty(0, dtype=np.intp))
            self._held[partition.id] = np.concatenate([old, ids[which]])
            for owner in partition.owners:
                self.swarm.units[owner].collect_queries(partition.id, cells.take(which))

    def _unregister(self, cells: QueryCells, ids: npt.NDArray[np.intp]) -> None:
        self._count(cells, -1.0)
        for partition in self.swarm.plan.partitions:
            held = self._held[partition.id]
            gone = np.isin(held, ids)
            self._held[partition.id] = held[~gone]
            for owner in partition.owners:
                self.swarm.units[owner].remove_queries(partition.id, self._cells.take(held[gone]))

    def _count(self, cells: QueryCells, sign: float) -> None:
        """Add to the number of queries of each cell, with a two-dimensional difference array."""
        corners = np.zeros((self._checks.shape[0] + 1, self._checks.shape[1] + 1))
        np.add.at(corners, (cells.row_start, cells.col_start), sign)
        np.add.at(corners, (cells.row_stop, cells.col_stop), sign)
        np.add.at(corners, (cells.row_start, cells.col_stop), -sign)
        np.add.at(corners, (cells.row_stop, cells.col_start), -sign)
        self._checks += corners.cumsum(axis=0).cumsum(axis=1)[:-1, :-1]

    def _ids_of(self, partition: Partition) -> npt.NDArray[np.intp]:
        """Return the queries of a partition, selected from those of its parents."""
        if partition.id not in self._held:
            for change in self.swarm.changes:
                for parent in change.created:
                    if parent.id in partition.parents:
                        self._ids_of(parent)
            ids = np.unique(np.concatenate([self._held[parent] for parent in partition.parents]))
            self._held[partition.id] = ids[self._cells.take(ids).overlapping(partition.cells)]
        return self._held[partition.id]

    def _queries_of(self, partition: Partition) -> QueryCells:
        return self._cells.take(self._ids_of(partition)).clipped(partition.cells)


def config_of(grid: Grid, executors: int, **settings: Any) -> SwarmConfig:
    """Return the settings of a protocol on a grid."""
    return SwarmConfig(
        bounds=grid.bounds.edges,
        grid=(grid.columns, grid.rows),
        executors=executors,
        **settings,
    )


def sample_cells(
    density: Density, rng: np.random.Generator, n: int, hotspot: Hotspot | None
) -> QueryCells:
    """Draw queries from a density, or from a hotspot, and return their cells."""
    rectangles = (
        hotspot.sample_queries(rng, n, QUERY_SIDE, density.bounds)
        if hotspot
        else density.sample_queries(rng, n, QUERY_SIDE)
    )
    return density.grid.place_queries(*rectangles)
