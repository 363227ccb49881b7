"""A run on Spark from its file: sources, application, sinks, metrics, and a clean end.

Owns the way from a checked file to a run that is over. What a signal asks for is done between
batches: the batch under way is finished, and the next start goes on after it.
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
from sparkswarm.runfile.schema import RunFile, SinkSpec, SourceSpec
from sparkswarm.spark.engine import Swarm
from sparkswarm.spark.handle import Handle
from sparkswarm.spark.session import session
from sparkswarm.spark.sinks import ConsoleSink, NoopSink, ParquetSink, Sink
from sparkswarm.spark.sources import register_sources

QUIET = {"spark.ui.showConsoleProgress": False}
"""Settings of Spark for a command, unless the file has others: two progress bars are none."""

LOOK_EVERY = 0.2
"""Seconds between looks at whether the run is over or somebody wants it to be."""


@dataclass
class Interrupt:
    """Whether somebody wants the run to end."""

    wanted: bool = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Note the first signal; the second ends the process as it would have without us."""
        if self.wanted:
            raise KeyboardInterrupt
        self.wanted = True


@contextmanager
def interruptible() -> Iterator[Interrupt]:
    """Take the first Ctrl-C or SIGTERM for the wish to end, while this lasts."""
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
    run: RunFile, observers: Sequence[Observer] = (), say: Callable[[str], None] = lambda _: None
) -> Iterator[Handle]:
    """Start what the file says and stop it at the end, after the batch under way.

    Parameters
    ----------
    run
        The file.
    observers
        Hear of every batch.
    say
        Is told what happens, in a few words.
    """
    with ExitStack() as stack:
        metrics = Metrics() if run.metrics else None
        say("starting Spark")
        spark = session(run.app_name, run.master, {**QUIET, **run.conf})
        stack.callback(spark.stop)
        register_sources(spark)
        say("starting the stream")
        handle = start(spark, run, [*([metrics] if metrics else []), *observers])
        stack.callback(handle.stop)
        if metrics and run.metrics:
            served = metrics.serve(run.metrics.port, run.metrics.host)
            stack.callback(served.close)
            listener = metrics.listen(spark, handle)
            stack.callback(spark.streams.removeListener, listener)
            say(f"metrics at {served.url}")
        yield handle


def start(spark: SparkSession, run: RunFile, observers: Sequence[Observer] = ()) -> Handle:
    """Start what the file says on a Spark session.

    Raises
    ------
    InputError
        If Spark cannot read a source; it names the table of the file.
    """
    past = [read(spark, source, False) for source in run.history or ()]
    return Swarm(spark, run.swarm, run.application, run.window).start(
        read(spark, run.points, True) if run.points else None,
        read(spark, run.queries, True) if run.queries else None,
        preload=read(spark, run.preload, False) if run.preload else None,
        sink=make_sink(run.sink),
        summaries=make_sink(run.summaries),
        answers=make_sink(run.answers),
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
    """Return what a source says is to be read, as a stream or once."""
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
    """Return the sink that a table of the file describes; None where there is no table."""
    if spec is None:
        return None
    if spec.path is not None:  # which only parquet has
        return ParquetSink(spec.path)
    return ConsoleSink(spec.rows) if spec.kind == "console" else NoopSink()


def wait(handle: Handle, interrupt: Interrupt) -> bool:
    """Wait until the run is over or somebody wants it to be; return whether it is over.

    Raises what ended the run.
    """
    while not interrupt.wanted:
        if handle.await_termination(LOOK_EVERY):
            return True
    return False


def status_json(status: Status) -> dict[str, Any]:
    """Return the state of a run, JSON-ready."""
    last = status.last
    return {
        "active": status.active,
        "policy": status.policy,
        "executors": status.executors,
        "round": status.round,
        "partitions": status.partitions,
        "batches": status.batches,
        "points": status.points,
        "results": status.matches,
        "operations": status.operations,
        "snapshot_queries": status.snapshot_queries,
        "late": status.late,
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
