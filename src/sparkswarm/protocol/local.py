"""A whole SWARM in one process, for tests, benchmarks and documentation.

Coordinator, load-balancing units and GlobalIndex wired together, every message delivered at
once and in order. It is an instrument, not a product: nothing is distributed and nothing
can fail.
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
    EVERYONE,
    CloseRound,
    Decision,
    Message,
    PlanPublished,
)
from sparkswarm.protocol.partition import Partition, PlanChange
from sparkswarm.protocol.plan import Plan
from sparkswarm.protocol.unit import LoadBalancingUnit


class LocalSwarm:
    """All machines of the protocol, talking at once.

    Parameters
    ----------
    config
        The settings.
    plan
        Where to start; by default the even division of the space.
    queries_of
        Passed on to the units.

    Attributes
    ----------
    journal
        Every decision so far, with its reason.
    changes
        The changes of the plan in the last round, or of the resize since.
    sent
        Every message so far, if ``keep_messages``.
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
        self.journal: list[Decision] = []
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
        """End a round everywhere and let the protocol talk until it falls silent."""
        before = len(self.journal)
        self.changes.clear()
        busy = busy or {}
        self.deliver(CloseRound(m, number, busy.get(m)) for m in range(len(self.units)))
        return self.journal[before:]

    def resize(self, executors: int) -> None:
        """Go on with that many executors, between two rounds.

        The last units go, new ones come and hold nothing yet. What is taken over from those
        that go is taken over without its statistics.
        """
        messages = self.coordinator.resize(executors)
        self.changes.clear()
        new = range(len(self.units), executors)
        self.units = self.units[:executors] + [
            LoadBalancingUnit(m, (), self._config, self._queries_of) for m in new
        ]
        self.deliver(messages)

    def deliver(self, messages: Iterable[Message]) -> None:
        """Deliver messages and all that they cause."""
        queue = deque(messages)
        while queue:
            message = queue.popleft()
            if self._keep:
                self.sent.append(message)
            if isinstance(message, Decision):
                self.journal.append(message)
            elif message.to == COORDINATOR:
                queue.extend(self.coordinator.handle(message))
            elif message.to == EVERYONE:
                assert isinstance(message, PlanPublished)
                self.changes += message.changes
                for change in message.changes:
                    self.index.apply(change)
                for unit in self.units:
                    queue.extend(unit.handle(message))
            else:
                queue.extend(self.units[int(message.to)].handle(message))
