"""A batch, from its rows to its sinks: the way of the data on one page.

    operations       -> driver (-> compact)
    snapshot queries -> driver -> answer  -> answers' sink
    points           -> match -> sink                where all executors share one host; may start
                                                     while the driver applies operations
    points           -> route -> execute -> sink
                        match or execute -> state -> summaries' sink
                        match or execute -> events -> events' sink

Runs on the driver, once a batch; after a failure a batch runs again, with the same input, and gives
the same. What each stage does to its rows is in ``spark/tasks``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property
from typing import TypeVar

import pyarrow as pa
from pyspark import Accumulator, AccumulatorParam, SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from sparkswarm.apps.events.asking import answer_asks
from sparkswarm.errors import ConfigError
from sparkswarm.spark.driver.fixed_order import in_fixed_order
from sparkswarm.spark.driver.layout import StreamLayout, packed_rows
from sparkswarm.spark.driver.operations import separate_rows
from sparkswarm.spark.driver.placement import Anchors
from sparkswarm.spark.session import temporary_settings
from sparkswarm.spark.sinks import Sink, Sinks, reads_everything, write_nowhere
from sparkswarm.spark.task_input import TaskInput, packed_input
from sparkswarm.spark.task_output import OutputKind, TaskOutput, TaskStage
from sparkswarm.spark.tasks.agents import agents_task
from sparkswarm.spark.tasks.answers import answer_task, window_edge_task
from sparkswarm.spark.tasks.bases import (
    check_task,
    compact_task,
    manifest_with_bases,
    settle_task,
    write_task,
)
from sparkswarm.spark.tasks.context import BatchContext, TaskFunction, arrow_task
from sparkswarm.spark.tasks.direct import match_task
from sparkswarm.spark.tasks.events import event_tasks, events_task, nearest_answers
from sparkswarm.spark.tasks.execute import execute_task
from sparkswarm.spark.tasks.operations import AppliedOperations, apply_operations
from sparkswarm.spark.tasks.packing import PACKED_DDL, PackedRows, RowKind
from sparkswarm.spark.tasks.route import route_task
from sparkswarm.spark.tasks.state import state_task
from sparkswarm.store.awaited import announcement, awaited_name
from sparkswarm.store.deltas import is_compaction_due
from sparkswarm.store.files import Files
from sparkswarm.store.manifest import Manifest
from sparkswarm.window.windows import TimeWeights, exact_start

NOT_ADAPTIVE = {"spark.sql.adaptive.enabled": "false"}
"""For jobs that Spark could not plan better once it knows their size."""


class OutputCollector:
    """Brings the outputs of tasks to the driver; of outputs with the same key one counts."""

    def __init__(self, context: SparkContext) -> None:
        self.accumulator: Accumulator[list[TaskOutput]] = context.accumulator([], _Appended())

    def add(self, output: TaskOutput) -> None:
        """Add what the driver itself did."""
        self.accumulator.add([output])

    def peek(self, batch: int, *stages: TaskStage) -> list[TaskOutput]:
        """Return the outputs that a batch already has, of some stages or of all."""
        found = {o.key: o for o in self.accumulator.value if o.batch == batch}
        return [o for o in found.values() if not stages or o.stage in stages]

    def take(self, batch: int) -> list[TaskOutput]:
        """Return the outputs of a batch and forget all outputs."""
        outputs = self.peek(batch)
        self.accumulator.value = []
        return outputs


class _Appended(AccumulatorParam[list[TaskOutput]]):
    def zero(self, value: list[TaskOutput]) -> list[TaskOutput]:
        return []

    def addInPlace(  # noqa: N802
        self, value1: list[TaskOutput], value2: list[TaskOutput]
    ) -> list[TaskOutput]:
        value1.extend(value2)
        return value1


_Result = TypeVar("_Result")


class DriverContext:
    """The context of the work that the driver does itself, with the files that it has opened.

    One piece of work at a time: what is done in the background is waited for before more is done.
    """

    def __init__(self) -> None:
        self._last: BatchContext | None = None
        self._background = ThreadPoolExecutor(1, "sparkswarm-driver")
        self._writing: list[Future[None]] = []

    def open(self, task_input: TaskInput) -> BatchContext:
        """Return the context for the input of a batch."""
        self._last = BatchContext(task_input, self._last)
        return self._last

    def start(self, work: Callable[[], _Result]) -> Future[_Result]:
        """Begin some work in the background."""
        return self._background.submit(work)

    def make_durable(self, files: Files, name: str) -> None:
        """Begin to make a file durable: the disk takes its time while tasks run."""
        self._writing.append(self._background.submit(files.make_durable, name))

    def wait_until_durable(self) -> None:
        """Wait for all files that :meth:`make_durable` was asked for."""
        writing, self._writing = self._writing, []
        for one in writing:
            one.result()


class StageTimer:
    """Measures the stages of a batch, one after another."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.monotonic()

    def mark(self, stage: str) -> None:
        """End a stage."""
        now = time.monotonic()
        self.seconds[stage] = now - self._last
        self._last = now


class Stages:
    """The stages of one batch as DataFrames.

    Parameters
    ----------
    task_input
        What the tasks are given.
    collector
        Where their outputs arrive.
    anchors
        Where the tasks of each executor run; None where they may run anywhere.
    """

    def __init__(
        self, task_input: TaskInput, collector: OutputCollector, anchors: Anchors | None = None
    ) -> None:
        self.input = task_input
        self.collector = collector
        self._anchors = anchors

    @cached_property
    def _packed(self) -> bytes:
        return packed_input(self.input)

    def map(self, rows: DataFrame, function: TaskFunction, schema: StructType | str) -> DataFrame:
        """Run a task function on the rows of a frame."""
        # Columns are neither left out nor renamed on the way: Spark would copy every package.
        task = arrow_task(function, self._packed, self.collector.accumulator)
        return rows.mapInArrow(task, schema)

    def by_executor(self, rows: DataFrame) -> DataFrame:
        """Return packed rows, those of an executor together and on its host."""
        rows = rows.repartitionById(self.input.epoch.plan.executors, F.col("target"))
        return self._anchors.place(rows) if self._anchors else rows

    def _executors(self, spark: SparkSession, tasks: int) -> DataFrame:
        """Return the numbers of the executors; on several hosts, a task for each."""
        if self._anchors:
            return self._anchors.executors
        return spark.range(0, self.input.epoch.plan.executors, 1, tasks)

    def route(self, rows: DataFrame) -> DataFrame:
        """Return the batch packed, the points of an executor together."""
        return self.by_executor(self.map(in_fixed_order(rows), route_task, PACKED_DDL))

    def load(self, queries: DataFrame) -> None:
        """Store the queries of a bulk load; the outputs name the files."""
        executors = self.input.epoch.plan.executors
        by_id = self.map(queries, check_task, PACKED_DDL)
        by_id = by_id.repartitionById(executors, F.col("target"))
        by_place = self.by_executor(self.map(by_id, settle_task, PACKED_DDL))
        with temporary_settings(queries.sparkSession, NOT_ADAPTIVE):
            self.map(by_place, write_task, "done BOOLEAN").collect()

    def compact(self, spark: SparkSession) -> None:
        """Store the queries of all partitions anew; the outputs name the files."""
        numbers = self._executors(spark, self.input.epoch.plan.executors)
        self.map(numbers, compact_task, "done BOOLEAN").collect()

    def answer(self, packed: DataFrame, schema: StructType) -> DataFrame:
        """Return the answers to packed snapshot queries."""
        snapshots = packed.where(F.col("kind") == int(RowKind.SNAPSHOT))
        return self.map(self.by_executor(snapshots), answer_task, schema)

    def execute(self, routed: DataFrame, schema: StructType) -> DataFrame:
        """Return what the executors find: results, and packed additions to state."""
        return self.map(routed, execute_task, schema)

    def state(self, executed: DataFrame, schema: StructType) -> DataFrame:
        """Return the summaries of a stateful application; read whole, state is stored."""
        packed = packed_rows(executed, RowKind.PARTIAL_STATE)
        return self.map(self.by_executor(packed), state_task, schema)

    def events(self, matched: DataFrame, schema: StructType) -> DataFrame:
        """Return the events of objects; read whole, what is known of them is stored."""
        tasks = event_tasks(self.input.epoch.plan.executors)
        numbers = self._event_tasks(matched.sparkSession, 1)
        packed = packed_rows(matched, RowKind.FIXES).unionByName(numbers)
        return self.map(packed.repartitionById(tasks, F.col("target")), events_task, schema)

    def events_of_files(self, spark: SparkSession, schema: StructType) -> DataFrame:
        """Return the events of objects, whose points are in files."""
        tasks = event_tasks(self.input.epoch.plan.executors)
        return self.map(self._event_tasks(spark, tasks), events_task, schema)

    def _event_tasks(self, spark: SparkSession, partitions: int) -> DataFrame:
        """Return a row for each task: it knows its number by that, and runs without points too."""
        tasks = event_tasks(self.input.epoch.plan.executors)
        return spark.range(0, tasks, 1, partitions).select(
            F.lit(int(RowKind.FIXES)).cast("tinyint").alias("kind"),
            F.col("id").cast("int").alias("target"),
            F.lit(None).cast("binary").alias("rows"),
        )

    def match(self, points: DataFrame, schema: StructType) -> DataFrame:
        """Return the results of points, matched by the tasks that read them."""
        return self.map(points, match_task, schema)

    def run_agents(self, spark: SparkSession) -> None:
        """Run the agents of all executors."""
        tasks = min(self.input.epoch.plan.executors, spark.sparkContext.defaultParallelism)
        numbers = self._executors(spark, tasks)
        self.map(numbers, agents_task, "done BOOLEAN").collect()

    def with_input(self, task_input: TaskInput) -> Stages:
        """Return the stages with another input."""
        return Stages(task_input, self.collector, self._anchors)

    def complete(self, frame: DataFrame, stage: TaskStage, tasks: int) -> None:
        """Run the tasks of a stage that a sink left out: a sink may read as little as it likes."""
        if len(self.collector.peek(self.input.epoch.batch, stage)) < tasks:
            write_nowhere(frame)


def load_queries(queries: DataFrame, stages: Stages, context: DriverContext) -> TaskInput:
    """Store the queries of a bulk load, which come as operations; return the input after it."""
    stages.load(queries)
    return _with_bases(stages, context)


def run_batch(
    rows: DataFrame,
    stages: Stages,
    context: DriverContext,
    layout: StreamLayout,
    sinks: Sinks,
    timer: StageTimer,
    *,
    direct: bool,
) -> TaskInput:
    """Run a batch, its results in the sinks.

    With ``direct``, the tasks that read points match them.

    Returns
    -------
    The input with which points were matched: its manifest includes the batch's operations.
    """
    spark = rows.sparkSession
    if stages.input.epoch.manifest.is_of_format_2:
        stages = stages.with_input(compact(spark, stages, context))
    if layout.has_operations:
        known = stages.input.epoch.manifest
        operations, rows = separate_rows(rows, layout.queries.operation_types)
        if operations is not None and direct and can_apply_meanwhile(stages.input, layout):
            timer.mark("operations")
            return apply_and_match(operations, rows, stages, context, layout, sinks, timer)
        task_input, applied = store_operations(spark, operations, stages, context)
        stages = stages.with_input(task_input)
        timer.mark("operations")
        snapshots = applied.snapshots if applied else []
        if snapshots and sinks.answers and layout.answers:
            packed = packed_frame(spark, snapshots)
            answers = answer_frame(spark, packed, stages, layout.answers)
            sinks.answers(answers, task_input.epoch.batch)
        if applied and applied.asks is not None and sinks.positions:
            found = answer_asks_of(applied.asks, context.open(task_input), known)
            sinks.positions(
                spark.createDataFrame(found, layout.position_fields), task_input.epoch.batch
            )
        timer.mark("answers")
    if direct:
        match_points(rows, stages, layout, sinks, timer)
    else:
        execute_points(stages.route(rows), stages, layout, sinks, timer)
    return stages.input


def can_apply_meanwhile(task_input: TaskInput, layout: StreamLayout) -> bool:
    """Return whether the tasks that match points may start before operations are applied.

    They look for a file that they all see, and nothing but them needs the operations.
    """
    return task_input.files.is_local and not layout.has_packed


def apply_and_match(
    operations: pa.Table,
    rows: DataFrame,
    stages: Stages,
    context: DriverContext,
    layout: StreamLayout,
    sinks: Sinks,
    timer: StageTimer,
) -> TaskInput:
    """Match points; apply operations meanwhile, for which the tasks wait once they run.

    To apply them needs no task, so these wait for the driver alone. A compaction does need tasks:
    it comes after the match. Return the input after the operations.
    """
    before = stages.input
    name = awaited_name(before.epoch.batch, before.attempt)

    def apply() -> AppliedOperations:
        with announcement(before.files, name) as difference:
            applied = apply_durably(operations, before, context)
            difference |= applied.input.epoch.manifest.difference(before.epoch.manifest)
        return applied

    applying = context.start(apply)
    try:
        waiting = replace(before, awaited=name, operations=operations.num_rows)
        match_points(rows, stages.with_input(waiting), layout, sinks, timer)
    finally:
        # What went wrong here is why tasks failed.
        applied = applying.result()
    stages.collector.add(applied.output)
    task_input = compacted(rows.sparkSession, stages.with_input(applied.input), context)
    timer.mark("compaction")
    return task_input


def run_operations(
    rows: DataFrame,
    stages: Stages,
    context: DriverContext,
    layout: StreamLayout,
    timer: StageTimer,
) -> TaskInput:
    """Run a batch that has no points; return its input after its operations."""
    task_input = stages.input
    if layout.has_operations:
        operations, _ = separate_rows(rows, layout.queries.operation_types)
        task_input, _ = store_operations(rows.sparkSession, operations, stages, context)
    timer.mark("operations")
    return task_input


def store_operations(
    spark: SparkSession, operations: pa.Table | None, stages: Stages, context: DriverContext
) -> tuple[TaskInput, AppliedOperations | None]:
    """Store the operations of a batch; return the input after them, and what they are."""
    if operations is None:
        return stages.input, None
    applied = apply_durably(operations, stages.input, context)
    stages.collector.add(applied.output)
    return compacted(spark, stages.with_input(applied.input), context), applied


def apply_durably(
    operations: pa.Table, task_input: TaskInput, context: DriverContext
) -> AppliedOperations:
    """Apply operations, and begin to make durable what they change."""
    applied = apply_operations(context.open(task_input), operations)
    for delta in applied.input.epoch.manifest.deltas:
        if delta not in task_input.epoch.manifest.deltas:
            context.make_durable(task_input.files, delta.file.name)
    return applied._replace(input=replace(applied.input, operations=operations.num_rows))


def compacted(spark: SparkSession, stages: Stages, context: DriverContext) -> TaskInput:
    """Return the input of some stages, after a compaction where it is due."""
    if is_compaction_due(stages.input.epoch.manifest):
        return compact(spark, stages, context)
    return stages.input


def answer_asks_of(asks: pa.Table, ctx: BatchContext, manifest: Manifest) -> pa.Table:
    """Return the answers to questions about objects, as of a manifest."""
    events = ctx.input.events
    if events is None:
        raise ConfigError("this run keeps no objects; give Swarm events")

    def tables(bucket: int | None) -> Iterator[pa.Table]:
        for number, ref in manifest.objects.items():
            if bucket in (None, number):
                yield ctx.stored_objects(ref)

    return answer_asks(asks, tables, manifest.renumbered, events)


def compact(spark: SparkSession, stages: Stages, context: DriverContext) -> TaskInput:
    """Write the queries of all partitions anew; return the input with their manifest."""
    stages.compact(spark)
    return _with_bases(stages, context)


def _with_bases(stages: Stages, context: DriverContext) -> TaskInput:
    task_input = stages.input
    outputs = stages.collector.peek(task_input.epoch.batch, TaskStage.BASES, TaskStage.SETTLE)
    manifest = manifest_with_bases(context.open(task_input), outputs)
    return replace(task_input, epoch=replace(task_input.epoch, manifest=manifest))


def packed_frame(spark: SparkSession, rows: Sequence[PackedRows]) -> DataFrame:
    """Return packed rows of the driver."""
    plain = [
        (int(kind), target, None if content is None else content.to_pybytes())
        for kind, target, content in rows
    ]
    return spark.createDataFrame(plain, PACKED_DDL)


def match_points(
    rows: DataFrame, stages: Stages, layout: StreamLayout, sinks: Sinks, timer: StageTimer
) -> None:
    """Match points in the tasks that read them; see that all of it is done."""
    wanted = OutputKind.RESULTS in stages.input.outputs
    matched = stages.match(rows, layout.output_fields(wanted, stages.input.fix_files))
    if layout.has_packed and not stages.input.fix_files:
        deliver_all(matched, stages, layout, sinks, timer, "match")
        return
    deliver_results(matched, stages, layout, sinks)
    if stages.input.result_files is None and not reads_everything(sinks.results):
        tasks = matched._jdf.queryExecution().toRdd().getNumPartitions()
        stages.complete(matched, TaskStage.MATCH, tasks)
    timer.mark("match")
    if stages.input.fix_files:
        outputs = stages.collector.peek(stages.input.epoch.batch, TaskStage.MATCH)
        fixes = tuple(ref for output in outputs for ref in output.written.fixes)
        stages = stages.with_input(replace(stages.input, fixes=fixes))
        told = stages.events_of_files(rows.sparkSession, layout.event_fields)
        deliver_events(told, stages, layout, sinks, timer, "events")
        stages.input.files.delete(ref.file.name for ref in fixes)


def deliver_results(matched: DataFrame, stages: Stages, layout: StreamLayout, sinks: Sinks) -> None:
    """Give results to their sink, or let the tasks write them."""
    if stages.input.result_files is not None:
        write_nowhere(matched)
    elif sinks.results:
        sinks.results(layout.finished_results(matched), stages.input.epoch.batch)


def deliver_events(
    told: DataFrame,
    stages: Stages,
    layout: StreamLayout,
    sinks: Sinks,
    timer: StageTimer,
    name: str,
) -> None:
    """Give events to their sink, and answers of standing points; see that objects are stored.

    ``name`` is that of the stage, for the timer.
    """
    batch, executors = stages.input.epoch.batch, stages.input.epoch.plan.executors
    if sinks.events:
        sinks.events(layout.finished_events(told), batch)
    stages.complete(told, TaskStage.EVENTS, event_tasks(executors))
    timer.mark(name)
    if sinks.nearest:
        tell_nearest(told.sparkSession, stages, layout, sinks.nearest)
        timer.mark("nearest")


def execute_points(
    points: DataFrame, stages: Stages, layout: StreamLayout, sinks: Sinks, timer: StageTimer
) -> None:
    """Match the points; see that all of it is done, whatever the sinks read."""
    wanted = OutputKind.RESULTS in stages.input.outputs
    executed = stages.execute(points, layout.output_fields(wanted))
    if layout.stateful is None and layout.events is None:
        deliver_results(executed, stages, layout, sinks)
        if layout.window is not None:
            stages.complete(executed, TaskStage.EXECUTE, stages.input.epoch.plan.executors)
        timer.mark("execute")
        return
    deliver_all(executed, stages, layout, sinks, timer, "execute")


def deliver_all(
    matched: DataFrame,
    stages: Stages,
    layout: StreamLayout,
    sinks: Sinks,
    timer: StageTimer,
    name: str,
) -> None:
    """Give summaries, events and results to their sinks; see that state and objects are stored.

    ``name`` is that of the stage that matches points, which the first of them runs.
    """
    batch, executors = stages.input.epoch.batch, stages.input.epoch.plan.executors
    stateful, results = layout.stateful, sinks.results
    if stages.input.result_files is not None:
        results = None
    several = [stateful, layout.events, results].count(None) < 2
    if several:
        # Matched once, used more than once.
        matched = matched.persist()
    first = f"{name} and "
    try:
        if stateful is not None:
            summaries = stages.state(matched, layout.summary_fields)
            if sinks.summaries:
                sinks.summaries(summaries, batch)
            stages.complete(summaries, TaskStage.STATE, executors)
            timer.mark(f"{first}summaries")
            first = ""
        if layout.events is not None:
            told = stages.events(matched, layout.event_fields)
            deliver_events(told, stages, layout, sinks, timer, f"{first}events")
        if results:
            results(layout.finished_results(matched), batch)
            timer.mark("results")
    finally:
        if several:
            matched.unpersist()


def tell_nearest(spark: SparkSession, stages: Stages, layout: StreamLayout, sink: Sink) -> None:
    """Give the answers of standing points to their sink where the batch changed any."""
    outputs = stages.collector.peek(stages.input.epoch.batch, TaskStage.EVENTS)
    answers = nearest_answers(stages.input, outputs)
    if answers.num_rows:
        frame = spark.createDataFrame(answers, layout.nearest_fields)
        sink(layout.finished_events(frame), stages.input.epoch.batch)


def answer_frame(
    spark: SparkSession, packed: DataFrame, stages: Stages, schema: StructType
) -> DataFrame:
    """Return the answers to packed snapshot queries about the batch before."""
    start = window_start(spark, stages)
    task_input = replace(stages.input, window_start=start)
    return stages.with_input(task_input).answer(packed, schema)


def window_start(spark: SparkSession, stages: Stages) -> int:
    """Return when the window starts.

    For a window by number of points or bytes that takes a look at the blocks at its edge.
    """
    task_input = stages.input
    window, manifest = task_input.window, task_input.epoch.manifest
    if window is None:
        raise ConfigError("this run keeps no points")
    blocks = [block for some in manifest.blocks.values() for block in some]
    known = window.start(task_input.max_event_time, blocks)
    if not known.read:
        return known.at_least
    edge = stages.with_input(replace(task_input, window_start=known.at_least))
    look = spark.createDataFrame([(i,) for i in known.read], "block INT")
    tasks = min(len(known.read), spark.sparkContext.defaultParallelism)
    rows = edge.map(look.repartition(tasks), window_edge_task, "time BIGINT, weight BIGINT")
    found: pa.Table = rows.toArrow()
    seen = TimeWeights(found.column("time").to_numpy(), found.column("weight").to_numpy())
    return exact_start([seen], known.remaining)
