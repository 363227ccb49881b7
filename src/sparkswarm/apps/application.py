"""What an application is: the part of a spatial service that is not load balancing.

Owns the one interface between the engine and whatever is matched. An application knows nothing
of partitions, executors or Spark. The engine stores queries by their rectangles, finds for every
point the queries whose rectangle contains it, and asks the application which of these pairs
count. A circle or a polygon is a rectangle around it and a closer look.

Tables come by column, whole lots at a time: an application that works on columns is as fast as
its libraries, one that loops over rows as slow as Python.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa


class Pairs(NamedTuple):
    """Points that lie in the rectangles of queries.

    Attributes
    ----------
    points
        For each pair the point, by its row in the table of points.
    queries
        For each pair the query, by its row in the table that ``build`` was given.
    """

    points: npt.NDArray[np.int64]
    queries: npt.NDArray[np.int64]


class Application(ABC):
    """Decides which points match which queries.

    An instance is sent to every worker: it must be picklable, and its class importable there
    or defined in the driver's main module.

    Attributes
    ----------
    query_columns
        Columns that a query has beside its id, its rectangle and its expiry: names and types as
        in Spark's DDL, such as ``{"radius": "DOUBLE"}``. They are stored with the query. A
        stream or table of queries may lack some of them: they are null then.
    point_columns
        Columns of the points that matching needs, beside ``id``, ``x``, ``y`` and ``time``.
    """

    query_columns: Mapping[str, str] = {}
    point_columns: Sequence[str] = ()

    def refuse(self, queries: pa.Table) -> Sequence[str | None]:
        """Say of each new query why it cannot be served, or None where it can.

        What is refused goes to the quarantine with that reason. The table is that of
        :meth:`build`.
        """
        return [None] * queries.num_rows

    @abstractmethod
    def build(self, queries: pa.Table) -> Any:
        """Prepare some queries for matching; what is returned is handed to :meth:`match`.

        Called once for each lot of stored queries in a worker's life, and kept. Return None
        where the rectangles alone decide: such a lot costs nothing further.

        Parameters
        ----------
        queries
            ``id``, ``min_x``, ``min_y``, ``max_x``, ``max_y``, ``expires`` (microseconds) and
            :attr:`query_columns`.
        """

    @abstractmethod
    def match(self, built: Any, points: pa.Table, pairs: Pairs) -> npt.NDArray[np.bool_]:
        """Say of each pair whether the point matches the query.

        Parameters
        ----------
        built
            What :meth:`build` returned for the queries.
        points
            ``id``, ``x``, ``y``, ``time`` (microseconds, if points have one) and
            :attr:`point_columns`.
        pairs
            The pairs to decide on.
        """


class Each(Application):
    """A plain function of one point and one query, called for every pair.

    The quickest way to begin. A function of whole columns is a hundred times faster: write an
    :class:`Application` when it matters.

    Parameters
    ----------
    function
        Called with a point and a query, each a dictionary by column; says whether they match.
    query_columns, point_columns
        As in :class:`Application`.
    """

    def __init__(
        self,
        function: Callable[[dict[str, Any], dict[str, Any]], bool],
        query_columns: Mapping[str, str] | None = None,
        point_columns: Sequence[str] = (),
    ) -> None:
        self._function = function
        self.query_columns = dict(query_columns or {})
        self.point_columns = tuple(point_columns)

    def build(self, queries: pa.Table) -> list[dict[str, Any]]:
        """Return the queries as dictionaries."""
        return list(queries.to_pylist())

    def match(
        self, built: list[dict[str, Any]], points: pa.Table, pairs: Pairs
    ) -> npt.NDArray[np.bool_]:
        """Call the function for every pair."""
        chosen, where = np.unique(pairs.points, return_inverse=True)
        rows = points.take(pa.array(chosen)).to_pylist()
        return np.fromiter(
            (
                bool(self._function(rows[point], built[query]))
                for point, query in zip(where.tolist(), pairs.queries.tolist(), strict=True)
            ),
            dtype=np.bool_,
            count=len(pairs.points),
        )
