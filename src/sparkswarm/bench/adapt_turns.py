"""Runs the stream of ``sparkswarm bench adapt`` under several policies, batch by batch in turn.

So all meet the machine in the same state, and their figures can be compared. Owns how a run is
started on Spark, and what is noted of it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pyspark.sql import DataFrame, SparkSession

from sparkswarm.bench.adapt_stream import FILES_PER_BATCH, AdaptSettings
from sparkswarm.bench.batch_files import BatchFiles, count_sample
from sparkswarm.bench.inputs import CHANGES_SCHEMA, POINTS_SCHEMA, QUERIES_SCHEMA
from sparkswarm.bench.plain_spark import batch_seconds
from sparkswarm.bench.turns import Turns
from sparkswarm.config import SwarmConfig
from sparkswarm.observe.progress import Observer, Progress
from sparkswarm.protocol.messages import Decision
from sparkswarm.protocol.plan import Plan
from sparkswarm.spark.engine import Swarm
from sparkswarm.spark.handle import Handle
from sparkswarm.workloads import Hotspot

OnBatch = Callable[[str, int], None]
"""Called after every batch with the policy and the batch."""


@dataclass(frozen=True)
class Series:
    """The result of one policy in one part, batch by batch.

    Attributes
    ----------
    policy
        Name of the policy.
    seconds
        Wall-clock seconds of a batch (``triggerExecution``).
    busy
        Run time of each executor's task, as Spark reports it.
    received, matches
        Points of each executor; results of the batch.
    partitions
        Number of partitions of the last plan.
    sample
        Number of results of some points, by point id.
    decisions
        SWARM's decisions, with their reasons.
    """

    policy: str
    seconds: list[float]
    busy: list[list[float]]
    received: list[list[int]]
    matches: list[int]
    partitions: int
    sample: dict[int, int]
    decisions: list[str]

    def throughput(self, hotspot: Hotspot) -> float:
        """Return the points per second of wall clock during the hotspot."""
        hot = slice(hotspot.start, hotspot.stop)
        return float(np.sum(self.received[hot]) / np.sum(self.seconds[hot]))

    @property
    def longest(self) -> list[float]:
        """Seconds of the longest task of each batch."""
        return [max(busy) for busy in self.busy]

    def critical_path(self, hotspot: Hotspot) -> float:
        """Return the mean seconds of the longest task over the batches of the hotspot."""
        return float(np.mean(self.longest[hotspot.start : hotspot.stop]))

    def latency(self, hotspot: Hotspot) -> float:
        """Return the mean seconds of an executor's task over the points of the hotspot."""
        hot = slice(hotspot.start, hotspot.stop)
        return float(np.average(self.busy[hot], weights=self.received[hot]))

    def to_json(self) -> dict[str, Any]:
        """Return the form that ``--json`` writes."""
        return {
            "seconds": [round(value, 3) for value in self.seconds],
            "points": [sum(received) for received in self.received],
            "longest_task": [round(value, 5) for value in self.longest],
            "mean_task": [round(float(np.mean(busy)), 5) for busy in self.busy],
            "results": self.matches,
            "partitions": self.partitions,
        }


def run_in_turn(
    spark: SparkSession,
    folder: Path,
    settings: AdaptSettings,
    configs: Sequence[SwarmConfig],
    batches: int,
    on_batch: OnBatch = lambda policy, batch: None,
) -> list[Series]:
    """Run the first batches of the stream under the policy of each of ``configs``."""
    turns = Turns(len(configs), batches)
    runs: list[_Run] = []
    with tempfile.TemporaryDirectory(dir=folder) as checkpoints:
        try:
            for number, config in enumerate(configs):
                run = _Run(spark, folder, settings, config, batches, on_batch)
                run.start(f"{checkpoints}/{number}", turns.observer(number))
                runs.append(run)
            turns.await_all([run.handle.query for run in runs])
        finally:
            turns.end()
            for run in runs:
                run.handle.query.stop()
    return [run.series(waited) for run, waited in zip(runs, turns.waited, strict=True)]


class _Run:
    """The stream under one policy."""

    def __init__(
        self,
        spark: SparkSession,
        folder: Path,
        settings: AdaptSettings,
        config: SwarmConfig,
        batches: int,
        on_batch: OnBatch,
    ) -> None:
        self._spark, self._step = spark, settings.sample_step
        self._files = BatchFiles(spark, folder, batches)
        self._config, self._batches, self._on_batch = config, batches, on_batch
        self._sample: dict[int, int] = {}
        self._progress: list[Progress] = []
        self._handle: Handle | None = None

    @property
    def handle(self) -> Handle:
        """The handle of the run."""
        if self._handle is None:
            raise ValueError("the stream was not started")
        return self._handle

    def start(self, checkpoint: str, at_end: Observer) -> None:
        """Start the stream; ``at_end`` is called after every batch."""
        config = self._config

        def note(progress: Progress, plan: Plan, decisions: Sequence[Decision]) -> None:
            if progress.batch >= 0:  # not the preloading of queries
                self._progress.append(progress)
                self._on_batch(config.policy, progress.batch)
                at_end(progress, plan, decisions)

        past = (
            self._files.table("past_points", POINTS_SCHEMA),
            self._files.table("past_queries", QUERIES_SCHEMA),
        )
        self._handle = Swarm(self._spark, config).start(
            self._files.stream("points", POINTS_SCHEMA, FILES_PER_BATCH),
            self._files.stream("operations", CHANGES_SCHEMA, 1),
            sink=self._take,
            observers=[note],
            checkpoint=checkpoint,
            preload=self._files.table("queries", QUERIES_SCHEMA),
            history=past if config.policy == "static_history" else None,
            trigger={"availableNow": True},
        )

    def series(self, waited: Sequence[float]) -> Series:
        """Return what the run told; ``waited`` are the seconds that each batch waited."""
        seconds, progress = batch_seconds(self.handle.query), self._progress
        return Series(
            policy=self._config.policy,
            seconds=[seconds[batch] - waited[batch] for batch in range(self._batches)],
            busy=[list(p.busy_s) for p in progress],
            received=[list(p.points_by_executor) for p in progress],
            matches=[p.matches for p in progress],
            partitions=len(self.handle.plan().partitions),
            sample=self._sample,
            decisions=[str(decision) for decision in self.handle.decisions()],
        )

    def _take(self, results: DataFrame, batch: int) -> None:
        self._sample.update(count_sample(results, self._step))
