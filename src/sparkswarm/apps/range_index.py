"""Continuous range queries of one partition: an index of rectangles, and points against it.

Owns how a partition's rectangles are laid out in memory and how points find those that
contain them; it knows neither the protocol nor Spark. A point matches a rectangle when
``min_x <= x <= max_x`` and ``min_y <= y <= max_y``, compared exactly in 64-bit floats.

A rectangle lives on the **level** of its width and height: those of one level differ by less
than two in either, and the level's cells are about half as wide and high as the largest, so
a rectangle touches some 2 to 9 cells whatever its shape. A cell lists the rectangles that
touch it. Cells are found by a formula that never decreases as a coordinate grows, so a point
in a cell strictly between those of a rectangle's two edges is strictly between the edges: a
rectangle that only passes through a cell needs no comparison at all there. A cell with many
rectangles lists them in ten **sections** by which of their edges lie in the cell; a section
with one edge is sorted by it, so that a binary search finds the end of the matches, and only
corners are compared one by one. See :class:`RangeIndex` for the layout.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sparkswarm.errors import GeometryError
from sparkswarm.protocol._compiled import compiled

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int32]
LongArray = npt.NDArray[np.int64]
ByteArray = npt.NDArray[np.uint8]

NEVER = 2**63 - 1
"""The expiry of a query that stays."""

# Columns of RangeIndex.levels.
_SCALE_X = 0  # cells per unit of x
_SCALE_Y = 1
_COLUMNS = 2
_ROWS = 3
_FIRST = 4  # where the level's buckets begin in ``starts``
_SHIFT = 5  # 0: every cell has its own bucket; else the hash is shifted by this
_LEVEL_FIELDS = 6

_CELLS_A_SIDE = 2.0 * (1.0 - 2.0**-20)
"""Cells that the widest rectangle of a level spans, a little below 2 for rounding's sake, so
that none touches more than three."""
_MAX_COLUMNS = 1 << 24
"""Columns, and rows, of the finest level: rounding must stay far below a cell."""
_CLASSES = 25
"""Classes of width, each half of the one before; the last has all that is smaller still."""
_CELLS_A_QUERY = 8
"""A level with more cells than this for each of its rectangles keeps them in a hash table, of
half as many buckets or more."""
_FOLD = 16
"""A level with this many times fewer rectangles than a coarser one is folded into it."""
_SECTIONED = 128
"""A cell with at least this many rectangles lists them in sections."""
_HEADER = 9
"""Numbers at the head of a cell in sections: where each section but the last ends."""
_CROWDED = 32
"""Slots of a sort with more than this are sorted by comparison."""
_SORT_FROM = 256
"""Calls with fewer points than this take them as they come."""
_RUNS = 1 << 13
"""Runs of buckets by which points are sorted."""
_HASH = np.uint64(0x9E3779B97F4A7C15)

# The sections, by the edges that lie in the cell. The first three have their matches next to
# each other, and so have the two after them.
_MIN_X = 0
_THROUGH = 1
_MAX_X = 2
_MIN_Y = 3
_MAX_Y = 4
_MIN_X_MIN_Y = 5
_MIN_X_MAX_Y = 6
_MAX_X_MIN_Y = 7
_MAX_X_MAX_Y = 8
_OTHER = 9
_SECTIONS = 10


class RangeIndex(NamedTuple):
    """Rectangles, laid out to be found; plain arrays that may be stored and mapped.

    ``starts[b]`` to ``starts[b + 1]`` is the stretch of ``entries`` that bucket ``b`` has. An
    entry is a position in ``ids`` and ``boxes``. A level has a bucket for each cell, row by
    row, or where it would have too many cells a hash table of them, in which cells may share
    a bucket: what is found there is compared in full. Elsewhere a stretch of at least
    ``_SECTIONED`` numbers begins with the ends of its sections, counted from its start.
    """

    ids: LongArray
    """Of shape (n,): the queries' numbers, by level and within it by place."""
    boxes: FloatArray
    """Of shape (n, 4): min_x, min_y, max_x, max_y, not clipped."""
    expires: LongArray
    """Of shape (n,), or (0,) where none expires: a query matches points before this time."""
    origin: FloatArray
    """Of shape (2,): the region's min_x and min_y."""
    levels: FloatArray
    """Of shape (levels, 6): cells per unit of x and of y, columns, rows, the first bucket,
    and by how much the hash is shifted (0 where there is none)."""
    starts: IntArray
    """Of shape (buckets + 1,)."""
    entries: IntArray
    """Of shape (starts[-1],)."""

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(array.nbytes for array in self)


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


# -- building ----------------------------------------------------------------------------------


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
        The queries' numbers. The same number may come twice; it is then found twice.
    boxes
        Of shape (n, 4): min_x, min_y, max_x, max_y. They may stick out of the region, lie
        beyond it, or be infinite. One with a NaN, or with min above max, contains nothing.
    expires
        For each query the time, in microseconds, from which on it matches no more; None or
        an empty array where all stay for ever.
    region
        min_x, min_y, max_x, max_y, finite. Points anywhere get right answers; points in the
        region get them fast.
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
    level, levels = _choose_levels(boxes, edges)
    order, sorted_boxes, level = _in_own_order(boxes, level, levels, edges)
    starts, sectioned, which = _count_entries(sorted_boxes, level, levels, edges)
    entries = _fill(sorted_boxes, level, levels, edges, starts, which, sectioned)
    ids, expires = ids[order], expires[order] if len(expires) else expires
    return _frozen(
        RangeIndex(ids, sorted_boxes, expires, edges[:2].copy(), levels, starts, entries)
    )


def _frozen(index: RangeIndex) -> RangeIndex:
    """Return the index with arrays of the one kind that the kernel is compiled for."""
    return RangeIndex(*(_readonly(array, array.dtype) for array in index))


def _readonly(array: npt.ArrayLike, dtype: npt.DTypeLike) -> Any:
    """Return a contiguous view that cannot be written: one kind of array, one compilation."""
    plain = np.require(array, dtype, ["C", "A"])
    if plain.flags.writeable or type(plain) is not np.ndarray:
        plain = plain.view(np.ndarray)
        plain.flags.writeable = False
    return plain


@compiled
def _place(value: float, low: float, scale: float, number: int) -> int:
    """Return the cell of a coordinate: never less for a larger one, 0 for NaN."""
    at = (value - low) * scale
    if not at > 0.0:
        return 0
    return int(at) if at < number else number - 1


@compiled
def _bucket(column: int, row: int, columns: int, first: int, shift: int) -> int:
    cell = row * columns + column
    if shift:
        cell = int(np.int64((np.uint64(cell) * _HASH) >> np.uint64(shift)))
    return first + cell


@compiled
def _class_of(extent: float, whole: float) -> int:
    """Return how often the whole can be halved and still be at least the extent."""
    number = 0
    half = whole * 0.5
    while number < _CLASSES - 1 and extent <= half:
        half *= 0.5
        number += 1
    return number


@compiled
def _scale(widest: float, whole: float) -> tuple[float, int]:
    """Return cells per unit and cells, for cells of about half the widest rectangle."""
    number = 1
    if widest < whole:
        number = _MAX_COLUMNS
        # Divided first: near the largest floats a product would be infinite.
        if widest / whole * _MAX_COLUMNS > _CELLS_A_SIDE:
            number = max(1, int(whole / widest * _CELLS_A_SIDE))
    scale = number / whole if whole > 0.0 else np.inf
    if not np.isfinite(scale):
        return 0.0, 1
    return scale, number


@compiled
def _choose_levels(boxes: FloatArray, region: FloatArray) -> tuple[IntArray, FloatArray]:
    """Return the level of every rectangle and what is to be known of each level."""
    n = len(boxes)
    whole_x, whole_y = region[2] - region[0], region[3] - region[1]
    classes = np.empty(n, np.int32)
    number = np.zeros(_CLASSES * _CLASSES, np.int64)
    widest = np.zeros((_CLASSES * _CLASSES, 2))
    for i in range(n):
        box = boxes[i]
        classes[i] = -1
        if not (box[0] <= box[2] and box[1] <= box[3]):
            continue
        # Only the part in the region counts.
        width = min(max(box[2], region[0]), region[2]) - min(max(box[0], region[0]), region[2])
        height = min(max(box[3], region[1]), region[3]) - min(max(box[1], region[1]), region[3])
        at = _class_of(width, whole_x) * _CLASSES + _class_of(height, whole_y)
        classes[i] = at
        number[at] += 1
        widest[at, 0] = max(widest[at, 0], width)
        widest[at, 1] = max(widest[at, 1], height)
    # Fold a rare class into the finest of the coarser ones that have many more.
    home = np.arange(_CLASSES * _CLASSES)
    for at in range(_CLASSES * _CLASSES):
        if number[at] == 0:
            continue
        best = -1
        for x in range(at // _CLASSES + 1):
            for y in range(at % _CLASSES + 1):
                other = x * _CLASSES + y
                if (
                    number[other] >= _FOLD * number[at]
                    and home[other] == other
                    and (best < 0 or x + y >= best // _CLASSES + best % _CLASSES)
                ):
                    best = other
        if best >= 0:
            home[at] = best
            widest[best, 0] = max(widest[best, 0], widest[at, 0])
            widest[best, 1] = max(widest[best, 1], widest[at, 1])
    total = np.zeros(_CLASSES * _CLASSES, np.int64)
    for at in range(_CLASSES * _CLASSES):
        total[home[at]] += number[at]
    levels = np.empty((np.count_nonzero(total), _LEVEL_FIELDS))
    numbered = np.zeros(_CLASSES * _CLASSES, np.int64)
    level = 0
    first = 0
    for at in range(_CLASSES * _CLASSES):
        if total[at] == 0:
            continue
        scale_x, columns = _scale(widest[at, 0], whole_x)
        scale_y, rows = _scale(widest[at, 1], whole_y)
        buckets = columns * rows
        shift = 0
        if buckets > _CELLS_A_QUERY * total[at]:
            shift = 63
            while (1 << (64 - shift)) < _CELLS_A_QUERY // 2 * total[at]:
                shift -= 1
            buckets = 1 << (64 - shift)
        levels[level, _SCALE_X] = scale_x
        levels[level, _SCALE_Y] = scale_y
        levels[level, _COLUMNS] = columns
        levels[level, _ROWS] = rows
        levels[level, _FIRST] = first
        levels[level, _SHIFT] = shift
        first += buckets
        numbered[at] = level
        level += 1
    out = np.empty(n, np.int32)
    for i in range(n):
        out[i] = numbered[home[classes[i]]] if classes[i] >= 0 else -1
    return out, levels


@compiled
def _in_own_order(
    boxes: FloatArray, level: IntArray, levels: FloatArray, region: FloatArray
) -> tuple[IntArray, FloatArray, IntArray]:
    """Sort rectangles by the bucket of their lower left corner, those without one last.

    Return the order, and rectangles and levels in it.
    """
    n = len(boxes)
    buckets = _buckets(levels)
    at = np.zeros(buckets + 2, np.int32)
    key = np.empty(n, np.int32)
    for i in range(n):
        key[i] = buckets
        if level[i] >= 0:
            v = levels[level[i]]
            column = _place(boxes[i, 0], region[0], v[_SCALE_X], int(v[_COLUMNS]))
            row = _place(boxes[i, 1], region[1], v[_SCALE_Y], int(v[_ROWS]))
            key[i] = _bucket(column, row, int(v[_COLUMNS]), int(v[_FIRST]), int(v[_SHIFT]))
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
    if last[_SHIFT] > 0.0:
        return int(last[_FIRST]) + (1 << (64 - int(last[_SHIFT])))
    return int(last[_FIRST]) + int(last[_COLUMNS]) * int(last[_ROWS])


@compiled
def _cells(
    box: FloatArray, v: FloatArray, region: FloatArray
) -> tuple[int, int, int, int, int, int, int]:
    """Return first and last column and row, and columns, first bucket and shift."""
    columns, rows = int(v[_COLUMNS]), int(v[_ROWS])
    return (
        _place(box[0], region[0], v[_SCALE_X], columns),
        _place(box[1], region[1], v[_SCALE_Y], rows),
        _place(box[2], region[0], v[_SCALE_X], columns),
        _place(box[3], region[1], v[_SCALE_Y], rows),
        columns,
        int(v[_FIRST]),
        int(v[_SHIFT]),
    )


@compiled
def _seen_before(
    left: int, low: int, right: int, column: int, row: int, columns: int, first: int, shift: int
) -> bool:
    """Whether an earlier cell of the same rectangle has the same bucket of a hash table."""
    bucket = _bucket(column, row, columns, first, shift)
    for r in range(low, row + 1):
        for c in range(left, right + 1):
            if r == row and c == column:
                return False
            if _bucket(c, r, columns, first, shift) == bucket:
                return True
    return False


@compiled
def _section_of(column: int, row: int, left: int, low: int, right: int, high: int) -> int:
    """Return the section in a cell for a rectangle that touches these."""
    if left == right or low == high:
        # The cell has both edges of one axis.
        return _OTHER
    if column == left:
        return _MIN_X_MIN_Y if row == low else (_MIN_X_MAX_Y if row == high else _MIN_X)
    if column == right:
        return _MAX_X_MIN_Y if row == low else (_MAX_X_MAX_Y if row == high else _MAX_X)
    return _MIN_Y if row == low else (_MAX_Y if row == high else _THROUGH)


@compiled
def _count_entries(
    boxes: FloatArray, level: IntArray, levels: FloatArray, region: FloatArray
) -> tuple[IntArray, int, IntArray]:
    """Return ``starts``, the number of cells in sections, and their numbers by bucket.

    The last is -1 for a bucket that is listed plainly.
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
                starts[_bucket(column, row, columns, first, shift)] += 1
    which = np.full(buckets, -1, np.int32)
    sectioned = 0
    total = 0
    for k in range(len(levels)):
        stop = int(levels[k + 1, _FIRST]) if k + 1 < len(levels) else buckets
        for b in range(int(levels[k, _FIRST]), stop):
            length = starts[b]
            if length >= _SECTIONED and levels[k, _SHIFT] == 0.0:
                length += _HEADER
                which[b] = sectioned
                sectioned += 1
            starts[b] = total
            total += length
    starts[buckets] = total
    return starts, sectioned, which


@compiled
def _fill(
    boxes: FloatArray,
    level: IntArray,
    levels: FloatArray,
    region: FloatArray,
    starts: IntArray,
    which: IntArray,
    sectioned: int,
) -> IntArray:
    """Return ``entries``."""
    entries = np.empty(starts[-1], np.int32)
    at = starts[:-1].copy()
    ends = np.zeros((sectioned, _SECTIONS), np.int32)
    for writing in range(2):
        for i in range(len(boxes)):
            if level[i] < 0:
                continue
            v = levels[level[i]]
            left, low, right, high, columns, first, shift = _cells(boxes[i], v, region)
            for row in range(low, high + 1):
                for column in range(left, right + 1):
                    b = _bucket(column, row, columns, first, shift)
                    cell = which[b]
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
            for b in range(len(which)):
                if which[b] >= 0:
                    end = _HEADER
                    for section in range(_SECTIONS):
                        end += ends[which[b], section]
                        ends[which[b], section] = starts[b] + end
                        if section < _HEADER:
                            entries[starts[b] + section] = end
    keys = np.empty(1024)
    sorted_keys = np.empty(1024)
    sorted_entries = np.empty(1024, np.int32)
    counts = np.empty(1025, np.int32)
    for b in range(len(which)):
        if which[b] < 0:
            continue
        for section in range(_OTHER):
            if section == _THROUGH:
                continue
            start = starts[b] + (entries[starts[b] + section - 1] if section else _HEADER)
            found = entries[start : starts[b] + entries[starts[b] + section]]
            if len(found) > len(keys):
                keys = np.empty(2 * len(found))
                sorted_keys = np.empty(2 * len(found))
                sorted_entries = np.empty(2 * len(found), np.int32)
                counts = np.empty(2 * len(found) + 1, np.int32)
            edge = _edge_of(section)
            for j in range(len(found)):
                keys[j] = boxes[found[j], edge]
            _sort_falling(keys, found, sorted_keys, sorted_entries, counts)
    return entries


@compiled
def _edge_of(section: int) -> int:
    """Return the column of ``boxes`` that a section is sorted by."""
    if section in (_MIN_X, _MIN_X_MIN_Y, _MIN_X_MAX_Y):
        return 0
    if section == _MIN_Y:
        return 1
    return 3 if section == _MAX_Y else 2


@compiled
def _slot(below: float, scale: float) -> int:
    return int(below * scale) if scale > 0.0 else 0


@compiled
def _sort_falling(
    keys: FloatArray,
    entries: IntArray,
    sorted_keys: FloatArray,
    sorted_entries: IntArray,
    counts: IntArray,
) -> None:
    """Sort entries by their keys, the largest first; the other arrays are room to work in.

    Entries are dealt to as many slots as there are entries, evenly from the largest key to
    the smallest, and slots are sorted one by one: linear time unless nearly all are crowded
    in a few slots.
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


EMPTY = _frozen(
    RangeIndex(
        ids=np.empty(0, np.int64),
        boxes=np.empty((0, 4)),
        expires=np.empty(0, np.int64),
        origin=np.zeros(2),
        levels=np.empty((0, _LEVEL_FIELDS)),
        starts=np.zeros(1, np.int32),
        entries=np.empty(0, np.int32),
    )
)
"""An index without queries."""


# -- matching ----------------------------------------------------------------------------------


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
    x, y = _readonly(x, np.float64), _readonly(y, np.float64)
    times: LongArray = _readonly(() if time is None else time, np.int64)
    which = _readonly(which, np.int64)
    gone: ByteArray = _readonly(() if dead is None else dead, np.uint8)
    _check(x, y, times, which, gone, base)
    base, delta = _frozen(base), _frozen(delta)
    if len(which) >= _SORT_FROM:
        which = _readonly(_by_place(x, y, which, base), np.int64)
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
            stop = index.levels[k + 1, _FIRST]
        if stop - index.levels[k, _FIRST] > most:
            most = stop - index.levels[k, _FIRST]
            main = k
    if most <= 0:
        return which.copy()
    first = int(index.levels[main, _FIRST])
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
    columns = int(levels[k, _COLUMNS])
    column = _place(x, origin[0], levels[k, _SCALE_X], columns)
    row = _place(y, origin[1], levels[k, _SCALE_Y], int(levels[k, _ROWS]))
    return _bucket(column, row, columns, int(levels[k, _FIRST]), int(levels[k, _SHIFT]))


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
    ends = entries[begin : begin + _HEADER]
    before = n
    start = _falls_to(entries, boxes, 0, begin + _HEADER, begin + ends[_MIN_X], x)
    stop = _falls_below(entries, boxes, 2, begin + ends[_THROUGH], begin + ends[_MAX_X], x)
    n = _copy(entries, start, stop, out, n)
    start = _falls_to(entries, boxes, 1, begin + ends[_MAX_X], begin + ends[_MIN_Y], y)
    stop = _falls_below(entries, boxes, 3, begin + ends[_MIN_Y], begin + ends[_MAX_Y], y)
    n = _copy(entries, start, stop, out, n)
    looked = n - before
    for section in range(_MIN_X_MIN_Y, _OTHER):
        start, stop = begin + ends[section - 1], begin + ends[section]
        if section <= _MIN_X_MAX_Y:
            start = _falls_to(entries, boxes, 0, start, stop, x)
        else:
            stop = _falls_below(entries, boxes, 2, start, stop, x)
        looked += stop - start
        if section in (_MIN_X_MIN_Y, _MAX_X_MIN_Y):
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
            columns = int(levels[k, _COLUMNS])
            column = _place(px, origin_x, levels[k, _SCALE_X], columns)
            row = _place(py, origin_y, levels[k, _SCALE_Y], int(levels[k, _ROWS]))
            shift = int(levels[k, _SHIFT])
            b = np.uint64(_bucket(column, row, columns, int(levels[k, _FIRST]), shift))
            begin, end = int(starts[b]), int(starts[b + np.uint64(1)])
            if end - begin >= _SECTIONED and shift == 0:
                n, more = _find_in_sections(px, py, entries, boxes, begin, out, n)
                looked += more
                begin += entries[begin + _OTHER - 1]
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
