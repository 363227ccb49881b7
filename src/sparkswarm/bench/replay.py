"""``sparkswarm bench replay``: a file of points under each policy.

Shows on anybody's data whether SWARM helps. Every policy reads the same files with the same
queries in one session, batch by batch in turn, so that all meet the machine in the same state; each
executor stands for a machine of its own (``shared_host = false``). After them, ``one_host`` is the
same stream where all executors share one host. Task times are Spark's own (``executorRunTime``);
what the figures mean is in docs/explanation/benchmarks.md.

The number of results of every batch is compared with an exact count, and those of a sample of
points one by one with brute force.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from sparkswarm.bench.drift import write_drift
from sparkswarm.bench.plain_spark import bench_session
from sparkswarm.bench.replay_inputs import (
    FILES_PER_BATCH,
    ReplayStream,
    read_points,
    write_replay,
)
from sparkswarm.bench.replay_series import WARM_UP, ReplaySeries, median_run
from sparkswarm.bench.replay_turns import OnBatch, replay_in_turn
from sparkswarm.config import PolicyName, SwarmConfig
from sparkswarm.errors import WorkloadError
from sparkswarm.geometry import Bounds
from sparkswarm.spark.tasks.context import KEPT_RUNS
from sparkswarm.workloads import QUERY_SIDE

COMPILED_AFTER = 8
"""Batches of a first run that is not reported, in which Java compiles its code."""

DRIFT = "drift"
"""Instead of a file: points that are generated, see :mod:`sparkswarm.bench.drift`."""

DEFAULT_POLICIES: tuple[PolicyName, ...] = ("swarm", "static_uniform", "hash_cell", "replicated")

GRID = (1000, 1000)
ROUND_BATCHES = 3
ONE_HOST = "one_host"


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
        Number of runs of each policy, of which the median counts.
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

    @property
    def hotspot_firsts(self) -> list[int]:
        """The measured batches with which hotspots begin, where that is known."""
        starts = [start for start, _ in self.facts.get("hotspots", ())]
        return [start for start in starts if WARM_UP <= start < self.facts.get("batches", 0)]

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
            "data": dict(self.facts) | {"hotspot_firsts": self.hotspot_firsts},
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
    """Run every policy on a session, each on a fresh checkpoint, and check all results.

    The policies take turns, batch by batch; then comes the stream on one shared host.
    """

    def config(policy: PolicyName, shared: bool) -> SwarmConfig:
        return SwarmConfig(
            policy=policy,
            bounds=stream.bounds.edges,
            grid=GRID,
            executors=settings.executors,
            round_batches=ROUND_BATCHES,
            shared_host=shared,
        )

    named: dict[str, SwarmConfig] = {policy: config(policy, False) for policy in settings.policies}
    # No more at once than a worker keeps the files of.
    groups = [
        dict(islice(named.items(), start, start + KEPT_RUNS))
        for start in range(0, len(named), KEPT_RUNS)
    ]
    groups.append({ONE_HOST: config("swarm", True)})
    replay_in_turn(spark, stream, groups[0], batches=COMPILED_AFTER)
    runs: dict[str, list[ReplaySeries]] = {name: [] for group in groups for name in group}
    for _ in range(settings.repeat):
        for group in groups:
            for name, one in replay_in_turn(spark, stream, group, on_batch).items():
                runs[name].append(one)
    compared = [compare(stream, one) for every in runs.values() for one in every]
    checked, wrong = (sum(one[i] for one in compared) for i in (0, 1))
    series = {name: median_run(every) for name, every in runs.items()}
    one_host = series.pop(ONE_HOST)
    return ReplayRun(settings, series, one_host, facts or {}, checked, wrong)


def compare(stream: ReplayStream, series: ReplaySeries) -> tuple[int, int]:
    """Compare results with the exact numbers, of batches and of the sample's points.

    Returns
    -------
    How many numbers were compared, and how many differ.
    """
    pairs = [*zip((b.matches for b in series.batches), stream.matches, strict=False)]
    pairs += [(series.sample.get(point, 0), n) for point, n in stream.sample.items()]
    return len(pairs), sum(found != expected for found, expected in pairs)
