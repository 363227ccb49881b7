"""More points than can be served, for a while."""

from __future__ import annotations

import threading
import time
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from sparkswarm import ParquetSink, PointColumns, QueryColumns, Swarm

from ..spark.world import (
    OPERATIONS_SCHEMA,
    POINTS_SCHEMA,
    Batch,
    World,
    config,
    expected,
    make_world,
    matches_in,
)
from .driving import PATIENCE, journal_of
from .trial import Trial

FACTOR = 10
SECONDS = 120.0
WARM = 6
"""Batches of one file, the last four of which tell what is sustainable."""

VISIBLE = 2.0
"""A lag in seconds that is none of a single batch."""

AT_ONCE = 5
"""Files that a batch takes at most: half as many as come, so that they pile up."""


def overload(trial: Trial) -> None:
    """Ten times the rate of one file a batch; the lag is seen, and the backlog drains."""
    seconds = max(5.0, min(SECONDS, trial.left / 4))
    made = make_world(916, batches=1, points=500, operations=0, preload=200)
    folders = made.write(trial.folder / "world", files=1)
    (source,) = folders.points.glob("*.parquet")
    stream = Feed(pq.read_table(source), trial.folder / "stream")
    spark, out, checkpoint = trial.session(), trial.folder / "out", trial.folder / "checkpoint"
    reader = spark.readStream.schema(POINTS_SCHEMA).option("maxFilesPerTrigger", AT_ONCE)
    handle = Swarm(spark, config(executors=3)).start(
        reader.parquet(str(stream.folder)),
        preload=spark.read.schema(OPERATIONS_SCHEMA).parquet(str(folders.preload)),
        point_columns=PointColumns(time="ts"),
        query_columns=QueryColumns(expires="expires"),
        sink=ParquetSink(str(out)),
        checkpoint=str(checkpoint),
    )
    try:
        began = time.monotonic()
        for number in range(WARM):
            if number == 2:
                began = time.monotonic()
            stream.add()
            handle.process_all_available()
        rate = (WARM - 2) / (time.monotonic() - began)
        waiting, began, before = threading.Event(), time.monotonic(), stream.files
        most, lag = 0, 0.0
        while (now := time.monotonic()) < began + seconds:
            while stream.files - before < FACTOR * rate * (now - began):
                stream.add()
            status = handle.status()
            most = max(most, stream.files - status.points // stream.rows)
            lag = max(lag, status.last.lag_s if status.last else 0.0)
            waiting.wait(0.1)
        over = time.monotonic()
        drained = threading.Thread(target=handle.process_all_available, daemon=True)
        drained.start()
        drained.join(PATIENCE + 3 * seconds)
        trial.check(not drained.is_alive(), "the backlog does not drain")
        trial.recovered(time.monotonic() - over, 3 * seconds + 60)
        trial.check(most > 3 * AT_ONCE, f"at most {most} files were behind: no overload")
        trial.check(lag > VISIBLE, f"the status tells of a lag of {lag:.1f} s at most")
    finally:
        handle.stop()
    trial.tried, trial.whole = stream.files, round(stream.files * SECONDS / seconds)
    told = [entry["lag"] for entry in journal_of(checkpoint) if "lag" in entry]
    trial.check(max(told, default=0.0) > VISIBLE, "the journal, hence the map, has no lag")
    wanted = expected(World([Batch(made.batches[0].points, [])], made.preload)).matches
    got: Counter[tuple[int, int]] = Counter()
    for row, count in matches_in(out).items():
        got[row[1:]] += count
    once = Counter({row[1:]: count for row, count in wanted.items()})
    trial.compare(got, Counter({row: count * stream.files for row, count in once.items()}))
    trial.notes.append(
        f"{FACTOR} x {rate:.1f} files/s for {seconds:.0f} s, {stream.files} files of "
        f"{stream.rows} points; {most} files and {lag:.0f} s behind"
    )


class Feed:
    """A stream of files with the same points, which happen when their file comes."""

    def __init__(self, points: pa.Table, folder: Path) -> None:
        self.points, self.folder, self.files = points, folder, 0
        self.rows = points.num_rows
        folder.mkdir()

    def add(self) -> None:
        """Give the stream another file."""
        kind = self.points.schema.field("ts").type
        now = pa.array([time.time_ns() // 1000] * self.rows).cast(kind)
        place = self.points.schema.get_field_index("ts")
        hidden = self.folder / f".{self.files}"
        pq.write_table(self.points.set_column(place, "ts", now), hidden)
        # Spark sees a file whole or not at all.
        hidden.rename(self.folder / f"{self.files:06d}.parquet")
        self.files += 1
