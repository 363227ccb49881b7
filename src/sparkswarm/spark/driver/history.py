"""Samples of the past, from which a first plan is made.

Runs on the driver, once when a run begins.
"""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import DataFrame

from sparkswarm.geometry import Grid
from sparkswarm.policies import History
from sparkswarm.spark.tasks.operations import with_shapes
from sparkswarm.store.queries import EDGES, GEOMETRY, X, Y, boxes_of

HISTORY_POINTS, HISTORY_QUERIES = 400_000, 200_000
"""Sizes of the samples, as the paper has them for the policy ``static_history``."""


def history_of(points: DataFrame, queries: DataFrame, grid: Grid) -> History:
    """Return samples of points and of queries, which come as operations."""
    past = _sample(points.select(X, Y), HISTORY_POINTS)
    known = _sample(queries.select(*EDGES), HISTORY_QUERIES)
    cells = grid.place_queries(*(known.column(edge).to_numpy() for edge in EDGES))
    return History(past.column(X).to_numpy(), past.column(Y).to_numpy(), cells)


def history_of_preload(queries: DataFrame, grid: Grid) -> History:
    """Return a history for queries that come as operations: a point in the middle of each."""
    known = _sample(queries, HISTORY_QUERIES)
    if GEOMETRY in known.column_names:
        known, _ = with_shapes(known.combine_chunks(), None)
    low_x, low_y, high_x, high_y = boxes_of(known).T
    cells = grid.place_queries(low_x, low_y, high_x, high_y)
    return History((low_x + high_x) / 2, (low_y + high_y) / 2, cells)


def _sample(rows: DataFrame, size: int) -> pa.Table:
    """Return about ``size`` rows of a table, wherever in it they are; all if it has fewer."""
    total = rows.count()
    return (rows if total <= size else rows.sample(fraction=size / total, seed=0)).toArrow()
