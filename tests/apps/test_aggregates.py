"""The application Aggregates: results don't depend on how its state is divided."""

from __future__ import annotations

import pickle
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkswarm.apps.aggregates.application import Aggregates
from sparkswarm.apps.aggregates.specs import QUERY_COLUMNS
from sparkswarm.apps.application import (
    Application,
    PairFunction,
    Pairs,
    Stateful,
    Watermarks,
)
from sparkswarm.apps.subscriptions.application import Subscriptions
from sparkswarm.errors import ConfigError, InputError
from sparkswarm.store.blocks import MIN_TIME

from ..support.strategies import part_of_the_examples
from ..support.tilings import halves
from .aggregate_streams import (
    BATCHES,
    GRID,
    MEASURES,
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

SCHEMA = points_table([]).schema
APP = Aggregates(["speed", "load"]).bind(SCHEMA)
FAR = 10**9


def collected(app: Aggregates, queries: dict[int, Query], points: list[Point]) -> pa.Table:
    """Build, match and collect, as the engine does."""
    built = app.build(queries_table(queries))
    pairs = pairs_of(queries, points)
    if built is None:
        assert not queries
        return app.advance([], [], Watermarks(MIN_TIME, MIN_TIME)).state
    assert app.match(built, points_table(points), pairs).all()
    assert app.collects(built).all()
    return app.collect(built, points_table(points), pairs)


class DividedState:
    """State as the engine stores it: tables by cells, moved, divided, and read when due."""

    def __init__(self, rng: random.Random, appends: bool) -> None:
        self._rng = rng
        self._appends = appends
        self._tables: list[tuple[pa.Table, int | None]] = []

    def forget(self, gone: frozenset[int]) -> None:
        self._tables = [(without(table, gone), due) for table, due in self._tables]

    def advance(
        self, new: list[pa.Table], watermarks: Watermarks
    ) -> tuple[list[dict[str, Any]], int]:
        """Return the summaries of all cells, and the number of late points."""
        told, late, tables = [], 0, []
        for cells in halves(GRID.cells, self._rng):
            # The new owner of a table reads the rows of its own cells.
            mine = [(of_cells(table, cells), due) for table, due in self._tables]
            fresh = [of_cells(table, cells) for table in self._rng.sample(new, len(new))]
            if self._rng.random() < 0.5:
                fresh = [APP.combine(fresh)]
            is_due = any(due is not None and due <= watermarks.current for _, due in mine)
            joins = is_due or not self._appends or self._rng.random() < 0.2
            result = APP.advance([table for table, _ in mine] if joins else [], fresh, watermarks)
            told += listed(result.summaries)
            late += result.late
            assert result.due is None or result.due > watermarks.current
            assert (result.due is None) == (result.state.num_rows == 0)
            tables += [(stored(result.state), result.due), *([] if joins else mine)]
        self._tables = tables
        return told, late

    @property
    def rows(self) -> int:
        return sum(table.num_rows for table, _ in self._tables)


@pytest.mark.parametrize("appends", [False, True], ids=["one table", "tables beside each other"])
@part_of_the_examples(0.5)
@given(SOME_QUERIES, st.lists(BATCHES, min_size=1, max_size=6), st.integers())
def test_windows_give_what_a_plain_look_gives_however_state_lies(appends, queries, batches, seed):
    rng = random.Random(seed)
    states = DividedState(rng, appends)
    for step in steps(queries, batches):
        states.forget(step.gone)
        lots = divided(step.points, 3, rng)
        told, late = states.advance(
            [collected(APP, step.queries, lot) for lot in lots], step.watermarks
        )
        assert comparable(told) == comparable(step.results)
        assert late == step.late
    assert states.rows == 0, "the end of time has come"


# -- which queries ask for what ----------------------------------------------------------------

COUNTING = ("count", "10 us", None)
ASKS_FOR_POINTS = (None, None, None)


def asking(*rows: tuple[str | None, str | None, str | None], **others: Any) -> pa.Table:
    """Return queries with these specifications and further columns."""
    columns = dict(zip(QUERY_COLUMNS, zip(*rows, strict=True), strict=True))
    ids = pa.array(range(100, 100 + len(rows)), pa.int64())
    texts = {name: pa.array(column, pa.string()) for name, column in columns.items()}
    return pa.table({"id": ids, "home": ids, **texts, **others})


def crossed(points: int, queries: int) -> Pairs:
    """Every point with every query."""
    return Pairs(np.repeat(np.arange(points), queries), np.tile(np.arange(queries), points))


def some_points(**columns: Any) -> pa.Table:
    rows = len(next(iter(columns.values())))
    given = {"time": pa.array([1] * rows, pa.int64())}
    nothing = {"speed": pa.nulls(rows, pa.float64()), "load": pa.nulls(rows, pa.int64())}
    return pa.table({**given, **nothing, **columns})


def kept_of(app: Aggregates, built: Any, points: pa.Table, pairs: Pairs) -> Pairs:
    """Return what the matching pairs of collecting queries add to state."""
    keep = app.match(built, points, pairs) & app.collects(built)[pairs.queries]
    return Pairs(pairs.points[keep], pairs.queries[keep])


def told_of(app: Aggregates, state: pa.Table) -> list[dict[str, Any]]:
    first = app.advance([], [state], Watermarks(MIN_TIME, MIN_TIME))
    return app.advance([first.state], [], Watermarks(MIN_TIME, FAR)).summaries.to_pylist()


def test_where_all_ask_for_points_in_rectangles_there_is_nothing_to_build():
    assert APP.build(asking(ASKS_FOR_POINTS, ASKS_FOR_POINTS)) is None
    assert APP.build(asking(ASKS_FOR_POINTS).slice(1)) is None
    assert APP.build(asking(ASKS_FOR_POINTS, COUNTING)) is not None


def test_some_queries_ask_for_points_and_some_for_aggregates():
    rows = [ASKS_FOR_POINTS, ("sum(load)", "10 us", None), ASKS_FOR_POINTS, COUNTING]
    built = APP.build(asking(*rows))
    points = some_points(load=[5, 7, 9])
    assert APP.collects(built).tolist() == [False, True, False, True]
    assert APP.match(built, points, crossed(3, 4)).all()
    which = Pairs(np.array([0, 1, 2]), np.array([1, 1, 3]))
    told = told_of(APP, APP.collect(built, points, which))
    assert [(row["query_id"], row["count"], row["sum_load"]) for row in told] == [
        (101, None, 12),
        (103, 1, None),
    ]


def test_collecting_nothing_is_a_state_without_rows():
    built = APP.build(asking(COUNTING))
    nothing = APP.collect(built, some_points(load=[1]), Pairs(*np.empty((2, 0), np.int64)))
    assert nothing.num_rows == 0
    assert APP.combine([nothing, nothing]).num_rows == 0
    told = APP.advance([nothing], [nothing], Watermarks(0, FAR))
    assert (told.summaries.num_rows, told.state.num_rows, told.late, told.due) == (0, 0, 0, None)
    assert told.summaries.schema == APP.summary_schema


def test_late_points_are_told_of_and_what_is_due_is_named():
    built = APP.build(asking(COUNTING))
    points = some_points(load=[0, 0]).set_column(0, "time", pa.array([3, 25], pa.int64()))
    state = APP.collect(built, points, crossed(2, 1))
    told = APP.advance([], [state], Watermarks(0, 12))
    assert (told.late, told.due, told.state.num_rows) == (1, 30, 1)


# -- of another application --------------------------------------------------------------------

SUBSCRIPTIONS = Subscriptions({"kind": "text", "load": "number"})


def subscribing(*wheres: str | None) -> dict[str, pa.Array]:
    nothing = pa.nulls(len(wheres), pa.list_(pa.string()))
    return {"where": pa.array(wheres, pa.string()), "all_of": nothing, "any_of": nothing}


def test_the_application_within_decides_what_is_counted():
    app = Aggregates(["load"], of=SUBSCRIPTIONS).bind(SCHEMA)
    wheres = ["kind = 'taxi'", None, "load > 5", "kind = 'bus'"]
    queries = asking(
        ("count, sum(load)", "10 us", None), COUNTING, ASKS_FOR_POINTS, COUNTING,
        **subscribing(*wheres),
    )  # fmt: skip
    assert app.reject(queries) == [None] * 4
    built = app.build(queries)
    points = some_points(kind=["taxi", "taxi", "car"], load=[3, 8, 10])
    pairs = crossed(3, 4)
    expected = [
        [True, True, False, False],
        [True, True, True, False],
        [False, True, True, False],
    ]
    assert app.match(built, points, pairs).reshape(3, 4).tolist() == expected
    told = told_of(app, app.collect(built, points, kept_of(app, built, points, pairs)))
    found = [(row["query_id"], row["count"], row["sum_load"]) for row in told]
    assert found == [(100, 2, 11), (101, 3, None)]


def test_queries_for_points_are_built_where_the_application_within_needs_it():
    app = Aggregates(of=SUBSCRIPTIONS).bind(SCHEMA)
    built = app.build(asking(ASKS_FOR_POINTS, **subscribing("load > 5")))
    assert app.collects(built).tolist() == [False]
    assert app.match(built, some_points(load=[5, 6]), crossed(2, 1)).tolist() == [False, True]
    assert app.build(asking(ASKS_FOR_POINTS, **subscribing(None))) is None
    counting = app.build(asking(COUNTING, **subscribing(None)))
    assert app.match(counting, some_points(load=[5, 6]), crossed(2, 1)).all()


def test_both_have_their_columns():
    app = Aggregates(["load", "speed"], of=SUBSCRIPTIONS)
    assert app.query_columns == {**QUERY_COLUMNS, **SUBSCRIPTIONS.query_columns}
    assert app.point_columns == ("load", "speed", "kind")


class Wants(Application):
    """An application that is bound to points with a column."""

    def __init__(self, ready: bool = False) -> None:
        self.ready = ready

    def bind(self, points: pa.Schema) -> Application:
        if "kind" not in points.names:
            raise InputError("points have no kind")
        return Wants(ready=True)

    def build(self, queries: pa.Table) -> bool:
        return self.ready

    def match(self, built: bool, points: pa.Table, pairs: Pairs) -> np.ndarray:
        return np.full(len(pairs.points), built)


def test_the_application_within_is_prepared_too():
    raw = Aggregates(["load"], of=Wants())
    with pytest.raises(InputError, match="points have no kind"):
        raw.bind(SCHEMA)
    app = raw.bind(SCHEMA.append(pa.field("kind", pa.string())))
    assert app.match(app.build(asking(COUNTING)), some_points(load=[1]), crossed(1, 1)).all()
    assert raw.of.ready is False, "what was given is left as it was"


# -- what is rejected --------------------------------------------------------------------------


def test_queries_are_refused_with_a_reason():
    app = Aggregates(["load"], of=SUBSCRIPTIONS).bind(SCHEMA)
    rows = [
        COUNTING,
        ASKS_FOR_POINTS,
        (None, "5 s", None),
        (None, None, "5 s"),
        ("count", None, None),
        ("sum(speed)", "5 s", None),
        ASKS_FOR_POINTS,
        ("sum(load)", "5 s", "2 s"),
        ("nonsense", "5 s", None),
    ]
    wheres = [None] * 6 + ["load >"] * 2 + ["load > 1"]
    reasons = app.reject(asking(*rows, **subscribing(*wheres)))
    null = "a query needs an aggregate and a window, one is null"
    assert reasons[:5] == [None, None, null, null, null]
    assert (
        reasons[5]
        == "'sum(speed)' names a column that cannot be aggregated; those that can are: load"
    )
    # The reason of the inner application comes first.
    assert reasons[6] == reasons[7] == "where: expected a literal at 7"
    assert reasons[8].startswith("'nonsense' is not an aggregate")


def test_nothing_is_refused_of_no_queries():
    assert APP.reject(asking(COUNTING).slice(1)) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"columns": "speed"}, r"must be a tuple of names, got 'speed'"),
        ({"of": Aggregates()}, "keeps state itself"),
        (
            {"of": PairFunction(lambda p, q: True, {"window": "STRING"})},
            r"PairFunction has columns .*\['window'\]",
        ),
        ({"delay": "5 s"}, r"delay was renamed to watermark_delay"),
        ({"watermark_delay": "soon"}, "'soon' is no duration"),
        ({"watermark_delay": "-5 s"}, "is no duration"),
    ],
)
def test_settings_that_make_no_sense_are_refused(arguments, message):
    with pytest.raises((ConfigError, InputError), match=message):
        Aggregates(**arguments)


@pytest.mark.parametrize(
    ("delay", "waits"), [("0 s", 0), ("0 seconds", 0), ("10 seconds", 10_000_000)]
)
def test_the_delay_is_a_duration_or_none_at_all(delay, waits):
    assert Aggregates(watermark_delay=delay).watermark_delay == waits


@pytest.mark.parametrize(
    ("columns", "schema", "message"),
    [
        (["load"], SCHEMA.remove(0), r"PointColumns\(time="),
        (["load", "weight"], SCHEMA, "points have no column weight; they have time, speed, load"),
        (["text"], SCHEMA.append(pa.field("text", pa.string())), "text cannot be aggregated"),
        ([f"m{i}" for i in range(13)], SCHEMA, "at most 12 columns"),
    ],
)
def test_points_that_will_not_do_are_refused(columns, schema, message):
    with pytest.raises(InputError, match=message):
        Aggregates(columns).bind(schema)


def test_before_it_is_prepared_it_cannot_serve():
    app = Aggregates(["load"])
    for use in (lambda: app.summary_schema, lambda: app.build(asking(COUNTING))):
        with pytest.raises(ConfigError, match="not known before bind"):
            use()


# -- as an application -------------------------------------------------------------------------


def test_it_travels():
    app = pickle.loads(pickle.dumps(Aggregates(["load"], "5 s", SUBSCRIPTIONS).bind(SCHEMA)))
    assert isinstance(app, Stateful)
    assert app.watermark_delay == 5_000_000
    assert app.summary_schema.names[-1] == "max_load"
    built = app.build(asking(COUNTING, **subscribing("load > 5")))
    assert app.match(built, some_points(load=[5, 6]), crossed(2, 1)).tolist() == [False, True]


def test_a_column_named_twice_is_aggregated_once():
    app = Aggregates(["load", "load"]).bind(SCHEMA)
    assert len(app.summary_schema.names) == len(set(app.summary_schema.names))


def test_measures_are_whole_where_the_column_is():
    assert Aggregates(["speed", "load"]).bind(SCHEMA).measures == MEASURES
