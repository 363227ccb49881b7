"""Kinds of snapshot query: questions about the recent points, each answered once.

Owns the kinds, :data:`SNAPSHOT_KINDS`, how recent points are found, and what a kind answers with
them. A new kind is a class here and a line in the registry; the operation that asks it, routing
and the columns of answers derive from it. Runs in tasks, once for each executor with snapshot
queries in a batch. It depends on its arguments alone, so running again gives the same answers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkswarm.apps.application import Pairs
from sparkswarm.apps.bound import BoundApplication
from sparkswarm.compiled import FloatArray, LongArray
from sparkswarm.geometry import Box, Grid
from sparkswarm.index.shapes import covered, prepare_shapes
from sparkswarm.store.blocks import MAX_TIME, MIN_TIME, Block
from sparkswarm.store.manifest import BlockRef
from sparkswarm.store.names import values_of_names
from sparkswarm.store.queries import NEVER, Queries, attributes_of, boxes_of, shapes_of
from sparkswarm.store.segments import flat_records

ANSWER_ROWS = 100_000
"""Approximate number of rows in one table of answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotQueries:
    """Snapshot queries of one kind: a row for each query and partition under its rectangle."""

    ids: pa.Array
    """The user's ids, which need not be distinct."""
    numbers: LongArray
    """The query of each row, by a number of its own."""
    partitions: LongArray
    boxes: FloatArray
    since: LongArray
    """First and, in ``until``, last event time of the points asked for."""
    until: LongArray
    attributes: pa.LargeBinaryArray | None = None
    """The application's columns, as in :class:`~sparkswarm.store.queries.Queries`."""
    shapes: pa.LargeBinaryArray | None = None
    """The records of their shapes, as there."""

    @classmethod
    def from_table(cls, rows: pa.Table, window_start: int, now: int) -> SnapshotQueries:
        """Read rows with the columns of operations, and ``number`` and ``partition``.

        Points before ``window_start`` or after ``now`` are not in the window.
        """
        rows = rows.combine_chunks()
        since = pc.fill_null(rows.column("since"), MIN_TIME).to_numpy()
        until = pc.fill_null(rows.column("until"), MAX_TIME).to_numpy()
        return cls(
            ids=rows.column("id").combine_chunks(),
            numbers=rows.column("number").to_numpy(),
            partitions=rows.column("partition").to_numpy(),
            boxes=boxes_of(rows),
            since=np.maximum(since, window_start),
            until=np.minimum(until, now),
            attributes=attributes_of(rows),
            shapes=shapes_of(rows),
        )

    def to_queries(self) -> Queries:
        """Return the rows as queries that never expire."""
        never = np.full(len(self.ids), NEVER)
        return Queries(self.numbers, self.boxes, never, self.attributes, self.shapes)


class FoundRows(NamedTuple):
    """Points in a block that a snapshot query matches."""

    query: int
    """Row in :class:`SnapshotQueries`."""
    block: Block
    rows: LongArray
    """Rows of the points in the block, at least one."""


class SnapshotKind(ABC):
    """A kind of snapshot query."""

    op: ClassVar[str]
    """The operation that asks it: the value of the column ``op``."""
    columns: ClassVar[pa.Schema]
    """Columns of its answers besides ``query_id`` and the columns of a point."""
    answered_by: ClassVar[Literal["every_owner", "one_executor"]]
    """Who answers a query: all owners of partitions under its rectangle, each for its own, or one
    of them alone."""

    @abstractmethod
    def answer(
        self, queries: SnapshotQueries, found: Iterable[FoundRows], points: pa.Schema
    ) -> Iterator[pa.Table]:
        """Yield the answers to queries, given the points that they match.

        A table has ``query_id`` and any of :attr:`columns` and ``points``, which are columns of a
        point by their names in a block; those that it lacks will be null.
        """


class RangeSnapshot(SnapshotKind):
    """All points in a rectangle: one row for each point."""

    op = "range"
    columns = pa.schema([])
    answered_by = "every_owner"

    def answer(
        self, queries: SnapshotQueries, found: Iterable[FoundRows], points: pa.Schema
    ) -> Iterator[pa.Table]:
        """Yield the points of each query."""
        rows: list[LongArray] = []
        parts: list[pa.Table] = []
        count = 0
        for query, block, chosen in found:
            rows.append(np.full(len(chosen), query))
            parts.append(_with_columns(block.points, points).take(pa.array(chosen)))
            count += len(chosen)
            if count >= ANSWER_ROWS:
                yield self._table(queries, rows, parts)
                rows, parts, count = [], [], 0
        if parts:
            yield self._table(queries, rows, parts)

    @staticmethod
    def _table(queries: SnapshotQueries, rows: list[LongArray], parts: list[pa.Table]) -> pa.Table:
        ids = queries.ids.take(pa.array(np.concatenate(rows)))
        return pa.concat_tables(parts).append_column("query_id", ids)


class CountSnapshot(SnapshotKind):
    """The number of points in a rectangle: one row for each query.

    One executor answers a query: the points are not sent anywhere, only their number.
    """

    op = "count"
    columns = pa.schema([("count", pa.int64())])
    answered_by = "one_executor"

    def answer(
        self, queries: SnapshotQueries, found: Iterable[FoundRows], points: pa.Schema
    ) -> Iterator[pa.Table]:
        """Yield the number of points of each query, also if it is 0."""
        _, first, position = np.unique(queries.numbers, return_index=True, return_inverse=True)
        counts = np.zeros(len(first), np.int64)
        for query, _, rows in found:
            counts[position[query]] += len(rows)
        yield pa.table({"query_id": queries.ids.take(pa.array(first)), "count": counts})


SNAPSHOT_KINDS: Mapping[str, SnapshotKind] = {
    kind.op: kind for kind in (RangeSnapshot(), CountSnapshot())
}
"""The kinds of snapshot query by their operation."""


def answer_columns(id_type: pa.DataType) -> pa.Schema:
    """Return the columns of answers before those of a point."""
    return pa.schema(
        [
            ("query_id", id_type),
            *(column for kind in SNAPSHOT_KINDS.values() for column in kind.columns),
        ]
    )


def find(
    queries: SnapshotQueries,
    *,
    grid: Grid,
    blocks: Mapping[int, Sequence[BlockRef]],
    open_block: Callable[[BlockRef], Block],
    application: BoundApplication | None = None,
) -> Iterator[FoundRows]:
    """Yield the points that queries match, block by block.

    ``blocks`` are those of each partition; ``open_block`` reads one that may have points of a
    query. The application decides which points in the rectangle match, without one all do.
    """
    cells = grid.place_queries(*np.ascontiguousarray(queries.boxes.T))
    shapes = None
    if queries.shapes is not None:
        starts, words = flat_records(queries.shapes)
        shapes = prepare_shapes(words, starts, queries.boxes)
    built: Any = application.build(queries.to_queries(), grid) if application else None
    for i, partition in enumerate(queries.partitions.tolist()):
        since, until = int(queries.since[i]), int(queries.until[i])
        for ref in blocks.get(partition, ()):
            if ref.meta.newest < since or ref.meta.oldest > until:
                continue
            if not ref.cells.intersection(cells.rect(i)).overlaps(ref.meta.cells):
                continue
            block = open_block(ref)
            rows = block.rows_in(ref.cells, grid, Box(*queries.boxes[i]), since, until)
            if shapes is not None and len(rows):
                x, y = (
                    block.points.column(name).take(pa.array(rows)).to_numpy() for name in ("x", "y")
                )
                rows = rows[covered(shapes, i, x, y)]
            if application and built is not None and len(rows):
                points = application.block_points(block.points.take(pa.array(rows)))
                pairs = Pairs(np.arange(len(rows)), np.full(len(rows), i))
                rows = rows[application.match(built, points, pairs)]
            if len(rows):
                yield FoundRows(i, block, rows)


def answers(
    kind: SnapshotKind,
    queries: SnapshotQueries,
    found: Iterable[FoundRows],
    points: pa.Schema,
    id_type: pa.DataType,
) -> Iterator[pa.Table]:
    """Yield the answers of a kind with :func:`answer_columns` and ``points``, in this order."""
    schema = pa.schema([*answer_columns(id_type), *points])
    for table in kind.answer(queries, found, points):
        if queries.ids.type == pa.string():
            at = table.schema.get_field_index("query_id")
            ids = values_of_names(table.column(at).combine_chunks(), id_type)
            table = table.set_column(at, "query_id", ids)
        yield _with_columns(table, schema)


def _with_columns(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return these columns of a table; those that it lacks are null."""
    return pa.Table.from_arrays(
        [
            table.column(field.name).cast(field.type)
            if field.name in table.column_names
            else pa.nulls(table.num_rows, field.type)
            for field in schema
        ],
        schema=schema,
    )
