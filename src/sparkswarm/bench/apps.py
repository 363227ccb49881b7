"""``sparkswarm bench apps``: every kind of query on the engine and in plain Spark.

Both read the same files. Times are wall clock: the time of a batch is Spark's
``triggerExecution``, for the engine and for its rivals. Plain Spark serves the mix of all kinds
with three streams; they are measured one after another and their times added, which favours them
over running side by side.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from sparkswarm.apps.aggregates.application import Aggregates
from sparkswarm.apps.subscriptions.application import Subscriptions
from sparkswarm.bench.app_inputs import LATE, SECOND, AppInputs, write_app_inputs
from sparkswarm.bench.app_oracle import Checked, check
from sparkswarm.bench.app_rivals import AGGREGATES, ASKS, POINTS, SUBSCRIPTIONS, Rivals
from sparkswarm.bench.plain_spark import WARM_UP, batch_seconds, bench_session
from sparkswarm.config import SwarmConfig
from sparkswarm.observe.progress import Progress
from sparkswarm.spark.columns import PointColumns
from sparkswarm.spark.engine import Swarm
from sparkswarm.spark.handle import Handle
from sparkswarm.spark.sinks import NoopSink, Sink
from sparkswarm.window.windows import Sliding

KINDS = ("subscriptions", "aggregates", "snapshots", "mixed")
WINDOW_SECONDS = 60
GRID = (1000, 1000)

OnStep = Callable[[str], None]


@dataclass(frozen=True)
class AppsSettings:
    """The size of the benchmark.

    Attributes
    ----------
    batches, points
        Batches, and points in each.
    queries, aggregates, asks
        Subscriptions, aggregates, and snapshot queries in each batch.
    repeat
        Number of measurements of each kind, engine and rival in turns.
    cores
        Number of cores, and of executors.
    seed
        Seed of all random numbers.
    kinds
        The kinds of query to measure.
    """

    batches: int = 12
    points: int = 500_000
    queries: int = 500_000
    aggregates: int = 200_000
    asks: int = 200
    repeat: int = 3
    cores: int = 2
    seed: int = 0
    kinds: tuple[str, ...] = KINDS

    @property
    def rivals(self) -> tuple[str, ...]:
        """The kinds that plain Spark is measured with."""
        needed = KINDS if "mixed" in self.kinds else self.kinds
        return tuple(kind for kind in needed if kind != "mixed")

    @property
    def steps(self) -> int:
        """Number of calls of ``on_step``, for a progress bar."""
        return 1 + self.repeat * (len(self.kinds) + len(self.rivals)) + len(self.kinds)


@dataclass
class AppsRun:
    """The results; ``to_json`` is what ``--json`` writes.

    Attributes
    ----------
    swarm, plain
        Seconds of a batch, by kind, one for each repetition.
    stages
        Seconds of each stage of a batch of the engine, by kind.
    oracle
        Results of the comparison with brute force, by kind.
    """

    settings: AppsSettings
    swarm: dict[str, list[float]] = field(default_factory=dict)
    plain: dict[str, list[float]] = field(default_factory=dict)
    stages: dict[str, dict[str, float]] = field(default_factory=dict)
    oracle: dict[str, Checked] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the numbers; throughputs are medians of the repetitions, in points per second."""
        return {kind: self._of(kind) for kind in self.settings.kinds}

    def _of(self, kind: str) -> dict[str, Any]:
        points = self.settings.points
        ours, theirs = median(self.swarm[kind]), median(self.plain[kind])
        return {
            "points_per_s": round(points / ours),
            "plain_spark": round(points / theirs),
            "ratio": round(theirs / ours, 3),
            "oracle": self.oracle[kind]._asdict(),
            "seconds": {name: round(value, 3) for name, value in self.stages[kind].items()},
            "runs": {
                "swarm": [round(points / seconds) for seconds in self.swarm[kind]],
                "plain_spark": [round(points / seconds) for seconds in self.plain[kind]],
            },
        }


def run_apps(settings: AppsSettings, on_step: OnStep = lambda _: None) -> AppsRun:
    """Run the benchmark; ``on_step`` is called with the name of each step."""
    s = settings
    run = AppsRun(s)
    with tempfile.TemporaryDirectory(prefix="sparkswarm-apps-") as folder:
        on_step("writing inputs")
        inputs = write_app_inputs(
            Path(folder, "inputs"),
            batches=s.batches,
            points=s.points,
            queries=s.queries,
            aggregates=s.aggregates,
            asks=s.asks,
            seed=s.seed,
        )
        spark = bench_session("sparkswarm bench apps", s.cores)
        try:
            bench = Bench(spark, inputs, Path(folder), s.cores)
            rivals = Rivals(spark, inputs, WINDOW_SECONDS)
            for number in range(s.repeat):
                for kind in KINDS:
                    if kind in s.kinds:
                        on_step(f"sparkswarm, {kind}, {number + 1} of {s.repeat}")
                        seconds, stages = bench.measure(kind)
                        run.swarm.setdefault(kind, []).append(seconds)
                        run.stages[kind] = stages
                    if kind in s.rivals:
                        on_step(f"plain Spark, {kind}, {number + 1} of {s.repeat}")
                        theirs = median(rivals.seconds(kind)[WARM_UP:])
                        run.plain.setdefault(kind, []).append(theirs)
                if "mixed" in s.kinds:
                    parts = [run.plain[kind][-1] for kind in s.rivals]
                    run.plain.setdefault("mixed", []).append(sum(parts))
            for kind in s.kinds:
                on_step(f"checking {kind} against brute force")
                run.oracle[kind] = bench.check(kind)
        finally:
            spark.stop()
    return run


class Bench:
    """Runs the engine on some inputs."""

    def __init__(self, spark: SparkSession, inputs: AppInputs, folder: Path, cores: int) -> None:
        self._spark = spark
        self._inputs = inputs
        self._folder = folder
        self._cores = cores
        self._runs = 0

    def measure(self, kind: str) -> tuple[float, dict[str, float]]:
        """Return the median seconds of a batch, and of its stages."""
        seen: list[Progress] = []
        handle = self.start(kind, {}, lambda progress, *_: seen.append(progress))
        handle.await_termination()
        whole = list(batch_seconds(handle.query).values())
        seen = seen[-len(whole) :]
        stages = {
            name: median(progress.stages[name] for progress in seen[WARM_UP:])
            for name in seen[-1].stages
        }
        stages["of Spark's stream"] = max(0.0, median(whole[WARM_UP:]) - sum(stages.values()))
        stages["executors' work"] = median(sum(p.busy_s) for p in seen[WARM_UP:]) / self._cores
        return median(whole[WARM_UP:]), stages

    def check(self, kind: str) -> Checked:
        """Run once more and compare a sample with brute force."""

        def through(sinks: Mapping[str, Sink]) -> None:
            self.start(kind, sinks).await_termination()

        return check(self._inputs, kind, WINDOW_SECONDS, through)

    def start(self, kind: str, sinks: Mapping[str, Sink], *observers: Any) -> Handle:
        """Start the engine on all inputs, with its queries preloaded."""
        self._runs += 1
        i = self._inputs
        matching = kind in ("subscriptions", "mixed")
        aggregating, keeping = kind in ("aggregates", "mixed"), kind in ("snapshots", "mixed")
        subscriptions = Subscriptions({"speed": "number", "kind": "text"}) if matching else None
        application: Any = subscriptions
        if aggregating:
            application = Aggregates(["speed"], f"{LATE // SECOND} s", of=subscriptions)
        wanted: dict[str, Any] = {}
        if matching:
            wanted["sink"] = NoopSink()
        if aggregating:
            wanted["summaries"] = NoopSink()
        if keeping:
            wanted["answers"] = NoopSink()
        config = SwarmConfig(
            bounds=i.bounds.edges,
            grid=GRID,
            executors=self._cores,
        )
        window = Sliding(f"{WINDOW_SECONDS} s") if keeping else None
        files = self._spark.readStream.option("maxFilesPerTrigger", i.files_per_batch)
        asks = self._spark.readStream.option("maxFilesPerTrigger", 1).schema(ASKS)
        return Swarm(self._spark, config, application, window).start(
            files.schema(POINTS).parquet(str(i.folder / "points")),
            asks.parquet(str(i.folder / "asks")) if keeping else None,
            preload=self._preload(matching, aggregating),
            checkpoint=str(self._folder / f"run-{self._runs}"),
            point_columns=PointColumns(time="ts", include=("speed",) if keeping else ()),
            trigger={"availableNow": True},
            observers=observers,
            **(wanted | {name: sink for name, sink in sinks.items() if name in wanted}),
        )

    def _preload(self, matching: bool, aggregating: bool) -> Any:
        some = []
        read = self._spark.read
        if matching:
            path = str(self._inputs.folder / "subscriptions")
            some.append(read.schema(SUBSCRIPTIONS).parquet(path).drop("least_speed", "only_kind"))
        if aggregating:
            some.append(read.schema(AGGREGATES).parquet(str(self._inputs.folder / "aggregates")))
        if not some:
            return None
        first, *rest = some
        for other in rest:
            first = first.unionByName(other, allowMissingColumns=True)
        return first.withColumn("slide", F.lit(None).cast("string")) if aggregating else first
