"""Events on Spark are those of the oracle, while partitions change and runs break."""

import math
from collections import Counter
from dataclasses import replace

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException

from sparkswarm import (
    ConfigError,
    Events,
    InputError,
    MemorySink,
    Nearest,
    ParquetSink,
    PointColumns,
    QueryColumns,
    Sliding,
    Swarm,
)

from .event_world import (
    EVENTS,
    RADIUS,
    SHAPED,
    STANDING,
    expected_events,
    micros,
    shape_contains,
    told_answers,
    told_events,
    walking_world,
)
from .world import Restless, config, difference, expected, matches_in, matches_of


class Run:
    """A world of objects on Spark; its sinks gather what comes of it."""

    def __init__(self, spark, folder, world, window=None, shaped=False, **settings):
        self.spark, self.folder, self.window, self.shaped = spark, folder, window, shaped
        self.folders = world.write(folder / "world")
        self.settings = config(executors=3, **settings)
        self.matches, self.events, self.nearest = MemorySink(), MemorySink(), MemorySink()
        self.restless = Restless(self.matches, 5)

    def start(self, sink=None, events=None, points=None, nearest=None):
        settings = replace(EVENTS, nearest=Nearest()) if self.shaped else EVENTS
        swarm = Swarm(self.spark, self.settings, window=self.window, events=settings)
        handle = swarm.start(
            points or self.folders.read_points(self.spark),
            self.shape(self.folders.read_operations(self.spark)),
            sink=sink or self.restless,
            events=events or self.events,
            nearest=(nearest or self.nearest) if self.shaped else None,
            checkpoint=str(self.folder / "checkpoint"),
            preload=self.shape(self.folders.read_preload(self.spark)),
            point_columns=PointColumns(time="ts"),
            query_columns=QueryColumns(expires="expires"),
            trigger={"availableNow": True},
        )
        self.restless.watch(handle)
        return handle

    def shape(self, queries):
        return queries.selectExpr("*", SHAPED, RADIUS, STANDING) if self.shaped else queries


@pytest.mark.parametrize(
    ("settings", "window"),
    [
        ({"shared_host": True}, None),
        ({"shared_host": False}, None),
        ({"policy": "hash_cell", "shared_host": False}, Sliding("12 s")),
    ],
    ids=["one host", "several hosts", "with a window"],
)
def test_events_are_those_of_the_oracle_while_partitions_change(spark, tmp_path, settings, window):
    world = walking_world(31, bad=0.1)
    run = Run(spark, tmp_path, world, window, **settings)
    handle = run.start()
    handle.await_termination()
    wanted = expected_events(world)
    assert not difference(told_events(run.events.table()), wanted.events)
    assert not difference(matches_of(run.matches.table()), expected(world).matches)
    reasons = Counter(event[4] for event in wanted.events)
    assert min(reasons[r] for r in ("left", "silent", "removed", "replaced", "expired")) > 0
    status = handle.status()
    assert status.events == sum(wanted.events.values())
    assert status.late_fixes == wanted.oracle.late > 0
    assert status.repeated_fixes == wanted.oracle.repeated > 0
    assert status.long_legs == wanted.oracle.long_legs > 0
    assert Counter(event[3] for event in wanted.events)["cross"] > 4
    assert handle._run.totals.last.objects == len(wanted.oracle.objects)
    check_reads(handle, wanted.oracle)


def check_reads(handle, oracle):
    """Compare who is where with what the oracle knows at the end."""
    objects = oracle.objects
    fences = {fence for known in objects.values() for fence in known.fences}
    assert fences
    for fence in [*fences, 123_456]:
        found = {
            row["object"]: (micros(row["time"]), row["x"], row["y"], micros(row["since"]))
            for row in handle.inside(fence).to_pylist()
        }
        assert found == {
            name: (known.time, *known.place, known.fences[fence][0])
            for name, known in objects.items()
            if fence in known.fences
        }
    for name, known in objects.items():
        at = handle.where(name)
        assert (at.object, micros(at.time), (at.x, at.y)) == (name, known.time, known.place)
        since = {fence: micros(when) for fence, when in at.fences.items()}
        assert since == {fence: stay[0] for fence, stay in known.fences.items()}
    assert handle.where(987_654) is None
    distances = {name: math.dist((1.0, 12.0), known.place) for name, known in objects.items()}
    for k, within in ((1, None), (7, 2.5), (1000, None)):
        near = handle.nearest(1.0, 12.0, k, within)
        wanted = sorted(d for d in distances.values() if within is None or d <= within)[:k]
        assert near["distance"].to_pylist() == pytest.approx(wanted)
        for name, distance in zip(
            *map(pa.Table.to_pydict(near).get, ("object", "distance")), strict=True
        ):
            assert distances[name] == pytest.approx(distance)


def test_a_run_that_fails_and_starts_again_tells_each_event_and_answer_once(spark, tmp_path):
    world = walking_world(32, objects=60, bad=0.1)
    run = Run(spark, tmp_path, world, shaped=True, shared_host=False)

    def failing(events, batch_id):
        if batch_id == 3:
            events.count()
            raise LookupError("no room left")
        run.events(events, batch_id)

    def failing_later(answers, batch_id):
        if batch_id == 5:
            raise LookupError("no room left")
        run.nearest(answers, batch_id)

    with pytest.raises(StreamingQueryException, match="no room left"):
        run.start(events=failing).await_termination()
    with pytest.raises(StreamingQueryException, match="no room left"):
        run.start(nearest=failing_later).await_termination()
    handle = run.start()
    handle.await_termination()
    wanted = expected_events(world, contains=shape_contains)
    assert not difference(told_events(run.events.table()), wanted.events)
    told = told_answers(run.nearest.table())
    assert told == wanted.nearest
    assert len(told) > 30
    assert any(len(after) > 2 for _, after in told.values())
    assert any(not after for _, after in told.values())
    last = {query: after for (_, query), (_, after) in sorted(told.items())}
    for query, after in last.items():
        assert handle.nearest_to(query)["object"].to_pylist() == after
    plain = expected_events(world).events
    assert sum((plain - wanted.events).values()) > 20


def test_events_alone_and_a_sink_that_reads_little_of_them(spark, tmp_path):
    world = walking_world(33)
    run = Run(spark, tmp_path, world)
    kept = {}

    def first_only(events, batch_id):
        kept[batch_id] = events.limit(1).collect()
        run.events(events, batch_id)

    handle = run.start(sink="noop", events=first_only)
    handle.await_termination()
    assert not difference(told_events(run.events.table()), expected_events(world).events)


def test_objects_may_be_named_and_results_written_by_tasks(spark, tmp_path):
    world = walking_world(34)
    run = Run(spark, tmp_path, world)
    points = run.folders.read_points(spark)
    points = points.selectExpr("concat('van-', id) AS id", "x", "y", "ts")
    run.start(points=points, sink=ParquetSink(str(tmp_path / "out"))).await_termination()
    wanted = Counter(
        {(b, f"van-{o}", *rest): n for (b, o, *rest), n in expected_events(world).events.items()}
    )
    assert not difference(told_events(run.events.table()), wanted)
    found = Counter({(b, f"van-{p}", q): n for (b, p, q), n in expected(world).matches.items()})
    assert not difference(matches_in(tmp_path / "out"), found)


def test_what_makes_no_sense_is_refused(spark, tmp_path):
    points = spark.readStream.format("rate").load().selectExpr("value AS id", "1 AS x", "1 AS y")
    timed = points.selectExpr("*", "now() AS ts")
    columns = PointColumns(time="ts")
    given = {"events": "noop", "checkpoint": str(tmp_path)}
    swarm = Swarm(spark, config(), events=Events())
    with pytest.raises(InputError, match="events need the times of points"):
        swarm.start(points, **given)
    with pytest.raises(InputError, match="no objects that events could be about"):
        swarm.start(timed.selectExpr("0.5D AS id", "x", "y", "ts"), point_columns=columns, **given)
    with pytest.raises(ConfigError, match="give start a sink for events"):
        swarm.start(timed, sink="noop", point_columns=columns, checkpoint=str(tmp_path))
    with pytest.raises(ConfigError, match="no events are reported"):
        Swarm(spark, config()).start(timed, point_columns=columns, **given)
    asking = Swarm(spark, config(), events=Events(nearest=Nearest()))
    with pytest.raises(ConfigError, match="give start a sink for nearest"):
        asking.start(timed, point_columns=columns, **given)
    with pytest.raises(ConfigError, match="no queries ask for the nearest"):
        swarm.start(timed, point_columns=columns, nearest="noop", **given)
    with pytest.raises(ConfigError, match="must be Events"):
        Swarm(spark, config(), events="all")
