"""Reads what is known of objects: who is in a fence, where an object is, who is nearest.

Tables in, tables out; the tables are those of buckets, as
:func:`~sparkswarm.apps.events.objects.object_schema` has them. Pure, so that it is tested without
Spark.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkswarm.apps.events.objects import (
    FENCES,
    NAMES,
    OBJECT,
    SINCE,
    TIME,
    BoundEvents,
    X,
    Y,
    buckets_of,
)
from sparkswarm.arguments import NUMBERS, check_argument
from sparkswarm.errors import InputError
from sparkswarm.store.names import values_of_names

TIMESTAMP = pa.timestamp("us", "UTC")
_NEAREST_FIRST = [("distance", "ascending"), (TIME, "descending"), (OBJECT, "ascending")]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectPosition:
    """Where an object was last, and in which fences.

    Attributes
    ----------
    object
        Its id.
    time, x, y
        Its last fix.
    fences
        The fences that it is in, and since when.
    """

    object: Any
    time: datetime
    x: float
    y: float
    fences: Mapping[Any, datetime]


def objects_inside(tables: Iterable[pa.Table], fence: int, events: BoundEvents) -> pa.Table:
    """Return the objects in a fence: ``object``, ``time``, ``x``, ``y``, ``since``, ``seconds``."""
    schema = pa.schema([*_position_fields(events), ("since", TIMESTAMP), ("seconds", pa.float64())])
    parts = [schema.empty_table()]
    for table in tables:
        fences = table.column(FENCES).combine_chunks()
        pairs = np.flatnonzero(fences.flatten().to_numpy() == fence)
        if not len(pairs):
            continue
        rows = np.searchsorted(
            fences.offsets.to_numpy() - fences.offsets[0].as_py(), pairs, "right"
        )
        found = table.take(pa.array(rows - 1))
        since = table.column(SINCE).combine_chunks().flatten().to_numpy()[pairs]
        seconds = (found.column(TIME).to_numpy() - since) / 1e6
        columns = [*_positions(found), pa.array(since).cast(TIMESTAMP), pa.array(seconds)]
        parts.append(pa.table(columns, schema=schema))
    return pa.concat_tables(parts).combine_chunks()


def bucket_of(name: object, events: BoundEvents) -> int:
    """Return the bucket that an object would be in; InputError where it is no id of an object."""
    return int(buckets_of(_id(name, events))[0])


def object_position(table: pa.Table, name: object, events: BoundEvents) -> ObjectPosition | None:
    """Return where an object of a bucket is; None where it is not known."""
    rows = np.flatnonzero(np.asarray(pc.equal(table.column(OBJECT), _id(name, events)[0])))
    if not len(rows):
        return None
    (row,) = table.slice(rows[0], 1).to_pylist()
    return ObjectPosition(
        object=row[OBJECT],
        time=_when(row[TIME]),
        x=row[X],
        y=row[Y],
        fences=dict(zip(_fence_ids(row, events), map(_when, row[SINCE]), strict=True)),
    )


def _fence_ids(row: Mapping[str, Any], events: BoundEvents) -> list[Any]:
    if not events.has_names:
        return list(row[FENCES])
    names = pa.array(row[NAMES], pa.string())
    return list(values_of_names(names, events.fence_type).to_pylist())


class Positions:
    """Where objects are, ready for many questions about the nearest.

    Sorted by x, so that a question compares the objects in a strip. ``tables`` are those of all
    buckets.
    """

    def __init__(self, tables: Iterable[pa.Table], events: BoundEvents) -> None:
        schema = pa.schema(_position_fields(events))
        parts = [pa.table(_positions(table), schema=schema) for table in tables]
        whole = pa.concat_tables([schema.empty_table(), *parts]).combine_chunks()
        xs = whole.column(X).to_numpy()
        order = np.argsort(xs)
        self._x, self._y = xs[order], whole.column(Y).to_numpy()[order]
        self._order, self._table = order, whole

    def nearest(self, x: float, y: float, k: int, within: float | None) -> pa.Table:
        """Return the k nearest: ``object``, ``time``, ``x``, ``y``, ``distance``.

        Nearest first; of objects at the same distance, the one that was seen last. ``within`` is
        the largest distance, included.
        """
        _check_nearest(x, y, k, within)
        limit = math.inf if within is None else within
        at, number = int(np.searchsorted(self._x, x)), len(self._x)
        some = math.isqrt(number * min(k, number)) + 1
        ends = self._x[[max(0, at - some), min(number, at + some) - 1]] if number else [x, x]
        radius = float(np.abs(np.asarray(ends) - x).max())
        while True:
            # Wider than errors of rounding: the distance decides.
            reach = min(radius, limit) * (1 + 1e-9) + abs(x) * 1e-12
            low = np.searchsorted(self._x, x - reach)
            high = np.searchsorted(self._x, x + reach, "right")
            distance = np.hypot(self._x[low:high] - x, self._y[low:high] - y)
            near = np.flatnonzero(distance <= min(radius, limit))
            if len(near) >= k or high - low == number or radius >= limit:
                break
            radius = 2 * radius or 1e-9
        rows = np.flatnonzero(distance <= limit) if high - low == number else near
        if len(rows) > k:
            # All that are as near as the k-th: which of them count is decided below.
            rows = rows[distance[rows] <= np.partition(distance[rows], k - 1)[k - 1]]
        found = self._table.take(pa.array(self._order[low:high][rows]))
        found = found.append_column("distance", pa.array(distance[rows]))
        return found.sort_by(_NEAREST_FIRST).slice(0, k).combine_chunks()


def _check_nearest(x: float, y: float, k: int, within: float | None) -> None:
    for name, value in (("x", x), ("y", y)):
        check_argument(name, value, NUMBERS, "a number", optional=False)
    check_argument("within", within, NUMBERS, "a distance, or None for any")
    if isinstance(k, bool) or not isinstance(k, int) or k < 1:
        raise InputError(f"k must be a whole number of at least 1, got {k!r}")
    if not (math.isfinite(x) and math.isfinite(y)):
        raise InputError(f"x and y must be finite numbers, got {x!r} and {y!r}")
    if within is not None and not within >= 0:
        raise InputError(f"within must be a distance, or None for any, got {within!r}")


def _position_fields(events: BoundEvents) -> list[tuple[str, pa.DataType]]:
    return [(OBJECT, events.object_type), (TIME, TIMESTAMP), (X, pa.float64()), (Y, pa.float64())]


def _positions(rows: pa.Table) -> list[pa.ChunkedArray]:
    return [rows.column(OBJECT), rows.column(TIME).cast(TIMESTAMP), rows.column(X), rows.column(Y)]


def _id(name: object, events: BoundEvents) -> pa.Array:
    try:
        found = pa.array([name], events.object_type)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
        raise InputError(f"objects have ids of type {events.object_type}, got {name!r}") from error
    if found.null_count:
        raise InputError("an object has an id; got None")
    return found


def _when(micros: int) -> datetime:
    return _EPOCH + timedelta(microseconds=micros)
