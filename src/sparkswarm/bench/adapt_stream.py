"""The inputs of ``sparkswarm bench adapt``, and their exact results.

The paper's hotspot: points are in the cities; for some batches a square attracts part of them, and
has queries of its own. Independent of the engine.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np
import pyarrow as pa

from sparkswarm.bench.inputs import count_matches, edges_of, write_numbered
from sparkswarm.config import PolicyName
from sparkswarm.errors import SparkswarmError, WorkloadError
from sparkswarm.policies import POLICIES
from sparkswarm.spark.driver.history import HISTORY_POINTS, HISTORY_QUERIES
from sparkswarm.workloads import Density, Hotspot, Rectangles

FILES_PER_BATCH = 2
"""Files with the points of a batch, of equal size, so that two cores read them evenly."""

SAMPLE = 200
"""Approximate number of points per batch whose results are compared one by one."""


class AdaptError(SparkswarmError, RuntimeError):
    """A part of the benchmark failed, or its results are wrong."""


@dataclass(frozen=True)
class AdaptSettings:
    """The parameters of the benchmark.

    Attributes
    ----------
    batches, points
        Number of batches, and points per batch.
    queries
        Queries registered before the first batch, without those of the hotspot.
    side
        Side of a query as a share of the side of the space.
    hotspot
        The hotspot; its times are batches. Its queries are registered in its first batch and
        unregistered in the first batch after it.
    wall_executors, path_executors
        Number of executors of the two parts. The first part has as many cores.
    policies
        The policies to compare.
    round_batches
        Length of SWARM's rounds.
    seed
        Seed of all random numbers.
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
        """Number of queries of the hotspot: ``query_share`` of all while it is active."""
        share = self.hotspot.query_share
        if share >= 1:
            raise WorkloadError("the query_share of a hotspot must be below 1")
        return round(self.queries * share / (1 - share))

    @property
    def sample_step(self) -> int:
        """Every n-th point of a batch is in the sample."""
        return max(1, self.points // SAMPLE)


class _Found(Protocol):
    """What a policy found: results by batch, and of the sample by point."""

    @property
    def policy(self) -> str: ...
    @property
    def matches(self) -> Sequence[int]: ...
    @property
    def sample(self) -> Mapping[int, int]: ...


@dataclass(frozen=True)
class Truth:
    """The correct numbers of results: of each batch, and of each point of the sample."""

    matches: list[int]
    sample: dict[int, int]

    def check(self, series: Iterable[_Found]) -> None:
        """Raise AdaptError if a policy has other numbers."""
        for one in series:
            if one.matches != self.matches:
                batch = next(
                    i
                    for i, (a, b) in enumerate(zip(one.matches, self.matches, strict=True))
                    if a != b
                )
                raise AdaptError(
                    f"{one.policy} found {one.matches[batch]} results in batch {batch}, expected "
                    f"{self.matches[batch]}"
                )
            wrong = [key for key, n in self.sample.items() if one.sample.get(key, 0) != n]
            if wrong:
                key = wrong[0]
                raise AdaptError(
                    f"{one.policy} found {one.sample.get(key, 0)} results of point {key}, expected "
                    f"{self.sample[key]}; {len(wrong)} points of the sample are wrong"
                )


def write_stream(folder: Path, density: Density, settings: AdaptSettings) -> Truth:
    """Write the files that all runs read; return the correct numbers of results.

    ``points`` and ``operations`` are streams, ``queries`` are registered before the first batch,
    ``past_points`` and ``past_queries`` are the history from before the hotspot. Modification
    times give the order of the files, see :mod:`sparkswarm.bench.inputs`.
    """
    s, hotspot = settings, settings.hotspot
    for name in ("points", "operations", "queries", "past_points", "past_queries"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng((s.seed, 0))
    everywhere = Density("uniform", density.bounds, np.ones((1, 1)))
    queries = everywhere.sample_queries(rng, s.queries, s.side)
    hot = hotspot.sample_queries(rng, s.hot_queries, s.side, density.bounds)
    for part, mine in enumerate(np.array_split(np.arange(s.queries), 2)):
        write_numbered(
            folder / f"queries/{part}.parquet", part, {"id": mine, **edges_of(queries, mine)}
        )
    past = np.sort(rng.choice(s.queries, min(s.queries, HISTORY_QUERIES), replace=False))
    write_numbered(folder / "past_queries/0.parquet", 0, {"id": past, **edges_of(queries, past)})
    x, y = density.sample_points(rng, HISTORY_POINTS)
    write_numbered(folder / "past_points/0.parquet", 0, {"id": np.arange(len(x)), "x": x, "y": y})

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
            columns = {"id": mine + batch * s.points, "x": x[mine], "y": y[mine]}
            write_numbered(folder / name, number, columns)
        op, changed = "register", ids[:0]
        if batch == hotspot.start:
            changed = ids
        elif batch == hotspot.stop:
            op, changed = "unregister", ids
        edges: dict[str, Any] = edges_of(hot, changed - s.queries)
        if op == "unregister":
            edges = {name: pa.nulls(len(changed), pa.float64()) for name in edges}
        ops = pa.array([op] * len(changed), pa.string())
        name = f"operations/{batch:05d}.parquet"
        write_numbered(folder / name, batch, {"op": ops, "id": changed, **edges})
        counts = count_matches(x, y, now if active else queries)
        matches.append(int(counts.sum()))
        for i in range(0, s.points, s.sample_step):
            sample[batch * s.points + i] = int(counts[i])
    return Truth(matches, sample)
