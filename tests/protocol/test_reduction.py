"""Workload reduction: what m_high gives away fits, adds up, and never makes things worse."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sparkswarm.geometry import Bounds, CellRect, Grid, QueryCells
from sparkswarm.observe.describe import describe_changes, describe_refusal
from sparkswarm.protocol.cost import CostModel, PaperModel, WorkModel
from sparkswarm.protocol.holding import Holding, inherited
from sparkswarm.protocol.hosts import Hosts
from sparkswarm.protocol.partition import TICKETS, ChangeKind, Partition, reshared
from sparkswarm.protocol.plan import Plan
from sparkswarm.protocol.reduction import (
    CANDIDATES,
    CLOSE_ENOUGH,
    Receiver,
    Rules,
    Search,
    Transfer,
)
from sparkswarm.protocol.sharing import WORTH_SHARING
from sparkswarm.protocol.split import find_subset
from sparkswarm.protocol.statistics import Axis, Statistics

from ..support.statistics import queries_in

MODEL = WorkModel(per_point=1.0, per_check=0.25)
M_HIGH = 0
FRESH = 100
OTHERS = 50
"""Executors from this id on may share cells with m_high, and are no receivers."""

SHARING = Rules(payback_rounds=4.0, shared_cells=True)
NO_SHARING = Rules(payback_rounds=4.0, shared_cells=False)


def statistics_of(
    cells: CellRect, work: np.ndarray, queries: Sequence[CellRect] = ()
) -> Statistics:
    """Return statistics where every cell costs what ``work`` says, half of it for checks."""
    statistics = Statistics(cells)
    row, column = (index.ravel().astype(np.int32) for index in np.indices(work.shape))
    statistics.collect_points(
        column + np.int32(cells.col_start),
        row + np.int32(cells.row_start),
        np.full(work.size, 4.0),
        work.ravel() / 2.0,
    )
    statistics.collect_queries(QueryCells.of(list(queries)).clipped(cells))
    statistics.close_round()
    return statistics


def share(partition: Partition, m: int) -> float:
    """Return which part of a partition's points goes to executor ``m``."""
    return partition.shares.get(m, 0) / TICKETS


@dataclass(frozen=True)
class World:
    """A grid that m_high holds all of, alone or, for some cells, with other executors.

    ``work`` is the whole work of every cell, ``elsewhere`` what the receivers do outside.
    """

    work: np.ndarray
    partitions: tuple[Partition, ...]
    elsewhere: tuple[float, ...]
    queries: tuple[CellRect, ...] = ()

    @property
    def holdings(self) -> list[Holding]:
        return [
            Holding(
                p,
                statistics_of(p.cells, self.work[p.cells.slices] * share(p, M_HIGH), self.queries),
            )
            for p in self.partitions
        ]

    @property
    def receivers(self) -> list[Receiver]:
        ids = range(1, len(self.elsewhere) + 1)
        return [Receiver(m, self.load(self.plan, m)) for m in ids]

    @property
    def plan(self) -> Plan:
        rows, columns = self.work.shape
        grid = Grid(Bounds(0.0, 0.0, 1.0, 1.0), columns, rows)
        return Plan(0, grid, OTHERS + 10, self.partitions, FRESH + 1000)

    def load(self, plan: Plan, m: int) -> float:
        """Return what executor ``m`` really has to do under a plan."""
        own = sum(self.work[p.cells.slices].sum() * share(p, m) for p in plan.owned_by(m))
        return float(own) + (self.elsewhere[m - 1] if 0 < m <= len(self.elsewhere) else 0.0)

    def search(
        self, rules: Rules = NO_SHARING, model: CostModel = MODEL, received: float = 1.0
    ) -> Search:
        search = Search(M_HIGH, self.holdings, model, received, FRESH, rules)
        search.run(self.receivers)
        return search


def world_of(*works: list[list[float]], elsewhere: Sequence[float] = (0.0,)) -> World:
    """Return a world of partitions stacked above each other, ids counting from 1."""
    columns = max(len(row) for work in works for row in work)
    grid = np.zeros((sum(len(work) for work in works), columns))
    partitions: list[Partition] = []
    row = 0
    for work in works:
        cells = CellRect(0, row, len(work[0]), row + len(work))
        grid[cells.slices] = work
        partitions.append(Partition(1 + len(partitions), cells, (M_HIGH,)))
        row = cells.row_stop
    return World(grid, tuple(partitions), tuple(elsewhere))


@st.composite
def worlds(
    draw: st.DrawFn, max_receivers: int = 4, product: bool = False, all_cells: bool = False
) -> World:
    """Draw partitions, work and receivers.

    With ``product``, work is a row's weight times a column's: then what is estimated across a
    cut is exact. With ``all_cells``, every partition is a cell, so that nothing is estimated.
    """
    rows, columns = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    weight = st.one_of(st.integers(0, 10), st.sampled_from([0, 50, 200]))

    def weights(count: int) -> np.ndarray:
        drawn = draw(st.lists(weight, min_size=count, max_size=count))
        return np.array(drawn, dtype=np.float64)

    work = (
        np.outer(weights(rows), weights(columns))
        if product
        else weights(rows * columns).reshape(rows, columns)
    )
    rects = [CellRect(0, 0, columns, rows)]
    for _ in range(30 if all_cells else draw(st.integers(0, 4))):
        rect = rects.pop(0)
        if rect.area == 1:
            rects.append(rect)
        elif rect.rows > 1 and (rect.columns == 1 or draw(st.booleans())):
            rects += rect.split_rows(draw(st.integers(1, rect.rows - 1)))
        else:
            rects += rect.split_columns(draw(st.integers(1, rect.columns - 1)))
    partitions = []
    for i, rect in enumerate(rects):
        owners, tickets = (M_HIGH,), ()
        if rect.area == 1 and draw(st.booleans()):
            others = draw(st.lists(st.sampled_from([1, 2, 50, 51]), min_size=1, unique=True))
            owners = tuple(draw(st.permutations([M_HIGH, *others])))
            few = [draw(st.integers(1, TICKETS // 5)) for _ in others]
            tickets = (TICKETS - sum(few), *few)
        partitions.append(Partition(i, rect, owners, tickets))
    c_high = sum(work[p.cells.slices].sum() * share(p, M_HIGH) for p in partitions)
    fractions = draw(st.lists(st.floats(0.0, 1.2), min_size=1, max_size=max_receivers))
    return World(work, tuple(partitions), tuple(f * c_high for f in fractions))


@st.composite
def searches(draw: st.DrawFn) -> tuple[World, Search]:
    """Draw a world with queries, a model and rules, and search."""
    world = draw(worlds())
    rows, columns = world.work.shape
    corner = st.tuples(st.integers(0, columns - 1), st.integers(0, rows - 1))
    query = st.tuples(corner, corner).map(
        lambda c: CellRect(
            min(c[0][0], c[1][0]), min(c[0][1], c[1][1]),
            max(c[0][0], c[1][0]) + 1, max(c[0][1], c[1][1]) + 1,
        )
    )  # fmt: skip
    queries = tuple(draw(st.lists(query, max_size=6)))
    world = World(world.work, world.partitions, world.elsewhere, queries)
    model: CostModel = draw(st.sampled_from([PaperModel(), MODEL]))
    rules = Rules(
        min_gain=draw(st.sampled_from([0.0, 0.05])),
        payback_rounds=draw(st.sampled_from([0.0, 0.1, 4.0])),
        shared_cells=draw(st.booleans()),
    )
    return world, world.search(rules, model, draw(st.sampled_from([0.0, 10.0])))


def moves(search: Search) -> list[tuple[int, float]]:
    """Return who gets how much, in order."""
    return [(transfer.m_low, pytest.approx(transfer.cost)) for transfer in search.transfers]


def in_words(transfer: Transfer) -> str:
    """Return what goes to a receiver, in words."""
    return describe_changes(transfer.changes)


def refusals(search: Search) -> list[str]:
    """Return what was not done and why, in words."""
    return [describe_refusal(M_HIGH, refusal) for refusal in search.refusals]


def retired(search: Search) -> list[int]:
    """Return the partitions that are changed, in order."""
    return [change.retired[0].id for change in search.changes]


# -- what holds for every search -----------------------------------------------------------


@given(found=searches())
def test_after_its_changes_every_cell_is_covered_once(found: tuple[World, Search]) -> None:
    world, search = found
    world.plan.check_tiling()
    plan = world.plan.apply(search.changes)
    plan.check_tiling()
    receivers = {r.m_low for r in world.receivers}
    for change in search.changes:
        (retired,) = change.retired
        assert M_HIGH in retired.owners
        for created in change.created:
            assert set(created.owners) <= {*retired.owners, *receivers}


@given(found=searches())
def test_ids_are_consecutive_from_the_first_granted(found: tuple[World, Search]) -> None:
    _, search = found
    used = [p.id for change in search.changes for p in change.created]
    assert used == list(range(FRESH, FRESH + len(used)))


@given(found=searches())
def test_what_was_found_is_explained_and_so_is_what_was_not(found: tuple[World, Search]) -> None:
    """Who gets new cells has a transfer, one for each receiver at most."""
    _, search = found
    takers = [transfer.m_low for transfer in search.transfers]
    assert len(set(takers)) == len(takers)
    gained = {
        owner
        for change in search.changes
        for created in change.created
        for owner in set(created.owners) - set(change.retired[0].owners)
    }
    assert gained == set(search.takeovers) <= set(takers)
    assert bool(search.changes) == bool(search.transfers)
    assert all(transfer.cost >= 0 and in_words(transfer) for transfer in search.transfers)
    assert search.changes or search.refusals
    assert all(search.refusals)


@given(found=searches())
def test_the_same_search_finds_the_same(found: tuple[World, Search]) -> None:
    world, _ = found
    first, second = world.search(SHARING), world.search(SHARING)
    assert first.changes == second.changes
    assert (first.transfers, first.refusals) == (second.transfers, second.refusals)


@given(world=worlds(), min_gain=st.sampled_from([0.0, 0.05]))
def test_without_sharing_no_tickets_are_dealt_out(world: World, min_gain: float) -> None:
    search = world.search(Rules(min_gain=min_gain, shared_cells=False))
    for change in search.changes:
        assert change.kind in (ChangeKind.MOVE, ChangeKind.SPLIT)
        assert all(len(p.owners) <= len(change.retired[0].owners) for p in change.created)


def test_cells_are_not_shared_unless_asked_for() -> None:
    assert Rules() == Rules(min_gain=0.0, payback_rounds=math.inf, shared_cells=False)


# -- conservation --------------------------------------------------------------------------


def check_conserved(world: World, search: Search) -> None:
    """Receivers get, counted, what the transfers say, m_high loses it, and nobody else anything."""
    before, after = world.plan, world.plan.apply(search.changes)
    for m in range(before.executors):
        gained = world.load(after, m) - world.load(before, m)
        said = sum(transfer.cost for transfer in search.transfers if transfer.m_low == m)
        if m == M_HIGH:
            said = -sum(transfer.cost for transfer in search.transfers)
        assert gained == pytest.approx(said, abs=1e-6)
        if not any(m in p.owners for p in world.partitions):
            parcels = [MODEL.numerator(h.statistics) for h in search.takeovers.get(m, [])]
            assert sum(parcels) == pytest.approx(said, abs=1e-6)


@given(world=worlds(max_receivers=1))
def test_one_receiver_gets_what_m_high_loses(world: World) -> None:
    check_conserved(world, world.search())


@given(world=worlds(product=True))
def test_several_receivers_get_what_m_high_loses(world: World) -> None:
    check_conserved(world, world.search())


@given(world=worlds(all_cells=True))
def test_with_shared_cells_too_receivers_get_what_m_high_loses(world: World) -> None:
    check_conserved(world, world.search(SHARING))


@given(world=worlds(max_receivers=1))
def test_of_a_cell_inside_a_partition_receivers_get_at_least_what_is_said(world: World) -> None:
    """Only a part of its cost is sure, and only that is promised."""
    search = world.search(SHARING)
    after = world.plan.apply(search.changes)
    said = sum(t.cost for t in search.transfers if t.m_low == 1)
    assert world.load(after, 1) - world.load(world.plan, 1) >= said - 1e-6


# -- never worse ---------------------------------------------------------------------------


def check_no_worse(world: World, search: Search) -> None:
    before, after = world.plan, world.plan.apply(search.changes)
    c_high = world.load(before, M_HIGH)
    assert world.load(after, M_HIGH) <= c_high + 1e-6
    for transfer in search.transfers:
        assert world.load(after, transfer.m_low) <= c_high + 1e-6


@given(world=worlds(max_receivers=1))
def test_no_receiver_ends_above_what_m_high_had(world: World) -> None:
    check_no_worse(world, world.search())


@given(world=worlds(product=True))
def test_none_of_several_receivers_ends_above_what_m_high_had(world: World) -> None:
    check_no_worse(world, world.search())


@given(world=worlds(all_cells=True))
@example(world=world_of([[10.0]], elsewhere=[9.0]))
def test_nor_does_a_receiver_of_shares_end_above_what_m_high_had(world: World) -> None:
    check_no_worse(world, world.search(SHARING))


@given(world=worlds(), received=st.sampled_from([1.0, 30.0]), sharing=st.booleans())
def test_by_the_papers_costs_too_no_receiver_is_meant_to_end_above_m_high(
    world: World, received: float, sharing: bool
) -> None:
    """Costs as estimated, since the paper's do not add up."""
    everywhere = CellRect(0, 0, *reversed(world.work.shape))
    world = World(world.work, world.partitions, world.elsewhere, (everywhere,))
    model = PaperModel()
    c_high = sum(model.cost(model.numerator(h.statistics), received) for h in world.holdings)
    lows = tuple(low * c_high / (world.work.sum() or 1.0) for low in world.elsewhere)
    world = World(world.work, world.partitions, lows, world.queries)
    search = world.search(Rules(shared_cells=sharing), model, received)
    c_lows = {receiver.m_low: receiver.c_low for receiver in world.receivers}
    for transfer in search.transfers:
        assert c_lows[transfer.m_low] + transfer.cost <= c_high * (1 + 1e-9)


@given(world=worlds(max_receivers=1, all_cells=True))
@example(world=world_of([[6.0]], [[3.0]], elsewhere=[5.0]))
def test_with_shares_one_receiver_ends_no_worse_than_by_algorithm_3_alone(world: World) -> None:
    check_no_worse_than_algorithm_3(world, SHARING)


@given(world=worlds(max_receivers=1))
@example(world=world_of([[6.0]], [[3.0], [3.0], [3.0]], elsewhere=[5.0]))
def test_one_receiver_ends_no_worse_than_by_algorithm_3_alone(world: World) -> None:
    check_no_worse_than_algorithm_3(world, NO_SHARING)


def check_no_worse_than_algorithm_3(world: World, rules: Rules) -> None:
    c_high, c_low = (world.load(world.plan, m) for m in (M_HIGH, 1))
    costs = [world.work[p.cells.slices].sum() * share(p, M_HIGH) for p in world.partitions]
    subset = sum(costs[i] for i in find_subset(costs, (c_high - c_low) / 2))
    alone = max(c_high - subset, c_low + subset)
    after = world.plan.apply(world.search(rules).changes)
    assert max(world.load(after, M_HIGH), world.load(after, 1)) <= alone + 1e-6


# -- levelling -----------------------------------------------------------------------------


@given(
    lows=st.lists(st.floats(0.0, 1.5), min_size=1, max_size=6),
    seed=st.integers(0, 2**16),
)
def test_load_that_divides_ends_within_a_tenth_of_the_level(lows: list[float], seed: int) -> None:
    """Receivers above the level keep what they have and get nothing."""
    rng = np.random.default_rng(seed)
    work = np.outer(rng.uniform(1, 3, 40), rng.uniform(1, 3, 40))
    whole = Partition(1, CellRect(0, 0, 40, 40), (M_HIGH,))
    world = World(work, (whole,), tuple(low * work.sum() / 2 for low in lows))
    level = (work.sum() + sum(world.elsewhere)) / (len(lows) + 1)
    search = world.search()
    after = world.plan.apply(search.changes)
    served = {t.m_low for t in search.transfers}
    if not any(low < level * 0.9 for low in world.elsewhere):
        return
    for m, low in enumerate(world.elsewhere, start=1):
        if low >= level:
            assert m not in served
        elif all(other < level for other in world.elsewhere):
            assert world.load(after, m) == pytest.approx(level, rel=0.1)
        else:
            assert world.load(after, m) <= 1.1 * level
    assert 0.9 * level <= world.load(after, M_HIGH) <= max(1.1 * level, 0.0)


def test_with_one_receiver_the_level_is_the_papers_c_max() -> None:
    """(20 - 8) / 2 = 6 is to move: exactly three of ten rows of 2."""
    search = world_of([[2.0]] * 10, elsewhere=[8.0]).search()
    (change,) = search.changes
    assert [(p.id, p.cells.rows, p.owners) for p in change.created] == [
        (FRESH, 7, (M_HIGH,)),
        (FRESH + 1, 3, (1,)),
    ]
    assert moves(search) == [(1, 6.0)]
    assert "first rows of p1" in in_words(search.transfers[0])
    assert refusals(search) == []


@pytest.mark.parametrize("axis", list(Axis))
def test_the_last_lines_can_be_the_ones_that_move(axis: Axis) -> None:
    lines = [[8.0], [2.0], [2.0]]
    world = world_of(lines if axis == Axis.ROWS else np.array(lines).T.tolist(), elsewhere=[8.0])
    search = world.search()
    assert moves(search) == [(1, 2.0)]
    assert f"last {axis.name.lower()} of p1" in in_words(search.transfers[0])
    assert world.load(world.plan.apply(search.changes), M_HIGH) == 10.0


def test_the_idlest_receiver_is_served_first() -> None:
    world = world_of([[1.0]] * 30, elsewhere=[9.0, 3.0, 2.0, 3.0])
    search = world.search()
    assert [m for m, _ in moves(search)] == [3, 2, 4, 1]


def test_m_high_never_gives_below_the_level() -> None:
    """Level 10: the first receiver has room for 10, but m_high has only 4 to spare."""
    search = world_of([[2.0]] * 7, elsewhere=[0.0, 16.0]).search()
    assert moves(search) == [(1, 4.0)]
    assert refusals(search) == ["2 has no room below the level of 10"]


def test_what_is_too_coarse_for_the_level_meets_in_the_middle() -> None:
    """Cells of 10 and a level of 12.5: 7.5 are to spare, but 10 leave 10 and 10."""
    search = world_of([[10.0]], [[10.0]], elsewhere=[0.0, 17.5]).search()
    assert moves(search) == [(1, 10.0)]
    assert refusals(search) == ["2 has no room below the level of 12.5"]


def test_nor_do_two_meet_in_the_middle_where_that_helps_neither() -> None:
    """Cells of 10 against 11 and 10: either would end with 20 or more."""
    search = world_of([[10.0]], [[10.0]], elsewhere=[11.0, 10.0]).search()
    assert moves(search) == []
    assert refusals(search) == ["nothing that 0 holds fits 2", "nothing that 0 holds fits 1"]


def test_whole_partitions_go_under_new_ids() -> None:
    search = world_of([[5.0]], [[3.0]], [[9.0]], [[1.0]], elsewhere=[0.0]).search()
    (change,) = search.changes
    assert moves(search) == [(1, 9.0)]
    assert change.kind is ChangeKind.MOVE
    assert (change.retired[0].id, change.created[0].id) == (3, FRESH)
    assert (change.created[0].owners, change.created[0].previous_owners) == ((1,), (0,))


def test_several_whole_partitions_are_one_transfer() -> None:
    """C_max is 9: the largest that fit are 6 and 3."""
    search = world_of([[5.0]], [[3.0]], [[6.0]], [[4.0]], elsewhere=[0.0]).search()
    assert moves(search) == [(1, 9.0)]
    assert retired(search) == [3, 2]
    assert "2 whole partitions" in in_words(search.transfers[0])


@pytest.mark.parametrize(
    ("fill", "changed"),
    [(1 - CLOSE_ENOUGH, 1), (1 - CLOSE_ENOUGH - 0.01, 2)],
    ids=["what nearly fills C_max is good enough", "less is not, if a split does better"],
)
def test_a_subset_that_fills_c_max_is_taken_without_looking_further(
    fill: float, changed: int
) -> None:
    """C_max is 10, and ten of the other partition's rows would hit it exactly."""
    world = world_of([[10.0 * fill]], [[1.0]] * 20, elsewhere=[10.0 * fill])
    assert retired(world.search()) == [changed]


def test_a_poor_split_does_not_replace_a_better_subset() -> None:
    """C_max is 10: a subset of 8 is nearer than half of 30."""
    search = world_of([[8.0]], [[15.0], [15.0]], elsewhere=[18.0]).search()
    assert (moves(search), retired(search)) == ([(1, 8.0)], [1])


def test_when_the_largest_is_one_cell_the_next_largest_is_split() -> None:
    world = world_of([[50.0]], [[10.0]] * 4, elsewhere=[50.0])
    search = world.search()
    assert (moves(search), retired(search)) == ([(1, 20.0)], [2])
    assert world.load(world.plan.apply(search.changes), M_HIGH) == 70.0


def test_the_best_line_may_lie_in_a_smaller_partition() -> None:
    """C_max is 5: the largest can give 1 or 30, the smaller exactly 5."""
    search = world_of([[30.0], [1.0]], [[5.0], [15.0]], elsewhere=[41.0]).search()
    assert (moves(search), retired(search)) == ([(1, 5.0)], [2])


@pytest.mark.parametrize(("dearer", "moved"), [(CANDIDATES, 4.0), (CANDIDATES - 1, 5.0)])
def test_only_the_costliest_few_are_searched_for_a_line(dearer: int, moved: float) -> None:
    """C_max is 5: only the cheapest could give exactly that, the dearer ones give 4."""
    works = [[[4.0], [30.0 + i]] for i in range(dearer)]
    cheapest = [[5.0], [20.0]]
    c_high = sum(sum(row[0] for row in work) for work in [*works, cheapest])
    search = world_of(*works, cheapest, elsewhere=[c_high - 10.0]).search()
    assert moves(search) == [(1, moved)]


def test_by_the_papers_costs_a_split_relieves_m_high_of_more_than_it_moves() -> None:
    """p1 costs 10 * 1 * 11 and each of its halves 5 * 1 * 6; p2 costs 5 * 1 * 6, as m_low.

    Half of p1 leaves 60 and 60; the subset, p2, would leave 110 and 60.
    """
    world = with_queries(1, world_of([[10.0], [10.0]], [[10.0]], elsewhere=[30.0]))
    search = world.search(NO_SHARING, PaperModel())
    assert (moves(search), retired(search)) == ([(1, 30.0)], [1])
    assert refusals(search) == []


def shared_and_own(
    shared: float, tickets: dict[int, int], own: float, elsewhere: Sequence[float]
) -> World:
    """Return a world of two cells: one dealt out in tickets, one of m_high's own."""
    return World(
        np.array([[shared], [own]]),
        (
            Partition(1, CellRect(0, 0, 1, 1), tuple(tickets), tuple(tickets.values())),
            Partition(2, CellRect(0, 1, 1, 2), (M_HIGH,)),
        ),
        tuple(elsewhere),
    )


def test_tickets_are_moved_like_any_partition() -> None:
    """C_max is (18 - 1) / 2 = 8.5, and half of the cell is 8."""
    search = shared_and_own(16.0, {M_HIGH: 32, 50: 32}, 10.0, [1.0]).search()
    assert (moves(search), retired(search)) == ([(1, 8.0)], [1])
    assert search.changes[0].created[0].shares == {50: 32, 1: 32}


def test_who_has_tickets_already_can_get_the_rest() -> None:
    """C_max is (26 - 9) / 2 = 8.5, as the receiver's 9 are 8 of this cell and 1 elsewhere."""
    search = shared_and_own(16.0, {M_HIGH: 32, 1: 32}, 18.0, [1.0]).search()
    assert (moves(search), retired(search)) == ([(1, 8.0)], [1])
    assert search.changes[0].created[0].owners == (1,)


# -- sharing -------------------------------------------------------------------------------


def test_one_hot_cell_is_dealt_out_to_all_receivers_evenly() -> None:
    world = world_of([[64.0]], elsewhere=[0.0, 8.0, 0.0])
    search = world.search(SHARING)
    after = world.plan.apply(search.changes)
    assert [world.load(after, m) for m in range(4)] == [18.0, 18.0, 18.0, 18.0]
    assert [t.m_low for t in search.transfers] == [1, 3, 2]
    assert after.partitions[0].shares == {M_HIGH: 18, 1: 18, 3: 18, 2: 10}
    assert "share of a cell of p1" in in_words(search.transfers[0])


def test_a_hot_cell_is_cut_out_of_its_partition() -> None:
    work = [[0.0, 0.0, 0.0], [0.0, 96.0, 0.0], [0.0, 0.0, 0.0]]
    world = world_of(work, elsewhere=[0.0, 0.0])
    search = world.search(SHARING)
    after = world.plan.apply(search.changes)
    assert [world.load(after, m) for m in range(3)] == pytest.approx([32.0, 32.0, 32.0], abs=1.5)
    assert len(search.changes[0].created) == 5
    assert [change.kind for change in search.changes] == [ChangeKind.SHARE] * 2


def test_where_nothing_finer_can_move_a_share_of_a_cell_does() -> None:
    """Two cells of 32 and C_max = 20."""
    world = world_of([[32.0]], [[32.0]], elsewhere=[24.0])
    search = world.search(SHARING)
    assert (moves(search), retired(search)) == ([(1, 20.0)], [1])
    assert search.changes[0].created[0].shares == {M_HIGH: 24, 1: 40}
    assert world.search(NO_SHARING).changes == []


def test_a_share_is_not_looked_for_where_a_whole_partition_comes_close() -> None:
    """C_max is 20."""
    world = world_of([[32.0]], [[32.0]], [[19.0]], elsewhere=[43.0])
    assert retired(world.search(SHARING)) == [3]
    far = world_of([[32.0]], [[32.0]], [[17.0]], elsewhere=[41.0])
    assert retired(far.search(SHARING)) == [1]


@pytest.mark.parametrize(("more", "shared"), [(1e-3, True), (0.0, False)])
def test_a_cool_cell_is_not_shared(more: float, shared: bool) -> None:
    """101 and 99: the level is 100, and C_max, 1, too little for any whole cell."""
    hot = WORTH_SHARING * 100.0 * (1 + more)
    cooler = [[[(101.0 - hot) / 8]]] * 8
    search = world_of([[hot]], *cooler, elsewhere=[99.0]).search(SHARING)
    assert retired(search) == ([1] if shared else [])


@pytest.mark.parametrize(("own", "shared"), [(19.0, True), (11.0, False)])
def test_only_the_costliest_few_are_searched_for_a_cell_to_share(own: float, shared: bool) -> None:
    """Cells of 18 are cool; the one that m_high has half of is not, but may be too cheap."""
    cells = [[[18.0]]] * (CANDIDATES + 1)
    c_high = 18.0 * len(cells) + own
    world = world_of(*cells, [[2 * own]], elsewhere=[c_high - 2.0])
    assert 18.0 <= WORTH_SHARING * (c_high - 1.0) < 2 * own
    *whole, last = world.partitions
    half = Partition(last.id, last.cells, (M_HIGH, 50), (TICKETS // 2, TICKETS // 2))
    search = World(world.work, (*whole, half), world.elsewhere).search(SHARING)
    assert retired(search) == ([last.id] if shared else [])


# -- refusals ------------------------------------------------------------------------------


COOL_CELLS = int(1 + 2 / WORTH_SHARING)
"""So many equal cells that none is worth sharing."""


@pytest.mark.parametrize(
    ("cells", "elsewhere", "rules"),
    [(1, 0.0, NO_SHARING), (COOL_CELLS, COOL_CELLS - 1.0, SHARING)],
    ids=["a cell that may not be shared", "cells too cool to share"],
)
def test_where_there_is_nothing_to_give_that_is_said(
    cells: int, elsewhere: float, rules: Rules
) -> None:
    search = world_of(*[[[1.0]]] * cells, elsewhere=[elsewhere]).search(rules)
    assert (search.changes, search.transfers, search.takeovers) == ([], [], {})
    assert refusals(search) == ["nothing that 0 holds fits 1"]


@pytest.mark.parametrize("low", [10.0, 11.0])
def test_a_receiver_as_busy_as_m_high_has_no_room(low: float) -> None:
    search = world_of([[5.0], [5.0]], elsewhere=[low]).search()
    assert (search.changes, search.transfers) == ([], [])
    assert refusals(search) == [f"1 has no room below the level of {(10 + low) / 2:.4g}"]


def test_where_nothing_arrived_nothing_moves() -> None:
    for model in (PaperModel(), MODEL):
        search = world_of([[0.0], [0.0]]).search(SHARING, model, received=0.0)
        assert search.changes == []
        assert refusals(search) == ["1 has no room below the level of 0"]


def test_who_holds_nothing_gives_nothing() -> None:
    search = Search(M_HIGH, [], MODEL, 1.0, FRESH, SHARING)
    search.run([Receiver(1, 0.0)])
    assert (search.changes, search.transfers) == ([], [])
    assert search.refusals


def test_a_split_that_would_only_swap_the_roles_is_refused() -> None:
    """16 and 15: moving the lighter cell, 2, leaves 14 and 17."""
    search = world_of([[2.0], [14.0]], elsewhere=[15.0]).search()
    assert search.changes == []
    assert refusals(search) == ["the first rows of p1 would win -1 of 16"]


def test_a_split_that_wins_nothing_is_refused() -> None:
    search = world_of([[0.0], [10.0]], elsewhere=[5.0]).search()
    assert search.changes == []
    assert refusals(search) == ["the first rows of p1 would win 0 of 10"]


@pytest.mark.parametrize(("min_gain", "accepted"), [(0.1, True), (0.11, False)])
def test_a_move_must_win_the_least_that_is_asked(min_gain: float, accepted: bool) -> None:
    """20 and 16: moving 2 wins 2 of 20."""
    world = world_of([[18.0]], [[2.0]], elsewhere=[16.0])
    search = world.search(Rules(min_gain=min_gain))
    assert bool(search.changes) == accepted
    assert refusals(search) == ([] if accepted else ["1 whole partition would win 2 of 20"])


def with_queries(count: int, world: World) -> World:
    """Put ``count`` queries on the whole grid; each costs an eighth of a unit to move."""
    everywhere = CellRect(0, 0, *reversed(world.work.shape))
    return World(world.work, world.partitions, world.elsewhere, (everywhere,) * count)


EIGHTH = WorkModel(per_point=1.0, per_check=0.25, points_per_query_moved=0.125)


@pytest.mark.parametrize(
    ("count", "rounds", "accepted"),
    [(64, 4.0, True), (65, 4.0, False), (64, 3.9, False), (0, 0.0, True), (1, 0.0, False)],
)
@pytest.mark.parametrize("what", ["whole", "split"])
def test_a_move_must_pay_for_its_queries(
    what: str, count: int, rounds: float, accepted: bool
) -> None:
    """It wins 2 a round; 64 queries cost 8, which four rounds win back."""
    world = (
        world_of([[8.0]], [[2.0]], elsewhere=[6.0])
        if what == "whole"
        else world_of([[2.0]] * 5, elsewhere=[6.0])
    )
    world = with_queries(count, world)
    search = world.search(Rules(payback_rounds=rounds), EIGHTH)
    assert bool(search.changes) == accepted
    if not accepted:
        reason = "1 whole partition" if what == "whole" else "the first rows of p1"
        assert f"{reason} costs {count / 8:.4g} once and wins 2 a round" in refusals(search)


def test_only_queries_that_move_are_paid_for() -> None:
    """Two rows move, and all the queries are on the other three."""
    world = world_of([[2.0]] * 5, elsewhere=[6.0])
    last = (CellRect(0, 1, 1, 5),) * 1000
    search = World(world.work, world.partitions, world.elsewhere, last).search(NO_SHARING, EIGHTH)
    assert moves(search) == [(1, 2.0)]


@pytest.mark.parametrize("small", [4.0, 5.0])
def test_where_the_subset_does_not_pay_a_split_may(small: float) -> None:
    """C_max is 5. The small partition is full of queries; five rows of the other have none."""
    world = world_of([[small]], [[1.0]] * 20, elsewhere=[10.0 + small])
    queries = (CellRect(0, 0, 1, 1),) * 1000
    search = World(world.work, world.partitions, world.elsewhere, queries).search(
        NO_SHARING, EIGHTH
    )
    assert (moves(search), retired(search)) == ([(1, 5.0)], [2])
    assert refusals(search) == [f"1 whole partition costs 125 once and wins {small:g} a round"]


def test_a_share_of_a_cell_must_pay_for_its_queries_too() -> None:
    """Half of 10 moves, and all of the queries are copied."""
    one = world_of([[10.0]], elsewhere=[0.0])
    assert moves(with_queries(160, one).search(SHARING, EIGHTH)) == [(1, 5.0)]
    search = with_queries(161, one).search(SHARING, EIGHTH)
    assert search.changes == []
    assert refusals(search) == ["a share of a cell of p1 costs 20.12 once and wins 5 a round"]


def test_a_move_to_another_host_must_pay_for_fetching_the_queries_too() -> None:
    """100 queries: 12.5 to hand over, 25 more to fetch; the move wins 5 a round, for 4 rounds."""
    crowded = with_queries(100, world_of([[5.0], [5.0]], elsewhere=[0.0]))
    model = replace(EIGHTH, per_query_fetched=0.25)
    for host in (0, 1):
        hosts = Hosts((0, host))
        search = Search(M_HIGH, crowded.holdings, model, 1.0, FRESH, SHARING, hosts=hosts)
        search.run([Receiver(1, 0.0)])
        assert bool(search.changes) is (host == 0)
    assert "once and wins 5 a round" in refusals(search)[0]


def test_who_has_the_queries_already_gets_more_tickets_for_nothing() -> None:
    """30 and 10 of a cell: a quarter of it moves, whatever the number of queries."""
    cell = CellRect(0, 0, 1, 1)
    for owners, tickets, accepted in (((0, 1), (48, 16), True), ((0, 50), (48, 16), False)):
        world = World(np.array([[40.0]]), (Partition(1, cell, owners, tickets),), (0.0,))
        crowded = with_queries(100_000, world)
        search = Search(M_HIGH, crowded.holdings, EIGHTH, 1.0, FRESH, SHARING)
        search.run([Receiver(1, 10.0)])
        assert moves(search) == ([(1, 10.0)] if accepted else [])


# -- what the new owner starts from --------------------------------------------------------


def test_a_piece_inherits_its_part_and_each_owner_its_tickets() -> None:
    cells = CellRect(0, 0, 2, 2)
    held = Holding(
        Partition(1, cells, (M_HIGH,)), statistics_of(cells, np.array([[8.0, 0.0], [2.0, 2.0]]))
    )
    top = CellRect(0, 0, 2, 1)
    alone = Partition(2, top, (M_HIGH,))
    assert MODEL.numerator(inherited(alone, M_HIGH, held, M_HIGH)) == 8.0
    shared = Partition(3, top, (M_HIGH, 4), (48, 16))
    assert MODEL.numerator(inherited(shared, M_HIGH, held, M_HIGH)) == 6.0
    assert MODEL.numerator(inherited(shared, 4, held, M_HIGH)) == 2.0


def test_the_load_of_the_others_is_inherited_in_proportion_to_ones_own() -> None:
    """Executor 4 had a quarter and saw 8, so the whole is 32."""
    cell = CellRect(0, 0, 1, 1)
    old = Partition(1, cell, (M_HIGH, 4), (48, 16))
    held = Holding(old, statistics_of(cell, np.array([[8.0]])))
    (alone,) = reshared(old, {M_HIGH: TICKETS}, 9).created
    assert MODEL.numerator(inherited(alone, M_HIGH, held, 4)) == 32.0


def test_given_queries_are_recounted_in_what_is_inherited() -> None:
    cells = CellRect(0, 0, 2, 2)
    queries = [CellRect(0, 0, 2, 1), CellRect(0, 0, 1, 2), CellRect(1, 1, 2, 2)]
    held = Holding(Partition(1, cells, (M_HIGH,)), statistics_of(cells, np.ones((2, 2)), queries))
    left = Partition(2, CellRect(0, 0, 1, 2), (3,))
    found = inherited(left, 3, held, M_HIGH, QueryCells.of(queries).clipped(left.cells))
    assert [queries_in(found, Axis.ROWS, i, i + 1) for i in (0, 1)] == [2, 1]


def test_a_parcel_has_what_its_taker_does_not_hold_yet() -> None:
    """All of it a share of one cell, which is shared first with one, then with the other."""
    world = world_of([[64.0]], elsewhere=[0.0, 0.0])
    search = world.search(SHARING)
    assert [[h.partition.id for h in search.takeovers[m]] for m in (1, 2)] == [[FRESH], [FRESH + 1]]
    assert [MODEL.numerator(search.takeovers[m][0].statistics) for m in (1, 2)] == [21.0, 21.0]


@given(found=searches(), sharing=st.booleans())
def test_with_queries_at_hand_every_parcel_has_them_counted(
    found: tuple[World, Search], sharing: bool
) -> None:
    world, _ = found
    queries = QueryCells.of(list(world.queries))
    search = Search(
        M_HIGH, world.holdings, MODEL, 1.0, FRESH, Rules(shared_cells=sharing),
        queries_of=lambda partition: queries.clipped(partition.cells),
    )  # fmt: skip
    search.run(world.receivers)
    for parcel in search.takeovers.values():
        for holding in parcel:
            cells = holding.partition.cells
            assert holding.statistics.cells == cells
            for row in range(cells.rows):
                line = cells._replace(
                    row_start=cells.row_start + row, row_stop=cells.row_start + row + 1
                )
                counted = sum(query.overlaps(line) for query in world.queries)
                assert queries_in(holding.statistics, Axis.ROWS, row, row + 1) == counted
