"""The layout of a stream: what its rows look like, from the source to the sinks.

Runs on the driver, once per start. Selects and checks the user's columns, makes one stream of
points and operations, and works out the schemas of results and answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema, to_arrow_type
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DoubleType,
    StringType,
    StructType,
    TimestampType,
)

from sparkswarm.apps.application import Application, Stateful
from sparkswarm.apps.bound import BoundApplication, block_column
from sparkswarm.apps.events.advance import EVENT_COLUMNS, event_schema
from sparkswarm.apps.events.asking import answer_schema
from sparkswarm.apps.events.nearest import ANSWER_COLUMNS, nearest_schema
from sparkswarm.apps.events.objects import BoundEvents, check_object_type
from sparkswarm.apps.events.settings import Events
from sparkswarm.apps.snapshots import answer_columns
from sparkswarm.errors import ConfigError, InputError
from sparkswarm.spark.columns import (
    BATCH_ID,
    INPUT_PARTITION,
    OPERATIONS,
    QUERY_ID,
    QUERY_IDS,
    QUERY_PROPERTIES,
    PointColumns,
    QueryColumns,
)
from sparkswarm.spark.driver.named_columns import column_of
from sparkswarm.spark.driver.selection import (
    FROM_JSON,
    QueryFields,
    application_names,
    included_names,
    query_fields,
    select_operations,
    select_points,
)
from sparkswarm.spark.point_files import OpenedPoints
from sparkswarm.spark.task_input import PointFiles
from sparkswarm.spark.task_output import PACKED_PREFIX, AnswerSchema, OutputSchema
from sparkswarm.spark.tasks.packing import PACKED_SCHEMA, RowKind
from sparkswarm.spark.tasks.state import named_summaries
from sparkswarm.store.queries import ID, PLAIN_NAMES, PROPERTIES, TIME, X, Y
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
    point_files
        What tasks read from files of points; None where Spark reads the points.
    results
        Schema of the results: with the ids of a point's queries, or with one for each match.
    include
        Columns of the points that come back, by our names.
    has_operations, has_time
        Whether operations are among the rows, and whether points have event times.
    queries
        What queries have.
    application
        What decides beyond rectangles; None where nothing does.
    window
        How long points are kept; None where they are not.
    events
        Which events of objects are reported; None for none.
    answers, answer_schema
        Schema of the answers to snapshot queries, for Spark and for tasks; None without a window.
    """

    point_columns: Mapping[str, str] = field(default_factory=dict)
    point_files: PointFiles | None = None
    results: StructType
    include: tuple[str, ...] = ()
    has_operations: bool
    has_time: bool
    queries: QueryFields = field(default_factory=QueryFields)
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
    def has_packed(self) -> bool:
        """Whether tasks return packed rows among the results."""
        return self.stateful is not None or self.events is not None

    def output_schema(self, results: bool) -> OutputSchema:
        """Return the columns of the rows that the tasks of an executor return."""
        return OutputSchema(
            results=to_arrow_schema(self.results, timezone="UTC") if results else None,
            include=self.include,
            id_type=self.queries.arrow_id_type,
            properties=bool(self.queries.properties),
            partial_state=self.stateful is not None,
            fixes=self.events is not None,
        )

    def output_fields(self, results: bool, in_files: bool = False) -> StructType:
        """Return the same columns for Spark; ``in_files`` is whether packed rows are written."""
        fields = StructType(list(self.results.fields) if results else [])
        if in_files and not results:
            return fields.add("nothing", BooleanType())
        if self.has_packed and not in_files:
            for one in from_arrow_schema(PACKED_SCHEMA):
                fields.add(f"{PACKED_PREFIX}{one.name}", one.dataType)
        return fields

    @property
    def summary_fields(self) -> StructType:
        """The columns of summaries."""
        if self.stateful is None:
            raise ConfigError("the application keeps no state")
        return from_arrow_schema(
            named_summaries(self.stateful.summary_schema, self.queries.arrow_id_type)
        )

    @property
    def event_fields(self) -> StructType:
        """The columns of events."""
        if self.events is None:
            raise ConfigError("this run reports no events; give Swarm events")
        return from_arrow_schema(event_schema(self.events))

    @property
    def position_fields(self) -> StructType:
        """The columns of answers to questions about objects."""
        if self.events is None:
            raise ConfigError("this run keeps no objects; give Swarm events")
        return from_arrow_schema(answer_schema(self.events))

    @property
    def nearest_fields(self) -> StructType:
        """The columns of the answers of standing points."""
        if self.events is None:
            raise ConfigError("this run keeps no objects; give Swarm events")
        return from_arrow_schema(nearest_schema(self.events))

    @property
    def file_schema(self) -> pa.Schema:
        """The columns of results in files that tasks write."""
        return to_arrow_schema(self.results, timezone="UTC")

    @property
    def pairs(self) -> bool:
        """Whether results have a row for each match, instead of one for each point."""
        return QUERY_ID in self.results.names

    def finished_results(self, executed: DataFrame) -> DataFrame:
        """Return the results among the rows of the tasks, with the columns of queries apart."""
        frame = executed
        if f"{PACKED_PREFIX}kind" in executed.columns:
            chosen = executed.where(F.col(f"{PACKED_PREFIX}kind").isNull())
            frame = chosen.select(*(column_of(chosen, name) for name in self.results.names))
        if not self.queries.properties:
            return frame
        others = [column_of(frame, name) for name in frame.columns if name != QUERY_PROPERTIES]
        if self.pairs:
            parsed = self._properties_of(F.col(QUERY_PROPERTIES))
        else:
            parsed = F.transform(QUERY_PROPERTIES, self._properties_of)
        return frame.select(*others, *_fields_of(parsed, self.queries.properties))

    def finished_events(self, told: DataFrame) -> DataFrame:
        """Return events or answers with the columns of queries that come back."""
        if not self.queries.properties:
            return told
        parsed = self._properties_of(F.col(PROPERTIES))
        others = [name for name in told.columns if name != PROPERTIES]
        return told.select(*others, *_fields_of(parsed, self.queries.properties))

    def _properties_of(self, packed: Column) -> Column:
        return F.from_json(packed, self.queries.properties, FROM_JSON)


def _fields_of(parsed: Column, properties: StructType) -> list[Column]:
    return [parsed[one.name].alias(one.name) for one in properties]


def packed_rows(executed: DataFrame, kind: RowKind) -> DataFrame:
    """Return the packed rows of a kind among the rows of the tasks."""
    chosen = executed.where(F.col(f"{PACKED_PREFIX}kind") == int(kind))
    names = PACKED_SCHEMA.names
    return chosen.select(*(F.col(f"{PACKED_PREFIX}{name}").alias(name) for name in names))


@dataclass(frozen=True, kw_only=True)
class Branches:
    """The branches of a stream: points and operations under our names; None for those it lacks."""

    points: DataFrame | None
    operations: DataFrame | None


def read_layout(
    points: DataFrame | OpenedPoints | None,
    queries: DataFrame | None,
    point_columns: PointColumns,
    query_columns: QueryColumns,
    shape: ResultShape,
    application: Application | None,
    window: Window | None,
    events: Events | None = None,
    fields: QueryFields | None = None,
) -> tuple[Branches, StreamLayout]:
    """Return streams of points and operations, and what their rows look like."""
    if points is None and queries is None:
        raise InputError("there is neither a stream of points nor one of queries")
    if shape not in ("points", "pairs"):
        raise ConfigError(f"results must be 'points' or 'pairs', got {shape!r}")
    example, stream = points if isinstance(points, OpenedPoints) else (points, points)
    for what, frame in (("points", stream), ("queries", queries)):
        if frame is not None and not frame.isStreaming:
            raise InputError(
                f"{what} is not a stream; read it with spark.readStream"
                + (", or give static queries as preload" if what == "queries" else "")
            )
    also = application_names(point_columns, application.point_columns if application else ())
    known = fields or query_fields(
        *(queries, None, query_columns, application.query_columns if application else {}, None),
        asks=events is not None,
    )
    chosen = None if example is None else select_points(example, point_columns, also)
    rows = stream if isinstance(points, OpenedPoints) else chosen
    operations = (
        None if queries is None else select_operations(queries, query_columns, fields=known)
    )
    names, results, include = {}, StructType(), included_names(point_columns)
    if chosen is not None:
        c = point_columns
        names = {ID: c.id, X: c.x, Y: c.y, **dict(zip(include, c.include, strict=True)), **also}
        if c.time is not None:
            names[TIME] = c.time
        for one in (chosen.schema[ID], *(chosen.schema[name] for name in include)):
            results.add(names[one.name], one.dataType)
    pairs = shape == "pairs"
    results.add(QUERY_ID if pairs else QUERY_IDS, _of_matches(known.id_type, pairs))
    if known.properties:
        clash = {*results.names, QUERY_ID, BATCH_ID} & set(known.properties.names)
        if clash:
            raise InputError(
                f"results cannot have {', '.join(sorted(clash))} of a query beside the column of "
                "that name that they have anyway; rename it"
            )
        results.add(QUERY_PROPERTIES, _of_matches(StringType(), pairs))
    answers = answer_schema = None
    if window is not None:
        answers, answer_schema = _answer_schemas(chosen, point_columns, known)
    layout = StreamLayout(
        point_columns=names,
        point_files=(
            _point_files(chosen, names, points) if isinstance(points, OpenedPoints) else None
        ),
        results=results,
        include=include,
        has_operations=queries is not None,
        has_time=point_columns.time is not None,
        queries=known,
        application=_bound(application, chosen, also),
        window=window,
        events=_bound_events(events, chosen, point_columns, known, application),
        answers=answers,
        answer_schema=answer_schema,
    )
    return Branches(points=rows, operations=operations), layout


def _of_matches(kind: DataType, pairs: bool) -> DataType:
    """Return the type of a column of matches: of one, or of all of a point."""
    return kind if pairs else ArrayType(kind)


def _point_files(
    chosen: DataFrame | None, names: Mapping[str, str], points: OpenedPoints
) -> PointFiles | None:
    """Return what tasks read from files of points, of which the columns ``chosen`` are needed."""
    if chosen is None:
        return None
    zone, example = "UTC", points.example
    if TIME in names and not isinstance(example.schema[names[TIME]].dataType, TimestampType):
        # Spark reads a time without a zone as one of the session.
        zone = str(example.sparkSession.conf.get("spark.sql.session.timeZone"))
    schema = to_arrow_schema(chosen.schema, timezone="UTC")
    return PointFiles(columns=dict(names), schema=schema, time_zone=zone)


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
    events: Events | None,
    points: DataFrame | None,
    columns: PointColumns,
    queries: QueryFields,
    application: Application | None,
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
    if events.cross is not None and application is not None:
        raise ConfigError(
            "with an application there are no cross events: it says which points match a query, "
            "but not which lines between points do; leave out cross or the application"
        )
    kind = to_arrow_type(points.schema[ID].dataType, timezone="UTC")
    check_object_type(kind)
    ours = {*EVENT_COLUMNS, *(ANSWER_COLUMNS if events.nearest else ())}
    clash = ours & set(queries.properties.names)
    if clash:
        raise InputError(
            f"events have a column {', '.join(sorted(clash))} of their own; rename that of queries"
        )
    return BoundEvents(events, kind, queries.arrow_id_type, bool(queries.properties))


def _answer_schemas(
    points: DataFrame | None, columns: PointColumns, queries: QueryFields
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
    ids = answer_columns(queries.arrow_id_type)
    ours = (*ids.names, BATCH_ID)
    if len(fields) < 4 or {*ours} & {*fields, *included}:
        raise InputError(
            f"answers cannot have the columns {[*fields, *included]}: each once, and none called "
            f"{' or '.join(ours)}; rename them first"
        )
    for name, internal in included.items():
        fields.setdefault(name, (block_column(name), points.schema[internal].dataType))
    schema = StructType(list(from_arrow_schema(ids).fields))
    for name, (_, kind) in fields.items():
        schema.add(name, kind)
    in_block = [
        pa.field(inside, to_arrow_type(kind, timezone="UTC")) for inside, kind in fields.values()
    ]
    return schema, AnswerSchema(
        names=tuple(schema.names), columns=pa.schema(in_block), id_type=queries.arrow_id_type
    )


def union_stream(branches: Branches, queries: QueryFields) -> DataFrame:
    """Return one stream of both; a row is a point, or an operation as a line of text.

    Only one stream has one order: Spark then says which operations and which points belong to a
    batch, and says the same when the batch runs again. Operations come last, and before they become
    lines, a node counts them: it keeps their branch of the union apart, even where it is empty, so
    that a batch can read them there, without lines and without points
    (:func:`~sparkswarm.spark.driver.operations.separate_rows`).
    """
    points, operations = branches.points, branches.operations
    if points is not None and INPUT_PARTITION not in points.columns:
        # A task's own number is another where a sink unites or coalesces results.
        points = points.withColumn(INPUT_PARTITION, F.spark_partition_id())
    if operations is None:
        if points is None:
            raise InputError("there is neither a stream of points nor one of queries")
        return points
    if points is not None:
        operations = operations.observe(OPERATIONS.strip("_"), F.count(F.lit(1)).alias("rows"))
    for name in queries.texts:
        # No id can then look like something else of CSV.
        operations = operations.withColumn(name, F.hex(F.col(name).cast("binary")))
    line = F.concat(F.to_csv(F.struct(*operations.columns), LINE_OPTIONS), F.lit("\n"))
    lines = operations.select(line.alias(OPERATIONS))
    if points is None:
        return lines
    return points.unionByName(lines, allowMissingColumns=True)
