"""Rows that cannot be served are kept with their reasons, and the rest is served."""

import json
from collections import Counter

import pytest

from sparkswarm import MemorySink, PointColumns, QueryColumns, Swarm

from .world import (
    Batch,
    Operation,
    Point,
    Restless,
    World,
    config,
    difference,
    expected,
    make_world,
    matches_of,
    quarantine_in,
    reasons_of,
)

POINT_REASONS = {
    "null id",
    "null coordinate",
    "not a number",
    "infinite coordinate",
    "outside the bounds",
    "null time",
}
QUERY_REASONS = {
    "null id",
    "null coordinate",
    "not a number",
    "infinite coordinate",
    "outside the bounds",
    "inverted rectangle",
    "unknown operation",
}


def start(spark, folders, tmp_path, sink, executors=3, event_time=False, **options):
    if any(folders.preload.iterdir()):
        options["preload"] = folders.read_preload(spark)
    handle = Swarm(spark, config(executors=executors)).start(
        folders.read_points(spark),
        folders.read_operations(spark),
        sink=sink,
        checkpoint=str(tmp_path / "checkpoint"),
        point_columns=PointColumns(time="ts" if event_time else None),
        query_columns=QueryColumns(expires="expires"),
        trigger={"availableNow": True},
        **options,
    )
    if isinstance(sink, Restless):
        sink.watch(handle)
    handle.await_termination()
    return handle


@pytest.mark.parametrize("event_time", [True, False])
def test_bad_rows_of_every_kind_are_kept_and_the_rest_is_served(spark, tmp_path, event_time):
    world = make_world(
        61, batches=4, points=400, operations=200, bad=0.05, preload=200, event_time=event_time
    )
    wanted = expected(world)
    reasons = {kind: {r for k, r in wanted.reasons if k == kind} for kind in ("point", "query")}
    assert reasons["point"] == POINT_REASONS - (set() if event_time else {"null time"})
    assert reasons["query"] == QUERY_REASONS
    memory, seen = MemorySink(), []

    def bad_rows(rows, batch):
        assert rows.columns == ["kind", "reason", "row"]
        seen.extend((batch, *row) for row in rows.collect())

    handle = start(
        spark,
        world.write(tmp_path / "world"),
        tmp_path,
        Restless(memory, 1, executors=(2, 4)),
        event_time=event_time,
        quarantine=bad_rows,
    )
    assert not difference(matches_of(memory.table()), wanted.matches)
    kept = quarantine_in(tmp_path / "checkpoint")
    assert not difference(reasons_of(kept), wanted.quarantine)
    assert sorted(seen) == kept
    status = handle.status()
    assert dict(status.quarantined) == wanted.reasons
    assert (status.points, status.operations) == (wanted.points, wanted.operations)
    assert (status.replaced, status.ignored) == (wanted.replaced, wanted.ignored)
    assert wanted.replaced
    assert wanted.ignored
    for (kind, reason), count in wanted.reasons.items():
        assert f"{count:,} x {kind}: {reason}" in str(status)


def test_a_bad_row_is_kept_as_it_came_under_its_own_names(spark, tmp_path):
    world = World(
        [
            Batch(
                [Point(5, 1000.0, 12.5, 0), Point(None, 1.5, 12.5, 0)],
                [
                    Operation("register", 1, 0.0, 12.0, 1.0, 13.0),
                    Operation("register", 1, 3.0, 12.0, 2.0, 13.0),
                    Operation("vanish", 2, 0.0, 12.0, None, 13.0),
                    Operation("unregister", None),
                ],
            )
        ]
    )
    folders = world.write(tmp_path / "world")
    points = folders.read_points(spark).withColumnsRenamed({"id": "car.id", "x": "lon", "y": "lat"})
    handle = Swarm(spark, config(executors=2)).start(
        points.withColumn("colour", points["lon"].cast("string")),
        folders.read_operations(spark),
        sink="noop",
        checkpoint=str(tmp_path / "checkpoint"),
        point_columns=PointColumns("car.id", "lon", "lat", include=("colour",)),
        trigger={"availableNow": True},
    )
    handle.await_termination()
    rows = quarantine_in(tmp_path / "checkpoint")
    shown = {(kind, reason): json.loads(row) for _, kind, reason, row in rows}
    assert len(rows) == len(shown) == 5
    assert shown["point", "outside the bounds"] == {
        "car.id": 5,
        "lon": 1000.0,
        "lat": 12.5,
        "colour": "1000.0",
    }
    assert shown["point", "null id"]["car.id"] is None
    inverted = shown["query", "inverted rectangle"]
    assert (inverted["op"], inverted["id"], inverted["min_x"]) == ("register", 1, 3.0)
    assert shown["query", "unknown operation"]["op"] == "vanish"
    assert shown["query", "null id"]["op"] == "unregister"


def test_a_batch_of_bad_rows_alone_gives_no_results(spark, tmp_path):
    world = World([Batch([Point(None, 1.0, 12.0, 0)] * 3, [Operation("unregister", None)] * 4)])
    memory = MemorySink()
    handle = start(spark, world.write(tmp_path / "world"), tmp_path, memory)
    assert memory.table().num_rows == 0
    assert handle.status().quarantined == {("point", "null id"): 3, ("query", "null id"): 4}
    assert (handle.status().points, handle.status().operations) == (0, 0)


def test_good_rows_leave_no_quarantine_and_its_sink_is_not_called(spark, tmp_path):
    world = World(
        [Batch([Point(1, 1.0, 12.0, 0)], [Operation("register", 1, 0.0, 11.0, 2.0, 13.0)])]
    )
    called = []
    start(
        spark,
        world.write(tmp_path / "world"),
        tmp_path,
        MemorySink(),
        quarantine=lambda rows, batch: called.append(batch),
    )
    assert called == []
    assert quarantine_in(tmp_path / "checkpoint") == []


def test_a_batch_that_comes_again_leaves_the_same_bad_rows_once(spark, tmp_path):
    world = make_world(62, batches=3, bad=0.1)
    folders = world.write(tmp_path / "world")
    memory, seen = MemorySink(), []
    start(spark, folders, tmp_path, memory, executors=4)
    before = quarantine_in(tmp_path / "checkpoint")
    # As if the driver had died before Spark heard that the last batch was done.
    for path in (tmp_path / "checkpoint" / "spark" / "commits").glob("*2*"):
        path.unlink()
    handle = start(
        spark,
        folders,
        tmp_path,
        memory,
        executors=2,
        quarantine=lambda rows, batch: seen.append((batch, rows.count())),
    )
    assert handle.status().batches == 1
    assert quarantine_in(tmp_path / "checkpoint") == before
    assert not difference(reasons_of(before), expected(world).quarantine)
    assert not difference(matches_of(memory.table()), expected(world).matches)
    assert seen == [(2, Counter(row[0] for row in before)[2])]
