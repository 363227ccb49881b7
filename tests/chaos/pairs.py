"""Pairs of points and queries by the million: written, matched by numpy, and compared."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from .trial import Trial

QUERIES = 4_000
"""More than any id of a query, so that a pair is one number."""


def write_batch(table: pa.Table, path: Path, number: int) -> None:
    """Write a file of a stream, with the time that puts it in its place."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path)
    os.utime(path, (1_600_000_000 + 10 * number,) * 2)


def matches(points: dict[str, Any], queries: dict[str, Any]) -> Any:
    """Compare every point with every query; return a number for each pair that matches."""
    order = np.argsort(points["x"], kind="stable")
    x, y, ids = points["x"][order], points["y"][order], points["id"][order]
    found = []
    for number, (low_x, low_y, high_x, high_y) in zip(queries["id"], queries["box"].T, strict=True):
        near = slice(np.searchsorted(x, low_x, "left"), np.searchsorted(x, high_x, "right"))
        inside = (low_y <= y[near]) & (y[near] <= high_y)
        found.append(ids[near][inside] * QUERIES + number)
    return np.concatenate(found)


def keys_in(out: Path) -> Any:
    """Return a number for each pair among the results."""
    table = pa.concat_tables(
        pq.read_table(file, partitioning=None, columns=["id", "query_ids"])
        for file in out.glob("batch_id=*/*.parquet")
    )
    lists = table["query_ids"].combine_chunks()
    counts = lists.value_lengths().to_numpy()
    return np.repeat(table["id"].to_numpy(), counts) * QUERIES + lists.flatten().to_numpy()


def compare_keys(trial: Trial, got: Any, wanted: Any, where: str = "") -> None:
    """Compare two multisets of numbers; only where they differ are they counted one by one."""
    keys, places = np.unique(np.concatenate([got, wanted]), return_inverse=True)
    counts = [np.bincount(part, minlength=len(keys)) for part in np.split(places, [len(got)])]
    other = np.flatnonzero(counts[0] != counts[1])
    both = [
        Counter(dict(zip(keys[other].tolist(), c[other].tolist(), strict=True))) for c in counts
    ]
    trial.compare(*both, where)
