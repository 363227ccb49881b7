"""The interface of a policy: who gets which point, and whether the plan follows the load.

Whatever the policy, queries are kept by the partitions of a plan. A policy says which plan to start
with and which executor gets a point. One that rebalances also has a *controller*, which runs on the
driver between batches, and *agents*, one in the task of each executor. Nothing here knows Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Protocol

from sparkswarm.compiled import FloatArray, IntArray, LongArray
from sparkswarm.config import SwarmConfig
from sparkswarm.geometry import CellRect, Grid, QueryCells
from sparkswarm.policies.lending_prices import BlockSums, LendingPrices
from sparkswarm.protocol.cost import Prices
from sparkswarm.protocol.global_index import GlobalIndex
from sparkswarm.protocol.hosts import Hosts
from sparkswarm.protocol.messages import Decision, Message
from sparkswarm.protocol.partition import PlanChange
from sparkswarm.protocol.plan import Plan
from sparkswarm.store.files import FileRef, Files
from sparkswarm.store.statistics import SoftStatistics

ForcedChange = Callable[[Plan], tuple[Plan, Sequence[PlanChange]]]
"""Changes a plan by hand: returns the plan that follows and how it differs."""


@dataclass(frozen=True, slots=True, eq=False)
class History:
    """Samples of points and queries from the past.

    Attributes
    ----------
    x, y
        The points; those outside the grid are ignored.
    queries
        The cells of the queries.
    """

    x: FloatArray
    y: FloatArray
    queries: QueryCells


class PointRouter(Protocol):
    """Assigns points to executors under one plan."""

    def assign(self, x: FloatArray, y: FloatArray, keys: LongArray) -> IntArray:
        """Return the executor of every point, -1 where it lies outside the grid.

        ``keys`` are spread evenly: positions are, and so are hashes of the points' ids.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentContext:
    """What an agent is given at the start of a batch.

    Attributes
    ----------
    executor
        Its executor.
    plan, config
        The plan of the batch, and the settings.
    control
        What the controller said for this batch.
    files, file_name
        The checkpoint, and names in it that no other attempt uses: (folder, name) -> name.
    queries_in
        Reads the queries in some cells, clipped to them.
    query_changes
        Files with the queries that batches added and removed, of all executors.
    """

    executor: int
    plan: Plan
    config: SwarmConfig
    control: object
    files: Files
    file_name: Callable[[str, str], str]
    queries_in: Callable[[CellRect], QueryCells]
    query_changes: tuple[FileRef, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """Statistics that a task collected of partitions, whoever owns them.

    Attributes
    ----------
    points
        Points and checks, line by line.
    partitions
        Ids of the partitions.
    """

    points: SoftStatistics
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskWork:
    """What one task matched in one batch, and how long it took."""

    points: int
    checks: int
    matches: int
    pieces: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentReport:
    """What an agent tells the controller at the end of a batch.

    Attributes
    ----------
    executor
        Its executor.
    messages
        For the Coordinator.
    statistics
        The executor's statistics.
    handed_over
        For each executor that takes over partitions, their statistics.
    """

    executor: int
    messages: tuple[Message, ...] = ()
    statistics: SoftStatistics | None = None
    handed_over: Mapping[int, SoftStatistics] = field(default_factory=dict)


class Agent(Protocol):
    """The executor's side of a rebalancing policy, for one batch."""

    def close(self) -> AgentReport:
        """Return messages and statistics at the end of the batch."""


class Control(Protocol):
    """What a controller says to the agents of one batch."""

    @property
    def due(self) -> bool:
        """Whether there is something that agents must do; else they may be left out."""

    @property
    def is_light(self) -> bool:
        """Whether the driver can run the agents: all that they need is here, and small."""


class Controller(Protocol):
    """The driver's side of a rebalancing policy. Called between batches, from one thread."""

    @property
    def plan(self) -> Plan:
        """The plan of the next batch."""

    @property
    def round(self) -> int:
        """The round in progress."""

    @property
    def match_weight(self) -> float:
        """Number of checks that take as long as one match."""

    @property
    def lending_prices(self) -> LendingPrices | None:
        """Prices of points for lending; None where nothing is lent."""

    @property
    def soft_files(self) -> frozenset[str]:
        """Names of the soft files that agents may still read."""

    def use_hosts(self, hosts: Hosts) -> None:
        """Take note of the hosts of the executors; by default all share one."""

    def begin_batch(self) -> Control:
        """Return what the agents of the batch must know. Called once a batch."""

    def continue_batch(self) -> Control | None:
        """Return what agents that run at once on the driver must know after ``end_batch``.

        None where they have nothing to do, or it has to wait for the next batch.
        """

    def observe(
        self,
        work: Sequence[TaskWork],
        prices: Prices,
        collected: Sequence[Collected] = (),
        candidates: Sequence[BlockSums] = (),
        found: Sequence[BlockSums] = (),
    ) -> None:
        """Take note of what the tasks of the batch did.

        Parameters
        ----------
        work
            The tasks that matched points.
        prices
            Learnt from the tasks of this batch and of all before.
        collected
            Statistics of partitions that tasks collected for their owners.
        candidates, found
            By task and block of cells, queries in the cells of points before they were matched;
            and their checks, results among them. Both empty where nothing may be lent.
        """

    def end_batch(self, reports: Sequence[AgentReport]) -> tuple[Decision, ...]:
        """Take in the reports of the batch's agents, if they ran; return what was decided."""

    def resize(self, executors: int) -> tuple[Decision, ...]:
        """Change the number of executors from the next batch on."""

    def force(self, change: ForcedChange) -> None:
        """Change the plan by hand from the next batch on."""


class Policy(Protocol):
    """What the engine asks of a policy. It is frozen data, the same for everyone."""

    @property
    def name(self) -> str:
        """Its name in settings and reports."""

    @property
    def rebalances(self) -> bool:
        """Whether it has a controller, which changes the plan."""

    def first_plan(self, grid: Grid, executors: int, history: History | None = None) -> Plan:
        """Return the plan to start with; PlanError where there is no executor."""

    def router(self, index: GlobalIndex, executors: int) -> PointRouter:
        """Return the router of the plan that ``index`` holds."""

    def controller(self, plan: Plan, config: SwarmConfig) -> Controller | None:
        """Return the driver's side; None where the plan never changes by itself."""

    def agent(self, context: AgentContext) -> Agent | None:
        """Return the executor's side for one batch; None where there is no controller."""


class StaticPolicy:
    """Divides the space evenly at first and never changes the plan by itself."""

    __slots__ = ()
    rebalances: ClassVar[bool] = False

    def first_plan(self, grid: Grid, executors: int, history: History | None = None) -> Plan:
        """Return the even division, whatever the history."""
        return Plan.initial(grid, executors)

    def controller(self, plan: Plan, config: SwarmConfig) -> Controller | None:
        """Return nothing: the plan stays."""
        return None

    def agent(self, context: AgentContext) -> Agent | None:
        """Return nothing: nobody asks for statistics."""
        return None


def replanned(plan: Plan, executors: int, policy: Policy, history: History | None = None) -> Plan:
    """Return the policy's first plan for another number of executors, to follow ``plan``.

    For policies without a controller; SWARM keeps what it has learnt
    (:meth:`~sparkswarm.protocol.coordinator.Coordinator.resize`). The partitions have fresh
    ids and no parents.
    """
    first = policy.first_plan(plan.grid, executors, history)
    ids, reserved = plan.reserve(len(first.partitions))
    partitions = tuple(
        replace(partition, id=fresh_id)
        for fresh_id, partition in zip(ids, first.partitions, strict=True)
    )
    return replace(first, version=plan.version + 1, partitions=partitions, next_id=reserved.next_id)
