"""Metrics of a run for Prometheus, with Spark's own progress beside ours.

Owns :data:`METRICS`, the one table of names, kinds, units, labels and meanings: most of it are
the fields of :class:`~sparkswarm.observe.progress.Progress`. What is served, the documentation
and the dashboard in docs/grafana follow from it. Runs on the driver, once a batch. Needs
prometheus-client, which comes with the extra ``metrics``.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIServer

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener

from sparkswarm.errors import ConfigError, missing_extra
from sparkswarm.observe.describe import describe
from sparkswarm.observe.progress import Kind, Progress, count_unread
from sparkswarm.protocol.messages import Decision, DecisionKind
from sparkswarm.protocol.plan import Plan

if TYPE_CHECKING:
    from prometheus_client import Counter, Gauge, Histogram
    from pyspark.sql.streaming.listener import StreamingQueryProgress

    from sparkswarm.spark.handle import Handle

MAX_ROWS = 1000
"""Batches that :meth:`Metrics.rows` returns at most."""

BUCKETS_S = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
"""Upper bounds of the buckets of histograms, in seconds."""


@dataclass(frozen=True, slots=True)
class Batch:
    """What is known after a batch."""

    progress: Progress
    plan: Plan
    decisions: Sequence[Decision]
    time: float


Labels = tuple[str, ...]
Values = Iterator[tuple[Labels, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A metric, and how its values come from a batch.

    Either ``of_batch`` or ``of_spark`` is given: it returns labels and values, from our numbers
    or from Spark's progress.
    """

    name: str
    kind: Kind
    unit: str
    meaning: str
    labels: Labels = ()
    of_batch: Callable[[Batch], Values] | None = None
    of_spark: Callable[[StreamingQueryProgress], Values] | None = None


def _field(name: str) -> Callable[[Batch], Values]:
    def values(batch: Batch) -> Values:
        value = getattr(batch.progress, name)
        if isinstance(value, Mapping):
            yield from value.items()
        elif isinstance(value, tuple):
            yield from (((str(executor),), each) for executor, each in enumerate(value))
        else:
            yield (), value

    return values


def _decisions(batch: Batch) -> Values:
    for decision in batch.decisions:
        if decision.kind is DecisionKind.CHANGE:
            yield from (((change.kind.value,), 1) for change in decision.changes)
        else:
            yield (decision.kind.value,), 1


def _phases(progress: StreamingQueryProgress) -> Values:
    return (((phase,), ms / 1000) for phase, ms in progress.durationMs.items())


def _behind(progress: StreamingQueryProgress) -> Values:
    for i, source in enumerate(progress.sources):
        behind = (source.metrics or {}).get("maxOffsetsBehindLatest")
        if behind is not None:
            yield (str(i),), float(behind)


def _unread(progress: StreamingQueryProgress) -> Values:
    rows = count_unread(progress.sources)
    if rows is not None:
        yield (), rows


def _ours(
    kind: Kind, name: str, unit: str, meaning: str, value: Callable[[Batch], float]
) -> Metric:
    return Metric(
        name=f"sparkswarm_{name}",
        kind=kind,
        unit=unit,
        meaning=meaning,
        of_batch=lambda batch: iter([((), value(batch))]),
    )


def _sparks(name: str, attribute: str, meaning: str) -> Metric:
    return Metric(
        name=f"sparkswarm_spark_{name}",
        kind="gauge",
        unit="rows/s",
        meaning=meaning,
        # Spark reports None or NaN where there was nothing to divide.
        of_spark=lambda progress: iter([((), getattr(progress, attribute) or 0.0)]),
    )


def _of_hosts(kind: Kind, name: str, field: str, unit: str, meaning: str) -> Metric:
    return Metric(
        name=f"sparkswarm_host_{name}",
        kind=kind,
        unit=unit,
        meaning=meaning,
        labels=("host",),
        of_batch=lambda batch: (((u.host,), getattr(u, field)) for u in batch.progress.hosts),
    )


METRICS: tuple[Metric, ...] = (
    _ours("counter", "batches_total", "batches", "Batches done since this start.", lambda b: 1),
    *(
        Metric(**f.metadata["metric"], of_batch=_field(f.name))
        for f in fields(Progress)
        if "metric" in f.metadata
    ),
    _ours("gauge", "critical_path_seconds", "seconds",
          "Work of the busiest executor in the last batch: no batch is faster.",
          lambda b: max(b.progress.busy_s, default=0.0)),
    _ours("gauge", "balance_ratio", "fraction",
          "Balance efficiency of the last batch: mean work of the executors over the largest; "
          "1 is perfect.", lambda b: b.progress.balance),
    _of_hosts("counter", "fetched_bytes_total", "fetched_bytes", "bytes",
              "Bytes of files that each host copied."),
    _of_hosts("gauge", "mapped_bytes", "mapped_bytes", "bytes",
              "Files of queries that each host used in the last batch."),
    _of_hosts("counter", "tasks_total", "tasks", "tasks", "Executors' tasks on each host."),
    _of_hosts("counter", "tasks_at_home_total", "at_home", "tasks",
              "Those of them whose executor belongs to the host."),
    _ours("gauge", "executors", "executors", "Executors of the plan.", lambda b: b.plan.executors),
    _ours("gauge", "partitions", "partitions", "Partitions of the plan.",
          lambda b: len(b.plan.partitions)),
    _ours("gauge", "plan_version", "", "Version of the plan; it grows with every change.",
          lambda b: b.plan.version),
    _ours("gauge", "shared_partitions", "partitions",
          "Partitions too hot for one executor, which several share.",
          lambda b: sum(p.is_shared for p in b.plan.partitions)),
    _ours("gauge", "last_batch_timestamp_seconds", "seconds since 1970",
          "When the last batch was done.", lambda b: b.time),
    Metric(name="sparkswarm_decisions_total", kind="counter", unit="decisions",
           meaning="Changes of the plan by kind (`split`, `move`, `share`, `unshare`, `merge`), "
           "and other decisions by kind: `keep`, `rebalance`, `ask`, `refuse`, `nothing_to_give`, "
           "`resize`, `missing_report`, `ignored_report`.", labels=("what",), of_batch=_decisions),
    _sparks("input_rows_per_second", "inputRowsPerSecond", "Spark's: rate of arriving rows."),
    _sparks("processed_rows_per_second", "processedRowsPerSecond",
            "Spark's: rate of processed rows. Below the rate of arrival the stream falls behind."),
    Metric(name="sparkswarm_spark_phase_seconds", kind="gauge", unit="seconds",
           meaning="Spark's: time of each phase of the last batch. `triggerExecution` is all of "
           "it, `addBatch` is ours.", labels=("phase",), of_spark=_phases),
    Metric(name="sparkswarm_spark_source_behind_offsets", kind="gauge", unit="offsets",
           meaning="Spark's: offsets between a source and its newest row, for sources that report "
           "it (Kafka does).", labels=("source",), of_spark=_behind),
    Metric(name="sparkswarm_unread_rows", kind="gauge", unit="rows",
           meaning="What Kafka topics have and no batch has read.", of_spark=_unread),
)  # fmt: skip


class Metrics:
    """Collects the metrics of a run; give it to :meth:`sparkswarm.Swarm.start` as an observer.

    Can be read at any time from any thread.

    Raises
    ------
    MissingExtraError
        If prometheus-client is not installed.
    """

    def __init__(self) -> None:
        try:
            from prometheus_client import CollectorRegistry
        except ImportError as error:
            raise missing_extra("prometheus-client", "metrics") from error
        self.registry = CollectorRegistry()
        self._collectors = {metric.name: self._collector(metric) for metric in METRICS}
        self._rows: deque[dict[str, Any]] = deque(maxlen=MAX_ROWS)
        self._lock = threading.Lock()

    def __call__(self, progress: Progress, plan: Plan, decisions: Sequence[Decision]) -> None:
        """Add a batch."""
        batch = Batch(progress, plan, decisions, time.time())
        for metric in METRICS:
            if metric.of_batch:
                self._update(metric, metric.of_batch(batch))
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
        """Return the last batches; ``spark`` in a row is Spark's own progress of the batch."""
        with self._lock:
            return [dict(row) for row in self._rows]

    def values(self) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
        """Return all values as they are served, by name and labels."""
        return {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in self.registry.collect()
            for sample in family.samples
        }

    def listen(self, spark: SparkSession, handle: Handle) -> MetricsListener:
        """Add Spark's own progress of a run; returns the listener, to remove it."""
        listener = MetricsListener(self, str(handle.query.runId))
        spark.streams.addListener(listener)
        return listener

    def merge(self, progress: StreamingQueryProgress) -> None:
        """Add Spark's progress of a batch, which arrives after ours."""
        for metric in METRICS:
            if metric.of_spark:
                self._update(metric, metric.of_spark(progress))
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

    def serve(self, port: int = 0, host: str = "127.0.0.1") -> MetricsServer:
        """Serve the metrics for Prometheus; by default to this machine only.

        Raises
        ------
        ConfigError
            If the port cannot be opened.
        """
        from prometheus_client import start_http_server

        try:
            server, _ = start_http_server(port, host, self.registry)
        except OSError as error:
            raise ConfigError(
                f"metrics cannot be served at {host}:{port}: {error.strerror or error}; choose "
                "another port, or 0 for any that is free"
            ) from error
        return MetricsServer(server, f"http://{host}:{server.server_port}/metrics")

    def _collector(self, metric: Metric) -> Counter | Gauge | Histogram:
        from prometheus_client import Counter, Gauge, Histogram

        name, meaning, labels = metric.name, metric.meaning, metric.labels
        if metric.kind == "counter":
            return Counter(name, meaning, labels, registry=self.registry)
        if metric.kind == "gauge":
            return Gauge(name, meaning, labels, registry=self.registry)
        return Histogram(name, meaning, labels, registry=self.registry, buckets=BUCKETS_S)

    def _update(self, metric: Metric, values: Values) -> None:
        collector: Any = self._collectors[metric.name]
        for labels, value in values:
            child = collector.labels(*labels) if labels else collector
            if metric.kind == "counter":
                child.inc(value)
            elif metric.kind == "gauge":
                child.set(value)
            else:
                child.observe(value)


@dataclass(frozen=True, slots=True)
class MetricsServer:
    """Serves metrics at ``url`` until it is closed."""

    server: WSGIServer
    url: str

    def close(self) -> None:
        """Stop serving."""
        self.server.shutdown()
        self.server.server_close()


class MetricsListener(StreamingQueryListener):
    """Passes Spark's progress of one run to its metrics."""

    def __init__(self, metrics: Metrics, run_id: str) -> None:
        self._metrics = metrics
        self._run_id = run_id

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 (the names are Spark's)
        """Do nothing: it has started already."""

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        """Add the progress of a batch."""
        if str(event.progress.runId) == self._run_id:
            self._metrics.merge(event.progress)

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        """Do nothing."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        """Do nothing: the metrics keep their values."""


def metrics_table() -> str:
    """Return all metrics as a Markdown table, for the documentation."""
    lines = ["| name | kind, unit | labels | meaning |", "|---|---|---|---|"]
    for metric in METRICS:
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        kind = ", ".join(filter(None, (metric.kind, metric.unit)))
        lines.append(f"| `{metric.name}` | {kind} | {labels} | {metric.meaning} |")
    return "\n".join(lines) + "\n"
