"""An application decides on top of rectangles, whatever happens to partitions, and after a restart.

The application is one of circles: a query is a rectangle, and a radius around its middle. It is
defined here, in a module that workers cannot import, and so travels by value.
"""

import math
import os
import random
from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException

from sparkswarm import (
    Application,
    ApplicationError,
    ConfigError,
    MemorySink,
    PairFunction,
    QueryColumns,
    Subscriptions,
    Swarm,
)
from sparkswarm.store.queries import EDGES

from .world import BOUNDS, FIRST_TIME, Restless, config, difference, matches_of

QUERIES = (
    "op STRING, id BIGINT, min_x DOUBLE, min_y DOUBLE, max_x DOUBLE, max_y DOUBLE, "
    "radius DOUBLE, colours ARRAY<STRING>"
)
POINTS = "id BIGINT, x DOUBLE, y DOUBLE, colour STRING, height INT"


class Circles(Application):
    """Points within a circle, of one of its colours."""

    query_columns = {"radius": "DOUBLE", "colours": "ARRAY<STRING>"}  # noqa: RUF012
    point_columns = ("colour",)

    def reject(self, queries):
        radius = queries.column("radius").to_pylist()
        return [None if r is None or r >= 0 else "negative radius" for r in radius]

    def build(self, queries):
        if queries.column("radius").null_count == queries.num_rows:
            return None
        columns = {name: queries.column(name).to_numpy() for name in queries.column_names[1:5]}
        middle_x = (columns["min_x"] + columns["max_x"]) / 2
        middle_y = (columns["min_y"] + columns["max_y"]) / 2
        radius = pc.fill_null(queries.column("radius"), math.inf).to_numpy()
        return middle_x, middle_y, radius, queries.column("colours").to_pylist()

    def match(self, built, points, pairs):
        middle_x, middle_y, radius, colours = built
        p, q = pairs
        x, y = points.column("x").to_numpy()[p], points.column("y").to_numpy()[p]
        near = np.hypot(x - middle_x[q], y - middle_y[q]) <= radius[q]
        colour = points.column("colour").take(pa.array(p)).to_pylist()
        liked = [colours[j] is None or c in colours[j] for c, j in zip(colour, q, strict=True)]
        return near & np.array(liked, dtype=bool)


def circle(point, query):
    """Say the same for one pair."""
    x = (query["min_x"] + query["max_x"]) / 2
    y = (query["min_y"] + query["max_y"]) / 2
    near = query["radius"] is None or (np.hypot(point["x"] - x, point["y"] - y) <= query["radius"])
    return bool(near) and (query["colours"] is None or point["colour"] in query["colours"])


class Scene:
    """Batches of operations and points, and what must come of them."""

    def __init__(self, seed, batches=5, points=300, operations=40):
        draw = random.Random(seed)
        self.batches, self.expected, self.refused = [], Counter(), 0
        live, number, point_id = {}, 0, 0
        for batch in range(batches):
            rows = []
            for _ in range(operations):
                known = sorted(live)
                what = draw.choice(["register", "register", "update", "unregister"])
                if what == "register" or not known:
                    number += 1
                    key, what = number, "register"
                else:
                    key = draw.choice(known)
                query = self._query(draw)
                row = {"op": what, "id": key, **query}
                if what == "unregister":
                    row = {"op": what, "id": key}
                    del live[key]
                elif query["radius"] is not None and query["radius"] < 0:
                    self.refused += 1
                else:
                    live[key] = query
                rows.append(row)
            points_ = []
            for _ in range(points):
                point_id += 1
                x = draw.uniform(BOUNDS[0], BOUNDS[2])
                y = draw.uniform(BOUNDS[1], BOUNDS[3])
                colour = draw.choice(["red", "green", "blue", None])
                points_.append({"id": point_id, "x": x, "y": y, "colour": colour, "height": 1})
            for p in points_:
                for key, q in live.items():
                    inside = q["min_x"] <= p["x"] <= q["max_x"] and (
                        q["min_y"] <= p["y"] <= q["max_y"]
                    )
                    if inside and circle(p, q):
                        self.expected[batch, p["id"], key] += 1
            self.batches.append((rows, points_))

    @staticmethod
    def _query(draw):
        x, y = draw.uniform(BOUNDS[0], BOUNDS[2] - 1), draw.uniform(BOUNDS[1], BOUNDS[3] - 1)
        w, h = draw.uniform(0, BOUNDS[2] - x) / 2, draw.uniform(0, BOUNDS[3] - y) / 2
        return {
            "min_x": x, "min_y": y, "max_x": x + w, "max_y": y + h,
            "radius": draw.choice([None, 0.5, 1.0, 2.0, -1.0]),
            "colours": draw.choice([None, ["red"], ["green", "blue"], []]),
        }  # fmt: skip

    def write(self, folder):
        for name in ("points", "queries"):
            (folder / name).mkdir(parents=True)
        arrow_queries = pa.schema(
            [("op", pa.string()), ("id", pa.int64())]
            + [(e, pa.float64()) for e in ("min_x", "min_y", "max_x", "max_y", "radius")]
            + [("colours", pa.list_(pa.string()))]
        )
        arrow_points = pa.schema(
            [
                ("id", pa.int64()),
                ("x", pa.float64()),
                ("y", pa.float64()),
                ("colour", pa.string()),
                ("height", pa.int32()),
            ]
        )
        for i, (rows, points) in enumerate(self.batches):
            for name, some, schema in (
                ("queries", rows, arrow_queries), ("points", points, arrow_points)
            ):  # fmt: skip
                path = folder / name / f"{i:05}.parquet"
                pq.write_table(pa.Table.from_pylist(some, schema=schema), path)
                # Spark's file source goes by it.
                os.utime(path, (FIRST_TIME + i, FIRST_TIME + i))
        return folder

    def streams(self, spark, folder):
        return tuple(
            spark.readStream.schema(schema)
            .option("maxFilesPerTrigger", 1)
            .parquet(str(folder / name))
            for name, schema in (("points", POINTS), ("queries", QUERIES))
        )


def run(spark, tmp_path, scene, application, sink, **settings):
    folder = tmp_path / "scene"
    if not folder.exists():
        scene.write(folder)
    points, queries = scene.streams(spark, folder)
    handle = Swarm(spark, config(executors=3, **settings), application).start(
        points, queries, sink=sink, checkpoint=str(tmp_path / "checkpoint"),
        trigger={"availableNow": True},
    )  # fmt: skip
    if isinstance(sink, Restless):
        sink.watch(handle)
    handle.await_termination()
    return handle


class Subscribers(Scene):
    """The same scene, its conditions in the language of subscriptions."""

    def write(self, folder):
        super().write(folder)
        # In their order, which is that of Spark's file source.
        for path in sorted((folder / "queries").iterdir()):
            rows = pq.read_table(path)
            where = [
                None if colours is None else f"colour in ({', '.join(map(repr, colours))})"
                if colours else "height < 0"
                for colours in rows.column("colours").to_pylist()
            ]  # fmt: skip
            bad = [r is not None and r < 0 for r in rows.column("radius").to_pylist()]
            where = ["colour in (" if b else w for b, w in zip(bad, where, strict=True)]
            rows = rows.drop_columns(["radius", "colours"])
            when = path.stat().st_mtime
            pq.write_table(rows.append_column("where", pa.array(where, pa.string())), path)
            os.utime(path, (when, when))
        return folder

    @staticmethod
    def _query(draw):
        query = Scene._query(draw)
        return {**query, "radius": -1.0 if query["radius"] == -1.0 else None}


def test_subscriptions_are_matched_while_partitions_change(spark, tmp_path, monkeypatch):
    scene, memory = Subscribers(6), MemorySink()
    monkeypatch.setitem(globals(), "QUERIES", QUERIES.split("radius")[0] + "where STRING")
    application = Subscriptions({"colour": "text", "height": "number"})
    handle = run(spark, tmp_path, scene, application, Restless(memory, 3))
    assert not difference(matches_of(memory.table()), scene.expected)
    reasons = dict(handle.status().quarantined)
    assert sum(reasons.values()) == scene.refused
    assert all(kind == "query" and "where: expected" in reason for kind, reason in reasons)


@pytest.mark.parametrize("policy", ["swarm", "replicated"])
def test_an_application_decides_while_partitions_move_split_merge_and_are_shared(
    spark, tmp_path, policy
):
    scene, memory = Scene(1), MemorySink()
    handle = run(spark, tmp_path, scene, Circles(), Restless(memory, 2), policy=policy)
    assert scene.expected
    assert not difference(matches_of(memory.table()), scene.expected)
    assert handle.status().quarantined == {("query", "negative radius"): scene.refused}


def test_a_plain_function_of_a_point_and_a_query_will_do(spark, tmp_path):
    scene, memory = Scene(2, batches=2, points=100), MemorySink()
    scene.refused = 0
    application = PairFunction(circle, Circles.query_columns, ["colour"])
    run(spark, tmp_path, scene, application, memory)
    wanted = Scene(2, batches=2, points=100).expected
    # Without refuse, a negative radius is one in which no point lies.
    assert not difference(matches_of(memory.table()), wanted)


def test_what_an_application_stores_survives_a_restart_and_must_stay_the_same(spark, tmp_path):
    scene, memory = Scene(3, batches=4), MemorySink()
    folder = scene.write(tmp_path / "scene")
    for name in ("points", "queries"):
        for late in sorted((folder / name).iterdir())[2:]:
            late.rename(tmp_path / f"{name}-{late.name}")
    run(spark, tmp_path, scene, Circles(), Restless(memory, 4))
    for late in tmp_path.glob("*.parquet"):
        name, file = late.name.split("-")
        late.rename(folder / name / file)
    with pytest.raises(ConfigError, match="query_columns"):
        run(spark, tmp_path, scene, None, memory)
    run(spark, tmp_path, scene, Circles(), memory)
    assert not difference(matches_of(memory.table()), scene.expected)


def test_an_application_that_fails_is_named(spark, tmp_path):
    class Broken(Circles):
        def match(self, built, points, pairs):
            raise LookupError("no such street")

    with pytest.raises(StreamingQueryException, match="match of Broken failed: LookupError"):
        run(spark, tmp_path, Scene(5, batches=1), Broken(), MemorySink())


def test_an_application_that_answers_nonsense_is_named(spark, tmp_path):
    class Short(Circles):
        def match(self, built, points, pairs):
            return np.ones(1)

    with pytest.raises(StreamingQueryException, match="match of Short must return"):
        run(spark, tmp_path, Scene(5, batches=1), Short(), MemorySink())


@pytest.mark.parametrize(
    ("queries", "points", "words"),
    [
        ({"expires": "LONG"}, (), "every query has anyway"),
        ({"size": "HUGE"}, (), "cannot be sent"),
        ({}, ("x",), "every point has anyway"),
        ({"tags": "MAP<STRING, INT>"}, (), "tags is map.*maps, and dates and bytes within other"),
        ({"days": "ARRAY<DATE>"}, (), "days is list.*must be strings"),
    ],
)
def test_columns_that_cannot_be_are_refused(spark, tmp_path, queries, points, words):
    application = PairFunction(circle, queries, points)
    with pytest.raises(ConfigError, match=words):
        run(spark, tmp_path, Scene(5, batches=1), application, MemorySink())


VALUES = {
    "TIMESTAMP": "timestamp'2020-01-01 01:02:03.123456 UTC'",
    "TIMESTAMP_NTZ": "timestamp_ntz'9999-12-31 23:59:59.999999'",
    "DATE": "date'0001-01-01'",
    "BINARY": "X'00ff10'",
    "DOUBLE": "4.9e-324D",
    "FLOAT": "cast(1.1 AS float)",
    "DECIMAL(38,18)": "cast('99999999999999999999.123456789012345678' AS decimal(38,18))",
    "BIGINT": "9223372036854775807",
    "BOOLEAN": "true",
    "STRING": r"'a\"\\b\nc\u0000é😀,'",
    "ARRAY<DOUBLE>": "array(1.5D, null)",
    "ARRAY<TIMESTAMP>": "array(timestamp'1900-01-01 00:00:00.000001 UTC')",
    "STRUCT<`a.b`: INT>": "named_struct('a.b', 1)",
}
"""Types of columns of queries, and a value of each."""


@pytest.mark.parametrize("results", ["points", "pairs"])
def test_columns_of_queries_come_exactly_as_they_were(spark, tmp_path, results):
    """To the application, and back with the results."""
    edges = [f"{float(edge)}D AS {name}" for edge, name in zip((0, 0, 8, 8), EDGES, strict=True)]
    values = [f"{value} AS c{i}" for i, value in enumerate(VALUES.values())]
    queries = spark.sql(f"SELECT 1L AS id, {', '.join(edges + values)}")
    (tmp_path / "points").mkdir()
    pq.write_table(pa.table({"id": [1], "x": [1.0], "y": [1.0]}), tmp_path / "points" / "0.parquet")
    wanted = queries.select([f"c{i}" for i in range(len(VALUES))]).toArrow().to_pylist()[0]

    def same(point, query):
        return {name: query[name] for name in wanted} == wanted

    kinds = {f"c{i}": kind for i, kind in enumerate(VALUES)}
    sink = MemorySink()
    Swarm(
        spark, application=PairFunction(same, kinds), bounds=(0, 0, 8, 8), grid=(4, 4), executors=1
    ).start(
        spark.readStream.schema("id BIGINT, x DOUBLE, y DOUBLE").parquet(f"{tmp_path}/points"),
        preload=queries,
        sink=sink,
        checkpoint=str(tmp_path / "checkpoint"),
        query_columns=QueryColumns(include=tuple(wanted)),
        results=results,
        trigger={"availableNow": True},
    ).await_termination()
    (row,) = sink.table().to_pylist()
    back = {name: row[name] if results == "pairs" else row[name][0] for name in wanted}
    assert back == wanted


def test_errors_of_applications_are_ours():
    assert issubclass(ApplicationError, RuntimeError)
