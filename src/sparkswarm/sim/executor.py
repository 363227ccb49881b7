"""An executor: it matches points with queries, and passes on what is not its own.

Owns the way of a tuple through an executor (process, keep for later, forward), the rounds, and
its load-balancing unit; the way of a partition is in :mod:`.holdings`. What must survive a
crash is in the store. What is here is lost with it: statistics, what was kept for later, and
what is known of the others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sparkswarm.errors import ProtocolError
from sparkswarm.geometry import CellRect, QueryCells
from sparkswarm.protocol.messages import CloseRound, Message, PlanPublished, TakenOver, Takeover
from sparkswarm.protocol.unit import LoadBalancingUnit
from sparkswarm.sim.bugs import Bug
from sparkswarm.sim.clock import MILLISECOND
from sparkswarm.sim.election import Suspect, Vote
from sparkswarm.sim.holdings import Holdings
from sparkswarm.sim.machine import Machine
from sparkswarm.sim.records import Record
from sparkswarm.sim.snapshot_chain import Acknowledgement, Request
from sparkswarm.sim.snapshot_chain import Results as Found
from sparkswarm.sim.snapshots import Snapshots
from sparkswarm.sim.tuples import (
    Acknowledged,
    Ahead,
    Alive,
    Answer,
    Asked,
    Beat,
    Command,
    Final,
    Handover,
    HandoverWanted,
    Match,
    Operation,
    Point,
    Results,
    Routed,
    Updated,
    owner_of,
    tickets_of,
)
from sparkswarm.sim.voter import Voter

if TYPE_CHECKING:
    from sparkswarm.sim.cluster import World

POINT_TIME = 200
"""Microseconds that a point takes, at the usual pace."""

BEAT = 25 * MILLISECOND
"""How often machines say that they are there."""


class Executor(Machine):
    """Executor m with its load-balancing unit."""

    def __init__(self, number: int, world: World) -> None:
        super().__init__(f"ex{number}", world)
        self.number = number

    def start(self) -> None:
        """Begin with what the store has of the present life; of a new one it has nothing."""
        self.life: int = self.world.store.lives[self.number]
        self.absent: tuple[int, ...] = ()
        self._routers = tuple(range(self.world.routers))
        self._markers: dict[str, int] = {}
        self._announced = 0
        self._collected: list[tuple[int, int, int, int]] = []
        self._voter = Voter(self)
        self._commander = (self._voter.coordinator, self._voter.term)
        self.snapshots = Snapshots(self)
        self.holdings = Holdings(self)
        mine = self.holdings.mine
        self.unit = LoadBalancingUnit(
            self.number, mine, self.world.config, self.holdings.queries_of
        )
        self.unit.recount_queries()
        durable = self.holdings.durable
        for partition in mine:
            if partition.id not in durable.windows and not self.holdings.awaits(partition.id):
                self.snapshots.begin(partition.id, -math.inf)
        if durable.results:
            self.send("sink", Results(self.life, 0, tuple(durable.results)))
        self.after(BEAT, self._beat)

    def cost(self, message: Any) -> int:
        """Points take time; all else takes none worth mentioning."""
        return POINT_TIME if isinstance(message, Routed) else 0

    # -- messages -------------------------------------------------------------------------------

    def handle(self, source: str, message: Any) -> None:
        """Take one message; an executor that was declared dead begins a new life instead."""
        if self._is_over():
            self.restart()
            return
        match message:
            case Routed() | Handover() | Request():
                self.dispatch(message)
            case Updated():
                self._markers[source] = max(self._markers.get(source, 0), message.version)
            case HandoverWanted():
                self.holdings.give_again(source, message)
            case Command():
                self._command(source, message)
            case Beat():
                self._hear(source, message)
            case Ahead():
                self.holdings.came_ahead(message)
                self._say(self.unit.handle(message.takeover))
            case TakenOver():
                self._say(self.unit.handle(message))
            case Suspect() | Vote():
                self._voter.handle(source, message)
            case Asked():
                self.snapshots.ask(message)
            case Found() | Acknowledgement():
                self.snapshots.handle(source, message)

    def _is_over(self) -> bool:
        """Whether the store refuses this life of mine: I was declared dead."""
        if Bug.FENCE_IGNORED in self.world.bugs:
            return False
        return bool(self.world.store.lives[self.number] != self.life)

    def send_or_do(self, target: str, message: Any) -> None:
        """Send a message, or take it at once if it is to myself."""
        if target == self.name:
            self.handle(target, message)
        else:
            self.send(target, message)

    def dispatch(self, message: Routed | Handover | Request) -> None:
        """Take a message about a partition, now or after it was kept."""
        match message:
            case Routed():
                self._routed(message)
            case Handover():
                self.holdings.take(message)
            case Request():
                self._requested(message)

    def _hear(self, source: str, beat: Beat) -> None:
        """Learn from the Coordinator who is there, and whether a plan was missed."""
        if self._voter.follows(beat.term, source):
            self.absent, self._routers = beat.absent, beat.routers
            self.holdings.catch_up(beat.version)

    def _command(self, source: str, command: Command) -> None:
        follows = self._voter.follows(command.term, source)
        if not follows and Bug.TWO_COORDINATORS not in self.world.bugs:
            return
        self._commander = (source, command.term)
        message = command.message
        match message:
            case PlanPublished():
                self.holdings.catch_up(message.version)
            case CloseRound():
                self._close_round(message)
            case _:
                self._say(self.unit.handle(message))

    def _say(self, messages: list[Message]) -> None:
        """Send what the load-balancing unit says, to the Coordinator whose command was last."""
        for message in messages:
            if isinstance(message, Takeover):
                self.holdings.send_ahead(message)
            elif isinstance(message.to, int):
                self.send(f"ex{message.to}", message)
            else:
                name, term = self._commander
                self.send(name, Answer(term, message))

    def _beat(self) -> None:
        """Say that I am here, and ask for what has not come."""
        if self._is_over():
            self.restart()
            return
        self.cast(self._voter.coordinator, Alive(self._voter.term, self.life))
        self._voter.beat()
        self.holdings.beat()
        self.snapshots.beat()
        self.after(BEAT, self._beat)

    # -- rounds ---------------------------------------------------------------------------------

    def _close_round(self, message: CloseRound) -> None:
        """Close the statistics, say which plan I follow, and stop forwarding what nobody sends.

        Differs from the paper, in which a new round implies that all GlobalIndex machines have
        updated: here they say so, each on the channel that carries its tuples; and executors
        do too, because they forward.
        """
        self.collect()
        self.snapshots.expire()
        others = [f"ex{m}" for m in range(self.world.executors) if m != self.number]
        if self._announced < self.holdings.durable.version:
            self._announced = self.holdings.durable.version
            for name in others:
                self.send(name, Updated(self._announced))
        awaited = [f"gi{g}" for g in self._routers]
        awaited += [name for name in others if int(name.removeprefix("ex")) not in self.absent]
        updated = min((self._markers.get(name, 0) for name in awaited), default=0)
        if Bug.FORWARDING_STOPS_EARLY in self.world.bugs:
            updated = self.holdings.durable.version
        self.holdings.close_round(updated)
        self._say(self.unit.handle(message))

    def collect(self) -> None:
        """Give the unit the statistics of the points since the last time."""
        of_partition: dict[int, list[tuple[int, int, int]]] = {}
        for partition_id, column, row, checks in self._collected:
            of_partition.setdefault(partition_id, []).append((column, row, checks))
        for partition_id, points in of_partition.items():
            columns, rows, checks_of = np.array(points, dtype=np.int32).T
            self.unit.statistics(partition_id).collect_points(
                np.ascontiguousarray(columns),
                np.ascontiguousarray(rows),
                checks_of.astype(np.float64),
            )
        self._collected = []

    # -- the way of a tuple ---------------------------------------------------------------------

    def _routed(self, message: Routed) -> None:
        """Process a tuple, keep it for later, or pass it on."""
        partition = self.holdings.current.get(message.partition)
        if partition is None:
            self._redirect(message)
            return
        owners = (
            (owner_of(partition, message.item.key),)
            if isinstance(message.item, Point)
            else partition.owners
        )
        if self.number not in owners:
            for owner in owners:
                self.send(f"ex{owner}", message._replace(version=self.holdings.durable.version))
        elif self.holdings.awaits(partition.id):
            self.holdings.keep(partition.id, message)
        elif isinstance(message.item, Point):
            self._point(self.holdings.record(partition.id), message.item, message)
        else:
            self._operation(self.holdings.record(partition.id), message.item, message.low)

    def _redirect(self, message: Routed) -> None:
        """Find out, by position, who serves the cells of a partition that is no more."""
        change = self.holdings.forward_of(message.partition)
        if change is None:
            # What is older than all that I know has been done, or its source sends it again.
            if message.version > self.holdings.durable.version:
                self.holdings.keep_early(message)
            return
        if Bug.NO_FORWARDING in self.world.bugs:
            return
        item = message.item
        for created in change.created:
            onward = message._replace(partition=created.id, version=self.holdings.durable.version)
            if isinstance(item, Point):
                if created.cells.contains(
                    CellRect(message.column, message.row, message.column + 1, message.row + 1)
                ):
                    self._routed(onward)
            elif created.cells.overlaps(item.reach):
                if created.id in self.holdings.current and self.number in created.owners:
                    for owner in created.owners:
                        if owner != self.number:
                            self.send(f"ex{owner}", onward)
                self._routed(onward)

    def _point(self, record: Record, point: Point, message: Routed) -> None:
        """Match a point with the queries of its partition, once."""
        if not record.partition.cells.contains(
            CellRect(message.column, message.row, message.column + 1, message.row + 1)
        ):
            raise ProtocolError(f"{self.name} was sent {message}, which {record.partition} is not")
        record.advance(point.source, message.low)
        if point not in record.seen:
            record.seen.add(point)
            results, checks = record.match(point, self.number, self.world.matching)
            self.snapshots.keep(record.partition.id, point)
            self.publish(results)
            self._collected.append((record.partition.id, message.column, message.row, checks))
        self.send(f"src{point.source}", Acknowledged(point.number, None, 0))

    def _operation(self, record: Record, operation: Operation, low: int) -> None:
        """Apply an operation to the queries of a partition, unless it is outdated."""
        partition = record.partition
        known = record.entries.get(operation.query)
        before = None
        if known is not None and known.lives_in(partition.cells):
            before = known.operation.cells
        if operation not in record.seen and record.apply(operation):
            self.publish(record.close_counts())
            if before is not None:
                self.unit.remove_queries(partition.id, QueryCells.of([before]))
            if operation.cells is not None:
                self.unit.collect_queries(partition.id, QueryCells.of([operation.cells]))
        record.advance(operation.source, low)
        cells = operation.reach.intersection(partition.cells)
        tickets = tickets_of(partition, self.number)
        self.send(f"src{operation.source}", Acknowledged(operation.number, cells, tickets))

    def _requested(self, request: Request) -> None:
        """Answer a snapshot query, once the partition asked for is here."""
        partition_id = request.step.partition.id
        if partition_id in self.holdings.current:
            if self.holdings.awaits(partition_id):
                self.holdings.keep(partition_id, request)
                return
        elif not self.holdings.holds(partition_id):
            # Not mine yet; or of a life that is over, and whoever asks will find that out.
            if partition_id > max(self.holdings.current):
                self.holdings.keep_early(request)
            return
        self.snapshots.answer(request)

    def publish(self, results: Sequence[Match | Final]) -> None:
        """Write results to the log, and send them to the sink."""
        if results:
            log = self.holdings.durable.results
            position = len(log)
            log += results
            self.send("sink", Results(self.life, position, tuple(results)))
