"""Real-time Mode: points are matched one by one while queries and plan change."""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import SparkSession

from sparkswarm import (
    Aggregates,
    ConfigError,
    Events,
    MemorySink,
    PointColumns,
    Sliding,
    Swarm,
    session,
)
from sparkswarm.bench.memory_points import MemoryPoints
from sparkswarm.spark.session import temporary_settings

POINTS = "id bigint, x double, y double"
QUERIES = "op string, id bigint, min_x double, min_y double, max_x double, max_y double"
SIDE = 100.0
SETTINGS = {"bounds": (0, 0, SIDE, SIDE), "grid": (50, 50), "executors": 2, "round_seconds": 1.0}
PATIENCE = 90.0


@pytest.fixture(scope="module")
def spark():
    if (running := SparkSession.getActiveSession()) is not None:
        running.stop()
    made = session(
        master="local[6]",
        real_time=True,
        config={
            "spark.ui.enabled": False,
            "spark.log.level": "ERROR",
            "spark.driver.host": "127.0.0.1",
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.shuffle.partitions": 2,
        },
    )
    yield made
    made.stop()


def recorder(folder: str):
    """Return a function that notes each result in a file of its process.

    Workers cannot import the tests, so it is a function inside of one.
    """

    def note(row) -> None:
        with open(f"{folder}/{os.getpid()}", "a") as file:
            file.write(json.dumps([row.id, row.query_ids, row.query_version]) + "\n")

    return note


class Results:
    """The matches that tasks noted."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)

    def rows(self) -> list[tuple[int, int, int]]:
        lines = [
            json.loads(line)
            for path in Path(self._folder).iterdir()
            for line in path.read_text().splitlines()
            if line.endswith("]")
        ]
        return [(point, q, version) for point, found, version in lines for q in found]


class World:
    """Random points, queries as a stream of operations, and which of them match."""

    def __init__(self, spark, folder: Path, queries: int = 300, partitions: int = 1) -> None:
        self.rng = np.random.default_rng(7)
        self.spark, self.folder = spark, folder
        for name in ("operations", "results"):
            (folder / name).mkdir()
        self.results = Results(folder / "results")
        self.source = MemoryPoints(spark, POINTS, partitions)
        low = self.rng.uniform(0, SIDE - 10, (queries, 2))
        self.boxes = {i: (*low[i], *(low[i] + 10.0)) for i in range(queries)}
        self.points: dict[int, tuple[float, float]] = {}
        self._files = 0

    def start(self, trigger: str = "5 seconds", **settings):
        preload = self.spark.createDataFrame(
            [("register", i, *map(float, box)) for i, box in self.boxes.items()], QUERIES
        )
        swarm = Swarm(self.spark, **{**SETTINGS, **settings})
        operations = self.spark.readStream.schema(QUERIES).json(str(self.folder / "operations"))
        writer = swarm.match(self.source.frame, operations, preload=preload).writeStream
        writer = writer.foreach(recorder(str(self.folder / "results"))).trigger(realTime=trigger)
        return writer.option("checkpointLocation", str(self.folder / "checkpoint")).start()

    def add(self, n: int, low: float = 0.0, high: float = SIDE) -> None:
        first = len(self.points)
        new = {first + i: tuple(self.rng.uniform(low, high, 2)) for i in range(n)}
        self.points |= new
        self.source.add([(i, *map(repr, map(float, p))) for i, p in new.items()])

    def register(self, box: tuple[float, float, float, float]) -> int:
        number = len(self.boxes)
        self.boxes[number] = box
        names = ("min_x", "min_y", "max_x", "max_y")
        row = {"op": "register", "id": number, **dict(zip(names, box, strict=True))}
        hidden = self.folder / f".{self._files}"
        hidden.write_text(json.dumps(row))
        hidden.rename(self.folder / "operations" / f"{self._files}.json")
        self._files += 1
        return number

    def expected(self) -> set[tuple[int, int]]:
        boxes = np.array(list(self.boxes.values()))
        return {
            (i, int(q))
            for i, (x, y) in self.points.items()
            for q in np.flatnonzero(
                (boxes[:, 0] <= x) & (boxes[:, 1] <= y) & (x <= boxes[:, 2]) & (y <= boxes[:, 3])
            )
        }

    def wait(self, until) -> None:
        deadline = time.monotonic() + PATIENCE
        while not until():
            assert time.monotonic() < deadline, "it takes too long"
            time.sleep(0.05)

    def found(self) -> Counter[tuple[int, int]]:
        return Counter((point, query) for point, query, _ in self.results.rows())


BY_OWNER = pytest.param(False, id="by_owner", marks=pytest.mark.long)


@pytest.mark.parametrize("shared_host", [pytest.param(True, id="one_stage"), BY_OWNER])
def test_points_are_matched_while_queries_and_plan_change(spark, tmp_path, shared_host):
    world = World(spark, tmp_path)
    with world.start("1 minute", shared_host=shared_host) as handle:
        before = handle.plan().version
        for _ in range(20):
            # Nearly all are in one corner, so that there is something to balance.
            world.add(200, 0.0, 20.0)
            world.add(20)
            time.sleep(0.2)
        world.wait(lambda: handle.plan().version > before)
        world.wait(lambda: set(world.found()) == world.expected())
        # A query counts for points that come after its commit.
        number = world.register((40.0, 40.0, 60.0, 60.0))
        world.wait(lambda: handle.status.operations == len(world.boxes))
        time.sleep(0.1)
        old = world.expected() - {(i, q) for i, q in world.expected() if q == number}
        first = len(world.points)
        world.add(500)
        new = {(i, q) for i, q in world.expected() if i >= first}
        assert any(q == number for _, q in new)
        world.wait(lambda: set(world.found()) >= new)
        assert world.found() == Counter(old | new)
        world.wait(lambda: handle.status.points == len(world.points))
        versions = {v for i, _, v in world.results.rows() if i >= first}
        assert versions == {max(v for _, _, v in world.results.rows())}
        assert handle.isActive
        assert handle.exception() is None
    assert not handle.isActive
    assert handle.exception() is None


@pytest.mark.long
def test_after_kill_9_of_a_worker_results_come_again_and_none_is_lost(spark, tmp_path):
    world = World(spark, tmp_path)
    with world.start() as handle:
        world.add(300)
        world.wait(lambda: set(world.found()) == world.expected())
        # Now that a trigger may have ended, points that no commit of the stream knows yet.
        for _ in range(5):
            world.add(100)
            world.wait(lambda: set(world.found()) == world.expected())
        # The files are named after the processes.
        (worker,) = (path.name for path in (tmp_path / "results").iterdir())
        os.kill(int(worker), signal.SIGKILL)
        world.add(100)
        world.wait(lambda: not handle.isActive)
        assert "Python worker exited unexpectedly" in str(handle.exception())
    with world.start() as handle:
        world.add(100)
        world.wait(lambda: set(world.found()) == world.expected())
        versions = defaultdict(set)
        for point, _, version in world.results.rows():
            versions[point].add(version)
        # The queries are the same, so what comes again does so with the same identity.
        assert {len(found) for found in versions.values()} == {1}
        assert max(world.found().values()) > 1
        assert handle.exception() is None


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
    points = MemoryPoints(spark, f"{POINTS}, at timestamp").frame
    given = {"sink": "noop", "point_columns": PointColumns(time="at"), **arguments}
    with pytest.raises(ConfigError, match=reason):
        Swarm(spark, **SETTINGS, **swarm).start(
            points, checkpoint=str(tmp_path), trigger={"realTime": "5 seconds"}, **given
        )


def test_a_session_without_the_settings_is_refused(spark, tmp_path):
    points = MemoryPoints(spark, POINTS).frame
    strict = {"spark.sql.streaming.realTimeMode.allowlistCheck": "true"}
    with (
        temporary_settings(spark, strict),
        pytest.raises(ConfigError, match=r"allowlistCheck=false; sparkswarm\.session"),
    ):
        Swarm(spark, **SETTINGS).start(
            points, sink="noop", checkpoint=str(tmp_path), trigger={"realTime": "5 seconds"}
        )


def test_tasks_that_take_all_slots_are_refused(spark, tmp_path):
    points = MemoryPoints(spark, POINTS, partitions=6).frame
    with pytest.raises(ConfigError, match=r"needs 6 slots of Spark .* there are 6"):
        Swarm(spark, **SETTINGS).start(
            points, sink="noop", checkpoint=str(tmp_path), trigger={"realTime": "5 seconds"}
        )


def test_kafka_needs_no_transactional_id_in_real_time_mode(spark, tmp_path):
    points = MemoryPoints(spark, POINTS).frame
    writer = Swarm(spark, **SETTINGS).match(points).writeStream.format("kafka")
    writer = writer.option("topic", "t").option("kafka.bootstrap.servers", "127.0.0.1:1")
    writer = writer.option("kafka.transactional.id", "w").trigger(realTime="5 seconds")
    with pytest.raises(ConfigError, match=r"leave out kafka\.transactional\.id"):
        writer.start()
