"""What a run of ``sparkswarm bench replay`` reports: its batches, and their figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median_low
from typing import Any

import numpy as np

from sparkswarm.observe.progress import HostUse

WARM_UP = 2
"""First batches of each run; they are listed and do not count."""


@dataclass(frozen=True, kw_only=True)
class ReplayBatch:
    """One batch of a run.

    Attributes
    ----------
    seconds
        Wall clock (``triggerExecution``).
    points, matches, lent
        Points, results, and points that another executor matched than the owner of their partition.
    tasks
        Run time of each executor's task, as Spark reports it.
    all_tasks
        Run time of all tasks of the batch: reading and routing too.
    work
        The learnt prices applied to what each executor's task did; empty where unknown.
    partitions
        Partitions of the plan.
    query_bytes, fetched_bytes, hosts
        Bytes of the files with queries, bytes that tasks copied to their hosts, and what each host
        did.
    """

    seconds: float
    points: int
    matches: int
    lent: int
    tasks: tuple[float, ...]
    all_tasks: float
    work: tuple[float, ...]
    partitions: int
    query_bytes: int = 0
    fetched_bytes: int = 0
    hosts: tuple[HostUse, ...] = ()


def balance(values: Sequence[float]) -> float | None:
    """Return mean / max, 1 is perfect; None without values."""
    most = max(values, default=0.0)
    return sum(values) / len(values) / most if most else None


@dataclass(frozen=True)
class ReplaySeries:
    """A run, batch by batch, and the results of its sample of points by id.

    ``runs`` are the points per second of all runs of the policy, of which this is the median.
    """

    batches: list[ReplayBatch]
    sample: Mapping[int, int]
    runs: tuple[float, ...] = ()

    @property
    def measured(self) -> list[ReplayBatch]:
        """The batches after the warm-up."""
        return self.batches[WARM_UP:]

    @property
    def points_per_second(self) -> float:
        """Points of the measured batches over their seconds."""
        return sum(b.points for b in self.measured) / sum(b.seconds for b in self.measured)

    def mean(self, value: Callable[[ReplayBatch], float | None]) -> float | None:
        """Return the mean over the measured batches that have the value."""
        values = [found for b in self.measured if (found := value(b)) is not None]
        return float(np.mean(values)) if values else None

    def lowest_work_balance(self, batches: Sequence[int]) -> float | None:
        """Return the lowest balance of work in some batches; None where it is not known."""
        values = [balance(self.batches[batch].work) for batch in batches]
        return min((one for one in values if one is not None), default=None)

    def to_json(self) -> dict[str, Any]:
        """Return the form that ``--json`` writes."""
        every = self.batches
        return {
            "points_per_s": round(self.points_per_second),
            "runs": [round(rate) for rate in self.runs],
            "seconds": [round(b.seconds, 3) for b in every],
            "balance": [_rounded(balance(b.tasks)) for b in every],
            "work_balance": [_rounded(balance(b.work)) for b in every],
            "longest_task_s": [_rounded(max(b.tasks, default=None)) for b in every],
            "task_s": [round(sum(b.tasks), 4) for b in every],
            "all_task_s": [round(b.all_tasks, 4) for b in every],
            "partitions": [b.partitions for b in every],
            "lent": [round(b.lent / b.points, 4) if b.points else 0.0 for b in every],
            "matches": [b.matches for b in every],
        }


def median_run(runs: Sequence[ReplaySeries]) -> ReplaySeries:
    """Return the run with the median number of points per second; of two, the slower."""
    rates = tuple(run.points_per_second for run in runs)
    return replace(runs[rates.index(median_low(rates))], runs=rates)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
