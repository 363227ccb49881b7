"""Metrics: what a run tells Prometheus, and anyone else who counts.

Owns one table, :data:`METRICS`: names, kinds, units, labels, meanings, and how each number comes
out of a batch. What Prometheus scrapes, docs/reference/metrics.md and the dashboard in docs/grafana
follow from it. Watching changes nothing: a run without metrics is the same run.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQueryListener

from sparkswarm.errors import ConfigError
from sparkswarm.observe.describe import describe
from sparkswarm.observe.progress import Counts, Progress
from sparkswarm.protocol.messages import Decision, DecisionKind
from sparkswarm.protocol.plan import Plan

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StreamingQueryProgress

    from sparkswarm.spark.engine import Handle

logger = logging.getLogger(__name__)

KEEP_ROWS = 1000
"""So many batches can be asked for with :meth:`Metrics.rows`."""

SECONDS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
"""Borders of the histograms of seconds."""


@dataclass(frozen=True)
class Batch:
    """What is known when a batch is done."""

    progress: Progress
    plan: Plan
    decisions: Sequence[Decision]
    time: float


Labels = tuple[str, ...]
Numbers = Iterator[tuple[Labels, float]]


@dataclass(frozen=True)
class Metric:
    """One number of a run.

    Attributes
    ----------
    name
        As Prometheus has it; that of a counter ends with ``_total``.
    kind
        A counter adds up, a gauge is as it is now, a histogram sorts by size.
    meaning, unit, labels
        For people; the names of its labels.
    of_batch, of_spark
        Returns labels and values, from what we know of a batch or from Spark's progress. One of
        the two is there.
    """

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    unit: str
    meaning: str
    labels: Labels = ()
    of_batch: Callable[[Batch], Numbers] | None = None
    of_spark: Callable[[StreamingQueryProgress], Numbers] | None = None


def _one(value: Callable[[Batch], float]) -> Callable[[Batch], Numbers]:
    return lambda batch: iter([((), value(batch))])


def _counted(name: str) -> Callable[[Batch], Numbers]:
    return _one(lambda batch: getattr(batch.progress, name))


def _each(values: Callable[[Progress], Sequence[float]]) -> Callable[[Batch], Numbers]:
    return lambda batch: (((str(m),), value) for m, value in enumerate(values(batch.progress)))


def _decided(batch: Batch) -> Numbers:
    """Count changes of the plan by their kind, each of them, and other decisions by theirs."""
    for decision in batch.decisions:
        if decision.kind is DecisionKind.CHANGE:
            yield from (((change.kind.value,), 1) for change in decision.changes)
        else:
            yield (decision.kind.value,), 1


def _spark(name: str) -> Callable[[StreamingQueryProgress], Numbers]:
    # Spark says nothing, or NaN, where there was nothing to divide.
    return lambda progress: iter([((), getattr(progress, name) or 0.0)])


def _phases(progress: StreamingQueryProgress) -> Numbers:
    return (((phase,), ms / 1000) for phase, ms in progress.durationMs.items())


def _behind(progress: StreamingQueryProgress) -> Numbers:
    for i, source in enumerate(progress.sources):
        behind = (source.metrics or {}).get("maxOffsetsBehindLatest")
        if behind is not None:
            yield (str(i),), float(behind)


METRICS: tuple[Metric, ...] = (
    Metric("sparkswarm_batches_total", "counter", "batches", "Batches done since this start.",
           of_batch=_one(lambda b: 1)),
    Metric("sparkswarm_batch_seconds", "histogram", "seconds",
           "Time of a batch, from its first row to its commit.",
           of_batch=_one(lambda b: b.progress.seconds)),
    *(
        Metric(f"sparkswarm_{f.metadata['label'].replace(' ', '_')}_total", "counter",
               f.metadata["unit"], f.metadata["meaning"], of_batch=_counted(f.name))
        for f in fields(Counts)
    ),
    Metric("sparkswarm_kept_points", "gauge", "points",
           "Recent points kept for snapshot queries.",
           of_batch=_one(lambda b: b.progress.window_points)),
    Metric("sparkswarm_kept_bytes", "gauge", "bytes", "Bytes of their values.",
           of_batch=_one(lambda b: b.progress.window_bytes)),
    Metric("sparkswarm_state_bytes", "gauge", "bytes",
           "Bytes of the files with the state of queries.",
           of_batch=_one(lambda b: b.progress.state_bytes)),
    Metric("sparkswarm_quarantined_total", "counter", "rows", "Bad rows, by what is wrong.",
           ("kind", "reason"), of_batch=lambda b: iter(b.progress.quarantined.items())),
    Metric("sparkswarm_executor_busy_seconds_total", "counter", "seconds",
           "Work of each executor, without waiting.", ("executor",),
           of_batch=_each(lambda p: p.busy_s)),
    Metric("sparkswarm_executor_points_total", "counter", "points",
           "Points of each executor.", ("executor",),
           of_batch=_each(lambda p: p.points_by_executor)),
    Metric("sparkswarm_critical_path_seconds", "gauge", "seconds",
           "Work of the busiest executor in the last batch: nobody is done before it.",
           of_batch=_one(lambda b: max(b.progress.busy_s, default=0.0))),
    Metric("sparkswarm_balance_ratio", "gauge", "fraction",
           "Balance efficiency of the last batch: mean work of the executors over the most, "
           "1 is perfect.", of_batch=_one(lambda b: b.progress.balance)),
    Metric("sparkswarm_executors", "gauge", "executors", "Executors that share the work.",
           of_batch=_one(lambda b: b.plan.executors)),
    Metric("sparkswarm_partitions", "gauge", "partitions", "Partitions of the plan.",
           of_batch=_one(lambda b: len(b.plan.partitions))),
    Metric("sparkswarm_shared_partitions", "gauge", "partitions",
           "Partitions too hot for one executor, which several share.",
           of_batch=_one(lambda b: sum(p.is_shared for p in b.plan.partitions))),
    Metric("sparkswarm_plan_version", "gauge", "", "Version of the plan; it grows when partitions "
           "change hands.", of_batch=_one(lambda b: b.plan.version)),
    Metric("sparkswarm_decisions_total", "counter", "decisions",
           "Changes of the plan by kind (`split`, `move`, `share`, `unshare`, `merge`), and other "
           "decisions by kind: `keep`, `rebalance`, `ask`, `refuse`, `nothing_to_give`, `resize`, "
           "`missing_report`, `ignored_report`.", ("what",), of_batch=_decided),
    Metric("sparkswarm_last_batch", "gauge", "", "Number of the last batch.",
           of_batch=_one(lambda b: b.progress.batch)),
    Metric("sparkswarm_last_batch_timestamp_seconds", "gauge", "seconds since 1970",
           "When the last batch was done.", of_batch=_one(lambda b: b.time)),
    Metric("sparkswarm_spark_input_rows_per_second", "gauge", "rows/s",
           "Spark's: how fast rows arrive.", of_spark=_spark("inputRowsPerSecond")),
    Metric("sparkswarm_spark_processed_rows_per_second", "gauge", "rows/s",
           "Spark's: how fast rows are processed. Below the rate of arrival the stream falls "
           "behind.", of_spark=_spark("processedRowsPerSecond")),
    Metric("sparkswarm_spark_phase_seconds", "gauge", "seconds",
           "Spark's: where the time of the last batch went. `triggerExecution` is all of it, "
           "`addBatch` is ours.", ("phase",), of_spark=_phases),
    Metric("sparkswarm_spark_source_behind_offsets", "gauge", "offsets",
           "Spark's: how far a source is behind its newest row, where it says so (Kafka does).",
           ("source",), of_spark=_behind),
)  # fmt: skip
"""The one table of metrics."""


class Metrics:
    """Counts the batches of a run; give it to :meth:`sparkswarm.Swarm.start` as an observer.

    It may be asked at any time from any thread.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._made = {metric.name: self._make(metric) for metric in METRICS}
        self._rows: deque[dict[str, Any]] = deque(maxlen=KEEP_ROWS)
        self._lock = threading.Lock()

    def __call__(self, progress: Progress, plan: Plan, decisions: Sequence[Decision]) -> None:
        """Count a batch."""
        batch = Batch(progress, plan, decisions, time.time())
        self._update("of_batch", batch)
        row = {
            "batch": progress.batch,
            "seconds": progress.seconds,
            **progress.counts(),
            "results": progress.matches,
            "quarantined": sum(progress.quarantined.values()),
            "balance": progress.balance,
            "plan": progress.plan_version,
            "busy": list(progress.busy_s),
            "decisions": [describe(decision) for decision in decisions],
        }
        with self._lock:
            self._rows.append(row)

    def rows(self) -> list[dict[str, Any]]:
        """Return the last batches, ours and, under ``spark``, Spark's own progress of each."""
        with self._lock:
            return [dict(row) for row in self._rows]

    def values(self) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
        """Return all numbers as they are served, by name and labels."""
        return {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in self.registry.collect()
            for sample in family.samples
        }

    def listen(self, spark: SparkSession, handle: Handle) -> MetricsListener:
        """Take in Spark's own progress of a run as well; returns the listener, to remove it."""
        listener = MetricsListener(self, str(handle.query.runId))
        spark.streams.addListener(listener)
        return listener

    def merge(self, progress: StreamingQueryProgress) -> None:
        """Take in Spark's progress of a batch, which comes after ours."""
        self._update("of_spark", progress)
        with self._lock:
            for row in reversed(self._rows):
                if row["batch"] == progress.batchId:
                    row["spark"] = {
                        "input_rows": progress.numInputRows,
                        "input_rows_per_second": progress.inputRowsPerSecond,
                        "processed_rows_per_second": progress.processedRowsPerSecond,
                        "milliseconds": dict(progress.durationMs),
                    }
                    return

    def serve(self, port: int = 0, host: str = "127.0.0.1") -> Served:
        """Serve the numbers for Prometheus; other machines see them only at another host.

        Raises
        ------
        ConfigError
            If that cannot be, because somebody else has the port.
        """
        try:
            server, _ = start_http_server(port, host, self.registry)
        except OSError as error:
            raise ConfigError(
                f"metrics cannot be served at {host}:{port}: {error.strerror or error}; choose "
                "another port, 0 takes any that is free"
            ) from error
        return Served(server, f"http://{host}:{server.server_port}/metrics")

    def _make(self, metric: Metric) -> Counter | Gauge | Histogram:
        name, what, labels = metric.name, metric.meaning, metric.labels
        if metric.kind == "counter":
            return Counter(name, what, labels, registry=self.registry)
        if metric.kind == "gauge":
            return Gauge(name, what, labels, registry=self.registry)
        return Histogram(name, what, labels, registry=self.registry, buckets=SECONDS)

    def _update(self, source: Literal["of_batch", "of_spark"], what: Any) -> None:
        for metric in METRICS:
            for labels, value in (getattr(metric, source) or _nothing)(what):
                made = self._made[metric.name]
                child = made.labels(*labels) if labels else made
                match child:
                    case Counter():
                        child.inc(value)
                    case Gauge():
                        child.set(value)
                    case Histogram():
                        child.observe(value)


def _nothing(_: object) -> Numbers:
    return iter(())


@dataclass(frozen=True)
class Served:
    """Where numbers are served, until it is closed."""

    server: WSGIServer
    url: str

    def close(self) -> None:
        """Stop serving."""
        self.server.shutdown()
        self.server.server_close()


class MetricsListener(StreamingQueryListener):
    """Hears Spark's progress of one run and puts it beside ours, batch by batch."""

    def __init__(self, metrics: Metrics, run_id: str) -> None:
        self._metrics = metrics
        self._run_id = run_id

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 (the names are Spark's)
        """Do nothing: it has started already."""

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        """Take in the progress of a batch."""
        if str(event.progress.runId) == self._run_id:
            self._metrics.merge(event.progress)

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        """Do nothing."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        """Do nothing: the numbers stay as they were."""


def metrics_table() -> str:
    """Return all metrics as a Markdown table, for docs/reference/metrics.md."""
    lines = ["| name | kind | unit | labels | meaning |", "|---|---|---|---|---|"]
    for metric in METRICS:
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        lines.append(
            f"| `{metric.name}` | {metric.kind} | {metric.unit} | {labels} | {metric.meaning} |"
        )
    return "\n".join(lines) + "\n"
