"""Continuous aggregates: queries that ask for numbers by window instead of points.

Owns the application. What queries ask for is parsed in :mod:`sparkswarm.apps.aggregates.specs`,
their state is in :mod:`sparkswarm.apps.aggregates.panes`, and what windows are and when they close
in :mod:`sparkswarm.apps.aggregates.windows`.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkswarm.apps.aggregates.panes import PaneTable
from sparkswarm.apps.aggregates.specs import (
    QUERY_COLUMNS,
    AggregateSpecs,
    Measure,
    measures_of,
    rejections,
)
from sparkswarm.apps.aggregates.windows import advance, collect_panes, next_due, result_schema
from sparkswarm.apps.application import Application, Pairs, Stateful, StateUpdate, Watermarks
from sparkswarm.arguments import check_argument, check_columns
from sparkswarm.compiled import BoolArray, LongArray
from sparkswarm.errors import ConfigError, InputError
from sparkswarm.window.durations import microseconds


class _Built(NamedTuple):
    """Queries prepared for matching.

    Attributes
    ----------
    specs
        What the queries with aggregates ask for.
    position
        For each query its row in ``specs``, -1 if it asks for points.
    inner
        What the inner application built.
    """

    specs: AggregateSpecs
    position: LongArray
    inner: Any


class Aggregates(Stateful):
    """Count, sum, mean, min and max of the points that a query matches, by window of event time.

    Queries have the columns ``aggregate``, ``window`` and ``slide``; see docs/reference/queries.md.
    A query in which all three are null is a plain continuous query: its matches are results.

    Parameters
    ----------
    columns
        The columns of the points that queries may aggregate.
    watermark_delay
        How long to wait for points that come late, such as ``"10 seconds"``.
    of
        The application that decides which points match a query; by default all in its rectangle.
    delay
        Not accepted any more: the earlier name of ``watermark_delay``.
    """

    append_only = True

    def __init__(
        self,
        columns: Sequence[str] = (),
        watermark_delay: str = "0 s",
        of: Application | None = None,
        *,
        delay: None = None,
    ) -> None:
        if delay is not None:
            raise ConfigError("Aggregates(delay=...): delay was renamed to watermark_delay")
        check_columns("columns", columns)
        check_argument(
            "watermark_delay", watermark_delay, str, "a duration such as '5 minutes'", False
        )
        check_argument("of", of, Application, "an Application, such as Subscriptions({})")
        if of is not None and of.stateful:
            raise ConfigError("Aggregates cannot be of an application that keeps state itself")
        self.columns = tuple(dict.fromkeys(columns))
        self.watermark_delay = microseconds(watermark_delay, least=0)
        self.of = of
        self._measures: tuple[Measure, ...] | None = None
        inner = of.query_columns if of else {}
        if taken := inner.keys() & QUERY_COLUMNS.keys():
            raise ConfigError(f"{type(of).__name__} has columns of Aggregates: {sorted(taken)}")
        self.query_columns = {**QUERY_COLUMNS, **inner}
        self.point_columns = tuple(dict.fromkeys([*columns, *(of.point_columns if of else ())]))

    def bind(self, points: pa.Schema) -> Aggregates:
        """Look up which of the columns hold integers."""
        if "time" not in points.names:
            raise InputError(
                "aggregates need the event time of points; name its column with "
                "PointColumns(time=...)"
            )
        bound = copy.copy(self)
        bound._measures = measures_of(points, self.columns)
        bound.of = self.of.bind(points) if self.of else None
        return bound

    @property
    def measures(self) -> tuple[Measure, ...]:
        """The columns that can be aggregated, with their types."""
        if self._measures is None:
            raise ConfigError("the columns of the points are not known before bind is called")
        return self._measures

    @property
    def summary_schema(self) -> pa.Schema:
        """The query, the window, and every aggregate of every column."""
        return result_schema(self.measures)

    def reject(self, queries: pa.Table) -> list[str | None]:
        """Reject aggregates that cannot be parsed, and what the inner application rejects."""
        inner = self.of.reject(queries) if self.of else super().reject(queries)
        reasons = list(inner)
        has_aggregate = self._has_aggregate(queries)
        own = rejections(queries.filter(pa.array(has_aggregate)), self.measures)
        for i, reason in zip(np.flatnonzero(has_aggregate).tolist(), own, strict=True):
            reasons[i] = reasons[i] or reason
        return reasons

    def build(self, queries: pa.Table) -> _Built | None:
        """Parse the aggregates; None if all queries ask for the points in their rectangles."""
        has_aggregate = self._has_aggregate(queries)
        inner = self.of.build(queries) if self.of else None
        if inner is None and not has_aggregate.any():
            return None
        specs = AggregateSpecs.parse(queries.filter(pa.array(has_aggregate)), self.measures)
        return _Built(specs, np.where(has_aggregate, np.cumsum(has_aggregate) - 1, -1), inner)

    def match(self, built: _Built, points: pa.Table, pairs: Pairs) -> BoolArray:
        """Let the inner application decide; without one all pairs match."""
        if self.of is None or built.inner is None:
            return np.ones(len(pairs.points), bool)
        return self.of.match(built.inner, points, pairs)

    def collects(self, built: _Built) -> BoolArray:
        """Return which queries have aggregates."""
        return built.position >= 0

    def collect(self, built: _Built, points: pa.Table, pairs: Pairs) -> pa.Table:
        """Aggregate the points of each query and pane."""
        matched = Pairs(pairs.points, built.position[pairs.queries])
        return collect_panes(built.specs, matched, points, self.measures).to_table()

    def combine(self, tables: Sequence[pa.Table]) -> pa.Table:
        """Merge panes that are in several tables."""
        return self._merge(tables).to_table()

    def advance(
        self, state: Sequence[pa.Table], new: Sequence[pa.Table], watermarks: Watermarks
    ) -> StateUpdate:
        """Close the windows that are due, then merge the new points."""
        results, panes, late = advance(self._merge(state), self._merge(new), watermarks)
        return StateUpdate(
            summaries=results,
            state=panes.to_table(),
            late=late,
            due=next_due(panes, watermarks.current),
        )

    def _merge(self, tables: Sequence[pa.Table]) -> PaneTable:
        states = [PaneTable.from_table(table, self.measures) for table in tables]
        return PaneTable.merge(states) if states else PaneTable.empty(self.measures)

    @staticmethod
    def _has_aggregate(queries: pa.Table) -> BoolArray:
        """Return which queries use at least one of the columns of aggregates."""
        found = np.zeros(queries.num_rows, bool)
        for name in QUERY_COLUMNS:
            found |= pc.is_valid(queries.column(name)).to_numpy(zero_copy_only=False)
        return found
