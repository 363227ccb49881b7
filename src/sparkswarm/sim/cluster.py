"""A whole cluster in one process, from a seed: sources, GlobalIndex machines, executors, a sink.

Owns the world that machines share (clock, network, store, chance), and how a run is played: it
begins, faults come and go, and it must come to rest. It is an instrument to test the protocol
with. No wall clock, no thread, no socket: the same seed is the same run, event for event, on
every machine.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TextIO

from sparkswarm.config import SwarmConfig
from sparkswarm.protocol.partition import ChangeKind
from sparkswarm.protocol.plan import Plan
from sparkswarm.sim.bugs import Bug
from sparkswarm.sim.clock import MILLISECOND, Clock
from sparkswarm.sim.executor import Executor
from sparkswarm.sim.faults import Fault, Faults, Kind, draw_faults
from sparkswarm.sim.journal import Journal
from sparkswarm.sim.kept_points import SimCount, SimSliding, SimTumbling, Window
from sparkswarm.sim.machine import Machine
from sparkswarm.sim.network import Frame, Network
from sparkswarm.sim.oracle import Oracle, Verdict
from sparkswarm.sim.router import Router
from sparkswarm.sim.sink import Sink
from sparkswarm.sim.source import Source
from sparkswarm.sim.storage import Storage
from sparkswarm.sim.tuples import Point
from sparkswarm.sim.workload import Demand, Workload, draw_workload

POINTS_PER_SOURCE = 1_000_000
"""A point's id is its source x this + its number."""

GRACE = 300 * MILLISECOND
"""After the last fault machines have so long to find each other before rounds are counted."""

LAST = 15_000 * MILLISECOND
"""A run that has not come to rest by then never will."""

EVERYTHING = 1_000_000
"""A count window of this size forgets nothing."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """All that a run is made of, besides chance."""

    config: SwarmConfig
    routers: int
    sources: int
    demand: Demand
    faults: Faults
    window: Window
    credits: int
    round_length: int
    cells_per_step: int

    @property
    def again_after(self) -> int:
        """When a source loses patience; where nobody can die, nothing should need that."""
        return (600 if self.faults.may_kill else 4000) * MILLISECOND


def draw_scenario(seed: int) -> Scenario:
    """Draw a run from its seed."""
    luck = random.Random(f"{seed}/scenario")
    executors, routers, sources = luck.randint(3, 6), luck.randint(2, 3), luck.randint(1, 3)
    side = luck.choice((16, 16, 24, 32))
    # In some runs there are more operations, close upon each other, and fewer points.
    demand = luck.choice((Demand(), Demand(points=140, queries=36, impatience=0.8)))
    config = SwarmConfig(
        bounds=(0.0, 0.0, float(side), float(side)),
        grid=(side, side),
        executors=executors,
        cost_model=luck.choice(("work", "paper")),
        decision="five_stages",
        beta=1,
        max_pairs_per_round=luck.choice((1, 2, 0)),
        max_receivers=luck.choice((1, 0)),
        shared_cells=luck.random() < 0.7,
        min_gain=0.0,
        payback_rounds=1000.0,
        merge_every_rounds=luck.choice((0, 2, 3)),
    )
    windows: tuple[Window, ...] = (
        SimSliding(300.0 * MILLISECOND),
        SimTumbling(400.0 * MILLISECOND),
        SimCount(8),
        SimCount(EVERYTHING),
    )
    return Scenario(
        config=config,
        routers=routers,
        sources=sources,
        demand=demand,
        faults=draw_faults(luck, executors, routers, sources, demand.length),
        window=luck.choice(windows),
        credits=luck.choice((4, 16, 64)),
        round_length=luck.choice((40, 60, 90)) * MILLISECOND,
        cells_per_step=luck.choice((4, 16, 64)),
    )


class World:
    """What machines share.

    Parameters
    ----------
    seed, scenario
        What to play.
    bugs
        What is broken on purpose.
    journal_to
        Where every event is written, if anywhere.
    workload
        What the sources emit; drawn from the seed if not given.
    """

    def __init__(
        self,
        seed: int,
        scenario: Scenario,
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
        self.luck = random.Random(f"{seed}/machines")
        self.luck_of_liars = random.Random(f"{seed}/liars")
        self.clock = Clock()
        self.journal = Journal(journal_to)
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
            Source(s, self, script, scenario.credits, scenario.again_after)
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
        """Write into the journal."""
        self.journal.note(self.clock.now, who, what)

    def committed(self, machine: Machine) -> None:
        """Hear that a machine has changed what is durable, and has told nobody yet.

        The worst moment to crash: a partition retired and not handed over, a plan written and
        not published. What an event does to the store it does as a whole, so the rest of the
        event still counts there; only nothing of it is sent.
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
        """Return how often what happened."""
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

    # -- playing ----------------------------------------------------------------------------------

    def play(self) -> Verdict:
        """Run until all is at rest, and judge."""
        for fault in self.scenario.faults.schedule:
            self.clock.after(fault.start, self._begin, fault)
            self.clock.after(fault.stop, self._end, fault)
        for machine in self.machines.values():
            machine.start()
        try:
            while not self._is_at_rest():
                if self.clock.now > LAST:
                    self.oracle.wrong("the run did not come to rest: " + self._why_not())
                    break
                for _ in range(50):
                    self.clock.step()
        except Exception as error:
            # Whatever a machine trips over is a finding, and the journal leads to it.
            self.oracle.wrong(f"{type(error).__name__}: {error}")
        return self.oracle.judge()

    def _begin(self, fault: Fault) -> None:
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

    def _end(self, fault: Fault) -> None:
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

    def _is_at_rest(self) -> bool:
        return not self._why_not()

    def _why_not(self) -> str:
        """Say what is still to come, nothing if all is at rest."""
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
