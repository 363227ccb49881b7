"""The whole protocol in one process, for tests, experiments and benchmarks.

Connects a Coordinator, its load-balancing units and a GlobalIndex, and delivers every message
at once and in order. Nothing is distributed and nothing fails; it is not meant for production.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping

from sparkswarm.compiled import FloatArray
from sparkswarm.config import SwarmConfig
from sparkswarm.geometry import QueryCells
from sparkswarm.protocol.coordinator import Coordinator
from sparkswarm.protocol.global_index import GlobalIndex, RoutedPoints
from sparkswarm.protocol.messages import (
    COORDINATOR,
    CloseRound,
    Decision,
    Message,
    PlanPublished,
)
from sparkswarm.protocol.partition import Partition, PlanChange
from sparkswarm.protocol.plan import Plan
from sparkswarm.protocol.unit import LoadBalancingUnit


class LocalSwarm:
    """All of the protocol in one process.

    Parameters
    ----------
    plan
        The first plan; by default the even division of the space.
    queries_of
        Passed on to the units.

    Attributes
    ----------
    decisions
        Every decision since the beginning.
    changes
        The changes of the plan in the last round, or of a resize since.
    sent
        Every message since the beginning, if ``keep_messages``.
    """

    def __init__(
        self,
        config: SwarmConfig,
        plan: Plan | None = None,
        queries_of: Callable[[Partition], QueryCells] | None = None,
        keep_messages: bool = False,
    ) -> None:
        plan = plan or Plan.initial(config.make_grid(), config.executors)
        self.coordinator = Coordinator(plan, config)
        self.index = GlobalIndex(plan)
        self.units = [
            LoadBalancingUnit(m, plan.owned_by(m), config, queries_of)
            for m in range(plan.executors)
        ]
        self.decisions: list[Decision] = []
        self.sent: list[Message] = []
        self.changes: list[PlanChange] = []
        self._keep = keep_messages
        self._config = config
        self._queries_of = queries_of

    @property
    def plan(self) -> Plan:
        """The plan in force."""
        return self.coordinator.plan

    def send(self, x: FloatArray, y: FloatArray, checks: FloatArray | None = None) -> RoutedPoints:
        """Route points to their executors and collect their statistics there."""
        routed = self.index.route(x, y)
        for unit in self.units:
            mine = routed.owner == unit.executor
            unit.collect_points(
                routed.partition[mine],
                routed.column[mine],
                routed.row[mine],
                None if checks is None else checks[mine],
            )
        return routed

    def close_round(self, number: int, busy: Mapping[int, float] | None = None) -> list[Decision]:
        """End a round and deliver messages until there are none left; return its decisions."""
        before = len(self.decisions)
        self.changes.clear()
        busy = busy or {}
        self.deliver(CloseRound(m, number, busy.get(m)) for m in range(len(self.units)))
        return self.decisions[before:]

    def resize(self, executors: int) -> None:
        """Change the number of executors between two rounds.

        New units start without partitions. Partitions of units that leave are taken over
        without their statistics.
        """
        messages = self.coordinator.resize(executors)
        self.changes.clear()
        new = range(len(self.units), executors)
        self.units = self.units[:executors] + [
            LoadBalancingUnit(m, (), self._config, self._queries_of) for m in new
        ]
        self.deliver(messages)

    def deliver(self, messages: Iterable[Message]) -> None:
        """Deliver messages and those sent in answer."""
        queue = deque(messages)
        while queue:
            message = queue.popleft()
            if self._keep:
                self.sent.append(message)
            if isinstance(message, Decision):
                self.decisions.append(message)
            elif message.to == COORDINATOR:
                queue.extend(self.coordinator.handle(message))
            elif isinstance(message, PlanPublished):
                self.changes += message.changes
                for change in message.changes:
                    self.index.apply(change)
                for unit in self.units:
                    queue.extend(unit.handle(message))
            else:
                queue.extend(self.units[int(message.to)].handle(message))
