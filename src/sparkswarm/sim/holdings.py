"""The partitions of one executor, and how a partition moves to another executor.

Owns the plan as one executor knows it, its partition records, and the messages that it keeps
back or forwards because of them.

How a partition moves: m_high sends statistics and queries ahead (:class:`Ahead`) and continues to
process tuples. When the plan has changed it stops, and its :class:`Handover` contains what has
changed since, the state of the queries and the processed tuples. m_low keeps arriving tuples
until then. So the stream is redirected after queries and state have moved, as the paper demands,
and at any time every cell and ticket has exactly one executor that processes it.

A handover that does not arrive is requested again. That of a dead executor is read from the
store.
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
"""Number of beats after which a missing handover is requested."""


class Forward(NamedTuple):
    """The change that retired a partition, with its version and round."""

    version: int
    round: int
    change: PlanChange


class Holdings:
    """The partitions of one incarnation of an executor.

    Attributes
    ----------
    durable
        The durable state of this life of the executor.
    current
        All partitions of the plan that it follows, by id.
    rounds
        Number of rounds that it has closed.
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
        """The partitions in force that this executor owns."""
        return [self.current[i] for i in self.durable.partitions if i in self.current]

    def record(self, partition_id: int) -> Record:
        """Return the record of a partition that this executor owns or owned."""
        return self._store.records[partition_id, self._number]

    def holds(self, partition_id: int) -> bool:
        """Whether this executor owns a partition, or owned it in this life."""
        return partition_id in self.durable.partitions

    def awaits(self, partition_id: int) -> bool:
        """Whether this executor holds a partition whose state has not arrived completely."""
        return self.holds(partition_id) and bool(self.record(partition_id).missing)

    def queries_of(self, partition: Partition) -> QueryCells:
        """Return the queries in a partition, for its statistics."""
        found = {
            operation.query: operation.cells.intersection(partition.cells)
            for operation in self._operations_in(partition.cells)
            if operation.cells is not None
        }
        return QueryCells.of(list(found.values()))

    def _operations_in(self, cells: CellRect) -> list[Operation]:
        """Return the newest operation of each query in these cells."""
        return [
            entry.operation
            for partition in self.mine
            if partition.cells.overlaps(cells)
            for entry in self.record(partition.id).entries.values()
            if entry.lives_in(cells)
        ]

    # -- messages that must wait, and forwarding --------------------------------------------------

    def keep(self, partition_id: int, message: Any) -> None:
        """Keep a message until the state of its partition has arrived."""
        self._kept.setdefault(partition_id, []).append(message)

    def keep_early(self, message: Any) -> None:
        """Keep a message about a partition of a later plan."""
        self._early.append(message)

    def forward_of(self, partition_id: int) -> PlanChange | None:
        """Return the change that retired a partition, while tuples for it may still arrive."""
        forward = self._forwards.get(partition_id)
        return forward.change if forward else None

    def close_round(self, updated: int) -> None:
        """Drop forwards that are no longer needed: all machines follow version ``updated``."""
        self.rounds += 1
        self._forwards = {
            partition_id: forward
            for partition_id, forward in self._forwards.items()
            if forward.version > updated or forward.round >= self.rounds
        }

    # -- following the plan -----------------------------------------------------------------------

    def catch_up(self, version: int) -> None:
        """Follow all plans up to a version, in order.

        Plans that never arrived, because a Coordinator crashed while it sent them, are read
        from the store.
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
        """Record a change, to forward tuples for the partitions that it retired."""
        self._executor.snapshots.follow(change)
        for retired in change.retired:
            self._forwards[retired.id] = Forward(version, self.rounds, change)

    def _follow(self, change: PlanChange) -> None:
        """Await new partitions, and hand over retired ones."""
        self._remember(change, self.durable.version)
        for created in change.created:
            self.current[created.id] = created
            if self._number in created.owners:
                record = new_record(change, created.id)
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
                    self._hand_over(record, change)
        if Bug.INDEX_BEFORE_TAKEOVER in self._world.bugs:
            self._begin_too_early(change)

    def _begin_too_early(self, change: PlanChange) -> None:
        """Start with the queries that were sent ahead, without the handover (planted bug)."""
        for created in change.created:
            if self.awaits(created.id):
                record = self.record(created.id)
                record.missing = []
                for operation in self._came_ahead.get(created.id, {}).values():
                    record.apply(operation)
                self._executor.snapshots.begin(created.id, self._world.clock.now)

    # -- handing over -----------------------------------------------------------------------------

    def send_ahead(self, takeover: Takeover) -> None:
        """Send statistics and queries to m_low, before the plan changes."""
        queries = []
        for held in takeover.holdings:
            operations = tuple(self._operations_in(held.partition.cells))
            key = (held.partition.id, int(takeover.to))
            self._sent_ahead[key] = {o.query: o.version for o in operations}
            queries.append(operations)
        self._executor.send(f"ex{takeover.to}", Ahead(takeover, tuple(queries)))

    def came_ahead(self, ahead: Ahead) -> None:
        """Keep the queries of partitions that this executor may get."""
        for held, operations in zip(ahead.takeover.holdings, ahead.queries, strict=True):
            self._came_ahead[held.partition.id] = {o.query: o for o in operations}

    def _hand_over(self, record: Record, change: PlanChange) -> None:
        """Send the final state of a partition to the owners of its successors."""
        self._world.committed(self._executor)
        for created in change.created:
            if created.cells.overlaps(record.partition.cells):
                for owner in created.owners:
                    self._give(record, change, created, owner)

    def _give(self, record: Record, change: PlanChange, created: Partition, owner: int) -> None:
        """Hand over to one successor; queries that were sent ahead are only named."""
        content = portion(record, self._number, change, created, owner, self._world.bugs)
        known = self._sent_ahead.pop((created.id, owner), {})
        content = content.without(known)
        handover = Handover(record.partition.id, created.id, self._number, content)
        if owner == self._number:
            self.take(handover)
        else:
            self._executor.send(f"ex{owner}", handover)

    def give_again(self, source: str, wanted: HandoverWanted) -> None:
        """Repeat a handover that did not arrive, in full, if the state is final."""
        if self.holds(wanted.retired):
            record = self.record(wanted.retired)
            change = record.retired_by
            if change is not None and not record.missing:
                for created in change.created:
                    if created.id == wanted.created:
                        self._give(record, change, created, int(source.removeprefix("ex")))

    # -- taking over ------------------------------------------------------------------------------

    def take(self, handover: Handover) -> None:
        """Take the state of a previous holder; start the partition when all have arrived."""
        partition_id = handover.created
        if not self.holds(partition_id):
            if partition_id not in self._forwards:
                # The plan that creates this partition has not arrived.
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
            self._hand_over(record, record.retired_by)
        else:
            self._executor.collect()
            self._executor.unit.recount(partition_id)
        for message in self._kept.pop(partition_id, []):
            self._executor.dispatch(message)

    def _in_full(self, handover: Handover) -> Content | None:
        """Insert the queries that were sent ahead; return None if a crash has lost them."""
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
        """Request late handovers; read those of dead executors from the store."""
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
        partition = record.partition
        final, change = self._store.final((retired, giver)), self._store.change_to(partition.id)
        if final is not None and change is not None:
            content = portion(final, giver, change, partition, self._number, self._world.bugs)
            self.take(Handover(retired, partition.id, giver, content))
