"""``sparkswarm bench engine``: the engine and its rivals on the same files.

Measures throughput beside plain Spark and DuckDB, with and without changing queries; beside a
stream in which nothing is matched, and beside the matching kernel alone; small batches; the cost of
moving a partition and of cutting the space finely; the memory of queries. Times are wall clock: the
time of a batch is Spark's ``triggerExecution``, for the engine and for plain Spark.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from statistics import median
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from sparkswarm.bench.duckdb_rival import run_duckdb
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
from sparkswarm.errors import MissingExtraError
from sparkswarm.geometry import CellRect
from sparkswarm.protocol.partition import PlanChange, moved, split
from sparkswarm.protocol.plan import Plan
from sparkswarm.spark.driver.layout import ResultShape
from sparkswarm.spark.engine import Swarm
from sparkswarm.spark.handle import Handle
from sparkswarm.spark.sinks import NoopSink, ParquetSink, Sink

GRID = (1000, 1000)
SMALL_POINTS, SMALL_EXECUTORS, SMALL_BATCHES = 1000, 4, 24
SMALL_OPERATIONS = 100
MOVED_QUERIES = 100_000
FEW_PARTITIONS, MANY_PARTITIONS = 8, 300
WRITTEN_RESULTS, WRITTEN_SHARE = 40, 4
"""Results per point where writing is measured, with a fourth of the points and queries."""

CELL_SIDE = {"uniform": 1.0, "cities": 0.5}
"""The best cells for plain Spark: with few results per point, and with many."""

OnStep = Callable[[str], None]

MEASUREMENTS = {
    "pairs": "sparkswarm, pairs",
    "plain_spark": "plain Spark, pairs",
    "churn": "sparkswarm, pairs, 1% of the queries change",
    "plain_spark_churn": "plain Spark, pairs, 1% of the queries change",
    "lists": "sparkswarm, lists",
    "plain_spark_lists": "plain Spark, lists",
    "shuffled": "sparkswarm, lists, no shared host",
    "empty": "the stream without matching",
    "files": "sparkswarm, pairs to Parquet files",
    "duckdb": "DuckDB, pairs to Parquet files",
    "tasks_write": "40 results per point, written by tasks",
    "spark_writes": "40 results per point, written by Spark",
}
"""What is measured in turns, ``repeat`` times."""


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
        Number of measurements of each throughput, engine and rivals in turns.
    cores
        Number of cores, and of executors, of the throughput runs.
    seed
        Seed of all random numbers.
    """

    batches: int = 8
    points: int = 1_000_000
    queries: int = 1_000_000
    many_queries: int = 8_000_000
    centres: Centres = "uniform"
    repeat: int = 2
    cores: int = 2
    seed: int = 0

    @property
    def steps(self) -> int:
        """Number of calls of ``on_step``, for a progress bar."""
        return 9 + len(MEASUREMENTS) * self.repeat + bool(self.many_queries)


@dataclass
class EngineRun:
    """The results; ``to_json`` is what ``--json`` writes.

    ``seconds`` has the median seconds of a batch by the keys of :data:`MEASUREMENTS`, one for each
    repetition; empty where something could not be measured.
    """

    settings: EngineSettings
    seconds: dict[str, list[float]] = field(
        default_factory=lambda: {name: [] for name in MEASUREMENTS}
    )
    kernel: float = 0.0
    small_batch: float = 0.0
    small_batch_operations: float = 0.0
    move_overhead: float = 0.0
    partitions_ratio: Mapping[str, float] = field(default_factory=dict)
    memory: dict[str, float] = field(default_factory=dict)
    profile: dict[str, float] = field(default_factory=dict)
    checked: int = 0
    wrong: int = 0
    notes: list[str] = field(default_factory=list)

    def rate(self, name: str) -> int | None:
        """Return the points per second in the median repetition; None where not measured."""
        seconds = self.seconds[name]
        return round(self.settings.points / median(seconds)) if seconds else None

    def ratio(self, ours: str, other: str) -> float | None:
        """Return the throughput of one relative to that of another."""
        mine, others = self.seconds[ours], self.seconds[other]
        return round(median(others) / median(mine), 3) if mine and others else None

    def to_json(self) -> dict[str, Any]:
        """Return the numbers; throughputs are medians of the repetitions, in points per second."""
        lists = self.rate("lists") or 0
        return {
            "points_per_s": lists,
            "points_per_s_pairs": self.rate("pairs"),
            "points_per_s_churn": self.rate("churn"),
            "points_per_s_files": self.rate("files"),
            "points_per_s_shuffled": self.rate("shuffled"),
            "points_per_s_empty": self.rate("empty"),
            "rivals": {
                "plain_spark": self.rate("plain_spark"),
                "plain_spark_lists": self.rate("plain_spark_lists"),
                "plain_spark_churn": self.rate("plain_spark_churn"),
                "duckdb": self.rate("duckdb"),
                "kernel": round(self.kernel),
            },
            "ratio": {
                "plain_spark": self.ratio("pairs", "plain_spark"),
                "plain_spark_lists": self.ratio("lists", "plain_spark_lists"),
                "plain_spark_churn": self.ratio("churn", "plain_spark_churn"),
                "duckdb": self.ratio("files", "duckdb"),
                "duckdb_through_spark": self.ratio("pairs", "duckdb"),
                "empty_pipeline": self.ratio("lists", "empty"),
                # Of times, not of throughputs.
                "churn_to_calm": self.ratio("pairs", "churn"),
                **self.partitions_ratio,
                "direct_sink": self.ratio("tasks_write", "spark_writes"),
                "one_host_to_shuffled": self.ratio("lists", "shuffled"),
                "kernel": round(lists / self.kernel, 3) if self.kernel else None,
            },
            "small_batch_s": round(self.small_batch, 3),
            "small_batch_operations_s": round(self.small_batch_operations, 3),
            "bytes_per_query": round(self.memory.get("bytes_per_query", 0.0), 1),
            "memory": {name: round(value, 2) for name, value in self.memory.items()},
            "move_overhead": round(self.move_overhead, 3),
            "profile": {name: round(value, 3) for name, value in self.profile.items()},
            "oracle": {"checked": self.checked, "wrong": self.wrong},
            "seconds": {n: [round(v, 3) for v in found] for n, found in self.seconds.items()},
            "notes": self.notes,
            "settings": vars(self.settings) | {"warm_up_batches": WARM_UP},
        }


def run_engine(settings: EngineSettings, on_step: OnStep = lambda _: None) -> EngineRun:
    """Run the benchmark; ``on_step`` is called with the name of each step."""
    run = EngineRun(settings)
    s = settings
    with tempfile.TemporaryDirectory() as folder:
        on_step("writing inputs")
        bench = _Bench(Path(folder), s)
        on_step("the kernel alone")
        run.kernel = kernel_points_per_second(bench.inputs, min(3, s.batches), s.cores)
        bench.spark = spark = bench_session("sparkswarm bench engine", s.cores)
        try:
            on_step("warming up")
            # Java compiles in the first runs of a session: neither side may profit from that.
            for name in ("pairs", "plain_spark"):
                bench.measure(name)
            for number in range(s.repeat):
                for name, what in MEASUREMENTS.items():
                    on_step(f"{what}, {number + 1} of {s.repeat}")
                    try:
                        seconds = bench.measure(name)
                    except MissingExtraError as error:
                        seconds = []
                        run.notes += [str(error)] if str(error) not in run.notes else []
                    run.seconds[name] += [median(seconds[WARM_UP:])] if seconds else []
            on_step("checking a sample against brute force")
            for churn in (False, True):
                checked, wrong = bench.oracle(churn)
                run.checked += checked
                run.wrong += wrong
            on_step("small batches")
            run.small_batch = median(bench.small_seconds(False)[WARM_UP:])
            on_step("small batches with operations")
            run.small_batch_operations = median(bench.small_seconds(True)[WARM_UP:])
            on_step("moving partitions")
            run.move_overhead = bench.move_overhead()
            on_step(f"{MANY_PARTITIONS} partitions")
            run.partitions_ratio = {
                f"partitions_{MANY_PARTITIONS}_to_{FEW_PARTITIONS}": bench.cut_ratio(False),
                f"partitions_{MANY_PARTITIONS}_to_{FEW_PARTITIONS}_churn": bench.cut_ratio(True),
            }
            on_step("where the time goes")
            run.profile = bench.profile()
            if s.many_queries:
                on_step(f"{s.many_queries:,} queries")
                run.memory = bench.memory(s.many_queries)
        finally:
            spark.stop()
    return run


class _Bench:
    """Runs the engine and its rivals on files."""

    spark: SparkSession

    def __init__(self, folder: Path, settings: EngineSettings) -> None:
        s = settings
        self._folder = folder
        self._settings = s
        self._runs = 0
        self.inputs = self._write("inputs", s.batches, s.points, s.queries)
        self._small = self._write(
            "small", SMALL_BATCHES, SMALL_POINTS, s.queries, files=1, changes=SMALL_OPERATIONS
        )
        # Of n queries with side a, uniform in the space, n a^2 contain a point.
        queries = max(WRITTEN_RESULTS, s.queries // WRITTEN_SHARE)
        self._written = self._write(
            "written",
            min(s.batches, 6),
            max(s.cores, s.points // WRITTEN_SHARE),
            queries,
            side=(WRITTEN_RESULTS / queries) ** 0.5,
            centres="uniform",
        )

    def _write(
        self,
        name: str,
        batches: int,
        points: int,
        queries: int,
        files: int = 4,
        changes: int | None = None,
        **kwargs: Any,
    ) -> Inputs:
        """Write inputs; ``changes`` is the number of changed queries per batch, by default 1%."""
        share = 0.01 if changes is None else min(1.0, changes / queries)
        given = {"seed": self._settings.seed, "centres": self._settings.centres, **kwargs}
        return write_inputs(
            self._folder / name, batches, points, queries, share, files_per_batch=files, **given
        )

    def measure(self, name: str) -> list[float]:
        """Return the seconds of every batch; none where the engine has no such way."""
        match name:
            case "pairs" | "lists" | "churn":
                shape: ResultShape = "points" if name == "lists" else "pairs"
                return self.seconds(self.inputs, name == "churn", results=shape)
            case "shuffled":
                return self.seconds(self.inputs, False, config={"shared_host": False})
            case "empty":
                return self.seconds(self.inputs, False, matched=False)
            case "plain_spark" | "plain_spark_lists" | "plain_spark_churn":
                return self._plain_spark(name)
            case "duckdb":
                with tempfile.TemporaryDirectory(dir=self._folder) as files:
                    s = self._settings
                    return run_duckdb(self.inputs, s.batches, s.cores, Path(files))
            case "files":
                return self._written_seconds(self.inputs, {})
            case "tasks_write" | "spark_writes":
                if "writer" not in {f.name for f in fields(ParquetSink)}:
                    return []
                by_spark = {"writer": "spark"} if name == "spark_writes" else {}
                return self._written_seconds(self._written, by_spark)
        raise ValueError(name)

    def _plain_spark(self, name: str) -> list[float]:
        s = self._settings
        rival = run_plain_spark(
            self.spark,
            self.inputs,
            s.batches,
            name == "plain_spark_churn",
            count=False,
            cell_side=CELL_SIDE[s.centres],
            lists=name == "plain_spark_lists",
        )
        return [0.0] * WARM_UP + rival.seconds

    def _written_seconds(self, inputs: Inputs, options: Mapping[str, Any]) -> list[float]:
        """Return the seconds of batches whose pairs are written to Parquet files."""
        results = self._folder / "results"
        sink = ParquetSink(str(results), **options)
        try:
            return self.seconds(inputs, False, sink=sink, results="pairs")
        finally:
            shutil.rmtree(results, ignore_errors=True)

    def small_seconds(self, operations: bool) -> list[float]:
        """Return the seconds of small batches."""
        return self.seconds(self._small, operations, executors=SMALL_EXECUTORS)

    def start(
        self,
        inputs: Inputs,
        churn: bool,
        executors: int | None = None,
        sink: Sink | None = None,
        config: Mapping[str, Any] | None = None,
        results: ResultShape = "points",
        matched: bool = True,
    ) -> Handle:
        """Start the engine on all of some inputs, with its queries preloaded."""
        self._runs += 1
        swarm = Swarm(
            self.spark,
            SwarmConfig(
                bounds=inputs.bounds.edges,
                grid=GRID,
                executors=executors or self._settings.cores,
                **(config or {}),
            ),
        )
        points = (
            self.spark.readStream.schema(POINTS_SCHEMA)
            .option("maxFilesPerTrigger", inputs.files_per_batch)
            .parquet(str(inputs.points_folder))
        )
        changes = (
            self.spark.readStream.schema(CHANGES_SCHEMA)
            .option("maxFilesPerTrigger", 1)
            .parquet(str(inputs.changes_folder))
        )
        queries = self.spark.read.schema(QUERIES_SCHEMA).parquet(str(inputs.queries_folder))
        return swarm.start(
            points,
            changes if churn else None,
            preload=queries if matched else None,
            sink=sink or NoopSink(),
            checkpoint=str(self._folder / f"run-{self._runs}"),
            results=results,
            trigger={"availableNow": True},
        )

    def seconds(self, inputs: Inputs, churn: bool, **kwargs: Any) -> list[float]:
        """Return the seconds of every batch; takes what :meth:`start` does."""
        handle = self.start(inputs, churn, **kwargs)
        handle.await_termination()
        shutil.rmtree(self._folder / f"run-{self._runs}", ignore_errors=True)
        return list(batch_seconds(handle.query).values())

    def oracle(self, churn: bool) -> tuple[int, int]:
        """Check a sample of the last batch by brute force; return its size and the number wrong."""
        inputs = self.inputs
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

    def move_overhead(self) -> float:
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
        holder["handle"] = self.start(self.inputs, False, executors, sink, quiet)
        holder["handle"].await_termination()
        seconds = list(batch_seconds(holder["handle"].query).values())
        # Relative to the neighbouring batches, because the speed of a machine varies.
        ratios = [
            2 * seconds[batch] / (seconds[batch - 1] + seconds[batch + 1])
            for batch in moves
            if WARM_UP < batch < len(seconds) - 1
        ]
        return median(ratios) - 1 if ratios else 0.0

    def cut_ratio(self, churn: bool) -> float:
        """Return the time of a batch with many partitions relative to one with few.

        Both in one run: half-way, each partition is cut into pieces, which keep its owner.
        """
        half = max(WARM_UP + 1, self.inputs.batches // 2)
        holder: dict[str, Handle] = {}

        def sink(results: DataFrame, batch: int) -> None:
            NoopSink()(results, batch)
            if batch == half - 1:
                holder["handle"]._run.force_changes(lambda plan: cut(plan, MANY_PARTITIONS))

        quiet = {"round_batches": 10**6}
        holder["handle"] = self.start(self.inputs, churn, FEW_PARTITIONS, sink, quiet)
        holder["handle"].await_termination()
        seconds = list(batch_seconds(holder["handle"].query).values())
        return round(median(seconds[half + 1 :]) / median(seconds[WARM_UP:half]), 3)

    def memory(self, queries: int) -> dict[str, float]:
        """Register many queries, match points against them, and measure the memory."""
        s = self._settings
        inputs = self._write("many", 3, s.points, queries, changes=0)
        with MemoryWatch() as watch:
            handle = self.start(inputs, False)
            handle.await_termination()
        commit = handle._run.epochs.last_commit()
        assert commit is not None
        files = commit.manifest.files()
        by_id = sum(group.directory.size for group in commit.manifest.bases)
        stored = sum(ref.size for ref in files)
        progress = handle.status()
        return {
            "queries": float(queries),
            "bytes_per_query": stored / queries,
            "bytes_per_query_matched": (stored - by_id) / queries,
            "peak_gb": watch.peak / 2**30,
            "matches": float(progress.matches),
        }

    def profile(self) -> dict[str, float]:
        """Return the seconds that each step adds to a batch.

        The same files are read as a static DataFrame; the remaining time of a micro-batch is the
        bookkeeping of Spark's stream and of the engine.
        """
        from sparkswarm.bench.profile import profile_batch

        handle = self.start(self.inputs, False)
        handle.await_termination()
        return profile_batch(self.spark, handle, self.inputs)


def _move_one(plan: Plan, turn: int) -> tuple[Plan, list[PlanChange]]:
    """Move the plan's oldest partition to the next executor."""
    ids, plan = plan.reserve(1)
    partition = plan.partitions[0]
    giver = partition.owners[0]
    change = moved(partition, giver, (giver + 1) % plan.executors, ids[0])
    return plan.apply([change]), [change]


def cut(plan: Plan, partitions: int) -> tuple[Plan, list[PlanChange]]:
    """Cut every partition of a plan into pieces of its owners, for about this many in total."""
    pieces = max(1, partitions // len(plan.partitions))
    changes = []
    for partition in plan.partitions:
        parts = halved(partition.cells, pieces)
        ids, plan = plan.reserve(len(parts))
        changes.append(split(partition, [(cells, partition.shares) for cells in parts], ids[0]))
    return plan.apply(changes), changes


def halved(cells: CellRect, pieces: int) -> list[CellRect]:
    """Halve cells across the longer side again and again, until there are this many pieces."""
    if pieces < 2 or cells.area < 2:
        return [cells]
    by_columns = cells.columns >= cells.rows
    halves = (
        cells.split_columns(cells.columns // 2) if by_columns else cells.split_rows(cells.rows // 2)
    )
    some = pieces // 2
    return [*halved(halves[0], some), *halved(halves[1], pieces - some)]
