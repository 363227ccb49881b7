"""What a run says about itself: a batch's progress, and the state of the whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sparkswarm.protocol.messages import Logged
from sparkswarm.protocol.plan import Plan
from sparkswarm.spark.task_input import (
    ExecutorReport,
    LedgerReport,
    Report,
    RouteReport,
    StateReport,
)
from sparkswarm.store.epochs import Epoch
from sparkswarm.store.manifest import Manifest


@dataclass(frozen=True, slots=True)
class Progress:
    """What happened in one batch.

    Attributes
    ----------
    batch
        Its number.
    seconds
        From its first row to its commit.
    points, matches, checks
        Good points, pairs of a point and a query that match, and candidates checked.
    operations
        Operations on queries that took effect.
    quarantined
        Bad rows by kind and reason.
    plan
        The version of its plan.
    busy
        Seconds of work of each executor.
    received
        Points of each executor.
    loads
        Points of each partition that had some, by its id.
    asks
        Snapshot queries answered.
    late
        Points that came too late for a window, counted once for each query.
    stages
        Seconds of the parts of the batch, one after another.
    kept_points, kept_bytes
        Recent points kept after it, and the bytes of their values; about, where a block counts for
        some of its cells only.
    state_bytes
        Bytes of the files with the state of queries after it.
    """

    batch: int
    seconds: float
    points: int
    matches: int
    checks: int
    operations: int
    quarantined: Mapping[tuple[str, str], int]
    plan: int
    busy: tuple[float, ...]
    received: tuple[int, ...]
    loads: Mapping[int, int] = field(default_factory=dict)
    asks: int = 0
    late: int = 0
    stages: Mapping[str, float] = field(default_factory=dict)
    kept_points: int = 0
    kept_bytes: int = 0
    state_bytes: int = 0

    @classmethod
    def of(
        cls, epoch: Epoch, reports: Sequence[Report], stages: Mapping[str, float], after: Manifest
    ) -> Progress:
        """Add up the reports of a batch, and what it left."""
        executed = [report for report in reports if isinstance(report, ExecutorReport)]
        routed = [report for report in reports if isinstance(report, RouteReport)]
        refused = sum(sum(r.faults.values()) for r in reports if isinstance(r, LedgerReport))
        faults: Counter[tuple[str, str]] = Counter()
        for report in reports:
            if isinstance(report, RouteReport | LedgerReport):
                faults.update(report.faults)
        loads: Counter[int] = Counter()
        for done in executed:
            loads.update(done.loads)
        pieces = [kept.piece for some in after.blocks.values() for kept in some]
        by = {report.executor: report for report in executed}
        of_each = [by.get(m) for m in range(epoch.plan.executors)]
        return cls(
            epoch.batch,
            sum(stages.values()),
            sum(report.points for report in routed),
            sum(report.matches for report in executed),
            sum(report.checks for report in executed),
            sum(report.operations for report in routed) - refused,
            dict(faults),
            epoch.plan.version,
            tuple(report.busy if report else 0.0 for report in of_each),
            tuple(report.points if report else 0 for report in of_each),
            dict(loads),
            sum(report.asks for report in routed),
            sum(report.late for report in reports if isinstance(report, StateReport)),
            dict(stages),
            sum(piece.points for piece in pieces),
            sum(piece.meta.size * piece.points // piece.meta.rows for piece in pieces),
            sum(file.size for file in {s.file for some in after.states.values() for s in some}),
        )

    @property
    def balance(self) -> float:
        """Balance efficiency: mean work over the most loaded executor's work, 1 is perfect."""
        most = max(self.busy, default=0.0)
        return sum(self.busy) / len(self.busy) / most if most else 1.0


Observer = Callable[[Progress, Plan, Sequence[Logged]], None]
"""Hears of every batch that is done: its progress, its plan, and what was decided after it."""


@dataclass(frozen=True, slots=True)
class Status:
    """The state of a run.

    Attributes
    ----------
    active
        Whether it is running.
    policy, executors, round, partitions
        Who divides the work, among how many, in which round, into how many partitions.
    batches, points, matches, operations, asks, late
        So far, since this start.
    quarantined
        Bad rows so far by kind and reason.
    last
        The last batch.
    decisions
        The last decisions with their reasons.
    """

    active: bool
    policy: str
    executors: int
    round: int
    partitions: int
    batches: int
    points: int
    matches: int
    operations: int
    quarantined: Mapping[tuple[str, str], int]
    last: Progress | None
    decisions: tuple[Logged, ...] = field(default=())
    asks: int = 0
    late: int = 0

    def __str__(self) -> str:
        state = "running" if self.active else "stopped"
        lines = [
            f"{self.policy}, {state}: {self.executors} executors, {self.partitions} partitions, "
            f"round {self.round}",
            f"{self.batches} batches, {self.points:,} points, {self.matches:,} results, "
            f"{self.operations:,} query operations",
        ]
        if self.asks:
            lines.append(f"{self.asks:,} snapshot queries answered")
        if self.late:
            lines.append(f"{self.late:,} points too late for their windows")
        if self.last:
            rate = self.last.points / self.last.seconds if self.last.seconds else 0.0
            lines.append(
                f"batch {self.last.batch}: {self.last.points:,} points in {self.last.seconds:.2f} s"
                f" ({rate:,.0f} points/s), balance {self.last.balance:.2f}"
            )
        lines += [
            f"quarantined: {count:,} x {kind}: {reason}"
            for (kind, reason), count in sorted(self.quarantined.items())
        ]
        return "\n".join(lines + [str(decision) for decision in self.decisions])

    def _repr_html_(self) -> str:
        """Return the state as a table, for notebooks."""
        from sparkswarm.observe.html import status_html

        return status_html(self)


class Totals:
    """Adds up the batches of a run."""

    def __init__(self) -> None:
        self.sums: Counter[str] = Counter()
        self.quarantined: Counter[tuple[str, str]] = Counter()
        self.last: Progress | None = None

    def add(self, progress: Progress) -> None:
        """Count a batch."""
        self.sums.update(
            batches=1,
            points=progress.points,
            matches=progress.matches,
            operations=progress.operations,
            asks=progress.asks,
            late=progress.late,
        )
        self.quarantined.update(progress.quarantined)
        self.last = progress

    def so_far(self) -> dict[str, Any]:
        """Return the sums by name."""
        names = ("batches", "points", "matches", "operations", "asks", "late")
        return {name: self.sums[name] for name in names} | {"quarantined": dict(self.quarantined)}
