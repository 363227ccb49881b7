"""Runs an application on simulated tuples: which pairs of a point and a query match.

Owns the conversion of tuples to tables. The application is the same class as on Spark and gets
the same columns, but only a few rows at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from sparkswarm.apps.application import Application, Pairs
from sparkswarm.errors import ConfigError
from sparkswarm.sim.tuples import Details, Operation, Point

_EDGES = dict.fromkeys(("min_x", "min_y", "max_x", "max_y"), pa.float64())
_QUERIES = pa.schema({"id": pa.int64(), **_EDGES, "expires": pa.int64()})
_POINTS = pa.schema({"id": pa.int64(), "x": pa.float64(), "y": pa.float64(), "time": pa.int64()})
_NEVER = 2**63 - 1


class Matching:
    """An application, and the schema of the details that tuples carry for it.

    Parameters
    ----------
    application
        Decides which pairs match.
    query_columns, point_columns
        The application's columns of queries and points with their types. The details of a tuple
        are its values in this order.
    """

    def __init__(
        self, application: Application, query_columns: pa.Schema, point_columns: pa.Schema
    ) -> None:
        if application.stateful:
            raise ConfigError(
                f"{type(application).__name__} keeps state by batch and the simulator has no "
                f"batches; it runs on Spark only"
            )
        wanted = [*application.query_columns], [*application.point_columns]
        if wanted != (query_columns.names, point_columns.names):
            raise ConfigError(
                f"{type(application).__name__} needs the columns {wanted}, got "
                f"{query_columns.names} and {point_columns.names}"
            )
        self._queries = pa.unify_schemas([_QUERIES, query_columns])
        self._points = pa.unify_schemas([_POINTS, point_columns])
        self._application = application.bind(self._points)
        self._built: dict[tuple[Operation, ...], Any] = {}

    def decide(
        self,
        points: Sequence[Point],
        operations: Sequence[Operation],
        pairs: Sequence[tuple[int, int]],
    ) -> list[bool]:
        """Return for each pair whether it matches.

        Parameters
        ----------
        points, operations
            Points, and operations that registered or updated queries.
        pairs
            Positions of a point and an operation whose rectangle contains it.
        """
        if not pairs:
            return []
        key = tuple(operations)
        if key not in self._built:
            self._built[key] = self._application.build(self._query_table(key))
        built = self._built[key]
        if built is None:
            return [True] * len(pairs)
        columns = np.array(pairs, np.int64).T.copy()
        rows = [(i, p.x, p.y, p.time, *self._details(p, _POINTS)) for i, p in enumerate(points)]
        matches = self._application.match(built, _table(rows, self._points), Pairs(*columns))
        return [bool(found) for found in matches]

    def _query_table(self, operations: Sequence[Operation]) -> pa.Table:
        rows = [
            (o.query, *o.rectangle, _NEVER, *self._details(o, _QUERIES))
            for o in operations
            if o.rectangle is not None
        ]
        return _table(rows, self._queries)

    def _details(self, item: Point | Operation, without: pa.Schema) -> Details:
        """Return the details of a tuple; nulls if it has none, as on Spark."""
        columns = self._points if isinstance(item, Point) else self._queries
        return item.details or (None,) * (len(columns) - len(without))


def _table(rows: Sequence[tuple[object, ...]], schema: pa.Schema) -> pa.Table:
    values = zip(*rows, strict=True) if rows else ((),) * len(schema)
    arrays = [pa.array(column, field.type) for column, field in zip(values, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)
