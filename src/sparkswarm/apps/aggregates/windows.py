"""Windows of aggregates: count, sum, mean, min and max of the points that queries match.

Owns what matched points add to the state of queries, and when state becomes results. The state
itself is in :mod:`sparkswarm.apps.aggregates.panes`. Pure functions of columns; they run in tasks.
As in the paper ("Correctness of Query Execution"), state belongs to a query, not to a partition,
and moves with it.

**Windows** are ``[start, end)`` in event time, and start at the multiples of the query's slide
since 1970, like those of Spark's ``window``. A window consists of **panes** as long as the slide.
The state of a query has one row for each pane that has points, shared by all windows of the pane.

**The watermark** of a batch is fixed before the batch runs, from the times of earlier batches, and
never decreases. A point counts for a window exactly if the watermark of the point's batch is before
the window's end. When the watermark has reached the end, the window closes and gives one row;
windows without points give none. So results depend on which points came in which batch, but not on
their order or on the executor that received them.

**Late** points count for no window any more. They are dropped, and counted once for each query that
they match. A point may be late for some windows of a sliding query and in time for others.

**Exactness.** A state is the same, to the last bit, however points were divided and in whatever
order parts were merged: see :mod:`sparkswarm.apps.aggregates.exact_sums`. As in Spark, NaN is
larger than any number: it is the maximum wherever it occurs, and the minimum only if there is no
other value. Zero has no sign.

**Changes of queries.** When a query is updated or unregistered, its state is dropped, and its open
windows give no result. When a query expires it matches nothing more; its windows close as usual.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sparkswarm.apps.aggregates.exact_sums import sums_of_floats, sums_of_integers
from sparkswarm.apps.aggregates.panes import Panes, PaneTable, Values, add_ranges
from sparkswarm.apps.aggregates.specs import AGGREGATES, AggregateSpecs, Measure, bit, bits
from sparkswarm.apps.application import Pairs, Watermarks
from sparkswarm.compiled import BoolArray, LongArray, compiled, hash64

_MAX_TIME = 2**62
"""Times are clamped to this, some 146,000 years from 1970, so that sums fit 64 bits."""

_MICROS = pa.timestamp("us", "UTC")


def collect_panes(
    specs: AggregateSpecs, pairs: Pairs, points: pa.Table, measures: Sequence[Measure]
) -> PaneTable:
    """Return what matched pairs add to the state of their queries.

    ``pairs.queries`` are rows of ``specs``. The points have a ``time`` that is never null, and the
    columns of ``measures``.
    """
    if not len(pairs.points):
        return PaneTable.empty(measures)
    times = points.column("time").to_numpy()
    groups, query, start = _group_by_pane(pairs.points, pairs.queries, times, specs.slide)
    keys = Panes._make([*(part[query] for part in specs), start])
    order = np.lexsort(keys[::-1])
    row_of = np.empty(len(order), np.int64)
    row_of[order] = np.arange(len(order))
    groups = row_of[groups]
    return PaneTable(
        tuple(measures),
        Panes(*(part[order] for part in keys)),
        np.bincount(groups, minlength=len(order)).astype(np.int64),
        tuple(
            _values(measure, points, pairs, groups, len(order), _wanted(specs, pairs, i))
            for i, measure in enumerate(measures)
        ),
    )


def drop_closed(state: PaneTable, watermark: int) -> tuple[PaneTable, int]:
    """Return the panes of open windows, and the number of points in the other panes."""
    is_open = state.panes.start + state.panes.length > clamp_time(watermark)
    if is_open.all():
        return state, 0
    return state.take(is_open), int(state.points[~is_open].sum())


def close_windows(state: PaneTable, watermarks: Watermarks) -> tuple[pa.Table, PaneTable]:
    """Close the windows that end after the previous watermark and by the current one.

    Return a row of :func:`result_schema` for each of them that has points, by query and time, and
    the panes of windows that are still open.
    """
    panes = state.panes
    previous, current = map(clamp_time, watermarks)
    query_starts = _query_starts(panes)
    starts, stops, ends = _due_windows(
        query_starts, panes.start, panes.length, panes.slide, previous, current
    )
    first = Panes(*(part[starts] for part in panes))
    arrays: list[pa.Array] = [
        pa.array(first.ids),
        pa.array(ends - first.length, _MICROS),
        pa.array(ends, _MICROS),
        _null_unless(
            first.aggregate_bits & bit("count"), pa.array(add_ranges(state.points, starts, stops))
        ),
    ]
    for i, measure in enumerate(state.measures):
        values = state.values[i].combine(starts, stops)
        for aggregate in AGGREGATES:
            wanted = first.aggregate_bits & bit(aggregate, i)
            if aggregate != "count":
                wanted = np.where(values.counts > 0, wanted, 0)
            arrays.append(_null_unless(wanted, _column(aggregate, measure, values, wanted != 0)))
    schema = result_schema(state.measures)
    return pa.Table.from_arrays(arrays, schema=schema), drop_closed(state, watermarks.current)[0]


def advance(
    state: PaneTable, new: PaneTable, watermarks: Watermarks
) -> tuple[pa.Table, PaneTable, int]:
    """Apply a batch to the state of some queries; return results, state and late points.

    First the windows that the watermark has reached are closed, without the points of the batch.
    Then those points, ``new``, are merged into the state unless they are late.
    """
    results, still_open = close_windows(state, watermarks)
    in_time, late = drop_closed(new, watermarks.current)
    return results, PaneTable.merge([still_open, in_time]), late


def next_due(state: PaneTable, watermark: int) -> int | None:
    """Return the end of the next window that has not closed by ``watermark``; None if none.

    Unless there are new points, the state need not be read before the watermark is there.
    """
    if not len(state):
        return None
    start, slide = state.panes.start, state.panes.slide
    after = clamp_time(watermark) // slide * slide + slide
    return int(np.maximum(start + slide, after).min())


def result_schema(measures: Sequence[Measure]) -> pa.Schema:
    """Return the columns of results.

    An aggregate is null if the query did not ask for it. All but counts are null if the measure
    is null in all points of the window, and a sum of integers is null if it does not fit 64 bits.
    """
    fields = [("query_id", pa.int64()), ("window_start", _MICROS), ("window_end", _MICROS)]
    fields.append(("count", pa.int64()))
    for measure in measures:
        types = {"count": pa.int64(), "mean": pa.float64()}
        fields += [(f"{name}_{measure.name}", types.get(name, measure.type)) for name in AGGREGATES]
    return pa.schema(fields)


# -- values of one measure ---------------------------------------------------------------------


def _wanted(specs: AggregateSpecs, pairs: Pairs, measure: int) -> BoolArray | None:
    """Return for each pair whether its query asks for a measure; None if all do."""
    wanted = (specs.aggregate_bits & bits(measure)) != 0
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
    chosen = pairs.points
    if wanted is not None:
        groups, chosen = groups[wanted], chosen[wanted]
    result = Values.empty(measure, rows)
    if not len(chosen):
        return result
    filled = pc.fill_null(column.cast(measure.type), 0).to_numpy()
    # Adding 0.0 makes -0.0 positive: otherwise a minimum would depend on the order.
    values = filled[chosen] if measure.whole else filled[chosen] + 0.0
    _aggregate(groups, values, result.counts, result.minimum, result.maximum)
    add = sums_of_integers if measure.whole else sums_of_floats
    return result._replace(sums=add(groups, values, rows))


def _column(aggregate: str, measure: Measure, values: Values, wanted: BoolArray) -> pa.Array:
    """Return an aggregate of every window; any value where it is not wanted."""
    if aggregate == "count":
        return pa.array(values.counts)
    if aggregate == "min":
        return pa.array(values.minimum)
    if aggregate == "max":
        return pa.array(values.maximum)
    # Python's integers round correctly but are slow: only where it is wanted.
    sums = values.sums.take(wanted)
    found: list[Any]
    if aggregate == "mean":
        found = sums.means(values.counts[wanted])
    else:
        found = sums.whole_totals() if measure.whole else sums.totals()
    of_type = pa.float64() if aggregate == "mean" else measure.type
    nulls = pa.nulls(len(wanted), of_type)
    return pc.replace_with_mask(nulls, pa.array(wanted), pa.array(found, of_type))


def _null_unless(wanted: LongArray, column: pa.Array) -> pa.Array:
    return pc.if_else(pa.array(wanted != 0), column, pa.scalar(None, column.type))


def clamp_time(time: int) -> int:
    """Return a time that is far enough from the limits of 64 bits."""
    return max(-_MAX_TIME, min(_MAX_TIME, time))


# -- compiled loops ----------------------------------------------------------------------------


def _query_starts(panes: Panes) -> LongArray:
    """Return the first row of each query, and the number of rows."""
    different = np.zeros(max(len(panes.ids) - 1, 0), bool)
    for part in panes[:-1]:
        different |= part[1:] != part[:-1]
    edges = [np.zeros(1, np.int64), np.flatnonzero(different) + 1]
    return np.concatenate([*edges, np.array([len(panes.ids)])])


@compiled
def _group_by_pane(
    points: LongArray, queries: LongArray, times: LongArray, slides: LongArray
) -> tuple[LongArray, LongArray, LongArray]:
    """Return the number of each pair's pane, and the query and the start of each pane.

    Panes are numbered in the order of their first pair, with a hash table that grows: a batch may
    have few panes of each query or very many.
    """
    groups = np.empty(len(points), np.int64)
    table = np.full(1024, -1, np.int64)
    query = np.empty(512, np.int64)
    start = np.empty(512, np.int64)
    count = 0
    for i in range(len(points)):
        q = queries[i]
        time = max(-_MAX_TIME, min(_MAX_TIME, times[points[i]]))
        pane = time - time % slides[q]
        slot = _slot(q, pane, len(table))
        while table[slot] >= 0 and (query[table[slot]] != q or start[table[slot]] != pane):
            slot = slot + 1 & len(table) - 1
        if table[slot] >= 0:
            groups[i] = table[slot]
            continue
        if count == len(query):
            query = np.concatenate((query, np.empty_like(query)))
            start = np.concatenate((start, np.empty_like(start)))
            table = np.full(2 * len(table), -1, np.int64)
            for old in range(count):
                slot = _slot(query[old], start[old], len(table))
                while table[slot] >= 0:
                    slot = slot + 1 & len(table) - 1
                table[slot] = old
            slot = _slot(q, pane, len(table))
            while table[slot] >= 0:
                slot = slot + 1 & len(table) - 1
        table[slot] = groups[i] = count
        query[count], start[count] = q, pane
        count += 1
    return groups, query[:count].copy(), start[:count].copy()


@compiled
def _slot(query: int, pane: int, size: int) -> np.int64:
    hashed = hash64(np.uint64(pane) ^ hash64(np.uint64(query)))
    return np.int64(hashed & np.uint64(size - 1))


@compiled
def _aggregate(
    groups: LongArray,
    values: npt.NDArray[Any],
    counts: LongArray,
    minimum: npt.NDArray[Any],
    maximum: npt.NDArray[Any],
) -> None:
    for i in range(len(groups)):
        group, value = groups[i], values[i]
        counts[group] += 1
        # NaN, the only value that differs from itself, is larger than all others.
        if value < minimum[group] or minimum[group] != minimum[group]:
            minimum[group] = value
        if value > maximum[group] or value != value:
            maximum[group] = value


@compiled
def _due_windows(
    query_starts: LongArray,
    start: LongArray,
    length: LongArray,
    slide: LongArray,
    previous: int,
    current: int,
) -> tuple[LongArray, LongArray, LongArray]:
    """Return the first row, the row after the last, and the end of each window that closes.

    A window is found at its first pane with points, so it is found once, and windows without
    points are skipped however far panes are apart.
    """
    size = 1024
    starts, stops, ends = (
        np.empty(size, np.int64),
        np.empty(size, np.int64),
        np.empty(size, np.int64),
    )
    count = 0
    for query in range(len(query_starts) - 1):
        first, last = query_starts[query], query_starts[query + 1]
        stop = first
        for i in range(first, last):
            step = slide[i]
            end = max(start[i] + step, previous // step * step + step)
            if i > first:
                end = max(end, start[i - 1] + length[i] + step)
            latest = min(start[i] + length[i], current)
            while end <= latest:
                while stop < last and start[stop] < end:
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
