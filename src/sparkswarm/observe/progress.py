"""Numbers of a run: counts, the progress of a batch, the status of the whole run.

Owns :class:`Counts`, from whose fields everything else derives: :class:`Progress`,
:class:`Status`, the journal, the metrics and their documentation. To count something new, add a
field there and count it in the task that sees it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from sparkswarm.observe.describe import describe
from sparkswarm.protocol.messages import Decision
from sparkswarm.protocol.plan import Plan


def count(unit: str, meaning: str, *, label: str) -> int:
    """Declare a field of :class:`Counts`.

    ``label`` is the plural that follows the number in texts; it also names the metric.
    """
    return field(default=0, metadata={"unit": unit, "meaning": meaning, "label": label})


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Numbers that add up over tasks, batches and a run."""

    points: int = count("points", "Valid points.", label="points")
    matches: int = count(
        "pairs", "Pairs of a point and a query that the point matches.", label="results"
    )
    checks: int = count(
        "candidates", "Candidate queries that points were compared with.", label="checks"
    )
    operations: int = count(
        "operations", "Operations on queries that took effect.", label="query operations"
    )
    snapshot_queries: int = count(
        "queries", "Snapshot queries of the stream.", label="snapshot queries"
    )
    late: int = count(
        "points",
        "Points that came too late for a window, counted once for each query. If they are many, "
        "use a longer watermark delay.",
        label="late points",
    )

    def __add__(self, other: Counts) -> Counts:
        mine, others = self.counts(), other.counts()
        return Counts(**{name: number + others[name] for name, number in mine.items()})

    def counts(self) -> dict[str, int]:
        """Return the numbers by field name; of a subclass, only the counts."""
        return {f.name: getattr(self, f.name) for f in fields(Counts)}

    def counts_text(self) -> str:
        """Return the numbers that are not zero with their labels, separated by commas."""
        numbers = [(getattr(self, f.name), f.metadata["label"]) for f in fields(Counts)]
        return ", ".join(f"{number:,} {label}" for number, label in numbers if number)


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress(Counts):
    """One batch: its counts, and what does not add up over batches.

    Attributes
    ----------
    batch
        Batch number.
    seconds
        From the batch's first row to its commit.
    plan_version
        Version of the plan it ran with.
    busy_s, points_by_executor
        Seconds of work and points of each executor.
    points_by_partition
        Points of each partition that had any, by its id.
    quarantined
        Rejected rows by kind and reason.
    stages
        Seconds of each stage of the batch, in the order in which they ran.
    window_points, window_bytes
        Recent points stored after the batch, and the bytes of their values. Approximate where
        a partition uses only some cells of a block.
    state_bytes
        Bytes of the files with the state of queries after the batch.
    """

    batch: int
    seconds: float
    plan_version: int
    busy_s: tuple[float, ...]
    points_by_executor: tuple[int, ...]
    points_by_partition: Mapping[int, int] = field(default_factory=dict)
    quarantined: Mapping[tuple[str, str], int] = field(default_factory=dict)
    stages: Mapping[str, float] = field(default_factory=dict)
    window_points: int = 0
    window_bytes: int = 0
    state_bytes: int = 0

    @property
    def balance(self) -> float:
        """Balance efficiency: mean work of the executors over the largest; 1 is perfect."""
        most = max(self.busy_s, default=0.0)
        return sum(self.busy_s) / len(self.busy_s) / most if most else 1.0

    @property
    def points_per_second(self) -> float:
        """Points over seconds."""
        return self.points / self.seconds if self.seconds else 0.0

    def summary(self) -> str:
        """Return points, time, rate and balance in one line."""
        return (
            f"{self.points:,} points in {self.seconds:.2f} s "
            f"({self.points_per_second:,.0f} points/s), balance {self.balance:.2f}"
        )


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

    def so_far(self) -> dict[str, Any]:
        """Return the totals as arguments of :class:`Status`."""
        return {
            **self.counts.counts(),
            "batches": self.batches,
            "quarantined": dict(self.quarantined),
            "last": self.last,
        }
