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


FIRST = -(2**63)
"""Order of operations that have none: before all others."""


class Op(IntEnum):
    """What an operation does to a query."""

    REGISTER = 0
    UPDATE = 1
    UNREGISTER = 2


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
    """

    ids: LongArray
    boxes: FloatArray
    expires: LongArray
    attributes: pa.LargeBinaryArray | None = None
    shapes: pa.LargeBinaryArray | None = None

    @classmethod
    def empty(cls) -> Queries:
        """Return no queries."""
        return cls(np.empty(0, np.int64), np.empty((0, 4)), np.empty(0, np.int64))

    @classmethod
    def concat(cls, parts: list[Queries]) -> Queries:
        """Return the queries of all parts in order."""
        arrays = [(part.ids, part.boxes, part.expires) for part in (cls.empty(), *parts)]
        ids, boxes, expires = map(np.concatenate, zip(*arrays, strict=True))
        attributes = _concat_values([(len(part.ids), part.attributes) for part in parts])
        shapes = _concat_values([(len(part.ids), part.shapes) for part in parts])
        return cls(ids, boxes, expires, attributes, shapes)

    def take(self, rows: npt.NDArray[Any]) -> Queries:
        """Return the chosen queries, by position or by mask."""
        chosen = np.flatnonzero(rows) if rows.dtype == bool else rows
        attributes, shapes = (
            None if values is None else values.take(pa.array(chosen))
            for values in (self.attributes, self.shapes)
        )
        return Queries(self.ids[rows], self.boxes[rows], self.expires[rows], attributes, shapes)

    def rectangles(self) -> Queries:
        """Return the same queries without the application's columns and without shapes."""
        return self._replace(attributes=None, shapes=None)

    def cells(self, grid: Grid) -> QueryCells:
        """Return the cells that each query overlaps."""
        return grid.place_queries(*np.ascontiguousarray(self.boxes.T))


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
    queries = Queries(
        *(rows.column("id").to_numpy(), boxes_of(rows), expires),
        *(attributes_of(rows), shapes_of(rows)),
    )
    return Operations(rows.column("op").to_numpy(), queries, order)


def boxes_of(rows: pa.Table) -> FloatArray:
    """Return the rectangles of operations or snapshot queries; NaN where an edge is null."""
    return np.stack([rows.column(edge).to_numpy(zero_copy_only=False) for edge in EDGES], axis=1)


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
