"""Continuous range queries with other predicates: comparisons of columns, and keywords.

Owns what a subscription asks of a point beyond its rectangle, and how lots of pairs are decided
at once. The language of comparisons is in ``predicates``, what points say to it in ``literals``,
and keywords are in ``keywords``, all beside this file.

What costs is paid where it is due: a lot without predicates is not built at all, a query
without any is decided by one look, and columns are prepared for those points only that some
query with predicates may want.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkswarm.apps.application import Application, Pairs
from sparkswarm.apps.subscriptions.keywords import (
    Vocabulary,
    build_vocabulary,
    in_one_spelling,
    is_text,
    lists_of,
    number_words,
    texts_of,
)
from sparkswarm.apps.subscriptions.literals import Ruler
from sparkswarm.apps.subscriptions.predicates import (
    COLUMN,
    ELSE,
    FAIL,
    HIGH,
    KINDS,
    LOW,
    MATCH,
    THEN,
    Condition,
    compile_conditions,
    parse,
)
from sparkswarm.compiled import BoolArray, IntArray, LongArray, compiled
from sparkswarm.errors import ConfigError, InputError

_GIVEN = ("id", "x", "y", "time")
"""Columns that every application gets of the points."""
_WORD_COLUMNS = ("all_of", "any_of")

# Columns of Built.queries.
_STEP = 0
_ALL = 1
_ANY = 2
_END = 3


class Built(NamedTuple):
    """The predicates of a lot of queries."""

    steps: IntArray
    """What all ``where`` say, see :class:`sparkswarm.apps.subscriptions.predicates.Program`."""
    rulers: tuple[Ruler, ...]
    """The columns that they use."""
    vocabulary: Vocabulary
    """The words that queries ask for."""
    queries: IntArray
    """Of shape (n, 4): the first step of its ``where``, and where in ``words`` the words begin
    that a point must have all of, those that it must have any of, and where they end."""
    words: IntArray
    """The numbers of words, each list sorted and without duplicates."""


class Subscriptions(Application):
    """Range queries that also ask for attributes and keywords.

    A query has three more columns, all optional; null, an empty text and an empty list ask for
    nothing. A point matches if it lies in the rectangle and all that is asked for holds.

    - ``where``: a condition such as ``speed > 50 and kind in ('taxi', 'bus')``.
    - ``all_of``: words that the point must all have.
    - ``any_of``: words of which the point must have at least one.

    Parameters
    ----------
    columns
        The columns of the points that ``where`` may use, each with its kind: ``number``,
        ``text``, ``boolean`` or ``time``.
    keywords
        The column of the points that has their words: a list of texts, each of which is a word,
        or a text that is split into words. Upper and lower case count as the same.
    """

    query_columns: Mapping[str, str] = {
        "where": "STRING",
        "all_of": "ARRAY<STRING>",
        "any_of": "ARRAY<STRING>",
    }

    def __init__(self, columns: Mapping[str, str], keywords: str | None = None) -> None:
        for name, kind in columns.items():
            if kind not in KINDS:
                raise ConfigError(
                    f"column {name} of Subscriptions cannot be of the kind {kind!r}; "
                    f"choose one of {', '.join(KINDS)}"
                )
        self._columns = dict(columns)
        self._keywords = keywords
        wanted = dict.fromkeys([*columns, *([] if keywords is None else [keywords])])
        self.point_columns = tuple(name for name in wanted if name not in _GIVEN)

    def reject(self, queries: pa.Table) -> Sequence[str | None]:
        """Say why a condition cannot be read, or why words cannot be looked for."""
        return self._reasons(queries, *self._conditions(queries))

    def build(self, queries: pa.Table) -> Built | None:
        """Compile the conditions, each distinct one once, and number the words."""
        conditions, which = self._conditions(queries)
        for row, reason in enumerate(self._reasons(queries, conditions, which)):
            if reason is not None:
                raise InputError(
                    f"the stored query {queries.column('id')[row]} does not fit these "
                    f"Subscriptions: {reason}. Give them the columns that they had before"
                )
        distinct, starts, words = _words_wanted(queries)
        if not conditions and not len(words):
            return None
        program = compile_conditions([each for each in conditions if not isinstance(each, str)])
        rows = np.empty((queries.num_rows, 4), np.int32)
        rows[:, _STEP] = np.append(program.firsts, MATCH)[which]
        rows[:, _ALL] = starts[:-1:2]
        rows[:, _ANY] = starts[1::2]
        rows[:, _END] = starts[2::2]
        rulers = tuple(Ruler(each, self._columns[each.name]) for each in program.operands)
        return Built(program.steps, rulers, build_vocabulary(distinct), rows, words)

    def match(self, built: Built, points: pa.Table, pairs: Pairs) -> BoolArray:
        """Take the steps of each pair's query, and look for its words."""
        row_of = np.zeros(points.num_rows, np.int32)
        number = _number_wanted(pairs.points, pairs.queries, built.queries, row_of)
        if number == 0:
            return np.ones(len(pairs.points), np.bool_)
        chosen = None
        if 2 * number < points.num_rows:
            chosen = pa.array(np.flatnonzero(row_of >= 0))
        else:
            number = points.num_rows
            row_of = np.arange(number, dtype=np.int32)
        places = np.empty((number, len(built.rulers)), np.int32)
        for i, ruler in enumerate(built.rulers):
            places[:, i] = ruler.places(_column(points, ruler.name, chosen))
        starts, words = np.empty(0, np.int64), np.empty(0, np.int32)
        if self._keywords is not None and len(built.words):
            column = _column(points, self._keywords, chosen)
            starts, words = number_words(column, self._keywords, built.vocabulary)
        return _decide(
            pairs.points, pairs.queries, built.queries,
            row_of, places, built.steps,
            starts, words, built.words, built.vocabulary.size,
        )  # fmt: skip

    def _conditions(self, queries: pa.Table) -> tuple[list[Condition | str], LongArray]:
        """Return the distinct conditions, and for each query which one is its own, or -1.

        In place of one that cannot be read stands the reason.
        """
        column = queries.column("where")
        if not is_text(column.type):
            raise InputError(f"column where must be a text, it is {column.type}")
        texts = texts_of(column)
        blank = pc.equal(pc.utf8_trim_whitespace(texts), "")
        encoded = pc.if_else(blank, pa.scalar(None, pa.large_string()), texts).dictionary_encode()
        which: LongArray = encoded.indices.cast(pa.int64()).fill_null(-1).to_numpy()
        conditions: list[Condition | str] = []
        for text in encoded.dictionary.to_pylist():
            try:
                conditions.append(parse(text, self._columns))
            except InputError as error:
                conditions.append(f"where: {error}")
        return conditions, which

    def _reasons(
        self, queries: pa.Table, conditions: list[Condition | str], which: LongArray
    ) -> list[str | None]:
        """Return for each query what is wrong with it, if something is."""
        # The last, also called -1, is of queries without a condition.
        unread = [*(each if isinstance(each, str) else None for each in conditions), None]
        reasons = [unread[i] for i in which.tolist()]
        for name in _WORD_COLUMNS:
            lengths, words = lists_of(queries.column(name), name)
            bad = np.repeat(np.arange(len(lengths)), lengths)
            problem = "points have no keywords; name their column in Subscriptions"
            if self._keywords is not None:
                bad = bad[pc.equal(words, "").fill_null(True).to_numpy(zero_copy_only=False)]
                problem = "a word is null or empty"
            for row in bad.tolist():
                reasons[row] = reasons[row] or f"{name}: {problem}"
        return reasons


def _words_wanted(queries: pa.Table) -> tuple[pa.LargeStringArray, LongArray, IntArray]:
    """Return the distinct words of some queries, and their words by number.

    The words of query q are those from ``starts[2 * q]`` on, of which it wants all, and those
    from ``starts[2 * q + 1]`` on, of which it wants any.
    """
    owners, parts = [], []
    for i, name in enumerate(_WORD_COLUMNS):
        lengths, words = lists_of(queries.column(name), name)
        owners.append(np.repeat(2 * np.arange(queries.num_rows) + i, lengths))
        parts.append(in_one_spelling(words))
    encoded = pa.concat_arrays(parts).dictionary_encode()
    size = max(len(encoded.dictionary), 1)
    keys = np.unique(np.concatenate(owners) * size + encoded.indices.to_numpy())
    starts = np.searchsorted(keys, np.arange(2 * queries.num_rows + 1) * size)
    return encoded.dictionary, starts, (keys % size).astype(np.int32)


def _column(points: pa.Table, name: str, chosen: pa.Array | None) -> pa.ChunkedArray:
    """Return a column of the points, or of the chosen ones, without dictionaries."""
    if name not in points.column_names:
        raise InputError(
            f"points have no column {name}; they have {', '.join(points.column_names)}"
        )
    column = points.column(name)
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if is_text(column.type) and not pa.types.is_null(column.type):
        column = column.cast(pa.large_string())  # Arrow cannot take rows of all kinds of texts
    return column if chosen is None else column.take(chosen)


# -- pairs -------------------------------------------------------------------------------------


@compiled
def _number_wanted(points: LongArray, queries: LongArray, table: IntArray, row_of: IntArray) -> int:
    """Give numbers to the points that a query with predicates may want, -1 to the others."""
    for i in range(len(points)):
        q = np.uint64(queries[i])
        if table[q, _STEP] != MATCH or table[q, _ALL] != table[q, _END]:
            row_of[np.uint64(points[i])] = 1
    number = 0
    for row in range(len(row_of)):
        wanted = row_of[row]
        row_of[row] = number if wanted else -1
        number += wanted
    return number


@compiled
def _decide(
    points: LongArray, queries: LongArray, table: IntArray,
    row_of: IntArray, places: IntArray, steps: IntArray,
    starts: LongArray, words: IntArray, wanted: IntArray, vocabulary: int,
) -> BoolArray:  # fmt: skip
    """Say of each pair whether the point meets the query's predicates."""
    out = np.empty(len(points), np.bool_)
    # Pairs come point after point: a point's words are marked once, and then each that a query
    # wants is one look.
    marked = np.full(vocabulary, -1, np.int32)
    last = -1
    for i in range(len(points)):
        q = np.uint64(queries[i])
        step = table[q, _STEP]
        first, middle, end = table[q, _ALL], table[q, _ANY], table[q, _END]
        if step == MATCH and first == end:
            out[i] = True
            continue
        row = row_of[np.uint64(points[i])]
        r = np.uint64(row)
        while step >= 0:
            s = np.uint64(step)
            place = places[r, np.uint64(steps[s, COLUMN])]
            inside = (steps[s, LOW] <= place) & (place <= steps[s, HIGH])
            step = steps[s, THEN] if inside else steps[s, ELSE]
        holds = step != FAIL
        if holds and first != end:
            if row != last:
                for j in range(starts[r], starts[r + np.uint64(1)]):
                    marked[np.uint64(words[j])] = row
                last = row
            k = first
            while k < middle and marked[np.uint64(wanted[k])] == row:
                k += 1
            holds = k == middle
            if holds and middle != end:
                while k < end and marked[np.uint64(wanted[k])] != row:
                    k += 1
                holds = k != end
        out[i] = holds
    return out
