"""``sparkswarm bench adapt``: a hotspot under each policy.

The scenario is the paper's "Reaction to Hotspots". Measured are:

wall
    With few executors, one per core, at work in parallel: points per second of wall clock during
    the hotspot, including reading and registering queries.
critical path
    With many executors, one task at a time, so that they do not disturb each other: the run time
    of the longest executor task of a batch, as Spark reports it, which is the time of a batch on a
    cluster with a core for each executor; the mean over the batches of the hotspot.
latency
    From the same run: a point waits for its executor's task, so the mean of these times over all
    points of the hotspot.

Each executor stands for a machine of its own (``shared_host = false``): points are routed to the
executor that has their queries. All policies read the same files. Results are checked: their
number in every batch against an exact count, and those of a sample of points one by one.

Matching is most of the work: points are in the cities, queries are uniform and so large that a
point has hundreds of results, as many as with the paper's tens of millions of small queries. With
less matching there is little to balance, because reading is spread evenly under every policy. The
hotspot is the paper's: 40% of the points and 20% of the queries in a square of 15% side in the
lower-left corner, where there were almost none before.

Spark's master cannot change within a process, so each of the two parts runs in a process of its
own: this module, with the name of a file with its parameters.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from sparkswarm.bench.adapt_stream import (
    FILES_PER_BATCH,
    AdaptError,
    AdaptSettings,
    write_stream,
)
from sparkswarm.bench.inputs import CHANGES_SCHEMA, POINTS_SCHEMA, QUERIES_SCHEMA
from sparkswarm.bench.plain_spark import batch_seconds
from sparkswarm.config import PolicyName, SwarmConfig
from sparkswarm.observe.progress import Progress
from sparkswarm.spark.engine import Swarm
from sparkswarm.spark.session import session
from sparkswarm.workloads import Density, Hotspot

WARM_UP = 4
"""Batches of a first run of each policy that is not measured: Java compiles its code for dozens of
batches, which only the policy that came first would pay for."""

_PROCESS = "sparkswarm.bench.adapt"
_NAMES_AN_ERROR = re.compile(r"[\w.]*(Error|Exception)\b")

OnBatch = Callable[[str, str, int], None]
"""Called after every batch with the part (``wall``, ``critical_path``), the policy, the batch."""


@dataclass(frozen=True)
class Series:
    """The result of one policy in one part, batch by batch.

    Attributes
    ----------
    policy
        Name of the policy.
    seconds
        Wall-clock seconds of a batch (``triggerExecution``).
    busy
        Run time of each executor's task, as Spark reports it.
    received, matches
        Points of each executor; results of the batch.
    partitions
        Number of partitions of the last plan.
    sample
        Number of results of some points, by point id.
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
        """Return the points per second of wall clock during the hotspot."""
        hot = slice(hotspot.start, hotspot.stop)
        return float(np.sum(self.received[hot]) / np.sum(self.seconds[hot]))

    @property
    def longest(self) -> list[float]:
        """Seconds of the longest task of each batch."""
        return [max(busy) for busy in self.busy]

    def critical_path(self, hotspot: Hotspot) -> float:
        """Return the mean seconds of the longest task over the batches of the hotspot."""
        return float(np.mean(self.longest[hotspot.start : hotspot.stop]))

    def latency(self, hotspot: Hotspot) -> float:
        """Return the mean seconds of an executor's task over the points of the hotspot."""
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
    """The results: a series for each policy and part.

    Attributes
    ----------
    settings
        The parameters.
    density
        Name of the density.
    wall, path
        The two parts, by policy.
    """

    settings: AdaptSettings
    density: str
    wall: Mapping[str, Series]
    path: Mapping[str, Series]

    def throughput(self) -> dict[str, float]:
        """Return the points per second during the hotspot, by policy."""
        return {name: s.throughput(self.settings.hotspot) for name, s in self.wall.items()}

    def critical_path(self) -> dict[str, float]:
        """Return the mean seconds of the longest task in the hotspot, by policy."""
        return {name: s.critical_path(self.settings.hotspot) for name, s in self.path.items()}

    def latency(self) -> dict[str, float]:
        """Return the mean seconds that a point of the hotspot waits for its executor, by policy."""
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
                "critical_path": "seconds of the longest executor task of a batch, "
                "mean over the hotspot's batches",
                "latency": "seconds of its executor's task, mean over the hotspot's points",
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

    Each process first runs :data:`WARM_UP` batches of each policy that are not measured. Only
    batches of the hotspot count; every policy has its own batches before it.

    Parameters
    ----------
    density
        Distribution of points and queries.
    settings
        The parameters.
    on_batch
        Called after every batch.
    keep
        Folder for the inputs and the processes' logs; by default a temporary one.

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
    """Return the number of calls of ``on_batch``, for a progress bar."""
    return 2 * len(settings.policies) * settings.batches


# -- a part, in its own process ----------------------------------------------------------------


def _in_a_process(
    folder: Path,
    part: str,
    density: Density,
    settings: AdaptSettings,
    executors: int,
    cores: int,
    on_batch: OnBatch,
) -> dict[str, Series]:
    """Run a part in a process of its own; call ``on_batch`` after each of its batches."""
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
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        try:
            for line in process.stdout or ():
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
        # Spark's log is long; only lines that name an error are shown.
        said = "\n".join(dict.fromkeys(line for line in lines if _NAMES_AN_ERROR.match(line)))
        raise AdaptError(f"the part {part!r} ended with code {code}:\n{said[-2000:]}")
    found = json.loads((folder / f"{part}.json").read_text(encoding="utf-8"))
    for one in found:
        one["sample"] = {int(key): n for key, n in one["sample"].items()}
    return {one["policy"]: Series(**one) for one in found}


def main(order_file: str) -> None:
    """Run the part that a file describes: start Spark, run every policy, write the series."""
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
        "shared_host": False,
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

        def run(policy: PolicyName, batches: int, on_batch: Callable[[int], None]) -> Series:
            of_policy = SwarmConfig(policy=policy, **config)
            return run_policy(spark, folder, settings, of_policy, batches, on_batch)

        for policy in settings.policies:
            run(policy, min(WARM_UP, settings.batches), lambda batch: None)
        series = [
            run(policy, settings.batches, partial(_tell, policy)) for policy in settings.policies
        ]
    finally:
        spark.stop()
    found = json.dumps([asdict(one) for one in series])
    (folder / f"{order['part']}.json").write_text(found, encoding="utf-8")


def _tell(policy: str, batch: int) -> None:
    print("batch", policy, batch, flush=True)


def run_policy(
    spark: SparkSession,
    folder: Path,
    settings: AdaptSettings,
    config: SwarmConfig,
    batches: int,
    on_batch: Callable[[int], None] = lambda batch: None,
) -> Series:
    """Run the first batches of the stream under the policy of ``config``."""
    names = "{" + ",".join(f"{batch:05d}*" for batch in range(batches)) + "}"

    def stream(name: str, schema: str, files: int) -> DataFrame:
        source = spark.readStream.schema(schema).option("maxFilesPerTrigger", files)
        return source.option("pathGlobFilter", names).parquet(str(folder / name))

    def table(name: str, schema: str) -> DataFrame:
        return spark.read.schema(schema).parquet(str(folder / name))

    history = (table("past_points", POINTS_SCHEMA), table("past_queries", QUERIES_SCHEMA))
    sample: dict[int, int] = {}
    progress: list[Progress] = []

    def count_sample(results: DataFrame, batch: int) -> None:
        """Compute all results; collect the number of those of the sample on the driver."""
        some = results.where(F.col("id") % settings.sample_step == 0)
        found = some.select("id", F.size("query_ids").alias("n")).toArrow()
        sample.update(zip(*(column.to_pylist() for column in found.columns), strict=True))

    def note(of_batch: Progress, *_: object) -> None:
        if of_batch.batch >= 0:  # not the preloading of queries
            progress.append(of_batch)
            on_batch(of_batch.batch)

    with tempfile.TemporaryDirectory(dir=folder) as checkpoint:
        handle = Swarm(spark, config).start(
            stream("points", POINTS_SCHEMA, FILES_PER_BATCH),
            stream("operations", CHANGES_SCHEMA, 1),
            sink=count_sample,
            observers=[note],
            checkpoint=checkpoint,
            preload=table("queries", QUERIES_SCHEMA),
            history=history if config.policy == "static_history" else None,
            trigger={"availableNow": True},
        )
        handle.await_termination()
    seconds = batch_seconds(handle.query)
    return Series(
        policy=config.policy,
        seconds=[seconds[batch] for batch in range(batches)],
        busy=[list(p.busy_s) for p in progress],
        received=[list(p.points_by_executor) for p in progress],
        matches=[p.matches for p in progress],
        partitions=len(handle.plan().partitions),
        sample=sample,
        decisions=[str(decision) for decision in handle.decisions()],
    )


if __name__ == "__main__":
    main(sys.argv[1])
