"""Runs the stream of ``sparkswarm bench replay`` with several settings, batch by batch in turn.

So all meet the machine in the same state, and their figures can be compared. Owns how a run is
started on Spark, and what it notes.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from sparkswarm.bench.batch_files import BatchFiles, count_sample
from sparkswarm.bench.inputs import CHANGES_SCHEMA, POINTS_SCHEMA, QUERIES_SCHEMA
from sparkswarm.bench.plain_spark import batch_seconds
from sparkswarm.bench.replay_inputs import FILES_PER_BATCH, ReplayStream
from sparkswarm.bench.replay_series import ReplayBatch, ReplaySeries
from sparkswarm.bench.task_times import batch_tasks
from sparkswarm.bench.turns import Turns
from sparkswarm.config import SwarmConfig
from sparkswarm.observe.progress import Observer, Progress
from sparkswarm.protocol.messages import Decision
from sparkswarm.protocol.plan import Plan
from sparkswarm.spark.engine import Swarm
from sparkswarm.spark.sinks import NoopSink

OnBatch = Callable[[str, int], None]
"""Called after every batch with the name of the run and the batch."""


def replay_policy(
    spark: SparkSession,
    stream: ReplayStream,
    config: SwarmConfig,
    on_batch: Callable[[int], None] = lambda batch: None,
    batches: int | None = None,
) -> ReplaySeries:
    """Run the stream, or its first batches, with these settings."""
    name = config.policy
    runs = replay_in_turn(spark, stream, {name: config}, lambda _, batch: on_batch(batch), batches)
    return runs[name]


def replay_in_turn(
    spark: SparkSession,
    stream: ReplayStream,
    configs: Mapping[str, SwarmConfig],
    on_batch: OnBatch = lambda run, batch: None,
    batches: int | None = None,
) -> dict[str, ReplaySeries]:
    """Run the stream, or its first batches, with each of some settings, batch by batch in turn."""
    last = min(stream.batches, stream.batches if batches is None else batches - 1)
    turns = Turns(len(configs), last + 1)
    with tempfile.TemporaryDirectory(dir=stream.folder) as folder:
        started = [
            Replay(spark, stream, config, last, f"{folder}/{number}")
            for number, config in enumerate(configs.values())
        ]
        try:
            for number, (name, one) in enumerate(zip(configs, started, strict=True)):
                one.start(partial(on_batch, name), turns.observer(number))
            turns.await_all([one.query for one in started])
        finally:
            turns.end()
            for one in started:
                one.stop()
        waited = turns.waited
    return {
        name: one.series(waited[number])
        for number, (name, one) in enumerate(zip(configs, started, strict=True))
    }


class Replay:
    """The stream with some settings: started once, and what it told."""

    def __init__(
        self,
        spark: SparkSession,
        stream: ReplayStream,
        config: SwarmConfig,
        last: int,
        checkpoint: str,
    ) -> None:
        self._spark, self._stream, self._config = spark, stream, config
        self._files = BatchFiles(spark, stream.folder, last + 1)
        self._checkpoint = checkpoint
        self._sample: dict[int, int] = {}
        self._told: list[tuple[Progress, int]] = []
        self._query: StreamingQuery | None = None

    @property
    def query(self) -> StreamingQuery:
        """Spark's query."""
        if self._query is None:
            raise ValueError("the stream was not started")
        return self._query

    def start(self, on_batch: Callable[[int], None], at_end: Observer) -> None:
        """Start the stream; ``on_batch`` and ``at_end`` are called after every batch."""
        spark, config = self._spark, self._config

        def note(progress: Progress, plan: Plan, _: object) -> None:
            if progress.batch >= 0:  # not the preloading of queries
                self._told.append((progress, len(plan.partitions)))
                on_batch(progress.batch)

        def wait(progress: Progress, plan: Plan, decisions: Sequence[Decision]) -> None:
            if progress.batch >= 0:
                at_end(progress, plan, decisions)

        queries = self._files.table("queries", QUERIES_SCHEMA)
        past = self._files.table(f"points/{0:05d}-0.parquet", POINTS_SCHEMA), queries
        changes = (
            self._files.stream("changes", CHANGES_SCHEMA, 1) if self._stream.has_changes else None
        )
        self._query = (
            Swarm(spark, config)
            .start(
                self._files.stream("points", POINTS_SCHEMA, FILES_PER_BATCH),
                changes,
                sink=self._take,
                observers=[note, wait],
                checkpoint=self._checkpoint,
                preload=queries,
                history=past if config.policy == "static_history" else None,
                trigger={"availableNow": True},
            )
            .query
        )

    def stop(self) -> None:
        """Stop the stream, if it runs."""
        if self._query is not None:
            self._query.stop()

    def series(self, waited: Sequence[float]) -> ReplaySeries:
        """Return what the stream told; ``waited`` are the seconds that each batch waited."""
        seconds = batch_seconds(self.query)
        tasks = batch_tasks(self._spark, str(self.query.runId))
        found = [
            ReplayBatch(
                seconds=seconds[p.batch] - waited[p.batch],
                points=p.points,
                matches=p.matches,
                lent=p.lent,
                tasks=p.task_s or tasks[p.batch].execute,
                all_tasks=tasks[p.batch].total,
                work=p.work_s,
                partitions=partitions,
                query_bytes=p.query_bytes,
                fetched_bytes=p.fetched_bytes,
                hosts=p.hosts,
            )
            for p, partitions in self._told
            if p.batch < self._stream.batches
        ]
        return ReplaySeries(found, self._sample)

    def _take(self, results: DataFrame, batch: int) -> None:
        """Drop results, or keep those of the sample."""
        if batch not in self._stream.checked_batches:
            NoopSink()(results, batch)
            return
        self._sample.update(count_sample(results, self._stream.sample_step))
