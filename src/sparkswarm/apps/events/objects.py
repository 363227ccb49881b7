"""Objects: in which bucket each is kept, and the tables of what is known of them.

An object is the id of points, of any type that is not nested. Objects are divided by the hash of
their id into a fixed number of buckets, whatever partitions and executors there are: a hotspot of
objects in one place is spread over all buckets.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkswarm.apps.events.settings import Events
from sparkswarm.compiled import IntArray, LongArray, compiled, hash64, hash_texts
from sparkswarm.errors import InputError

BUCKETS = 64
"""Number of buckets. Stored state depends on it."""

OBJECT, TIME, X, Y = "object", "time", "x", "y"
FENCES, UNTIL = "fences", "until"
"""Columns of fixes; the fences of each, and when these expire. Objects also have:"""
SINCE, DWELT = "since", "dwelt"
"""And where fences have them:"""
NAMES, PROPERTIES = "names", "properties"
STANDING = "standing"
"""Of a fence that is a standing point: kind of its circle, k, and x and y of the centre."""


@dataclass(frozen=True)
class BoundEvents:
    """Events of a stream.

    Attributes
    ----------
    settings
        Events to report.
    object_type, fence_type
        Types of the ids of objects and of fences.
    properties
        Whether columns of fences come back.
    """

    settings: Events
    object_type: pa.DataType
    fence_type: pa.DataType = field(default_factory=pa.int64)
    properties: bool = False

    @property
    def has_names(self) -> bool:
        """Whether the ids of fences are no whole numbers."""
        return not pa.types.is_int64(self.fence_type)

    @property
    def labels(self) -> tuple[str, ...]:
        """The columns of texts that fences have."""
        wanted = {
            NAMES: self.has_names,
            PROPERTIES: self.properties,
            STANDING: self.settings.nearest is not None,
        }
        return tuple(name for name, is_wanted in wanted.items() if is_wanted)


def fix_schema(events: BoundEvents) -> pa.Schema:
    """Return the columns of fixes."""
    return pa.schema(
        [
            (OBJECT, events.object_type),
            (TIME, pa.int64()),
            (X, pa.float64()),
            (Y, pa.float64()),
            (FENCES, pa.list_(pa.int64())),
            (UNTIL, pa.list_(pa.int64())),
            *((name, pa.list_(pa.string())) for name in events.labels),
        ]
    )


def object_schema(events: BoundEvents) -> pa.Schema:
    """Return the columns of what is known of objects; the lists of a row have one length."""
    schema = fix_schema(events)
    return schema.append(pa.field(SINCE, pa.list_(pa.int64()))).append(
        pa.field(DWELT, pa.list_(pa.uint8()))
    )


def check_object_type(kind: pa.DataType) -> None:
    """Refuse ids that cannot name objects."""
    if pa.types.is_nested(kind) or pa.types.is_floating(kind):
        raise InputError(
            f"points with an id of type {kind} are no objects that events could be about; give an "
            "id that is a whole number, a string or another plain type"
        )


def buckets_of(objects: pa.Array) -> IntArray:
    """Return the bucket of each object, which depends on its value alone."""
    kind = objects.type
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_temporal(kind):
        numbers = objects
        if pa.types.is_temporal(kind):
            numbers = objects.view(pa.int32() if kind.bit_width == 32 else pa.int64())
        return _number_buckets(numbers.cast(pa.int64()).to_numpy(zero_copy_only=False))
    is_binary = pa.types.is_binary(kind) or pa.types.is_large_binary(kind)
    text = pc.cast(objects, pa.large_binary() if is_binary else pa.large_string())
    _, offsets, content = text.buffers()
    bounds = np.frombuffer(offsets, np.int64)[text.offset : text.offset + len(text) + 1]
    data = np.frombuffer(content, np.uint8) if content and content.size else np.empty(0, np.uint8)
    return (hash_texts(bounds, data).view(np.uint64) % np.uint64(BUCKETS)).astype(np.int32)


@compiled
def _number_buckets(numbers: LongArray) -> IntArray:
    out = np.empty(len(numbers), np.int32)
    for i in range(len(numbers)):
        out[i] = hash64(np.uint64(numbers[i])) % np.uint64(BUCKETS)
    return out
