"""Checks of the columns that users name: that they are there, and of types that can be used.

Runs on the driver, once per start. What cannot be used is refused with an InputError that says what
to write instead, before Spark says it at length.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql.types import (
    ArrayType,
    CalendarIntervalType,
    DataType,
    MapType,
    StringType,
    StructType,
    TimeType,
    YearMonthIntervalType,
)

from sparkswarm.errors import InputError


def column_of(frame: DataFrame, name: str) -> Column:
    """Return a column by its name; Spark would read a dot in it as a path."""
    alike = [one for one in frame.columns if one.lower() == name.lower()]
    if len(alike) > 1 and (alike.count(name) > 1 or not _tells_case(frame)):
        raise InputError(
            f"Spark cannot tell the columns {' and '.join(alike)} apart; rename or drop all but one"
        )
    return frame["`" + name.replace("`", "``") + "`"]


def _tells_case(frame: DataFrame) -> bool:
    """Return whether Spark takes names that differ in case for different names."""
    return frame.sparkSession.conf.get("spark.sql.caseSensitive") == "true"


def check_there(schema: StructType, what: str, wanted: list[str]) -> None:
    """Refuse rows without columns that are needed."""
    missing = [name for name in wanted if name not in schema.names]
    if missing:
        kind = "PointColumns" if what == "points" else "QueryColumns"
        raise InputError(
            f"{what} have no column {', '.join(missing)}; they have {', '.join(schema.names)}. "
            f"Say what the columns are called with {kind}"
        )


def check_type(
    schema: StructType, what: str, name: str, kinds: tuple[type[DataType], ...], wanted: str
) -> None:
    """Refuse a column that is of none of these types; ``wanted`` completes "must be …"."""
    found = schema[name].dataType
    if not isinstance(found, kinds):
        raise InputError(
            f"column {name} of {what} must be {wanted}, it is {found.simpleString()}; cast it first"
        )


def check_castable(queries: DataFrame, details: Mapping[str, str]) -> None:
    """Refuse columns of an application that Spark cannot cast; its own error comes in a log."""
    spark = queries.sparkSession
    jvm: Any = spark._jvm
    casts = jvm.org.apache.spark.sql.catalyst.expressions.Cast
    can = casts.canAnsiCast if spark.conf.get("spark.sql.ansi.enabled") == "true" else casts.canCast
    parse = jvm.org.apache.spark.sql.types.DataType.fromDDL
    for name, kind in details.items():
        if name not in queries.schema.names:
            continue
        if not can(queries._jdf.schema().apply(name).dataType(), parse(kind)):
            found = queries.schema[name].dataType.simpleString()
            raise InputError(
                f"column {name} of queries must be {kind.lower()}, it is {found}; cast it first"
            )


def check_travels(frame: DataFrame, what: str, names: Iterable[str], as_json: bool) -> None:
    """Refuse columns of types that cannot go to tasks and come back, as JSON or as they are."""
    for name in names:
        kind = frame.schema[name].dataType
        parts = list(_parts(kind))
        reason = ""
        if any(isinstance(part, _NOT_IN_ARROW) for part in parts):
            reason = "which Spark does not give to Python; cast it to a string"
        elif as_json and any(isinstance(part, MapType) and not _has_names(part) for part in parts):
            reason = "and only strings can be the keys of a map that comes back; cast it"
        if reason:
            raise InputError(f"column {name} of {what} is {kind.simpleString()}, {reason}")


_NOT_IN_ARROW = (TimeType, YearMonthIntervalType, CalendarIntervalType)
"""Types that Spark does not convert to Arrow."""


def _has_names(kind: MapType) -> bool:
    return isinstance(kind.keyType, StringType)


def _parts(kind: DataType) -> Iterator[DataType]:
    """Yield a type and those within it."""
    yield kind
    within: list[DataType] = []
    if isinstance(kind, ArrayType):
        within = [kind.elementType]
    elif isinstance(kind, MapType):
        within = [kind.keyType, kind.valueType]
    elif isinstance(kind, StructType):
        within = [field.dataType for field in kind]
    for one in within:
        yield from _parts(one)
