"""More points than can be served, for a while."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from pathlib import Path

from sparkswarm import ParquetSink, QueryColumns, Swarm

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
from .driving import PATIENCE
from .trial import Trial

FACTOR = 10
SECONDS = 120.0
AT_ONCE = 40
"""Files that a batch takes at most; one file is what was sustainable."""


def overload(trial: Trial) -> None:
    """Ten times the rate of one file a batch; the backlog drains when it is over."""
    seconds = max(5.0, min(SECONDS, trial.left / 3))
    made = make_world(916, batches=1, points=500, operations=0, preload=200)
    folders = made.write(trial.folder / "world", files=1)
    (source,) = folders.points.glob("*.parquet")
    stream = trial.folder / "stream"
    stream.mkdir()
    spark, out = trial.session(), trial.folder / "out"
    reader = spark.readStream.schema(POINTS_SCHEMA).option("maxFilesPerTrigger", AT_ONCE)
    sizes: list[int] = []
    handle = Swarm(spark, config(executors=3)).start(
        reader.parquet(str(stream)),
        preload=spark.read.schema(OPERATIONS_SCHEMA).parquet(str(folders.preload)),
        query_columns=QueryColumns(expires="expires"),
        sink=ParquetSink(str(out)),
        checkpoint=str(trial.folder / "checkpoint"),
        observers=[lambda progress, plan, decisions: sizes.append(progress.points)],
    )
    fed = 0
    try:
        began = time.monotonic()
        for warm in range(6):
            if warm == 2:
                began = time.monotonic()
            fed += _feed(source, stream, fed)
            handle.process_all_available()
        rate = 4 / (time.monotonic() - began)
        waiting, end = threading.Event(), time.monotonic() + seconds
        began, before = time.monotonic(), fed
        most = 0
        while (now := time.monotonic()) < end:
            while fed - before < FACTOR * rate * (now - began):
                fed += _feed(source, stream, fed)
            most = max(most, fed - sum(sizes[1:]) // max(1, sizes[1] if len(sizes) > 1 else 1))
            waiting.wait(0.02)
        over = time.monotonic()
        drained = threading.Thread(target=handle.process_all_available, daemon=True)
        drained.start()
        drained.join(PATIENCE)
        trial.check(not drained.is_alive(), "the backlog does not drain")
        trial.recovered(time.monotonic() - over, max(60.0, 2 * seconds))
    finally:
        handle.stop()
    trial.tried, trial.whole = fed, round(fed * SECONDS / seconds)
    wanted = expected(World([Batch(made.batches[0].points, [])], made.preload)).matches
    once = Counter({row[1:]: count for row, count in wanted.items()})
    got: Counter[tuple[int, int]] = Counter()
    for row, count in matches_in(out).items():
        got[row[1:]] += count
    trial.compare(got, Counter({row: count * fed for row, count in once.items()}))
    trial.notes.append(
        f"{FACTOR} x {rate:.1f} files/s for {seconds:.0f} s, {fed} files of 502 points; "
        f"at most about {most} files behind"
    )


def _feed(source: Path, stream: Path, number: int) -> int:
    """Give the stream another file: the same points under another name."""
    hidden = stream / f".{number}"
    os.link(source, hidden)
    # Spark sees a file whole or not at all.
    hidden.rename(stream / f"{number:06d}.parquet")
    return 1
