"""Answers: snapshot queries about the recent past, each answered once.

A snapshot query goes to the executors that have a partition under its rectangle
(``route_snapshots``, in the route task). They look through the partition's blocks, whoever wrote
them, and let the application decide (``answer_task``, for each executor with queries). They see the
past up to the batch before: a query never sees half a batch. Running again gives the same answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sparkswarm.apps.application import Pairs
from sparkswarm.errors import ConfigError
from sparkswarm.geometry import Box
from sparkswarm.spark.tasks.packing import PackedRows, RowKind, pack_rows, unpack_rows
from sparkswarm.store.blocks import MAX_TIME, MIN_TIME, Block
from sparkswarm.store.manifest import BlockRef
from sparkswarm.store.queries import DETAILS, EDGES, NEVER, Queries
from sparkswarm.window.windows import time_weights

if TYPE_CHECKING:
    from sparkswarm.spark.tasks.context import BatchContext

ANSWER_ROWS = 100_000
"""Approximate number of rows of answers in one record batch."""


def boxes_of(operations: pa.Table) -> npt.NDArray[np.float64]:
    """Return the rectangles of operations, NaN where an edge is null."""
    return np.stack([operations.column(e).to_numpy(zero_copy_only=False) for e in EDGES], axis=1)


def details_of(operations: pa.Table) -> pa.LargeBinaryArray | None:
    """Return an application's columns of queries, encoded; None where it has none."""
    if DETAILS not in operations.column_names:
        return None
    return operations.column(DETAILS).cast(pa.large_binary()).combine_chunks()


def route_snapshots(ctx: BatchContext, kind: RowKind, rows: pa.Table) -> Iterator[PackedRows]:
    """Yield snapshot queries for the executors that answer them, a row for each partition.

    Points are found by every executor with a partition under the rectangle. A count is made by
    one executor: there is little to find and less to send.
    """
    cells = ctx.grid.place_queries(*(rows.column(edge).to_numpy() for edge in EDGES))
    start, partition = ctx.index.overlaps(cells)
    number = np.repeat(np.arange(rows.num_rows), np.diff(start))
    asked = rows.take(pa.array(number)).append_column("partition", pa.array(partition))
    asked = asked.append_column("ask", pa.array(number))
    owner = ctx.first_owner(partition if kind == RowKind.RANGE else partition[start[number]])
    for m in np.unique(owner):
        yield kind, int(m), pack_rows(asked.filter(pa.array(owner == m)))


def answer_task(ctx: BatchContext, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Answer packed snapshot queries: a row for each point of a range, one row for a count."""
    schema = ctx.input.answer_schema
    if schema is None:
        raise ConfigError("no points are kept that answers could be about")
    for batch in batches:
        kinds = batch.column("kind").to_pylist()
        for kind, value in zip(kinds, batch.column("rows"), strict=True):
            asked = SnapshotQueries(ctx, unpack_rows([value.as_buffer()]))
            count = kind == RowKind.COUNT
            found = asked.counts(schema.columns) if count else asked.points(schema.columns)
            for arrays in found:
                yield pa.RecordBatch.from_arrays(list(map(pa.array, arrays)), list(schema.names))


def window_edge_task(
    ctx: BatchContext, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield times and weights of the points in some blocks, given by their position.

    A window that holds a number of points or bytes starts somewhere inside these blocks.
    """
    window = ctx.input.window
    if window is None:
        raise ConfigError("no points are kept")
    kept = [one for some in ctx.epoch.manifest.blocks.values() for one in some]
    for batch in batches:
        for i in batch.column("block").to_pylist():
            block = ctx.block(kept[i])
            found = time_weights(block, kept[i].cells, ctx.grid, window, ctx.input.window_start)
            yield pa.record_batch({"time": found.times, "weight": found.weights})


class SnapshotQueries:
    """Snapshot queries, one row for each partition that they concern."""

    def __init__(self, ctx: BatchContext, asked: pa.Table) -> None:
        self._ctx = ctx
        asked = asked.combine_chunks()
        self._asked, self._ids = (asked.column(name).to_numpy() for name in ("ask", "id"))
        self._partitions = asked.column("partition").to_pylist()
        self._boxes = boxes_of(asked)
        self._cells = ctx.grid.place_queries(*np.ascontiguousarray(self._boxes.T))
        first = pc.fill_null(asked.column("since"), MIN_TIME).to_numpy()
        last = pc.fill_null(asked.column("until"), MAX_TIME).to_numpy()
        self._since = np.maximum(first, ctx.input.window_start).tolist()
        self._until = np.minimum(last, ctx.input.max_event_time).tolist()
        self._built: Any = None
        if ctx.input.application:
            never = np.full(len(self._ids), NEVER)
            queries = Queries(self._ids, self._boxes, never, details_of(asked))
            self._built = ctx.input.application.build(queries, ctx.grid)

    def counts(self, columns: pa.Schema) -> Iterator[list[Any]]:
        """Yield the number of points of each query."""
        _, first, which = np.unique(self._asked, return_index=True, return_inverse=True)
        counts = np.zeros(len(first), np.int64)
        for i, _, rows in self._found():
            counts[which[i]] += len(rows)
        blank = [pa.nulls(len(counts), field.type) for field in columns]
        yield [self._ids[first], counts, *blank]

    def points(self, columns: pa.Schema) -> Iterator[list[Any]]:
        """Yield the points of each query."""
        asked: list[int] = []
        waiting: list[pa.Table] = []
        for i, block, rows in self._found():
            asked += [i] * len(rows)
            waiting.append(_chosen(block.points, columns).take(pa.array(rows)))
            if len(asked) >= ANSWER_ROWS:
                yield self._answer(asked, waiting)
                asked, waiting = [], []
        if asked:
            yield self._answer(asked, waiting)

    def _answer(self, asked: list[int], waiting: list[pa.Table]) -> list[Any]:
        points = pa.concat_tables(waiting).combine_chunks()
        blank = pa.nulls(len(asked), pa.int64())
        return [self._ids[asked], blank, *(column.combine_chunks() for column in points.columns)]

    def _found(self) -> Iterator[tuple[int, Block, npt.NDArray[np.int64]]]:
        """Yield the points that a query finds in a block, by row."""
        ctx = self._ctx
        application = ctx.input.application
        for i, partition in enumerate(self._partitions):
            for kept in ctx.epoch.manifest.blocks.get(partition, ()):
                if not self._concerns(i, kept):
                    continue
                block, box = ctx.block(kept), Box(*self._boxes[i])
                rows = block.rows_in(kept.cells, ctx.grid, box, self._since[i], self._until[i])
                if application and self._built is not None and len(rows):
                    points = application.block_points(block.points.take(pa.array(rows)))
                    pairs = Pairs(np.arange(len(rows)), np.full(len(rows), i))
                    rows = rows[application.match(self._built, points, pairs)]
                if len(rows):
                    yield i, block, rows

    def _concerns(self, i: int, kept: BlockRef) -> bool:
        """Return whether a query may find something in a block."""
        meta = kept.meta
        in_time = meta.newest >= self._since[i] and meta.oldest <= self._until[i]
        return in_time and kept.cells.intersection(self._cells.rect(i)).overlaps(meta.cells)


def _chosen(points: pa.Table, columns: pa.Schema) -> pa.Table:
    """Return some columns of a block; one that was not kept at the time is null."""
    return pa.Table.from_arrays(
        [
            points.column(field.name).cast(field.type)
            if field.name in points.column_names
            else pa.nulls(points.num_rows, field.type)
            for field in columns
        ],
        schema=columns,
    )
