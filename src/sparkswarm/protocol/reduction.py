"""Workload reduction: what m_high gives away (paper, "Workload Reduction by Repartitioning").

Owns the search that m_high runs over its own statistics: first whole partitions (Algorithm
3), then the best split, and, beyond the paper, sharing a cell that is too hot for anyone. It
proposes changes and says why; it moves nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from sparkswarm.geometry import QueryCells
from sparkswarm.protocol.cost import CostModel
from sparkswarm.protocol.decision import level
from sparkswarm.protocol.holding import Holding, inherited
from sparkswarm.protocol.messages import Reason, Refusal
from sparkswarm.protocol.partition import TICKETS, Partition, PlanChange, moved, split
from sparkswarm.protocol.sharing import share_hot_cell
from sparkswarm.protocol.split import find_split, find_subset
from sparkswarm.protocol.statistics import Statistics

CLOSE_ENOUGH = 0.1
"""What comes this close to C_max is taken without looking any further."""

CANDIDATES = 4
"""How many of the costliest partitions are searched for a split line. The paper tries one,
and the next only if that is a single cell."""


@dataclass(frozen=True, slots=True)
class Receiver:
    """An executor that can take load, and what it costs now."""

    m_low: int
    c_low: float


@dataclass(frozen=True, slots=True)
class Transfer:
    """What goes from m_high to one receiver, and the cost that goes with it."""

    m_low: int
    cost: float
    changes: tuple[PlanChange, ...]


@dataclass(frozen=True, slots=True)
class Rules:
    """What a move must be worth; by default nothing is asked of it.

    Attributes
    ----------
    min_gain
        It must lower the higher of the two executors by at least this fraction.
    payback_rounds
        What it costs to hand over the queries must be won back in so many rounds.
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
    changes
        What to change.
    relief
        What m_high would cost less. In the paper's model, whose costs do not add up, a
        split relieves m_high of more than goes to m_low.
    cost
        What m_low would cost more.
    queries
        How many queries would have to be handed over.
    """

    changes: tuple[PlanChange, ...]
    relief: float
    cost: float
    queries: float

    def miss(self, c_max: float) -> float:
        """Return |C_diff|, how far apart m_high and m_low would be."""
        return abs(2 * c_max - self.relief - self.cost)


_Entries = Sequence[tuple[float, Holding]]
"""Partitions with their costs, the costliest first."""


class Search:
    """One m_high's search for something to give to each of its receivers.

    Parameters
    ----------
    m_high, holdings
        Who searches, and what it holds.
    model, system_received
        How costs are counted; ``system_received`` is R(S).
    fresh_id
        The first of the partition ids that the Coordinator granted.
    rules
        What a move must be worth.
    queries_of
        Gives the queries of a partition, to recount them exactly; without it their
        statistics are estimated.

    Attributes
    ----------
    changes, transfers
        What was found, in order.
    parcels
        What each executor is to take over that it did not hold before.
    refusals
        What was looked at and not done, and why.
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
    ) -> None:
        self._m_high = m_high
        self._model = model
        self._system_received = system_received
        self._fresh_id = fresh_id
        self._rules = rules
        self._queries_of = queries_of
        self._costs = {h.partition.id: (self._cost(h.statistics), h) for h in holdings}
        self.changes: list[PlanChange] = []
        self.parcels: dict[int, list[Holding]] = {}
        self.transfers: list[Transfer] = []
        self.refusals: list[Refusal] = []

    def run(self, receivers: Sequence[Receiver]) -> None:
        """Level m_high with its receivers, as far as that can be done.

        All aim for the same level, (C(m_high) + sum of C(m_low)) / (receivers + 1), which
        for one receiver makes the paper's C_max = (C(m_high) - C(m_low)) / 2.
        """
        even = level(self._c_high(), [receiver.c_low for receiver in receivers])
        for receiver in sorted(receivers, key=lambda r: (r.c_low, r.m_low)):
            self._give(receiver, even)

    def _give(self, receiver: Receiver, even: float) -> None:
        """Find the best way to give ``receiver`` what it has room for, and record it.

        What the level asks for may be finer than the partitions allow. Then the two meet in
        the middle, as the paper has it, as long as that makes the higher of them lower.
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
        """Return the option that comes closest to moving ``c_max`` and pays.

        In the paper's order: whole partitions, then a split, each only if what came before
        misses C_max by more than a tenth; sharing a cell comes last.
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
        """Offer whole partitions, by Algorithm 3."""
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
        """Offer one side of the best line through each of the costliest partitions."""
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
        """Offer a share of the hottest cell of each of the costliest partitions."""
        if not self._rules.shared_cells:
            return
        for _, held in mine[:CANDIDATES]:
            found = share_hot_cell(
                held.partition, held.statistics, self._model, self._system_received,
                self._m_high, receiver.m_low, c_max, even, self._fresh_id,
            )  # fmt: skip
            if found is not None:
                cell = found.change.created[-1]
                known = receiver.m_low in held.partition.owners
                queries = 0.0 if known else held.statistics.restricted_to(cell.cells).queries
                yield _Option((found.change,), found.cost, found.cost, queries)

    def _pays(self, option: _Option, receiver: Receiver, c_high: float) -> bool:
        """Return whether an option is worth its cost; if not, record why."""
        gain = c_high - max(c_high - option.relief, receiver.c_low + option.cost)
        price = self._model.cost(self._model.moving(option.queries), self._system_received)
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
        """Take a change as done: what is left is what the next receiver is served from."""
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
                        self.parcels.setdefault(owner, []).append(left)
            self._fresh_id = max(self._fresh_id, *(p.id + 1 for p in change.created))
        self.changes += changes

    def _cost(self, statistics: Statistics) -> float:
        return self._model.cost(self._model.numerator(statistics), self._system_received)

    def _c_high(self) -> float:
        return sum(cost for cost, _ in self._costs.values())
