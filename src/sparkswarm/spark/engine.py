"""The engine: :class:`Swarm` checks its arguments and starts the streaming query.

Runs on the driver, once per start. What a batch does is in ``spark/driver/batch.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyspark.errors import IllegalArgumentException
from pyspark.sql import DataFrame, SparkSession

from sparkswarm.apps.application import Application
from sparkswarm.apps.events.settings import Events
from sparkswarm.arguments import check_argument, check_columns, check_function, check_table
from sparkswarm.config import RENAMED_SETTINGS, SwarmConfig
from sparkswarm.errors import ConfigError
from sparkswarm.observe.journal import IN_CHECKPOINT, Journal
from sparkswarm.observe.progress import Observer
from sparkswarm.options import options_of, suggestion
from sparkswarm.policies import History, make_policy
from sparkswarm.spark.columns import PointColumns, QueryColumns
from sparkswarm.spark.driver.choices import (
    CHOSEN,
    OutsideWatch,
    choose_settings,
    temporary_checkpoint,
)
from sparkswarm.spark.driver.hadoop_files import hadoop_creator
from sparkswarm.spark.driver.history import history_of
from sparkswarm.spark.driver.layout import (
    ResultShape,
    StreamLayout,
    read_layout,
    union_stream,
)
from sparkswarm.spark.driver.questions import SnapshotQuestions
from sparkswarm.spark.driver.run import ID_TYPE, RunLoop, spark_path
from sparkswarm.spark.driver.selection import query_fields, select_operations, select_points
from sparkswarm.spark.driver.ticks import with_ticks
from sparkswarm.spark.handle import Handle
from sparkswarm.spark.point_files import ParquetPoints
from sparkswarm.spark.realtime import REAL_TIME_TRIGGER, check_folder, real_time_points
from sparkswarm.spark.realtime_handle import RealTimeHandle
from sparkswarm.spark.session import check_session
from sparkswarm.spark.sinks import NoopSink, Sink, Sinks, make_sink
from sparkswarm.spark.stream_writer import MatchStream
from sparkswarm.store.epochs import Epochs
from sparkswarm.store.files import Files, check_scheme, local_path
from sparkswarm.window.windows import WINDOWS, Window


class Swarm:
    """Match points against range queries on Spark, with the load balanced between executors.

    Parameters
    ----------
    spark
        A Spark session; :func:`sparkswarm.session` makes one with suitable settings.
    config
        The settings. Without it, ``bounds``, ``grid`` and ``executors`` that are not given by
        keyword are chosen when a run starts: from its first rows, the number of its queries, and
        Spark's cores.
    application
        What decides which points in a query's rectangle match it; without one, all do.
    window
        How long points are kept for snapshot queries: a :class:`~sparkswarm.Sliding`,
        :class:`~sparkswarm.Tumbling`, :class:`~sparkswarm.Count` or :class:`~sparkswarm.Bytes`.
        By default they are not.
    events
        Which :class:`~sparkswarm.Events` of points' ids and queries are reported. By default none.
    settings
        Settings by keyword, as :class:`~sparkswarm.SwarmConfig` takes them; they take precedence
        over those of ``config``. ``bounds`` may be a word: ``"usa"``, ``"world"``.
    """

    def __init__(
        self,
        spark: SparkSession,
        config: SwarmConfig | None = None,
        application: Application | None = None,
        window: Window | None = None,
        events: Events | None = None,
        **settings: Any,
    ) -> None:
        if unknown := settings.keys() - options_of(SwarmConfig).keys() - RENAMED_SETTINGS.keys():
            name = min(unknown)
            raise ConfigError(
                f"Swarm has no setting {name}{suggestion(name, options_of(SwarmConfig))}"
            )
        check_argument("config", config, SwarmConfig, "a SwarmConfig")
        check_argument(
            "application", application, Application, "an Application, such as Aggregates()"
        )
        if application is not None:
            kind = type(application).__name__
            check_table(
                f"query_columns of {kind}", application.query_columns, "{'radius': 'DOUBLE'}"
            )
            check_columns(f"point_columns of {kind}", application.point_columns)
        windows = " or ".join(f"{kind.__name__}(...)" for kind in WINDOWS.values())
        check_argument("window", window, Window, windows)
        check_argument("events", events, Events, "Events(...)")
        self.spark = spark
        self.config = replace(config, **settings) if config else SwarmConfig(**settings)
        self._missing = frozenset() if config else frozenset(CHOSEN) - settings.keys()
        self.application = application
        self.window = window
        self.events = events
        check_session(spark)

    def start(
        self,
        points: DataFrame | ParquetPoints | None = None,
        queries: DataFrame | None = None,
        *,
        sink: Sink | str | None = None,
        summaries: Sink | str | None = None,
        answers: Sink | str | None = None,
        positions: Sink | str | None = None,
        events: Sink | str | None = None,
        nearest: Sink | str | None = None,
        checkpoint: str | Path | None = None,
        preload: DataFrame | None = None,
        point_columns: PointColumns | None = None,
        query_columns: QueryColumns | None = None,
        results: ResultShape = "points",
        quarantine: Sink | None = None,
        history: tuple[DataFrame, DataFrame] | None = None,
        trigger: Mapping[str, Any] | None = None,
        name: str | None = None,
        observers: Sequence[Observer] = (),
    ) -> Handle:
        """Start a run, or continue the one in the checkpoint.

        Parameters
        ----------
        points
            A streaming DataFrame of points, or :class:`~sparkswarm.ParquetPoints`: files that
            tasks read themselves.
        queries
            A streaming DataFrame of operations on queries. Of a batch, operations take
            effect before its points are matched.
        sink
            Where results go: a function of (results, batch id), or ``noop``, ``console``,
            ``memory``. After a failure a batch may come again, with the same id and rows.
            In Real-time Mode: ``Foreach``, ``KafkaTopic``, ``noop`` or ``console``.
            Optional if ``summaries``, ``answers`` or ``events`` is given.
        summaries
            Where the summaries of a stateful application go, such as the windows of
            :class:`~sparkswarm.Aggregates`.
        answers
            Where answers to the stream's snapshot queries go.
        positions
            Where answers to the stream's questions about objects go: ``inside``, ``where`` and
            ``nearest``.
        events
            Where events go: who entered, left or stayed in which query.
        nearest
            Where the answers of standing points go, those of :class:`~sparkswarm.Nearest`, when
            they change.
        checkpoint
            A folder for the state of the run, local or on a filesystem that both Spark
            and pyarrow support; on a cluster all machines must see it. Without one, a temporary
            folder, which ends with Python.
        preload
            A static DataFrame of queries to register before the first batch. It is not read
            when a run continues.
        point_columns, query_columns
            Names of the columns.
        results
            ``points``: a row for each point that matches, with an array of query ids.
            ``pairs``: a row for each match.
        quarantine
            A function of (rejected rows, batch id), called for batches that have any. They are
            also stored in the checkpoint's folder ``quarantine``.
        history
            For the policies ``static_history`` and ``swarm``: static DataFrames of points and of
            queries, whose cost the first plan divides. Without it, ``swarm`` divides the space
            evenly, on several hosts the preload.
        trigger
            What :meth:`pyspark.sql.streaming.DataStreamWriter.trigger` takes, such as
            ``{"processingTime": "1 second"}`` or ``{"availableNow": True}``. With
            ``{"realTime": "1 minute"}`` points are matched one by one, in Spark's Real-time Mode.
        name
            The streaming query's name in Spark's user interface.
        observers
            Functions of (progress, plan, decisions), called after the commit of each batch.
            Exceptions they raise are logged.

        Raises
        ------
        InputError
            If a DataFrame cannot be used.
        ConfigError
            If the checkpoint was made with other bounds or another grid.
        StoreError
            If the checkpoint is damaged.
        """
        if trigger is not None:
            _check_trigger(self.spark, trigger)
        check_argument("points", points, (DataFrame, ParquetPoints), "a DataFrame or ParquetPoints")
        check_argument("queries", queries, DataFrame, "a DataFrame")
        check_argument("preload", preload, DataFrame, "a DataFrame")
        check_argument("point_columns", point_columns, PointColumns, "PointColumns(...)")
        check_argument("query_columns", query_columns, QueryColumns, "QueryColumns(...)")
        check_argument("name", name, str, "a text")
        check_function("quarantine", quarantine, "(rejected rows, batch id)")
        check_argument("observers", observers, (list, tuple), "a list of functions", optional=False)
        for observer in observers:
            check_function("an observer", observer, "(progress, plan, decisions)", optional=False)
        if checkpoint is not None:
            checkpoint = _checked_folder(checkpoint)
        point_columns = point_columns or PointColumns()
        query_columns = query_columns or QueryColumns()
        known = None if checkpoint is None else self._known_ids(checkpoint)
        details = self.application.query_columns if self.application else {}
        fields = query_fields(
            queries, preload, query_columns, details, known, asks=self.events is not None
        )
        branches, layout = read_layout(
            points.open(self.spark) if isinstance(points, ParquetPoints) else points,
            queries,
            point_columns,
            query_columns,
            results,
            self.application,
            self.window,
            self.events,
            fields,
        )
        stream = union_stream(branches, layout.queries)
        idle_seconds = self.config.idle_seconds
        if idle_seconds and not layout.has_time:
            raise ConfigError(
                "idle_seconds needs the times of points; name their column with "
                "PointColumns(time=...)"
            )
        duration = trigger.get(REAL_TIME_TRIGGER) if trigger else None
        live = None
        if duration is not None:
            others: dict[str, object] = {"summaries": summaries, "answers": answers}
            others |= {"positions": positions}
            others |= {"events": events, "nearest": nearest, "quarantine": quarantine}
            others |= {"idle_seconds": idle_seconds or None}
            live = real_time_points(self.spark, branches, layout, sink, others, duration)
            sinks = Sinks(results=NoopSink())
        else:
            sinks = _sinks(layout, sink, summaries, answers, events, positions, nearest)
        if checkpoint is None:
            checkpoint = temporary_checkpoint(self.spark)
        if live is not None:
            check_folder(checkpoint)
        files = Files(
            _folder(checkpoint, "swarm"),
            cache_bytes=self.config.cache_bytes,
            copied=self.config.copy_files,
            bounded=False,
            creator=hadoop_creator(self.spark),
        )
        config = choose_settings(
            self.config, self._missing, files, stream, layout, preload, query_columns
        )
        past = self._history(history, point_columns, query_columns, config)
        run = RunLoop(self.spark, config, files, layout, past, real_time=live is not None)
        run.observers.append(OutsideWatch(config))
        if (folder := local_path(checkpoint)) is not None:
            rebalances = make_policy(config.policy).rebalances
            run.observers.append(
                Journal(folder / IN_CHECKPOINT, config.policy, rebalances=rebalances)
            )
        run.observers += observers
        run.open(preload, query_columns, quarantine)
        questions = SnapshotQuestions(run)
        if live is not None:
            started = live.start(run, lambda part: spark_path(_folder(checkpoint, part)), name)
            both = RealTimeHandle(run, started, questions)
            run.count_unread = lambda: both.unread_rows
            return both

        def on_batch(batch: DataFrame, number: int) -> None:
            run.on_batch(batch, number, sinks, quarantine)

        if idle_seconds and branches.points is not None:
            ticking = replace(branches, points=with_ticks(branches.points))
            stream = union_stream(ticking, layout.queries)
        writer = stream.writeStream.foreachBatch(on_batch).option(
            "checkpointLocation", spark_path(_folder(checkpoint, "spark"))
        )
        if name is not None:
            writer = writer.queryName(name)
        if trigger is not None:
            writer = writer.trigger(**trigger)
        handle = Handle(run, writer.start(), sinks, questions)
        run.count_unread = lambda: handle.unread_rows
        return handle

    def match(
        self, points: DataFrame | None = None, queries: DataFrame | None = None, **arguments: Any
    ) -> MatchStream:
        """Return the matches of points and queries, to be written as Spark writes a stream.

        ``swarm.match(points, queries).writeStream.format("parquet").start(path)`` is
        ``swarm.start(points, queries, sink=ParquetSink(path))``.

        Parameters
        ----------
        points, queries
            Streaming DataFrames.
        arguments
            Others of :meth:`start`, such as ``preload`` or ``results``; not those that a writer
            has methods for.
        """
        given = {**arguments, "points": points, "queries": queries}
        return MatchStream(self.spark, self.start, given)

    def _known_ids(self, checkpoint: str) -> str | None:
        """Return the type of the ids of queries in a checkpoint; None where it has numbers."""
        files = Files(_folder(checkpoint, "swarm"))
        found: str | None = Epochs(files, self.config.replayable_batches).run_fact(ID_TYPE)
        return found

    def _history(
        self,
        history: tuple[DataFrame, DataFrame] | None,
        points: PointColumns,
        queries: QueryColumns,
        config: SwarmConfig,
    ) -> History | None:
        """Return a sample of the past."""
        if history is None:
            return None
        if not isinstance(history, tuple | list) or len(history) != 2:
            raise ConfigError("history must be two DataFrames: (points, queries)")
        for frame in history:
            check_argument("each of history", frame, DataFrame, "a DataFrame", optional=False)
        points = replace(points, time=None, include=())
        queries = replace(queries, expires=None, order=None)
        boxes = select_operations(history[1], queries, register_all=True)
        return history_of(select_points(history[0], points), boxes, config.make_grid())


def _check_trigger(spark: SparkSession, trigger: Mapping[str, Any]) -> None:
    """Check what Spark is given; its own errors do not say what to write."""
    named = list(trigger.items()) if isinstance(trigger, Mapping) else []
    match named:
        case [("availableNow" | "once", True)]:
            return
        case [("processingTime" | "realTime", str(interval))] if _is_interval(spark, interval):
            return
    raise ConfigError(
        'trigger must be {"processingTime": "1 second"}, {"availableNow": True} or '
        f'{{"realTime": "1 minute"}}, got {trigger!r}'
    )


def _is_interval(spark: SparkSession, text: str) -> bool:
    """Return whether Spark takes a text as the interval of a trigger."""
    jvm: Any = spark._jvm
    try:
        jvm.org.apache.spark.sql.streaming.Trigger.ProcessingTime(text)
    except IllegalArgumentException:
        return False
    return True


def _checked_folder(checkpoint: str | Path) -> str:
    """Return a checkpoint as text; a local one is made, so that what hinders it is said first."""
    check_argument("checkpoint", checkpoint, (str, Path), "a folder, as text or a Path")
    given = str(checkpoint)
    if not given.strip():
        raise ConfigError("checkpoint is empty; give a folder")
    check_scheme(given)
    path = local_path(given)
    try:
        if path is not None:
            path.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(
            f"checkpoint {given[:200]!r} cannot be a folder: {reason}; give one that can be "
            "written to"
        ) from error
    return given


def _folder(checkpoint: str, name: str) -> str:
    """Return a folder of the checkpoint: an absolute path, or a URI where it is not local."""
    path = local_path(checkpoint)
    if path is None:
        return f"{checkpoint.rstrip('/')}/{name}"
    return str(path / name)


def _sinks(
    layout: StreamLayout,
    sink: Sink | str | None,
    summaries: Sink | str | None,
    answers: Sink | str | None,
    events: Sink | str | None,
    positions: Sink | str | None,
    nearest: Sink | str | None,
) -> Sinks:
    """Return the sinks; ConfigError where they do not fit what the run does."""
    if sink is None and summaries is None and answers is None and events is None:
        raise ConfigError(
            "there is no sink; results, summaries, answers or events must go somewhere"
        )
    if layout.stateful and summaries is None:
        raise ConfigError(
            f"{type(layout.stateful).__name__} returns summaries: give them a sink, such as 'noop'"
        )
    if summaries is not None and not layout.stateful:
        raise ConfigError("summaries come from a stateful application only, such as Aggregates")
    if answers is not None and layout.window is None:
        raise ConfigError("no points are kept that answers could be about; give Swarm a window")
    if layout.events and events is None:
        raise ConfigError("events are reported: give start a sink for events, such as 'noop'")
    if events is not None and not layout.events:
        raise ConfigError("no events are reported; give Swarm events, such as events=Events()")
    if positions is not None and not layout.events:
        raise ConfigError("no objects are kept that answers could be about; give Swarm events")
    asks_for_nearest = layout.events is not None and layout.events.settings.nearest is not None
    if asks_for_nearest and nearest is None:
        raise ConfigError("the nearest objects are asked for: give start a sink for nearest")
    if nearest is not None and not asks_for_nearest:
        raise ConfigError(
            "no queries ask for the nearest objects; give Swarm events=Events(nearest=Nearest(k))"
        )
    return Sinks(
        nearest=make_sink("nearest", nearest),
        positions=make_sink("positions", positions),
        results=make_sink("sink", sink),
        summaries=make_sink("summaries", summaries),
        answers=make_sink("answers", answers),
        events=make_sink("events", events),
    )
