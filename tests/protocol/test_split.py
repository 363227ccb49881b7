"""The best split line and Algorithm 3, against exhaustive searches."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sparkswarm.geometry import CellRect, QueryCells
from sparkswarm.protocol.cost import CostModel, PaperModel, WorkModel
from sparkswarm.protocol.split import Split, find_split, find_subset
from sparkswarm.protocol.statistics import Axis, Statistics

MODELS: list[CostModel] = [PaperModel(), WorkModel(per_point=1.0, per_check=0.5), WorkModel()]
both_models = pytest.mark.parametrize("model", MODELS, ids=["paper", "work", "work in seconds"])


def statistics_of(weights: np.ndarray, queries: list[CellRect]) -> Statistics:
    """Return statistics of cells with ``weights`` points; checks per point are the column."""
    rows, columns = weights.shape
    statistics = Statistics(CellRect(0, 0, columns, rows))
    row, column = (index.ravel().astype(np.int32) for index in np.indices(weights.shape))
    statistics.collect_points(
        column, row, column.astype(np.float64), weights.ravel().astype(np.float64)
    )
    statistics.collect_queries(QueryCells.of(queries))
    statistics.close_round()
    return statistics


@st.composite
def partitions(draw: st.DrawFn) -> Statistics:
    """Draw statistics of up to 6 x 6 cells, many of them empty."""
    rows, columns = draw(st.integers(1, 6)), draw(st.integers(1, 6))
    weight = st.one_of(st.just(0), st.integers(0, 20), st.integers(0, 1000))
    cells = draw(st.lists(weight, min_size=rows * columns, max_size=rows * columns))
    x, y = st.integers(0, columns - 1), st.integers(0, rows - 1)
    query = st.builds(
        lambda a, b, c, d: CellRect(min(a, b), min(c, d), max(a, b) + 1, max(c, d) + 1), x, x, y, y
    )
    queries = draw(st.lists(query, max_size=8))
    return statistics_of(np.array(cells).reshape(rows, columns), queries)


def every_split(
    statistics: Statistics, model: CostModel, c_high: float, c_low: float, received: float
) -> list[Split]:
    """Try all lines, both ways, either side moved."""
    whole = model.cost(model.numerator(statistics), received)
    found = []
    for axis in Axis:
        for line in range(1, len(statistics.lines(axis))):
            first, second = (model.cost(c, received) for c in model.split(statistics, axis, line))
            for move_first, moved, kept in ((True, first, second), (False, second, first)):
                difference = (c_high - whole + kept) - (c_low + moved)
                found.append(Split(axis, line, move_first, moved, kept, difference))
    return found


@given(
    statistics=partitions(),
    elsewhere=st.sampled_from([0.0, 0.5, 3.0]),
    low=st.floats(0.0, 1.5),
    received=st.sampled_from([0.0, 1.0, 50.0]),
)
@both_models
def test_no_line_is_better_than_the_one_found(
    model: CostModel, statistics: Statistics, elsewhere: float, low: float, received: float
) -> None:
    """Whatever else m_high holds, and m_low from idle to busier than m_high."""
    c_partition = model.cost(model.numerator(statistics), received)
    c_high = c_partition * (1 + elsewhere)
    c_low = c_high * low
    found = find_split(statistics, model, c_high, c_low, received)
    candidates = every_split(statistics, model, c_high, c_low, received)
    if not candidates:
        assert found is None
        return
    assert found is not None
    assert found in candidates
    best = min(abs(split.difference) for split in candidates)
    assert abs(found.difference) == pytest.approx(best, abs=1e-9 * (c_high + c_low))


@both_models
def test_a_single_cell_has_no_line(model: CostModel) -> None:
    statistics = statistics_of(np.array([[5]]), [CellRect(0, 0, 1, 1)])
    assert find_split(statistics, model, 100.0, 0.0, 6.0) is None


@pytest.mark.parametrize("axis", list(Axis))
@both_models
def test_a_partition_one_cell_wide_is_cut_the_other_way(model: CostModel, axis: Axis) -> None:
    weights = np.array([[1, 1, 1, 1, 1, 1, 1, 1]])
    statistics = statistics_of(weights.T if axis == Axis.ROWS else weights, [])
    found = find_split(statistics, model, 100.0, 0.0, 8.0)
    assert found is not None
    assert found.axis == axis


@both_models
def test_an_empty_partition_can_be_cut_and_gives_nothing(model: CostModel) -> None:
    statistics = statistics_of(np.zeros((3, 4), dtype=int), [])
    found = find_split(statistics, model, 10.0, 4.0, 0.0)
    assert found is not None
    assert (found.moved, found.kept, found.difference) == (0.0, 0.0, 6.0)


def test_a_difference_of_one_is_not_good_enough() -> None:
    """Rows of 1 and 2, columns of 1.5 each."""
    statistics = statistics_of(np.array([[0.5, 0.5], [1.0, 1.0]]), [])
    found = find_split(statistics, WorkModel(1.0, 0.0), 3.0, 0.0, 1.0)
    assert found == Split(Axis.COLUMNS, 1, True, 1.5, 1.5, 0.0)


def test_uniform_work_is_cut_where_the_two_executors_end_level() -> None:
    """10 rows of 6: m_high has 60 and 20 elsewhere, m_low 20: moving five rows levels them."""
    statistics = statistics_of(np.full((10, 6), 1), [])
    found = find_split(statistics, WorkModel(1.0, 0.0), 80.0, 20.0, 1.0)
    assert found == Split(Axis.ROWS, 5, True, 30.0, 30.0, 0.0)


@pytest.mark.parametrize(
    ("weights", "axis", "line", "move_first"),
    [
        ([[7], [1], [1], [1]], Axis.ROWS, 3, False),
        ([[1], [1], [1], [7]], Axis.ROWS, 1, True),
        ([[7, 1, 1, 1]], Axis.COLUMNS, 3, False),
        ([[1, 1, 1, 7]], Axis.COLUMNS, 1, True),
    ],
    ids=["the last row", "the first row", "the last column", "the first column"],
)
def test_only_the_right_one_of_four_searches_finds(
    weights: list[list[int]], axis: Axis, line: int, move_first: bool
) -> None:
    """m_high has 10 and m_low 8: one is to move, and it lies at one end only."""
    found = find_split(statistics_of(np.array(weights), []), WorkModel(1.0, 0.0), 10.0, 8.0, 1.0)
    assert found == Split(axis, line, move_first, 1.0, 9.0, 0.0)


@given(statistics=partitions(), low=st.floats(0.0, 1.0))
@example(statistics=statistics_of(np.array([[1, 2]]), []), low=0.0)
def test_the_pieces_cover_the_cells_and_cost_what_the_split_says(
    statistics: Statistics, low: float
) -> None:
    model = WorkModel(per_point=1.0, per_check=0.5)
    cost = model.numerator(statistics)
    found = find_split(statistics, model, cost, cost * low, 1.0)
    if found is None:
        return
    cells = statistics.cells
    moved, kept = found.pieces(cells)
    covered = np.zeros((cells.rows, cells.columns), dtype=int)
    for piece in (moved, kept):
        assert piece.area > 0
        covered[piece.slices] += 1
    assert (covered == 1).all()
    assert model.numerator(statistics.restricted_to(moved)) == pytest.approx(found.moved)
    assert model.numerator(statistics.restricted_to(kept)) == pytest.approx(found.kept)


@dataclass(frozen=True)
class CountingModel(WorkModel):
    """A work model that remembers the lines it was asked about."""

    looked_at: tuple[list[tuple[Axis, int]], ...] = ([],)

    def split(self, statistics: Statistics, axis: Axis, line: int) -> tuple[float, float]:
        self.looked_at[0].append((axis, line))
        return super().split(statistics, axis, line)


def test_a_thousand_lines_are_searched_in_four_times_a_dozen_looks() -> None:
    statistics = Statistics(CellRect(0, 0, 1000, 1000))
    every = np.arange(1000, dtype=np.int32)
    statistics.collect_points(every, every)
    statistics.close_round()
    model = CountingModel(1.0, 0.0, looked_at=([],))
    found = find_split(statistics, model, 1000.0, 300.5, 1.0)
    assert found is not None
    assert abs(found.difference) == 0.5
    assert len(model.looked_at[0]) <= 4 * (10 + 2)


def test_the_search_ends_when_a_line_leaves_no_difference() -> None:
    statistics = statistics_of(np.ones((8, 8)), [])
    model = CountingModel(1.0, 0.0, looked_at=([],))
    found = find_split(statistics, model, 64.0, 0.0, 1.0)
    assert found == Split(Axis.ROWS, 4, True, 32.0, 32.0, 0.0)
    assert {axis for axis, _ in model.looked_at[0]} == {Axis.ROWS}


# -- Algorithm 3 --------------------------------------------------------------------------------


def best_sum(costs: list[int], capacity: int) -> int:
    """Return the largest sum of a subset that fits, by trying all sums."""
    sums = {0}
    for cost in costs:
        sums |= {total + cost for total in sums if total + cost <= capacity}
    return max(sums)


costs_and_capacity = st.tuples(
    st.lists(st.integers(0, 1000), max_size=14), st.integers(0, 4000)
) | st.lists(st.integers(1, 60), min_size=1, max_size=14).flatmap(
    # Near the worst case: one item just over half, the rest just under.
    lambda rest: st.tuples(st.just([max(rest) + 1, *rest]), st.integers(1, 2 * max(rest) + 2))
)


@given(problem=costs_and_capacity)
@example(problem=([51, 50, 50], 100))  # the worst case: 51 of 100
@example(problem=([3, 2, 2], 4))
def test_at_least_half_of_what_the_best_subset_reaches_and_never_too_much(
    problem: tuple[list[int], int],
) -> None:
    costs, capacity = problem
    chosen = find_subset(costs, capacity)
    total = sum(costs[i] for i in chosen)
    assert len(set(chosen)) == len(chosen)
    assert total <= capacity
    assert 2 * total >= best_sum(costs, capacity)
    # Greedy: nothing that was left would still have fitted.
    left = [cost for i, cost in enumerate(costs) if i not in chosen and cost > 0]
    assert all(total + cost > capacity for cost in left)


@given(
    costs=st.lists(st.floats(0, 1e6), max_size=14),
    capacity=st.floats(0, 3e6),
)
def test_fractions_never_exceed_the_capacity_either(costs: list[float], capacity: float) -> None:
    chosen = find_subset(costs, capacity)
    total = 0.0
    for i in chosen:
        total += costs[i]
    assert total <= capacity
    assert math.fsum(costs[i] for i in chosen) <= capacity * (1 + 1e-12)


@given(problem=costs_and_capacity)
def test_the_costliest_come_first_and_equals_in_their_order(
    problem: tuple[list[int], int],
) -> None:
    costs, capacity = problem
    chosen = find_subset(costs, capacity)
    assert chosen == sorted(chosen, key=lambda i: (-costs[i], i))


@pytest.mark.parametrize(
    ("costs", "capacity", "chosen"),
    [
        pytest.param([1, 5, 3], 6, [1, 0], id="the largest that fits, then what still fits"),
        pytest.param([5, 5, 5], 10, [0, 1], id="it stops when the capacity is hit exactly"),
        pytest.param([7, 4, 3], 6, [1], id="too large is passed over"),
        pytest.param([7, 8], 6, [], id="nothing fits"),
        pytest.param([0, 2, 0], 5, [1], id="what costs nothing stays"),
        pytest.param([0, 0], 0, [], id="what costs nothing stays, even if nothing else can go"),
        pytest.param([4, -3, 2], 5, [0], id="nor is a negative cost taken"),
        pytest.param([], 5, [], id="no partitions"),
        pytest.param([1, 2], 0, [], id="no capacity"),
        pytest.param([1, 2], -1, [], id="less than no capacity"),
    ],
)
def test_examples(costs: list[float], capacity: float, chosen: list[int]) -> None:
    assert find_subset(costs, capacity) == chosen


def test_it_stops_at_an_exact_hit_and_looks_no_further() -> None:
    """A cost so small that adding it changes nothing would otherwise be taken too."""
    assert find_subset([1.0, 1e-30], 1.0) == [0]
