"""The load-balancing unit of one executor, a state machine.

Owns the executor's partitions with their statistics, and its side of the protocol: reports to
the Coordinator, handovers to other units. It does not know how messages travel or where queries
are stored.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from sparkswarm.compiled import FloatArray, IntArray, LongArray
from sparkswarm.config import SwarmConfig
from sparkswarm.errors import ProtocolError
from sparkswarm.geometry import QueryCells
from sparkswarm.protocol.cost import WORK_ONLY, CostModel, Prices, make_cost_model
from sparkswarm.protocol.holding import Holding, inherited
from sparkswarm.protocol.hosts import ONE_HOST, Hosts
from sparkswarm.protocol.learning import PriceLearner
from sparkswarm.protocol.merge import find_merges
from sparkswarm.protocol.messages import (
    CloseRound,
    CostReport,
    IdGrant,
    IdRequest,
    Message,
    NothingFeasible,
    PlanPublished,
    Proposal,
    Reason,
    ReduceRequest,
    Refused,
    TakenOver,
    Takeover,
)
from sparkswarm.protocol.partition import TICKETS, Partition, PlanChange, merged, reshared
from sparkswarm.protocol.reduction import Receiver, Rules, Search
from sparkswarm.protocol.sharing import COOL
from sparkswarm.protocol.statistics import Statistics

PART_OF_A_GAIN = 0.1
"""Fraction of ``min_gain`` that a single move must win."""

KEEP_TAKEOVERS = 2
"""Rounds for which statistics sent by another unit wait for the plan that makes use of them."""


@dataclass(slots=True)
class _Pending:
    """A proposal that waits until its receivers have the statistics."""

    proposal: Proposal
    waiting: set[int]


class LoadBalancingUnit:
    """One executor's side of the protocol (paper, "SWARM Architecture").

    Parameters
    ----------
    partitions
        The partitions at the start.
    queries_of
        Returns the continuous queries of a partition, clipped to it, to recount their
        statistics exactly after a split or a merge. Without it they are estimated.
    """

    def __init__(
        self,
        executor: int,
        partitions: Iterable[Partition],
        config: SwarmConfig,
        queries_of: Callable[[Partition], QueryCells] | None = None,
    ) -> None:
        self.executor = executor
        self.model: CostModel = make_cost_model(config.cost_model)
        self._config = config
        self._queries_of = queries_of
        self._held = {p.id: Holding(p, Statistics(p.cells)) for p in partitions}
        # N, and with it a cost, settles at the arrivals of 1 / (1 - decay) rounds.
        per_round = 1.0 - config.decay
        self._rules = Rules(
            min_gain=config.min_gain * PART_OF_A_GAIN,
            payback_rounds=config.payback_rounds * per_round if per_round else math.inf,
            shared_cells=config.shared_cells,
        )
        self._incoming: dict[int, tuple[int, Statistics]] = {}
        self._pending: _Pending | None = None
        self._learner = PriceLearner(WORK_ONLY)
        self._hosts = ONE_HOST

    def state(self) -> dict[int, FloatArray]:
        """Return the statistics by partition id as plain arrays, for :meth:`restore`."""
        return {key: held.statistics.values for key, held in self._held.items()}

    def restore(self, state: Mapping[int, FloatArray]) -> None:
        """Continue with a :meth:`state` of the same executor.

        Partitions that the state lacks keep the statistics they have.
        """
        for key, held in self._held.items():
            values = state.get(key)
            if values is not None and values.shape == held.statistics.values.shape:
                statistics = Statistics(held.partition.cells, values.copy())
                self._held[key] = Holding(held.partition, statistics)

    def use_prices(self, prices: Prices) -> None:
        """Use these prices from now on, where the cost model has prices.

        For runtimes whose executors are alike and learn together; a unit that is told its
        busy time learns prices of its own.
        """
        self.model = self.model.with_prices(prices)

    def use_hosts(self, hosts: Hosts) -> None:
        """Take note of the hosts of the executors; by default all share one."""
        self._hosts = hosts

    def recount_queries(self) -> None:
        """Recount the queries of all partitions, for a unit that starts without a state."""
        for key, held in self._held.items():
            self._held[key] = Holding(held.partition, self._inherited(held.partition, ()))

    def recount(self, partition_id: int) -> None:
        """Recount the queries of a partition, for runtimes where they arrive after the plan.

        Does nothing for a partition that this executor does not hold.
        """
        held = self._held.get(partition_id)
        if held is None:
            return
        queries = self._queries_of(held.partition) if self._queries_of else None
        statistics = held.statistics.restricted_to(held.partition.cells, queries)
        self._held[partition_id] = Holding(held.partition, statistics)

    @property
    def partitions(self) -> list[Partition]:
        """The partitions that it holds."""
        return [held.partition for held in self._held.values()]

    def statistics(self, partition_id: int) -> Statistics:
        """Return the statistics of a partition; ProtocolError where it does not hold it."""
        if partition_id not in self._held:
            raise ProtocolError(f"executor {self.executor} does not hold partition {partition_id}")
        return self._held[partition_id].statistics

    # -- collecting ------------------------------------------------------------------------

    def collect_points(
        self,
        partition: LongArray,
        columns: IntArray,
        rows: IntArray,
        checks: FloatArray | None = None,
        weights: FloatArray | None = None,
    ) -> None:
        """Count points, each in the statistics of its partition."""
        order = np.argsort(partition, kind="stable")
        ids, starts = np.unique(partition[order], return_index=True)
        for partition_id, start, stop in zip(ids, starts, [*starts[1:], len(order)], strict=False):
            which = order[start:stop]
            self.statistics(int(partition_id)).collect_points(
                columns[which],
                rows[which],
                None if checks is None else checks[which],
                None if weights is None else weights[which],
            )

    def collect_queries(self, partition_id: int, queries: QueryCells) -> None:
        """Count new queries of a partition."""
        held = self.statistics(partition_id)
        held.collect_queries(queries.clipped(held.cells))

    def remove_queries(self, partition_id: int, queries: QueryCells) -> None:
        """Take queries of a partition out of the statistics."""
        held = self.statistics(partition_id)
        held.remove_queries(queries.clipped(held.cells))

    # -- the protocol ----------------------------------------------------------------------

    def handle(self, message: Message) -> list[Message]:
        """Take one message; return the messages to send."""
        match message:
            case CloseRound():
                return self._close_round(message)
            case ReduceRequest():
                return self._reduce(message)
            case Takeover():
                for held in message.holdings:
                    self._incoming[held.partition.id] = (message.round, held.statistics)
                return [TakenOver(self.executor, message.m_high, message.round)]
            case TakenOver():
                return self._taken_over(message)
            case IdGrant():
                return self._tidy(message)
            case PlanPublished():
                for change in message.changes:
                    self._apply(change)
                return []
            case Refused():
                return []
        raise ProtocolError(f"a load-balancing unit cannot handle {message!r}")

    def _close_round(self, message: CloseRound) -> list[Message]:
        """Close the statistics and report the cost (figure "Workflow of load balancing").

        Asks for ids too, where there is something to merge or to un-share.
        """
        self._incoming = {
            key: (sent, statistics)
            for key, (sent, statistics) in self._incoming.items()
            if sent > message.round - KEEP_TAKEOVERS
        }
        self._pending = None
        points = checks = 0.0
        for held in self._held.values():
            if message.length != 1.0:
                held.statistics.stretch_round(1.0 / message.length)
            totals = held.statistics.close_round(
                self._config.decay, forget_jumps=self.model.forgets_jumps
            )
            points += totals.points
            checks += totals.checks
        if message.busy is not None and self.model.learns_prices:
            self._learner.observe(points=points, checks=checks, seconds=message.busy)
            self.use_prices(self._learner.prices)
        numerator = sum(self.model.numerator(h.statistics) for h in self._held.values())
        received = sum(held.statistics.received for held in self._held.values())
        messages: list[Message] = [CostReport(self.executor, message.round, numerator, received)]
        wanted = len(self._shared_and_cool())
        if self._config.merge_every_rounds and message.round % self._config.merge_every_rounds == 0:
            wanted += len(find_merges(self.partitions))
        if wanted:
            messages.append(IdRequest(self.executor, message.round, wanted))
        return messages

    def _reduce(self, request: ReduceRequest) -> list[Message]:
        """Search for a workload reduction and hand the statistics to the new owners."""
        search = Search(
            m_high=self.executor,
            holdings=list(self._held.values()),
            model=self.model,
            system_received=request.system_received,
            fresh_id=request.fresh_ids[0],
            rules=self._rules,
            queries_of=self._queries_of,
            hosts=self._hosts,
        )
        search.run(
            [
                Receiver(m_low, c_low)
                for m_low, c_low in zip(request.m_lows, request.c_lows, strict=True)
            ]
        )
        if not search.changes:
            return [NothingFeasible(self.executor, request.round, tuple(search.refusals))]
        proposal = Proposal(
            executor=self.executor,
            round=request.round,
            changes=tuple(search.changes),
            moved=tuple((t.m_low, t.cost) for t in search.transfers),
            reason=Reason.ABOVE_LEVEL,
        )
        takeovers = [
            Takeover(self.executor, m_low, request.round, tuple(search.takeovers[m_low]))
            for m_low in sorted(search.takeovers)
        ]
        if not takeovers:
            return [proposal]
        self._pending = _Pending(proposal, {int(t.to) for t in takeovers})
        return list(takeovers)

    def _taken_over(self, message: TakenOver) -> list[Message]:
        """Propose to the Coordinator once every receiver has the statistics."""
        if self._pending is None or message.round != self._pending.proposal.round:
            return []
        self._pending.waiting.discard(message.m_low)
        if self._pending.waiting:
            return []
        proposal, self._pending = self._pending.proposal, None
        return [proposal]

    def _apply(self, change: PlanChange) -> None:
        """Apply a change of the plan to the partitions held."""
        for created in change.created:
            if self.executor in created.owners:
                _, sent = self._incoming.pop(created.id, (0, None))
                statistics = sent or self._inherited(created, change.retired)
                self._held[created.id] = Holding(created, statistics)
        for retired in change.retired:
            self._held.pop(retired.id, None)

    def _inherited(self, created: Partition, retired: tuple[Partition, ...]) -> Statistics:
        """Derive the statistics of a new partition from those of the old ones held here."""
        old = [self._held[p.id] for p in retired if p.id in self._held]
        queries = self._queries_of(created) if self._queries_of else None
        if not old:
            return Statistics(created.cells).restricted_to(created.cells, queries)
        if len(retired) > 1:
            return Statistics.joined([h.statistics for h in old], created.cells, queries)
        return inherited(created, self.executor, old[0], self.executor, queries)

    # -- merging and un-sharing --------------------------------------------------------------

    def _shared_and_cool(self) -> list[Holding]:
        """Return the shared cells led by this unit that may have cooled down.

        A first guess from its own load; the grant brings the mean to decide with.
        """
        own = sum(self.model.numerator(h.statistics) for h in self._held.values())
        return [
            held
            for held in self._held.values()
            if held.partition.is_shared
            and held.partition.owners[0] == self.executor
            and self._of_all_owners(held) <= COOL * own
        ]

    def _of_all_owners(self, held: Holding) -> float:
        """Return the numerator of a shared partition over all its owners."""
        share = held.partition.shares[self.executor] / TICKETS
        return self.model.numerator(held.statistics) / share

    def _tidy(self, grant: IdGrant) -> list[Message]:
        """Use granted ids to un-share cells that cooled down and to merge partitions."""
        fresh_id = grant.first_id
        changes: list[PlanChange] = []
        for held in self._shared_and_cool():
            cost = self.model.cost(self._of_all_owners(held), grant.system_received)
            if cost <= COOL * grant.mean_cost:
                changes.append(reshared(held.partition, {self.executor: TICKETS}, fresh_id))
                fresh_id += 1
        if self._config.merge_every_rounds and grant.round % self._config.merge_every_rounds == 0:
            for merge in find_merges(self.partitions):
                changes.append(merged(merge.partitions, merge.cells, fresh_id))
                fresh_id += 1
        changes = changes[: grant.count]
        if not changes:
            return []
        return [Proposal(self.executor, grant.round, tuple(changes), (), Reason.TIDYING)]
