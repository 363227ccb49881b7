"""The schedule of faults in a run, drawn from the seed.

Every fault ends, so every run must come to rest. Faults of machines do not overlap, because no
protocol survives the loss of all machines; slow machines and faults of links may overlap with
any other fault.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import StrEnum

from sparkswarm.sim.clock import MILLISECOND
from sparkswarm.sim.election import liars
from sparkswarm.sim.network import Weather


class Kind(StrEnum):
    """A kind of fault. An ambush is a crash right after a commit, see ``World.committed``."""

    SLOW = "slow"
    CLOG = "clog"
    CRASH = "crash"
    DIVIDE = "divide"
    CUT = "cut"
    AMBUSH = "ambush"


@dataclass(frozen=True, slots=True)
class SimFault:
    """One scheduled fault.

    Attributes
    ----------
    kind
        What happens.
    start, stop
        When it begins and ends, in microseconds.
    targets
        The affected machines; for a link, its sender and its receiver.
    strength
        Factor by which a machine is slower, or additional microseconds of a link.
    """

    kind: Kind
    start: int
    stop: int
    targets: tuple[str, ...]
    strength: int = 0


@dataclass(frozen=True, slots=True)
class Faults:
    """All faults of a run.

    Attributes
    ----------
    weather
        Delay and loss of the network during the whole run.
    schedule
        The faults, in the order of their start.
    liars
        Executors that send false votes.
    """

    weather: Weather
    schedule: tuple[SimFault, ...]
    liars: frozenset[int]

    @property
    def may_kill(self) -> bool:
        """Whether a machine may crash or be declared dead."""
        deadly = (Kind.CRASH, Kind.DIVIDE, Kind.CUT, Kind.AMBUSH)
        return any(fault.kind in deadly for fault in self.schedule)

    @property
    def healed(self) -> int:
        """When the last fault ends."""
        return max((fault.stop for fault in self.schedule), default=0)


def draw_faults(
    rng: random.Random, executors: int, routers: int, sources: int, length: int
) -> Faults:
    """Draw the faults of a run of about ``length`` microseconds."""
    names = [f"ex{m}" for m in range(executors)] + [f"gi{g}" for g in range(routers)]
    schedule: list[SimFault] = []
    weather = Weather()
    if rng.random() < 0.6:
        weather = Weather(
            delay=rng.choice((100, 300, 1000)),
            jitter=rng.choice((500, 2000, 5000)),
            loss=rng.choice((0.0, 0.02, 0.08)),
            doubling=rng.choice((0.0, 0.02, 0.08)),
        )
    if rng.random() < 0.5:
        for _ in range(rng.randrange(1, 4)):
            start, stop = _span(rng, length, 300)
            schedule.append(
                SimFault(Kind.SLOW, start, stop, (rng.choice(names),), rng.choice((4, 10, 20)))
            )
    if rng.random() < 0.6:
        for _ in range(rng.randrange(1, 6)):
            start, stop = _span(rng, length, 400)
            ends = rng.choice(names + [f"src{s}" for s in range(sources)]), rng.choice(names)
            if ends[0] != ends[1]:
                delay = rng.choice((5, 20, 60)) * MILLISECOND
                schedule.append(SimFault(Kind.CLOG, start, stop, ends, delay))
    if rng.random() < 0.4:
        # One slow link into the cluster, so that tuples on other links overtake.
        link = (f"src{rng.randrange(sources)}", f"gi{rng.randrange(routers)}")
        schedule.append(SimFault(Kind.CLOG, 0, length, link, 80 * MILLISECOND))
    if rng.random() < 0.5:
        slots = rng.choice((1, 2, 3))
        for i in range(slots):
            schedule += _machine_faults(rng, names, executors, i * length // slots, length // slots)
    few = liars(executors)
    lying = frozenset({rng.randrange(executors)}) if few and rng.random() < 0.3 else frozenset()
    return Faults(weather, tuple(sorted(schedule, key=lambda f: f.start)), lying)


def _span(rng: random.Random, length: int, longest: int) -> tuple[int, int]:
    start = int(rng.random() * length)
    return start, start + int(rng.random() * longest * MILLISECOND)


def _machine_faults(
    rng: random.Random, names: list[str], executors: int, start: int, length: int
) -> list[SimFault]:
    """Draw a crash, an ambush, a network partition or a cut link within a time slot."""
    start += int(rng.random() * length * 0.3)
    stop = start + int((0.05 + 0.65 * rng.random()) * length)
    # The Coordinator of the first term fails more often than other machines.
    target = "gi0" if rng.random() < 0.3 else rng.choice(names)
    fate = rng.random()
    if fate < 0.25:
        return [SimFault(Kind.AMBUSH, start, stop, (target,))]
    if fate < 0.5:
        return [SimFault(Kind.CRASH, start, stop, (target,))]
    if fate < 0.7:
        # The Coordinator and an executor are cut off from each other, one way or both,
        # while all other machines still reach both.
        executor = f"ex{rng.randrange(executors)}"
        links = [(executor, "gi0"), ("gi0", executor)]
        chosen = rng.choice((links, links[:1], links[1:]))
        return [SimFault(Kind.CUT, start, stop, link) for link in chosen]
    group = {target}
    if rng.random() < 0.5:
        others = [name for name in names if name != target]
        group.update(rng.sample(others, rng.randrange(len(others) // 2 + 1)))
    return [SimFault(Kind.DIVIDE, start, stop, tuple(sorted(group)))]
