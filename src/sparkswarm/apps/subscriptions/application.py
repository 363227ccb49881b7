"""Subscriptions: range queries with conditions on columns, and with keywords.

Owns what a subscription requires of a point besides its rectangle, and how many pairs are decided
at once. The language of conditions is in ``predicates``, how it applies to columns in ``literals``,
and keywords in ``keywords``, all beside this file.

Queries pay for what they use: a segment without conditions and keywords is not built at all, a
query without any is decided by one comparison, and columns are prepared only for points in the
rectangles of queries that have some.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkswarm.apps.application import Application, Pairs
from sparkswarm.apps.subscriptions.keywords import (
    Vocabulary,
    build_vocabulary,
    check_keywords,
    find_keywords,
    is_string,
    lists_of,
    normalize,
    strings_of,
)
from sparkswarm.apps.subscriptions.literals import LiteralRanks, check_kind
from sparkswarm.apps.subscriptions.predicates import (
    COLUMN,
    ELSE,
    FAIL,
    HIGH,
    KINDS,
    LOW,
    MATCH,
    MAX_LENGTH,
    THEN,
    Condition,
    compile_conditions,
    parse,
)
from sparkswarm.arguments import check_argument, check_table
from sparkswarm.compiled import BoolArray, IntArray, LongArray, compiled
from sparkswarm.errors import ConfigError, InputError
from sparkswarm.store.queries import PLAIN_NAMES

_KEYWORD_COLUMNS = ("all_of", "any_of")

# Columns of QueryTests.queries.
_STEP = 0
_ALL = 1
_ANY = 2
_END = 3


class QueryTests(NamedTuple):
    """What some queries require of points, for the compiled loops."""

    queries: IntArray
    """Shape (n, 4): the first step of a query's condition; where in ``keywords`` those of its
    ``all_of`` start, those of its ``any_of`` start, and those end."""
    steps: IntArray
    """The compiled conditions, see :class:`sparkswarm.apps.subscriptions.predicates.Program`."""
    keywords: IntArray
    """Numbers of keywords; those of each list are distinct and ascending."""
    vocabulary: int
    """The number of distinct keywords."""


class PointFeatures(NamedTuple):
    """What these tests need of the points that are concerned."""

    row_of: IntArray
    """For each point its row in the others, or -1."""
    ranks: IntArray
    """The rank of its value in each operand."""
    starts: LongArray
    """Where in ``keywords`` those of each row start, and where the last ones end."""
    keywords: IntArray


class Built(NamedTuple):
    """The conditions and keywords of some queries, and what they are about."""

    operands: tuple[LiteralRanks, ...]
    vocabulary: Vocabulary
    tests: QueryTests


class Subscriptions(Application):
    """Range queries with conditions on columns of the points, and with keywords.

    Queries have three more columns. Null, an empty string and an empty list mean no requirement; a
    point matches if it lies in the rectangle and meets all requirements.

    - ``where``: a condition such as ``speed > 50 and kind in ('taxi', 'bus')``.
    - ``all_of``: keywords that the point must all have.
    - ``any_of``: keywords of which the point must have at least one.

    Parameters
    ----------
    columns
        The columns of the points that ``where`` may use, each with its kind: ``number``,
        ``text``, ``boolean`` or ``time``.
    keywords
        The column with the keywords of the points: a list of strings, each of them a keyword, or
        a string that is split into keywords. Case does not matter.
    max_condition_length
        Most characters of a condition; queries with longer ones are rejected. Those that are
        stored already are not.
    """

    query_columns: Mapping[str, str] = {
        "where": "STRING",
        "all_of": "ARRAY<STRING>",
        "any_of": "ARRAY<STRING>",
    }

    def __init__(
        self,
        columns: Mapping[str, str],
        keywords: str | None = None,
        max_condition_length: int = MAX_LENGTH,
    ) -> None:
        check_table("columns", columns, "{'speed': 'number'}")
        check_argument("keywords", keywords, str, "the name of a column")
        check_argument("max_condition_length", max_condition_length, int, "a whole number", False)
        for name, kind in columns.items():
            if kind not in KINDS:
                raise ConfigError(
                    f"column {name} of Subscriptions cannot be of the kind {kind!r}; "
                    f"choose one of {', '.join(KINDS)}"
                )
        if isinstance(max_condition_length, bool) or not max_condition_length >= 1:
            raise ConfigError(
                f"max_condition_length must be at least 1, got {max_condition_length!r}"
            )
        self._columns = dict(columns)
        self._keywords = keywords
        self._max_length = max_condition_length
        wanted = dict.fromkeys([*columns, *([] if keywords is None else [keywords])])
        self.point_columns = tuple(name for name in wanted if name not in PLAIN_NAMES.values())

    def bind(self, points: pa.Schema) -> Subscriptions:
        """Check that the columns can be of their kinds."""
        for name, kind in self._columns.items():
            if name in points.names:
                check_kind(name, kind, points.field(name).type)
        if self._keywords is not None and self._keywords in points.names:
            check_keywords(self._keywords, points.field(self._keywords).type)
        return self

    def reject(self, queries: pa.Table) -> Sequence[str | None]:
        """Reject conditions that cannot be parsed, and keywords that cannot be found."""
        return self._reasons(queries, *self._conditions(queries, self._max_length))

    def build(self, queries: pa.Table) -> Built | None:
        """Compile each distinct condition once, and number the keywords."""
        conditions, position = self._conditions(queries, sys.maxsize)
        for row, reason in enumerate(self._reasons(queries, conditions, position)):
            if reason is not None:
                raise InputError(
                    f"the stored query {queries.column('id')[row]} does not fit these "
                    f"Subscriptions: {reason}. Start them with the same columns as before"
                )
        distinct, starts, keywords = _number_keywords(queries)
        if not conditions and not len(keywords):
            return None
        program = compile_conditions([each for each in conditions if not isinstance(each, str)])
        rows = np.empty((queries.num_rows, 4), np.int32)
        rows[:, _STEP] = np.append(program.firsts, MATCH)[position]
        rows[:, _ALL] = starts[:-1:2]
        rows[:, _ANY] = starts[1::2]
        rows[:, _END] = starts[2::2]
        operands = tuple(LiteralRanks(each, self._columns[each.name]) for each in program.operands)
        tests = QueryTests(rows, program.steps, keywords, len(distinct))
        return Built(operands, build_vocabulary(distinct), tests)

    def match(self, built: Built, points: pa.Table, pairs: Pairs) -> BoolArray:
        """Evaluate the condition and look for the keywords of each pair's query."""
        row_of = np.zeros(points.num_rows, np.int32)
        count = _number_points(pairs.points, pairs.queries, built.tests.queries, row_of)
        if count == 0:
            return np.ones(len(pairs.points), np.bool_)
        chosen = None
        if 2 * count < points.num_rows:
            chosen = pa.array(np.flatnonzero(row_of >= 0))
        else:
            count = points.num_rows
            row_of = np.arange(count, dtype=np.int32)
        ranks = np.empty((count, len(built.operands)), np.int32)
        for i, operand in enumerate(built.operands):
            ranks[:, i] = operand.ranks(_column(points, operand.name, chosen))
        starts, keywords = np.empty(0, np.int64), np.empty(0, np.int32)
        if self._keywords is not None and len(built.tests.keywords):
            column = _column(points, self._keywords, chosen)
            starts, keywords = find_keywords(column, self._keywords, built.vocabulary)
        features = PointFeatures(row_of, ranks, starts, keywords)
        return _decide(pairs.points, pairs.queries, features, built.tests)

    def _conditions(
        self, queries: pa.Table, max_length: int
    ) -> tuple[list[Condition | str], LongArray]:
        """Return the distinct conditions, and the position of each query's own, or -1.

        A condition that cannot be parsed is replaced by the reason.
        """
        column = queries.column("where")
        if not is_string(column.type):
            raise InputError(f"column where must be a string, it is {column.type}")
        texts = strings_of(column)
        blank = pc.equal(pc.utf8_trim_whitespace(texts), "")
        encoded = pc.if_else(blank, pa.scalar(None, pa.large_string()), texts).dictionary_encode()
        position: LongArray = encoded.indices.cast(pa.int64()).fill_null(-1).to_numpy()
        conditions: list[Condition | str] = []
        for text in encoded.dictionary.to_pylist():
            try:
                conditions.append(parse(text, self._columns, max_length))
            except InputError as error:
                conditions.append(f"where: {error}")
        return conditions, position

    def _reasons(
        self, queries: pa.Table, conditions: list[Condition | str], position: LongArray
    ) -> list[str | None]:
        """Return for each query why it is rejected, or None."""
        # The last one, at position -1, is of queries without a condition.
        of_condition = [*(each if isinstance(each, str) else None for each in conditions), None]
        reasons = [of_condition[i] for i in position.tolist()]
        for name in _KEYWORD_COLUMNS:
            lengths, keywords = lists_of(queries.column(name), name)
            bad = np.repeat(np.arange(len(lengths)), lengths)
            problem = "points have no keywords; name their column in Subscriptions"
            if self._keywords is not None:
                bad = bad[pc.equal(keywords, "").fill_null(True).to_numpy(zero_copy_only=False)]
                problem = "a keyword is null or empty"
            for row in bad.tolist():
                reasons[row] = reasons[row] or f"{name}: {problem}"
        return reasons


def _number_keywords(queries: pa.Table) -> tuple[pa.LargeStringArray, LongArray, IntArray]:
    """Return the distinct keywords of some queries, and those of each query by number.

    Those of ``all_of`` of query q start at ``starts[2 * q]``, those of ``any_of`` at
    ``starts[2 * q + 1]``.
    """
    owners, parts = [], []
    for i, name in enumerate(_KEYWORD_COLUMNS):
        lengths, keywords = lists_of(queries.column(name), name)
        owners.append(np.repeat(2 * np.arange(queries.num_rows) + i, lengths))
        parts.append(normalize(keywords))
    encoded = pa.concat_arrays(parts).dictionary_encode()
    size = max(len(encoded.dictionary), 1)
    keys = np.unique(np.concatenate(owners) * size + encoded.indices.to_numpy())
    starts = np.searchsorted(keys, np.arange(2 * queries.num_rows + 1) * size)
    return encoded.dictionary, starts, (keys % size).astype(np.int32)


def _column(points: pa.Table, name: str, chosen: pa.Array | None) -> pa.ChunkedArray:
    """Return a column of all points or of the chosen ones, dictionaries decoded."""
    if name not in points.column_names:
        raise InputError(
            f"points have no column {name}; they have {', '.join(points.column_names)}"
        )
    column = points.column(name)
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if is_string(column.type) and not pa.types.is_null(column.type):
        column = column.cast(pa.large_string())  # Arrow cannot take rows of all string types
    return column if chosen is None else column.take(chosen)


# -- pairs -------------------------------------------------------------------------------------


@compiled
def _number_points(points: LongArray, queries: LongArray, table: IntArray, row_of: IntArray) -> int:
    """Give numbers to points in pairs with a query that has requirements, -1 to the others."""
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
    points: LongArray, queries: LongArray, features: PointFeatures, tests: QueryTests
) -> BoolArray:
    """Return for each pair whether the point meets the query's requirements."""
    table, steps, wanted = tests.queries, tests.steps, tests.keywords
    row_of, ranks = features.row_of, features.ranks
    starts, keywords = features.starts, features.keywords
    out = np.empty(len(points), np.bool_)
    # Pairs come sorted by point: the keywords of a point are marked once, and then each that a
    # query wants is found by one look.
    marked = np.full(tests.vocabulary, -1, np.int32)
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
            rank = ranks[r, np.uint64(steps[s, COLUMN])]
            inside = (steps[s, LOW] <= rank) & (rank <= steps[s, HIGH])
            step = steps[s, THEN] if inside else steps[s, ELSE]
        holds = step != FAIL
        if holds and first != end:
            if row != last:
                for j in range(starts[r], starts[r + np.uint64(1)]):
                    marked[np.uint64(keywords[j])] = row
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
