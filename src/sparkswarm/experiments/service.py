"""Service times of the simulated machines, and their measurement.

Times are measured on the real matcher, GlobalIndex and statistics, on this machine. A run stores
them, so that it can be repeated exactly on another machine.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from sparkswarm.bench.world import config_of
from sparkswarm.compiled import FloatArray
from sparkswarm.errors import ConfigError
from sparkswarm.index.build import build_index
from sparkswarm.index.layout import RangeIndex
from sparkswarm.index.match import Matches, match
from sparkswarm.protocol.global_index import GlobalIndex
from sparkswarm.protocol.plan import Plan
from sparkswarm.protocol.unit import LoadBalancingUnit
from sparkswarm.workloads import Density

SIZES = (30_000, 120_000, 480_000, 1_920_000)
"""Sizes of the measured indexes. With more queries, less of the index is in the processor's caches,
and finding a point's first candidate takes longer."""

POINTS = 40_000
"""Points matched in one measurement."""

GROUPS = 8
"""Number of groups of points, by how many queries contain them."""

REPEAT = 7
"""Number of repetitions; the fastest counts, because other load only adds time."""


def _is_amount(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return math.isfinite(value) and value >= 0


@dataclass(frozen=True, slots=True)
class Service:
    """Seconds and bytes of each operation of a machine.

    Attributes
    ----------
    sizes, per_point
        Seconds to match a point without candidates, in indexes of these sizes.
    per_check
        Seconds per candidate, an entry of the index that is compared.
    checks_per_match
        Candidates per query that contains the point.
    per_query
        Seconds to add a query to an executor's index, or to remove it.
    query_bytes
        Memory of a query in that index.
    route_point, route_query
        Seconds of a GlobalIndex machine to route a point, or a query.
    collect_point
        Seconds to add a point to the statistics; only for policies that rebalance.
    """

    sizes: tuple[float, ...]
    per_point: tuple[float, ...]
    per_check: float
    checks_per_match: float
    per_query: float
    query_bytes: float
    route_point: float
    route_query: float
    collect_point: float

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            numbers = value if isinstance(value, tuple) else (value,)
            if not numbers or not all(_is_amount(number) for number in numbers):
                raise ConfigError(f"service: {field.name} must be at least 0, got {value!r}")
        if len(self.sizes) != len(self.per_point) or min(self.sizes) < 1:
            raise ConfigError("service: sizes must be at least 1, with one per_point for each")
        if any(b <= a for a, b in itertools.pairwise(self.sizes)) or min(self.per_point) <= 0:
            raise ConfigError("service: sizes must increase, and per_point must be above 0")

    def point_seconds(self, queries: FloatArray) -> FloatArray:
        """Return the seconds of a point on executors with these numbers of queries.

        Without candidates. Linear in the logarithm of the number of queries between the
        measured sizes, extrapolated above the largest and constant below the smallest.
        """
        at = np.log2(np.maximum(queries, self.sizes[0]))
        sizes = np.log2(self.sizes)
        seconds: FloatArray = np.interp(at, sizes, self.per_point)
        if len(sizes) > 1:
            slope = (self.per_point[-1] - self.per_point[-2]) / (sizes[-1] - sizes[-2])
            seconds += max(slope, 0.0) * np.maximum(at - sizes[-1], 0.0)
        return seconds

    @property
    def per_match(self) -> float:
        """Seconds per query that contains the point."""
        return self.per_check * self.checks_per_match

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form in ``config.json``."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, data: Any) -> Service:
        """Read what :meth:`to_json` wrote; raise ConfigError if it is something else."""
        names = {field.name for field in dataclasses.fields(cls)}
        if not isinstance(data, dict) or set(data) != names:
            keys = ", ".join(sorted(names))
            raise ConfigError(f"service times must have exactly the keys {keys}")
        values: dict[str, Any] = {
            k: tuple(v) if isinstance(v, list) else v for k, v in data.items()
        }
        return cls(**values)

    @classmethod
    def read(cls, path: Path) -> Service:
        """Read service times from a JSON file, or from the ``config.json`` of a run."""
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ConfigError(f"cannot read service times from {path}: {error}") from error
        if isinstance(data, dict) and "service" in data:
            data = data["service"]
        return cls.from_json(data)


STORED = Service(
    sizes=SIZES,
    per_point=(0.16e-6, 0.23e-6, 0.51e-6, 1.06e-6),
    per_check=1.65e-9,
    checks_per_match=1.21,
    per_query=0.25e-6,
    query_bytes=83.0,
    route_point=11e-9,
    route_query=130e-9,
    collect_point=20e-9,
)
"""Service times measured once with :func:`calibrate`, rounded, for reproducible runs."""


def calibrate(density: Density, seed: int = 0) -> Service:
    """Measure this machine; takes some seconds.

    Matching is measured with points and queries drawn from the density, in groups of points by
    the number of queries that contain them, for indexes of several sizes. The prices are those of
    the lines through (checks, seconds per point).
    """
    rng = np.random.default_rng(seed)
    region = density.bounds.edges
    measured = []
    for size in SIZES:
        boxes = np.stack(density.sample_queries(rng, size), axis=1)
        index = build_index(np.arange(size), boxes, None, region)
        x, y = density.sample_points(rng, POINTS)
        found = match(x, y, None, np.arange(POINTS), index)
        measured.append(_grouped(x, y, found, index))
    per_point, per_check = _prices(measured)
    plan = Plan.initial(density.grid, 22)
    routing = GlobalIndex(plan)
    x, y = density.sample_points(rng, POINTS)
    queries = density.grid.place_queries(*density.sample_queries(rng, POINTS))
    # The most expensive case: an executor with many partitions.
    unit = LoadBalancingUnit(0, plan.partitions, config_of(density.grid, 22))
    routed, some = routing.route(x, y), np.ones(POINTS)

    def collect() -> None:
        unit.collect_points(routed.partition, routed.column, routed.row, some)

    return Service(
        sizes=SIZES,
        per_point=per_point,
        per_check=per_check,
        checks_per_match=float(found.checks.sum()) / max(1.0, float(found.counts.sum())),
        per_query=_quickest(lambda: build_index(np.arange(size), boxes, None, region)) / size,
        query_bytes=index.nbytes / size,
        route_point=_quickest(lambda: routing.route(x, y)) / POINTS,
        route_query=_quickest(lambda: routing.route_queries(queries)) / POINTS,
        collect_point=_quickest(collect) / POINTS,
    )


_Measured = tuple[FloatArray, FloatArray]
"""Mean checks and mean seconds per point, of each group."""


def _grouped(x: FloatArray, y: FloatArray, found: Matches, index: RangeIndex) -> _Measured:
    """Measure points in groups by the number of queries that contain them."""
    order = np.argsort(found.counts, kind="stable")
    checks, seconds = [], []
    for group in np.array_split(order, GROUPS):
        which = found.points[group]
        taken = _quickest(partial(match, x, y, None, which, index))
        checks.append(float(found.checks[group].mean()))
        seconds.append(taken / len(group))
    return np.array(checks), np.array(seconds)


def _prices(measured: Sequence[_Measured]) -> tuple[tuple[float, ...], float]:
    """Fit seconds = per_point(size) + per_check x checks, with one per_check for all sizes.

    Least squares of relative errors, because groups differ by a factor of 100. per_point must not
    decrease with the size of the index; where it does, that is noise.
    """
    checks = np.concatenate([c for c, _ in measured])
    seconds = np.concatenate([s for _, s in measured])
    own = np.repeat(np.eye(len(measured)), [len(c) for c, _ in measured], axis=0)
    left = np.column_stack([own, checks]) / seconds[:, None]
    solved, *_ = np.linalg.lstsq(left, np.ones(len(seconds)), rcond=None)
    floors = [0.1 * float(s.min()) for _, s in measured]
    per_point = np.maximum.accumulate(np.maximum(solved[:-1], floors))
    return tuple(map(float, per_point)), max(0.0, float(solved[-1]))


def _quickest(action: Callable[[], object]) -> float:
    best = math.inf
    for _ in range(REPEAT):
        start = time.perf_counter()
        action()
        best = min(best, time.perf_counter() - start)
    return best
