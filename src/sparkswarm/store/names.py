"""Names: ids that are no whole numbers.

Queries are stored and found by 64-bit numbers. An id of another type is turned into text, its
*name*, when operations are read, and gets a number: the hash of its text. Bases and deltas have
the names beside the numbers, so that results are turned back by position. Of two names with one
hash the later is *renumbered*, which the manifest remembers: numbers are never ambiguous.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sparkswarm.compiled import ByteArray, IntArray, LongArray, compiled, hash_texts
from sparkswarm.errors import InputError
from sparkswarm.index.layout import readonly

LONGEST_NAME = 1000
"""Most bytes of a name."""

_MOST_BYTES = 2**31 - 1


def hash_names(names: pa.LargeBinaryArray) -> LongArray:
    """Return the hash of each name."""
    return hash_texts(*_flat(names))


def hash_name(name: bytes) -> int:
    """Return the hash of one name."""
    return int(hash_names(pa.array([name], pa.large_binary()))[0])


class NumberedNames(NamedTuple):
    """The number of each name, and those that were renumbered now."""

    numbers: LongArray
    renumbered: Mapping[bytes, int]


def number_names(
    names: pa.LargeBinaryArray,
    known: Mapping[bytes, int],
    stored: Callable[[LongArray], pa.LargeBinaryArray],
    is_allowed: Callable[[int], bool] = lambda number: True,
) -> NumberedNames:
    """Give names their numbers.

    Parameters
    ----------
    known
        Numbers of names that were renumbered before.
    stored
        Returns the names of queries that exist, given their distinct sorted numbers; null where
        none exists.
    is_allowed
        Whether a name may have a number that is not its hash.
    """
    numbers = hash_names(names)
    for name, number in known.items():
        numbers[np.asarray(pc.equal(names, pa.scalar(name, pa.large_binary())))] = number
    distinct, first, group = np.unique(numbers, return_index=True, return_inverse=True)
    taken = pc.coalesce(stored(distinct), names.take(pa.array(first)))
    other = np.asarray(pc.not_equal(names, taken.take(pa.array(group))))
    renumbered: dict[bytes, int] = {}
    used = set(distinct.tolist()) if other.any() else set()
    for row in np.flatnonzero(other).tolist():
        name = names[row].as_py()
        if name not in renumbered:
            number = int(numbers[row])
            while number in used or not is_allowed(number) or stored(_one(number))[0].is_valid:
                number = int(np.int64(np.uint64(number % 2**64 + 1 & _WORD)))
            used.add(number)
            renumbered[name] = number
        numbers[row] = renumbered[name]
    return NumberedNames(numbers, renumbered)


_WORD = 2**64 - 1


def _one(number: int) -> LongArray:
    return np.array([number], np.int64)


def gather_names(sources: Sequence[tuple[pa.LargeBinaryArray, IntArray]]) -> pa.StringArray:
    """Return the names at some positions of some sources, one source after another."""
    flat = [(*_flat(values), positions) for values, positions in sources]
    offsets = np.zeros(1 + sum(len(positions) for _, _, positions in flat), np.int64)
    at = 0
    for starts, _, positions in flat:
        at = _add_offsets(starts, positions, offsets, at)
    if offsets[-1] > _MOST_BYTES:
        raise InputError(
            f"the names or properties of the matches of one point have {offsets[-1]} bytes, more "
            "than Arrow can hold in one column; shorten them"
        )
    data, at = np.empty(int(offsets[-1]), np.uint8), 0
    for starts, content, positions in flat:
        at = _copy(starts, content, positions, data, at)
    buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data)]
    return pa.StringArray.from_buffers(len(offsets) - 1, *buffers[1:])


def values_of_names(names: pa.StringArray, kind: pa.DataType) -> pa.Array:
    """Return ids of their own type."""
    if pa.types.is_string(kind):
        return names
    if pa.types.is_binary(kind):
        return pa.array([None if n is None else bytes.fromhex(n) for n in names.to_pylist()], kind)
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return names.cast(pa.int64()).cast(kind)
    return names.cast(kind)


def name_of_value(value: object, kind: pa.DataType) -> bytes:
    """Return the name of an id of a type; InputError where it is no such id."""
    try:
        (found,) = pa.array([value], kind)
        if not found.is_valid:
            raise InputError("a query has an id; got None")
        if pa.types.is_binary(kind):
            return bytes(found.as_buffer()).hex().upper().encode()
        if pa.types.is_timestamp(kind) and kind.tz is not None:
            return str(found.value).encode()
        text = found.cast(pa.string())
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
        raise InputError(f"queries have ids of type {kind}, got {value!r}") from error
    return str(text).encode()


def _flat(values: pa.LargeBinaryArray) -> tuple[LongArray, ByteArray]:
    """Return where each value begins, and the bytes, without copies; there are no nulls."""
    _, offsets, data = values.buffers()
    starts = np.frombuffer(offsets, np.int64, len(values) + 1, 8 * values.offset)
    content: npt.NDArray[np.uint8] = np.empty(0, np.uint8)
    if data is not None and data.size:
        content = np.frombuffer(data, np.uint8)
    return readonly(starts, np.int64), readonly(content, np.uint8)


@compiled
def _add_offsets(starts: LongArray, positions: IntArray, offsets: LongArray, at: int) -> int:
    for i in range(len(positions)):
        p = np.uint32(positions[i])
        offsets[at + 1] = offsets[at] + starts[p + 1] - starts[p]
        at += 1
    return at


@compiled
def _copy(
    starts: LongArray, content: ByteArray, positions: IntArray, data: ByteArray, at: int
) -> int:
    for i in range(len(positions)):
        p = np.uint32(positions[i])
        for j in range(starts[p], starts[p + 1]):
            data[at] = content[j]
            at += 1
    return at
