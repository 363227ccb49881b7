"""Load that is as uneven as can be: one cell with nearly all points, and hotspots that flicker."""

from __future__ import annotations

import itertools
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from sparkswarm import ParquetSink, Swarm

from ..spark.world import (
    BOUNDS,
    GRID,
    START,
    Batch,
    Operation,
    Point,
    World,
    config,
    expected,
    matches_in,
    start_world,
)
from .pairs import compare_keys, keys_in, matches, write_batch
from .trial import Trial

WIDTH, HEIGHT = (BOUNDS[2] - BOUNDS[0]) / GRID[0], (BOUNDS[3] - BOUNDS[1]) / GRID[1]


def world_of(seed: int, batches: int, points: int, hot: float) -> World:
    """Return a world in which a share of the points is in one cell."""
    rng = random.Random(seed)
    queries = []
    for number in range(400):
        x, y = rng.uniform(BOUNDS[0], BOUNDS[2]), rng.uniform(BOUNDS[1], BOUNDS[3])
        queries.append(Operation("register", number, x, y, x + WIDTH / 2, y + HEIGHT / 2))
    cell = 7, 9
    made = []
    for batch in range(batches):
        rows = []
        for number in range(points):
            if rng.random() < hot:
                x = BOUNDS[0] + (cell[0] + rng.uniform(0.01, 0.99)) * WIDTH
                y = BOUNDS[1] + (cell[1] + rng.uniform(0.01, 0.99)) * HEIGHT
            else:
                x, y = rng.uniform(BOUNDS[0], BOUNDS[2]), rng.uniform(BOUNDS[1], BOUNDS[3])
            rows.append(Point(batch * points + number, x, y, START))
        made.append(Batch(rows, []))
    return World(made, queries)


def one_cell(trial: Trial) -> None:
    """99% of the points are in one cell for twenty rounds: it is lent or shared, and that is it."""
    rounds = 20
    world = world_of(909, rounds, points=2000, hot=0.99)
    folders, out = world.write(trial.folder / "world"), trial.folder / "out"
    handle = start_world(
        trial.session(),
        folders,
        trial.folder / "checkpoint",
        ParquetSink(str(out)),
        executors=4,
        shared_host=False,
    )
    seen: list[Any] = []
    handle._run.observers.append(lambda progress, plan, decisions: seen.append((progress, plan)))
    handle.await_termination()
    trial.tried = rounds
    trial.compare(matches_in(out), expected(world).matches)
    changes = sum(a.version != b.version for (_, a), (_, b) in itertools.pairwise(seen[5:]))
    trial.check(changes <= 3, f"the plan changed {changes} times after the fifth round")
    progress, plan = seen[-1]
    most = max(progress.points_by_executor) / sum(progress.points_by_executor)
    trial.check(most < 0.6, f"one of four executors has {most:.0%} of the points")
    trial.notes.append(
        f"{changes} changes of the plan after round 5, {len(plan.partitions)} partitions, the "
        f"busiest of 4 executors has {most:.0%} of the points"
    )


POLICIES = ("swarm", "static_uniform", "replicated", "hash_cell")
BATCHES = 12
POINTS = 300_000
"""In a batch: fewer would measure what any batch costs, not throughput."""

FLICKERING_QUERIES = 2_000
QUERIES_SCHEMA = "id BIGINT, min_x DOUBLE, min_y DOUBLE, max_x DOUBLE, max_y DOUBLE"


def flicker(trial: Trial) -> None:
    """A hotspot in another place in every batch must not make SWARM slower than doing nothing."""
    spark, seconds = trial.session(), {policy: [] for policy in POLICIES}
    wanted = _write_flickering(trial.folder)
    sizes: list[tuple[int, int]] = []
    for number in trial.repeat(5):
        # Each in another order every time: what warms up does so for all.
        turn = number % len(POLICIES)
        for policy in (*POLICIES[turn:], *POLICIES[:turn]):
            place = trial.folder / f"{policy}-{number}"
            times: list[float] = []
            files: list[int] = []
            settings = {"executors": 4, "policy": policy, "shared_host": False, "lending": True}
            reader = spark.readStream.schema("id BIGINT, x DOUBLE, y DOUBLE")
            handle = Swarm(spark, config(**settings)).start(
                reader.option("maxFilesPerTrigger", 1).parquet(str(trial.folder / "points")),
                preload=spark.read.schema(QUERIES_SCHEMA).parquet(str(trial.folder / "queries")),
                sink=ParquetSink(str(place / "out")),
                checkpoint=str(place / "checkpoint"),
                trigger={"availableNow": True},
                observers=[_noting(times, files, place / "checkpoint" / "swarm")],
            )
            handle.await_termination()
            # The bulk load, and batches in which workers open its files.
            seconds[policy].append(times[4:])
            compare_keys(trial, keys_in(place / "out"), wanted, policy)
            shutil.rmtree(place / "out")
            if policy == "swarm":
                plan = handle.plan()
                sizes.append((len(plan.partitions), files[-1] - files[len(files) // 2]))
        trial.tried += BATCHES
    # The same batches ran several times; what slowed down one of them only is not theirs.
    best = {policy: sum(map(min, zip(*runs, strict=True))) for policy, runs in seconds.items()}
    ratio = min(best[policy] for policy in POLICIES[1:]) / best["swarm"]
    trial.check(ratio >= 0.95, f"throughput is {ratio:.2f} of the best static policy's")
    for partitions, growth in sizes:
        trial.check(partitions <= 64, f"{partitions} partitions in the end")
        trial.check(growth <= 40, f"{growth} files more in the second half")
    rates = ", ".join(
        f"{policy} {(BATCHES - 3) * POINTS / taken / 1e6:.2f}" for policy, taken in best.items()
    )
    trial.notes.append(
        f"million points/s: {rates}; {sizes[-1][0]} partitions, {sizes[-1][1]:+d} files in the "
        "second half"
    )


def _write_flickering(folder: Path) -> Any:
    """Write points of which most are in one cell, another in each batch; return the matches."""
    rng = np.random.default_rng(910)
    low = [rng.uniform(BOUNDS[i], BOUNDS[i + 2], FLICKERING_QUERIES) for i in (0, 1)]
    box = np.stack([*low, low[0] + WIDTH / 4, low[1] + HEIGHT / 4])
    queries = {"id": np.arange(FLICKERING_QUERIES), "box": box}
    edges = dict(zip(("min_x", "min_y", "max_x", "max_y"), box, strict=True))
    write_batch(pa.table({"id": queries["id"], **edges}), folder / "queries" / "0.parquet", 0)
    found = []
    for batch in range(BATCHES):
        x, y = (rng.uniform(BOUNDS[i], BOUNDS[i + 2], POINTS) for i in (0, 1))
        hot = rng.random(POINTS) < 0.9
        for values, side, i in ((x, WIDTH, 0), (y, HEIGHT, 1)):
            cell = rng.integers(0, GRID[i])
            values[hot] = BOUNDS[i] + (cell + rng.uniform(0.01, 0.99, hot.sum())) * side
        points = {"id": np.arange(POINTS) + batch * POINTS, "x": x, "y": y}
        write_batch(pa.table(points), folder / "points" / f"{batch}.parquet", batch)
        found.append(matches(points, queries))
    return np.concatenate(found)


def _noting(times: list[float], files: list[int], folder: Path) -> Any:
    def note(progress: Any, plan: Any, decisions: Any) -> None:
        times.append(progress.seconds)
        files.append(sum(1 for file in folder.rglob("*") if file.is_file()))

    return note
