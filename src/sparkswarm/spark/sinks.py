"""Sinks: where results go.

A sink is any function of the results and the number of their batch. It runs on the driver, once a
batch. After a failure a batch may come again, with the same number and the same rows: a sink must
replace what it did for that number before. All sinks here do.
"""

from __future__ import annotations

import logging
import shutil
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal, NamedTuple, Protocol, runtime_checkable

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import SparkContext
from pyspark.sql import DataFrame

from sparkswarm.arguments import check_argument
from sparkswarm.errors import ConfigError, StoreError
from sparkswarm.store.files import local_path

logger = logging.getLogger(__name__)

Sink = Callable[[DataFrame, int], None]
"""A function of (rows, batch id)."""


@runtime_checkable
class FileSink(Protocol):
    """A sink of results that the tasks write to Parquet files themselves.

    Of a batch, ``stage`` is called before the tasks run and ``publish`` after them, before the
    commit of the batch; both may come again with the same batch and another attempt.
    """

    def __call__(self, results: DataFrame, batch_id: int) -> None:
        """Write the rows of a batch where the tasks do not."""

    def stage(self, batch_id: int, attempt: str) -> Path | None:
        """Return a new folder for the files of an attempt at a batch; None where Spark writes."""

    def publish(self, staged: Path, batch_id: int, files: Iterable[str], schema: pa.Schema) -> None:
        """Make these files of the folder, and no others, what the batch wrote."""


OF_RUN = "_run"
"""The file in the folder of a ParquetSink with the id of its run; readers ignore its name."""

QUERY_ID = "sql.streaming.queryId"
"""Spark's local property with the id of a streaming query, which its checkpoint keeps."""


def current_run() -> str:
    """Return the id of the streaming query whose batch this thread runs; empty outside of one."""
    context = SparkContext._active_spark_context
    return (context.getLocalProperty(QUERY_ID) if context else None) or ""


class BatchOfRun(NamedTuple):
    """A batch that was written; ``run`` is the id of Spark's streaming query."""

    run: str
    batch: int


def is_written(last: BatchOfRun | None, batch: BatchOfRun, where: str) -> bool:
    """Return whether a batch is written, by the record of the last one that is."""
    if last is None or last.run != batch.run or last.batch < batch.batch:
        return False
    if last.batch > batch.batch:
        raise StoreError(
            f"batch {last.batch} is written {where}, and Spark runs batch {batch.batch} of the "
            "same run: the checkpoint is older than what was written. Restore the newer "
            "checkpoint, or start with a new checkpoint"
        )
    return True


def check_files(staged: Path, files: Iterable[str], path: str) -> None:
    """Check that the driver sees the files that the tasks wrote."""
    if missing := [name for name in sorted(files) if not (staged / name).exists()]:
        raise StoreError(
            f"tasks wrote {missing[0]} to {path}, but the driver does not see it there: give a "
            "folder that all machines share, or ParquetSink(path, writer='spark')"
        )


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
    events
        Events of objects and fences.
    positions
        Answers to questions about objects.
    nearest
        Answers of standing points that changed.
    """

    results: Sink | None = None
    summaries: Sink | None = None
    answers: Sink | None = None
    events: Sink | None = None
    positions: Sink | None = None
    nearest: Sink | None = None


@dataclass(frozen=True)
class ParquetSink:
    """Writes Parquet files, one folder a batch; a batch that comes again replaces its folder.

    ``spark.read.parquet(path)`` reads it all, with the batch as the column ``batch_id``.

    Parameters
    ----------
    path
        The folder.
    writer
        ``tasks``: the tasks that match points write the files, and a batch's folder appears whole,
        before the commit of the batch. ``spark``: Spark's own writer, which is slower, but writes
        to whatever Spark supports; it is also used where the path is not local, and for
        summaries and answers.
    """

    path: str
    writer: Literal["tasks", "spark"] = "tasks"
    reads_all_rows: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_argument("path of ParquetSink", self.path, (str, Path), "a folder", optional=False)
        object.__setattr__(self, "path", str(self.path))
        if not self.path.strip():
            raise ConfigError("path of ParquetSink is empty; give a folder")
        if self.writer not in ("tasks", "spark"):
            raise ConfigError(f"writer must be 'tasks' or 'spark', got {self.writer!r}")

    def __call__(self, results: DataFrame, batch_id: int) -> None:
        """Write a batch with Spark's writer."""
        results.write.mode("overwrite").parquet(f"{self.path.rstrip('/')}/batch_id={batch_id}")

    @property
    def task_folder(self) -> Path | None:
        """The local folder that tasks can write to; None where Spark must write."""
        return local_path(self.path) if self.writer == "tasks" else None

    def stage(self, batch_id: int, attempt: str) -> Path | None:
        """Make a folder for the files of an attempt at a batch; readers ignore its name."""
        if self.task_folder is None:
            return None
        self.task_folder.mkdir(parents=True, exist_ok=True)
        self._note_run(self.task_folder / OF_RUN)
        for left in self.task_folder.glob(f".batch_id={batch_id}-*"):
            shutil.rmtree(left)
        staged = self.task_folder / f".batch_id={batch_id}-{attempt}"
        staged.mkdir()
        return staged

    def _note_run(self, record: Path) -> None:
        """Write down whose batches these are; warn where they were another run's."""
        run, before = current_run(), record.read_text() if record.exists() else ""
        if run == before:
            return
        if before:
            logger.warning(
                "%s has the batches of another run: those with the numbers of this one are "
                "replaced. Give each run, and each new checkpoint, a folder of its own",
                self.path,
            )
        record.write_text(run)

    def publish(self, staged: Path, batch_id: int, files: Iterable[str], schema: pa.Schema) -> None:
        """Make the files of a batch visible in place of any that it had; delete all others.

        Without files, there is one without rows, so that the folder has a schema.
        """
        kept = set(files)
        check_files(staged, kept, self.path)
        for file in staged.iterdir():
            if file.name not in kept:
                file.unlink()
        if not kept:
            pq.write_table(schema.empty_table(), staged / "part-empty.parquet")
        final = staged.parent / f"batch_id={batch_id}"
        aside = staged.with_name(f"{staged.name}-before")
        replaces = final.exists()
        if replaces:
            final.rename(aside)
        try:
            staged.rename(final)
        except OSError:
            # A driver that took over has deleted it, after its own was published.
            if replaces:
                aside.rename(final)
            raise
        shutil.rmtree(aside, ignore_errors=True)


@dataclass(frozen=True)
class ConsoleSink:
    """Prints the first rows of each batch."""

    rows: int = 20
    reads_all_rows: ClassVar[bool] = True

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
    reads_all_rows: ClassVar[bool] = True

    def __call__(self, results: DataFrame, batch_id: int) -> None:
        """Keep a batch."""
        table = results.toArrow()
        with self._lock:
            self._batches[batch_id] = table

    def table(self) -> pa.Table:
        """Return all results, with the batch as the column ``batch_id``."""
        with self._lock:
            parts = [
                table.append_column("batch_id", pa.array([batch] * table.num_rows, pa.int64()))
                for batch, table in sorted(self._batches.items())
            ]
        return pa.concat_tables(parts) if parts else pa.table({})


@dataclass(frozen=True)
class NoopSink:
    """Computes everything and keeps nothing, for benchmarks."""

    reads_all_rows: ClassVar[bool] = True

    def __call__(self, results: DataFrame, batch_id: int) -> None:
        """Compute a batch."""
        write_nowhere(results)


def write_nowhere(frame: DataFrame) -> None:
    """Compute a frame for what its tasks do."""
    frame.write.format("noop").mode("overwrite").save()


def reads_everything(sink: Sink | None) -> bool:
    """Whether a sink promises to compute all rows that it is given."""
    return bool(getattr(sink, "reads_all_rows", False))


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
