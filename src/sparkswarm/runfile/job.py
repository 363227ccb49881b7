"""Starts a run from its file, waits for it and stops it.

Owns the life of the Spark session, the stream and the metrics server. Runs on the driver, once
per run. A signal stops the run after the current batch; the next start continues after it.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from sparkswarm.errors import InputError
from sparkswarm.observe.describe import decision_json
from sparkswarm.observe.metrics import Metrics
from sparkswarm.observe.progress import Observer, Status
from sparkswarm.runfile.schema import FENCES, RunFile, SinkSpec, SourceSpec
from sparkswarm.spark.engine import Swarm
from sparkswarm.spark.fences import read_fences
from sparkswarm.spark.handle import Handle
from sparkswarm.spark.kafka_sink import KafkaSink
from sparkswarm.spark.session import session
from sparkswarm.spark.sinks import ConsoleSink, NoopSink, ParquetSink, Sink
from sparkswarm.spark.sources import register_sources

QUIET = {"spark.ui.showConsoleProgress": False}
"""Default properties of Spark for a command, which has a progress display of its own."""

POLL_SECONDS = 0.2
"""Seconds between checks of whether the run has ended or a signal has arrived."""


@dataclass
class Interrupt:
    """A signal handler that remembers whether a signal has arrived."""

    requested: bool = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Remember the first signal; the second raises KeyboardInterrupt."""
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True


@contextmanager
def interruptible() -> Iterator[Interrupt]:
    """Handle Ctrl-C and SIGTERM in this context as requests to stop."""
    interrupt = Interrupt()
    before = {which: signal.getsignal(which) for which in (signal.SIGINT, signal.SIGTERM)}
    for which in before:
        signal.signal(which, interrupt)
    try:
        yield interrupt
    finally:
        for which, handler in before.items():
            signal.signal(which, handler)


@contextmanager
def running(
    run: RunFile,
    observers: Sequence[Observer] = (),
    report: Callable[[str], None] = lambda _: None,
) -> Iterator[Handle]:
    """Start Spark and the stream of a file; at the end stop both, after the current batch.

    Parameters
    ----------
    run
        Contents of the file.
    observers
        Called after every batch.
    report
        Called with a line of text at each step of the start.
    """
    with ExitStack() as stack:
        metrics = Metrics() if run.metrics else None
        report("starting Spark")
        spark = session(run.app_name, run.master, {**QUIET, **run.conf})
        stack.callback(spark.stop)
        register_sources(spark)
        report("starting the stream")
        handle = start(spark, run, [*([metrics] if metrics else []), *observers])
        stack.callback(handle.stop)
        if metrics and run.metrics:
            served = metrics.serve(run.metrics.port, run.metrics.host)
            stack.callback(served.close)
            listener = metrics.listen(spark, handle)
            stack.callback(spark.streams.removeListener, listener)
            report(f"metrics at {served.url}")
        yield handle


def start(spark: SparkSession, run: RunFile, observers: Sequence[Observer] = ()) -> Handle:
    """Start the stream of a file on a Spark session.

    Raises
    ------
    InputError
        If Spark cannot read a source; the message names its table in the file.
    """
    past = [read(spark, source, False) for source in run.history or ()]
    swarm = Swarm(spark, run.swarm, run.application, run.window, events=run.reported)
    return swarm.start(
        read(spark, run.points, True) if run.points else None,
        read(spark, run.queries, True) if run.queries else None,
        preload=read(spark, run.preload, False) if run.preload else None,
        sink=make_sink(run.sink),
        summaries=make_sink(run.summaries),
        answers=make_sink(run.answers),
        events=make_sink(run.events),
        nearest=make_sink(run.nearest),
        positions=make_sink(run.positions),
        checkpoint=run.checkpoint,
        point_columns=run.point_columns,
        query_columns=run.query_columns,
        results=run.results,
        quarantine=make_sink(run.quarantine),
        history=(past[0], past[1]) if past else None,
        trigger=run.trigger,
        name=run.name,
        observers=observers,
    )


def read(spark: SparkSession, source: SourceSpec, as_stream: bool) -> DataFrame:
    """Return the DataFrame of a source, as a stream or read once."""
    if source.format == FENCES:
        return read_fences(spark, source.path or "", id=source.options.get("id"))
    reader: Any = (spark.readStream if as_stream else spark.read).format(source.format)
    reader = reader.options(**source.options)
    if source.schema:
        reader = reader.schema(source.schema)
    try:
        frame: DataFrame = reader.load(source.path) if source.path else reader.load()
        return frame.selectExpr(*source.select) if source.select else frame
    except PySparkException as error:
        reason = str(error).strip().splitlines()[0]
        raise InputError(f"[{source.table}] cannot be read: {reason}") from error


def make_sink(spec: SinkSpec | None) -> Sink | None:
    """Return the sink of a table of the file; None without a table."""
    if spec is None:
        return None
    if spec.path is not None:  # which only parquet has
        return ParquetSink(spec.path)
    if spec.servers and spec.topic and spec.transactional_id:  # which only kafka has
        return KafkaSink(spec.servers, spec.topic, spec.transactional_id, options=spec.options)
    return ConsoleSink(spec.rows) if spec.kind == "console" else NoopSink()


def wait(handle: Handle, interrupt: Interrupt) -> bool:
    """Wait for the end of the run or a signal; return whether the run has ended.

    Raises the exception with which the run failed.
    """
    while not interrupt.requested:
        if handle.await_termination(POLL_SECONDS):
            return True
    return False


def status_json(status: Status) -> dict[str, Any]:
    """Return the status of a run as JSON values."""
    last = status.last
    names = ("active", "policy", "executors", "round", "partitions", "batches")
    counts = status.counts()
    return {
        **{name: getattr(status, name) for name in names},
        "results": counts.pop("matches"),
        **counts,
        "unread_rows": status.unread_rows,
        "quarantined": [
            {"kind": kind, "reason": reason, "rows": rows}
            for (kind, reason), rows in sorted(status.quarantined.items())
        ],
        "last": None
        if last is None
        else {
            "batch": last.batch,
            "seconds": last.seconds,
            "points": last.points,
            "results": last.matches,
            "balance": last.balance,
            "busy": list(last.busy_s),
        },
        "decisions": [decision_json(decision) for decision in status.decisions],
    }
