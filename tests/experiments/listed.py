"""Listed tuples: a small world carried in slices, every tuple and query given.

Owns the way from a list of tuples to the same slices, statistics and rounds that the
experiments use with densities. It is there to be compared with a simulation that carries
tuples one at a time.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sparkswarm.compiled import FloatArray, LongArray
from sparkswarm.config import SwarmConfig
from sparkswarm.experiments.machines import Machines
from sparkswarm.experiments.placement import Load
from sparkswarm.experiments.service import Service
from sparkswarm.experiments.slices import Slices
from sparkswarm.geometry import QueryCells
from sparkswarm.protocol.local import LocalSwarm
from sparkswarm.protocol.messages import Decision
from sparkswarm.protocol.partition import Partition
from sparkswarm.protocol.plan import Plan
from sparkswarm.workloads import Rectangles


class Tuples(NamedTuple):
    """Points, each with the time at which its source emits it."""

    time: FloatArray
    x: FloatArray
    y: FloatArray


class ListedRound(NamedTuple):
    """What happened in one round.

    Attributes
    ----------
    counts
        Tuples that went to each executor.
    latency
        Seconds, mean of the round's tuples.
    plan
        The plan after the round.
    log
        Decisions, with their reasons.
    """

    counts: LongArray
    latency: float
    plan: Plan
    log: list[Decision]


def run_listed(
    config: SwarmConfig,
    machines: Machines,
    service: Service,
    tuples: Tuples,
    queries: Rectangles,
    rounds: int,
) -> list[ListedRound]:
    """Carry tuples in slices through SWARM; the sources keep to the list, whatever waits.

    Units are not told how long they were busy, and moving queries takes no time.
    """
    grid = config.make_grid()
    cells = grid.place_queries(*queries)

    def queries_of(partition: Partition) -> QueryCells:
        return cells.clipped(partition.cells)

    swarm = LocalSwarm(config, queries_of=queries_of)
    for unit in swarm.units:
        for partition in unit.partitions:
            unit.collect_queries(partition.id, cells)
    matches = containing_queries(tuples, queries)
    slices = Slices(machines, service, collects=True)
    slice_of = np.floor(tuples.time / machines.slice_seconds).astype(np.int64)
    done = []
    for number in range(rounds):
        counts = np.zeros(config.executors, dtype=np.int64)
        waited = 0.0
        held = np.bincount(swarm.index.route_queries(cells).owner, minlength=config.executors)
        for turn in range(machines.slices_a_round):
            now = np.flatnonzero(slice_of == number * machines.slices_a_round + turn)
            routed = swarm.send(
                tuples.x[now], tuples.y[now], matches[now] * service.checks_per_match
            )
            here = np.bincount(routed.owner, minlength=config.executors)
            met = np.bincount(routed.owner, matches[now], config.executors)
            each = max(1, len(now))
            load = Load(here / each, met / each, held.astype(np.float64))
            waited += slices.carry(load, float(len(now))).latency * len(now)
            counts += here
        log = swarm.close_round(number)
        latency = waited / max(1, int(counts.sum()))
        done.append(ListedRound(counts, latency, swarm.plan, log))
    return done


def containing_queries(tuples: Tuples, queries: Rectangles) -> FloatArray:
    """Count the queries that contain each tuple, by comparing all with all."""
    x, y = tuples.x[:, None], tuples.y[:, None]
    inside = (queries.min_x <= x) & (x <= queries.max_x)
    inside &= (queries.min_y <= y) & (y <= queries.max_y)
    return inside.sum(axis=1).astype(np.float64)
