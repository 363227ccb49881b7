"""Advances the objects of a bucket by a batch: tables in, events and tables out.

Pure, so that it is tested without Spark. The same fixes in another order, as after a shuffle that
ran again, give the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparkswarm.apps.events.objects import (
    DWELT,
    FENCES,
    NAMES,
    OBJECT,
    PROPERTIES,
    SINCE,
    TIME,
    UNTIL,
    BoundEvents,
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
    order_fixes,
    sort_fences,
    walk,
)
from sparkswarm.compiled import BoolArray, LongArray
from sparkswarm.index.legs import Legs
from sparkswarm.store.blocks import MIN_TIME
from sparkswarm.store.formats import arrays_from_bytes, arrays_to_bytes
from sparkswarm.store.names import values_of_names

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
    """What a batch made of a bucket: events, the objects after it, and what was ignored.

    ``walkers`` are the objects of ``legs``, which may cross fences.
    """

    events: pa.Table
    objects: pa.Table
    walkers: pa.Array
    legs: Legs
    ignored: Ignored


def event_schema(events: BoundEvents) -> pa.Schema:
    """Return the columns of events; times in microseconds, properties as JSON."""
    return pa.schema(
        [
            ("object", events.object_type),
            ("fence", events.fence_type),
            ("event", pa.string()),
            ("reason", pa.string()),
            ("time", pa.timestamp("us", "UTC")),
            ("from_x", pa.float64()),
            ("from_y", pa.float64()),
            ("x", pa.float64()),
            ("y", pa.float64()),
            ("seconds", pa.float64()),
            *([(PROPERTIES, pa.string())] if events.properties else []),
        ]
    )


EVENT_COLUMNS = tuple(event_schema(BoundEvents(Events(), pa.int64())).names)
"""The columns that all events have."""


def advance(
    objects: pa.Table, fixes: pa.Table, changes: FenceChanges, clock: int, bound: BoundEvents
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
    settings = bound.settings
    rules = EventRules(
        clock=clock,
        horizon=max(MIN_TIME, clock - settings.silent_micros),
        silent=settings.silent_micros,
        dwell=settings.dwell_micros,
        inside=settings.inside,
        cross=settings.cross or 0.0,
        changed=np.ascontiguousarray(changes.ids, np.int64),
        exists=np.ascontiguousarray(changes.exists, np.bool_),
    )
    before = _object_arrays(objects, number)
    events, after, legs, ignored = walk(
        before, _sorted_fixes(fixes, code[known:], number, len(before.fence)), rules
    )
    labels = {name: _labels(objects, fixes, name) for name in bound.labels}
    return Advance(
        _event_table(events, encoded.dictionary, labels, bound),
        _object_table(after, encoded.dictionary, labels, bound),
        encoded.dictionary.take(pa.array(legs.object)),
        Legs(*legs[1:]),
        Ignored(*map(int, ignored)),
    )


def _labels(objects: pa.Table, fixes: pa.Table, name: str) -> pa.StringArray:
    """Return the texts of all fences of objects, then of all fences of fixes."""
    chunks = [pa.array([], pa.string())]
    for table in (objects, fixes):
        if name in table.column_names:
            chunks += [chunk.flatten() for chunk in table.column(name).chunks]
        else:
            # Objects that were kept before the column was asked for.
            chunks.append(pa.nulls(len(_lists(table, FENCES)[1]), pa.string()))
    return pa.concat_arrays(chunks)


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
        label=np.arange(len(fence)),
    )


def _sorted_fixes(fixes: pa.Table, code: LongArray, number: int, first: int) -> Fixes:
    """Return fixes by object and time, the fences of each sorted; labels count from ``first``."""
    time = _plain(fixes, TIME, np.int64)
    order, starts = order_fixes(code, time, number)
    bounds, fence = _lists(fixes, FENCES)
    until = _lists(fixes, UNTIL)[1]
    low, high = bounds[:-1][order], bounds[1:][order]
    label = np.arange(first, first + len(fence))
    sort_fences(low, high, fence, until, label)
    return Fixes(
        starts=starts,
        time=time[order],
        x=_plain(fixes, X, np.float64)[order],
        y=_plain(fixes, Y, np.float64)[order],
        low=low,
        high=high,
        fence=fence,
        until=until,
        label=label,
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


def _event_table(
    events: EventArrays, names: pa.Array, labels: Mapping[str, pa.StringArray], bound: BoundEvents
) -> pa.Table:
    schema = event_schema(bound)
    seconds = (events.time - events.since) / 1e6
    positions = (pa.array(p, from_pandas=True) for p in events[6:10])
    texts = {name: values.take(pa.array(events.label)) for name, values in labels.items()}
    fence = pa.array(events.fence)
    if bound.has_names:
        fence = values_of_names(texts[NAMES], bound.fence_type)
    columns = [
        names.take(pa.array(events.object)),
        fence,
        KINDS.take(pa.array(events.kind)),
        REASONS.take(pa.array(events.reason)),
        pa.array(events.time).cast(schema.field("time").type),
        *positions,
        pa.array(seconds),
        *([texts[PROPERTIES]] if bound.properties else []),
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def cross_events(
    walkers: pa.Array,
    legs: Legs,
    fences: LongArray,
    labels: Mapping[str, pa.StringArray],
    bound: BoundEvents,
) -> pa.Table:
    """Return the events of objects whose legs cross fences; all have one row for each event."""
    number = len(fences)
    fence = pa.array(fences)
    if bound.has_names:
        fence = values_of_names(labels[NAMES], bound.fence_type)
    schema = event_schema(bound)
    columns = [
        walkers,
        fence,
        KINDS.take(pa.array(np.full(number, EventKind.CROSS))),
        pa.nulls(number, pa.string()),
        pa.array(legs.time).cast(schema.field("time").type),
        *map(pa.array, (legs.from_x, legs.from_y, legs.x, legs.y)),
        pa.nulls(number, pa.float64()),
        *([labels[PROPERTIES]] if bound.properties else []),
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _object_table(
    after: ObjectArrays, names: pa.Array, labels: Mapping[str, pa.StringArray], bound: BoundEvents
) -> pa.Table:
    kept = np.flatnonzero(after.known)
    # An object that is forgotten is in no fence.
    starts = pa.array(np.append(after.starts[:-1][kept], after.starts[-1]).astype(np.int32))
    columns = {
        OBJECT: names if len(kept) == len(names) else names.take(pa.array(kept)),
        TIME: pa.array(after.time[kept]),
        X: pa.array(after.x[kept]),
        Y: pa.array(after.y[kept]),
    }
    lists = {FENCES: after.fence, UNTIL: after.until, SINCE: after.since, DWELT: after.dwelt}
    flat = {name: pa.array(values) for name, values in lists.items()}
    flat |= {name: values.take(pa.array(after.label)) for name, values in labels.items()}
    for name, values in flat.items():
        columns[name] = pa.ListArray.from_arrays(starts, values)
    return pa.table(columns).select(object_schema(bound).names).cast(object_schema(bound))
