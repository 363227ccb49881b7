"""The clock of a run: what moves it, and what does not."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

from sparkswarm import MemorySink, PointColumns, Swarm, SwarmConfig
from sparkswarm.spark.driver import run
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
