"""The planner: which plan the next batch runs under, whatever the policy.

Owns the way from one batch's plan to the next one's: what the Coordinator decided, and how
many executors are wanted. For policies that do not rebalance there is no Coordinator.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from sparkswarm.config import SwarmConfig
from sparkswarm.policies.controller import Steering
from sparkswarm.policies.policy import History, make_policy, replanned
from sparkswarm.protocol.messages import Decision
from sparkswarm.protocol.partition import PlanChange
from sparkswarm.protocol.plan import Plan
from sparkswarm.spark.task_input import Control, ExecutorReport
from sparkswarm.store.epochs import Commit
from sparkswarm.store.manifest import Manifest

Imposed = Callable[[Plan], tuple[Plan, Iterable[PlanChange]]]


class Planner:
    """Makes the plans of one run.

    Batches run in one thread, users ask in others: what they want is noted under a lock and
    takes effect between batches.
    """

    def __init__(self, config: SwarmConfig, buckets: int, history: History | None) -> None:
        self._config = config
        self._buckets = buckets
        self._history = history
        self._policy = make_policy(config.policy)
        self._steering: Steering | None = None
        self._plan: Plan | None = None
        self._wanted = config.executors
        self._heard = 0
        self._imposed: list[Imposed] = []
        self._lock = threading.Lock()

    # -- what users want -------------------------------------------------------------------

    def want_executors(self, executors: int) -> None:
        """Run with so many executors from the next batch on."""
        with self._lock:
            self._wanted = executors

    def impose(self, change: Imposed) -> None:
        """Change the plan by hand from the next batch on."""
        with self._lock:
            self._imposed.append(change)

    @property
    def journal(self) -> list[Decision]:
        """The last decisions, with their reasons."""
        return list(self._steering.journal) if self._steering else []

    def news(self) -> list[Decision]:
        """Return the decisions since this was last asked; if they are very many, the last."""
        if not self._steering:
            return []
        new = self._steering.told - self._heard
        self._heard = self._steering.told
        return self.journal[-new:] if new else []

    @property
    def round(self) -> int:
        """The round under way."""
        return self._steering.round if self._steering else 0

    @property
    def plan(self) -> Plan | None:
        """The plan of the last batch that began."""
        return self._plan

    # -- from batch to batch ---------------------------------------------------------------

    def first(self) -> tuple[Plan, Manifest]:
        """Return what a run begins with."""
        plan = self._policy.first_plan(
            self._config.make_grid(), self._config.executors, self._history
        )
        return plan, Manifest.initial(plan.partitions, self._buckets)

    def resume(self, plan: Plan) -> None:
        """Go on from a plan that is fixed already."""
        self._plan = plan
        self._steering = Steering(plan, self._config) if self._policy.rebalances else None
        self._heard = 0

    def next(self, commit: Commit) -> tuple[Plan, Manifest]:
        """Return the plan of the next batch, and the manifest that goes with it."""
        if self._plan is None:
            self.resume(commit.plan)
        assert self._plan is not None
        with self._lock:
            wanted, imposed, self._imposed = self._wanted, self._imposed, []
        if self._steering:
            if wanted != self._steering.plan.executors:
                self._steering.resize(wanted)
            for change in imposed:
                self._steering.impose(change)
            self._plan = self._steering.plan
        elif wanted != self._plan.executors:
            self._plan = replanned(self._plan, wanted, self._policy, self._history)
        manifest = commit.manifest
        if self._plan.partitions != commit.plan.partitions:
            manifest = manifest.for_plan(commit.plan.partitions, self._plan.partitions)
        return self._plan, manifest

    def begin(self) -> Control | None:
        """Return the control's part of the next briefing; None where nobody rebalances."""
        return self._steering.begin() if self._steering else None

    def digest(self, control: Control | None, reports: list[ExecutorReport]) -> None:
        """Take in what the executors report after a batch."""
        if self._steering and control:
            self._steering.digest(control, reports)
