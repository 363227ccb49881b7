"""What aggregate queries ask for: which aggregates of which columns, over which windows.

Owns the syntax of these columns of a query, all of them strings:

- ``aggregate``: ``count``, or an aggregate of a column as in ``mean(speed)``; several are
  separated by commas;
- ``window``: the length of a window, as in ``5 minutes``;
- ``slide``: the time from the start of one window to the start of the next. The window is a
  multiple of it. Null means the window's length: windows then tumble and do not overlap.

Runs on the driver, where measures are checked once, and in tasks, where queries are parsed when
they are registered and whenever they are built for matching.
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
"""The aggregates of a column. ``count`` counts the points whose value is not null; without a
column it counts all points."""

MAX_MEASURES = 12
"""The aggregates of a query are 64 bits: one for ``count`` and five for each column."""


class Measure(NamedTuple):
    """A column of the points that queries may aggregate."""

    name: str
    whole: bool = False
    """Whether its values are 64-bit integers; if not, they are doubles."""

    @property
    def type(self) -> pa.DataType:
        """The Arrow type of its values."""
        return pa.int64() if self.whole else pa.float64()


def measures_of(schema: pa.Schema, names: Sequence[str]) -> tuple[Measure, ...]:
    """Return the measures of these columns of the points.

    Raises
    ------
    InputError
        If a column is missing or not numeric, or if there are too many.
    """
    if len(names) > MAX_MEASURES:
        raise InputError(f"at most {MAX_MEASURES} columns can be aggregated, not {len(names)}")
    measures = []
    for name in names:
        if name not in schema.names:
            raise InputError(f"points have no column {name}; they have {', '.join(schema.names)}")
        found = schema.field(name).type
        whole = pa.types.is_integer(found) and found != pa.uint64()
        if not whole and not pa.types.is_floating(found):
            raise InputError(
                f"column {name} cannot be aggregated, it is {found}; cast it to a double or to a "
                f"signed integer first"
            )
        measures.append(Measure(name, whole))
    return tuple(measures)


def bit(aggregate: str, measure: int | None = None) -> int:
    """Return the bit of an aggregate; ``measure`` is the measure's position, None without one."""
    return 1 if measure is None else 1 << 1 + 5 * measure + AGGREGATES.index(aggregate)


def bits(measure: int) -> int:
    """Return the bits of all aggregates of a measure."""
    return sum(bit(aggregate, measure) for aggregate in AGGREGATES)


class AggregateSpecs(NamedTuple):
    """What aggregate queries ask for, one row per query.

    Attributes
    ----------
    ids
        The queries.
    length, slide
        Their windows, in microseconds; the length is a multiple of the slide.
    aggregate_bits
        Their aggregates, see :func:`bit`.
    home
        Where the engine stores the state of each.
    """

    ids: LongArray
    length: LongArray
    slide: LongArray
    aggregate_bits: LongArray
    home: LongArray

    @classmethod
    def parse(cls, queries: pa.Table, measures: Sequence[Measure]) -> AggregateSpecs:
        """Parse queries with the columns ``id``, ``home`` and :data:`QUERY_COLUMNS`.

        Raises
        ------
        InputError
            If one of them would be rejected, see :func:`rejections`.
        """
        specs, rows = _distinct_specs(queries, lambda a, w, s: _parse(a, w, s, measures))
        length, slide, aggregate_bits = np.array(specs, np.int64).reshape(-1, 3)[rows].T.copy()
        ids, home = (queries.column(name).to_numpy() for name in ("id", "home"))
        return cls(ids, length, slide, aggregate_bits, home)


def rejections(queries: pa.Table, measures: Sequence[Measure]) -> list[str | None]:
    """Return for each query why it is rejected, or None."""

    def reason(aggregate: str | None, window: str | None, slide: str | None) -> str | None:
        try:
            _parse(aggregate, window, slide, measures)
        except InputError as error:
            return str(error)
        return None

    reasons, rows = _distinct_specs(queries, reason)
    return [reasons[i] for i in rows.tolist()]


def _distinct_specs(
    queries: pa.Table, parse: Callable[[Any, Any, Any], Any]
) -> tuple[list[Any], LongArray]:
    """Parse each distinct specification once; return the results, and the one of each query.

    Typically many queries share few specifications.
    """
    texts = queries.select(list(QUERY_COLUMNS))
    numbered = texts.append_column("i", pa.array(np.arange(texts.num_rows)))
    groups = numbered.group_by(list(QUERY_COLUMNS), use_threads=False).aggregate([("i", "list")])
    rows = np.empty(texts.num_rows, np.int64)
    lists = groups.column("i_list").combine_chunks()
    lengths = pc.list_value_length(lists).to_numpy(zero_copy_only=False)
    rows[lists.flatten().to_numpy()] = np.repeat(np.arange(len(lengths)), lengths)
    distinct = groups.select(list(QUERY_COLUMNS)).to_pylist()
    return [parse(*spec.values()) for spec in distinct], rows


def _parse(
    aggregate: str | None, window: str | None, slide: str | None, measures: Sequence[Measure]
) -> tuple[int, int, int]:
    """Return the length, the slide and the aggregates as bits."""
    if aggregate is None or window is None:
        raise InputError("a query needs an aggregate and a window, one is null")
    length = microseconds(window)
    step = length if slide is None else microseconds(slide)
    if length % step:
        raise InputError(f"the slide {slide!r} does not divide the window {window!r} evenly")
    names = {measure.name: i for i, measure in enumerate(measures)}
    aggregate_bits = 0
    for term in aggregate.split(","):
        name, bracket, rest = (part.strip() for part in term.partition("("))
        name, of = name.lower(), rest[:-1].strip() if bracket else None
        if name not in AGGREGATES or (rest[-1:] != ")" if bracket else name != "count"):
            raise InputError(
                f"{term.strip()!r} is not an aggregate: write count, or count, sum, mean, min or "
                f"max of a column, as in mean({next(iter(names), 'speed')})"
            )
        if of is not None and of not in names:
            raise InputError(
                f"{term.strip()!r} names a column that cannot be aggregated; "
                f"those that can are: {', '.join(names) or 'none'}"
            )
        aggregate_bits |= bit(name, None if of is None else names[of])
    return length, step, aggregate_bits
