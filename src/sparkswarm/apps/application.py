"""What an application is: the part of a spatial service that is not load balancing.

Owns the one interface between the engine and whatever is matched. An application knows nothing
of partitions, executors or Spark. The engine stores queries by their rectangles, finds for every
point the queries whose rectangle contains it, and asks the application which of these pairs
count. A circle or a polygon is a rectangle around it and a closer look.

A :class:`Stateful` application also keeps something for each query. The engine stores it with the
query, moves it along, and knows of it only whose it is.

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

    def prepared(self, points: pa.Schema) -> Application:
        """Return the application for points with these columns; by default it is the same.

        Called once when a run starts. Raise an :class:`~sparkswarm.errors.InputError` where a
        column will not do.
        """
        return self

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


NO_WATERMARK = -(2**63)
"""The watermark before anything was seen: nothing is late, nothing is due."""


class Moment(NamedTuple):
    """Where a batch stands in event time, in microseconds.

    The watermark of a batch is the latest time seen in earlier batches, less the delay. It is
    fixed before the batch runs, and never goes back.

    Attributes
    ----------
    before
        The watermark of the batch before.
    watermark
        That of this batch.
    """

    before: int
    watermark: int


class Advanced(NamedTuple):
    """What a batch makes of the state of some queries.

    Attributes
    ----------
    summaries
        What there is to tell, of :attr:`Stateful.summary_schema`.
    state
        The state after the batch.
    late
        How many points came too late, counted once for each query.
    due
        The watermark at which there will be something to tell although nothing new came; None
        where there never will be.
    """

    summaries: pa.Table
    state: pa.Table
    late: int = 0
    due: int | None = None


class Stateful(Application):
    """An application that keeps something for each query and tells a summary of it now and then.

    Its queries have one column more when they come to :meth:`build`, ``home``: a number that
    says where the engine keeps the query's state. A table of state may have any columns, as long
    as each row has the ``id`` and the ``home`` of its query, as ``build`` was given them. The
    engine stores a table with its schema's metadata, and leaves out rows. It makes one of several
    by :meth:`combined` alone.

    When a query is updated, registered again or unregistered, its state is dropped.

    Attributes
    ----------
    delay
        How many microseconds the watermark stays behind the latest time seen.
    appends
        Whether state may lie in several tables that are put together when something is due:
        :meth:`advance` is then called for what is new alone, and less is written. What it
        returns must not depend on how state was divided.
    """

    delay: int = 0
    appends: bool = False

    @property
    @abstractmethod
    def summary_schema(self) -> pa.Schema:
        """The columns of what is told."""

    @abstractmethod
    def keeps(self, built: Any) -> npt.NDArray[np.bool_]:
        """Say of each query whether its matches are kept; those of the others are results."""

    @abstractmethod
    def collect(self, built: Any, points: pa.Table, pairs: Pairs) -> pa.Table:
        """Return what matched pairs, of queries that keep theirs, add to the state of these."""

    @abstractmethod
    def advance(
        self, state: Sequence[pa.Table], new: Sequence[pa.Table], moment: Moment
    ) -> Advanced:
        """Do what a batch does to the state of some queries.

        Parameters
        ----------
        state
            What there is; maybe nothing.
        new
            What :meth:`collect` returned in this batch; maybe nothing.
        moment
            Where the batch stands in time.
        """

    def combined(self, tables: Sequence[pa.Table]) -> pa.Table:
        """Make one of several tables of state, at least one, so that less travels."""
        return pa.concat_tables(tables)


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
