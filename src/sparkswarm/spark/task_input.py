"""What the driver tells the tasks of a batch, and what they tell the driver.

Owns two messages: the *briefing*, which travels with the code of every task, and the *report*,
which comes back through an accumulator. Queries and statistics are in neither: tasks find them
in files. Reports of tasks that ran twice are the same, so the driver keeps one of each.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from pyspark import Accumulator, AccumulatorParam, SparkContext

from sparkswarm.apps.bound import BoundApplication
from sparkswarm.config import SwarmConfig
from sparkswarm.protocol.messages import Message
from sparkswarm.protocol.partition import PlanChange
from sparkswarm.store.epochs import Epoch
from sparkswarm.store.files import FileRef, Files
from sparkswarm.store.manifest import BlockRef, StateRef
from sparkswarm.window.windows import Window


@dataclass(frozen=True, slots=True)
class Control:
    """The control's part of a briefing.

    Attributes
    ----------
    prices
        What a point and a check cost, in seconds, learnt from all executors together: on
        Spark any worker may do any executor's work.
    closes
        The round that ends with this batch; None where it goes on.
    length
        How long that round was, as a multiple of the usual.
    changes
        How the plan changed since the batch before.
    messages
        What the Coordinator says to each executor.
    parcels
        Files with statistics of partitions that executors take over with ``changes``.
    states
        The files in which executors left what they know.
    """

    prices: tuple[float, float]
    closes: int | None = None
    length: float = 1.0
    changes: tuple[PlanChange, ...] = ()
    messages: Mapping[int, tuple[Message, ...]] = field(default_factory=dict)
    parcels: Mapping[int, tuple[FileRef, ...]] = field(default_factory=dict)
    states: Mapping[int, FileRef] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Briefing:
    """All that a task must know about its batch.

    Attributes
    ----------
    files
        Where the checkpoint is.
    attempt
        Makes the names of files unique to this attempt at the batch.
    epoch
        What fixes the batch; its manifest includes the batch's own operations as soon as
        they are stored.
    purge_before
        Queries that expired before this time need not be kept.
    config
        The settings.
    control
        What the Coordinator wants; None where the policy has none.
    news
        Files with the queries that this batch added and removed, for the statistics.
    application
        What decides beyond rectangles; None where nothing does.
    window
        How long points are kept; None where they are not.
    now
        The latest time seen in earlier batches.
    answers
        Whether somebody takes the answers to snapshot queries.
    """

    files: Files
    attempt: str
    epoch: Epoch
    purge_before: int
    config: SwarmConfig
    control: Control | None = None
    news: tuple[FileRef, ...] = ()
    application: BoundApplication | None = None
    window: Window | None = None
    now: int = 0
    answers: bool = False


@dataclass(frozen=True, slots=True)
class RouteReport:
    """What one task of the routing read.

    Attributes
    ----------
    batch, task
        Which it was.
    points, operations, asks
        Good rows: points, operations on continuous queries, and snapshot queries.
    faults
        Bad rows by kind and reason.
    """

    batch: int
    task: int
    points: int
    operations: int
    asks: int
    faults: Mapping[tuple[str, str], int]

    @property
    def key(self) -> tuple[str, int]:
        """What it is the report of."""
        return "route", self.task


@dataclass(frozen=True, slots=True)
class LedgerReport:
    """What the task of one bucket refused.

    Attributes
    ----------
    batch, bucket
        Which it was.
    faults
        Operations that make no sense for what is registered, by kind and reason.
    """

    batch: int
    bucket: int
    faults: Mapping[tuple[str, str], int]

    @property
    def key(self) -> tuple[str, int]:
        """What it is the report of."""
        return "ledger", self.bucket


class WrittenBlock(NamedTuple):
    """A block of recent points that was written.

    Attributes
    ----------
    partition
        Whose it is.
    block
        The block; None where nothing was left of those it replaces.
    replaces
        Places, in the manifest, of the partition's blocks that it stands for.
    """

    partition: int
    block: BlockRef | None
    replaces: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ExecutorReport:
    """What one executor did in a batch.

    Attributes
    ----------
    batch, executor
        Which it was.
    points, matches, checks
        Points received, pairs that match, and candidates that they were checked against.
    busy
        Seconds of work, without waiting.
    clock
        The latest event time seen, in microseconds.
    messages
        What its load-balancing unit says to the Coordinator.
    parcels
        For each executor to which it gives partitions, a file with their statistics.
    state
        Where it left what it knows.
    loads
        Points of each partition that had some.
    blocks
        The blocks of recent points that it wrote.
    """

    batch: int
    executor: int
    points: int
    matches: int
    checks: int
    busy: float
    clock: int
    messages: tuple[Message, ...] = ()
    parcels: Mapping[int, FileRef] = field(default_factory=dict)
    state: FileRef | None = None
    loads: Mapping[int, int] = field(default_factory=dict)
    blocks: tuple[WrittenBlock, ...] = ()

    @property
    def key(self) -> tuple[str, int]:
        """What it is the report of."""
        return "execute", self.executor


@dataclass(frozen=True, slots=True)
class StateReport:
    """What became of the state that one executor is in charge of.

    Attributes
    ----------
    batch, executor
        Which it was.
    states
        What there is now of each partition that changed.
    late
        Points that came too late, counted once for each query.
    """

    batch: int
    executor: int
    states: Mapping[int, tuple[StateRef, ...]]
    late: int

    @property
    def key(self) -> tuple[str, int]:
        """What it is the report of."""
        return "state", self.executor


def batch_prefix(folder: str, batch: int) -> str:
    """Return how the names of a batch's files begin; those of earlier batches sort before it."""
    return f"{folder}/{batch + 1:012d}"


Report = RouteReport | LedgerReport | ExecutorReport | StateReport


class _Appended(AccumulatorParam[list[Report]]):
    def zero(self, value: list[Report]) -> list[Report]:
        return []

    def addInPlace(self, value1: list[Report], value2: list[Report]) -> list[Report]:  # noqa: N802
        value1.extend(value2)
        return value1


class Reports:
    """The way of the reports from the tasks to the driver."""

    def __init__(self, context: SparkContext) -> None:
        self.accumulator: Accumulator[list[Report]] = context.accumulator([], _Appended())

    def so_far(self, batch: int) -> list[Report]:
        """Return the reports of a batch, one of each."""
        return list({r.key: r for r in self.accumulator.value if r.batch == batch}.values())

    def of(self, batch: int) -> list[Report]:
        """Return the reports of a batch, one of each, and forget all that came so far."""
        reports = self.so_far(batch)
        self.accumulator.value = []
        return reports
