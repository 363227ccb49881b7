"""A batch, from its rows to its sinks: the way of the data on one page.

    operations       -> driver (-> compact)
    snapshot queries -> driver -> answer  -> answers' sink
    points           -> match -> sink                where all executors share one host
    points           -> route -> execute -> sink
                                 execute -> state -> summaries' sink
                        match or execute -> events -> events' sink

Runs on the driver, once a batch; after a failure a batch runs again, with the same input, and gives
the same. What each stage does to its rows is in ``spark/tasks``.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
from pyspark import Accumulator, AccumulatorParam, SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from sparkswarm.apps.events.asking import answer_asks
from sparkswarm.errors import ConfigError
from sparkswarm.observe.progress import Counts, Loan, Progress
from sparkswarm.policies import TaskWork
from sparkswarm.protocol.cost import Prices
from sparkswarm.protocol.plan import Plan
from sparkswarm.spark.driver.fixed_order import in_fixed_order
from sparkswarm.spark.driver.layout import StreamLayout, packed_rows
from sparkswarm.spark.driver.operations import read_operations
from sparkswarm.spark.session import temporary_settings
from sparkswarm.spark.sinks import Sinks, reads_everything, write_nowhere
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
from sparkswarm.spark.tasks.blocks import blocks_after
from sparkswarm.spark.tasks.context import BatchContext, TaskFunction, arrow_task
from sparkswarm.spark.tasks.direct import match_task
from sparkswarm.spark.tasks.events import event_tasks, events_task
from sparkswarm.spark.tasks.execute import execute_task
from sparkswarm.spark.tasks.operations import AppliedOperations, apply_operations
from sparkswarm.spark.tasks.packing import PACKED_DDL, PackedRows, RowKind
from sparkswarm.spark.tasks.route import route_task
from sparkswarm.spark.tasks.state import state_task
from sparkswarm.store.deltas import is_compaction_due
from sparkswarm.store.kept import state_bytes, window_bytes
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


class DriverContext:
    """The context of the work that the driver does itself, with the files that it has opened."""

    def __init__(self) -> None:
        self._last: BatchContext | None = None

    def open(self, task_input: TaskInput) -> BatchContext:
        """Return the context for the input of a batch."""
        self._last = BatchContext(task_input, self._last)
        return self._last


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
    """

    def __init__(self, task_input: TaskInput, collector: OutputCollector) -> None:
        self.input = task_input
        self._packed = packed_input(task_input)
        self._collector = collector

    def map(self, rows: DataFrame, function: TaskFunction, schema: StructType | str) -> DataFrame:
        """Run a task function on the rows of a frame."""
        # Columns are neither left out nor renamed on the way: Spark would copy every package.
        task = arrow_task(function, self._packed, self._collector.accumulator)
        return rows.mapInArrow(task, schema)

    def route(self, rows: DataFrame, targets: int) -> DataFrame:
        """Return the batch packed, what has the same target together."""
        rows = in_fixed_order(rows)
        return self.map(rows, route_task, PACKED_DDL).repartitionById(targets, F.col("target"))

    def load(self, queries: DataFrame) -> None:
        """Store the queries of a bulk load; the outputs name the files."""
        executors = self.input.epoch.plan.executors
        by_id = self.map(queries, check_task, PACKED_DDL)
        by_id = by_id.repartitionById(executors, F.col("target"))
        by_place = self.map(by_id, settle_task, PACKED_DDL)
        by_place = by_place.repartitionById(executors, F.col("target"))
        with temporary_settings(queries.sparkSession, NOT_ADAPTIVE):
            self.map(by_place, write_task, "done BOOLEAN").collect()

    def compact(self, spark: SparkSession) -> None:
        """Store the queries of all partitions anew; the outputs name the files."""
        executors = self.input.epoch.plan.executors
        numbers = spark.range(0, executors, 1, executors)
        self.map(numbers, compact_task, "done BOOLEAN").collect()

    def answer(self, packed: DataFrame, schema: StructType) -> DataFrame:
        """Return the answers to packed snapshot queries."""
        snapshots = packed.where(F.col("kind") == int(RowKind.SNAPSHOT))
        return self.map(snapshots, answer_task, schema)

    def execute(self, routed: DataFrame, schema: StructType) -> DataFrame:
        """Return what the executors find: results, and packed additions to state."""
        return self.map(routed, execute_task, schema)

    def state(self, executed: DataFrame, schema: StructType) -> DataFrame:
        """Return the summaries of a stateful application; read whole, state is stored."""
        packed = packed_rows(executed, RowKind.PARTIAL_STATE)
        executors = self.input.epoch.plan.executors
        return self.map(packed.repartitionById(executors, F.col("target")), state_task, schema)

    def events(self, matched: DataFrame, schema: StructType) -> DataFrame:
        """Return the events of objects; read whole, what is known of them is stored."""
        tasks = event_tasks(self.input.epoch.plan.executors)
        # A task knows its number from its rows, and runs also where no point comes.
        numbers = matched.sparkSession.range(0, tasks, 1, 1).select(
            F.lit(int(RowKind.FIXES)).cast("tinyint").alias("kind"),
            F.col("id").cast("int").alias("target"),
            F.lit(None).cast("binary").alias("rows"),
        )
        packed = packed_rows(matched, RowKind.FIXES).unionByName(numbers)
        return self.map(packed.repartitionById(tasks, F.col("target")), events_task, schema)

    def match(self, points: DataFrame, schema: StructType) -> DataFrame:
        """Return the results of points, matched by the tasks that read them."""
        return self.map(points, match_task, schema)

    def run_agents(self, spark: SparkSession) -> None:
        """Run the agents of all executors."""
        executors = self.input.epoch.plan.executors
        tasks = min(executors, spark.sparkContext.defaultParallelism)
        self.map(spark.range(0, executors, 1, tasks), agents_task, "done BOOLEAN").collect()

    def with_input(self, task_input: TaskInput) -> Stages:
        """Return the stages with another input."""
        return Stages(task_input, self._collector)

    def complete(self, frame: DataFrame, stage: TaskStage, tasks: int) -> None:
        """Run the tasks of a stage that a sink left out: a sink may read as little as it likes."""
        if len(self._collector.peek(self.input.epoch.batch, stage)) < tasks:
            write_nowhere(frame)


def load_queries(
    queries: DataFrame, task_input: TaskInput, collector: OutputCollector, context: DriverContext
) -> TaskInput:
    """Store the queries of a bulk load, which come as operations; return the input after it."""
    Stages(task_input, collector).load(queries)
    return _with_bases(task_input, collector, context)


def run_batch(
    rows: DataFrame,
    task_input: TaskInput,
    collector: OutputCollector,
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
    if task_input.epoch.manifest.is_of_format_2:
        task_input = compact(spark, task_input, collector, context)
    if layout.has_operations:
        known = task_input.epoch.manifest
        task_input, applied = store_operations(rows, task_input, layout, collector, context)
        timer.mark("operations")
        snapshots = applied.snapshots if applied else []
        if snapshots and sinks.answers and layout.answers:
            packed = packed_frame(spark, snapshots, task_input.epoch.plan.executors)
            answers = answer_frame(spark, packed, Stages(task_input, collector), layout.answers)
            sinks.answers(answers, task_input.epoch.batch)
        if applied and applied.asks is not None and sinks.positions:
            found = answer_asks_of(applied.asks, context.open(task_input), known)
            sinks.positions(
                spark.createDataFrame(found, layout.position_fields), task_input.epoch.batch
            )
        timer.mark("answers")
    stages = Stages(task_input, collector)
    if direct:
        match_points(rows, stages, layout, sinks, timer)
    else:
        routed = stages.route(rows, task_input.epoch.plan.executors)
        execute_points(routed, stages, layout, sinks, timer)
    return task_input


def store_operations(
    rows: DataFrame,
    task_input: TaskInput,
    layout: StreamLayout,
    collector: OutputCollector,
    context: DriverContext,
) -> tuple[TaskInput, AppliedOperations | None]:
    """Store the operations of a batch; return the input after them, and what they are."""
    operations = read_operations(rows, layout.queries.operation_types)
    if operations is None:
        return task_input, None
    applied = apply_operations(context.open(task_input), operations)
    collector.add(applied.output)
    task_input = replace(applied.input, operations=operations.num_rows)
    if is_compaction_due(task_input.epoch.manifest):
        task_input = compact(rows.sparkSession, task_input, collector, context)
    return task_input, applied


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


def compact(
    spark: SparkSession, task_input: TaskInput, collector: OutputCollector, context: DriverContext
) -> TaskInput:
    """Write the queries of all partitions anew; return the input with their manifest."""
    Stages(task_input, collector).compact(spark)
    return _with_bases(task_input, collector, context)


def _with_bases(
    task_input: TaskInput, collector: OutputCollector, context: DriverContext
) -> TaskInput:
    outputs = collector.peek(task_input.epoch.batch, TaskStage.BASES, TaskStage.SETTLE)
    manifest = manifest_with_bases(context.open(task_input), outputs)
    return replace(task_input, epoch=replace(task_input.epoch, manifest=manifest))


def packed_frame(spark: SparkSession, rows: Sequence[PackedRows], executors: int) -> DataFrame:
    """Return packed rows of the driver, those of an executor together."""
    plain = [(int(kind), target, content) for kind, target, content in rows]
    frame = spark.createDataFrame(plain, PACKED_DDL)
    return frame.repartitionById(executors, F.col("target"))


def match_points(
    rows: DataFrame, stages: Stages, layout: StreamLayout, sinks: Sinks, timer: StageTimer
) -> None:
    """Match points in the tasks that read them; see that all of it is done."""
    wanted = OutputKind.RESULTS in stages.input.outputs
    matched = stages.match(rows, layout.output_fields(wanted))
    if layout.events is not None:
        deliver_all(matched, stages, layout, sinks, timer, "match")
        return
    if stages.input.result_files is not None:
        write_nowhere(matched)
    elif sinks.results:
        sinks.results(layout.finished_results(matched), stages.input.epoch.batch)
        if not reads_everything(sinks.results):
            tasks = matched._jdf.queryExecution().toRdd().getNumPartitions()
            stages.complete(matched, TaskStage.MATCH, tasks)
    else:
        write_nowhere(matched)
    timer.mark("match")


def execute_points(
    points: DataFrame, stages: Stages, layout: StreamLayout, sinks: Sinks, timer: StageTimer
) -> None:
    """Match the points; see that all of it is done, whatever the sinks read."""
    wanted = OutputKind.RESULTS in stages.input.outputs
    executed = stages.execute(points, layout.output_fields(wanted))
    if layout.stateful is None and layout.events is None:
        if stages.input.result_files is not None:
            write_nowhere(executed)
        elif sinks.results:
            sinks.results(layout.finished_results(executed), stages.input.epoch.batch)
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
            if sinks.events:
                sinks.events(layout.finished_events(told), batch)
            stages.complete(told, TaskStage.EVENTS, event_tasks(executors))
            timer.mark(f"{first}events")
        if results:
            results(layout.finished_results(matched), batch)
            timer.mark("results")
    finally:
        if several:
            matched.unpersist()


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


# -- what the driver makes of the outputs ------------------------------------------------------


def manifest_after(
    task_input: TaskInput, outputs: Sequence[TaskOutput], max_event_time: int
) -> Manifest:
    """Return the manifest after a batch."""
    manifest, window = task_input.epoch.manifest, task_input.window
    states = dict(manifest.states)
    for output in outputs:
        if output.stage == TaskStage.STATE:
            states.update(output.written.states)
        manifest = manifest.with_objects(output.written.objects)
    if window is None:
        return manifest.with_state_and_blocks(states, {})
    written = [block for output in outputs for block in output.written.blocks]
    return manifest.with_state_and_blocks(
        states, blocks_after(manifest.blocks, written, window, max_event_time)
    )


def matching_outputs(outputs: Sequence[TaskOutput]) -> list[TaskOutput]:
    """Return the outputs of the tasks that matched points."""
    return [o for o in outputs if o.stage in (TaskStage.MATCH, TaskStage.EXECUTE)]


def expected_seconds(prices: Prices, work: TaskWork) -> float:
    """Return what a task should take by the learnt prices."""
    return prices.of_task(work.points, work.checks, work.matches, work.pieces)


NO_WORK = TaskWork(points=0, checks=0, matches=0, pieces=0, seconds=0.0)
"""Of an executor that had no task."""


def _shares_of_owners(
    plan: Plan, by_partition: Mapping[int, int], seconds: float
) -> tuple[list[float], list[int]]:
    """Return the time and the points of each executor's partitions, whoever matched them."""
    points = [0] * plan.executors
    for partition in plan.partitions:
        share, rest = divmod(by_partition.get(partition.id, 0), len(partition.owners))
        for i, owner in enumerate(partition.owners):
            points[owner] += share + (i < rest)
    total = sum(points)
    return [seconds * n / total if total else 0.0 for n in points], points


def progress_of(
    task_input: TaskInput,
    outputs: Sequence[TaskOutput],
    stages: Mapping[str, float],
    after: Manifest,
    work: Sequence[TaskWork],
    prices: Prices,
) -> Progress:
    """Add up the outputs of a batch, and what it left.

    ``work`` is what the tasks that matched points did, in the order of their outputs.
    """
    epoch = task_input.epoch
    rejected: Counter[tuple[str, str]] = Counter()
    by_partition: Counter[int] = Counter()
    for output in outputs:
        rejected.update(output.rejected)
        by_partition.update(output.points_by_partition)
    matched = matching_outputs(outputs)
    done = {o.task: (o, w) for o, w in zip(matched, work, strict=True)}
    if any(o.stage == TaskStage.MATCH for o in matched):
        tasks = [done[number] for number in sorted(done)]
        busy, points = _shares_of_owners(epoch.plan, by_partition, sum(w.seconds for w in work))
    else:
        idle = TaskOutput(batch=epoch.batch, stage=TaskStage.EXECUTE, task=-1), NO_WORK
        tasks = [done.get(m, idle) for m in range(epoch.plan.executors)]
        busy, points = [w.seconds for _, w in tasks], [o.points for o, _ in tasks]
    loans: Counter[tuple[int, int, int]] = Counter()
    for loan in (loan for output in outputs for loan in output.loans):
        loans[loan[:3]] += loan.points
    blocks = [block for some in after.blocks.values() for block in some]
    return Progress(
        **sum((output.counts for output in outputs), Counts()).counts(),
        batch=epoch.batch,
        seconds=sum(stages.values()),
        plan_version=epoch.plan.version,
        busy_s=tuple(busy),
        task_s=tuple(w.seconds for _, w in tasks),
        work_s=tuple(expected_seconds(prices, w) if w is not NO_WORK else 0.0 for _, w in tasks),
        points_by_executor=tuple(points),
        loans=tuple(Loan(*key, points) for key, points in loans.most_common()),
        points_by_partition=dict(by_partition),
        quarantined=dict(rejected),
        stages=dict(stages),
        window_points=sum(block.points for block in blocks),
        window_bytes=window_bytes(after),
        state_bytes=state_bytes(after),
        objects=sum(ref.rows for ref in after.objects.values()),
    )
