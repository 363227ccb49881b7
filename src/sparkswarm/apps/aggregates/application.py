"""Continuous aggregates as an application: queries that ask for numbers instead of points.

Owns the class; what is asked is read in :mod:`sparkswarm.apps.aggregates.specs`, what is known
of it is in :mod:`sparkswarm.apps.aggregates.panes`, and what windows are and when they close in
:mod:`sparkswarm.apps.aggregates.windows`.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sparkswarm.apps.aggregates.panes import State
from sparkswarm.apps.aggregates.specs import (
    QUERY_COLUMNS,
    Asked,
    Measure,
    measures_of,
    refusals,
)
from sparkswarm.apps.aggregates.windows import advance, next_end, partials, result_schema
from sparkswarm.apps.application import Application, Moment, Pairs, Stateful, StateUpdate
from sparkswarm.errors import ConfigError, InputError
from sparkswarm.window.durations import microseconds


class _Built(NamedTuple):
    """Some queries prepared.

    Attributes
    ----------
    asked
        What those that ask for aggregates ask.
    place
        For each query its place in ``asked``, -1 where it asks for points.
    inner
        What the application within made of them.
    """

    asked: Asked
    place: npt.NDArray[np.int64]
    inner: Any


class Aggregates(Stateful):
    """Count, sum, mean, min and max of the points that a query matches, by window of time.

    A query has the columns ``aggregate``, ``window`` and ``slide``; see
    docs/reference/queries.md. One without an aggregate is a continuous query like any other: its
    matches are results.

    Parameters
    ----------
    columns
        The columns of the points that queries may aggregate.
    watermark_delay
        How long to wait for points that come late, such as ``"10 seconds"``.
    of
        The application that decides which points match a query; without one, those in its
        rectangle do.
    delay
        The earlier name of ``watermark_delay``, not accepted any more.
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
        if isinstance(columns, str):
            raise ConfigError(f"columns must be a list of names, got {columns!r}; write [...]")
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
        """Find out which columns hold whole numbers."""
        if "time" not in points.names:
            raise InputError(
                "aggregates need to know when points happened; say which column has it with "
                "PointColumns(time=...)"
            )
        known = copy.copy(self)
        known._measures = measures_of(points, self.columns)
        known.of = self.of.bind(points) if self.of else None
        return known

    @property
    def measures(self) -> tuple[Measure, ...]:
        """The columns that can be aggregated, with their types."""
        if self._measures is None:
            raise ConfigError("the columns of the points are not known yet: see bind")
        return self._measures

    @property
    def summary_schema(self) -> pa.Schema:
        """The query, the window, and every aggregate of every column."""
        return result_schema(self.measures)

    def reject(self, queries: pa.Table) -> list[str | None]:
        """Refuse aggregates that cannot be read, and what the application within refuses."""
        reasons: list[str | None] = [None] * queries.num_rows
        if self.of is not None:
            reasons = list(self.of.reject(queries))
        asking = self._asking(queries)
        own = refusals(queries.filter(pa.array(asking)), self.measures)
        for i, reason in zip(np.flatnonzero(asking).tolist(), own, strict=True):
            reasons[i] = reasons[i] or reason
        return reasons

    def build(self, queries: pa.Table) -> _Built | None:
        """Read what queries ask; None where all ask for points in their rectangles."""
        asking = self._asking(queries)
        inner = self.of.build(queries) if self.of else None
        if inner is None and not asking.any():
            return None
        place = np.where(asking, np.cumsum(asking) - 1, -1)
        return _Built(Asked.read(queries.filter(pa.array(asking)), self.measures), place, inner)

    def match(self, built: _Built, points: pa.Table, pairs: Pairs) -> npt.NDArray[np.bool_]:
        """Let the application within decide; without one all pairs match."""
        if self.of is None or built.inner is None:
            return np.ones(len(pairs.points), bool)
        return self.of.match(built.inner, points, pairs)

    def collects(self, built: _Built) -> npt.NDArray[np.bool_]:
        """Say which queries ask for aggregates."""
        return built.place >= 0

    def collect(self, built: _Built, points: pa.Table, pairs: Pairs) -> pa.Table:
        """Add up the points of each query and pane."""
        asked = Pairs(pairs.points, built.place[pairs.queries])
        return partials(built.asked, asked, points, self.measures).to_table()

    def combine(self, tables: Sequence[pa.Table]) -> pa.Table:
        """Add up panes that are in several tables."""
        return self._joined(tables).to_table()

    def advance(
        self, state: Sequence[pa.Table], new: Sequence[pa.Table], moment: Moment
    ) -> StateUpdate:
        """Close the windows that are due and take in what is new."""
        results, kept, late = advance(self._joined(state), self._joined(new), moment)
        return StateUpdate(
            summaries=results,
            state=kept.to_table(),
            late=late,
            due=next_end(kept, moment.watermark),
        )

    def _joined(self, tables: Sequence[pa.Table]) -> State:
        states = [State.from_table(table, self.measures) for table in tables]
        return State.joined(states) if states else State.empty(self.measures)

    @staticmethod
    def _asking(queries: pa.Table) -> npt.NDArray[np.bool_]:
        """Say which queries ask for aggregates, or at least use a column that is about them."""
        asking = np.zeros(queries.num_rows, bool)
        for name in QUERY_COLUMNS:
            asking |= pc.is_valid(queries.column(name)).to_numpy(zero_copy_only=False)
        return asking
