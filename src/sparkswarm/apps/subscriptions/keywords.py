"""Words: what the keywords of queries and of points are, and their numbers.

Owns when two words are the same, where a word in a text begins and ends, and how words become
numbers. Words are the same if they are after Unicode's composition (NFC) and its simple mapping
to lower case. In a text a word is a run of letters, marks, digits and underscores.
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
    """Distinct words in one spelling, to be found; a word's number is its position."""

    slots: IntArray
    """A hash table with a power of two of slots, less than half of them taken: a word's number,
    or -1. A word that finds its slot taken has the next free one."""
    starts: LongArray
    """Where in ``data`` each word starts, and where the last one ends."""
    data: ByteArray

    @property
    def size(self) -> int:
        """How many words it has."""
        return len(self.starts) - 1


def is_text(kind: pa.DataType) -> bool:
    """Say whether a column holds texts, or nothing but nulls."""
    types = pa.types
    if types.is_dictionary(kind):
        kind = kind.value_type
    return bool(
        types.is_string(kind)
        or types.is_large_string(kind)
        or types.is_string_view(kind)
        or types.is_null(kind)
    )


def is_list_of_texts(kind: pa.DataType) -> bool:
    """Say whether a column holds lists of texts, or nothing but nulls."""
    types = pa.types
    is_list = types.is_list(kind) or types.is_large_list(kind)
    return bool(types.is_null(kind) or (is_list and is_text(kind.value_type)))


def texts_of(column: pa.ChunkedArray) -> pa.LargeStringArray:
    """Return texts in one piece, and in valid UTF-8: Spark lets all bytes pass."""
    texts = column.cast(pa.large_string()).combine_chunks()
    return _valid(texts)


def _valid(texts: pa.LargeStringArray) -> pa.LargeStringArray:
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        raw = texts.cast(pa.large_binary()).to_pylist()
        decoded = [None if text is None else text.decode(errors="replace") for text in raw]
        return pa.array(decoded, pa.large_string())
    return texts


def lists_of(column: pa.ChunkedArray, name: str) -> tuple[LongArray, pa.LargeStringArray]:
    """Return how many words each row of a column of lists has, and all words one after another.

    A null has none.
    """
    if not is_list_of_texts(column.type):
        raise InputError(f"column {name} must be a list of texts, it is {column.type}")
    lists = column.cast(pa.large_list(pa.large_string())).combine_chunks()
    lengths = pc.list_value_length(lists).fill_null(0).to_numpy(zero_copy_only=False)
    return lengths, _valid(lists.flatten())


def in_one_spelling(texts: pa.LargeStringArray) -> pa.LargeStringArray:
    """Return texts such that words that count as the same are the same."""
    if _is_ascii(texts):
        return pc.ascii_lower(texts)
    return pc.utf8_lower(pc.utf8_normalize(texts, form="NFC"))


def build_vocabulary(words: pa.LargeStringArray) -> Vocabulary:
    """Return a vocabulary of distinct words."""
    starts, data = _bytes_of(words)
    slots = np.full(1 << (2 * len(words)).bit_length(), -1, np.int32)
    _fill(starts, data, slots)
    return Vocabulary(slots, starts, data)


def number_words(
    column: pa.ChunkedArray, name: str, vocabulary: Vocabulary
) -> tuple[LongArray, IntArray]:
    """Return the words of each row that a vocabulary has.

    Parameters
    ----------
    column
        Texts, or lists of words.
    name
        What the column is called.
    vocabulary
        The words that count.

    Returns
    -------
    tuple
        Where the words of each row start, and where the last ones end; and the numbers of all
        words, as often as they occur.
    """
    if is_text(column.type):
        return _find_words(in_one_spelling(texts_of(column)), _letters, vocabulary)
    if not is_list_of_texts(column.type):
        raise InputError(
            f"column {name} of the points has the keywords, but it is {column.type}: it must be "
            f"a text or a list of texts"
        )
    lengths, words = lists_of(column, name)
    starts, numbers = _find_words(in_one_spelling(words), _all_characters, vocabulary)
    return starts[np.append(0, np.cumsum(lengths))], numbers


def _find_words(
    texts: pa.LargeStringArray, letters: Callable[[int], BoolArray], vocabulary: Vocabulary
) -> tuple[LongArray, IntArray]:
    """Return the words of each text, which are runs of some letters."""
    starts, data = _bytes_of(texts)
    table = letters(128 if _is_ascii(texts) else _CHARACTERS)
    row_starts = np.zeros(len(texts) + 1, np.int64)
    numbers = np.empty(int(starts[-1] - starts[0] + 1) // 2 + len(texts), np.int32)
    return row_starts, numbers[: _find(starts, data, table, *vocabulary, row_starts, numbers)]


def _is_ascii(texts: pa.LargeStringArray) -> bool:
    return bool(pc.all(pc.string_is_ascii(texts), min_count=0).as_py())


@cache
def _letters(size: int) -> BoolArray:
    """Return of each character, by its number, whether words in a text may have it."""
    return np.fromiter(
        (char == "_" or unicodedata.category(char)[0] in "LMN" for char in map(chr, range(size))),
        dtype=np.bool_,
        count=size,
    )


@cache
def _all_characters(size: int) -> BoolArray:
    return np.ones(size, np.bool_)


def _bytes_of(texts: pa.LargeStringArray) -> tuple[LongArray, ByteArray]:
    """Return where each text starts and the last one ends, and the bytes; null is empty."""
    texts = texts.fill_null("")
    _, offsets, data = texts.buffers()
    # Arrays that may not be written, whether there are texts or not: one kind, one compilation.
    if not len(texts):
        return np.frombuffer(bytes(8), np.int64), np.frombuffer(bytes(1), np.uint8)
    starts = np.frombuffer(offsets, np.int64)[texts.offset : texts.offset + len(texts) + 1]
    return starts, np.frombuffer(data or bytes(1), np.uint8)


# -- hashing -----------------------------------------------------------------------------------


@compiled
def _fill(starts: LongArray, data: ByteArray, slots: IntArray) -> None:
    """Put the number of each word into its slot."""
    mask = np.uint64(len(slots) - 1)
    for number in range(len(starts) - 1):
        hashed = _SEED
        for at in range(starts[number], starts[number + 1]):
            hashed = (hashed ^ np.uint64(data[at])) * _PRIME
        slot = (hashed ^ (hashed >> _FOLD)) & mask
        while slots[slot] >= 0:
            slot = (slot + _ONE) & mask
        slots[slot] = number


@compiled
def _find(
    starts: LongArray, data: ByteArray, letters: BoolArray,
    slots: IntArray, word_starts: LongArray, word_data: ByteArray,
    row_starts: LongArray, numbers: IntArray,
) -> int:  # fmt: skip
    """Write the numbers of the words in each text; return how many.

    Compiled, and without a copy of the words: splitting by a regular expression of Arrow's alone
    takes ten times as long.
    """
    mask = np.uint64(len(slots) - 1)
    n = 0
    for row in range(len(starts) - 1):
        at, stop = starts[row], starts[row + 1]
        begin = at
        hashed = _SEED
        while at <= stop:
            size = 1
            is_letter = False
            if at < stop:
                byte = int(data[at])
                char = byte
                if byte >= 0xF0:
                    size, char = 4, byte & 0x07
                elif byte >= 0xE0:
                    size, char = 3, byte & 0x0F
                elif byte >= 0xC0:
                    size, char = 2, byte & 0x1F
                for k in range(1, size):
                    char = char << 6 | int(data[at + k]) & 0x3F
                is_letter = letters[char]
            if is_letter:
                for k in range(size):
                    hashed = (hashed ^ np.uint64(data[at + k])) * _PRIME
            else:
                slot = (hashed ^ (hashed >> _FOLD)) & mask
                while at > begin and slots[slot] >= 0:
                    number = slots[slot]
                    first = word_starts[number]
                    length = word_starts[number + 1] - first
                    if length == at - begin:
                        same = 0
                        while same < length and word_data[first + same] == data[begin + same]:
                            same += 1
                        if same == length:
                            numbers[n] = number
                            n += 1
                            break
                    slot = (slot + _ONE) & mask
                begin = at + size
                hashed = _SEED
            at += size
        row_starts[row + 1] = n
    return n
