"""Workers, executors and drivers that are killed, all with SIGKILL."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from sparkswarm.bench.local_cluster import LocalCluster

from ..spark.driver_main import (
    AFTER_EPOCH,
    AFTER_SINK,
    BEFORE_COMMIT,
    BEFORE_EPOCH,
    IN_CLEANING,
    IN_COMPACTION,
    IN_EXECUTE,
    IN_MIGRATION,
)
from ..spark.world import expected, make_world, matches_in
from ..support.processes import command_of, descendants, state_of
from .driving import Driver, driving, orders_for, until
from .trial import Trial

EVERY = 2.0
"""Seconds from one kill of a worker to the next."""

PLACES = (
    BEFORE_EPOCH,
    AFTER_EPOCH,
    IN_EXECUTE,
    AFTER_SINK,
    BEFORE_COMMIT,
    IN_COMPACTION,
    IN_MIGRATION,
    IN_CLEANING,
)

KILLED = -signal.SIGKILL


def workers(trial: Trial) -> None:
    """Kill a busy Python worker every two seconds, while the plan changes in every batch."""
    seconds = min(60.0, max(8.0, trial.left - 20.0))
    # Batches of a third of a second at least, so that the world lasts as long.
    world = make_world(901, batches=int(3 * seconds), points=400, operations=20, preload=60)
    orders = orders_for(world, trial.folder, master="local[2,1000]", resize=(3, 4), slow=0.3)
    with driving(orders) as driver:
        driver.wait_for(lambda: driver.last_commit > "000000000001.json")
        due = time.monotonic()
        while driver.lives and trial.tried < seconds / EVERY:
            worker = _busy_worker(driver.process.pid)
            if worker is not None:
                _kill(worker)
                trial.tried += 1
            due += EVERY
            time.sleep(max(0.0, due - time.monotonic()))
        trial.check(driver.wait() == 0, f"the driver ended: {driver.said()}")
    trial.compare(matches_in(Path(orders.out)), expected(world).matches)


def _busy_worker(driver: int) -> int | None:
    """Return a worker that computes; any worker where none is seen to, None without any."""
    workers: list[int] = []
    for _ in range(50):
        daemons = [pid for pid in descendants(driver) if "pyspark.daemon" in command_of(pid)]
        workers = [pid for pid in daemons if not descendants(pid)] or workers
        if computing := [pid for pid in workers if state_of(pid) == "R"]:
            return computing[-1]
        time.sleep(0.01)
    return workers[-1] if workers else None


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def executors(trial: Trial) -> None:
    """Kill an executor of a standalone cluster, again and again; each must be replaced."""
    most = 5
    world = make_world(902, batches=60, points=300, operations=20, preload=60)
    with closing(LocalCluster(trial.folder, hosts=1, cores=2, memory="2g")) as cluster:
        orders = orders_for(
            world,
            trial.folder,
            master=cluster.master,
            executors=4,
            slow=0.4,
            resize=(4, 3),
            spark={"spark.executor.cores": "1"},
        )
        with driving(orders) as driver:
            driver.wait_for(lambda: driver.last_commit > "000000000001.json")
            for number in trial.repeat(most):
                running = _executors()
                if not running or not driver.lives:
                    break
                _kill(running[number % len(running)])
                killed, before = time.monotonic(), driver.following
                trial.tried += 1
                # The batch under way must end, and one that began after the kill.
                going = driver.wait_for(lambda before=before: driver.following > before + 1)
                trial.check(going, "no batch was committed after the kill")
                trial.recovered(time.monotonic() - killed, 15.0)
                until(lambda: len(_executors()) >= 2 or not driver.lives)
            trial.check(driver.wait() == 0, f"the driver ended: {driver.said()}")
    trial.compare(matches_in(Path(orders.out)), expected(world).matches)


def _executors() -> list[int]:
    """Return the executors that this process's cluster runs."""
    backend = "CoarseGrainedExecutorBackend"
    return [pid for pid in descendants(os.getpid()) if backend in command_of(pid)]


def driver(trial: Trial) -> None:
    """Kill the driver at eight places of the batch, one after the other, and start it again."""
    # A kill takes about eight seconds, most of them to start a JVM, and up to four batches.
    most = max(1, min(5 * len(PLACES), round(trial.left / 8)))
    world = make_world(903, 4 * most + 6, points=80, operations=40, event_time=True, preload=60)
    orders = orders_for(world, trial.folder, resize=(3, 2, 4))
    following = 0
    for number in trial.repeat(most):
        place = PLACES[number % len(PLACES)]
        Path(orders.marker).unlink(missing_ok=True)
        doomed = replace(orders, kill=place, batch=following + 1, shared_host=bool(number % 3))
        with driving(doomed) as killed:
            if number:
                _time_to_go_on(trial, killed)
            code = killed.wait()
            trial.check(code == KILLED, f"{place}: ended with {code}: {killed.said()}")
            following = killed.following
        trial.tried += 1
    with driving(orders) as last:
        _time_to_go_on(trial, last)
        trial.check(last.wait() == 0, f"the driver ended: {last.said()}")
    trial.compare(matches_in(Path(orders.out)), expected(world).matches)
    trial.notes.append(f"{min(trial.tried, len(PLACES))} of {len(PLACES)} places")


def _time_to_go_on(trial: Trial, driver: Driver) -> None:
    """Note the seconds from the start of a driver to its first commit."""
    last = driver.last_commit
    if driver.wait_for(lambda: driver.last_commit > last):
        trial.recovered(time.monotonic() - driver.started, 30.0)
