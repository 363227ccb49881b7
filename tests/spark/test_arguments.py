"""Arguments of a wrong kind are refused where they are given, in a line that says what to give."""

import re
from datetime import UTC, datetime

import pytest
from pyspark.sql import functions as F  # noqa: N812

from sparkswarm import (
    Aggregates,
    Application,
    Events,
    MemorySink,
    Nearest,
    PairFunction,
    ParquetPoints,
    ParquetSink,
    PointColumns,
    QueryColumns,
    Sliding,
    SparkswarmError,
    Subscriptions,
    Swarm,
    read_fences,
    session,
    split_antimeridian,
)

POINTS = "id BIGINT, x DOUBLE, y DOUBLE, kind STRING, ts TIMESTAMP"
QUERIES = "op STRING, id BIGINT, min_x DOUBLE, min_y DOUBLE, max_x DOUBLE, max_y DOUBLE"
GRID = {"bounds": (0, 0, 8, 8), "grid": (8, 8), "executors": 1}
LINE = 300
"""Characters of the longest error."""


def said_by(refused):
    """Return what an error of ours says, in one line that can be read."""
    with pytest.raises(SparkswarmError) as found:
        refused()
    said = str(found.value)
    assert "\n" not in said
    assert len(said) < LINE
    return said


@pytest.fixture
def start(spark, tmp_path):
    """Start a run of no points with some arguments, on a checkpoint of its own."""
    for name in ("points", "queries"):
        (tmp_path / name).mkdir()
    points = spark.readStream.schema(POINTS).parquet(str(tmp_path / "points"))

    def started(swarm=None, **arguments):
        given = {"points": points, "sink": "noop", "checkpoint": str(tmp_path / "checkpoint")}
        given |= {"trigger": {"availableNow": True}} | arguments
        return (swarm or Swarm(spark, **GRID)).start(**given)

    return started


@pytest.fixture
def queries(spark, start, tmp_path):
    """A stream of operations."""
    return spark.readStream.schema(QUERIES).parquet(str(tmp_path / "queries"))


class Unnamed(Application):
    """An application with columns that are no names."""

    point_columns = "speed"

    def build(self, queries):
        """Build nothing."""

    def match(self, built, points, pairs):
        """Match nothing."""


class Untyped(Unnamed):
    """An application with columns that have no types."""

    point_columns = ()
    query_columns = ("radius",)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"config": {"executors": 3}}, "config must be a SwarmConfig, got a dict"),
        ({"application": Subscriptions}, "application must be .*the class Subscriptions; write"),
        ({"application": lambda point, query: True}, "application must be .*, got a function"),
        ({"application": Unnamed()}, r"point_columns of Unnamed must be .*write \('speed',\)"),
        ({"application": Untyped()}, "query_columns of Untyped must be a dictionary such as"),
        ({"window": "60 s"}, r"window must be Sliding\(...\) or .*, got '60 s'"),
        ({"window": Sliding}, "window must be .*the class Sliding; write Sliding"),
        ({"events": True}, r"events must be Events\(...\), got True"),
    ],
)
def test_a_swarm_of_something_else_is_refused(spark, arguments, words):
    assert re.match(words, said_by(lambda: Swarm(spark, **arguments)))


@pytest.mark.parametrize("session", [None, "local[2]"])
def test_a_session_is_a_session(session):
    assert "needs a classic Spark session" in said_by(lambda: Swarm(session))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"points": "points.parquet"}, "points must be a DataFrame or ParquetPoints, got 'points"),
        ({"queries": [1]}, "queries must be a DataFrame, got a list"),
        ({"preload": {}}, "preload must be a DataFrame, got a dict"),
        ({"point_columns": {"id": "id"}}, r"point_columns must be PointColumns\(...\), got a dict"),
        ({"query_columns": "id"}, r"query_columns must be QueryColumns\(...\), got 'id'"),
        ({"history": "yesterday"}, "history must be two DataFrames"),
        ({"history": (1, 2)}, "each of history must be a DataFrame, got 1"),
        ({"quarantine": "rejected"}, "quarantine must be a function of .*, got 'rejected'"),
        ({"observers": print}, "observers must be a list of functions, got a builtin_function"),
        ({"observers": [1]}, "an observer must be a function of .*, got 1"),
        ({"name": 5}, "name must be a text, got 5"),
        ({"sink": object()}, "sink must be a function of"),
        ({"checkpoint": 5}, "checkpoint must be a folder, as text or a Path, got 5"),
        ({"checkpoint": " "}, "checkpoint is empty; give a folder"),
        (
            {"trigger": {"processingTime": "soon"}},
            "trigger must be .*, got {'processingTime': 'soon'}",
        ),
        (
            {"trigger": {"processingTime": "-1 second"}},
            "trigger must be .*, got {'processingTime': '-1 second'}",
        ),
        ({"trigger": {"processingTime": 5}}, "trigger must be .* got {'processingTime': 5}"),
    ],
)
def test_a_run_of_something_else_is_refused(start, arguments, words):
    assert re.match(words, said_by(lambda: start(**arguments)))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("file", "File exists"),
        ("file/below", "Not a directory"),
        ("a" * 300, "File name too long"),
        ("a\0b", "embedded null byte"),
    ],
)
def test_a_checkpoint_that_can_be_no_folder_is_refused(start, tmp_path, name, words):
    (tmp_path / "file").write_text("in the way")
    said = said_by(lambda: start(checkpoint=f"{tmp_path}/{name}"[-600:]))
    assert said.startswith("checkpoint '")
    assert f"cannot be a folder: {words}" in said


def test_a_checkpoint_and_a_sink_may_be_paths(start, tmp_path):
    start(checkpoint=tmp_path / "run", sink=ParquetSink(tmp_path / "out")).await_termination()
    assert (tmp_path / "run" / "swarm").is_dir()


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (lambda spark, path: session(master=5), "master must be a text, such as 'local"),
        (lambda spark, path: session(config=["a"]), "config must be a dictionary of Spark's"),
        (lambda spark, path: read_fences(spark, 5), "path must be the path of a file, got 5"),
        (lambda spark, path: read_fences(spark, path / "no.json"), "/.*/no.json does not exist; c"),
        (lambda spark, path: split_antimeridian("x"), "queries must be a DataFrame, got 'x'"),
        (lambda spark, path: ParquetPoints(5), "path of ParquetPoints must be a folder, got 5"),
        (lambda spark, path: ParquetPoints(path / "no").open(spark), "/.*/no does not exist; corr"),
    ],
)
def test_what_is_read_is_there(spark, tmp_path, asked, words):
    assert re.match(words, said_by(lambda: asked(spark, tmp_path)))


@pytest.mark.parametrize("columns", [PointColumns, QueryColumns])
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"id": 5}, "id must be the name of a column, got 5"),
        ({"id": None}, "id must be the name of a column, got None"),
        ({"id": ""}, "id is empty; give the name of a column"),
        ({"include": None}, "include must be a tuple of names, got None"),
        ({"include": "kind"}, r"include must be a tuple .*: write \('kind',\)"),
        ({"include": ("kind", 5)}, "include must be a tuple of names, but 5 is none"),
        ({"include": [["kind"]]}, "include must be a tuple of names, but a list is none"),
    ],
)
def test_names_of_columns_are_text(columns, arguments, words):
    assert re.match(words, said_by(lambda: columns(**arguments)))


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (lambda: Subscriptions("speed"), "columns must be a dictionary .*, got 'speed'"),
        (lambda: Subscriptions({5: "number"}), "columns must be a dictionary such as"),
        (lambda: Subscriptions({"speed": float}), "columns must be a dictionary such as"),
        (lambda: Subscriptions({}, ["words"]), "keywords must be the name of a column, got a list"),
        (lambda: Subscriptions({}, "w", "9"), "max_condition_length must be a whole number, got"),
        (lambda: Aggregates("speed"), r"columns must be a tuple of names.*\('speed',\)"),
        (lambda: Aggregates((), 5), "watermark_delay must be a duration .*, got 5"),
        (lambda: Aggregates(of=Aggregates), "of must be an Application.*; write Aggregates"),
        (lambda: PairFunction("radius"), "function must be a function of .point, query., got"),
        (lambda: PairFunction(print, ["radius"]), "query_columns must be a dictionary such as"),
        (lambda: Nearest(within="far"), "within must be a number of at least 0, got 'far'"),
        (lambda: Nearest(within=float("nan")), "within must be a number of at least 0, got nan"),
        (lambda: ParquetSink(5), "path of ParquetSink must be a folder, got 5"),
        (lambda: ParquetSink(""), "path of ParquetSink is empty; give a folder"),
    ],
)
def test_what_a_run_is_made_of_is_of_its_kind(made, words):
    assert re.match(words, said_by(made))


@pytest.mark.parametrize(
    ("application", "columns", "words"),
    [
        (Subscriptions({"kind": "number"}), {}, "column kind of the points is declared as number"),
        (Subscriptions({}, "x"), {}, "column x of the points has the keywords, but it is double"),
        (
            Subscriptions({}, "kind"),
            {"all_of": "'taxi'"},
            "column all_of of queries must be array<string>, it is string; cast it first",
        ),
        (
            PairFunction(print, {"radius": "DOUBLE"}),
            {"radius": "array(1.0D)"},
            "column radius of queries must be double, it is array<double>; cast it first",
        ),
    ],
)
def test_columns_of_another_type_than_the_application_has_are_refused_at_the_start(
    spark, start, queries, application, columns, words
):
    swarm = Swarm(spark, application=application, **GRID)
    more = {name: F.expr(text) for name, text in columns.items()}
    said = said_by(lambda: start(swarm, queries=queries.withColumns(more)))
    assert said.startswith(words)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("time'10:00:00'", "column c of {} is time(6), which Spark does not give to Python; cast"),
        ("array(interval 1 month)", "column c of {} is array<interval month>, which Spark does"),
        ("struct(make_interval(1) i)", "column c of {} is struct<i:interval>, which Spark does"),
        ("map(1, 'a')", "column c of {} is map<int,string>, and only strings can be the keys"),
    ],
)
def test_columns_that_cannot_come_back_are_refused(spark, start, queries, tmp_path, kind, words):
    said = said_by(
        lambda: start(
            queries=queries.withColumn("c", F.expr(kind)),
            query_columns=QueryColumns(include=("c",)),
        )
    )
    assert said.startswith(words.format("queries"))
    points = spark.readStream.schema(POINTS).parquet(str(tmp_path / "points"))
    given = {"points": points.withColumn("c", F.expr(kind))}
    given["point_columns"] = PointColumns(include=("c",))
    if kind.startswith("map"):
        start(**given).await_termination()
    else:
        assert said_by(lambda: start(**given)).startswith(words.format("points"))


@pytest.mark.parametrize("other", ["kind", "KIND"])
def test_columns_that_spark_cannot_tell_apart_are_refused_where_they_are_needed(
    spark, start, tmp_path, other
):
    points = spark.readStream.schema(POINTS).parquet(str(tmp_path / "points"))
    points = points.select("*", F.lit(1).alias(other))
    columns = PointColumns(include=("kind",))
    said = said_by(lambda: start(points=points, point_columns=columns))
    assert said.startswith(f"Spark cannot tell the columns kind and {other} apart; rename or drop")
    start(points=points).await_termination()


@pytest.mark.parametrize("name", ["q`id", "a.b", "a, b STRING", "`"])
def test_columns_of_applications_may_have_any_name(spark, start, queries, tmp_path, name):
    application = PairFunction(lambda point, query: point[name] == query[name], {name: "STRING"})
    application.point_columns = (name,)
    points = spark.readStream.schema(POINTS).parquet(str(tmp_path / "points"))
    columns = {"points": points.withColumn(name, F.lit("v"))}
    swarm = Swarm(spark, application=application, **GRID)
    start(swarm, queries=queries.withColumn(name, F.lit("v")), **columns).await_termination()


def test_columns_that_can_be_cast_are_cast(spark, start, queries):
    more = {"where": F.lit(None), "all_of": F.array(F.lit(5)), "any_of": F.lit(None)}
    swarm = Swarm(spark, application=Subscriptions({}, "kind"), **GRID)
    start(swarm, queries=queries.withColumns(more)).await_termination()


def test_questions_have_numbers_and_times(spark, start):
    columns = PointColumns(time="ts")
    swarm = Swarm(spark, window=Sliding("1 day"), events=Events(), **GRID)
    handle = start(swarm, events=MemorySink(), point_columns=columns)
    handle.await_termination()
    box = 0, 0, 8, 8
    for asked, words in (
        (lambda: handle.ask("west", 0, 8, 8), "min_x must be a number, got 'west'"),
        (lambda: handle.ask(*box, since="today"), "since must be a datetime, got 'today'"),
        (lambda: handle.ask(*box, columns=5), "columns must be a dictionary, got 5"),
        (lambda: handle.nearest("a", 0), "x must be a number, got 'a'"),
        (lambda: handle.nearest(0, 0, within="b"), "within must be a distance, or None for any"),
    ):
        assert said_by(asked).startswith(words)
    assert handle.ask(*box, since=datetime.now(UTC)).num_rows == 0
