"""What aggregate queries ask: which aggregates of which columns, over which windows.

Owns the words in which a query asks. Beside its rectangle it has three columns of text:

- ``aggregate``: ``count``, or an aggregate of a column as in ``mean(speed)``; several are
  separated by commas;
- ``window``: how long a window is, as in ``5 minutes``;
- ``slide``: how long after one window the next begins. It divides the window evenly. Where it
  is null it is the window's length: the windows then tumble, each moment is in one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkswarm.compiled import LongArray
from sparkswarm.errors import InputError
from sparkswarm.window.durations import microseconds

QUERY_COLUMNS = {"aggregate": "STRING", "window": "STRING", "slide": "STRING"}
"""The columns of a query, as in Spark's DDL."""

AGGREGATES = ("count", "sum", "mean", "min", "max")
"""What may be asked of a column. ``count`` counts the points in which it is not null; without
a column it counts all points."""

MOST_MEASURES = 12
"""What a query asks is a mask of 64 bits: one for ``count``, and five for each column."""


class Measure(NamedTuple):
    """A column of the points that queries may aggregate.

    Attributes
    ----------
    name
        What it is called.
    whole
        Whether it holds whole numbers, which are taken as 64 bits; others are doubles.
    """

    name: str
    whole: bool = False

    @property
    def type(self) -> pa.DataType:
        """The type of its values."""
        return pa.int64() if self.whole else pa.float64()


def measures_of(schema: pa.Schema, names: Sequence[str]) -> tuple[Measure, ...]:
    """Return the measures of these columns of the points.

    Raises
    ------
    InputError
        If one of them is missing or holds no numbers, or if they are too many.
    """
    if len(names) > MOST_MEASURES:
        raise InputError(f"at most {MOST_MEASURES} columns can be aggregated, not {len(names)}")
    measures = []
    for name in names:
        if name not in schema.names:
            raise InputError(f"points have no column {name}; they have {', '.join(schema.names)}")
        found = schema.field(name).type
        whole = pa.types.is_integer(found) and found != pa.uint64()
        if not whole and not pa.types.is_floating(found):
            raise InputError(
                f"column {name} cannot be aggregated, it is {found}; cast it to a double or to a "
                f"signed whole number first"
            )
        measures.append(Measure(name, whole))
    return tuple(measures)


def bit(aggregate: str, measure: int | None = None) -> int:
    """Return the bit of ``Asked.asked`` for an aggregate of a measure, by its position."""
    return 1 if measure is None else 1 << 1 + 5 * measure + AGGREGATES.index(aggregate)


def bits(measure: int) -> int:
    """Return all bits of a measure."""
    return sum(bit(aggregate, measure) for aggregate in AGGREGATES)


class Asked(NamedTuple):
    """What n queries ask.

    Attributes
    ----------
    ids
        The queries.
    length, slide
        Their windows, in microseconds; the length is a multiple of the slide.
    asked
        Their aggregates, as bits.
    home
        Where the state of each is kept.
    """

    ids: LongArray
    length: LongArray
    slide: LongArray
    asked: LongArray
    home: LongArray

    @classmethod
    def read(cls, queries: pa.Table, measures: Sequence[Measure]) -> Asked:
        """Read queries: their ``id``, ``home`` and :data:`QUERY_COLUMNS`.

        Raises
        ------
        InputError
            If one of them would be refused, see :func:`refusals`.
        """
        answers, which = _each_way_of_asking(queries, lambda a, w, s: _read(a, w, s, measures))
        length, slide, asked = np.array(answers, np.int64).reshape(-1, 3)[which].T.copy()
        ids, home = (queries.column(name).to_numpy() for name in ("id", "home"))
        return cls(ids, length, slide, asked, home)


def refusals(queries: pa.Table, measures: Sequence[Measure]) -> list[str | None]:
    """Say of each query why it cannot be served, or None where it can."""

    def reason(aggregate: str | None, window: str | None, slide: str | None) -> str | None:
        try:
            _read(aggregate, window, slide, measures)
        except InputError as error:
            return str(error)
        return None

    reasons, which = _each_way_of_asking(queries, reason)
    return [reasons[i] for i in which.tolist()]


def _each_way_of_asking(
    queries: pa.Table, read: Callable[[Any, Any, Any], Any]
) -> tuple[list[Any], LongArray]:
    """Read every distinct way of asking once; return the answers, and which one each query has.

    Many queries ask in few ways.
    """
    texts = queries.select(list(QUERY_COLUMNS))
    numbered = texts.append_column("i", pa.array(np.arange(texts.num_rows)))
    ways = numbered.group_by(list(QUERY_COLUMNS), use_threads=False).aggregate([("i", "list")])
    which = np.empty(texts.num_rows, np.int64)
    lists = ways.column("i_list").combine_chunks()
    lengths = pc.list_value_length(lists).to_numpy(zero_copy_only=False)
    which[lists.flatten().to_numpy()] = np.repeat(np.arange(len(lengths)), lengths)
    rows = ways.select(list(QUERY_COLUMNS)).to_pylist()
    return [read(*row.values()) for row in rows], which


def _read(
    aggregate: str | None, window: str | None, slide: str | None, measures: Sequence[Measure]
) -> tuple[int, int, int]:
    """Return the length, the slide and the aggregates of one way of asking."""
    if aggregate is None or window is None:
        raise InputError("a query needs an aggregate and a window, one is null")
    length = microseconds(window)
    step = length if slide is None else microseconds(slide)
    if length % step:
        raise InputError(f"the slide {slide!r} does not divide the window {window!r} evenly")
    names = {measure.name: i for i, measure in enumerate(measures)}
    asked = 0
    for term in aggregate.split(","):
        name, bracket, rest = (part.strip() for part in term.partition("("))
        name, of = name.lower(), rest[:-1].strip() if bracket else None
        if name not in AGGREGATES or (rest[-1:] != ")" if bracket else name != "count"):
            raise InputError(
                f"{term.strip()!r} is no aggregate: write count, or count, sum, mean, min or max "
                f"of a column, as in mean({next(iter(names), 'speed')})"
            )
        if of is not None and of not in names:
            raise InputError(
                f"{term.strip()!r} is about a column that is not aggregated; "
                f"there are {', '.join(names) or 'none'}"
            )
        asked |= bit(name, None if of is None else names[of])
    return length, step, asked
