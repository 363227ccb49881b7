"""Continuous queries as columns, and the operations on them."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparkswarm.compiled import FloatArray, LongArray
from sparkswarm.geometry import Grid, QueryCells
from sparkswarm.index.layout import NEVER as NEVER

ID, X, Y, TIME = "__id", "__x", "__y", "__time"
"""Internal names of the columns that every point has, while its rows travel."""

PLAIN_NAMES = {ID: "id", X: "x", Y: "y", TIME: "time"}
"""What applications and blocks call these columns."""

EDGES = ("min_x", "min_y", "max_x", "max_y")
"""The columns of a rectangle."""

OPERATION_COLUMNS = ("op", "id", *EDGES, "expires", "order", "since", "until")
"""The columns of an operation and of a snapshot query."""

DETAILS = "details"
"""The column with an application's columns of a query as JSON; absent if it has none."""


class Op(IntEnum):
    """What an operation does to a query."""

    REGISTER = 0
    UPDATE = 1
    UNREGISTER = 2


class Queries(NamedTuple):
    """n continuous range queries.

    Attributes
    ----------
    ids
        Their ids, distinct.
    boxes
        min_x, min_y, max_x, max_y of each, edges included.
    expires
        Microseconds since 1970; a query matches what happens before. NEVER where it stays.
    details
        What an application wants to know of each beyond that, as bytes or null. None where the
        application wants nothing.
    """

    ids: LongArray
    boxes: FloatArray
    expires: LongArray
    details: pa.LargeBinaryArray | None = None

    @classmethod
    def none(cls) -> Queries:
        """Return no queries at all."""
        return cls(np.empty(0, np.int64), np.empty((0, 4)), np.empty(0, np.int64))

    @classmethod
    def joined(cls, parts: list[Queries]) -> Queries:
        """Put several lots one after another."""
        arrays = [(part.ids, part.boxes, part.expires) for part in (cls.none(), *parts)]
        ids, boxes, expires = map(np.concatenate, zip(*arrays, strict=True))
        return cls(ids, boxes, expires, _joined_details(parts))

    def take(self, which: npt.NDArray[Any]) -> Queries:
        """Return the chosen queries, by index or by mask."""
        details = self.details
        if details is not None:
            details = details.take(
                pa.array(np.flatnonzero(which) if which.dtype == bool else which)
            )
        return Queries(self.ids[which], self.boxes[which], self.expires[which], details)

    def without_details(self) -> Queries:
        """Return the same queries as they are to those who need no details."""
        return self._replace(details=None)

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return all but the details by name."""
        return {"ids": self.ids, "boxes": self.boxes, "expires": self.expires}

    def placed(self, grid: Grid) -> QueryCells:
        """Return the cells of each."""
        return grid.place_queries(*np.ascontiguousarray(self.boxes.T))


def _joined_details(parts: list[Queries]) -> pa.LargeBinaryArray | None:
    if all(part.details is None for part in parts):
        return None
    return pa.concat_arrays(
        [
            pa.nulls(len(part.ids), pa.large_binary()) if part.details is None else part.details
            for part in parts
        ]
    )


class Operations(NamedTuple):
    """n operations on queries.

    Attributes
    ----------
    op
        What each does, an :class:`Op`.
    queries
        The query that each concerns; the rectangle has no meaning for UNREGISTER.
    order
        Operations on one query take effect in this order.
    """

    op: npt.NDArray[np.int8]
    queries: Queries
    order: LongArray


def find(sorted_ids: LongArray, ids: LongArray) -> LongArray:
    """Return the position of each of ``ids`` in ``sorted_ids``, -1 where it is not there."""
    at = np.searchsorted(sorted_ids, ids)
    if not len(sorted_ids):
        return np.full(len(ids), -1, dtype=np.int64)
    inside = np.minimum(at, len(sorted_ids) - 1)
    return np.where(sorted_ids[inside] == ids, inside, -1).astype(np.int64)
