"""``sparkswarm bench engine``: the engine, plain Spark and the matching kernel on the same files.

Measures the throughput of each, with and without changing queries; the time of a small batch;
the cost of moving a partition; the memory of queries. Times are wall clock: the time of a batch
is Spark's ``triggerExecution``, for the engine and for plain Spark.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from sparkswarm.bench.inputs import (
    CHANGES_SCHEMA,
    POINTS_SCHEMA,
    QUERIES_SCHEMA,
    Centres,
    Inputs,
    brute_force_sample,
    write_inputs,
)
from sparkswarm.bench.kernel import kernel_points_per_second
from sparkswarm.bench.memory import MemoryWatch
from sparkswarm.bench.plain_spark import (
    WARM_UP,
    batch_seconds,
    bench_session,
    run_plain_spark,
)
from sparkswarm.config import SwarmConfig
from sparkswarm.protocol.partition import PlanChange, moved
from sparkswarm.protocol.plan import Plan
from sparkswarm.spark.engine import Swarm
from sparkswarm.spark.handle import Handle
from sparkswarm.spark.sinks import NoopSink, Sink

GRID = (1000, 1000)
SMALL_POINTS, SMALL_EXECUTORS, SMALL_BATCHES = 1000, 4, 24
MOVED_QUERIES = 100_000
CELL_SIDE = {"uniform": 1.0, "cities": 0.5}
"""The best cells for plain Spark: with few results per point, and with many."""

OnStep = Callable[[str], None]


@dataclass(frozen=True)
class EngineSettings:
    """The size of the benchmark.

    Attributes
    ----------
    batches, points, queries
        Batches, points per batch and queries of the throughput runs.
    many_queries
        Number of queries in the memory run; 0 skips it.
    centres
        Distribution of queries: ``uniform`` (a few results per point) or ``cities`` (hundreds).
    repeat
        Number of measurements of each throughput, engine and rival in turns.
    cores
        Number of cores, and of executors, of the throughput runs.
    seed
        Seed of all random numbers.
    """

    batches: int = 12
    points: int = 1_000_000
    queries: int = 1_000_000
    many_queries: int = 8_000_000
    centres: Centres = "uniform"
    repeat: int = 3
    cores: int = 2
    seed: int = 0

    @property
    def steps(self) -> int:
        """Number of calls of ``on_step``, for a progress bar."""
        return 6 + 4 * self.repeat + bool(self.many_queries)


@dataclass
class EngineRun:
    """The results; ``to_json`` is what ``--json`` writes."""

    settings: EngineSettings
    swarm: list[float] = field(default_factory=list)
    swarm_churn: list[float] = field(default_factory=list)
    plain: list[float] = field(default_factory=list)
    plain_churn: list[float] = field(default_factory=list)
    kernel: float = 0.0
    small_batch: float = 0.0
    move_overhead: float = 0.0
    memory: dict[str, float] = field(default_factory=dict)
    profile: dict[str, float] = field(default_factory=dict)
    checked: int = 0
    wrong: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return the numbers; throughputs are medians of the repetitions, in points per second."""
        swarm, churn = median(self.swarm), median(self.swarm_churn)
        plain, plain_churn = median(self.plain), median(self.plain_churn)
        return {
            "points_per_s": round(swarm),
            "points_per_s_churn": round(churn),
            "rivals": {
                "plain_spark": round(plain),
                "plain_spark_churn": round(plain_churn),
                "kernel": round(self.kernel),
            },
            "ratio": {
                "plain_spark": round(swarm / plain, 3),
                "plain_spark_churn": round(churn / plain_churn, 3),
                "kernel": round(swarm / self.kernel, 3),
            },
            "small_batch_s": round(self.small_batch, 3),
            "bytes_per_query": round(self.memory.get("bytes_per_query", 0.0), 1),
            "memory": {name: round(value, 2) for name, value in self.memory.items()},
            "move_overhead": round(self.move_overhead, 3),
            "profile": {name: round(value, 3) for name, value in self.profile.items()},
            "oracle": {"checked": self.checked, "wrong": self.wrong},
            "runs": {
                "swarm": [round(v) for v in self.swarm],
                "swarm_churn": [round(v) for v in self.swarm_churn],
                "plain_spark": [round(v) for v in self.plain],
                "plain_spark_churn": [round(v) for v in self.plain_churn],
            },
            "settings": vars(self.settings) | {"warm_up_batches": WARM_UP},
        }


def run_engine(settings: EngineSettings, on_step: OnStep = lambda _: None) -> EngineRun:
    """Run the benchmark; ``on_step`` is called with the name of each step."""
    run = EngineRun(settings)
    s = settings
    with tempfile.TemporaryDirectory() as folder:
        on_step("writing inputs")
        inputs = write_inputs(
            Path(folder, "inputs"), s.batches, s.points, s.queries, seed=s.seed, centres=s.centres
        )
        small = write_inputs(
            Path(folder, "small"),
            SMALL_BATCHES,
            SMALL_POINTS,
            s.queries,
            seed=s.seed,
            centres=s.centres,
            files_per_batch=1,
        )
        on_step("the kernel alone")
        run.kernel = kernel_points_per_second(inputs, min(3, s.batches), s.cores)
        spark = bench_session("sparkswarm bench engine", s.cores)
        try:
            bench = _Bench(spark, Path(folder), s)
            for number in range(s.repeat):
                for churn, ours, theirs in (
                    (False, run.swarm, run.plain),
                    (True, run.swarm_churn, run.plain_churn),
                ):
                    what = f"{' with churn' if churn else ''}, {number + 1} of {s.repeat}"
                    on_step(f"sparkswarm{what}")
                    ours.append(s.points / median(bench.seconds(inputs, churn)))
                    on_step(f"plain Spark{what}")
                    rival = run_plain_spark(
                        spark,
                        inputs,
                        s.batches,
                        churn,
                        count=False,
                        cell_side=CELL_SIDE[s.centres],
                    )
                    theirs.append(rival.points_per_second)
            on_step("checking a sample against brute force")
            for churn in (False, True):
                checked, wrong = bench.oracle(inputs, churn)
                run.checked += checked
                run.wrong += wrong
            on_step("small batches")
            run.small_batch = median(bench.seconds(small, False, SMALL_EXECUTORS))
            on_step("moving partitions")
            run.move_overhead = bench.move_overhead(inputs)
            on_step("where the time goes")
            run.profile = bench.profile(inputs)
            if s.many_queries:
                on_step(f"{s.many_queries:,} queries")
                run.memory = bench.memory(s.many_queries)
        finally:
            spark.stop()
    return run


class _Bench:
    """Runs the engine on files."""

    def __init__(self, spark: SparkSession, folder: Path, settings: EngineSettings) -> None:
        self._spark = spark
        self._folder = folder
        self._settings = settings
        self._runs = 0

    def start(
        self,
        inputs: Inputs,
        churn: bool,
        executors: int | None = None,
        sink: Sink | None = None,
        config: dict[str, Any] | None = None,
    ) -> Handle:
        """Start the engine on all of some inputs, with its queries preloaded."""
        self._runs += 1
        swarm = Swarm(
            self._spark,
            SwarmConfig(
                bounds=inputs.bounds.edges,
                grid=GRID,
                executors=executors or self._settings.cores,
                **{"round_batches": 1, **(config or {})},
            ),
        )
        points = (
            self._spark.readStream.schema(POINTS_SCHEMA)
            .option("maxFilesPerTrigger", inputs.files_per_batch)
            .parquet(str(inputs.points_folder))
        )
        changes = (
            self._spark.readStream.schema(CHANGES_SCHEMA)
            .option("maxFilesPerTrigger", 1)
            .parquet(str(inputs.changes_folder))
        )
        return swarm.start(
            points,
            changes if churn else None,
            preload=self._spark.read.schema(QUERIES_SCHEMA).parquet(str(inputs.queries_folder)),
            sink=sink or NoopSink(),
            checkpoint=str(self._folder / f"run-{self._runs}"),
            trigger={"availableNow": True},
        )

    def seconds(self, inputs: Inputs, churn: bool, executors: int | None = None) -> list[float]:
        """Return the seconds of every batch after the warm-up."""
        handle = self.start(inputs, churn, executors)
        handle.await_termination()
        return list(batch_seconds(handle.query).values())[WARM_UP:]

    def oracle(self, inputs: Inputs, churn: bool) -> tuple[int, int]:
        """Check a sample of the last batch by brute force; return its size and the number wrong."""
        last = inputs.batches - 1
        ids, expected = brute_force_sample(inputs, last, churn)
        found: dict[int, int] = {}

        def sink(results: DataFrame, batch: int) -> None:
            if batch == last:
                chosen = results.where(F.col("id").isin(ids.tolist()))
                rows = chosen.select("id", F.size("query_ids")).collect()
                found.update({row[0]: row[1] for row in rows})
            else:
                NoopSink()(results, batch)

        self.start(inputs, churn, sink=sink).await_termination()
        got = [found.get(int(i), 0) for i in ids]
        return len(got), sum(a != b for a, b in zip(got, expected.tolist(), strict=True))

    def move_overhead(self, inputs: Inputs) -> float:
        """Return the relative overhead of a batch in which a large partition moves.

        Every other batch, one partition of about 100,000 queries changes its executor.
        """
        executors = max(2, round(self._settings.queries / MOVED_QUERIES))
        holder: dict[str, Handle] = {}
        moves: list[int] = []

        def sink(results: DataFrame, batch: int) -> None:
            NoopSink()(results, batch)
            if batch % 2 and "handle" in holder:
                moves.append(batch + 1)
                holder["handle"]._run.force_changes(lambda plan: _move_one(plan, batch))

        quiet = {"round_batches": 10**6}
        holder["handle"] = self.start(inputs, False, executors, sink, quiet)
        holder["handle"].await_termination()
        seconds = list(batch_seconds(holder["handle"].query).values())
        # Relative to the neighbouring batches, because the speed of a machine varies.
        ratios = [
            2 * seconds[batch] / (seconds[batch - 1] + seconds[batch + 1])
            for batch in moves
            if WARM_UP < batch < len(seconds) - 1
        ]
        return median(ratios) - 1 if ratios else 0.0

    def memory(self, queries: int) -> dict[str, float]:
        """Register many queries, match points against them, and measure the memory."""
        s = self._settings
        inputs = write_inputs(
            self._folder / "many", 3, s.points, queries, 0.0, s.seed, centres=s.centres
        )
        with MemoryWatch() as watch:
            handle = self.start(inputs, False)
            handle.await_termination()
        commit = handle._run.epochs.last_commit()
        assert commit is not None
        files = commit.manifest.files()
        ledger = sum(ref.size for ref in files if ref.name.startswith("ledger/"))
        stored = sum(ref.size for ref in files)
        progress = handle.status()
        return {
            "queries": float(queries),
            "bytes_per_query": stored / queries,
            "bytes_per_query_matched": (stored - ledger) / queries,
            "peak_gb": watch.peak / 2**30,
            "matches": float(progress.matches),
        }

    def profile(self, inputs: Inputs) -> dict[str, float]:
        """Return the seconds that each step adds to a batch.

        The same files are read as a static DataFrame; the remaining time of a micro-batch is the
        bookkeeping of Spark's stream and of the engine.
        """
        from sparkswarm.bench.profile import profile_batch

        handle = self.start(inputs, False)
        handle.await_termination()
        return profile_batch(self._spark, handle, inputs)


def _move_one(plan: Plan, turn: int) -> tuple[Plan, list[PlanChange]]:
    """Move the plan's oldest partition to the next executor."""
    ids, plan = plan.reserve(1)
    partition = plan.partitions[0]
    giver = partition.owners[0]
    change = moved(partition, giver, (giver + 1) % plan.executors, ids[0])
    return plan.apply([change]), [change]
