"""The engine: SWARM as a user meets it.

Owns the public objects: :class:`Swarm`, which starts runs, and :class:`Handle`, which is one.
What a batch does is in :mod:`sparkswarm.spark.batch`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.types import ArrayType, LongType, StructType

from sparkswarm.apps.application import Application
from sparkswarm.config import SwarmConfig
from sparkswarm.errors import ConfigError, InputError
from sparkswarm.journal import IN_CHECKPOINT, Journal
from sparkswarm.policies.policy import History
from sparkswarm.protocol.messages import Logged
from sparkswarm.protocol.plan import Plan
from sparkswarm.spark.batch import Batches, Form
from sparkswarm.spark.briefing import Reports, batch_prefix
from sparkswarm.spark.columns import (
    ID,
    QUERY_ID,
    QUERY_IDS,
    TIME,
    PointColumns,
    QueryColumns,
    X,
    Y,
    application_names,
    column_of,
    kept_names,
    one_stream,
    select_operations,
    select_points,
)
from sparkswarm.spark.installed import Installed
from sparkswarm.spark.planner import Planner
from sparkswarm.spark.quarantine import SPARK_SCHEMA, folder_of
from sparkswarm.spark.session import check_session
from sparkswarm.spark.sink import ConsoleSink, MemorySink, NoopSink, Sink
from sparkswarm.spark.status import Observer, Progress, Status, Totals
from sparkswarm.store.epochs import BEFORE_ALL, Commit, Epochs
from sparkswarm.store.files import Files, local_path

if TYPE_CHECKING:
    from matplotlib.figure import Figure

logger = logging.getLogger(__name__)

Results = Literal["points", "pairs"]
NAMED_SINKS: Mapping[str, Callable[[], Sink]] = {
    "noop": NoopSink,
    "console": ConsoleSink,
    "memory": MemorySink,
}

HISTORY_POINTS, HISTORY_QUERIES = 400_000, 200_000
"""How much of the past the policy ``static_history`` looks at, as in the paper."""

CLEAN_EVERY = 5
"""Old files are deleted after so many batches."""


class Swarm:
    """Matches points against continuous range queries on Spark, evenly spread.

    Parameters
    ----------
    spark
        A Spark session; :func:`sparkswarm.session` makes one with the settings that matter.
    config
        The settings.
    application
        What decides which points in a query's rectangle match it; without one, all do.
    """

    def __init__(
        self,
        spark: SparkSession,
        config: SwarmConfig | None = None,
        application: Application | None = None,
    ) -> None:
        self.spark = spark
        self.config = config or SwarmConfig()
        self.application = application
        check_session(spark)

    def start(
        self,
        points: DataFrame | None = None,
        queries: DataFrame | None = None,
        *,
        sink: Sink | str,
        checkpoint: str,
        preload: DataFrame | None = None,
        point_columns: PointColumns | None = None,
        query_columns: QueryColumns | None = None,
        results: Results = "points",
        quarantine: Sink | None = None,
        history: tuple[DataFrame, DataFrame] | None = None,
        trigger: Mapping[str, Any] | None = None,
        name: str | None = None,
        observers: Sequence[Observer] = (),
    ) -> Handle:
        """Start a run, or go on with the one that the checkpoint holds.

        Parameters
        ----------
        points
            A streaming DataFrame of points.
        queries
            A streaming DataFrame of operations on queries. Of a batch, operations take
            effect before its points are matched.
        sink
            Where results go: a function of (results, batch id), or ``noop``, ``console``,
            ``memory``. After a failure a batch may come again, with the same id and rows.
        checkpoint
            A folder for all that must survive, local or on a filesystem that both Spark
            and pyarrow know; on a cluster all machines must see it.
        preload
            A static DataFrame of queries to register before the first batch. When a run
            goes on, it is there already and this is not read.
        point_columns, query_columns
            What the columns are called.
        results
            ``points``: a row for each point that matches, with an array of query ids.
            ``pairs``: a row for each match.
        quarantine
            A function of (bad rows, batch id), called for batches that have some. They stay
            in the checkpoint's folder ``quarantine`` either way.
        history
            For the policy ``static_history``: static DataFrames of points and of queries.
        trigger
            What :meth:`pyspark.sql.streaming.DataStreamWriter.trigger` takes, such as
            ``{"processingTime": "1 second"}`` or ``{"availableNow": True}``.
        name
            The streaming query's name in Spark's user interface.
        observers
            Functions that hear of every batch after its commit: (progress, plan, decisions).
            What they raise is logged.

        Raises
        ------
        InputError
            If a DataFrame cannot be used.
        ConfigError
            If the checkpoint was made with other bounds or another grid.
        StoreError
            If the checkpoint is damaged.
        """
        point_columns = point_columns or PointColumns()
        query_columns = query_columns or QueryColumns()
        stream, form = _form(
            points, queries, point_columns, query_columns, results, self.application
        )
        sink = _sink(sink)
        files = Files(_folder(checkpoint, "swarm"))
        epochs = Epochs(files, self.config.keep_batches)
        run = _Run(self, files, epochs, form, self._history(history, point_columns, query_columns))
        run.observers += observers
        if (folder := local_path(checkpoint)) is not None:
            run.observers.append(Journal(folder / IN_CHECKPOINT, self.config.policy))
        run.begin(preload, query_columns, quarantine)

        def each(batch: DataFrame, number: int) -> None:
            run.batch(batch, number, sink, quarantine)

        writer = stream.writeStream.foreachBatch(each).option(
            "checkpointLocation", _for_spark(_folder(checkpoint, "spark"))
        )
        if name is not None:
            writer = writer.queryName(name)
        if trigger is not None:
            writer = writer.trigger(**trigger)
        return Handle(run, writer.start())

    def _history(
        self,
        history: tuple[DataFrame, DataFrame] | None,
        points: PointColumns,
        queries: QueryColumns,
    ) -> History | None:
        """Sample the past."""
        if history is None:
            return None
        points = replace(points, time=None, keep=())
        queries = replace(queries, expires=None, order=None)
        past = select_points(history[0], points).select(X, Y).limit(HISTORY_POINTS).toArrow()
        boxes = select_operations(history[1], queries, register_all=True)
        edges = ["min_x", "min_y", "max_x", "max_y"]
        known = boxes.select(*edges).limit(HISTORY_QUERIES).toArrow()
        cells = self.config.make_grid().place_queries(
            *(known.column(edge).to_numpy() for edge in edges)
        )
        return History(past.column(X).to_numpy(), past.column(Y).to_numpy(), cells)


class _Run:
    """One run: its batches one after another, and what can be asked of it meanwhile."""

    def __init__(
        self, swarm: Swarm, files: Files, epochs: Epochs, form: Form, history: History | None
    ) -> None:
        self.spark, self.config = swarm.spark, swarm.config
        self._details = dict(swarm.application.query_columns) if swarm.application else {}
        self.files, self.epochs = files, epochs
        bounds, grid = list(map(float, self.config.bounds)), list(self.config.grid)
        # The ledger keeps its buckets for the length of the run, whatever becomes of executors.
        buckets = epochs.fact("buckets") or self.config.executors
        facts = {"bounds": bounds, "grid": grid, "buckets": buckets}
        epochs.check_run({**facts, "query_columns": self._details})
        self.planner = Planner(self.config, buckets, history)
        self.reports = Reports(self.spark.sparkContext)
        self._batches = Batches(files, epochs, self.planner, self.reports, self.config, form)
        self.totals = Totals()
        self.observers: list[Observer] = []
        self.plan: Plan | None = None
        self.between = threading.Lock()

    def begin(
        self, preload: DataFrame | None, columns: QueryColumns, quarantine: Sink | None
    ) -> None:
        """Make the run's first commit if there is none, with the queries to preload."""
        self.epochs.clean()
        self.files.delete(self.files.names("soft"))
        if self.epochs.last_commit() is None:
            if preload is None:
                self.epochs.commit(Commit(BEFORE_ALL, *self.planner.first(), 0))
            elif preload.isStreaming:
                raise InputError("preload is a stream; give it as queries, or read it statically")
            else:
                operations = select_operations(preload, columns, True, self._details)
                self.batch(one_stream(None, operations), BEFORE_ALL, None, quarantine)
        last = self.epochs.last_commit()
        assert last is not None
        self.plan = last.plan

    def batch(
        self, batch: DataFrame, number: int, sink: Sink | None, quarantine: Sink | None
    ) -> None:
        """Run one batch; without a sink it is one of operations alone."""
        with self.between:
            self.progress(self._batches.run(batch, number, sink), quarantine)

    def progress(self, progress: Progress, quarantine: Sink | None) -> None:
        """Take note of a batch that is done."""
        number = progress.batch
        if progress.quarantined and quarantine is not None:
            path = _for_spark(f"{self.files.root}/{folder_of(number)}")
            quarantine(self.spark.read.schema(SPARK_SCHEMA).parquet(path), number)
        self.totals.add(progress)
        self.plan = self.planner.plan
        self._tell(progress)
        if number % CLEAN_EVERY == 0:
            self.epochs.clean()
            # The next batch needs what this one left.
            this = batch_prefix("soft", number)
            self.files.delete(n for n in self.files.names("soft") if n < this)
        logger.info(
            "batch %d: %d points, %d results in %.3f s, balance %.2f",
            number, progress.points, progress.matches, progress.seconds, progress.balance,
        )  # fmt: skip

    def _tell(self, progress: Progress) -> None:
        decisions = self.planner.news()
        for observer in self.observers:
            try:
                assert self.plan is not None
                observer(progress, self.plan, decisions)
            except Exception:
                # Who only watches must not stop the stream.
                logger.exception("an observer failed at batch %d", progress.batch)


class Handle:
    """A run that was started."""

    def __init__(self, run: _Run, query: StreamingQuery) -> None:
        self._run = run
        self.query = query

    def status(self) -> Status:
        """Return the state of the run; ``print`` it to read it."""
        run = self._run
        plan = self.plan()
        return Status(
            active=self.query.isActive,
            policy=run.config.policy,
            executors=plan.executors,
            round=run.planner.round,
            partitions=len(plan.partitions),
            last=run.totals.last,
            decisions=tuple(self.decisions()[-5:]),
            **run.totals.so_far(),
        )

    def plan(self) -> Plan:
        """Return the plan in force."""
        assert self._run.plan is not None
        return self._run.plan

    def decisions(self) -> list[Logged]:
        """Return the last decisions of the Coordinator, with their reasons, oldest first."""
        return self._run.planner.journal

    def set_executors(self, executors: int) -> None:
        """Share the work among so many executors from the next batch on.

        An executor is a task of each batch. Spark must have the cores to run them: adding
        machines is Spark's business, sharing the work among them is ours.
        """
        if isinstance(executors, bool) or not isinstance(executors, int) or executors < 1:
            raise ConfigError(f"executors must be a whole number of at least 1, got {executors!r}")
        self._run.planner.want_executors(executors)

    def stop(self) -> None:
        """End the run after the batch under way; start on the same checkpoint to go on."""
        with self._run.between:
            self.query.stop()

    def await_termination(self, timeout: float | None = None) -> bool:
        """Wait until the run has ended; return whether it has. Raises what ended it."""
        if timeout is None:
            self.query.awaitTermination()
            return True
        return bool(self.query.awaitTermination(timeout))  # type: ignore[arg-type]  # floats do

    def process_all_available(self) -> None:
        """Wait until all that the sources have now is in the sink. For tests."""
        self.query.processAllAvailable()

    def plot(self) -> Figure:
        """Draw the partitions of the plan in force and the work of the last batch."""
        from sparkswarm.notebook import plot

        last = self._run.totals.last
        return plot(self.plan(), last.busy if last else ())

    def _repr_html_(self) -> str:
        """Return the state of the run and its plan, for notebooks."""
        from sparkswarm.notebook import handle_html

        return handle_html(self.status(), self.plan())

    def __enter__(self) -> Handle:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _folder(checkpoint: str, name: str) -> str:
    """Return a folder of the checkpoint, as a full path, or as a URI where it is elsewhere."""
    if not checkpoint:
        raise ConfigError("checkpoint is empty; give a folder for all that must survive")
    path = local_path(checkpoint)
    if path is None:
        return f"{checkpoint.rstrip('/')}/{name}"
    return str(path / name)


def _for_spark(folder: str) -> str:
    """Return a folder as Spark takes it: a local path is local whatever Spark's filesystem is."""
    path = local_path(folder)
    # Not as_uri(): Spark would take its %20 for a name.
    return folder if path is None else f"file://{path}"


def _sink(sink: Sink | str) -> Sink:
    if callable(sink):
        return sink
    if isinstance(sink, str) and sink in NAMED_SINKS:
        return NAMED_SINKS[sink]()
    allowed = ", ".join(NAMED_SINKS)
    raise ConfigError(f"sink must be a function of (results, batch id) or one of {allowed}")


def _form(
    points: DataFrame | None,
    queries: DataFrame | None,
    point_columns: PointColumns,
    query_columns: QueryColumns,
    results: Results,
    application: Application | None,
) -> tuple[DataFrame, Form]:
    """Return the one stream of everything and what its rows look like."""
    if points is None and queries is None:
        raise InputError("there is neither a stream of points nor one of queries")
    if results not in ("points", "pairs"):
        raise ConfigError(f"results must be 'points' or 'pairs', got {results!r}")
    for what, frame in (("points", points), ("queries", queries)):
        if frame is not None and not frame.isStreaming:
            raise InputError(
                f"{what} is not a stream; read it with spark.readStream"
                + (", or give static queries as preload" if what == "queries" else "")
            )
    also = application_names(point_columns, application.point_columns if application else ())
    details = application.query_columns if application else {}
    chosen = None if points is None else select_points(points, point_columns, also)
    operations = (
        None if queries is None else select_operations(queries, query_columns, details=details)
    )
    names, fields, keep = {}, StructType(), kept_names(point_columns)
    if chosen is not None:
        c = point_columns
        names = {ID: c.id, X: c.x, Y: c.y, **dict(zip(keep, c.keep, strict=True)), **also}
        if c.time is not None:
            names[TIME] = c.time
        for field in (chosen.schema[ID], *(chosen.schema[name] for name in keep)):
            fields.add(names[field.name], field.dataType)
    fields.add(QUERY_IDS, ArrayType(LongType()))

    def finish(frame: DataFrame) -> DataFrame:
        if results == "points":
            return frame
        kept = [column_of(frame, name) for name in frame.columns if name != QUERY_IDS]
        return frame.select(*kept, F.explode(QUERY_IDS).alias(QUERY_ID))

    form = Form(
        names=names,
        schema=fields,
        keep=keep,
        has_operations=queries is not None,
        has_time=point_columns.time is not None,
        finish=finish,
        application=Installed.of(application, also) if application else None,
    )
    return one_stream(chosen, operations), form
