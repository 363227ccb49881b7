"""``sparkswarm bench latency``: from the moment a point is due to its result in the sink.

Points come at a fixed rate from a source in the driver's memory (:mod:`~.memory_points`), which all
modes read: micro-batches, and Real-time Mode in one stage and in two. A point is *due* at its place
in the rate: where the source, Spark or a task falls behind, the wait counts. The first seconds of
each run are its warm-up and are left out. Points without a result have no latency.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt
from pyspark.sql import DataFrame, Row, SparkSession

from sparkswarm.bench.inputs import (
    POINTS_SCHEMA,
    QUERIES_SCHEMA,
    Inputs,
    compare_all,
    count_matches,
    write_inputs,
)
from sparkswarm.bench.kafka_points import KafkaPoints
from sparkswarm.bench.memory_points import MemoryPoints
from sparkswarm.compiled import FloatArray, LongArray
from sparkswarm.config import SwarmConfig
from sparkswarm.errors import ConfigError, WorkloadError
from sparkswarm.spark.engine import Swarm
from sparkswarm.spark.handle import Handle
from sparkswarm.spark.kafka_sink import KafkaSink
from sparkswarm.spark.realtime_sinks import Foreach, KafkaTopic
from sparkswarm.spark.session import session

MODES = ("micro_batch", "one_stage", "by_owner")

POINTS = 200_000
"""Different points; a stream of more has them again."""

BRUTE_FORCE_POINTS = 1_000
"""Points that are compared with every query, to check the oracle of the others."""

TICK_SECONDS = 0.001
"""Time between two looks at which points are due."""

PATIENCE_SECONDS = 60.0
"""Longest time for the last results of a run."""

SLOTS = 8
"""Tasks that Spark runs at a time: in Real-time Mode most of them wait."""

RECORD = np.dtype([("id", "<i8"), ("at", "<f8"), ("matches", "<i8"), ("query_ids", "<i8")])
"""A result in the sink: the point, when it came, its number of queries, the sum of their ids."""

OnStep = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencySettings:
    """What is measured: points per second, seconds of a run and of its warm-up, and how often.

    With ``kafka``, the addresses of brokers, points and results go through Kafka; ``jars`` are
    those of Spark's connector.
    """

    rates: tuple[int, ...] = (100, 1_000, 10_000)
    queries: int = 1_000_000
    repeat: int = 5
    seconds: float = 10.0
    warm_up: float = 5.0
    modes: tuple[str, ...] = MODES
    trigger: str = "1 minute"
    executors: int = 2
    seed: int = 0
    kafka: str | None = None
    jars: str = ""

    def __post_init__(self) -> None:
        if unknown := set(self.modes) - set(MODES):
            raise ConfigError(f"modes are {', '.join(MODES)}, got {', '.join(sorted(unknown))}")
        if not self.rates or min(self.rates) < 1:
            raise ConfigError(f"rates must be whole numbers from 1 on, got {self.rates}")

    @property
    def steps(self) -> int:
        """Number of steps of the benchmark."""
        return 1 + len(self.modes) * (1 + self.repeat * len(self.rates))


@dataclass(frozen=True, slots=True, kw_only=True)
class OneRun:
    """The latencies of one run, and how many of its points had another result than they should."""

    p50_ms: float
    p99_ms: float
    results: int
    checked: int
    wrong: int


@dataclass(frozen=True, slots=True)
class LatencyRun:
    """All runs, by mode and rate."""

    settings: LatencySettings
    runs: Mapping[str, Mapping[int, Sequence[OneRun]]]

    def to_json(self) -> dict[str, Any]:
        """Return JSON values; of several runs, medians."""
        every = [one for rates in self.runs.values() for runs in rates.values() for one in runs]
        return {
            "modes": {
                mode: {
                    str(rate): {
                        "p50_ms": round(median(one.p50_ms for one in runs), 1),
                        "p99_ms": round(median(one.p99_ms for one in runs), 1),
                        "runs": [
                            {"p50_ms": round(one.p50_ms, 1), "p99_ms": round(one.p99_ms, 1)}
                            for one in runs
                        ],
                    }
                    for rate, runs in rates.items()
                }
                for mode, rates in self.runs.items()
            },
            "oracle": {
                "checked": sum(one.checked for one in every),
                "wrong": sum(one.wrong for one in every),
            },
            "queries": self.settings.queries,
            "seconds": self.settings.seconds,
            "warm_up_seconds": self.settings.warm_up,
        }


@dataclass
class Recorder:
    """A sink that notes when each result came, in a file for each task."""

    folder: str
    _file: int = field(default=-1, compare=False)

    def open(self, partition_id: int, epoch_id: int) -> bool:
        """Begin a file."""
        path = os.path.join(self.folder, uuid.uuid4().hex)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        return True

    def process(self, row: Row) -> None:
        """Note a result."""
        record = row[0], time.time(), len(row[1]), sum(row[1])
        os.write(self._file, np.array([record], RECORD).tobytes())

    def close(self, error: BaseException | None) -> None:
        """End the file."""
        os.close(self._file)

    def write_batch(self, results: DataFrame, batch_id: int) -> None:
        """Note all results of a micro-batch, when the last of them is there."""
        table = results.select("id", "query_ids").toArrow()
        lists = table.column("query_ids").combine_chunks()
        records = np.zeros(table.num_rows, RECORD)
        records["at"] = time.time()
        records["id"] = table.column("id").to_numpy()
        offsets = lists.offsets.to_numpy()
        sums = np.concatenate([[0], np.cumsum(lists.values.to_numpy())])
        records["matches"] = np.diff(offsets)
        records["query_ids"] = sums[offsets[1:]] - sums[offsets[:-1]]
        path = os.path.join(self.folder, f"{batch_id}-{uuid.uuid4().hex}")
        hidden = os.path.join(os.path.dirname(self.folder), os.path.basename(path))
        records.tofile(hidden)
        os.rename(hidden, path)


class LatencyInputs:
    """Queries, points, and how many queries each point matches."""

    def __init__(self, settings: LatencySettings, folder: Path) -> None:
        self.inputs: Inputs = write_inputs(
            folder / "inputs",
            batches=1,
            points=POINTS,
            queries=settings.queries,
            change_share=0.0,
            seed=settings.seed,
            centres="uniform",
        )
        _, self.x, self.y = self.inputs.read_points(0)
        queries = self.inputs.read_queries()
        self.matches: LongArray = count_matches(self.x, self.y, queries)
        some = slice(0, BRUTE_FORCE_POINTS)
        if (compare_all(self.x[some], self.y[some], queries) != self.matches[some]).any():
            raise AssertionError("the two oracles disagree")
        self.sums = sums_of_ids(self.x[some], self.y[some], queries)


def sums_of_ids(x: FloatArray, y: FloatArray, queries: Sequence[FloatArray]) -> LongArray:
    """Return the sum of the ids of the queries that contain each point, by brute force."""
    min_x, min_y, max_x, max_y = queries
    return np.array(
        [
            np.flatnonzero((min_x <= a) & (a <= max_x) & (min_y <= b) & (b <= max_y)).sum()
            for a, b in zip(x, y, strict=True)
        ],
        np.int64,
    )


def run_latency(settings: LatencySettings, on_step: OnStep = lambda _: None) -> LatencyRun:
    """Run the benchmark; ``on_step`` is called before each of its steps."""
    spark = session(
        "sparkswarm bench latency",
        master=f"local[{SLOTS}]",
        real_time=True,
        config={
            "spark.ui.enabled": False,
            "spark.ui.showConsoleProgress": False,
            "spark.log.level": "ERROR",
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.shuffle.partitions": 2,
            **({"spark.jars": settings.jars} if settings.jars else {}),
        },
    )
    with tempfile.TemporaryDirectory(prefix="sparkswarm-", ignore_cleanup_errors=True) as name:
        try:
            on_step("inputs")
            world = LatencyInputs(settings, Path(name))
            runs = {
                mode: ModeRun(spark, world, settings, mode, Path(name) / mode).measure(on_step)
                for mode in settings.modes
            }
        finally:
            spark.stop()
    return LatencyRun(settings, runs)


class ModeRun:
    """The runs of one mode: one stream, at each rate in turn."""

    def __init__(
        self,
        spark: SparkSession,
        world: LatencyInputs,
        settings: LatencySettings,
        mode: str,
        folder: Path,
    ) -> None:
        self._spark, self._world, self._settings = spark, world, settings
        self._mode, self._folder = mode, folder
        (folder / "results").mkdir(parents=True)
        partitions = 1 if mode == "by_owner" else settings.executors
        self._source: MemoryPoints | KafkaPoints = (
            KafkaPoints(spark, settings.kafka, POINTS_SCHEMA, partitions)
            if settings.kafka
            else MemoryPoints(spark, POINTS_SCHEMA, partitions)
        )
        self._next = 0

    def measure(self, on_step: OnStep) -> dict[int, list[OneRun]]:
        """Measure all rates, each as often as is asked for."""
        rates = self._settings.rates
        on_step(f"{self._mode}: loading {self._settings.queries:,} queries")
        runs: dict[int, list[OneRun]] = {rate: [] for rate in rates}
        handle = self._start()
        try:
            for _ in range(self._settings.repeat):
                for rate in rates:
                    on_step(f"{self._mode}: {rate:,} points/s")
                    runs[rate].append(self._run(handle, rate))
        finally:
            handle.stop()
            self._source.close()
            shutil.rmtree(self._folder / "checkpoint", ignore_errors=True)
        return runs

    def _start(self) -> Handle:
        settings, inputs = self._settings, self._world.inputs
        config = SwarmConfig(
            bounds=inputs.bounds.edges,
            grid=(1000, 1000),
            executors=settings.executors,
            shared_host=self._mode != "by_owner",
        )
        queries = self._spark.read.schema(QUERIES_SCHEMA).parquet(str(inputs.queries_folder))
        recorder = Recorder(str(self._folder / "results"))
        given: dict[str, Any] = {
            "preload": queries,
            "checkpoint": str(self._folder / "checkpoint"),
        }
        live = self._mode != "micro_batch"
        if isinstance(source := self._source, KafkaPoints):
            to = str(settings.kafka), source.topic
            given["sink"] = KafkaTopic(*to) if live else KafkaSink(*to, source.topic)
        else:
            given["sink"] = Foreach(recorder) if live else recorder.write_batch
        if live:
            given["trigger"] = {"realTime": settings.trigger}
        return Swarm(self._spark, config).start(self._source.frame, **given)

    def _run(self, handle: Handle, rate: int) -> OneRun:
        """Send points at a rate; return their latencies, without those of the warm-up."""
        first, start = self._next, time.time() + 0.1
        total = round(rate * (self._settings.warm_up + self._settings.seconds))
        self._next += total
        sent = 0
        while sent < total:
            due = min(total, int((time.time() - start) * rate) + 1)
            if due > sent:
                self._send(first + sent, first + due)
                sent = due
            time.sleep(TICK_SECONDS)
        wanted = self._matches(np.arange(first, first + total))
        found = self._wait(handle, first, int((wanted > 0).sum()))
        wrong = self._wrong(found, first, wanted)
        chosen = found[found["id"] - first >= round(rate * self._settings.warm_up)]
        if not len(chosen):
            expected = int((wanted > 0).sum())
            late = len(found) < expected
            raise WorkloadError(
                f"{rate:,} points/s: {len(found)} of {expected} points with results had them in "
                f"time, none of these after the warm-up; give "
                + ("a lower rate" if late else "more --queries or --seconds")
            )
        ms = (chosen["at"] - start - (chosen["id"] - first) / rate) * 1e3
        p50, p99 = np.percentile(ms, [50, 99]).tolist()
        return OneRun(p50_ms=p50, p99_ms=p99, results=len(chosen), checked=total, wrong=wrong)

    def _send(self, low: int, high: int) -> None:
        places = np.arange(low, high) % POINTS
        x, y = self._world.x[places].tolist(), self._world.y[places].tolist()
        self._source.add(zip(range(low, high), map(repr, x), map(repr, y), strict=True))

    def _matches(self, ids: LongArray) -> LongArray:
        found: LongArray = self._world.matches[ids % POINTS]
        return found

    def _wait(self, handle: Handle, first: int, results: int) -> npt.NDArray[Any]:
        """Return the results of the points from ``first`` on, when they are there or overdue."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            found = self._results()
            found = found[found["id"] >= first]
            if len(found) >= results or time.monotonic() > deadline:
                return found
            if (error := handle.exception()) is not None:
                raise error
            time.sleep(0.2)

    def _results(self) -> npt.NDArray[Any]:
        if isinstance(self._source, KafkaPoints):
            return np.array(self._source.found, RECORD)
        files = sorted((self._folder / "results").iterdir())
        # A file may end in the middle of a record.
        parts = [path.read_bytes() for path in files]
        size = RECORD.itemsize
        whole = [np.frombuffer(part[: len(part) // size * size], RECORD) for part in parts]
        return np.concatenate([np.empty(0, RECORD), *whole])

    def _wrong(self, found: npt.NDArray[Any], first: int, wanted: LongArray) -> int:
        """Return how many points have no result that they should have, another, or two."""
        times = np.bincount(found["id"] - first, minlength=len(wanted))
        matches = np.zeros(len(wanted), np.int64)
        matches[found["id"] - first] = found["matches"]
        wrong = (matches != wanted) | (times != (wanted > 0))
        place = found["id"] % POINTS
        known = place < BRUTE_FORCE_POINTS
        bad = self._world.sums[place[known]] != found["query_ids"][known]
        wrong[(found["id"] - first)[known][bad]] = True
        return int(wrong.sum())
