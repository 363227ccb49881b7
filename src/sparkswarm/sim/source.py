"""A source: emits points, operations and snapshot queries, and resends them until acknowledged.

Owns a script, the numbers of its tuples, and the unacknowledged ones. It is outside the cluster
and does not crash.

*Backpressure*: the number of unacknowledged tuples is limited. A slow executor acknowledges
late, so its sources wait.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sparkswarm.geometry import CellRect
from sparkswarm.sim.clock import MILLISECOND
from sparkswarm.sim.machine import Machine
from sparkswarm.sim.tuples import (
    ALL_TICKETS,
    Acknowledged,
    Answered,
    Ask,
    Beat,
    Emitted,
    Operation,
    Point,
)
from sparkswarm.sim.workload import NewOperation, NewPoint, NewQuestion, Scripted

if TYPE_CHECKING:
    from sparkswarm.sim.cluster import World

RESEND = 50 * MILLISECOND
"""Interval at which a source resends overdue tuples."""


class Coverage:
    """The cells, and tickets of them, in which an operation has not been applied yet."""

    def __init__(self, reach: CellRect) -> None:
        self._open = {
            (column, row): ALL_TICKETS
            for column in range(reach.col_start, reach.col_stop)
            for row in range(reach.row_start, reach.row_stop)
        }

    def add(self, cells: CellRect, tickets: int) -> bool:
        """Record cells in which it was applied; return whether that is all."""
        for column in range(cells.col_start, cells.col_stop):
            for row in range(cells.row_start, cells.row_stop):
                left = self._open.get((column, row), 0) & ~tickets
                if left:
                    self._open[column, row] = left
                else:
                    self._open.pop((column, row), None)
        return not self._open


@dataclass(slots=True)
class _Pending:
    """A tuple that is not acknowledged."""

    item: Point | Operation
    sent: int
    coverage: Coverage | None


@dataclass(slots=True)
class _Question:
    """A snapshot query that is not answered."""

    ask: Ask
    sent: int


class SimSource(Machine):
    """One source.

    Parameters
    ----------
    number, world
        Its number, and the world that it is part of.
    script
        What to emit, in order of time.
    credits
        Maximum number of unacknowledged tuples.
    again_after
        Microseconds after which an unacknowledged tuple is sent again, possibly through
        another GlobalIndex machine.
    """

    def __init__(
        self, number: int, world: World, script: list[Scripted], credits: int, again_after: int
    ) -> None:
        super().__init__(f"src{number}", world)
        self.number = number
        self._script = script
        self._cursor = 0
        self._credits = credits
        self._again_after = again_after
        self._alarm = 0
        self._emitted = 0
        self._pending: dict[int, _Pending] = {}
        self._questions: dict[int, _Question] = {}
        self._unsettled: dict[int, int] = {}
        self._routers = tuple(range(world.routers))
        self._term = 0

    @property
    def is_done(self) -> bool:
        """Whether the script is emitted, acknowledged and answered."""
        return self._cursor == len(self._script) and not self._pending and not self._questions

    @property
    def unacknowledged(self) -> list[Point | Operation]:
        """The tuples that are not acknowledged."""
        return [pending.item for pending in self._pending.values()]

    @property
    def unanswered(self) -> int:
        """Number of snapshot queries that are not answered."""
        return len(self._questions)

    def start(self) -> None:
        """Start the script."""
        self._go_on()
        self.after(RESEND, self._resend)

    def handle(self, source: str, message: Any) -> None:
        """Handle an acknowledgement, an answer or a heartbeat."""
        match message:
            case Acknowledged():
                self._acknowledged(message)
            case Answered():
                if self._questions.pop(message.number, None) is not None:
                    self.world.oracle.answered(message)
            case Beat():
                if message.term >= self._term and message.routers:
                    self._term, self._routers = message.term, message.routers

    def _acknowledged(self, message: Acknowledged) -> None:
        pending = self._pending.get(message.number)
        if pending is None:
            return
        if (
            pending.coverage is not None
            and message.cells is not None
            and not pending.coverage.add(message.cells, message.tickets)
        ):
            return
        del self._pending[message.number]
        if isinstance(pending.item, Operation):
            query = pending.item.query
            self._unsettled[query] -= 1
        self.world.oracle.acknowledged(pending.item)
        self._go_on()

    def _go_on(self) -> None:
        """Emit what is due, within the limit on unacknowledged tuples."""
        now = self.world.clock.now
        while self._cursor < len(self._script):
            scripted = self._script[self._cursor]
            if scripted.time > now:
                if self._alarm < scripted.time:
                    self._alarm = scripted.time
                    self.after(scripted.time - now, self._go_on)
                return
            if len(self._pending) >= self._credits or self._must_wait(scripted):
                return
            self._cursor += 1
            self._emit(scripted)

    def _must_wait(self, scripted: Scripted) -> bool:
        match scripted:
            case NewOperation(patient=True):
                return self._unsettled.get(scripted.query, 0) > 0
            case NewQuestion(patient=True):
                return bool(self._pending)
        return False

    def _emit(self, scripted: Scripted) -> None:
        now = self.world.clock.now
        if isinstance(scripted, NewQuestion):
            ask = Ask(scripted.number, 0, scripted.rectangle)
            self._questions[scripted.number] = _Question(ask, now)
            self.world.oracle.asked(ask)
            self._send(ask)
            return
        number = self._emitted = self._emitted + 1
        item: Point | Operation
        if isinstance(scripted, NewPoint):
            item = Point(
                source=self.number,
                number=number,
                x=scripted.x,
                y=scripted.y,
                key=scripted.key,
                time=now,
                details=scripted.details,
            )
            self._pending[number] = _Pending(item, now, None)
        else:
            item = Operation(
                source=self.number,
                number=number,
                query=scripted.query,
                version=scripted.version,
                rectangle=scripted.rectangle,
                cells=scripted.cells,
                reach=scripted.reach,
                stateful=scripted.stateful,
                details=scripted.details,
            )
            self._pending[number] = _Pending(item, now, Coverage(item.reach))
            self._unsettled[item.query] = self._unsettled.get(item.query, 0) + 1
        self.world.oracle.emitted(item)
        self._send(Emitted(item, self._low()))

    def _low(self) -> int:
        """Return the lowest unacknowledged number; it never decreases."""
        return next(iter(self._pending), self._emitted + 1)

    def _send(self, message: Emitted | Ask) -> None:
        """Send through a random GlobalIndex machine."""
        routers = self._routers
        self.send(f"gi{routers[int(self.world.rng.random() * len(routers))]}", message)

    def _resend(self) -> None:
        """Send overdue tuples and snapshot queries again."""
        now = self.world.clock.now
        for pending in self._pending.values():
            if now - pending.sent >= self._again_after:
                pending.sent = now
                self.world.oracle.sent_again(pending.item)
                self._send(Emitted(pending.item, self._low()))
        for question in self._questions.values():
            if now - question.sent >= self._again_after:
                question.sent = now
                question.ask = question.ask._replace(attempt=question.ask.attempt + 1)
                self._send(question.ask)
        self.after(RESEND, self._resend)
