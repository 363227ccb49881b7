"""An executor's part in snapshot queries: asks as m_q, and answers other machines.

Owns the open queries of one executor and its windows of recent points. How the chain of previous
owners is followed is in :mod:`.snapshot_chain`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sparkswarm.protocol.partition import PlanChange
from sparkswarm.sim.bugs import Bug
from sparkswarm.sim.clock import MILLISECOND
from sparkswarm.sim.kept_points import KeptPoints, Rectangle, SimCount
from sparkswarm.sim.lineage import Lineage
from sparkswarm.sim.snapshot_chain import (
    Acknowledgement,
    ChainResults,
    Question,
    Request,
    SnapshotQuery,
    Step,
    answer,
)
from sparkswarm.sim.tuples import Answered, Point, RoutedAsk

if TYPE_CHECKING:
    from sparkswarm.sim.executor import Executor

POINTS_PER_MESSAGE = 3
"""Low, so that answers take several messages."""

SPREAD = 3 * MILLISECOND
"""Results are sent within this time; the acknowledgement may overtake them."""

REPEAT = 8
"""A machine that has not answered is asked again every n-th beat."""

SLACK = 600 * MILLISECOND
"""Points and lineage are kept this much longer than the window, for queries that are under way
and because machines learn of a change at different times."""

QUERIES = 10_000
"""The n-th query of an incarnation of m_q has the number incarnation x QUERIES + n."""


@dataclass(slots=True)
class _Open:
    """A query that m_q has not answered yet."""

    asked: RoutedAsk
    query: SnapshotQuery
    requests: dict[Step, Request]
    parts: dict[Step, int]
    beats: int = 0


class Snapshots:
    """The windows and the open snapshot queries of one executor."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._world = executor.world
        self._open: dict[int, _Open] = {}
        self._count = 0
        self._lineage = Lineage()

    # -- the window ---------------------------------------------------------------------------

    def follow(self, change: PlanChange) -> None:
        """Add the partitions that a change retired to the lineage."""
        self._lineage.record(change, self._world.clock.now)

    def begin(self, partition_id: int, began: float) -> None:
        """Start the window of a partition."""
        windows = self._executor.holdings.durable.windows
        windows[partition_id] = KeptPoints(self._world.grid, self._world.window, began)

    def keep(self, partition_id: int, point: Point) -> None:
        """Store a point until it expires."""
        now = self._world.clock.now
        self._executor.holdings.durable.windows[partition_id].add(
            self._world.point_id(point), point.x, point.y, now
        )
        self._world.oracle.kept(self._executor.number, point)

    def expire(self) -> None:
        """Drop expired points and partitions."""
        before = self._world.clock.now - SLACK
        windows = self._executor.holdings.durable.windows
        for kept in windows.values():
            kept.expire(before)
        if not isinstance(self._world.window, SimCount):
            for partition in self._lineage.expire(self._world.window.since(before)):
                windows.pop(partition.id, None)

    # -- answering ----------------------------------------------------------------------------

    def answer(self, request: Request) -> None:
        """Answer for one step of a query."""
        executor, partition = self._executor, request.step.partition
        kept = executor.holdings.durable.windows.get(partition.id)
        if kept is None and executor.holdings.awaits(partition.id):
            # No points here yet: m_q must ask all parents.
            kept = KeptPoints(self._world.grid, self._world.window, math.inf)
        successors = (
            [p for p in executor.holdings.current.values() if p.cells.overlaps(request.step.cells)]
            if partition.id not in executor.holdings.current
            else []
        )
        messages = answer(request, kept, self._lineage, successors, POINTS_PER_MESSAGE)
        for message in messages:
            if isinstance(message, ChainResults):
                delay = int(self._world.rng.random() * SPREAD)
                executor.after(delay, self._send, message)
            else:
                self._send(message)

    def _send(self, message: Request | ChainResults | Acknowledgement) -> None:
        self._executor.send_or_do(f"ex{message.to}", message)

    # -- asking -------------------------------------------------------------------------------

    def ask(self, asked: RoutedAsk) -> None:
        """Start a snapshot query, as its m_q."""
        self._count += 1
        number = self._executor.incarnation * QUERIES + self._count
        question = Question.about(
            number,
            self._executor.number,
            Rectangle(*asked.ask.rectangle),
            self._world.window,
            self._world.clock.now,
        )
        query = SnapshotQuery(
            question,
            list(self._executor.holdings.current.values()),
            self._world.grid,
            self._lineage,
        )
        self._open[number] = _Open(asked, query, {}, {})
        self._go_on(number, query.start())

    def handle(self, source: str, message: ChainResults | Acknowledgement) -> None:
        """Handle the answer of a machine."""
        opened = self._open.get(message.number)
        if opened is None:
            return
        if isinstance(message, ChainResults):
            opened.parts[message.step] = opened.parts.get(message.step, 0) + 1
        elif Bug.ACKNOWLEDGED_WITHOUT_COUNT in self._world.bugs:
            message = replace(message, results=opened.parts.get(message.step, 0))
        sender = int(source.removeprefix("ex"))
        self._go_on(message.number, opened.query.handle(sender, message))

    def beat(self) -> None:
        """Give up dead machines, and repeat requests to silent ones."""
        for number, opened in list(self._open.items()):
            opened.beats += 1
            for machine in opened.query.waiting_for:
                if machine in self._executor.absent or self._has_lost(opened, machine):
                    self._go_on(number, opened.query.give_up(machine))
                elif opened.beats % REPEAT == 0:
                    for step, request in list(opened.requests.items()):
                        if step.machine == machine:
                            self._send(request)

    def _has_lost(self, opened: _Open, machine: int) -> bool:
        """Whether a machine has died since it stored the points that it is asked for."""
        return any(
            step.machine == machine and self._world.store.has_lost((step.partition.id, machine))
            for step in opened.requests
        )

    def _go_on(self, number: int, requests: list[Request]) -> None:
        """Send further requests; answer the source when all results are in."""
        opened = self._open.get(number)
        if opened is None:
            return
        for request in requests:
            opened.requests[request.step] = request
        for request in requests:
            self._send(request)
        found = opened.query.answer
        if found is None or number not in self._open:
            return
        del self._open[number]
        question = opened.query.question
        since = 0 if question.since == -math.inf else math.ceil(question.since)
        points = tuple(self._world.point_of(int(i)) for i in found.points["id"])
        self._executor.send(
            opened.asked.source,
            Answered(
                number=opened.asked.ask.number,
                since=since,
                until=int(min(question.until, self._world.clock.now)),
                points=points,
                partial_because=found.partial_because,
            ),
        )
