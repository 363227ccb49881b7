"""Sinks of Real-time Mode: where each result goes as soon as it is found.

``Foreach`` runs in tasks; ``KafkaTopic`` is Spark's own sink. After a failure results come again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.readwriter import DataStreamWriter

from sparkswarm.errors import ConfigError, InputError
from sparkswarm.spark.sinks import ConsoleSink, NoopSink


@dataclass(frozen=True)
class Foreach:
    """Gives each result to a function in the task that finds it, in Real-time Mode.

    Parameters
    ----------
    f
        What Spark's ``DataStreamWriter.foreach`` takes: a function of a row, or an object with
        ``process(row)``, and perhaps ``open(partition_id, epoch_id)`` and ``close(error)``.
    """

    f: Any

    def __post_init__(self) -> None:
        if not callable(self.f) and not callable(getattr(self.f, "process", None)):
            raise ConfigError(
                f"Foreach needs a function of a row or an object with process(row), got {self.f!r}"
            )

    def open(self, partition_id: int, epoch_id: int) -> bool:
        """Begin a task's part of a trigger."""
        begin = getattr(self.f, "open", None)
        return bool(begin(partition_id, epoch_id)) if begin is not None else True

    def write(self, results: pa.RecordBatch) -> None:
        """Hand over results one by one."""
        process: Callable[[Row], None] = getattr(self.f, "process", self.f)
        row_of = Row(*results.schema.names)
        for values in zip(*(column.to_pylist() for column in results.columns), strict=True):
            process(row_of(*values))

    def close(self, error: BaseException | None) -> None:
        """End a task's part of a trigger."""
        end = getattr(self.f, "close", None)
        if end is not None:
            end(error)


@dataclass(frozen=True)
class KafkaTopic:
    """Writes each result as JSON to a Kafka topic with Spark's own sink, in Real-time Mode.

    Parameters
    ----------
    servers
        Addresses of brokers, ``host:port``, separated by commas.
    topic
        Where rows are written.
    key
        Column whose value is the key of each message; without one, messages have no key.
    options
        More options of the producer, without the ``kafka.`` that Spark wants before each.
    """

    servers: str
    topic: str
    key: str | None = "id"
    options: Mapping[str, Any] = field(default_factory=dict)

    def writer(self, results: DataFrame) -> DataStreamWriter:
        """Return Spark's writer of results to the topic."""
        if self.key is not None and self.key not in results.columns:
            raise InputError(
                f"there is no column {self.key} for the key of messages; there are "
                f"{', '.join(results.columns)}"
            )
        value = F.to_json(F.struct(*results.columns)).alias("value")
        key = [F.col(self.key).cast("string").alias("key")] if self.key else []
        writer = results.select(*key, value).writeStream.format("kafka")
        for name, one in self.options.items():
            writer = writer.option(f"kafka.{name}", str(one))
        return writer.option("kafka.bootstrap.servers", self.servers).option("topic", self.topic)


RealTimeSink = Foreach | KafkaTopic | ConsoleSink | NoopSink


def real_time_sink(sink: Any) -> RealTimeSink:
    """Return a sink that works in Real-time Mode; ConfigError for others."""
    if sink == "console":
        return ConsoleSink()
    if sink == "noop":
        return NoopSink()
    if isinstance(sink, RealTimeSink):
        return sink
    raise ConfigError(
        "Real-time Mode has no batches that a sink could be given: use Foreach, KafkaTopic, "
        f"'console' or 'noop', not {sink!r}"
    )
