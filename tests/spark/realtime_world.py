"""A world for Real-time Mode: points in files, queries as operations, results noted by tasks.

As a program it is a driver to be killed: ``realtime_world.py FOLDER SETTINGS`` runs the stream of a
world that another process makes.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from pyspark.sql import SparkSession

from sparkswarm import Swarm, session
from sparkswarm.bench.appended_points import AppendedPoints

COLUMNS = ("id", "x", "y")
EDGES = ("min_x", "min_y", "max_x", "max_y")
QUERIES = "op string, id bigint, min_x double, min_y double, max_x double, max_y double"
SIDE = 100.0
SETTINGS = {"bounds": (0, 0, SIDE, SIDE), "grid": (50, 50), "executors": 2, "round_seconds": 1.0}
PATIENCE = 120.0

Row = tuple[int, tuple[int, ...], int]
"""A point, the queries that contain it, and the version of the queries."""


def real_time_session(master: str) -> SparkSession:
    """Return a session for a test's own Spark."""
    if (running := SparkSession.getActiveSession()) is not None:
        running.stop()
    return session(
        master=master,
        real_time=True,
        config={
            "spark.ui.enabled": False,
            "spark.log.level": "ERROR",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.shuffle.partitions": 2,
        },
    )


def recorder(folder: str) -> Callable[[Any], None]:
    """Return a function that notes each result in a file of its process.

    Workers cannot import the tests, so it is a function inside of one.
    """

    def note(row: Any) -> None:
        with open(f"{folder}/{os.getpid()}", "a") as file:
            file.write(json.dumps([row.id, row.query_ids, row.query_version]) + "\n")

    return note


class World:
    """Random points, queries as a stream of operations, and which of them match."""

    def __init__(self, folder: Path, queries: int = 300, partitions: int = 1) -> None:
        self.rng = np.random.default_rng(7)
        self.folder = folder
        for name in ("operations", "results"):
            (folder / name).mkdir()
        self.source = AppendedPoints(folder / "points", partitions)
        low = self.rng.uniform(0, SIDE - 10, (queries, 2))
        self.boxes = {i: (*low[i].tolist(), *(low[i] + 10.0).tolist()) for i in range(queries)}
        (folder / "preload.json").write_text("\n".join(map(self._operation, self.boxes)))
        self.points: dict[int, tuple[float, float]] = {}
        self._files = 0

    def _operation(self, number: int) -> str:
        box = dict(zip(EDGES, self.boxes[number], strict=True))
        return json.dumps({"op": "register", "id": number, **box})

    def start(self, spark: SparkSession, trigger: str = "5 seconds", **settings: Any) -> Any:
        """Start the stream."""
        return start(spark, self.source, self.folder, trigger, **settings)

    def add(self, n: int, low: float = 0.0, high: float = SIDE) -> None:
        """Add random points."""
        first = len(self.points)
        x, y = self.rng.uniform(low, high, (2, n))
        self.points |= {first + i: (float(x[i]), float(y[i])) for i in range(n)}
        now = np.full(n, time.time_ns() // 1000)
        self.source.add(np.arange(first, first + n), x, y, now)

    def register(self, box: tuple[float, float, float, float]) -> int:
        """Register a query by the stream of operations."""
        number = len(self.boxes)
        self.boxes[number] = box
        hidden = self.folder / f".{self._files}"
        hidden.write_text(self._operation(number))
        hidden.rename(self.folder / "operations" / f"{self._files}.json")
        self._files += 1
        return number

    def queries_of(self, point: int, queries: int) -> tuple[int, ...]:
        """Return which of the first queries contain a point, by brute force."""
        x, y = self.points[point]
        boxes = np.array(list(self.boxes.values()))[:queries].T
        inside = (boxes[0] <= x) & (boxes[1] <= y) & (x <= boxes[2]) & (y <= boxes[3])
        return tuple(np.flatnonzero(inside).tolist())

    def expected(self) -> set[tuple[int, int]]:
        """Return all pairs of a point and a query."""
        return {(i, q) for i in self.points for q in self.queries_of(i, len(self.boxes))}

    def wait(self, until: Callable[[], bool]) -> None:
        """Wait until something is so."""
        deadline = time.monotonic() + PATIENCE
        while not until():
            assert time.monotonic() < deadline, "it takes too long"
            time.sleep(0.05)

    def rows(self) -> list[Row]:
        """Return what tasks noted; a killed one may have left half a line."""
        lines = [
            json.loads(line)
            for path in (self.folder / "results").iterdir()
            for line in path.read_text().splitlines(keepends=True)
            if line.endswith("]\n")
        ]
        return [(point, tuple(sorted(found)), version) for point, found, version in lines]

    def found(self) -> Counter[tuple[int, int]]:
        """Return how often each pair was found."""
        return Counter((point, query) for point, found, _ in self.rows() for query in found)

    def all_are_found(self) -> bool:
        """Return whether each pair was found at least once."""
        return set(self.found()) == self.expected()


def start(
    spark: SparkSession, source: AppendedPoints, folder: Path, trigger: str, **settings: Any
) -> Any:
    """Start the stream of a world, or continue it."""
    swarm = Swarm(spark, **{**SETTINGS, **settings})
    operations = spark.readStream.schema(QUERIES).json(str(folder / "operations"))
    preload = spark.read.schema(QUERIES).json(str(folder / "preload.json"))
    points = source.stream(spark).select(*COLUMNS)
    writer = swarm.match(points, operations, preload=preload).writeStream
    writer = writer.foreach(recorder(str(folder / "results"))).trigger(realTime=trigger)
    return writer.option("checkpointLocation", str(folder / "checkpoint")).start()


def check_identity(rows: list[Row]) -> None:
    """See that rows of the same point and version are the same row."""
    by_identity = defaultdict(set)
    for point, found, version in rows:
        by_identity[point, version].add(found)
    assert all(len(found) == 1 for found in by_identity.values())


def main() -> None:
    """Run the stream of a world until it ends."""
    folder, settings = Path(sys.argv[1]), json.loads(sys.argv[2])
    spark = real_time_session("local[6]")
    with start(spark, AppendedPoints(folder / "points"), folder, "1 minute", **settings) as handle:
        handle.await_termination()


if __name__ == "__main__":
    main()
