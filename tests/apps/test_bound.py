"""What tasks make of an application: its columns of queries and points, its state, its errors."""

from __future__ import annotations

import json
from datetime import date

import numpy as np
import pyarrow as pa
import pytest
from pyspark import cloudpickle

from sparkswarm.apps.aggregates.application import Aggregates
from sparkswarm.apps.application import Application, PairFunction, Pairs, Stateful, StateUpdate
from sparkswarm.apps.bound import COLLECTED, UNREADABLE, BoundApplication
from sparkswarm.errors import ApplicationError
from sparkswarm.store.queries import NEVER, Queries

from ..support.strategies import grid_of

GRID = grid_of(4, 4)
POINTS = pa.schema(
    {
        **{"id": pa.int64(), "x": pa.float64(), "y": pa.float64(), "time": pa.int64()},
        "colour": pa.string(),
    }
)


def bound(application: Application, **columns: pa.DataType) -> BoundApplication:
    """Return an application with these columns of queries; ``of`` needs a JVM for Spark's DDL."""
    names = {f"__app{i}": name for i, name in enumerate(application.point_columns)}
    pickled = cloudpickle.dumps(application.bind(POINTS))
    return BoundApplication(pickled, pa.schema(columns), names, POINTS)


def queries(*attributes: str | None) -> Queries:
    boxes = np.array([[i, 1.0, i + 0.5, 2.0] for i in range(len(attributes))]).reshape(-1, 4)
    encoded = pa.array([None if a is None else a.encode() for a in attributes], pa.large_binary())
    ids = np.arange(len(attributes)) + 10
    return Queries(ids, boxes, np.full(len(ids), NEVER), encoded)


def aggregate(**columns: str) -> str:
    return json.dumps(columns)


AGGREGATES = bound(Aggregates(), aggregate=pa.string(), window=pa.string(), slide=pa.string())
COUNT = aggregate(aggregate="count", window="5 s")


class Broken(Stateful):
    """Returns what it should not."""

    summary_schema = pa.schema([("query_id", pa.int64())])

    def build(self, queries):
        raise KeyError("no such thing")

    def match(self, built, points, pairs):
        return np.ones(len(pairs.points))

    def collects(self, built):
        return np.ones(1, bool)

    def collect(self, built, points, pairs):
        return pa.table({"id": [1], "home": ["elsewhere"]})

    def advance(self, state, new, watermarks):
        return StateUpdate(summaries=self.summary_schema.empty_table(), state=pa.table({"n": [1]}))


def test_columns_of_queries_are_decoded_and_null_where_they_lack():
    application = bound(
        PairFunction(lambda p, q: True), radius=pa.float64(), tags=pa.list_(pa.int64())
    )
    some = queries('{"radius": 1.5, "tags": [1, 2]}', None, "", '{"tags": [], "unknown": 1}')
    table = application.queries(some)
    assert table.column_names == [
        "id",
        "min_x",
        "min_y",
        "max_x",
        "max_y",
        "expires",
        "radius",
        "tags",
    ]
    assert table.column("radius").to_pylist() == [1.5, None, None, None]
    assert table.column("tags").to_pylist() == [[1, 2], None, None, []]
    without = application.queries(some.rectangles())
    assert without.column("radius").null_count == 4


def test_dates_and_bytes_of_queries_are_text_on_their_way():
    application = bound(PairFunction(lambda p, q: True), since=pa.date32(), mark=pa.binary())
    some = queries('{"since": "2026-11-19", "mark": "AP8Q"}', '{"since": null}', "{}")
    table = application.queries(some)
    assert table.column("since").to_pylist() == [date(2026, 11, 19), None, None]
    assert table.column("mark").to_pylist() == [b"\x00\xff\x10", None, None]
    assert table.schema.field("since").type == pa.date32()
    wrong = queries('{"since": "2026-11-19"}', '{"since": "soon"}', '{"mark": "no base 64"}')
    assert application.rejections(wrong).tolist() == [None, UNREADABLE, UNREADABLE]


def test_points_have_the_names_that_the_application_uses():
    application = bound(PairFunction(lambda p, q: True, point_columns=["colour"]))
    rows = pa.table({"__x": [1.0], "__y": [2.0], "__id": [3], "__app0": ["red"], "__other": [0]})
    assert application.points(rows).to_pylist() == [{"x": 1.0, "y": 2.0, "id": 3, "colour": "red"}]


def test_a_column_that_a_block_lacks_is_null():
    application = bound(PairFunction(lambda p, q: True, point_columns=["colour"]))
    plain = {"id": [3], "x": [1.0], "y": [2.0], "time": [4]}
    stored = application.block_points(pa.table({**plain, ".colour": ["red"], "tile": [0]}))
    assert stored.to_pylist() == [{"id": 3, "x": 1.0, "y": 2.0, "time": 4, "colour": "red"}]
    lacking = application.block_points(pa.table(plain))
    assert lacking.schema == pa.schema(POINTS)
    assert lacking.column("colour").to_pylist() == [None]


def test_a_query_that_cannot_be_decoded_is_rejected_alone():
    some = queries(COUNT, "no JSON", aggregate(aggregate="median", window="5 s"))
    fine, unreadable, unknown = AGGREGATES.rejections(some)
    assert (fine, unreadable) == (None, UNREADABLE)
    assert "'median' is not an aggregate" in unknown
    assert AGGREGATES.rejections(queries()).tolist() == []


def test_a_snapshot_query_that_collects_is_rejected():
    rejected = AGGREGATES.snapshot_rejections(queries(COUNT, None), GRID)
    assert rejected.tolist() == [COLLECTED, None]
    # All of them ask for points: nothing is built.
    assert AGGREGATES.snapshot_rejections(queries(None), GRID).tolist() == [None]
    stateless = bound(PairFunction(lambda p, q: True))
    assert stateless.snapshot_rejections(queries(None), GRID).tolist() == [None]


def test_only_the_queries_of_a_stateful_application_have_a_home():
    built = AGGREGATES.build(queries(COUNT, COUNT), GRID)
    assert built.specs.home.tolist() == [GRID.columns, GRID.columns + 1]
    rows = bound(PairFunction(lambda p, q: True)).build(queries(None), GRID)
    assert "home" not in rows[0]


def test_errors_name_the_method_and_the_class():
    broken = bound(Broken())
    pairs = Pairs(np.array([0]), np.array([0]))
    with pytest.raises(ApplicationError, match="build of Broken failed: KeyError: 'no such thing'"):
        broken.build(queries(None), GRID)
    with pytest.raises(ApplicationError, match=r"match of Broken must return 1 booleans.*float64"):
        broken.match(None, POINTS.empty_table(), pairs)
    with pytest.raises(ApplicationError, match=r"collect of Broken.* must have the columns id and"):
        broken.collect(None, POINTS.empty_table(), pairs)
    with pytest.raises(ApplicationError, match=r"advance of Broken.* it has n"):
        broken.advance([], [], None)


def test_a_stateless_application_has_no_state_to_collect():
    with pytest.raises(ApplicationError, match="PairFunction keeps no state"):
        bound(PairFunction(lambda p, q: True)).collect(None, POINTS.empty_table(), None)
