"""A source of points in the driver's memory that Spark's Real-time Mode can read.

Spark has it for its own tests. It asks the driver for each record, and waits 10 ms where there is
none, so latencies are larger than with a good broker.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

_numbers = itertools.count()

SEPARATOR, END = ",", ";"


class MemoryPoints:
    """Points that are added while a stream reads them.

    Parameters
    ----------
    spark
        The session.
    schema
        Columns and their types, none of them with a comma or a semicolon in its values.
    partitions
        Number of partitions, each read by a task; rows are dealt out in turn.
    """

    def __init__(self, spark: SparkSession, schema: str, partitions: int = 1) -> None:
        jvm: Any = spark._jvm
        sql = jvm.org.apache.spark.sql
        source = sql.execution.streaming.sources.LowLatencyMemoryStream
        clock = sql.execution.datasources.v2.LowLatencyClock.getClock()
        encoder = sql.Encoders.STRING()
        self._jvm = jvm
        self._source = source(next(_numbers), spark._jsparkSession, partitions, clock, encoder)
        lines = DataFrame(self._source.toDF(), spark)
        values = F.split("value", SEPARATOR)
        names = [column.strip().split() for column in schema.split(SEPARATOR)]
        self.frame = lines.select(
            *(values[i].cast(kind).alias(name) for i, (name, kind) in enumerate(names))
        )

    def add(self, rows: Iterable[Sequence[Any]]) -> None:
        """Add rows."""
        text = END.join(SEPARATOR.join(map(str, row)) for row in rows)
        if text:
            lines = self._jvm.java.util.regex.Pattern.compile(END).split(text)
            self._source.addData(
                self._jvm.scala.collection.immutable.ArraySeq.unsafeWrapArray(lines)
            )

    def close(self) -> None:
        """Do nothing: rows end with the session."""
