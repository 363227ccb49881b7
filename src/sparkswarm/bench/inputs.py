"""The inputs of ``sparkswarm bench engine``, and their exact results.

Parquet files that the engine and its rivals read as streams, determined by a seed. Independent
of the engine. Files in the folder::

    points/batch=00000-part=0.parquet     id BIGINT, x DOUBLE, y DOUBLE
    queries/part=0.parquet                id BIGINT, min_x, min_y, max_x, max_y DOUBLE
    changes/batch=00000.parquet           op STRING ('update'), id, min_x, min_y, max_x, max_y

Queries are closed rectangles. The changes of a batch apply to its own points. Modification times
increase with the batch, so that Spark's file source reads the files in order: with
``maxFilesPerTrigger`` at ``files_per_batch`` for the points and at 1 for the changes, a
micro-batch is a batch. The files of a batch have the same size, so that cores read them evenly.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sparkswarm.compiled import FloatArray, LongArray, compiled
from sparkswarm.errors import WorkloadError
from sparkswarm.geometry import Bounds
from sparkswarm.workloads import (
    CONTIGUOUS_US,
    QUERY_SIDE,
    Density,
    Rectangles,
    cities_density,
)

Centres = Literal["cities", "uniform"]

POINTS_SCHEMA = "id BIGINT, x DOUBLE, y DOUBLE"
"""The columns of the points' files, as Spark writes a schema."""

QUERIES_SCHEMA = "id BIGINT, min_x DOUBLE, min_y DOUBLE, max_x DOUBLE, max_y DOUBLE"
"""The columns of the queries' files."""

CHANGES_SCHEMA = f"op STRING, {QUERIES_SCHEMA}"
"""The columns of the files of changes."""

_EDGES = Rectangles._fields
_FIRST_TIME = 1_600_000_000
"""Modification time of the first file, in seconds since 1970."""


@dataclass(frozen=True)
class Inputs:
    """Files that :func:`write_inputs` wrote.

    Attributes
    ----------
    folder
        Their folder.
    bounds
        The space; points lie inside it, queries may extend beyond it.
    side
        Side of a query as a share of the side of the space.
    batches, points, queries, changes
        Number of batches, points per batch, queries, and changed queries per batch.
    files_per_batch
        Number of files with the points of a batch.
    """

    folder: Path
    bounds: Bounds
    side: float
    batches: int
    points: int
    queries: int
    changes: int
    files_per_batch: int

    @property
    def points_folder(self) -> Path:
        """Folder of the stream of points."""
        return self.folder / "points"

    @property
    def queries_folder(self) -> Path:
        """Folder of the queries before the first batch."""
        return self.folder / "queries"

    @property
    def changes_folder(self) -> Path:
        """Folder of the stream of changes."""
        return self.folder / "changes"

    def read_points(self, batch: int) -> tuple[LongArray, FloatArray, FloatArray]:
        """Return the ids and the coordinates of a batch's points."""
        table = pa.concat_tables(
            pq.read_table(self.points_file(batch, part), partitioning=None)
            for part in range(self.files_per_batch)
        )
        ids, x, y = (table[name].to_numpy() for name in ("id", "x", "y"))
        return ids, x, y

    def read_queries(self, batch: int | None = None) -> Rectangles:
        """Return the queries of a batch, by id; without a batch, those before the first."""
        table = pa.concat_tables(
            pq.read_table(file, partitioning=None)
            for file in sorted(self.queries_folder.glob("*.parquet"))
        )
        rectangles = np.empty((len(_EDGES), self.queries))
        ids = table["id"].to_numpy()
        for edge, name in zip(rectangles, _EDGES, strict=True):
            edge[ids] = table[name].to_numpy()
        for earlier in range(0 if batch is None else batch + 1):
            changes = pq.read_table(self.changes_file(earlier), partitioning=None)
            ids = changes["id"].to_numpy()
            for edge, name in zip(rectangles, _EDGES, strict=True):
                edge[ids] = changes[name].to_numpy()
        return Rectangles(*rectangles)

    def points_file(self, batch: int, part: int) -> Path:
        """Return one of the files with a batch's points."""
        return self.points_folder / f"batch={batch:05d}-part={part}.parquet"

    def changes_file(self, batch: int) -> Path:
        """Return the file with a batch's changes."""
        return self.changes_folder / f"batch={batch:05d}.parquet"


def write_inputs(
    folder: str | os.PathLike[str],
    batches: int = 12,
    points: int = 1_000_000,
    queries: int = 1_000_000,
    change_share: float = 0.01,
    seed: int = 0,
    density: Density | None = None,
    side: float = QUERY_SIDE,
    centres: Centres = "cities",
    files_per_batch: int = 4,
) -> Inputs:
    """Write the inputs, replacing those of an earlier call in the same folder.

    Parameters
    ----------
    folder
        The folder; it is created if necessary.
    batches, points, queries
        Number of batches, points per batch and queries. Point ids are unique over all batches;
        query ids are 0 to ``queries - 1``.
    change_share
        Share of the queries that change in each batch.
    seed
        Seed of all random numbers. A batch's points do not depend on the number of batches.
    density
        Distribution of the points; by default the cities of the contiguous United States.
    side
        Side of a query as a share of the side of the space.
    centres
        Distribution of the queries: ``"cities"`` is that of the points, with hundreds of results
        per point; ``"uniform"`` is uniform in the bounds.
    files_per_batch
        Number of files with the points of a batch.

    Raises
    ------
    WorkloadError
        If a number is out of range.
    """
    if min(batches, points, queries) < 1 or not 1 <= files_per_batch <= points:
        raise WorkloadError(
            "a benchmark needs at least 1 batch, 1 point, 1 query and 1 file per batch, and no "
            f"more files than points, got {batches}, {points}, {queries} and {files_per_batch}"
        )
    if not 0 <= change_share <= 1:
        raise WorkloadError(f"change_share must be between 0 and 1, got {change_share}")
    if centres not in get_args(Centres):
        raise WorkloadError(f"centres must be one of {', '.join(get_args(Centres))}")
    where = density if density is not None else cities_density(CONTIGUOUS_US, 1000, 1000)
    waiting = where if centres == "cities" else Density("uniform", where.bounds, np.ones((1, 1)))
    changes = round(queries * change_share)
    inputs = Inputs(
        Path(folder), where.bounds, side, batches, points, queries, changes, files_per_batch
    )
    for kind in (inputs.points_folder, inputs.queries_folder, inputs.changes_folder):
        kind.mkdir(parents=True, exist_ok=True)
        for file in kind.glob("*.parquet"):
            file.unlink()

    ids = np.arange(queries)
    rectangles = waiting.sample_queries(_rng(seed, 0, 0), queries, side)
    for number, mine in enumerate(np.array_split(ids, min(4, queries))):
        file = inputs.queries_folder / f"part={number}.parquet"
        write_numbered(file, number, {"id": mine, **edges_of(rectangles, mine)})
    for batch in range(batches):
        x, y = where.sample_points(_rng(seed, 1, batch), points)
        for part, mine in enumerate(np.array_split(np.arange(points), files_per_batch)):
            write_numbered(
                inputs.points_file(batch, part),
                batch * files_per_batch + part,
                {"id": mine + batch * points, "x": x[mine], "y": y[mine]},
            )
        rng = _rng(seed, 2, batch)
        changed = np.sort(rng.choice(queries, changes, replace=False))
        columns = {"op": np.full(changes, "update"), "id": changed}
        columns |= edges_of(waiting.sample_queries(rng, changes, side))
        write_numbered(inputs.changes_file(batch), batch, columns)
    return inputs


def count_matches(x: FloatArray, y: FloatArray, queries: Rectangles) -> LongArray:
    """Return the exact number of queries that contain each point, for millions of both.

    A sweep line along x keeps the queries that it crosses in a Fenwick tree over the points' y.
    The algorithm has nothing in common with the engine's.
    """
    ys = np.sort(y)
    first = np.searchsorted(ys, queries.min_y, side="left")
    stop = np.searchsorted(ys, queries.max_y, side="right")
    counts = np.zeros(x.size, dtype=np.int64)
    _sweep(
        x,
        np.searchsorted(ys, y, side="left"),
        np.argsort(x, kind="stable"),
        queries.min_x,
        np.argsort(queries.min_x, kind="stable"),
        queries.max_x,
        np.argsort(queries.max_x, kind="stable"),
        first,
        stop,
        counts,
    )
    return counts


def brute_force_sample(
    inputs: Inputs, batch: int, churn: bool, sample: int = 2000, seed: int = 0
) -> tuple[LongArray, LongArray]:
    """Return the ids of some points of a batch, ascending, and the number of results of each.

    Every point of the sample is compared with every query. With ``churn``, the changes up to this
    batch, its own included, are applied to the queries.
    """
    ids, x, y = inputs.read_points(batch)
    chosen = np.random.default_rng(seed).choice(ids.size, min(sample, ids.size), replace=False)
    chosen = chosen[np.argsort(ids[chosen])]
    queries = inputs.read_queries(batch if churn else None)
    return ids[chosen], compare_all(x[chosen], y[chosen], queries)


def compare_all(x: FloatArray, y: FloatArray, queries: Rectangles) -> LongArray:
    """Return the number of queries that contain each point: brute force, for samples."""
    counts = np.zeros(x.size, dtype=np.int64)
    _compare_all(x, y, *queries, counts)
    return counts


@compiled
def _sweep(
    x: FloatArray,
    rank: LongArray,
    by_x: LongArray,
    min_x: FloatArray,
    by_min: LongArray,
    max_x: FloatArray,
    by_max: LongArray,
    first: LongArray,
    stop: LongArray,
    counts: LongArray,
) -> None:
    # A Fenwick tree of differences: the sum up to a rank is the number of queries open there.
    tree = np.zeros(x.size + 2, dtype=np.int64)
    opened = closed = 0
    for point in by_x:
        here = x[point]
        while opened < by_min.size and min_x[by_min[opened]] <= here:
            _add(tree, first[by_min[opened]], 1)
            _add(tree, stop[by_min[opened]], -1)
            opened += 1
        while closed < by_max.size and max_x[by_max[closed]] < here:
            _add(tree, first[by_max[closed]], -1)
            _add(tree, stop[by_max[closed]], 1)
            closed += 1
        position = rank[point] + 1
        while position > 0:
            counts[point] += tree[position]
            position -= position & -position


@compiled
def _add(tree: LongArray, rank: int, value: int) -> None:
    position = rank + 1
    while position < tree.size:
        tree[position] += value
        position += position & -position


@compiled
def _compare_all(
    x: FloatArray,
    y: FloatArray,
    min_x: FloatArray,
    min_y: FloatArray,
    max_x: FloatArray,
    max_y: FloatArray,
    counts: LongArray,
) -> None:
    for point in range(x.size):
        for query in range(min_x.size):
            counts[point] += (
                (min_x[query] <= x[point])
                & (x[point] <= max_x[query])
                & (min_y[query] <= y[point])
                & (y[point] <= max_y[query])
            )


def _rng(*numbers: int) -> np.random.Generator:
    return np.random.default_rng(numbers)


def edges_of(
    rectangles: Rectangles, which: LongArray | slice = slice(None)
) -> dict[str, FloatArray]:
    """Return the edges of rectangles, or of some of them, by name."""
    return {name: edge[which] for name, edge in zip(_EDGES, rectangles, strict=True)}


def write_numbered(
    file: Path, number: int, columns: Mapping[str, object], dictionaries: bool | list[str] = False
) -> None:
    """Write a file, with a modification time that increases with ``number``.

    ``dictionaries`` are the columns with dictionary encoding.
    """
    table = pa.table({name: pa.array(column) for name, column in columns.items()})
    # Random numbers do not compress, and are read fastest uncompressed.
    pq.write_table(table, file, compression="none", use_dictionary=dictionaries)
    os.utime(file, (_FIRST_TIME + number, _FIRST_TIME + number))
