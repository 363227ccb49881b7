"""Matches points against indexes of rectangles; see :mod:`sparkswarm.index.layout`.

Runs in tasks, for every chunk of points and every segment; pure, so it may run again.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from sparkswarm.compiled import ByteArray, FloatArray, IntArray, LongArray, compiled
from sparkswarm.errors import GeometryError
from sparkswarm.index.layout import (
    COLUMNS,
    FIRST,
    HEADER,
    MAX_X,
    MAX_X_MIN_Y,
    MAX_Y,
    MIN_X,
    MIN_X_MAX_Y,
    MIN_X_MIN_Y,
    MIN_Y,
    OTHER,
    ROWS,
    SCALE_X,
    SCALE_Y,
    SECTIONED,
    SHIFT,
    THROUGH,
    RangeIndex,
    bucket_of_cell,
    frozen,
    place_of,
    readonly,
)
from sparkswarm.index.prefetch import prefetch

_SORT_FROM = 256
"""Fewer points than this are not sorted."""
_RUNS = 1 << 13
"""Number of runs of buckets by which points are sorted; no more than points."""
_TOGETHER = 64
"""Points whose buckets and rectangles are asked for before the first of them is compared."""
_ASKED = 16
"""Rectangles of a bucket that are asked for; the sections of larger ones are read in order."""


class Matches(NamedTuple):
    """The rectangles that contain each of n points."""

    points: LongArray
    """Of shape (n,): the points, by row in ``x`` and ``y``, in an order of their own."""
    counts: IntArray
    """Of shape (n,): the number of rectangles around each point."""
    checks: IntArray
    """Of shape (n,): the number of entries compared with each point, a measure of the work."""
    positions: IntArray
    """Of shape (counts.sum(),): positions of the rectangles in the index, point after point, in any
    order for one point."""


def match(
    x: FloatArray,
    y: FloatArray,
    time: LongArray | None,
    rows: LongArray,
    index: RangeIndex,
    removed: ByteArray | None = None,
    now: int = 0,
) -> Matches:
    """Return the rectangles of an index that contain each of the chosen points.

    Parameters
    ----------
    x, y
        Coordinates. A point with a NaN matches nothing.
    time
        Event time of every point in microseconds: a query that expires matches points before
        its expiry. None or an empty array to take ``now`` for all.
    rows
        The points to match, by row in ``x`` and ``y``.
    index
        The rectangles.
    removed
        For each position of ``index`` whether the query there was removed; None or empty where
        none was.
    now
        The time of all points where ``time`` is not given.
    """
    x, y = readonly(x, np.float64), readonly(y, np.float64)
    times: LongArray = readonly(() if time is None else time, np.int64)
    gone: ByteArray = readonly(() if removed is None else removed, np.uint8)
    rows = np.array(rows, np.int64)
    _check(x, y, times, rows, gone, index)
    index = frozen(index)
    sort_rows(x, y, rows, index)
    checks, bounds = np.zeros(len(rows), np.int32), np.zeros(len(rows), np.int64)
    add_bounds(x, y, rows, index, bounds)
    points = ChosenPoints(x, y, times, now, rows)
    counts, positions = match_index(points, index, gone, checks, int(bounds.sum()))
    return Matches(rows, counts, checks, positions)


class ChosenPoints(NamedTuple):
    """Points to match: those of ``rows``, with the types that the kernel is compiled for."""

    x: FloatArray
    """Read-only, as ``y`` and ``time``."""
    y: FloatArray
    time: LongArray
    """Empty to take ``now`` for all."""
    now: int
    rows: LongArray


def sort_rows(x: FloatArray, y: FloatArray, rows: LongArray, index: RangeIndex) -> None:
    """Sort points in place so that consecutive ones read the same parts of an index."""
    if len(rows) >= _SORT_FROM:
        rows[:] = _sort_by_cell(x, y, rows, index)


def match_index(
    points: ChosenPoints,
    index: RangeIndex,
    removed: ByteArray,
    checks: IntArray,
    most: int,
) -> tuple[IntArray, IntArray]:
    """Match points against an index; return counts and positions, and add to the checks.

    ``most`` bounds the number of matches, see :func:`add_bounds`.
    """
    counts = np.zeros(len(points.rows), np.int32)
    # Large enough for all that may match: pages that are not written to take no memory.
    out = np.empty(most + 1, np.int32)
    arguments: list[Any] = [*points, *index[1:], removed, counts, checks, out]
    return counts, out[: _match(*arguments)]


def _check(
    x: FloatArray,
    y: FloatArray,
    time: LongArray,
    rows: LongArray,
    removed: ByteArray,
    index: RangeIndex,
) -> None:
    if len(x) != len(y) or len(time) not in (0, len(x)):
        raise GeometryError(f"got {len(x)} x, {len(y)} y and {len(time)} times")
    if len(removed) not in (0, len(index.ids)):
        raise GeometryError(f"got a mask of {len(removed)} removed for {len(index.ids)} queries")
    if len(rows) and not (rows.min() >= 0 and rows.max() < len(x)):
        raise GeometryError(f"rows are chosen that are not among the {len(x)} points")


@compiled
def _sort_by_cell(x: FloatArray, y: FloatArray, rows: LongArray, index: RangeIndex) -> LongArray:
    """Return the points roughly in the order of their cells on the largest level.

    Consecutive points then read the same parts of the index, rows are in the processor's cache.
    A counting sort by whole runs of buckets is as good for that as a full sort, at a fraction of
    the time.
    """
    main = 0
    most = -1.0
    for k in range(len(index.levels)):
        stop = len(index.starts) - 1.0
        if k + 1 < len(index.levels):
            stop = index.levels[k + 1, FIRST]
        if stop - index.levels[k, FIRST] > most:
            most = stop - index.levels[k, FIRST]
            main = k
    if most <= 0:
        return rows.copy()
    first = int(index.levels[main, FIRST])
    shift = 0
    runs = min(_RUNS, len(rows))
    while int(most) >> shift >= runs:
        shift += 1
    keys = np.empty(len(rows), np.int32)
    begins = np.zeros(runs + 1, np.int64)
    for i in range(len(rows)):
        bucket = _find_bucket(x[rows[i]], y[rows[i]], index.origin, index.levels, main)
        keys[i] = (bucket - first) >> shift
        begins[keys[i] + 1] += 1
    for k in range(runs):
        begins[k + 1] += begins[k]
    order = np.empty(len(rows), np.int64)
    for i in range(len(rows)):
        order[begins[keys[i]]] = rows[i]
        begins[keys[i]] += 1
    return order


@compiled
def add_bounds(
    x: FloatArray, y: FloatArray, rows: LongArray, index: RangeIndex, bounds: LongArray
) -> None:
    """Add to each of the bounds the most rectangles that can match a point."""
    for i in range(len(rows)):
        for k in range(len(index.levels)):
            b = _find_bucket(x[rows[i]], y[rows[i]], index.origin, index.levels, k)
            bounds[i] += index.starts[b + 1] - index.starts[b]


@compiled
def add_candidates(
    x: FloatArray, y: FloatArray, rows: LongArray, index: RangeIndex, bounds: LongArray
) -> LongArray:
    """Add to bounds as :func:`add_bounds` does; return which of ``rows`` can match anything.

    A small index of a large space has nothing for most points, and these need not be matched.
    """
    found = np.empty(len(rows), np.int64)
    number = 0
    for i in range(len(rows)):
        most = 0
        for k in range(len(index.levels)):
            b = _find_bucket(x[rows[i]], y[rows[i]], index.origin, index.levels, k)
            most += index.starts[b + 1] - index.starts[b]
        bounds[i] += most
        found[number] = i
        number += most > 0
    return found[:number].copy()


@compiled
def _find_bucket(x: float, y: float, origin: FloatArray, levels: FloatArray, level: int) -> int:
    k = np.uint64(level)
    columns = int(levels[k, COLUMNS])
    column = place_of(x, origin[0], levels[k, SCALE_X], columns)
    row = place_of(y, origin[1], levels[k, SCALE_Y], int(levels[k, ROWS]))
    return bucket_of_cell(column, row, columns, int(levels[k, FIRST]), int(levels[k, SHIFT]))


@compiled
def _first_at_most(
    entries: IntArray, boxes: FloatArray, edge: int, start: int, stop: int, value: float
) -> int:
    """Return the first of descending edges, from start to stop, that is at most the value."""
    length = stop - start
    while length > 0:
        half = (length + 1) >> 1
        start += (
            half if not boxes[np.uint32(entries[np.uint64(start + half - 1)]), edge] <= value else 0
        )
        length -= half
    return start


@compiled
def _first_below(
    entries: IntArray, boxes: FloatArray, edge: int, start: int, stop: int, value: float
) -> int:
    """Return the first of descending edges, from start to stop, that is below the value."""
    length = stop - start
    while length > 0:
        half = (length + 1) >> 1
        start += (
            half if boxes[np.uint32(entries[np.uint64(start + half - 1)]), edge] >= value else 0
        )
        length -= half
    return start


@compiled
def _copy(entries: IntArray, start: int, stop: int, out: IntArray, n: int) -> int:
    # Slices here, and unsigned numbers below, spare a test for negative indices in every step.
    source = entries[start:stop]
    target = out[n : n + len(source)]
    for j in range(len(source)):
        target[j] = source[j]
    return n + len(source)


@compiled
def _find_in_sections(
    x: float, y: float, entries: IntArray, boxes: FloatArray, begin: int, out: IntArray, n: int
) -> tuple[int, int]:
    """Write the matches of a bucket's sections, all but the last section.

    Return the end of the positions written, and the number of entries compared.
    """
    ends = entries[begin : begin + HEADER]
    before = n
    start = _first_at_most(entries, boxes, 0, begin + HEADER, begin + ends[MIN_X], x)
    stop = _first_below(entries, boxes, 2, begin + ends[THROUGH], begin + ends[MAX_X], x)
    n = _copy(entries, start, stop, out, n)
    start = _first_at_most(entries, boxes, 1, begin + ends[MAX_X], begin + ends[MIN_Y], y)
    stop = _first_below(entries, boxes, 3, begin + ends[MIN_Y], begin + ends[MAX_Y], y)
    n = _copy(entries, start, stop, out, n)
    looked = n - before
    for section in range(MIN_X_MIN_Y, OTHER):
        start, stop = begin + ends[section - 1], begin + ends[section]
        if section <= MIN_X_MAX_Y:
            start = _first_at_most(entries, boxes, 0, start, stop, x)
        else:
            stop = _first_below(entries, boxes, 2, start, stop, x)
        looked += stop - start
        if section in (MIN_X_MIN_Y, MAX_X_MIN_Y):
            for entry in entries[start:stop]:
                out[np.uint64(n)] = entry
                n += boxes[np.uint32(entry), 1] <= y
        else:
            for entry in entries[start:stop]:
                out[np.uint64(n)] = entry
                n += boxes[np.uint32(entry), 3] >= y
    return n, looked


@compiled
def _match(
    x: FloatArray,
    y: FloatArray,
    time: LongArray,
    now: int,
    rows: LongArray,
    boxes: FloatArray,
    expires: LongArray,
    origin: FloatArray,
    levels: FloatArray,
    starts: IntArray,
    entries: IntArray,
    removed: ByteArray,
    counts: IntArray,
    checks: IntArray,
    out: IntArray,
) -> int:
    """Write the positions of the rectangles around each point to ``out``; return their number.

    Takes the arrays of an index rather than the index, and is one function rather than a few:
    numba counts references to every array that is handed on, in every step of the loop, and
    that takes longer than the matching.
    """
    origin_x, origin_y = origin[0], origin[1]
    edges = boxes.ravel()
    begins = np.empty(_TOGETHER * len(levels), np.int32)
    ends = np.empty(_TOGETHER * len(levels), np.int32)
    n = 0
    for i in range(len(rows)):
        if i % _TOGETHER == 0:
            # Memory answers many questions in the time of one, so all are asked at first.
            asked = 0
            for row_number in rows[i : i + _TOGETHER]:
                px, py = x[row_number], y[row_number]
                for level in range(len(levels)):
                    k = np.uint64(level)
                    columns = int(levels[k, COLUMNS])
                    column = place_of(px, origin_x, levels[k, SCALE_X], columns)
                    row = place_of(py, origin_y, levels[k, SCALE_Y], int(levels[k, ROWS]))
                    first, shift = int(levels[k, FIRST]), int(levels[k, SHIFT])
                    b = np.uint64(bucket_of_cell(column, row, columns, first, shift))
                    begins[np.uint64(asked)] = starts[b]
                    ends[np.uint64(asked)] = starts[b + np.uint64(1)]
                    prefetch(entries, np.uint64(starts[b]))
                    asked += 1
            for a in range(asked):
                begin, end = begins[np.uint64(a)], ends[np.uint64(a)]
                for j in range(begin, min(end, begin + _ASKED)):
                    prefetch(edges, np.uint64(4) * np.uint64(entries[np.uint64(j)]))
            asked = 0
        px, py = x[rows[i]], y[rows[i]]
        first = n
        looked = 0
        for level in range(len(levels)):
            begin, end = int(begins[np.uint64(asked)]), int(ends[np.uint64(asked)])
            asked += 1
            if end - begin >= SECTIONED and levels[np.uint64(level), SHIFT] == 0:
                n, more = _find_in_sections(px, py, entries, boxes, begin, out, n)
                looked += more
                begin += entries[begin + OTHER - 1]
            looked += end - begin
            for j in range(begin, end):
                entry = entries[np.uint64(j)]
                e = np.uint32(entry)
                out[np.uint64(n)] = entry
                inside_x = (boxes[e, 0] <= px) & (px <= boxes[e, 2])
                n += inside_x & (boxes[e, 1] <= py) & (py <= boxes[e, 3])
        if len(removed) or len(expires):
            at = time[rows[i]] if len(time) else now
            stop = n
            n = first
            for j in range(first, stop):
                entry = out[np.uint64(j)]
                e = np.uint32(entry)
                out[np.uint64(n)] = entry
                n += (len(removed) == 0 or removed[e] == 0) and (
                    len(expires) == 0 or at < expires[e]
                )
        checks[i] += looked
        counts[i] += n - first
    return n
