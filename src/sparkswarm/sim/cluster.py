"""A simulated cluster in one process: sources, GlobalIndex machines, executors and a sink.

Owns what machines share (clock, network, store, random numbers) and the course of a run: machines
start, faults come and go, and the cluster must come to rest. There is no wall clock, thread or
socket: the same seed gives the same run, event for event, on every computer.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import TextIO

from sparkswarm.config import SwarmConfig
from sparkswarm.policies.swarm import effective
from sparkswarm.protocol.partition import ChangeKind
from sparkswarm.protocol.plan import Plan
from sparkswarm.sim.bugs import Bug
from sparkswarm.sim.clock import MILLISECOND, Clock
from sparkswarm.sim.executor import Executor
from sparkswarm.sim.faults import Faults, Kind, SimFault, draw_faults
from sparkswarm.sim.journal import SimJournal
from sparkswarm.sim.kept_points import SimCount, SimSliding, SimTumbling, Window
from sparkswarm.sim.machine import Machine
from sparkswarm.sim.network import Frame, Network
from sparkswarm.sim.oracle import Oracle, OracleVerdict
from sparkswarm.sim.router import Router
from sparkswarm.sim.sink import Sink
from sparkswarm.sim.source import SimSource
from sparkswarm.sim.storage import Storage
from sparkswarm.sim.tuples import Point
from sparkswarm.sim.workload import Workload, WorkloadSize, draw_workload

POINTS_PER_SOURCE = 1_000_000
"""The id of a point is source x POINTS_PER_SOURCE + number."""

GRACE = 300 * MILLISECOND
"""Time that machines have to reconnect after the last fault before rounds are counted."""

LAST = 15_000 * MILLISECOND
"""A run that is not at rest by then has failed."""

EVERYTHING = 1_000_000
"""Size of a count window from which nothing expires."""


@dataclass(frozen=True, slots=True)
class SimScenario:
    """The parameters of a run, beside its seed."""

    config: SwarmConfig
    routers: int
    sources: int
    demand: WorkloadSize
    faults: Faults
    window: Window
    credits: int
    round_length: int
    cells_per_step: int

    @property
    def again_after(self) -> int:
        """When a source sends a tuple again. Without deadly faults that must never be necessary."""
        return (600 if self.faults.may_kill else 4000) * MILLISECOND


def draw_scenario(seed: int, defaults: bool = False) -> SimScenario:
    """Draw the parameters of a run from its seed; ``defaults`` are the settings that people run."""
    rng = random.Random(f"{seed}/scenario")
    executors, routers, sources = rng.randint(3, 6), rng.randint(2, 3), rng.randint(1, 3)
    side = rng.choice((16, 16, 24, 32))
    # Some runs have more operations, at short intervals, and fewer points.
    demand = rng.choice((WorkloadSize(), WorkloadSize(points=140, queries=36, impatience=0.8)))
    config = SwarmConfig(
        bounds=(0.0, 0.0, float(side), float(side)),
        grid=(side, side),
        executors=executors,
        cost_model=rng.choice(("work", "paper")),
        decision="five_stages",
        beta=1,
        max_pairs_per_round=rng.choice((1, 2, 0)),
        max_receivers=rng.choice((1, 0)),
        shared_cells=rng.random() < 0.7,
        min_gain=0.0,
        payback_rounds=1000.0,
        merge_every_rounds=rng.choice((0, 2, 3)),
    )
    windows: tuple[Window, ...] = (
        SimSliding(300.0 * MILLISECOND),
        SimTumbling(400.0 * MILLISECOND),
        SimCount(8),
        SimCount(EVERYTHING),
    )
    scenario = SimScenario(
        config=config,
        routers=routers,
        sources=sources,
        demand=demand,
        faults=draw_faults(rng, executors, routers, sources, demand.length),
        window=rng.choice(windows),
        credits=rng.choice((4, 16, 64)),
        round_length=rng.choice((40, 60, 90)) * MILLISECOND,
        cells_per_step=rng.choice((4, 16, 64)),
    )
    return _with_defaults(scenario, rng) if defaults else scenario


def _with_defaults(scenario: SimScenario, rng: random.Random) -> SimScenario:
    """Return a scenario with the default settings, and points enough that they act.

    Differences of load that chance explains are not acted on. With lending no cell is shared.
    """
    config = scenario.config
    config = SwarmConfig(
        bounds=config.bounds,
        grid=config.grid,
        executors=config.executors,
        lending=rng.random() < 0.5,
    )
    return replace(
        scenario,
        config=effective(config),
        demand=replace(scenario.demand, points=3 * scenario.demand.points),
        round_length=rng.choice((120, 160, 200)) * MILLISECOND,
    )


class World:
    """A cluster and what its machines share.

    Parameters
    ----------
    seed, scenario
        Seed and parameters of the run.
    bugs
        Planted bugs.
    journal_to
        Output for the journal; None keeps only its hash.
    workload
        What the sources emit; drawn from the seed by default.
    """

    def __init__(
        self,
        seed: int,
        scenario: SimScenario,
        bugs: frozenset[Bug] = frozenset(),
        journal_to: TextIO | None = None,
        workload: Workload | None = None,
    ) -> None:
        self.scenario = scenario
        self.bugs = bugs
        self.config = scenario.config
        self.grid = scenario.config.make_grid()
        self.executors = scenario.config.executors
        self.routers = scenario.routers
        self.window = scenario.window
        self.round_length = scenario.round_length
        self.cells_per_step = scenario.cells_per_step
        self.liars = scenario.faults.liars
        self.rng = random.Random(f"{seed}/machines")
        self.liar_rng = random.Random(f"{seed}/liars")
        self.clock = Clock()
        self.journal = SimJournal(journal_to)
        plan = Plan.initial(self.grid, self.executors)
        self.store = Storage(plan, bugs)
        counts_all = self.window == SimCount(EVERYTHING) or not isinstance(self.window, SimCount)
        if workload is None:
            workload = draw_workload(seed, self.grid, scenario.sources, scenario.demand)
        self.matching = workload.matching
        self.oracle = Oracle(self.clock, plan, counts_all, self.matching)
        weather = scenario.faults.weather
        self.network = Network(self.clock, random.Random(f"{seed}/network"), weather, self._arrive)
        self.sources = [
            SimSource(s, self, script, scenario.credits, scenario.again_after)
            for s, script in enumerate(workload.scripts)
        ]
        self._ambushed: set[str] = set()
        self.sink = Sink(self)
        self._executors = [Executor(m, self) for m in range(self.executors)]
        self._routers = [Router(g, self) for g in range(self.routers)]
        machines: list[Machine] = [
            *self._executors,
            *self._routers,
            self.sink,
            *self.sources,
        ]
        self.machines = {machine.name: machine for machine in machines}

    def point_id(self, point: Point) -> int:
        """Return the id of a point in windows."""
        return point.source * POINTS_PER_SOURCE + point.number

    def point_of(self, point_id: int) -> tuple[int, int]:
        """Return the source and the number of a point, from its id."""
        return divmod(point_id, POINTS_PER_SOURCE)

    def note(self, who: str, what: str) -> None:
        """Write to the journal."""
        self.journal.note(self.clock.now, who, what)

    def committed(self, machine: Machine) -> None:
        """Crash a machine that is the target of an ambush.

        Machines call this after a write to the store and before they send anything about it,
        the worst moment for a crash: a partition is retired but not handed over, a plan is
        written but not published. An event is atomic, so its later writes still take effect;
        only its messages are lost.
        """
        if machine.name in self._ambushed:
            self._ambushed.discard(machine.name)
            self.note("faults", f"{machine.name} crashes in an ambush")
            self.oracle.crashed()
            machine.crash()

    def _arrive(self, source: str, target: str, frame: Frame) -> None:
        self.journal.frame(self.clock.now, source, target, frame)
        self.machines[target].receive(source, frame)

    def happened(self) -> dict[str, int]:
        """Return the number of events of each kind."""
        changes = [change for changes in self.store.log for change in changes]
        kinds = {str(kind): sum(c.kind is kind for c in changes) for kind in ChangeKind}
        faults = self.scenario.faults.schedule
        return {
            **kinds,
            "events": self.clock.done,
            "rounds": len(self.oracle.rounds),
            "terms": self.store.term,
            "executors declared dead": sum(self.store.lives),
            **{f"faults: {kind}": sum(f.kind is kind for f in faults) for kind in Kind},
            "liars": len(self.liars),
            **self.oracle.seen(),
        }

    # -- the run ----------------------------------------------------------------------------------

    def play(self) -> OracleVerdict:
        """Run until the cluster is at rest, and return the verdict."""
        for fault in self.scenario.faults.schedule:
            self.clock.after(fault.start, self._begin, fault)
            self.clock.after(fault.stop, self._end, fault)
        for machine in self.machines.values():
            machine.start()
        try:
            while unrest := self.unrest():
                if self.clock.now > LAST:
                    self.oracle.wrong(f"the run did not come to rest: {unrest}")
                    break
                for _ in range(50):
                    self.clock.step()
        except Exception as error:
            # Any exception in a machine is a violation; the journal shows what led to it.
            self.oracle.wrong(f"{type(error).__name__}: {error}")
        return self.oracle.judge()

    def _begin(self, fault: SimFault) -> None:
        self.note("faults", f"{fault.kind} {fault.targets} begins")
        match fault.kind:
            case Kind.SLOW:
                self.machines[fault.targets[0]].slowness = fault.strength
            case Kind.CLOG:
                self.network.clog((fault.targets[0], fault.targets[1]), fault.strength)
            case Kind.CRASH:
                self.oracle.crashed()
                self.machines[fault.targets[0]].crash()
            case Kind.CUT:
                self.oracle.crashed()
                self.network.cut((fault.targets[0], fault.targets[1]))
            case Kind.AMBUSH:
                self._ambushed.add(fault.targets[0])
            case Kind.DIVIDE:
                self.oracle.crashed()
                self.network.divide(frozenset(fault.targets))

    def _end(self, fault: SimFault) -> None:
        self.note("faults", f"{fault.kind} {fault.targets} is over")
        match fault.kind:
            case Kind.SLOW:
                self.machines[fault.targets[0]].slowness = 1
            case Kind.CLOG:
                self.network.clog((fault.targets[0], fault.targets[1]), 0)
            case Kind.CRASH:
                self.machines[fault.targets[0]].restart()
            case Kind.CUT:
                self.network.mend((fault.targets[0], fault.targets[1]))
            case Kind.AMBUSH:
                self._ambushed.discard(fault.targets[0])
                if not self.machines[fault.targets[0]].up:
                    self.machines[fault.targets[0]].restart()
            case Kind.DIVIDE:
                self.network.heal(frozenset(fault.targets))

    def unrest(self) -> str:
        """Return why the cluster is not at rest; empty if it is."""
        for source in self.sources:
            if not source.is_done:
                return f"{source.name} waits for {source.unacknowledged} and {source.unanswered}"
        if not self.sink.has_read_all:
            return "the sink has not read all results"
        healed = self.scenario.faults.healed + GRACE
        if self.clock.now < healed or sum(at > healed for at in self.oracle.rounds) < 2:
            return "rounds have not gone on since the faults healed"
        version = self.store.plan.version
        for router in self._routers:
            if router.version != version or router.is_updating:
                return f"{router.name} has not updated"
        for executor in self._executors:
            holdings = executor.holdings
            if holdings.durable.version != version:
                return f"{executor.name} has not followed the plan"
            if any(holdings.awaits(partition.id) for partition in holdings.mine):
                return f"{executor.name} waits for a handover"
        return ""
