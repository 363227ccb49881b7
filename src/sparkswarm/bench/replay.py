"""``sparkswarm bench replay``: a file of points under each policy.

Shows on anybody's data whether SWARM helps. Every policy reads the same files with the same
queries, one after another in one session, each executor standing for a machine of its own
(``shared_host = false``). Beside them, ``one_host`` is the same stream where all executors share
one host. Task times are Spark's own (``executorRunTime``); what the figures mean is in
docs/explanation/benchmarks.md.

The number of results of every batch is compared with an exact count, and those of a sample of
points one by one with brute force.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import median_low
from typing import Any

import numpy as np
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from sparkswarm.bench.drift import write_drift
from sparkswarm.bench.inputs import CHANGES_SCHEMA, POINTS_SCHEMA, QUERIES_SCHEMA
from sparkswarm.bench.plain_spark import batch_seconds, bench_session
from sparkswarm.bench.replay_inputs import (
    FILES_PER_BATCH,
    ReplayStream,
    read_points,
    write_replay,
)
from sparkswarm.bench.task_times import batch_tasks
from sparkswarm.config import PolicyName, SwarmConfig
from sparkswarm.errors import WorkloadError
from sparkswarm.geometry import Bounds
from sparkswarm.observe.progress import HostUse, Progress
from sparkswarm.protocol.plan import Plan
from sparkswarm.spark.engine import Swarm
from sparkswarm.spark.sinks import NoopSink
from sparkswarm.workloads import QUERY_SIDE

WARM_UP = 2
"""First batches of each run; they are listed and do not count."""

COMPILED_AFTER = 8
"""Batches of a first run that is not reported, in which Java compiles its code."""

DRIFT = "drift"
"""Instead of a file: points that are generated, see :mod:`sparkswarm.bench.drift`."""

DEFAULT_POLICIES: tuple[PolicyName, ...] = ("swarm", "static_uniform", "hash_cell", "replicated")

GRID = (1000, 1000)
ROUND_BATCHES = 3
ONE_HOST = "one_host"

OnBatch = Callable[[str, int], None]
"""Called after every batch with the name of the run and the batch."""


@dataclass(frozen=True, kw_only=True)
class ReplaySettings:
    """The parameters of the benchmark.

    Attributes
    ----------
    points
        A Parquet file of points in time order, or ``drift``.
    x, y
        Names of the columns of coordinates; None finds them.
    bounds
        The space; points outside are skipped. None is the extent of the points.
    executors, cores
        Number of executors, and of cores of this machine on which they run.
    queries, side
        Number of queries, and the side of each as a share of the width of the space.
    policies
        The policies to compare.
    batches, points_per_batch
        Number of batches, the warm-up included, and points of each.
    repeat
        Number of runs of each policy. They take turns, and the median run counts: a run's time
        depends on what else the machine does, and on how much of its code Java has compiled.
    churn
        Share of the queries that is updated in each batch.
    seed
        Seed of all random numbers.
    """

    points: str
    x: str | None = None
    y: str | None = None
    bounds: tuple[float, float, float, float] | None = None
    executors: int = 8
    cores: int = 2
    queries: int = 100_000
    side: float = QUERY_SIDE
    policies: tuple[PolicyName, ...] = DEFAULT_POLICIES
    batches: int = 12
    points_per_batch: int = 200_000
    repeat: int = 1
    churn: float = 0.0
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class ReplayBatch:
    """One batch of a run.

    Attributes
    ----------
    seconds
        Wall clock (``triggerExecution``).
    points, matches, lent
        Points, results, and points that another executor matched than the owner of their partition.
    tasks
        Run time of each executor's task, as Spark reports it.
    all_tasks
        Run time of all tasks of the batch: reading and routing too.
    work
        The learnt prices applied to what each executor's task did; empty where unknown.
    partitions
        Partitions of the plan.
    query_bytes, fetched_bytes, hosts
        Bytes of the files with queries, bytes that tasks copied to their hosts, and what each host
        did.
    """

    seconds: float
    points: int
    matches: int
    lent: int
    tasks: tuple[float, ...]
    all_tasks: float
    work: tuple[float, ...]
    partitions: int
    query_bytes: int = 0
    fetched_bytes: int = 0
    hosts: tuple[HostUse, ...] = ()


def balance(values: Sequence[float]) -> float | None:
    """Return mean / max, 1 is perfect; None without values."""
    most = max(values, default=0.0)
    return sum(values) / len(values) / most if most else None


@dataclass(frozen=True)
class ReplaySeries:
    """A run, batch by batch, and the results of its sample of points by id.

    ``runs`` are the points per second of all runs of the policy, of which this is the median.
    """

    batches: list[ReplayBatch]
    sample: Mapping[int, int]
    runs: tuple[float, ...] = ()

    @property
    def measured(self) -> list[ReplayBatch]:
        """The batches after the warm-up."""
        return self.batches[WARM_UP:]

    @property
    def points_per_second(self) -> float:
        """Points of the measured batches over their seconds."""
        return sum(b.points for b in self.measured) / sum(b.seconds for b in self.measured)

    def mean(self, value: Callable[[ReplayBatch], float | None]) -> float | None:
        """Return the mean over the measured batches that have the value."""
        values = [found for b in self.measured if (found := value(b)) is not None]
        return float(np.mean(values)) if values else None

    def to_json(self) -> dict[str, Any]:
        """Return the form that ``--json`` writes."""
        every = self.batches
        return {
            "points_per_s": round(self.points_per_second),
            "runs": [round(rate) for rate in self.runs],
            "seconds": [round(b.seconds, 3) for b in every],
            "balance": [_rounded(balance(b.tasks)) for b in every],
            "work_balance": [_rounded(balance(b.work)) for b in every],
            "longest_task_s": [_rounded(max(b.tasks, default=None)) for b in every],
            "task_s": [round(sum(b.tasks), 4) for b in every],
            "all_task_s": [round(b.all_tasks, 4) for b in every],
            "partitions": [b.partitions for b in every],
            "lent": [round(b.lent / b.points, 4) if b.points else 0.0 for b in every],
            "matches": [b.matches for b in every],
        }


@dataclass(frozen=True)
class ReplayRun:
    """The results.

    Attributes
    ----------
    settings
        The parameters.
    series
        By policy.
    one_host
        The stream on one shared host.
    facts
        About the file: rows skipped, batches used, the bounds, hotspots of ``drift``.
    checked, wrong
        Numbers compared with an exact count, and those that differ.
    """

    settings: ReplaySettings
    series: Mapping[str, ReplaySeries]
    one_host: ReplaySeries
    facts: Mapping[str, Any] = field(default_factory=dict)
    checked: int = 0
    wrong: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return the form that ``--json`` writes."""
        return {
            ONE_HOST: {
                "points_per_s": round(self.one_host.points_per_second),
                "runs": [round(rate) for rate in self.one_host.runs],
                "seconds": [round(b.seconds, 3) for b in self.one_host.batches],
            },
            "policies": {name: series.to_json() for name, series in self.series.items()},
            "oracle": {"checked": self.checked, "wrong": self.wrong},
            "data": dict(self.facts),
            "settings": asdict(self.settings) | {"warm_up_batches": WARM_UP, "grid": GRID},
        }


def run_replay(settings: ReplaySettings, on_batch: OnBatch = lambda run, batch: None) -> ReplayRun:
    """Run every policy; ``on_batch`` is called after every batch.

    Raises
    ------
    WorkloadError
        If the file cannot be used, or has too few points.
    """
    with tempfile.TemporaryDirectory(prefix="sparkswarm-replay-") as temporary:
        stream, facts = prepare(settings, Path(temporary))
        spark = bench_session(
            "sparkswarm bench replay",
            settings.cores,
            {
                # A task for each file, however many cores there are.
                "spark.sql.files.minPartitionNum": str(FILES_PER_BATCH),
                "spark.sql.streaming.numRecentProgressUpdates": str(stream.batches + 100),
                "spark.log.level": "ERROR",
            },
        )
        try:
            return replay_on(spark, stream, settings, facts, on_batch)
        finally:
            spark.stop()


def total_batches(settings: ReplaySettings) -> int:
    """Return the number of calls of ``on_batch``, for a progress bar."""
    return settings.repeat * (len(settings.policies) + 1) * (settings.batches + 1)


def prepare(settings: ReplaySettings, folder: Path) -> tuple[ReplayStream, dict[str, Any]]:
    """Write the stream that all runs read; return it, and facts about the file."""
    s = settings
    facts: dict[str, Any] = {}
    file = Path(s.points)
    if s.points == DRIFT:
        file = folder / "drift.parquet"
        hotspots = write_drift(file, s.batches, s.points_per_batch, s.seed)
        facts["hotspots"] = [[spot.start, spot.stop] for spot in hotspots]
    space = Bounds(*s.bounds) if s.bounds else None
    read = read_points(file, s.batches * s.points_per_batch, (s.x, s.y), space)
    batches = len(read.x) // s.points_per_batch
    if batches <= WARM_UP:
        most = len(read.x) // (WARM_UP + 1)
        advice = f"; use --points-per-batch {most} or less" if most else ""
        raise WorkloadError(
            f"{s.points} has {len(read.x):,} usable points, which are {batches} batches of "
            f"{s.points_per_batch:,}; {WARM_UP + 1} are needed, the first {WARM_UP} to warm "
            f"up{advice}"
        )
    stream = write_replay(
        folder, read.x, read.y, s.points_per_batch, s.queries, s.side, s.churn, s.seed, space
    )
    facts |= {
        "columns": list(read.columns),
        "rows_skipped": read.skipped,
        "batches": stream.batches,
        "bounds": list(stream.bounds.edges),
    }
    return stream, facts


def replay_on(
    spark: SparkSession,
    stream: ReplayStream,
    settings: ReplaySettings,
    facts: Mapping[str, Any] | None = None,
    on_batch: OnBatch = lambda run, batch: None,
) -> ReplayRun:
    """Run every policy on a session, each on a fresh checkpoint, and check all results."""

    def run(name: str, policy: PolicyName, shared: bool, quiet: bool = False) -> ReplaySeries:
        config = SwarmConfig(
            policy=policy,
            bounds=stream.bounds.edges,
            grid=GRID,
            executors=settings.executors,
            round_batches=ROUND_BATCHES,
            shared_host=shared,
        )
        told = (lambda _: None) if quiet else (lambda batch: on_batch(name, batch))
        return replay_policy(spark, stream, config, told, COMPILED_AFTER if quiet else None)

    run("warm-up", settings.policies[0], False, quiet=True)
    named: dict[str, tuple[PolicyName, bool]] = {p: (p, False) for p in settings.policies}
    named[ONE_HOST] = ("swarm", True)
    runs: dict[str, list[ReplaySeries]] = {name: [] for name in named}
    for _ in range(settings.repeat):
        for name, (policy, shared) in named.items():
            runs[name].append(run(name, policy, shared))
    compared = [compare(stream, one) for every in runs.values() for one in every]
    checked, wrong = (sum(one[i] for one in compared) for i in (0, 1))
    series = {name: median_run(every) for name, every in runs.items()}
    one_host = series.pop(ONE_HOST)
    return ReplayRun(settings, series, one_host, facts or {}, checked, wrong)


def median_run(runs: Sequence[ReplaySeries]) -> ReplaySeries:
    """Return the run with the median number of points per second; of two, the slower."""
    rates = tuple(run.points_per_second for run in runs)
    return replace(runs[rates.index(median_low(rates))], runs=rates)


def compare(stream: ReplayStream, series: ReplaySeries) -> tuple[int, int]:
    """Compare results with the exact numbers, of batches and of the sample's points.

    Returns
    -------
    How many numbers were compared, and how many differ.
    """
    pairs = [*zip((b.matches for b in series.batches), stream.matches, strict=False)]
    pairs += [(series.sample.get(point, 0), n) for point, n in stream.sample.items()]
    return len(pairs), sum(found != expected for found, expected in pairs)


def replay_policy(
    spark: SparkSession,
    stream: ReplayStream,
    config: SwarmConfig,
    on_batch: Callable[[int], None] = lambda batch: None,
    batches: int | None = None,
) -> ReplaySeries:
    """Run the stream, or its first batches, with these settings."""
    last = min(stream.batches, stream.batches if batches is None else batches - 1)
    names = "{" + ",".join(f"{batch:05d}*" for batch in range(last + 1)) + "}"
    sample: dict[int, int] = {}
    told: list[tuple[Progress, int]] = []

    def read(name: str, schema: str, files: int) -> DataFrame:
        source = spark.readStream.schema(schema).option("maxFilesPerTrigger", files)
        return source.option("pathGlobFilter", names).parquet(str(stream.folder / name))

    def sink(results: DataFrame, batch: int) -> None:
        if batch not in stream.checked_batches:
            NoopSink()(results, batch)
            return
        chosen = results.where(F.col("id") % stream.sample_step == 0)
        found = chosen.select("id", F.size("query_ids").alias("n")).toArrow()
        sample.update(zip(*(column.to_pylist() for column in found.columns), strict=True))

    def note(progress: Progress, plan: Plan, _: object) -> None:
        if progress.batch >= 0:  # not the preloading of queries
            told.append((progress, len(plan.partitions)))
            on_batch(progress.batch)

    def table(name: str, schema: str) -> DataFrame:
        return spark.read.schema(schema).parquet(str(stream.folder / name))

    queries = table("queries", QUERIES_SCHEMA)
    past = table(f"points/{0:05d}-0.parquet", POINTS_SCHEMA), queries
    with tempfile.TemporaryDirectory(dir=stream.folder) as checkpoint:
        handle = Swarm(spark, config).start(
            read("points", POINTS_SCHEMA, FILES_PER_BATCH),
            read("changes", CHANGES_SCHEMA, 1) if stream.has_changes else None,
            sink=sink,
            observers=[note],
            checkpoint=checkpoint,
            preload=queries,
            history=past if config.policy == "static_history" else None,
            trigger={"availableNow": True},
        )
        handle.await_termination()
    seconds = batch_seconds(handle.query)
    tasks = batch_tasks(spark, str(handle.query.runId))
    found = [
        ReplayBatch(
            seconds=seconds[p.batch],
            points=p.points,
            matches=p.matches,
            lent=p.lent,
            tasks=p.task_s or tasks[p.batch].execute,
            all_tasks=tasks[p.batch].total,
            work=p.work_s,
            partitions=partitions,
            query_bytes=p.query_bytes,
            fetched_bytes=p.fetched_bytes,
            hosts=p.hosts,
        )
        for p, partitions in told
        if p.batch < stream.batches
    ]
    return ReplaySeries(found, sample)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
