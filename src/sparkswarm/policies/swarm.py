"""SWARM as a policy: the Coordinator's side on the driver, the load-balancing unit's in the tasks.

``SwarmController`` holds the Coordinator and the rounds; it runs on the driver, between batches,
for microseconds. ``SwarmAgent`` holds the load-balancing unit of one executor between two batches;
it runs where there is least to send: on the driver while statistics are small, else in a task. What
the Coordinator says is in the agents' control, what the units say in their reports. No batch waits
for a round, and losing a file with statistics costs one less informed round, never a result.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import chain
from typing import ClassVar, cast

import numpy as np

from sparkswarm.compiled import FloatArray
from sparkswarm.config import SwarmConfig
from sparkswarm.geometry import Grid, QueryCells
from sparkswarm.policies.lending_prices import BlockSums, CandidatePrice, LendingPrices
from sparkswarm.policies.policy import (
    Agent,
    AgentContext,
    AgentReport,
    Collected,
    Controller,
    ForcedChange,
    History,
    PointRouter,
    TaskWork,
)
from sparkswarm.policies.routing import RouteByPlan
from sparkswarm.policies.static_history import StaticHistory
from sparkswarm.protocol.coordinator import Coordinator
from sparkswarm.protocol.cost import Prices, make_cost_model
from sparkswarm.protocol.global_index import GlobalIndex
from sparkswarm.protocol.holding import Holding
from sparkswarm.protocol.hosts import ONE_HOST, Hosts
from sparkswarm.protocol.messages import (
    EVERYONE,
    JOURNAL,
    CloseRound,
    CostReport,
    Decision,
    MeasuredThroughput,
    Message,
    PlanPublished,
    ReportsDue,
    TakenOver,
    Takeover,
)
from sparkswarm.protocol.partition import Partition, PlanChange
from sparkswarm.protocol.plan import Plan
from sparkswarm.protocol.statistics import Statistics
from sparkswarm.protocol.unit import LoadBalancingUnit
from sparkswarm.store.files import FileRef, Folder
from sparkswarm.store.statistics import (
    QueryChanges,
    SoftStatistics,
    keep,
    open_soft,
    recall,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SwarmControl:
    """What the controller says to the agents of one batch.

    Attributes
    ----------
    prices
        Learnt from all executors together: on Spark any worker may do any executor's work.
    closes_round
        The round that ends with this batch; None where it goes on.
    round_length
        Length of that round, as a multiple of the configured length.
    changes
        How the plan changed since the batch before.
    messages
        What the Coordinator says to each executor.
    handed_over
        Statistics of partitions that executors take over with ``changes``.
    statistics
        The statistics of each executor.
    collected
        What tasks collected of an executor's partitions.
    is_light
        Whether all executors have statistics, all are here, and no queries need to be read.
    hosts
        The hosts of the executors.
    """

    prices: Prices
    closes_round: int | None = None
    round_length: float = 1.0
    changes: tuple[PlanChange, ...] = ()
    messages: Mapping[int, tuple[Message, ...]] = field(default_factory=dict)
    handed_over: Mapping[int, tuple[SoftStatistics, ...]] = field(default_factory=dict)
    statistics: Mapping[int, SoftStatistics] = field(default_factory=dict)
    collected: Mapping[int, tuple[SoftStatistics, ...]] = field(default_factory=dict)
    is_light: bool = False
    hosts: Hosts = ONE_HOST

    @property
    def due(self) -> bool:
        """Whether a round ends, the plan changed, someone is told something, or all is new."""
        ends = self.closes_round is not None
        told = bool(self.messages or self.changes or self.handed_over)
        return ends or told or not self.statistics


@dataclass(frozen=True, slots=True)
class SwarmPolicy:
    """SWARM: a first division, and then what the Coordinator makes of it."""

    name: ClassVar[str] = "swarm"
    rebalances: ClassVar[bool] = True

    def first_plan(self, grid: Grid, executors: int, history: History | None = None) -> Plan:
        """Return the even division; with a history, the one that divides its cost.

        Half of the cost is the points, which say where state is if they are those of queries.
        """
        if history is None:
            return Plan.initial(grid, executors)
        return StaticHistory(None).first_plan(grid, executors, history)

    def router(self, index: GlobalIndex, executors: int) -> PointRouter:
        """Route by the plan."""
        return RouteByPlan(index)

    def controller(self, plan: Plan, config: SwarmConfig) -> Controller:
        """Return a Coordinator for this plan, in its first round."""
        return SwarmController(plan, config)

    def agent(self, context: AgentContext) -> Agent:
        """Return the executor's load-balancing unit."""
        return SwarmAgent(context)


@lru_cache(maxsize=16)
def effective(config: SwarmConfig) -> SwarmConfig:
    """Return the settings of the protocol: what is lent need not be shared."""
    return replace(config, shared_cells=config.shared_cells and not config.lending)


class SwarmController:
    """The Coordinator on the driver, and the rounds.

    Rounds end at the boundaries of batches, by time or by number of batches.
    """

    def __init__(
        self, plan: Plan, config: SwarmConfig, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._coordinator = Coordinator(plan, effective(config))
        self._config = config
        self._clock = clock
        self._prices = self._learnt = Prices()
        self.round = 0
        self._started = clock()
        self._batches = 0
        self._points = self._longest_s = 0.0
        self._batch_points = 0
        self._control: SwarmControl | None = None
        self._outbox: dict[int, list[Message]] = {}
        self._changes: list[PlanChange] = []
        self._handed_over: dict[int, list[SoftStatistics]] = {}
        self._statistics: dict[int, SoftStatistics] = {}
        # What was collected: in files, and, added up by partition, what came without one.
        self._collected: list[Collected] = []
        self._summed: dict[int, FloatArray] = {}
        self._candidate_price = CandidatePrice()

    @property
    def match_weight(self) -> float:
        """Number of checks that take as long as one match."""
        return self._prices.per_match / self._prices.per_check

    @property
    def lending_prices(self) -> LendingPrices | None:
        """Prices of points for lending; None where nothing is lent."""
        if not self._config.lending:
            return None
        prices = self._candidate_price.prices(self._learnt)
        return replace(prices, batch_points=self._batch_points)

    @property
    def soft_files(self) -> frozenset[str]:
        """Names of the soft files that agents may still read."""
        kept = [*self._statistics.values(), *(one.points for one in self._collected)]
        kept += chain.from_iterable(self._handed_over.values())
        return frozenset(one.name for one in kept if isinstance(one, FileRef))

    @property
    def plan(self) -> Plan:
        """The plan of the next batch."""
        return self._coordinator.plan

    def use_hosts(self, hosts: Hosts) -> None:
        """Take note of the hosts of the executors; by default all share one."""
        self._coordinator.hosts = hosts

    def resize(self, executors: int) -> tuple[Decision, ...]:
        """Change the number of executors from the next batch on."""
        self._outbox.clear()
        decisions = self._deliver(self._coordinator.resize(executors))
        self._statistics = {m: ref for m, ref in self._statistics.items() if m < executors}
        return tuple(decisions)

    def force(self, change: ForcedChange) -> None:
        """Change the plan by hand from the next batch on."""
        plan, changes = change(self.plan)
        self._outbox.clear()
        self._coordinator.plan = plan
        self._changes += changes

    def begin_batch(self) -> SwarmControl:
        """Return what the agents of the next batch must know; each thing is said once."""
        self._batches += 1
        configured = self._config.round_batches or self._config.round_seconds
        elapsed = self._batches if self._config.round_batches else self._clock() - self._started
        # Costs reported while an executor is about to give load away would be outdated at once.
        closes = elapsed >= configured and not self._outbox
        if closes:
            # The same prices for a round's costs and for what is done about them.
            self._prices = self._learnt
        length = elapsed / configured if closes and configured else 1.0
        return self._next_control(self.round if closes else None, length)

    def continue_batch(self) -> SwarmControl | None:
        """Return what the agents must know at once; None where there is nothing, or too much."""
        if not (self._outbox or self._changes or self._handed_over) or not self._is_light:
            return None
        return self._next_control()

    def _next_control(
        self, closes_round: int | None = None, round_length: float = 1.0
    ) -> SwarmControl:
        self._control = SwarmControl(
            prices=self._prices,
            closes_round=closes_round,
            round_length=round_length,
            changes=tuple(self._changes),
            messages={m: tuple(messages) for m, messages in self._outbox.items()},
            handed_over={m: tuple(some) for m, some in self._handed_over.items()},
            statistics=dict(self._statistics),
            collected=self._collected_by_owner(),
            is_light=self._is_light,
            hosts=self._coordinator.hosts,
        )
        self._outbox, self._changes, self._handed_over = {}, [], {}
        return self._control

    @property
    def _is_light(self) -> bool:
        """Whether the agents need no file."""
        reads_queries = make_cost_model(self._config.cost_model).needs_exact_queries
        known = len(self._statistics) == self.plan.executors
        return known and not reads_queries and not self.soft_files

    def _collected_by_owner(self) -> dict[int, tuple[SoftStatistics, ...]]:
        # Of a shared partition, the first owner counts what others collected.
        owner = {p.id: p.owners[0] for p in self.plan.partitions if p.owners}
        here: dict[int, dict[int, FloatArray]] = {}
        for key, points in self._summed.items():
            if key in owner:
                here.setdefault(owner[key], {})[key] = points
        found: dict[int, list[SoftStatistics]] = {m: [some] for m, some in here.items()}
        for one in self._collected:
            for m in {owner[key]: None for key in one.partitions if key in owner}:
                found.setdefault(m, []).append(one.points)
        return {m: tuple(some) for m, some in found.items()}

    def observe(
        self,
        work: Sequence[TaskWork],
        prices: Prices,
        collected: Sequence[Collected] = (),
        candidates: Sequence[BlockSums] = (),
        found: Sequence[BlockSums] = (),
    ) -> None:
        """Take note of what the tasks of the batch did; agents hear the prices round by round."""
        self._learnt = prices
        for one in collected:
            if isinstance(one.points, FileRef):
                self._collected.append(one)
                continue
            for key, points in one.points.items():
                earlier = self._summed.get(key)
                self._summed[key] = points if earlier is None else earlier + points
        if candidates:
            seconds = sum(prices.per_check * w.checks + prices.per_match * w.matches for w in work)
            self._candidate_price.observe(seconds, candidates, found)
        self._batch_points = sum(one.points for one in work)
        self._points += self._batch_points
        self._longest_s += max((one.seconds for one in work), default=0.0)

    def end_batch(self, reports: Sequence[AgentReport]) -> tuple[Decision, ...]:
        """Take in the reports of the batch's agents, if they ran; return what was decided."""
        if reports and self._control is not None:
            given = chain.from_iterable(self._control.collected.values())
            read = {one for one in given if isinstance(one, FileRef)}
            self._collected = [one for one in self._collected if one.points not in read]
            self._summed = {}
        reports = sorted(reports, key=lambda report: report.executor)
        for report in reports:
            if report.statistics is not None:
                self._statistics[report.executor] = report.statistics
            for receiver, some in report.handed_over.items():
                self._handed_over.setdefault(receiver, []).append(some)
        messages = [message for report in reports for message in report.messages]
        # Proposals answer the round before; costs open the next.
        costs = [message for message in messages if isinstance(message, CostReport)]
        decisions = self._deliver(m for m in messages if not isinstance(m, CostReport))
        if self._control is None or self._control.closes_round is None:
            return tuple(decisions)
        if self._longest_s > 0:
            decisions += self._deliver(
                [MeasuredThroughput(self.round, self._points / self._longest_s)]
            )
        decisions += self._deliver([*costs, ReportsDue(self.round)])
        self.round += 1
        self._started, self._batches = self._clock(), 0
        self._points = self._longest_s = 0.0
        return tuple(decisions)

    def _deliver(self, messages: Iterable[Message]) -> list[Decision]:
        """Pass messages on until all have arrived; return the decisions among them."""
        decisions = []
        queue = deque(messages)
        while queue:
            message = queue.popleft()
            if isinstance(message, Decision):
                decisions.append(message)
            elif isinstance(message, PlanPublished):
                self._changes += message.changes
            elif isinstance(message.to, int):
                self._outbox.setdefault(message.to, []).append(message)
            elif message.to not in (EVERYONE, JOURNAL):
                queue.extend(self._coordinator.handle(message))
        return decisions


class SwarmAgent:
    """The load-balancing unit of one executor between two batches.

    Its statistics are kept by the controller, because the next one may run anywhere.
    """

    def __init__(self, context: AgentContext) -> None:
        self._context = context
        self._control = control = cast(SwarmControl, context.control)
        executor, config = context.executor, effective(context.config)
        statistics = recall(context.files, control.statistics.get(executor))
        if statistics is None:
            partitions = context.plan.owned_by(executor)
            self._unit = LoadBalancingUnit(executor, partitions, config, self._queries_of)
            self._unit.recount_queries()
            self._unit.use_prices(control.prices)
            self._unit.use_hosts(control.hosts)
            self._add_collected()
            return
        # Where an estimate of the queries is enough, none is read.
        exact = make_cost_model(config.cost_model).needs_exact_queries
        queries_of = self._queries_of if exact else None
        self._unit = LoadBalancingUnit(executor, self._previous_partitions(), config, queries_of)
        self._unit.use_prices(control.prices)
        self._unit.use_hosts(control.hosts)
        self._unit.restore(statistics)
        for handed_over in control.handed_over.get(executor, ()):
            self._take_over(handed_over)
        if control.changes:
            self._unit.handle(PlanPublished(context.plan.version, control.changes))
        self._count_query_changes()
        self._add_collected()

    def close(self) -> AgentReport:
        """Answer the Coordinator, close the round where it ends, and keep the statistics."""
        control, executor = self._control, self._context.executor
        messages: list[Message] = []
        handed_over: dict[int, SoftStatistics] = {}
        for message in control.messages.get(executor, ()):
            for answer in self._unit.handle(message):
                if isinstance(answer, Takeover):
                    receiver = int(answer.to)
                    handed_over[receiver] = self._hand_over(answer)
                    # What is in the store has arrived.
                    messages += self._unit.handle(TakenOver(receiver, executor, answer.round))
                else:
                    messages.append(answer)
        if control.closes_round is not None:
            close = CloseRound(executor, control.closes_round, length=control.round_length)
            messages += self._unit.handle(close)
        return AgentReport(
            executor=executor,
            messages=tuple(messages),
            handed_over=handed_over,
            statistics=self._keep("state", self._unit.state()),
        )

    def _previous_partitions(self) -> tuple[Partition, ...]:
        """Return what the executor held in the batch before, when its statistics were written."""
        plan = {p.id: p for p in self._context.plan.partitions}
        for change in reversed(self._control.changes):
            for partition in change.created:
                plan.pop(partition.id, None)
            plan.update({partition.id: partition for partition in change.retired})
        return tuple(p for p in plan.values() if self._context.executor in p.owners)

    def _queries_of(self, partition: Partition) -> QueryCells:
        return self._context.queries_in(partition.cells)

    def _count_query_changes(self) -> None:
        """Count the queries that this batch added and removed."""
        held = {p.id for p in self._unit.partitions}
        for ref in self._context.query_changes:
            content = open_soft(self._context.files, ref)
            if content is None:
                continue
            changes = QueryChanges.from_bytes(content)
            for key in held.intersection(np.unique(changes.partition).tolist()):
                added, removed = changes.of(key)
                self._unit.collect_queries(key, added)
                self._unit.remove_queries(key, removed)

    def _add_collected(self) -> None:
        """Add what other tasks collected of this executor's partitions."""
        held = {p.id: p for p in self._unit.partitions if p.owners[0] == self._context.executor}
        for some in self._control.collected.get(self._context.executor, ()):
            for partition_id, points in (recall(self._context.files, some) or {}).items():
                if partition_id in held:
                    self._unit.statistics(partition_id).add_points(points)

    # -- between executors and batches -------------------------------------------------------

    def _take_over(self, handed_over: SoftStatistics) -> None:
        created = {p.id: p for c in self._control.changes for p in c.created}
        holdings = tuple(
            Holding(created[key], Statistics(created[key].cells, value.copy()))
            for key, value in (recall(self._context.files, handed_over) or {}).items()
            if key in created
        )
        # The round only says how long a unit remembers them; here they are used at once.
        self._unit.handle(Takeover(-1, self._context.executor, 0, holdings))

    def _hand_over(self, takeover: Takeover) -> SoftStatistics:
        values = {h.partition.id: h.statistics.values for h in takeover.holdings}
        return self._keep(f"parcel-{takeover.to}", values)

    def _keep(self, name: str, values: Mapping[int, FloatArray]) -> SoftStatistics:
        context = self._context
        name = f"m{context.executor}-{name}"
        return keep(
            context.files,
            values,
            context.plan.executors,
            lambda: context.file_name(Folder.SOFT, name),
        )
