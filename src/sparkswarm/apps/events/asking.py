"""Questions about objects that come in the stream of operations, and their answers.

``inside``, ``where`` and ``nearest`` ask what the methods of a handle do, as of the batch before.
Runs on the driver, once a batch with such questions; a batch that runs again gives the same
answers. Tables in, tables out, so that it is tested without Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sparkswarm.apps.events.objects import BoundEvents
from sparkswarm.apps.events.reading import (
    TIMESTAMP,
    Positions,
    bucket_of,
    object_position,
    objects_inside,
)
from sparkswarm.errors import InputError
from sparkswarm.store.names import hash_name, values_of_names
from sparkswarm.store.queries import ABOUT, WITHIN, K

INSIDE, WHERE, NEAREST = ASKS = ("inside", "where", "nearest")
"""The operations that ask about objects."""

NO_OBJECTS = "no objects are kept, or there is no sink for positions"
NO_ABOUT = f"{ABOUT} does not name a fence or an object"
NO_PLACE = "min_x and min_y must be the place, two finite numbers"
BAD_K = f"{K} must be at least 1, and {WITHIN} at least 0"

Tables = Callable[[int | None], Iterable[pa.Table]]
"""Returns what is known of the objects of a bucket, or of all."""


def answer_schema(events: BoundEvents) -> pa.Schema:
    """Return the columns of answers; those that an answer has no value for are null."""
    return pa.schema(
        [
            ("query_id", events.fence_type),
            ("object", events.object_type),
            ("time", TIMESTAMP),
            ("x", pa.float64()),
            ("y", pa.float64()),
            ("fence", events.fence_type),
            ("since", TIMESTAMP),
            ("seconds", pa.float64()),
            ("distance", pa.float64()),
        ]
    )


def check_asks(rows: pa.Table, events: BoundEvents | None) -> npt.NDArray[np.object_]:
    """Return why each question cannot be answered, or None."""
    reasons = np.full(rows.num_rows, None, dtype=object)
    if events is None:
        reasons[:] = NO_OBJECTS
        return reasons
    for i, row in enumerate(rows.to_pylist()):
        if row["op"] == NEAREST:
            place = row["min_x"], row["min_y"]
            if any(one is None or not np.isfinite(one) for one in place):
                reasons[i] = NO_PLACE
            elif not (_k(row) >= 1 and (row[WITHIN] is None or row[WITHIN] >= 0)):
                reasons[i] = BAD_K
        elif _about(row, events) is None:
            reasons[i] = NO_ABOUT
    return reasons


def answer_asks(
    rows: pa.Table, tables: Tables, renumbered: Mapping[bytes, int], events: BoundEvents
) -> pa.Table:
    """Return the answers to questions, one row for each object or fence that was found."""
    schema = answer_schema(events)
    ids = rows.column("id").combine_chunks()
    if events.has_names:
        ids = values_of_names(ids, events.fence_type)
    parts, positions = [schema.empty_table()], None
    for i, row in enumerate(rows.to_pylist()):
        about = _about(row, events)
        if row["op"] == INSIDE:
            number = about
            if isinstance(about, bytes):
                number = renumbered.get(about, hash_name(about))
            found = objects_inside(tables(None), number, events)
        elif row["op"] == WHERE:
            found = _fences_of(about, tables, events)
        else:
            positions = positions or Positions(tables(None), events)
            found = positions.nearest(row["min_x"], row["min_y"], _k(row), row[WITHIN])
        columns = {name: found.column(name) for name in found.column_names}
        columns["query_id"] = ids.take(pa.array(np.full(found.num_rows, i)))
        parts.append(
            pa.table(
                [columns.get(f.name, pa.nulls(found.num_rows, f.type)) for f in schema],
                schema=schema,
            )
        )
    return pa.concat_tables(parts).combine_chunks()


def _fences_of(name: object, tables: Tables, events: BoundEvents) -> pa.Table:
    """Return where an object is, a row for each fence that it is in; one if it is in none."""
    schema = answer_schema(events)
    names = ("object", "time", "x", "y", "fence", "since", "seconds")
    schema = pa.schema([schema.field(one) for one in names])
    for table in tables(bucket_of(name, events)):
        at = object_position(table, name, events)
        if at is not None:
            stays: list[tuple[Any, Any]] = list(at.fences.items()) or [(None, None)]
            rows = [
                {
                    "object": at.object, "time": at.time, "x": at.x, "y": at.y, "fence": fence,
                    "since": since,
                    "seconds": None if since is None else (at.time - since).total_seconds(),
                }
                for fence, since in stays
            ]  # fmt: skip
            return pa.Table.from_pylist(rows, schema=schema)
    return schema.empty_table()


def _k(row: Mapping[str, Any]) -> int:
    return 1 if row[K] is None else int(row[K])


def _about(row: Mapping[str, Any], events: BoundEvents) -> Any:
    """Return the fence's name or number, or the object's id; None where the text is neither."""
    text = row[ABOUT]
    if text is None:
        return None
    if row["op"] == INSIDE and events.has_names:
        return text.encode()
    kind = pa.int64() if row["op"] == INSIDE else events.object_type
    try:
        value = pc.cast(pa.array([text], pa.string()), kind)
        if row["op"] == WHERE:
            bucket_of(value[0].as_py(), events)
        return value[0].as_py()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, InputError):
        return None
