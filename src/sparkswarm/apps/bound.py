"""An application as the tasks get it, and the details of its queries.

Owns how what an application wants to know of a query travels: as JSON, in one value for each
query, from the user's columns through the store to :meth:`Application.build`.
"""

from __future__ import annotations

import io
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
from pyspark import cloudpickle
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from sparkswarm.apps.application import Application, Pairs, Stateful, StateUpdate, Watermarks
from sparkswarm.errors import ApplicationError, ConfigError
from sparkswarm.geometry import Grid
from sparkswarm.store.queries import DETAILS, OPERATION_COLUMNS, PLAIN_NAMES, Queries


def block_column(name: str) -> str:
    """Return what a column of the user's is called in a block; the others are ``id``, ``x`` ..."""
    return f".{name}"


UNREADABLE = "columns that cannot be read"
KEPT_OVER_TIME = "asks once for what is kept over time; register it"


@dataclass(frozen=True)
class BoundApplication:
    """An application and what its columns are.

    Attributes
    ----------
    pickled
        The application, so that its class may be defined in the driver's main module.
    query_schema
        What a query has beyond its rectangle.
    point_names
        Our names for the point's columns that it needs, and its own.
    point_schema
        The columns of the points, as it knows them.
    """

    pickled: bytes
    query_schema: pa.Schema
    point_names: Mapping[str, str]
    point_schema: pa.Schema

    @classmethod
    def of(
        cls, application: Application, point_names: Mapping[str, str], points: pa.Schema
    ) -> BoundApplication:
        """Prepare an application for its journey; ConfigError where it cannot be sent.

        ``points`` are the columns of the points, as the application knows them.
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
            ddl = ", ".join(f"`{name}` {kind}" for name, kind in columns.items())
            kinds = cast(StructType, StructType.fromDDL(ddl)) if columns else StructType()
            schema = to_arrow_schema(kinds)
            pickled = cloudpickle.dumps(application)  # type: ignore[no-untyped-call]
        except Exception as error:
            raise ConfigError(
                f"the application {type(application).__name__} cannot be sent to workers: {error}"
            ) from error
        return cls(pickled, schema, dict(point_names), points)

    @property
    def application(self) -> Application:
        """The application itself."""
        return _unpickled(self.pickled)

    def points(self, rows: pa.Table) -> pa.Table:
        """Return points as the application knows them."""
        names = {**PLAIN_NAMES, **self.point_names}
        chosen = [name for name in rows.column_names if name in names]
        return rows.select(chosen).rename_columns([names[name] for name in chosen])

    def block_points(self, rows: pa.Table) -> pa.Table:
        """Return points of a block as the application knows them.

        A column that was not kept at the time is null.
        """
        known = rows.select(["id", "x", "y", "time"])
        for name in self.point_names.values():
            kept = block_column(name)
            column = pa.nulls(rows.num_rows, self.point_schema.field(name).type)
            known = known.append_column(
                name, rows.column(kept) if kept in rows.column_names else column
            )
        return known

    def queries(self, queries: Queries) -> pa.Table:
        """Return queries as the application knows them."""
        edges = np.ascontiguousarray(queries.boxes.T)
        table = pa.table(
            [queries.ids, *edges, queries.expires],
            names=["id", "min_x", "min_y", "max_x", "max_y", "expires"],
        )
        details = queries.attributes
        if details is None:
            details = pa.nulls(len(queries.ids), pa.large_binary())
        for name, column in zip(
            self.query_schema.names, self._decoded(details).columns, strict=True
        ):
            table = table.append_column(name, column)
        return table

    @property
    def stateful(self) -> Stateful | None:
        """The application, if it keeps something for each query."""
        return self.application.stateful

    def build(self, queries: Queries, grid: Grid) -> Any:
        """Let the application prepare some queries."""
        table = self.queries(queries)
        if self.stateful:
            cells = queries.cells(grid)
            home = cells.row_start.astype(np.int64) * grid.columns + cells.col_start
            table = table.append_column("home", pa.array(home))
        with user_code(self.application, "build"):
            return self.application.build(table)

    def match(self, built: Any, points: pa.Table, pairs: Pairs) -> npt.NDArray[np.bool_]:
        """Let the application decide on some pairs."""
        with user_code(self.application, "match"):
            found = np.asarray(self.application.match(built, points, pairs))
        if found.shape != pairs.points.shape or found.dtype != np.bool_:
            raise ApplicationError(
                f"match of {type(self.application).__name__} must return {len(pairs.points)} "
                f"booleans, one for each pair; got {found.dtype} of shape {found.shape}"
            )
        return found

    def collect(self, built: Any, points: pa.Table, pairs: Pairs) -> pa.Table:
        """Let the application take in some pairs that match."""
        assert self.stateful is not None
        with user_code(self.application, "collect"):
            found = self.stateful.collect(built, points, pairs)
        return _checked(self.application, "collect", found)

    def advance(
        self, state: Sequence[pa.Table], new: Sequence[pa.Table], watermarks: Watermarks
    ) -> StateUpdate:
        """Let the application make of state what a batch makes of it."""
        assert self.stateful is not None
        with user_code(self.application, "advance"):
            told = self.stateful.advance(state, new, watermarks)
            summaries = told.summaries.cast(self.stateful.summary_schema)
        state = _checked(self.application, "advance", told.state)
        return replace(told, summaries=summaries, state=state)

    def rejections(self, queries: Queries) -> npt.NDArray[np.object_]:
        """Say of each query why the application cannot serve it, None where it can."""
        reasons = np.full(len(queries.ids), None, dtype=object)
        try:
            readable = np.arange(len(queries.ids))
            table = self.queries(queries)
        except pa.ArrowInvalid:
            # One that cannot be read spoils all: find it.
            good = np.array([self._is_readable(queries, i) for i in range(len(queries.ids))])
            reasons[~good] = UNREADABLE
            readable = np.flatnonzero(good)
            table = self.queries(queries.take(readable))
        if table.num_rows:
            with user_code(self.application, "reject"):
                reasons[readable] = np.array(self.application.reject(table), dtype=object)
        return reasons

    def snapshot_rejections(self, queries: Queries, grid: Grid) -> npt.NDArray[np.object_]:
        """Say of each snapshot query why it cannot be answered, None where it can."""
        reasons = np.full(len(queries.ids), None, dtype=object)
        if self.stateful and len(reasons):
            built = self.build(queries, grid)
            if built is not None:
                reasons[self.stateful.collects(built)] = KEPT_OVER_TIME
        return reasons

    def _is_readable(self, queries: Queries, number: int) -> bool:
        try:
            self.queries(queries.take(np.array([number])))
        except pa.ArrowInvalid:
            return False
        return True

    def _decoded(self, details: pa.LargeBinaryArray) -> pa.Table:
        """Return the columns that were encoded in the details, null where there are none."""
        if not len(self.query_schema) or not len(details):
            return self.query_schema.empty_table()
        blank = pc.equal(pc.binary_length(pc.fill_null(details, b"")), 0)
        lines = pc.if_else(blank, pa.scalar(b"{}", pa.large_binary()), details)
        content = b"\n".join(line.as_buffer() for line in lines)
        return pj.read_json(
            io.BytesIO(content),
            read_options=pj.ReadOptions(block_size=len(content) + 1),
            parse_options=pj.ParseOptions(
                explicit_schema=self.query_schema, unexpected_field_behavior="ignore"
            ),
        ).combine_chunks()


def _checked(application: Application, method: str, state: pa.Table) -> pa.Table:
    """Return state that says whose it is."""
    names = state.schema.names
    whole = {name for name in ("id", "home") if name in names}
    whole = {name for name in whole if state.schema.field(name).type == pa.int64()}
    if len(whole) < 2:
        raise ApplicationError(
            f"the state that {method} of {type(application).__name__} returns must have the "
            f"columns id and home, as build got them; it has {', '.join(names) or 'none'}"
        )
    return state


@contextmanager
def user_code(application: Application, method: str) -> Iterator[None]:
    """Say whose error it is."""
    try:
        yield
    except Exception as error:
        name = f"{method} of {type(application).__name__}"
        raise ApplicationError(f"{name} failed: {type(error).__name__}: {error}") from error


@lru_cache(maxsize=8)
def _unpickled(pickled: bytes) -> Application:
    return cast(Application, cloudpickle.loads(pickled))
