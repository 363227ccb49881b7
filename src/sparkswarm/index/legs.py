"""Legs: which shapes a straight line between two places passes through.

Owns the search for them in an index, and the compiled test. A leg *crosses* a shape that it meets
and that contains neither of its ends, boundaries included. Whether it meets a rectangle or a
polygon is decided exactly (:mod:`sparkswarm.index.orientation`): it crosses a polygon if and only
if it meets an edge of it. Circles are compared in floats, up to their rounding. A leg is straight
in the coordinates, also where these are degrees.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sparkswarm.compiled import ByteArray, FloatArray, LongArray, compiled
from sparkswarm.index.layout import (
    COLUMNS,
    FIRST,
    HEADER,
    ROWS,
    SCALE_X,
    SCALE_Y,
    SECTIONED,
    SHIFT,
    RangeIndex,
    bucket_of_cell,
    place_of,
    readonly,
)
from sparkswarm.index.orientation import orientation
from sparkswarm.index.shapes import (
    CELLS,
    CIRCLE,
    EARTH_RADIUS,
    KIND,
    LEAST_CELL,
    MIXED,
    RECORD,
    RECTANGLE,
    SIZE,
    SPHERE,
    TABLE_FIELDS,
    PreparedShapes,
    covers,
    touched_columns,
)
from sparkswarm.index.shapes import ROWS as RASTER_ROWS

NO_SHAPES = PreparedShapes(
    readonly((), np.float64),
    readonly(np.empty((0, TABLE_FIELDS)), np.int64),
    readonly(np.empty((0, 4)), np.float64),
    *(readonly((), kind) for kind in (np.uint8, np.int64, np.int32)),
)
"""The shapes of queries that are rectangles."""
_FINEST = 1e-12
"""Part of a circle's squared radius below which a leg that may touch it does not."""


class Legs(NamedTuple):
    """Straight lines from one place to another, and the time of arrival of each."""

    from_x: FloatArray
    from_y: FloatArray
    x: FloatArray
    y: FloatArray
    time: LongArray

    def take(self, rows: LongArray) -> Legs:
        """Return some of the legs."""
        return Legs(
            self.from_x[rows], self.from_y[rows], self.x[rows], self.y[rows], self.time[rows]
        )


@compiled
def find_crossed(
    legs: Legs, index: RangeIndex, removed: ByteArray, shapes: PreparedShapes
) -> tuple[LongArray, LongArray]:
    """Return the pairs of a leg and the position of a query whose shape it crosses.

    Queries that expire before the arrival don't count, nor do those that ``removed`` says.
    ``shapes`` are :data:`NO_SHAPES` where all queries are rectangles.
    """
    number = len(index.ids)
    leg, position, n = np.empty(16, np.int64), np.empty(16, np.int64), 0
    looked = np.full(number, -1, np.int32)
    all_of_them = np.arange(number).astype(np.int32)
    for i in range(len(legs.time)):
        low_x, high_x = min(legs.from_x[i], legs.x[i]), max(legs.from_x[i], legs.x[i])
        low_y, high_y = min(legs.from_y[i], legs.y[i]), max(legs.from_y[i], legs.y[i])
        cells = 0
        for k in range(len(index.levels)):
            v = index.levels[k]
            left, right = _places(low_x, high_x, index.origin[0], v[SCALE_X], int(v[COLUMNS]))
            low, high = _places(low_y, high_y, index.origin[1], v[SCALE_Y], int(v[ROWS]))
            cells += (right - left + 1) * (high - low + 1)
        # With more cells than queries, all queries are looked at instead.
        few = cells < number
        for k in range(len(index.levels) if few else 1):
            left = right = low = high = 0
            v = index.levels[k]
            if few:
                left, right = _places(low_x, high_x, index.origin[0], v[SCALE_X], int(v[COLUMNS]))
                low, high = _places(low_y, high_y, index.origin[1], v[SCALE_Y], int(v[ROWS]))
            for row in range(low, high + 1):
                for column in range(left, right + 1):
                    found = all_of_them
                    if few:
                        shift = int(v[SHIFT])
                        b = bucket_of_cell(column, row, int(v[COLUMNS]), int(v[FIRST]), shift)
                        begin, end = index.starts[b], index.starts[b + 1]
                        if end - begin >= SECTIONED and shift == 0:
                            begin += HEADER
                        found = index.entries[begin:end]
                    for q in found:
                        if looked[q] == i:
                            continue
                        looked[q] = i
                        box = index.boxes[q]
                        if not (
                            box[0] <= high_x
                            and low_x <= box[2]
                            and box[1] <= high_y
                            and low_y <= box[3]
                        ):
                            continue
                        if len(removed) and removed[q]:
                            continue
                        if len(index.expires) and legs.time[i] >= index.expires[q]:
                            continue
                        if not crosses(
                            shapes,
                            int(q),
                            box,
                            legs.from_x[i],
                            legs.from_y[i],
                            legs.x[i],
                            legs.y[i],
                        ):
                            continue
                        if n == len(leg):
                            leg = np.concatenate((leg, np.empty_like(leg)))
                            position = np.concatenate((position, np.empty_like(position)))
                        leg[n], position[n] = i, q
                        n += 1
    return leg[:n], position[:n]


@compiled
def _places(low: float, high: float, origin: float, scale: float, number: int) -> tuple[int, int]:
    return place_of(low, origin, scale, number), place_of(high, origin, scale, number)


@compiled
def crosses(
    shapes: PreparedShapes,
    query: int,
    box: FloatArray,
    ax: float,
    ay: float,
    bx: float,
    by: float,
) -> bool:
    """Return whether the leg from a to b crosses the shape of a query with this rectangle."""
    if _contains(shapes, query, box, ax, ay) or _contains(shapes, query, box, bx, by):
        return False
    kind = shapes.table[query, KIND] if len(shapes.table) else RECTANGLE
    if kind == RECTANGLE:
        return _meets_rectangle(box, ax, ay, bx, by)
    record = shapes.words[shapes.table[query, RECORD] :]
    if kind == CIRCLE:
        return _meets_circle(record[1], record[2], record[3], ax, ay, bx, by)
    if kind == SPHERE:
        return _meets_sphere(record[1], record[2], record[3], ax, ay, bx, by)
    return _meets_boundary(shapes, query, ax, ay, bx, by)


@compiled
def _contains(shapes: PreparedShapes, query: int, box: FloatArray, x: float, y: float) -> bool:
    if not (box[0] <= x <= box[2] and box[1] <= y <= box[3]):
        return False
    return len(shapes.table) == 0 or covers(shapes, query, x, y)


@compiled
def _meets_rectangle(box: FloatArray, ax: float, ay: float, bx: float, by: float) -> bool:
    """Return whether a leg meets a rectangle that its own rectangle meets."""
    first = orientation(ax, ay, bx, by, box[0], box[1])
    if first == 0 or first != orientation(ax, ay, bx, by, box[2], box[1]):
        return True
    if first != orientation(ax, ay, bx, by, box[2], box[3]):
        return True
    # Apart, if all corners are on one side of the line.
    return bool(first != orientation(ax, ay, bx, by, box[0], box[3]))


@compiled
def _meets_circle(
    x: float, y: float, radius: float, ax: float, ay: float, bx: float, by: float
) -> bool:
    dx, dy = bx - ax, by - ay
    length = dx * dx + dy * dy
    part = ((x - ax) * dx + (y - ay) * dy) / length if length > 0.0 else 0.0
    part = min(1.0, max(0.0, part))
    apart_x, apart_y = x - (ax + part * dx), y - (ay + part * dy)
    return bool(apart_x * apart_x + apart_y * apart_y <= radius * radius)


@compiled
def _haversine(x: float, y: float, px: float, py: float) -> float:
    sin_y, sin_x = np.sin(np.radians(py - y) * 0.5), np.sin(np.radians(px - x) * 0.5)
    return float(sin_y * sin_y + np.cos(np.radians(py)) * np.cos(np.radians(y)) * sin_x * sin_x)


@compiled
def _meets_sphere(
    x: float, y: float, radius: float, ax: float, ay: float, bx: float, by: float
) -> bool:
    """Return whether a leg comes as near as the radius, in metres.

    The leg is halved where it may. Over the whole leg the second derivative of the haversine is
    at most ``bend``, so within a part it is below the smaller of its ends by an eighth of that,
    times the square of the part, at most.
    """
    half = 0.5 * radius / EARTH_RADIUS
    if half >= 0.5 * np.pi:
        return True
    limit = np.sin(half) ** 2
    bend = 0.5 * (abs(np.radians(bx - ax)) + abs(np.radians(by - ay))) ** 2
    parts = np.empty((128, 4))
    parts[0, 0], parts[0, 1] = 0.0, 1.0
    parts[0, 2], parts[0, 3] = _haversine(x, y, ax, ay), _haversine(x, y, bx, by)
    n = 1
    while n > 0:
        n -= 1
        start, stop, at_start, at_stop = parts[n]
        least = min(at_start, at_stop)
        if least <= limit:
            return True
        below = bend * (stop - start) * (stop - start) * 0.125
        if least - below > limit or below <= limit * _FINEST:
            continue
        middle = 0.5 * (start + stop)
        at_middle = _haversine(x, y, ax + middle * (bx - ax), ay + middle * (by - ay))
        if not start < middle < stop:
            continue
        parts[n, 0], parts[n, 1], parts[n, 2], parts[n, 3] = middle, stop, at_middle, at_stop
        parts[n + 1, 0], parts[n + 1, 1] = start, middle
        parts[n + 1, 2], parts[n + 1, 3] = at_start, at_middle
        n += 2
    return False


@compiled
def _meets_boundary(
    shapes: PreparedShapes, query: int, ax: float, ay: float, bx: float, by: float
) -> bool:
    """Return whether a leg meets an edge of a polygon."""
    words, record = shapes.words, shapes.table[query, RECORD]
    rings = int(words[record + 1])
    first = record + 2 + rings
    size, frame = shapes.table[query, SIZE], shapes.frames[query]
    if ay > by:
        ax, ay, bx, by = bx, by, ax, ay
    largest = LEAST_CELL * max(abs(ax), abs(ay), abs(bx), abs(by))
    if size == 0 or not (largest * frame[2] < 1.0 and largest * frame[3] < 1.0):
        for ring in range(rings):
            vertices = int(words[record + 2 + ring])
            for i in range(vertices - 1):
                if _meets_edge(words[first + 2 * i : first + 2 * i + 4], ax, ay, bx, by):
                    return True
            first += 2 * vertices
        return False
    low, high = _places(ay, by, frame[1], frame[3], size)
    for row in range(low, high + 1):
        left, right = touched_columns(ax, ay, bx, by, row, frame, size)
        base = shapes.table[query, CELLS] + row * size
        mixed = False
        for column in range(left, right + 1):
            mixed = mixed or shapes.cells[base + column] == MIXED
        if not mixed:
            continue
        slot = shapes.table[query, RASTER_ROWS] + row
        for k in range(shapes.starts[slot], shapes.starts[slot + 1]):
            j = first + 2 * shapes.edges[k]
            if _meets_edge(words[j : j + 4], ax, ay, bx, by):
                return True
    return False


@compiled
def _meets_edge(edge: FloatArray, ax: float, ay: float, bx: float, by: float) -> bool:
    """Return whether two lines with ends meet; also where they only touch, or overlap."""
    cx, cy, dx, dy = edge[0], edge[1], edge[2], edge[3]
    if max(ax, bx) < min(cx, dx) or max(cx, dx) < min(ax, bx):
        return False
    if max(ay, by) < min(cy, dy) or max(cy, dy) < min(ay, by):
        return False
    if orientation(ax, ay, bx, by, cx, cy) * orientation(ax, ay, bx, by, dx, dy) > 0:
        return False
    return bool(orientation(cx, cy, dx, dy, ax, ay) * orientation(cx, cy, dx, dy, bx, by) <= 0)
