"""How a driver ends: taken over by another, stopped, or failed; and what it makes of a retry."""

import threading

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F  # noqa: N812

from sparkswarm import ParquetSink, QueryColumns, StoreError, Swarm
from sparkswarm.spark.driver.batch import Stages
from sparkswarm.spark.driver.fixed_order import in_fixed_order
from sparkswarm.spark.driver.hadoop_files import hadoop_creator
from sparkswarm.spark.driver.run import RunLoop
from sparkswarm.spark.tasks.route import route_task
from sparkswarm.store.epochs import Epochs
from sparkswarm.store.files import Files

from .world import config, difference, expected, make_world, matches_in


def test_a_driver_stops_when_another_has_taken_over(spark, tmp_path):
    world = make_world(88, batches=5, preload=40)
    folders = world.write(tmp_path / "world")
    swarm_files = Files(str(tmp_path / "checkpoint" / "swarm"))
    parquet = ParquetSink(str(tmp_path / "out"), writer="spark")

    def run(sink):
        return Swarm(spark, config(executors=3)).start(
            folders.read_points(spark),
            folders.read_operations(spark),
            sink=sink,
            checkpoint=str(tmp_path / "checkpoint"),
            query_columns=QueryColumns(expires="expires"),
            preload=folders.read_preload(spark),
            trigger={"availableNow": True},
        )

    def sink(results, batch):
        parquet(results, batch)
        if batch == 2:
            # As another driver does when it starts.
            other = Epochs(swarm_files, 3)
            other.take_over()
            other.collect_garbage()

    handle = run(sink)
    with pytest.raises(StreamingQueryException, match=r"another driver, process \d+ on .* took"):
        handle.await_termination()
    assert Epochs(swarm_files, 3).last_commit().batch == 1
    run(parquet).await_termination()
    assert not difference(matches_in(tmp_path / "out"), expected(world).matches)


def test_hadoop_creates_a_file_that_is_not_there_and_replaces_none(spark, tmp_path):
    create, path = hadoop_creator(spark), tmp_path / "a" / "b.json"
    create(f"file://{path}", b"one")
    assert path.read_bytes() == b"one"
    create(f"file://{path}", b"two")
    assert path.read_bytes() == b"one"
    assert [entry.name for entry in path.parent.iterdir() if entry.suffix != ".crc"] == ["b.json"]
    with pytest.raises(StoreError, match=r"cannot create file://.*b\.json/c: "):
        create(f"file://{path}/c", b"three")


def test_a_stop_before_a_batch_is_no_failure(spark, tmp_path, monkeypatch):
    """The batch that comes after the stop was asked for waits until Spark interrupts it."""
    folders = make_world(89, batches=5).write(tmp_path / "world")
    waits, wait = threading.Event(), RunLoop._wait_for_interrupt

    def waiting(run):
        waits.set()
        wait(run)

    monkeypatch.setattr(RunLoop, "_wait_for_interrupt", waiting)
    handle = Swarm(spark, config(executors=2)).start(
        folders.read_points(spark),
        folders.read_operations(spark),
        sink=lambda results, batch: setattr(handle._run, "stop_requested", True),
        checkpoint=str(tmp_path / "checkpoint"),
        query_columns=QueryColumns(expires="expires"),
    )
    assert waits.wait(120)
    handle.stop()
    assert handle.await_termination(60)
    assert handle.query.exception() is None
    assert handle.status().batches == 1


def test_a_stop_that_spark_takes_for_a_failure_is_none(spark, tmp_path, monkeypatch):
    """Spark may take long to interrupt: then the batch that comes after the stop ends the run."""
    monkeypatch.setattr(RunLoop, "_wait_for_interrupt", lambda run: None)
    folders = make_world(91, batches=2).write(tmp_path / "world")
    handle = Swarm(spark, config(executors=2)).start(
        folders.read_points(spark),
        sink=lambda results, batch: setattr(handle._run, "stop_requested", True),
        checkpoint=str(tmp_path / "checkpoint"),
        trigger={"availableNow": True},
    )
    assert handle.await_termination(120)
    assert handle.query.exception() is not None
    assert handle.exception() is None
    assert handle.status().batches == 1


def test_a_failing_sink_is_the_first_thing_that_the_error_says(spark, tmp_path):
    folders = make_world(90, batches=1).write(tmp_path / "world")

    def sink(results, batch):
        raise ValueError("the table is locked")

    handle = Swarm(spark, config(executors=2)).start(
        folders.read_points(spark),
        sink=sink,
        checkpoint=str(tmp_path / "checkpoint"),
        trigger={"availableNow": True},
    )
    with pytest.raises(
        StreamingQueryException, match=r"^batch 0 failed: ValueError: the table is locked\n"
    ):
        handle.await_termination()


def test_rows_from_a_shuffle_are_sorted_and_those_of_a_source_are_not(spark, tmp_path):
    points = spark.range(0, 1000, 1, 4).withColumn("x", F.rand(7))
    points.write.parquet(str(tmp_path / "points"))
    read = spark.read.parquet(str(tmp_path / "points"))
    assert in_fixed_order(read) is read
    one, other = (
        in_fixed_order(spark.createDataFrame(rows.toArrow()).repartition(3, "id"))
        for rows in (read, read.orderBy(F.desc("x")))
    )
    assert rows_by_partition(one) == rows_by_partition(other)


def test_points_from_a_shuffle_are_sorted_before_they_are_dealt(spark, tmp_path, monkeypatch):
    plans, map_rows = [], Stages.map

    def mapped(stages, rows, function, schema):
        if function is route_task:
            plans.append(rows._jdf.queryExecution().optimizedPlan().toString())
        return map_rows(stages, rows, function, schema)

    monkeypatch.setattr(Stages, "map", mapped)
    folders = make_world(92, batches=2).write(tmp_path / "world")
    for name, shuffled in (("shuffled", True), ("read", False)):
        points = folders.read_points(spark)
        Swarm(spark, config(executors=2, shared_host=False)).start(
            points.repartition(3) if shuffled else points,
            sink="noop",
            checkpoint=str(tmp_path / name),
            trigger={"availableNow": True},
        ).await_termination()
        assert plans
        assert all(("Sort [xxhash64" in plan) == shuffled for plan in plans)
        plans.clear()


ALIKE = """1 AS id, 1.0 AS x, null AS a, 5 AS b, array('v') AS c, array('w') AS d, map(1, 2) AS e
1 AS id, 1.0 AS x, 5 AS a, null AS b, array('v') AS c, array('w') AS d, map(1, 2) AS e
1 AS id, 1.0 AS x, 5 AS a, null AS b, array('v', 'w') AS c, array() AS d, map(1, 2) AS e
1 AS id, 1.0 AS x, 5 AS a, null AS b, array('v', null) AS c, array('w') AS d, map(1, 3) AS e
1 AS id, 1.0 AS x, 5 AS a, null AS b, array(null, 'v') AS c, array('w') AS d, map(1, 3) AS e"""


def test_rows_that_are_nearly_alike_have_one_order_too(spark):
    """Of two rows that change places when a task runs again, one may be lost and one come twice."""
    queries = [f"SELECT {line}" for line in ALIKE.splitlines()]
    orders = []
    for some in (queries, queries[::-1]):
        rows = spark.sql(" UNION ALL ".join(some)).repartition(3, "id")
        orders.append([str(row) for row in in_fixed_order(rows).collect()])
    assert orders[0] == orders[1]
    assert len(set(orders[0])) == len(queries)


def rows_by_partition(frame):
    found = {}
    for row in frame.withColumn("p", F.spark_partition_id()).collect():
        found.setdefault(row.p, []).append((row.id, row.x))
    return found
