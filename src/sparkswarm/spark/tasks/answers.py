"""Answers: snapshot queries about the recent past, each answered once.

A snapshot query goes to executors that have a partition under its rectangle (``route_snapshots``,
in the route task), which look through the partition's blocks (``answer_task``, for each executor
with snapshot queries). They see the past up to the batch before: a query never sees half a batch.
Running again gives the same answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from sparkswarm.apps.snapshots import SNAPSHOT_KINDS, SnapshotKind, SnapshotQueries, answers, find
from sparkswarm.errors import ConfigError
from sparkswarm.spark.tasks.packing import PackedRows, RowKind, pack_rows, unpack_rows
from sparkswarm.store.queries import EDGES
from sparkswarm.window.windows import time_weights

if TYPE_CHECKING:
    from sparkswarm.spark.tasks.context import BatchContext


def route_snapshots(ctx: BatchContext, kind: SnapshotKind, rows: pa.Table) -> Iterator[PackedRows]:
    """Yield queries of one kind for the executors that answer them, a row for each partition."""
    cells = ctx.grid.place_queries(*(rows.column(edge).to_numpy() for edge in EDGES))
    start, partition = ctx.index.overlaps(cells)
    number = np.repeat(np.arange(rows.num_rows), np.diff(start))
    queries = rows.take(pa.array(number)).append_column("partition", pa.array(partition))
    queries = queries.append_column("number", pa.array(number))
    everyone = kind.answered_by == "every_owner"
    owner = ctx.first_owner(partition if everyone else partition[start[number]])
    for m in np.unique(owner):
        yield RowKind.SNAPSHOT, int(m), pack_rows(queries.filter(pa.array(owner == m)))


def answer_task(ctx: BatchContext, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Answer packed snapshot queries; the queries of one package are of one kind."""
    schema = ctx.input.answer_schema
    if schema is None:
        raise ConfigError("no points are kept that answers could be about")
    for batch in batches:
        for value in batch.column("rows"):
            rows = unpack_rows([value.as_buffer()]).combine_chunks()
            kind = SNAPSHOT_KINDS[rows.column("op")[0].as_py()]
            queries = SnapshotQueries.from_table(
                rows, ctx.input.window_start, ctx.input.max_event_time
            )
            found = find(
                queries,
                grid=ctx.grid,
                blocks=ctx.epoch.manifest.blocks,
                open_block=ctx.block,
                application=ctx.input.application,
            )
            for table in answers(kind, queries, found, schema.columns, schema.id_type):
                yield from table.rename_columns(list(schema.names)).combine_chunks().to_batches()


def window_edge_task(
    ctx: BatchContext, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield times and weights of the points in some blocks, given by their position.

    A window that holds a number of points or bytes starts somewhere inside these blocks.
    """
    window = ctx.input.window
    if window is None:
        raise ConfigError("no points are kept")
    blocks = [block for some in ctx.epoch.manifest.blocks.values() for block in some]
    for batch in batches:
        for i in batch.column("block").to_pylist():
            block, cells = ctx.block(blocks[i]), blocks[i].cells
            found = time_weights(block, cells, ctx.grid, window, ctx.input.window_start)
            yield pa.record_batch({"time": found.times, "weight": found.weights})
