"""Cost models: the paper's equations, additive work, and what a binary search stands on."""

from __future__ import annotations

from typing import NamedTuple, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkswarm.config import CostModelName
from sparkswarm.geometry import CellRect, QueryCells
from sparkswarm.protocol.cost import (
    COST_MODELS,
    CostModel,
    PaperModel,
    Prices,
    WorkModel,
    make_cost_model,
)
from sparkswarm.protocol.statistics import HALVE, Axis, Statistics

from ..support.statistics import KEEP

MODELS: list[CostModel] = [PaperModel(), WorkModel(), WorkModel(per_point=3.0, per_check=0.25)]
both_models = pytest.mark.parametrize("model", MODELS, ids=["paper", "work", "work, own prices"])


class Arrivals(NamedTuple):
    """What arrived in a round: points as (column, row, checks), and queries."""

    points: list[tuple[int, int, int]]
    queries: list[CellRect]


def statistics_of(cells: CellRect, rounds: list[Arrivals], decay: float = HALVE) -> Statistics:
    """Collect what of ``rounds`` lies in ``cells``."""
    statistics = Statistics(cells)
    for points, queries in rounds:
        mine = [
            p
            for p in points
            if cells.col_start <= p[0] < cells.col_stop and cells.row_start <= p[1] < cells.row_stop
        ]
        columns, rows, checks = np.array(mine, dtype=np.int32).reshape(-1, 3).T.copy()
        statistics.collect_points(columns, rows, checks.astype(np.float64))
        statistics.collect_queries(QueryCells.of(queries).clipped(cells))
        statistics.close_round(decay)
    return statistics


@st.composite
def worlds(draw: st.DrawFn) -> tuple[CellRect, list[Arrivals]]:
    """Draw a partition and two rounds of arrivals."""
    cells = CellRect(2, 1, 2 + draw(st.integers(1, 5)), 1 + draw(st.integers(1, 5)))
    column = st.integers(cells.col_start, cells.col_stop - 1)
    row = st.integers(cells.row_start, cells.row_stop - 1)
    points = st.lists(st.tuples(column, row, st.integers(0, 5)), max_size=12)
    query = st.builds(
        lambda a, b, c, d: CellRect(min(a, b), min(c, d), max(a, b) + 1, max(c, d) + 1),
        column, column, row, row,
    )  # fmt: skip
    rounds = st.lists(
        st.builds(Arrivals, points, st.lists(query, max_size=6)), min_size=2, max_size=2
    )
    return cells, draw(rounds)


def lines_of(cells: CellRect, axis: Axis) -> int:
    return cells.rows if axis == Axis.ROWS else cells.columns


def sides(cells: CellRect, axis: Axis, line: int) -> tuple[CellRect, CellRect]:
    if axis == Axis.ROWS:
        cut = cells.row_start + line
        return cells._replace(row_stop=cut), cells._replace(row_start=cut)
    cut = cells.col_start + line
    return cells._replace(col_stop=cut), cells._replace(col_start=cut)


# -- the paper's equations -----------------------------------------------------------------


def test_equations_1_to_7_by_hand() -> None:
    """Two executors; old and new are rounds, N is kept.

    p1: N = 1 + 2, Q = 1 + 2, R = 2 + 2; p2: N = 5, Q = 1, R = 5 (its query is old);
    p3: N = 2, Q = 2, R = 4.
    """
    cell = CellRect(0, 0, 1, 1)

    def points(count: int) -> list[tuple[int, int, int]]:
        return [(0, 0, 0)] * count

    p1, p2, p3 = (
        statistics_of(cell, rounds, KEEP)
        for rounds in (
            [Arrivals(points(1), [cell]), Arrivals(points(2), [cell, cell])],
            [Arrivals([], [cell]), Arrivals(points(5), [])],
            [Arrivals([], []), Arrivals(points(2), [cell, cell])],
        )
    )
    model = PaperModel()
    r_m1 = p1.received + p2.received  # equation 3
    r_m2 = p3.received
    r_s = r_m1 + r_m2  # equation 4
    assert (r_m1, r_m2, r_s) == (9, 4, 13)
    prob = p1.received / r_s  # equation 2
    assert [model.numerator(p) for p in (p1, p2, p3)] == [36, 25, 16]
    assert model.cost(model.numerator(p1), r_s) == pytest.approx(36 / 13)  # equation 5
    assert model.cost(model.numerator(p1), r_s) == pytest.approx(3 * 3 * prob)  # equation 1
    c_m1 = sum(model.cost(model.numerator(p), r_s) for p in (p1, p2))  # equation 6
    assert c_m1 == pytest.approx(61 / 13)
    num_m1 = model.numerator(p1) + model.numerator(p2)
    assert model.cost(num_m1, r_s) == pytest.approx(c_m1)  # equation 7


def test_a_split_by_the_papers_formulas_by_hand() -> None:
    """Three rows, one column: points 2, 1, 3; one old query on rows 0 and 1, one new on 1, 2.

    After row 0: C(p1) = 2 * 1 * 2, C(p2) = 4 * 2 * 5. After row 1: 3 * 2 * 4 and 3 * 1 * 4.
    """
    cells = CellRect(0, 0, 1, 3)
    points = [(0, 0, 0)] * 2 + [(0, 1, 0)] + [(0, 2, 0)] * 3
    statistics = statistics_of(
        cells,
        [Arrivals([], [CellRect(0, 0, 1, 2)]), Arrivals(points, [CellRect(0, 1, 1, 3)])],
    )
    model = PaperModel()
    assert model.numerator(statistics) == 6 * 2 * 7
    assert model.split(statistics, Axis.ROWS, 1) == (2 * 1 * 2, 4 * 2 * 5)
    assert model.split(statistics, Axis.ROWS, 2) == (3 * 2 * 4, 3 * 1 * 4)


def test_where_nothing_arrived_the_papers_cost_is_zero() -> None:
    model = PaperModel()
    assert model.cost(0.0, 0.0) == 0.0
    assert model.cost(12.0, 0.0) == 0.0
    assert model.cost(12.0, 4.0) == 3.0
    assert model.cost(12.0, 0.5) == 24.0


@given(numerators=st.lists(st.integers(0, 10**6), max_size=8), received=st.integers(0, 10**6))
@both_models
def test_costs_of_partitions_add_up_to_the_cost_of_the_sum(
    model: CostModel, numerators: list[int], received: int
) -> None:
    """Two numbers per executor suffice."""
    apart = sum(model.cost(numerator, received) for numerator in numerators)
    assert model.cost(sum(numerators), received) == pytest.approx(apart)


# -- additive work -------------------------------------------------------------------------


def test_work_by_hand() -> None:
    statistics = statistics_of(CellRect(0, 0, 2, 1), [Arrivals([(0, 0, 4), (1, 0, 10)], [])])
    model = WorkModel(per_point=2.0, per_check=0.5)
    assert model.numerator(statistics) == 2 * 2 + 14 * 0.5
    assert model.split(statistics, Axis.COLUMNS, 1) == (2 + 4 * 0.5, 2 + 10 * 0.5)
    assert model.cost(7.0, 0.0) == model.cost(7.0, 123.0) == 7.0


def test_until_prices_are_learnt_forty_checks_cost_as_much_as_a_point() -> None:
    model = WorkModel()
    assert 0 < model.per_point < 1e-3
    assert 40 * model.per_check == pytest.approx(model.per_point)


@given(world=worlds(), per_point=st.floats(1e-9, 1.0), per_check=st.floats(0.0, 1.0))
def test_the_sides_of_any_split_have_the_work_of_the_whole(
    world: tuple[CellRect, list[Arrivals]], per_point: float, per_check: float
) -> None:
    model = WorkModel(per_point, per_check)
    statistics = statistics_of(*world)
    for axis in Axis:
        for line in range(1, lines_of(world[0], axis)):
            first, second = model.split(statistics, axis, line)
            assert first + second == pytest.approx(model.numerator(statistics))


@given(repeats=st.integers(1, 20), checks=st.integers(0, 9), lines=st.integers(1, 4))
def test_half_the_work_is_half_the_cost(repeats: int, checks: int, lines: int) -> None:
    cells = CellRect(0, 0, 3, 2 * lines)
    points = [(column, row, checks) for column in range(3) for row in range(2 * lines)] * repeats
    statistics = statistics_of(cells, [Arrivals(points, [])])
    model = WorkModel(per_point=1.0, per_check=0.5)
    half = model.numerator(statistics) / 2
    assert model.split(statistics, Axis.ROWS, lines) == (half, half)


def test_moving_queries_is_priced_in_points() -> None:
    model = WorkModel(per_point=2.0, per_check=1.0, points_per_query_moved=0.25)
    assert model.moving(8.0) == 8 * 0.25 * 2.0
    assert WorkModel().moving(100.0) == pytest.approx(5 * WorkModel().per_point)
    assert PaperModel().moving(100.0) == 0.0


def test_queries_that_another_host_must_fetch_cost_more() -> None:
    model = WorkModel(per_point=2.0, points_per_query_moved=0.25, per_query_fetched=3.0)
    assert model.moving(8.0, to_fetch=10.0) == model.moving(8.0) + 30.0
    assert PaperModel().moving(8.0, to_fetch=10.0) == 0.0


# -- what holds for both -------------------------------------------------------------------


@given(world=worlds())
@both_models
def test_the_two_sides_cost_what_a_count_in_them_would(
    model: CostModel, world: tuple[CellRect, list[Arrivals]]
) -> None:
    cells, rounds = world
    statistics = statistics_of(cells, rounds)
    for axis in Axis:
        for line in range(1, lines_of(cells, axis)):
            counted = tuple(
                model.numerator(statistics_of(side, rounds)) for side in sides(cells, axis, line)
            )
            assert model.split(statistics, axis, line) == pytest.approx(counted)


@given(world=worlds(), data=st.data())
@both_models
def test_as_the_line_advances_the_first_side_never_falls_and_the_second_never_rises(
    model: CostModel, world: tuple[CellRect, list[Arrivals]], data: st.DataObject
) -> None:
    """Also where one axis is only estimated, as it is after a split."""
    cells, rounds = world
    whole = statistics_of(cells, rounds)
    axis = data.draw(st.sampled_from(list(Axis)))
    line = data.draw(st.integers(0, lines_of(cells, axis) - 1))
    part = whole.restricted_to(sides(cells, axis, line)[1])
    for statistics in (whole, part):
        for axis in Axis:
            lines = range(1, lines_of(statistics.cells, axis))
            costs = np.array([model.split(statistics, axis, line) for line in lines])
            slack = 1e-12 * max(1.0, model.numerator(statistics))
            assert (np.diff(costs.reshape(-1, 2)[:, 0]) >= -slack).all()
            assert (np.diff(costs.reshape(-1, 2)[:, 1]) <= slack).all()


@given(world=worlds())
@both_models
def test_a_profile_adds_up_to_the_whole_on_either_axis(
    model: CostModel, world: tuple[CellRect, list[Arrivals]]
) -> None:
    cells, rounds = world
    statistics = statistics_of(cells, rounds)
    for axis in Axis:
        profile = model.profile(statistics, axis)
        assert profile.shape == (lines_of(cells, axis),)
        assert profile.sum() == pytest.approx(model.numerator(statistics))
        assert (profile >= -1e-12).all()


@given(world=worlds())
def test_a_profile_of_work_is_the_work_of_each_line(
    world: tuple[CellRect, list[Arrivals]],
) -> None:
    cells, rounds = world
    model = WorkModel(per_point=1.0, per_check=0.25)
    statistics = statistics_of(cells, rounds)
    for axis in Axis:
        lines = []
        for i in range(lines_of(cells, axis)):
            rest = sides(cells, axis, i)[1]
            lines.append(statistics_of(sides(rest, axis, 1)[0], rounds))
        assert model.profile(statistics, axis) == pytest.approx(
            [model.numerator(line) for line in lines]
        )


def test_a_profile_of_the_papers_product_follows_the_points() -> None:
    points = [(0, 0, 0), (0, 0, 9), (1, 0, 0), (0, 2, 0)]
    statistics = statistics_of(CellRect(0, 0, 2, 3), [Arrivals(points, [CellRect(0, 0, 1, 1)])])
    assert PaperModel().numerator(statistics) == 4 * 1 * 5
    assert PaperModel().profile(statistics, Axis.ROWS).tolist() == [15, 0, 5]
    assert PaperModel().profile(statistics, Axis.COLUMNS).tolist() == [15, 5]


def test_the_time_of_a_task_is_the_sum_of_what_it_does() -> None:
    prices = Prices(per_point=1.0, per_check=0.5, per_match=0.25, per_piece=10.0, per_task=100.0)
    assert prices.of_task(4.0, 6.0, 8.0, 2.0) == 100 + 4 + 3 + 2 + 20
    several = prices.of_task(*np.array([[4.0, 0.0], [6.0, 0.0], [8.0, 0.0], [2.0, 1.0]]))
    assert several.tolist() == [129.0, 110.0]


def test_models_are_made_by_name() -> None:
    assert make_cost_model("paper") == PaperModel()
    assert make_cost_model("work") == WorkModel()
    assert set(COST_MODELS) == set(get_args(CostModelName))


def test_only_the_work_model_has_prices() -> None:
    prices = Prices(per_point=3.0, per_check=2.0)
    assert WorkModel().with_prices(prices) == WorkModel(per_point=3.0, per_check=2.0)
    assert PaperModel().with_prices(prices) == PaperModel()
    assert WorkModel.learns_prices
    assert not PaperModel.learns_prices
