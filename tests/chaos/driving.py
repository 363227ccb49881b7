"""Drivers as processes of their own: started, watched through their checkpoint, and ended."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sparkswarm.observe import journal

from ..spark.driver_main import Orders
from ..spark.world import World
from ..support.processes import kill_group

PATIENCE = 240.0
"""Seconds after which something that must happen is given up."""


class Driver:
    """A driver that runs."""

    def __init__(self, orders: Orders, log: Path, **environment: str) -> None:
        self.orders, self.log = orders, log
        self.started = time.monotonic()
        self.process: subprocess.Popen[bytes] = orders.start(
            log, SPARK_LOCAL_IP="127.0.0.1", **environment
        )

    @property
    def lives(self) -> bool:
        """Whether it has not ended."""
        return self.process.poll() is None

    @property
    def last_commit(self) -> str:
        """The name of the checkpoint's last commit; empty where there is none."""
        folder = Path(self.orders.checkpoint) / "swarm" / "commits"
        return max((file.name for file in folder.glob("[0-9]*.json")), default="")

    @property
    def following(self) -> int:
        """The batch that follows the last commit."""
        # The commit of batch n has the number n + 1.
        return int(self.last_commit[:12] or 0)

    def wait(self) -> int:
        """Wait for its end and return its exit code."""
        return self.process.wait(PATIENCE)

    def wait_for(self, happened: Callable[[], Any]) -> bool:
        """Wait until something happened; return whether it did while the driver lived."""
        return until(happened, lambda: self.lives)

    def said(self) -> str:
        """Return the end of what it said."""
        return self.log.read_text(errors="replace")[-3000:]

    def kill(self) -> None:
        """Kill it and all that it started."""
        kill_group(self.process)


def until(happened: Callable[[], Any], going: Callable[[], bool] = lambda: True) -> bool:
    """Look every 20 ms whether something happened; give up when nothing goes on."""
    end = time.monotonic() + PATIENCE
    while not happened():
        if not going() or time.monotonic() > end:
            return bool(happened())
        time.sleep(0.02)
    return True


@contextmanager
def driving(orders: Orders, **environment: str) -> Iterator[Driver]:
    """Run a driver; whatever is left of it in the end is killed."""
    driver = Driver(orders, Path(orders.checkpoint).with_suffix(".log"), **environment)
    try:
        yield driver
    finally:
        driver.kill()


def journal_of(checkpoint: Path) -> list[dict[str, Any]]:
    """Return all entries of a run's journal."""
    path, entries, since = journal.find(checkpoint), [], -1
    while (chunk := journal.read(path, max(0, since))).stop != since:
        entries += chunk.entries()
        since = chunk.stop
    return entries


def orders_for(world: World, folder: Path, **more: Any) -> Orders:
    """Write a world and return orders to run it; all that comes of it is in the folder."""
    folders = world.write(folder / "world")
    return Orders(
        world=str(folders.folder),
        files=folders.files,
        checkpoint=str(folder / "checkpoint"),
        out=str(folder / "out"),
        event_time=world.event_time,
        marker=str(folder / "marker"),
        **more,
    )
