"""Selection: the user's columns, checked and under our names.

Runs on the driver, once per start. What cannot be used is refused with an InputError that says what
to write instead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    FractionalType,
    IntegralType,
    LongType,
    NumericType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from sparkswarm.errors import InputError
from sparkswarm.spark.columns import (
    BATCH_ID,
    QUERY_ID,
    QUERY_IDS,
    PointColumns,
    QueryColumns,
)
from sparkswarm.spark.driver.named_columns import (
    check_castable,
    check_there,
    check_travels,
    check_type,
    column_of,
)
from sparkswarm.store.queries import (
    ABOUT,
    DETAILS,
    EDGES,
    GEOMETRY,
    ID,
    OPERATION_COLUMNS,
    PROPERTIES,
    RADIUS,
    RADIUS_METRES,
    TIME,
    WITHIN,
    K,
    X,
    Y,
)

TO_JSON = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
"""How columns of queries become JSON: to the microsecond."""

FROM_JSON = {**TO_JSON, "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss[.SSSSSS][.SSS]"}
"""How those that come back are read again; earlier versions stored some to the millisecond."""


@dataclass(frozen=True, kw_only=True)
class QueryFields:
    """What the queries of a run have beside rectangle and times.

    Attributes
    ----------
    id_type
        Type of their ids in results: long for all whole numbers.
    details
        The columns that an application stores with a query, and their types.
    properties
        The columns that come back.
    shapes
        Whether the stream of operations has a column of geometries.
    asks
        Whether it may ask about objects.
    """

    id_type: DataType = field(default_factory=LongType)
    details: Mapping[str, str] = field(default_factory=dict)
    properties: StructType = field(default_factory=StructType)
    shapes: bool = False
    asks: bool = False

    @property
    def has_names(self) -> bool:
        """Whether ids are no whole numbers."""
        return not isinstance(self.id_type, LongType)

    @property
    def texts(self) -> list[str]:
        """The columns of operations that are ids as text."""
        return [*(["id"] if self.has_names else []), *([ABOUT] if self.asks else [])]

    @property
    def arrow_id_type(self) -> pa.DataType:
        """Type of their ids in results, as tasks have it."""
        return to_arrow_type(self.id_type, timezone="UTC")

    @property
    def operation_types(self) -> dict[str, pa.DataType]:
        """The columns of operations, in their order, and their types."""
        kinds = {"op": pa.string(), "id": pa.string() if self.has_names else pa.int64()}
        kinds |= dict.fromkeys(EDGES, pa.float64())
        kinds |= dict.fromkeys(("expires", "order", "since", "until"), pa.int64())
        if self.shapes:
            kinds |= {GEOMETRY: pa.string(), RADIUS: pa.float64(), RADIUS_METRES: pa.float64()}
        if self.asks:
            kinds |= {ABOUT: pa.string(), K: pa.int64(), WITHIN: pa.float64()}
        if self.properties:
            kinds[PROPERTIES] = pa.string()
        if self.details:
            kinds[DETAILS] = pa.string()
        return kinds


def query_fields(
    queries: DataFrame | None,
    preload: DataFrame | None,
    columns: QueryColumns,
    details: Mapping[str, str],
    known_ids: str | None,
    asks: bool = False,
) -> QueryFields:
    """Return what queries have, given the stream of operations and those of a bulk load.

    ``known_ids`` is the type of ids that the checkpoint knows, None for whole numbers; ``asks``
    whether operations may ask about objects.
    """
    kinds: dict[str, DataType] = {}
    properties: dict[str, StructField] = {}
    for what, frame in (("queries", queries), ("preload", preload)):
        if frame is None:
            continue
        check_there(frame.schema, what, [columns.id])
        kinds[what] = _id_type(frame.schema[columns.id].dataType)
        there = [name for name in columns.include if name in frame.schema.names]
        check_travels(frame, what, there, as_json=True)
        for name in there:
            one = StructField(name, frame.schema[name].dataType)
            if properties.setdefault(name, one) != one:
                raise InputError(
                    f"column {name} of queries is {properties[name].dataType.simpleString()}, of "
                    f"preload {one.dataType.simpleString()}; cast one of them"
                )
    missing = [name for name in columns.include if name not in properties]
    if missing:
        raise InputError(
            f"neither queries nor preload have the column {', '.join(missing)}, which is to come "
            "back; correct include of QueryColumns"
        )
    if len({kind.simpleString() for kind in kinds.values()}) > 1:
        raise InputError(
            f"ids of queries are {kinds['queries'].simpleString()}, those of preload "
            f"{kinds['preload'].simpleString()}; cast one of them"
        )
    given = next(iter(kinds.values()), None)
    if given is None:
        given = DataType.fromDDL(known_ids) if known_ids else LongType()
    return QueryFields(
        id_type=given,
        details=details,
        properties=StructType(list(properties.values())),
        shapes=has_shapes(queries, columns, details),
        asks=asks,
    )


_NAME_TYPES = (
    StringType,
    BinaryType,
    DecimalType,
    FractionalType,
    BooleanType,
    DateType,
    TimestampType,
    TimestampNTZType,
)
"""Types of ids that are stored by name, see :mod:`sparkswarm.store.names`."""


def _id_type(kind: DataType) -> DataType:
    """Return the type of ids in results; InputError where ids cannot have this type."""
    if isinstance(kind, IntegralType):
        return LongType()
    exact = not isinstance(kind, StringType) or kind.collation == "UTF8_BINARY"
    if isinstance(kind, _NAME_TYPES) and exact:
        return kind
    raise InputError(
        f"ids of queries cannot be {kind.simpleString()}; give a whole number, a string or another "
        "plain type: to_json(id) makes a string of anything"
    )


def query_ids(queries: DataFrame, name: str) -> Column:
    """Return ids as numbers, or as the text that names them."""
    kind, value = queries.schema[name].dataType, column_of(queries, name)
    if isinstance(kind, IntegralType):
        return value.cast("bigint")
    if isinstance(kind, BinaryType):
        return F.hex(value)
    if isinstance(kind, TimestampType):
        return F.unix_micros(value).cast("string")
    if isinstance(kind, DoubleType | FloatType):
        # -0.0 is 0.0, as where Spark groups.
        return (value + F.lit(0.0).cast(kind)).cast("string")
    return value.cast("string")


def select_points(
    points: DataFrame, columns: PointColumns, also: Mapping[str, str] = MappingProxyType({})
) -> DataFrame:
    """Return the points under our names; InputError where a column cannot be used.

    ``also`` are the columns that an application needs, by our names for them.
    """
    schema = points.schema
    wanted = [columns.id, columns.x, columns.y, *columns.include, *also.values()]
    check_there(schema, "points", wanted)
    for name in (columns.x, columns.y):
        check_type(schema, "points", name, (NumericType,), "a number")
    check_travels(points, "points", [columns.id, *columns.include, *also.values()], as_json=False)
    clash = {QUERY_IDS, QUERY_ID, BATCH_ID} & {columns.id, *columns.include}
    if clash or len({columns.id, *columns.include}) != 1 + len(columns.include):
        raise InputError(
            f"results cannot have the columns {[columns.id, *columns.include]}: each once, and "
            f"none called {QUERY_IDS}, {QUERY_ID} or {BATCH_ID}; rename them first"
        )
    chosen = [
        column_of(points, columns.id).alias(ID),
        column_of(points, columns.x).cast("double").alias(X),
        column_of(points, columns.y).cast("double").alias(Y),
    ]
    if columns.time is not None:
        check_there(schema, "points", [columns.time])
        chosen.append(_micros(points, "points", columns.time).alias(TIME))
    others = {**dict(zip(included_names(columns), columns.include, strict=True)), **also}
    return points.select(
        *chosen, *(column_of(points, name).alias(ours) for ours, name in others.items())
    )


def included_names(columns: PointColumns) -> tuple[str, ...]:
    """Return our names for included columns: mapInArrow does not accept every name users choose."""
    return tuple(f"__keep{i}" for i in range(len(columns.include)))


def application_names(columns: PointColumns, wanted: Sequence[str]) -> dict[str, str]:
    """Return our names for the columns that an application needs, and the application's."""
    kept = dict(zip(columns.include, included_names(columns), strict=True))
    return {kept.get(name, f"__app{i}"): name for i, name in enumerate(wanted)}


def select_operations(
    queries: DataFrame,
    columns: QueryColumns,
    register_all: bool = False,
    fields: QueryFields | None = None,
) -> DataFrame:
    """Return the operations under our names; InputError where a column cannot be used."""
    schema, fields = queries.schema, fields or QueryFields()
    details = fields.details
    shaped = has_shapes(queries, columns, details)
    edges = [columns.min_x, columns.min_y, columns.max_x, columns.max_y]
    known = [name for name in edges if name in schema.names] if shaped else edges
    check_there(schema, "queries", [columns.id, *known] + ([] if register_all else [columns.op]))
    for name in known:
        check_type(schema, "queries", name, (NumericType,), "a number")
    if not register_all:
        check_type(schema, "queries", columns.op, (StringType,), "a string")
    op = F.lit("register") if register_all else F.lower(F.trim(column_of(queries, columns.op)))
    order = F.lit(None).cast("bigint")
    times = []
    for when in (columns.expires, columns.since, columns.until):
        check_there(schema, "queries", [when] if when else [])
        times.append(_micros(queries, "queries", when) if when else F.lit(None).cast("bigint"))
    expires, *span = times
    if columns.order is not None:
        check_there(schema, "queries", [columns.order])
        whole = isinstance(schema[columns.order].dataType, IntegralType)
        order = (
            column_of(queries, columns.order).cast("bigint")
            if whole
            else _micros(queries, "queries", columns.order)
        )
    values = [
        op,
        query_ids(queries, columns.id),
        *(_number(queries, name, name in known) for name in edges),
        expires,
        order,
        *span,
    ]
    named = [value.alias(name) for value, name in zip(values, OPERATION_COLUMNS, strict=True)]
    if shaped:
        named += _shape_columns(queries, columns, details)
    if fields.asks:
        named += _ask_columns(queries, columns)
    if fields.properties:
        kinds = {one.name: one.dataType for one in fields.properties}
        named.append(_packed(queries, kinds).alias(PROPERTIES))
    if details:
        check_castable(queries, details)
        named.append(_packed(queries, details).alias(DETAILS))
    return queries.select(*named)


def _ask_columns(queries: DataFrame, columns: QueryColumns) -> list[Column]:
    """Return the columns of questions about objects under our names."""
    kinds = {ABOUT: (columns.about, "string"), K: (columns.k, "bigint")}
    kinds[WITHIN] = columns.within, "double"
    return [
        (column_of(queries, name) if name in queries.schema.names else F.lit(None))
        .cast(kind)
        .alias(ours)
        for ours, (name, kind) in kinds.items()
    ]


def _packed(queries: DataFrame, kinds: Mapping[str, Any]) -> Column:
    """Return columns as JSON, those that are there."""
    there = [
        column_of(queries, name).cast(kind).alias(name)
        for name, kind in kinds.items()
        if name in queries.schema.names
    ]
    packed = F.to_json(F.struct(*there), TO_JSON) if there else F.lit(None)
    return packed.cast("string")


def has_shapes(
    queries: DataFrame | None, columns: QueryColumns, details: Mapping[str, str]
) -> bool:
    """Return whether queries have a column of geometries that is not the application's own."""
    if queries is None or columns.geometry in details:
        return False
    return columns.geometry in queries.schema.names


def _shape_columns(
    queries: DataFrame, columns: QueryColumns, details: Mapping[str, str]
) -> list[Column]:
    """Return the columns of shapes under our names; a binary geometry becomes hexadecimal."""
    kinds = (StringType, BinaryType)
    check_type(queries.schema, "queries", columns.geometry, kinds, "a string or binary")
    geometry = column_of(queries, columns.geometry)
    if isinstance(queries.schema[columns.geometry].dataType, BinaryType):
        geometry = F.hex(geometry)
    chosen = [geometry.alias(GEOMETRY)]
    for name, ours in ((columns.radius, RADIUS), (columns.radius_m, RADIUS_METRES)):
        there = name in queries.schema.names and name not in details
        if there:
            check_type(queries.schema, "queries", name, (NumericType,), "a number")
        chosen.append(_number(queries, name, there).alias(ours))
    return chosen


def _number(frame: DataFrame, name: str, there: bool) -> Column:
    """Return a column as a double, null where the frame does not have it."""
    return (column_of(frame, name) if there else F.lit(None)).cast("double")


def _micros(frame: DataFrame, what: str, name: str) -> Column:
    times = (TimestampType, TimestampNTZType, DateType)
    check_type(frame.schema, what, name, times, "a timestamp")
    return F.unix_micros(column_of(frame, name).cast("timestamp"))
