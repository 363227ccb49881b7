"""An executor's part in snapshot queries: it asks as m_q, and answers when asked.

Owns the open queries of one executor and what it keeps of the window; how the chain of previous
owners is followed is the protocol's :mod:`~sparkswarm.sim.snapshot_chain`.
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
    Question,
    Request,
    Results,
    SnapshotQuery,
    Step,
    answer,
)
from sparkswarm.sim.tuples import Answered, Asked, Point

if TYPE_CHECKING:
    from sparkswarm.sim.executor import Executor

POINTS_PER_MESSAGE = 3
"""Few, so that answers take several messages."""

SPREAD = 3 * MILLISECOND
"""Results are sent by a background task, within this time: the acknowledgement may overtake."""

REPEAT = 8
"""A machine that has not answered is asked again every so many beats."""

SLACK = 600 * MILLISECOND
"""How much longer than the window data and chains are kept: for queries that are on their way
when the window moves on, and because machines learn of a change at different times."""

QUERIES = 10_000
"""A query of m_q is numbered incarnation x QUERIES + how many came before."""


@dataclass(slots=True)
class _Open:
    """A query that m_q has not answered yet."""

    asked: Asked
    query: SnapshotQuery
    requests: dict[Step, Request]
    parts: dict[Step, int]
    beats: int = 0


class Snapshots:
    """What executor m knows of windows, and its open snapshot queries."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._world = executor.world
        self._open: dict[int, _Open] = {}
        self._count = 0
        self._lineage = Lineage()

    # -- the window ---------------------------------------------------------------------------

    def follow(self, change: PlanChange) -> None:
        """Remember who held these cells before."""
        self._lineage.record(change, self._world.clock.now)

    def begin(self, partition_id: int, began: float) -> None:
        """Begin to keep points of a partition."""
        windows = self._executor.holdings.durable.windows
        windows[partition_id] = KeptPoints(self._world.grid, self._world.window, began)

    def keep(self, partition_id: int, point: Point) -> None:
        """Keep a point until it expires."""
        now = self._world.clock.now
        self._executor.holdings.durable.windows[partition_id].add(
            self._world.point_id(point), point.x, point.y, now
        )

    def expire(self) -> None:
        """Forget what has left the window, and cut the chain behind it."""
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
            # Nothing was kept here, and all that the parents kept may matter.
            kept = KeptPoints(self._world.grid, self._world.window, math.inf)
        successors = (
            [p for p in executor.holdings.current.values() if p.cells.overlaps(request.step.cells)]
            if partition.id not in executor.holdings.current
            else []
        )
        messages = answer(request, kept, self._lineage, successors, POINTS_PER_MESSAGE)
        for message in messages:
            if isinstance(message, Results):
                delay = int(self._world.luck.random() * SPREAD)
                executor.after(delay, self._send, message)
            else:
                self._send(message)

    def _send(self, message: Request | Results | Acknowledgement) -> None:
        self._executor.send_or_do(f"ex{message.to}", message)

    # -- asking -------------------------------------------------------------------------------

    def ask(self, asked: Asked) -> None:
        """Become m_q of a query."""
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

    def handle(self, source: str, message: Results | Acknowledgement) -> None:
        """Take what a machine answers."""
        opened = self._open.get(message.number)
        if opened is None:
            return
        if isinstance(message, Results):
            opened.parts[message.step] = opened.parts.get(message.step, 0) + 1
        elif Bug.ACKNOWLEDGED_WITHOUT_COUNT in self._world.bugs:
            message = replace(message, results=opened.parts.get(message.step, 0))
        sender = int(source.removeprefix("ex"))
        self._go_on(message.number, opened.query.handle(sender, message))

    def beat(self) -> None:
        """Give machines up that are dead, and ask the silent ones again."""
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
        """Whether the life of a machine is over in which it kept what it is asked for."""
        return any(
            step.machine == machine and self._world.store.has_lost((step.partition.id, machine))
            for step in opened.requests
        )

    def _go_on(self, number: int, requests: list[Request]) -> None:
        """Ask further; answer when all is in."""
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
                opened.asked.ask.number, since,
                int(question.until) if question.until < math.inf else self._world.clock.now,
                points, found.partial_because,
            ),
        )  # fmt: skip
