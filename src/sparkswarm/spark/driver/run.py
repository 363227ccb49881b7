"""A run: its batches one after another, and what can be asked of it meanwhile."""

from __future__ import annotations

import logging
import threading

from pyspark.sql import DataFrame, SparkSession

from sparkswarm.config import SwarmConfig
from sparkswarm.errors import InputError, SparkswarmError
from sparkswarm.observe.describe import describe
from sparkswarm.observe.progress import Observer, Progress, Totals
from sparkswarm.policies.policy import History
from sparkswarm.protocol.plan import Plan
from sparkswarm.spark.columns import QueryColumns, one_stream, select_operations
from sparkswarm.spark.driver.batch import Batches, Sinks
from sparkswarm.spark.driver.layout import Form
from sparkswarm.spark.driver.planner import Planner
from sparkswarm.spark.sinks import Sink
from sparkswarm.spark.task_input import Reports, batch_prefix
from sparkswarm.store.epochs import INITIAL, Commit, Epochs
from sparkswarm.store.files import Files, Folder, local_path
from sparkswarm.store.quarantine import SPARK_SCHEMA, folder_of

logger = logging.getLogger(__name__)

CLEAN_EVERY = 5
"""Old files are deleted after so many batches."""


class StoppedError(SparkswarmError, RuntimeError):
    """The run is being stopped; no other batch begins."""


class Run:
    """One run: its batches one after another, and what can be asked of it meanwhile."""

    def __init__(
        self, spark: SparkSession, config: SwarmConfig, files: Files, form: Form,
        history: History | None,
    ) -> None:  # fmt: skip
        self.spark, self.config, self.form = spark, config, form
        application = form.application.application if form.application else None
        self._details = dict(application.query_columns) if application else {}
        self.files = files
        self.epochs = epochs = Epochs(files, config.replayable_batches)
        bounds, grid = list(map(float, self.config.bounds)), list(self.config.grid)
        # The ledger keeps its buckets for the length of the run, whatever becomes of executors.
        buckets = epochs.run_fact("buckets") or self.config.executors
        facts = {"bounds": bounds, "grid": grid, "buckets": buckets}
        epochs.check_run({**facts, "query_columns": self._details, "state": _state(form)})
        self.planner = Planner(self.config, buckets, history)
        self.reports = Reports(self.spark.sparkContext)
        self.batches = Batches(files, epochs, self.planner, self.reports, self.config, form)
        self.totals = Totals()
        self.observers: list[Observer] = []
        self.plan: Plan | None = None
        self.between = threading.Lock()
        self.stopping = False

    def begin(
        self, preload: DataFrame | None, columns: QueryColumns, quarantine: Sink | None
    ) -> None:
        """Make the run's first commit if there is none, with the queries to preload."""
        self.epochs.collect_garbage()
        self.files.delete(self.files.list(Folder.SOFT))
        if self.epochs.last_commit() is None:
            if preload is None:
                plan, manifest = self.planner.first()
                self.epochs.commit(Commit(batch=INITIAL, plan=plan, manifest=manifest))
            elif preload.isStreaming:
                raise InputError("preload is a stream; give it as queries, or read it statically")
            else:
                operations = select_operations(preload, columns, True, self._details)
                self.batch(one_stream(None, operations), INITIAL, None, quarantine)
        last = self.epochs.last_commit()
        assert last is not None
        self.plan = last.plan

    def batch(
        self, batch: DataFrame, number: int, sinks: Sinks | None, quarantine: Sink | None
    ) -> None:
        """Run one batch; without sinks it is one of operations alone."""
        with self.between:
            if self.stopping:
                # To return would let Spark count a batch that never ran.
                raise StoppedError(f"stopped before batch {number}, with which the run will go on")
            self.progress(self.batches.run(batch, number, sinks), quarantine)

    def progress(self, progress: Progress, quarantine: Sink | None) -> None:
        """Take note of a batch that is done."""
        number = progress.batch
        if progress.quarantined and quarantine is not None:
            path = for_spark(f"{self.files.root}/{folder_of(number)}")
            quarantine(self.spark.read.schema(SPARK_SCHEMA).parquet(path), number)
        self.totals.add(progress)
        self.plan = self.planner.plan
        self._tell(progress)
        if number % CLEAN_EVERY == 0:
            self.epochs.collect_garbage()
            # The next batch needs what this one left.
            this = batch_prefix(Folder.SOFT, number)
            self.files.delete(n for n in self.files.list(Folder.SOFT) if n < this)
        logger.info(
            "batch %d: %d points, %d results in %.3f s, balance %.2f",
            number, progress.points, progress.matches, progress.seconds, progress.balance,
        )  # fmt: skip

    def _tell(self, progress: Progress) -> None:
        decisions = self.planner.news()
        for decision in decisions:
            logger.info("%s", describe(decision))
        for observer in self.observers:
            try:
                assert self.plan is not None
                observer(progress, self.plan, decisions)
            except Exception:
                # Who only watches must not stop the stream.
                logger.exception("an observer failed at batch %d", progress.batch)


def _state(form: Form) -> str | None:
    """Return what must not change as long as state is kept, because the state depends on it."""
    return str(form.stateful.summary_schema) if form.stateful else None


def for_spark(folder: str) -> str:
    """Return a folder as Spark takes it: a local path is local whatever Spark's filesystem is."""
    path = local_path(folder)
    # Not as_uri(): Spark would take its %20 for a name.
    return folder if path is None else f"file://{path}"
