"""``sparkswarm bench overhead``: measures the time of each operation of the protocol.

The operations of the paper's two overhead figures (of GlobalIndex machines and of executors), on
a protocol that has run for some simulated rounds. The measured code is that of the engine;
network time is not included.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any

import numpy as np

from sparkswarm.bench.world import RoundWorld
from sparkswarm.protocol.coordinator import Coordinator
from sparkswarm.protocol.global_index import GlobalIndex
from sparkswarm.protocol.holding import Holding
from sparkswarm.protocol.messages import (
    CloseRound,
    CostReport,
    PlanPublished,
    ReduceRequest,
    Takeover,
)
from sparkswarm.protocol.partition import TICKETS, moved, split
from sparkswarm.protocol.reduction import Receiver, Rules, Search
from sparkswarm.protocol.statistics import Statistics
from sparkswarm.protocol.unit import LoadBalancingUnit
from sparkswarm.workloads import QUERY_SIDE, Density

BATCH = 10_000
"""Objects per call, as in the engine."""


@dataclass(frozen=True, slots=True)
class TimedOperation:
    """The measured times of one operation.

    Attributes
    ----------
    name, figure
        The operation, and its figure in the paper.
    per
        Unit of the times, such as a point or a round.
    microseconds
        All measurements.
    """

    name: str
    figure: str
    per: str
    microseconds: tuple[float, ...]

    @property
    def median(self) -> float:
        """Median, in microseconds."""
        return float(np.median(self.microseconds))

    @property
    def p99(self) -> float:
        """99th percentile, in microseconds."""
        return float(np.percentile(self.microseconds, 99))

    def to_json(self) -> dict[str, Any]:
        """Return the form that ``--json`` writes."""
        return {
            "name": self.name,
            "us_median": round(self.median, 4),
            "us_p99": round(self.p99, 4),
            "figure": self.figure,
            "per": self.per,
            "times": len(self.microseconds),
        }


def run_overhead(
    world: RoundWorld, density: Density, repeat: int, seed: int = 0
) -> Iterator[TimedOperation]:
    """Measure every operation ``repeat`` times, after some rounds of ``world``."""
    rng = np.random.default_rng(seed)
    yield from _global_index(world, density, rng, repeat)
    yield from _coordinator(world, repeat)
    yield from _executor(world, density, rng, repeat)


def _global_index(
    world: RoundWorld, density: Density, rng: np.random.Generator, repeat: int
) -> Iterator[TimedOperation]:
    index = GlobalIndex(world.swarm.plan)
    x, y = density.sample_points(rng, BATCH)
    queries = density.grid.place_queries(*density.sample_queries(rng, BATCH, QUERY_SIDE))
    figure = "GlobalIndex (1)"
    yield TimedOperation(
        "route a point",
        figure,
        f"point, in batches of {BATCH}",
        _timed(lambda: index.route(x, y), repeat, BATCH),
    )
    yield TimedOperation(
        "route a query",
        figure,
        f"query, in batches of {BATCH}",
        _timed(lambda: index.route_queries(queries), repeat, BATCH),
    )
    one_x, one_y = x[:1], y[:1]
    yield TimedOperation(
        "route a point alone",
        figure,
        "point, one a call",
        _timed(lambda: index.route(one_x, one_y), repeat),
    )
    ids = count(world.swarm.plan.next_id, 2)

    def move() -> Callable[[], object]:
        partition = _any(index, rng)
        owner = partition.owners[0]
        taker = (owner + 1) % world.swarm.plan.executors
        change = moved(partition, owner, taker, next(ids))
        return lambda: index.apply(change)

    yield TimedOperation(
        "update the index: move", "GlobalIndex (2)", "partition moved", _prepared(move, repeat)
    )

    def cut() -> Callable[[], object]:
        partition = _any(index, rng, min_columns=2)
        left, right = partition.cells.split_columns(partition.cells.columns // 2)
        shares = partition.shares if not partition.is_shared else {partition.owners[0]: TICKETS}
        change = split(partition, [(left, shares), (right, shares)], next(ids))
        return lambda: index.apply(change)

    yield TimedOperation(
        "update the index: split", "GlobalIndex (2)", "partition split", _prepared(cut, repeat)
    )


def _coordinator(world: RoundWorld, repeat: int) -> Iterator[TimedOperation]:
    """Measure the two steps of the Coordinator, in new rounds with real costs."""
    plan, config = world.swarm.plan, world.config
    numerators = [
        sum(unit.model.numerator(unit.statistics(p.id)) for p in unit.partitions)
        for unit in world.swarm.units
    ]
    # An overloaded executor, so that there is something to decide.
    numerators[0] *= 3.0
    receive: list[float] = []
    decide: list[float] = []
    for number in range(repeat):
        coordinator = Coordinator(plan, config)
        reports = [CostReport(m, number, n, 50_000.0) for m, n in enumerate(numerators)]
        for report in reports[:-1]:
            receive += _timed(partial(coordinator.handle, report), 1)
        decide += _timed(partial(coordinator.handle, reports[-1]), 1)
    yield TimedOperation(
        "receive an executor's costs", "GlobalIndex (3)", "report of two numbers", tuple(receive)
    )
    yield TimedOperation("decide, find m_high and m_low", "GlobalIndex (4)", "round", tuple(decide))


def _executor(
    world: RoundWorld, density: Density, rng: np.random.Generator, repeat: int
) -> Iterator[TimedOperation]:
    swarm = world.swarm
    most = max(swarm.units, key=lambda unit: len(unit.partitions))
    x, y = density.sample_points(rng, 40 * BATCH)
    routed = swarm.index.route(x, y)
    mine = np.flatnonzero(routed.owner == most.executor)[:BATCH]
    partition, columns, rows = routed.partition[mine], routed.column[mine], routed.row[mine]
    checks = np.full(len(mine), 50.0)

    def collect() -> None:
        most.collect_points(partition, columns, rows, checks)

    holds = f"executor with {len(most.partitions)} partitions"
    yield TimedOperation(
        "identify the partition and collect statistics",
        "executor (1)",
        f"point, in batches of {len(mine)}",
        _timed(collect, repeat, len(mine)),
    )
    rounds = count(world.round + 1)

    def close() -> Callable[[], object]:
        collect()
        return lambda: most.handle(CloseRound(most.executor, next(rounds)))

    yield TimedOperation("close a round and cost", "executor (2)", holds, _prepared(close, repeat))
    request = ReduceRequest(
        m_high=most.executor,
        round=world.round,
        m_lows=((most.executor + 1) % len(swarm.units),),
        c_lows=(0.0,),
        system_received=1_000_000.0,
        fresh_ids=(swarm.plan.next_id,),
    )
    held = [Holding(p, most.statistics(p.id)) for p in most.partitions]

    def search() -> None:
        found = Search(most.executor, held, most.model, 1_000_000.0, request.fresh_ids[0], Rules())
        found.run([Receiver(request.m_lows[0], 0.0)])

    yield TimedOperation("find a reduction", "executor (3)", holds, _timed(search, repeat))
    yield TimedOperation(
        "find a reduction, recount its queries",
        "executor (3)",
        holds,
        _timed(lambda: most.handle(request), repeat),
    )
    taker = LoadBalancingUnit(most.executor + 1, [], world.config)
    ids = count(swarm.plan.next_id)
    largest = max(swarm.plan.partitions, key=lambda p: p.cells.area)

    def take_over() -> Callable[[], object]:
        change = moved(largest, largest.owners[0], taker.executor, next(ids))
        statistics = Statistics(largest.cells)
        holding = Holding(change.created[0], statistics)
        takeover = Takeover(most.executor, taker.executor, 0, (holding,))

        def receive() -> None:
            taker.handle(takeover)
            taker.handle(PlanPublished(1, (change,)))

        return receive

    yield TimedOperation(
        "take over a partition",
        "executor (4)",
        f"partition of {largest.cells.area} cells",
        _prepared(take_over, repeat),
    )


def _any(index: GlobalIndex, rng: np.random.Generator, min_columns: int = 1) -> Any:
    fitting = [p for p in index.partitions.values() if p.cells.columns >= min_columns]
    return fitting[int(rng.integers(len(fitting)))]


def _timed(operation: Callable[[], object], repeat: int, objects: int = 1) -> tuple[float, ...]:
    """Return microseconds per object, after one call to compile and warm up."""
    if repeat > 1:
        operation()
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        operation()
        times.append((time.perf_counter() - start) * 1e6 / objects)
    return tuple(times)


def _prepared(prepare: Callable[[], Callable[[], object]], repeat: int) -> tuple[float, ...]:
    """Measure operations that need preparation, without the preparation."""
    prepare()()
    return tuple(time for _ in range(repeat) for time in _timed(prepare(), 1))
