"""The context of a task: its input, and what a Python worker keeps between tasks.

Runs in tasks; a context is made once per batch and worker. Any worker may run any executor's task,
so everything here can be computed again: the input, the GlobalIndex of the plan, mapped files.
The only module of ``tasks/`` that imports pyspark.
"""

from __future__ import annotations

import copy
import gc
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, Generic, TypeVar, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark import Accumulator, TaskContext

from sparkswarm.apps.bound import BoundApplication
from sparkswarm.compiled import BoolArray
from sparkswarm.errors import PlanError
from sparkswarm.geometry import CellRect, QueryCells
from sparkswarm.index.build import build_index
from sparkswarm.index.match import match
from sparkswarm.observe.progress import Counts
from sparkswarm.policies import Blocks, PointRouter, make_policy
from sparkswarm.protocol.global_index import GlobalIndex
from sparkswarm.protocol.partition import Partition
from sparkswarm.protocol.plan import Plan
from sparkswarm.protocol.statistics import Statistics
from sparkswarm.spark.task_input import TaskInput, unpacked_input
from sparkswarm.spark.task_output import TaskOutput
from sparkswarm.spark.tasks.packing import ArrowTask
from sparkswarm.store.blocks import Block
from sparkswarm.store.cache import OpenDelta, QueryCache
from sparkswarm.store.compaction import base_queries, delta_queries
from sparkswarm.store.copies import take_fetched
from sparkswarm.store.deltas import changed_after
from sparkswarm.store.files import FileRef, Files, batch_prefix
from sparkswarm.store.formats import table_from_bytes, tables_to_bytes
from sparkswarm.store.manifest import BlockRef, ObjectsRef, SegmentRef, StateRef
from sparkswarm.store.parts import PartBlocks
from sparkswarm.store.prices import PriceRaster
from sparkswarm.store.quarantine import Quarantine
from sparkswarm.store.queries import Queries
from sparkswarm.store.records import RecordFiles
from sparkswarm.store.segments import Base, Segment
from sparkswarm.store.slots import mapped_slots

TaskFunction = Callable[["BatchContext", Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""The work of a task: rows in, rows out."""


_Value = TypeVar("_Value")


class shared_property(Generic[_Value]):  # noqa: N801 (reads as property does)
    """A property that is computed once per batch and worker, whichever task asks first."""

    def __init__(self, compute: Callable[[BatchContext], _Value]) -> None:
        self._compute = compute
        self.__doc__ = compute.__doc__

    def __get__(self, context: BatchContext, owner: type[BatchContext]) -> _Value:
        name = self._compute.__name__
        if name not in context.computed:
            context.computed[name] = self._compute(context)
        return cast(_Value, context.computed[name])


REWRITTEN = 0.5
"""Share of the cells that may change before a worker takes the index of the plan anew: what it
changes is not shared with the other processes of its host any more."""


def open_index(plan: Plan) -> GlobalIndex:
    """Return the index of a plan, its cells mapped with the other processes of the host."""
    return GlobalIndex(plan, mapped_slots(plan))


class BatchContext:
    """Everything that a task of one batch works with.

    Attributes
    ----------
    input
        What the driver gave.
    task, attempt
        Spark's number of the task in its stage, and of the attempt at it.
    spark_task
        Spark's numbers of the stage and of the task in the application.
    collect
        Sends an output to the driver.
    """

    def __init__(self, task_input: TaskInput, previous: BatchContext | None = None) -> None:
        self.input = task_input
        self.task, self.attempt = 0, 0
        self.spark_task: tuple[int, int] | None = None
        self.collect: Callable[[TaskOutput], None] = ignore
        self.epoch = task_input.epoch
        self.plan = task_input.epoch.plan
        self.grid = self.plan.grid
        same_run = previous is not None and previous.input.files == task_input.files
        self.index: GlobalIndex = (
            previous._index_for(self.plan) if previous and same_run else open_index(self.plan)
        )
        self.queries = QueryCache(task_input.files)
        self.computed: dict[Hashable, Any] = {}
        self._tables: dict[FileRef, pa.Buffer] = {}
        self._blocks: dict[tuple[FileRef, int], Block] = {}
        named = task_input.epoch.manifest.file_names()
        if previous and same_run:
            self.queries = previous.queries
            if previous.input.application != task_input.application:
                self.queries.drop_built()
            self._tables = {
                ref: kept for ref, kept in previous._tables.items() if ref.name in named
            }
            self._blocks = {
                key: kept for key, kept in previous._blocks.items() if key[0].name in named
            }
        self.queries.begin(task_input.epoch.batch, named)

    def _index_for(self, plan: Plan) -> GlobalIndex:
        """Return the index for the next context, which takes it over from this one."""
        if self.index.written > REWRITTEN * self.grid.cells.area:
            return open_index(plan)
        try:
            # The copies in earlier tasks have ended: a worker runs one task at a time.
            self.index.follow(plan)
        except PlanError:
            return open_index(plan)
        return self.index

    def for_task(
        self, task: int, attempt: int, collect: Callable[[TaskOutput], None]
    ) -> BatchContext:
        """Return this context for one task; caches are shared."""
        context = copy.copy(self)
        context.task, context.attempt, context.collect = task, attempt, collect
        return context

    @shared_property
    def router(self) -> PointRouter:
        """The policy's router for the plan of the batch."""
        return make_policy(self.input.config.policy).router(self.index, self.plan.executors)

    @shared_property
    def slot_of(self) -> npt.NDArray[np.int32]:
        """From a partition's id to its position in the plan."""
        # One more than there are ids: -1, the id of no partition, has the slot -1.
        slots = np.full(self.plan.next_id + 1, -1, dtype=np.int32)
        for slot, partition in enumerate(self.plan.partitions):
            slots[partition.id] = slot
        return slots

    @shared_property
    def blocks(self) -> Blocks:
        """The blocks of cells by which prices of points are learnt."""
        return Blocks.of(self.grid)

    def partition(self, partition_id: int) -> Partition:
        """Return a partition of the plan by its id."""
        partition: Partition = self.plan.partitions[self.slot_of[partition_id]]
        return partition

    def first_owner(self, partition: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
        """Return the first owner of partitions: it writes for them and keeps their state."""
        return self._first_owners[self.slot_of[partition]]

    @shared_property
    def _first_owners(self) -> npt.NDArray[np.int32]:
        return np.array([p.owners[0] for p in self.plan.partitions], dtype=np.int32)

    def file_name(self, folder: str, name: str) -> str:
        """Return a name that no other attempt at this batch uses; it begins with the batch."""
        prefix = batch_prefix(folder, self.epoch.batch)
        return f"{prefix}-{name}-{self.input.attempt}-{self.attempt}.arrow"

    def quarantine(self, name: str) -> Quarantine:
        """Return the quarantine of a task, by a name that the task has at each attempt."""
        files, batch = self.input.files, self.epoch.batch
        return Quarantine(files, batch, f"{name}-{self.input.attempt}")

    # -- queries ---------------------------------------------------------------------------

    def segment(self, ref: SegmentRef) -> Segment:
        """Return a segment: what was stored before the deltas."""
        return self.queries.segment(ref, self.epoch.manifest, self.grid)

    @shared_property
    def segment_numbers(self) -> npt.NDArray[np.uint16]:
        """A number for the segment of each cell; another segment may have the same."""
        numbers = np.zeros((self.grid.rows, self.grid.columns), np.uint16)
        segments = chain.from_iterable(self.epoch.manifest.partitions.values())
        for number, segment in enumerate(segments):
            numbers[segment.cells.slices] = number % 2**16
        return numbers

    def base_ref(self, partition_id: int, number: int) -> FileRef | None:
        """Return the file with the base of a segment."""
        return self.epoch.manifest.partitions[partition_id][number].base

    @shared_property
    def part_blocks(self) -> PartBlocks:
        """The blocks by which deltas are divided into parts."""
        return PartBlocks(self.grid)

    def deltas(self, blocks: BoolArray) -> list[OpenDelta]:
        """Return what operations changed since, at least in some blocks, oldest first."""
        return self.queries.deltas(self.epoch.manifest, blocks)

    def deltas_over(self, cells: Iterable[CellRect]) -> list[OpenDelta]:
        """Return what operations changed since, at least in some cells, oldest first."""
        return self.deltas(self.part_blocks.over(cells))

    def queries_in_deltas(
        self, partitions: Iterable[Partition]
    ) -> tuple[Queries, npt.NDArray[np.int64]]:
        """Return the queries in deltas with each partition that they overlap, by partition.

        At least those of the given partitions.
        """
        opened = self.deltas_over(p.cells for p in partitions)
        key = "queries_in_deltas", tuple(one.ref for one in opened)
        if key not in self.computed:
            queries = delta_queries(opened, self.grid.cells, self.grid)
            start, partition = self.index.overlaps(queries.cells(self.grid))
            rows = np.repeat(np.arange(len(queries.ids)), np.diff(start))
            order = np.argsort(partition, kind="stable")
            self.computed[key] = queries.take(rows[order]), partition[order]
        found: tuple[Queries, npt.NDArray[np.int64]] = self.computed[key]
        return found

    def built(self, application: BoundApplication, ref: FileRef | None, stored: Base) -> Any:
        """Return what an application built of the queries of a base or a delta."""
        return self.queries.built(
            ref, stored, lambda queries: application.build(queries, self.grid)
        )

    def queries_in(self, cells: CellRect) -> QueryCells:
        """Return the queries in some cells, clipped to them."""
        manifest, over = self.epoch.manifest, [p.id for p in self.index.overlap(cells)]
        parts = [
            base_queries(manifest, self.queries, over, cells, self.grid),
            delta_queries(self.deltas_over([cells]), cells, self.grid),
        ]
        queries = Queries.concat([part.rectangles() for part in parts])
        return queries.cells(self.grid).clipped(cells)

    @shared_property
    def price_raster(self) -> PriceRaster:
        """The number of queries that overlap each cell of a raster."""
        return self.queries.prices(self.epoch.manifest, self.grid)

    # -- state and blocks ------------------------------------------------------------------

    def write_tables(
        self, folder: str, name: str, some: Sequence[pa.Table]
    ) -> list[tuple[FileRef, int]]:
        """Write tables, if there are any, into one file; return where each of them is."""
        if not some:
            return []
        content, offsets = tables_to_bytes(some)
        rows = sum(table.num_rows for table in some)
        ref = self.input.files.write(self.file_name(folder, name), content, rows)
        return [(ref, offset) for offset in offsets]

    def block(self, kept: BlockRef) -> Block:
        """Return a block of recent points."""
        key = kept.file, kept.offset
        if key not in self._blocks:
            self._blocks[key] = Block.from_bytes(self._content(kept.file), kept.offset, kept.meta)
        return self._blocks[key]

    def _content(self, ref: FileRef) -> pa.Buffer:
        if ref not in self._tables:
            self._tables[ref] = self.input.files.mmap(ref, self.epoch.batch)
        return self._tables[ref]

    def states(self, partition_id: int) -> list[pa.Table]:
        """Return the state of the queries at home in a partition."""
        tables = []
        for ref in self.epoch.manifest.states.get(partition_id, ()):
            table = self.stored_state(ref)
            counts = self.rows_at_home(table, ref.cells) & ~self.rows_changed(table, ref)
            tables.append(table.filter(pa.array(counts)))
        return tables

    def stored_state(self, ref: StateRef) -> pa.Table:
        """Return a table of state as it was written."""
        return table_from_bytes(self._content(ref.file), ref.offset)

    def stored_objects(self, ref: ObjectsRef) -> pa.Table:
        """Return what is known of the objects of a bucket."""
        return table_from_bytes(self._content(ref.file), ref.offset)

    def rows_changed(self, state: pa.Table, ref: StateRef) -> npt.NDArray[np.bool_]:
        """Return which rows of state are of queries that changed after it was written."""
        changed = self.queries.changed_ids(self.epoch.manifest)
        return changed_after(state.column("id").to_numpy(), ref.batch, changed)

    def rows_at_home(self, state: pa.Table, cells: CellRect) -> npt.NDArray[np.bool_]:
        """Return which rows of state are of queries at home in some cells."""
        row, column = np.divmod(state.column("home").to_numpy(), self.grid.columns)
        return cells.contains_cells(column, row)

    def home_partitions(self, home: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the partitions of home cells."""
        row, column = np.divmod(home, self.grid.columns)
        return self.index.partition_of(column, row)

    @shared_property
    def earliest_window_start(self) -> int:
        """A time before which no point is in the window, nor will be."""
        if self.input.window is None:
            raise ValueError("no points are kept")
        blocks = [block for some in self.epoch.manifest.blocks.values() for block in some]
        return self.input.window.start(self.input.max_event_time, blocks).at_least


def arrow_task(
    function: TaskFunction, task_input: bytes, outputs: Accumulator[list[TaskOutput]]
) -> ArrowTask:
    """Return a task function as ``mapInArrow`` takes it; ``task_input`` is packed."""

    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        spark = TaskContext.get()
        number = spark.partitionId() if spark else 0
        attempt = spark.taskAttemptId() if spark else 0

        def collect(output: TaskOutput) -> None:
            # A function: an object of the driver's would be sent with the task.
            fetched = Counts(fetched_bytes=take_fetched())
            outputs.add([replace(output, counts=output.counts + fetched)])

        context = open_context(task_input).for_task(number, attempt, collect)
        if spark:
            context.spark_task = (spark.stageId(), attempt)
        yield from function(context, batches)

    return task


_Follower = TypeVar("_Follower")


def endless_task(
    function: Callable[[_Follower, int, Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    follow: Callable[[int, int], _Follower],
) -> ArrowTask:
    """Return a function of a task that does not end with a batch, as ``mapInArrow`` takes it.

    It is given what follows the commits, Spark's batch number, and rows. ``follow`` makes the
    first of Spark's numbers of the task in its stage and of the attempt.
    """

    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        spark = TaskContext.get()
        number = spark.partitionId() if spark else 0
        attempt = spark.taskAttemptId() if spark else 0
        trigger = spark.getLocalProperty(BATCH_PROPERTY) if spark else None
        yield from function(follow(number, attempt), int(trigger or 0), batches)

    return task


KEPT_RUNS = 5
"""Number of runs whose files a worker keeps open: those that had a task last. As many as there are
policies to compare."""

COLLECT_EVERY = 100
"""Number of batches after which a worker looks for garbage in all that it has."""

_contexts: dict[str, tuple[bytes, BatchContext]] = {}
_records: dict[str, RecordFiles] = {}
_opened = 0

BATCH_PROPERTY = "streaming.sql.batchId"
"""Spark's local property with the number of the batch."""


def records_of(files: Files) -> RecordFiles:
    """Return the records of a run that this worker has read."""
    return _records.setdefault(files.root, RecordFiles(files))


def open_context(task_input: bytes) -> BatchContext:
    """Return the context for a packed input; one is kept for each of the last runs."""
    warm_up()
    for root, (packed, context) in _contexts.items():
        if packed == task_input:
            _contexts[root] = _contexts.pop(root)
            return context
    # What is built now stays: to look for garbage meanwhile would double the time.
    gc.disable()
    try:
        opened = unpacked_input(task_input, records_of)
        context = BatchContext(opened, take_context(opened.files))
    finally:
        gc.enable()
    keep_context(context, task_input)
    return context


def take_context(files: Files) -> BatchContext | None:
    """Take the last context of a run, so that the next one can go on from it; None without one."""
    return _contexts.pop(files.root, (b"", None))[1]


def keep_context(context: BatchContext, task_input: bytes = b"") -> None:
    """Keep the last context of a run, and those of the runs that had a task last."""
    root = context.input.files.root
    _contexts.pop(root, None)
    _contexts[root] = task_input, context
    for ended in list(_contexts)[:-KEPT_RUNS]:
        del _contexts[ended]
        _records.pop(ended, None)
    _freeze()


def _freeze() -> None:
    """Keep what lives longer than a task out of the collections of garbage after it.

    Spark collects after every task. Modules and plans are not garbage, and to look through them
    takes longer than a small task does: half a second with 100,000 partitions.
    """
    global _opened
    if _opened % COLLECT_EVERY == 0:
        gc.unfreeze()
        gc.collect()
    gc.freeze()
    _opened += 1


def warm_up() -> None:
    """Run the compiled kernels in a new worker, so that no first batch looks like more work."""
    if _opened:
        return
    rows = np.zeros(1, np.int64)
    index = build_index(rows, np.zeros((1, 4)), None, (0.0, 0.0, 1.0, 1.0))
    match(np.zeros(1), np.zeros(1), None, rows, index)
    cell = rows.astype(np.int32)
    Statistics(CellRect(0, 0, 1, 1)).collect_points(cell, cell, np.zeros(1))


def ignore(output: TaskOutput) -> None:
    """Take an output that nobody asked for, outside Spark."""
