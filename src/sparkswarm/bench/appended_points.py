"""A source of points in files that are appended to, for benchmarks and tests of Real-time Mode.

Spark's own source for tests asks the driver for each record, in a time that grows with the records
before it. This one, in Java, reads what was appended since, and can be read again after a failure.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from pyspark.sql import DataFrame, SparkSession

from sparkswarm.compiled import FloatArray, LongArray
from sparkswarm.spark.driver.jars import load_jar

POINT = np.dtype([("id", "<i8"), ("x", "<f8"), ("y", "<f8"), ("at", "<i8")])


class AppendedPoints:
    """Points that are added while streams read them.

    Parameters
    ----------
    folder
        Where the files are, which all machines of a session must see.
    partitions
        Number of files, each read by a task; points are dealt out by id.
    """

    def __init__(self, folder: Path, partitions: int = 1) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        # Unbuffered: a point can be read when it was added.
        self._files = [open(folder / str(i), "ab", buffering=0) for i in range(partitions)]  # noqa: SIM115

    def stream(self, spark: SparkSession) -> DataFrame:
        """Return a stream of all points: ``id``, ``x``, ``y`` and their time ``at``."""
        load_jar(spark, "sparkswarm.bench", "points.jar")
        read = spark.readStream.format("sparkswarm.AppendedPoints")
        read = read.option("path", str(self._folder)).option("partitions", len(self._files))
        return read.load()

    def add(self, ids: LongArray, x: FloatArray, y: FloatArray, at: LongArray) -> None:
        """Add points; ``at`` are their times in microseconds."""
        points = np.empty(len(ids), POINT)
        points["id"], points["x"], points["y"], points["at"] = ids, x, y, at
        for i, file in enumerate(self._files):
            some = points[ids % len(self._files) == i]
            if len(some):
                file.write(some.tobytes())

    def close(self) -> None:
        """Close the files."""
        for file in self._files:
            file.close()
