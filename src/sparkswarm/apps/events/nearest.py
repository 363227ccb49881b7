"""Continuous k nearest: the objects nearest to standing points, told when the answer changes.

A standing point is a circle with a k. Its answer is made of what is known of objects: the k of
those in the circle that are nearest to its centre. So nothing else is stored, and what changed in a
batch is the difference of the answers before and after it, which is the same when the batch runs
again. Each task gives the candidates among its own objects; the driver chooses among those of all.
Tables in, tables out, so that it is tested without Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sparkswarm.apps.events.objects import (
    FENCES,
    NAMES,
    OBJECT,
    STANDING,
    TIME,
    BoundEvents,
    X,
    Y,
)
from sparkswarm.compiled import FloatArray, IntArray, LongArray
from sparkswarm.index.shapes import SPHERE, sphere_distance
from sparkswarm.store.names import values_of_names

FENCE, DISTANCE = "fence", "distance"
_FOUND = (OBJECT, DISTANCE, TIME, X, Y)
_SIDE = "is_after"
_TIMESTAMP = pa.timestamp("us", "UTC")

ANSWER_COLUMNS = ("query_id", "objects", "before")
"""The columns that all answers have."""


def nearest_schema(events: BoundEvents) -> pa.Schema:
    """Return the columns of answers: the objects, nearest first, and those of the last answer."""
    kinds = (events.object_type, pa.float64(), _TIMESTAMP, pa.float64(), pa.float64())
    found = pa.struct(list(zip(_FOUND, kinds, strict=True)))
    values = (events.fence_type, pa.list_(found), pa.list_(events.object_type))
    return pa.schema([*zip(ANSWER_COLUMNS, values, strict=True), *_property_fields(events)])


def candidate_schema(events: BoundEvents) -> pa.Schema:
    """Return the columns of candidates, by fence and rank."""
    return pa.schema(
        [
            (FENCE, pa.int64()),
            ("k", pa.int64()),
            (OBJECT, events.object_type),
            (DISTANCE, pa.float64()),
            (TIME, pa.int64()),
            (X, pa.float64()),
            (Y, pa.float64()),
            *((name, pa.string()) for name in _labels(events)),
        ]
    )


def candidates(objects: Iterable[pa.Table], events: BoundEvents) -> pa.Table:
    """Return the k nearest objects of each standing point, among some objects."""
    schema = candidate_schema(events)
    return best([schema.empty_table(), *(_distances(table, events) for table in objects)])


def best(tables: Sequence[pa.Table]) -> pa.Table:
    """Return the k nearest of each standing point among the candidates of several tables.

    Nearest first; of objects at the same distance, the one that was seen last.
    """
    whole = pa.concat_tables(tables).combine_chunks()
    order = [(FENCE, "ascending"), (DISTANCE, "ascending"), (TIME, "descending")]
    whole = whole.sort_by([*order, (OBJECT, "ascending")])
    fence = whole.column(FENCE).to_numpy()
    rank = np.arange(len(fence)) - np.searchsorted(fence, fence)
    return whole.filter(pa.array(rank < whole.column("k").to_numpy()))


def nearest_of(objects: Iterable[pa.Table], query: int, events: BoundEvents) -> pa.Table:
    """Return the answer of one standing point, given all objects."""
    found = candidates(objects, events)
    found = found.filter(pc.equal(found.column(FENCE), query)).select(
        [OBJECT, TIME, X, Y, DISTANCE]
    )
    return found.set_column(1, TIME, found.column(TIME).cast(_TIMESTAMP)).combine_chunks()


def joined_sides(before: pa.Table, after: pa.Table) -> pa.Table:
    """Return the candidates before and after a batch as one table."""
    sides = ((before, False), (after, True))
    marked = (t.append_column(_SIDE, pa.array(np.full(t.num_rows, side))) for t, side in sides)
    return pa.concat_tables(marked)


def both_sides(joined: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Return what :func:`joined_sides` joined."""
    is_after = joined.column(_SIDE)
    plain = joined.drop_columns([_SIDE])
    return plain.filter(pc.invert(is_after)), plain.filter(is_after)


def changed_answers(before: pa.Table, after: pa.Table, events: BoundEvents) -> pa.Table:
    """Return the answers of ``after`` that have other objects, or the same in another order.

    Both are what :func:`best` returned. An answer may be empty: the last object is gone, or the
    query.
    """
    objects = pa.concat_arrays(
        [*before.column(OBJECT).chunks, *after.column(OBJECT).chunks]
    ).dictionary_encode()
    codes = objects.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    fences = np.union1d(before.column(FENCE).to_numpy(), after.column(FENCE).to_numpy())
    old = _answers_of(before, codes[: before.num_rows], fences)
    new = _answers_of(after, codes[before.num_rows :], fences)
    chosen = np.flatnonzero(_differ(old, new))
    old_rows, old_offsets = old.rows(chosen)
    new_rows, new_offsets = new.rows(chosen)
    found = after.take(pa.array(new_rows)).combine_chunks()
    columns = [found.column(name).combine_chunks() for name in _FOUND]
    columns[_FOUND.index(TIME)] = columns[_FOUND.index(TIME)].cast(_TIMESTAMP)
    gone = before.column(OBJECT).take(pa.array(old_rows)).combine_chunks()
    # Labels are those of the first object, of before where none is left.
    both = pa.concat_tables([after, before])
    none_left = new.starts[chosen] == new.stops[chosen]
    first = np.where(none_left, after.num_rows + old.starts[chosen], new.starts[chosen])
    labels = both.take(pa.array(first))
    ids = pa.array(fences[chosen])
    if events.has_names:
        ids = values_of_names(labels.column(NAMES).combine_chunks(), events.fence_type)
    return pa.Table.from_arrays(
        [
            ids,
            pa.ListArray.from_arrays(
                pa.array(new_offsets), pa.StructArray.from_arrays(columns, list(_FOUND))
            ),
            pa.ListArray.from_arrays(pa.array(old_offsets), gone),
            *(labels.column(field.name) for field in _property_fields(events)),
        ],
        schema=nearest_schema(events),
    )


class _Answers(NamedTuple):
    """Answers to all standing points that have one before or after: rows of a table."""

    starts: LongArray
    stops: LongArray
    codes: LongArray
    """The object of each row."""

    def rows(self, chosen: LongArray) -> tuple[LongArray, IntArray]:
        """Return the rows of some answers, side by side, and where each of them begins."""
        sizes = (self.stops - self.starts)[chosen]
        offsets = np.zeros(len(chosen) + 1, np.int32)
        np.cumsum(sizes, out=offsets[1:])
        within = np.arange(offsets[-1]) - np.repeat(offsets[:-1], sizes)
        return np.repeat(self.starts[chosen], sizes) + within, offsets


def _answers_of(table: pa.Table, codes: LongArray, fences: LongArray) -> _Answers:
    fence = table.column(FENCE).to_numpy()
    return _Answers(np.searchsorted(fence, fences), np.searchsorted(fence, fences, "right"), codes)


def _differ(old: _Answers, new: _Answers) -> npt.NDArray[np.bool_]:
    """Return which answers are not the same."""
    differs: npt.NDArray[np.bool_] = (old.stops - old.starts) != (new.stops - new.starts)
    same_size = np.flatnonzero(~differs)
    rows, offsets = old.rows(same_size)
    others, _ = new.rows(same_size)
    answer = np.repeat(same_size, np.diff(offsets))
    differs[answer[old.codes[rows] != new.codes[others]]] = True
    return differs


def _distances(objects: pa.Table, events: BoundEvents) -> pa.Table:
    """Return a row for each object and standing point in whose circle it is."""
    schema = candidate_schema(events)
    if STANDING not in objects.column_names:
        # Kept before standing points were asked for.
        return schema.empty_table()
    lists = objects.column(FENCES).combine_chunks()
    standing = objects.column(STANDING).combine_chunks().flatten()
    pairs = np.flatnonzero(np.asarray(pc.greater(pc.binary_length(standing), 0).fill_null(False)))
    object_of = np.repeat(np.arange(objects.num_rows), np.diff(lists.offsets.to_numpy()))[pairs]
    encoded = standing.take(pa.array(pairs)).dictionary_encode()
    points = np.array([_numbers(text) for text in encoded.dictionary.to_pylist()]).reshape(-1, 4)
    kind, k, middle_x, middle_y = points[encoded.indices.to_numpy(zero_copy_only=False)].T
    found = objects.select([OBJECT, TIME, X, Y]).take(pa.array(object_of))
    x, y = found.column(X).to_numpy(), found.column(Y).to_numpy()
    flat = {name: objects.column(name).combine_chunks().flatten() for name in _labels(events)}
    columns = {
        FENCE: lists.flatten().take(pa.array(pairs)),
        "k": pa.array(k.astype(np.int64)),
        DISTANCE: pa.array(_distance(kind, middle_x, middle_y, x, y)),
        **{name: found.column(name) for name in (OBJECT, TIME, X, Y)},
        **{name: values.take(pa.array(pairs)) for name, values in flat.items()},
    }
    return pa.table([columns[name] for name in schema.names], schema=schema)


def _numbers(text: str) -> list[float]:
    return [float(part) for part in text.split()]


def _distance(
    kind: FloatArray, middle_x: FloatArray, middle_y: FloatArray, x: FloatArray, y: FloatArray
) -> FloatArray:
    """Return distances in units of the coordinates, or in metres on the sphere."""
    plane: FloatArray = np.hypot(x - middle_x, y - middle_y)
    on_sphere = kind == SPHERE
    if on_sphere.any():
        plane[on_sphere] = sphere_distance(
            *(values[on_sphere] for values in (middle_x, middle_y, x, y))
        )
    return plane


def _labels(events: BoundEvents) -> tuple[str, ...]:
    return tuple(name for name in events.labels if name != STANDING)


def _property_fields(events: BoundEvents) -> list[pa.Field]:
    return [pa.field(name, pa.string()) for name in _labels(events) if name != NAMES]
