"""Windows give what plain sums give, however state is divided, moved and merged."""

from __future__ import annotations

import itertools
import math
import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sparkswarm.apps.aggregates.panes import PaneTable
from sparkswarm.apps.aggregates.specs import (
    MAX_MEASURES,
    QUERY_COLUMNS,
    AggregateSpecs,
    Measure,
    measures_of,
    rejections,
)
from sparkswarm.apps.aggregates.windows import (
    advance,
    close_windows,
    collect_panes,
    drop_closed,
    next_due,
)
from sparkswarm.apps.application import Pairs, Watermarks
from sparkswarm.errors import InputError
from sparkswarm.store.blocks import MIN_TIME

from ..support.strategies import part_of_the_examples
from ..support.tilings import halves
from .aggregate_streams import (
    BATCHES,
    GRID,
    MEASURES,
    POINTS,
    SOME_QUERIES,
    Point,
    Query,
    comparable,
    divided,
    listed,
    of_cells,
    pairs_of,
    points_table,
    queries_table,
    steps,
    stored,
    without,
)


def specs_of(queries: dict[int, Query]) -> AggregateSpecs:
    table = queries_table(queries)
    assert rejections(table, MEASURES) == [None] * len(queries)
    return AggregateSpecs.parse(table, MEASURES)


def state_of(queries: dict[int, Query], points: list[Point]) -> PaneTable:
    table = points_table(points)
    return collect_panes(specs_of(queries), pairs_of(queries, points), table, MEASURES)


def read(table: pa.Table) -> PaneTable:
    return PaneTable.from_table(table, MEASURES)


def assert_same(a: PaneTable, b: PaneTable) -> None:
    table, other = a.to_table(), b.to_table()
    assert table.schema.equals(other.schema, check_metadata=True)
    for name in table.column_names:
        array, another = (np.array(t.column(name).to_pylist()) for t in (table, other))
        np.testing.assert_array_equal(array, another, err_msg=name)
        np.testing.assert_array_equal(np.signbit(array), np.signbit(another), err_msg=name)


@part_of_the_examples(0.5)
@given(SOME_QUERIES, st.lists(BATCHES, min_size=1, max_size=6), st.integers())
def test_windows_give_what_a_plain_look_at_their_points_gives(queries, batches, seed):
    rng = random.Random(seed)
    tiling = {GRID.cells: PaneTable.empty(MEASURES)}
    for step in steps(queries, batches):
        # The plan changes: states are divided and merged by cells alone.
        whole = PaneTable.merge([*tiling.values()]).to_table()
        tables = {cells: stored(of_cells(whole, cells)) for cells in halves(GRID.cells, rng)}
        tiling = {cells: read(without(table, step.gone)) for cells, table in tables.items()}

        lots = divided(step.points, 3, rng)
        new = [state_of(step.queries, lot).to_table() for lot in lots]
        results, late = [], 0
        for cells, state in list(tiling.items()):
            here = [read(of_cells(part, cells)) for part in rng.sample(new, len(new))]
            results_here, tiling[cells], late_here = advance(
                state, PaneTable.merge(here), step.watermarks
            )
            results += listed(results_here)
            late += late_here
        assert comparable(results) == comparable(step.results)
        assert late == step.late
    assert not any(len(state) for state in tiling.values()), "the end of time has come"


@given(SOME_QUERIES, st.lists(POINTS, max_size=15), st.integers())
def test_a_state_shows_neither_order_nor_division(queries, points, seed):
    rng = random.Random(seed)
    whole = state_of(queries, points)
    assert_same(state_of(queries, rng.sample(points, len(points))), whole)
    one, two, three = (state_of(queries, lot) for lot in divided(points, 3, rng))
    assert_same(PaneTable.merge([PaneTable.merge([one, two]), three]), whole)
    assert_same(PaneTable.merge([three, PaneTable.merge([two, one])]), whole)
    assert_same(PaneTable.merge([one, three, two]), whole)
    assert_same(read(stored(whole.to_table())), whole)


@given(SOME_QUERIES, st.lists(POINTS, max_size=15), st.integers(-30, 60))
def test_nothing_closes_before_the_next_end(queries, points, watermark):
    _, state = close_windows(state_of(queries, points), Watermarks(MIN_TIME, watermark))
    end = next_due(state, watermark)
    if end is None:
        assert not len(state)
        return
    assert end > watermark
    assert close_windows(state, Watermarks(watermark, end - 1))[0].num_rows == 0
    assert close_windows(state, Watermarks(watermark, end))[0].num_rows > 0


# -- single facts ------------------------------------------------------------------------------


def seen_at(*times: int) -> list[Point]:
    return [Point(time, None, None, frozenset([0])) for time in times]


def windows(results: pa.Table) -> list[tuple[int, int, int]]:
    return [(row["window_start"], row["window_end"], row["count"]) for row in listed(results)]


TUMBLING = {0: Query("count", 10, None)}
SLIDING = {0: Query("count", 10, 5)}


def test_a_window_has_its_start_and_not_its_end_also_before_1970():
    state = state_of(TUMBLING, seen_at(-11, -10, -1, 0, 9, 10))
    results, left = close_windows(state, Watermarks(MIN_TIME, 10))
    assert windows(results) == [(-20, -10, 1), (-10, 0, 2), (0, 10, 2)]
    assert left.points.tolist() == [1]


@pytest.mark.parametrize(("watermark", "closed"), [(9, []), (10, [(0, 10, 1)])])
def test_a_window_closes_when_the_watermark_reaches_its_end(watermark, closed):
    assert (
        windows(close_windows(state_of(TUMBLING, seen_at(3)), Watermarks(MIN_TIME, watermark))[0])
        == closed
    )


def test_a_window_closes_once():
    state = state_of(SLIDING, seen_at(7))
    first, state = close_windows(state, Watermarks(MIN_TIME, 10))
    again, state = close_windows(state, Watermarks(10, 11))
    second, state = close_windows(state, Watermarks(11, 15))
    assert [windows(r) for r in (first, again, second)] == [[(0, 10, 1)], [], [(5, 15, 1)]]
    assert len(state) == 0


def test_what_is_late_for_one_window_counts_into_the_next():
    state = state_of(SLIDING, seen_at(7))
    results, state, late = advance(state, state_of(SLIDING, seen_at(8, 8, 4, 3)), Watermarks(0, 10))
    assert (windows(results), late) == ([(0, 10, 1)], 2)
    assert windows(close_windows(state, Watermarks(10, 15))[0]) == [(5, 15, 3)]


def test_late_points_are_counted_once_a_query():
    queries = {0: Query("count", 10, None), 1: Query("sum(speed)", 20, None)}
    both = [Point(3, None, None, frozenset([0, 1]))]
    state, late = drop_closed(state_of(queries, both), 10)
    assert (late, state.panes.ids.tolist()) == (1, [1])
    assert drop_closed(state_of(queries, both), 20)[1] == 2


def test_panes_far_apart_cost_nothing_between_them():
    state = state_of({0: Query("count", 2, 1)}, seen_at(-(2**61), 2**61))
    assert len(windows(close_windows(state, Watermarks(MIN_TIME, 2**61 + 2))[0])) == 4


def test_times_at_the_end_of_64_bits_do_not_go_around():
    state = state_of(TUMBLING, seen_at(2**63 - 1, -(2**63)))
    results, state = close_windows(state, Watermarks(MIN_TIME, 0))
    assert [count for _, _, count in windows(results)] == [1]
    assert state.panes.start[0] > 2**61


def test_aggregates_that_nobody_asked_for_are_null_and_take_no_room():
    state = state_of({0: Query("count", 10, None)}, [Point(1, 0.1, 7, frozenset([0]))])
    assert state.values[0].counts.tolist() == state.values[1].counts.tolist() == [0]
    (row,) = listed(close_windows(state, Watermarks(MIN_TIME, 10))[0])
    assert {name for name, value in row.items() if value is not None} == {
        *("query_id", "window_start", "window_end", "count")
    }


@pytest.mark.parametrize(
    ("speeds", "least", "most"),
    [
        ([1.0, math.nan, 2.0], 1.0, math.nan),
        ([math.nan, -math.inf], -math.inf, math.nan),
        ([math.nan, math.nan], math.nan, math.nan),
        ([-0.0, 0.0], 0.0, 0.0),
        ([None, 3.0], 3.0, 3.0),
    ],
)
@pytest.mark.parametrize("apart", [False, True], ids=["in one lot", "a lot each"])
def test_nan_is_larger_than_any_number_and_zero_has_no_sign(speeds, least, most, apart):
    query = {0: Query("min(speed), max(speed)", 10, None)}
    points = [Point(1, speed, None, frozenset([0])) for speed in speeds]
    for some in itertools.permutations(points):
        lots = [[point] for point in some] if apart else [list(some)]
        state = PaneTable.merge([state_of(query, lot) for lot in lots])
        (row,) = listed(close_windows(state, Watermarks(MIN_TIME, 10))[0])
        assert repr((row["min_speed"], row["max_speed"])) == repr((least, most))


def test_two_ways_of_asking_under_one_id_do_not_mix():
    """A query that is registered again may meet its former state."""
    old, new = state_of(TUMBLING, seen_at(1)), state_of(SLIDING, seen_at(1, 2))
    state = PaneTable.merge([old, new])
    assert state.points.tolist() == [2, 1]
    assert len(read(without(state.to_table(), frozenset([0])))) == 0


# -- parsing of queries ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("aggregate", "window", "slide", "reason"),
    [
        (None, "5 s", None, "needs an aggregate and a window"),
        ("count", None, None, "needs an aggregate and a window"),
        ("count", "5 potatoes", None, "is no duration"),
        ("count", "5 s", "soon", "is no duration"),
        ("count", "0 s", None, "longer than nothing"),
        ("count", "5 s", "2 s", "does not divide"),
        ("count", "5 s", "10 s", "does not divide"),
        ("", "5 s", None, "is not an aggregate"),
        ("count,", "5 s", None, "is not an aggregate"),
        ("sum", "5 s", None, "is not an aggregate"),
        ("median(speed)", "5 s", None, "is not an aggregate"),
        ("sum(speed", "5 s", None, "is not an aggregate"),
        ("sum(speed) x", "5 s", None, "is not an aggregate"),
        ("sum()", "5 s", None, "cannot be aggregated; those that can are: speed, load"),
        ("sum(colour)", "5 s", None, "cannot be aggregated; those that can are: speed, load"),
    ],
)
def test_queries_that_make_no_sense_are_refused(aggregate, window, slide, reason):
    table = pa.table(
        {"aggregate": ["count", aggregate], "window": ["1 s", window], "slide": ["1 s", slide]},
        pa.schema([(name, pa.string()) for name in QUERY_COLUMNS]),
    )
    fine, refused = rejections(table, MEASURES)
    assert fine is None
    assert reason in refused


def test_queries_ask_in_any_case_and_with_spaces():
    spaced = specs_of({5: Query(" COUNT ,Mean( speed ),max(load)", 10, 5, (3, 2))})
    plain = specs_of({5: Query("max(load), mean(speed), count, count", 10, 5, (3, 2))})
    assert [part.tolist() for part in spaced] == [part.tolist() for part in plain]
    assert spaced.home.tolist() == [2 * GRID.columns + 3]


@pytest.mark.parametrize("bad", [pa.string(), pa.uint64(), pa.decimal128(10, 2), pa.bool_()])
def test_only_numbers_can_be_measured(bad):
    schema = pa.schema([("a", pa.int16()), ("b", pa.float32()), ("c", bad)])
    assert measures_of(schema, ["b", "a"]) == (Measure("b"), Measure("a", whole=True))
    with pytest.raises(InputError, match="column c cannot be aggregated"):
        measures_of(schema, ["a", "c"])


def test_measures_are_at_most_as_many_as_there_are_bits_for():
    names = [f"m{i}" for i in range(MAX_MEASURES + 1)]
    schema = pa.schema([(name, pa.int64()) for name in names])
    most = measures_of(schema, names[:-1])
    table = pa.table({"aggregate": ["max(m11)"], "window": ["1 s"], "slide": ["1 s"]})
    assert rejections(table, most) == [None]
    with pytest.raises(InputError, match="at most 12 columns"):
        measures_of(schema, names)


@example(2.5)
@given(st.floats(width=32, allow_nan=False))
def test_narrow_numbers_are_widened(speed):
    narrow = {"speed": pa.array([speed], pa.float32()), "load": pa.array([3], pa.int8())}
    points = pa.table({"time": [1], **narrow})
    specs = specs_of({0: Query("sum(speed), sum(load)", 10, None)})
    state = collect_panes(specs, Pairs(np.array([0]), np.array([0])), points, MEASURES)
    (row,) = listed(close_windows(state, Watermarks(MIN_TIME, 10))[0])
    assert (row["sum_speed"], row["sum_load"]) == (speed, 3)
