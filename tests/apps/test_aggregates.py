"""Aggregates: whatever is divided, moved and put together, windows give what a plain sum gives."""

from __future__ import annotations

import itertools
import math
import random
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sparkswarm.apps.aggregate_queries import (
    AGGREGATES,
    MOST_MEASURES,
    QUERY_COLUMNS,
    Asked,
    Measure,
    measures_of,
    refusals,
)
from sparkswarm.apps.aggregate_state import State
from sparkswarm.apps.aggregates import (
    NO_WATERMARK,
    advance,
    close,
    next_end,
    on_time,
    partials,
    result_schema,
)
from sparkswarm.apps.application import Pairs
from sparkswarm.errors import InputError
from sparkswarm.store.arrays import pack, unpack

from ..protocol.strategies import grid_of, part_of_the_examples
from .tilings import halves

MEASURES = (Measure("speed"), Measure("load", whole=True))
GRID = grid_of(4, 4)


class Query(NamedTuple):
    """A query as it is registered; ``slide`` None where its windows tumble."""

    aggregate: str
    window: int
    slide: int | None
    cell: tuple[int, int] = (0, 0)

    @property
    def step(self) -> int:
        return self.slide or self.window


class Point(NamedTuple):
    """A point and the ids of the queries that it matches."""

    time: int
    speed: float | None
    load: int | None
    matches: frozenset[int]


def asked_by(queries: dict[int, Query]) -> Asked:
    rows = list(queries.values())
    x, y = ([float(q.cell[axis]) for q in rows] for axis in (0, 1))
    texts = {
        "aggregate": [q.aggregate for q in rows],
        "window": [f"{q.window} us" for q in rows],
        "slide": [None if q.slide is None else f"{q.slide} us" for q in rows],
    }
    table = pa.table(
        {
            "id": np.array(list(queries), np.int64),
            **{"min_x": x, "min_y": y, "max_x": [v + 0.5 for v in x], "max_y": [v + 9 for v in y]},
            **{name: pa.array(text, pa.string()) for name, text in texts.items()},
        }
    )
    table = table.cast(
        pa.schema([f if f.name in (*QUERY_COLUMNS, "id") else (f.name, "f8") for f in table.schema])
    )
    assert refusals(table, MEASURES) == [None] * len(rows)
    return Asked.read(table, MEASURES, GRID)


def partials_of(queries: dict[int, Query], points: list[Point]) -> State:
    table = pa.table(
        {
            "time": pa.array([p.time for p in points], pa.int64()),
            "speed": pa.array([p.speed for p in points], pa.float64()),
            "load": pa.array([p.load for p in points], pa.int64()),
        }
    )
    pairs = [
        (i, j) for i, p in enumerate(points) for j, key in enumerate(queries) if key in p.matches
    ]
    columns = np.array(pairs, np.int64).reshape(-1, 2).T
    return partials(asked_by(queries), Pairs(*columns.copy()), table, MEASURES)


def reread(state: State) -> State:
    arrays, _ = unpack(pack(state.to_arrays()))
    return State.from_arrays(arrays, MEASURES)


def assert_same(a: State, b: State) -> None:
    arrays, others = a.to_arrays(), b.to_arrays()
    assert arrays.keys() == others.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, others[name], err_msg=name)
        np.testing.assert_array_equal(np.signbit(array), np.signbit(others[name]), err_msg=name)


# -- the oracle --------------------------------------------------------------------------------


def aggregated(query: Query, points: list[Point]) -> dict[str, Any]:
    """Return what a query says of the points of one of its windows."""
    row: dict[str, Any] = dict.fromkeys(result_schema(MEASURES).names)
    wanted = {term.strip() for term in query.aggregate.split(",")}
    if "count" in wanted:
        row["count"] = len(points)
    for name in ("speed", "load"):
        # A zero has no sign: that of -0.0 + 0 is gone.
        values = [v + 0 for p in points if (v := getattr(p, name)) is not None]
        found = {f"count({name})": len(values)}
        if values:
            finite = all(map(math.isfinite, values))
            total = sum(map(Fraction, values)) if finite else sum(values)
            whole = int(total) if name == "load" and -(2**63) <= total < 2**63 else None
            # NaN counts as the largest.
            ranked = sorted(values, key=lambda v: (math.isnan(v), v))
            found[f"sum({name})"] = whole if name == "load" else rounded(total)
            found[f"mean({name})"] = rounded(total / len(values))
            found[f"min({name})"], found[f"max({name})"] = ranked[0], ranked[-1]
        for term in wanted & found.keys():
            row[term.replace("(", "_").rstrip(")")] = found[term]
    return row


def rounded(exact: Fraction | float) -> float:
    try:
        return exact.numerator / exact.denominator if isinstance(exact, Fraction) else exact
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


def comparable(rows: list[dict[str, Any]]) -> list[list[str]]:
    """Return rows in an order, each value as text: NaN equals NaN, 0.0 neither 0 nor -0.0."""
    return sorted([repr(value) for value in row.values()] for row in rows)


def listed(results: pa.Table) -> list[dict[str, Any]]:
    assert results.schema == result_schema(MEASURES)
    for name in ("window_start", "window_end"):
        at = results.schema.get_field_index(name)
        results = results.set_column(at, name, results.column(name).cast(pa.int64()))
    rows = results.to_pylist()
    keys = [(row["query_id"], row["window_start"]) for row in rows]
    assert keys == sorted(set(keys)), "a window comes twice or out of order"
    return rows


# -- random streams ----------------------------------------------------------------------------

IDS = st.integers(-2, 3)
TERMS = ["count", *(f"{name}({of})" for name in AGGREGATES for of in ("speed", "load"))]
QUERIES = st.builds(
    lambda terms, slide, panes, explicit, cell: Query(
        ", ".join(terms), slide * panes, slide if explicit or panes > 1 else None, cell
    ),
    st.lists(st.sampled_from(TERMS), min_size=1, max_size=4),
    st.integers(1, 7),
    st.integers(1, 5),
    st.booleans(),
    st.tuples(st.integers(0, 3), st.integers(0, 3)),
)
SOME_QUERIES = st.dictionaries(IDS, QUERIES, min_size=1)
SPEEDS = st.one_of(
    st.none(),
    st.sampled_from([0.0, -0.0, 0.1, 0.2, 0.3, -1e16, 1e16, 1e308, math.nan, math.inf, -math.inf]),
    st.floats(-100, 100),
)
LOADS = st.one_of(st.none(), st.integers(-5, 5), st.sampled_from([2**63 - 1, -(2**63)]))
POINTS = st.builds(
    Point, st.integers(-20, 40), SPEEDS, LOADS, st.frozensets(IDS, min_size=1, max_size=4)
)


class Batch(NamedTuple):
    """Queries that go, queries that come or change, points, and how far the watermark goes."""

    removed: frozenset[int]
    changed: dict[int, Query]
    points: list[Point]
    passes: int


BATCHES = st.builds(
    Batch,
    st.one_of(st.just(frozenset()), st.frozensets(IDS, max_size=2)),
    st.one_of(st.just({}), st.dictionaries(IDS, QUERIES, max_size=2)),
    st.lists(POINTS, max_size=12),
    st.integers(0, 15),
)


THE_END = Batch(frozenset(), {}, [], 10_000)
"""The watermark that a batch leads to is that of the next."""


def divided(items: list[Any], parts: int, rng: random.Random) -> list[list[Any]]:
    lots: list[list[Any]] = [[] for _ in range(parts)]
    for item in rng.sample(items, len(items)):
        rng.choice(lots).append(item)
    return lots


@part_of_the_examples(0.5)
@given(SOME_QUERIES, st.lists(BATCHES, min_size=1, max_size=6), st.integers())
def test_windows_give_what_a_plain_look_at_their_points_gives(queries, batches, seed):
    rng = random.Random(seed)
    tiling = {GRID.cells: State.empty(MEASURES)}
    history: list[tuple[int, dict[int, Query], Point]] = []
    before, watermark, began = NO_WATERMARK, NO_WATERMARK, dict.fromkeys(queries, 0)
    for number, batch in enumerate([*batches, THE_END, THE_END]):
        # The plan changes: states are divided and put together by cells alone.
        whole = State.joined([*tiling.values()])
        tiling = {cells: reread(whole.of_cells(cells)) for cells in halves(GRID.cells, rng)}

        gone = batch.removed | batch.changed.keys()
        queries = {k: q for k, q in queries.items() if k not in batch.removed} | batch.changed
        began |= dict.fromkeys(gone, number)
        tiling = {c: s.without(np.array(sorted(gone), np.int64)) for c, s in tiling.items()}

        lots = divided(batch.points, 3, rng)
        new = [partials_of(queries, lot) for lot in lots]
        results, late = [], 0
        for cells, state in list(tiling.items()):
            here = [part.of_cells(cells) for part in rng.sample(new, len(new))]
            results_here, tiling[cells], late_here = advance(state, here, before, watermark)
            results += listed(results_here)
            late += late_here

        expected, expected_late = [], 0
        for key, query in queries.items():

            def ends(point, query=query):
                first = point.time // query.step * query.step + query.step
                return range(first, first + query.window, query.step)

            mine = [(w, p) for w, b, p in history if key in p.matches and b >= began[key]]
            due = {e for _, p in mine for e in ends(p) if before < e <= watermark}
            for end in due:
                inside = [p for w, p in mine if w < end and end in ends(p)]
                if inside:
                    row = aggregated(query, inside)
                    row |= {"query_id": key, "window_start": end - query.window, "window_end": end}
                    expected.append(row)
            matched = [p for p in batch.points if key in p.matches]
            expected_late += sum(max(ends(p)) <= watermark for p in matched)
        assert comparable(results) == comparable(expected)
        assert late == expected_late

        history += [(watermark, number, p) for p in batch.points]
        before = watermark
        watermark = max(watermark, -20) + batch.passes
    assert not any(len(state) for state in tiling.values()), "the end of time has come"


@given(SOME_QUERIES, st.lists(POINTS, max_size=15), st.integers())
def test_a_state_shows_neither_order_nor_division(queries, points, seed):
    rng = random.Random(seed)
    whole = partials_of(queries, points)
    assert_same(partials_of(queries, rng.sample(points, len(points))), whole)
    one, two, three = (partials_of(queries, lot) for lot in divided(points, 3, rng))
    assert_same(State.joined([State.joined([one, two]), three]), whole)
    assert_same(State.joined([three, State.joined([two, one])]), whole)
    assert_same(State.joined([one, three, two]), whole)
    assert_same(reread(whole), whole)


@given(SOME_QUERIES, st.lists(POINTS, max_size=15), st.integers(-30, 60))
def test_nothing_closes_before_the_next_end(queries, points, watermark):
    _, state = close(partials_of(queries, points), NO_WATERMARK, watermark)
    end = next_end(state, watermark)
    if end is None:
        assert not len(state)
        return
    assert end > watermark
    assert close(state, watermark, end - 1)[0].num_rows == 0
    assert close(state, watermark, end)[0].num_rows > 0


# -- single facts ------------------------------------------------------------------------------


def seen_at(*times: int) -> list[Point]:
    return [Point(time, None, None, frozenset([0])) for time in times]


def windows(results: pa.Table) -> list[tuple[int, int, int]]:
    return [(row["window_start"], row["window_end"], row["count"]) for row in listed(results)]


TUMBLING = {0: Query("count", 10, None)}
SLIDING = {0: Query("count", 10, 5)}


def test_a_window_has_its_start_and_not_its_end_also_before_1970():
    state = partials_of(TUMBLING, seen_at(-11, -10, -1, 0, 9, 10))
    results, left = close(state, NO_WATERMARK, 10)
    assert windows(results) == [(-20, -10, 1), (-10, 0, 2), (0, 10, 2)]
    assert left.points.tolist() == [1]


@pytest.mark.parametrize(("watermark", "closed"), [(9, []), (10, [(0, 10, 1)])])
def test_a_window_closes_when_the_watermark_reaches_its_end(watermark, closed):
    assert windows(close(partials_of(TUMBLING, seen_at(3)), NO_WATERMARK, watermark)[0]) == closed


def test_a_window_closes_once():
    state = partials_of(SLIDING, seen_at(7))
    first, state = close(state, NO_WATERMARK, 10)
    again, state = close(state, 10, 11)
    second, state = close(state, 11, 15)
    assert [windows(r) for r in (first, again, second)] == [[(0, 10, 1)], [], [(5, 15, 1)]]
    assert len(state) == 0


def test_what_is_late_for_one_window_counts_into_the_next():
    state = partials_of(SLIDING, seen_at(7))
    results, state, late = advance(state, [partials_of(SLIDING, seen_at(8, 8, 4, 3))], 0, 10)
    assert (windows(results), late) == ([(0, 10, 1)], 2)
    assert windows(close(state, 10, 15)[0]) == [(5, 15, 3)]


def test_late_points_are_counted_once_a_query():
    queries = {0: Query("count", 10, None), 1: Query("sum(speed)", 20, None)}
    both = [Point(3, None, None, frozenset([0, 1]))]
    state, late = on_time(partials_of(queries, both), 10)
    assert (late, state.panes.ids.tolist()) == (1, [1])
    assert on_time(partials_of(queries, both), 20)[1] == 2


def test_panes_far_apart_cost_nothing_between_them():
    state = partials_of({0: Query("count", 2, 1)}, seen_at(-(2**61), 2**61))
    assert len(windows(close(state, NO_WATERMARK, 2**61 + 2)[0])) == 4


def test_times_at_the_end_of_64_bits_do_not_go_around():
    state = partials_of(TUMBLING, seen_at(2**63 - 1, -(2**63)))
    results, state = close(state, NO_WATERMARK, 0)
    assert [count for _, _, count in windows(results)] == [1]
    assert state.panes.start[0] > 2**61


def test_aggregates_that_nobody_asked_for_are_null_and_take_no_room():
    state = partials_of({0: Query("count", 10, None)}, [Point(1, 0.1, 7, frozenset([0]))])
    assert state.values[0].counts.tolist() == state.values[1].counts.tolist() == [0]
    (row,) = listed(close(state, NO_WATERMARK, 10)[0])
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
        state = State.joined([partials_of(query, lot) for lot in lots])
        (row,) = listed(close(state, NO_WATERMARK, 10)[0])
        assert repr((row["min_speed"], row["max_speed"])) == repr((least, most))


def test_two_ways_of_asking_under_one_id_do_not_mix():
    """A query that was forgotten and registered anew may meet its former state."""
    old, new = partials_of(TUMBLING, seen_at(1)), partials_of(SLIDING, seen_at(1, 2))
    state = State.joined([old, new])
    assert state.points.tolist() == [2, 1]
    assert len(state.without(np.array([0]))) == 0


# -- what queries ask --------------------------------------------------------------------------


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
        ("", "5 s", None, "is no aggregate"),
        ("count,", "5 s", None, "is no aggregate"),
        ("sum", "5 s", None, "is no aggregate"),
        ("median(speed)", "5 s", None, "is no aggregate"),
        ("sum(speed", "5 s", None, "is no aggregate"),
        ("sum(speed) x", "5 s", None, "is no aggregate"),
        ("sum()", "5 s", None, "not aggregated; there are speed, load"),
        ("sum(colour)", "5 s", None, "not aggregated; there are speed, load"),
    ],
)
def test_queries_that_make_no_sense_are_refused(aggregate, window, slide, reason):
    table = pa.table(
        {"aggregate": ["count", aggregate], "window": ["1 s", window], "slide": ["1 s", slide]},
        pa.schema([(name, pa.string()) for name in QUERY_COLUMNS]),
    )
    fine, refused = refusals(table, MEASURES)
    assert fine is None
    assert reason in refused


def test_queries_ask_in_any_case_and_with_spaces():
    spaced = asked_by({5: Query(" COUNT ,Mean( speed ),max(load)", 10, 5, (3, 2))})
    plain = asked_by({5: Query("max(load), mean(speed), count, count", 10, 5, (3, 2))})
    assert [part.tolist() for part in spaced] == [part.tolist() for part in plain]
    assert (spaced.column.tolist(), spaced.row.tolist()) == ([3], [2])


@pytest.mark.parametrize("bad", [pa.string(), pa.uint64(), pa.decimal128(10, 2), pa.bool_()])
def test_only_numbers_can_be_measured(bad):
    schema = pa.schema([("a", pa.int16()), ("b", pa.float32()), ("c", bad)])
    assert measures_of(schema, ["b", "a"]) == (Measure("b"), Measure("a", whole=True))
    with pytest.raises(InputError, match="column c cannot be aggregated"):
        measures_of(schema, ["a", "c"])


def test_measures_are_at_most_as_many_as_there_are_bits_for():
    names = [f"m{i}" for i in range(MOST_MEASURES + 1)]
    schema = pa.schema([(name, pa.int64()) for name in names])
    most = measures_of(schema, names[:-1])
    table = pa.table({"aggregate": ["max(m11)"], "window": ["1 s"], "slide": ["1 s"]})
    assert refusals(table, most) == [None]
    with pytest.raises(InputError, match="at most 12 columns"):
        measures_of(schema, names)


@example(2.5)
@given(st.floats(width=32, allow_nan=False))
def test_narrow_numbers_are_widened(speed):
    narrow = {"speed": pa.array([speed], pa.float32()), "load": pa.array([3], pa.int8())}
    points = pa.table({"time": [1], **narrow})
    asked = asked_by({0: Query("sum(speed), sum(load)", 10, None)})
    state = partials(asked, Pairs(np.array([0]), np.array([0])), points, MEASURES)
    (row,) = listed(close(state, NO_WATERMARK, 10)[0])
    assert (row["sum_speed"], row["sum_load"]) == (speed, 3)
