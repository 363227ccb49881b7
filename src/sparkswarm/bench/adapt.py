"""``sparkswarm bench adapt``: a hotspot comes and goes, on Spark, under each policy.

Owns the scenario of the paper's "Reaction to Hotspots" and what is measured in it:

wall
    Few executors, as many as there are cores, all at work at once: points a second of the
    wall clock during the hotspot, reading and registering queries included.
critical path
    Many executors, one task at a time, so that none disturbs another: the processor time of
    the longest executor task of a batch, which is what a batch would take on a cluster with a
    core for each executor; the mean over the batches of the hotspot.
latency
    From the same run: a point waits for its executor's task, so the mean of those times over
    all points of the hotspot.

All policies read the same files. Results are checked: of every batch their number against an
exact count, and of a sample of points one by one.

The workload is one of matching, as in a service of subscriptions: points are where the cities
are, queries wait everywhere, and they are so large that a point has hundreds of results, as
many as the paper's tens of millions of small queries give it. Finding them is most of the work;
where it is not, there is little to balance, because reading is spread evenly whatever the
policy. The hotspot is the paper's: 40% of the points and 20% of the queries in a square of 15%
side in the lower-left corner, where nearly nobody was before.

Spark's master cannot change within a process, so each of the two parts is a process of its
own: this module, run with the name of a file that says what to do.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from sparkswarm.bench.inputs import (
    CHANGES_SCHEMA,
    POINTS_SCHEMA,
    QUERIES_SCHEMA,
    count_matches,
)
from sparkswarm.config import PolicyName, SwarmConfig
from sparkswarm.errors import SparkswarmError, WorkloadError
from sparkswarm.observe.progress import Progress
from sparkswarm.policies import POLICIES
from sparkswarm.spark.engine import HISTORY_POINTS, HISTORY_QUERIES, Swarm
from sparkswarm.spark.handle import Handle
from sparkswarm.spark.session import session
from sparkswarm.workloads import Density, Hotspot, Rectangles

WARM_UP = 6
"""Batches of a run before all others that nobody looks at: Java compiles its code in them."""

FILES_PER_BATCH = 2
"""Files with the points of a batch, of one size, so that two cores read them evenly."""

SAMPLE = 200
"""Points of a batch, about, whose results are compared one by one."""

_FIRST_TIME = 1_600_000_000
_PROCESS = "sparkswarm.bench.adapt"
_NAMES_AN_ERROR = re.compile(r"[\w.]*(Error|Exception)\b")

OnBatch = Callable[[str, str, int], None]
"""Called after every batch with the part (``wall``, ``critical_path``), the policy, the batch."""


class AdaptError(SparkswarmError, RuntimeError):
    """A part of the benchmark that failed, or whose results are wrong."""


@dataclass(frozen=True)
class AdaptSettings:
    """What to run.

    Attributes
    ----------
    batches, points
        Batches, and points in each.
    queries
        Queries registered before the first batch; the hotspot's come on top.
    side
        Side of a query as a share of the side of the space.
    hotspot
        When it is active, in batches, and what it attracts. Its queries are registered in its
        first batch and unregistered in the first after it.
    wall_executors, path_executors
        Executors of the two parts. The first are so many cores as well.
    policies
        Which to compare.
    round_batches
        SWARM's rounds.
    seed
        Fixes everything random.
    """

    batches: int = 20
    points: int = 200_000
    queries: int = 200_000
    side: float = 0.03
    hotspot: Hotspot = field(default_factory=lambda: Hotspot(start=5, stop=19))
    wall_executors: int = 2
    path_executors: int = 22
    policies: tuple[PolicyName, ...] = cast("tuple[PolicyName, ...]", tuple(POLICIES))
    round_batches: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        if self.hotspot.stop >= self.batches or self.hotspot.start < 1:
            raise WorkloadError(
                f"the hotspot, batches {self.hotspot.start} to {self.hotspot.stop - 1}, must begin "
                f"after the first and end before the last of {self.batches} batches"
            )

    @property
    def hot_queries(self) -> int:
        """How many queries the hotspot brings: ``query_share`` of all while it is active."""
        share = self.hotspot.query_share
        if share >= 1:
            raise WorkloadError("a hotspot's query_share must be below 1: other queries are there")
        return round(self.queries * share / (1 - share))


@dataclass(frozen=True)
class Series:
    """What one policy did in one part, batch by batch.

    Attributes
    ----------
    policy
        Its name.
    seconds
        Of the wall clock, all that Spark does for a batch (``triggerExecution``).
    busy
        Seconds of processor time that each executor's task took.
    received, matches
        Points of each executor; results of the batch.
    partitions
        Partitions of the plan at the end.
    sample
        Results of some points, by the points' ids.
    decisions
        SWARM's decisions, with their reasons.
    """

    policy: str
    seconds: list[float]
    busy: list[list[float]]
    received: list[list[int]]
    matches: list[int]
    partitions: int
    sample: dict[int, int]
    decisions: list[str]

    def throughput(self, hotspot: Hotspot) -> float:
        """Points a second of the wall clock, during the hotspot."""
        hot = slice(hotspot.start, hotspot.stop)
        return float(np.sum(self.received[hot]) / np.sum(self.seconds[hot]))

    @property
    def longest(self) -> list[float]:
        """Seconds of the longest task of each batch."""
        return [max(busy) for busy in self.busy]

    def critical_path(self, hotspot: Hotspot) -> float:
        """Seconds of the longest task, mean over the batches of the hotspot."""
        return float(np.mean(self.longest[hotspot.start : hotspot.stop]))

    def latency(self, hotspot: Hotspot) -> float:
        """Seconds of its executor's task, mean over the points of the hotspot."""
        hot = slice(hotspot.start, hotspot.stop)
        return float(np.average(self.busy[hot], weights=self.received[hot]))

    def to_json(self) -> dict[str, Any]:
        """Return the form that ``--json`` writes."""
        return {
            "seconds": [round(value, 3) for value in self.seconds],
            "points": [sum(received) for received in self.received],
            "longest_task": [round(value, 5) for value in self.longest],
            "mean_task": [round(float(np.mean(busy)), 5) for busy in self.busy],
            "results": self.matches,
            "partitions": self.partitions,
        }


@dataclass(frozen=True)
class AdaptRun:
    """What was measured: a series for each policy and part.

    Attributes
    ----------
    settings
        What was run.
    density
        The name of the density.
    wall, path
        The two parts, by policy.
    """

    settings: AdaptSettings
    density: str
    wall: Mapping[str, Series]
    path: Mapping[str, Series]

    def throughput(self) -> dict[str, float]:
        """Points a second during the hotspot, by policy."""
        return {name: s.throughput(self.settings.hotspot) for name, s in self.wall.items()}

    def critical_path(self) -> dict[str, float]:
        """Seconds of the longest task, mean over the hotspot's batches, by policy."""
        return {name: s.critical_path(self.settings.hotspot) for name, s in self.path.items()}

    def latency(self) -> dict[str, float]:
        """Seconds that a point of the hotspot waits for its executor on average, by policy."""
        return {name: s.latency(self.settings.hotspot) for name, s in self.path.items()}

    def to_json(self) -> dict[str, Any]:
        """Return the form that ``--json`` writes."""
        s = self.settings
        return {
            "wall": {"executors": s.wall_executors, **_rounded(self.throughput(), 0)},
            "critical_path": {"executors": s.path_executors, **_rounded(self.critical_path(), 5)},
            "latency": {"executors": s.path_executors, **_rounded(self.latency(), 5)},
            "units": {
                "wall": "points per second of wall clock during the hotspot",
                "critical_path": "processor seconds of the longest executor task of a batch, "
                "mean over the hotspot's batches",
                "latency": "processor seconds of its executor's task, mean over the hotspot's "
                "points",
            },
            "settings": {
                **{k: v for k, v in asdict(s).items() if k != "policies"},
                "density": self.density,
                "hot_queries": s.hot_queries,
                "warm_up_batches": WARM_UP,
            },
            "batches": {
                "wall": {name: series.to_json() for name, series in self.wall.items()},
                "critical_path": {name: series.to_json() for name, series in self.path.items()},
            },
        }


def _rounded(values: Mapping[str, float], digits: int) -> dict[str, float]:
    return {name: round(value, digits) for name, value in values.items()}


def run_adapt(
    density: Density,
    settings: AdaptSettings | None = None,
    on_batch: OnBatch = lambda part, policy, batch: None,
    keep: Path | None = None,
) -> AdaptRun:
    """Run both parts, each in a process of its own, and check all results.

    Before the clock counts, :data:`WARM_UP` batches run for nothing in each process; before the
    hotspot, whose batches alone count, every policy has its own quiet batches.

    Parameters
    ----------
    density
        Where points and queries are.
    settings
        What to run.
    on_batch
        Called after every batch.
    keep
        A folder for the inputs and the processes' logs; a temporary one unless given.

    Raises
    ------
    AdaptError
        If a process fails, or results are wrong.
    """
    settings = settings or AdaptSettings()
    with tempfile.TemporaryDirectory(prefix="sparkswarm-adapt-") as temporary:
        folder = keep or Path(temporary)
        truth = write_stream(folder, density, settings)
        parts = {}
        for part, executors, cores in (
            ("wall", settings.wall_executors, settings.wall_executors),
            ("critical_path", settings.path_executors, 1),
        ):
            parts[part] = _in_a_process(folder, part, density, settings, executors, cores, on_batch)
            truth.check(parts[part].values())
    return AdaptRun(settings, density.name, parts["wall"], parts["critical_path"])


def total_batches(settings: AdaptSettings) -> int:
    """Return how often ``on_batch`` is called: for a progress bar."""
    return 2 * len(settings.policies) * settings.batches


# -- the files ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Truth:
    """How many results there must be: in each batch, and of each point of the sample."""

    matches: list[int]
    sample: dict[int, int]

    def check(self, series: Sequence[Series] | Any) -> None:
        """Raise AdaptError where somebody found something else."""
        for one in series:
            if one.matches != self.matches:
                batch = next(
                    i for i, (a, b) in enumerate(zip(one.matches, self.matches, strict=True))
                    if a != b
                )  # fmt: skip
                raise AdaptError(
                    f"{one.policy} found {one.matches[batch]} results in batch {batch}, there are "
                    f"{self.matches[batch]}"
                )
            wrong = [key for key, n in self.sample.items() if one.sample.get(key, 0) != n]
            if wrong:
                key = wrong[0]
                raise AdaptError(
                    f"{one.policy} found {one.sample.get(key, 0)} results of point {key}, there "
                    f"are {self.sample[key]}; {len(wrong)} points of the sample are wrong"
                )


def write_stream(folder: Path, density: Density, settings: AdaptSettings) -> Truth:
    """Write the files that all runs read; return what they must find.

    ``points`` and ``operations`` are streams, ``queries`` are there before, ``past_points`` and
    ``past_queries`` are the history from before the hotspot. Modification times put the files
    in their order, see :mod:`sparkswarm.bench.inputs`.
    """
    s, hotspot = settings, settings.hotspot
    for name in ("points", "operations", "queries", "past_points", "past_queries"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng((s.seed, 0))
    everywhere = Density("uniform", density.bounds, np.ones((1, 1)))
    queries = everywhere.sample_queries(rng, s.queries, s.side)
    hot = hotspot.sample_queries(rng, s.hot_queries, s.side, density.bounds)
    for part, mine in enumerate(np.array_split(np.arange(s.queries), 2)):
        _write(folder / f"queries/{part}.parquet", part, id=mine, **_edges(queries, mine))
    past = np.sort(rng.choice(s.queries, min(s.queries, HISTORY_QUERIES), replace=False))
    _write(folder / "past_queries/0.parquet", 0, id=past, **_edges(queries, past))
    x, y = density.sample_points(rng, HISTORY_POINTS)
    _write(folder / "past_points/0.parquet", 0, id=np.arange(len(x)), x=x, y=y)

    hot_density = hotspot.points_density(density)
    now = Rectangles(*(np.concatenate(pair) for pair in zip(queries, hot, strict=True)))
    ids = np.arange(s.queries, s.queries + s.hot_queries)
    matches, sample = [], {}
    for batch in range(s.batches):
        rng = np.random.default_rng((s.seed, 1, batch))
        active = hotspot.active(batch)
        x, y = (hot_density if active else density).sample_points(rng, s.points)
        for part, mine in enumerate(np.array_split(np.arange(s.points), FILES_PER_BATCH)):
            number = batch * FILES_PER_BATCH + part
            name = f"points/{batch:05d}-{part}.parquet"
            _write(folder / name, number, id=mine + batch * s.points, x=x[mine], y=y[mine])
        op, changed = "register", ids[:0]
        if batch == hotspot.start:
            changed = ids
        elif batch == hotspot.stop:
            op, changed = "unregister", ids
        edges: dict[str, Any] = _edges(hot, changed - s.queries)
        if op == "unregister":
            edges = {name: pa.nulls(len(changed), pa.float64()) for name in edges}
        _write(
            folder / f"operations/{batch:05d}.parquet", batch,
            op=pa.array([op] * len(changed), pa.string()), id=changed, **edges,
        )  # fmt: skip
        counts = count_matches(x, y, now if active else queries)
        matches.append(int(counts.sum()))
        for i in range(0, s.points, _step(s)):
            sample[batch * s.points + i] = int(counts[i])
    return Truth(matches, sample)


def _step(settings: AdaptSettings) -> int:
    """Every so manieth point of a batch is in the sample."""
    return max(1, settings.points // SAMPLE)


def _edges(rectangles: Rectangles, which: npt.NDArray[np.int64]) -> dict[str, Any]:
    return {name: edge[which] for name, edge in zip(rectangles._fields, rectangles, strict=True)}


def _write(file: Path, number: int, **columns: Any) -> None:
    table = pa.table({name: pa.array(column) for name, column in columns.items()})
    pq.write_table(table, file, compression="none", use_dictionary=False)
    os.utime(file, (_FIRST_TIME + number, _FIRST_TIME + number))


# -- a part, in its own process ----------------------------------------------------------------


def _in_a_process(
    folder: Path, part: str, density: Density, settings: AdaptSettings, executors: int,
    cores: int, on_batch: OnBatch,
) -> dict[str, Series]:  # fmt: skip
    """Run a part in a process of its own; tell its batches as they end."""
    b, grid = density.bounds, density.grid
    order = {
        "folder": str(folder),
        "part": part,
        "executors": executors,
        "cores": cores,
        "bounds": [b.min_x, b.min_y, b.max_x, b.max_y],
        "grid": [grid.columns, grid.rows],
        "settings": asdict(settings),
    }
    orders, log = folder / f"{part}.order.json", folder / f"{part}.log"
    orders.write_text(json.dumps(order), encoding="utf-8")
    with log.open("w", encoding="utf-8") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", _PROCESS, str(orders)],
            stdout=subprocess.PIPE, stderr=errors, text=True,
        )  # fmt: skip
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if line.startswith("batch "):
                    _, policy, batch = line.split()
                    on_batch(part, policy, int(batch))
            code = process.wait()
        except BaseException:
            process.terminate()
            process.wait()
            raise
    if code:
        lines = log.read_text(encoding="utf-8").splitlines()
        # Spark wraps the cause in pages of its own; whatever names an error is worth reading.
        said = "\n".join(dict.fromkeys(line for line in lines if _NAMES_AN_ERROR.match(line)))
        raise AdaptError(f"the part {part!r} ended with code {code}:\n{said[-2000:]}")
    found = json.loads((folder / f"{part}.json").read_text(encoding="utf-8"))
    for one in found:
        one["sample"] = {int(key): n for key, n in one["sample"].items()}
    return {one["policy"]: Series(**one) for one in found}


def main(order_file: str) -> None:
    """Do what the file says: start Spark, run every policy, write the series."""
    order = json.loads(Path(order_file).read_text(encoding="utf-8"))
    values = order["settings"]
    settings = AdaptSettings(
        **{
            **values,
            "policies": tuple(values["policies"]),
            "hotspot": Hotspot(**values["hotspot"]),
        }
    )
    config = {
        "bounds": tuple(order["bounds"]),
        "grid": tuple(order["grid"]),
        "executors": order["executors"],
        "round_batches": settings.round_batches,
    }
    folder = Path(order["folder"])
    spark = session(
        "sparkswarm bench adapt",
        f"local[{order['cores']}]",
        {
            "spark.ui.enabled": False,
            "spark.ui.showConsoleProgress": False,
            "spark.log.level": "ERROR",
            "spark.driver.memory": "2g",
            "spark.sql.streaming.numRecentProgressUpdates": settings.batches + 100,
        },
    )
    try:
        first = settings.policies[0]
        run_policy(
            spark,
            folder,
            settings,
            SwarmConfig(policy=first, **config),
            min(WARM_UP, settings.batches),
        )
        series = [
            run_policy(
                spark, folder, settings, SwarmConfig(policy=policy, **config), settings.batches,
                partial(_tell, policy),
            )
            for policy in settings.policies
        ]  # fmt: skip
    finally:
        spark.stop()
    found = json.dumps([asdict(one) for one in series])
    (folder / f"{order['part']}.json").write_text(found, encoding="utf-8")


def _tell(policy: str, batch: int) -> None:
    print("batch", policy, batch, flush=True)


class _Observer:
    """A sink that counts the results of a sample of points, and keeps each batch's progress.

    All results are computed; of the points in the sample their number comes to the driver.
    """

    def __init__(self, step: int, on_batch: Callable[[int], None]) -> None:
        self.sample: dict[int, int] = {}
        self.progress: list[Progress] = []
        self._step = step
        self._on_batch = on_batch
        self._handle: Handle | None = None
        self._watching = threading.Event()

    def watch(self, handle: Handle) -> None:
        self._handle = handle
        self._watching.set()

    def __call__(self, results: DataFrame, batch: int) -> None:
        if batch > 0:
            self.note()
        mine = results.where(F.col("id") % self._step == 0)
        found = mine.select("id", F.size("query_ids").alias("n")).toArrow()
        self.sample.update(zip(*(c.to_pylist() for c in found.columns), strict=True))

    def note(self) -> None:
        """Keep the progress of the batch that ended last."""
        self._watching.wait()
        assert self._handle is not None
        last = self._handle.status().last
        assert last is not None
        self.progress.append(last)
        self._on_batch(last.batch)


def run_policy(
    spark: SparkSession,
    folder: Path,
    settings: AdaptSettings,
    config: SwarmConfig,
    batches: int,
    on_batch: Callable[[int], None] = lambda batch: None,
) -> Series:
    """Run the first batches of the stream under the policy that the settings name."""
    names = "{" + ",".join(f"{batch:05d}*" for batch in range(batches)) + "}"

    def stream(name: str, schema: str, files: int) -> DataFrame:
        source = spark.readStream.schema(schema).option("maxFilesPerTrigger", files)
        return source.option("pathGlobFilter", names).parquet(str(folder / name))

    def table(name: str, schema: str) -> DataFrame:
        return spark.read.schema(schema).parquet(str(folder / name))

    history = (table("past_points", POINTS_SCHEMA), table("past_queries", QUERIES_SCHEMA))
    observer = _Observer(_step(settings), on_batch)
    with tempfile.TemporaryDirectory(dir=folder) as checkpoint:
        handle = Swarm(spark, config).start(
            stream("points", POINTS_SCHEMA, FILES_PER_BATCH),
            stream("operations", CHANGES_SCHEMA, 1),
            sink=observer,
            checkpoint=checkpoint,
            preload=table("queries", QUERIES_SCHEMA),
            history=history if config.policy == "static_history" else None,
            trigger={"availableNow": True},
        )
        observer.watch(handle)
        handle.await_termination()
        observer.note()
    seconds = {
        progress["batchId"]: progress["durationMs"]["triggerExecution"] / 1000
        for progress in handle.query.recentProgress
        if progress["numInputRows"]
    }
    return Series(
        policy=config.policy,
        seconds=[seconds[batch] for batch in range(batches)],
        busy=[list(p.busy_s) for p in observer.progress],
        received=[list(p.points_by_executor) for p in observer.progress],
        matches=[p.matches for p in observer.progress],
        partitions=len(handle.plan().partitions),
        sample=observer.sample,
        decisions=[str(decision) for decision in handle.decisions()],
    )


if __name__ == "__main__":
    main(sys.argv[1])
