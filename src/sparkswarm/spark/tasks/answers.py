"""Answers: snapshot queries about the recent past, each answered once.

Owns the way of a snapshot query: it goes to every executor with a partition under its rectangle,
which looks through the blocks that the partition has, whoever wrote them, and lets the application
decide. What it sees is the past up to the batch before: a query never sees half a batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from sparkswarm.apps.application import Pairs
from sparkswarm.geometry import Box
from sparkswarm.spark.columns import boxes_of, details_of
from sparkswarm.spark.tasks.context import Desk, desk
from sparkswarm.spark.tasks.packing import COUNT, RANGE, Parcel, Task, from_bytes, to_bytes
from sparkswarm.store.blocks import MAX_TIME, MIN_TIME, Block
from sparkswarm.store.manifest import BlockRef, Manifest
from sparkswarm.store.queries import EDGES, NEVER, Queries
from sparkswarm.window.windows import TimeWeights, Window, exact_start, time_weights

HOW_MANY = "count"

LOT = 100_000
"""Rows of answers that are sent together, more or less."""


class AnswerForm(NamedTuple):
    """What answers look like.

    Attributes
    ----------
    schema
        For Spark: the query, a count, and the columns of a point.
    columns
        What the columns of a point are called in a block, and their types.
    """

    schema: StructType
    columns: pa.Schema


def deal_asks(at: Desk, kind: int, rows: pa.Table) -> Iterator[Parcel]:
    """Yield snapshot queries for the executors that answer them, a row for each partition.

    Points are found where the partitions are, by many executors if need be. A count is made by
    one of them: there is little to find and less to send.
    """
    placed = at.grid.place_queries(*(rows.column(edge).to_numpy() for edge in EDGES))
    start, partition = at.index.overlaps(placed)
    which = np.repeat(np.arange(rows.num_rows), np.diff(start))
    asks = rows.take(pa.array(which)).append_column("partition", pa.array(partition))
    asks = asks.append_column("ask", pa.array(which))
    owner = at.first_owner(partition if kind == RANGE else partition[start[which]])
    for m in np.unique(owner):
        yield kind, int(m), to_bytes(asks.filter(pa.array(owner == m)))


def answers(asks: DataFrame, briefing: bytes, since: int, form: AnswerForm) -> DataFrame:
    """Return the answers to snapshot queries, given as parcels for the executors.

    A query for a range has a row for each point, a query for a count has one row.
    """
    return asks.where(F.col("kind").isin(RANGE, COUNT)).mapInArrow(
        _task(briefing, since, form), form.schema
    )


def window_begins(
    spark: SparkSession, manifest: Manifest, briefing: bytes, window: Window, now: int
) -> int:
    """Return when a window begins.

    Where it holds a count or a size, that takes a look at the blocks at its border.
    """
    kept = [one for some in manifest.blocks.values() for one in some]
    known = window.start(now, kept)
    if not known.read:
        return known.at_least
    look = spark.createDataFrame([(i,) for i in known.read], "block INT")
    tasks = min(len(known.read), spark.sparkContext.defaultParallelism)
    task = _moments_task(briefing, kept, window, known.at_least)
    found = look.repartition(tasks).mapInArrow(task, "time BIGINT, weight BIGINT").toArrow()
    seen = TimeWeights(found.column("time").to_numpy(), found.column("weight").to_numpy())
    return exact_start([seen], known.remaining)


def _moments_task(briefing: bytes, kept: Sequence[BlockRef], window: Window, since: int) -> Task:
    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        at = desk(briefing)
        for batch in batches:
            for i in batch.column("block").to_pylist():
                found = time_weights(at.block(kept[i]), kept[i].cells, at.grid, window, since)
                yield pa.record_batch({"time": found.times, "weight": found.weights})

    return task


def _task(briefing: bytes, since: int, form: AnswerForm) -> Task:
    columns, names = form.columns, form.schema.names

    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            kinds = batch.column("kind").to_pylist()
            for kind, value in zip(kinds, batch.column("rows"), strict=True):
                asked = _Asked(desk(briefing), from_bytes([value.as_buffer()]), since)
                found = asked.counts(columns) if kind == COUNT else asked.points(columns)
                for arrays in found:
                    yield pa.RecordBatch.from_arrays(list(map(pa.array, arrays)), names)

    return task


class _Asked:
    """Snapshot queries, one row for each partition that they concern."""

    def __init__(self, at: Desk, asks: pa.Table, since: int) -> None:
        self._at = at
        asks = asks.combine_chunks()
        self._asks, self._ids = (asks.column(name).to_numpy() for name in ("ask", "id"))
        self._partitions = asks.column("partition").to_pylist()
        self._boxes = boxes_of(asks)
        self._cells = at.grid.place_queries(*np.ascontiguousarray(self._boxes.T))
        first = pc.fill_null(asks.column("since"), MIN_TIME).to_numpy()
        last = pc.fill_null(asks.column("until"), MAX_TIME).to_numpy()
        self._since = np.maximum(first, since).tolist()
        self._until = np.minimum(last, at.briefing.now).tolist()
        self._built: Any = None
        if at.briefing.application:
            never = np.full(len(self._ids), NEVER)
            queries = Queries(self._ids, self._boxes, never, details_of(asks))
            self._built = at.briefing.application.build(queries, at.grid)

    def counts(self, columns: pa.Schema) -> Iterator[list[Any]]:
        """Yield how many points each query has."""
        _, first, which = np.unique(self._asks, return_index=True, return_inverse=True)
        counts = np.zeros(len(first), np.int64)
        for i, _, rows in self._found():
            counts[which[i]] += len(rows)
        nothing = [pa.nulls(len(counts), field.type) for field in columns]
        yield [self._ids[first], counts, *nothing]

    def points(self, columns: pa.Schema) -> Iterator[list[Any]]:
        """Yield the points of each query."""
        which: list[int] = []
        waiting: list[pa.Table] = []
        for i, block, rows in self._found():
            which += [i] * len(rows)
            waiting.append(_chosen(block.points, columns).take(pa.array(rows)))
            if len(which) >= LOT:
                yield self._answer(which, waiting)
                which, waiting = [], []
        if which:
            yield self._answer(which, waiting)

    def _answer(self, which: list[int], waiting: list[pa.Table]) -> list[Any]:
        points = pa.concat_tables(waiting).combine_chunks()
        nothing = pa.nulls(len(which), pa.int64())
        found = [column.combine_chunks() for column in points.columns]
        return [self._ids[which], nothing, *found]

    def _found(self) -> Iterator[tuple[int, Block, npt.NDArray[np.int64]]]:
        """Yield the points that a query finds in a block, by row."""
        at = self._at
        application = at.briefing.application
        for i, partition in enumerate(self._partitions):
            for kept in at.briefing.epoch.manifest.blocks.get(partition, ()):
                if not self._concerns(i, kept):
                    continue
                block = at.block(kept)
                box = Box(*self._boxes[i])
                rows = block.rows_in(kept.cells, at.grid, box, self._since[i], self._until[i])
                if application and self._built is not None and len(rows):
                    points = application.block_points(block.points.take(pa.array(rows)))
                    pairs = Pairs(np.arange(len(rows)), np.full(len(rows), i))
                    rows = rows[application.match(self._built, points, pairs)]
                if len(rows):
                    yield i, block, rows

    def _concerns(self, i: int, kept: BlockRef) -> bool:
        """Whether a query may find something in a block."""
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
