"""An experiment: one scenario with several policies, and its results as tables.

Owns the settings of a simulation, the order of its runs and the reported numbers. Pictures are
drawn from these tables.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from sparkswarm.errors import ConfigError
from sparkswarm.experiments.field import Field
from sparkswarm.experiments.machines import Machines
from sparkswarm.experiments.names import POLICIES
from sparkswarm.experiments.run import MICROSECONDS, Outcome, run_policy
from sparkswarm.experiments.scenarios import Scenario
from sparkswarm.experiments.service import Service
from sparkswarm.workloads import Density

Row = dict[str, Any]
Progress = Callable[[str, int], None]
"""Called after every minute of virtual time, with the policy and the number of queries."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a simulation, without the density.

    Attributes
    ----------
    scenario, policies
        The scenario, and the policies to compare.
    service, machines
        Service times, and the cluster.
    seed
        Seed of all random numbers.
    """

    scenario: Scenario
    policies: tuple[str, ...]
    service: Service
    machines: Machines = field(default_factory=Machines)
    seed: int = 0

    def __post_init__(self) -> None:
        unknown = [name for name in self.policies if name not in POLICIES]
        if unknown or not self.policies:
            raise ConfigError(f"policies must be among {', '.join(POLICIES)}, got {self.policies}")
        if len(set(self.policies)) != len(self.policies):
            raise ConfigError(f"each policy may be named once, got {', '.join(self.policies)}")

    @property
    def minutes(self) -> int:
        """Minutes of virtual time of all runs together."""
        return self.scenario.minutes * len(self.scenario.queries) * len(self.policies)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form in the output folder."""
        return {
            "scenario": dataclasses.asdict(self.scenario),
            "policies": list(self.policies),
            "seed": self.seed,
            "machines": dataclasses.asdict(self.machines),
            "service": self.service.to_json(),
        }


class Experiment:
    """The outcomes of a scenario, by policy and number of queries."""

    def __init__(self, settings: Settings, density: str, outcomes: Sequence[Outcome]) -> None:
        self.settings = settings
        self.density = density
        self.outcomes = list(outcomes)

    @property
    def scenario(self) -> Scenario:
        """The scenario of the experiment."""
        return self.settings.scenario

    def of(self, policy: str, queries: int | None = None) -> Outcome | None:
        """Return the outcome of a policy with a number of queries, by default the first."""
        wanted = self.scenario.queries[0] if queries is None else queries
        found = (o for o in self.outcomes if o.policy == policy and o.queries == wanted)
        return next(found, None)

    @property
    def hot_minutes(self) -> tuple[int, int]:
        """First and last minute with a hotspot; the last is exclusive."""
        hotspots = self.scenario.hotspots
        if not hotspots:
            return 0, self.scenario.minutes
        first = min(t.start for t in hotspots) / 60
        last = max(t.stop for t in hotspots) / 60
        return int(first), max(int(np.ceil(last)), int(first) + 1)

    @property
    def hottest_minute(self) -> int:
        """The minute in which hotspots attract the most points; the middle one of several."""
        middles = [60.0 * minute + 30.0 for minute in range(self.scenario.minutes)]
        elsewhere = np.array([self.scenario.mix(at).points[0] for at in middles])
        hottest = np.flatnonzero(np.isclose(elsewhere, elsewhere.min()))
        return int(hottest[len(hottest) // 2])

    def to_json(self) -> dict[str, Any]:
        """Return the form that ``--json`` writes; numbers of a sweep are means over its runs."""
        hot = self.hot_minutes
        policies: dict[str, Any] = {}
        for name in self.settings.policies:
            mine = [o for o in self.outcomes if o.policy == name]
            entry: dict[str, Any] = {
                "units_of_work": _mean([o.units_of_work() for o in mine]),
                "latency_us": _mean([o.latency_us() for o in mine]),
                "balance": _mean([o.balance() for o in mine]),
                "changes": sum(o.changes for o in mine),
            }
            if self.scenario.hotspots:
                entry["in_hotspot"] = {
                    "units_of_work": _mean([o.units_of_work(*hot) for o in mine]),
                    "latency_us": _mean([o.latency_us(*hot) for o in mine]),
                    "balance": _mean([o.balance(*hot) for o in mine]),
                }
            if self.scenario.is_sweep:
                entry["queries"] = {
                    str(o.queries): {
                        "units_of_work": _mean([o.units_of_work()]),
                        "latency_us": _mean([o.latency_us()]),
                        "balance": _mean([o.balance()]),
                        "failed": o.failed,
                    }
                    for o in mine
                }
            else:
                entry["failed"] = mine[0].failed
            policies[name] = entry
        return {"scenario": self.scenario.name, "density": self.density, "policies": policies}

    def timeline(self) -> list[Row]:
        """Return a row for each policy, number of queries and minute."""
        return [
            {
                "policy": o.policy,
                "registered": o.queries,
                "minute": number,
                "tuples_per_s": round(minute.tuples, 1),
                "queries": round(minute.queries),
                "units_of_work": round(minute.work),
                "latency_us": round(minute.latency * MICROSECONDS, 2),
                "balance": round(o.evenness(minute), 4),
            }
            for o in self.outcomes
            for number, minute in enumerate(o.minutes)
        ]

    def utilization(self, minutes: int = 5) -> list[Row]:
        """Return the mean, minimum and maximum CPU and network use, every 5 minutes."""
        rows = []
        for o in self.outcomes:
            computing = o.machines.executors + o.machines.routers
            for start in range(0, len(o.minutes), minutes):
                part = np.mean([m.busy for m in o.minutes[start : start + minutes]], axis=0)
                executors, links = part[: o.machines.executors], part[computing:]
                # A link that is always busy carries the achievable share of its bandwidth.
                carried = links * o.machines.achievable
                rows.append(
                    {
                        "policy": o.policy,
                        "registered": o.queries,
                        "minute": start,
                        **_spread("cpu", executors),
                        **_spread("network", carried),
                    }
                )
        return rows

    def traffic(self) -> list[Row]:
        """Return the bytes of each kind of message, for each run."""
        return [
            {"policy": o.policy, "registered": o.queries, "kind": kind, "bytes": round(amount)}
            for o in self.outcomes
            for kind, amount in o.traffic.items()
        ]

    def journal(self) -> list[Row]:
        """Return all decisions with their reasons, in order."""
        return [
            {"policy": o.policy, "registered": o.queries, **entry}
            for o in self.outcomes
            for entry in o.journal
        ]


def run_experiment(
    settings: Settings,
    density: Density,
    on_minute: Progress = lambda policy, queries: None,
) -> Experiment:
    """Run all policies and numbers of queries, one after another."""
    outcomes = []
    for queries in settings.scenario.queries:
        space = Field(density, settings.scenario, queries, settings.seed)
        for name in settings.policies:
            outcomes.append(
                run_policy(
                    name,
                    settings.scenario,
                    space,
                    settings.machines,
                    settings.service,
                    settings.seed,
                    partial(on_minute, name, queries),
                )
            )
    return Experiment(settings, density.name, outcomes)


def _spread(what: str, values: Any) -> Row:
    return {
        f"{what}_mean": round(float(values.mean()), 4),
        f"{what}_min": round(float(values.min()), 4),
        f"{what}_max": round(float(values.max()), 4),
    }


def _mean(values: Sequence[float | None]) -> float | None:
    """Return the mean without None, to seven digits; None if there are no values."""
    there = [value for value in values if value is not None]
    return float(f"{np.mean(there):.7g}") if there else None
