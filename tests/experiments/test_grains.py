"""Both grains agree: tuples in slices of virtual time, and one at a time."""

import numpy as np
import pytest

from sparkswarm.config import SwarmConfig
from sparkswarm.experiments.machines import Machines
from sparkswarm.experiments.service import Service
from sparkswarm.observe.describe import what
from sparkswarm.protocol.local import LocalSwarm
from sparkswarm.protocol.plan import Plan
from sparkswarm.workloads import Rectangles

from .listed import ListedRound, Tuples, run_listed

ROUNDS, ROUND, EXECUTORS = 8, 3.0, 4
MACHINES = Machines(
    executors=EXECUTORS, routers=1, sources=1, hosts=1, round_seconds=ROUND, hop_seconds=2e-3
)
SERVICE = Service(
    sizes=(1,),
    per_point=(22e-3,),
    per_check=1e-3,
    checks_per_match=1.5,
    per_query=0.0,
    query_bytes=80.0,
    route_point=0.2e-3,
    route_query=0.0,
    collect_point=0.1e-3,
)
CONFIG = SwarmConfig(bounds=(0, 0, 16, 16), grid=(16, 16), executors=EXECUTORS, min_gain=0.05)


def world(seed: int) -> tuple[Tuples, Rectangles]:
    """Tuples everywhere, and from the third round on a crowd in one corner."""
    rng = np.random.default_rng(seed)
    number = 3000
    time = np.sort(rng.random(number) * ROUNDS * ROUND)
    # A tuple just before a round's end would be received in the next one: leave a gap.
    time = time[time % ROUND < ROUND - 0.1]
    x, y = rng.random((2, len(time))) * 16
    crowd = (time > 2 * ROUND) & (rng.random(len(time)) < 0.5)
    x[crowd], y[crowd] = x[crowd] / 5, y[crowd] / 5
    centre_x, centre_y = rng.random((2, 60)) * 16
    queries = Rectangles(centre_x - 1.2, centre_y - 1.2, centre_x + 1.2, centre_y + 1.2)
    return Tuples(time, x, y), queries


def one_at_a_time(tuples: Tuples, queries: Rectangles) -> list[ListedRound]:
    """The exact reference: every tuple in order, single-server first-in-first-out queues."""
    cells = CONFIG.make_grid().place_queries(*queries)
    swarm = LocalSwarm(CONFIG, queries_of=lambda partition: cells.clipped(partition.cells))
    for unit in swarm.units:
        for partition in unit.partitions:
            unit.collect_queries(partition.id, cells)
    router_free = 0.0
    free = [0.0] * EXECUTORS
    done = []
    following = 0
    for number in range(ROUNDS):
        counts, latencies = [0] * EXECUTORS, []
        while following < len(tuples.time) and tuples.time[following] < (number + 1) * ROUND:
            time, x, y = (column[following] for column in tuples)
            met = sum(
                bool(x1 <= x <= x2 and y1 <= y <= y2)
                for x1, y1, x2, y2 in zip(*queries, strict=True)
            )
            checks = met * SERVICE.checks_per_match
            routed = swarm.send(np.array([x]), np.array([y]), np.array([checks]))
            owner = int(routed.owner[0])
            router_free = max(router_free, time + MACHINES.hop_seconds) + SERVICE.route_point
            service = SERVICE.per_point[0] + SERVICE.collect_point + checks * SERVICE.per_check
            free[owner] = max(free[owner], router_free + MACHINES.hop_seconds) + service
            latencies.append(free[owner] - time)
            counts[owner] += 1
            following += 1
        log = swarm.close_round(number)
        done.append(ListedRound(np.array(counts), float(np.mean(latencies)), swarm.plan, log))
    return done


def shape(plan: Plan) -> list[tuple]:
    return [(p.id, p.cells, p.owners, p.tickets) for p in plan.partitions]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_slices_agree_with_tuples_carried_one_at_a_time(seed):
    tuples, queries = world(seed)
    sliced = run_listed(CONFIG, MACHINES, SERVICE, tuples, queries, ROUNDS)
    exact = one_at_a_time(tuples, queries)
    for mine, reference in zip(sliced, exact, strict=True):
        assert mine.counts.tolist() == reference.counts.tolist()
        assert shape(mine.plan) == shape(reference.plan)
        assert [what(d) for d in mine.log] == [what(d) for d in reference.log]
        assert mine.latency == pytest.approx(reference.latency, abs=MACHINES.slice_seconds)
    # The case is worth comparing: queues grow far beyond a slice, and the plan changes.
    assert max(r.latency for r in exact) > 3 * MACHINES.slice_seconds
    assert sum(len(r.log) for r in exact) > ROUNDS
    assert shape(exact[-1].plan) != shape(Plan.initial(CONFIG.make_grid(), EXECUTORS))
