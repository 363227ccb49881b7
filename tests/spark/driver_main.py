"""A driver for tests that kill it: runs a world to its end, and may die on the way.

Run as a script, in a session of its own: ``python driver_main.py '{"world": ..., ...}'``. What
it is told is in :class:`Orders`. It dies once: the marker file says that it has.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

BEFORE_EPOCH = "before the epoch is written"
AFTER_EPOCH = "after the epoch is written"
AFTER_OPERATIONS = "after the operations are stored"
IN_EXECUTE = "while results are computed"
AFTER_SINK = "after the sink"
BEFORE_COMMIT = "after the sink, before our commit"
AFTER_COMMIT = "after our commit, before Spark's"
IN_MIGRATION = "after a new plan, before its manifest"
IN_COMPACTION = "after queries were compacted, before the manifest names the files"
IN_CLEANING = "while files are deleted"
WORKERS = "the Python workers, while results are computed"
HOST = "the host of a task with all its processes and copies, while results are computed"

EVENTS = ("12 seconds", "25 seconds", True, None, 1.2)
"""What is told of objects."""


@dataclass(frozen=True)
class Orders:
    """What the driver is to do.

    Attributes
    ----------
    world, files
        The folder of a world, and how many files of points make a batch.
    checkpoint, out
        Folders for the run and for the results.
    event_time
        Whether points happen at their own time.
    master
        Where Spark runs.
    shared_host
        Whether executors share a host, so that points are matched where they are read.
    by_tasks
        Whether tasks read the files of points themselves.
    shuffled
        Into how many partitions Spark shuffles the points first; 0 for not at all.
    executors, resize
        How many executors there are at first, and then, batch by batch.
    kill, batch, marker
        What dies, in which batch, and the file that says that it has died already. Compactions
        and deletions are not of every batch: then it dies at the first from this batch on.
    slow
        Seconds that one task of each batch takes longer, at its first attempt.
    window
        How long points are kept, such as ``60 seconds``.
    spark, hardened
        More settings of Spark, and whether its session is hardened.
    application
        A file of Python with a function ``application``, which is sent to the workers.
    events
        A folder for events, which are told where it is given.
    copy_files
        Whether hosts copy the files that they need.
    """

    world: str
    files: int
    checkpoint: str
    out: str
    event_time: bool = False
    master: str = "local[2]"
    executors: int = 3
    shared_host: bool = True
    by_tasks: bool = False
    shuffled: int = 0
    resize: tuple[int, ...] = ()
    kill: str = ""
    batch: int = -2
    marker: str = ""
    slow: float = 0.0
    window: str = ""
    spark: dict[str, str] = field(default_factory=dict)
    hardened: bool = False
    application: str = ""
    events: str = ""
    copy_files: bool = False

    def start(self, log: Path, **environment: str) -> subprocess.Popen[bytes]:
        """Start the driver as a process that leads a session of its own."""
        with open(log, "ab") as file:
            return subprocess.Popen(
                [sys.executable, __file__, json.dumps(asdict(self))],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, "PYSPARK_PYTHON": sys.executable, **environment},
            )


def main(orders: Orders) -> None:
    """Run the world."""
    import world

    import sparkswarm

    spark = sparkswarm.session(
        master=orders.master,
        config={
            "spark.ui.enabled": False,
            "spark.ui.showConsoleProgress": False,
            "spark.log.level": "ERROR",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.memory": "1g",
            "spark.executor.memory": "512m",
            "spark.network.timeout": "600s",
            "spark.sql.shuffle.partitions": 2,
            "spark.sql.session.timeZone": "UTC",
            **orders.spark,
        },
        hardened=orders.hardened,
    )
    folders = world.Folders(Path(orders.world), orders.files)
    death = Death(orders)
    death.lay_in_wait()
    parquet = sparkswarm.ParquetSink(orders.out)

    def sink(results: Any, batch: int) -> None:
        parquet(death.among(slowed(results, orders.slow), batch), batch)
        death.comes(AFTER_SINK, batch)

    restless = world.Restless(sink, seed=len(orders.kill), executors=tuple(orders.resize))
    preload = folders.read_preload(spark) if any(folders.preload.iterdir()) else None
    application = None
    if orders.application:
        spark.sparkContext.addPyFile(orders.application)
        application = importlib.import_module(Path(orders.application).stem).application()
    config = world.config(
        executors=orders.executors,
        shared_host=orders.shared_host,
        copy_files=orders.copy_files,
    )
    swarm = sparkswarm.Swarm(
        spark,
        config,
        application,
        sparkswarm.Sliding(orders.window) if orders.window else None,
        events=sparkswarm.Events(*EVENTS) if orders.events else None,
    )
    events = sparkswarm.ParquetSink(orders.events) if orders.events else None
    told: list[Any] = []
    points = folders.read_points(spark, orders.by_tasks)
    handle = swarm.start(
        points.repartition(orders.shuffled) if orders.shuffled else points,
        folders.read_operations(spark),
        sink=restless,
        events=events and (lambda told, batch: events(death.among(told, batch), batch)),
        checkpoint=orders.checkpoint,
        preload=preload,
        point_columns=sparkswarm.PointColumns(time="ts" if orders.event_time else None),
        query_columns=sparkswarm.QueryColumns(expires="expires"),
        trigger={"availableNow": True},
        observers=[lambda progress, plan, decisions: told.append((time.time(), progress))],
    )
    restless.watch(handle)
    handle.await_termination()
    versions = [plan.version for plan in restless.plans]
    executors = sorted({plan.executors for plan in restless.plans})
    ended = [when for when, progress in told if progress.batch >= 0]
    told = [progress for _, progress in told if progress.batch >= 0]
    said = {
        "versions": versions,
        "executors": executors,
        "lent": handle.status().lent,
        "on_its_host": [progress.on_its_host for progress in told],
        "ended": ended,
        "fetched": [progress.fetched_bytes for progress in told],
        "hosts": [[use.host for use in progress.hosts if use.tasks] for progress in told],
    }
    print(json.dumps(said))
    spark.stop()


class Death:
    """Kills a process at the place it is told."""

    def __init__(self, orders: Orders) -> None:
        self.kill, self.batch, self.marker = orders.kill, orders.batch, orders.marker
        self.driver = os.getpid()
        self.under_way = -2

    def comes_from(self, place: str) -> None:
        """Kill this process if this is the place, in the batch that is told or later."""
        if self.under_way >= self.batch:
            self.comes(place, self.batch)

    def comes(self, place: str, batch: int) -> None:
        """Kill this process if this is the place, unless that has happened."""
        if (place, batch) == (self.kill, self.batch) and not os.path.exists(self.marker):
            Path(self.marker).touch()
            os.kill(os.getpid(), signal.SIGKILL)

    def lay_in_wait(self) -> None:
        """Wrap what the engine does on the driver."""
        from sparkswarm.protocol.plan import Plan
        from sparkswarm.spark.driver import batch, cleaning
        from sparkswarm.store import deltas
        from sparkswarm.store.epochs import Epochs
        from sparkswarm.store.files import Files
        from sparkswarm.store.records import RecordFiles

        begin, commit, apply = Epochs.begin, Epochs.commit, batch.apply_durably
        write, delete, compact = RecordFiles.write, Files.delete, batch.Stages.compact
        # Queries are compacted now and then, and files deleted.
        deltas.COMPACT_LEAST = 60
        cleaning.CLEAN_EVERY = 2

        def begun(epochs: Epochs, epoch: Any) -> Any:
            self.under_way = epoch.batch
            self.comes(BEFORE_EPOCH, epoch.batch)
            stored = begin(epochs, epoch)
            self.comes(AFTER_EPOCH, epoch.batch)
            return stored

        def committed(epochs: Epochs, made: Any) -> Any:
            self.comes(BEFORE_COMMIT, made.batch)
            stored = commit(epochs, made)
            self.comes(AFTER_COMMIT, made.batch)
            return stored

        def applied(*args: Any) -> Any:
            after = apply(*args)
            self.comes(AFTER_OPERATIONS, after.input.epoch.batch)
            return after

        def written(records: RecordFiles, record: Any, *more: Any) -> str:
            name = write(records, record, *more)
            if isinstance(record, Plan):
                self.comes(IN_MIGRATION, self.under_way)
            return name

        def deleted(files: Files, names: Any) -> None:
            gone = list(names)
            if len(gone) > 1 and self.kill == IN_CLEANING:
                delete(files, gone[: len(gone) // 2])
                self.comes_from(IN_CLEANING)
            delete(files, gone)

        def compacted(stages: Any, spark: Any) -> None:
            compact(stages, spark)
            self.comes_from(IN_COMPACTION)

        Epochs.begin, Epochs.commit = begun, committed  # type: ignore[method-assign]
        RecordFiles.write, Files.delete = written, deleted  # type: ignore[method-assign]
        batch.Stages.compact = compacted  # type: ignore[method-assign]
        batch.apply_durably = applied

    def among(self, results: Any, batch: int) -> Any:
        """Return the results with a task among them that kills, where it is told to."""
        if batch != self.batch or self.kill not in (IN_EXECUTE, WORKERS, HOST):
            return results
        kill, marker, driver = self.kill, self.marker, self.driver

        def task(batches: Any) -> Any:
            for rows in batches:
                yield rows
                if not rows.num_rows:
                    continue
                with contextlib.suppress(FileExistsError):
                    os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
                    if kill == IN_EXECUTE:
                        os.kill(driver, signal.SIGKILL)
                    if kill == HOST:
                        kill_host()
                    # All workers of this machine, this one last: ours among them.
                    daemon = os.getppid()
                    with open(f"/proc/{daemon}/task/{daemon}/children") as children:
                        others = [int(pid) for pid in children.read().split()]
                    for pid in [*(pid for pid in others if pid != os.getpid()), os.getpid()]:
                        os.kill(pid, signal.SIGKILL)

        return results.mapInArrow(task, results.schema)


def slowed(results: Any, seconds: float) -> Any:
    """Return the results with one task among them that is slow, at its first attempt."""
    if not seconds:
        return results

    def task(batches: Any) -> Any:
        from pyspark import TaskContext

        context = TaskContext.get()
        if context.partitionId() == 0 and context.attemptNumber() == 0:
            time.sleep(seconds)
        yield from batches

    return results.mapInArrow(task, results.schema)


def kill_host() -> None:
    """Kill the host that this task runs on: its worker's session, this process last."""
    shutil.rmtree(os.environ["SPARKSWARM_CACHE"])
    session, own = os.getsid(0), os.getpid()
    for pid in (int(name) for name in os.listdir("/proc") if name.isdigit()):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if pid != own and os.getsid(pid) == session:
                os.kill(pid, signal.SIGKILL)
    os.kill(own, signal.SIGKILL)


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    main(Orders(**{**given, "resize": tuple(given["resize"])}))
