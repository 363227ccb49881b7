"""``sparkswarm bench latency``: from the moment a point is due to its result in the sink.

Points come at a fixed rate from files that are appended to (:mod:`~.appended_points`), which all
modes read: micro-batches, and Real-time Mode in one stage and in two. A point is *due* at its place
in the rate: where the source, Spark or a task falls behind, the wait counts. The first seconds of
each run are its warm-up and are left out. Points without a result have no latency. With ``hotspot``
a run at the last rate follows, in which all points are in one place.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt
from pyspark.sql import DataFrame, Row, SparkSession

from sparkswarm.bench.appended_points import AppendedPoints
from sparkswarm.bench.inputs import (
    QUERIES_SCHEMA,
    Inputs,
    compare_all,
    count_matches,
    write_inputs,
)
from sparkswarm.bench.kafka_points import KafkaPoints
from sparkswarm.bench.latency_results import (
    HotspotRun,
    LatencyRun,
    LatencySettings,
    ModeRuns,
    OneRun,
)
from sparkswarm.compiled import FloatArray, LongArray
from sparkswarm.config import SwarmConfig
from sparkswarm.errors import WorkloadError
from sparkswarm.observe.progress import Progress
from sparkswarm.protocol.plan import Plan
from sparkswarm.spark.engine import Swarm
from sparkswarm.spark.handle import Handle
from sparkswarm.spark.kafka_sink import KafkaSink
from sparkswarm.spark.realtime_sinks import Foreach, KafkaTopic
from sparkswarm.spark.session import session

ROUND_SECONDS = 1.0

HOTSPOT_SIDE = 0.1
"""Side of the square with all points of a hotspot, as a share of the space."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class SentPoints:
    """Points that were sent: of each result the point's number and its latency.

    ``expected`` is the number of points that should have a result, ``wrong`` how many have another.
    """

    start: float
    number: LongArray
    ms: FloatArray
    expected: int
    wrong: int

    @property
    def results(self) -> int:
        """Number of results that came."""
        return len(self.number)


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
        # By owner, tasks that match have slots of their own.
        partitions = 1 if mode == "by_owner" else settings.executors
        self._source: AppendedPoints | KafkaPoints = (
            KafkaPoints(settings.kafka, partitions)
            if settings.kafka
            else AppendedPoints(folder / "points", partitions)
        )
        self._next = 0
        self._plans: list[tuple[float, int]] = []

    def measure(self, on_step: OnStep) -> ModeRuns:
        """Measure all rates, each as often as is asked for."""
        rates = self._settings.rates
        on_step(f"{self._mode}: loading {self._settings.queries:,} queries")
        runs: dict[int, list[OneRun]] = {rate: [] for rate in rates}
        hotspot = None
        handle = self._start()
        try:
            for _ in range(self._settings.repeat):
                for rate in rates:
                    on_step(f"{self._mode}: {rate:,} points/s")
                    runs[rate].append(self._run(handle, rate))
            if self._settings.hotspot:
                on_step(f"{self._mode}: hotspot")
                calm = median(one.p50_ms for one in runs[rates[-1]])
                hotspot = self._run_hotspot(handle, rates[-1], calm)
        finally:
            handle.stop()
            self._source.close()
            shutil.rmtree(self._folder / "checkpoint", ignore_errors=True)
        return ModeRuns(runs, hotspot)

    def _start(self) -> Handle:
        settings, inputs = self._settings, self._world.inputs
        config = SwarmConfig(
            bounds=inputs.bounds.edges,
            grid=(1000, 1000),
            executors=settings.executors,
            shared_host=self._mode != "by_owner",
            round_seconds=ROUND_SECONDS,
        )
        queries = self._spark.read.schema(QUERIES_SCHEMA).parquet(str(inputs.queries_folder))
        recorder = Recorder(str(self._folder / "results"))
        given: dict[str, Any] = {
            "preload": queries,
            "checkpoint": str(self._folder / "checkpoint"),
            "observers": [self._see_plan],
        }
        live = self._mode != "micro_batch"
        if isinstance(source := self._source, KafkaPoints):
            to = str(settings.kafka), source.topic
            given["sink"] = KafkaTopic(*to) if live else KafkaSink(*to, source.topic)
        else:
            given["sink"] = Foreach(recorder) if live else recorder.write_batch
        if live:
            given["trigger"] = {"realTime": settings.trigger}
        points = self._source.stream(self._spark).select("id", "x", "y")
        return Swarm(self._spark, config).start(points, **given)

    def _see_plan(self, progress: Progress, plan: Plan, decisions: object) -> None:
        """Note when a plan is another than the one before; tasks were just pointed to it."""
        if not self._plans or self._plans[-1][1] != plan.version:
            self._plans.append((time.time(), plan.version))

    def _run(self, handle: Handle, rate: int) -> OneRun:
        """Send points at a rate; return their latencies, without those of the warm-up."""
        settings = self._settings
        total = round(rate * (settings.warm_up + settings.seconds))
        places = np.arange(self._next, self._next + total) % POINTS
        sent = self._send_all(handle, rate, places)
        chosen = sent.number >= round(rate * settings.warm_up)
        if not chosen.any():
            late = sent.results < sent.expected
            raise WorkloadError(
                f"{rate:,} points/s: {sent.results} of {sent.expected} points with results had "
                f"them in time, none of these after the warm-up; give "
                + ("a lower rate" if late else "more --queries or --seconds")
            )
        p50, p99 = np.percentile(sent.ms[chosen], [50, 99]).tolist()
        return OneRun(
            p50_ms=p50, p99_ms=p99, results=int(chosen.sum()), checked=total, wrong=sent.wrong
        )

    def _run_hotspot(self, handle: Handle, rate: int, calm_p50_ms: float) -> HotspotRun:
        """Send points of one place only; return what that does."""
        world, bounds = self._world, self._world.inputs.bounds
        width, height = bounds.max_x - bounds.min_x, bounds.max_y - bounds.min_y
        hot = np.flatnonzero(
            (world.x < bounds.min_x + HOTSPOT_SIDE * width)
            & (world.y < bounds.min_y + HOTSPOT_SIDE * height)
        )
        if not len(hot):
            raise WorkloadError("no point is in the hotspot; there are too few")
        total = round(rate * self._settings.seconds)
        sent = self._send_all(handle, rate, hot[np.arange(total) % len(hot)])
        second = sent.number // rate
        by_second = [sent.ms[second == s] for s in range(round(self._settings.seconds))]
        return HotspotRun(
            calm_p50_ms=calm_p50_ms,
            p50_ms=tuple(float(np.median(some)) for some in by_second if len(some)),
            moves_s=tuple(at - sent.start for at, _ in self._plans if at > sent.start),
            checked=total,
            wrong=sent.wrong,
        )

    def _send_all(self, handle: Handle, rate: int, places: LongArray) -> SentPoints:
        """Send points at a rate, and wait for their results; ``places`` are those in the world."""
        first, start, total = self._next, time.time() + 0.1, len(places)
        self._next += total
        sent = 0
        while sent < total:
            due = min(total, int((time.time() - start) * rate) + 1)
            if due > sent:
                number, some = np.arange(sent, due), places[sent:due]
                at = ((start + number / rate) * 1e6).astype(np.int64)
                self._source.add(first + number, self._world.x[some], self._world.y[some], at)
                sent = due
            time.sleep(TICK_SECONDS)
        wanted = self._world.matches[places]
        expected = int((wanted > 0).sum())
        found = self._wait(handle, first, expected)
        number = found["id"] - first
        return SentPoints(
            start=start,
            number=number,
            ms=(found["at"] - start - number / rate) * 1e3,
            expected=expected,
            wrong=self._wrong(found, number, places, wanted),
        )

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

    def _wrong(
        self, found: npt.NDArray[Any], number: LongArray, places: LongArray, wanted: LongArray
    ) -> int:
        """Return how many points have no result that they should have, another, or two."""
        times = np.bincount(number, minlength=len(wanted))
        matches = np.zeros(len(wanted), np.int64)
        matches[number] = found["matches"]
        wrong = (matches != wanted) | (times != (wanted > 0))
        known = places[number] < BRUTE_FORCE_POINTS
        bad = self._world.sums[places[number[known]]] != found["query_ids"][known]
        wrong[number[known][bad]] = True
        return int(wrong.sum())
