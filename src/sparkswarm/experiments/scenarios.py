"""The scenarios of the paper's evaluation: hotspots over time, and numbers of queries.

Owns durations, hotspots, their intensity and the number of queries. Independent of policies and
machines.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from sparkswarm.compiled import FloatArray
from sparkswarm.errors import ConfigError
from sparkswarm.workloads.hotspot import Hotspot, Shape

MINUTE = 60.0
REGISTERED_WITHIN = 60.0
"""Seconds from the start of a hotspot within which its queries arrive (paper, "Reaction")."""

LOWER_LEFT, UPPER_RIGHT = (0.05, 0.05), (0.80, 0.80)
"""Corners of the hotspots, as shares of the sides of the space."""

BELL_WIDTH = 6.0
"""Length of a hotspot in standard deviations of its bell."""

HOT_QUERIES = 0.25
"""Queries of all hotspots together, as a share of those registered before. In the paper their
number is only drawn, as a dashed line."""


@dataclass(frozen=True, slots=True)
class TimedHotspot:
    """A hotspot with its time, place and strength.

    Attributes
    ----------
    start, stop
        Seconds.
    share
        Maximum share of the points that it attracts.
    queries
        Its queries, as a share of those registered before the run.
    corner, shape
        Its place and its distribution, see :class:`Hotspot`.
    intensity
        ``"bell"``: the share follows a normal distribution over time, with its maximum halfway.
        ``"step"``: the share is constant.
    """

    start: float
    stop: float
    share: float = 0.40
    queries: float = HOT_QUERIES
    corner: tuple[float, float] = LOWER_LEFT
    shape: Shape = "uniform"
    intensity: Literal["bell", "step"] = "bell"

    def point_share(self, at: float) -> float:
        """Return the share of the points that it attracts at a time."""
        if not self.start <= at < self.stop:
            return 0.0
        if self.intensity == "step":
            return self.share
        deviations = (at - (self.start + self.stop) / 2) * BELL_WIDTH / (self.stop - self.start)
        return self.share * math.exp(-0.5 * deviations * deviations)

    def registered(self, at: float) -> float:
        """Return the share of its queries that is registered at a time; they end with it."""
        if not self.start <= at < self.stop:
            return 0.0
        return min(1.0, (at - self.start) / REGISTERED_WITHIN)

    @property
    def spatial(self) -> Hotspot:
        """The hotspot in space, with all points in it."""
        return Hotspot(0, 1, point_share=1.0, corner=self.corner, shape=self.shape)


@dataclass(frozen=True, slots=True, eq=False)
class Mix:
    """The mix of sources at one time.

    Attributes
    ----------
    points
        Share of the points of the density, then of each hotspot; they add up to 1.
    queries
        Share of the queries that is registered, of the density (1), then of each hotspot.
    """

    points: FloatArray
    queries: FloatArray

    def same(self, other: Mix | None) -> bool:
        """Whether both mixes are equal."""
        return (
            other is not None
            and np.array_equal(self.points, other.points)
            and np.array_equal(self.queries, other.queries)
        )


@dataclass(frozen=True, slots=True)
class Scenario:
    """One experiment.

    Attributes
    ----------
    name, title
        Name on the command line, title of pictures.
    figure
        Label of the paper's figure.
    hotspots
        The hotspots.
    queries
        Numbers of queries registered before the run, one run for each.
    minutes
        Length of a run, in virtual time.
    """

    name: str
    title: str
    figure: str
    hotspots: tuple[TimedHotspot, ...] = ()
    queries: tuple[int, ...] = (1_000_000,)
    minutes: int = 60

    @property
    def is_sweep(self) -> bool:
        """Whether it varies the number of queries."""
        return len(self.queries) > 1

    def mix(self, at: float) -> Mix:
        """Return the mix at a time, in seconds."""
        hot = [hotspot.point_share(at) for hotspot in self.hotspots]
        registered = [hotspot.registered(at) for hotspot in self.hotspots]
        return Mix(np.array([1.0 - sum(hot), *hot]), np.array([1.0, *registered]))

    def shortened(self, minutes: int) -> Scenario:
        """Return the scenario with all times scaled to a length in minutes."""
        if minutes < 1:
            raise ConfigError(f"a run takes at least one minute, got {minutes}")
        scale = minutes / self.minutes
        hotspots = tuple(
            replace(t, start=t.start * scale, stop=t.stop * scale) for t in self.hotspots
        )
        return replace(self, hotspots=hotspots, minutes=minutes)


_MILLION = 1_000_000
_LOW = TimedHotspot(10 * MINUTE, 40 * MINUTE)
_HALF = replace(_LOW, share=0.20, queries=HOT_QUERIES / 2)

SCENARIOS: dict[str, Scenario] = {
    scenario.name: scenario
    for scenario in (
        Scenario(
            "queries-sweep",
            "capability and execution latency",
            "PerformanceAndLatency",
            queries=tuple(n * _MILLION for n in (1, 2, 4, 8, 16, 32, 64)),
        ),
        Scenario(
            "one-uniform-hotspot",
            "a uniform hotspot, its intensity a bell",
            "OneUniformHotspot",
            (_LOW,),
        ),
        Scenario(
            "one-normal-hotspot",
            "a normal hotspot, its intensity a bell",
            "OneNormalHotspot",
            (replace(_LOW, shape="normal"),),
        ),
        Scenario(
            "step-hotspot",
            "a uniform hotspot, there at once",
            "OneStepFunctionHotspot",
            (replace(_LOW, intensity="step"),),
        ),
        Scenario(
            "two-overlapping-hotspots",
            "two hotspots that overlap in time",
            "TwoOverlapingHotspots",
            (
                _HALF,
                replace(_HALF, start=20 * MINUTE, stop=50 * MINUTE, corner=UPPER_RIGHT),
            ),
        ),
        Scenario(
            "two-consecutive-hotspots",
            "two hotspots, one after the other",
            "TwoConsecutiveHotspots",
            (
                replace(_HALF, stop=30 * MINUTE),
                replace(_HALF, start=30 * MINUTE, stop=50 * MINUTE, corner=UPPER_RIGHT),
            ),
        ),
    )
}
"""The scenarios by name."""


def find_scenario(name: str) -> Scenario:
    """Return the scenario of a name; raise ConfigError if there is none."""
    if name not in SCENARIOS:
        raise ConfigError(f"scenario must be one of {', '.join(SCENARIOS)}, got {name!r}")
    return SCENARIOS[name]
