"""Contract: what a task gives back.

Rows go through Spark (:class:`OutputSchema`, :class:`AnswerSchema`); everything else comes back as
a :class:`TaskOutput` through an accumulator. A task that runs twice says the same twice: of the
outputs with the same key the driver keeps one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

import pyarrow as pa

from sparkswarm.observe.progress import Counts, Loan
from sparkswarm.policies.lending_prices import BlockSums
from sparkswarm.policies.policy import AgentReport, Collected
from sparkswarm.spark.columns import QUERY_ID
from sparkswarm.spark.tasks.packing import PACKED_SCHEMA, PackedRows, packed
from sparkswarm.store.blocks import MIN_TIME
from sparkswarm.store.files import FileRef
from sparkswarm.store.manifest import BaseGroup, BlockRef, ObjectsRef, SegmentRef, StateRef

VERSION = 1
"""Counts incompatible changes to :class:`TaskOutput`."""

PACKED_PREFIX = "__"
"""Prefix of the packed columns among results; no user's column begins so."""


class OutputKind(StrEnum):
    """What a batch can produce; only what is asked for is produced."""

    RESULTS = "results"
    STATE = "state"
    ANSWERS = "answers"
    POSITIONS = "positions"


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputSchema:
    """Columns of the rows that the tasks of an executor return.

    Results and packed partial state come from one task, because points are matched once.

    Attributes
    ----------
    results
        Columns of the results: the point's id, the columns that come back, and the ids of its
        queries, or the id of one of them. None where nobody reads results.
    include
        The columns that come back, by our names.
    id_type
        Type of the ids of queries.
    properties
        Whether columns of queries come back, as the last column of results.
    partial_state
        Whether additions to the state of queries are returned, packed, among the results.
    fixes
        Whether points with their matches are returned, packed, among the results.
    """

    results: pa.Schema | None = None
    include: tuple[str, ...] = ()
    id_type: pa.DataType = field(default_factory=pa.int64)
    properties: bool = False
    partial_state: bool = False
    fixes: bool = False

    @property
    def has_packed(self) -> bool:
        """Whether there are packed rows among the results."""
        return self.partial_state or self.fixes

    @property
    def pairs(self) -> bool:
        """Whether results have a row for each match, instead of one for each point."""
        return self.results is not None and QUERY_ID in self.results.names

    @property
    def result_types(self) -> list[pa.DataType]:
        """Types of the columns of results."""
        return [] if self.results is None else [field.type for field in self.results]

    @property
    def names(self) -> list[str]:
        """All columns that are returned."""
        names = list(self.results.names) if self.results is not None else []
        if self.has_packed:
            names += [f"{PACKED_PREFIX}{name}" for name in PACKED_SCHEMA.names]
        return names

    def result_rows(self, columns: list[pa.Array]) -> pa.RecordBatch:
        """Return results as rows."""
        blank = []
        if self.has_packed:
            blank = [pa.nulls(len(columns[0]), field.type) for field in PACKED_SCHEMA]
        return pa.RecordBatch.from_arrays([*columns, *blank], self.names)

    def packed_rows(self, some: Iterable[PackedRows], types: list[pa.DataType]) -> pa.RecordBatch:
        """Return packed rows; ``types`` are those of the task's results, to the time zone."""
        rows = packed(some)
        blank = [pa.nulls(rows.num_rows, kind) for kind in types]
        return pa.RecordBatch.from_arrays([*blank, *rows.columns], self.names)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerSchema:
    """Columns of the answers to snapshot queries."""

    names: tuple[str, ...]
    """All columns of an answer, by the user's names."""
    columns: pa.Schema
    """The columns of a point, as blocks have them."""
    id_type: pa.DataType = field(default_factory=pa.int64)
    """Type of the queries' ids."""


class TaskStage(StrEnum):
    """The kinds of task of a batch."""

    ROUTE = "route"
    MATCH = "match"
    OPERATIONS = "operations"
    CHECK = "check"
    SETTLE = "settle"
    BASES = "bases"
    EXECUTE = "execute"
    STATE = "state"
    EVENTS = "events"
    AGENT = "agent"


class WrittenBlock(NamedTuple):
    """A block of recent points that was written."""

    partition: int
    block: BlockRef | None
    """None where nothing was left of those it replaces."""
    replaces: tuple[int, ...] = ()
    """Positions, in the manifest, of the partition's blocks that it replaces."""


class FixesRef(NamedTuple):
    """Points in a file, with their matches, for the task that keeps their objects."""

    task: int
    file: FileRef
    offsets: tuple[int, ...]
    """Where the tables in the file begin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """Files that a task wrote, for the manifest; of changed states, all files."""

    segments: Mapping[int, tuple[SegmentRef, ...]] = field(default_factory=dict)
    states: Mapping[int, tuple[StateRef, ...]] = field(default_factory=dict)
    blocks: tuple[WrittenBlock, ...] = ()
    objects: Mapping[int, ObjectsRef | None] = field(default_factory=dict)
    """By bucket; None where no object is left."""
    fixes: tuple[FixesRef, ...] = ()
    """Points for the tasks that keep their objects, which last no longer than the batch."""
    nearest: FileRef | None = None
    """Candidates of standing points, before and after the batch, which lasts no longer."""
    bases: BaseGroup | None = None
    renumbered: Mapping[bytes, int] = field(default_factory=dict)
    """Names that have another number than their hash."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOutput:
    """What a task returns beside its rows.

    Attributes
    ----------
    batch, stage, task
        The key. ``task`` is the number of the executor or of the input partition.
    counts
        Numbers that are added up over tasks.
    written
        Files for the manifest.
    rejected
        Rows in quarantine, by (kind, reason).
    points, pieces
        Points that a task matched, and in how many pieces.
    points_by_partition
        Points of each partition that had some.
    busy_s
        Seconds of processor time.
    max_event_time
        Latest event time seen, in microseconds; MIN_TIME where none was.
    agent
        What the policy's agent tells its controller.
    loans
        What a route task lent.
    candidates, found
        By block of cells: queries in the cells of points that a task routed; checks of points that
        a task matched, results among them. None where nothing may be lent.
    collected
        Statistics of partitions that other executors own.
    result_files
        Names of the files of results that the task wrote.
    used
        On several hosts, the files with queries that its process has used in the batch.
    latency
        Number of points by latency, see :data:`~sparkswarm.observe.progress.LATENCY_S`; empty where
        it is not known.
    spark_task
        Spark's numbers of the stage and of the task in the application.
    """

    batch: int
    stage: TaskStage
    task: int
    counts: Counts = field(default_factory=Counts)
    written: Written = field(default_factory=Written)
    rejected: Mapping[tuple[str, str], int] = field(default_factory=dict)
    points: int = 0
    pieces: int = 0
    points_by_partition: Mapping[int, int] = field(default_factory=dict)
    busy_s: float = 0.0
    max_event_time: int = MIN_TIME
    agent: AgentReport | None = None
    loans: tuple[Loan, ...] = ()
    candidates: BlockSums | None = None
    found: BlockSums | None = None
    collected: Collected | None = None
    result_files: tuple[str, ...] = ()
    used: tuple[FileRef, ...] = ()
    latency: tuple[int, ...] = ()
    spark_task: tuple[int, int] | None = None
    version: int = VERSION

    @property
    def key(self) -> tuple[Any, ...]:
        """Outputs with the same key are the same output."""
        return self.batch, self.stage, self.task
