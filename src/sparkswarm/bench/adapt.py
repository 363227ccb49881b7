"""``sparkswarm bench adapt``: a hotspot under each policy.

The scenario is the paper's "Reaction to Hotspots". Measured are:

wall
    With few executors, one per core, at work in parallel: points per second of wall clock during
    the hotspot, including reading and registering queries.
critical path
    With many executors, one task at a time, so that they do not disturb each other: the run time
    of the longest executor task of a batch, as Spark reports it, which is the time of a batch on a
    cluster with a core for each executor; the mean over the batches of the hotspot.
latency
    From the same run: a point waits for its executor's task, so the mean of these times over all
    points of the hotspot.

Each executor stands for a machine of its own (``shared_host = false``): points are routed to the
executor that has their queries. All policies read the same files and take turns, batch by batch, so
that all meet the machine in the same state. Results are checked: their
number in every batch against an exact count, and those of a sample of points one by one.

Matching is most of the work: points are in the cities, queries are uniform and so large that a
point has hundreds of results, as many as with the paper's tens of millions of small queries. With
less matching there is little to balance, because reading is spread evenly under every policy. The
hotspot is the paper's: 40% of the points and 20% of the queries in a square of 15% side in the
lower-left corner, where there were almost none before.

Spark's master cannot change within a process, so each of the two parts runs in a process of its
own: this module, with the name of a file with its parameters.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sparkswarm.bench.adapt_stream import AdaptError, AdaptSettings, write_stream
from sparkswarm.bench.adapt_turns import Series, run_in_turn
from sparkswarm.config import SwarmConfig
from sparkswarm.spark.session import session
from sparkswarm.workloads import Density, Hotspot

WARM_UP = 4
"""Batches of a first run of each policy that is not measured: Java compiles its code."""

_PROCESS = "sparkswarm.bench.adapt"
_NAMES_AN_ERROR = re.compile(r"[\w.]*(Error|Exception)\b")

OnBatch = Callable[[str, str, int], None]
"""Called after every batch with the part (``wall``, ``critical_path``), the policy, the batch."""


@dataclass(frozen=True)
class AdaptRun:
    """The results: a series for each policy and part.

    Attributes
    ----------
    settings
        The parameters.
    density
        Name of the density.
    wall, path
        The two parts, by policy.
    """

    settings: AdaptSettings
    density: str
    wall: Mapping[str, Series]
    path: Mapping[str, Series]

    def throughput(self) -> dict[str, float]:
        """Return the points per second during the hotspot, by policy."""
        return {name: s.throughput(self.settings.hotspot) for name, s in self.wall.items()}

    def critical_path(self) -> dict[str, float]:
        """Return the mean seconds of the longest task in the hotspot, by policy."""
        return {name: s.critical_path(self.settings.hotspot) for name, s in self.path.items()}

    def latency(self) -> dict[str, float]:
        """Return the mean seconds that a point of the hotspot waits for its executor, by policy."""
        return {name: s.latency(self.settings.hotspot) for name, s in self.path.items()}

    def to_json(self) -> dict[str, Any]:
        """Return the form that ``--json`` writes."""
        s = self.settings
        return {
            "wall": {"executors": s.wall_executors, **_rounded(self.throughput(), 0)},
            "critical_path": {"executors": s.path_executors, **_rounded(self.critical_path(), 5)},
            "latency": {"executors": s.path_executors, **_rounded(self.latency(), 5)},
            "units": {
                "wall": "points per second of wall clock during the hotspot",
                "critical_path": "seconds of the longest executor task of a batch, "
                "mean over the hotspot's batches",
                "latency": "seconds of its executor's task, mean over the hotspot's points",
            },
            "settings": {
                **{k: v for k, v in asdict(s).items() if k != "policies"},
                "density": self.density,
                "hot_queries": s.hot_queries,
                "warm_up_batches": WARM_UP,
            },
            "batches": {
                "wall": {name: series.to_json() for name, series in self.wall.items()},
                "critical_path": {name: series.to_json() for name, series in self.path.items()},
            },
        }


def _rounded(values: Mapping[str, float], digits: int) -> dict[str, float]:
    return {name: round(value, digits) for name, value in values.items()}


def run_adapt(
    density: Density,
    settings: AdaptSettings | None = None,
    on_batch: OnBatch = lambda part, policy, batch: None,
    keep: Path | None = None,
) -> AdaptRun:
    """Run both parts, each in a process of its own, and check all results.

    Each process first runs :data:`WARM_UP` batches of each policy that are not measured. Only
    batches of the hotspot count; every policy has its own batches before it.

    Parameters
    ----------
    density
        Distribution of points and queries.
    settings
        The parameters.
    on_batch
        Called after every batch.
    keep
        Folder for the inputs and the processes' logs; by default a temporary one.

    Raises
    ------
    AdaptError
        If a process fails, or results are wrong.
    """
    settings = settings or AdaptSettings()
    with tempfile.TemporaryDirectory(prefix="sparkswarm-adapt-") as temporary:
        folder = keep or Path(temporary)
        truth = write_stream(folder, density, settings)
        parts = {}
        for part, executors, cores in (
            ("wall", settings.wall_executors, settings.wall_executors),
            ("critical_path", settings.path_executors, 1),
        ):
            parts[part] = _in_a_process(folder, part, density, settings, executors, cores, on_batch)
            truth.check(parts[part].values())
    return AdaptRun(settings, density.name, parts["wall"], parts["critical_path"])


def total_batches(settings: AdaptSettings) -> int:
    """Return the number of calls of ``on_batch``, for a progress bar."""
    return 2 * len(settings.policies) * settings.batches


# -- a part, in its own process ----------------------------------------------------------------


def _in_a_process(
    folder: Path,
    part: str,
    density: Density,
    settings: AdaptSettings,
    executors: int,
    cores: int,
    on_batch: OnBatch,
) -> dict[str, Series]:
    """Run a part in a process of its own; call ``on_batch`` after each of its batches."""
    b, grid = density.bounds, density.grid
    order = {
        "folder": str(folder),
        "part": part,
        "executors": executors,
        "cores": cores,
        "bounds": [b.min_x, b.min_y, b.max_x, b.max_y],
        "grid": [grid.columns, grid.rows],
        "settings": asdict(settings),
    }
    orders, log = folder / f"{part}.order.json", folder / f"{part}.log"
    orders.write_text(json.dumps(order), encoding="utf-8")
    with log.open("w", encoding="utf-8") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", _PROCESS, str(orders)],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        try:
            for line in process.stdout or ():
                if line.startswith("batch "):
                    _, policy, batch = line.split()
                    on_batch(part, policy, int(batch))
            code = process.wait()
        except BaseException:
            process.terminate()
            process.wait()
            raise
    if code:
        lines = log.read_text(encoding="utf-8").splitlines()
        # Spark's log is long; only lines that name an error are shown.
        said = "\n".join(dict.fromkeys(line for line in lines if _NAMES_AN_ERROR.match(line)))
        raise AdaptError(f"the part {part!r} ended with code {code}:\n{said[-2000:]}")
    found = json.loads((folder / f"{part}.json").read_text(encoding="utf-8"))
    for one in found:
        one["sample"] = {int(key): n for key, n in one["sample"].items()}
    return {one["policy"]: Series(**one) for one in found}


def main(order_file: str) -> None:
    """Run the part that a file describes: start Spark, run every policy, write the series."""
    order = json.loads(Path(order_file).read_text(encoding="utf-8"))
    values = order["settings"]
    settings = AdaptSettings(
        **{
            **values,
            "policies": tuple(values["policies"]),
            "hotspot": Hotspot(**values["hotspot"]),
        }
    )
    config = {
        "bounds": tuple(order["bounds"]),
        "grid": tuple(order["grid"]),
        "executors": order["executors"],
        "round_batches": settings.round_batches,
        "shared_host": False,
    }
    folder = Path(order["folder"])
    spark = session(
        "sparkswarm bench adapt",
        f"local[{order['cores']}]",
        {
            "spark.ui.enabled": False,
            "spark.ui.showConsoleProgress": False,
            "spark.log.level": "ERROR",
            "spark.driver.memory": "2g",
            "spark.sql.streaming.numRecentProgressUpdates": settings.batches + 100,
        },
    )
    configs = [SwarmConfig(policy=policy, **config) for policy in settings.policies]
    try:
        run_in_turn(spark, folder, settings, configs, min(WARM_UP, settings.batches))
        series = run_in_turn(spark, folder, settings, configs, settings.batches, _tell)
    finally:
        spark.stop()
    found = json.dumps([asdict(one) for one in series])
    (folder / f"{order['part']}.json").write_text(found, encoding="utf-8")


def _tell(policy: str, batch: int) -> None:
    print("batch", policy, batch, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
