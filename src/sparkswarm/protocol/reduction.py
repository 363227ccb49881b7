"""Workload reduction: what m_high gives away (paper, "Workload Reduction by Repartitioning").

Owns the search that m_high runs over its own statistics: first whole partitions (Algorithm
3), then the best split, and, beyond the paper, sharing a cell that is too hot for anyone. It
proposes changes and says why; it moves nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sparkswarm.protocol.cost import CostModel
from sparkswarm.protocol.geometry import CellRect, QueryCells
from sparkswarm.protocol.partition import Change, Partition, moved, split
from sparkswarm.protocol.sharing import COOL, Sharing, share_hot_cell
from sparkswarm.protocol.split import Split, find_split
from sparkswarm.protocol.statistics import Statistics
from sparkswarm.protocol.subset import find_subset

GOOD_FILL = 0.9
"""A subset that reaches this part of C_max is taken without looking any further."""

CANDIDATES = 4
"""How many of the costliest partitions are searched for a split line. The paper tries one,
and the next only if that is a single cell."""


@dataclass(frozen=True, slots=True)
class Holding:
    """A partition and its statistics on the executor that holds it."""

    partition: Partition
    statistics: Statistics


@dataclass(frozen=True, slots=True)
class Receiver:
    """An executor that can take load, and what it costs now."""

    m_low: int
    c_low: float


@dataclass(frozen=True, slots=True)
class Transfer:
    """Cost that goes from m_high to one receiver, and why."""

    m_low: int
    cost: float
    reason: str


@dataclass(frozen=True, slots=True)
class Rules:
    """What a move must be worth.

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
    payback_rounds: float = 4.0
    shared_cells: bool = False


@dataclass(frozen=True, slots=True)
class _Option:
    """One way to relieve m_high: the change, what it moves and what it wins."""

    changes: tuple[Change, ...]
    moved: float
    gain: float
    reason: str


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

    Attributes
    ----------
    changes, transfers
        What was found, in order.
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
    ) -> None:
        self._m_high = m_high
        self._model = model
        self._system_received = system_received
        self._fresh_id = fresh_id
        self._rules = rules
        self._costs = {h.partition.id: (self._cost(h.statistics), h) for h in holdings}
        self.changes: list[Change] = []
        self.transfers: list[Transfer] = []
        self.refusals: list[str] = []

    def run(self, receivers: Sequence[Receiver]) -> None:
        """Level m_high with its receivers, as far as that can be done.

        All aim for the same level, (C(m_high) + sum of C(m_low)) / (receivers + 1), which
        for one receiver makes the paper's C_max = (C(m_high) - C(m_low)) / 2. A cell that
        costs more than the level is shared first: nothing else can help it.
        """
        waiting = sorted(receivers, key=lambda r: (r.c_low, r.m_low))
        level = (self._c_high() + sum(r.c_low for r in waiting)) / (len(waiting) + 1)
        if self._rules.shared_cells:
            waiting = self._share_the_hottest(waiting, level)
        for receiver in waiting:
            self._give(receiver, level)

    def _give(self, receiver: Receiver, level: float) -> None:
        """Find the best way to give ``receiver`` what it has room for, and record it."""
        c_high = self._c_high()
        c_max = min(level - receiver.c_low, c_high - level)
        if c_max <= 0:
            self.refusals.append(f"{receiver.m_low} has no room below the level of {level:.4g}")
            return
        mine = [
            (cost, held)
            for cost, held in sorted(
                self._costs.values(), key=lambda entry: (-entry[0], entry[1].partition.id)
            )
            if cost > 0 and receiver.m_low not in held.partition.owners
        ]
        options = [*self._subset(mine, receiver, c_max)]
        if not options or options[0].moved < GOOD_FILL * c_max:
            options += self._splits(mine, receiver, c_max, c_high)
            if self._rules.shared_cells:
                options += self._shares(mine, receiver, level)
        worthwhile = [option for option in options if self._pays(option, c_high)]
        if not worthwhile:
            if not options:
                self.refusals.append(f"nothing of {self._m_high} can be moved or split")
            return
        best = min(worthwhile, key=lambda option: abs(option.moved - c_max))
        self._accept(best, receiver.m_low)

    def _subset(
        self, mine: list[tuple[float, Holding]], receiver: Receiver, c_max: float
    ) -> list[_Option]:
        """Offer whole partitions, by Algorithm 3."""
        chosen = [mine[i] for i in find_subset([cost for cost, _ in mine], c_max)]
        if not chosen:
            return []
        changes = tuple(
            moved(held.partition, self._m_high, receiver.m_low, self._fresh_id + i)
            for i, (_, held) in enumerate(chosen)
        )
        amount = sum(cost for cost, _ in chosen)
        return [self._option(changes, amount, amount, receiver, f"{len(chosen)} whole partitions")]

    def _splits(
        self, mine: list[tuple[float, Holding]], receiver: Receiver, c_max: float, c_high: float
    ) -> list[_Option]:
        """Offer one side of the best line through each of the costliest partitions."""
        options = []
        whole = [held for _, held in mine if not held.partition.is_shared]
        for held in [h for h in whole if not h.partition.is_cell][:CANDIDATES]:
            found = find_split(
                held.statistics, self._model, c_high, c_high - 2 * c_max, self._system_received
            )
            if found is None:
                continue
            gone, kept = found.pieces(held.partition.cells)
            pieces: list[tuple[CellRect, tuple[int, ...]]] = [
                (kept, (self._m_high,)),
                (gone, (receiver.m_low,)),
            ]
            change = split(held.partition, pieces, self._fresh_id)
            reason = f"{_side(found)} of p{held.partition.id}"
            relief = self._cost(held.statistics) - found.kept
            options.append(self._option((change,), found.moved, relief, receiver, reason))
        return options

    def _shares(
        self, mine: list[tuple[float, Holding]], receiver: Receiver, level: float
    ) -> list[_Option]:
        """Offer a share of each of the costliest cells, for when nothing finer can be moved."""
        options = []
        cells = [
            held
            for cost, held in mine
            if held.partition.is_cell and cost * len(held.partition.owners) > COOL * level
        ]
        for held in cells[:CANDIDATES]:
            found = self._sharing(held, [receiver], owners=len(held.partition.owners) + 1)
            if found is not None:
                relief = self._cost(held.statistics) - found.share
                reason = f"a share of p{held.partition.id}"
                options.append(self._option((found.change,), found.share, relief, receiver, reason))
        return options

    def _share_the_hottest(self, waiting: list[Receiver], level: float) -> list[Receiver]:
        """Share cells that cost more than the level; return the receivers left over."""
        for cost, held in sorted(self._costs.values(), key=lambda e: (-e[0], e[1].partition.id)):
            if cost <= level:
                break
            takers = [r for r in waiting if r.m_low not in held.partition.owners]
            found = self._sharing(held, takers, level=level)
            if found is None:
                continue
            joined = takers[: found.joined]
            reason = f"a share of the hot cell in p{held.partition.id}"
            self._record((found.change,))
            self.transfers += [Transfer(r.m_low, found.share, reason) for r in joined]
            waiting = [r for r in waiting if r not in joined]
        return waiting

    def _sharing(
        self,
        held: Holding,
        takers: Sequence[Receiver],
        level: float = 0.0,
        owners: int | None = None,
    ) -> Sharing | None:
        return share_hot_cell(
            held.partition, held.statistics, self._model, self._system_received,
            self._m_high, [r.m_low for r in takers], self._fresh_id, level, owners,
        )  # fmt: skip

    def _option(
        self,
        changes: tuple[Change, ...],
        amount: float,
        relief: float,
        receiver: Receiver,
        reason: str,
    ) -> _Option:
        c_high = self._c_high()
        gain = c_high - max(c_high - relief, receiver.c_low + amount)
        return _Option(changes, amount, gain, reason)

    def _pays(self, option: _Option, c_high: float) -> bool:
        """Whether an option is worth its trouble; if not, say why."""
        if option.gain <= 0 or option.gain < self._rules.min_gain * c_high:
            self.refusals.append(f"{option.reason} would win {option.gain:.4g} of {c_high:.4g}")
            return False
        queries = sum(
            self._costs[p.id][1].statistics.queries for c in option.changes for p in c.retired
        )
        price = self._model.cost(self._model.moving(queries), self._system_received)
        if price > option.gain * self._rules.payback_rounds:
            self.refusals.append(
                f"{option.reason} costs {price:.4g} once and wins {option.gain:.4g} a round"
            )
            return False
        return True

    def _accept(self, option: _Option, m_low: int) -> None:
        self._record(option.changes)
        self.transfers.append(Transfer(m_low, option.moved, option.reason))

    def _record(self, changes: Sequence[Change]) -> None:
        """Take a change as done: what is left is what the next receiver is served from."""
        for change in changes:
            _, old = self._costs.pop(change.retired[0].id)
            for created in change.created:
                if self._m_high in created.owners:
                    left = inherited(created, old)
                    self._costs[created.id] = (self._cost(left), Holding(created, left))
            self._fresh_id = max(self._fresh_id, *(p.id + 1 for p in change.created))
        self.changes += changes

    def _cost(self, statistics: Statistics) -> float:
        return self._model.cost(self._model.numerator(statistics), self._system_received)

    def _c_high(self) -> float:
        return sum(cost for cost, _ in self._costs.values())


def inherited(created: Partition, old: Holding, queries: QueryCells | None = None) -> Statistics:
    """Work out the statistics of one owner of ``created``, which replaces part of ``old``."""
    part = old.statistics.restricted_to(created.cells, queries)
    share = len(old.partition.owners) / len(created.owners)
    return part if share == 1 else part.scaled(share)


def _side(found: Split) -> str:
    return f"the {'first' if found.move_first else 'last'} {found.axis.name.lower()}"
