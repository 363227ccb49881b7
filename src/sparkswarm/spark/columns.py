"""The user's columns: their names, their types, and the one stream that carries them all.

Owns what is asked of the DataFrames of points and of query operations. Both become one stream,
because only one stream has one order: Spark then says which operations and which points belong
to a batch, and says the same when the batch runs again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 (what all of PySpark's users call it)
from pyspark.sql.types import (
    DataType,
    DateType,
    IntegralType,
    NumericType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from sparkswarm.errors import InputError
from sparkswarm.options import renamed_fields
from sparkswarm.spark.tasks.packing import to_bytes
from sparkswarm.store.queries import DETAILS, EDGES, ID, OPERATION_COLUMNS, TIME, X, Y

OPERATIONS = "__operations"
"""The column of packed operations; nobody's column is called so."""

QUERY_IDS, QUERY_ID = "query_ids", "query_id"
"""The columns that results add: all matches of a point, or one of a pair."""


RENAMED_COLUMNS = {"keep": "include"}
"""Former names of fields of PointColumns, which are refused with the present one."""


@renamed_fields(RENAMED_COLUMNS)
@dataclass(frozen=True, slots=True)
class PointColumns:
    """What the columns of the points are called.

    Attributes
    ----------
    id
        Of any type; it comes back in the results.
    x, y
        Numbers.
    time
        Optional: when it happened, a timestamp. Without it, things happen when their batch
        does.
    include
        Other columns to include in the results.
    """

    id: str = "id"
    x: str = "x"
    y: str = "y"
    time: str | None = None
    include: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class QueryColumns:
    """What the columns of the query operations are called.

    Attributes
    ----------
    op
        ``register``, ``update`` or ``unregister``; a bulk load does not need it. Where points
        are kept also ``range`` and ``count``: snapshot queries.
    id
        A whole number.
    min_x, min_y, max_x, max_y
        The rectangle, edges included; null for ``unregister``.
    expires
        Optional: a timestamp from which on the query matches nothing; null is never.
    order
        Optional: operations of one batch on one query take effect in its order, a whole
        number or a timestamp. By default in the order in which Spark reads them, which is
        theirs within one file or one partition of a topic.
    since, until
        Optional, for snapshot queries: timestamps, both included; null is all that is kept.
    """

    op: str = "op"
    id: str = "id"
    min_x: str = "min_x"
    min_y: str = "min_y"
    max_x: str = "max_x"
    max_y: str = "max_y"
    expires: str | None = None
    order: str | None = None
    since: str | None = None
    until: str | None = None


def select_points(
    points: DataFrame, columns: PointColumns, also: Mapping[str, str] = MappingProxyType({})
) -> DataFrame:
    """Return the points under our names; InputError where a column will not do.

    ``also`` names columns that an application needs, by our names for them.
    """
    schema = points.schema
    wanted = [columns.id, columns.x, columns.y, *columns.include, *also.values()]
    _check(schema, "points", wanted)
    for name in (columns.x, columns.y):
        _check_type(schema, "points", name, (NumericType,), "a number")
    clash = {QUERY_IDS, QUERY_ID} & {columns.id, *columns.include}
    if clash or len({columns.id, *columns.include}) != 1 + len(columns.include):
        raise InputError(
            f"results cannot have the columns {[columns.id, *columns.include]}: each once, and "
            f"none called {QUERY_IDS} or {QUERY_ID}; rename them first"
        )
    chosen = [
        column_of(points, columns.id).alias(ID),
        column_of(points, columns.x).cast("double").alias(X),
        column_of(points, columns.y).cast("double").alias(Y),
    ]
    if columns.time is not None:
        _check(schema, "points", [columns.time])
        chosen.append(_micros(points, "points", columns.time).alias(TIME))
    others = {**dict(zip(kept_names(columns), columns.include, strict=True)), **also}
    return points.select(
        *chosen, *(column_of(points, name).alias(ours) for ours, name in others.items())
    )


def kept_names(columns: PointColumns) -> tuple[str, ...]:
    """Return our names for the columns kept: mapInArrow does not take all that users like."""
    return tuple(f"__keep{i}" for i in range(len(columns.include)))


def application_names(columns: PointColumns, wanted: Sequence[str]) -> dict[str, str]:
    """Return our names for the columns that an application needs, and the application's."""
    kept = dict(zip(columns.include, kept_names(columns), strict=True))
    return {kept.get(name, f"__app{i}"): name for i, name in enumerate(wanted)}


def select_operations(
    queries: DataFrame,
    columns: QueryColumns,
    register_all: bool = False,
    details: Mapping[str, str] | None = None,
) -> DataFrame:
    """Return the operations under our names; InputError where a column will not do.

    ``details`` are the columns that an application stores with a query, and their types.
    """
    schema = queries.schema
    edges = [columns.min_x, columns.min_y, columns.max_x, columns.max_y]
    _check(schema, "queries", [columns.id, *edges] + ([] if register_all else [columns.op]))
    _check_type(schema, "queries", columns.id, (IntegralType,), "a whole number")
    for name in edges:
        _check_type(schema, "queries", name, (NumericType,), "a number")
    if not register_all:
        _check_type(schema, "queries", columns.op, (StringType,), "a string")
    op = F.lit("register") if register_all else F.lower(F.trim(column_of(queries, columns.op)))
    order = F.lit(None).cast("bigint")
    times = []
    for when in (columns.expires, columns.since, columns.until):
        _check(schema, "queries", [when] if when else [])
        times.append(_micros(queries, "queries", when) if when else F.lit(None).cast("bigint"))
    expires, *span = times
    if columns.order is not None:
        _check(schema, "queries", [columns.order])
        whole = isinstance(schema[columns.order].dataType, IntegralType)
        order = (
            column_of(queries, columns.order).cast("bigint")
            if whole
            else _micros(queries, "queries", columns.order)
        )
    values = [
        op,
        column_of(queries, columns.id).cast("bigint"),
        *(column_of(queries, name).cast("double") for name in edges),
        expires,
        order,
        *span,
    ]
    named = [value.alias(name) for value, name in zip(values, OPERATION_COLUMNS, strict=True)]
    if details:
        there = {
            name: column_of(queries, name).cast(kind)
            for name, kind in details.items()
            if name in schema.names
        }
        packed = F.to_json(F.struct(*(value.alias(name) for name, value in there.items())))
        named.append((packed if there else F.lit(None)).cast("binary").alias(DETAILS))
    return queries.select(*named)


def one_stream(points: DataFrame | None, operations: DataFrame | None) -> DataFrame:
    """Return one stream of both; a row is a point, or many operations packed into one value."""
    if operations is None:
        assert points is not None
        return points
    packed = operations.mapInArrow(_pack_operations, f"{OPERATIONS} BINARY")
    if points is None:
        return packed
    return points.unionByName(packed, allowMissingColumns=True)


def _pack_operations(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Pack the operations of a task, numbered in the order in which they are read."""
    context = TaskContext.get()
    first = (context.partitionId() if context else 0) << 40
    for batch in batches:
        if batch.num_rows:
            if batch.column("order").null_count == batch.num_rows:
                order = pa.array(range(first, first + batch.num_rows), pa.int64())
                at = batch.schema.get_field_index("order")
                batch = batch.set_column(at, batch.schema.field(at), order)
                first += batch.num_rows
            yield pa.record_batch({OPERATIONS: pa.array([to_bytes(batch)], pa.binary())})


def column_of(frame: DataFrame, name: str) -> Column:
    """Return a column by its name, whatever is in it: Spark gives dots a meaning of their own."""
    return frame["`" + name.replace("`", "``") + "`"]


def _check(schema: StructType, what: str, wanted: list[str]) -> None:
    missing = [name for name in wanted if name not in schema.names]
    if missing:
        kind = "PointColumns" if what == "points" else "QueryColumns"
        raise InputError(
            f"{what} have no column {', '.join(missing)}; they have {', '.join(schema.names)}. "
            f"Say what the columns are called with {kind}"
        )


def _check_type(
    schema: StructType, what: str, name: str, kinds: tuple[type[DataType], ...], wanted: str
) -> None:
    found = schema[name].dataType
    if not isinstance(found, kinds):
        raise InputError(
            f"column {name} of {what} must be {wanted}, it is {found.simpleString()}; cast it first"
        )


def _micros(frame: DataFrame, what: str, name: str) -> Column:
    times = (TimestampType, TimestampNTZType, DateType)
    _check_type(frame.schema, what, name, times, "a timestamp")
    return F.unix_micros(column_of(frame, name).cast("timestamp"))


def boxes_of(operations: pa.Table) -> npt.NDArray[np.float64]:
    """Return the rectangles of operations, NaN where an edge is null."""
    return np.stack([operations.column(e).to_numpy(zero_copy_only=False) for e in EDGES], axis=1)


def details_of(operations: pa.Table) -> pa.LargeBinaryArray | None:
    """Return what an application wants to know of queries; None where it wants nothing."""
    if DETAILS not in operations.column_names:
        return None
    return operations.column(DETAILS).cast(pa.large_binary()).combine_chunks()
