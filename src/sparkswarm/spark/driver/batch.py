"""A batch, from its first row to its commit: the data's way and the control's way on one page.

    points and operations -> route -> execute -> sink
                                      execute -> summaries -> their sink
    snapshot queries      -> route -> answers -> their sink
    reports -> Coordinator -> the plan of the next batch

A batch is an epoch. Its plan, its queries and its time are durable before it runs, so it can
run again after any failure and do the same.
"""

from __future__ import annotations

import pickle
import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import from_arrow_schema

from sparkswarm.config import SwarmConfig
from sparkswarm.errors import StoreError
from sparkswarm.observe.progress import Counts, Progress
from sparkswarm.spark.driver.layout import Form
from sparkswarm.spark.driver.planner import Planner
from sparkswarm.spark.session import settings_for_a_while
from sparkswarm.spark.task_input import (
    Briefing,
    ExecutorReport,
    LedgerReport,
    Report,
    Reports,
    RouteReport,
    StateReport,
)
from sparkswarm.spark.tasks.answers import AnswerForm, answers, window_begins
from sparkswarm.spark.tasks.blocks import kept_after
from sparkswarm.spark.tasks.execute import execute
from sparkswarm.spark.tasks.operations import apply_operations
from sparkswarm.spark.tasks.packing import OPERATION, POINTS
from sparkswarm.spark.tasks.route import route
from sparkswarm.spark.tasks.state import summaries
from sparkswarm.spark.wanted import Wanted
from sparkswarm.store.epochs import INITIAL, Commit, Epoch, Epochs
from sparkswarm.store.files import Files
from sparkswarm.store.manifest import Manifest
from sparkswarm.store.quarantine import folder_of

NOT_ADAPTIVE = {"spark.sql.adaptive.enabled": "false"}


Writer = Callable[[DataFrame, int], None]
"""Takes what a batch gives: (rows, batch id)."""


@dataclass(frozen=True)
class Sinks:
    """Where a batch's rows go.

    Attributes
    ----------
    results
        Points that match; None where nobody wants them.
    summaries
        What a stateful application tells.
    answers
        Answers to snapshot queries.
    """

    results: Writer | None = None
    summaries: Writer | None = None
    answers: Writer | None = None


class Stopwatch:
    """Measures the stages of a batch, one after another."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = time.monotonic()

    def lap(self, stage: str) -> None:
        """Say that a stage has ended."""
        now = time.monotonic()
        self.laps[stage] = now - self._last
        self._last = now


class Batches:
    """Runs the batches of one checkpoint."""

    def __init__(
        self, files: Files, epochs: Epochs, planner: Planner, reports: Reports,
        config: SwarmConfig, form: Form,
    ) -> None:  # fmt: skip
        self._files = files
        self._epochs = epochs
        self._planner = planner
        self._reports = reports
        self._config = config
        self._form = form
        self._last: Commit | None = None

    def run(self, batch: DataFrame, number: int, sinks: Sinks | None) -> Progress:
        """Run a batch to its end, its rows in the sinks; without them it has operations alone."""
        clock = Stopwatch()
        epoch, commit = self._epoch(number)
        briefing = self._briefing(epoch, commit, sinks)
        self._files.delete(self._files.list(folder_of(number)))
        clock.lap("plan")

        has_operations = self._form.has_operations or sinks is None
        executors = epoch.plan.executors
        targets = max(executors, len(epoch.manifest.ledger)) if has_operations else executors
        routed = route(
            batch, pickle.dumps(briefing), targets, self._reports.accumulator, self._form.names
        )
        if has_operations:
            # Read once, used twice.
            routed = routed.persist()
        try:
            if has_operations:
                # Nothing here could be planned better once its size is known.
                with settings_for_a_while(batch.sparkSession, NOT_ADAPTIVE):
                    before, briefing = briefing, self._apply_operations(routed, briefing)
                clock.lap("operations")
                if sinks is not None:
                    self._answer(routed, before, sinks)
                    clock.lap("answers")
            if sinks is not None:
                points = routed.where(F.col("kind") == POINTS) if has_operations else routed
                self._execute(points, briefing, sinks, clock)
        finally:
            if has_operations:
                routed.unpersist()

        reports = self._reports.of(number)
        executed = [r for r in reports if isinstance(r, ExecutorReport)]
        latest = max([commit.max_event_time, *(r.clock for r in executed)])
        manifest = self._kept(briefing, reports, latest)
        self._last = Commit(
            batch=number,
            plan=epoch.plan,
            manifest=manifest,
            max_event_time=latest,
            watermark=epoch.watermark,
        )
        self._epochs.commit(self._last)
        self._planner.digest(briefing.control, executed)
        clock.lap("commit")
        return progress_of(epoch, reports, clock.laps, manifest)

    def _answer(self, routed: DataFrame, briefing: Briefing, sinks: Sinks) -> None:
        """Answer the snapshot queries of the batch, if there are any."""
        form, number = self._form.answers, briefing.epoch.batch
        routes = [r for r in self._reports.so_far(number) if isinstance(r, RouteReport)]
        if form is None or sinks.answers is None or not any(r.asks for r in routes):
            return
        sinks.answers(self.answers(routed, briefing, form), number)

    def answers(self, asks: DataFrame, briefing: Briefing, form: AnswerForm) -> DataFrame:
        """Return the answers to snapshot queries, given as parcels."""
        assert briefing.window is not None
        packed, manifest = pickle.dumps(briefing), briefing.epoch.manifest
        spark = asks.sparkSession
        since = window_begins(spark, manifest, packed, briefing.window, briefing.now)
        return answers(asks, packed, since, form)

    def _execute(
        self, points: DataFrame, briefing: Briefing, sinks: Sinks, clock: Stopwatch
    ) -> None:
        """Match the points; see that whatever the sinks read, all of it is done."""
        form, epoch = self._form, briefing.epoch
        stateful, accumulator = form.stateful, self._reports.accumulator
        schema = form.schema if sinks.results or not stateful else None
        wanted = Wanted(schema, form.keep, stateful is not None, form.names)
        packed = pickle.dumps(briefing)
        executed = execute(points, packed, accumulator, wanted)
        if stateful is None:
            if sinks.results:
                sinks.results(form.finish(executed), epoch.batch)
            if form.window is not None:
                self._complete(executed, epoch, ExecutorReport)
            clock.lap("execute")
            return
        if sinks.results:
            # Matched once, used twice.
            executed = executed.persist()
        try:
            told = summaries(
                wanted.parcels(executed), packed, epoch.plan.executors, accumulator,
                from_arrow_schema(stateful.summary_schema),
            )  # fmt: skip
            if sinks.summaries:
                sinks.summaries(told, epoch.batch)
            self._complete(told, epoch, StateReport)
            clock.lap("execute and summaries")
            if sinks.results:
                sinks.results(form.finish(wanted.results(executed)), epoch.batch)
                clock.lap("results")
        finally:
            if sinks.results:
                executed.unpersist()

    def _complete(
        self, frame: DataFrame, epoch: Epoch, kind: type[ExecutorReport | StateReport]
    ) -> None:
        """Run what a sink left out: a sink may read as little as it likes."""
        done = {r.executor for r in self._reports.so_far(epoch.batch) if isinstance(r, kind)}
        if len(done) < epoch.plan.executors:
            frame.write.format("noop").mode("overwrite").save()

    def _kept(self, briefing: Briefing, reports: list[Report], now: int) -> Manifest:
        """Return the manifest after the batch."""
        manifest, window = briefing.epoch.manifest, self._form.window
        states = dict(manifest.states)
        for report in reports:
            if isinstance(report, StateReport):
                states.update(report.states)
        if window is None:
            return manifest.with_state_and_blocks(states, {})
        executed = [r for r in reports if isinstance(r, ExecutorReport)]
        return manifest.with_state_and_blocks(
            states, kept_after(manifest.blocks, executed, window, now)
        )

    def _epoch(self, number: int) -> tuple[Epoch, Commit]:
        """Return what fixes the batch, durable, and what came before it."""
        commit = self._last
        if commit is None or commit.batch != number - 1:
            commit = self._epochs.commit_of(number - 1) if number > INITIAL else None
        epoch = self._epochs.epoch_of(number)
        if commit is None and number > INITIAL:
            last = self._epochs.last_commit()
            raise StoreError(
                f"Spark runs batch {number}, but what {self._files.root} knows of the batch before "
                f"is gone; the last batch known is {last.batch if last else 'none'}. The "
                "checkpoint is damaged, or older than replayable_batches "
                f"({self._config.replayable_batches}) allows"
            )
        if epoch is not None and commit is not None:
            self._planner.resume(epoch.plan)
            return epoch, commit
        if commit is None:
            plan, manifest = self._planner.first()
            commit = Commit(batch=INITIAL, plan=plan, manifest=manifest)
        present = commit.max_event_time if self._form.has_time else time.time_ns() // 1000
        plan, manifest = self._planner.next(commit)
        epoch = Epoch(
            batch=number,
            clock=present,
            plan=plan,
            manifest=manifest,
            watermark=self._watermark(commit),
            previous_watermark=commit.watermark,
        )
        self._epochs.begin(epoch)
        return epoch, commit

    def _watermark(self, commit: Commit) -> int:
        """Return the watermark of the batch after a commit."""
        stateful = self._form.stateful
        watermark = commit.watermark
        if stateful and commit.max_event_time:
            watermark = max(watermark, commit.max_event_time - stateful.watermark_delay)
        return watermark

    def _briefing(self, epoch: Epoch, commit: Commit, sinks: Sinks | None) -> Briefing:
        late = round(self._config.expired_query_seconds * 1e6)
        return Briefing(
            self._files, uuid.uuid4().hex[:8], epoch, epoch.clock - late, self._config,
            self._planner.begin(), application=self._form.application,
            window=self._form.window, now=commit.max_event_time,
            answers=sinks is not None and sinks.answers is not None,
        )  # fmt: skip

    def _apply_operations(self, routed: DataFrame, briefing: Briefing) -> Briefing:
        """Store the batch's operations; return the briefing with which points meet them."""
        epoch = briefing.epoch
        operations = routed.where(F.col("kind") == OPERATION)
        manifest, news = apply_operations(
            operations, pickle.dumps(briefing), epoch.manifest,
            epoch.plan.executors, self._reports.accumulator,
        )  # fmt: skip
        return replace(briefing, epoch=replace(epoch, manifest=manifest), news=news)


def progress_of(
    epoch: Epoch, reports: Sequence[Report], stages: Mapping[str, float], after: Manifest
) -> Progress:
    """Add up the reports of a batch, and what it left."""
    executed = {r.executor: r for r in reports if isinstance(r, ExecutorReport)}
    routed = [r for r in reports if isinstance(r, RouteReport)]
    refused = sum(sum(r.faults.values()) for r in reports if isinstance(r, LedgerReport))
    counts = Counts(
        points=sum(r.points for r in routed),
        matches=sum(r.matches for r in executed.values()),
        checks=sum(r.checks for r in executed.values()),
        operations=sum(r.operations for r in routed) - refused,
        snapshot_queries=sum(r.asks for r in routed),
        late=sum(r.late for r in reports if isinstance(r, StateReport)),
    )
    faults: Counter[tuple[str, str]] = Counter()
    for report in reports:
        if isinstance(report, RouteReport | LedgerReport):
            faults.update(report.faults)
    loads: Counter[int] = Counter()
    for done in executed.values():
        loads.update(done.loads)
    pieces = [kept for some in after.blocks.values() for kept in some]
    of_each = [executed.get(m) for m in range(epoch.plan.executors)]
    return Progress(
        **counts.counts(),
        batch=epoch.batch,
        seconds=sum(stages.values()),
        plan_version=epoch.plan.version,
        busy_s=tuple(r.busy if r else 0.0 for r in of_each),
        points_by_executor=tuple(r.points if r else 0 for r in of_each),
        points_by_partition=dict(loads),
        quarantined=dict(faults),
        stages=dict(stages),
        window_points=sum(piece.points for piece in pieces),
        window_bytes=sum(piece.meta.size * piece.points // piece.meta.rows for piece in pieces),
        state_bytes=sum(f.size for f in {s.file for some in after.states.values() for s in some}),
    )
