"""Synthetic streams through Spark's Python Data Source API, so that all runs with nothing else.

``swarm_cities`` gives points from the skewed built-in cities, ``swarm_queries`` the operations
on queries that wait for them. Owns how Spark reads them: offsets, micro-batches, partitions. The
options are in :mod:`sparkswarm.workloads.synthetic_options`, the rows in
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
"""``{"row": n}``: the rows below n have been read."""


def register_sources(spark: SparkSession) -> None:
    """Make the formats ``swarm_cities`` and ``swarm_queries`` known to this Spark session."""
    spark.dataSource.register(CitiesSource)
    spark.dataSource.register(QueriesSource)


@dataclass
class RowRange(InputPartition):
    """The rows that one task reads."""

    start: int
    stop: int


def _split(start: int, stop: int, pieces: int) -> list[InputPartition]:
    """Return nearly equal ranges, none of them empty."""
    borders = [start + (stop - start) * i // pieces for i in range(pieces + 1)]
    return [RowRange(a, b) for a, b in itertools.pairwise(borders) if a < b]


def _read(options: SourceOptions, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    assert isinstance(partition, RowRange)
    return read_rows(options, partition.start, partition.stop)


def _end(options: SourceOptions, reading: str) -> int:
    """Return how many rows there are in all, or raise if they never end."""
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
        """Return ranges of rows, one a task."""
        return _split(0, self.end, self.options.num_partitions)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the range as Arrow batches."""
        return _read(self.options, partition)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads on and on, a micro-batch at a time.

    Spark keeps one such object beside the driver. It asks for the end of every micro-batch with
    :meth:`latestOffset` and writes it to the checkpoint before the micro-batch runs; from then
    on the range is fixed, whatever the clock says. Tasks get copies, and call :meth:`read` only.
    """

    def __init__(self, options: SourceOptions) -> None:
        self.options = options
        self._wait = isinstance(options, CitiesOptions) and options.real_time
        self._began: tuple[float, int] | None = None

    def initialOffset(self) -> Offset:  # noqa: N802 (the names are Spark's)
        """Start with row 0."""
        return {"row": 0}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the size of the largest micro-batch, the first."""
        return ReadMaxRows(self.options.batch_size(0))

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        """Return where the micro-batch that begins at ``start`` ends; ``start`` for none now."""
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
        """Take all rows up to the end for available, without waiting for the clock."""
        _end(self.options, "trigger(availableNow=True)")
        self._wait = False

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """Return ranges of rows, one a task; none where the micro-batch is empty."""
        return _split(start["row"], end["row"], self.options.num_partitions)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the range as Arrow batches."""
        return _read(self.options, partition)

    def _due(self, row: int) -> int:
        """Return up to which row virtual time has come, if it kept up with the clock."""
        now = time.monotonic()
        if self._began is None:
            self._began = now, row
        began, first = self._began
        return first + int((now - began) * self.options.rows_per_second)


class _Source(DataSource):
    """What both formats have in common; options are checked as soon as ``load()`` is called."""

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
