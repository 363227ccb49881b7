"""The engine: SWARM as a user meets it.

Owns :class:`Swarm`, which starts runs. What a batch does is in
:mod:`sparkswarm.spark.driver.batch`, and what can be asked of a run in
:mod:`sparkswarm.spark.handle`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from sparkswarm.apps.application import Application
from sparkswarm.config import SwarmConfig
from sparkswarm.errors import ConfigError
from sparkswarm.observe.journal import IN_CHECKPOINT, Journal
from sparkswarm.observe.progress import Observer
from sparkswarm.policies.policy import History
from sparkswarm.spark.columns import PointColumns, QueryColumns, select_operations, select_points
from sparkswarm.spark.driver.batch import Sinks
from sparkswarm.spark.driver.layout import Form, Results, form_of
from sparkswarm.spark.driver.run import Run, for_spark
from sparkswarm.spark.handle import Handle
from sparkswarm.spark.session import check_session
from sparkswarm.spark.sinks import ConsoleSink, MemorySink, NoopSink, Sink
from sparkswarm.store.files import Files, local_path
from sparkswarm.store.queries import X, Y
from sparkswarm.window.windows import WINDOWS, Window

NAMED_SINKS: Mapping[str, Callable[[], Sink]] = {
    "noop": NoopSink,
    "console": ConsoleSink,
    "memory": MemorySink,
}

HISTORY_POINTS, HISTORY_QUERIES = 400_000, 200_000
"""How much of the past the policy ``static_history`` looks at, as in the paper."""


class Swarm:
    """Matches points against range queries on Spark, evenly spread.

    Parameters
    ----------
    spark
        A Spark session; :func:`sparkswarm.session` makes one with the settings that matter.
    config
        The settings.
    application
        What decides which points in a query's rectangle match it; without one, all do.
    window
        How long points are kept for snapshot queries: a :class:`~sparkswarm.Sliding`,
        :class:`~sparkswarm.Tumbling`, :class:`~sparkswarm.Count` or :class:`~sparkswarm.Bytes`.
        By default they are not.
    """

    def __init__(
        self,
        spark: SparkSession,
        config: SwarmConfig | None = None,
        application: Application | None = None,
        window: Window | None = None,
    ) -> None:
        if window is not None and not isinstance(window, Window):
            kinds = ", ".join(kind.__name__ for kind in WINDOWS.values())
            raise ConfigError(f"window must be one of {kinds}; got {window!r}")
        self.spark = spark
        self.config = config or SwarmConfig()
        self.application = application
        self.window = window
        check_session(spark)

    def start(
        self,
        points: DataFrame | None = None,
        queries: DataFrame | None = None,
        *,
        sink: Sink | str | None = None,
        summaries: Sink | str | None = None,
        answers: Sink | str | None = None,
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
            It may be left out where there is another.
        summaries
            Where what a stateful application tells goes, such as the windows of
            :class:`~sparkswarm.Aggregates`.
        answers
            Where answers to snapshot queries of the stream go.
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
        stream, form = form_of(
            points, queries, point_columns, query_columns, results, self.application, self.window
        )
        sinks = _sinks(form, sink, summaries, answers)
        files = Files(_folder(checkpoint, "swarm"))
        past = self._history(history, point_columns, query_columns)
        run = Run(self.spark, self.config, files, form, past)
        run.observers += observers
        if (folder := local_path(checkpoint)) is not None:
            run.observers.append(Journal(folder / IN_CHECKPOINT, self.config.policy))
        run.begin(preload, query_columns, quarantine)

        def each(batch: DataFrame, number: int) -> None:
            run.batch(batch, number, sinks, quarantine)

        writer = stream.writeStream.foreachBatch(each).option(
            "checkpointLocation", for_spark(_folder(checkpoint, "spark"))
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
        points = replace(points, time=None, include=())
        queries = replace(queries, expires=None, order=None)
        past = select_points(history[0], points).select(X, Y).limit(HISTORY_POINTS).toArrow()
        boxes = select_operations(history[1], queries, register_all=True)
        edges = ["min_x", "min_y", "max_x", "max_y"]
        known = boxes.select(*edges).limit(HISTORY_QUERIES).toArrow()
        cells = self.config.make_grid().place_queries(
            *(known.column(edge).to_numpy() for edge in edges)
        )
        return History(past.column(X).to_numpy(), past.column(Y).to_numpy(), cells)


def _folder(checkpoint: str, name: str) -> str:
    """Return a folder of the checkpoint, as a full path, or as a URI where it is elsewhere."""
    if not checkpoint:
        raise ConfigError("checkpoint is empty; give a folder for all that must survive")
    path = local_path(checkpoint)
    if path is None:
        return f"{checkpoint.rstrip('/')}/{name}"
    return str(path / name)


def _sinks(
    form: Form, sink: Sink | str | None, summaries: Sink | str | None, answers: Sink | str | None
) -> Sinks:
    """Return where everything goes; ConfigError where that does not fit what the run does."""
    if sink is None and summaries is None and answers is None:
        raise ConfigError("there is no sink; results, summaries or answers must go somewhere")
    if form.stateful and summaries is None:
        raise ConfigError(
            f"{type(form.stateful).__name__} tells summaries: give them a sink, if need be noop"
        )
    if summaries is not None and not form.stateful:
        raise ConfigError("summaries come from a stateful application only, such as Aggregates")
    if answers is not None and form.window is None:
        raise ConfigError("no points are kept that answers could be about; give Swarm a window")
    return Sinks(_sink("sink", sink), _sink("summaries", summaries), _sink("answers", answers))


def _sink(name: str, sink: Sink | str | None) -> Sink | None:
    if sink is None or callable(sink):
        return sink
    if isinstance(sink, str) and sink in NAMED_SINKS:
        return NAMED_SINKS[sink]()
    allowed = ", ".join(NAMED_SINKS)
    raise ConfigError(f"{name} must be a function of (results, batch id) or one of {allowed}")
