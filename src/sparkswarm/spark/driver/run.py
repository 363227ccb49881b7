"""The run loop: batches one after another, each with its own epoch.

Runs on the driver. ``RunLoop.on_batch`` is called by Spark once a batch, in one thread; a batch
comes again after a failure, with the epoch that was made durable before its first attempt. Users
ask for things in other threads: what they ask for takes effect between batches.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from sparkswarm.apps.events.objects import BUCKETS
from sparkswarm.config import SwarmConfig
from sparkswarm.errors import InputError, SparkswarmError, StoreError, TakenOverError
from sparkswarm.observe.describe import describe
from sparkswarm.observe.progress import HostUse, Observer, Progress, Totals
from sparkswarm.policies import (
    AgentReport,
    Controller,
    ForcedChange,
    History,
    TaskWork,
    make_policy,
    replanned,
)
from sparkswarm.protocol.learning import TRUST_OF_TASKS, PriceLearner
from sparkswarm.protocol.messages import Decision
from sparkswarm.protocol.plan import Plan
from sparkswarm.spark.columns import QueryColumns
from sparkswarm.spark.driver.batch import (
    DriverContext,
    OutputCollector,
    Stages,
    StageTimer,
    load_queries,
    run_batch,
    run_operations,
)
from sparkswarm.spark.driver.cleaning import clean_after, clean_at_start
from sparkswarm.spark.driver.history import history_of_preload
from sparkswarm.spark.driver.kept_columns import check_kept_columns
from sparkswarm.spark.driver.layout import StreamLayout
from sparkswarm.spark.driver.outputs import (
    host_uses,
    manifest_after,
    matching_outputs,
    progress_of,
)
from sparkswarm.spark.driver.placement import Anchors, HostPlacement
from sparkswarm.spark.driver.realtime import RealTimeTasks
from sparkswarm.spark.driver.rebalance import rebalance
from sparkswarm.spark.driver.selection import select_operations
from sparkswarm.spark.driver.task_times import FinishedTasks, StageTask
from sparkswarm.spark.driver.warming import Warmer
from sparkswarm.spark.failures import cause_of
from sparkswarm.spark.session import executor_hosts
from sparkswarm.spark.sinks import FileSink, NoopSink, Sink, Sinks
from sparkswarm.spark.task_input import ResultFiles, TaskInput
from sparkswarm.spark.task_output import OutputKind, TaskOutput
from sparkswarm.store.blocks import MAX_TIME, MIN_TIME
from sparkswarm.store.epochs import INITIAL, Commit, Epoch, Epochs
from sparkswarm.store.files import FileRef, Files, local_path
from sparkswarm.store.kept import check_kept_bytes
from sparkswarm.store.manifest import Manifest
from sparkswarm.store.quarantine import POINT, SPARK_SCHEMA, folder_of

logger = logging.getLogger(__name__)

ID_TYPE = "query_ids"
"""The fact about a run that says which type ids of queries have; None for whole numbers."""

PRICE_REPORTS = 200.0
"""Number of tasks after which the weight of one in the learnt prices has decayed."""

INTERRUPT_MS = 60_000
"""Longest time that Spark takes to stop the thread of a query, in milliseconds."""

REMEMBERED_DECISIONS = 10_000
"""Number of decisions kept in memory."""


class StoppedError(SparkswarmError, RuntimeError):
    """The run is being stopped; no other batch begins."""


class RunLoop:
    """The batches of one run.

    Attributes
    ----------
    batch_plan
        The plan of the batch in progress, or of the last one.
    decisions
        The last decisions, oldest first.
    totals
        Sums over the batches of this start.
    observers
        Called after every batch.
    failure
        Why a batch failed, in one line; empty while none has.
    count_unread
        Returns how far the sources are behind, where they know it.
    tasks
        The tasks that match points in Real-time Mode; None where batches do.
    batch_lock, stop_requested
        The lock is held while a batch runs; under it, a stop is requested.
    """

    def __init__(
        self,
        spark: SparkSession,
        config: SwarmConfig,
        files: Files,
        layout: StreamLayout,
        history: History | None,
        real_time: bool = False,
    ) -> None:
        self.spark, self.config, self.files, self.layout = spark, config, files, layout
        self.epochs = Epochs(files, config.replayable_batches)
        self.epochs.check_run(
            {
                "bounds": list(map(float, config.bounds)),
                "grid": list(config.grid),
                "query_columns": dict(layout.queries.details),
                # Stored state depends on it.
                "state": str(layout.stateful.summary_schema) if layout.stateful else None,
                "events": _event_facts(layout),
                # Its two streams read other sources than the one of micro-batches.
                "real_time": real_time or None,
                # So does a stream with ticks.
                "idle_seconds > 0": bool(config.idle_seconds) or None,
                ID_TYPE: layout.queries.id_type.simpleString()
                if layout.queries.has_names
                else None,
            }
        )
        self._history = history
        self._policy = make_policy(config.policy)
        self._controller: Controller | None = None
        self.batch_plan: Plan | None = None
        self._committed_plan: Plan | None = None
        self._last: Commit | None = None
        self._clock: int | None = None
        self._last_point: float | None = None
        self.collector = OutputCollector(spark.sparkContext)
        self._context = DriverContext()
        self.totals = Totals()
        self.decisions: deque[Decision] = deque(maxlen=REMEMBERED_DECISIONS)
        self._new_decisions: list[Decision] = []
        self.observers: list[Observer] = []
        self.failure = ""
        self.tasks: RealTimeTasks | None = None
        self.count_unread: Callable[[], int | None] = lambda: None
        self.batch_lock = threading.Lock()
        self.stop_requested = False
        self._requests = threading.Lock()
        self._executors = config.executors
        self._forced: list[ForcedChange] = []
        self._query_changes: list[FileRef] = []
        self._learner = PriceLearner(memory=PRICE_REPORTS, trust=TRUST_OF_TASKS)
        self._prices = self._learner.prices
        self._finished_tasks = FinishedTasks(spark)
        self._placement = HostPlacement(spark)
        self._warmer = Warmer(files)
        self._borrowed: tuple[tuple[int, int], ...] = ()

    @property
    def plan(self) -> Plan:
        """The plan of the last batch that was committed."""
        if self._committed_plan is None:
            commit = self.epochs.last_commit()
            if commit is None:
                raise StoreError(f"{self.files.root} has no commit; the run was not opened")
            self._committed_plan = commit.plan
        return self._committed_plan

    @property
    def round(self) -> int:
        """The round in progress; 0 for a policy without rounds."""
        return self._controller.round if self._controller else 0

    # -- requests, from any thread -----------------------------------------------------------

    def request_executors(self, executors: int) -> None:
        """Change the number of executors from the next batch on."""
        with self._requests:
            self._executors = executors

    def force_changes(self, change: ForcedChange) -> None:
        """Change the plan by hand from the next batch on."""
        with self._requests:
            self._forced.append(change)

    # -- batches -----------------------------------------------------------------------------

    def open(
        self, preload: DataFrame | None, columns: QueryColumns, quarantine: Sink | None
    ) -> None:
        """Take the checkpoint over; make its first commit if there is none, with the preload."""
        self.epochs.take_over()
        clean_at_start(self.epochs, self.files, self.config)
        last = self.epochs.last_commit()
        if last is not None:
            check_kept_columns(self.layout, last.manifest, self.files)
        elif preload is None:
            self.epochs.commit(self.initial_commit())
        elif preload.isStreaming:
            raise InputError("preload is a stream; give it as queries, or read it statically")
        else:
            operations = select_operations(preload, columns, True, self.layout.queries)
            several = len(executor_hosts(self.spark)) > 1
            if several and self._policy.rebalances and self._history is None:
                self._history = history_of_preload(operations, self.config.make_grid())
            self.on_batch(operations, INITIAL, None, quarantine)

    def on_batch(
        self, rows: DataFrame, number: int, sinks: Sinks | None, quarantine: Sink | None
    ) -> None:
        """Run one batch to its commit; without sinks the rows are queries of a bulk load."""
        with self.batch_lock:
            if not self.stop_requested:
                self._run_or_fail(rows, number, sinks, quarantine)
                return
        self._wait_for_interrupt()
        # To return would let Spark count a batch that never ran.
        raise StoppedError(f"stopped before batch {number}, with which the run will go on")

    def _run_or_fail(
        self, rows: DataFrame, number: int, sinks: Sinks | None, quarantine: Sink | None
    ) -> None:
        """Run one batch; note why where it fails."""
        try:
            self._run_batch(rows, number, sinks, quarantine)
        except Exception as error:
            self.failure = f"batch {number} failed: {cause_of(error)}"
            try:
                # Another driver deletes what has no commit: then that is the reason.
                self.epochs.writer.check()
            except TakenOverError as taken_over:
                self.failure = str(taken_over)
                raise
            raise

    def _wait_for_interrupt(self) -> None:
        """Wait until Spark stops this thread, so that the run ends as stopped, not as failed."""
        jvm: Any = self.spark._jvm
        jvm.java.lang.Thread.sleep(INTERRUPT_MS)

    def _run_batch(
        self, rows: DataFrame, number: int, sinks: Sinks | None, quarantine: Sink | None
    ) -> None:
        timer = StageTimer()
        self.epochs.writer.check()
        epoch, previous = self.next_epoch(number)
        anchors = self._placement.look_up(epoch.plan.executors)
        direct = self._matches_directly(sinks)
        task_input = self._task_input(epoch, previous, sinks, direct)
        if anchors is not None:
            task_input = replace(task_input, hosts=anchors.numbers, borrowed=self._borrowed)
        if self._controller is not None:
            self._controller.use_hosts(self._warmer.follow(epoch.plan, epoch.manifest, anchors))
        task_input = self._with_result_files(task_input, sinks)
        stages = Stages(task_input, self.collector, anchors)
        self.epochs.writer.delete(self.files.list(folder_of(number)))
        timer.mark("plan")
        if sinks is None:
            task_input = load_queries(rows, stages, self._context)
            timer.mark("operations")
        elif self.tasks is not None:
            task_input = run_operations(rows, stages, self._context, self.layout, timer)
            for output in self.tasks.take_reports(number):
                self.collector.add(output)
            timer.mark("reports")
        else:
            given = stages, self._context, self.layout, sinks, timer
            task_input = run_batch(rows, *given, direct=direct)
        outputs = self.collector.take(number)
        finished = self._finished(outputs)
        work = self._observe(outputs, finished)
        self._publish_results(task_input, outputs, sinks)
        self._context.wait_until_durable()
        manifest = self._commit(task_input, outputs, previous)
        if self.tasks is not None:
            self._point_tasks(changed=task_input.operations > 0)
        timer.mark("commit")
        if sinks is not None:
            self._rebalance(stages.with_input(task_input), timer)
            if self.tasks is None:
                self._warmer.end_batch(number, outputs)
                self._warm(epoch, manifest, anchors)
        hosts: list[HostUse] = []
        if anchors is not None:
            at = {number: task.host for number, task in finished.items()}
            hosts = host_uses(outputs, anchors.hosts, at, task_input.epoch.manifest)
        progress = progress_of(
            task_input, outputs, timer.seconds, manifest, work, self._prices, hosts
        )
        self._borrowed = tuple({(loan.partition, loan.borrower) for loan in progress.loans})
        progress = replace(progress, lag_s=self._lag(), unread_rows=self.count_unread())
        if self.tasks is not None:
            # Its points are those of the time since the batch before.
            progress = replace(progress, seconds=self.tasks.seconds())
        self._finish(progress, quarantine)

    def follow(self, tasks: RealTimeTasks) -> TaskInput:
        """Let tasks in Real-time Mode match points; return what they are given at their start."""
        commit = self.epochs.last_commit()
        if commit is None:
            raise StoreError(f"{self.files.root} has no commit; the run was not opened")
        self._resume(commit.plan)
        self._last, self.tasks = commit, tasks
        self._point_tasks(changed=False)
        # They find plan and manifest by the pointer.
        plan = replace(commit.plan, partitions=())
        epoch = Epoch(batch=commit.batch, clock=0, plan=plan, manifest=Manifest(0, {}))
        given = self._task_input(epoch, commit, Sinks(results=NoopSink()), direct=True)
        return replace(given, max_event_time=MIN_TIME)

    def _point_tasks(self, changed: bool) -> None:
        if self.tasks is not None and self._last is not None:
            weight = self._controller.match_weight if self._controller else 0.0
            self.tasks.point_to(self._last, changed, weight)

    def next_epoch(self, number: int) -> tuple[Epoch, Commit]:
        """Return what fixes a batch, durable, and the commit before it."""
        previous = self._last
        if previous is None or previous.batch != number - 1:
            previous = self.epochs.commit_of(number - 1) if number > INITIAL else None
        epoch = self.epochs.epoch_of(number)
        if previous is None and number > INITIAL:
            last = self.epochs.last_commit()
            raise StoreError(
                f"Spark runs batch {number}, but what {self.files.root} knows of the batch before "
                f"is gone; the last batch known is {last.batch if last else 'none'}. The "
                "checkpoint is damaged, or older than replayable_batches "
                f"({self.config.replayable_batches}) allows"
            )
        if epoch is not None and previous is not None:
            self._resume(epoch.plan)
            return epoch, previous
        if previous is None:
            previous = self.initial_commit()
        now = time.time_ns() // 1000
        plan, manifest = self._next_plan(previous)
        epoch = Epoch(
            batch=number,
            clock=previous.max_event_time if self.layout.has_time else self._present(now, number),
            plan=plan,
            manifest=manifest,
            watermark=self._watermark(previous),
            previous_watermark=previous.watermark,
            latest_time=_later(now, self.config.max_future_seconds),
        )
        self._clock = epoch.clock
        return self.epochs.begin(epoch), previous

    def _present(self, now: int, number: int) -> int:
        """Return the clock of a batch without event times: never before that of the last batch."""
        if self._clock is None:
            before = self.epochs.epoch_of(number - 1)
            self._clock = before.clock if before is not None else now
        return max(self._clock, now)

    def initial_commit(self) -> Commit:
        """Return what a run without queries begins with."""
        config = self.config
        plan = self._policy.first_plan(config.make_grid(), config.executors, self._history)
        manifest = Manifest.initial(plan.partitions)
        return Commit(batch=INITIAL, plan=plan, manifest=manifest)

    def _resume(self, plan: Plan) -> None:
        """Go on from a plan that is fixed already."""
        self.batch_plan = plan
        self._controller = self._policy.controller(plan, self.config)

    def _next_plan(self, previous: Commit) -> tuple[Plan, Manifest]:
        """Return the plan of the next batch, and the manifest that goes with it."""
        if self.batch_plan is None:
            self._resume(previous.plan)
        plan = self.batch_plan or previous.plan
        with self._requests:
            executors, forced, self._forced = self._executors, self._forced, []
        if self._controller:
            if executors != self._controller.plan.executors:
                self._decided(self._controller.resize(executors))
            for change in forced:
                self._controller.force(change)
            plan = self._controller.plan
        elif executors != plan.executors:
            plan = replanned(plan, executors, self._policy, self._history)
        self.batch_plan = plan
        manifest = previous.manifest
        if plan.partitions != previous.plan.partitions:
            manifest = manifest.for_plan(previous.plan.partitions, plan.partitions)
        return plan, manifest

    def _watermark(self, previous: Commit) -> int:
        """Return the watermark of the batch after a commit."""
        stateful, watermark = self.layout.stateful, previous.watermark
        if stateful and previous.max_event_time != MIN_TIME:
            watermark = max(watermark, previous.max_event_time - stateful.watermark_delay)
        return watermark

    def _matches_directly(self, sinks: Sinks | None) -> bool:
        """Return whether the tasks that read points match them, without a shuffle.

        All executors must share one host, and no window may need the points of a partition
        together. On several hosts the results are the same.
        """
        layout = self.layout
        if sinks is None or layout.window is not None:
            return False
        return self.config.shared_host and self._placement.one_host

    def _rebalance(self, stages: Stages, timer: StageTimer) -> None:
        """Let the policy learn from a batch that is durable."""
        if self._controller is not None:

            def run_agents(task_input: TaskInput) -> list[AgentReport]:
                stages.with_input(task_input).run_agents(self.spark)
                outputs = self.collector.take(task_input.epoch.batch)
                return [output.agent for output in outputs if output.agent is not None]

            task_input = stages.input
            decisions, agents_ran = rebalance(
                self._controller, task_input, run_agents, self._context.open
            )
            self._query_changes = [] if agents_ran else list(task_input.query_changes)
            self._decided(decisions)
            timer.mark("agents")

    def _warm(self, epoch: Epoch, manifest: Manifest, anchors: Anchors | None) -> None:
        """Let hosts fetch what the next plan brings them."""
        plan = self._controller.plan if self._controller else epoch.plan
        if anchors is not None and plan.partitions is not epoch.plan.partitions:
            # What the batch has written anew is on its hosts.
            self._warmer.follow(epoch.plan, manifest, anchors)
            after = manifest.for_plan(epoch.plan.partitions, plan.partitions)
            self._warmer.follow(plan, after, anchors)

    def _with_result_files(self, task_input: TaskInput, sinks: Sinks | None) -> TaskInput:
        """Let the tasks write the results where the sink allows it."""
        sink = sinks.results if sinks else None
        if not isinstance(sink, FileSink) or self.layout.stateful:
            return task_input
        if self.layout.queries.properties:
            # Spark makes columns of them.
            return task_input
        staged = sink.stage(task_input.epoch.batch, task_input.attempt)
        if staged is None:
            return task_input
        return replace(task_input, result_files=ResultFiles(folder=str(staged)))

    def _publish_results(
        self, task_input: TaskInput, outputs: Sequence[TaskOutput], sinks: Sinks | None
    ) -> None:
        """Make visible what the tasks wrote."""
        sink, to = sinks.results if sinks else None, task_input.result_files
        if to is not None and isinstance(sink, FileSink):
            files = [name for output in outputs for name in output.result_files]
            self.epochs.writer.check()
            sink.publish(Path(to.folder), task_input.epoch.batch, files, self.layout.file_schema)

    def _finished(self, outputs: Sequence[TaskOutput]) -> dict[int, StageTask]:
        """Return what Spark knows of tasks that matched points or fetched files."""
        told = [*matching_outputs(outputs), *(o for o in outputs if o.counts.fetched_bytes)]
        return self._finished_tasks.of_stages({o.spark_task[0] for o in told if o.spark_task})

    def _observe(
        self, outputs: Sequence[TaskOutput], finished: Mapping[int, StageTask]
    ) -> list[TaskWork]:
        """Tell the controller what the tasks of the batch did, and return it."""
        matched = matching_outputs(outputs)
        times = {number: task.millis / 1000 for number, task in finished.items()}
        work = [
            TaskWork(
                points=o.points,
                checks=o.counts.checks,
                matches=o.counts.matches,
                pieces=o.pieces,
                seconds=times.get(o.spark_task[1], o.busy_s) if o.spark_task else o.busy_s,
            )
            for o in matched
        ]
        for one in work:
            self._learner.observe(**asdict(one))
        self._prices = self._learner.prices
        if self._controller:
            collected = [o.collected for o in matched if o.collected]
            candidates = [o.candidates for o in outputs if o.candidates]
            found = [o.found for o in matched if o.found]
            self._controller.observe(work, self._prices, collected, candidates, found)
        return work

    def _task_input(
        self, epoch: Epoch, previous: Commit, sinks: Sinks | None, direct: bool
    ) -> TaskInput:
        layout, outputs = self.layout, set()
        if sinks is not None and (sinks.results or not layout.has_packed):
            outputs.add(OutputKind.RESULTS)
        if sinks is not None and sinks.answers:
            outputs.add(OutputKind.ANSWERS)
        if sinks is not None and sinks.positions:
            outputs.add(OutputKind.POSITIONS)
        if layout.stateful:
            outputs.add(OutputKind.STATE)
        has_fixes = layout.events is not None and layout.stateful is None
        in_files = direct and has_fixes and self.files.is_local
        schema = layout.output_schema(OutputKind.RESULTS in outputs)
        return TaskInput(
            files=self.files,
            config=self.config,
            epoch=epoch,
            attempt=uuid.uuid4().hex[:8],
            collect_statistics=self._controller is not None,
            query_changes=tuple(self._query_changes),
            lending=self._controller.lending_prices if self._controller and not direct else None,
            match_weight=self._controller.match_weight if self._controller else 0.0,
            application=layout.application,
            window=layout.window,
            events=layout.events,
            fix_files=in_files,
            id_type=layout.queries.arrow_id_type,
            outputs=frozenset(outputs),
            point_columns=layout.point_columns,
            point_files=layout.point_files,
            output_schema=replace(schema, fixes=schema.fixes and not in_files),
            answer_schema=layout.answer_schema,
            max_event_time=previous.max_event_time,
            purge_before=_earlier(epoch.clock, self.config.expired_query_seconds),
        )

    def _commit(
        self, task_input: TaskInput, outputs: Sequence[TaskOutput], previous: Commit
    ) -> Manifest:
        """Make the batch durable."""
        epoch = task_input.epoch
        latest = max([previous.max_event_time, *(output.max_event_time for output in outputs)])
        latest = self._after_idling(latest, outputs)
        manifest = manifest_after(task_input, outputs, latest)
        check_kept_bytes(manifest, self.config.max_kept_bytes, epoch.batch)
        self._last = self.epochs.commit(
            Commit(
                batch=epoch.batch,
                plan=epoch.plan,
                manifest=manifest,
                max_event_time=latest,
                watermark=epoch.watermark,
            )
        )
        return self._last.manifest

    def _after_idling(self, latest: int, outputs: Sequence[TaskOutput]) -> int:
        """Return the latest event time; after a time without points, it follows our clock.

        The commit that this is for makes it durable, so a batch that runs again has the same.
        """
        idle, now = self.config.idle_seconds, time.monotonic()
        came = any(o.counts.points or any(k == POINT for k, _ in o.rejected) for o in outputs)
        if came or self._last_point is None:
            self._last_point = now
        if not idle or latest == MIN_TIME or now - self._last_point < idle:
            return latest
        return max(latest, time.time_ns() // 1000 - round(idle * 1e6))

    def _decided(self, decisions: Sequence[Decision]) -> None:
        if logger.isEnabledFor(logging.INFO):
            for decision in decisions:
                logger.info("%s", describe(decision))
        self.decisions.extend(decisions)
        self._new_decisions.extend(decisions)

    def _lag(self) -> float:
        """Return the seconds from the latest event time to the present; 0 without event times."""
        latest = self._last.max_event_time if self._last else MIN_TIME
        if not self.layout.has_time or latest == MIN_TIME:
            return 0.0
        return max(0.0, time.time_ns() / 1e9 - latest / 1e6)

    def _finish(self, progress: Progress, quarantine: Sink | None) -> None:
        """Tell those who watch, and collect garbage now and then."""
        number = progress.batch
        if progress.quarantined and quarantine is not None:
            path = spark_path(f"{self.files.root}/{folder_of(number)}")
            quarantine(self.spark.read.schema(SPARK_SCHEMA).parquet(path), number)
        self.totals.add(progress)
        self._committed_plan = self.batch_plan
        self._notify_observers(progress)
        soft = {ref.name for ref in self._query_changes}
        soft |= self._controller.soft_files if self._controller else frozenset()
        clean_after(number, self.epochs, self.files, self.config, soft)
        logger.info(
            "batch %d: %d points, %d results in %.3f s, balance %.2f",
            *(number, progress.points, progress.matches, progress.seconds, progress.balance),
        )

    def _notify_observers(self, progress: Progress) -> None:
        decisions, self._new_decisions = self._new_decisions, []
        for observer in self.observers:
            try:
                observer(progress, self.plan, decisions)
            except Exception:
                # An observer must not stop the stream.
                logger.exception("an observer failed at batch %d", progress.batch)


def _later(when: int, seconds: float) -> int:
    """Return a time plus seconds, in microseconds, at most MAX_TIME."""
    return min(MAX_TIME, when + round(seconds * 1e6)) if seconds < 1e12 else MAX_TIME


def _earlier(when: int, seconds: float) -> int:
    """Return a time minus seconds, in microseconds, at least MIN_TIME."""
    return max(MIN_TIME, when - round(seconds * 1e6)) if seconds < 1e12 else MIN_TIME


def _event_facts(layout: StreamLayout) -> dict[str, Any] | None:
    """Return what stored objects depend on."""
    if layout.events is None:
        return None
    return {"objects": str(layout.events.object_type), "buckets": BUCKETS}


def spark_path(folder: str) -> str:
    """Return a folder as Spark takes it: a local path is local whatever Spark's filesystem is."""
    path = local_path(folder)
    # Not as_uri(): Spark would take its %20 for a name.
    return folder if path is None else f"file://{path}"
