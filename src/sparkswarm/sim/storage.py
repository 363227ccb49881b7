"""The durable store of a simulated cluster: survives the crash of any machine.

Owns the log of plans, the newest term that each machine knows, and for each executor its
partition records, its result log and its current life. Stands for a shared filesystem with an
atomic commit, such as the engine on Spark uses. An event on a machine is atomic: all that an
executor writes while it handles one message is one commit.

Only the store can safely refuse two kinds of writes:

- those of an executor that was declared dead (*fenced*): its lives are numbered, and only the
  current one may write;
- plans of a Coordinator whose term is over.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from sparkswarm.protocol.partition import PlanChange
from sparkswarm.protocol.plan import Plan
from sparkswarm.sim.bugs import Bug
from sparkswarm.sim.kept_points import KeptPoints
from sparkswarm.sim.records import Holder, Record, new_record, portion
from sparkswarm.sim.tuples import Final, Match


class DeposedError(Exception):
    """A Coordinator wrote a plan after its term had ended."""


@dataclass(slots=True)
class Durable:
    """The durable state of one life of an executor.

    Attributes
    ----------
    version
        The newest plan that it follows.
    partitions
        Ids of the partitions of which it has records.
    results
        Its result log, which the sink reads in order.
    windows
        The points that it has processed, by partition. Data do not move: no other executor
        reads them.
    """

    version: int
    partitions: list[int] = field(default_factory=list)
    results: list[Match | Final] = field(default_factory=list)
    windows: dict[int, KeptPoints] = field(default_factory=dict)


class Storage:
    """The store of one cluster.

    Parameters
    ----------
    plan
        The first plan.
    bugs
        Planted bugs.
    """

    def __init__(self, plan: Plan, bugs: frozenset[Bug]) -> None:
        self._bugs = bugs
        self.term = -1
        self.terms: dict[str, int] = {}
        self.plans = [plan]
        self.log: list[tuple[PlanChange, ...]] = [()]
        self.records: dict[Holder, Record] = {}
        self.durables = [[Durable(0)] for _ in range(plan.executors)]
        self._fenced_at: list[list[int]] = [[] for _ in range(plan.executors)]
        self._created_by: dict[int, tuple[int, PlanChange | None]] = {
            partition.id: (0, None) for partition in plan.partitions
        }
        for partition in plan.partitions:
            for owner in partition.owners:
                self.records[partition.id, owner] = Record(partition)
                self.durables[owner][0].partitions.append(partition.id)

    # -- plans ------------------------------------------------------------------------------

    @property
    def plan(self) -> Plan:
        """The newest plan."""
        return self.plans[-1]

    def claim(self, term: int) -> bool:
        """Start the term of a Coordinator; return False if a later one has started."""
        if term <= self.term:
            return False
        self.term = term
        return True

    def append(self, term: int, plan: Plan, changes: tuple[PlanChange, ...]) -> None:
        """Append a plan; raise DeposedError if the term is over."""
        if Bug.TWO_COORDINATORS in self._bugs:
            del self.plans[plan.version :], self.log[plan.version :]
        elif term != self.term or plan.version != len(self.plans):
            raise DeposedError
        self.plans.append(plan)
        self.log.append(changes)
        for change in changes:
            for partition in change.created:
                self._created_by[partition.id] = (plan.version, change)

    # -- executors ----------------------------------------------------------------------------

    @property
    def lives(self) -> tuple[int, ...]:
        """Number of times that each executor was declared dead."""
        return tuple(map(len, self._fenced_at))

    def fence(self, executor: int, version: int) -> None:
        """Refuse all further writes of the current life of an executor.

        ``version`` is the plan that gives its partitions to others.
        """
        self._fenced_at[executor].append(version)
        self.durables[executor].append(Durable(version))

    def has_lost(self, holder: Holder) -> bool:
        """Whether the executor was declared dead while it held, or was to hold, this partition."""
        partition_id, executor = holder
        version, _ = self._created_by[partition_id]
        return any(version <= fenced for fenced in self._fenced_at[executor])

    def change_to(self, partition_id: int) -> PlanChange | None:
        """Return the change that created a partition; None for those of the first plan."""
        return self._created_by[partition_id][1]

    def final(self, holder: Holder) -> Record | None:
        """Return the final state of a partition on an executor; None if it may still change.

        If the executor died before its state was complete, the missing part is read from the
        partition's predecessors.
        """
        record = self.records.get(holder)
        if not self.has_lost(holder):
            return record if record is not None and record.is_final else None
        partition_id, executor = holder
        change = self.change_to(partition_id)
        if record is None and change is not None:
            record = new_record(change, partition_id)
        if record is None or change is None or not record.missing:
            return record
        whole = record.copy()
        for giver in record.missing:
            before = self.final(giver)
            if before is None:
                return None
            whole.absorb(portion(before, giver[1], change, record.partition, executor, self._bugs))
        return whole
