"""Queries made to be a burden: as large, as deep, as long and as many as can be."""

from __future__ import annotations

import statistics
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sparkswarm import MemorySink, PointColumns, Subscriptions, Swarm

from ..spark.world import BOUNDS, POINTS_SCHEMA, START, config
from .trial import Trial

SMALL, LARGE = 100_000, 1_000
SIZE = 0.01
"""The sides of a small query."""

BATCHES, POINTS = 8, 2_000
QUERIES_SCHEMA = "id BIGINT, min_x DOUBLE, min_y DOUBLE, max_x DOUBLE, max_y DOUBLE"

CONDITIONS = (
    ("(" * 50 + "speed > 1" + ")" * 50, True),
    ("(" * 51 + "speed > 1" + ")" * 51, False),
    ("not " * 51 + "speed > 1", False),
    (" or ".join(["speed > 1"] * 700), True),
    (" or ".join(["speed > 1"] * 1000), False),
    ("__import__('os').system('true')", False),
)
"""Conditions, and whether they are within the limits."""


def queries(trial: Trial) -> None:
    """World-covering queries among many small ones: at a stated price, or refused."""
    _write_points(trial)
    _write_queries(trial, "small", 0)
    _write_queries(trial, "all", LARGE)
    times: dict[str, list[list[float]]] = {"small": [], "all": [], "limited": []}
    matches: dict[str, int] = {}
    for number in trial.repeat(3):
        for name in times:
            given = "small" if name == "small" else "all"
            limit = {"max_query_share": 0.25} if name == "limited" else {}
            seconds, status = _run(trial, f"{name}-{number}", given, **limit)
            times[name].append(seconds)
            matches[name] = status.matches
            refused = status.quarantined.get(("query", "larger than max_query_share (0.25)"), 0)
            trial.check(refused == LARGE * bool(limit), f"{refused} large queries were refused")
        trial.tried += LARGE
    points = BATCHES * POINTS
    trial.check(matches["limited"] == matches["small"], "a limit changed the results of others")
    right = matches["all"] == matches["small"] + LARGE * points
    trial.check(right, "the results of large queries are not one for each point")
    # The same batches ran several times; what slowed down one of them only is not theirs.
    p99 = {name: max(map(min, zip(*runs, strict=True))) for name, runs in times.items()}
    ratio = p99["limited"] / p99["small"]
    trial.check(
        ratio <= 1.2, f"with the limit, p99 of the others is {ratio:.2f} times theirs alone"
    )
    price = (statistics.median(times["all"][-1]) - statistics.median(times["small"][-1])) * 1e6
    trial.notes.append(
        f"p99 of batches with max_query_share {ratio:.2f} times that without large queries; "
        f"without the limit {price / (LARGE * POINTS):.3f} us for each result of a large query"
    )
    _conditions(trial)


def _write_points(trial: Trial) -> None:
    rng = np.random.default_rng(915)
    folder = trial.folder / "points"
    folder.mkdir()
    for batch in range(BATCHES):
        columns = {
            "id": np.arange(POINTS) + batch * POINTS,
            "x": rng.uniform(BOUNDS[0], BOUNDS[2], POINTS),
            "y": rng.uniform(BOUNDS[1], BOUNDS[3], POINTS),
            "ts": pa.array([START] * POINTS).cast(pa.timestamp("us", "UTC")),
        }
        pq.write_table(pa.table(columns), folder / f"{batch}.parquet")


def _write_queries(trial: Trial, name: str, large: int) -> None:
    """Write the small queries, the same in every file, and large ones behind them."""
    rng = np.random.default_rng(916)
    x, y = (rng.uniform(BOUNDS[i], BOUNDS[i + 2], SMALL) for i in (0, 1))
    boxes = np.stack([x, y, x + SIZE, y + SIZE])
    boxes = np.hstack([boxes, np.tile(np.array([BOUNDS]).T, large)])
    columns = dict(zip(("min_x", "min_y", "max_x", "max_y"), boxes, strict=True))
    (trial.folder / name).mkdir()
    table = pa.table({"id": np.arange(SMALL + large), **columns})
    pq.write_table(table, trial.folder / name / "queries.parquet")


def _run(trial: Trial, name: str, queries: str, **settings: Any) -> tuple[list[float], Any]:
    spark, seconds = trial.session(), []
    reader = spark.readStream.schema(POINTS_SCHEMA).option("maxFilesPerTrigger", 1)
    handle = Swarm(spark, config(executors=3, **settings)).start(
        reader.parquet(str(trial.folder / "points")),
        preload=spark.read.schema(QUERIES_SCHEMA).parquet(str(trial.folder / queries)),
        sink="noop",
        checkpoint=str(trial.folder / name),
        trigger={"availableNow": True},
        observers=[lambda progress, plan, decisions: seconds.append(progress.seconds)],
    )
    handle.await_termination()
    # The bulk load, and the batch in which workers open its files.
    return seconds[2:], handle.status()


def _conditions(trial: Trial) -> None:
    """Give conditions and keywords beyond every limit; they are refused, and the run goes on."""
    folder = trial.folder / "conditions"
    for part in ("points", "queries"):
        (folder / part).mkdir(parents=True)
    point = {"id": [1], "x": [0.0], "y": [12.0], "speed": [2.0], "words": ["taxi"]}
    pq.write_table(pa.table(point), folder / "points" / "0.parquet")
    rows = [
        *({"where": text, "any_of": None} for text, _ in CONDITIONS),
        {"where": None, "any_of": ["x" * 1_000_000]},
        {"where": None, "any_of": ["x" * 17_000_000]},
        {"where": None, "any_of": ["taxi"]},
    ]
    box = dict(zip(("min_x", "min_y", "max_x", "max_y"), BOUNDS, strict=True))
    full = [{"op": "register", "id": i, **box, **row} for i, row in enumerate(rows)]
    pq.write_table(pa.Table.from_pylist(full), folder / "queries" / "0.parquet")
    spark, sink = trial.session(), MemorySink()
    handle = Swarm(spark, config(executors=2), Subscriptions({"speed": "number"}, "words")).start(
        spark.readStream.schema(
            "id BIGINT, x DOUBLE, y DOUBLE, speed DOUBLE, words STRING"
        ).parquet(str(folder / "points")),
        spark.readStream.schema(
            f"op STRING, {QUERIES_SCHEMA}, where STRING, any_of ARRAY<STRING>"
        ).parquet(str(folder / "queries")),
        sink=sink,
        checkpoint=str(folder / "checkpoint"),
        point_columns=PointColumns(),
        trigger={"availableNow": True},
    )
    handle.await_termination()
    trial.tried += len(rows)
    good = [i for i, (_, within) in enumerate(CONDITIONS) if within] + [len(rows) - 1]
    found = sink.table()["query_ids"].to_pylist()
    trial.check([sorted(ids) for ids in found] == [good], f"{found} matched, not {good}")
    refused = handle.status().quarantined
    reasons = ", ".join(reason for _, reason in refused)
    # The keyword of a megabyte is within the limit, and matches nothing.
    wanted = len(rows) - len(good) - 1
    trial.check(sum(refused.values()) == wanted, f"not {wanted} refused: {reasons}")
    for limit in ("max_query_bytes", "max_condition_length", "nested more than 50 deep"):
        trial.check(limit in reasons, f"{limit} is not named among the reasons: {reasons}")
