"""The layout of a stream: what its rows look like, from the source to the sinks.

Runs on the driver, once per start. Selects and checks the user's columns, makes one stream of
points and operations, and works out the schemas of results and answers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema, to_arrow_type
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DateType,
    DoubleType,
    IntegralType,
    LongType,
    NumericType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from sparkswarm.apps.application import Application, Stateful
from sparkswarm.apps.bound import BoundApplication, block_column
from sparkswarm.apps.events.advance import event_schema
from sparkswarm.apps.events.objects import BoundEvents, check_object_type
from sparkswarm.apps.events.settings import Events
from sparkswarm.apps.snapshots import ANSWER_COLUMNS
from sparkswarm.errors import ConfigError, InputError
from sparkswarm.spark.columns import (
    BATCH_ID,
    INPUT_PARTITION,
    OPERATIONS,
    QUERY_ID,
    QUERY_IDS,
    PointColumns,
    QueryColumns,
)
from sparkswarm.spark.task_output import PACKED_PREFIX, AnswerSchema, OutputSchema
from sparkswarm.spark.tasks.packing import PACKED_SCHEMA, RowKind
from sparkswarm.store.queries import (
    DETAILS,
    GEOMETRY,
    ID,
    OPERATION_COLUMNS,
    PLAIN_NAMES,
    RADIUS,
    RADIUS_METRES,
    TIME,
    X,
    Y,
)
from sparkswarm.window.windows import Window

ResultShape = Literal["points", "pairs"]

LINE_OPTIONS = {"escape": '"', "ignoreLeadingWhiteSpace": "false"}
"""How operations become lines: CSV as everybody reads it."""


@dataclass(frozen=True, kw_only=True)
class StreamLayout:
    """What rows look like, from the source to the sinks.

    Attributes
    ----------
    point_columns
        The user's names of the points' columns, by our names.
    results
        Schema of the results, one row for each point.
    shape
        ``points``, or ``pairs`` for a row for each match.
    include
        Columns of the points that come back, by our names.
    has_operations, has_time, has_shapes
        Whether operations are among the rows, whether points have event times, and whether
        operations have a column of geometries.
    application
        What decides beyond rectangles; None where nothing does.
    window
        How long points are kept; None where they are not.
    events
        Which events of objects are told; None where none are.
    answers, answer_schema
        Schema of the answers to snapshot queries, for Spark and for tasks; None without a window.
    """

    point_columns: Mapping[str, str] = field(default_factory=dict)
    results: StructType
    shape: ResultShape = "points"
    include: tuple[str, ...] = ()
    has_operations: bool
    has_time: bool
    has_shapes: bool = False
    application: BoundApplication | None = None
    window: Window | None = None
    events: BoundEvents | None = None
    answers: StructType | None = None
    answer_schema: AnswerSchema | None = None

    @property
    def stateful(self) -> Stateful | None:
        """The application, if it keeps state."""
        return self.application.stateful if self.application else None

    @property
    def has_details(self) -> bool:
        """Whether the application stores columns of its own with a query."""
        return self.application is not None and len(self.application.query_schema) > 0

    @property
    def has_packed(self) -> bool:
        """Whether tasks return packed rows among the results."""
        return self.stateful is not None or self.events is not None

    def output_schema(self, results: bool) -> OutputSchema:
        """Return the columns of the rows that the tasks of an executor return."""
        return OutputSchema(
            results=to_arrow_schema(self.results, timezone="UTC") if results else None,
            include=self.include,
            partial_state=self.stateful is not None,
            fixes=self.events is not None,
        )

    def output_fields(self, results: bool) -> StructType:
        """Return the same columns for Spark."""
        fields = StructType(list(self.results.fields) if results else [])
        if self.has_packed:
            for one in from_arrow_schema(PACKED_SCHEMA):
                fields.add(f"{PACKED_PREFIX}{one.name}", one.dataType)
        return fields

    @property
    def event_fields(self) -> StructType:
        """The columns of events."""
        if self.events is None:
            raise ConfigError("this run tells no events; give Swarm events")
        return from_arrow_schema(event_schema(self.events.object_type))

    @property
    def file_schema(self) -> pa.Schema:
        """The columns of results in files that tasks write."""
        schema = to_arrow_schema(self.results, timezone="UTC")
        if self.shape == "points":
            return schema
        schema = schema.remove(schema.get_field_index(QUERY_IDS))
        return schema.append(pa.field(QUERY_ID, pa.int64()))

    def finished_results(self, executed: DataFrame) -> DataFrame:
        """Return the results among the rows of the tasks, in the shape that was asked for."""
        frame = executed
        if self.has_packed:
            chosen = executed.where(F.col(f"{PACKED_PREFIX}kind").isNull())
            frame = chosen.select(*(column_of(chosen, name) for name in self.results.names))
        if self.shape == "points":
            return frame
        others = [column_of(frame, name) for name in frame.columns if name != QUERY_IDS]
        return frame.select(*others, F.explode(QUERY_IDS).alias(QUERY_ID))


def packed_rows(executed: DataFrame, kind: RowKind) -> DataFrame:
    """Return the packed rows of a kind among the rows of the tasks."""
    chosen = executed.where(F.col(f"{PACKED_PREFIX}kind") == int(kind))
    names = PACKED_SCHEMA.names
    return chosen.select(*(F.col(f"{PACKED_PREFIX}{name}").alias(name) for name in names))


def read_layout(
    points: DataFrame | None,
    queries: DataFrame | None,
    point_columns: PointColumns,
    query_columns: QueryColumns,
    shape: ResultShape,
    application: Application | None,
    window: Window | None,
    events: Events | None = None,
) -> tuple[DataFrame, StreamLayout]:
    """Return one stream of points and operations, and what its rows look like."""
    if points is None and queries is None:
        raise InputError("there is neither a stream of points nor one of queries")
    if shape not in ("points", "pairs"):
        raise ConfigError(f"results must be 'points' or 'pairs', got {shape!r}")
    for what, frame in (("points", points), ("queries", queries)):
        if frame is not None and not frame.isStreaming:
            raise InputError(
                f"{what} is not a stream; read it with spark.readStream"
                + (", or give static queries as preload" if what == "queries" else "")
            )
    also = application_names(point_columns, application.point_columns if application else ())
    details = application.query_columns if application else {}
    chosen = None if points is None else select_points(points, point_columns, also)
    if chosen is not None:
        # A task's own number is another where a sink unites or coalesces results.
        chosen = chosen.withColumn(INPUT_PARTITION, F.spark_partition_id())
    operations = (
        None if queries is None else select_operations(queries, query_columns, details=details)
    )
    names, fields, include = {}, StructType(), included_names(point_columns)
    if chosen is not None:
        c = point_columns
        names = {ID: c.id, X: c.x, Y: c.y, **dict(zip(include, c.include, strict=True)), **also}
        if c.time is not None:
            names[TIME] = c.time
        for one in (chosen.schema[ID], *(chosen.schema[name] for name in include)):
            fields.add(names[one.name], one.dataType)
    fields.add(QUERY_IDS, ArrayType(LongType()))
    answers = answer_schema = None
    if window is not None:
        answers, answer_schema = _answer_schemas(chosen, point_columns)
    layout = StreamLayout(
        point_columns=names,
        results=fields,
        shape=shape,
        include=include,
        has_operations=queries is not None,
        has_time=point_columns.time is not None,
        has_shapes=has_shapes(queries, query_columns, details),
        application=_bound(application, chosen, also),
        window=window,
        events=_bound_events(events, chosen, point_columns),
        answers=answers,
        answer_schema=answer_schema,
    )
    return union_stream(chosen, operations), layout


def _bound(
    application: Application | None, points: DataFrame | None, also: dict[str, str]
) -> BoundApplication | None:
    if application is None:
        return None
    known = pa.schema([])
    if points is not None:
        names = {**PLAIN_NAMES, **also}
        schema = to_arrow_schema(points.schema, timezone="UTC")
        known = pa.schema([one.with_name(names[one.name]) for one in schema if one.name in names])
    return BoundApplication.of(application, also, known)


def _bound_events(
    events: Events | None, points: DataFrame | None, columns: PointColumns
) -> BoundEvents | None:
    if events is None:
        return None
    if points is None:
        raise InputError("without a stream of points there are no events; leave out events")
    if columns.time is None:
        raise InputError(
            "events need the times of points, which say what came first; name their column with "
            "PointColumns(time=...)"
        )
    kind = to_arrow_type(points.schema[ID].dataType, timezone="UTC")
    check_object_type(kind)
    return BoundEvents(events, kind)


def _answer_schemas(
    points: DataFrame | None, columns: PointColumns
) -> tuple[StructType, AnswerSchema]:
    """Return the schema of answers to snapshot queries, for Spark and for tasks."""
    if points is None:
        raise InputError("without a stream of points there is nothing to keep; leave out window")
    included = dict(zip(columns.include, included_names(columns), strict=True))
    fields: dict[str, tuple[str, DataType]] = {
        columns.id: ("id", points.schema[ID].dataType),
        columns.x: ("x", DoubleType()),
        columns.y: ("y", DoubleType()),
        columns.time or "time": ("time", TimestampType()),
    }
    ours = (*ANSWER_COLUMNS.names, BATCH_ID)
    if len(fields) < 4 or {*ours} & {*fields, *included}:
        raise InputError(
            f"answers cannot have the columns {[*fields, *included]}: each once, and none called "
            f"{' or '.join(ours)}; rename them first"
        )
    for name, internal in included.items():
        fields.setdefault(name, (block_column(name), points.schema[internal].dataType))
    schema = StructType(list(from_arrow_schema(ANSWER_COLUMNS).fields))
    for name, (_, kind) in fields.items():
        schema.add(name, kind)
    in_block = [
        pa.field(inside, to_arrow_type(kind, timezone="UTC")) for inside, kind in fields.values()
    ]
    return schema, AnswerSchema(names=tuple(schema.names), columns=pa.schema(in_block))


def select_points(
    points: DataFrame, columns: PointColumns, also: Mapping[str, str] = MappingProxyType({})
) -> DataFrame:
    """Return the points under our names; InputError where a column cannot be used.

    ``also`` are the columns that an application needs, by our names for them.
    """
    schema = points.schema
    wanted = [columns.id, columns.x, columns.y, *columns.include, *also.values()]
    _check(schema, "points", wanted)
    for name in (columns.x, columns.y):
        _check_type(schema, "points", name, (NumericType,), "a number")
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
        _check(schema, "points", [columns.time])
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
    details: Mapping[str, str] | None = None,
) -> DataFrame:
    """Return the operations under our names; InputError where a column cannot be used.

    ``details`` are the columns that an application stores with a query, and their types.
    """
    schema = queries.schema
    shaped = has_shapes(queries, columns, details)
    edges = [columns.min_x, columns.min_y, columns.max_x, columns.max_y]
    known = [name for name in edges if name in schema.names] if shaped else edges
    _check(schema, "queries", [columns.id, *known] + ([] if register_all else [columns.op]))
    _check_type(schema, "queries", columns.id, (IntegralType,), "a whole number")
    for name in known:
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
        *(_number(queries, name, name in known) for name in edges),
        expires,
        order,
        *span,
    ]
    named = [value.alias(name) for value, name in zip(values, OPERATION_COLUMNS, strict=True)]
    if shaped:
        named += _shape_columns(queries, columns, details)
    if details:
        there = {
            name: column_of(queries, name).cast(kind)
            for name, kind in details.items()
            if name in schema.names
        }
        packed = F.to_json(F.struct(*(value.alias(name) for name, value in there.items())))
        named.append((packed if there else F.lit(None)).cast("string").alias(DETAILS))
    return queries.select(*named)


def has_shapes(
    queries: DataFrame | None, columns: QueryColumns, details: Mapping[str, str] | None
) -> bool:
    """Return whether queries have a column of geometries that is not the application's own."""
    if queries is None or columns.geometry in (details or {}):
        return False
    return columns.geometry in queries.schema.names


def _shape_columns(
    queries: DataFrame, columns: QueryColumns, details: Mapping[str, str] | None
) -> list[Column]:
    """Return the columns of shapes under our names; a binary geometry becomes hexadecimal."""
    kinds = (StringType, BinaryType)
    _check_type(queries.schema, "queries", columns.geometry, kinds, "a string or binary")
    geometry = column_of(queries, columns.geometry)
    if isinstance(queries.schema[columns.geometry].dataType, BinaryType):
        geometry = F.hex(geometry)
    chosen = [geometry.alias(GEOMETRY)]
    for name, ours in ((columns.radius, RADIUS), (columns.radius_m, RADIUS_METRES)):
        there = name in queries.schema.names and name not in (details or {})
        if there:
            _check_type(queries.schema, "queries", name, (NumericType,), "a number")
        chosen.append(_number(queries, name, there).alias(ours))
    return chosen


def _number(frame: DataFrame, name: str, there: bool) -> Column:
    """Return a column as a double, null where the frame does not have it."""
    return (column_of(frame, name) if there else F.lit(None)).cast("double")


def union_stream(points: DataFrame | None, operations: DataFrame | None) -> DataFrame:
    """Return one stream of both; a row is a point, or an operation as a line of text.

    Only one stream has one order: Spark then says which operations and which points belong to a
    batch, and says the same when the batch runs again. Operations come last, behind a node that
    counts them: it keeps their branch of the union apart, even where it is empty, so that a batch
    can read it without the points (:func:`~sparkswarm.spark.driver.operations.read_operations`).
    """
    if operations is None:
        if points is None:
            raise InputError("there is neither a stream of points nor one of queries")
        return points
    line = F.concat(F.to_csv(F.struct(*operations.columns), LINE_OPTIONS), F.lit("\n"))
    lines = operations.select(line.alias(OPERATIONS))
    if points is None:
        return lines
    lines = lines.observe(OPERATIONS.strip("_"), F.count(F.lit(1)).alias("rows"))
    return points.unionByName(lines, allowMissingColumns=True)


def column_of(frame: DataFrame, name: str) -> Column:
    """Return a column by its name; Spark would read a dot in it as a path."""
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
