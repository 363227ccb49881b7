"""The form of a run's rows: what they look like, from the source to the sinks.

Owns what follows from the user's columns: the one stream of everything, the columns of results, and
those of answers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import to_arrow_schema, to_arrow_type
from pyspark.sql.types import ArrayType, DataType, DoubleType, LongType, StructType, TimestampType

from sparkswarm.apps.application import Application, Stateful
from sparkswarm.apps.bound import BoundApplication, block_column
from sparkswarm.errors import ConfigError, InputError
from sparkswarm.spark.columns import (
    QUERY_ID,
    QUERY_IDS,
    PointColumns,
    QueryColumns,
    application_names,
    column_of,
    kept_names,
    one_stream,
    select_operations,
    select_points,
)
from sparkswarm.spark.tasks.answers import HOW_MANY, AnswerForm
from sparkswarm.store.queries import ID, PLAIN_NAMES, TIME, X, Y
from sparkswarm.window.windows import Window

Results = Literal["points", "pairs"]


@dataclass(frozen=True)
class Form:
    """What rows look like, from the source to the sink.

    Attributes
    ----------
    names
        What the user calls the columns of the points.
    schema
        Of the results.
    keep
        Columns of the points that come back.
    has_operations, has_time
        Whether operations are among the rows, and whether points have times.
    finish
        Gives results their final form.
    application
        What decides beyond rectangles; None where nothing does.
    window
        How long points are kept; None where they are not.
    answers
        What answers to snapshot queries look like.
    """

    names: dict[str, str]
    schema: StructType
    keep: tuple[str, ...]
    has_operations: bool
    has_time: bool
    finish: Callable[[DataFrame], DataFrame]
    application: BoundApplication | None = None
    window: Window | None = None
    answers: AnswerForm | None = None

    @property
    def stateful(self) -> Stateful | None:
        """The application, if it keeps something for each query."""
        return self.application.stateful if self.application else None


def form_of(
    points: DataFrame | None,
    queries: DataFrame | None,
    point_columns: PointColumns,
    query_columns: QueryColumns,
    results: Results,
    application: Application | None,
    window: Window | None,
) -> tuple[DataFrame, Form]:
    """Return the one stream of everything and what its rows look like."""
    if points is None and queries is None:
        raise InputError("there is neither a stream of points nor one of queries")
    if results not in ("points", "pairs"):
        raise ConfigError(f"results must be 'points' or 'pairs', got {results!r}")
    for what, frame in (("points", points), ("queries", queries)):
        if frame is not None and not frame.isStreaming:
            raise InputError(
                f"{what} is not a stream; read it with spark.readStream"
                + (", or give static queries as preload" if what == "queries" else "")
            )
    also = application_names(point_columns, application.point_columns if application else ())
    details = application.query_columns if application else {}
    chosen = None if points is None else select_points(points, point_columns, also)
    operations = (
        None if queries is None else select_operations(queries, query_columns, details=details)
    )
    names, fields, keep = {}, StructType(), kept_names(point_columns)
    if chosen is not None:
        c = point_columns
        names = {ID: c.id, X: c.x, Y: c.y, **dict(zip(keep, c.include, strict=True)), **also}
        if c.time is not None:
            names[TIME] = c.time
        for field in (chosen.schema[ID], *(chosen.schema[name] for name in keep)):
            fields.add(names[field.name], field.dataType)
    fields.add(QUERY_IDS, ArrayType(LongType()))

    def finish(frame: DataFrame) -> DataFrame:
        if results == "points":
            return frame
        kept = [column_of(frame, name) for name in frame.columns if name != QUERY_IDS]
        return frame.select(*kept, F.explode(QUERY_IDS).alias(QUERY_ID))

    form = Form(
        names=names,
        schema=fields,
        keep=keep,
        has_operations=queries is not None,
        has_time=point_columns.time is not None,
        finish=finish,
        application=_installed(application, chosen, also),
        window=window,
        answers=None if window is None else _answer_form(chosen, point_columns),
    )
    return one_stream(chosen, operations), form


def _installed(
    application: Application | None, points: DataFrame | None, also: dict[str, str]
) -> BoundApplication | None:
    if application is None:
        return None
    known = pa.schema([])
    if points is not None:
        ours = {**PLAIN_NAMES, **also}
        schema = to_arrow_schema(points.schema, timezone="UTC")
        known = pa.schema(
            [field.with_name(ours[field.name]) for field in schema if field.name in ours]
        )
    return BoundApplication.of(application, also, known)


def _answer_form(points: DataFrame | None, columns: PointColumns) -> AnswerForm:
    """Return what answers to snapshot queries look like."""
    if points is None:
        raise InputError("without a stream of points there is nothing to keep; leave out window")
    kept = dict(zip(columns.include, kept_names(columns), strict=True))
    fields: dict[str, tuple[str, DataType]] = {
        columns.id: ("id", points.schema[ID].dataType),
        columns.x: ("x", DoubleType()),
        columns.y: ("y", DoubleType()),
        columns.time or "time": ("time", TimestampType()),
    }
    if len(fields) < 4 or {QUERY_ID, HOW_MANY} & {*fields, *kept}:
        raise InputError(
            f"answers cannot have the columns {[*fields, *kept]}: each once, and none called "
            f"{QUERY_ID} or {HOW_MANY}; rename them first"
        )
    for name, ours in kept.items():
        fields.setdefault(name, (block_column(name), points.schema[ours].dataType))
    schema = StructType().add(QUERY_ID, LongType()).add(HOW_MANY, LongType())
    for name, (_, kind) in fields.items():
        schema.add(name, kind)
    in_block = [
        pa.field(inside, to_arrow_type(kind, timezone="UTC")) for inside, kind in fields.values()
    ]
    return AnswerForm(schema, pa.schema(in_block))
