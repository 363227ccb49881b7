"""An executor: matches points with queries, and forwards tuples that are not its own.

Owns what happens to a tuple (process, keep for later, forward), the rounds and the load-balancing
unit. How partitions move is in :mod:`.holdings`. What must survive a crash is in the store; the
statistics, kept messages and the knowledge of other machines are lost.
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
from sparkswarm.sim.snapshot_chain import Acknowledgement, ChainResults, Request
from sparkswarm.sim.snapshots import Snapshots
from sparkswarm.sim.tuples import (
    Acknowledged,
    Ahead,
    Alive,
    Beat,
    Command,
    Final,
    Handover,
    HandoverWanted,
    Match,
    Operation,
    Point,
    Reply,
    Results,
    Routed,
    RoutedAsk,
    Updated,
    owner_of,
    tickets_of,
)
from sparkswarm.sim.voter import Voter

if TYPE_CHECKING:
    from sparkswarm.sim.cluster import World

POINT_TIME = 200
"""Microseconds to process a point at normal speed."""

BEAT = 25 * MILLISECOND
"""Interval of heartbeats."""


class Executor(Machine):
    """One executor with its load-balancing unit."""

    def __init__(self, number: int, world: World) -> None:
        super().__init__(f"ex{number}", world)
        self.number = number

    def start(self) -> None:
        """Start from the durable state of the current life; that of a new life is empty."""
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
        """Return the time of routed tuples; all other messages take none."""
        return POINT_TIME if isinstance(message, Routed) else 0

    # -- messages -------------------------------------------------------------------------------

    def handle(self, source: str, message: Any) -> None:
        """Handle one message; an executor that was declared dead starts a new life instead."""
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
            case RoutedAsk():
                self.snapshots.ask(message)
            case ChainResults() | Acknowledgement():
                self.snapshots.handle(source, message)

    def _is_over(self) -> bool:
        """Whether this life was declared dead, so that the store refuses its writes."""
        if Bug.FENCE_IGNORED in self.world.bugs:
            return False
        return bool(self.world.store.lives[self.number] != self.life)

    def send_or_do(self, target: str, message: Any) -> None:
        """Send a message, or handle it at once if it is for this executor."""
        if target == self.name:
            self.handle(target, message)
        else:
            self.send(target, message)

    def dispatch(self, message: Routed | Handover | Request) -> None:
        """Handle a message about a partition, on arrival or after it was kept."""
        match message:
            case Routed():
                self._routed(message)
            case Handover():
                self.holdings.take(message)
            case Request():
                self._requested(message)

    def _hear(self, source: str, beat: Beat) -> None:
        """Learn from a heartbeat which machines are alive, and catch up with the plan."""
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
        """Send the unit's messages; a Coordinator is the sender of the last command."""
        for message in messages:
            if isinstance(message, Takeover):
                self.holdings.send_ahead(message)
            elif isinstance(message.to, int):
                self.send(f"ex{message.to}", message)
            else:
                name, term = self._commander
                self.send(name, Reply(term, message))

    def _beat(self) -> None:
        """Send a heartbeat, and request what has not arrived."""
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
        """Close the statistics, announce the plan that is followed, and drop old forwards.

        Differs from the paper, in which a new round implies that all GlobalIndex machines have
        updated. Here they announce it, each on the channel that carries its tuples, and so do
        executors, because they forward tuples.
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
        """Pass the points since the last call to the unit's statistics."""
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

    # -- tuples ---------------------------------------------------------------------------------

    def _routed(self, message: Routed) -> None:
        """Process a tuple, keep it for later, or forward it."""
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
        """Forward a tuple of a retired partition to the successors that have its cells."""
        change = self.holdings.forward_of(message.partition)
        if change is None:
            # A partition that is unknown by now: processed elsewhere, or sent again.
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
            raise ProtocolError(
                f"{self.name} was sent {message}, which is not in {record.partition}"
            )
        record.advance(point.source, message.low)
        if point not in record.seen:
            record.seen.add(point)
            results, checks = record.match(point, self.number, self.world.matching)
            self.snapshots.keep(record.partition.id, point)
            self.publish(results)
            self._collected.append((record.partition.id, message.column, message.row, checks))
        self.send(f"src{point.source}", Acknowledged(point.number, None, 0))

    def _operation(self, record: Record, operation: Operation, low: int) -> None:
        """Apply an operation to a partition, unless a newer one has been applied."""
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
        """Answer a snapshot query, after the state of its partition has arrived."""
        partition_id = request.step.partition.id
        if partition_id in self.holdings.current:
            if self.holdings.awaits(partition_id):
                self.holdings.keep(partition_id, request)
                return
        elif not self.holdings.holds(partition_id):
            # From a later plan, or of an earlier life; m_q detects the latter.
            if partition_id > max(self.holdings.current):
                self.holdings.keep_early(request)
            return
        self.snapshots.answer(request)

    def publish(self, results: Sequence[Match | Final]) -> None:
        """Append results to the log, and send them to the sink."""
        if results:
            log = self.holdings.durable.results
            position = len(log)
            log += results
            self.send("sink", Results(self.life, position, tuple(results)))
