"""Workload reduction: what m_high gives away (paper, "Workload Reduction by Repartitioning").

Owns the search that m_high runs over its own statistics: first whole partitions (Algorithm 3),
then the best split, then, beyond the paper, sharing a hot cell. It proposes changes and changes
nothing itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from sparkswarm.geometry import QueryCells
from sparkswarm.protocol.cost import CostModel
from sparkswarm.protocol.decision import level
from sparkswarm.protocol.holding import Holding, inherited
from sparkswarm.protocol.hosts import ONE_HOST, Hosts
from sparkswarm.protocol.messages import Reason, Refusal
from sparkswarm.protocol.partition import TICKETS, Partition, PlanChange, moved, split
from sparkswarm.protocol.sharing import share_hot_cell
from sparkswarm.protocol.split import find_split, find_subset
from sparkswarm.protocol.statistics import Statistics

CLOSE_ENOUGH = 0.1
"""An option that misses C_max by no more than this fraction ends the search."""

CANDIDATES = 4
"""Number of the costliest partitions that are searched for a split line. The paper tries one,
and the next only if that is a single cell."""


@dataclass(frozen=True, slots=True)
class Receiver:
    """An executor that can take load, and its present cost."""

    m_low: int
    c_low: float


@dataclass(frozen=True, slots=True)
class Transfer:
    """Changes that give something to one receiver, and the cost that moves with them."""

    m_low: int
    cost: float
    changes: tuple[PlanChange, ...]


@dataclass(frozen=True, slots=True)
class Rules:
    """What a move must be worth; by default anything is allowed but sharing.

    Attributes
    ----------
    min_gain
        Smallest fraction by which it must lower the costlier of the two executors.
    payback_rounds
        Number of rounds in which it must win back the cost of handing over queries.
    shared_cells
        Whether a cell may be shared.
    """

    min_gain: float = 0.0
    payback_rounds: float = math.inf
    shared_cells: bool = False


@dataclass(frozen=True, slots=True)
class _Option:
    """One way to relieve m_high.

    Attributes
    ----------
    relief
        Cost that m_high loses. In the paper's model, whose costs do not add up, a split
        relieves m_high of more than m_low gains.
    cost
        Cost that m_low gains.
    queries
        Number of queries to hand over.
    """

    changes: tuple[PlanChange, ...]
    relief: float
    cost: float
    queries: float

    def miss(self, c_max: float) -> float:
        """Return |C_diff|, the distance between m_high and m_low afterwards."""
        return abs(2 * c_max - self.relief - self.cost)


_Entries = Sequence[tuple[float, Holding]]
"""Partitions with their costs, the costliest first."""


class Search:
    """One m_high's search for something to give to each of its receivers.

    Parameters
    ----------
    holdings
        The partitions of m_high with their statistics.
    system_received
        R(S).
    fresh_id
        The first of the partition ids that the Coordinator granted.
    queries_of
        Returns the queries of a partition, to recount them exactly; without it their
        statistics are estimated.
    hosts
        The hosts of the executors.

    Attributes
    ----------
    changes, transfers
        What was found, in order.
    takeovers
        Partitions with their statistics, by the executor that did not hold them before.
    refusals
        Options that were rejected, and why.
    """

    def __init__(
        self,
        m_high: int,
        holdings: Sequence[Holding],
        model: CostModel,
        system_received: float,
        fresh_id: int,
        rules: Rules,
        queries_of: Callable[[Partition], QueryCells] | None = None,
        hosts: Hosts = ONE_HOST,
    ) -> None:
        self._m_high = m_high
        self._hosts = hosts
        self._model = model
        self._system_received = system_received
        self._fresh_id = fresh_id
        self._rules = rules
        self._queries_of = queries_of
        self._costs = {h.partition.id: (self._cost(h.statistics), h) for h in holdings}
        self.changes: list[PlanChange] = []
        self.takeovers: dict[int, list[Holding]] = {}
        self.transfers: list[Transfer] = []
        self.refusals: list[Refusal] = []

    def run(self, receivers: Sequence[Receiver]) -> None:
        """Level m_high with its receivers, as far as possible.

        All aim for the same level, (C(m_high) + sum of C(m_low)) / (receivers + 1), which
        for one receiver makes the paper's C_max = (C(m_high) - C(m_low)) / 2.
        """
        even = level(self._c_high(), [receiver.c_low for receiver in receivers])
        for receiver in sorted(receivers, key=lambda r: (r.c_low, r.m_low)):
            self._give(receiver, even)

    def _give(self, receiver: Receiver, even: float) -> None:
        """Find the best option for ``receiver`` and record it.

        Where the partitions are too coarse to meet the level, the two executors meet in the
        middle, as in the paper, if that lowers the costlier of them.
        """
        c_high = self._c_high()
        room = min(even - receiver.c_low, c_high - even)
        if room <= 0:
            numbers = {"level": even}
            self.refusals.append(
                Refusal(m_low=receiver.m_low, reason=Reason.NO_ROOM, numbers=numbers)
            )
            return
        before = len(self.refusals)
        best = None
        for c_max in dict.fromkeys((room, (c_high - receiver.c_low) / 2)):
            best = best or self._find(receiver, c_max, even, c_high)
        if best is not None:
            self._record(best.changes)
            self.transfers.append(Transfer(receiver.m_low, best.cost, best.changes))
        elif len(self.refusals) == before:
            self.refusals.append(Refusal(m_low=receiver.m_low, reason=Reason.NOTHING_FITS))

    def _find(self, receiver: Receiver, c_max: float, even: float, c_high: float) -> _Option | None:
        """Return the option that comes closest to moving ``c_max`` and pays off.

        In the paper's order: whole partitions, then a split, then sharing a cell, each only
        if the options before miss C_max by more than a tenth.
        """
        mine = sorted(
            (entry for entry in self._costs.values() if entry[0] > 0),
            key=lambda entry: (-entry[0], entry[1].partition.id),
        )
        best: _Option | None = None
        for search in (self._subset, self._splits, self._shares):
            for option in search(mine, receiver, c_max, even):
                closer = best is None or option.miss(c_max) < best.miss(c_max)
                if closer and self._pays(option, receiver, c_high):
                    best = option
            if best is not None and best.miss(c_max) <= CLOSE_ENOUGH * 2 * c_max:
                break
        return best

    def _subset(
        self, mine: _Entries, receiver: Receiver, c_max: float, even: float
    ) -> Iterator[_Option]:
        """Yield whole partitions, chosen by Algorithm 3."""
        chosen = [mine[i] for i in find_subset([cost for cost, _ in mine], c_max)]
        if chosen:
            changes = tuple(
                moved(held.partition, self._m_high, receiver.m_low, self._fresh_id + i)
                for i, (_, held) in enumerate(chosen)
            )
            cost = sum(cost for cost, _ in chosen)
            queries = sum(held.statistics.queries for _, held in chosen)
            yield _Option(changes, cost, cost, queries)

    def _splits(
        self, mine: _Entries, receiver: Receiver, c_max: float, even: float
    ) -> Iterator[_Option]:
        """Yield one side of the best line through each of the costliest partitions."""
        whole = [held for _, held in mine if not held.partition.is_shared]
        c_high = self._c_high()
        for held in [h for h in whole if not h.partition.is_cell][:CANDIDATES]:
            found = find_split(
                held.statistics, self._model, c_high, c_high - 2 * c_max, self._system_received
            )
            if found is None:
                continue
            gone, kept = found.pieces(held.partition.cells)
            pieces = [(kept, {self._m_high: TICKETS}), (gone, {receiver.m_low: TICKETS})]
            change = split(held.partition, pieces, self._fresh_id)
            queries = held.statistics.restricted_to(gone).queries
            relief = self._cost(held.statistics) - found.kept
            yield _Option((change,), relief, found.moved, queries)

    def _shares(
        self, mine: _Entries, receiver: Receiver, c_max: float, even: float
    ) -> Iterator[_Option]:
        """Yield a share of the hottest cell of each of the costliest partitions."""
        if not self._rules.shared_cells:
            return
        for _, held in mine[:CANDIDATES]:
            found = share_hot_cell(
                held,
                self._model,
                self._system_received,
                m_high=self._m_high,
                m_low=receiver.m_low,
                amount=c_max,
                level=even,
                fresh_id=self._fresh_id,
            )
            if found is not None:
                cell = found.change.created[-1]
                known = receiver.m_low in held.partition.owners
                queries = 0.0 if known else held.statistics.restricted_to(cell.cells).queries
                yield _Option((found.change,), found.cost, found.cost, queries)

    def _pays(self, option: _Option, receiver: Receiver, c_high: float) -> bool:
        """Return whether an option is worth its cost; if not, record why."""
        gain = c_high - max(c_high - option.relief, receiver.c_low + option.cost)
        to_fetch = self._hosts.to_fetch(self._m_high, receiver.m_low, option.queries)
        moving = self._model.moving(option.queries, to_fetch)
        price = self._model.cost(moving, self._system_received)
        if gain <= 0 or gain < self._rules.min_gain * c_high:
            reason, numbers = Reason.GAIN_TOO_SMALL, {"gain": gain, "cost": c_high}
        elif price > gain * self._rules.payback_rounds:
            reason, numbers = Reason.MOVE_TOO_EXPENSIVE, {"gain": gain, "price": price}
        else:
            return True
        self.refusals.append(
            Refusal(m_low=receiver.m_low, reason=reason, changes=option.changes, numbers=numbers)
        )
        return False

    def _record(self, changes: Sequence[PlanChange]) -> None:
        """Record changes as made: the next receiver is served from what is left."""
        for change in changes:
            _, old = self._costs.pop(change.retired[0].id)
            for created in change.created:
                queries = self._queries_of(created) if self._queries_of else None
                newcomers = set(created.owners) - set(old.partition.owners)
                for owner in newcomers | {self._m_high} & set(created.owners):
                    left = Holding(created, inherited(created, owner, old, self._m_high, queries))
                    if owner == self._m_high:
                        self._costs[created.id] = (self._cost(left.statistics), left)
                    else:
                        self.takeovers.setdefault(owner, []).append(left)
            self._fresh_id = max(self._fresh_id, *(p.id + 1 for p in change.created))
        self.changes += changes

    def _cost(self, statistics: Statistics) -> float:
        return self._model.cost(self._model.numerator(statistics), self._system_received)

    def _c_high(self) -> float:
        return sum(cost for cost, _ in self._costs.values())
