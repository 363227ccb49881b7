"""Queries and operations as columns, and the names of the columns in which they travel."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparkswarm.compiled import FloatArray, IntArray, LongArray
from sparkswarm.geometry import Grid, QueryCells
from sparkswarm.index.layout import NEVER as NEVER
from sparkswarm.store.names import hash_names

ID, X, Y, TIME = "__id", "__x", "__y", "__time"
"""Internal names of the columns that every point has, while its rows travel."""

PLAIN_NAMES = {ID: "id", X: "x", Y: "y", TIME: "time"}
"""What applications and blocks call these columns."""

EDGES = ("min_x", "min_y", "max_x", "max_y")
"""The columns of a rectangle."""

OPERATION_COLUMNS = ("op", "id", *EDGES, "expires", "order", "since", "until")
"""The columns of an operation and of a snapshot query."""

GEOMETRY, RADIUS, RADIUS_METRES = "geometry", "radius", "radius_m"
SHAPE_COLUMNS = (GEOMETRY, RADIUS, RADIUS_METRES)
"""The columns of an operation's shape as the user gave it, as text and numbers; absent if queries
have none."""

SHAPE = "shape"
"""The column with the record of a query's shape; absent if queries have none."""

DETAILS = "details"
"""The column with an application's columns of a query as JSON; absent if it has none."""

NAME = "name"
"""The column with the text of an id, beside its number in ``id``; absent where ids are whole
numbers. Before operations are stored, ``id`` has the text."""

ABOUT, K, WITHIN = "about", "k", "within"
ASK_COLUMNS = (ABOUT, K, WITHIN)
"""The columns of a question about objects; absent where none are kept."""

PROPERTIES = "properties"
"""The column with a query's columns that come back, as JSON; absent without any."""


FIRST = -(2**63)
"""Order of operations that have none: before all others."""


class Op(IntEnum):
    """What an operation does to a query."""

    REGISTER = 0
    UPDATE = 1
    UNREGISTER = 2


Values = tuple[
    pa.LargeBinaryArray | None,
    pa.LargeBinaryArray | None,
    pa.LargeBinaryArray | None,
    pa.LargeBinaryArray | None,
]
"""Columns of bytes that queries may have."""


class Queries(NamedTuple):
    """n continuous range queries.

    Attributes
    ----------
    ids
        Distinct ids.
    boxes
        min_x, min_y, max_x, max_y of each, edges included.
    expires
        Microseconds since 1970; a query matches points before this time. NEVER if it stays.
    attributes
        The application's columns of each query, as JSON or null. None where the application has
        no columns.
    shapes
        The record of each query's shape (:mod:`sparkswarm.index.shapes`), null or empty where the
        rectangle is the shape. None where it is for all.
    names
        The text of each query's id (:mod:`sparkswarm.store.names`), of which ``ids`` has the
        number. None where ids are whole numbers.
    properties
        The columns of each query that come back with its matches, as JSON or null. None without
        any.
    """

    ids: LongArray
    boxes: FloatArray
    expires: LongArray
    attributes: pa.LargeBinaryArray | None = None
    shapes: pa.LargeBinaryArray | None = None
    names: pa.LargeBinaryArray | None = None
    properties: pa.LargeBinaryArray | None = None

    @classmethod
    def empty(cls) -> Queries:
        """Return no queries."""
        return cls(np.empty(0, np.int64), np.empty((0, 4)), np.empty(0, np.int64))

    @classmethod
    def concat(cls, parts: list[Queries]) -> Queries:
        """Return the queries of all parts in order."""
        arrays = [(part.ids, part.boxes, part.expires) for part in (cls.empty(), *parts)]
        ids, boxes, expires = map(np.concatenate, zip(*arrays, strict=True))
        columns = range(len(arrays[0]), len(cls._fields))
        values = (_concat_values([(len(part.ids), part[i]) for part in parts]) for i in columns)
        return cls(ids, boxes, expires, *values)

    def take(self, rows: npt.NDArray[Any]) -> Queries:
        """Return the chosen queries, by position or by mask."""
        chosen = np.flatnonzero(rows) if rows.dtype == bool else rows
        values = take_rows(self.values, chosen)
        return Queries(self.ids[rows], self.boxes[rows], self.expires[rows], *values)

    @property
    def values(self) -> Values:
        """The columns of bytes: attributes, shapes, names and properties."""
        return self.attributes, self.shapes, self.names, self.properties

    def rectangles(self) -> Queries:
        """Return the same queries without their columns of bytes."""
        return Queries(self.ids, self.boxes, self.expires)

    def cells(self, grid: Grid) -> QueryCells:
        """Return the cells that each query overlaps."""
        return grid.place_queries(*np.ascontiguousarray(self.boxes.T))


def take_rows(values: Values, rows: npt.NDArray[Any]) -> Values:
    """Return the chosen rows of columns of bytes."""
    chosen = pa.array(rows)
    attributes, shapes, names, properties = (
        None if column is None else column.take(chosen) for column in values
    )
    return attributes, shapes, names, properties


def _concat_values(
    parts: list[tuple[int, pa.LargeBinaryArray | None]],
) -> pa.LargeBinaryArray | None:
    """Return the values of all parts, given with their lengths; None where no part has any."""
    if all(values is None for _, values in parts):
        return None
    return pa.concat_arrays(
        [
            pa.nulls(number, pa.large_binary()) if values is None else values
            for number, values in parts
        ]
    )


class Operations(NamedTuple):
    """n operations on queries.

    Attributes
    ----------
    op
        An :class:`Op` each.
    queries
        The query of each operation; for UNREGISTER only its id has a meaning.
    order
        Operations on one query take effect in this order, those with the same in that of the
        rows. :data:`FIRST` where it is not given.
    """

    op: npt.NDArray[np.int8]
    queries: Queries
    order: LongArray

    def with_ids(self, ids: LongArray) -> Operations:
        """Return the operations with other numbers of their queries."""
        return self._replace(queries=self.queries._replace(ids=ids))


def cell_array(cells: QueryCells) -> IntArray:
    """Return cells as an array of shape (n, 4), for files."""
    return np.stack(cells[:4], axis=1).astype(np.int32, copy=False)


def cells_from(array: npt.NDArray[Any]) -> QueryCells:
    """Return the cells of which :func:`cell_array` made an array."""
    col_start, row_start, col_stop, row_stop = np.ascontiguousarray(array.T, np.int32)
    return QueryCells(col_start, row_start, col_stop, row_stop, np.zeros(len(array), np.uint8))


def operations_from(rows: pa.Table) -> Operations:
    """Return operations as columns, in the order of the rows; ``op`` has codes."""
    expires = rows.column("expires").fill_null(NEVER).to_numpy()
    order = rows.column("order").fill_null(FIRST).to_numpy()
    names = None
    if rows.schema.field("id").type == pa.string():
        names = rows.column("id").cast(pa.large_binary()).combine_chunks()
    ids = rows.column("id").to_numpy() if names is None else hash_names(names)
    queries = Queries(ids, boxes_of(rows), expires, *values_of(rows))
    if names is not None:
        queries = queries._replace(names=names)
    return Operations(rows.column("op").to_numpy(), queries, order)


def boxes_of(rows: pa.Table) -> FloatArray:
    """Return the rectangles of operations or snapshot queries; NaN where an edge is null."""
    return np.stack([rows.column(edge).to_numpy(zero_copy_only=False) for edge in EDGES], axis=1)


def values_of(rows: pa.Table) -> Values:
    """Return the columns of bytes of operations or stored queries."""
    names, properties = _binary_column(rows, NAME), _binary_column(rows, PROPERTIES)
    return attributes_of(rows), shapes_of(rows), names, properties


def attributes_of(rows: pa.Table) -> pa.LargeBinaryArray | None:
    """Return the application's columns of operations or snapshot queries; None if it has none."""
    return _binary_column(rows, DETAILS)


def shapes_of(rows: pa.Table) -> pa.LargeBinaryArray | None:
    """Return the records of the shapes of operations or snapshot queries; None without any."""
    shapes = _binary_column(rows, SHAPE)
    return None if shapes is None or shapes.null_count == len(shapes) else shapes


def _binary_column(rows: pa.Table, name: str) -> pa.LargeBinaryArray | None:
    if name not in rows.column_names:
        return None
    return rows.column(name).cast(pa.large_binary()).combine_chunks()
