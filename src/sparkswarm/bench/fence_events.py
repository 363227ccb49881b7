"""The parts of ``sparkswarm bench fences`` beside matching: events, nearest objects, named queries.

Events are measured on the fences and points of the benchmark. Each point is of one of many objects,
all of which are known when measuring begins. Named queries are rectangles, as many with whole
numbers as their ids and as many with strings, which take turns.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from sparkswarm.apps.events.settings import Events
from sparkswarm.bench.plain_spark import WARM_UP, batch_seconds
from sparkswarm.config import SwarmConfig
from sparkswarm.spark.columns import PointColumns
from sparkswarm.spark.engine import Swarm
from sparkswarm.spark.handle import Handle

NEAREST = 10
"""Objects that each question about the nearest asks for."""
ASKS = 200
"""Questions about the nearest that are measured."""
QUERY_SIDE = 0.0016
"""Side of a rectangle relative to the space, as in ``sparkswarm bench engine``."""
ROUNDS = 2
"""Runs with whole numbers and with strings, in turn."""


def run_events(
    spark: SparkSession,
    folder: Path,
    points: DataFrame,
    fences: DataFrame,
    config: SwarmConfig,
    cross: float,
) -> tuple[list[float], int, float]:
    """Tell the events of points; return the seconds of each batch, objects, and asks per second.

    ``cross`` is the length of the longest legs for which crossed fences are told; 0 for none.
    """
    checkpoint = folder / "checkpoint-events"
    handle = Swarm(spark, config, events=Events(silent_after="1 day", cross=cross or None)).start(
        points,
        preload=fences,
        point_columns=PointColumns(time="at"),
        events="noop",
        checkpoint=str(checkpoint),
        trigger={"availableNow": True},
    )
    handle.await_termination()
    seconds = list(batch_seconds(handle.query).values())
    with handle._committed() as commit:
        objects = sum(ref.rows for ref in commit.manifest.objects.values())
    asks = _asks_per_second(handle, config)
    shutil.rmtree(checkpoint, ignore_errors=True)
    return seconds, objects, asks


def _asks_per_second(handle: Handle, config: SwarmConfig) -> float:
    rng = np.random.default_rng(0)
    min_x, min_y, max_x, max_y = config.bounds
    places = rng.uniform((min_x, min_y), (max_x, max_y), (ASKS, 2)).tolist()
    handle.nearest(0.0, 0.0, NEAREST)
    started = time.perf_counter()
    for x, y in places:
        handle.nearest(x, y, NEAREST)
    return ASKS / (time.perf_counter() - started)


def strings_to_longs(
    spark: SparkSession,
    folder: Path,
    points: Sequence[DataFrame],
    queries: int,
    config: SwarmConfig,
) -> float:
    """Return how fast matching is with strings as ids, relative to whole numbers.

    ``points`` has a stream for each run.
    """
    rng = np.random.default_rng(1)
    min_x, min_y, max_x, max_y = config.bounds
    low = rng.uniform((min_x, min_y), (max_x, max_y), (queries, 2))
    high = low + QUERY_SIDE * np.array([max_x - min_x, max_y - min_y])
    edges = dict(zip(("min_x", "min_y"), low.T.copy(), strict=True))
    edges |= dict(zip(("max_x", "max_y"), high.T.copy(), strict=True))
    pq.write_table(pa.table({"id": np.arange(queries), **edges}), folder / "queries.parquet")
    numbers = spark.read.parquet(str(folder / "queries.parquet"))
    strings = numbers.selectExpr("concat('zone-', id) AS id", "* EXCEPT (id)")
    seconds: dict[bool, list[float]] = {False: [], True: []}
    for turn, stream in enumerate(points):
        named = bool(turn % 2)
        checkpoint = folder / f"checkpoint-named-{turn}"
        handle = Swarm(spark, config).start(
            stream,
            preload=strings if named else numbers,
            sink="noop",
            checkpoint=str(checkpoint),
            trigger={"availableNow": True},
        )
        handle.await_termination()
        seconds[named] += list(batch_seconds(handle.query).values())[WARM_UP:]
        shutil.rmtree(checkpoint, ignore_errors=True)
    return median(seconds[False]) / median(seconds[True])
