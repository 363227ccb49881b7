"""Steering: the Coordinator on the driver, and the rounds.

Owns the control's way: reports come in after a batch, the Coordinator decides, and the next
briefing carries what it says. Rounds end at the borders of batches, by time or by number. All
of it takes the driver microseconds, between batches.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable

from sparkswarm.config import SwarmConfig
from sparkswarm.protocol.coordinator import Coordinator
from sparkswarm.protocol.learning import PriceLearner
from sparkswarm.protocol.messages import (
    EVERYONE,
    JOURNAL,
    CostReport,
    Decision,
    MeasuredThroughput,
    Message,
    PlanPublished,
    ReportsDue,
)
from sparkswarm.protocol.partition import PlanChange
from sparkswarm.protocol.plan import Plan
from sparkswarm.spark.task_input import Control, ExecutorReport
from sparkswarm.store.files import FileRef

JOURNAL_LENGTH = 10_000

MEMORY = 200.0
"""Reports of executors from which prices are learnt, before they fade."""


class Steering:
    """What the driver knows of the load, and what it does about it.

    Attributes
    ----------
    journal
        The last decisions, with their reasons.
    told
        How many decisions there have been.
    round
        The round under way.
    """

    def __init__(
        self, plan: Plan, config: SwarmConfig, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._coordinator = Coordinator(plan, config)
        self._config = config
        self._clock = clock
        self._learner = PriceLearner(memory=MEMORY)
        self._prices = self._learner.prices
        self.journal: deque[Decision] = deque(maxlen=JOURNAL_LENGTH)
        self.told = 0
        self.round = 0
        self._began = clock()
        self._batches = 0
        self._points = self._longest = 0.0
        self._outbox: dict[int, list[Message]] = {}
        self._changes: list[PlanChange] = []
        self._parcels: dict[int, list[FileRef]] = {}
        self._states: dict[int, FileRef] = {}

    @property
    def plan(self) -> Plan:
        """The plan for the next batch."""
        return self._coordinator.plan

    def resize(self, executors: int) -> None:
        """Change the number of executors from the next batch on."""
        self._outbox.clear()
        self._deliver(self._coordinator.resize(executors))
        self._states = {m: ref for m, ref in self._states.items() if m < executors}

    def impose(self, change: Callable[[Plan], tuple[Plan, Iterable[PlanChange]]]) -> None:
        """Change the plan by hand, from the next batch on."""
        plan, changes = change(self.plan)
        self._outbox.clear()
        self._coordinator.plan = plan
        self._changes += changes

    def begin(self) -> Control:
        """Return what the next batch's tasks must know, and take it for told."""
        self._batches += 1
        usual = self._config.round_batches or self._config.round_seconds
        so_far = self._batches if self._config.round_batches else self._clock() - self._began
        due = so_far >= usual
        # Costs reported while someone is about to give load away would be outdated at once.
        closes = self.round if due and not self._outbox else None
        if closes is not None:
            # The same prices for a round's costs and for what is done about them.
            self._prices = self._learner.prices
        control = Control(
            self._prices,
            closes,
            so_far / usual if closes is not None and usual else 1.0,
            tuple(self._changes),
            {m: tuple(messages) for m, messages in self._outbox.items()},
            {m: tuple(refs) for m, refs in self._parcels.items()},
            dict(self._states),
        )
        self._outbox, self._changes, self._parcels = {}, [], {}
        return control

    def digest(self, control: Control, reports: Iterable[ExecutorReport]) -> None:
        """Take in what the executors report after a batch."""
        reports = sorted(reports, key=lambda report: report.executor)
        for report in reports:
            if report.state is not None:
                self._states[report.executor] = report.state
            for m_low, ref in report.parcels.items():
                self._parcels.setdefault(m_low, []).append(ref)
            self._learner.observe(report.points, report.checks, report.busy)
        self._points += sum(report.points for report in reports)
        self._longest += max((report.busy for report in reports), default=0.0)
        said = [message for report in reports for message in report.messages]
        # Proposals answer the round before; costs open the next.
        costs = [message for message in said if isinstance(message, CostReport)]
        self._deliver(message for message in said if not isinstance(message, CostReport))
        if control.closes is None:
            return
        if self._longest > 0:
            self._deliver([MeasuredThroughput(self.round, self._points / self._longest)])
        self._deliver([*costs, ReportsDue(self.round)])
        self.round += 1
        self._began, self._batches = self._clock(), 0
        self._points = self._longest = 0.0

    def _deliver(self, messages: Iterable[Message]) -> None:
        queue = deque(messages)
        while queue:
            message = queue.popleft()
            if isinstance(message, Decision):
                self.journal.append(message)
                self.told += 1
            elif isinstance(message, PlanPublished):
                self._changes += message.changes
            elif isinstance(message.to, int):
                self._outbox.setdefault(message.to, []).append(message)
            elif message.to not in (EVERYONE, JOURNAL):
                queue.extend(self._coordinator.handle(message))
