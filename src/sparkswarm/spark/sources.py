"""Synthetic sources for Spark: formats that need no files and no other systems.

``swarm_cities`` is a stream of points in the built-in cities, ``swarm_queries`` one of operations
on queries there. Owns how Spark reads them: offsets, micro-batches, partitions. Offsets are
computed beside the driver, once per micro-batch; rows are read in tasks, and a task that runs
again reads the same rows. Options are in :mod:`sparkswarm.workloads.synthetic_options`, rows in
:mod:`sparkswarm.workloads.synthetic_rows`.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from sparkswarm.errors import ConfigError
from sparkswarm.workloads.synthetic_options import (
    CitiesOptions,
    QueriesOptions,
    SourceOptions,
    parse_options,
)
from sparkswarm.workloads.synthetic_rows import read_rows

Offset = dict[str, int]
"""``{"row": n}``: all rows with numbers below n have been read."""


def register_sources(spark: SparkSession) -> None:
    """Register the formats ``swarm_cities`` and ``swarm_queries`` with a Spark session."""
    spark.dataSource.register(CitiesSource)
    spark.dataSource.register(QueriesSource)


@dataclass
class RowRange(InputPartition):
    """The rows that one task reads."""

    start: int
    stop: int


def _split(start: int, stop: int, pieces: int) -> list[InputPartition]:
    """Return ranges of nearly equal size, none of them empty."""
    borders = [start + (stop - start) * i // pieces for i in range(pieces + 1)]
    return [RowRange(a, b) for a, b in itertools.pairwise(borders) if a < b]


def _read(options: SourceOptions, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    assert isinstance(partition, RowRange)
    return read_rows(options, partition.start, partition.stop)


def _end(options: SourceOptions, reading: str) -> int:
    """Return the total number of rows; ConfigError if the stream is endless."""
    rows = options.total_rows()
    if rows is None:
        raise ConfigError(
            f"{reading} reads to the end, but option limit is '', which means endless; "
            "set limit to a whole number from 1 to 10^12"
        )
    return rows


class BatchReader(DataSourceReader):
    """Reads all rows once."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options
        self.end = _end(options, "a batch read")

    def partitions(self) -> list[InputPartition]:
        """Return ranges of rows, one per task."""
        return _split(0, self.end, self.options.num_partitions)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the range as Arrow batches."""
        return _read(self.options, partition)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads one micro-batch after another.

    Spark keeps one such object beside the driver. It gets the end of every micro-batch from
    :meth:`latestOffset` and writes it to the checkpoint before the micro-batch runs; from then
    on the range is fixed, independent of the clock. Tasks get copies and only call :meth:`read`.
    """

    def __init__(self, options: SourceOptions) -> None:
        self.options = options
        self._wait = isinstance(options, CitiesOptions) and options.real_time
        self._began: tuple[float, int] | None = None

    def initialOffset(self) -> Offset:  # noqa: N802 (the names are Spark's)
        """Start with row 0."""
        return {"row": 0}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the size of the first micro-batch, which is the largest."""
        return ReadMaxRows(self.options.batch_size(0))

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        """Return the end of the micro-batch at ``start``; ``start`` itself if there is none yet."""
        row = start["row"]
        if isinstance(limit, ReadAllAvailable):
            return {"row": max(row, _end(self.options, "trigger(once=True)"))}
        size = self.options.batch_size(row)
        if isinstance(limit, ReadMaxRows):
            size = min(size, limit.max_rows)
        if self._wait:
            size = min(size, self._due(row) - row)
        rows = self.options.total_rows()
        stop = row + size if rows is None else min(row + size, rows)
        return {"row": max(row, stop)}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Make all rows up to the end available, without waiting for the clock."""
        _end(self.options, "trigger(availableNow=True)")
        self._wait = False

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """Return ranges of rows, one per task; none if the micro-batch is empty."""
        return _split(start["row"], end["row"], self.options.num_partitions)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the range as Arrow batches."""
        return _read(self.options, partition)

    def _due(self, row: int) -> int:
        """Return the first row that is not due yet according to the clock."""
        now = time.monotonic()
        if self._began is None:
            self._began = now, row
        began, first = self._began
        return first + int((now - began) * self.options.rows_per_second)


class _Source(DataSource):
    """Base of both formats; options are checked when ``load()`` is called."""

    options_class: ClassVar[type[SourceOptions]]
    columns: ClassVar[str]

    def __init__(self, options: Mapping[str, str]) -> None:
        self.checked = parse_options(self.options_class, options)

    def schema(self) -> str:
        return self.columns

    def reader(self, schema: StructType) -> DataSourceReader:
        return BatchReader(self.checked)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return StreamReader(self.checked)


class CitiesSource(_Source):
    """The format ``swarm_cities``: points, most of them in the cities."""

    options_class = CitiesOptions
    columns = "id BIGINT, x DOUBLE, y DOUBLE, ts TIMESTAMP"

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "swarm_cities"


class QueriesSource(_Source):
    """The format ``swarm_queries``: operations that register, unregister and update queries.

    The rectangle of an unregistered query is null.
    """

    options_class = QueriesOptions
    columns = (
        "op STRING, id BIGINT, min_x DOUBLE, min_y DOUBLE, max_x DOUBLE, max_y DOUBLE, ts TIMESTAMP"
    )

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "swarm_queries"
