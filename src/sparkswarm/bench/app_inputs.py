"""The inputs of ``sparkswarm bench apps``: points with columns, and queries of every kind.

Parquet files that the engine and its rivals read, the same from the same seed. In the folder::

    points/batch=00000-part=0.parquet    id, x, y, ts, speed, kind
    subscriptions/part=0.parquet         id, rectangle, where, least_speed, only_kind
    aggregates/part=0.parquet            id, rectangle, aggregate, window
    asks/batch=00000.parquet             op, id, rectangle

A batch has the points of :data:`BATCH_SECONDS` of event time, some of them up to two seconds late.
The condition of a subscription is in the files twice: as text, which the engine reads, and as
columns, which the join in plain Spark uses.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sparkswarm.bench.inputs import edges_of, write_numbered
from sparkswarm.geometry import Bounds
from sparkswarm.workloads import CONTIGUOUS_US, Density, cities_density

SECOND = 1_000_000
START = 1_700_000_000 * SECOND
BATCH_SECONDS = 10
LATE = 2 * SECOND
KINDS = ("car", "bus", "taxi", "bike")
SPEEDS = (30.0, 50.0, 80.0, 100.0)
AGGREGATE, WINDOW = "count, mean(speed), max(speed)", f"{BATCH_SECONDS} seconds"
ASK_SIDE = 0.005
"""Side of a snapshot query as a share of the side of the space: some thousands of points."""

FEW_VALUES = ["kind", "op", "aggregate"]
"""Columns with few distinct values, written with dictionary encoding."""

FIRST_AGGREGATE = 1_000_000_000
"""Ids of aggregates begin here, those of subscriptions at 0."""


@dataclass(frozen=True)
class AppInputs:
    """Files that :func:`write_app_inputs` wrote.

    Attributes
    ----------
    folder
        Their folder.
    bounds
        The space.
    side
        Side of a continuous query as a share of the side of the space.
    batches, points
        Batches, and points in each.
    queries, aggregates, asks
        Subscriptions, aggregates, and snapshot queries in each batch.
    files_per_batch
        Files with a batch's points.
    """

    folder: Path
    bounds: Bounds
    side: float
    batches: int
    points: int
    queries: int
    aggregates: int
    asks: int
    files_per_batch: int = 4

    def points_file(self, batch: int, part: int) -> Path:
        """Return one of the files with a batch's points."""
        return self.folder / "points" / f"batch={batch:05d}-part={part}.parquet"

    def asks_file(self, batch: int) -> Path:
        """Return the file with a batch's snapshot queries."""
        return self.folder / "asks" / f"batch={batch:05d}.parquet"

    def read(self, kind: str, batch: int | None = None) -> pa.Table:
        """Return the rows of a batch, or of all files."""
        pattern = "*.parquet" if batch is None else f"batch={batch:05d}*.parquet"
        files = sorted((self.folder / kind).glob(pattern))
        return pa.concat_tables(pq.read_table(file, partitioning=None) for file in files)


def write_app_inputs(
    folder: Path,
    *,
    batches: int,
    points: int,
    queries: int,
    aggregates: int,
    asks: int,
    seed: int,
    side: float = 0.001,
) -> AppInputs:
    """Write the inputs into a new folder."""
    where = cities_density(CONTIGUOUS_US, 1000, 1000)
    anywhere = Density("uniform", where.bounds, np.ones((1, 1)))
    inputs = AppInputs(folder, where.bounds, side, batches, points, queries, aggregates, asks)
    for name in ("points", "subscriptions", "aggregates", "asks"):
        (folder / name).mkdir(parents=True)

    rng = np.random.default_rng((seed, 0))
    wanted = rng.integers(0, 4, queries)
    speed, liked = rng.choice(SPEEDS, queries), rng.choice(KINDS, queries)
    by_speed, by_kind = wanted == 1, wanted == 2
    text = np.full(queries, None, object)
    text[by_speed] = [f"speed >= {value}" for value in speed[by_speed]]
    text[by_kind] = [f"kind = '{value}'" for value in liked[by_kind]]
    ids = np.arange(queries)
    columns = {
        "id": ids,
        **edges_of(anywhere.sample_queries(rng, queries, side)),
        "where": pa.array(text, pa.string()),
        "least_speed": pa.array(np.where(by_speed, speed, 0), mask=~by_speed),
        "only_kind": pa.array(np.where(by_kind, liked, ""), mask=~by_kind),
    }
    write_numbered(folder / "subscriptions" / "part=0.parquet", 0, columns, FEW_VALUES)

    rng = np.random.default_rng((seed, 1))
    columns = {
        "id": FIRST_AGGREGATE + np.arange(aggregates),
        **edges_of(anywhere.sample_queries(rng, aggregates, side)),
        "aggregate": np.full(aggregates, AGGREGATE),
        "window": np.full(aggregates, WINDOW),
    }
    write_numbered(folder / "aggregates" / "part=0.parquet", 0, columns, FEW_VALUES)

    for batch in range(batches):
        rng = np.random.default_rng((seed, 2, batch))
        x, y = where.sample_points(rng, points)
        began, length = START + SECOND * BATCH_SECONDS * batch, SECOND * BATCH_SECONDS
        ts = began + rng.integers(-LATE, length, points)
        speed, kinds = rng.uniform(0, 120, points), rng.choice(KINDS, points)
        for part, mine in enumerate(np.array_split(np.arange(points), inputs.files_per_batch)):
            columns = {
                "id": mine + batch * points,
                "x": x[mine],
                "y": y[mine],
                "ts": pa.array(ts[mine], pa.timestamp("us", "UTC")),
                "speed": speed[mine],
                "kind": kinds[mine],
            }
            number = batch * inputs.files_per_batch + part
            write_numbered(inputs.points_file(batch, part), number, columns, FEW_VALUES)
        columns = {
            "op": np.where(np.arange(asks) % 2, "count", "range"),
            "id": np.arange(asks) + batch * asks,
            **edges_of(where.sample_queries(rng, asks, ASK_SIDE)),
        }
        write_numbered(inputs.asks_file(batch), batch, columns, FEW_VALUES)
    return inputs
