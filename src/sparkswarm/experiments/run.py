"""A run: one scenario with one policy, minute by minute.

Owns the loop over slices and rounds, and the recorded numbers. Files are written by
:mod:`sparkswarm.experiments.folder`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sparkswarm.compiled import FloatArray
from sparkswarm.experiments.field import Field
from sparkswarm.experiments.machines import Machines
from sparkswarm.experiments.placement import Load, Moves, Placement, PlacementTotals
from sparkswarm.experiments.policies import place
from sparkswarm.experiments.scenarios import MINUTE, Mix, Scenario
from sparkswarm.experiments.service import Service
from sparkswarm.experiments.slices import Slices
from sparkswarm.observe.describe import reason, what

MICROSECONDS = 1e6


@dataclass(frozen=True, slots=True, eq=False)
class Minute:
    """What happened in one minute.

    Attributes
    ----------
    tuples
        Tuples processed per second.
    queries
        Mean number of queries in the system.
    work
        Units of work per second: queries in the system times tuples processed (paper).
    latency
        Mean seconds of the tuples emitted.
    busy
        Share of the minute that every station was busy.
    """

    tuples: float
    queries: float
    work: float
    latency: float
    busy: FloatArray


@dataclass(slots=True, eq=False)
class Outcome:
    """The result of a policy in a scenario.

    Attributes
    ----------
    policy, machines, queries
        The policy, its machines, and the number of queries registered before.
    minutes
        Minutes of the run; empty if it failed at its start.
    failed
        Why the run failed; None if it did not.
    journal
        Decisions with their times and reasons.
    traffic
        Bytes by kind of message.
    changes
        Changes of the plan.
    """

    policy: str
    machines: Machines
    queries: int
    minutes: list[Minute] = field(default_factory=list)
    failed: str | None = None
    journal: list[dict[str, Any]] = field(default_factory=list)
    traffic: dict[str, float] = field(
        default_factory=lambda: dict.fromkeys(
            ("points", "queries", "statistics", "plan", "moved_queries", "fetched_queries"), 0.0
        )
    )
    changes: int = 0

    def units_of_work(self, start: int = 0, stop: int | None = None) -> float | None:
        """Return the mean units of work per second in some minutes; None if the run failed."""
        part = self.minutes[start:stop]
        return None if self.failed else float(np.mean([m.work for m in part]))

    def latency_us(self, start: int = 0, stop: int | None = None) -> float | None:
        """Return the mean latency in some minutes, in microseconds; None if the run failed."""
        part = self.minutes[start:stop]
        if self.failed:
            return None
        weights = np.array([m.tuples for m in part])
        if weights.sum() <= 0:
            return None
        mean = float(np.average([m.latency for m in part], weights=weights))
        return mean * MICROSECONDS

    def balance(self, start: int = 0, stop: int | None = None) -> float | None:
        """Return the mean balance efficiency in some minutes; None if the run failed."""
        if self.failed:
            return None
        return float(np.mean([self.evenness(m) for m in self.minutes[start:stop]]))

    def evenness(self, minute: Minute) -> float:
        """Return the balance efficiency of a minute: mean / maximum busy time of the executors."""
        busy = minute.busy[: self.machines.executors]
        return float(busy.mean() / busy.max()) if busy.any() else 1.0


def run_policy(
    name: str,
    scenario: Scenario,
    space: Field,
    machines: Machines,
    service: Service,
    seed: int,
    on_minute: Callable[[], None] = lambda: None,
) -> Outcome:
    """Run a scenario with one policy."""
    placement, machines = place(name, space, machines, service, seed)
    outcome = Outcome(name, machines, space.counts[0])
    player = _Player(scenario, space, placement, machines, service, outcome)
    for _ in range(scenario.minutes):
        if outcome.failed is None:
            player.minute()
        on_minute()
    return outcome


class _Player:
    """The state of one run."""

    def __init__(
        self,
        scenario: Scenario,
        space: Field,
        placement: Placement,
        machines: Machines,
        service: Service,
        outcome: Outcome,
    ) -> None:
        self._scenario = scenario
        self._field = space
        self._placement = placement
        self._machines = machines
        self._service = service
        self._outcome = outcome
        self._slices = Slices(machines, service, placement.rebalances)
        self._slice = 0
        self._mix = scenario.mix(0.0)
        self._load: Load | None = None
        self._begin_round()
        self._check_memory()

    def minute(self) -> None:
        """Advance by a minute and record it."""
        m = self._machines
        slices = round(MINUTE / m.slice_seconds)
        processed = emitted = queries = work = latency = 0.0
        busy = np.zeros(m.stations)
        for _ in range(slices):
            passed = self._slices.carry(self._arrive())
            present = float(np.dot(self._field.counts, self._mix.queries))
            emitted += passed.emitted
            processed += passed.processed
            queries += present
            work += present * passed.processed
            latency += passed.latency * passed.emitted
            busy += passed.busy
            self._points += passed.emitted * self._mix.points
            self._met += passed.emitted * np.outer(self._mix.points, self._mix.queries)
            self._round_busy += passed.busy[: m.executors]
            self._slice += 1
            if self._slice % m.slices_a_round == 0:
                self._close_round()
                if self._outcome.failed:
                    return
        self._outcome.traffic["points"] += emitted * m.point_bytes * m.hops
        self._outcome.minutes.append(
            Minute(
                processed / MINUTE,
                queries / slices,
                work / MINUTE,
                latency / emitted if emitted else 0.0,
                busy / MINUTE,
            )
        )

    def _arrive(self) -> Load:
        """Update the mix, and register new queries; return the load of a tuple."""
        mix = self._scenario.mix(self._slice * self._machines.slice_seconds)
        if self._load is not None and mix.same(self._mix):
            return self._load
        more = np.maximum(mix.queries - self._mix.queries, 0.0)
        if more.any():
            new = self._placement.held(Mix(mix.points, more))
            self._slices.register(new)
            self._outcome.traffic["queries"] += float(new.sum()) * self._machines.query_bytes
        self._mix = mix
        self._load = self._placement.load(mix)
        return self._load

    def _begin_round(self) -> None:
        sources = self._field.sources
        self._points: FloatArray = np.zeros(sources)
        self._met: FloatArray = np.zeros((sources, sources))
        self._round_busy: FloatArray = np.zeros(self._machines.executors)

    def _close_round(self) -> None:
        """End the round: let the policy act, and account for what it moves."""
        m = self._machines
        number = self._slice // m.slices_a_round - 1
        log, moves = self._placement.close_round(
            number, PlacementTotals(self._points, self._met), self._mix, self._round_busy
        )
        at = self._slice * m.slice_seconds
        self._outcome.journal += [
            {"time": round(at, 3), "round": d.round, "what": what(d), "reason": reason(d)}
            for d in log
        ]
        if moves is not None:
            self._slices.move(moves)
            self._count(moves)
            self._load = None
        self._begin_round()
        self._check_memory()

    def _count(self, moves: Moves) -> None:
        m, traffic = self._machines, self._outcome.traffic
        traffic["statistics"] += moves.statistics_bytes
        traffic["plan"] += moves.plan_bytes * (m.routers + m.executors)
        traffic["moved_queries"] += float(moves.queries.sum()) * m.query_bytes
        if moves.fetched is not None:
            traffic["fetched_queries"] += float(moves.fetched.sum()) * m.query_bytes
        self._outcome.changes += moves.changes

    def _check_memory(self) -> None:
        """End the run if the queries of an executor do not fit into its memory."""
        needed = self._placement.held(self._mix) * self._service.query_bytes
        worst = int(needed.argmax())
        if needed[worst] > self._machines.memory_bytes:
            gigabytes = (needed[worst] / 2**30, self._machines.memory_bytes / 2**30)
            self._outcome.failed = (
                f"executor {worst} needs {gigabytes[0]:.1f} GB for its queries and has "
                f"{gigabytes[1]:.1f} GB"
            )
            entry = {"what": "failed", "reason": self._outcome.failed}
            at = round(self._slice * self._machines.slice_seconds, 3)
            number = self._slice // self._machines.slices_a_round
            self._outcome.journal.append({"time": at, "round": number, **entry})
