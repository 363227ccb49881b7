"""Builds the index of a partition's rectangles; see :mod:`sparkswarm.index.layout`.

Runs in tasks, once per partition and batch with changed queries; pure, so it may run again.
"""

from __future__ import annotations

import numpy as np

from sparkswarm.compiled import FloatArray, IntArray, LongArray, compiled
from sparkswarm.errors import GeometryError
from sparkswarm.index.layout import (
    COLUMNS,
    FIRST,
    HEADER,
    MAX_X,
    MAX_X_MAX_Y,
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
    SECTIONS,
    SHIFT,
    THROUGH,
    RangeIndex,
    bucket_of_cell,
    frozen,
    place_of,
)
from sparkswarm.index.levels import choose_levels

_CROWDED = 32
"""Sort slots with more entries than this are sorted by comparison."""


def build_index(
    ids: LongArray,
    boxes: FloatArray,
    expires: LongArray | None,
    region: tuple[float, float, float, float],
) -> RangeIndex:
    """Return an index of rectangles for points in or close to a region.

    Parameters
    ----------
    ids
        Ids of the queries. An id that occurs twice is found twice.
    boxes
        Of shape (n, 4): min_x, min_y, max_x, max_y. They may extend beyond the region, be outside
        of it, or be infinite. One with a NaN, or with min above max, contains nothing.
    expires
        Expiry of each query in microseconds: it matches points before. None or an empty array
        where no query expires.
    region
        min_x, min_y, max_x, max_y, finite. Points anywhere are matched correctly, points in the
        region fast.
    """
    ids = np.ascontiguousarray(ids, dtype=np.int64)
    boxes = np.ascontiguousarray(boxes, dtype=np.float64).reshape(-1, 4)
    expires = np.empty(0, np.int64) if expires is None else np.ascontiguousarray(expires, np.int64)
    if len(boxes) != len(ids) or len(expires) not in (0, len(ids)):
        raise GeometryError(
            f"need as many ids as boxes, and as many expiry times or none, "
            f"got {len(ids)}, {len(boxes)} and {len(expires)}"
        )
    min_x, min_y, max_x, max_y = (float(edge) for edge in region)
    if not np.isfinite((max_x - min_x, max_y - min_y)).all() or max_x < min_x or max_y < min_y:
        raise GeometryError(f"a region needs finite min_x, min_y, max_x, max_y, got {region}")
    edges = np.array((min_x, min_y, max_x, max_y))
    level, levels = choose_levels(boxes, edges)
    order, sorted_boxes, level = _sort_by_bucket(boxes, level, levels, edges)
    starts, sectioned, section_number = _count_entries(sorted_boxes, level, levels, edges)
    entries = _fill(sorted_boxes, level, levels, edges, starts, section_number, sectioned)
    ids, expires = ids[order], expires[order] if len(expires) else expires
    return frozen(RangeIndex(ids, sorted_boxes, expires, edges[:2].copy(), levels, starts, entries))


@compiled
def _sort_by_bucket(
    boxes: FloatArray, level: IntArray, levels: FloatArray, region: FloatArray
) -> tuple[IntArray, FloatArray, IntArray]:
    """Sort rectangles by the bucket of their lower left corner; empty rectangles come last.

    Return the order, and the rectangles and levels in this order.
    """
    n = len(boxes)
    buckets = _buckets(levels)
    at = np.zeros(buckets + 2, np.int32)
    key = np.empty(n, np.int32)
    for i in range(n):
        key[i] = buckets
        if level[i] >= 0:
            v = levels[level[i]]
            column = place_of(boxes[i, 0], region[0], v[SCALE_X], int(v[COLUMNS]))
            row = place_of(boxes[i, 1], region[1], v[SCALE_Y], int(v[ROWS]))
            key[i] = bucket_of_cell(column, row, int(v[COLUMNS]), int(v[FIRST]), int(v[SHIFT]))
        at[key[i] + 1] += 1
    for b in range(buckets + 1):
        at[b + 1] += at[b]
    order = np.empty(n, np.int32)
    sorted_boxes = np.empty((n, 4))
    sorted_level = np.empty(n, np.int32)
    for i in range(n):
        to = at[key[i]]
        at[key[i]] += 1
        order[to] = i
        sorted_level[to] = level[i]
        for edge in range(4):
            sorted_boxes[to, edge] = boxes[i, edge]
    return order, sorted_boxes, sorted_level


@compiled
def _buckets(levels: FloatArray) -> int:
    if len(levels) == 0:
        return 0
    last = levels[-1]
    if last[SHIFT] > 0.0:
        return int(last[FIRST]) + (1 << (64 - int(last[SHIFT])))
    return int(last[FIRST]) + int(last[COLUMNS]) * int(last[ROWS])


@compiled
def _cells(
    box: FloatArray, v: FloatArray, region: FloatArray
) -> tuple[int, int, int, int, int, int, int]:
    """Return left, low, right, high of a box in cells, and columns, first bucket, shift."""
    columns, rows = int(v[COLUMNS]), int(v[ROWS])
    return (
        place_of(box[0], region[0], v[SCALE_X], columns),
        place_of(box[1], region[1], v[SCALE_Y], rows),
        place_of(box[2], region[0], v[SCALE_X], columns),
        place_of(box[3], region[1], v[SCALE_Y], rows),
        columns,
        int(v[FIRST]),
        int(v[SHIFT]),
    )


@compiled
def _seen_before(
    left: int, low: int, right: int, column: int, row: int, columns: int, first: int, shift: int
) -> bool:
    """Whether an earlier cell of the same rectangle is in the same bucket of a hash table."""
    bucket = bucket_of_cell(column, row, columns, first, shift)
    for r in range(low, row + 1):
        for c in range(left, right + 1):
            if r == row and c == column:
                return False
            if bucket_of_cell(c, r, columns, first, shift) == bucket:
                return True
    return False


@compiled
def _section_of(column: int, row: int, left: int, low: int, right: int, high: int) -> int:
    """Return the section of a cell for a rectangle that spans these cells."""
    if left == right or low == high:
        # Both edges of one axis are in the cell.
        return OTHER
    if column == left:
        return MIN_X_MIN_Y if row == low else (MIN_X_MAX_Y if row == high else MIN_X)
    if column == right:
        return MAX_X_MIN_Y if row == low else (MAX_X_MAX_Y if row == high else MAX_X)
    return MIN_Y if row == low else (MAX_Y if row == high else THROUGH)


@compiled
def _count_entries(
    boxes: FloatArray, level: IntArray, levels: FloatArray, region: FloatArray
) -> tuple[IntArray, int, IntArray]:
    """Return ``starts``, the number of buckets with sections, and their numbers by bucket.

    The number is -1 for a bucket without sections.
    """
    buckets = _buckets(levels)
    starts = np.zeros(buckets + 1, np.int32)
    for i in range(len(boxes)):
        if level[i] < 0:
            continue
        left, low, right, high, columns, first, shift = _cells(boxes[i], levels[level[i]], region)
        for row in range(low, high + 1):
            for column in range(left, right + 1):
                if shift and _seen_before(left, low, right, column, row, columns, first, shift):
                    continue
                starts[bucket_of_cell(column, row, columns, first, shift)] += 1
    section_number = np.full(buckets, -1, np.int32)
    sectioned = 0
    total = 0
    for k in range(len(levels)):
        stop = int(levels[k + 1, FIRST]) if k + 1 < len(levels) else buckets
        for b in range(int(levels[k, FIRST]), stop):
            length = starts[b]
            if length >= SECTIONED and levels[k, SHIFT] == 0.0:
                length += HEADER
                section_number[b] = sectioned
                sectioned += 1
            starts[b] = total
            total += length
    starts[buckets] = total
    return starts, sectioned, section_number


@compiled
def _fill(
    boxes: FloatArray,
    level: IntArray,
    levels: FloatArray,
    region: FloatArray,
    starts: IntArray,
    section_number: IntArray,
    sectioned: int,
) -> IntArray:
    """Return ``entries``."""
    entries = np.empty(starts[-1], np.int32)
    at = starts[:-1].copy()
    ends = np.zeros((sectioned, SECTIONS), np.int32)
    for writing in range(2):
        for i in range(len(boxes)):
            if level[i] < 0:
                continue
            v = levels[level[i]]
            left, low, right, high, columns, first, shift = _cells(boxes[i], v, region)
            for row in range(low, high + 1):
                for column in range(left, right + 1):
                    b = bucket_of_cell(column, row, columns, first, shift)
                    cell = section_number[b]
                    if cell >= 0:
                        section = _section_of(column, row, left, low, right, high)
                        if writing:
                            ends[cell, section] -= 1
                            entries[ends[cell, section]] = i
                        else:
                            ends[cell, section] += 1
                    elif not writing and not (
                        shift and _seen_before(left, low, right, column, row, columns, first, shift)
                    ):
                        entries[at[b]] = i
                        at[b] += 1
        if sectioned == 0:
            return entries
        if not writing:
            for b in range(len(section_number)):
                if section_number[b] >= 0:
                    end = HEADER
                    for section in range(SECTIONS):
                        end += ends[section_number[b], section]
                        ends[section_number[b], section] = starts[b] + end
                        if section < HEADER:
                            entries[starts[b] + section] = end
    keys = np.empty(1024)
    sorted_keys = np.empty(1024)
    sorted_entries = np.empty(1024, np.int32)
    counts = np.empty(1025, np.int32)
    for b in range(len(section_number)):
        if section_number[b] < 0:
            continue
        for section in range(OTHER):
            if section == THROUGH:
                continue
            start = starts[b] + (entries[starts[b] + section - 1] if section else HEADER)
            found = entries[start : starts[b] + entries[starts[b] + section]]
            if len(found) > len(keys):
                keys = np.empty(2 * len(found))
                sorted_keys = np.empty(2 * len(found))
                sorted_entries = np.empty(2 * len(found), np.int32)
                counts = np.empty(2 * len(found) + 1, np.int32)
            edge = _edge_of(section)
            for j in range(len(found)):
                keys[j] = boxes[found[j], edge]
            _sort_descending(keys, found, sorted_keys, sorted_entries, counts)
    return entries


@compiled
def _edge_of(section: int) -> int:
    """Return the column of ``boxes`` that a section is sorted by."""
    if section in (MIN_X, MIN_X_MIN_Y, MIN_X_MAX_Y):
        return 0
    if section == MIN_Y:
        return 1
    return 3 if section == MAX_Y else 2


@compiled
def _slot(below: float, scale: float) -> int:
    return int(below * scale) if scale > 0.0 else 0


@compiled
def _sort_descending(
    keys: FloatArray,
    entries: IntArray,
    sorted_keys: FloatArray,
    sorted_entries: IntArray,
    counts: IntArray,
) -> None:
    """Sort entries by their keys, the largest first; the other arrays are buffers.

    Entries are distributed to as many slots as there are entries, evenly from the largest key to
    the smallest, and each slot is sorted: linear time unless most entries are in a few slots.
    """
    n = len(entries)
    if n < 2:
        return
    low = high = keys[0]
    for j in range(n):
        low = min(low, keys[j])
        high = max(high, keys[j])
    scale = (n - 1) / (high - low) if high > low else 0.0
    if not (scale < np.inf and high - low < np.inf):
        scale = 0.0
    counts[: n + 1] = 0
    for j in range(n):
        counts[_slot(high - keys[j], scale) + 1] += 1
    for j in range(n):
        counts[j + 1] += counts[j]
    for j in range(n):
        slot = _slot(high - keys[j], scale)
        sorted_keys[counts[slot]] = keys[j]
        sorted_entries[counts[slot]] = entries[j]
        counts[slot] += 1
    start = 0
    for slot in range(n):
        stop = counts[slot]
        if stop - start > _CROWDED:
            order = np.argsort(-sorted_keys[start:stop])
            entries[start:stop] = sorted_entries[start:stop][order]
        else:
            for j in range(start, stop):
                key, entry = sorted_keys[j], sorted_entries[j]
                k = j
                while k > start and sorted_keys[k - 1] < key:
                    sorted_keys[k] = sorted_keys[k - 1]
                    entries[k] = entries[k - 1]
                    k -= 1
                sorted_keys[k] = key
                entries[k] = entry
        start = stop
