"""Objects: in which bucket each is kept, and the tables of what is known of them.

An object is the id of points, of any type that is not nested. Objects are divided by the hash of
their id into a fixed number of buckets, whatever partitions and executors there are: a hotspot of
objects in one place is spread over all buckets.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkswarm.apps.events.settings import Events
from sparkswarm.compiled import ByteArray, IntArray, LongArray, compiled, hash64
from sparkswarm.errors import InputError

BUCKETS = 64
"""Number of buckets. Stored state depends on it."""

OBJECT, TIME, X, Y = "object", "time", "x", "y"
FENCES, UNTIL = "fences", "until"
"""Columns of fixes; the fences of each, and when these expire. Objects also have:"""
SINCE, DWELT = "since", "dwelt"

_FNV_OFFSET = np.uint64(0xCBF29CE484222325)
_FNV_PRIME = np.uint64(0x100000001B3)


def fix_schema(object_type: pa.DataType) -> pa.Schema:
    """Return the columns of fixes."""
    return pa.schema(
        [
            (OBJECT, object_type),
            (TIME, pa.int64()),
            (X, pa.float64()),
            (Y, pa.float64()),
            (FENCES, pa.list_(pa.int64())),
            (UNTIL, pa.list_(pa.int64())),
        ]
    )


def object_schema(object_type: pa.DataType) -> pa.Schema:
    """Return the columns of what is known of objects; the lists of a row have one length."""
    schema = fix_schema(object_type)
    return schema.append(pa.field(SINCE, pa.list_(pa.int64()))).append(
        pa.field(DWELT, pa.list_(pa.uint8()))
    )


@dataclass(frozen=True)
class BoundEvents:
    """Events of a stream: what to tell, and the type of the ids that name objects."""

    settings: Events
    object_type: pa.DataType


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
    return _text_buckets(bounds, data)


@compiled
def _number_buckets(numbers: LongArray) -> IntArray:
    out = np.empty(len(numbers), np.int32)
    for i in range(len(numbers)):
        out[i] = hash64(np.uint64(numbers[i])) % np.uint64(BUCKETS)
    return out


@compiled
def _text_buckets(bounds: LongArray, data: ByteArray) -> IntArray:
    out = np.empty(len(bounds) - 1, np.int32)
    for i in range(len(out)):
        value = _FNV_OFFSET
        for j in range(bounds[i], bounds[i + 1]):
            value = (value ^ np.uint64(data[j])) * _FNV_PRIME
        out[i] = hash64(value) % np.uint64(BUCKETS)
    return out
