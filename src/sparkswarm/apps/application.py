"""The interface between the engine and an application: which points match which queries.

Owns :class:`Application`, its extension :class:`Stateful`, and :class:`PairFunction`, the simplest
application. An application knows nothing of partitions, executors or Spark. The engine stores
queries by their rectangles, finds the queries whose rectangle contains a point, and asks the
application which of these pairs match. A circle or a polygon is a query with a bounding rectangle
and a further test.

A stateful application also keeps rows of state for each query. The engine stores them, moves them
with the query's partition, and reads nothing in them but the query they belong to.

Tables come column by column, many rows at a time: an application that works on whole columns is
as fast as the libraries it uses, one that loops over rows is as slow as Python.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparkswarm.arguments import check_columns, check_function, check_table
from sparkswarm.errors import ConfigError


class Pairs(NamedTuple):
    """Pairs of a point and a query whose rectangle contains it.

    Attributes
    ----------
    points
        Of each pair, the point: its row in the table of points.
    queries
        Of each pair, the query: its row in the table that ``build`` was given.
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
        Columns of a query besides its id, rectangle and expiry: names and types as in Spark's
        DDL, such as ``{"radius": "DOUBLE"}``; no maps, and dates and bytes not within arrays. They
        are stored with the query. A stream or table of queries may lack some of them; they are then
        null. A query with a number in them that is not finite is rejected.
    point_columns
        Columns of the points that matching needs, besides ``id``, ``x``, ``y`` and ``time``.
    """

    query_columns: Mapping[str, str] = {}
    point_columns: Sequence[str] = ()

    _renamed: ClassVar[Mapping[str, str]] = {"prepared": "bind", "refuse": "reject"}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._check_names(vars(cls))

    @classmethod
    def _check_names(cls, names: Mapping[str, Any]) -> None:
        """Raise ConfigError if a method or an attribute has its name of an earlier version."""
        for old, new in cls._renamed.items():
            if old in names:
                raise ConfigError(f"{cls.__name__}.{old}: {old} was renamed to {new}")

    @property
    def stateful(self) -> Stateful | None:
        """The same application if it keeps state, else None."""
        return None

    def bind(self, points: pa.Schema) -> Application:
        """Return the application for points with these columns; by default itself.

        Called once when a run starts. Raise an :class:`~sparkswarm.errors.InputError` if a
        column is missing or has an unusable type.
        """
        return self

    def reject(self, queries: pa.Table) -> Sequence[str | None]:
        """Return for each new query the reason to reject it, or None to accept it.

        Rejected queries go to the quarantine with that reason. The table has the columns of
        that of :meth:`build`.
        """
        return [None] * queries.num_rows

    @abstractmethod
    def build(self, queries: pa.Table) -> Any:
        """Prepare queries for matching; the result is passed to :meth:`match`.

        Called once per worker for each segment of stored queries; the result is cached. Return
        None if the rectangles alone decide: :meth:`match` is then not called.

        Parameters
        ----------
        queries
            ``id``, ``min_x``, ``min_y``, ``max_x``, ``max_y``, ``expires`` (microseconds) and
            :attr:`query_columns`.
        """

    @abstractmethod
    def match(self, built: Any, points: pa.Table, pairs: Pairs) -> npt.NDArray[np.bool_]:
        """Return for each pair whether the point matches the query.

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


class Watermarks(NamedTuple):
    """The watermarks of a batch and of the one before it, in microseconds of event time.

    The watermark of a batch is the latest event time of earlier batches, less
    :attr:`Stateful.watermark_delay`. It is fixed before the batch runs, and never decreases. Before
    the first event it is the earliest time, ``-(2**63)``: no point is late then.
    """

    previous: int
    current: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StateUpdate:
    """The effect of a batch on the state of some queries.

    Attributes
    ----------
    summaries
        Rows for the sink of summaries, with the columns of :attr:`Stateful.summary_schema`.
    state
        The state after the batch.
    late
        How many points came too late, counted once for each query.
    due
        The watermark at which there will be summaries even if nothing new arrives; None if
        there is no such watermark.
    """

    summaries: pa.Table
    state: pa.Table
    late: int = 0
    due: int | None = None


class Stateful(Application):
    """An application that keeps state for each query and emits summaries of it.

    The table that :meth:`build` gets has one more column, ``home``: a number that says where the
    engine stores the query's state. A table of state may have any columns, provided that each row
    has the ``id`` and the ``home`` of its query, as ``build`` was given them. The engine stores
    such a table with its schema's metadata and may remove rows from it; it merges tables only with
    :meth:`combine`.

    When a query is updated, registered again or unregistered, its state is dropped.

    Attributes
    ----------
    watermark_delay
        How far the watermark stays behind the latest event time, in microseconds.
    append_only
        Whether a query's state may lie in several tables until something is due.
        :meth:`advance` is then called with the new tables alone, and less is written. Its
        result must not depend on how state is divided into tables.
    """

    watermark_delay: int = 0
    append_only: bool = False

    _renamed: ClassVar[Mapping[str, str]] = {
        **Application._renamed,
        "keeps": "collects",
        "combined": "combine",
        "delay": "watermark_delay",
        "appends": "append_only",
    }

    @property
    def stateful(self) -> Stateful:
        """The application itself."""
        return self

    @property
    @abstractmethod
    def summary_schema(self) -> pa.Schema:
        """The columns of summaries."""

    @abstractmethod
    def collects(self, built: Any) -> npt.NDArray[np.bool_]:
        """Return for each query whether its matches go into its state instead of the results."""

    @abstractmethod
    def collect(self, built: Any, points: pa.Table, pairs: Pairs) -> pa.Table:
        """Return what matched pairs add to state; all are of queries that collect."""

    @abstractmethod
    def advance(
        self, state: Sequence[pa.Table], new: Sequence[pa.Table], watermarks: Watermarks
    ) -> StateUpdate:
        """Apply a batch to the state of some queries.

        Parameters
        ----------
        state
            The state before this batch; may be empty.
        new
            What :meth:`collect` returned in this batch; may be empty.
        watermarks
            Those of this batch and of the one before.
        """

    def combine(self, tables: Sequence[pa.Table]) -> pa.Table:
        """Return one table of state for several, at least one, to reduce what is shuffled."""
        return pa.concat_tables(tables)


class PairFunction(Application):
    """Matches with a plain Python function of one point and one query, called for every pair.

    The quickest way to start. A function of whole columns is about a hundred times faster: write
    an :class:`Application` when speed matters.

    Parameters
    ----------
    function
        Called with a point and a query, each a dictionary by column; returns whether they match.
    query_columns, point_columns
        As in :class:`Application`.
    """

    def __init__(
        self,
        function: Callable[[dict[str, Any], dict[str, Any]], bool],
        query_columns: Mapping[str, str] | None = None,
        point_columns: Sequence[str] = (),
    ) -> None:
        check_function("function", function, "(point, query)", optional=False)
        check_table("query_columns", query_columns or {}, "{'radius': 'DOUBLE'}")
        check_columns("point_columns", point_columns)
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
        chosen, position = np.unique(pairs.points, return_inverse=True)
        rows = points.take(pa.array(chosen)).to_pylist()
        return np.fromiter(
            (
                bool(self._function(rows[point], built[query]))
                for point, query in zip(position.tolist(), pairs.queries.tolist(), strict=True)
            ),
            dtype=np.bool_,
            count=len(pairs.points),
        )
