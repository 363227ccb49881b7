"""A batch, from its rows to its sinks: the way of the data on one page.

    points                -> match -> sink                where all executors share one host
    points and operations -> route -> execute -> sink
                                      execute -> state -> summaries' sink
    snapshot queries      -> route -> answer  -> answers' sink

Runs on the driver, once a batch; after a failure a batch runs again, with the same input, and gives
the same. What each stage does to its rows is in ``spark/tasks``.
"""

from __future__ import annotations

import pickle
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
from pyspark import Accumulator, AccumulatorParam, SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from sparkswarm.errors import ConfigError
from sparkswarm.observe.progress import Counts, Loan, Progress
from sparkswarm.policies import TaskWork
from sparkswarm.protocol.cost import Prices
from sparkswarm.protocol.plan import Plan
from sparkswarm.spark.columns import OPERATIONS
from sparkswarm.spark.driver.layout import StreamLayout, packed_state
from sparkswarm.spark.session import temporary_settings
from sparkswarm.spark.sinks import Sinks, reads_everything
from sparkswarm.spark.task_input import TaskInput
from sparkswarm.spark.task_output import OutputKind, TaskOutput, TaskStage
from sparkswarm.spark.tasks.agents import agents_task
from sparkswarm.spark.tasks.answers import answer_task, window_edge_task
from sparkswarm.spark.tasks.blocks import blocks_after
from sparkswarm.spark.tasks.context import TaskFunction, arrow_task
from sparkswarm.spark.tasks.direct import match_task
from sparkswarm.spark.tasks.execute import execute_task
from sparkswarm.spark.tasks.operations import settle_task, write_task
from sparkswarm.spark.tasks.packing import PACKED_DDL, RowKind
from sparkswarm.spark.tasks.route import route_task
from sparkswarm.spark.tasks.state import state_task
from sparkswarm.store.manifest import Manifest, SegmentFiles, SegmentRef, StateRef
from sparkswarm.window.windows import TimeWeights, exact_start

NOT_ADAPTIVE = {"spark.sql.adaptive.enabled": "false"}
"""For jobs that Spark could not plan better once it knows their size."""


class OutputCollector:
    """Brings the outputs of tasks to the driver; of outputs with the same key one counts."""

    def __init__(self, context: SparkContext) -> None:
        self.accumulator: Accumulator[list[TaskOutput]] = context.accumulator([], _Appended())

    def peek(self, batch: int, *stages: TaskStage) -> list[TaskOutput]:
        """Return the outputs of a batch so far, of some stages or of all."""
        found = {o.key: o for o in self.accumulator.value if o.batch == batch}
        return [o for o in found.values() if not stages or o.stage in stages]

    def take(self, batch: int) -> list[TaskOutput]:
        """Return the outputs of a batch and forget all that came so far."""
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
        self._pickled = pickle.dumps(task_input)
        self._collector = collector

    def map(self, rows: DataFrame, function: TaskFunction, schema: StructType | str) -> DataFrame:
        """Run a task function on the rows of a frame."""
        # Columns are neither left out nor renamed on the way: Spark would copy every package.
        task = arrow_task(function, self._pickled, self._collector.accumulator)
        return rows.mapInArrow(task, schema)

    def route(self, rows: DataFrame, targets: int) -> DataFrame:
        """Return the batch packed, what has the same target together."""
        return self.map(rows, route_task, PACKED_DDL).repartitionById(targets, F.col("target"))

    def apply(self, routed: DataFrame) -> None:
        """Store the batch's operations; the outputs name the files."""
        operations = routed.where(F.col("kind") == int(RowKind.OPERATIONS))
        changes = self.map(operations, settle_task, PACKED_DDL)
        changes = changes.repartitionById(self.input.epoch.plan.executors, F.col("target"))
        self.map(changes, write_task, "done BOOLEAN").collect()

    def answer(self, packed: DataFrame, schema: StructType) -> DataFrame:
        """Return the answers to packed snapshot queries."""
        snapshots = packed.where(F.col("kind") == int(RowKind.SNAPSHOT))
        return self.map(snapshots, answer_task, schema)

    def execute(self, routed: DataFrame, schema: StructType) -> DataFrame:
        """Return what the executors find: results, and packed additions to state."""
        return self.map(routed, execute_task, schema)

    def state(self, executed: DataFrame, schema: StructType) -> DataFrame:
        """Return the summaries of a stateful application; read whole, state is stored."""
        packed = packed_state(executed)
        executors = self.input.epoch.plan.executors
        return self.map(packed.repartitionById(executors, F.col("target")), state_task, schema)

    def match(self, points: DataFrame, schema: StructType) -> DataFrame:
        """Return the results of points, matched by the tasks that read them."""
        return self.map(points, match_task, schema)

    def run_agents(self, spark: SparkSession) -> None:
        """Run the agents of all executors, which have no tasks of their own in this batch."""
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


def write_nowhere(frame: DataFrame) -> None:
    """Compute a frame for what its tasks do."""
    frame.write.format("noop").mode("overwrite").save()


def run_batch(
    rows: DataFrame,
    task_input: TaskInput,
    layout: StreamLayout,
    sinks: Sinks | None,
    collector: OutputCollector,
    timer: StageTimer,
    *,
    direct: bool,
) -> TaskInput:
    """Run a batch, its results in the sinks; without sinks it has operations alone.

    With ``direct``, the tasks that read points match them.

    Returns
    -------
    The input with which points were matched: its manifest includes the batch's operations.
    """
    spark, epoch = rows.sparkSession, task_input.epoch
    stages = Stages(task_input, collector)
    executors = epoch.plan.executors
    if sinks is not None and direct:
        applied = task_input
        if layout.has_operations:
            operations = rows.where(F.col(OPERATIONS).isNotNull())
            with temporary_settings(spark, NOT_ADAPTIVE):
                stages.apply(stages.route(operations, max(executors, len(epoch.manifest.ledger))))
            applied = with_operations(task_input, collector.peek(epoch.batch))
            timer.mark("operations")
        match_points(rows, stages.with_input(applied), layout, sinks, timer)
        return applied
    if not layout.has_operations and sinks is not None:
        execute_points(stages.route(rows, executors), stages, layout, sinks, timer)
        return task_input
    # Read once, used twice. A target is an executor, a bucket of the ledger, or both.
    routed = stages.route(rows, max(executors, len(epoch.manifest.ledger))).persist()
    try:
        with temporary_settings(spark, NOT_ADAPTIVE):
            stages.apply(routed)
        applied = with_operations(task_input, collector.peek(epoch.batch))
        timer.mark("operations")
        if sinks is not None:
            asked = sum(o.counts.snapshot_queries for o in collector.peek(epoch.batch))
            if sinks.answers and layout.answers and asked:
                sinks.answers(answer_frame(spark, routed, stages, layout.answers), epoch.batch)
            timer.mark("answers")
            points = routed.where(F.col("kind") == int(RowKind.POINTS))
            execute_points(points, stages.with_input(applied), layout, sinks, timer)
    finally:
        routed.unpersist()
    return applied


def match_points(
    rows: DataFrame, stages: Stages, layout: StreamLayout, sinks: Sinks, timer: StageTimer
) -> None:
    """Match points in the tasks that read them; see that all of it is done."""
    matched = stages.match(rows, layout.output_fields(sinks.results is not None))
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
    batch, stateful = stages.input.epoch.batch, layout.stateful
    executors = stages.input.epoch.plan.executors
    wanted = OutputKind.RESULTS in stages.input.outputs
    executed = stages.execute(points, layout.output_fields(wanted))
    if stateful is None:
        if stages.input.result_files is not None:
            write_nowhere(executed)
        elif sinks.results:
            sinks.results(layout.finished_results(executed), batch)
        if layout.window is not None:
            stages.complete(executed, TaskStage.EXECUTE, executors)
        timer.mark("execute")
        return
    if sinks.results:
        # Matched once, used twice.
        executed = executed.persist()
    try:
        summaries = stages.state(executed, from_arrow_schema(stateful.summary_schema))
        if sinks.summaries:
            sinks.summaries(summaries, batch)
        stages.complete(summaries, TaskStage.STATE, executors)
        timer.mark("execute and summaries")
        if sinks.results:
            sinks.results(layout.finished_results(executed), batch)
            timer.mark("results")
    finally:
        if sinks.results:
            executed.unpersist()


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


def with_operations(task_input: TaskInput, outputs: Sequence[TaskOutput]) -> TaskInput:
    """Return the input with a manifest that includes the batch's operations."""
    written = [output.written for output in outputs]
    ledger: dict[int, SegmentFiles] = {}
    segments: dict[int, SegmentRef] = {}
    states: dict[int, tuple[StateRef, ...]] = {}
    for one in written:
        ledger |= one.ledger
        segments |= one.segments
        states |= one.states
    if not ledger:
        return task_input
    manifest = task_input.epoch.manifest.with_segments(segments, ledger, states)
    return replace(
        task_input,
        epoch=replace(task_input.epoch, manifest=manifest),
        query_changes=(
            *task_input.query_changes,
            *(ref for one in written for ref in one.query_changes),
        ),
    )


def manifest_after(
    task_input: TaskInput, outputs: Sequence[TaskOutput], max_event_time: int
) -> Manifest:
    """Return the manifest after a batch."""
    manifest, window = task_input.epoch.manifest, task_input.window
    states = dict(manifest.states)
    for output in outputs:
        if output.stage == TaskStage.STATE:
            states.update(output.written.states)
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
        window_bytes=sum(block.meta.size * block.points // block.meta.rows for block in blocks),
        state_bytes=sum(
            file.size for file in {s.file for some in after.states.values() for s in some}
        ),
    )
