"""Windows of aggregates: count, sum, mean, min and max of what queries match, by window.

Owns what matched points add to the state of queries, and when the state becomes results; the
state itself is in :mod:`sparkswarm.apps.aggregates.panes`. Everything is a function of columns;
who runs it where is the engine's affair. The paper keeps the state of an operator in the query,
not in the partition, and moves it along ("Correctness of Query Execution"); so do we.

**Windows** are ``[start, end)`` in event time, with starts at the multiples of the query's slide
since 1970, as those of Spark's ``window``. A window is made of **panes** as long as the slide, and
the state of a query has a row for each pane with points, however many windows the pane is in.

**The watermark** of a batch is fixed before it runs, from what earlier batches saw; it never goes
back. A point counts into a window exactly if the watermark of the point's batch is before the
window's end. When the watermark has reached the end, the window closes and gives one row; a
window without points gives none. So a result depends on which points came in which batch, and
neither on their order nor on who saw them.

**Late** points are those that count into no window any more. They are left out and counted, once
for each query that they match. A point may be too late for some of a sliding query's windows and
in time for others.

**Order.** A state is the same, to the last bit, however points were divided and in whichever order
parts were put together: see :mod:`sparkswarm.apps.aggregates.exact_sums`. NaN counts as larger
than any number, as in Spark: it is the maximum where it occurs, and the minimum where there is
nothing else. A zero has no sign.

**When a query changes**, its state starts anew, and windows that were open give no result; the
same when it is unregistered. When a query expires it matches nothing
more, and its windows close in their time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sparkswarm.apps.aggregates.exact_sums import sums_of_floats, sums_of_integers
from sparkswarm.apps.aggregates.panes import Panes, State, Values, added
from sparkswarm.apps.aggregates.specs import AGGREGATES, Asked, Measure, bit, bits
from sparkswarm.apps.application import Moment, Pairs
from sparkswarm.compiled import BoolArray, LongArray, compiled, hash64

_FAR = 2**62
"""Times beyond, some 146,000 years from 1970, are taken as this, so that sums stay in 64 bits."""

_MICROS = pa.timestamp("us", "UTC")


def partials(asked: Asked, pairs: Pairs, points: pa.Table, measures: Sequence[Measure]) -> State:
    """Return what some matched pairs add to the state of their queries.

    Parameters
    ----------
    asked
        What the queries ask; ``pairs.queries`` are positions in it.
    pairs
        Which point matches which query.
    points
        ``time``, in microseconds and never null, and the measures.
    measures
        The columns that queries may aggregate.
    """
    if not len(pairs.points):
        return State.empty(measures)
    times = points.column("time").to_numpy()
    groups, query, start = _grouped(pairs.points, pairs.queries, times, asked.slide)
    keys = Panes._make([*(part[query] for part in asked), start])
    order = np.lexsort(keys[::-1])
    row_of = np.empty(len(order), np.int64)
    row_of[order] = np.arange(len(order))
    groups = row_of[groups]
    return State(
        tuple(measures),
        Panes(*(part[order] for part in keys)),
        np.bincount(groups, minlength=len(order)).astype(np.int64),
        tuple(
            _values(measure, points, pairs, groups, len(order), _wanted(asked, pairs, i))
            for i, measure in enumerate(measures)
        ),
    )


def on_time(state: State, watermark: int) -> tuple[State, int]:
    """Return the panes that some open window needs, and how many points the others have."""
    in_time = state.panes.start + state.panes.length > _near(watermark)
    if in_time.all():
        return state, 0
    return state.take(in_time), int(state.points[~in_time].sum())


def close(state: State, before: int, watermark: int) -> tuple[pa.Table, State]:
    """Close the windows that end after ``before`` and by ``watermark``.

    Parameters
    ----------
    state
        Some state; panes that no open window needs are dropped from the one returned.
    before
        The watermark of the batch before: windows that end by it have closed already.
    watermark
        The watermark now.

    Returns
    -------
    results
        A row for each window with points, of :func:`result_schema`, by query and time.
    state
        What the windows still open need.
    """
    panes = state.panes
    starts, stops, ends = _due(
        _runs(panes), panes.start, panes.length, panes.slide, _near(before), _near(watermark)
    )
    first = Panes(*(part[starts] for part in panes))
    arrays: list[pa.Array] = [
        pa.array(first.ids),
        pa.array(ends - first.length, _MICROS),
        pa.array(ends, _MICROS),
        _where(first.asked & bit("count"), pa.array(added(state.points, starts, stops))),
    ]
    for i, measure in enumerate(state.measures):
        values = state.values[i].combined(starts, stops)
        for aggregate in AGGREGATES:
            wanted = first.asked & bit(aggregate, i)
            if aggregate != "count":
                wanted = np.where(values.counts > 0, wanted, 0)
            arrays.append(_where(wanted, _column(aggregate, measure, values, wanted != 0)))
    schema = result_schema(state.measures)
    return pa.Table.from_arrays(arrays, schema=schema), on_time(state, watermark)[0]


def advance(state: State, new: State, moment: Moment) -> tuple[pa.Table, State, int]:
    """Do what a batch does to the state of some queries; return results, state and late points.

    First the windows close that the watermark has reached, without the batch's own points, and
    then the batch's partials, ``new``, are taken in as far as they are in time.
    """
    results, kept = close(state, moment.before, moment.watermark)
    fresh, late = on_time(new, moment.watermark)
    return results, State.joined([kept, fresh]), late


def next_end(state: State, watermark: int) -> int | None:
    """Return when the next window of a state ends that has not closed by ``watermark``.

    A state without new partials need not be touched until the watermark is there.
    """
    if not len(state):
        return None
    start, slide = state.panes.start, state.panes.slide
    after = _near(watermark) // slide * slide + slide
    return int(np.maximum(start + slide, after).min())


def result_schema(measures: Sequence[Measure]) -> pa.Schema:
    """Return the columns of results: an aggregate is null where the query did not ask for it.

    So is the aggregate of a measure that was null in all points of the window, its count apart,
    and a sum of whole numbers that 64 bits do not hold.
    """
    fields = [("query_id", pa.int64()), ("window_start", _MICROS), ("window_end", _MICROS)]
    fields.append(("count", pa.int64()))
    for measure in measures:
        types = {"count": pa.int64(), "mean": pa.float64()}
        fields += [(f"{name}_{measure.name}", types.get(name, measure.type)) for name in AGGREGATES]
    return pa.schema(fields)


# -- values of one measure ---------------------------------------------------------------------


def _wanted(asked: Asked, pairs: Pairs, measure: int) -> BoolArray | None:
    """Say for which pairs the query asks for a measure; None where all do."""
    wanted = (asked.asked & bits(measure)) != 0
    return None if wanted.all() else wanted[pairs.queries]


def _values(
    measure: Measure,
    points: pa.Table,
    pairs: Pairs,
    groups: LongArray,
    rows: int,
    wanted: BoolArray | None,
) -> Values:
    column = points.column(measure.name)
    if column.null_count:
        valid = pc.is_valid(column).to_numpy(zero_copy_only=False)[pairs.points]
        wanted = valid if wanted is None else wanted & valid
    which = pairs.points
    if wanted is not None:
        groups, which = groups[wanted], which[wanted]
    result = Values.nothing(measure, rows)
    if not len(which):
        return result
    filled = pc.fill_null(column.cast(measure.type), 0).to_numpy()
    # Zero has no sign, or a minimum would depend on the order.
    values = filled[which] if measure.whole else filled[which] + 0.0
    _collect(groups, values, result.counts, result.minimum, result.maximum)
    add = sums_of_integers if measure.whole else sums_of_floats
    return result._replace(sums=add(groups, values, rows))


def _column(aggregate: str, measure: Measure, values: Values, wanted: BoolArray) -> pa.Array:
    """Return an aggregate of every window; where it is not wanted it may be anything."""
    if aggregate == "count":
        return pa.array(values.counts)
    if aggregate == "min":
        return pa.array(values.minimum)
    if aggregate == "max":
        return pa.array(values.maximum)
    # Python's whole numbers round right and are slow: only where it is wanted.
    sums = values.sums.take(wanted)
    found: list[Any]
    if aggregate == "mean":
        found = sums.means(values.counts[wanted])
    else:
        found = sums.whole_totals() if measure.whole else sums.totals()
    of_type = pa.float64() if aggregate == "mean" else measure.type
    nothing = pa.nulls(len(wanted), of_type)
    return pc.replace_with_mask(nothing, pa.array(wanted), pa.array(found, of_type))


def _where(wanted: LongArray, column: pa.Array) -> pa.Array:
    return pc.if_else(pa.array(wanted != 0), column, pa.scalar(None, column.type))


def _near(time: int) -> int:
    return max(-_FAR, min(_FAR, time))


# -- loops -------------------------------------------------------------------------------------


def _runs(panes: Panes) -> LongArray:
    """Return where the rows of each query begin, and the end of the last."""
    different = np.zeros(max(len(panes.ids) - 1, 0), bool)
    for part in panes[:-1]:
        different |= part[1:] != part[:-1]
    edges = [np.zeros(1, np.int64), np.flatnonzero(different) + 1]
    return np.concatenate([*edges, np.array([len(panes.ids)])])


@compiled
def _grouped(
    points: LongArray, queries: LongArray, times: LongArray, slides: LongArray
) -> tuple[LongArray, LongArray, LongArray]:
    """Return the number of each pair's pane, and the query and the start of each pane.

    Panes are numbered as they are met. A hash table that doubles, because a batch may span a few
    panes of each query or very many.
    """
    groups = np.empty(len(points), np.int64)
    table = np.full(1024, -1, np.int64)
    query = np.empty(512, np.int64)
    start = np.empty(512, np.int64)
    count = 0
    for i in range(len(points)):
        q = queries[i]
        time = max(-_FAR, min(_FAR, times[points[i]]))
        pane = time - time % slides[q]
        at = _slot(q, pane, len(table))
        while table[at] >= 0 and (query[table[at]] != q or start[table[at]] != pane):
            at = at + 1 & len(table) - 1
        if table[at] >= 0:
            groups[i] = table[at]
            continue
        if count == len(query):
            query = np.concatenate((query, np.empty_like(query)))
            start = np.concatenate((start, np.empty_like(start)))
            table = np.full(2 * len(table), -1, np.int64)
            for old in range(count):
                at = _slot(query[old], start[old], len(table))
                while table[at] >= 0:
                    at = at + 1 & len(table) - 1
                table[at] = old
            at = _slot(q, pane, len(table))
            while table[at] >= 0:
                at = at + 1 & len(table) - 1
        table[at] = groups[i] = count
        query[count], start[count] = q, pane
        count += 1
    return groups, query[:count].copy(), start[:count].copy()


@compiled
def _slot(query: int, pane: int, size: int) -> np.int64:
    mixture = hash64(np.uint64(pane) ^ hash64(np.uint64(query)))
    return np.int64(mixture & np.uint64(size - 1))


@compiled
def _collect(
    groups: LongArray,
    values: npt.NDArray[Any],
    counts: LongArray,
    minimum: npt.NDArray[Any],
    maximum: npt.NDArray[Any],
) -> None:
    for i in range(len(groups)):
        group, value = groups[i], values[i]
        counts[group] += 1
        # NaN, the only value that is not itself, is larger than all others.
        if value < minimum[group] or minimum[group] != minimum[group]:
            minimum[group] = value
        if value > maximum[group] or value != value:
            maximum[group] = value


@compiled
def _due(
    runs: LongArray,
    start: LongArray,
    length: LongArray,
    slide: LongArray,
    before: int,
    watermark: int,
) -> tuple[LongArray, LongArray, LongArray]:
    """Return the first row, the row after the last, and the end of each window that closes.

    A window is found at its first pane: one that the pane before is not in. So it is found once,
    and windows without panes are never looked at, however far panes are apart.
    """
    size = 1024
    starts, stops, ends = (
        np.empty(size, np.int64),
        np.empty(size, np.int64),
        np.empty(size, np.int64),
    )
    count = 0
    for run in range(len(runs) - 1):
        stop = runs[run]
        for i in range(runs[run], runs[run + 1]):
            step = slide[i]
            end = max(start[i] + step, before // step * step + step)
            if i > runs[run]:
                end = max(end, start[i - 1] + length[i] + step)
            last = min(start[i] + length[i], watermark)
            while end <= last:
                while stop < runs[run + 1] and start[stop] < end:
                    stop += 1
                if count == size:
                    size *= 2
                    starts = np.concatenate((starts, np.empty_like(starts)))
                    stops = np.concatenate((stops, np.empty_like(stops)))
                    ends = np.concatenate((ends, np.empty_like(ends)))
                starts[count], stops[count], ends[count] = i, stop, end
                count += 1
                end += step
    return starts[:count].copy(), stops[:count].copy(), ends[:count].copy()
