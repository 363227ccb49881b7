"""Balance: an executor's load-balancing unit, for the length of one batch.

Owns how the protocol's messages travel on Spark. What the Coordinator says comes with the
briefing, what the unit says goes with the report; statistics that one unit hands to another
are a file that the other finds when the plan has changed. No batch waits for any of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from sparkswarm.compiled import FloatArray, IntArray
from sparkswarm.geometry import QueryCells
from sparkswarm.protocol.cost import Prices, make_cost_model
from sparkswarm.protocol.holding import Holding
from sparkswarm.protocol.messages import CloseRound, Message, PlanPublished, TakenOver, Takeover
from sparkswarm.protocol.partition import Partition
from sparkswarm.protocol.statistics import Statistics
from sparkswarm.protocol.unit import LoadBalancingUnit
from sparkswarm.spark.tasks.context import Desk
from sparkswarm.store import statistics
from sparkswarm.store.files import FileRef, Folder
from sparkswarm.store.statistics import QueryChanges, open_soft


@dataclass(frozen=True, slots=True)
class Said:
    """What a unit says at the end of a batch, and the files that go with it."""

    messages: tuple[Message, ...] = ()
    parcels: Mapping[int, FileRef] = field(default_factory=dict)
    state: FileRef | None = None


class Balance:
    """The unit of one executor during one batch."""

    def __init__(self, at: Desk, executor: int) -> None:
        self._at = at
        self._executor = executor
        assert at.briefing.control is not None
        self._control = control = at.briefing.control
        config = at.briefing.config
        state = self._read(control.states.get(executor))
        if state is None:
            mine = at.briefing.epoch.plan.owned_by(executor)
            self._unit = LoadBalancingUnit(executor, mine, config, self._queries_of)
            self._unit.recount_queries()
            self._unit.use_prices(Prices(*control.prices))
            return
        # Where an estimate of the queries is enough, none is read.
        exact = make_cost_model(config.cost_model).needs_exact_queries
        queries_of = self._queries_of if exact else None
        self._unit = LoadBalancingUnit(executor, self._before(), config, queries_of)
        self._unit.use_prices(Prices(*control.prices))
        self._unit.restore(state)
        for ref in control.parcels.get(executor, ()):
            self._take_over(ref)
        if control.changes:
            self._unit.handle(PlanPublished(at.briefing.epoch.plan.version, control.changes))
        self._hear_news()

    def collect(
        self, partition_id: int, columns: IntArray, rows: IntArray, checks: FloatArray
    ) -> None:
        """Collect the statistics of points of one partition."""
        self._unit.statistics(partition_id).collect_points(columns, rows, checks)

    def close(self) -> Said:
        """Answer the Coordinator, close the round where it ends, and leave the state."""
        control = self._control
        said: list[Message] = []
        parcels: dict[int, FileRef] = {}
        for message in control.messages.get(self._executor, ()):
            for answer in self._unit.handle(message):
                if isinstance(answer, Takeover):
                    m_low = int(answer.to)
                    parcels[m_low] = self._send(answer)
                    # What is in the store has arrived.
                    done = TakenOver(m_low, self._executor, answer.round)
                    said += self._unit.handle(done)
                else:
                    said.append(answer)
        if control.closes is not None:
            close = CloseRound(self._executor, control.closes, length=control.length)
            said += self._unit.handle(close)
        return Said(tuple(said), parcels, self._leave("state", self._unit.state()))

    def _before(self) -> tuple[Partition, ...]:
        """Return what the executor held in the batch before, when its state was written."""
        plan = {p.id: p for p in self._at.briefing.epoch.plan.partitions}
        for change in reversed(self._control.changes):
            for partition in change.created:
                plan.pop(partition.id, None)
            plan.update({partition.id: partition for partition in change.retired})
        return tuple(p for p in plan.values() if self._executor in p.owners)

    def _queries_of(self, partition: Partition) -> QueryCells:
        return self._at.queries_under(partition.cells)

    def _hear_news(self) -> None:
        """Count the queries that this batch added and removed."""
        held = {p.id for p in self._unit.partitions}
        for ref in self._at.briefing.news:
            content = open_soft(self._at.briefing.files, ref)
            if content is None:
                continue
            news = QueryChanges.from_bytes(content)
            for key in held.intersection(np.unique(news.partition).tolist()):
                mine = news.partition == key
                self._unit.collect_queries(key, news.cells.take(mine & news.added))
                self._unit.remove_queries(key, news.cells.take(mine & ~news.added))

    # -- files -----------------------------------------------------------------------------

    def _take_over(self, ref: FileRef) -> None:
        values = self._read(ref)
        created = {p.id: p for c in self._control.changes for p in c.created}
        holdings = tuple(
            Holding(created[key], Statistics(created[key].cells, value.copy()))
            for key, value in (values or {}).items()
            if key in created
        )
        # The round is told to keep them for a while; they are used at once.
        self._unit.handle(Takeover(-1, self._executor, 0, holdings))

    def _send(self, takeover: Takeover) -> FileRef:
        values = {h.partition.id: h.statistics.values for h in takeover.holdings}
        return self._leave(f"parcel-{takeover.to}", values)

    def _leave(self, name: str, values: Mapping[int, FloatArray]) -> FileRef:
        name = self._at.name_file(Folder.SOFT, f"m{self._executor}-{name}")
        content = statistics.to_bytes(values)
        return self._at.briefing.files.write(name, content, durable=False)

    def _read(self, ref: FileRef | None) -> dict[int, FloatArray] | None:
        """Return statistics from a file; None where it is gone."""
        content = open_soft(self._at.briefing.files, ref)
        return None if content is None else statistics.from_bytes(content)
