"""A million rows of which one in twenty is bad, in every way there is."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from sparkswarm import InputError, ParquetSink, PointColumns, QueryColumns, Swarm

from ..spark.world import BOUNDS, OPERATIONS_SCHEMA, POINTS_SCHEMA, START, config
from .pairs import QUERIES, compare_keys, keys_in, matches, write_batch
from .trial import Trial

WHOLE = 1_000_000
BATCHES = 4
SHARE = 0.05

YEAR_9999 = 253_370_764_800_000_000
"""In microseconds since 1970."""

BAD_POINTS = (
    "null id",
    "null coordinate",
    "not a number",
    "infinite coordinate",
    "outside the bounds",
    "null time",
    "time in the future",
)
BAD_QUERIES = (
    "unknown operation",
    "null id",
    "null coordinate",
    "not a number",
    "infinite coordinate",
    "outside the bounds",
    "inverted rectangle",
)
ABSURD = ("", "registr", "'; DROP TABLE queries; --", "=1+1", "🜁", "\\x00", "x" * 10_000)


def rows(trial: Trial) -> None:
    """Every bad row must be in the quarantine with its reason, and the good ones must be right."""
    spark = trial.session()
    count = WHOLE if trial.left > 20 else WHOLE // 5
    rng = np.random.default_rng(908)
    wanted: Counter[tuple[str, str]] = Counter()
    queries = _write_queries(trial.folder / "queries", rng, wanted)
    right = []
    for batch in range(BATCHES):
        path = trial.folder / "points" / f"{batch}.parquet"
        points = _write_points(path, rng, count // BATCHES, batch, wanted)
        right.append(matches(points, queries))
    trial.tried = count + QUERIES
    points = spark.readStream.schema(POINTS_SCHEMA).option("maxFilesPerTrigger", 1)
    out = trial.folder / "out"
    swarm = Swarm(spark, config(executors=3))
    _refuses_wrong_types(trial, swarm, spark)
    handle = swarm.start(
        points.parquet(str(trial.folder / "points")),
        spark.readStream.schema(OPERATIONS_SCHEMA).parquet(str(trial.folder / "queries")),
        sink=ParquetSink(str(out)),
        checkpoint=str(trial.folder / "checkpoint"),
        point_columns=PointColumns(time="ts"),
        trigger={"availableNow": True},
    )
    handle.await_termination()
    status = handle.status()
    trial.compare(Counter(status.quarantined), wanted, "the quarantine")
    trial.check(status.points == count - _bad_points(wanted), "good points were not served")
    compare_keys(trial, keys_in(out), np.concatenate(right))
    trial.notes.append(f"{sum(map(len, right)):,} results")


def _bad_points(wanted: Counter[tuple[str, str]]) -> int:
    return sum(count for (kind, _), count in wanted.items() if kind == "point")


def _write_points(
    path: Path, rng: Any, count: int, batch: int, wanted: Counter[tuple[str, str]]
) -> dict[str, Any]:
    """Write points, some of them bad, and return the good ones."""
    ids = np.arange(count) + batch * count
    x = rng.uniform(BOUNDS[0], BOUNDS[2], count)
    y = rng.uniform(BOUNDS[1], BOUNDS[3], count)
    ts = START + rng.integers(0, 10**9, count)
    bad = np.flatnonzero(rng.random(count) < SHARE)
    kind = rng.integers(0, len(BAD_POINTS), len(bad))
    for number, reason in enumerate(BAD_POINTS):
        wanted["point", reason] += int((kind == number).sum())
    chosen = [bad[kind == number] for number in range(len(BAD_POINTS))]
    null = {name: np.zeros(count, dtype=bool) for name in ("id", "x", "ts")}
    null["id"][chosen[0]], null["x"][chosen[1]], null["ts"][chosen[5]] = True, True, True
    y[chosen[2]], x[chosen[3]], y[chosen[4]] = np.nan, -np.inf, BOUNDS[3] + 1e-9
    ts[chosen[6]] = YEAR_9999
    times = pa.array(ts, mask=null["ts"]).cast(pa.timestamp("us", "UTC"))
    columns = {"id": pa.array(ids, mask=null["id"]), "x": pa.array(x, mask=null["x"])}
    write_batch(pa.table({**columns, "y": y, "ts": times}), path, batch)
    good = np.ones(count, dtype=bool)
    good[bad] = False
    return {"id": ids[good], "x": x[good], "y": y[good]}


def _write_queries(folder: Path, rng: Any, wanted: Counter[tuple[str, str]]) -> dict[str, Any]:
    """Write queries, some bad, some repeated, some without area; return those that count."""
    op = ["register"] * QUERIES
    ids = np.arange(QUERIES)
    # Repeated ids are not bad: the last one counts.
    ids[QUERIES // 2 :: 50] = ids[: QUERIES // 2 : 50]
    low_x = rng.uniform(BOUNDS[0], BOUNDS[2], QUERIES)
    low_y = rng.uniform(BOUNDS[1], BOUNDS[3], QUERIES)
    high_x, high_y = low_x + rng.uniform(0, 0.1, QUERIES), low_y + rng.uniform(0, 0.1, QUERIES)
    high_x[::40] = low_x[::40]
    bad = np.flatnonzero(rng.random(QUERIES) < SHARE)
    kind = rng.integers(0, len(BAD_QUERIES), len(bad))
    for number, reason in enumerate(BAD_QUERIES):
        wanted["query", reason] += int((kind == number).sum())
    chosen = [bad[kind == number] for number in range(len(BAD_QUERIES))]
    for number, row in enumerate(chosen[0]):
        op[row] = ABSURD[number % len(ABSURD)]
    null_id, null_x = (np.zeros(QUERIES, dtype=bool) for _ in range(2))
    null_id[chosen[1]], null_x[chosen[2]] = True, True
    low_y[chosen[3]], high_x[chosen[4]] = np.nan, np.inf
    low_x[chosen[5]] += 100
    high_x[chosen[5]] += 100
    high_y[chosen[6]] = low_y[chosen[6]] - 1e-9
    table = pa.table(
        {
            "op": op,
            "id": pa.array(ids, mask=null_id),
            "min_x": pa.array(low_x, mask=null_x),
            "min_y": low_y,
            "max_x": high_x,
            "max_y": high_y,
            "expires": pa.nulls(QUERIES, pa.timestamp("us", "UTC")),
        }
    )
    write_batch(table, folder / "queries.parquet", 0)
    good = np.setdiff1d(np.arange(QUERIES), bad)
    last = {ids[row]: row for row in good}
    kept = np.array(sorted(last.values()))
    return {"id": ids[kept], "box": np.stack([low_x, low_y, high_x, high_y])[:, kept]}


def _refuses_wrong_types(trial: Trial, swarm: Swarm, spark: Any) -> None:
    """See that columns of a wrong type are refused before anything runs."""
    stream = spark.readStream.format("rate").load()
    for column, kind in (("x", "STRING"), ("y", "ARRAY<DOUBLE>"), ("ts", "STRING")):
        types = {"id": "BIGINT", "x": "DOUBLE", "y": "DOUBLE", "ts": "TIMESTAMP", column: kind}
        points = stream.selectExpr(*(f"CAST(NULL AS {t}) AS {name}" for name, t in types.items()))
        trial.tried += 1
        try:
            swarm.start(
                points,
                points.selectExpr(
                    "'register' AS op",
                    "id",
                    "0D AS min_x",
                    "0D AS min_y",
                    "1D AS max_x",
                    "1D AS max_y",
                ),
                sink="noop",
                checkpoint=str(trial.folder / "refused"),
                point_columns=PointColumns(time="ts"),
                query_columns=QueryColumns(),
            ).stop()
        except InputError as error:
            trial.check(column in str(error), f"{column}: the error does not name it: {error}")
        else:
            trial.problems.append(f"{column} as {kind} was not refused")
