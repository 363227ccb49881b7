"""An application bound to the columns of a stream: what tasks are given.

Owns how an application travels to tasks (pickled), how its columns of a query travel (as JSON, one
value per query, from the user's columns through the store to :meth:`Application.build`), and the
checks of what a user's code returns. Made on the driver once per start; used in tasks.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
from pyspark import cloudpickle  # noqa: TID251 (the user's code, from the driver to tasks)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from sparkswarm.apps.application import Application, Pairs, Stateful, StateUpdate, Watermarks
from sparkswarm.compiled import BoolArray
from sparkswarm.errors import ApplicationError, ConfigError
from sparkswarm.geometry import Grid
from sparkswarm.store.queries import DETAILS, EDGES, OPERATION_COLUMNS, PLAIN_NAMES, Queries

UNREADABLE = "columns that cannot be decoded"
COLLECTED = "collects points over time, which a snapshot query cannot do; register it"

_OWNER = ("id", "home")
"""Columns of state that say which query it belongs to."""


def block_column(name: str) -> str:
    """Return the name of a user's column in a block, where ``id``, ``x``, ``y`` ... are taken."""
    return f".{name}"


@dataclass(frozen=True)
class BoundApplication:
    """An application and the columns of the stream that it is bound to.

    Attributes
    ----------
    pickled
        The application. Pickled by value, so its class may be defined in the driver's main module.
    query_schema
        The application's columns of queries.
    point_names
        From internal names of its columns of points to the names that it uses.
    point_schema
        All columns of the points, under the names that it uses.
    """

    pickled: bytes
    query_schema: pa.Schema
    point_names: Mapping[str, str]
    point_schema: pa.Schema

    @classmethod
    def of(
        cls, application: Application, point_names: Mapping[str, str], points: pa.Schema
    ) -> BoundApplication:
        """Bind an application; ConfigError if its columns clash or it cannot be pickled.

        ``points`` are the columns of the points, under the names that the application uses.
        """
        application._check_names(vars(application))
        application = application.bind(points)
        columns = application.query_columns
        double = set(PLAIN_NAMES.values()) & set(point_names.values())
        if double:
            raise ConfigError(
                f"point_columns of {type(application).__name__} has {', '.join(sorted(double))}, "
                "which every point has anyway"
            )
        taken = {*OPERATION_COLUMNS, DETAILS} & {name.lower() for name in columns}
        if taken:
            raise ConfigError(
                f"query_columns of {type(application).__name__} has {', '.join(sorted(taken))}, "
                "which every query has anyway; choose another name"
            )
        try:
            names = {name: name.replace("`", "``") for name in columns}
            ddl = ", ".join(f"`{names[name]}` {kind}" for name, kind in columns.items())
            kinds = cast(StructType, StructType.fromDDL(ddl)) if columns else StructType()
            schema = to_arrow_schema(kinds, timezone="UTC")
            pickled = cloudpickle.dumps(application)  # type: ignore[no-untyped-call]
        except Exception as error:
            raise ConfigError(
                f"the application {type(application).__name__} cannot be sent to workers: "
                f"{' '.join(str(error).split())[:200]}"
            ) from error
        _check_sent(application, schema)
        return cls(pickled, schema, dict(point_names), points)

    @property
    def application(self) -> Application:
        """The application; unpickled once per process."""
        return _unpickled(self.pickled)

    @property
    def stateful(self) -> Stateful | None:
        """The application if it keeps state, else None."""
        return self.application.stateful

    def points(self, rows: pa.Table) -> pa.Table:
        """Return points with the columns that the application uses."""
        names = {**PLAIN_NAMES, **self.point_names}
        chosen = [name for name in rows.column_names if name in names]
        return rows.select(chosen).rename_columns([names[name] for name in chosen])

    def block_points(self, rows: pa.Table) -> pa.Table:
        """Return points of a block with the columns that the application uses.

        Columns that a block of earlier settings lacks are null.
        """
        points = rows.select(list(PLAIN_NAMES.values()))
        for name in self.point_names.values():
            stored = block_column(name)
            points = points.append_column(
                name,
                rows.column(stored)
                if stored in rows.column_names
                else pa.nulls(rows.num_rows, self.point_schema.field(name).type),
            )
        return points

    def queries(self, queries: Queries) -> pa.Table:
        """Return the table that :meth:`Application.build` gets, without ``home``."""
        edges = dict(zip(EDGES, np.ascontiguousarray(queries.boxes.T), strict=True))
        table = pa.table({"id": queries.ids, **edges, "expires": queries.expires})
        attributes = queries.attributes
        if attributes is None:
            attributes = pa.nulls(len(queries.ids), pa.large_binary())
        decoded = self._decode(attributes)
        for name in self.query_schema.names:
            table = table.append_column(name, decoded.column(name))
        return table

    def build(self, queries: Queries, grid: Grid) -> Any:
        """Let the application prepare queries for matching."""
        table = self.queries(queries)
        if self.stateful:
            cells = queries.cells(grid)
            home = cells.row_start.astype(np.int64) * grid.columns + cells.col_start
            table = table.append_column("home", pa.array(home))
        with user_code(self.application, "build"):
            return self.application.build(table)

    def match(self, built: Any, points: pa.Table, pairs: Pairs) -> BoolArray:
        """Let the application decide on pairs."""
        with user_code(self.application, "match"):
            found = np.asarray(self.application.match(built, points, pairs))
        if found.shape != pairs.points.shape or found.dtype != np.bool_:
            raise ApplicationError(
                f"match of {type(self.application).__name__} must return {len(pairs.points)} "
                f"booleans, one for each pair; got {found.dtype} of shape {found.shape}"
            )
        return found

    def collect(self, built: Any, points: pa.Table, pairs: Pairs) -> pa.Table:
        """Return what matched pairs add to state."""
        stateful = self._require_state()
        with user_code(self.application, "collect"):
            found = stateful.collect(built, points, pairs)
        return _checked_state(self.application, "collect", found)

    def advance(
        self, state: Sequence[pa.Table], new: Sequence[pa.Table], watermarks: Watermarks
    ) -> StateUpdate:
        """Let the application apply a batch to state."""
        stateful = self._require_state()
        with user_code(self.application, "advance"):
            update = stateful.advance(state, new, watermarks)
            summaries = update.summaries.cast(stateful.summary_schema)
        after = _checked_state(self.application, "advance", update.state)
        return replace(update, summaries=summaries, state=after)

    def rejections(self, queries: Queries) -> npt.NDArray[np.object_]:
        """Return for each query the reason to reject it, or None."""
        reasons = np.full(len(queries.ids), None, dtype=object)
        readable = np.arange(len(queries.ids))
        try:
            table = self.queries(queries)
        except ValueError:
            # They are decoded together: one that is invalid has to be searched for.
            good = np.array([self._is_readable(queries, i) for i in range(len(queries.ids))])
            reasons[~good] = UNREADABLE
            readable = np.flatnonzero(good)
            table = self.queries(queries.take(readable))
        if table.num_rows:
            with user_code(self.application, "reject"):
                reasons[readable] = np.array(self.application.reject(table), dtype=object)
        return reasons

    def snapshot_rejections(self, queries: Queries, grid: Grid) -> npt.NDArray[np.object_]:
        """Return for each snapshot query the reason to reject it, or None."""
        reasons = np.full(len(queries.ids), None, dtype=object)
        if self.stateful and len(reasons):
            built = self.build(queries, grid)
            if built is not None:
                reasons[self.stateful.collects(built)] = COLLECTED
        return reasons

    def _require_state(self) -> Stateful:
        if self.stateful is None:
            raise ApplicationError(f"{type(self.application).__name__} keeps no state")
        return self.stateful

    def _is_readable(self, queries: Queries, row: int) -> bool:
        try:
            self.queries(queries.take(np.array([row])))
        except ValueError:
            return False
        return True

    def _decode(self, attributes: pa.LargeBinaryArray) -> pa.Table:
        """Return the application's columns from JSON; null where there is none."""
        if not len(self.query_schema) or not len(attributes):
            return self.query_schema.empty_table()
        blank = pc.equal(pc.binary_length(pc.fill_null(attributes, b"")), 0)
        lines = pc.if_else(blank, pa.scalar(b"{}", pa.large_binary()), attributes)
        whole = pa.LargeListArray.from_arrays(pa.array([0, len(lines)], pa.int64()), lines)
        content = pc.binary_join(whole, pa.scalar(b"\n", pa.large_binary()))[0].as_buffer()
        sent = pa.schema([field.with_type(_sent_as(field.type)) for field in self.query_schema])
        table = pj.read_json(
            pa.BufferReader(content),
            read_options=pj.ReadOptions(block_size=content.size + 1),
            parse_options=pj.ParseOptions(explicit_schema=sent, unexpected_field_behavior="ignore"),
        ).combine_chunks()
        columns = [_received(table.column(one.name), one.type) for one in self.query_schema]
        return pa.table(columns, self.query_schema)


def _sent_as(kind: pa.DataType) -> pa.DataType:
    """Return the type that a column has in JSON: dates are text there, bytes too, in base 64."""
    return pa.string() if pa.types.is_date32(kind) or pa.types.is_binary(kind) else kind


def _received(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Return a column of JSON in its own type; ValueError where a value cannot be."""
    if column.type == kind:
        return column
    if pa.types.is_date32(kind):
        return column.cast(kind)
    values = [None if v is None else b64decode(v, validate=True) for v in column.to_pylist()]
    return pa.chunked_array([pa.array(values, kind)])


def _check_sent(application: Application, schema: pa.Schema) -> None:
    """Refuse columns that cannot go to tasks as JSON; ConfigError."""
    for field in schema:
        within = [part for part in _parts(field.type) if part is not field.type]
        if any(map(pa.types.is_map, _parts(field.type))) or any(map(_changes, within)):
            raise ConfigError(
                f"query_columns of {type(application).__name__}: {field.name} is {field.type}, "
                "which cannot be sent to tasks; maps, and dates and bytes within other values, "
                "must be strings"
            )


def _changes(kind: pa.DataType) -> bool:
    return bool(_sent_as(kind) != kind)


def _parts(kind: pa.DataType) -> Iterator[pa.DataType]:
    """Yield a type and those within it."""
    yield kind
    for i in range(kind.num_fields):
        yield from _parts(kind.field(i).type)


def _checked_state(application: Application, method: str, state: pa.Table) -> pa.Table:
    """Return a table of state; ApplicationError if it lacks the columns of its queries."""
    names = state.schema.names
    if any(name not in names or state.schema.field(name).type != pa.int64() for name in _OWNER):
        raise ApplicationError(
            f"the state that {method} of {type(application).__name__} returns must have the "
            f"columns id and home, as build got them; it has {', '.join(names) or 'none'}"
        )
    return state


@contextmanager
def user_code(application: Application, method: str) -> Iterator[None]:
    """Turn an exception in a method of the application into an ApplicationError that names it."""
    try:
        yield
    except Exception as error:
        name = f"{method} of {type(application).__name__}"
        raise ApplicationError(f"{name} failed: {type(error).__name__}: {error}") from error


@lru_cache(maxsize=8)
def _unpickled(pickled: bytes) -> Application:
    return cast(Application, cloudpickle.loads(pickled))
