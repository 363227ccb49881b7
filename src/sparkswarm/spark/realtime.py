"""Real-time Mode: starts the two streaming queries of a run, and refuses what it cannot do.

The tasks of the points' stream last as long as its trigger, and match what comes. The operations'
stream is in micro-batches, one each second at least: it stores operations, takes the tasks'
reports, ends rounds, and points the tasks to its commit. Runs on the driver, once per start.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import IntegerType, LongType, StructType

from sparkswarm.errors import ConfigError, InputError
from sparkswarm.spark.columns import INPUT_PARTITION, QUERY_VERSION, TARGET
from sparkswarm.spark.driver.layout import Branches, StreamLayout, union_stream
from sparkswarm.spark.driver.packets import SETTINGS, packets_of
from sparkswarm.spark.driver.realtime import RealTimeTasks
from sparkswarm.spark.driver.ticks import ticks
from sparkswarm.spark.realtime_sinks import Foreach, KafkaTopic, RealTimeSink, real_time_sink
from sparkswarm.spark.session import REAL_TIME, executor_hosts, temporary_settings
from sparkswarm.spark.sinks import ConsoleSink, NoopSink, Sinks
from sparkswarm.spark.task_input import packed_input
from sparkswarm.spark.tasks.context import endless_task
from sparkswarm.spark.tasks.follower import ContextFollower
from sparkswarm.spark.tasks.realtime import MatchPackets, route_packets
from sparkswarm.store.files import local_path

if TYPE_CHECKING:
    from sparkswarm.spark.driver.run import RunLoop

logger = logging.getLogger(__name__)

START_SECONDS = 30.0
"""Longest time to wait for the first tasks, to see that there are slots for them."""

POLL_SECONDS = 0.05
"""Time between two looks at whether the tasks have started."""


REAL_TIME_TRIGGER = "realTime"


def real_time_points(
    spark: SparkSession,
    branches: Branches,
    layout: StreamLayout,
    sink: Any,
    others: Mapping[str, Any],
    duration: str,
) -> RealTimePoints:
    """Return the points of a run in Real-time Mode; ConfigError for what it cannot do.

    ``others`` are the arguments with which something else than results would go somewhere.
    """
    if branches.points is None:
        raise InputError("without a stream of points there is nothing to match in Real-time Mode")
    unsupported = {
        "a window, and so no snapshot queries": layout.window is not None,
        "events": layout.events is not None,
        "an application with state": layout.stateful is not None,
        "ParquetPoints": layout.point_files is not None,
        **{f"{name}=": given is not None for name, given in others.items()},
    }
    if refused := [what for what, given in unsupported.items() if given]:
        raise ConfigError(
            f"Real-time Mode does not support {', '.join(refused)}: its points come one by one, in "
            "no batch; use a trigger with processingTime"
        )
    to = real_time_sink(sink)
    if isinstance(to, Foreach) and layout.queries.properties:
        raise ConfigError(
            "Foreach gets no columns of queries: leave out include of QueryColumns, or use "
            "KafkaTopic"
        )
    clash = {QUERY_VERSION, TARGET} & {*layout.results.names, *layout.queries.properties.names}
    if clash:
        raise InputError(f"results have a column {clash.pop()} of their own; rename yours")
    check_settings(spark)
    return RealTimePoints(branches, layout, to, duration)


def check_folder(checkpoint: str) -> None:
    """Refuse a checkpoint in which tasks cannot look for changes; ConfigError."""
    if local_path(checkpoint) is None:
        raise ConfigError(
            f"Real-time Mode needs a checkpoint in a folder that all machines see, not {checkpoint}"
            ": before each packet of points, tasks look there for changes"
        )


def check_settings(spark: SparkSession) -> None:
    """Refuse a session with which Real-time Mode does not work; ConfigError."""
    conf = spark.sparkContext.getConf()
    wrong = [
        f"{name}={wanted}"
        for name, wanted in REAL_TIME.items()
        if (spark.conf.get(name, None) or conf.get(name) or "").lower() != wanted
    ]
    if wrong:
        raise ConfigError(
            f"Real-time Mode needs a session with {', '.join(wrong)}; "
            "sparkswarm.session(real_time=True) makes one"
        )


@dataclass(frozen=True, kw_only=True)
class TwoStreams:
    """The streams of a run; ``by_owner`` says whether each executor has a task of its own."""

    points: StreamingQuery
    operations: StreamingQuery
    by_owner: bool


class RealTimePoints:
    """The points of a run in Real-time Mode, before they are matched."""

    def __init__(
        self, branches: Branches, layout: StreamLayout, sink: RealTimeSink, duration: str
    ) -> None:
        self._branches, self._layout = branches, layout
        self._sink, self._duration = sink, duration

    def start(self, run: RunLoop, folder_of: Callable[[str], str], name: str | None) -> TwoStreams:
        """Start both streams of an open run; ``folder_of`` gives each its folder by name."""
        spark = run.spark
        by_owner = not run.config.shared_host or len(executor_hosts(spark)) > 1
        task_input = run.follow(RealTimeTasks(run.files, by_owner))
        started = [self._start_operations(run, folder_of("spark"), name)]
        try:
            matched = self._matched(packed_input(task_input), run.config.executors, by_owner)
            writer = self._writer(matched)
            writer = writer.queryName(name) if name is not None else writer
            writer = writer.option("checkpointLocation", folder_of("points"))
            with temporary_settings(spark, SETTINGS):
                # Spark copies the settings of the session when a stream starts.
                started.append(writer.start())
            check_slots(spark, started[1])
        except BaseException:
            run.stop_requested = True
            for query in started:
                query.stop()
            raise
        operations, query = started
        return TwoStreams(points=query, operations=operations, by_owner=by_owner)

    def _start_operations(self, run: RunLoop, checkpoint: str, name: str | None) -> StreamingQuery:
        """Start the stream of operations, which has a batch each second at least."""
        every_second = ticks(run.spark).select(F.col("value").cast("int").alias(INPUT_PARTITION))
        stream = union_stream(replace(self._branches, points=every_second), self._layout.queries)

        def on_batch(batch: DataFrame, number: int) -> None:
            run.on_batch(batch, number, Sinks(results=NoopSink()), None)

        writer = stream.writeStream.foreachBatch(on_batch)
        writer = writer.queryName(f"operations of {name}") if name is not None else writer
        return writer.option("checkpointLocation", checkpoint).start()

    def _matched(self, task_input: bytes, executors: int, by_owner: bool) -> DataFrame:
        """Return the results of the points, packet by packet.

        With ``by_owner`` each executor has a task; else the tasks that read points match them.
        """
        points = self._branches.points
        assert points is not None
        follow = partial(ContextFollower, task_input)
        if by_owner:
            schema = StructType([*points.schema.fields]).add(TARGET, IntegerType())
            task = endless_task(route_packets, follow)
            routed = packets_of(points).mapInArrow(task, schema)
            points = routed.repartitionById(executors, F.col(TARGET)).drop(TARGET)
        schema = StructType([*self._layout.output_fields(True).fields])
        schema = schema.add(QUERY_VERSION, LongType())
        in_task = self._sink if isinstance(self._sink, Foreach) else None
        task = endless_task(MatchPackets(in_task), follow)
        return self._layout.finished_results(packets_of(points).mapInArrow(task, schema))

    def _writer(self, results: DataFrame) -> DataStreamWriter:
        sink, writer = self._sink, results.writeStream
        if isinstance(sink, KafkaTopic):
            writer = sink.writer(results)
        elif isinstance(sink, ConsoleSink):
            writer = writer.format("console").option("numRows", sink.rows)
        else:
            writer = writer.format("noop")
        # PySpark's annotations lack the trigger.
        trigger: Any = writer.outputMode("update").trigger
        started: DataStreamWriter = trigger(realTime=self._duration)
        return started


def check_slots(spark: SparkSession, query: StreamingQuery) -> None:
    """Wait for the tasks of a stream; ConfigError where they leave no slot for operations."""
    tracker: Any = spark.sparkContext.statusTracker()
    slots = spark.sparkContext.defaultParallelism
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and query.isActive:
        jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(str(query.runId))]
        stages = [tracker.getStageInfo(number) for job in jobs if job for number in job.stageIds]
        tasks = sum(stage.numTasks for stage in stages if stage)
        if tasks >= slots:
            raise ConfigError(
                f"Real-time Mode needs {tasks} slots of Spark for the tasks that match points, all "
                f"the time, and at least one more for operations; there are {slots}. Give Spark "
                "more cores, such as master='local[8]', or the source fewer partitions"
            )
        if tasks:
            return
        time.sleep(POLL_SECONDS)
    if (error := query.exception()) is not None:
        raise error
    logger.warning("no task that matches points has started in %.0f s", START_SECONDS)
