"""Load that is as uneven as can be: one cell with nearly all points, and hotspots that flicker."""

from __future__ import annotations

import itertools
import random
import statistics
from pathlib import Path
from typing import Any

from sparkswarm import ParquetSink

from ..spark.world import (
    BOUNDS,
    GRID,
    START,
    Batch,
    Operation,
    Point,
    World,
    expected,
    matches_in,
    start_world,
)
from .trial import Trial

WIDTH, HEIGHT = (BOUNDS[2] - BOUNDS[0]) / GRID[0], (BOUNDS[3] - BOUNDS[1]) / GRID[1]


def world_of(seed: int, batches: int, points: int, hot: float, flickering: bool) -> World:
    """Return a world in which a share of the points is in one cell, maybe another in each batch."""
    rng = random.Random(seed)
    queries = []
    for number in range(400):
        x, y = rng.uniform(BOUNDS[0], BOUNDS[2]), rng.uniform(BOUNDS[1], BOUNDS[3])
        queries.append(Operation("register", number, x, y, x + WIDTH / 2, y + HEIGHT / 2))
    cell = 7, 9
    made = []
    for batch in range(batches):
        if flickering:
            cell = rng.randrange(GRID[0]), rng.randrange(GRID[1])
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
    world = world_of(909, rounds, points=2000, hot=0.99, flickering=False)
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


def flicker(trial: Trial) -> None:
    """A hotspot in another place in every batch must not make SWARM slower than doing nothing."""
    batches = 30 if trial.left > 60 else 12
    world = world_of(910, batches, points=3000, hot=0.9, flickering=True)
    folders = world.write(trial.folder / "world")
    wanted = expected(world).matches
    spark, seconds = trial.session(), {policy: [] for policy in POLICIES}
    sizes: list[tuple[int, int]] = []
    for number in trial.repeat(5):
        # Each in another order every time: what warms up does so for all.
        turn = number % len(POLICIES)
        for policy in (*POLICIES[turn:], *POLICIES[:turn]):
            place = trial.folder / f"{policy}-{number}"
            handle = start_world(
                spark,
                folders,
                place / "checkpoint",
                ParquetSink(str(place / "out")),
                executors=4,
                policy=policy,
                shared_host=False,
                lending=True,
            )
            times: list[float] = []
            files: list[int] = []
            handle._run.observers.append(_noting(times, files, place / "checkpoint" / "swarm"))
            handle.await_termination()
            seconds[policy].append(statistics.median(times[3:]))
            trial.compare(matches_in(place / "out"), wanted, policy)
            if policy == "swarm":
                plan = handle.plan()
                sizes.append((len(plan.partitions), files[-1] - files[len(files) // 2]))
        trial.tried += batches
    medians = {policy: min(found) for policy, found in seconds.items()}
    best = min(medians[policy] for policy in POLICIES[1:])
    ratio = best / medians["swarm"]
    trial.check(ratio >= 0.95, f"throughput is {ratio:.2f} of the best static policy's")
    for partitions, growth in sizes:
        trial.check(partitions <= 64, f"{partitions} partitions in the end")
        trial.check(growth <= 40, f"{growth} files more in the second half")
    trial.notes.append(
        f"throughput {ratio:.2f} of the best static policy's, {sizes[-1][0]} partitions, "
        f"{sizes[-1][1]:+d} files in the second half"
    )


def _noting(times: list[float], files: list[int], folder: Path) -> Any:
    def note(progress: Any, plan: Any, decisions: Any) -> None:
        times.append(progress.seconds)
        files.append(sum(1 for file in folder.rglob("*") if file.is_file()))

    return note
