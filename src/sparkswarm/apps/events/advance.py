"""Advances the objects of a bucket by a batch: tables in, events and tables out.

Pure, so that it is tested without Spark. The same fixes in another order, as after a shuffle that
ran again, give the same.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparkswarm.apps.events.objects import (
    DWELT,
    FENCES,
    OBJECT,
    SINCE,
    TIME,
    UNTIL,
    X,
    Y,
    object_schema,
)
from sparkswarm.apps.events.settings import Events
from sparkswarm.apps.events.walk import (
    EventArrays,
    EventKind,
    EventRules,
    ExitReason,
    Fixes,
    Ignored,
    ObjectArrays,
    sort_fences,
    walk,
)
from sparkswarm.compiled import BoolArray, LongArray
from sparkswarm.store.blocks import MIN_TIME
from sparkswarm.store.formats import arrays_from_bytes, arrays_to_bytes

KINDS = pa.array([kind.name.lower() for kind in EventKind])
REASONS = pa.array([None, *(reason.name.lower() for reason in ExitReason if reason)])


class FenceChanges(NamedTuple):
    """Fences that the operations of a batch changed: sorted ids, and whether each exists still."""

    ids: LongArray
    exists: BoolArray

    @classmethod
    def none(cls) -> FenceChanges:
        """Return no changes."""
        return cls(np.empty(0, np.int64), np.empty(0, np.bool_))

    def to_bytes(self) -> pa.Buffer:
        """Return the content of a file that lasts for a batch."""
        return arrays_to_bytes({"ids": self.ids, "exists": self.exists.astype(np.uint8)})

    @classmethod
    def from_bytes(cls, content: pa.Buffer) -> FenceChanges:
        """Read what :meth:`to_bytes` returned."""
        arrays = arrays_from_bytes(content)
        return cls(arrays["ids"], arrays["exists"].astype(np.bool_))


class Advance(NamedTuple):
    """What a batch made of a bucket: events, the objects after it, and what was ignored."""

    events: pa.Table
    objects: pa.Table
    ignored: Ignored


def event_schema(object_type: pa.DataType) -> pa.Schema:
    """Return the columns of events; times in microseconds."""
    return pa.schema(
        [
            ("object", object_type),
            ("fence", pa.int64()),
            ("event", pa.string()),
            ("reason", pa.string()),
            ("time", pa.timestamp("us", "UTC")),
            ("from_x", pa.float64()),
            ("from_y", pa.float64()),
            ("x", pa.float64()),
            ("y", pa.float64()),
            ("seconds", pa.float64()),
        ]
    )


def advance(
    objects: pa.Table, fixes: pa.Table, changes: FenceChanges, clock: int, settings: Events
) -> Advance:
    """Advance the objects of a bucket.

    Parameters
    ----------
    objects
        What is known of them, as :func:`~sparkswarm.apps.events.objects.object_schema` has it.
    fixes
        The batch's fixes, also those in no fence, in any order.
    changes
        What operations changed, before the fixes.
    clock
        The latest time of earlier batches; MIN_TIME before the first event.
    """
    names = pa.concat_arrays([*objects.column(OBJECT).chunks, *fixes.column(OBJECT).chunks])
    # Codes are given in the order of the first appearance: the known objects come first.
    encoded = names.dictionary_encode()
    code = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    known, number = objects.num_rows, len(encoded.dictionary)
    rules = EventRules(
        clock=clock,
        horizon=max(MIN_TIME, clock - settings.silent_micros),
        silent=settings.silent_micros,
        dwell=settings.dwell_micros,
        inside=settings.inside,
        changed=np.ascontiguousarray(changes.ids, np.int64),
        exists=np.ascontiguousarray(changes.exists, np.bool_),
    )
    events, after, ignored = walk(
        _object_arrays(objects, number), _sorted_fixes(fixes, code[known:], number), rules
    )
    return Advance(
        _event_table(events, encoded.dictionary),
        _object_table(after, encoded.dictionary),
        Ignored(*map(int, ignored)),
    )


def _object_arrays(objects: pa.Table, number: int) -> ObjectArrays:
    """Return the known objects as arrays, followed by new ones up to ``number``."""
    new = number - objects.num_rows
    starts, fence = _lists(objects, FENCES)
    return ObjectArrays(
        known=np.concatenate([np.ones(objects.num_rows, np.bool_), np.zeros(new, np.bool_)]),
        time=np.concatenate([_plain(objects, TIME, np.int64), np.zeros(new, np.int64)]),
        x=np.concatenate([_plain(objects, X, np.float64), np.zeros(new)]),
        y=np.concatenate([_plain(objects, Y, np.float64), np.zeros(new)]),
        starts=np.concatenate([starts, np.full(new, starts[-1])]),
        fence=fence,
        since=_lists(objects, SINCE)[1],
        until=_lists(objects, UNTIL)[1],
        dwelt=_lists(objects, DWELT, np.uint8)[1],
    )


def _sorted_fixes(fixes: pa.Table, code: LongArray, number: int) -> Fixes:
    """Return fixes by object and time, the fences of each sorted."""
    time = _plain(fixes, TIME, np.int64)
    order = np.lexsort((time, code))
    starts = np.zeros(number + 1, np.int64)
    np.cumsum(np.bincount(code, minlength=number), out=starts[1:])
    bounds, fence = _lists(fixes, FENCES)
    until = _lists(fixes, UNTIL)[1]
    low, high = bounds[:-1][order], bounds[1:][order]
    sort_fences(low, high, fence, until)
    return Fixes(
        starts=starts,
        time=time[order],
        x=_plain(fixes, X, np.float64)[order],
        y=_plain(fixes, Y, np.float64)[order],
        low=low,
        high=high,
        fence=fence,
        until=until,
    )


def _plain(table: pa.Table, name: str, kind: npt.DTypeLike) -> npt.NDArray[Any]:
    return np.asarray(table.column(name).to_numpy(), kind)


def _lists(
    table: pa.Table, name: str, kind: npt.DTypeLike = np.int64
) -> tuple[LongArray, npt.NDArray[Any]]:
    """Return where the list of each row starts, from 0, and a copy of the values of all."""
    column = table.column(name)
    chunks = [chunk for chunk in column.chunks if len(chunk)]
    lengths = [np.diff(chunk.offsets.to_numpy()) for chunk in chunks]
    starts = np.zeros(len(column) + 1, np.int64)
    if lengths:
        np.cumsum(np.concatenate(lengths), out=starts[1:])
    values = [chunk.flatten().to_numpy() for chunk in chunks]
    return starts, np.concatenate([np.empty(0, kind), *values]).astype(kind, copy=False)


def _event_table(events: EventArrays, names: pa.Array) -> pa.Table:
    schema = event_schema(names.type)
    seconds = (events.time - events.since) / 1e6
    positions = (pa.array(p, from_pandas=True) for p in events[6:])
    columns = [
        names.take(pa.array(events.object)),
        pa.array(events.fence),
        KINDS.take(pa.array(events.kind)),
        REASONS.take(pa.array(events.reason)),
        pa.array(events.time).cast(schema.field("time").type),
        *positions,
        pa.array(seconds),
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _object_table(after: ObjectArrays, names: pa.Array) -> pa.Table:
    kept = np.flatnonzero(after.known)
    # An object that is forgotten is in no fence.
    starts = pa.array(np.append(after.starts[:-1][kept], after.starts[-1]).astype(np.int32))
    columns = {
        OBJECT: names.take(pa.array(kept)),
        TIME: pa.array(after.time[kept]),
        X: pa.array(after.x[kept]),
        Y: pa.array(after.y[kept]),
    }
    lists = {FENCES: after.fence, UNTIL: after.until, SINCE: after.since, DWELT: after.dwelt}
    for name, values in lists.items():
        columns[name] = pa.ListArray.from_arrays(starts, pa.array(values))
    return pa.table(columns, schema=object_schema(names.type))
