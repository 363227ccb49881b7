"""Events: objects go to the tasks that keep them, and are advanced once a batch.

The tasks that match points send all of them on, with their matches, by the bucket of the object
(``fix_rows``). A task of the batch keeps some of the buckets and advances their objects
(``events_task``); it runs also where no point came, because time passes and fences change. What it
knows of objects is in files that the manifest names. A task that runs again writes other files with
the same content and reports the same events.
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
from sparkswarm.spark.task_output import TaskOutput, TaskStage, Written
from sparkswarm.spark.tasks.crossing import crossings
from sparkswarm.spark.tasks.lots import labels_of
from sparkswarm.spark.tasks.packing import RowKind, group_rows, pack_rows
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
    schema, tasks = ctx.input.output_schema, event_tasks(ctx.plan.executors)
    types = schema.result_types
    if results is not None:
        types = results.schema.types[: len(types)]
    events = _events(ctx.input)
    buckets, ends = _buckets_by_task(tasks)
    objects = lot.points.column(ID).combine_chunks().take(pa.array(lot.rows))
    order, starts = group_rows(np.argsort(buckets)[buckets_of(objects)].astype(np.int32), BUCKETS)
    fixes = _typed(lot.fixes(labels_of(events), order), events).combine_chunks()
    some = []
    for task, (first, last) in enumerate(itertools.pairwise([0, *ends])):
        here = starts[first : last + 1]
        if here[0] < here[-1]:
            rows = fixes.slice(here[0], here[-1] - here[0])
            rows = rows.replace_schema_metadata({_STARTS: (here - here[0]).tobytes()})
            some.append((RowKind.FIXES, task, pack_rows(rows)))
    return schema.packed_rows(some, types)


_STARTS = b"starts"
"""Where the fixes of each bucket of a task begin in a package, and where the last end."""


def _task_buckets(task: int, tasks: int) -> range:
    """Return the buckets that a task keeps."""
    return range(task, BUCKETS, tasks)


def _buckets_by_task(tasks: int) -> tuple[LongArray, list[int]]:
    """Return all buckets, those of a task together, and where those of each task end."""
    kept = [_task_buckets(task, tasks) for task in range(tasks)]
    return np.concatenate(kept), np.cumsum([len(some) for some in kept]).tolist()


def _fixes_by_bucket(packed: Iterable[pa.Buffer], buckets: range) -> dict[int, pa.Table]:
    """Return the packed fixes of a task by bucket; nothing is copied."""
    found: dict[int, list[pa.Table]] = {}
    for content in packed:
        with pa.ipc.open_stream(content) as reader:
            starts = np.frombuffer(reader.schema.metadata[_STARTS], np.int64).tolist()
            rows = reader.read_all().replace_schema_metadata()
        for bucket, (low, high) in zip(buckets, itertools.pairwise(starts), strict=True):
            if low < high:
                found.setdefault(bucket, []).append(rows.slice(low, high - low))
    return {bucket: pa.concat_tables(some) for bucket, some in found.items()}


def events_task(ctx: BatchContext, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Advance the objects that one task keeps; yield their events."""
    task, content = -1, []
    for batch in batches:
        if batch.num_rows:
            task = batch.column("target")[0].as_py()
        content += [value.as_buffer() for value in batch.column("rows").drop_null()]
    if task < 0:
        return
    work = ObjectsWork(ctx, task)
    yield from work.advance(content)
    ctx.collect(work.close())


class ObjectsWork:
    """What one task does with its objects in one batch: packed fixes in, events out."""

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

    def advance(self, packed: list[pa.Buffer]) -> Iterator[pa.RecordBatch]:
        """Yield the events of packed fixes, and of time and operations, bucket by bucket."""
        events, clock = self._events, self._ctx.epoch.clock
        fixes = _fixes_by_bucket(packed, self._buckets)
        nothing = fix_schema(events).empty_table()
        for bucket in self._buckets:
            here = fixes.get(bucket, nothing)
            stored = self._ctx.epoch.manifest.objects.get(bucket)
            if not here.num_rows and (stored is None or not self._is_due(stored)):
                continue
            done = advance(self._objects(stored), here, self._changes, clock, events)
            self._after[bucket] = done.objects
            self._told += done.events.num_rows
            self._ignored = Ignored(*np.add(self._ignored, done.ignored).tolist())
            self._walkers.append(done.walkers)
            self._legs.append(done.legs)
            yield from done.events.to_batches()
        if events.settings.cross is not None and self._legs:
            legs = Legs(*map(np.concatenate, zip(*self._legs, strict=True)))
            crossed = crossings(self._ctx, pa.concat_arrays(self._walkers), legs, events)
            self._told += crossed.num_rows
            yield from crossed.to_batches()

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
