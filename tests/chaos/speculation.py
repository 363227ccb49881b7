"""Tasks that run twice, and stages whose shuffle files vanish."""

from __future__ import annotations

import contextlib
import json
import threading
from contextlib import closing
from pathlib import Path

from sparkswarm.bench.local_cluster import LocalCluster

from ..spark.world import expected, make_world, matches_in
from .driving import Driver, driving, orders_for
from .trial import Trial

SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.2",
    "spark.speculation.quantile": "0.1",
    "spark.speculation.minTaskRuntime": "200ms",
    # A stage whose input is gone is tried again, as often as this.
    "spark.stage.maxConsecutiveAttempts": "50",
    "spark.task.maxFailures": "20",
}


def speculation(trial: Trial) -> None:
    """One slow task in every batch, of which Spark starts a copy; shuffle files are deleted."""
    batches = max(4, min(20, round(trial.left / 6)))
    world = make_world(913, batches=batches, points=200, operations=30, preload=60)
    # A copy of a task runs on another host only.
    with closing(LocalCluster(trial.folder, hosts=2)) as cluster:
        events = trial.folder / "events"
        events.mkdir()
        logged = {
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": events.as_uri(),
            "spark.eventLog.compress": "false",
            "spark.eventLog.rolling.enabled": "false",
        }
        orders = orders_for(
            world,
            trial.folder,
            master=cluster.master,
            executors=3,
            resize=(3, 4),
            shared_host=False,
            slow=2.0,
            spark={**SPECULATION, **logged},
        )
        with driving(orders) as driver:
            driver.wait_for(lambda: driver.following > 1)
            deleted = _delete_shuffle_files(trial.folder, driver)
            trial.check(driver.wait() == 0, f"the driver ended: {driver.said()}")
    copies = sum(map(_started_copies, events.iterdir()))
    trial.tried = copies + deleted
    trial.check(copies > 0, "no task was started twice")
    trial.check(deleted > 0, "no shuffle file was deleted")
    trial.notes.append(f"{copies} tasks started twice, {deleted} shuffle files deleted")
    trial.compare(matches_in(Path(orders.out)), expected(world).matches)


def _started_copies(log: Path) -> int:
    """Count the tasks in a log of Spark's events that were started as a copy of another."""
    started = [line for line in log.read_text().splitlines() if '"SparkListenerTaskStart"' in line]
    return sum(json.loads(line)["Task Info"]["Speculative"] for line in started)


def _delete_shuffle_files(folder: Path, driver: Driver) -> int:
    """Delete a file of every second shuffle as soon as it is seen, until the driver ends."""
    seen: set[str] = set()
    deleted = 0
    waiting = threading.Event()
    while driver.lives:
        for file in folder.glob("*/local/**/shuffle_*.data"):
            shuffle = file.name.split("_")[1]
            if shuffle not in seen:
                seen.add(shuffle)
                if len(seen) % 2:
                    with contextlib.suppress(FileNotFoundError):
                        file.unlink()
                        deleted += 1
        waiting.wait(0.01)
    return deleted
