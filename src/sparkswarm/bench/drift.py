"""Points that drift, for ``sparkswarm bench replay``.

Cities of the world are active by daylight, one hour per batch, so the load follows the sun.
Hotspots begin with a batch in places where there was little, last one to three batches, and vanish.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from sparkswarm.workloads import WORLD, Hotspot
from sparkswarm.workloads.synthetic_options import CitiesOptions, MovingHotspot
from sparkswarm.workloads.synthetic_rows import POINTS, read_rows

SECONDS_PER_BATCH = 3600
FIRST_HOTSPOT, HOTSPOT_EVERY, LONGEST = 3, 4, 3
"""Batch of the first hotspot, batches between two beginnings, batches of the longest."""

SIDES, SHARES = (0.01, 0.06), (0.15, 0.4)
"""Ranges of a hotspot's side (share of the space) and of its share of the points."""


def drift_hotspots(batches: int, seed: int = 0) -> tuple[Hotspot, ...]:
    """Return the hotspots; their times are batches."""
    rng = np.random.default_rng((seed, 4))
    found = []
    for start in range(FIRST_HOTSPOT, batches, HOTSPOT_EVERY):
        side, share = rng.uniform(*SIDES), rng.uniform(*SHARES)
        found.append(
            Hotspot(
                start,
                start + int(rng.integers(1, LONGEST + 1)),
                side,
                share,
                corner=(rng.uniform(0, 1 - side), rng.uniform(0.2, 0.8 - side)),
            )
        )
    return tuple(found)


def write_drift(file: Path, batches: int, points: int, seed: int = 0) -> tuple[Hotspot, ...]:
    """Write a Parquet file of points in time order; return its hotspots."""
    per_second = max(1, points // SECONDS_PER_BATCH)
    hotspots = drift_hotspots(batches, seed)
    in_seconds = [
        replace(h, start=h.start * points // per_second, stop=h.stop * points // per_second)
        for h in hotspots
    ]
    options = CitiesOptions(
        rows_per_second=per_second,
        daylight=True,
        bounds=WORLD,
        grid=(1000, 500),
        hotspot=tuple(MovingHotspot(one, one) for one in in_seconds),
        seed=seed,
    )
    with pq.ParquetWriter(file, POINTS) as writer:
        for rows in read_rows(options, 0, batches * points):
            writer.write_batch(rows)
    return hotspots
