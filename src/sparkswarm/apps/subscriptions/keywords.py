"""Keywords of queries and of points: when two are equal, and how they become numbers.

Owns the normal form of a keyword, and how a text is split into keywords. Two keywords are equal if
they are after Unicode's composition (NFC) and simple lowercase mapping. In a text, a keyword is a
maximal run of letters, marks, digits and underscores.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkswarm.compiled import BoolArray, ByteArray, IntArray, LongArray, compiled
from sparkswarm.errors import InputError

_CHARACTERS = 0x110000
_SEED = np.uint64(0xCBF29CE484222325)
_PRIME = np.uint64(0x100000001B3)
"""Of the hash by Fowler, Noll and Vo (FNV-1a), which takes a byte at a time."""
_FOLD = np.uint64(32)
_ONE = np.uint64(1)


class Vocabulary(NamedTuple):
    """Distinct normalized keywords in a hash table; the number of a keyword is its position."""

    slots: IntArray
    """The hash table: numbers of keywords, -1 in free slots. Its size is a power of two, less than
    half of it is used, and collisions go to the next free slot."""
    starts: LongArray
    """Where in ``data`` each keyword starts, and where the last one ends."""
    data: ByteArray
    """The keywords in UTF-8."""

    @property
    def size(self) -> int:
        """The number of keywords."""
        return len(self.starts) - 1


def is_string(kind: pa.DataType) -> bool:
    """Return whether columns of this type hold strings, or nothing but nulls."""
    types = pa.types
    if types.is_dictionary(kind):
        kind = kind.value_type
    return bool(
        types.is_string(kind)
        or types.is_large_string(kind)
        or types.is_string_view(kind)
        or types.is_null(kind)
    )


def is_list_of_strings(kind: pa.DataType) -> bool:
    """Return whether columns of this type hold lists of strings, or nothing but nulls."""
    types = pa.types
    is_list = types.is_list(kind) or types.is_large_list(kind)
    return bool(types.is_null(kind) or (is_list and is_string(kind.value_type)))


def strings_of(column: pa.ChunkedArray) -> pa.LargeStringArray:
    """Return a column of strings as one array of valid UTF-8; Spark does not check its strings."""
    return _valid(column.cast(pa.large_string()).combine_chunks())


def _valid(strings: pa.LargeStringArray) -> pa.LargeStringArray:
    try:
        strings.validate(full=True)
    except pa.ArrowInvalid:
        raw = strings.cast(pa.large_binary()).to_pylist()
        decoded = [None if value is None else value.decode(errors="replace") for value in raw]
        return pa.array(decoded, pa.large_string())
    return strings


def lists_of(column: pa.ChunkedArray, name: str) -> tuple[LongArray, pa.LargeStringArray]:
    """Return the length of each list of a column, 0 for null, and all values concatenated."""
    if not is_list_of_strings(column.type):
        raise InputError(f"column {name} must be a list of strings, it is {column.type}")
    lists = column.cast(pa.large_list(pa.large_string())).combine_chunks()
    lengths = pc.list_value_length(lists).fill_null(0).to_numpy(zero_copy_only=False)
    return lengths, _valid(lists.flatten())


def normalize(strings: pa.LargeStringArray) -> pa.LargeStringArray:
    """Return strings such that equal keywords have equal bytes."""
    if _is_ascii(strings):
        return pc.ascii_lower(strings)
    return pc.utf8_lower(pc.utf8_normalize(strings, form="NFC"))


def build_vocabulary(keywords: pa.LargeStringArray) -> Vocabulary:
    """Return a vocabulary of distinct normalized keywords."""
    starts, data = _bytes_of(keywords)
    slots = np.full(1 << (2 * len(keywords)).bit_length(), -1, np.int32)
    _fill(starts, data, slots)
    return Vocabulary(slots, starts, data)


def check_keywords(name: str, found: pa.DataType) -> None:
    """Raise InputError if a column of a type cannot have keywords."""
    if not is_string(found) and not is_list_of_strings(found):
        raise InputError(
            f"column {name} of the points has the keywords, but it is {found}: it must be "
            f"a string or a list of strings"
        )


def find_keywords(
    column: pa.ChunkedArray, name: str, vocabulary: Vocabulary
) -> tuple[LongArray, IntArray]:
    """Find the keywords of a vocabulary in a column of texts or of lists of keywords.

    Return where the numbers of each row start and the last ones end, and the numbers, each as often
    as its keyword occurs. The ``name`` of the column is for errors.
    """
    check_keywords(name, column.type)
    if is_string(column.type):
        return _find_keywords(normalize(strings_of(column)), _letters, vocabulary)
    lengths, keywords = lists_of(column, name)
    starts, numbers = _find_keywords(normalize(keywords), _all_characters, vocabulary)
    return starts[np.append(0, np.cumsum(lengths))], numbers


def _find_keywords(
    texts: pa.LargeStringArray, letters: Callable[[int], BoolArray], vocabulary: Vocabulary
) -> tuple[LongArray, IntArray]:
    """Find the keywords of each text, where ``letters`` gives the characters of keywords."""
    starts, data = _bytes_of(texts)
    table = letters(128 if _is_ascii(texts) else _CHARACTERS)
    row_starts = np.zeros(len(texts) + 1, np.int64)
    numbers = np.empty(int(starts[-1] - starts[0] + 1) // 2 + len(texts), np.int32)
    count = _find(starts, data, table, vocabulary, row_starts, numbers)
    return row_starts, numbers[:count]


def _is_ascii(strings: pa.LargeStringArray) -> bool:
    return bool(pc.all(pc.string_is_ascii(strings), min_count=0).as_py())


@cache
def _letters(size: int) -> BoolArray:
    """Return for each code point below ``size`` whether keywords in a text may contain it."""
    return np.fromiter(
        (char == "_" or unicodedata.category(char)[0] in "LMN" for char in map(chr, range(size))),
        dtype=np.bool_,
        count=size,
    )


@cache
def _all_characters(size: int) -> BoolArray:
    return np.ones(size, np.bool_)


def _bytes_of(strings: pa.LargeStringArray) -> tuple[LongArray, ByteArray]:
    """Return where each string starts and the last one ends, and the bytes; null is empty."""
    strings = strings.fill_null("")
    _, offsets, data = strings.buffers()
    # Always read-only arrays, so that the kernels are compiled for one type only.
    if not len(strings):
        return np.frombuffer(bytes(8), np.int64), np.frombuffer(bytes(1), np.uint8)
    starts = np.frombuffer(offsets, np.int64)[strings.offset : strings.offset + len(strings) + 1]
    return starts, np.frombuffer(data or bytes(1), np.uint8)


# -- hashing -----------------------------------------------------------------------------------


@compiled
def _fill(starts: LongArray, data: ByteArray, slots: IntArray) -> None:
    """Put the number of each keyword into its slot."""
    mask = np.uint64(len(slots) - 1)
    for number in range(len(starts) - 1):
        hashed = _SEED
        for i in range(starts[number], starts[number + 1]):
            hashed = (hashed ^ np.uint64(data[i])) * _PRIME
        slot = (hashed ^ (hashed >> _FOLD)) & mask
        while slots[slot] >= 0:
            slot = (slot + _ONE) & mask
        slots[slot] = number


@compiled
def _find(
    starts: LongArray,
    data: ByteArray,
    letters: BoolArray,
    vocabulary: Vocabulary,
    row_starts: LongArray,
    numbers: IntArray,
) -> int:
    """Write the numbers of the keywords in each text; return how many there are.

    Compiled, and keywords are not copied: splitting with Arrow's regular expressions alone takes
    ten times as long.
    """
    slots = vocabulary.slots
    mask = np.uint64(len(slots) - 1)
    n = 0
    for row in range(len(starts) - 1):
        i, stop = starts[row], starts[row + 1]
        begin = i
        hashed = _SEED
        while i <= stop:
            size = 1
            is_letter = False
            if i < stop:
                byte = int(data[i])
                char = byte
                if byte >= 0xF0:
                    size, char = 4, byte & 0x07
                elif byte >= 0xE0:
                    size, char = 3, byte & 0x0F
                elif byte >= 0xC0:
                    size, char = 2, byte & 0x1F
                for k in range(1, size):
                    char = char << 6 | int(data[i + k]) & 0x3F
                is_letter = letters[char]
            if is_letter:
                for k in range(size):
                    hashed = (hashed ^ np.uint64(data[i + k])) * _PRIME
            else:
                slot = (hashed ^ (hashed >> _FOLD)) & mask
                while i > begin and slots[slot] >= 0:
                    number = slots[slot]
                    first = vocabulary.starts[number]
                    length = vocabulary.starts[number + 1] - first
                    if length == i - begin:
                        same = 0
                        while same < length and vocabulary.data[first + same] == data[begin + same]:
                            same += 1
                        if same == length:
                            numbers[n] = number
                            n += 1
                            break
                    slot = (slot + _ONE) & mask
                begin = i + size
                hashed = _SEED
            i += size
        row_starts[row + 1] = n
    return n
