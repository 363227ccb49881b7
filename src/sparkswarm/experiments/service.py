"""Service times: what the machines of the experiments take for each thing they do.

Owns the measured constants and how they are measured: on the real matcher, the real
GlobalIndex and the real statistics, on this machine. A run stores them, so that it can be
repeated exactly anywhere.
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

from sparkswarm.compiled import FloatArray
from sparkswarm.config import SwarmConfig
from sparkswarm.errors import ConfigError
from sparkswarm.index.build import build_index
from sparkswarm.index.layout import RangeIndex
from sparkswarm.index.match import Matches, match
from sparkswarm.protocol.global_index import GlobalIndex
from sparkswarm.protocol.plan import Plan
from sparkswarm.protocol.unit import LoadBalancingUnit
from sparkswarm.workloads import Density

SIZES = (30_000, 120_000, 480_000, 1_920_000)
"""Queries in the indexes that are measured. The more there are, the less of them is in the
caches of the processor, and the longer it takes to find a point's first candidate."""

POINTS = 40_000
"""Points matched in one measurement."""

GROUPS = 8
"""Points are measured in so many groups, by how many queries contain them."""

REPEAT = 7
"""The quickest of so many tries counts: everything else on the machine only adds time."""


def _is_amount(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return math.isfinite(value) and value >= 0


@dataclass(frozen=True, slots=True)
class Service:
    """Seconds and bytes for each thing that a machine does.

    Attributes
    ----------
    sizes, per_point
        Seconds to match a point, whatever it meets, in indexes of some sizes.
    per_check
        Seconds for each entry of the index that is looked at.
    checks_per_match
        Entries looked at for each query that contains the point.
    per_query
        Seconds to put a query into an executor's index, or to take it out.
    query_bytes
        Memory of a query in that index.
    route_point, route_query
        Seconds of a GlobalIndex machine to find where a point, or a query, goes.
    collect_point
        Seconds to collect the statistics of a point; only policies that rebalance do.
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
            raise ConfigError("service: needs as many sizes, from 1 on, as times of a point")
        if any(b <= a for a, b in itertools.pairwise(self.sizes)) or min(self.per_point) <= 0:
            raise ConfigError("service: sizes must grow, and every point must take some time")

    def point_seconds(self, queries: FloatArray) -> FloatArray:
        """Return what a point takes on executors with so many queries, candidates apart.

        A line through the logarithms of the sizes measured. It goes on beyond the largest
        and is level below the smallest.
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
        """Seconds for each query that contains the point."""
        return self.per_check * self.checks_per_match

    def to_json(self) -> dict[str, Any]:
        """Return the form that a run's configuration stores."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, data: Any) -> Service:
        """Read what :meth:`to_json` wrote; ConfigError where that is not what it is."""
        names = {field.name for field in dataclasses.fields(cls)}
        if not isinstance(data, dict) or set(data) != names:
            raise ConfigError(f"service times must be exactly {', '.join(sorted(names))}")
        values: dict[str, Any] = {
            k: tuple(v) if isinstance(v, list) else v for k, v in data.items()
        }
        return cls(**values)

    @classmethod
    def read(cls, path: Path) -> Service:
        """Read service times from a file of their own, or from a run's ``config.json``."""
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
"""Service times measured once with :func:`calibrate`, rounded, for runs that are to be the
same everywhere."""


def calibrate(density: Density, seed: int = 0) -> Service:
    """Measure this machine, in some seconds.

    Matching: points drawn from the density against queries drawn from it, in groups by how
    many queries contain them, for indexes of several sizes. Lines through (checks, seconds a
    point) give the prices.
    """
    rng = np.random.default_rng(seed)
    b = density.bounds
    region = (b.min_x, b.min_y, b.max_x, b.max_y)
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
    grid = (density.grid.columns, density.grid.rows)
    config = SwarmConfig(bounds=(b.min_x, b.min_y, b.max_x, b.max_y), grid=grid, executors=22)
    # An executor that has become responsible for many partitions: the dearest case.
    unit = LoadBalancingUnit(0, plan.partitions, config)
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
"""Mean checks and seconds of a point, of each group."""


def _grouped(x: FloatArray, y: FloatArray, found: Matches, index: RangeIndex) -> _Measured:
    """Time points in groups by how many queries contain them."""
    # Memory that has been used before: finding fresh pages is not the matcher's work.
    room = np.zeros(4 * len(found.ids) + POINTS, dtype=np.int64)
    order = np.argsort(found.counts, kind="stable")
    checks, seconds = [], []
    for group in np.array_split(order, GROUPS):
        which = found.points[group]
        taken = _quickest(partial(match, x, y, None, which, index, room=room))
        checks.append(float(found.checks[group].mean()))
        seconds.append(taken / len(group))
    return np.array(checks), np.array(seconds)


def _prices(measured: Sequence[_Measured]) -> tuple[tuple[float, ...], float]:
    """Fit seconds = per_point(size) + per_check x checks, one price of a check for all sizes.

    Least squares of relative errors, because groups differ a hundredfold. Times of a point
    are kept from falling as the index grows, which only noise could make them do.
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
