"""Checks the results of ``sparkswarm bench apps`` on a sample, by brute force.

Every sampled point is compared with every query, or every sampled query with every point, with
NumPy on the columns of the inputs. No code is shared with the engine.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from sparkswarm.bench.app_inputs import BATCH_SECONDS, LATE, SECOND, AppInputs
from sparkswarm.spark.sinks import MemorySink, NoopSink, Sink

SAMPLE = 300
"""Points of the last batch, and aggregates, that are checked."""

Through = Callable[[Mapping[str, Sink]], None]
"""Runs the engine once with these sinks."""


class Checked(NamedTuple):
    """Number of results compared, and of wrong ones."""

    checked: int
    wrong: int

    def __add__(self, other: tuple[int, int]) -> Checked:  # type: ignore[override]
        return Checked(self.checked + other[0], self.wrong + other[1])


def check(inputs: AppInputs, kind: str, window: int, through: Through) -> Checked:
    """Run a kind of query once, and compare a sample of its results."""
    last = inputs.batches - 1
    rng = np.random.default_rng(inputs.points)
    points = inputs.read("points", last)
    chosen = rng.choice(points.num_rows, min(SAMPLE, points.num_rows), replace=False)
    sample = points.take(pa.array(chosen))
    queries = inputs.read("aggregates").column("id").to_numpy()
    watched = rng.choice(queries, min(SAMPLE, len(queries)), replace=False)
    matches, summaries, answers = MemorySink(), MemorySink(), MemorySink()
    ids = sample.column("id").to_pylist()

    def some_matches(rows: DataFrame, batch: int) -> None:
        if batch == last:
            matches(rows.where(F.col("id").isin(ids)), batch)
        else:
            NoopSink()(rows, batch)

    def some_summaries(rows: DataFrame, batch: int) -> None:
        summaries(rows.where(F.col("query_id").isin(watched.tolist())), batch)

    through({"sink": some_matches, "summaries": some_summaries, "answers": answers})
    found = Checked(0, 0)
    if kind in ("subscriptions", "mixed"):
        found += _matches(inputs, sample, matches.table())
    if kind in ("aggregates", "mixed"):
        found += _summaries(inputs, watched, summaries.table())
    if kind in ("snapshots", "mixed"):
        found += _answers(inputs, window, answers.table())
    return found


def _matches(inputs: AppInputs, sample: pa.Table, found: pa.Table) -> Checked:
    queries = inputs.read("subscriptions")
    got = dict(zip(found["id"].to_pylist(), found["query_ids"].to_pylist(), strict=True))
    least = queries["least_speed"].fill_null(-math.inf).to_numpy()
    kinds = queries["only_kind"].to_numpy(zero_copy_only=False)
    edges = [queries[edge].to_numpy() for edge in ("min_x", "min_y", "max_x", "max_y")]
    ids = queries["id"].to_numpy()
    wrong = 0
    for p in sample.to_pylist():
        inside = (edges[0] <= p["x"]) & (p["x"] <= edges[2])
        inside &= (edges[1] <= p["y"]) & (p["y"] <= edges[3]) & (p["speed"] >= least)
        inside &= np.array([kind is None for kind in kinds]) | (kinds == p["kind"])
        wrong += sorted(got.get(p["id"], [])) != sorted(ids[inside].tolist())
    return Checked(sample.num_rows, wrong)


def _summaries(inputs: AppInputs, watched: npt.NDArray[np.int64], found: pa.Table) -> Checked:
    """Check every window of the watched queries that was due by the last batch."""
    queries = inputs.read("aggregates")
    rows = dict(zip(queries["id"].to_pylist(), range(queries.num_rows), strict=True))
    batches = [inputs.read("points", batch) for batch in range(inputs.batches)]
    times = [b["ts"].cast(pa.int64()).to_numpy() for b in batches]
    x, y, speed = (
        np.concatenate([b[name].to_numpy() for b in batches]) for name in ("x", "y", "speed")
    )
    length = BATCH_SECONDS * SECOND
    # A point counts if the end of its window is after the watermark of its batch.
    latest = np.maximum.accumulate([t.max() for t in times])
    watermarks = [-(2**62), *(latest[:-1] - LATE)]
    end = np.concatenate(times) // length * length + length
    watermark = np.repeat(watermarks, [len(t) for t in times])
    counts = end > watermark
    got = {}
    for row in found.to_pylist():
        at = round(row["window_end"].timestamp() * SECOND)
        got[row["query_id"], at] = (row["count"], row["mean_speed"], row["max_speed"])
    wanted = {}
    for key in watched.tolist():
        q = queries.slice(rows[key], 1).to_pylist()[0]
        inside = (q["min_x"] <= x) & (x <= q["max_x"]) & (q["min_y"] <= y) & (y <= q["max_y"])
        inside &= counts & (end <= watermarks[-1])
        for at in np.unique(end[inside]).tolist():
            values = speed[inside & (end == at)]
            mean = math.fsum(values) / len(values)
            wanted[key, at] = (len(values), mean, float(values.max()))
    wrong = len(got.keys() - wanted.keys())
    for where, values in wanted.items():
        count, mean, most = got.get(where, (0, 0.0, 0.0))
        close = math.isclose(mean, values[1], rel_tol=1e-14)
        wrong += (count, most) != (values[0], values[2]) or not close
    return Checked(len(wanted), wrong)


def _answers(inputs: AppInputs, window: int, found: pa.Table) -> Checked:
    """Check every snapshot query of the last batch."""
    last = inputs.batches - 1
    got: dict[int, list[tuple[int | None, int | None]]] = {}
    for row in found.to_pylist():
        if row["batch_id"] == last:
            got.setdefault(row["query_id"], []).append((row["count"], row["id"]))
    past = pa.concat_tables([inputs.read("points", batch) for batch in range(last)])
    x, y, ids = (past[name].to_numpy() for name in ("x", "y", "id"))
    ts = past["ts"].cast(pa.int64()).to_numpy()
    recent = ts >= ts.max() - window * SECOND
    wrong = 0
    asks = inputs.read("asks", last).to_pylist()
    for ask in asks:
        inside = (ask["min_x"] <= x) & (x <= ask["max_x"]) & recent
        inside &= (ask["min_y"] <= y) & (y <= ask["max_y"])
        seen = sorted(got.get(ask["id"], []), key=str)
        hits = [(None, int(i)) for i in ids[inside]]
        wanted = [(int(inside.sum()), None)] if ask["op"] == "count" else sorted(hits, key=str)
        wrong += seen != wanted
    return Checked(len(asks), wrong)
