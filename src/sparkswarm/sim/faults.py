"""What goes wrong in a run, and when: drawn from the seed.

Owns the schedule of faults. Every fault ends, so that every run can be asked to come to rest.
Faults of machines follow each other and do not overlap, because no protocol survives the loss
of everyone; those of links and paces may overlap with all.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import StrEnum

from sparkswarm.sim.clock import MILLISECOND
from sparkswarm.sim.election import liars
from sparkswarm.sim.network import Weather


class Kind(StrEnum):
    """A kind of fault. An ambush is a crash at the worst moment, see ``World.committed``."""

    SLOW = "slow"
    CLOG = "clog"
    CRASH = "crash"
    DIVIDE = "divide"
    CUT = "cut"
    AMBUSH = "ambush"


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that goes wrong.

    Attributes
    ----------
    kind
        What.
    start, stop
        When it begins and when it is over.
    targets
        The machines concerned; of a link, from and to.
    strength
        How much slower a machine is, or how much longer a link may take.
    """

    kind: Kind
    start: int
    stop: int
    targets: tuple[str, ...]
    strength: int = 0


@dataclass(frozen=True, slots=True)
class Faults:
    """All that goes wrong in a run.

    Attributes
    ----------
    weather
        How the network behaves throughout.
    schedule
        In order of time.
    liars
        Executors that lie when they vote.
    """

    weather: Weather
    schedule: tuple[Fault, ...]
    liars: frozenset[int]

    @property
    def may_kill(self) -> bool:
        """Whether a machine may crash, or be taken for dead."""
        deadly = (Kind.CRASH, Kind.DIVIDE, Kind.CUT, Kind.AMBUSH)
        return any(fault.kind in deadly for fault in self.schedule)

    @property
    def healed(self) -> int:
        """When the last of them is over."""
        return max((fault.stop for fault in self.schedule), default=0)


def draw_faults(
    luck: random.Random, executors: int, routers: int, sources: int, length: int
) -> Faults:
    """Draw the faults of a run that lasts about ``length``."""
    names = [f"ex{m}" for m in range(executors)] + [f"gi{g}" for g in range(routers)]
    schedule: list[Fault] = []
    weather = Weather()
    if luck.random() < 0.6:
        weather = Weather(
            delay=luck.choice((100, 300, 1000)),
            jitter=luck.choice((500, 2000, 5000)),
            loss=luck.choice((0.0, 0.02, 0.08)),
            doubling=luck.choice((0.0, 0.02, 0.08)),
        )
    if luck.random() < 0.5:
        for _ in range(luck.randrange(1, 4)):
            start, stop = _while(luck, length, 300)
            schedule.append(
                Fault(Kind.SLOW, start, stop, (luck.choice(names),), luck.choice((4, 10, 20)))
            )
    if luck.random() < 0.6:
        for _ in range(luck.randrange(1, 6)):
            start, stop = _while(luck, length, 400)
            ends = luck.choice(names + [f"src{s}" for s in range(sources)]), luck.choice(names)
            if ends[0] != ends[1]:
                delay = luck.choice((5, 20, 60)) * MILLISECOND
                schedule.append(Fault(Kind.CLOG, start, stop, ends, delay))
    if luck.random() < 0.4:
        # A way into the cluster that is slow throughout: what comes by others overtakes.
        link = (f"src{luck.randrange(sources)}", f"gi{luck.randrange(routers)}")
        schedule.append(Fault(Kind.CLOG, 0, length, link, 80 * MILLISECOND))
    if luck.random() < 0.5:
        slots = luck.choice((1, 2, 3))
        for i in range(slots):
            schedule += _of_machines(luck, names, executors, i * length // slots, length // slots)
    few = liars(executors)
    lying = frozenset({luck.randrange(executors)}) if few and luck.random() < 0.3 else frozenset()
    return Faults(weather, tuple(sorted(schedule, key=lambda f: f.start)), lying)


def _while(luck: random.Random, length: int, longest: int) -> tuple[int, int]:
    start = int(luck.random() * length)
    return start, start + int(luck.random() * longest * MILLISECOND)


def _of_machines(
    luck: random.Random, names: list[str], executors: int, start: int, length: int
) -> list[Fault]:
    """Draw a crash, an ambush, a division or a cut link within a slot of time."""
    start += int(luck.random() * length * 0.3)
    stop = start + int((0.05 + 0.65 * luck.random()) * length)
    # The Coordinator of the first term is worth a fault more often than others.
    target = "gi0" if luck.random() < 0.3 else luck.choice(names)
    fate = luck.random()
    if fate < 0.25:
        return [Fault(Kind.AMBUSH, start, stop, (target,))]
    if fate < 0.5:
        return [Fault(Kind.CRASH, start, stop, (target,))]
    if fate < 0.7:
        # The Coordinator no longer hears an executor that all others still hear, or the
        # other way round, or both.
        executor = f"ex{luck.randrange(executors)}"
        links = [(executor, "gi0"), ("gi0", executor)]
        chosen = luck.choice((links, links[:1], links[1:]))
        return [Fault(Kind.CUT, start, stop, link) for link in chosen]
    group = {target}
    if luck.random() < 0.5:
        others = [name for name in names if name != target]
        group.update(luck.sample(others, luck.randrange(len(others) // 2 + 1)))
    return [Fault(Kind.DIVIDE, start, stop, tuple(sorted(group)))]
