"""Operations: registering, updating and unregistering queries, stored before points meet them.

A batch's operations take three steps. As they are read they are checked (``check_operations``, in
the route task). By id, the task of a ledger bucket rejects what makes no sense and works out what
each partition must remove and add (``settle_task``). By place, a task for each executor with
changes writes new segments (``write_task``). The driver learns the names of the files. A task that
runs again writes other files with the same content; the manifest names one of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sparkswarm.apps.snapshots import SNAPSHOT_KINDS
from sparkswarm.geometry import Fault
from sparkswarm.observe.progress import Counts
from sparkswarm.protocol.partition import Partition
from sparkswarm.spark.columns import OPERATIONS
from sparkswarm.spark.task_output import OutputKind, TaskOutput, TaskStage, Written
from sparkswarm.spark.tasks.answers import route_snapshots
from sparkswarm.spark.tasks.packing import (
    PackedRows,
    RowKind,
    nulls,
    pack_rows,
    packed,
    unpack_rows,
)
from sparkswarm.store.files import FileRef, Folder
from sparkswarm.store.ledger import Bucket, LedgerFault, apply_operations, bucket_of
from sparkswarm.store.manifest import SegmentFiles, SegmentRef, StateRef
from sparkswarm.store.quarantine import (
    DUPLICATE_ID,
    FAULT_REASONS,
    NO_SINK,
    NO_WINDOW,
    NULL_ID,
    NULL_VALUE,
    QUERY,
    SINCE_AFTER_UNTIL,
    UNKNOWN_ID,
    UNKNOWN_OP,
    Quarantine,
    first_reason,
)
from sparkswarm.store.queries import (
    DETAILS,
    EDGES,
    NEVER,
    OPERATION_COLUMNS,
    Op,
    Operations,
    Queries,
    attributes_of,
    boxes_of,
)
from sparkswarm.store.segments import Base, apply_changes
from sparkswarm.store.statistics import QueryChanges

if TYPE_CHECKING:
    from sparkswarm.spark.tasks.context import BatchContext

NAMES = {name: name for name in (*OPERATION_COLUMNS, DETAILS)}
CODES = {"register": Op.REGISTER, "update": Op.UPDATE, "unregister": Op.UNREGISTER}

# -- as they are read ------------------------------------------------------------------------


def pack_operations(task: int, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Pack the operations of an input partition, numbered in the order in which they are read."""
    first = task << 40
    for batch in batches:
        if batch.num_rows:
            if batch.column("order").null_count == batch.num_rows:
                order = pa.array(range(first, first + batch.num_rows), pa.int64())
                position = batch.schema.get_field_index("order")
                batch = batch.set_column(position, batch.schema.field(position), order)
                first += batch.num_rows
            yield pa.record_batch({OPERATIONS: pa.array([pack_rows(batch)], pa.binary())})


class CheckedOperations(NamedTuple):
    """Valid operations and snapshot queries: how many, and packed for those who serve them."""

    counts: Counts
    rows: list[PackedRows]


def check_operations(
    ctx: BatchContext, rows: pa.Table, quarantine: Quarantine
) -> CheckedOperations:
    """Check operations and snapshot queries; pack the valid ones for those who serve them."""
    rows = rows.combine_chunks()
    words = pc.fill_null(rows.column("op"), "").to_numpy(zero_copy_only=False)
    op = np.full(rows.num_rows, -1, dtype=np.int8)
    for word, code in CODES.items():
        op[words == word] = code
    is_snapshot = np.isin(words, list(SNAPSHOT_KINDS))
    boxes = boxes_of(rows)
    cells = ctx.grid.place_queries(*np.ascontiguousarray(boxes.T))
    has_box = is_snapshot | (op != Op.UNREGISTER)
    null_id, null_value = nulls(rows, "id"), np.zeros(rows.num_rows, dtype=bool)
    for edge in EDGES:
        null_value |= nulls(rows, edge)
    reasons = first_reason(
        rows.num_rows,
        [
            (~is_snapshot & (op < 0), UNKNOWN_OP),
            (is_snapshot & (ctx.input.window is None), NO_WINDOW),
            (is_snapshot & (OutputKind.ANSWERS not in ctx.input.outputs), NO_SINK),
            (null_id, NULL_ID),
            (has_box & null_value, NULL_VALUE),
            *((has_box & (cells.fault == f), FAULT_REASONS[f]) for f in Fault if f),
            (is_snapshot & _since_after_until(rows), SINCE_AFTER_UNTIL),
        ],
    )
    application = ctx.input.application
    if application:
        valid = np.flatnonzero((reasons == None) & has_box)  # noqa: E711 (elementwise)
        some = rows.take(pa.array(valid)).set_column(0, "op", pa.array(op[valid]))
        queries = _operations(some).queries
        reasons[valid] = application.rejections(queries)
        asks = np.flatnonzero(is_snapshot[valid] & (reasons[valid] == None))  # noqa: E711
        reasons[valid[asks]] = application.snapshot_rejections(queries.take(asks), ctx.grid)
    bad = np.flatnonzero(reasons != None)  # noqa: E711
    if len(bad):
        quarantine.add(QUERY, rows.take(pa.array(bad)), NAMES, reasons[bad])
    good = reasons == None  # noqa: E711
    out: list[PackedRows] = []
    for word, kind in SNAPSHOT_KINDS.items():
        chosen = np.flatnonzero(good & (words == word))
        if len(chosen):
            out += route_snapshots(ctx, kind, rows.take(pa.array(chosen)))
    chosen = np.flatnonzero(good & ~is_snapshot)
    rows = rows.take(pa.array(chosen)).set_column(0, "op", pa.array(op[chosen]))
    bucket = bucket_of(rows.column("id").to_numpy(), len(ctx.epoch.manifest.ledger))
    for b in np.unique(bucket):
        some = rows.filter(pa.array(bucket == b))
        out.append((RowKind.OPERATIONS, int(b), pack_rows(some)))
    snapshots = int((good & is_snapshot).sum())
    return CheckedOperations(Counts(operations=len(chosen), snapshot_queries=snapshots), out)


def _since_after_until(rows: pa.Table) -> npt.NDArray[np.bool_]:
    backwards = pc.greater(rows.column("since"), rows.column("until"))
    return np.asarray(pc.fill_null(backwards, False))


def _operations(rows: pa.Table) -> Operations:
    expires = pc.fill_null(rows.column("expires"), NEVER).to_numpy()
    order = pc.fill_null(rows.column("order"), 0).to_numpy()
    queries = Queries(rows.column("id").to_numpy(), boxes_of(rows), expires, attributes_of(rows))
    return Operations(rows.column("op").to_numpy(), queries, order)


# -- by id -----------------------------------------------------------------------------------


def settle_task(ctx: BatchContext, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Apply the operations of a ledger bucket; yield what partitions must remove and add."""
    received = [batch for batch in batches if batch.num_rows]
    if not received:
        return
    number = received[0].column("target")[0].as_py()
    table = unpack_rows(v.as_buffer() for batch in received for v in batch.column("rows"))
    operations = _operations(table.combine_chunks())
    files = ctx.epoch.manifest.ledger[number]
    settled = apply_operations(
        _bucket(ctx, files.base),
        _bucket(ctx, files.delta),
        operations,
        ctx.epoch.clock,
        ctx.input.purge_before,
    )
    bad = np.flatnonzero(settled.fault)
    quarantine = Quarantine(ctx.input.files, ctx.epoch.batch, f"ledger-{number}")
    if len(bad):
        why = {LedgerFault.DUPLICATE: DUPLICATE_ID, LedgerFault.UNKNOWN: UNKNOWN_ID}
        reasons = np.array([why[LedgerFault(f)] for f in settled.fault[bad]], dtype=object)
        words = np.array([code.name.lower() for code in Op])
        rows = table.take(pa.array(bad))
        rows = rows.set_column(0, "op", pa.array(words[operations.op[bad]]))
        quarantine.add(QUERY, rows, NAMES, reasons)
        quarantine.write()
    base = files.base
    if settled.base is not None:
        base = _write_bucket(ctx, f"b{number}-base", settled.base)
    delta = _write_bucket(ctx, f"b{number}-delta", settled.delta)
    ctx.collect(
        TaskOutput(
            batch=ctx.epoch.batch,
            stage=TaskStage.SETTLE,
            task=number,
            # The route task counted them as applied.
            counts=Counts(operations=-len(bad)),
            written=Written(ledger={number: SegmentFiles(base, delta)}),
            rejected=quarantine.faults(),
        )
    )
    yield packed(_partition_changes(ctx, settled.removed, settled.added))


def _bucket(ctx: BatchContext, ref: FileRef | None) -> Bucket:
    if ref is None:
        return Bucket.empty()
    return Bucket.from_bytes(ctx.input.files.mmap(ref))


def _write_bucket(ctx: BatchContext, name: str, bucket: Bucket) -> FileRef | None:
    rows = len(bucket.queries.ids)
    if not rows:
        return None
    name = ctx.file_name(Folder.LEDGER, name)
    return ctx.input.files.write(name, bucket.to_bytes(), rows)


def _partition_changes(ctx: BatchContext, removed: Queries, added: Queries) -> Iterator[PackedRows]:
    """Yield what each executor's partitions must remove and add."""
    queries = Queries.concat([removed, added])
    is_added = np.arange(len(queries.ids)) >= len(removed.ids)
    start, partition = ctx.index.overlaps(queries.cells(ctx.grid))
    rows = np.repeat(np.arange(len(start) - 1), np.diff(start))
    writer = ctx.first_owner(partition)
    chosen = queries.take(rows)
    table = pa.table(
        {
            "partition": partition,
            "added": is_added[rows],
            "id": chosen.ids,
            **dict(zip(EDGES, map(np.ascontiguousarray, chosen.boxes.T), strict=True)),
            "expires": chosen.expires,
        }
    )
    application = ctx.input.application
    if application and len(application.query_schema):
        blank = pa.nulls(len(chosen.ids), pa.large_binary())
        table = table.append_column(
            DETAILS, blank if chosen.attributes is None else chosen.attributes
        )
    for m in np.unique(writer):
        some = table.filter(pa.array(writer == m))
        yield RowKind.PARTITION_CHANGES, int(m), pack_rows(some)


# -- by place --------------------------------------------------------------------------------


def write_task(ctx: BatchContext, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write new segments of an executor's partitions; yields no rows."""
    received = [batch for batch in batches if batch.num_rows]
    if received:
        executor = received[0].column("target")[0].as_py()
        table = unpack_rows(v.as_buffer() for batch in received for v in batch.column("rows"))
        ctx.collect(
            TaskOutput(
                batch=ctx.epoch.batch,
                stage=TaskStage.WRITE,
                task=executor,
                written=write_partitions(ctx, table.combine_chunks()),
            )
        )
    yield from ()


def write_partitions(ctx: BatchContext, changes: pa.Table) -> Written:
    """Write new segments, and state without the queries that changed."""
    partition = changes.column("partition").to_numpy()
    is_added = changes.column("added").to_numpy(zero_copy_only=False)
    queries = Queries(
        changes.column("id").to_numpy(),
        boxes_of(changes),
        changes.column("expires").to_numpy(),
        attributes_of(changes),
    )
    by_id = {p.id: p for p in ctx.plan.partitions}
    order = np.argsort(partition, kind="stable")
    ids, starts = np.unique(partition[order], return_index=True)
    segments: dict[int, SegmentRef] = {}
    states: dict[int, tuple[StateRef, ...]] = {}
    for key, rows in zip(ids.tolist(), np.split(order, starts[1:]), strict=True):
        removed = queries.ids[rows[~is_added[rows]]]
        added = queries.take(rows[is_added[rows]])
        segments[key] = _write_segment(ctx, by_id[key], removed, added)
        state = _drop_state(ctx, key, np.union1d(removed, added.ids))
        if state is not None:
            states[key] = state
    cells = queries.cells(ctx.grid)
    content = QueryChanges(partition=partition, added=is_added, cells=cells).to_bytes()
    ref = ctx.input.files.write(ctx.file_name(Folder.SOFT, "news"), content, durable=False)
    return Written(segments=segments, states=states, query_changes=(ref,))


def _write_segment(
    ctx: BatchContext, partition: Partition, removed: npt.NDArray[np.int64], added: Queries
) -> SegmentRef:
    segments = ctx.segments(partition.id)
    new = apply_changes(segments, ctx.grid, partition.cells, removed, added, ctx.input.purge_before)
    is_base = isinstance(new, Base)
    name = ctx.file_name(Folder.SEGMENTS, f"p{partition.id}-{'base' if is_base else 'delta'}")
    ref = ctx.input.files.write(name, new.to_bytes(), len(new.index.ids))
    if is_base:
        # A base replaces all segments of the partition.
        return SegmentRef(partition.cells, SegmentFiles(ref, None))
    base = ctx.epoch.manifest.partitions[partition.id][0].files.base
    return SegmentRef(partition.cells, SegmentFiles(base, ref))


def _moved(state: StateRef, file: FileRef, offset: int) -> StateRef:
    return replace(state, file=file, offset=offset)


def _drop_state(
    ctx: BatchContext, partition_id: int, ids: npt.NDArray[np.int64]
) -> tuple[StateRef, ...] | None:
    """Return a partition's state without some queries; None where it has none of theirs."""
    states = ctx.epoch.manifest.states.get(partition_id, ())
    tables = ctx.states(partition_id)
    gone = [np.isin(table.column("id").to_numpy(), ids) for table in tables]
    if not any(mask.any() for mask in gone):
        return None
    rewritten = [
        table.filter(pa.array(~mask))
        for table, mask in zip(tables, gone, strict=True)
        if mask.any() and not mask.all()
    ]
    places = iter(ctx.write_tables(Folder.STATES, f"p{partition_id}", rewritten))
    kept_states: list[StateRef] = []
    for state, mask in zip(states, gone, strict=True):
        if not mask.any():
            kept_states.append(state)
        elif not mask.all():
            kept_states.append(_moved(state, *next(places)))
    return tuple(kept_states)
