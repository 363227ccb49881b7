"""What an executor holds, and the way of a partition from one executor to another.

Owns the plan as one executor knows it, its records of partitions, and what it keeps for later
or forwards because of them.

The way of a partition: m_high sends statistics and queries ahead (:class:`Ahead`) and goes on
processing. When the plan has changed, it stops, and its :class:`Handover` brings what is new
since, the state of the queries and what was seen; m_low keeps what arrives until then. The
stream is so redirected after queries and state have moved, as the paper demands, and at any
time every cell and ticket has one executor that processes it.

A handover that does not come is asked for. One of a dead executor is read in the store.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from sparkswarm.geometry import CellRect, QueryCells
from sparkswarm.protocol.messages import PlanPublished, Takeover
from sparkswarm.protocol.partition import Partition, PlanChange
from sparkswarm.sim.bugs import Bug
from sparkswarm.sim.records import Content, Entry, Record, new_record, portion
from sparkswarm.sim.storage import Durable
from sparkswarm.sim.tuples import Ahead, Handover, HandoverWanted, Operation

if TYPE_CHECKING:
    from sparkswarm.sim.executor import Executor

PATIENCE = 4
"""After so many beats a handover that has not come is asked for."""


class Forward(NamedTuple):
    """What became of a retired partition, since which version and round."""

    version: int
    round: int
    change: PlanChange


class Holdings:
    """The partitions of executor m, in one of its incarnations.

    Attributes
    ----------
    durable
        What the store has of this life of the executor.
    current
        The partitions of the plan that it follows, its own and others'.
    rounds
        How many rounds it has closed.
    """

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._number = executor.number
        self._world = executor.world
        self._store = executor.world.store
        self.durable: Durable = self._store.durables[executor.number][executor.life]
        plan = self._store.plans[self.durable.version]
        self.current: dict[int, Partition] = {p.id: p for p in plan.partitions}
        self.rounds = 0
        self._forwards: dict[int, Forward] = {}
        self._kept: dict[int, list[Any]] = {}
        self._early: list[Any] = []
        self._waits: dict[int, int] = {}
        self._sent_ahead: dict[tuple[int, int], dict[int, int]] = {}
        self._came_ahead: dict[int, dict[int, Operation]] = {}
        for version in range(1, self.durable.version + 1):
            for change in self._store.log[version]:
                self._remember(change, version)

    @property
    def mine(self) -> list[Partition]:
        """The partitions in force that are mine."""
        return [self.current[i] for i in self.durable.partitions if i in self.current]

    def record(self, partition_id: int) -> Record:
        """Return my record of a partition that is mine, or was."""
        return self._store.records[partition_id, self._number]

    def holds(self, partition_id: int) -> bool:
        """Whether a partition is mine, or was, in this life."""
        return partition_id in self.durable.partitions

    def awaits(self, partition_id: int) -> bool:
        """Whether a partition is mine, or was, whose state has not all arrived."""
        return self.holds(partition_id) and bool(self.record(partition_id).missing)

    def queries_of(self, partition: Partition) -> QueryCells:
        """Return the queries that I hold of these cells, for the statistics."""
        found: dict[int, CellRect] = {}
        for operation in self._operations_in(partition.cells):
            assert operation.cells is not None
            found[operation.query] = operation.cells.intersection(partition.cells)
        return QueryCells.of(list(found.values()))

    def _operations_in(self, cells: CellRect) -> list[Operation]:
        """Return the operations that brought about the queries that I hold of these cells."""
        return [
            entry.operation
            for partition in self.mine
            if partition.cells.overlaps(cells)
            for entry in self.record(partition.id).entries.values()
            if entry.lives_in(cells)
        ]

    # -- what must wait, and what is forwarded ----------------------------------------------------

    def keep(self, partition_id: int, message: Any) -> None:
        """Keep a message until the state of its partition is here."""
        self._kept.setdefault(partition_id, []).append(message)

    def keep_early(self, message: Any) -> None:
        """Keep a message that a later plan will explain."""
        self._early.append(message)

    def forward_of(self, partition_id: int) -> PlanChange | None:
        """Return what became of a partition, as long as anyone may still send for it."""
        forward = self._forwards.get(partition_id)
        return forward.change if forward else None

    def close_round(self, updated: int) -> None:
        """Stop forwarding what nobody sends any more: all follow version ``updated``."""
        self.rounds += 1
        self._forwards = {
            partition_id: forward
            for partition_id, forward in self._forwards.items()
            if forward.version > updated or forward.round >= self.rounds
        }

    # -- following the plan -----------------------------------------------------------------------

    def catch_up(self, version: int) -> None:
        """Follow the plan up to a version, one after another.

        The store has those that were missed, because a Coordinator died before it had told
        everyone.
        """
        while self.durable.version < version:
            self._executor.collect()
            self.durable.version += 1
            changes = self._store.log[self.durable.version]
            self._executor.unit.handle(PlanPublished(self.durable.version, changes))
            for change in changes:
                self._follow(change)
            early, self._early = self._early, []
            for message in early:
                self._executor.dispatch(message)

    def _remember(self, change: PlanChange, version: int) -> None:
        """Remember a change, for what still comes for the partitions that it retired."""
        self._executor.snapshots.follow(change)
        for retired in change.retired:
            self._forwards[retired.id] = Forward(version, self.rounds, change)

    def _follow(self, change: PlanChange) -> None:
        """Await the partitions that come, and hand over those that go."""
        self._remember(change, self.durable.version)
        for created in change.created:
            self.current[created.id] = created
            if self._number in created.owners:
                record = new_record(change, created.id, self._number)
                self._store.records[created.id, self._number] = record
                self.durable.partitions.append(created.id)
        for retired in change.retired:
            del self.current[retired.id]
            if self._number in retired.owners:
                record = self.record(retired.id)
                record.retired_by = change
                for message in self._kept.pop(retired.id, []):
                    self._executor.dispatch(message)
                if not record.missing:
                    self._hand_over(record)
        if Bug.INDEX_BEFORE_TAKEOVER in self._world.bugs:
            self._begin_too_early(change)

    def _begin_too_early(self, change: PlanChange) -> None:
        """Serve with the queries that were sent ahead, whatever has happened since."""
        for created in change.created:
            if self.awaits(created.id):
                record = self.record(created.id)
                record.missing = []
                for operation in self._came_ahead.get(created.id, {}).values():
                    record.apply(operation)
                self._executor.snapshots.begin(created.id, self._world.clock.now)

    # -- handing over -----------------------------------------------------------------------------

    def send_ahead(self, takeover: Takeover) -> None:
        """Send statistics and queries to m_low, before anything has changed."""
        queries = []
        for held in takeover.holdings:
            operations = tuple(self._operations_in(held.partition.cells))
            key = (held.partition.id, int(takeover.to))
            self._sent_ahead[key] = {o.query: o.version for o in operations}
            queries.append(operations)
        self._executor.send(f"ex{takeover.to}", Ahead(takeover, tuple(queries)))

    def came_ahead(self, ahead: Ahead) -> None:
        """Keep queries for partitions that may become mine."""
        for held, operations in zip(ahead.takeover.holdings, ahead.queries, strict=True):
            self._came_ahead[held.partition.id] = {o.query: o for o in operations}

    def _hand_over(self, record: Record) -> None:
        """Give the final state of a partition to all who come after."""
        assert record.retired_by is not None
        self._world.committed(self._executor)
        for created in record.retired_by.created:
            if created.cells.overlaps(record.partition.cells):
                for owner in created.owners:
                    self._give(record, created, owner)

    def _give(self, record: Record, created: Partition, owner: int) -> None:
        """Hand over to one who comes after; what was sent ahead and still holds is only named."""
        assert record.retired_by is not None
        content = portion(record, self._number, record.retired_by, created, owner, self._world.bugs)
        known = self._sent_ahead.pop((created.id, owner), {})
        content = content.without(known)
        handover = Handover(record.partition.id, created.id, self._number, content)
        if owner == self._number:
            self.take(handover)
        else:
            self._executor.send(f"ex{owner}", handover)

    def give_again(self, source: str, wanted: HandoverWanted) -> None:
        """Hand over once more what did not arrive, if it is final; this time in full."""
        if self.holds(wanted.retired):
            record = self.record(wanted.retired)
            if record.retired_by is not None and not record.missing:
                for created in record.retired_by.created:
                    if created.id == wanted.created:
                        self._give(record, created, int(source.removeprefix("ex")))

    # -- taking over ------------------------------------------------------------------------------

    def take(self, handover: Handover) -> None:
        """Take what a previous holder hands over; the last of them sets the partition going."""
        partition_id = handover.created
        if not self.holds(partition_id):
            if partition_id not in self._forwards:
                # The plan that makes it mine has not reached me.
                self._early.append(handover)
            return
        record = self.record(partition_id)
        holder = (handover.retired, handover.giver)
        if holder not in record.missing:
            return
        content = self._in_full(handover)
        if content is None:
            wanted = HandoverWanted(handover.retired, partition_id)
            self._executor.send(f"ex{handover.giver}", wanted)
            return
        record.missing.remove(holder)
        record.absorb(content)
        if record.missing:
            return
        self._came_ahead.pop(partition_id, None)
        self._executor.publish(record.close_counts())
        self._executor.snapshots.begin(partition_id, self._world.clock.now)
        if record.retired_by is not None:
            self._hand_over(record)
        else:
            self._executor.collect()
            self._executor.unit.recount(partition_id)
        for message in self._kept.pop(partition_id, []):
            self._executor.dispatch(message)

    def _in_full(self, handover: Handover) -> Content | None:
        """Put in what came ahead; None if it is not here, because a crash took it."""
        content: Content = handover.content
        ahead = self._came_ahead.get(handover.created, {})
        entries = list(content.entries)
        for query, version, counts in content.named:
            operation = ahead.get(query)
            if operation is None or operation.version != version:
                return None
            entries.append(Entry(operation, dict(counts)))
        if Bug.DETAILS_LEFT_BEHIND in self._world.bugs and handover.giver != self._number:
            entries = [replace(e, operation=e.operation._replace(details=())) for e in entries]
        return replace(content, entries=tuple(entries), named=())

    def beat(self) -> None:
        """Ask previous holders that are late; read in the store what dead ones left."""
        for partition_id in list(self.durable.partitions):
            record = self.record(partition_id)
            if not record.missing:
                continue
            waited = self._waits[partition_id] = self._waits.get(partition_id, 0) + 1
            for retired, giver in list(record.missing):
                if self._store.has_lost((retired, giver)):
                    self._inherit(record, retired, giver)
                elif waited % PATIENCE == 0 and giver != self._number:
                    self._executor.send(f"ex{giver}", HandoverWanted(retired, partition_id))

    def _inherit(self, record: Record, retired: int, giver: int) -> None:
        final = self._store.final((retired, giver))
        if final is not None:
            partition = record.partition
            change = self._store.change_to(partition.id)
            assert change is not None
            content = portion(final, giver, change, partition, self._number, self._world.bugs)
            self.take(Handover(retired, partition.id, giver, content))
