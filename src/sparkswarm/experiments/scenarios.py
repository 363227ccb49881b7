"""Scenarios: what arrives when, as in the paper's evaluation.

Owns durations, hotspots, their intensity and the number of queries. It knows neither
policies nor machines.
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
"""All queries of a hotspot come within so many seconds of its start (paper, "Reaction")."""

LOWER_LEFT, UPPER_RIGHT = (0.05, 0.05), (0.80, 0.80)
"""Corners of the hotspots, as shares of the sides of the space."""

BELL_WIDTH = 6.0
"""Standard deviations of the bell between a hotspot's start and its end."""

HOT_QUERIES = 0.25
"""Queries of all hotspots together, for each query registered before. The paper draws their
number as a dashed line and does not say it."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """A hotspot in time: where, how strong, from when to when.

    Attributes
    ----------
    start, stop
        Seconds.
    share
        Which share of the points it attracts at its strongest.
    queries
        Its queries, for each query registered before the run.
    corner, shape
        Where it is and how it is filled, see :class:`Hotspot`.
    intensity
        ``"bell"``: the share follows a normal distribution in time, at its strongest halfway.
        ``"step"``: it is there in full at once.
    """

    start: float
    stop: float
    share: float = 0.40
    queries: float = HOT_QUERIES
    corner: tuple[float, float] = LOWER_LEFT
    shape: Shape = "uniform"
    intensity: Literal["bell", "step"] = "bell"

    def point_share(self, at: float) -> float:
        """Return which share of the points it attracts at this time."""
        if not self.start <= at < self.stop:
            return 0.0
        if self.intensity == "step":
            return self.share
        deviations = (at - (self.start + self.stop) / 2) * BELL_WIDTH / (self.stop - self.start)
        return self.share * math.exp(-0.5 * deviations * deviations)

    def registered(self, at: float) -> float:
        """Return which part of its queries is registered at this time; they go when it ends."""
        if not self.start <= at < self.stop:
            return 0.0
        return min(1.0, (at - self.start) / REGISTERED_WITHIN)

    @property
    def hotspot(self) -> Hotspot:
        """The square, with all points in it."""
        return Hotspot(0, 1, point_share=1.0, corner=self.corner, shape=self.shape)


@dataclass(frozen=True, slots=True, eq=False)
class Mix:
    """What arrives at one time.

    Attributes
    ----------
    points
        Shares of the points: of the density, then of each hotspot; they add up to 1.
    queries
        Which part of the queries is registered: of the density's (1), then of each hotspot.
    """

    points: FloatArray
    queries: FloatArray

    def same(self, other: Mix | None) -> bool:
        """Whether nothing differs."""
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
        For the command line, and for pictures.
    figure
        The label of the paper's figure.
    troubles
        The hotspots.
    queries
        Queries registered before the run, one run for each number.
    minutes
        How long a run takes.
    """

    name: str
    title: str
    figure: str
    troubles: tuple[Trouble, ...] = ()
    queries: tuple[int, ...] = (1_000_000,)
    minutes: int = 60

    @property
    def is_sweep(self) -> bool:
        """Whether it varies the number of queries."""
        return len(self.queries) > 1

    def mix(self, at: float) -> Mix:
        """Return what arrives at a time, in seconds."""
        hot = [trouble.point_share(at) for trouble in self.troubles]
        registered = [trouble.registered(at) for trouble in self.troubles]
        return Mix(np.array([1.0 - sum(hot), *hot]), np.array([1.0, *registered]))

    def shortened(self, minutes: int) -> Scenario:
        """Return it with all times scaled so that it takes so many minutes."""
        if minutes < 1:
            raise ConfigError(f"a run takes at least one minute, got {minutes}")
        scale = minutes / self.minutes
        troubles = tuple(
            replace(t, start=t.start * scale, stop=t.stop * scale) for t in self.troubles
        )
        return replace(self, troubles=troubles, minutes=minutes)


def _hotspots(name: str, title: str, figure: str, *troubles: Trouble) -> Scenario:
    return Scenario(name, title, figure, troubles)


_MILLION = 1_000_000
_LOW = Trouble(10 * MINUTE, 40 * MINUTE)
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
        _hotspots(
            "one-uniform-hotspot", "a uniform hotspot, its intensity a bell", "OneUniformHotspot",
            _LOW,
        ),
        _hotspots(
            "one-normal-hotspot", "a normal hotspot, its intensity a bell", "OneNormalHotspot",
            replace(_LOW, shape="normal"),
        ),
        _hotspots(
            "step-hotspot", "a uniform hotspot, there at once", "OneStepFunctionHotspot",
            replace(_LOW, intensity="step"),
        ),
        _hotspots(
            "two-overlapping-hotspots", "two hotspots that overlap in time",
            "TwoOverlapingHotspots",
            _HALF,
            replace(_HALF, start=20 * MINUTE, stop=50 * MINUTE, corner=UPPER_RIGHT),
        ),
        _hotspots(
            "two-consecutive-hotspots", "two hotspots, one after the other",
            "TwoConsecutiveHotspots",
            replace(_HALF, stop=30 * MINUTE),
            replace(_HALF, start=30 * MINUTE, stop=50 * MINUTE, corner=UPPER_RIGHT),
        ),
    )
}  # fmt: skip
"""The scenarios by name."""


def find_scenario(name: str) -> Scenario:
    """Return the scenario of that name; ConfigError where there is none."""
    if name not in SCENARIOS:
        raise ConfigError(f"scenario must be one of {', '.join(SCENARIOS)}, got {name!r}")
    return SCENARIOS[name]
