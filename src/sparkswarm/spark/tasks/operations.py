"""Operations: registering, updating and unregistering queries, stored before points meet them.

The operations of a batch come to the driver (:mod:`sparkswarm.spark.driver.operations`), which
checks them and stores them in one delta for all partitions. Their number is that of one batch, not
of all queries: it needs no tasks. Runs on the driver, once a batch with operations, and in the
tasks that check a bulk load. A batch that runs again writes another file with the same content;
the manifest names one of them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sparkswarm.apps.events.advance import FenceChanges
from sparkswarm.apps.events.asking import ASKS, check_asks
from sparkswarm.apps.events.objects import BoundEvents
from sparkswarm.apps.shapes import parse_shapes
from sparkswarm.apps.snapshots import SNAPSHOT_KINDS
from sparkswarm.geometry import Fault
from sparkswarm.observe.progress import Counts
from sparkswarm.spark.task_output import OutputKind, TaskOutput, TaskStage
from sparkswarm.spark.tasks.answers import route_snapshots
from sparkswarm.spark.tasks.packing import PackedRows, nulls
from sparkswarm.store.deltas import Changes, Delta
from sparkswarm.store.epochs import INITIAL
from sparkswarm.store.files import FileRef, Folder
from sparkswarm.store.manifest import DeltaParts
from sparkswarm.store.names import LONGEST_NAME
from sparkswarm.store.operations import store_operations
from sparkswarm.store.parts import write_parts
from sparkswarm.store.quarantine import (
    FAULT_REASONS,
    LONG_ID,
    NO_SINK,
    NO_WINDOW,
    NULL_ID,
    NULL_VALUE,
    QUERY,
    SINCE_AFTER_UNTIL,
    UNKNOWN_OP,
    Quarantine,
    first_reason,
)
from sparkswarm.store.queries import (
    ABOUT,
    ASK_COLUMNS,
    DETAILS,
    EDGES,
    GEOMETRY,
    OPERATION_COLUMNS,
    PROPERTIES,
    RADIUS,
    RADIUS_METRES,
    SHAPE,
    SHAPE_COLUMNS,
    K,
    Op,
    boxes_of,
    cell_array,
    cells_from,
    operations_from,
)
from sparkswarm.store.statistics import QueryChanges

if TYPE_CHECKING:
    from sparkswarm.spark.task_input import TaskInput
    from sparkswarm.spark.tasks.context import BatchContext

NAMES = {
    name: name for name in (*OPERATION_COLUMNS, *SHAPE_COLUMNS, *ASK_COLUMNS, PROPERTIES, DETAILS)
}
CODES = {"register": Op.REGISTER, "update": Op.UPDATE, "unregister": Op.UNREGISTER}


class CheckedOperations(NamedTuple):
    """Valid operations, with codes in ``op``, and valid snapshot queries, packed."""

    operations: pa.Table
    snapshots: list[PackedRows]
    counts: Counts
    """Snapshot queries and questions; operations are counted when they are applied."""
    asks: pa.Table | None = None
    """Valid questions about objects; None without any."""


def check_operations(
    ctx: BatchContext, rows: pa.Table, quarantine: Quarantine
) -> CheckedOperations:
    """Check operations and snapshot queries; pack snapshot queries for those who answer them."""
    rows = rows.combine_chunks()
    rows, questions = _split_asks(ctx, rows, quarantine)
    words = pc.fill_null(rows.column("op"), "").to_numpy(zero_copy_only=False)
    op = np.full(rows.num_rows, -1, dtype=np.int8)
    for word, code in CODES.items():
        op[words == word] = code
    is_snapshot = np.isin(words, list(SNAPSHOT_KINDS))
    shape_reasons = None
    if GEOMETRY in rows.column_names:
        world = ctx.grid.bounds.is_world
        rows, shape_reasons = with_shapes(rows, ctx.input.events, world=world)
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
            (_too_long(rows), LONG_ID),
            *_limit_checks(ctx, rows, has_box),
            *_shape_checks(has_box, shape_reasons),
            (has_box & null_value, NULL_VALUE),
            *((has_box & (cells.fault == f), FAULT_REASONS[f]) for f in Fault if f),
            (is_snapshot & _since_after_until(rows), SINCE_AFTER_UNTIL),
        ],
    )
    application = ctx.input.application
    if application:
        valid = np.flatnonzero((reasons == None) & has_box)  # noqa: E711 (elementwise)
        some = rows.take(pa.array(valid)).set_column(0, "op", pa.array(op[valid]))
        queries = operations_from(some).queries
        reasons[valid] = application.rejections(queries)
        asks = np.flatnonzero(is_snapshot[valid] & (reasons[valid] == None))  # noqa: E711
        reasons[valid[asks]] = application.snapshot_rejections(queries.take(asks), ctx.grid)
    bad = np.flatnonzero(reasons != None)  # noqa: E711
    if len(bad):
        quarantine.add(QUERY, rows.take(pa.array(bad)), NAMES, reasons[bad])
    good = reasons == None  # noqa: E711
    snapshots: list[PackedRows] = []
    for word, kind in SNAPSHOT_KINDS.items():
        chosen = np.flatnonzero(good & (words == word))
        if len(chosen):
            snapshots += route_snapshots(ctx, kind, rows.take(pa.array(chosen)))
    chosen = np.flatnonzero(good & ~is_snapshot)
    rows = rows.drop_columns([name for name in SHAPE_COLUMNS if name in rows.column_names])
    return CheckedOperations(
        rows.take(pa.array(chosen)).set_column(0, "op", pa.array(op[chosen])),
        snapshots,
        Counts(
            snapshot_queries=int((good & is_snapshot).sum())
            + (0 if questions is None else questions.num_rows)
        ),
        questions,
    )


def _split_asks(
    ctx: BatchContext, rows: pa.Table, quarantine: Quarantine
) -> tuple[pa.Table, pa.Table | None]:
    """Return operations without the questions about objects, and those that can be answered."""
    is_ask = pc.is_in(rows.column("op"), pa.array(ASKS))
    if not pc.any(is_ask).as_py():
        return rows, None
    asks = rows.filter(is_ask)
    kept = OutputKind.POSITIONS in ctx.input.outputs and ABOUT in rows.column_names
    reasons = check_asks(asks, ctx.input.events if kept else None)
    reasons[nulls(asks, "id")] = NULL_ID
    bad = reasons != None  # noqa: E711 (elementwise)
    if bad.any():
        quarantine.add(QUERY, asks.filter(pa.array(bad)), NAMES, reasons[bad])
    return rows.filter(pc.invert(is_ask)), asks.filter(pa.array(~bad)) if not bad.all() else None


def with_shapes(
    rows: pa.Table, events: BoundEvents | None, *, world: bool = False
) -> tuple[pa.Table, npt.NDArray[np.object_]]:
    """Return operations with the records and the rectangles of their shapes, and why not.

    ``world`` is whether coordinates are degrees of the whole world.
    """
    radius, metres, k = (
        rows.column(name).cast(pa.float64()).fill_null(np.nan).to_numpy()
        if name in rows.column_names
        else np.full(rows.num_rows, np.nan)
        for name in (RADIUS, RADIUS_METRES, K)
    )
    nearest = events.settings.nearest if events else None
    parsed = parse_shapes(
        rows.column(GEOMETRY).combine_chunks(), radius, metres, k, nearest, world=world
    )
    boxes, given = boxes_of(rows), parsed.given
    boxes[given] = parsed.boxes[given]
    for i, edge in enumerate(EDGES):
        values = pa.array(boxes[:, i], mask=np.isnan(boxes[:, i]) & (given | nulls(rows, edge)))
        rows = rows.set_column(rows.schema.get_field_index(edge), edge, values)
    return rows.append_column(SHAPE, parsed.records), parsed.reasons


def _shape_checks(
    has_box: npt.NDArray[np.bool_], reasons: npt.NDArray[np.object_] | None
) -> list[tuple[npt.NDArray[np.bool_], str]]:
    """Return which operations are rejected for their shapes, by reason."""
    if reasons is None:
        return []
    found = set(reasons[has_box].tolist()) - {None}
    return [(has_box & (reasons == one), one) for one in sorted(found)]


def _too_long(rows: pa.Table) -> npt.NDArray[np.bool_]:
    ids = rows.column("id")
    if ids.type != pa.string():
        return np.zeros(rows.num_rows, dtype=bool)
    return np.asarray(pc.fill_null(pc.greater(pc.binary_length(ids), LONGEST_NAME), False))


def _limit_checks(
    ctx: BatchContext, rows: pa.Table, has_box: npt.NDArray[np.bool_]
) -> list[tuple[npt.NDArray[np.bool_], str]]:
    """Return which operations are beyond a limit of the settings, by reason."""
    config = ctx.input.config
    checks = []
    if config.max_operations and ctx.epoch.batch != INITIAL:
        beyond = np.arange(rows.num_rows) >= config.max_operations
        checks.append((beyond, f"beyond max_operations ({config.max_operations}) of a batch"))
    size = np.zeros(rows.num_rows, dtype=np.int64)
    for name in {GEOMETRY, DETAILS} & set(rows.column_names):
        size += pc.fill_null(pc.binary_length(rows.column(name)), 0).to_numpy()
    too_long = size > config.max_query_bytes
    checks.append((too_long, f"longer than max_query_bytes ({config.max_query_bytes})"))
    if config.max_query_share < 1.0:
        low_x, low_y, high_x, high_y = boxes_of(rows).T
        space = ctx.grid.bounds
        width = np.minimum(high_x, space.max_x) - np.maximum(low_x, space.min_x)
        height = np.minimum(high_y, space.max_y) - np.maximum(low_y, space.min_y)
        whole = (space.max_x - space.min_x) * (space.max_y - space.min_y)
        inside = (width > 0) & (height > 0)
        too_large = has_box & inside & (width * height > config.max_query_share * whole)
        checks.append((too_large, f"larger than max_query_share ({config.max_query_share})"))
    return checks


def _since_after_until(rows: pa.Table) -> npt.NDArray[np.bool_]:
    backwards = pc.greater(rows.column("since"), rows.column("until"))
    return np.asarray(pc.fill_null(backwards, False))


class AppliedOperations(NamedTuple):
    """The input of the batch's other stages, and what became of its operations."""

    input: TaskInput
    output: TaskOutput
    snapshots: list[PackedRows]
    asks: pa.Table | None
    """Questions about objects; None without any."""


def apply_operations(ctx: BatchContext, rows: pa.Table) -> AppliedOperations:
    """Check the operations of a batch and store them; the input returned has their manifest.

    The manifest's new delta is not durable yet; its parts are.
    """
    quarantine = ctx.quarantine("operations")
    checked = check_operations(ctx, rows, quarantine)
    quarantine.write()
    task_input, counts = ctx.input, checked.counts
    if checked.operations.num_rows:

        def write(name: str, content: pa.Buffer, rows: int) -> FileRef:
            return ctx.input.files.write(ctx.file_name(Folder.DELTAS, name), content, rows)

        def divide(delta: Delta) -> DeltaParts | None:
            if not ctx.input.hosts:
                return None
            part_of = ctx.part_blocks.assigned(ctx.plan.partitions, ctx.input.hosts)
            return write_parts(delta, part_of, ctx.grid, write)

        manifest, settled = store_operations(
            operations_from(checked.operations),
            ctx.epoch.manifest,
            ctx.queries,
            ctx.grid,
            batch=ctx.epoch.batch,
            clock=ctx.epoch.clock,
            purge_before=ctx.input.purge_before,
            write=lambda content, rows: ctx.input.files.write(
                ctx.file_name(Folder.DELTAS, "delta"), content, rows, durable=False
            ),
            divide=divide,
        )
        counts += Counts(
            operations=settled.applied, replaced=settled.replaced, ignored=settled.ignored
        )
        task_input = replace(
            task_input,
            epoch=replace(ctx.epoch, manifest=manifest),
            query_changes=(
                *task_input.query_changes,
                *_write_query_changes(ctx, settled.changes),
            ),
            fence_changes=_write_fence_changes(ctx, settled.changes),
        )
    output = TaskOutput(
        batch=ctx.epoch.batch,
        stage=TaskStage.OPERATIONS,
        task=0,
        counts=counts,
        rejected=quarantine.faults(),
    )
    return AppliedOperations(task_input, output, checked.snapshots, checked.asks)


def _write_query_changes(ctx: BatchContext, changes: Changes) -> tuple[FileRef, ...]:
    """Write which partitions got and lost queries, for the agents of executors."""
    if not len(changes.ids):
        return ()
    before = changes.before[changes.before[:, 2] > 0]
    cells = np.concatenate([before, cell_array(changes.added.cells(ctx.grid))])
    start, partition = ctx.index.overlaps(cells_from(cells))
    rows = np.repeat(np.arange(len(cells)), np.diff(start))
    order = np.argsort(partition, kind="stable")
    rows = rows[order]
    content = QueryChanges(
        partition=partition[order], added=rows >= len(before), cells=cells_from(cells[rows])
    ).to_bytes()
    return (ctx.input.files.write(ctx.file_name(Folder.SOFT, "news"), content, durable=False),)


def _write_fence_changes(ctx: BatchContext, changes: Changes) -> FileRef | None:
    """Write which queries changed, for the tasks that keep objects; None where there are none."""
    if ctx.input.events is None or not len(changes.ids):
        return None
    changed = FenceChanges(changes.ids, np.isin(changes.ids, changes.added.ids))
    name = ctx.file_name(Folder.SOFT, "fences")
    return ctx.input.files.write(name, changed.to_bytes(), durable=False)
