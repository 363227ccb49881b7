"""The rows of the synthetic sources: each is a pure function of seed, options and row number.

They do not depend on the boundaries of micro-batches, on partitions or on the clock: a replayed
micro-batch has the same rows, and a batch read has the rows of the stream. Rows are drawn in
blocks of a fixed size, each with its own generator; to get part of a block, all of it is drawn.
Runs in tasks; needs no Spark.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from sparkswarm.compiled import BoolArray, FloatArray, LongArray
from sparkswarm.geometry import Bounds
from sparkswarm.workloads import Density, cities_density
from sparkswarm.workloads.density import rectangles_around
from sparkswarm.workloads.synthetic_options import CitiesOptions, QueriesOptions, SourceOptions

BLOCK = 16_384
"""Rows drawn at once: 1 ms of work, so that little is wasted on a small micro-batch."""

BAD_KINDS = ("nan", "infinite", "outside", "null")
"""Faults of a coordinate of a bad row, equally frequent."""


_TIMESTAMP = pa.timestamp("us", tz="UTC")
POINTS = pa.schema(
    [("id", pa.int64()), ("x", pa.float64()), ("y", pa.float64()), ("ts", _TIMESTAMP)]
)
QUERIES = pa.schema(
    [
        ("op", pa.string()),
        ("id", pa.int64()),
        *((edge, pa.float64()) for edge in ("min_x", "min_y", "max_x", "max_y")),
        ("ts", _TIMESTAMP),
    ]
)


@lru_cache(maxsize=8)
def _density(bounds: Bounds, columns: int, rows: int, hour_utc: int | None) -> Density:
    """Return the density, built once per process: it takes half a second on 1000 x 1000 cells.

    Spark reuses its Python workers, so later micro-batches find it in the cache. With daylight a
    block needs at most six hours of the day, so eight entries are enough; one takes 24 MB.
    """
    middle = None if hour_utc is None else hour_utc + 0.5
    return cities_density(bounds, columns, rows, hour_utc=middle)


def _draw_positions(
    options: SourceOptions, rng: np.random.Generator, seconds: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the position of each row, given its virtual time since the start."""
    x, y = np.empty(len(seconds)), np.empty(len(seconds))
    hours = np.zeros(len(seconds), dtype=np.int64)
    if options.daylight:
        midnight = options.start.replace(hour=0, minute=0, second=0, microsecond=0)
        since_midnight = (options.start - midnight).total_seconds()
        hours = ((seconds + since_midnight) // 3600).astype(np.int64)
    borders = [0, *(np.flatnonzero(np.diff(hours)) + 1).tolist(), len(seconds)]
    for begin, end in itertools.pairwise(borders):
        hour = int(hours[begin]) % 24 if options.daylight else None
        density = _density(options.bounds, *options.grid, hour)
        x[begin:end], y[begin:end] = density.sample_points(rng, end - begin)

    bounds = options.bounds
    for hotspot in options.hotspot:
        first, last = hotspot.first, hotspot.last
        drawn, across, up = rng.random((3, len(seconds)))
        active = (first.start <= seconds) & (seconds < first.stop)
        here = np.flatnonzero(active & (drawn < first.point_share))
        way = (seconds[here] - first.start) / (first.stop - first.start)
        west = first.corner[0] + way * (last.corner[0] - first.corner[0])
        south = first.corner[1] + way * (last.corner[1] - first.corner[1])
        x[here] = bounds.min_x + (west + across[here] * first.side) * bounds.width
        y[here] = bounds.min_y + (south + up[here] * first.side) * bounds.height
    # Rounding can move a position in a hotspot at the far edge just beyond it.
    return np.minimum(x, bounds.max_x, out=x), np.minimum(y, bounds.max_y, out=y)


def _event_times(options: SourceOptions, numbers: LongArray) -> pa.Array:
    whole, part = np.divmod(numbers, options.rows_per_second)
    whole_start = options.start.replace(microsecond=0)  # a float has no room for the rest
    start = int(whole_start.timestamp()) * 1_000_000 + options.start.microsecond
    micros = start + whole * 1_000_000 + part * 1_000_000 // options.rows_per_second
    return pa.array(micros).view(_TIMESTAMP)


def _point_columns(options: CitiesOptions, rng: np.random.Generator, ids: LongArray) -> list[Any]:
    x, y = _draw_positions(options, rng, ids / options.rows_per_second)
    no_x = no_y = np.zeros(len(ids), dtype=bool)
    if options.bad_rows:
        bad = rng.random(len(ids)) < options.bad_rows
        kind = rng.integers(0, len(BAD_KINDS), len(ids))
        on_x = rng.random(len(ids)) < 0.5
        far = rng.uniform(0.01, 1, len(ids)) * rng.choice([-1, 1], len(ids))
        bounds = options.bounds
        no_x = _spoil(x, bad & on_x, kind, far, bounds.min_x, bounds.max_x)
        no_y = _spoil(y, bad & ~on_x, kind, far, bounds.min_y, bounds.max_y)
    return [ids, pa.array(x, mask=no_x), pa.array(y, mask=no_y), _event_times(options, ids)]


def _spoil(
    column: FloatArray, bad: BoolArray, kind: LongArray, far: FloatArray, low: float, high: float
) -> BoolArray:
    """Replace coordinates where ``bad`` is true; return where they must become null.

    ``far`` is the distance beyond the bounds as a share of the extent; its sign is the side.
    """
    outside = np.where(far > 0, high, low) + far * (high - low)
    for name, value in (("nan", far * np.nan), ("infinite", far * np.inf), ("outside", outside)):
        np.copyto(column, value, where=bad & (kind == BAD_KINDS.index(name)))
    return np.asarray(bad & (kind == BAD_KINDS.index("null")))


def _query_columns(
    options: QueriesOptions, rng: np.random.Generator, numbers: LongArray
) -> list[Any]:
    """Return the operations with these numbers; after turn t the ids [t, queries + t) exist."""
    turn, step = np.divmod(numbers - options.queries, 3)
    x, y = _draw_positions(options, rng, numbers / options.rows_per_second)
    updated = turn + 1 + (rng.random(len(numbers)) * options.queries).astype(np.int64)
    first = numbers < options.queries
    gone, new = ~first & (step == 0), ~first & (step == 1)
    ids = np.select([first, gone, new], [numbers, turn, options.queries + turn], updated)
    op = pa.DictionaryArray.from_arrays(
        np.select([first | new, gone], [0, 1], 2).astype(np.int8),
        pa.array(["register", "unregister", "update"]),
    ).cast(pa.string())
    edges = rectangles_around(x, y, options.side, options.bounds)
    rectangle = [pa.array(edge, mask=gone) for edge in edges]
    return [op, ids, *rectangle, _event_times(options, numbers)]


def read_rows(options: SourceOptions, start: int, stop: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows numbered from ``start`` up to, not including, ``stop``, block by block."""
    for block in range(start // BLOCK, -(-stop // BLOCK)):
        begin = block * BLOCK
        numbers = np.arange(begin, begin + BLOCK)
        if isinstance(options, CitiesOptions):
            rng = np.random.default_rng([options.seed, 0, block])
            columns, schema = _point_columns(options, rng, numbers), POINTS
        elif isinstance(options, QueriesOptions):
            rng = np.random.default_rng([options.seed, 1, block])
            columns, schema = _query_columns(options, rng, numbers), QUERIES
        else:
            raise TypeError(f"unknown kind of options: {type(options).__name__}")
        batch = pa.RecordBatch.from_arrays([pa.array(c) for c in columns], schema=schema)
        low, high = max(start, begin) - begin, min(stop, begin + BLOCK) - begin
        yield batch.slice(low, high - low)
