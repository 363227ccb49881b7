"""Operations: registering, updating and unregistering queries, stored before points meet them.

Owns the job that applies a batch's operations in two steps. First by id: the task of a ledger
bucket refuses what makes no sense and works out what each partition must take out and put in.
Then by place: a task for each executor writes new segments of the partitions concerned. The
driver learns the names of the files, nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import Accumulator
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from sparkswarm.geometry import CellRect, Fault
from sparkswarm.protocol.partition import Partition
from sparkswarm.spark.columns import boxes_of, details_of
from sparkswarm.spark.task_input import LedgerReport, Report
from sparkswarm.spark.tasks.answers import deal_asks
from sparkswarm.spark.tasks.context import Desk, desk
from sparkswarm.spark.tasks.packing import (
    COUNT,
    EFFECT,
    OPERATION,
    PARCELS,
    RANGE,
    SAID,
    Parcel,
    Task,
    from_bytes,
    nulls,
    parcels,
    to_bytes,
)
from sparkswarm.store import ledger as ledgers
from sparkswarm.store.files import FileRef, Folder
from sparkswarm.store.ledger import Bucket, LedgerFault, bucket_of
from sparkswarm.store.manifest import Manifest, SegmentFiles, SegmentRef, StateRef
from sparkswarm.store.quarantine import (
    BACKWARDS,
    DUPLICATE_ID,
    FAULT_REASONS,
    NO_SINK,
    NOTHING_KEPT,
    NULL_ID,
    NULL_VALUE,
    QUERY,
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
)
from sparkswarm.store.segments import Base, apply_changes
from sparkswarm.store.statistics import QueryChanges

NAMES = {name: name for name in (*OPERATION_COLUMNS, DETAILS)}
CODES = {"register": Op.REGISTER, "update": Op.UPDATE, "unregister": Op.UNREGISTER}
ASKS = {"range": RANGE, "count": COUNT}
"""The words for snapshot queries, which are no operations, though they come among them."""

WRITTEN = "what STRING, number BIGINT, value STRING"
LEDGER, PARTITION, STATE, NEWS = "ledger", "partition", "state", "news"
"""What the job says it has written."""

# -- as they are read ------------------------------------------------------------------------


class Dealt(NamedTuple):
    """How many operations and snapshot queries are good, and the parcels with them."""

    operations: int
    asks: int
    parcels: list[Parcel]


def deal_operations(at: Desk, rows: pa.Table, quarantine: Quarantine) -> Dealt:
    """Check operations and snapshot queries; return parcels for those who serve them."""
    rows = rows.combine_chunks()
    words = pc.fill_null(rows.column("op"), "").to_numpy(zero_copy_only=False)
    op = np.full(rows.num_rows, -1, dtype=np.int8)
    for word, code in CODES.items():
        op[words == word] = code
    is_ask = np.isin(words, list(ASKS))
    boxes = boxes_of(rows)
    placed = at.grid.place_queries(*np.ascontiguousarray(boxes.T))
    has_box = is_ask | (op != Op.UNREGISTER)
    null_id, null_value = nulls(rows, "id"), np.zeros(rows.num_rows, dtype=bool)
    for edge in EDGES:
        null_value |= nulls(rows, edge)
    reasons = first_reason(
        rows.num_rows,
        [
            (~is_ask & (op < 0), UNKNOWN_OP),
            (is_ask & (at.briefing.window is None), NOTHING_KEPT),
            (is_ask & (not at.briefing.answers), NO_SINK),
            (null_id, NULL_ID),
            (has_box & null_value, NULL_VALUE),
            *((has_box & (placed.fault == f), FAULT_REASONS[f]) for f in Fault if f),
            (is_ask & _backwards(rows), BACKWARDS),
        ],
    )
    application = at.briefing.application
    if application:
        asked = np.flatnonzero((reasons == None) & has_box)  # noqa: E711 (elementwise)
        some = rows.take(pa.array(asked)).set_column(0, "op", pa.array(op[asked]))
        queries = _operations(some).queries
        reasons[asked] = application.rejections(queries)
        asks = np.flatnonzero(is_ask[asked] & (reasons[asked] == None))  # noqa: E711
        reasons[asked[asks]] = application.snapshot_rejections(queries.take(asks), at.grid)
    bad = np.flatnonzero(reasons != None)  # noqa: E711
    if len(bad):
        quarantine.add(QUERY, rows.take(pa.array(bad)), NAMES, reasons[bad])
    good = reasons == None  # noqa: E711
    dealt: list[Parcel] = []
    for word, kind in ASKS.items():
        asked = np.flatnonzero(good & (words == word))
        if len(asked):
            dealt += deal_asks(at, kind, rows.take(pa.array(asked)))
    chosen = np.flatnonzero(good & ~is_ask)
    rows = rows.take(pa.array(chosen)).set_column(0, "op", pa.array(op[chosen]))
    bucket = bucket_of(rows.column("id").to_numpy(), len(at.briefing.epoch.manifest.ledger))
    for b in np.unique(bucket):
        dealt.append((OPERATION, int(b), to_bytes(rows.filter(pa.array(bucket == b)))))
    return Dealt(len(chosen), int((good & is_ask).sum()), dealt)


def _backwards(rows: pa.Table) -> npt.NDArray[np.bool_]:
    backwards = pc.greater(rows.column("since"), rows.column("until"))
    return pc.fill_null(backwards, False).to_numpy(zero_copy_only=False)


def _operations(rows: pa.Table) -> Operations:
    expires = pc.fill_null(rows.column("expires"), NEVER).to_numpy()
    order = pc.fill_null(rows.column("order"), 0).to_numpy()
    queries = Queries(rows.column("id").to_numpy(), boxes_of(rows), expires, details_of(rows))
    return Operations(rows.column("op").to_numpy(), queries, order)


# -- the job ---------------------------------------------------------------------------------


def apply_operations(
    operations: DataFrame, briefing: bytes, manifest: Manifest, executors: int,
    reports: Accumulator[list[Report]],
) -> tuple[Manifest, tuple[FileRef, ...]]:  # fmt: skip
    """Apply the operations of a batch, given as parcels for the buckets.

    Returns
    -------
    The manifest that includes them, and files with what changed, for the statistics.
    """
    effects = operations.select("target", "rows").mapInArrow(
        _settle_task(briefing, reports), PARCELS
    )
    written = (
        effects.repartitionById(executors, F.col("target"))
        .mapInArrow(_write_task(briefing), WRITTEN)
        .collect()
    )
    ledger: dict[int, SegmentFiles] = {}
    partitions: dict[int, SegmentRef] = {}
    states: dict[int, tuple[StateRef, ...]] = {}
    news: list[FileRef] = []
    for what, number, value in written:
        said = json.loads(value)
        if what == LEDGER:
            ledger[number] = _pair(said["base"], said["delta"])
        elif what == PARTITION:
            cells = CellRect(*said["cells"])
            partitions[number] = SegmentRef(cells, _pair(said["base"], said["delta"]))
        elif what == STATE:
            states[number] = tuple(
                StateRef(cells=CellRect(*cells), file=FileRef(*ref), offset=begin, due=due)
                for cells, ref, begin, due in said
            )
        else:
            news.append(FileRef(*said))
    if not ledger:
        return manifest, ()
    return manifest.with_segments(partitions, ledger, states), tuple(news)


def _pair(base: list[Any] | None, delta: list[Any] | None) -> SegmentFiles:
    return SegmentFiles(FileRef(*base) if base else None, FileRef(*delta) if delta else None)


def _ref(ref: FileRef | None) -> list[Any] | None:
    return [ref.name, ref.rows, ref.size, ref.crc] if ref else None


def _settle_task(briefing: bytes, reports: Accumulator[list[Report]]) -> Task:
    """First step: the task of a ledger bucket."""

    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        received = [batch for batch in batches if batch.num_rows]
        if not received:
            return
        at = desk(briefing)
        number = received[0].column("target")[0].as_py()
        table = from_bytes(v.as_buffer() for batch in received for v in batch.column("rows"))
        operations = _operations(table.combine_chunks())
        files = at.briefing.epoch.manifest.ledger[number]
        settled = ledgers.apply_operations(
            _bucket(at, files.base), _bucket(at, files.delta),
            operations, at.briefing.epoch.clock, at.briefing.purge_before,
        )  # fmt: skip
        bad = np.flatnonzero(settled.fault)
        quarantine = Quarantine(at.briefing.files, at.briefing.epoch.batch, f"ledger-{number}")
        if len(bad):
            why = {LedgerFault.DUPLICATE: DUPLICATE_ID, LedgerFault.UNKNOWN: UNKNOWN_ID}
            reasons = np.array([why[LedgerFault(f)] for f in settled.fault[bad]], dtype=object)
            words = np.array([code.name.lower() for code in Op])
            rows = table.take(pa.array(bad))
            rows = rows.set_column(0, "op", pa.array(words[operations.op[bad]]))
            quarantine.add(QUERY, rows, NAMES, reasons)
            quarantine.write()
        batch = at.briefing.epoch.batch
        reports.add([LedgerReport(batch, number, quarantine.faults())])
        base = files.base
        if settled.base is not None:
            base = _write(at, Folder.LEDGER, f"b{number}-base", settled.base)
        delta = _write(at, Folder.LEDGER, f"b{number}-delta", settled.delta)
        said = {"base": _ref(base), "delta": _ref(delta)}
        yield parcels([(SAID, 0, json.dumps([LEDGER, number, said]).encode())])
        yield parcels(_effects(at, settled.removed, settled.added))

    return task


def _bucket(at: Desk, ref: FileRef | None) -> Bucket:
    if ref is None:
        return Bucket.empty()
    return Bucket.from_bytes(at.briefing.files.mmap(ref))


def _write(at: Desk, folder: str, name: str, bucket: Bucket) -> FileRef | None:
    rows = len(bucket.queries.ids)
    if not rows:
        return None
    return at.briefing.files.write(at.name_file(folder, name), bucket.to_bytes(), rows)


def _effects(at: Desk, removed: Queries, added: Queries) -> Iterator[Parcel]:
    """Yield what each executor's partitions must take out and put in."""
    queries = Queries.concat([removed, added])
    is_added = np.arange(len(queries.ids)) >= len(removed.ids)
    start, partition = at.index.overlaps(queries.cells(at.grid))
    which = np.repeat(np.arange(len(start) - 1), np.diff(start))
    writer = at.first_owner(partition)
    chosen = queries.take(which)
    table = pa.table(
        {
            "partition": partition,
            "added": is_added[which],
            "id": chosen.ids,
            **dict(zip(EDGES, map(np.ascontiguousarray, chosen.boxes.T), strict=True)),
            "expires": chosen.expires,
        }
    )
    application = at.briefing.application
    if application and len(application.query_schema):
        nothing = pa.nulls(len(chosen.ids), pa.large_binary())
        details = nothing if chosen.attributes is None else chosen.attributes
        table = table.append_column(DETAILS, details)
    for m in np.unique(writer):
        yield EFFECT, int(m), to_bytes(table.filter(pa.array(writer == m)))


def _write_task(briefing: bytes) -> Task:
    """Second step: the task that writes the segments of an executor's partitions."""

    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        said: list[tuple[str, int, str]] = []
        contents = []
        for batch in batches:
            columns = (batch.column("kind").to_pylist(), batch.column("rows"))
            for kind, value in zip(*columns, strict=True):
                if kind == SAID:
                    what, number, rest = json.loads(value.as_py())
                    said.append((what, number, json.dumps(rest)))
                else:
                    contents.append(value.as_buffer())
        if contents:
            said += _write_partitions(desk(briefing), from_bytes(contents).combine_chunks())
        what, number, value = zip(*said, strict=True) if said else ((), (), ())
        yield pa.record_batch(
            {
                "what": pa.array(what, pa.string()),
                "number": pa.array(number, pa.int64()),
                "value": pa.array(value, pa.string()),
            }
        )

    return task


def _write_partitions(at: Desk, effects: pa.Table) -> list[tuple[str, int, str]]:
    """Write new segments of the partitions that ``effects`` name."""
    partition = effects.column("partition").to_numpy()
    is_added = effects.column("added").to_numpy(zero_copy_only=False)
    queries = Queries(
        effects.column("id").to_numpy(),
        boxes_of(effects),
        effects.column("expires").to_numpy(),
        details_of(effects),
    )
    by_id = {p.id: p for p in at.briefing.epoch.plan.partitions}
    order = np.argsort(partition, kind="stable")
    ids, starts = np.unique(partition[order], return_index=True)
    said = []
    for key, rows in zip(ids.tolist(), np.split(order, starts[1:]), strict=True):
        removed = queries.ids[rows[~is_added[rows]]]
        added = queries.take(rows[is_added[rows]])
        said.append(_write_partition(at, by_id[key], removed, added))
        said += _forget(at, key, np.union1d(removed, added.ids))
    cells = queries.cells(at.grid)
    content = QueryChanges(partition=partition, added=is_added, cells=cells).to_bytes()
    news = at.briefing.files.write(at.name_file(Folder.SOFT, "news"), content, durable=False)
    return [*said, (NEWS, 0, json.dumps(_ref(news)))]


def _write_partition(
    at: Desk, partition: Partition, removed: npt.NDArray[np.int64], added: Queries
) -> tuple[str, int, str]:
    pieces = at.pieces(partition.id)
    new = apply_changes(pieces, at.grid, partition.cells, removed, added, at.briefing.purge_before)
    kind = "base" if isinstance(new, Base) else "delta"
    name = at.name_file(Folder.SEGMENTS, f"p{partition.id}-{kind}")
    ref = at.briefing.files.write(name, new.to_bytes(), len(new.index.ids))
    # A delta is one of the only piece's base; a base replaces all pieces.
    kept = at.briefing.epoch.manifest.partitions[partition.id][0].files.base
    base, delta = (ref, None) if kind == "base" else (kept, ref)
    said = {"cells": list(partition.cells), "base": _ref(base), "delta": _ref(delta)}
    return PARTITION, partition.id, json.dumps(said)


def _forget(at: Desk, partition_id: int, ids: npt.NDArray[np.int64]) -> list[tuple[str, int, str]]:
    """Drop the state of queries that are no more, or begin anew."""
    said: list[Any] = []
    written: list[tuple[int, pa.Table]] = []
    states = at.briefing.epoch.manifest.states.get(partition_id, ())
    for state, table in zip(states, at.states(partition_id), strict=True):
        gone = np.isin(table.column("id").to_numpy(), ids)
        if not gone.any():
            said.append([list(state.cells), _ref(state.file), state.offset, state.due])
        elif not gone.all():
            written.append((len(said), table.filter(pa.array(~gone))))
            said.append([list(state.cells), None, 0, state.due])
    if len(said) == len(states) and not written:
        return []
    places = at.write_tables(Folder.STATES, f"p{partition_id}", [table for _, table in written])
    for (i, _), (ref, begin) in zip(written, places, strict=True):
        said[i][1:3] = _ref(ref), begin
    return [(STATE, partition_id, json.dumps(said))]
