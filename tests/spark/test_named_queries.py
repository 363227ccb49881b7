"""Ids of any type, and columns of queries that come back, in all that a run gives."""

from collections import Counter
from datetime import UTC, datetime

import pytest

from sparkswarm import (
    Aggregates,
    ConfigError,
    Events,
    InputError,
    MemorySink,
    ParquetSink,
    PointColumns,
    QueryColumns,
    Sliding,
    Swarm,
    SwarmConfig,
)

from .event_world import EVENTS, expected_events, told_events, walking_world
from .world import Restless, config, difference, expected

NAMED = "concat('zone-', id) AS id", "struct(min_x, id AS number) AS more", "* EXCEPT (id)"


def test_named_fences_and_their_columns_while_partitions_change(spark, tmp_path):
    world = walking_world(41, batches=6)
    folders = world.write(tmp_path / "world")
    matches, events = MemorySink(), MemorySink()
    restless = Restless(matches, 5)
    swarm = Swarm(spark, config(executors=3, shared_host=False), events=EVENTS)
    handle = swarm.start(
        folders.read_points(spark).selectExpr("concat('van-', id) AS id", "x", "y", "ts"),
        folders.read_operations(spark).selectExpr(*NAMED),
        sink=restless,
        events=events,
        checkpoint=str(tmp_path / "checkpoint"),
        preload=folders.read_preload(spark).selectExpr(*NAMED),
        point_columns=PointColumns(time="ts"),
        query_columns=QueryColumns(expires="expires", include=("more",)),
        results="pairs",
        trigger={"availableNow": True},
    )
    restless.watch(handle)
    handle.await_termination()

    wanted = Counter(
        {(b, f"van-{p}", f"zone-{q}"): n for (b, p, q), n in expected(world).matches.items()}
    )
    rows = matches.table().to_pylist()
    assert Counter((r["batch_id"], r["id"], r["query_id"]) for r in rows) == wanted
    assert {r["query_id"] == f"zone-{r['more']['number']}" for r in rows} == {True}

    oracle = expected_events(world)
    wanted = Counter(
        {(b, f"van-{o}", f"zone-{f}", *rest): n for (b, o, f, *rest), n in oracle.events.items()}
    )
    assert not difference(told_events(events.table()), wanted)
    _check_versions(world, sorted(events.table().to_pylist(), key=lambda r: r["batch_id"]))

    for name, known in oracle.oracle.objects.items():
        assert set(handle.where(f"van-{name}").fences) == {f"zone-{f}" for f in known.fences}
    fence = next(f for known in oracle.oracle.objects.values() for f in known.fences)
    inside = {n for n, known in oracle.oracle.objects.items() if fence in known.fences}
    assert set(handle.inside(f"zone-{fence}")["object"].to_pylist()) == {f"van-{n}" for n in inside}
    with pytest.raises(InputError, match="queries have ids of type string, got 7"):
        handle.inside(7)


def _check_versions(world, told):
    """Check that an exit has the columns of the fence that was entered, not of a later version."""
    versions = {}
    entered = {}
    for row in told:
        number, more = int(row["fence"].removeprefix("zone-")), row["more"]
        assert more["number"] == number
        if number not in versions:
            operations = [o for batch in world.batches for o in batch.operations]
            mine = [o for o in (*world.preload, *operations) if o.id == number]
            versions[number] = {o.min_x for o in mine}
        assert more["min_x"] in versions[number]
        if row["event"] == "enter":
            entered[row["object"], number, row["time"]] = more
        elif row["event"] != "cross":
            since = row["time"].timestamp() - row["seconds"]
            began = datetime.fromtimestamp(round(since, 6), UTC)
            assert entered[row["object"], number, began] == more


def test_summaries_answers_and_files_have_the_ids_of_the_user(spark, tmp_path):
    points = [(i, 1.0 + i % 3, 1.0, f"2026-01-01 10:00:{i:02}") for i in range(40)]
    queries = [
        ("register", "2026-01-02", 0.0, 0.0, 1.5, 4.0, None),
        ("register", "2026-01-03", 0.0, 0.0, 9.0, 9.0, "count"),
        ("count", "2026-01-04", 0.0, 0.0, 9.0, 9.0, None),
    ]
    ddl = "op STRING, id STRING, min_x DOUBLE, min_y DOUBLE, max_x DOUBLE, max_y DOUBLE"
    for number, some in enumerate((points[:20], points[20:])):
        frame = spark.createDataFrame(some, "id INT, x DOUBLE, y DOUBLE, at STRING")
        frame.coalesce(1).write.parquet(f"{tmp_path}/p{number}")
    spark.createDataFrame(queries, f"{ddl}, aggregate STRING").coalesce(1).write.parquet(
        f"{tmp_path}/q"
    )
    read = spark.readStream.option("maxFilesPerTrigger", 1)
    stream = read.schema("id INT, x DOUBLE, y DOUBLE, at STRING").parquet(f"{tmp_path}/p*")
    asked = read.schema(f"{ddl}, aggregate STRING").parquet(f"{tmp_path}/q")
    asked = asked.selectExpr(
        "CAST(id AS DATE) AS id",
        "* EXCEPT (id)",
        "IF(aggregate = 'count', '5 seconds', NULL) AS window",
    )
    summaries, answers = MemorySink(), MemorySink()
    settings = SwarmConfig(bounds=(0, 0, 9, 9), grid=(9, 9), executors=2)
    swarm = Swarm(spark, settings, Aggregates([]), Sliding("1 hour"))
    handle = swarm.start(
        stream.selectExpr("id", "x", "y", "timestamp(at) AS at"),
        asked,
        sink=ParquetSink(str(tmp_path / "out")),
        summaries=summaries,
        answers=answers,
        checkpoint=str(tmp_path / "checkpoint"),
        point_columns=PointColumns(time="at"),
        trigger={"availableNow": True},
    )
    handle.await_termination()
    assert handle.ask(0, 0, 9, 9, count=True)["count"].to_pylist() == [40]
    days = {str(row["query_id"]) for row in summaries.table().to_pylist()}
    assert days == {"2026-01-03"}
    assert [str(v) for v in answers.table()["query_id"].to_pylist()] == ["2026-01-04"]
    found = spark.read.parquet(str(tmp_path / "out")).selectExpr("explode(query_ids) AS q")
    assert {str(row.q) for row in found.collect()} == {"2026-01-02"}

    with pytest.raises(ConfigError, match="query_ids is None, but the checkpoint"):
        swarm.start(
            stream.selectExpr("id", "x", "y", "timestamp(at) AS at"),
            asked.selectExpr("1 AS id", "* EXCEPT (id)"),
            sink="noop", summaries="noop", answers="noop",
            checkpoint=str(tmp_path / "checkpoint"), point_columns=PointColumns(time="at"),
        )  # fmt: skip


def test_ids_and_columns_that_cannot_be_used_are_refused(spark, tmp_path):
    points = spark.readStream.format("rate").load().selectExpr("value AS id", "1 AS x", "1 AS y")
    box = "0 AS min_x", "0 AS min_y", "1 AS max_x", "1 AS max_y"

    def start(*columns, query_columns=None, **more):
        swarm = Swarm(spark, config(), **more)
        preload = spark.range(1).selectExpr(*columns, *box)
        swarm.start(
            points, sink="noop", checkpoint=str(tmp_path), preload=preload,
            query_columns=query_columns,
        )  # fmt: skip

    with pytest.raises(InputError, match="ids of queries cannot be struct"):
        start("struct(id) AS id")
    with pytest.raises(InputError, match="cannot be string collate"):
        start("'a' COLLATE UTF8_LCASE AS id")
    with pytest.raises(InputError, match="have the column tariff, which is to come back"):
        start("id", query_columns=QueryColumns(include=("tariff",)))
    with pytest.raises(InputError, match="results cannot have query_ids of a query"):
        start("id", "id AS query_ids", query_columns=QueryColumns(include=("query_ids",)))
    with pytest.raises(ConfigError, match="include must be a tuple"):
        QueryColumns(include="tariff")
    queries = spark.readStream.format("rate").load()
    queries = queries.selectExpr("'register' AS op", "'a' AS id", *box)
    with pytest.raises(InputError, match="ids of queries are string, those of preload bigint"):
        Swarm(spark, config(), events=Events()).start(
            points, queries, sink="noop", checkpoint=str(tmp_path),
            preload=spark.range(1).selectExpr("id", *box),
        )  # fmt: skip
