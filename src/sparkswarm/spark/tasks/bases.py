"""Bases: bulk loads and compactions of queries.

A bulk load takes three steps. As queries are read they are checked (``check_task``). By id, of
those with the same id the last counts (``settle_task``). By place, the task of each executor writes
the bases of its partitions (``write_task``). A compaction has only the last step: each executor's
task reads what is stored of its partitions (``compact_task``). The driver learns the names of the
files. A task that runs again writes other files with the same content; the manifest names one of
them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from sparkswarm.compiled import IntArray, LongArray, compiled, hash64
from sparkswarm.observe.progress import Counts
from sparkswarm.protocol.partition import Partition
from sparkswarm.spark.task_output import TaskOutput, TaskStage, Written
from sparkswarm.spark.tasks.operations import check_operations
from sparkswarm.spark.tasks.packing import PackedRows, RowKind, pack_rows, packed, unpack_rows
from sparkswarm.store.compaction import (
    WrittenBases,
    base_queries,
    count_prices,
    write_bases,
)
from sparkswarm.store.deltas import settle_operations
from sparkswarm.store.files import FileRef, Folder
from sparkswarm.store.manifest import Manifest, SegmentRef, StateRef
from sparkswarm.store.names import number_names
from sparkswarm.store.queries import (
    DETAILS,
    EDGES,
    NAME,
    PROPERTIES,
    SHAPE,
    Queries,
    boxes_of,
    operations_from,
    values_of,
)

if TYPE_CHECKING:
    from sparkswarm.spark.tasks.context import BatchContext


BASE_QUERIES = 4096
"""Queries of a base at most where executors are on several hosts, 0.4 MB: a host fetches no more
than it needs when a part of a partition moves or is lent."""

ROW = "row"
"""The column with the position of a query in a bulk load, by input partition."""


def check_task(ctx: BatchContext, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Check the queries of an input partition; pack them by id."""
    quarantine = ctx.quarantine(f"check-{ctx.task}")
    first = ctx.task << 40
    for batch in batches:
        if batch.num_rows:
            table = pa.Table.from_batches([batch])
            number = pa.array(np.arange(first, first + batch.num_rows))
            first += batch.num_rows
            table = table.append_column(ROW, number)
            rows = check_operations(ctx, table, quarantine).operations
            bucket = _bucket_of(operations_from(rows).queries.ids, ctx.plan.executors)
            yield packed(
                (RowKind.OPERATIONS, int(b), pack_rows(rows.filter(pa.array(bucket == b))))
                for b in np.unique(bucket)
            )
    quarantine.write()
    ctx.collect(
        TaskOutput(
            batch=ctx.epoch.batch,
            stage=TaskStage.CHECK,
            task=ctx.task,
            rejected=quarantine.faults(),
        )
    )


def settle_task(ctx: BatchContext, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Of queries with the same id take the last; pack them for the executors that write them."""
    received = [batch for batch in batches if batch.num_rows]
    if not received:
        return
    table = unpack_rows(v.as_buffer() for batch in received for v in batch.column("rows"))
    target = received[0].column("target")[0].as_py()
    operations = operations_from(table.sort_by(ROW).combine_chunks())
    renumbered: Mapping[bytes, int] = {}
    if operations.queries.names is not None:
        # Another number must not be one that another task gives.
        numbers, renumbered = number_names(
            operations.queries.names,
            {},
            lambda numbers: pa.nulls(len(numbers), pa.large_binary()),
            lambda number: _bucket_of(np.array([number]), ctx.plan.executors)[0] == target,
        )
        operations = operations.with_ids(numbers)
    settled = settle_operations(operations, (), (), ctx.grid, ctx.epoch.clock, ctx.epoch.batch)
    ctx.collect(
        TaskOutput(
            batch=ctx.epoch.batch,
            stage=TaskStage.SETTLE,
            task=target,
            written=Written(renumbered=renumbered),
            counts=Counts(
                operations=settled.applied, replaced=settled.replaced, ignored=settled.ignored
            ),
        )
    )
    columns = {*table.column_names, *([] if operations.queries.names is None else [NAME])}
    yield packed(_by_executor(ctx, settled.changes.added, columns))


def _by_executor(
    ctx: BatchContext, queries: Queries, columns: Collection[str]
) -> Iterator[PackedRows]:
    """Pack queries for the executors that write them; all packages have the same ``columns``."""
    start, partition = ctx.index.overlaps(queries.cells(ctx.grid))
    rows = np.repeat(np.arange(len(start) - 1), np.diff(start))
    writer = ctx.first_owner(partition)
    chosen = queries.take(rows)
    table = pa.table(
        {
            "partition": partition,
            "id": chosen.ids,
            **dict(zip(EDGES, map(np.ascontiguousarray, chosen.boxes.T), strict=True)),
            "expires": chosen.expires,
        }
    )
    blank = pa.nulls(len(chosen.ids), pa.large_binary())
    for name, values in zip((DETAILS, SHAPE, NAME, PROPERTIES), chosen.values, strict=True):
        if name in columns:
            table = table.append_column(name, blank if values is None else values)
    for m in np.unique(writer):
        some = table.filter(pa.array(writer == m))
        yield RowKind.PARTITION_QUERIES, int(m), pack_rows(some)


def write_task(ctx: BatchContext, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write the bases of an executor's partitions, given their queries; yields no rows."""
    received = [batch for batch in batches if batch.num_rows]
    if received:
        executor = received[0].column("target")[0].as_py()
        table = unpack_rows(v.as_buffer() for batch in received for v in batch.column("rows"))
        table = table.combine_chunks()
        partition = table.column("partition").to_numpy()
        queries = Queries(
            table.column("id").to_numpy(),
            boxes_of(table),
            table.column("expires").to_numpy(),
            *values_of(table),
        )
        order = np.argsort(partition, kind="stable")
        ids, starts = np.unique(partition[order], return_index=True)
        rows_of = dict(zip(ids.tolist(), np.split(order, starts[1:]), strict=True))
        mine = [p for p in ctx.plan.partitions if p.id in rows_of]
        written = _write(ctx, mine, lambda p: queries.take(rows_of[p.id]))
        ctx.collect(_output(ctx, executor, written))
    yield from ()


def compact_task(ctx: BatchContext, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write the bases of executors' partitions anew, and their state; yields no rows.

    The rows are the numbers of the executors.
    """
    for batch in batches:
        for executor in batch.column("id").to_pylist():
            mine = [p for p in ctx.plan.partitions if p.owners[0] == executor]
            written = _write(ctx, mine, partial(_stored_queries, ctx, ctx.queries_in_deltas(mine)))
            states = {p.id: state for p in mine if (state := _clean_state(ctx, p.id)) is not None}
            ctx.collect(_output(ctx, executor, written, states))
    yield from ()


def _stored_queries(
    ctx: BatchContext, in_deltas: tuple[Queries, LongArray], partition: Partition
) -> Queries:
    """Return all queries of a partition, given those in deltas by partition."""
    manifest, cells = ctx.epoch.manifest, partition.cells
    old = base_queries(manifest, ctx.queries, [partition.id], cells, ctx.grid)
    new, of_partition = in_deltas
    low, high = np.searchsorted(of_partition, [partition.id, partition.id + 1])
    return Queries.concat([old, new.take(np.arange(low, high))])


def _write(
    ctx: BatchContext, partitions: Sequence[Partition], queries_of: Callable[[Partition], Queries]
) -> WrittenBases:
    def write(name: str, content: pa.Buffer, rows: int) -> FileRef:
        return ctx.input.files.write(ctx.file_name(Folder.SEGMENTS, name), content, rows)

    def write_base(name: str, content: pa.Buffer, rows: int) -> FileRef:
        ref = write(name, content, rows)
        # The executor whose partition it is has its tasks on this host.
        ctx.input.files.keep(ref, content, ctx.epoch.batch)
        return ref

    most = BASE_QUERIES if ctx.input.hosts else 0
    return write_bases(
        partitions, queries_of, ctx.grid, ctx.input.purge_before, write_base, write, most
    )


def _output(
    ctx: BatchContext,
    executor: int,
    written: WrittenBases,
    states: Mapping[int, tuple[StateRef, ...]] = MappingProxyType({}),
) -> TaskOutput:
    return TaskOutput(
        batch=ctx.epoch.batch,
        stage=TaskStage.BASES,
        task=executor,
        written=Written(segments=dict(written.segments), bases=written.group, states=dict(states)),
    )


def manifest_with_bases(ctx: BatchContext, outputs: Sequence[TaskOutput]) -> Manifest:
    """Return the manifest with new bases of all partitions. Runs on the driver."""
    written = [o.written for o in sorted(outputs, key=lambda o: o.task)]
    segments: dict[int, tuple[SegmentRef, ...]]
    segments = {p.id: (SegmentRef(p.cells),) for p in ctx.plan.partitions}
    states: dict[int, tuple[StateRef, ...]] = {}
    for one in written:
        segments |= one.segments
        states |= one.states
    groups = [one.bases for one in written if one.bases is not None]
    directories = ctx.queries.directories(groups)
    content = count_prices([directory for _, directory in directories], ctx.grid).to_bytes()
    prices = ctx.input.files.write(ctx.file_name(Folder.SEGMENTS, "prices"), content)
    manifest = ctx.epoch.manifest.with_bases(segments, groups, prices, states)
    for one in written:
        manifest = manifest.with_renumbered(one.renumbered)
    return manifest


def _clean_state(ctx: BatchContext, partition_id: int) -> tuple[StateRef, ...] | None:
    """Return a partition's state without queries that changed; None where it has none of theirs.

    The deltas that say so end with the compaction.
    """
    states = ctx.epoch.manifest.states.get(partition_id, ())
    tables = [ctx.stored_state(ref) for ref in states]
    gone = [ctx.rows_changed(table, ref) for table, ref in zip(tables, states, strict=True)]
    if not any(mask.any() for mask in gone):
        return None
    rewritten = [
        table.filter(pa.array(~mask))
        for table, mask in zip(tables, gone, strict=True)
        if mask.any() and not mask.all()
    ]
    places = iter(ctx.write_tables(Folder.STATES, f"p{partition_id}", rewritten))
    kept: list[StateRef] = []
    for state, mask in zip(states, gone, strict=True):
        if not mask.any():
            kept.append(state)
        elif not mask.all():
            file, offset = next(places)
            kept.append(replace(state, file=file, offset=offset, batch=ctx.epoch.batch))
    return tuple(kept)


def _bucket_of(ids: LongArray, buckets: int) -> IntArray:
    """Return a number below ``buckets`` for each id: a hash that spreads any pattern of ids."""
    return _hashed(np.ascontiguousarray(ids, dtype=np.int64), buckets)


@compiled
def _hashed(ids: LongArray, buckets: int) -> IntArray:
    result = np.empty(len(ids), dtype=np.int32)
    for i in range(len(ids)):
        result[i] = np.int32(hash64(np.uint64(ids[i])) % np.uint64(buckets))
    return result
