"""Sinks: where results go.

A sink is any function of the results and the number of their batch. It runs on the driver, once a
batch. After a failure a batch may come again, with the same number and the same rows: a sink must
replace what it did for that number before. All sinks here do.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark.sql import DataFrame

from sparkswarm.errors import ConfigError

Sink = Callable[[DataFrame, int], None]
"""A function of (rows, batch id)."""


@dataclass(frozen=True, kw_only=True)
class Sinks:
    """Where a batch's rows go; None where nobody reads them.

    Attributes
    ----------
    results
        Points that match.
    summaries
        Summaries of a stateful application.
    answers
        Answers to snapshot queries.
    """

    results: Sink | None = None
    summaries: Sink | None = None
    answers: Sink | None = None


@dataclass(frozen=True)
class ParquetSink:
    """Writes Parquet files, one folder a batch; a batch that comes again replaces its folder.

    ``spark.read.parquet(path)`` reads it all, with the batch as the column ``batch_id``.
    """

    path: str

    def __call__(self, results: DataFrame, batch_id: int) -> None:
        """Write a batch."""
        results.write.mode("overwrite").parquet(f"{self.path.rstrip('/')}/batch_id={batch_id}")


@dataclass(frozen=True)
class ConsoleSink:
    """Prints the first rows of each batch."""

    rows: int = 20

    def __call__(self, results: DataFrame, batch_id: int) -> None:
        """Print a batch."""
        # All rows must be computed, or executors would have nothing to report.
        table = results.toArrow()
        print(f"batch {batch_id}: {table.num_rows} rows")
        for row in table.slice(0, self.rows).to_pylist():
            print("  ", row)


@dataclass(frozen=True)
class MemorySink:
    """Keeps all results in the driver's memory, for tests and small experiments."""

    _batches: dict[int, pa.Table] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, results: DataFrame, batch_id: int) -> None:
        """Keep a batch."""
        table = results.toArrow()
        with self._lock:
            self._batches[batch_id] = table

    def table(self) -> pa.Table:
        """Return all results so far, with the batch as the column ``batch_id``."""
        with self._lock:
            parts = [
                table.append_column("batch_id", pa.array([batch] * table.num_rows, pa.int64()))
                for batch, table in sorted(self._batches.items())
            ]
        return pa.concat_tables(parts) if parts else pa.table({})


@dataclass(frozen=True)
class NoopSink:
    """Computes everything and keeps nothing, for benchmarks."""

    def __call__(self, results: DataFrame, batch_id: int) -> None:
        """Compute a batch."""
        results.write.format("noop").mode("overwrite").save()


def reads_everything(sink: Sink) -> bool:
    """Whether a sink is known to compute all rows that it is given."""
    return isinstance(sink, ParquetSink | ConsoleSink | MemorySink | NoopSink)


NAMED_SINKS: Mapping[str, Callable[[], Sink]] = {
    "noop": NoopSink,
    "console": ConsoleSink,
    "memory": MemorySink,
}
"""Sinks that can be given by name."""


def make_sink(name: str, sink: Sink | str | None) -> Sink | None:
    """Return the sink that an argument called ``name`` asks for."""
    if sink is None or callable(sink):
        return sink
    if isinstance(sink, str) and sink in NAMED_SINKS:
        return NAMED_SINKS[sink]()
    allowed = ", ".join(NAMED_SINKS)
    raise ConfigError(f"{name} must be a function of (results, batch id) or one of {allowed}")
