"""Statistics: the paper's worked example, its proof of correctness, and life after a split."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkswarm.errors import GeometryError
from sparkswarm.geometry import CellRect, QueryCells
from sparkswarm.protocol.statistics import (
    CHECKS,
    CHECKS_NEW,
    FIELDS,
    HALVE,
    N_NEW,
    PRE_SPAN_Q,
    Q_NEW,
    SPAN_Q,
    SPAN_Q_NEW,
    Axis,
    N,
    PointCounts,
    Q,
    R,
    RoundTotals,
    Statistics,
)

from ..support.statistics import KEEP, checks_in, points_in, queries_in, received_in

COLLECTORS = [N_NEW, Q_NEW, SPAN_Q_NEW, CHECKS_NEW]
axes = pytest.mark.parametrize("axis", list(Axis))


class Point(NamedTuple):
    """A point's cell and the candidates it was checked against."""

    column: int
    row: int
    checks: int = 0


class Round(NamedTuple):
    """What happens between two closings, in this order."""

    points: list[Point]
    queries: list[CellRect]
    removed: list[CellRect]


class History(NamedTuple):
    """A partition and what it went through."""

    cells: CellRect
    rounds: list[Round]

    def alive(self) -> list[CellRect]:
        """Return the queries that are still registered."""
        queries = [q for r in self.rounds for q in r.queries]
        for r in self.rounds:
            for q in r.removed:
                queries.remove(q)
        return queries


# -- helpers -------------------------------------------------------------------------------


def collect(statistics: Statistics, points: Iterable[Point]) -> None:
    columns, rows, checks = np.array(list(points), dtype=np.int32).reshape(-1, 3).T.copy()
    statistics.collect_points(columns, rows, checks.astype(np.float64))


def inside(point: Point, cells: CellRect) -> bool:
    return (
        cells.col_start <= point.column < cells.col_stop
        and cells.row_start <= point.row < cells.row_stop
    )


def clip(queries: Iterable[CellRect], cells: CellRect) -> list[CellRect]:
    """Return what is left of the queries inside ``cells``."""
    pieces = [
        CellRect(
            max(q.col_start, cells.col_start),
            max(q.row_start, cells.row_start),
            min(q.col_stop, cells.col_stop),
            min(q.row_stop, cells.row_stop),
        )
        for q in queries
    ]
    return [p for p in pieces if p.col_start < p.col_stop and p.row_start < p.row_stop]


def live(
    cells: CellRect, rounds: list[Round], decay: float = KEEP, close_last: bool = True
) -> Statistics:
    """Collect what of ``rounds`` lies in ``cells``, closing after every round."""
    statistics = Statistics(cells)
    for i, r in enumerate(rounds):
        collect(statistics, [p for p in r.points if inside(p, cells)])
        statistics.collect_queries(QueryCells.of(clip(r.queries, cells)))
        statistics.remove_queries(QueryCells.of(clip(r.removed, cells)))
        if close_last or i < len(rounds) - 1:
            statistics.close_round(decay)
    return statistics


def band(cells: CellRect, axis: Axis, start: int, stop: int) -> CellRect:
    """Return the lines ``start`` to ``stop - 1`` of a partition as cells."""
    if axis == Axis.ROWS:
        return cells._replace(row_start=cells.row_start + start, row_stop=cells.row_start + stop)
    return cells._replace(col_start=cells.col_start + start, col_stop=cells.col_start + stop)


def runs(cells: CellRect, axis: Axis) -> list[tuple[int, int]]:
    """Return every (start, stop) of an axis."""
    count = cells.rows if axis == Axis.ROWS else cells.columns
    return [(i, j) for i in range(count) for j in range(i + 1, count + 1)]


@st.composite
def histories(draw: st.DrawFn) -> History:
    """Draw a partition somewhere in the grid, and rounds of arrivals and removals."""
    column, row = draw(st.integers(0, 3)), draw(st.integers(0, 3))
    columns, rows = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    cells = CellRect(column, row, column + columns, row + rows)
    point = st.builds(
        Point,
        st.integers(column, cells.col_stop - 1),
        st.integers(row, cells.row_stop - 1),
        st.integers(0, 3),
    )

    def span(start: int, stop: int) -> st.SearchStrategy[tuple[int, int]]:
        edges = st.tuples(st.integers(start, stop - 1), st.integers(start, stop - 1))
        return edges.map(lambda pair: (min(pair), max(pair) + 1))

    query = st.builds(
        lambda x, y: CellRect(x[0], y[0], x[1], y[1]),
        span(column, cells.col_stop),
        span(row, cells.row_stop),
    )
    rounds: list[Round] = []
    registered: list[CellRect] = []
    for _ in range(draw(st.integers(1, 3))):
        points = draw(st.lists(point, max_size=10))
        queries = draw(st.lists(query, max_size=5))
        registered += queries
        removed = draw(st.lists(st.sampled_from(registered), max_size=2)) if registered else []
        left = list(registered)
        gone = []
        for q in removed:
            if q in left:
                left.remove(q)
                gone.append(q)
        registered = left
        rounds.append(Round(points, queries, gone))
    return History(cells, rounds)


@st.composite
def bands(draw: st.DrawFn) -> tuple[History, Axis, CellRect]:
    """Draw a history, and a run of its rows or columns."""
    history = draw(histories())
    axis = draw(st.sampled_from(list(Axis)))
    start, stop = draw(st.sampled_from(runs(history.cells, axis)))
    return history, axis, band(history.cells, axis, start, stop)


@st.composite
def tilings(draw: st.DrawFn) -> tuple[History, list[CellRect]]:
    """Draw a history, and a tiling of its cells made by cutting a few times."""
    history = draw(histories())
    parts = [history.cells]
    for _ in range(draw(st.integers(0, 3))):
        part = parts.pop(draw(st.integers(0, len(parts) - 1)))
        lines = [(Axis.ROWS, i) for i in range(1, part.rows)]
        lines += [(Axis.COLUMNS, i) for i in range(1, part.columns)]
        if not lines:
            parts.append(part)
            continue
        axis, line = draw(st.sampled_from(lines))
        count = part.rows if axis == Axis.ROWS else part.columns
        parts += [band(part, axis, 0, line), band(part, axis, line, count)]
    return history, parts


def same(got: npt.ArrayLike, wanted: npt.ArrayLike) -> None:
    np.testing.assert_allclose(got, wanted, rtol=1e-9, atol=1e-9)


def other(axis: Axis) -> Axis:
    return Axis.COLUMNS if axis == Axis.ROWS else Axis.ROWS


# -- the paper's worked example ------------------------------------------------------------

P11 = CellRect(5, 3, 7, 7)
"""Two columns and four rows, not at the grid's corner."""


def p11_before_the_round() -> Statistics:
    """Six old points and three old queries in the first three rows, one of these queries
    reaching the third row; and one of each in the last row."""
    statistics = Statistics(P11)
    collect(
        statistics,
        [Point(5, 3), Point(6, 3), Point(6, 3), Point(5, 4), Point(5, 5), Point(6, 5), Point(6, 6)],
    )
    statistics.collect_queries(
        QueryCells.of(
            [
                CellRect(5, 3, 7, 4),
                CellRect(5, 4, 6, 6),
                CellRect(6, 5, 7, 6),
                CellRect(5, 6, 6, 7),
            ]
        )
    )
    statistics.close_round(KEEP)
    return statistics


def test_the_worked_example_of_p11_collects_as_the_text_says() -> None:
    statistics = p11_before_the_round()
    rows, columns = statistics.lines(Axis.ROWS), statistics.lines(Axis.COLUMNS)
    assert not statistics.values[:, COLLECTORS].any()

    collect(statistics, [Point(5, 5), Point(6, 5)])  # D_A, D_B
    assert rows[:, N_NEW].tolist() == [0, 0, 2, 0]
    assert columns[:, N_NEW].tolist() == [1, 1]

    statistics.collect_queries(QueryCells.of([CellRect(5, 4, 6, 5)]))  # Q_A
    assert rows[:, Q_NEW].tolist() == [0, 1, 0, 0]
    assert columns[:, Q_NEW].tolist() == [1, 0]
    assert not statistics.values[:, SPAN_Q_NEW].any()

    statistics.collect_queries(QueryCells.of([CellRect(6, 3, 7, 6)]))  # Q_B
    assert rows[:, Q_NEW].tolist() == [1, 1, 0, 0]
    assert columns[:, Q_NEW].tolist() == [1, 1]
    assert rows[:, SPAN_Q_NEW].tolist() == [0, 1, 1, 0]
    assert columns[:, SPAN_Q_NEW].tolist() == [0, 0]

    statistics.collect_queries(QueryCells.of([CellRect(5, 6, 7, 7)]))  # Q_C
    assert rows[:, Q_NEW].tolist() == [1, 1, 0, 1]
    assert columns[:, SPAN_Q_NEW].tolist() == [0, 1]

    totals = statistics.close_round(KEEP)
    assert totals == RoundTotals(points=2, queries=3, checks=0)
    third = rows[2]
    assert third[[N, Q, R, SPAN_Q, PRE_SPAN_Q]].tolist() == [8, 5, 4, 2, 1]
    assert (statistics.points, statistics.queries, statistics.received) == (9, 7, 5)


# -- collecting and closing ----------------------------------------------------------------


@given(history=histories(), column=st.integers(0, 3), row=st.integers(0, 3))
def test_a_point_touches_one_counter_of_its_row_and_one_of_its_column(
    history: History, column: int, row: int
) -> None:
    cells = history.cells
    column, row = column % cells.columns, row % cells.rows
    statistics = live(cells, history.rounds)
    before = statistics.values.copy()
    statistics.collect_points(
        np.array([cells.col_start + column], dtype=np.int32),
        np.array([cells.row_start + row], dtype=np.int32),
    )
    changed = np.argwhere(statistics.values != before)
    assert changed.tolist() == [[row, N_NEW], [cells.rows + column, N_NEW]]
    assert statistics.values[row, N_NEW] == before[row, N_NEW] + 1


@given(history=histories(), points=st.lists(st.tuples(*[st.integers(0, 3)] * 2), max_size=9))
def test_points_may_be_collected_elsewhere_and_added(
    history: History, points: list[tuple[int, int]]
) -> None:
    cells = history.cells
    here, there = (live(cells, history.rounds) for _ in range(2))
    columns = np.array([cells.col_start + c % cells.columns for c, _ in points], dtype=np.int32)
    rows = np.array([cells.row_start + r % cells.rows for _, r in points], dtype=np.int32)
    checks = np.arange(len(points), dtype=np.float64)
    here.collect_points(columns, rows, checks)
    counts = PointCounts(cells)
    counts.collect(columns, rows, checks)
    there.add_points(counts.values)
    assert np.array_equal(here.values, there.values)


def test_weights_and_checks_count_for_what_they_say() -> None:
    statistics = Statistics(CellRect(1, 1, 3, 4))
    statistics.collect_points(
        np.array([1, 2], dtype=np.int32),
        np.array([1, 3], dtype=np.int32),
        checks=np.array([10.0, 4.0]),
        weights=np.array([3.0, 0.5]),
    )
    assert statistics.lines(Axis.ROWS)[:, N_NEW].tolist() == [3, 0, 0.5]
    assert statistics.lines(Axis.COLUMNS)[:, N_NEW].tolist() == [3, 0.5]
    assert statistics.lines(Axis.ROWS)[:, CHECKS_NEW].tolist() == [30, 0, 2]
    assert statistics.lines(Axis.COLUMNS)[:, CHECKS_NEW].tolist() == [30, 2]
    assert statistics.close_round() == RoundTotals(points=3.5, queries=0, checks=32)
    assert (statistics.points, statistics.checks) == (3.5, 32)


@given(
    seed=st.integers(0, 2**32 - 1),
    columns=st.integers(1, 5),
    rows=st.integers(1, 5),
    decay=st.sampled_from([0.0, HALVE, 0.7, KEEP]),
)
def test_closing_a_round_is_the_papers_formulas(
    seed: int, columns: int, rows: int, decay: float
) -> None:
    rng = np.random.default_rng(seed)
    old = rng.integers(0, 9, (rows + columns, FIELDS)).astype(np.float64)
    statistics = Statistics(CellRect(0, 0, columns, rows), old.copy())
    statistics.close_round(decay)
    for axis, first, count in ((Axis.ROWS, 0, rows), (Axis.COLUMNS, rows, columns)):
        new = statistics.lines(axis)
        for i in range(count):
            until = old[first : first + i + 1]
            now = old[first + i]
            assert new[i, N] == pytest.approx(decay * now[N] + until[:, N_NEW].sum())
            assert new[i, CHECKS] == pytest.approx(decay * now[CHECKS] + until[:, CHECKS_NEW].sum())
            assert new[i, Q] == now[Q] + until[:, Q_NEW].sum()
            assert new[i, R] == until[:, N_NEW].sum() + until[:, Q_NEW].sum()
            assert new[i, SPAN_Q] == now[SPAN_Q] + now[SPAN_Q_NEW]
            assert new[i, PRE_SPAN_Q] == now[SPAN_Q_NEW]
            assert not new[i, COLLECTORS].any()


def test_old_points_are_halved_unless_told_otherwise() -> None:
    statistics = Statistics(CellRect(0, 0, 1, 1))
    for _ in range(3):
        collect(statistics, [Point(0, 0, 2)] * 8)
        statistics.close_round()
    assert (statistics.points, statistics.checks) == (8 + 4 + 2, 2 * (8 + 4 + 2))


# -- the proof of correctness --------------------------------------------------------------


@given(history=histories(), decay=st.sampled_from([KEEP, HALVE]))
def test_every_run_of_rows_or_columns_has_what_a_count_finds(
    history: History, decay: float
) -> None:
    """N, Q and R of every sub-partition, after every round, whatever was removed since."""
    cells = history.cells
    statistics = Statistics(cells)
    for age, now in enumerate(history.rounds):
        collect(statistics, now.points)
        statistics.collect_queries(QueryCells.of(now.queries))
        statistics.remove_queries(QueryCells.of(now.removed))
        totals = statistics.close_round(decay)
        assert totals == (len(now.points), len(now.queries), sum(p.checks for p in now.points))
        assert not statistics.values[:, COLLECTORS].any()

        past = history.rounds[: age + 1]
        alive = History(cells, past).alive()
        for axis in Axis:
            for start, stop in runs(cells, axis):
                part = band(cells, axis, start, stop)
                weighted = [(decay ** (age - i), p) for i, r in enumerate(past) for p in r.points]
                found = [(weight, p) for weight, p in weighted if inside(p, part)]
                points = sum(weight for weight, _ in found)
                checks = sum(weight * p.checks for weight, p in found)
                received = sum(inside(p, part) for p in now.points) + len(clip(now.queries, part))
                assert points_in(statistics, axis, start, stop) == pytest.approx(points)
                assert checks_in(statistics, axis, start, stop) == pytest.approx(checks)
                assert queries_in(statistics, axis, start, stop) == len(clip(alive, part))
                assert received_in(statistics, axis, start, stop) == received
        assert statistics.points == points_in(statistics, Axis.ROWS, 0, cells.rows)
        assert statistics.queries == len(alive)
        assert statistics.received == len(now.points) + len(now.queries)
        assert statistics.checks == checks_in(statistics, Axis.ROWS, 0, cells.rows)


def test_a_removed_query_leaves_at_once_but_did_arrive() -> None:
    cells = CellRect(0, 0, 2, 3)
    wide, small = CellRect(0, 0, 2, 3), CellRect(1, 2, 2, 3)
    statistics = Statistics(cells)
    statistics.collect_queries(QueryCells.of([wide, small]))
    statistics.remove_queries(QueryCells.of([wide]))
    statistics.close_round()
    assert statistics.queries == 1
    assert statistics.received == 2
    assert not statistics.values[:, SPAN_Q].any()
    assert statistics.lines(Axis.ROWS)[:, PRE_SPAN_Q].tolist() == [0, 1, 1]

    statistics.remove_queries(QueryCells.of([small]))
    assert statistics.queries == 0
    assert statistics.received == 2
    statistics.close_round()
    assert (statistics.queries, statistics.received) == (0, 0)


# -- jumps ---------------------------------------------------------------------------------


def steady(points: float, checks: float, decay: float = HALVE) -> Statistics:
    """Return statistics that have seen the same round for ever, spread 1:3 over two rows."""
    statistics = Statistics(CellRect(0, 0, 2, 2))
    receive(statistics, points / (1 - decay), checks)
    statistics.close_round(KEEP)
    return statistics


def receive(statistics: Statistics, points: float, checks: float) -> None:
    statistics.collect_points(
        np.array([0, 1], dtype=np.int32),
        np.array([0, 1], dtype=np.int32),
        checks=np.array([checks, checks]),
        weights=np.array([points / 4, points * 3 / 4]),
    )


JUMPS = {
    "far more points": (1000, 2),
    "one more than four deviations and a quarter": (166, 2),
    "one less than four deviations and a quarter": (34, 2),
    "nothing at all": (0, 0),
    "as many points but far more candidates": (100, 4),
    "as many points but far fewer candidates": (100, 0.5),
}
NO_JUMPS = {
    "the same": (100, 2),
    "the most that chance explains": (165, 2),
    "the least that chance explains": (35, 2),
    "as many points and a few more candidates": (100, 3),
}


@pytest.mark.parametrize("arrivals", JUMPS.values(), ids=JUMPS)
@pytest.mark.parametrize("decay", [0.0, HALVE, 0.75])
def test_after_a_jump_it_is_as_if_the_new_rate_had_always_been(
    arrivals: tuple[float, float], decay: float
) -> None:
    points, checks = arrivals
    statistics = steady(100, 2, decay)
    statistics.collect_queries(QueryCells.of([CellRect(0, 0, 1, 2)]))
    statistics.close_round(KEEP)
    receive(statistics, points, checks)
    totals = statistics.close_round(decay, forget_jumps=True)
    always = steady(points, checks, decay)
    same(statistics.values[:, [N, CHECKS]], always.values[:, [N, CHECKS]])
    assert totals == (points, 0, points * checks)
    assert statistics.received == points
    assert statistics.queries == 1


@pytest.mark.parametrize("arrivals", NO_JUMPS.values(), ids=NO_JUMPS)
def test_without_a_jump_the_past_fades_as_always(arrivals: tuple[float, float]) -> None:
    plain, watchful = steady(100, 2), steady(100, 2)
    for statistics in (plain, watchful):
        receive(statistics, *arrivals)
    plain.close_round(HALVE)
    watchful.close_round(HALVE, forget_jumps=True)
    assert (watchful.values == plain.values).all()


@pytest.mark.parametrize(("decay", "forget"), [(KEEP, True), (HALVE, False)])
def test_the_past_is_never_dropped_when_it_is_kept_or_nobody_asked(
    decay: float, forget: bool
) -> None:
    statistics = steady(100, 2)
    receive(statistics, 1000, 2)
    statistics.close_round(decay, forget_jumps=forget)
    assert statistics.points == 200 * decay + 1000


def test_the_past_is_kept_by_default() -> None:
    statistics = steady(100, 2)
    receive(statistics, 1000, 2)
    statistics.close_round()
    assert statistics.points == 100 + 1000


@pytest.mark.parametrize("rate", [100, 1000])
def test_the_noise_of_a_steady_stream_is_no_jump(rate: float) -> None:
    rng = np.random.default_rng(7)
    plain, watchful = steady(rate, 2), steady(rate, 2)
    for arrived in rng.poisson(rate, 500):
        for statistics in (plain, watchful):
            receive(statistics, arrived, 2)
        plain.close_round(HALVE)
        watchful.close_round(HALVE, forget_jumps=True)
        same(watchful.values, plain.values)


@pytest.mark.parametrize("rate", [0.1, 0.5, 3, 10])
def test_a_thin_stream_is_not_overrated(rate: float) -> None:
    """The mean of N over many rounds is the rate / (1 - decay), with jumps as without."""
    rng = np.random.default_rng(11)
    statistics = steady(rate, 0)
    total, rounds = 0.0, 3000
    for arrived in rng.poisson(rate, rounds):
        receive(statistics, arrived, 0)
        statistics.close_round(HALVE, forget_jumps=True)
        total += statistics.points
    assert total / rounds == pytest.approx(2 * rate, rel=0.15)


@pytest.mark.filterwarnings("error")
def test_a_stream_that_ends_fades_to_nothing() -> None:
    """Until the last bit is gone."""
    statistics = steady(3, 1000)
    for _ in range(1200):
        statistics.close_round(HALVE, forget_jumps=True)
    assert (statistics.points, statistics.checks) == (0.0, 0.0)


@pytest.mark.parametrize(("points", "seen"), [(4, 4), (5, 10)])
def test_a_new_partition_is_seen_in_full_as_soon_as_chance_cannot_explain_it(
    points: int, seen: float
) -> None:
    statistics = Statistics(CellRect(0, 0, 2, 2))
    receive(statistics, points, 7)
    statistics.close_round(HALVE, forget_jumps=True)
    assert (statistics.points, statistics.checks) == (seen, 7 * seen)


# -- parts ---------------------------------------------------------------------------------


@given(cut=bands(), decay=st.sampled_from([KEEP, HALVE]), close_last=st.booleans())
def test_along_the_cut_the_statistics_of_a_part_are_exact(
    cut: tuple[History, Axis, CellRect], decay: float, close_last: bool
) -> None:
    """Every field, collectors in mid-round too, as if the part had always been by itself."""
    (cells, rounds), axis, part = cut
    found = live(cells, rounds, decay, close_last).restricted_to(part)
    wanted = live(part, rounds, decay, close_last)
    assert found.cells == part
    assert found.values.shape == wanted.values.shape
    same(found.lines(axis), wanted.lines(axis))


@given(cut=bands(), decay=st.sampled_from([KEEP, HALVE]), close_last=st.booleans())
def test_across_the_cut_no_prefix_is_off_by_more_than_the_bound(
    cut: tuple[History, Axis, CellRect], decay: float, close_last: bool
) -> None:
    (cells, rounds), axis, part = cut
    whole = live(cells, rounds, decay, close_last)
    found = whole.restricted_to(part).lines(other(axis))
    wanted = live(part, rounds, decay, close_last).lines(other(axis))
    for field, running in ((N, False), (CHECKS, False), (N_NEW, True), (CHECKS_NEW, True)):
        estimate, true, all_lines = found[:, field], wanted[:, field], whole.lines(axis)[:, field]
        if running:
            estimate, true, all_lines = estimate.cumsum(), true.cumsum(), all_lines.cumsum()
        total, in_part = all_lines[-1], true[-1]
        bound = in_part * (total - in_part) / total if total else 0.0
        assert (np.abs(estimate - true) <= bound + 1e-9).all()
        assert bound <= total / 4 + 1e-9
        assert estimate[-1] == pytest.approx(in_part)


@given(cut=bands(), close_last=st.booleans())
def test_across_the_cut_queries_and_arrivals_are_scaled_by_the_parts_share_of_them(
    cut: tuple[History, Axis, CellRect], close_last: bool
) -> None:
    (cells, rounds), axis, part = cut
    rounds = [r._replace(removed=[]) for r in rounds]
    whole, found, true = (
        statistics.lines(other(axis))
        for statistics in (
            live(cells, rounds, close_last=close_last),
            live(cells, rounds, close_last=close_last).restricted_to(part),
            live(part, rounds, close_last=close_last),
        )
    )
    new = true[:, Q_NEW].sum(), whole[:, Q_NEW].sum()
    for share, fields in (
        ((true[-1, Q], whole[-1, Q]), [Q, SPAN_Q]),
        ((true[-1, R], whole[-1, R]), [R, PRE_SPAN_Q]),
        (new, [Q_NEW, SPAN_Q_NEW]),
    ):
        same(found[:, fields], whole[:, fields] * (share[0] / share[1] if share[1] else 0))


@given(history=histories(), data=st.data())
def test_a_part_cut_on_both_axes_spreads_as_rows_and_columns_say(
    history: History, data: st.DataObject
) -> None:
    cells = history.cells
    rows = data.draw(st.sampled_from(runs(cells, Axis.ROWS)))
    columns = data.draw(st.sampled_from(runs(cells, Axis.COLUMNS)))
    part = band(band(cells, Axis.ROWS, *rows), Axis.COLUMNS, *columns)
    whole = live(cells, history.rounds)
    found = whole.restricted_to(part)
    assert found.cells == part
    in_rows = points_in(whole, Axis.ROWS, *rows)
    in_columns = points_in(whole, Axis.COLUMNS, *columns)
    estimate = in_rows * in_columns / whole.points if whole.points else 0.0
    true = live(part, history.rounds).points
    for axis in Axis:
        assert found.lines(axis)[-1, N] == pytest.approx(estimate)
        assert (np.diff(found.lines(axis)[:, N], prepend=0.0) >= -1e-9).all()
    for known in (in_rows, in_columns):
        assert abs(estimate - true) <= known * (whole.points - known) / (whole.points or 1) + 1e-9
    nested = whole.restricted_to(band(cells, Axis.ROWS, *rows)).restricted_to(part)
    same(found.values, nested.values)


@given(history=histories(), data=st.data())
def test_with_its_queries_given_a_part_has_every_count_of_them_right(
    history: History, data: st.DataObject
) -> None:
    cells = history.cells
    rows = data.draw(st.sampled_from(runs(cells, Axis.ROWS)))
    columns = data.draw(st.sampled_from(runs(cells, Axis.COLUMNS)))
    part = band(band(cells, Axis.ROWS, *rows), Axis.COLUMNS, *columns)
    queries = clip(history.alive(), part)
    plain = live(cells, history.rounds).restricted_to(part)
    found = live(cells, history.rounds).restricted_to(part, QueryCells.of(queries))
    for axis in Axis:
        for start, stop in runs(part, axis):
            count = len(clip(queries, band(part, axis, start, stop)))
            assert queries_in(found, axis, start, stop) == count
    rest = [field for field in range(FIELDS) if field not in (Q, SPAN_Q)]
    same(found.values[:, rest], plain.values[:, rest])


@given(tiling=tilings())
def test_a_recount_in_mid_round_is_exact_once_the_round_is_closed(
    tiling: tuple[History, list[CellRect]],
) -> None:
    """Along the cut and across it, for parts and for the whole that they make."""
    history, parts = tiling
    cells, rounds = history
    whole = live(cells, rounds, close_last=False)
    alive = history.alive()
    pieces = [whole.restricted_to(part, QueryCells.of(clip(alive, part))) for part in parts]
    apart = [live(part, rounds, close_last=False) for part in parts]
    for statistics in (*pieces, Statistics.joined(apart, cells, QueryCells.of(alive))):
        statistics.close_round()
        for axis in Axis:
            for start, stop in runs(statistics.cells, axis):
                run = band(statistics.cells, axis, start, stop)
                found = queries_in(statistics, axis, start, stop)
                assert found == pytest.approx(len(clip(alive, run)))


@pytest.mark.parametrize(
    "part",
    [
        CellRect(1, 1, 3, 4),
        CellRect(0, 2, 2, 3),
        CellRect(1, 0, 2, 3),
        CellRect(1, 1, 2, 5),
        CellRect(7, 7, 8, 8),
    ],
)
def test_what_is_not_a_part_is_refused(part: CellRect) -> None:
    with pytest.raises(GeometryError, match="is not a part of") as error:
        Statistics(CellRect(1, 1, 2, 4)).restricted_to(part)
    assert str(part) in str(error.value)


@given(cut=bands())
def test_a_part_leaves_the_whole_as_it_was(cut: tuple[History, Axis, CellRect]) -> None:
    (cells, rounds), _, part = cut
    whole = live(cells, rounds, close_last=False)
    before = whole.values.copy()
    found = whole.restricted_to(part)
    assert (whole.values == before).all()
    found.values += 1
    assert (whole.values == before).all()


def test_the_part_that_is_the_whole_is_a_copy_too() -> None:
    cells = CellRect(0, 0, 2, 2)
    whole = Statistics(cells)
    whole.collect_queries(QueryCells.of([cells]))
    whole.close_round()
    part = whole.restricted_to(cells, QueryCells.of([]))
    part.values[:, N_NEW] += 1
    assert whole.queries == 1
    assert not whole.values[:, N_NEW].any()


def test_a_part_of_nothing_has_nothing() -> None:
    part = Statistics(CellRect(0, 0, 3, 3)).restricted_to(CellRect(1, 1, 2, 2))
    assert part.values.shape == (2, FIELDS)
    assert not part.values.any()


# -- joining and sharing -------------------------------------------------------------------


@given(tiling=tilings(), decay=st.sampled_from([KEEP, HALVE]), close_last=st.booleans())
def test_joined_parts_have_the_points_of_the_whole(
    tiling: tuple[History, list[CellRect]], decay: float, close_last: bool
) -> None:
    (cells, rounds), parts = tiling
    whole = live(cells, rounds, decay, close_last)
    pieces = [live(part, rounds, decay, close_last) for part in parts]
    found = Statistics.joined(pieces, cells)
    assert found.cells == cells
    fields = [N, CHECKS, N_NEW, CHECKS_NEW]
    same(found.values[:, fields], whole.values[:, fields])
    for axis in Axis:
        assert found.lines(axis)[-1, R] == pytest.approx(sum(p.received for p in pieces))
    assert (found.values[:, R] >= whole.values[:, R] - 1e-9).all()


@given(tiling=tilings())
def test_joined_parts_have_at_least_the_queries_of_the_whole_and_exactly_when_given(
    tiling: tuple[History, list[CellRect]],
) -> None:
    history, parts = tiling
    cells = history.cells
    whole = live(cells, history.rounds)
    pieces = [live(part, history.rounds) for part in parts]
    bound = Statistics.joined(pieces, cells)
    exact = Statistics.joined(pieces, cells, QueryCells.of(history.alive()))
    for axis in Axis:
        for start, stop in runs(cells, axis):
            wanted = queries_in(whole, axis, start, stop)
            assert queries_in(bound, axis, start, stop) >= wanted
            assert queries_in(exact, axis, start, stop) == wanted
    crossing = [q for q in history.alive() if sum(bool(clip([q], part)) for part in parts) > 1]
    if not crossing:
        same(bound.values[:, [Q, SPAN_Q]], whole.values[:, [Q, SPAN_Q]])
    assert bound.queries == sum(piece.queries for piece in pieces)


@given(tiling=tilings())
def test_where_no_query_crosses_joined_parts_are_the_whole_in_every_field(
    tiling: tuple[History, list[CellRect]],
) -> None:
    (cells, rounds), parts = tiling
    apart = [
        r._replace(queries=[q for part in parts for q in clip(r.queries, part)], removed=[])
        for r in rounds
    ]
    pieces = [live(part, apart, HALVE, close_last=False) for part in parts]
    same(
        Statistics.joined(pieces, cells).values,
        live(cells, apart, HALVE, close_last=False).values,
    )


@given(cut=bands(), data=st.data())
def test_a_whole_that_is_split_and_joined_again_has_its_points_back(
    cut: tuple[History, Axis, CellRect], data: st.DataObject
) -> None:
    (cells, rounds), axis, _ = cut
    count = cells.rows if axis == Axis.ROWS else cells.columns
    line = data.draw(st.integers(0, count))
    whole = live(cells, rounds, HALVE, close_last=False)
    ends = [(0, line), (line, count)]
    parts = [band(cells, axis, start, stop) for start, stop in ends if start < stop]
    found = Statistics.joined([whole.restricted_to(part) for part in parts], cells)
    fields = [N, CHECKS, N_NEW, CHECKS_NEW]
    same(found.values[:, fields], whole.values[:, fields])


@given(history=histories(), factor=st.sampled_from([0.0, 0.25, 0.5, 2.0]))
def test_with_a_share_of_the_points_points_scale_and_queries_stay(
    history: History, factor: float
) -> None:
    whole = live(history.cells, history.rounds, HALVE, close_last=False)
    before = whole.values.copy()
    found = whole.scaled(factor)
    points = [N, CHECKS, N_NEW, CHECKS_NEW]
    queries = [Q, SPAN_Q, PRE_SPAN_Q, Q_NEW, SPAN_Q_NEW]
    assert found.cells == whole.cells
    same(found.values[:, points], before[:, points] * factor)
    same(found.values[:, queries], before[:, queries])
    assert (whole.values == before).all()
    without_queries = [r._replace(queries=[], removed=[]) for r in history.rounds]
    thin = live(history.cells, without_queries).scaled(factor)
    same(thin.values[:, R], live(history.cells, without_queries).values[:, R] * factor)
