"""Events: objects go to the tasks that keep them, and are advanced once a batch.

The tasks that match points send all of them on, with their matches, by the bucket of the object:
through Spark's shuffle (``fix_rows``), or in files where all tasks share a host (``FixFiles``). A
task of the batch keeps some of the buckets and advances their objects (``events_task``); it runs
also where no point came, because time passes and fences change. What it knows of objects is in
files that the manifest names. A task that runs again writes other files with the same content and
reports the same events.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from sparkswarm.apps.events.advance import FenceChanges, advance
from sparkswarm.apps.events.nearest import (
    best,
    both_sides,
    candidates,
    changed_answers,
    joined_sides,
)
from sparkswarm.apps.events.objects import (
    BUCKETS,
    FENCES,
    TIME,
    UNTIL,
    BoundEvents,
    buckets_of,
    fix_schema,
    object_schema,
)
from sparkswarm.apps.events.walk import Ignored
from sparkswarm.compiled import LongArray
from sparkswarm.errors import ConfigError
from sparkswarm.index.layout import NEVER
from sparkswarm.index.legs import Legs
from sparkswarm.observe.progress import Counts
from sparkswarm.spark.task_output import FixesRef, TaskOutput, TaskStage, Written
from sparkswarm.spark.tasks.crossing import crossings
from sparkswarm.spark.tasks.lots import labels_of
from sparkswarm.spark.tasks.packing import RowKind, group_rows, pack_rows
from sparkswarm.spark.tasks.results import SLICE_ROWS
from sparkswarm.store.files import FileRef, Folder
from sparkswarm.store.formats import table_from_bytes, tables_to_bytes
from sparkswarm.store.manifest import ObjectsRef
from sparkswarm.store.queries import ID

if TYPE_CHECKING:
    from sparkswarm.spark.task_input import TaskInput
    from sparkswarm.spark.tasks.context import BatchContext
    from sparkswarm.spark.tasks.lots import Lot


def event_tasks(executors: int) -> int:
    """Return the number of tasks that keep objects; bucket b is kept by task b modulo it."""
    return min(executors, BUCKETS)


def fix_rows(ctx: BatchContext, lot: Lot, results: pa.RecordBatch | None) -> pa.RecordBatch:
    """Return the points of a lot, packed for the tasks that keep their objects.

    ``results`` are those that the task returned of the lot, whose types count.
    """
    schema = ctx.input.output_schema
    types = schema.result_types
    if results is not None:
        types = results.schema.types[: len(types)]
    some = [(RowKind.FIXES, task, pack_rows(rows)) for task, rows in _fixes_by_task(ctx, lot)]
    return schema.packed_rows(some, types)


def _fixes_by_task(ctx: BatchContext, lot: Lot) -> Iterator[tuple[int, pa.Table]]:
    """Yield the points of a lot by the task that keeps their objects, bucket by bucket."""
    events, tasks = _events(ctx.input), event_tasks(ctx.plan.executors)
    buckets, ends = _buckets_by_task(tasks)
    objects = lot.points.column(ID).combine_chunks().take(pa.array(lot.rows))
    order, starts = group_rows(np.argsort(buckets)[buckets_of(objects)].astype(np.int32), BUCKETS)
    fixes = _typed(lot.fixes(labels_of(events), order), events).combine_chunks()
    for task, (first, last) in enumerate(itertools.pairwise([0, *ends])):
        here = starts[first : last + 1]
        if here[0] < here[-1]:
            rows = fixes.slice(here[0], here[-1] - here[0])
            yield task, rows.replace_schema_metadata({_STARTS: (here - here[0]).tobytes()})


_STARTS = b"starts"
"""Where the fixes of each bucket of a task begin in a table, and where the last end."""

WAITING_BYTES = 64_000_000
"""Bytes of fixes that a task gathers before it writes them."""


class FixFiles:
    """Writes the points of one task for the tasks that keep their objects, a file for each.

    A row that goes through Spark is copied many times; all tasks share a host, and read the files.
    """

    def __init__(self, ctx: BatchContext, name: str) -> None:
        self._ctx, self._name = ctx, name
        self._waiting: dict[int, list[pa.Table]] = {}
        self._bytes = 0
        self._written: list[FixesRef] = []

    def add(self, lot: Lot) -> None:
        """Take the points of a lot."""
        for task, rows in _fixes_by_task(self._ctx, lot):
            self._waiting.setdefault(task, []).append(rows)
            self._bytes += rows.nbytes
        if self._bytes >= WAITING_BYTES:
            self._write()

    def _write(self) -> None:
        for task, tables in self._waiting.items():
            content, offsets = tables_to_bytes(tables)
            name = f"fixes{self._name}-{task}-{len(self._written)}"
            name = self._ctx.file_name(Folder.SOFT, name)
            file = self._ctx.input.files.write(name, content, durable=False)
            self._written.append(FixesRef(task, file, tuple(offsets)))
        self._waiting, self._bytes = {}, 0

    def close(self) -> tuple[FixesRef, ...]:
        """Write the rest; return all files."""
        self._write()
        return tuple(self._written)


def _task_buckets(task: int, tasks: int) -> range:
    """Return the buckets that a task keeps."""
    return range(task, BUCKETS, tasks)


def _buckets_by_task(tasks: int) -> tuple[LongArray, list[int]]:
    """Return all buckets, those of a task together, and where those of each task end."""
    kept = [_task_buckets(task, tasks) for task in range(tasks)]
    return np.concatenate(kept), np.cumsum([len(some) for some in kept]).tolist()


def _fixes_by_bucket(tables: Iterable[pa.Table], buckets: range) -> dict[int, pa.Table]:
    """Return the fixes of a task by bucket; nothing is copied."""
    found: dict[int, list[pa.Table]] = {}
    for table in tables:
        starts = np.frombuffer(table.schema.metadata[_STARTS], np.int64).tolist()
        rows = table.replace_schema_metadata()
        for bucket, (low, high) in zip(buckets, itertools.pairwise(starts), strict=True):
            if low < high:
                found.setdefault(bucket, []).append(rows.slice(low, high - low))
    return {bucket: pa.concat_tables(some) for bucket, some in found.items()}


def events_task(ctx: BatchContext, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Advance the objects that one task keeps; yield their events."""
    task, fixes = -1, []
    for batch in batches:
        if batch.num_rows:
            task = batch.column("target")[0].as_py()
        packed = [value.as_buffer() for value in batch.column("rows").drop_null()]
        fixes += [pa.ipc.open_stream(content).read_all() for content in packed]
    if task < 0:
        return
    for ref in ctx.input.fixes:
        if ref.task == task:
            content = ctx.input.files.mmap(ref.file)
            fixes += [table_from_bytes(content, offset) for offset in ref.offsets]
    work = ObjectsWork(ctx, task)
    yield from work.advance(fixes)
    ctx.collect(work.close())


class ObjectsWork:
    """What one task does with its objects in one batch: fixes in, events out."""

    def __init__(self, ctx: BatchContext, task: int) -> None:
        self._ctx = ctx
        self._task = task
        self._buckets = _task_buckets(task, event_tasks(ctx.plan.executors))
        self._events = _events(ctx.input)
        self._changes = _fence_changes(ctx)
        self._after: dict[int, pa.Table] = {}
        self._told = 0
        self._walkers: list[pa.Array] = []
        self._legs: list[Legs] = []
        self._ignored = Ignored()

    def advance(self, given: Iterable[pa.Table]) -> Iterator[pa.RecordBatch]:
        """Yield the events of fixes, and of time and operations."""
        events, clock = self._events, self._ctx.epoch.clock
        fixes = _fixes_by_bucket(given, self._buckets)
        nothing = fix_schema(events).empty_table()
        told: list[pa.Table] = []
        for bucket in self._buckets:
            here = fixes.get(bucket, nothing)
            stored = self._ctx.epoch.manifest.objects.get(bucket)
            if not here.num_rows and (stored is None or not self._is_due(stored)):
                continue
            done = advance(self._objects(stored), here, self._changes, clock, events)
            self._after[bucket] = done.objects
            told.append(done.events)
            self._ignored = Ignored(*np.add(self._ignored, done.ignored).tolist())
            self._walkers.append(done.walkers)
            self._legs.append(done.legs)
        if events.settings.cross is not None and self._legs:
            legs = Legs(*map(np.concatenate, zip(*self._legs, strict=True)))
            told.append(crossings(self._ctx, pa.concat_arrays(self._walkers), legs, events))
        if told:
            # Few large batches: each costs Spark some time.
            whole = pa.concat_tables(told).combine_chunks()
            self._told = whole.num_rows
            yield from whole.to_batches(max_chunksize=SLICE_ROWS)

    def _objects(self, stored: ObjectsRef | None) -> pa.Table:
        if stored is None:
            return object_schema(self._events).empty_table()
        return self._ctx.stored_objects(stored)

    def _is_due(self, stored: ObjectsRef) -> bool:
        """Return whether there is something to report of objects without a fix."""
        clock, silent = self._ctx.epoch.clock, self._events.settings.silent_micros
        if stored.oldest < clock - silent or stored.until <= clock:
            return True
        if not len(self._changes.ids):
            return False
        fences = self._objects(stored).column(FENCES).combine_chunks().flatten()
        return bool(np.isin(fences.to_numpy(), self._changes.ids).any())

    def close(self) -> TaskOutput:
        """Write the objects; return where they are."""
        written: dict[int, ObjectsRef | None] = dict.fromkeys(self._after)
        filled = {bucket: table for bucket, table in self._after.items() if table.num_rows}
        name = f"t{self._task}"
        places = self._ctx.write_tables(Folder.OBJECTS, name, list(filled.values()))
        for (bucket, table), (file, offset) in zip(filled.items(), places, strict=True):
            until = table.column(UNTIL).combine_chunks().flatten().to_numpy()
            written[bucket] = ObjectsRef(
                file=file,
                offset=offset,
                rows=table.num_rows,
                oldest=int(table.column(TIME).to_numpy().min()),
                until=int(until.min()) if len(until) else NEVER,
            )
        late, repeated, long_legs = self._ignored
        return TaskOutput(
            batch=self._ctx.epoch.batch,
            stage=TaskStage.EVENTS,
            task=self._task,
            counts=Counts(
                events=self._told, late_fixes=late, repeated_fixes=repeated, long_legs=long_legs
            ),
            written=Written(objects=written, nearest=self._write_candidates()),
        )

    def _write_candidates(self) -> FileRef | None:
        """Write the nearest objects of standing points before and after the batch."""
        if self._events.settings.nearest is None:
            return None
        stored = self._ctx.epoch.manifest.objects
        before, after = [], []
        for bucket in self._buckets:
            found = candidates([self._objects(stored.get(bucket))], self._events)
            before.append(found)
            if bucket in self._after:
                found = candidates([self._after[bucket]], self._events)
            after.append(found)
        content, _ = tables_to_bytes([joined_sides(best(before), best(after))])
        name = self._ctx.file_name(Folder.SOFT, f"nearest{self._task}")
        return self._ctx.input.files.write(name, content, durable=False)


def nearest_answers(task_input: TaskInput, outputs: Iterable[TaskOutput]) -> pa.Table:
    """Return the answers of standing points that a batch changed. Runs on the driver."""
    events = _events(task_input)
    nothing = candidates([], events)
    before, after = [nothing], [nothing]
    for output in outputs:
        if output.written.nearest is not None:
            content = task_input.files.load(output.written.nearest)
            sides = both_sides(table_from_bytes(content, 0))
            before.append(sides[0])
            after.append(sides[1])
    return changed_answers(best(before), best(after), events)


def _events(task_input: TaskInput) -> BoundEvents:
    if task_input.events is None:
        raise ConfigError("this run reports no events")
    return task_input.events


def _typed(fixes: pa.Table, events: BoundEvents) -> pa.Table:
    """Return fixes with the types of the run: Spark may give those of another session."""
    schema = fix_schema(events)
    return fixes if fixes.schema.equals(schema) else fixes.cast(schema)


def _fence_changes(ctx: BatchContext) -> FenceChanges:
    if ctx.input.fence_changes is None:
        return FenceChanges.none()
    return FenceChanges.from_bytes(ctx.input.files.load(ctx.input.fence_changes))
