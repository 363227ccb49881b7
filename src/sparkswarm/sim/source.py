"""A source: it emits points, operations on queries and snapshot queries, and keeps them until done.

Owns a script, the numbers of its tuples, and what has not been acknowledged. It is outside the
cluster and does not crash.

*Backpressure*: only so many tuples may be on their way. A slow executor acknowledges late, so
its sources wait, and go on as soon as it is faster.
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

LOOK = 50 * MILLISECOND
"""How often a source looks for tuples to send again."""


class Coverage:
    """Where an operation has been applied: which tickets of which cells."""

    def __init__(self, reach: CellRect) -> None:
        self._open = {
            (column, row): ALL_TICKETS
            for column in range(reach.col_start, reach.col_stop)
            for row in range(reach.row_start, reach.row_stop)
        }

    def add(self, cells: CellRect, tickets: int) -> bool:
        """Note that it was applied there; whether it now is everywhere."""
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
    """A tuple that is on its way."""

    item: Point | Operation
    sent: int
    coverage: Coverage | None


@dataclass(slots=True)
class _Question:
    """A snapshot query that is on its way."""

    ask: Ask
    sent: int


class Source(Machine):
    """Source s.

    Parameters
    ----------
    number, world
        Who and where.
    script
        What to emit, in order of time.
    credits
        How many tuples may be on their way.
    again_after
        A tuple that was not acknowledged after so many microseconds is sent again, perhaps
        through another GlobalIndex machine.
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
        """Whether all is emitted, acknowledged and answered."""
        return self._cursor == len(self._script) and not self._pending and not self._questions

    @property
    def unacknowledged(self) -> list[Point | Operation]:
        """What is on its way."""
        return [pending.item for pending in self._pending.values()]

    @property
    def unanswered(self) -> int:
        """How many snapshot queries are on their way."""
        return len(self._questions)

    def start(self) -> None:
        """Begin with the script."""
        self._go_on()
        self.after(LOOK, self._look)

    def handle(self, source: str, message: Any) -> None:
        """Take an acknowledgement, an answer or news of the cluster."""
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
        if pending.coverage is not None:
            assert message.cells is not None
            if not pending.coverage.add(message.cells, message.tickets):
                return
        del self._pending[message.number]
        if isinstance(pending.item, Operation):
            query = pending.item.query
            self._unsettled[query] -= 1
        self.world.oracle.acknowledged(pending.item)
        self._go_on()

    def _go_on(self) -> None:
        """Emit what is due, as far as credits allow."""
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
                self.number, number, scripted.x, scripted.y, scripted.key, now, scripted.details
            )
            self._pending[number] = _Pending(item, now, None)
        else:
            item = Operation(
                self.number, number, scripted.query, scripted.version, scripted.rectangle,
                scripted.cells, scripted.reach, scripted.stateful, scripted.details,
            )  # fmt: skip
            self._pending[number] = _Pending(item, now, Coverage(item.reach))
            self._unsettled[item.query] = self._unsettled.get(item.query, 0) + 1
        self.world.oracle.emitted(item)
        self._send(Emitted(item, self._low()))

    def _low(self) -> int:
        """Return the lowest number that is not acknowledged; numbers only grow."""
        return next(iter(self._pending), self._emitted + 1)

    def _send(self, message: Emitted | Ask) -> None:
        """Send through one of the GlobalIndex machines."""
        routers = self._routers
        self.send(f"gi{routers[int(self.world.luck.random() * len(routers))]}", message)

    def _look(self) -> None:
        """Send again what has waited for too long."""
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
        self.after(LOOK, self._look)
