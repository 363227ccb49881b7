"""Names of columns: the user's, and ours while rows travel."""

from __future__ import annotations

from dataclasses import dataclass, fields

from sparkswarm.arguments import check_argument, check_columns
from sparkswarm.errors import ConfigError
from sparkswarm.options import renamed_fields

OPERATIONS = "__operations"
"""The column of packed operations; no user's column is called so."""

INPUT_PARTITION = "__partition"
"""The column with the number of the input partition of a point; no user's column is called so."""

POINT_FILE = "__file"
"""The column with the name of a file of points that tasks read; no user's column is called so."""

QUERY_IDS, QUERY_ID = "query_ids", "query_id"
"""The columns that results add: all matches of a point, or one of a pair."""

QUERY_VERSION = "query_version"
"""The column that results in Real-time Mode add: the last batch of operations that they know."""

TARGET = "__target"
"""The column with the executor of a point in Real-time Mode; no user's column is called so."""

QUERY_PROPERTIES = "__properties"
"""The column with the properties of all matches of a point, until they become columns."""

BATCH_ID = "batch_id"
"""The column with the number of the batch, which sinks add."""


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

    def __post_init__(self) -> None:
        _check_names(self)


@dataclass(frozen=True, slots=True)
class QueryColumns:
    """What the columns of the query operations are called.

    Attributes
    ----------
    op
        ``register``, ``update`` or ``unregister``; a bulk load does not need it. Where points
        are kept also ``range`` and ``count``: snapshot queries.
    id
        A whole number, a string, or of another type that is not nested.
    min_x, min_y, max_x, max_y
        The rectangle, edges included; null for ``unregister``. Not needed with ``geometry``.
    geometry
        Optional column: a polygon, a multipolygon or the middle of a circle, as WKB, WKT or
        GeoJSON. Where it is not null it counts instead of the rectangle.
    radius, radius_m
        Optional columns, beside ``geometry``: the radius of a circle, in the units of the
        coordinates, or in metres where x is a longitude and y a latitude in degrees.
    expires
        Optional: a timestamp from which on the query matches nothing; null is never.
    order
        Optional: operations of one batch on one query take effect in its order, a whole
        number or a timestamp. By default in the order in which Spark reads them, which is
        theirs within one file or one partition of a topic. Where it is null, before all
        that have one.
    about, k, within
        Optional columns of the questions ``inside``, ``where`` and ``nearest``, which are
        operations where objects are kept: the id of a fence or an object as a string, and how many
        objects are wanted and how far from ``min_x``, ``min_y``.
    since, until
        Optional, for snapshot queries: timestamps, both included; null is all that is kept.
    include
        Other columns, which come back with pairs and events, and as arrays beside ``query_ids``.
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
    geometry: str = "geometry"
    radius: str = "radius"
    radius_m: str = "radius_m"
    about: str = "about"
    k: str = "k"
    within: str = "within"
    include: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _check_names(self)


def _check_names(columns: PointColumns | QueryColumns) -> None:
    """Refuse what cannot be the name of a column; ConfigError."""
    check_columns("include", columns.include)
    for field in fields(columns):
        name = getattr(columns, field.name)
        if field.name != "include" and not (name is None and field.default is None):
            check_argument(field.name, name, str, "the name of a column", optional=False)
            if not name:
                raise ConfigError(f"{field.name} is empty; give the name of a column")
