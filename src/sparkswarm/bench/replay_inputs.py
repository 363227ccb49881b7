"""The inputs of ``sparkswarm bench replay``, and their exact results.

Reads a Parquet file of points in time order, cuts it into batches, draws queries around its points
and writes what every run reads. Independent of the engine, as the number of results is. Files::

    points/00000-0.parquet       id BIGINT, x DOUBLE, y DOUBLE
    queries/0.parquet            id BIGINT, min_x, min_y, max_x, max_y DOUBLE
    changes/00000.parquet        op STRING ('update'), id, min_x, min_y, max_x, max_y

After the last batch comes a copy of it, in which results are checked one by one and nothing is
measured.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sparkswarm.bench.inputs import (
    compare_all,
    count_matches,
    edges_of,
    write_numbered,
)
from sparkswarm.compiled import FloatArray
from sparkswarm.errors import WorkloadError
from sparkswarm.geometry import Bounds
from sparkswarm.workloads import Rectangles

COLUMNS = (("x", "y"), ("lon", "lat"), ("longitude", "latitude"))
"""Names of the columns of coordinates, in order of preference; their case does not matter."""

MARGIN = 0.001
"""Distance of the bounds from the outermost points, as a share of the extent."""

FILES_PER_BATCH = 4
"""Files with the points of a batch, each read by a task of its own."""

SAMPLE = 400
"""Approximate number of points per checked batch whose results are compared one by one."""


@dataclass(frozen=True, eq=False)
class PointsRead:
    """Points of a file, in its order.

    Attributes
    ----------
    x, y
        Their coordinates.
    columns
        Names of the columns they were read from.
    skipped
        Rows before the last one read that are not used: without finite coordinates, or outside.
    """

    x: FloatArray
    y: FloatArray
    columns: tuple[str, str]
    skipped: int


def read_points(
    path: Path,
    most: int,
    columns: tuple[str | None, str | None] = (None, None),
    bounds: Bounds | None = None,
) -> PointsRead:
    """Return the first ``most`` points of a Parquet file, or of all files of a folder by name.

    Rows with a coordinate that is null, NaN or infinite are skipped, and with ``bounds`` those
    outside.

    Raises
    ------
    WorkloadError
        If there is no such file, it cannot be read, or it has no columns of coordinates.
    """
    files = sorted(path.rglob("*.parquet")) if path.is_dir() else [path]
    if not files or not files[0].is_file():
        raise WorkloadError(f"there is no Parquet file {str(path)!r}")
    names = coordinate_columns(_opened(files[0]).schema_arrow.names, columns)
    parts: list[tuple[FloatArray, FloatArray]] = []
    skipped = wanted = 0
    for file in files:
        try:
            for rows in _opened(file).iter_batches(columns=list(names)):
                x, y = (_numbers(rows.column(rows.schema.get_field_index(n))) for n in names)
                usable = np.isfinite(x) & np.isfinite(y)
                if bounds is not None:
                    usable &= (bounds.min_x <= x) & (x <= bounds.max_x)
                    usable &= (bounds.min_y <= y) & (y <= bounds.max_y)
                rest = np.flatnonzero(usable)[: most - wanted]
                upto = int(rest[-1]) + 1 if len(rest) == most - wanted else len(x)
                skipped += upto - len(rest)
                wanted += len(rest)
                parts.append((x[rest], y[rest]))
                if wanted == most:
                    break
        except (pa.ArrowException, ValueError) as error:
            raise WorkloadError(f"{file} cannot be read as points: {error}") from error
        if wanted == most:
            break
    xs, ys = (np.concatenate([part[axis] for part in parts] or [np.empty(0)]) for axis in (0, 1))
    return PointsRead(xs, ys, names, skipped)


def coordinate_columns(
    found: list[str], given: tuple[str | None, str | None] = (None, None)
) -> tuple[str, str]:
    """Return the columns of x and y among those of a file; WorkloadError if there are none."""
    by_case = {name.lower(): name for name in reversed(found)}
    for x, y in COLUMNS:
        names = tuple(g or by_case.get(n) for g, n in zip(given, (x, y), strict=True))
        if names[0] in found and names[1] in found:
            return str(names[0]), str(names[1])
    known = " or ".join("/".join(pair) for pair in COLUMNS)
    raise WorkloadError(
        f"the points need columns {known}, or those that --x and --y name; the file has "
        f"{', '.join(found)}"
    )


def bounds_around(x: FloatArray, y: FloatArray) -> Bounds:
    """Return the extent of the points with a small margin."""
    low, high = np.array([x.min(), y.min()]), np.array([x.max(), y.max()])
    # Points on a line still need a space with an area.
    extent = np.maximum(high - low, max(float((high - low).max()), 1e-6) * 1e-3)
    low, high = low - MARGIN * extent, high + MARGIN * extent
    return Bounds(float(low[0]), float(low[1]), float(high[0]), float(high[1]))


def squares_around(
    x: FloatArray, y: FloatArray, side: float, bounds: Bounds, rng: np.random.Generator, n: int
) -> Rectangles:
    """Return ``n`` squares around points drawn at random; ``side`` is a share of the width."""
    centre = rng.integers(0, len(x), n)
    half = side * bounds.width / 2
    return Rectangles(x[centre] - half, y[centre] - half, x[centre] + half, y[centre] + half)


@dataclass(frozen=True)
class ReplayStream:
    """Files that :func:`write_replay` wrote, and the exact number of their results.

    Attributes
    ----------
    folder, bounds
        Their folder, and the space.
    batches, points
        Batches to measure, and points of each.
    has_changes
        Whether queries change.
    matches
        Number of results of each batch, the copy of the last included.
    sample
        Number of results of some points of the checked batches, by point id.
    """

    folder: Path
    bounds: Bounds
    batches: int
    points: int
    has_changes: bool
    matches: list[int]
    sample: dict[int, int]

    @property
    def checked_batches(self) -> tuple[int, int]:
        """The batches whose results are compared point by point: the first, and the copy."""
        return 0, self.batches

    @property
    def sample_step(self) -> int:
        """Every n-th point of a checked batch is in the sample."""
        return max(1, self.points // SAMPLE)


def write_replay(
    folder: Path,
    x: FloatArray,
    y: FloatArray,
    points: int,
    queries: int,
    side: float,
    churn: float = 0.0,
    seed: int = 0,
    bounds: Bounds | None = None,
) -> ReplayStream:
    """Write the points in batches of ``points``, and queries drawn around them.

    Points that do not fill a batch are left out. With ``churn``, that share of the queries is
    updated in each batch, to squares around other points.

    Raises
    ------
    WorkloadError
        If the points do not fill one batch.
    """
    batches = len(x) // points
    if not batches:
        raise WorkloadError(f"{len(x):,} points do not fill a batch of {points:,}")
    x, y = x[: batches * points], y[: batches * points]
    space = bounds or bounds_around(x, y)
    for name in ("points", "queries", "changes"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng((seed, 0))
    now = np.array(squares_around(x, y, side, space, rng, queries))
    ids = np.arange(queries)
    for part, mine in enumerate(np.array_split(ids, 4)):
        columns = {"id": mine, **edges_of(Rectangles(*now), mine)}
        write_numbered(folder / f"queries/{part}.parquet", part, columns)
    matches: list[int] = []
    stream = ReplayStream(folder, space, batches, points, churn > 0, matches, {})
    for batch in range(batches + 1):
        is_copy = batch == batches
        first = (batch - is_copy) * points
        here = x[first : first + points], y[first : first + points]
        for part, mine in enumerate(np.array_split(np.arange(points), FILES_PER_BATCH)):
            write_numbered(
                folder / f"points/{batch:05d}-{part}.parquet",
                batch * FILES_PER_BATCH + part,
                {"id": mine + batch * points, "x": here[0][mine], "y": here[1][mine]},
            )
        rng = np.random.default_rng((seed, 1, batch))
        changed = rng.choice(queries, 0 if is_copy else round(churn * queries), replace=False)
        changed.sort()
        now[:, changed] = squares_around(x, y, side, space, rng, len(changed))
        update: dict[str, Any] = {"op": pa.array(["update"] * len(changed), pa.string())}
        update |= {"id": changed, **edges_of(Rectangles(*now), changed)}
        write_numbered(folder / f"changes/{batch:05d}.parquet", batch, update)
        matches.append(int(count_matches(*here, Rectangles(*now)).sum()))
        if batch in stream.checked_batches:
            # Ids that are multiples of the step, wherever the batch begins.
            some = np.arange(-batch * points % stream.sample_step, points, stream.sample_step)
            counts = compare_all(here[0][some], here[1][some], Rectangles(*now))
            stream.sample.update(
                zip((some + batch * points).tolist(), counts.tolist(), strict=True)
            )
    return stream


def _opened(file: Path) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(file)
    except (pa.ArrowException, OSError) as error:
        raise WorkloadError(f"{file} is not a readable Parquet file: {error}") from error


def _numbers(column: pa.Array) -> FloatArray:
    """Return a column as floats, NaN where it is null."""
    values = pc.cast(column, pa.float64())
    return np.asarray(pc.fill_null(values, np.nan).to_numpy(zero_copy_only=False))
