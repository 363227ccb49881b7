"""Sharing: a bound that never overrates a cell, and pieces that fit together."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkswarm.geometry import CellRect, QueryCells
from sparkswarm.protocol.cost import PaperModel, WorkModel
from sparkswarm.protocol.holding import Holding
from sparkswarm.protocol.partition import TICKETS, ChangeKind, Partition
from sparkswarm.protocol.sharing import (
    COOL,
    WORTH_SHARING,
    Sharing,
    hottest_cell,
    share_hot_cell,
)
from sparkswarm.protocol.statistics import Statistics

MODEL = WorkModel(per_point=1.0, per_check=0.25)
M_HIGH = 0


def statistics_of(work: np.ndarray, col_start: int = 3, row_start: int = 2) -> Statistics:
    """Return statistics where every cell costs what ``work`` says, half of it for checks."""
    rows, columns = work.shape
    cells = CellRect(col_start, row_start, col_start + columns, row_start + rows)
    statistics = Statistics(cells)
    row, column = (index.ravel().astype(np.int32) for index in np.indices(work.shape))
    points = work.ravel() / 2.0
    statistics.collect_points(column + col_start, row + row_start, np.full(work.size, 4.0), points)
    statistics.close_round()
    return statistics


@st.composite
def works(draw: st.DrawFn) -> np.ndarray:
    """Draw the work of up to 5 x 5 cells, some of them hot."""
    rows, columns = draw(st.integers(1, 5)), draw(st.integers(1, 5))
    cell = st.one_of(st.integers(0, 10), st.sampled_from([0, 100, 1000]))
    cells = draw(st.lists(cell, min_size=rows * columns, max_size=rows * columns))
    return np.array(cells, dtype=np.float64).reshape(rows, columns)


def covered(partition: Partition, pieces: tuple[Partition, ...]) -> bool:
    """Whether the pieces cover every cell of the partition exactly once."""
    cells = partition.cells
    seen = np.zeros((cells.row_stop, cells.col_stop), dtype=int)
    for piece in pieces:
        seen[piece.cells.slices] += 1
    return bool((seen[cells.slices] == 1).all()) and seen.sum() == cells.area


# -- finding it ----------------------------------------------------------------------------


@given(work=works())
def test_the_hottest_cell_surely_costs_what_is_said(work: np.ndarray) -> None:
    """The bound is the cell's cost less all that lies in neither its row nor its column."""
    cell, sure = hottest_cell(statistics_of(work), MODEL)
    row, column = cell.row_start - 2, cell.col_start - 3
    assert cell.area == 1
    assert work.sum(axis=1)[row] == work.sum(axis=1).max()
    assert work.sum(axis=0)[column] == work.sum(axis=0).max()
    elsewhere = np.delete(np.delete(work, row, axis=0), column, axis=1).sum()
    assert sure <= work[row, column] + 1e-6
    assert sure == pytest.approx(max(0.0, work[row, column] - elsewhere), abs=1e-6)


@given(work=works(), data=st.data())
def test_a_cell_that_dominates_is_found(work: np.ndarray, data: st.DataObject) -> None:
    row = data.draw(st.integers(0, work.shape[0] - 1))
    column = data.draw(st.integers(0, work.shape[1] - 1))
    work[row, column] = 0
    rest = work.sum()
    work[row, column] = 2 * rest + 1
    cell, sure = hottest_cell(statistics_of(work), MODEL)
    assert cell == (3 + column, 2 + row, 4 + column, 3 + row)
    assert work[row, column] - rest - 1e-6 <= sure <= work[row, column] + 1e-6


# -- sharing it ----------------------------------------------------------------------------


def share(
    partition: Partition, statistics: Statistics, amount: float, level: float, m_low: int = 1
) -> Sharing | None:
    return share_hot_cell(
        Holding(partition, statistics),
        MODEL,
        1.0,
        m_high=M_HIGH,
        m_low=m_low,
        amount=amount,
        level=level,
        fresh_id=20,
    )


@given(work=works(), fraction=st.floats(0.0, 1.2), heat=st.floats(0.01, 2.0))
def test_the_pieces_fit_the_partition_and_the_tickets_are_worth_the_amount(
    work: np.ndarray, fraction: float, heat: float
) -> None:
    statistics = statistics_of(work)
    partition = Partition(7, statistics.cells, (M_HIGH,))
    cell, sure = hottest_cell(statistics, MODEL)
    amount, level = fraction * sure, heat * sure / WORTH_SHARING
    found = share(partition, statistics, amount, level)
    if sure == 0 or heat >= 1:
        assert found is None
        return
    assert found is not None
    change = found.change
    assert change.kind is ChangeKind.SHARE
    assert change.retired == (partition,)
    assert covered(partition, change.created)
    assert [p.id for p in change.created] == list(range(20, 20 + len(change.created)))
    *around, shared = change.created
    assert len(around) <= 4
    assert all(p.owners == (M_HIGH,) for p in around)
    assert all(p.parents == (7,) and p.previous_owners == (M_HIGH,) for p in change.created)
    assert shared.cells == cell
    assert shared.owners == (M_HIGH, 1)
    ticket = sure / TICKETS
    assert found.cost == pytest.approx(shared.shares[1] * ticket)
    if ticket <= amount <= sure - ticket:
        assert abs(found.cost - amount) <= ticket / 2 * (1 + 1e-6)


def test_a_cell_in_the_middle_is_cut_out_of_four_pieces() -> None:
    work = np.zeros((3, 4))
    work[1, 2] = 64.0
    statistics = statistics_of(work, 0, 0)
    found = share(Partition(1, statistics.cells, (M_HIGH,)), statistics, 24.0, 1.0, m_low=5)
    assert found is not None
    assert [(p.cells, p.shares) for p in found.change.created] == [
        (CellRect(0, 0, 4, 1), {M_HIGH: TICKETS}),
        (CellRect(0, 2, 4, 3), {M_HIGH: TICKETS}),
        (CellRect(0, 1, 2, 2), {M_HIGH: TICKETS}),
        (CellRect(3, 1, 4, 2), {M_HIGH: TICKETS}),
        (CellRect(2, 1, 3, 2), {M_HIGH: 40, 5: 24}),
    ]
    assert found.cost == pytest.approx(24.0)


@pytest.mark.parametrize(
    ("amount", "given"),
    [
        pytest.param(20.4, 20, id="to the nearest ticket"),
        pytest.param(20.6, 21, id="up or down"),
        pytest.param(0.1, 1, id="at least one"),
        pytest.param(500.0, 63, id="never all: that would be a move"),
    ],
)
def test_an_only_owner_of_a_cell_gives_tickets_and_keeps_some(amount: float, given: int) -> None:
    """The cell costs 64, so a ticket costs 1."""
    statistics = statistics_of(np.array([[64.0]]))
    partition = Partition(1, statistics.cells, (M_HIGH,))
    found = share(partition, statistics, amount, level=1.0, m_low=5)
    assert found is not None
    (cell,) = found.change.created
    assert cell.cells == statistics.cells
    assert cell.shares == {M_HIGH: TICKETS - given, 5: given}
    assert found.cost == pytest.approx(float(given))


@pytest.mark.parametrize(
    ("tickets", "m_low", "amount", "after", "kind"),
    [
        ({4: 48, 0: 16}, 5, 6.0, {4: 48, 0: 10, 5: 6}, ChangeKind.SHARE),
        ({4: 48, 0: 16}, 4, 6.0, {4: 54, 0: 10}, ChangeKind.SHARE),
        ({4: 48, 0: 16}, 5, 99.0, {4: 48, 5: 16}, ChangeKind.SHARE),
        ({4: 48, 0: 16}, 4, 99.0, {4: 64}, ChangeKind.UNSHARE),
        ({0: 16, 4: 24, 6: 24}, 6, 16.0, {4: 24, 6: 40}, ChangeKind.SHARE),
    ],
    ids=[
        "a new owner joins",
        "an owner gets more",
        "a new owner gets all of one's own",
        "the last other owner gets all",
        "one of two other owners gets all",
    ],
)
def test_of_a_shared_cell_one_gives_ones_own_tickets(
    tickets: dict[int, int], m_low: int, amount: float, after: dict[int, int], kind: ChangeKind
) -> None:
    """16 of 64 tickets cost 16."""
    statistics = statistics_of(np.array([[16.0]]))
    partition = Partition(1, statistics.cells, tuple(tickets), tuple(tickets.values()))
    found = share(partition, statistics, amount, level=1.0, m_low=m_low)
    assert found is not None
    assert found.change.created[0].shares == after
    assert found.change.kind is kind
    assert found.cost == pytest.approx(min(amount, 16.0))


@pytest.mark.parametrize("own", [4, TICKETS], ids=["of which one has a sixteenth", "of one's own"])
def test_a_cell_is_hot_for_what_all_its_owners_do(own: int) -> None:
    """The whole cell costs 64; what counts is whether that is much of the level."""
    statistics = statistics_of(np.array([[float(own)]]))
    tickets = () if own == TICKETS else (own, TICKETS - own)
    partition = Partition(1, statistics.cells, (0, 4)[: len(tickets) or 1], tickets)
    just = 64.0 / WORTH_SHARING
    assert share(partition, statistics, 1.0, just * 1.001) is None
    assert share(partition, statistics, 1.0, just * 0.999) is not None


REFUSED = {
    "no cell that is surely hot": (np.ones((3, 3)), {0: 64}, 1.0),
    "nothing at all": (np.zeros((2, 2)), {0: 64}, 0.0),
    "several cells that are shared already": (np.array([[8.0, 0.0]]), {0: 32, 3: 32}, 1.0),
}


@pytest.mark.parametrize(("work", "tickets", "level"), REFUSED.values(), ids=REFUSED)
def test_nothing_is_shared_for(work: np.ndarray, tickets: dict[int, int], level: float) -> None:
    statistics = statistics_of(work)
    dealt = tuple(tickets.values()) if len(tickets) > 1 else ()
    partition = Partition(1, statistics.cells, tuple(tickets), dealt)
    assert share(partition, statistics, 1.0, level) is None


def test_the_level_and_the_amount_are_costs_not_numerators() -> None:
    """Paper's model: N Q R = 4 * 1 * 4 over R(S) = 8 makes 2."""
    cell = CellRect(3, 2, 4, 3)
    statistics = Statistics(cell)
    statistics.collect_queries(QueryCells.of([cell]))
    statistics.close_round(1.0)
    statistics.collect_points(np.full(4, 3, dtype=np.int32), np.full(4, 2, dtype=np.int32))
    statistics.close_round(1.0)
    model = PaperModel()
    assert model.numerator(statistics) == 16
    partition = Partition(1, cell, (M_HIGH,))
    for level, hot in ((2.001 / WORTH_SHARING, False), (1.999 / WORTH_SHARING, True)):
        found = share_hot_cell(
            Holding(partition, statistics),
            model,
            8.0,
            m_high=M_HIGH,
            m_low=1,
            amount=0.5,
            level=level,
            fresh_id=2,
        )
        assert (found is not None) == hot
        if found is not None:
            assert found.cost == 0.5
            assert found.change.created[0].shares == {M_HIGH: 48, 1: 16}


def test_between_cool_and_worth_sharing_nothing_changes() -> None:
    assert 0 < COOL < WORTH_SHARING < 1
