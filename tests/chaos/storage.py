"""Storage that is full, and storage that is slow."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from sparkswarm import ParquetSink

from ..spark.world import expected, make_world, matches_in, start_world
from .driving import driving, orders_for
from .trial import Trial

SIZE = 24
"""Megabytes of the file system that gets full."""

SLOW = Path(__file__).parent / "slow_storage"


def storage(trial: Trial) -> None:
    """Fill the disk while a checkpoint is written, make room again, and go on; then be slow."""
    full(trial)
    slow(trial)


def full(trial: Trial) -> None:
    """Leave less and less room while batches run."""
    spark = trial.session()
    world = make_world(911, batches=12, points=120, operations=150, preload=100)
    folders, out = world.write(trial.folder / "world"), trial.folder / "out"
    disk = trial.folder / "disk"
    with small_disk(disk):
        filler = disk / "filler"
        sink = ParquetSink(str(out))
        rooms = [0, 4096, 20_000, 60_000, 120_000, 200_000]

        def fill(results: object, batch: int) -> None:
            sink(results, batch)  # type: ignore[arg-type]
            if rooms and batch % 2 and trial.left > 0 and not filler.exists():
                _fill(filler, rooms.pop(0))
                trial.tried += 1

        while True:
            handle = start_world(spark, folders, disk / "checkpoint", fill)
            try:
                handle.await_termination()
                break
            except Exception as error:
                clear = "No space left on device" in str(error)
                trial.check(
                    clear,
                    f"a full disk ends the run with: {str(error)[:200]} ... {str(error)[-500:]}",
                )
                trial.check(filler.exists(), "the run ended though there was room")
                if not filler.exists():
                    break
                filler.unlink()
    trial.compare(matches_in(out), expected(world).matches, "a full disk")


def _fill(filler: Path, room: int) -> None:
    """Write a file that leaves so many bytes of room."""
    disk = os.statvfs(filler.parent)
    with open(filler, "wb") as file:
        os.posix_fallocate(file.fileno(), 0, max(1, disk.f_bavail * disk.f_frsize - room))


@contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    """Mount a file system in memory that is soon full; this needs root."""
    folder.mkdir(parents=True)
    options = ["-t", "tmpfs", "-o", f"size={SIZE}m", "tmpfs"]
    subprocess.run(["mount", *options, str(folder)], check=True, capture_output=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=False)


def slow(trial: Trial) -> None:
    """Write every file of the checkpoint slowly, in the driver and in tasks."""
    world = make_world(912, batches=3, points=100, operations=80, preload=60)
    orders = orders_for(world, trial.folder / "slow", resize=(3, 4), shared_host=False)
    path = os.pathsep.join([str(SLOW), *os.environ.get("PYTHONPATH", "").split(os.pathsep)])
    written = trial.folder / "written"
    environment = {"PYTHONPATH": path, "SLOW_STORAGE_S": "0.1", "SLOW_STORAGE_LOG": str(written)}
    with driving(replace(orders), **environment) as driver:
        trial.check(driver.wait() == 0, f"slow storage ends the run: {driver.said()}")
    slowed = len(written.read_text().split()) if written.exists() else 0
    trial.check(slowed > 20, f"only {slowed} files were written slowly")
    trial.tried += slowed
    trial.compare(matches_in(Path(orders.out)), expected(world).matches, "slow storage")
