"""Many batches without a pause: memory, files and the time of a batch must stay bounded."""

from __future__ import annotations

import os
import statistics
import time
from pathlib import Path

from ..spark.world import expected, make_world, matches_in
from ..support.processes import command_of, descendants, memory_of
from .driving import Driver, driving, journal_of, orders_for
from .trial import Trial

WHOLE = 2_000

PROCESSES = ("driver MB", "JVM MB", "workers MB")
FILES = ("files", "segments")

Sample = dict[str, float]


def batches(trial: Trial) -> None:
    """Run batches with operations, a window, event times and a new plan each, and watch."""
    # A batch takes about half a second, and a start ten.
    count = max(30, min(WHOLE, round((trial.left - 15) / 0.7)))
    world = make_world(
        914, count, points=100, operations=20, event_time=True, preload=60, alive=150
    )
    orders = orders_for(world, trial.folder, resize=(3, 4), window="60 seconds")
    samples: list[Sample] = []
    with driving(orders) as driver:
        began = time.monotonic()
        while driver.lives and time.monotonic() - began < trial.seconds + 240:
            samples.append(_sample(driver, time.monotonic() - began))
            time.sleep(1.0)
        trial.check(driver.wait() == 0, f"the driver ended: {driver.said()}")
    trial.tried = count
    trial.compare(matches_in(Path(orders.out)), expected(world).matches)
    samples = [one for one in samples if one["batch"] > count // 10]
    told = journal_of(Path(orders.checkpoint))
    seconds = [entry["seconds"] for entry in told if "seconds" in entry]
    _is_bounded(trial, "seconds of a batch", seconds[count // 10 :], 1.5)
    for name in (*PROCESSES, *FILES):
        _is_bounded(trial, name, [one[name] for one in samples], 1.3)
    _draw(samples, seconds, trial.folder / "endurance.png")


def _sample(driver: Driver, seconds: float) -> Sample:
    """Return what the processes of a driver and its checkpoint take now."""
    pid = driver.process.pid
    memory = {"driver MB": memory_of(pid), "JVM MB": 0, "workers MB": 0}
    for child in descendants(pid):
        kind = "JVM MB" if "java" in command_of(child)[:200] else "workers MB"
        memory[kind] += memory_of(child)
    # Not rglob, which minds folders that are deleted meanwhile.
    walk = os.walk(Path(driver.orders.checkpoint) / "swarm")
    names = [name for _, _, inside in walk for name in inside]
    files = {"files": len(names), "segments": sum(name.endswith(".arrow") for name in names)}
    megabytes = {name: value / 1e6 for name, value in memory.items()}
    return {"time": seconds, "batch": driver.following, **files, **megabytes}


def _is_bounded(trial: Trial, name: str, values: list[float], most: float) -> None:
    """See that the last quarter of some values is not above the second by a factor."""
    quarter = len(values) // 4
    if quarter < 3:
        trial.notes.append(f"{name}: too few values to see a trend")
        return
    before = statistics.median(values[quarter : 2 * quarter])
    after = statistics.median(values[-quarter:])
    trial.check(after <= most * before, f"{name} grew from {before:.3g} to {after:.3g}")
    trial.notes.append(f"{name}: {before:.3g}, in the last quarter {after:.3g}")


def _draw(samples: list[Sample], seconds: list[float], path: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(3, sharex=True, figsize=(8, 7), layout="constrained")
    numbers = [one["batch"] for one in samples]
    for axis, names, label in ((axes[0], PROCESSES, "memory"), (axes[1], FILES, "checkpoint")):
        for name in names:
            axis.plot(numbers, [one[name] for one in samples], label=name)
        axis.set_ylabel(label)
        axis.legend(loc="lower right")
    axes[2].plot(range(len(seconds)), seconds, linewidth=0.6)
    axes[2].set(ylabel="seconds of a batch", xlabel="batch")
    for axis in axes:
        axis.set_ylim(bottom=0)
    figure.savefig(path, dpi=110)
    plt.close(figure)
