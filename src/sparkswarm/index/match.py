"""Matching points against indexes of rectangles; see :mod:`sparkswarm.index.layout`."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from sparkswarm.compiled import ByteArray, FloatArray, IntArray, LongArray, compiled
from sparkswarm.errors import GeometryError
from sparkswarm.index.layout import (
    COLUMNS,
    EMPTY,
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

_SORT_FROM = 256
"""Calls with fewer points than this take them as they come."""
_RUNS = 1 << 13
"""Runs of buckets by which points are sorted."""


class Matches(NamedTuple):
    """The queries that contain each of n points."""

    points: LongArray
    """Of shape (n,): the points, by place in ``x`` and ``y``, in an order of their own."""
    counts: IntArray
    """Of shape (n,): how many."""
    checks: IntArray
    """Of shape (n,): the entries that were looked at to find them, a measure of the work."""
    ids: LongArray
    """Of shape (counts.sum(),): theirs, point after point, in any order for one point."""


def match(
    x: FloatArray,
    y: FloatArray,
    time: LongArray | None,
    which: LongArray,
    base: RangeIndex,
    dead: ByteArray | None = None,
    delta: RangeIndex = EMPTY,
    now: int = 0,
    room: LongArray | None = None,
) -> Matches:
    """Return the queries of both indexes that contain each of the chosen points.

    Parameters
    ----------
    x, y
        Coordinates. A point with a NaN matches nothing.
    time
        The event time of every point in microseconds: a query that expires matches points
        before its time. None or an empty array to take ``now`` for all.
    which
        The points to look at, by their place in ``x`` and ``y``.
    base, delta
        The indexes: the large one, and a small one of what was added since.
    dead
        For each position of ``base`` whether the query there is gone, or None or empty.
    now
        The time for all points where ``time`` is not given.
    room
        Where to write the ids, to spare the system finding fresh memory in every call. It is
        used if all that may match fits in; the ids are then a part of it.
    """
    x, y = readonly(x, np.float64), readonly(y, np.float64)
    times: LongArray = readonly(() if time is None else time, np.int64)
    which = readonly(which, np.int64)
    gone: ByteArray = readonly(() if dead is None else dead, np.uint8)
    _check(x, y, times, which, gone, base)
    base, delta = frozen(base), frozen(delta)
    if len(which) >= _SORT_FROM:
        which = readonly(_by_place(x, y, which, base), np.int64)
    points = (x, y, times, now, which)
    checks = np.zeros(len(which), np.int32)
    counts, ids = _matched(points, base, gone, checks, room)
    if len(delta.ids):
        new_counts, new_ids = _matched(points, delta, gone[:0], checks)
        if len(new_ids):
            ids = _interleaved(counts, ids, new_counts, new_ids)
            counts += new_counts
    return Matches(which, counts, checks, ids)


def _matched(
    points: tuple[FloatArray, FloatArray, LongArray, int, LongArray],
    index: RangeIndex,
    dead: ByteArray,
    checks: IntArray,
    room: LongArray | None = None,
) -> tuple[IntArray, LongArray]:
    """Match points against one index; return counts and ids, and add to the checks."""
    x, y, _, _, which = points
    counts = np.zeros(len(which), np.int32)
    most = 1 + _most(x, y, which, index.origin, index.levels, index.starts)
    # Room for all that may match: what is not written to takes no memory.
    ids = np.empty(most, np.int64) if room is None or len(room) < most else room
    arguments: list[Any] = [*points, *index, dead, counts, checks, ids]
    return counts, ids[: _match(*arguments)]


def _check(
    x: FloatArray,
    y: FloatArray,
    time: LongArray,
    which: LongArray,
    dead: ByteArray,
    base: RangeIndex,
) -> None:
    if len(x) != len(y) or len(time) not in (0, len(x)):
        raise GeometryError(f"got {len(x)} x, {len(y)} y and {len(time)} times")
    if len(dead) not in (0, len(base.ids)):
        raise GeometryError(f"got {len(dead)} marks of the dead for {len(base.ids)} queries")
    if len(which) and not (which.min() >= 0 and which.max() < len(x)):
        raise GeometryError(f"points are chosen that are not among the {len(x)}")


@compiled
def _by_place(x: FloatArray, y: FloatArray, which: LongArray, index: RangeIndex) -> LongArray:
    """Return the points in the order of their places, more or less, on the largest level.

    Points that follow each other then look at the same parts of the index, which are in the
    processor's cache. A counting sort of whole runs of buckets is as good for that as a full
    sort, at a fraction of the time.
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
        return which.copy()
    first = int(index.levels[main, FIRST])
    shift = 0
    while int(most) >> shift >= _RUNS:
        shift += 1
    keys = np.empty(len(which), np.int32)
    begins = np.zeros(_RUNS + 1, np.int64)
    for i in range(len(which)):
        bucket = _find_bucket(x[which[i]], y[which[i]], index.origin, index.levels, main)
        keys[i] = (bucket - first) >> shift
        begins[keys[i] + 1] += 1
    for k in range(_RUNS):
        begins[k + 1] += begins[k]
    order = np.empty(len(which), np.int64)
    for i in range(len(which)):
        order[begins[keys[i]]] = which[i]
        begins[keys[i]] += 1
    return order


@compiled
def _most(
    x: FloatArray, y: FloatArray, which: LongArray,
    origin: FloatArray, levels: FloatArray, starts: IntArray,
) -> int:  # fmt: skip
    """Return how many ids the points can find at most."""
    most = 0
    for i in range(len(which)):
        for k in range(len(levels)):
            b = _find_bucket(x[which[i]], y[which[i]], origin, levels, k)
            most += starts[b + 1] - starts[b]
    return most


@compiled
def _find_bucket(x: float, y: float, origin: FloatArray, levels: FloatArray, level: int) -> int:
    k = np.uint64(level)
    columns = int(levels[k, COLUMNS])
    column = place_of(x, origin[0], levels[k, SCALE_X], columns)
    row = place_of(y, origin[1], levels[k, SCALE_Y], int(levels[k, ROWS]))
    return bucket_of_cell(column, row, columns, int(levels[k, FIRST]), int(levels[k, SHIFT]))


@compiled
def _falls_to(
    entries: IntArray, boxes: FloatArray, edge: int, start: int, stop: int, value: float
) -> int:
    """Return where edges that fall from start to stop are first at most the value."""
    length = stop - start
    while length > 0:
        half = (length + 1) >> 1
        start += (
            half if not boxes[np.uint32(entries[np.uint64(start + half - 1)]), edge] <= value else 0
        )
        length -= half
    return start


@compiled
def _falls_below(
    entries: IntArray, boxes: FloatArray, edge: int, start: int, stop: int, value: float
) -> int:
    """Return where edges that fall from start to stop are first less than the value."""
    length = stop - start
    while length > 0:
        half = (length + 1) >> 1
        start += (
            half if boxes[np.uint32(entries[np.uint64(start + half - 1)]), edge] >= value else 0
        )
        length -= half
    return start


@compiled
def _copy(entries: IntArray, start: int, stop: int, out: LongArray, n: int) -> int:
    # Slices, and below unsigned numbers, spare a test for negative indices in every step.
    source = entries[start:stop]
    target = out[n : n + len(source)]
    for j in range(len(source)):
        target[j] = source[j]
    return n + len(source)


@compiled
def _find_in_sections(
    x: float, y: float, entries: IntArray, boxes: FloatArray, begin: int, out: LongArray, n: int
) -> tuple[int, int]:
    """Write the positions of a sectioned cell's rectangles around a point, but for the last.

    Return where they end and how many entries were looked at.
    """
    ends = entries[begin : begin + HEADER]
    before = n
    start = _falls_to(entries, boxes, 0, begin + HEADER, begin + ends[MIN_X], x)
    stop = _falls_below(entries, boxes, 2, begin + ends[THROUGH], begin + ends[MAX_X], x)
    n = _copy(entries, start, stop, out, n)
    start = _falls_to(entries, boxes, 1, begin + ends[MAX_X], begin + ends[MIN_Y], y)
    stop = _falls_below(entries, boxes, 3, begin + ends[MIN_Y], begin + ends[MAX_Y], y)
    n = _copy(entries, start, stop, out, n)
    looked = n - before
    for section in range(MIN_X_MIN_Y, OTHER):
        start, stop = begin + ends[section - 1], begin + ends[section]
        if section <= MIN_X_MAX_Y:
            start = _falls_to(entries, boxes, 0, start, stop, x)
        else:
            stop = _falls_below(entries, boxes, 2, start, stop, x)
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
    x: FloatArray, y: FloatArray, time: LongArray, now: int, which: LongArray,
    ids: LongArray, boxes: FloatArray, expires: LongArray, origin: FloatArray,
    levels: FloatArray, starts: IntArray, entries: IntArray, dead: ByteArray,
    counts: IntArray, checks: IntArray, out: LongArray,
) -> int:  # fmt: skip
    """Write to ``out`` the ids of one index that contain each point, return how many.

    Takes the parts of an index rather than the index, and is one function rather than a few:
    numba counts references to every array that is handed on, in every step of the loop, and
    that takes longer than the matching.
    """
    origin_x, origin_y = origin[0], origin[1]
    n = 0
    for i in range(len(which)):
        px, py = x[which[i]], y[which[i]]
        first = n
        looked = 0
        for level in range(len(levels)):
            k = np.uint64(level)
            columns = int(levels[k, COLUMNS])
            column = place_of(px, origin_x, levels[k, SCALE_X], columns)
            row = place_of(py, origin_y, levels[k, SCALE_Y], int(levels[k, ROWS]))
            shift = int(levels[k, SHIFT])
            b = np.uint64(bucket_of_cell(column, row, columns, int(levels[k, FIRST]), shift))
            begin, end = int(starts[b]), int(starts[b + np.uint64(1)])
            if end - begin >= SECTIONED and shift == 0:
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
        # Ids in place of positions, without the dead and the expired.
        stop = n
        if len(dead) == 0 and len(expires) == 0:
            for j in range(first, stop):
                out[np.uint64(j)] = ids[np.uint64(out[np.uint64(j)])]
        else:
            at = time[which[i]] if len(time) else now
            n = first
            for j in range(first, stop):
                e64 = np.uint64(out[np.uint64(j)])
                out[np.uint64(n)] = ids[e64]
                n += (len(dead) == 0 or dead[e64] == 0) and (len(expires) == 0 or at < expires[e64])
        checks[i] += looked
        counts[i] += n - first
    return n


@compiled
def _interleaved(
    counts: IntArray, ids: LongArray, new_counts: IntArray, new_ids: LongArray
) -> LongArray:
    """Return for each point the ones, then the others."""
    out = np.empty(len(ids) + len(new_ids), np.int64)
    n = old = new = 0
    for i in range(len(counts)):
        for _ in range(counts[i]):
            out[np.uint64(n)] = ids[np.uint64(old)]
            n += 1
            old += 1
        for _ in range(new_counts[i]):
            out[np.uint64(n)] = new_ids[np.uint64(new)]
            n += 1
            new += 1
    return out
