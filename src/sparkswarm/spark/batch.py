"""A batch, from its first row to its commit: the data's way and the control's way on one page.

    points and operations -> route -> execute -> sink
    reports -> Coordinator -> the plan of the next batch

A batch is an epoch. Its plan, its queries and its time are durable before it runs, so it can
run again after any failure and do the same.
"""

from __future__ import annotations

import pickle
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from sparkswarm.config import SwarmConfig
from sparkswarm.errors import StoreError
from sparkswarm.spark.briefing import Briefing, ExecutorReport, Reports
from sparkswarm.spark.execute import execute
from sparkswarm.spark.installed import Installed
from sparkswarm.spark.operations import apply_operations
from sparkswarm.spark.parcels import OPERATION, POINTS
from sparkswarm.spark.planner import Planner
from sparkswarm.spark.quarantine import folder_of
from sparkswarm.spark.route import route
from sparkswarm.spark.session import settings_for_a_while
from sparkswarm.spark.status import Progress
from sparkswarm.store.epochs import BEFORE_ALL, Commit, Epoch, Epochs
from sparkswarm.store.files import Files

NOT_ADAPTIVE = {"spark.sql.adaptive.enabled": "false"}


@dataclass(frozen=True)
class Form:
    """What rows look like, from the source to the sink.

    Attributes
    ----------
    names
        What the user calls the columns of the points.
    schema
        Of the results.
    keep
        Columns of the points that come back.
    has_operations, has_time
        Whether operations are among the rows, and whether points have times.
    finish
        Gives results their final form.
    application
        What decides beyond rectangles; None where nothing does.
    """

    names: dict[str, str]
    schema: StructType
    keep: tuple[str, ...]
    has_operations: bool
    has_time: bool
    finish: Callable[[DataFrame], DataFrame]
    application: Installed | None = None


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

    def run(
        self, batch: DataFrame, number: int, sink: Callable[[DataFrame, int], None] | None
    ) -> Progress:
        """Run a batch to its end, its results in the sink; without one it has operations alone."""
        began = time.monotonic()
        epoch, commit = self._epoch(number)
        briefing = self._briefing(epoch)
        self._files.delete(self._files.names(folder_of(number)))

        has_operations = self._form.has_operations or sink is None
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
                    briefing = self._apply_operations(routed, briefing)
            if sink is not None:
                points = routed.where(F.col("kind") == POINTS) if has_operations else routed
                results = execute(
                    points, pickle.dumps(briefing), self._reports.accumulator,
                    self._form.schema, self._form.keep,
                )  # fmt: skip
                sink(self._form.finish(results), number)
        finally:
            if has_operations:
                routed.unpersist()

        reports = self._reports.of(number)
        executed = [r for r in reports if isinstance(r, ExecutorReport)]
        clock = max([commit.clock, *(r.clock for r in executed)])
        self._last = Commit(number, epoch.plan, briefing.epoch.manifest, clock)
        self._epochs.commit(self._last)
        self._planner.digest(briefing.control, executed)
        return Progress.of(epoch, reports, time.monotonic() - began)

    def _epoch(self, number: int) -> tuple[Epoch, Commit]:
        """Return what fixes the batch, durable, and what came before it."""
        commit = self._last
        if commit is None or commit.batch != number - 1:
            commit = self._epochs.commit_of(number - 1) if number > BEFORE_ALL else None
        epoch = self._epochs.epoch_of(number)
        if commit is None and number > BEFORE_ALL:
            last = self._epochs.last_commit()
            raise StoreError(
                f"Spark runs batch {number}, but what {self._files.root} knows of the batch before "
                f"is gone; the last batch known is {last.batch if last else 'none'}. The "
                "checkpoint is damaged, or older than keep_batches "
                f"({self._config.keep_batches}) allows"
            )
        if epoch is not None and commit is not None:
            self._planner.resume(epoch.plan)
            return epoch, commit
        if commit is None:
            plan, manifest = self._planner.first()
            commit = Commit(BEFORE_ALL, plan, manifest, 0)
        present = commit.clock if self._form.has_time else time.time_ns() // 1000
        epoch = Epoch(number, present, *self._planner.next(commit))
        self._epochs.begin(epoch)
        return epoch, commit

    def _briefing(self, epoch: Epoch) -> Briefing:
        late = round(self._config.late_seconds * 1e6)
        return Briefing(
            self._files, uuid.uuid4().hex[:8], epoch, epoch.time - late, self._config,
            self._planner.begin(), application=self._form.application,
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
