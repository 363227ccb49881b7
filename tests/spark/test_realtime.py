"""Real-time Mode: points are matched one by one while queries and plan change."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812

from sparkswarm import (
    Aggregates,
    ConfigError,
    Events,
    MemorySink,
    PointColumns,
    Sliding,
    Subscriptions,
    Swarm,
)
from sparkswarm.bench.appended_points import AppendedPoints
from sparkswarm.spark.session import temporary_settings

from ..support.processes import kill_group
from . import realtime_world
from .realtime_world import COLUMNS, SETTINGS, World, check_identity, real_time_session, recorder

GUIDE = Path(__file__).parents[2] / "docs/how-to/real-time.md"


@pytest.fixture(scope="module")
def spark():
    made = real_time_session("local[6]")
    yield made
    made.stop()


BY_OWNER = pytest.param(False, id="by_owner")


@pytest.mark.parametrize("shared_host", [pytest.param(True, id="one_stage"), BY_OWNER])
def test_points_are_matched_while_queries_and_plan_change(spark, tmp_path, shared_host):
    world = World(tmp_path)
    with world.start(spark, "1 minute", shared_host=shared_host) as handle:
        before = handle.plan().version

        def plan_changes() -> bool:
            # Nearly all are in one corner, so that there is something to balance.
            world.add(50, 0.0, 20.0)
            world.add(5)
            return handle.plan().version > before

        world.wait(plan_changes)
        world.wait(world.all_are_found)
        # A query counts for points that come after its commit.
        number = world.register((40.0, 40.0, 60.0, 60.0))
        world.wait(lambda: handle.status.operations == len(world.boxes))
        old = {(i, q) for i, q in world.expected() if q != number}
        first = len(world.points)
        world.add(500)
        new = {(i, q) for i, q in world.expected() if i >= first}
        assert any(q == number for _, q in new)
        world.wait(lambda: set(world.found()) >= new)
        assert world.found() == Counter(old | new)
        world.wait(lambda: handle.status.points == len(world.points))
        versions = {v for i, _, v in world.rows() if i >= first}
        assert versions == {max(v for _, _, v in world.rows())}
        assert handle.isActive
        assert handle.exception() is None
    assert not handle.isActive
    assert handle.exception() is None


def test_latency_is_in_the_status_where_points_have_a_time(spark, tmp_path):
    world = World(tmp_path)
    seen = []
    points = world.source.stream(spark)
    with Swarm(spark, **SETTINGS).start(
        points,
        sink="noop",
        checkpoint=str(tmp_path / "checkpoint"),
        trigger={"realTime": "1 minute"},
        point_columns=PointColumns(time="at"),
        observers=[lambda progress, *_: seen.append(progress)],
    ) as handle:
        world.add(100)
        world.wait(lambda: handle.status.points == 100)
        (told,) = (progress for progress in seen if progress.latency)
    assert told.latency["+Inf",] == 100
    assert 0 < told.latency_s(0.5) <= told.latency_s(0.99)
    assert "latency" in str(handle.status)


def test_shapes_and_names_of_queries_and_the_conditions_of_subscriptions_count(spark, tmp_path):
    world = World(tmp_path)
    (tmp_path / "named").mkdir()
    points = world.source.stream(spark).select(
        *COLUMNS, F.when(F.col("x") > 50, "taxi").otherwise("bus").alias("kind")
    )
    triangle = "POLYGON ((0 0, 100 0, 0 100, 0 0))"
    square = "POLYGON ((0 0, 100 0, 100 100, 0 100, 0 0))"
    fences = spark.createDataFrame(
        [("all", square, None), ("half", triangle, None), ("taxis", square, "kind = 'taxi'")],
        "id string, geometry string, where string",
    )
    fences = fences.selectExpr(
        "*", "cast(null as array<string>) all_of", "cast(null as array<string>) any_of"
    )
    swarm = Swarm(spark, application=Subscriptions({"kind": "text"}), **SETTINGS)
    writer = swarm.match(points, preload=fences).writeStream
    writer = writer.foreach(recorder(str(tmp_path / "results"))).trigger(realTime="1 minute")
    with writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start():
        world.add(300)
        wanted = {
            (i, fence)
            for i, (x, y) in world.points.items()
            for fence, inside in (("all", True), ("half", x + y <= 100), ("taxis", x > 50))
            if inside
        }
        world.wait(lambda: set(world.found()) == wanted)
        assert max(world.found().values()) == 1


@pytest.mark.long
def test_after_kill_9_of_a_worker_results_come_again_and_none_is_lost(spark, tmp_path):
    world = World(tmp_path)
    with world.start(spark) as handle:
        # A trigger may end meanwhile: the last points are those that no commit knows yet.
        for _ in range(5):
            world.add(100)
            world.wait(world.all_are_found)
        # The files are named after the processes.
        (worker,) = (path.name for path in (tmp_path / "results").iterdir())
        os.kill(int(worker), signal.SIGKILL)
        world.add(100)
        world.wait(lambda: not handle.isActive)
        assert "Python worker exited unexpectedly" in str(handle.exception())
    with world.start(spark) as handle:
        world.add(100)
        world.wait(world.all_are_found)
        assert handle.exception() is None
    # The queries are the same, so what comes again does so with the same identity.
    check_identity(world.rows())
    assert len({version for _, _, version in world.rows()}) == 1
    assert max(world.found().values()) > 1


@pytest.mark.long
@pytest.mark.parametrize("shared_host", [pytest.param(True, id="one_stage"), BY_OWNER])
def test_after_kill_9_of_the_driver_nothing_is_lost_and_what_comes_twice_can_be_removed(
    spark, tmp_path, shared_host
):
    world = World(tmp_path)
    main = str(Path(realtime_world.__file__))
    command = [sys.executable, main, str(tmp_path), json.dumps({"shared_host": shared_host})]

    def driver() -> subprocess.Popen[bytes]:
        return subprocess.Popen(command, start_new_session=True, stdin=subprocess.DEVNULL)

    known = len(world.boxes)

    def seen() -> set[int]:
        return {i for i, _, _ in world.rows()}

    def new_queries_count() -> bool:
        world.add(10)
        return len({version for _, _, version in world.rows()}) > 1

    running = driver()
    try:
        for _ in range(4):
            world.add(200)
            world.wait(world.all_are_found)
        world.add(200)
        kill_group(running)
        wanted = {i for i in world.points if world.queries_of(i, known)}
        world.register((0.0, 0.0, 100.0, 100.0))
        running = driver()
        world.wait(lambda: seen() >= wanted)
        world.wait(new_queries_count)
        world.wait(lambda: len(world.points) - 1 in seen())
    finally:
        kill_group(running)
    rows = world.rows()
    check_identity(rows)
    last = max(version for _, _, version in rows)
    found = spark.createDataFrame(
        [(i, list(queries), version) for i, queries, version in rows],
        "id long, query_ids array<long>, query_version long",
    )
    once = {row.id: row for row in removed_as_documented(found).collect()}
    assert len(rows) > len(once), "nothing came twice"
    for i in world.points:
        is_new = i in once and once[i].query_version == last
        queries = world.queries_of(i, known + 1 if is_new else known)
        assert (tuple(once[i].query_ids) if i in once else ()) == queries


def removed_as_documented(found):
    """Return the results without what came twice, by the code that the documentation shows."""
    (code,) = re.findall(r"^```text\n(best = .*?)^```", GUIDE.read_text(), re.M | re.S)
    names = {"found": found, "Window": Window, "F": F}
    exec(code, names)
    return names["once"]


REFUSED = [
    ({"window": Sliding("1 minute")}, {}, "does not support a window"),
    ({"events": Events()}, {"events": "noop"}, "does not support events"),
    ({"application": Aggregates()}, {"summaries": "noop"}, "an application with state"),
    ({}, {"answers": "noop"}, "answers="),
    ({}, {"quarantine": MemorySink()}, "quarantine="),
    ({}, {"sink": MemorySink()}, "use Foreach, KafkaTopic, 'console' or 'noop'"),
    ({}, {"sink": lambda rows, batch: None}, "use Foreach, KafkaTopic, 'console' or 'noop'"),
    ({}, {"sink": None}, "use Foreach, KafkaTopic, 'console' or 'noop'"),
]


@pytest.mark.parametrize(("swarm", "arguments", "reason"), REFUSED)
def test_what_real_time_mode_cannot_do_is_refused(spark, tmp_path, swarm, arguments, reason):
    points = AppendedPoints(tmp_path / "points").stream(spark)
    given = {"sink": "noop", "point_columns": PointColumns(time="at"), **arguments}
    with pytest.raises(ConfigError, match=reason):
        Swarm(spark, **SETTINGS, **swarm).start(
            points, checkpoint=str(tmp_path), trigger={"realTime": "5 seconds"}, **given
        )


def test_a_session_without_the_settings_is_refused(spark, tmp_path):
    points = AppendedPoints(tmp_path / "points").stream(spark).select(*COLUMNS)
    strict = {"spark.sql.streaming.realTimeMode.allowlistCheck": "true"}
    with (
        temporary_settings(spark, strict),
        pytest.raises(ConfigError, match=r"allowlistCheck=false; sparkswarm\.session"),
    ):
        Swarm(spark, **SETTINGS).start(
            points, sink="noop", checkpoint=str(tmp_path), trigger={"realTime": "5 seconds"}
        )


def test_tasks_that_take_all_slots_are_refused(spark, tmp_path):
    points = AppendedPoints(tmp_path / "points", partitions=6).stream(spark).select(*COLUMNS)
    with pytest.raises(ConfigError, match=r"needs 6 slots of Spark .* there are 6"):
        Swarm(spark, **SETTINGS).start(
            points, sink="noop", checkpoint=str(tmp_path), trigger={"realTime": "5 seconds"}
        )


def test_kafka_needs_no_transactional_id_in_real_time_mode(spark, tmp_path):
    points = AppendedPoints(tmp_path / "points").stream(spark).select(*COLUMNS)
    writer = Swarm(spark, **SETTINGS).match(points).writeStream.format("kafka")
    writer = writer.option("topic", "t").option("kafka.bootstrap.servers", "127.0.0.1:1")
    writer = writer.option("kafka.transactional.id", "w").trigger(realTime="5 seconds")
    with pytest.raises(ConfigError, match=r"leave out kafka\.transactional\.id"):
        writer.start()
