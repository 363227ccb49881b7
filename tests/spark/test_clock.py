"""The clock of a run: what moves it, and what does not."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime, timedelta

import pytest

from sparkswarm import (
    Aggregates,
    ConfigError,
    Events,
    MemorySink,
    PointColumns,
    QueryColumns,
    Swarm,
    SwarmConfig,
)
from sparkswarm.spark.driver import run
from sparkswarm.store.blocks import MIN_TIME
from sparkswarm.store.epochs import Epochs
from sparkswarm.store.files import Files

POINTS = "id BIGINT, x DOUBLE, y DOUBLE, ts TIMESTAMP"
CONFIG = SwarmConfig(bounds=(0, 0, 8, 8), grid=(8, 8), executors=2)


def run_points(spark, folder, rows, columns, config=CONFIG):
    """Append points to a stream and run until they are matched; return results and epochs."""
    spark.createDataFrame(rows, POINTS).coalesce(1).write.mode("append").parquet(f"{folder}/points")
    sink = MemorySink()
    handle = Swarm(spark, config).start(
        spark.readStream.schema(POINTS).parquet(f"{folder}/points"),
        preload=spark.createDataFrame(
            [(1, 0.0, 0.0, 8.0, 8.0)],
            "id LONG, min_x DOUBLE, min_y DOUBLE, max_x DOUBLE, max_y DOUBLE",
        ),
        point_columns=columns,
        sink=sink,
        checkpoint=f"{folder}/checkpoint",
        trigger={"availableNow": True},
    )
    handle.await_termination()
    return handle.status(), Epochs(Files(f"{folder}/checkpoint/swarm"), 10)


def test_a_point_from_the_far_future_does_not_move_the_clock(spark, tmp_path):
    now = datetime.now(UTC).replace(microsecond=0)
    rows = [(1, 1.0, 1.0, now), (2, 1.0, 1.0, now + timedelta(days=400))]
    status, epochs = run_points(spark, tmp_path, rows, PointColumns(time="ts"))
    assert status.quarantined == {("point", "time in the future"): 1}
    assert epochs.last_commit().max_event_time == now.timestamp() * 1e6


def test_without_event_times_the_present_never_goes_backwards(spark, tmp_path, monkeypatch):
    rows = [(1, 1.0, 1.0, None)]
    _, epochs = run_points(spark, tmp_path, rows, PointColumns())
    before = epochs.epoch_of(0).clock
    earlier = time.time_ns() - 3600 * 10**9
    monkeypatch.setattr(run.time, "time_ns", lambda: earlier)
    _, epochs = run_points(spark, tmp_path, rows, PointColumns())
    assert epochs.epoch_of(1).clock == before


class Waiting:
    """A sink that says when it has a number of rows."""

    def __init__(self, number: int) -> None:
        self.number, self.rows, self.filled = number, MemorySink(), threading.Event()

    def __call__(self, results, batch_id):
        """Keep the rows."""
        self.rows(results, batch_id)
        if self.rows.table().num_rows >= self.number:
            self.filled.set()


QUERIES = """id LONG, min_x DOUBLE, min_y DOUBLE, max_x DOUBLE, max_y DOUBLE, ends TIMESTAMP,
             aggregate STRING, window STRING"""


def start_idle(spark, folder, idle=0.5, **more):
    """Start a run that counts points by the second, and tells who is where."""
    now = datetime.now(UTC)
    known = [
        (1, 0.0, 0.0, 8.0, 8.0, None, "count", "1 second"),
        (2, 0.0, 0.0, 8.0, 8.0, now + timedelta(seconds=1), None, None),
    ]
    swarm = Swarm(
        spark,
        SwarmConfig(bounds=(0, 0, 8, 8), grid=(8, 8), executors=2, idle_seconds=idle),
        Aggregates(),
        events=Events(silent_after="1 hour"),
    )
    return swarm.start(
        spark.readStream.schema(POINTS).parquet(f"{folder}/points"),
        preload=spark.createDataFrame(known, QUERIES),
        point_columns=more.pop("point_columns", PointColumns(time="ts")),
        query_columns=QueryColumns(expires="ends"),
        sink="noop",
        checkpoint=f"{folder}/checkpoint",
        **more,
    )


def test_without_points_time_goes_on_where_that_is_asked_for(spark, tmp_path):
    now = datetime.now(UTC)
    points = spark.createDataFrame([(7, 1.0, 1.0, now)], POINTS)
    points.coalesce(1).write.parquet(f"{tmp_path}/points")
    summaries, events = Waiting(1), Waiting(2)
    with start_idle(spark, tmp_path, summaries=summaries, events=events):
        assert summaries.filled.wait(120), "the window stays open"
        assert events.filled.wait(120), "the fence does not expire"
    (row,) = summaries.rows.table().to_pylist()
    assert (row["query_id"], row["count"]) == (1, 1)
    assert row["window_start"] <= now < row["window_end"]
    told = [(e["object"], e["fence"], e["reason"]) for e in events.rows.table().to_pylist()]
    assert told == [(7, 2, None), (7, 2, "expired")]

    batches = threading.Semaphore(0)
    again = {"summaries": summaries, "events": events, "observers": [lambda *_: batches.release()]}
    with start_idle(spark, tmp_path, **again) as handle:
        assert all(batches.acquire(timeout=120) for _ in range(2)), "no batch without points"
    assert handle.status().points == 0
    assert summaries.rows.table().num_rows == 1, "told once, also after another start"
    assert events.rows.table().num_rows == 2


def test_time_never_goes_on_before_the_first_point(spark, tmp_path):
    spark.createDataFrame([], POINTS).write.parquet(f"{tmp_path}/points")
    batches = threading.Semaphore(0)
    noted = [lambda *_: batches.release()]
    with start_idle(
        spark, tmp_path, idle=0.001, summaries="noop", events="noop", observers=noted
    ) as handle:
        assert all(batches.acquire(timeout=120) for _ in range(2)), "no batch without points"
    assert handle.status().points == 0
    epochs = Epochs(Files(f"{tmp_path}/checkpoint/swarm"), 10)
    assert epochs.last_commit().max_event_time == MIN_TIME


def test_ticks_that_cannot_be_are_refused(spark, tmp_path):
    sinks = {"summaries": "noop", "events": "noop", "trigger": {"availableNow": True}}
    spark.createDataFrame([], POINTS).write.parquet(f"{tmp_path}/points")
    start_idle(spark, tmp_path, idle=0, **sinks).await_termination()
    with pytest.raises(ConfigError, match=r"idle_seconds > 0 is True, but the checkpoint .* None"):
        start_idle(spark, tmp_path, **sinks)
    swarm = Swarm(spark, CONFIG, idle_seconds=1)
    points = spark.readStream.schema(POINTS).parquet(f"{tmp_path}/points")
    with pytest.raises(ConfigError, match="idle_seconds needs the times of points"):
        swarm.start(points, sink="noop", checkpoint=f"{tmp_path}/other")
