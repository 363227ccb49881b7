"""Polygons with conditions, events of them, aggregates over them and the nearest: one run."""

import math
import random
from collections import Counter, defaultdict
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import shapely

from sparkswarm import (
    Aggregates,
    Events,
    MemorySink,
    Nearest,
    PointColumns,
    QueryColumns,
    Subscriptions,
    Swarm,
)

from ..apps.event_oracle import EventOracle, Fix
from .event_world import told_events
from .world import BOUNDS, Restless, _write, config, difference

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
TAXI = "id STRING, at TIMESTAMP, x DOUBLE, y DOUBLE, free BOOLEAN, speed DOUBLE"
ZONE = """id STRING, geometry STRING, radius DOUBLE, k INT, where STRING, aggregate STRING,
          window STRING, name STRING"""
POLYGON = "POLYGON ((-2 10.5, 6 11, 7 17, -1 16, -2 10.5), (0 12, 2 12, 1 14, 0 12))"
MIDDLE, RADIUS = (1.0, 13.0), 2.5
ZONES = [
    ("centre", POLYGON, None, None, "free", None, None, "Centre"),
    ("centre per minute", POLYGON, None, None, "free", "count, max(speed)", "1 minute", None),
    ("stand", "POINT (1 13)", RADIUS, 3, "free and speed < 50", None, None, "S"),
]  # fmt: skip
MINUTES = 6
EVERYBODY = [f"taxi-{i}" for i in range(50)]


def reports(rng, minute, places):
    """Return a report of most taxis in a minute, in the order of their times."""
    rows = []
    for name in EVERYBODY:
        if rng.random() < 0.8:
            x, y = places.get(name, (rng.uniform(-3, 7), rng.uniform(10, 17)))
            x = min(max(x + rng.uniform(-2, 2), BOUNDS[0]), BOUNDS[2])
            y = min(max(y + rng.uniform(-1, 1), BOUNDS[1]), BOUNDS[3])
            places[name] = x, y
            when = minute * 60_000_000 + rng.randrange(60_000_000)
            rows.append((name, when, x, y, rng.random() < 0.7, rng.uniform(0, 80)))
    return rows


def fences_of(x, y, free, speed):
    """Return which zones that tell events contain a report."""
    found = {}
    if free and shapely.from_wkt(POLYGON).covers(shapely.Point(x, y)):
        found["centre"] = 2**63 - 1
    if free and speed < 50 and math.dist((x, y), MIDDLE) <= RADIUS:
        found["stand"] = 2**63 - 1
    return found


def test_a_polygon_with_a_condition_has_events_and_aggregates(spark, tmp_path):
    rng, places = random.Random(8), {}
    minutes = [reports(rng, minute, places) for minute in range(MINUTES)]
    (tmp_path / "reports").mkdir()
    for number, rows in enumerate(minutes):
        timed = [(n, NOON + timedelta(microseconds=t), *rest) for n, t, *rest in rows]
        names = ("id", "at", "x", "y", "free", "speed")
        table = pa.table(dict(zip(names, zip(*timed, strict=True), strict=True)))
        _write(table, tmp_path / "reports" / f"{number}.parquet", number)
    zones = spark.createDataFrame(ZONES, ZONE)
    sinks = {name: MemorySink() for name in ("events", "summaries", "nearest")}
    conditions = Subscriptions({"free": "boolean", "speed": "number"})
    swarm = Swarm(
        spark,
        config(executors=3),
        Aggregates(["speed"], of=conditions),
        events=Events(silent_after="10 minutes", nearest=Nearest()),
    )
    restless = Restless(lambda rows, batch: rows.count(), 5)
    reader = spark.readStream.schema(TAXI).option("maxFilesPerTrigger", 1)
    handle = swarm.start(
        reader.parquet(str(tmp_path / "reports")),
        preload=zones,
        sink=restless,
        checkpoint=str(tmp_path / "checkpoint"),
        point_columns=PointColumns(time="at"),
        query_columns=QueryColumns(include=("name",)),
        trigger={"availableNow": True},
        **sinks,
    )
    restless.watch(handle)
    handle.await_termination()

    oracle, wanted, answers = EventOracle(600_000_000), Counter(), {}
    for batch, rows in enumerate(minutes):
        fixes = [Fix(n, t, x, y, fences_of(x, y, *more)) for n, t, x, y, *more in rows]
        for event in oracle.batch(fixes, {}, 0):
            wanted[(batch, *event)] += 1
        inside = [name for name, known in oracle.objects.items() if "stand" in known.fences]
        inside.sort(key=lambda name: math.dist(oracle.objects[name].place, MIDDLE))
        answers[batch] = inside[:3]
    start = round(NOON.timestamp() * 1_000_000)
    told = Counter()
    for (batch, name, fence, event, reason, time, *rest), n in told_events(
        sinks["events"].table()
    ).items():
        told[(batch, name, fence, event, reason, time - start, *rest)] += n
    assert not difference(told, wanted)
    assert {key[2] for key in wanted} == {"centre", "stand"}
    names = {(row["fence"], row["name"]) for row in sinks["events"].table().to_pylist()}
    assert names == {("centre", "Centre"), ("stand", "S")}

    found = {
        row["batch_id"]: [one["object"] for one in row["objects"]]
        for row in sinks["nearest"].table().to_pylist()
    }
    before = [None, *answers.values()]
    assert found == {b: a for b, a in answers.items() if a != before[b] and (a or before[b])}
    assert {row["name"] for row in sinks["nearest"].table().to_pylist()} == {"S"}

    speeds = defaultdict(list)
    for rows in minutes:
        for _, t, x, y, free, speed in rows:
            if "centre" in fences_of(x, y, free, speed):
                speeds[t // 60_000_000].append(speed)
    windows = sinks["summaries"].table().to_pylist()
    # The last point of a minute is before its end, so a window closes two batches after its own.
    assert len(windows) == MINUTES - 2
    for row in windows:
        minute = (row["window_start"] - NOON) // timedelta(minutes=1)
        assert row["query_id"] == "centre per minute"
        assert (row["count"], row["max_speed"]) == (len(speeds[minute]), max(speeds[minute]))
