"""Two drivers on one checkpoint: the older one is frozen, replaced, and woken."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import replace
from pathlib import Path

from ..spark.world import expected, make_world, matches_in
from .driving import Driver, driving, orders_for
from .trial import Trial


def two_drivers(trial: Trial) -> None:
    """Exactly one of the two must go on, and the output must be that of one alone."""
    for number in trial.repeat(5):
        world = make_world(920 + number, batches=14, points=100, operations=40, preload=60)
        orders = orders_for(world, trial.folder / str(number), resize=(3, 4), slow=0.2)
        with driving(orders) as older:
            first = 2 + number % 3
            older.wait_for(lambda older=older, first=first: older.following > first)
            time.sleep(0.07 * number)
            _signal(older, signal.SIGSTOP)
            # The Parquet output has no way to know who writes, so the older is woken only when
            # the younger one runs batches that it has not.
            with driving(replace(orders, checkpoint=orders.checkpoint)) as younger:
                before = younger.last_commit
                woke = time.monotonic()
                younger.wait_for(lambda y=younger, before=before: y.last_commit > before)
                trial.recovered(time.monotonic() - woke, 60.0)
                _signal(older, signal.SIGCONT)
                codes = older.wait(), younger.wait()
        trial.tried += 1
        log = Path(orders.checkpoint).with_suffix(".log").read_text(errors="replace")
        trial.check(codes[0] != 0, "the older driver went on to the end")
        trial.check(codes[1] == 0, f"the younger driver ended with {codes[1]}: {log[-1500:]}")
        trial.check("took over" in log, f"the older does not say why it stopped: {log[-1500:]}")
        trial.compare(matches_in(Path(orders.out)), expected(world).matches, f"pair {number}")


def _signal(driver: Driver, number: int) -> None:
    """Send a signal to a driver and all that it started."""
    os.killpg(driver.process.pid, number)
