"""A GlobalIndex machine: routes every tuple while its index is updated.

Owns one GlobalIndex and its gradual update. One of these machines is also the Coordinator (see
:mod:`.coordinator_role`); each finds out which one by counting the executors' votes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from sparkswarm.geometry import CellRect
from sparkswarm.protocol.global_index import GlobalIndex
from sparkswarm.protocol.messages import PlanPublished
from sparkswarm.protocol.partition import Partition
from sparkswarm.sim.bugs import Bug
from sparkswarm.sim.clock import MILLISECOND
from sparkswarm.sim.coordinator_role import CoordinatorRole
from sparkswarm.sim.election import Suspect, Tally, Vote
from sparkswarm.sim.machine import Machine
from sparkswarm.sim.tuples import (
    Alive,
    Ask,
    Beat,
    Command,
    Emitted,
    Operation,
    Point,
    Reply,
    Routed,
    RoutedAsk,
    Updated,
    owner_of,
)

if TYPE_CHECKING:
    from sparkswarm.sim.cluster import World

BEAT = 25 * MILLISECOND
"""Interval of heartbeats."""

STEP = 300
"""Microseconds between two steps of a gradual update."""


class Router(Machine):
    """One GlobalIndex machine."""

    def __init__(self, number: int, world: World) -> None:
        super().__init__(f"gi{number}", world)
        self.number = number

    def start(self) -> None:
        """Build the index from the newest plan in the store."""
        store = self.world.store
        self._version = len(store.plans) - 1
        self.index = GlobalIndex(store.plan)
        self._pending: deque[int] = deque()
        self._update: Iterator[None] | None = None
        self._role: CoordinatorRole | None = None
        candidates = [f"gi{g}" for g in range(self.world.routers)]
        self._tally = Tally(self.world.executors, candidates, store.terms.get(self.name, 0))
        if self._tally.coordinator == self.name:
            # After a restart the term may be over; then the store refuses the claim.
            self._become_coordinator()
        self._mark()
        self.after(BEAT, self._beat)

    @property
    def version(self) -> int:
        """Version of the newest plan that the index follows, or is being updated to."""
        return self._version

    @property
    def is_updating(self) -> bool:
        """Whether a gradual update is under way."""
        return self._update is not None

    def handle(self, source: str, message: Any) -> None:
        """Handle one message."""
        match message:
            case Emitted(item=Point() as point):
                self._route_point(point, message.low)
            case Emitted(item=Operation() as operation):
                self._route_operation(operation, message.low)
            case Ask():
                self._route_question(source, message)
            case Command(message=PlanPublished()):
                if message.term >= self._tally.term or Bug.TWO_COORDINATORS in self.world.bugs:
                    self._catch_up(message.message.version)
            case Beat():
                self._hear(message)
            case Suspect() | Vote():
                self._count(int(source.removeprefix("ex")), message)
            case Alive() | Reply():
                if self._role is not None:
                    self._role.handle(source, message)

    # -- routing ------------------------------------------------------------------------------

    def _route_point(self, point: Point, low: int) -> None:
        routed = self.index.route(np.array([point.x]), np.array([point.y]), np.array([point.key]))
        column, row = int(routed.column[0]), int(routed.row[0])
        message = Routed(point, low, int(routed.partition[0]), self._version, column, row)
        self.send(f"ex{routed.owner[0]}", message)
        if Bug.BORDER_CELL_TWICE in self.world.bugs and column and point.x == int(point.x):
            (left,) = self.index.overlap(CellRect(column - 1, row, column, row + 1))
            if left.id != message.partition:
                twice = message._replace(partition=left.id, column=column - 1)
                self.send(f"ex{owner_of(left, point.key)}", twice)

    def _route_operation(self, operation: Operation, low: int) -> None:
        if Bug.ALGORITHM_1_AS_PRINTED in self.world.bugs:
            partitions = _as_printed(self.index, operation.reach)
        else:
            partitions = self.index.overlap(operation.reach)
        for partition in partitions:
            for owner in partition.owners:
                message = Routed(operation, low, partition.id, self._version, -1, -1)
                self.send(f"ex{owner}", message)

    def _route_question(self, source: str, ask: Ask) -> None:
        """Send a snapshot query to the owner of its first cell, which becomes m_q."""
        x, y = ask.rectangle[:2]
        owner = self.index.route(np.array([x]), np.array([y])).owner[0]
        self.send(f"ex{owner}", RoutedAsk(source, ask))

    # -- updating ------------------------------------------------------------------------------

    def _catch_up(self, version: int) -> None:
        """Follow all plans up to a version; the store has those that were missed."""
        newest = self._pending[-1] if self._pending else self._version
        self._pending.extend(range(newest + 1, version + 1))
        if self._update is None and self._pending:
            self._update = self._updates()
            self._step(self._update)

    def _updates(self) -> Iterator[None]:
        while self._pending:
            # Set before the update: from now on a cell may lead to a new partition.
            self._version = self._pending[0]
            for change in self.world.store.log[self._version]:
                yield from self.index.apply_gradually(change)
            self._pending.popleft()
            self._mark()

    def _step(self, update: Iterator[None]) -> None:
        """Redirect some cells; tuples are routed between two steps."""
        for _ in range(self.world.cells_per_step):
            if next(update, self) is self:
                self._update = None
                break
        self.world.oracle.index_changed(self.name, self.index)
        if self._update is not None:
            self.after(STEP * self.slowness, self._step, update)

    def _mark(self) -> None:
        """Tell executors, on the channel of the tuples, which plan the index follows."""
        for m in range(self.world.executors):
            self.send(f"ex{m}", Updated(self._version))

    # -- the Coordinator -----------------------------------------------------------------------

    def _beat(self) -> None:
        self.cast(self._tally.coordinator, Alive(self._tally.term, 0))
        self.after(BEAT, self._beat)

    def _hear(self, beat: Beat) -> None:
        if beat.term >= self._tally.term:
            self._catch_up(beat.version)

    def _count(self, voter: int, message: Suspect | Vote) -> None:
        if self._tally.handle(voter, message):
            self.world.store.terms[self.name] = self._tally.term
            if self._role is not None and Bug.TWO_COORDINATORS not in self.world.bugs:
                self._role.step_down(f"term {self._tally.term} has begun")
            if self._tally.coordinator == self.name:
                self._become_coordinator()

    def _become_coordinator(self) -> None:
        """Become the Coordinator, unless a later term has started."""
        if self._role is not None:
            self._role.step_down("its next term begins")
        if self.world.store.claim(self._tally.term):
            self._role = CoordinatorRole(self, self._tally.term)
            # The last Coordinator may have crashed between writing a plan and sending it. The
            # other machines learn of it with the next heartbeat.
            self._catch_up(self.world.store.plan.version)


def _as_printed(index: GlobalIndex, query: CellRect) -> list[Partition]:
    """Find the partitions of a query by Algorithm 1 as the paper prints it, which misses some.

    It continues from the cell at which a partition was entered, not from its corner.
    """
    stack = [(query.col_start, query.row_start)]
    result: list[Partition] = []
    while stack:
        column, row = stack.pop()
        if not (column < query.col_stop and row < query.row_stop):
            continue
        (partition,) = index.overlap(CellRect(column, row, column + 1, row + 1))
        if partition not in result:
            stack.append((partition.cells.col_stop, row))
            stack.append((column, partition.cells.row_stop))
            result.append(partition)
    return result
