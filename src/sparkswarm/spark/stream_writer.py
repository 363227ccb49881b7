"""Starts a run as Spark users start a stream: ``matches.writeStream.format(...).start()``.

Runs on the driver, once per start. Says the same as the arguments of
:meth:`~sparkswarm.Swarm.start` in the words of Spark's ``DataStreamWriter``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession

from sparkswarm.errors import ConfigError
from sparkswarm.observe.progress import Observer
from sparkswarm.options import suggestion
from sparkswarm.spark.delta_sink import DeltaSink
from sparkswarm.spark.kafka_sink import KafkaSink
from sparkswarm.spark.realtime_sinks import Foreach, KafkaTopic, RealTimeSink
from sparkswarm.spark.sinks import ConsoleSink, MemorySink, NoopSink, ParquetSink, Sink

if TYPE_CHECKING:
    from sparkswarm.spark.handle import Handle

FORMATS: Mapping[str, frozenset[str]] = {
    "parquet": frozenset({"path", "writer"}),
    "delta": frozenset({"path"}),
    "kafka": frozenset({"topic", "key"}),
    "console": frozenset({"numrows"}),
    "memory": frozenset(),
    "noop": frozenset(),
}
"""The formats, and the options of each in lower case; kafka also has those that begin so."""

CHECKPOINT = "checkpointlocation"
REAL_TIME_TRIGGER = "realTime"
KAFKA, SERVERS, WRITER_ID = "kafka.", "kafka.bootstrap.servers", "kafka.transactional.id"


class MatchStream:
    """The matches of a stream, which are not computed before they are written.

    :meth:`sparkswarm.Swarm.match` returns it.
    """

    def __init__(
        self, spark: SparkSession, begin: Callable[..., Handle], arguments: Mapping[str, Any]
    ) -> None:
        self._given = spark, begin, arguments

    @property
    def writeStream(self) -> StreamWriter:  # noqa: N802 (the names are Spark's)
        """A new writer."""
        return StreamWriter(*self._given)


class StreamWriter:
    """Says where matches go, then starts the run; each method returns the writer.

    Options are ``checkpointLocation`` and those of the format:

    - ``parquet``: ``path``, and ``writer`` (``tasks`` or ``spark``)
    - ``delta``: ``path``
    - ``kafka``: ``topic``, ``kafka.bootstrap.servers``, ``kafka.transactional.id``, ``key``, and
      more settings of the producer, each with ``kafka.`` before it
    - ``console``: ``numRows``
    - ``memory``: none; with a ``queryName``, a temporary view of that name has all matches
    - ``noop``: none
    """

    def __init__(
        self, spark: SparkSession, begin: Callable[..., Handle], arguments: Mapping[str, Any]
    ) -> None:
        self._spark, self._begin = spark, begin
        self._arguments = dict(arguments)
        self._options: dict[str, Any] = {}
        self._format: str | None = None
        self._sink: Sink | Foreach | None = None

    def format(self, source: str) -> StreamWriter:
        """Set the format: parquet, delta, kafka, console, memory or noop."""
        if source not in FORMATS:
            raise ConfigError(
                f"format must be one of {', '.join(FORMATS)}, got {source!r}"
                f"{suggestion(str(source), FORMATS)}; for others there is foreachBatch"
            )
        self._format = source
        return self

    def option(self, key: str, value: Any) -> StreamWriter:
        """Set an option; names are compared without case."""
        self._options[key.lower()] = value
        return self

    def options(self, **options: Any) -> StreamWriter:
        """Set options."""
        for key, value in options.items():
            self.option(key, value)
        return self

    def outputMode(self, outputMode: str) -> StreamWriter:  # noqa: N802, N803
        """Accept ``append``, the only mode."""
        if str(outputMode).lower() != "append":
            raise ConfigError(f'outputMode must be "append", got {outputMode!r}')
        return self

    def queryName(self, queryName: str) -> StreamWriter:  # noqa: N802, N803
        """Set the name of the streaming query."""
        self._arguments["name"] = queryName
        return self

    def trigger(self, **trigger: Any) -> StreamWriter:
        """Set the trigger: ``processingTime="1 second"``, ``availableNow=True``.

        ``realTime="1 minute"`` is Spark's Real-time Mode, which matches points one by one.
        """
        self._arguments["trigger"] = trigger
        return self

    def foreachBatch(self, func: Sink) -> StreamWriter:  # noqa: N802
        """Give each batch to a function of (matches, batch id), instead of a format."""
        if not callable(func):
            raise ConfigError(f"foreachBatch needs a function of (matches, batch id), got {func!r}")
        self._sink = func
        return self

    def foreach(self, f: Any) -> StreamWriter:
        """Give each match to ``f`` in the task that finds it, in Real-time Mode: see Foreach."""
        self._sink = Foreach(f)
        return self

    def start(
        self,
        path: str | None = None,
        format: str | None = None,
        outputMode: str | None = None,  # noqa: N803
        queryName: str | None = None,  # noqa: N803
        **options: Any,
    ) -> Handle:
        """Start the run, or continue the one in the checkpoint."""
        if format is not None:
            self.format(format)
        if outputMode is not None:
            self.outputMode(outputMode)
        if queryName is not None:
            self.queryName(queryName)
        self.options(**options)
        if path is not None:
            self.option("path", path)
        given = dict(self._options)
        checkpoint = given.pop(CHECKPOINT, None)
        arguments = dict(self._arguments)
        sink = self._make_sink(given)
        if isinstance(sink, MemorySink) and arguments.get("name"):
            view = _view(self._spark, sink, arguments["name"])
            arguments["observers"] = (*arguments.get("observers", ()), view)
        return self._begin(**arguments, sink=sink, checkpoint=checkpoint)

    def _make_sink(self, options: dict[str, Any]) -> Sink | RealTimeSink:
        """Return the sink that the format and its options say."""
        kind = self._format or "parquet"
        if self._sink is not None:
            if self._format is not None:
                raise ConfigError(f"there are both foreachBatch and format {kind!r}; use one")
            kind = "foreachBatch"
        known = FORMATS.get(kind, frozenset())
        for name in options.keys() - known:
            if kind != "kafka" or not name.startswith(KAFKA):
                close = suggestion(name, {*known, CHECKPOINT})
                raise ConfigError(f"{kind} has no option {name}{close}")
        match kind:
            case "parquet":
                return ParquetSink(_required(kind, options, "path"), options.get("writer", "tasks"))
            case "delta":
                return DeltaSink(_required(kind, options, "path"))
            case "kafka":
                servers, topic = (_required(kind, options, name) for name in (SERVERS, "topic"))
                more = {
                    name.removeprefix(KAFKA): value
                    for name, value in options.items()
                    if name.startswith(KAFKA) and name not in (SERVERS, WRITER_ID)
                }
                key = options.get("key", "id")
                if REAL_TIME_TRIGGER in (self._arguments.get("trigger") or {}):
                    if WRITER_ID in options:
                        raise ConfigError(
                            f"leave out {WRITER_ID}: Real-time Mode writes at least once, in no "
                            "transaction"
                        )
                    return KafkaTopic(servers, topic, key=key, options=more)
                writer = _required(kind, options, WRITER_ID)
                return KafkaSink(servers, topic, writer, key=key, options=more)
            case "console":
                return ConsoleSink(_rows(options.get("numrows", 20)))
            case "memory":
                return MemorySink()
            case "noop":
                return NoopSink()
        assert self._sink is not None
        return self._sink


def _required(kind: str, options: Mapping[str, Any], name: str) -> str:
    if not (value := options.get(name)):
        raise ConfigError(f"format {kind} needs the option {name}: .option({name!r}, ...)")
    return str(value)


def _rows(value: Any) -> int:
    """Return how many rows the console shows."""
    if not (text := str(value)).isdecimal():
        raise ConfigError(f"numrows must be a whole number, got {value!r}")
    return int(text)


def _view(spark: SparkSession, sink: MemorySink, name: str) -> Observer:
    """Return an observer that shows what is in memory as a temporary view."""

    def show(*_: object) -> None:
        # The session of a batch is a copy, whose views the user's session does not have.
        spark.createDataFrame(sink.table()).createOrReplaceTempView(name)

    return show
