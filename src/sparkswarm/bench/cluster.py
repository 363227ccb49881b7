"""``sparkswarm bench cluster``: what each host of a cluster holds and fetches, under each policy.

Starts a standalone cluster of this machine whose workers look like hosts, each with an address and
a cache of its own. The checkpoint is a shared folder of which each host copies the files that it
needs (``copy_files``), so that what it fetches is counted as with an object store. A hotspot comes
in the middle of the stream, and a share of the queries changes in each batch.

Then the same with a cache that has room for a share of the state only: a policy whose hosts need
less runs, and one whose hosts need all of it fails. All hosts share the cores of this machine, so
points per second say little; bytes, places and balance do not depend on that. The number of results
of every batch is compared with an exact count, and those of a sample of points with brute force.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from py4j.protocol import Py4JJavaError
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from sparkswarm.bench.local_cluster import DRIVER_HOST, LocalCluster
from sparkswarm.bench.replay import (
    DEFAULT_POLICIES,
    GRID,
    ROUND_BATCHES,
    compare,
)
from sparkswarm.bench.replay_inputs import ReplayStream, write_replay
from sparkswarm.bench.replay_series import ReplaySeries, balance
from sparkswarm.bench.replay_turns import OnBatch, replay_policy
from sparkswarm.config import PolicyName, SwarmConfig
from sparkswarm.spark.failures import cause_of
from sparkswarm.spark.session import session
from sparkswarm.store.copies import CACHE_VARIABLE
from sparkswarm.workloads import CONTIGUOUS_US, Hotspot, cities_density

WARM_UP_BATCHES = 3
"""Batches of a first run that is not reported, in which Java compiles its code."""

WARM_UP = "warm-up"


@dataclass(frozen=True, kw_only=True)
class ClusterSettings:
    """The parameters of the benchmark.

    Attributes
    ----------
    hosts, executors
        Hosts, and executors of sparkswarm on each.
    batches, points
        Batches, of which the second half has the hotspot, and points of each.
    queries, side
        Number of queries, and the side of each as a share of the width of the space.
    churn
        Share of the queries that is updated in each batch.
    policies
        The policies to compare.
    limit
        Size of each host's cache in the second part, as a share of the state; 0 leaves it out.
    limited
        The policies of the second part.
    seed
        Seed of all random numbers.
    """

    hosts: int = 4
    executors: int = 2
    batches: int = 16
    points: int = 100_000
    queries: int = 1_000_000
    side: float = 0.0004
    churn: float = 0.01
    policies: tuple[PolicyName, ...] = DEFAULT_POLICIES
    limit: float = 0.4
    limited: tuple[PolicyName, ...] = ("swarm", "replicated")
    seed: int = 0


@dataclass(frozen=True)
class ClusterSeries:
    """A run under one policy.

    Attributes
    ----------
    series
        Its batches.
    cached
        Bytes of files in each host's cache at the end.
    """

    series: ReplaySeries
    cached: Sequence[int]

    @property
    def on_its_host(self) -> float:
        """Share of the executors' tasks that ran on their executor's host."""
        uses = [use for batch in self.series.measured for use in batch.hosts]
        return sum(use.at_home for use in uses) / max(1, sum(use.tasks for use in uses))

    @property
    def balance(self) -> float | None:
        """Mean balance of the tasks by what they should take, without the machine's noise."""
        return self.series.mean(lambda batch: balance(batch.work))

    @property
    def fetched_per_batch(self) -> float:
        """Mean bytes that all hosts fetched in a batch, from the first on."""
        return float(np.mean([batch.fetched_bytes for batch in self.series.batches]))

    @property
    def fetched_after_warm_up(self) -> float:
        """Mean bytes that all hosts fetched in a batch, when each has had its first queries."""
        return float(np.mean([batch.fetched_bytes for batch in self.series.measured]))

    @property
    def state_per_host(self) -> list[int]:
        """Mean bytes of the files of queries that each host used in a batch."""
        used: Counter[str] = Counter()
        for batch in self.series.measured:
            used.update({use.host: use.mapped_bytes for use in batch.hosts})
        return [round(used[host] / len(self.series.measured)) for host in sorted(used)]

    @property
    def largest_state(self) -> int:
        """Bytes of the files with queries in the batch where they are most."""
        return max(batch.query_bytes for batch in self.series.batches)

    @property
    def state(self) -> int:
        """Mean bytes of the files with queries."""
        return round(float(np.mean([batch.query_bytes for batch in self.series.measured])))

    def to_json(self) -> dict[str, Any]:
        """Return the form that ``--json`` writes."""
        every = self.series.batches
        return {
            **self.series.to_json(),
            "on_its_host": round(self.on_its_host, 4),
            "state_bytes": self.state,
            "state_bytes_per_host": self.state_per_host,
            "cached_bytes_per_host": list(self.cached),
            "fetched_bytes_per_batch": round(self.fetched_per_batch),
            "fetched_bytes_per_batch_after_warm_up": round(self.fetched_after_warm_up),
            "fetched_bytes": [batch.fetched_bytes for batch in every],
        }


@dataclass(frozen=True)
class ClusterRun:
    """The results.

    Attributes
    ----------
    settings
        The parameters.
    series
        By policy.
    limited
        By policy, what happened with the limit: a run, or why it failed.
    cache_bytes
        The limit.
    checked, wrong
        Numbers compared with an exact count, and those that differ.
    """

    settings: ClusterSettings
    series: Mapping[str, ClusterSeries]
    limited: Mapping[str, ClusterSeries | str]
    cache_bytes: int
    checked: int
    wrong: int

    @property
    def state(self) -> int:
        """Bytes of the files with queries, of the first policy."""
        return next(iter(self.series.values())).state

    def to_json(self) -> dict[str, Any]:
        """Return the form that ``--json`` writes."""
        limited = {
            name: {"error": found} if isinstance(found, str) else found.to_json()
            for name, found in self.limited.items()
        }
        return {
            "policies": {name: one.to_json() for name, one in self.series.items()},
            "state_bytes": self.state,
            "limited": {"cache_bytes": self.cache_bytes, "policies": limited},
            "oracle": {"checked": self.checked, "wrong": self.wrong},
            "settings": asdict(self.settings) | {"grid": GRID},
        }


def total_batches(settings: ClusterSettings) -> int:
    """Return the number of calls of ``on_batch`` if no run fails, for a progress bar."""
    limited = settings.limited if settings.limit else ()
    runs = len(settings.policies) + len(limited)
    return WARM_UP_BATCHES + runs * (settings.batches + 1)


def write_stream(folder: Path, settings: ClusterSettings) -> ReplayStream:
    """Write the stream that all runs read: cities, and from half on a hotspot."""
    s = settings
    density = cities_density(CONTIGUOUS_US, 1000, 1000)
    hotspot = Hotspot(start=s.batches // 2, stop=s.batches)
    hot = hotspot.points_density(density)
    rng = np.random.default_rng((s.seed, 2))
    drawn = [
        (hot if hotspot.active(batch) else density).sample_points(rng, s.points)
        for batch in range(s.batches)
    ]
    x, y = (np.concatenate([part[axis] for part in drawn]) for axis in (0, 1))
    return write_replay(folder, x, y, s.points, s.queries, s.side, s.churn, s.seed, density.bounds)


def run_cluster(
    settings: ClusterSettings, on_batch: OnBatch = lambda run, batch: None
) -> ClusterRun:
    """Start a cluster, run every policy on it, and end it; ``on_batch`` after every batch.

    Raises
    ------
    ClusterError
        If the cluster does not start.
    """
    before = os.environ.get(CACHE_VARIABLE)
    with tempfile.TemporaryDirectory(prefix="sparkswarm-cluster-") as temporary:
        folder = Path(temporary)
        stream = write_stream(folder / "stream", settings)
        # The driver is a host of its own.
        os.environ[CACHE_VARIABLE] = str(folder / "driver-cache")
        try:
            (folder / "hosts").mkdir()
            with closing(LocalCluster(folder / "hosts", settings.hosts)) as cluster:
                spark = cluster_session("sparkswarm bench cluster", cluster)
                try:
                    return _run_all(spark, cluster, stream, settings, on_batch)
                finally:
                    spark.stop()
        finally:
            os.environ.pop(CACHE_VARIABLE)
            if before is not None:
                os.environ[CACHE_VARIABLE] = before


def cluster_session(
    name: str, cluster: LocalCluster, options: Mapping[str, str | int | bool] | None = None
) -> SparkSession:
    """Return a session on a cluster of this machine."""
    return session(
        name,
        cluster.master,
        {
            "spark.ui.enabled": False,
            "spark.ui.showConsoleProgress": False,
            "spark.log.level": "ERROR",
            "spark.driver.bindAddress": DRIVER_HOST,
            "spark.driver.host": DRIVER_HOST,
            "spark.driver.memory": "2g",
            "spark.executor.memory": "768m",
            "spark.sql.shuffle.partitions": 2,
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.streaming.numRecentProgressUpdates": 1000,
            "spark.network.timeout": "600s",
            **(options or {}),
        },
    )


def _run_all(
    spark: SparkSession,
    cluster: LocalCluster,
    stream: ReplayStream,
    settings: ClusterSettings,
    on_batch: OnBatch,
) -> ClusterRun:
    """Run the policies one after another, each on a fresh checkpoint and with empty caches."""

    def run(
        name: str, policy: PolicyName, cache_bytes: int = 0, batches: int | None = None
    ) -> ClusterSeries:
        config = SwarmConfig(
            policy=policy,
            bounds=stream.bounds.edges,
            grid=GRID,
            executors=settings.hosts * settings.executors,
            round_batches=ROUND_BATCHES,
            copy_files=True,
            cache_bytes=cache_bytes,
        )
        try:
            found = replay_policy(
                spark, stream, config, lambda batch: on_batch(name, batch), batches
            )
            return ClusterSeries(found, [_size(cache) for cache in _caches(cluster)])
        finally:
            for cache in _caches(cluster):
                shutil.rmtree(cache, ignore_errors=True)

    run(WARM_UP, settings.policies[0], batches=WARM_UP_BATCHES)
    series: dict[str, ClusterSeries] = {}
    for policy in settings.policies:
        series[policy] = run(policy, policy)
    compared = [compare(stream, one.series) for one in series.values()]
    limited: dict[str, ClusterSeries | str] = {}
    limit = round(settings.limit * max(one.largest_state for one in series.values()))
    for policy in settings.limited if limit else ():
        try:
            limited[policy] = one = run(f"{policy}, limited", policy, limit)
            compared.append(compare(stream, one.series))
        except (StreamingQueryException, Py4JJavaError) as error:
            limited[policy] = cause_of(error)
    checked, wrong = (sum(one[i] for one in compared) for i in (0, 1))
    return ClusterRun(settings, series, limited, limit, checked, wrong)


def _caches(cluster: LocalCluster) -> list[Path]:
    return [cluster.folder_of(host) / "cache" for host in cluster.hosts]


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
