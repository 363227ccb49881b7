"""``sparkswarm bench engine``: the engine and its rivals on the same files.

Measures throughput beside plain Spark and DuckDB, with and without changing queries; beside a
stream in which nothing is matched, and beside the matching kernel alone; small batches; the cost of
moving a partition and of cutting the space finely; the memory of queries. Times are wall clock: the
time of a batch is Spark's ``triggerExecution``, for the engine and for plain Spark.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import cached_property
from math import ceil
from pathlib import Path
from statistics import median
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from sparkswarm.bench.duckdb_rival import run_duckdb
from sparkswarm.bench.engine_report import MEASUREMENTS, ONCE, EngineRun, EngineSettings
from sparkswarm.bench.inputs import (
    CHANGES_SCHEMA,
    POINTS_SCHEMA,
    QUERIES_SCHEMA,
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
from sparkswarm.spark.point_files import ParquetPoints
from sparkswarm.spark.sinks import NoopSink, ParquetSink, Sink

GRID = (1000, 1000)
SMALL_POINTS, SMALL_EXECUTORS, SMALL_BATCHES = 1000, 4, 24
SMALL_OPERATIONS = 100
MOVED_QUERIES = 100_000
QUERIES_EACH = 2_000_000
"""Queries of an executor where many are registered: a task of the bulk load has them in memory."""
FEW_PARTITIONS, MANY_PARTITIONS = 8, 300
WRITTEN_RESULTS, WRITTEN_SHARE = 40, 4
"""Results per point where writing is measured, with a fourth of the points and queries."""

CELL_SIDE = {"uniform": 1.0, "cities": 0.5}
"""The best cells for plain Spark: with few results per point, and with many."""

OnStep = Callable[[str], None]


def run_engine(settings: EngineSettings, on_step: OnStep = lambda _: None) -> EngineRun:
    """Run the benchmark; ``on_step`` is called with the name of each step."""
    run = EngineRun(settings)
    s = settings
    with tempfile.TemporaryDirectory() as folder:
        on_step("writing inputs")
        bench = _Bench(Path(folder), s)
        bench.spark = spark = bench_session("sparkswarm bench engine", s.cores)
        try:
            if s.in_turns:
                on_step("warming up")
            # Java compiles in the first runs of a session: neither side may profit from that.
            for name in ("pairs", "plain_spark"):
                if name in s.in_turns:
                    bench.measure(name)
            for number in range(s.repeat):
                for name in s.in_turns:
                    on_step(f"{MEASUREMENTS[name]}, {number + 1} of {s.repeat}")
                    try:
                        seconds = bench.measure(name)
                    except MissingExtraError as error:
                        seconds = []
                        run.notes += [str(error)] if str(error) not in run.notes else []
                    run.seconds[name] += [median(seconds[WARM_UP:])] if seconds else []
            for name in s.once:
                on_step(ONCE[name])
                bench.measure_once(name, run)
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

    @cached_property
    def _small(self) -> Inputs:
        return self._write(
            *("small", SMALL_BATCHES, SMALL_POINTS, self._settings.queries),
            files=1,
            changes=SMALL_OPERATIONS,
        )

    @cached_property
    def _written(self) -> Inputs:
        s = self._settings
        # Of n queries with side a, uniform in the space, n a^2 contain a point.
        queries = max(WRITTEN_RESULTS, s.queries // WRITTEN_SHARE)
        return self._write(
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
        """Return the seconds of every batch."""
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
                return self._written_seconds(self.inputs, {}, by_tasks=True)
            case "files_by_spark":
                return self._written_seconds(self.inputs, {})
            case "tasks_write" | "spark_writes":
                by_spark = {"writer": "spark"} if name == "spark_writes" else {}
                return self._written_seconds(self._written, by_spark)
        raise ValueError(name)

    def measure_once(self, name: str, run: EngineRun) -> None:
        """Measure one of :data:`ONCE`; its numbers go to ``run``."""
        s = self._settings
        match name:
            case "kernel":
                run.kernel = kernel_points_per_second(self.inputs, min(3, s.batches), s.cores)
            case "oracle":
                for churn in (False, True):
                    checked, wrong = self.oracle(churn)
                    run.checked += checked
                    run.wrong += wrong
            case "small":
                run.small_batch = median(self.small_seconds(False)[WARM_UP:])
                run.small_batch_operations = median(self.small_seconds(True)[WARM_UP:])
            case "move":
                run.move_overhead = self.move_overhead()
            case "partitions":
                ratio = f"partitions_{MANY_PARTITIONS}_to_{FEW_PARTITIONS}"
                run.partitions_ratio = {
                    ratio: self.cut_ratio(False),
                    f"{ratio}_churn": self.cut_ratio(True),
                }
            case "profile":
                run.profile = self.profile()
            case "memory":
                run.memory = self.memory(s.many_queries)

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

    def _written_seconds(
        self, inputs: Inputs, options: Mapping[str, Any], by_tasks: bool = False
    ) -> list[float]:
        """Return the seconds of batches whose pairs are written to Parquet files."""
        results = self._folder / "results"
        sink = ParquetSink(str(results), **options)
        try:
            return self.seconds(inputs, False, sink=sink, results="pairs", by_tasks=by_tasks)
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
        by_tasks: bool = False,
    ) -> Handle:
        """Start the engine on all of some inputs, with its queries preloaded.

        With ``by_tasks``, tasks read the files of points themselves.
        """
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
        points: DataFrame | ParquetPoints
        if by_tasks:
            folder = str(inputs.points_folder)
            points = ParquetPoints(folder, POINTS_SCHEMA, inputs.files_per_batch)
        else:
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
        inputs = self._write("many", WARM_UP + 1, s.points, queries, changes=0)
        executors = max(s.cores, ceil(queries / QUERIES_EACH))
        with MemoryWatch() as watch:
            began = time.monotonic()
            handle = self.start(inputs, False, executors)
            loaded = time.monotonic()
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
            "load_s": loaded - began,
            "batch_s": list(batch_seconds(handle.query).values())[-1],
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
