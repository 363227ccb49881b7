"""Numbers of a run: counts, the progress of a batch, the status of the whole run.

Owns :class:`Counts`, from whose fields everything else derives: :class:`Progress`,
:class:`Status`, the journal, the metrics and their documentation. To count something new, add a
field there and count it in the task that sees it.
"""

from __future__ import annotations

import itertools
import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, NamedTuple

from sparkswarm.observe.describe import describe
from sparkswarm.protocol.messages import Decision
from sparkswarm.protocol.plan import Plan

Kind = Literal["counter", "gauge", "histogram"]

LATENCY_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, math.inf)
"""Upper bounds of the classes of latency, in seconds."""


def number(
    kind: Kind, unit: str, meaning: str, *, name: str, labels: tuple[str, ...] = (), **default: Any
) -> Any:
    """Declare a field that is also a metric, ``sparkswarm_<name>``.

    A field with labels has a value for each: a mapping, or a sequence by executor.
    """
    metric = {
        "name": f"sparkswarm_{name}{'_total' if kind == 'counter' else ''}",
        "kind": kind,
        "unit": unit,
        "meaning": meaning,
        "labels": labels,
    }
    return field(metadata={"metric": metric, "text": name.replace("_", " ")}, **default)


def latency_counts(classes: Sequence[int]) -> dict[tuple[str], int]:
    """Return how many points had at most each latency, given how many are in each class."""
    totals = itertools.accumulate(classes)
    names = ("+Inf" if math.isinf(most) else f"{most:g}" for most in LATENCY_S)
    return {(name,): n for name, n in zip(names, totals, strict=False)}


def count(unit: str, meaning: str, *, name: str) -> int:
    """Declare a field of :class:`Counts`; ``name``, a plural, follows the number in texts."""
    declared: int = number("counter", unit, meaning, name=name, default=0)
    return declared


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Numbers that add up over tasks, batches and a run."""

    points: int = count("points", "Valid points.", name="points")
    matches: int = count("pairs", "Pairs of a point and a query that it matches.", name="results")
    checks: int = count("candidates", "Queries that points were compared with.", name="checks")
    lent: int = count(
        "points",
        "Points matched by another executor than the owner of their partition.",
        name="lent_points",
    )
    operations: int = count(
        "operations", "Operations on queries that took effect.", name="query_operations"
    )
    replaced: int = count(
        "operations",
        "Registrations of a registered query, which was replaced.",
        name="replaced_queries",
    )
    ignored: int = count(
        "operations",
        "Removals of a query that is not registered.",
        name="ignored_operations",
    )
    snapshot_queries: int = count(
        "queries", "Valid snapshot queries of the stream.", name="snapshot_queries"
    )
    late: int = count(
        "points",
        "Points that came too late for a window, once for each query. If they are many, use a "
        "longer `watermark_delay`.",
        name="late_points",
    )
    events: int = count("events", "Events of objects and fences.", name="events")
    late_fixes: int = count(
        "points",
        "Points without effect on events: older than the object's last, or than `silent_after` "
        "before the clock.",
        name="late_fixes",
    )
    repeated_fixes: int = count(
        "points",
        "Points without effect on events: of the same object and time as another.",
        name="repeated_fixes",
    )
    long_legs: int = count(
        "lines",
        "Lines between two points of an object that are longer than `cross`, so that nothing is "
        "known of the fences between.",
        name="long_legs",
    )
    fetched_bytes: int = count(
        "bytes",
        "Bytes of a remote checkpoint's files that tasks copied to their hosts.",
        name="fetched_bytes",
    )

    def __add__(self, other: Counts) -> Counts:
        mine, others = self.counts(), other.counts()
        return Counts(**{name: number + others[name] for name, number in mine.items()})

    def counts(self) -> dict[str, int]:
        """Return the numbers by field name; of a subclass, only the counts."""
        return {f.name: getattr(self, f.name) for f in fields(Counts)}

    def counts_text(self) -> str:
        """Return the numbers that are not zero, such as ``3 points, 2 results``."""
        numbers = [(getattr(self, f.name), f.metadata["text"]) for f in fields(Counts)]
        return ", ".join(f"{number:,} {text}" for number, text in numbers if number)


class Loan(NamedTuple):
    """Points of a partition that one executor matches for another, its owner."""

    lender: int
    borrower: int
    partition: int
    points: int


class HostUse(NamedTuple):
    """What the tasks of a batch did on one host.

    ``tasks`` match the points of executors; ``at_home`` is the number of those whose executor
    belongs to this host. ``mapped_bytes`` are the files of queries that they matched points with.
    """

    host: str
    tasks: int
    at_home: int
    mapped_bytes: int
    fetched_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress(Counts):
    """One batch: its counts, and what does not add up over batches.

    ``plan_version`` is that of the plan it ran with. ``points_by_partition`` has the partitions
    that received points, by id. ``task_s`` is the run time of each task that matched points, as
    Spark reports it, and ``work_s`` the learnt prices applied to what it did. ``loans`` are what
    was lent, the largest first. ``stages`` has the seconds of each stage, in their order. ``hosts``
    is empty where all executors share one.
    ``unread_rows`` is how many rows the sources had, after an earlier batch, that no batch had
    read; None where they do not say.
    """

    batch: int = number("gauge", "", "Batch number.", name="last_batch")
    seconds: float = number(
        "histogram", "seconds", "From a batch's first row to its commit.", name="batch_seconds"
    )
    plan_version: int
    busy_s: tuple[float, ...] = number(
        "counter",
        "seconds",
        "Run time of each executor's task. Where executors share a host: time of the tasks, "
        "divided among the owners of the points' partitions.",
        name="executor_busy_seconds",
        labels=("executor",),
    )
    points_by_executor: tuple[int, ...] = number(
        "counter",
        "points",
        "Points of each executor.",
        name="executor_points",
        labels=("executor",),
    )
    task_s: tuple[float, ...] = ()
    work_s: tuple[float, ...] = ()
    points_by_partition: Mapping[int, int] = field(default_factory=dict)
    loans: tuple[Loan, ...] = ()
    quarantined: Mapping[tuple[str, str], int] = number(
        "counter",
        "rows",
        "Rejected rows, by kind and reason.",
        name="quarantined",
        labels=("kind", "reason"),
        default_factory=dict,
    )
    stages: Mapping[str, float] = field(default_factory=dict)
    lag_s: float = number(
        "gauge",
        "seconds",
        "From the latest event time to the driver's clock when the batch ended; 0 without event "
        "times. It grows while the run falls behind its source.",
        name="lag_seconds",
        default=0.0,
    )
    latency: Mapping[tuple[str], int] = number(
        "counter",
        "points",
        "Points of Real-time Mode whose results were there `le` seconds after the point's time at "
        "most. Needs points with times.",
        name="latency_points",
        labels=("le",),
        default_factory=dict,
    )
    unread_rows: int | None = None
    window_points: int = number(
        "gauge",
        "points",
        "Recent points stored for snapshot queries. Approximate: a partition may use only some "
        "cells of a block.",
        name="kept_points",
        default=0,
    )
    window_bytes: int = number(
        "gauge", "bytes", "Bytes of the values of recent points.", name="kept_bytes", default=0
    )
    state_bytes: int = number(
        "gauge",
        "bytes",
        "Bytes of the files with the state of queries.",
        name="state_bytes",
        default=0,
    )
    objects: int = number(
        "gauge", "objects", "Objects that events keep track of.", name="objects", default=0
    )
    query_bytes: int = number(
        "gauge",
        "bytes",
        "Bytes of the files with queries.",
        name="query_bytes",
        default=0,
    )
    hosts: tuple[HostUse, ...] = ()

    @property
    def balance(self) -> float:
        """Balance efficiency: mean time of the tasks over the longest; 1 is perfect."""
        return _balance(self.task_s or self.busy_s)

    @property
    def work_balance(self) -> float:
        """The same for the expected times of the tasks, without the machine's noise."""
        return _balance(self.work_s or self.busy_s)

    @property
    def points_per_second(self) -> float:
        """Points over seconds."""
        return self.points / self.seconds if self.seconds else 0.0

    @property
    def on_its_host(self) -> float:
        """Share of the executors' tasks that ran on the host of their executor; 1 on one host."""
        tasks = sum(use.tasks for use in self.hosts)
        return sum(use.at_home for use in self.hosts) / tasks if tasks else 1.0

    def latency_s(self, share: float) -> float | None:
        """Return a bound of the latency that a share of the points had; None where unknown."""
        total = max(self.latency.values(), default=0)
        bounds = (float(most) for (most,), n in self.latency.items() if n >= share * total)
        return min(bounds) if total else None

    def latency_text(self) -> str:
        """Return bounds of the median and of most latencies, such as ``50% within 5 ms, ...``."""
        known = [(share, self.latency_s(share)) for share in (0.5, 0.99)]
        return ", ".join(f"{share:.0%} within {s * 1e3:,.0f} ms" for share, s in known if s)

    def hosts_text(self) -> str:
        """Return what each host did, such as ``10.0.0.2: 3 of 3 tasks at home, ...``."""
        return "; ".join(
            f"{use.host}: {use.at_home} of {use.tasks} tasks at home, "
            f"{use.mapped_bytes:,} bytes mapped, {use.fetched_bytes:,} fetched"
            for use in self.hosts
        )

    def summary(self) -> str:
        """Return points, time, rate and balance in one line."""
        return (
            f"{self.points:,} points in {self.seconds:.2f} s "
            f"({self.points_per_second:,.0f} points/s), balance {self.balance:.2f}"
            + (f", {self.lent / max(self.points, 1):.1%} of the points lent" if self.lent else "")
        )

    def loans_text(self, most: int = 5) -> str:
        """Return the largest loans, such as ``3 to 5: 1,200 points of p17``."""
        listed = [
            f"{loan.lender} to {loan.borrower}: {loan.points:,} points of p{loan.partition}"
            for loan in self.loans[:most]
        ]
        rest = len(self.loans) - len(listed)
        return "; ".join([*listed, *([f"{rest} more"] if rest > 0 else [])])


def _balance(seconds: Sequence[float]) -> float:
    most = max(seconds, default=0.0)
    return sum(seconds) / len(seconds) / most if most else 1.0


Observer = Callable[[Progress, Plan, Sequence[Decision]], None]
"""Called after each batch with its progress, the plan, and the decisions made after it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Status(Counts):
    """The state of a run, with its counts since this start.

    Attributes
    ----------
    active
        Whether it is running.
    policy, executors, partitions, round
        The policy, the size of its plan, and the current round.
    batches
        Batches done since this start.
    quarantined
        Rejected rows since this start, by kind and reason.
    last
        The last batch; None before the first.
    decisions
        The last decisions with their reasons.
    unread_rows
        How many rows the sources have that no batch has read; None where they do not say.
    spark
        Spark's own status of the streaming query, whose values ``status["message"]`` returns too.
    """

    active: bool
    policy: str
    executors: int
    partitions: int
    round: int
    batches: int
    quarantined: Mapping[tuple[str, str], int] = field(default_factory=dict)
    last: Progress | None = None
    decisions: tuple[Decision, ...] = ()
    unread_rows: int | None = None
    spark: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self) -> Status:
        """Return it: ``handle.status()`` is ``handle.status``, as a StreamingQuery has it."""
        return self

    def __getitem__(self, name: str) -> Any:
        """Return a value of Spark's own status."""
        return self.spark[name]

    def facts(self) -> list[tuple[str, str]]:
        """Return the status as names and texts, one for each line or table row."""
        state = "running" if self.active else "stopped"
        facts = [
            ("policy", f"{self.policy}, {state}"),
            (
                "plan",
                f"{self.executors:,} executors, {self.partitions:,} partitions, "
                f"round {self.round:,}",
            ),
            ("total", ", ".join(filter(None, [f"{self.batches:,} batches", self.counts_text()]))),
        ]
        if self.last:
            facts.append((f"batch {self.last.batch}", self.last.summary()))
            if self.last.lag_s:
                facts.append(("lag", f"{self.last.lag_s:,.1f} s behind the clock"))
            if self.last.latency:
                facts.append(("latency", self.last.latency_text()))
            if self.unread_rows is not None:
                facts.append(("unread", f"{self.unread_rows:,} rows of the sources"))
            if self.last.loans:
                facts.append(("lent", self.last.loans_text()))
            if self.last.hosts:
                facts.append(("hosts", self.last.hosts_text()))
        facts += [
            ("quarantined", f"{rows:,} x {kind}: {reason}")
            for (kind, reason), rows in sorted(self.quarantined.items())
        ]
        facts += [("decision", describe(decision)) for decision in self.decisions]
        return facts

    def __str__(self) -> str:
        return "\n".join(f"{name}: {text}" for name, text in self.facts())

    def _repr_html_(self) -> str:
        """Return the state as a table, for notebooks."""
        from sparkswarm.observe.html import status_html

        return status_html(self)


def count_unread(sources: Sequence[Any]) -> int | None:
    """Return how many rows the sources of a streaming query have that it has not read.

    Known where offsets are numbers by topic and partition, as those of Kafka are; None elsewhere.
    """
    total = None
    for source in sources:
        try:
            latest, read = (json.loads(text) for text in (source.latestOffset, source.endOffset))
            total = (total or 0) + sum(
                max(0, int(end) - int(read.get(topic, {}).get(partition, 0)))
                for topic, partitions in latest.items()
                for partition, end in partitions.items()
            )
        except (TypeError, ValueError, AttributeError):
            continue
    return total


class Totals:
    """Adds up the batches of a run."""

    def __init__(self) -> None:
        self.batches = 0
        self.counts = Counts()
        self.quarantined: Counter[tuple[str, str]] = Counter()
        self.last: Progress | None = None

    def add(self, progress: Progress) -> None:
        """Add a batch."""
        self.batches += 1
        self.counts += progress
        self.quarantined.update(progress.quarantined)
        self.last = progress

    def status_fields(self) -> dict[str, Any]:
        """Return the totals as fields of :class:`Status`."""
        return {
            **self.counts.counts(),
            "batches": self.batches,
            "quarantined": dict(self.quarantined),
            "last": self.last,
        }
