"""Shapes of queries: which points in a query's rectangle lie in its polygon or circle.

Owns how a shape is stored, how shapes are prepared, and the compiled test. A shape is a record of
64-bit floats, so that the records of many queries side by side are one array:

- a polygon, or several, with holes: ``POLYGON``, the number of rings, the number of vertices of
  each ring, then x and y of every vertex; the last vertex of a ring is its first again;
- a circle: ``CIRCLE``, x, y, radius, all in the units of the coordinates;
- a circle on the sphere: ``SPHERE``, longitude and latitude in degrees, radius in metres;
- a standing point is a circle with a fifth number, k;
- an empty record: the rectangle is the shape.

A shape contains its boundary, as a rectangle does. Whether a point lies in a polygon is decided
exactly (:mod:`sparkswarm.index.orientation`): by the parity of the edges that the ray to the right
crosses, over all rings together, which for valid polygons is the same as "in a shell and in no
hole of it". Circles are compared in floats, up to their rounding.

A polygon with many edges is *prepared*: a raster over its rectangle says of each cell whether it is
outside, inside, or touched by an edge. Only a point in a cell of the last kind is compared with
edges, and only with those in its row of the raster.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sparkswarm.compiled import BoolArray, ByteArray, FloatArray, IntArray, LongArray, compiled
from sparkswarm.index.layout import place_of, readonly
from sparkswarm.index.orientation import orientation

RECTANGLE, POLYGON, CIRCLE, SPHERE = 0, 1, 2, 3
STANDING_WORDS = 5
"""Length of the record of a standing point; no other shape's record is as long."""

EARTH_RADIUS = 6_371_008.8
"""Mean radius of the earth in metres."""

RASTER_EDGES = 24
"""A polygon with at least this many edges has a raster."""
RASTER_MOST = 1024
"""Most rows and columns of a raster."""
_SLACK = 1e-3
"""Cells by which the part of an edge in a row is widened, far above errors of rounding."""
LEAST_CELL = 1e-11
"""Least size of a raster's cell in relation to coordinates, so that the slack is above rounding."""

_OUTSIDE, _INSIDE, MIXED = 0, 1, 2

# Columns of PreparedShapes.table.
KIND = 0
RECORD = 1  # where the record begins in ``words``
SIZE = 2  # rows and columns of the raster, 0 without one
CELLS = 3  # where its cells begin
ROWS = 4  # where its rows begin in ``starts``
TABLE_FIELDS = 5


class PreparedShapes(NamedTuple):
    """Shapes of n queries, ready for points."""

    words: FloatArray
    """The records."""
    table: LongArray
    """Of shape (n, 5): kind, record, and raster of each."""
    frames: FloatArray
    """Of shape (n, 4): min_x and min_y of its raster, cells per unit of x and of y."""
    cells: ByteArray
    """The cells of all rasters, row by row."""
    starts: LongArray
    """Where the edges of each row of each raster begin in ``edges``, and where the last end."""
    edges: IntArray
    """First vertex of each edge, counted from the polygon's first vertex."""


def prepare_shapes(
    words: npt.NDArray[np.float64], starts: LongArray, boxes: FloatArray
) -> PreparedShapes:
    """Prepare shapes: record i is ``words[starts[i] : starts[i + 1]]``."""
    words = readonly(words, np.float64)
    table, frames = _layout(words, readonly(starts, np.int64), readonly(boxes, np.float64))
    sizes = table[:, SIZE]
    cells = np.zeros(int((sizes * sizes).sum()), np.uint8)
    row_starts = np.zeros(int(sizes.sum()) + 1, np.int64)
    _count_edges(words, table, frames, row_starts, cells)
    row_starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(row_starts[:-1])])
    edges = np.empty(int(row_starts[-1]), np.int32)
    _list_edges(words, table, frames, row_starts.copy(), edges)
    shapes = PreparedShapes(words, table, frames, cells, row_starts, edges)
    _fill(shapes)
    return PreparedShapes(*(readonly(array, array.dtype) for array in shapes))


@compiled
def keep_covered(
    shapes: PreparedShapes,
    x: FloatArray,
    y: FloatArray,
    rows: LongArray,
    counts: IntArray,
    positions: IntArray,
) -> tuple[IntArray, IntArray]:
    """Return the counts and positions of those queries whose shape contains the point.

    Point i is row ``rows[i]`` of ``x`` and ``y`` and has ``counts[i]`` of the positions.
    """
    kept = np.zeros(len(counts), np.int32)
    out = np.empty(len(positions), np.int32)
    n = at = 0
    for i in range(len(counts)):
        px, py = x[rows[i]], y[rows[i]]
        for _ in range(counts[i]):
            query = positions[at]
            at += 1
            if covers(shapes, query, px, py):
                out[n] = query
                n += 1
                kept[i] += 1
    return kept, out[:n].copy()


@compiled
def covered(shapes: PreparedShapes, query: int, x: FloatArray, y: FloatArray) -> BoolArray:
    """Return which points of a query's rectangle its shape contains."""
    out = np.empty(len(x), np.bool_)
    for i in range(len(x)):
        out[i] = covers(shapes, query, x[i], y[i])
    return out


@compiled
def covers(shapes: PreparedShapes, query: int, px: float, py: float) -> bool:
    """Return whether a shape contains a point of its rectangle."""
    words, table = shapes.words, shapes.table
    kind, record = table[query, KIND], table[query, RECORD]
    if kind == RECTANGLE:
        return True
    if kind == CIRCLE:
        dx, dy, radius = px - words[record + 1], py - words[record + 2], words[record + 3]
        return bool(dx * dx + dy * dy <= radius * radius)
    if kind == SPHERE:
        return _near(words[record + 1], words[record + 2], words[record + 3], px, py)
    size = table[query, SIZE]
    if size == 0:
        return _in_rings(words, record, px, py)
    frame = shapes.frames[query]
    row = place_of(py, frame[1], frame[3], size)
    column = place_of(px, frame[0], frame[2], size)
    cell = shapes.cells[table[query, CELLS] + row * size + column]
    if cell != MIXED:
        return bool(cell == _INSIDE)
    return _in_row(shapes, query, row, px, py)


@compiled
def _near(longitude: float, latitude: float, radius: float, px: float, py: float) -> bool:
    """Return whether the haversine distance is at most the radius."""
    half = 0.5 * radius / EARTH_RADIUS
    if half >= 0.5 * np.pi:
        return True
    sin_y = np.sin(np.radians(py - latitude) * 0.5)
    sin_x = np.sin(np.radians(px - longitude) * 0.5)
    haversine = (
        sin_y * sin_y + np.cos(np.radians(py)) * np.cos(np.radians(latitude)) * sin_x * sin_x
    )
    limit = np.sin(half)
    return bool(haversine <= limit * limit)


def sphere_distance(
    longitude: FloatArray, latitude: FloatArray, x: FloatArray, y: FloatArray
) -> FloatArray:
    """Return distances in metres along the great circle, of places in degrees."""
    sin_y = np.sin(np.radians(y - latitude) * 0.5)
    sin_x = np.sin(np.radians(x - longitude) * 0.5)
    haversine = sin_y * sin_y + np.cos(np.radians(y)) * np.cos(np.radians(latitude)) * sin_x * sin_x
    distance: FloatArray = 2 * EARTH_RADIUS * np.arcsin(np.minimum(1.0, np.sqrt(haversine)))
    return distance


@compiled
def _side(ax: float, ay: float, bx: float, by: float, px: float, py: float) -> int:
    """Return 2 if p is on the edge, 1 if the ray from p to the right crosses it, else 0.

    The lower end of an edge belongs to it and the upper does not, so a ray through a vertex
    crosses one of two edges that go on, and both or none of two that turn back.
    """
    if (ay > py) == (by > py):
        if ay == py and by == py:
            return 2 if min(ax, bx) <= px <= max(ax, bx) else 0
        return 2 if (ay == py and ax == px) or (by == py and bx == px) else 0
    if ax < px and bx < px:
        return 0
    if ax > px and bx > px:
        return 1
    side = orientation(ax, ay, bx, by, px, py)
    if side == 0:
        return 2
    return 1 if (side > 0) == (by > ay) else 0


@compiled
def _in_rings(words: FloatArray, record: int, px: float, py: float) -> bool:
    """Compare a point with all edges of a polygon."""
    rings = int(words[record + 1])
    at = record + 2 + rings
    inside = False
    for ring in range(rings):
        vertices = int(words[record + 2 + ring])
        for i in range(vertices - 1):
            j = at + 2 * i
            side = _side(words[j], words[j + 1], words[j + 2], words[j + 3], px, py)
            if side == 2:
                return True
            if side == 1:
                inside = not inside
        at += 2 * vertices
    return inside


@compiled
def _in_row(shapes: PreparedShapes, query: int, row: int, px: float, py: float) -> bool:
    """Compare a point with the edges in its row of the raster."""
    words, table = shapes.words, shapes.table
    record = table[query, RECORD]
    first = record + 2 + int(words[record + 1])
    slot = table[query, ROWS] + row
    inside = False
    for k in range(shapes.starts[slot], shapes.starts[slot + 1]):
        j = first + 2 * shapes.edges[k]
        side = _side(words[j], words[j + 1], words[j + 2], words[j + 3], px, py)
        if side == 2:
            return True
        if side == 1:
            inside = not inside
    return inside


@compiled
def _layout(
    words: FloatArray, starts: LongArray, boxes: FloatArray
) -> tuple[LongArray, FloatArray]:
    """Return table and frames, with the size of each raster."""
    number = len(starts) - 1
    table = np.zeros((number, TABLE_FIELDS), np.int64)
    frames = np.zeros((number, 4))
    cells = rows = 0
    for q in range(number):
        record = starts[q]
        table[q, RECORD] = record
        table[q, CELLS], table[q, ROWS] = cells, rows
        if starts[q + 1] == record:
            continue
        kind = int(words[record])
        table[q, KIND] = kind
        if kind != POLYGON:
            continue
        edges = 0
        for ring in range(int(words[record + 1])):
            edges += int(words[record + 2 + ring]) - 1
        if edges < RASTER_EDGES:
            continue
        size = min(RASTER_MOST, int(2.0 * np.sqrt(edges)))
        frames[q, 0], frames[q, 1] = boxes[q, 0], boxes[q, 1]
        frames[q, 2] = size / (boxes[q, 2] - boxes[q, 0])
        frames[q, 3] = size / (boxes[q, 3] - boxes[q, 1])
        largest = np.abs(boxes[q]).max() * LEAST_CELL
        # Of a polygon almost as thin as floats are dense, all edges are compared.
        if not (largest * frames[q, 2] < 1.0 and largest * frames[q, 3] < 1.0):
            continue
        table[q, SIZE] = size
        cells += size * size
        rows += size
    return table, frames


@compiled
def _count_edges(
    words: FloatArray, table: LongArray, frames: FloatArray, counts: LongArray, cells: ByteArray
) -> None:
    """Count the edges in each row of each raster, and mark the cells that they touch."""
    for q in range(len(table)):
        size = table[q, SIZE]
        if size == 0:
            continue
        record, frame = table[q, RECORD], frames[q]
        at = record + 2 + int(words[record + 1])
        for ring in range(int(words[record + 1])):
            vertices = int(words[record + 2 + ring])
            for i in range(vertices - 1):
                j = at + 2 * i
                ax, ay, bx, by = words[j], words[j + 1], words[j + 2], words[j + 3]
                if ay > by:
                    ax, ay, bx, by = bx, by, ax, ay
                low, high = (
                    place_of(ay, frame[1], frame[3], size),
                    place_of(by, frame[1], frame[3], size),
                )
                for row in range(low, high + 1):
                    counts[table[q, ROWS] + row] += 1
                    first, last = touched_columns(ax, ay, bx, by, row, frame, size)
                    base = table[q, CELLS] + row * size
                    for column in range(first, last + 1):
                        cells[base + column] = MIXED
            at += 2 * vertices


@compiled
def touched_columns(
    ax: float, ay: float, bx: float, by: float, row: int, frame: FloatArray, size: int
) -> tuple[int, int]:
    """Return the first and last cell of a row that the edge from a up to b may touch."""
    x0, x1 = min(ax, bx), max(ax, bx)
    if by > ay:
        # The row is widened, so that all of the edge that lies in it by place_of is counted.
        below = frame[1] + (row - _SLACK) / frame[3]
        above = frame[1] + (row + 1 + _SLACK) / frame[3]
        slope = (bx - ax) / (by - ay)
        at_below = ax + slope * (max(below, ay) - ay)
        at_above = ax + slope * (min(above, by) - ay)
        x0, x1 = max(x0, min(at_below, at_above)), min(x1, max(at_below, at_above))
    slack = _SLACK / frame[2]
    return (
        place_of(x0 - slack, frame[0], frame[2], size),
        place_of(x1 + slack, frame[0], frame[2], size),
    )


@compiled
def _list_edges(
    words: FloatArray, table: LongArray, frames: FloatArray, ends: LongArray, edges: IntArray
) -> None:
    """Write the edges of each row; ``ends`` are the starts of the rows, and are moved on."""
    for q in range(len(table)):
        size = table[q, SIZE]
        if size == 0:
            continue
        record, frame = table[q, RECORD], frames[q]
        vertex = 0
        first = record + 2 + int(words[record + 1])
        for ring in range(int(words[record + 1])):
            vertices = int(words[record + 2 + ring])
            for i in range(vertices - 1):
                j = first + 2 * (vertex + i)
                low = place_of(min(words[j + 1], words[j + 3]), frame[1], frame[3], size)
                high = place_of(max(words[j + 1], words[j + 3]), frame[1], frame[3], size)
                for row in range(low, high + 1):
                    slot = table[q, ROWS] + row
                    edges[ends[slot]] = vertex + i
                    ends[slot] += 1
            vertex += vertices


@compiled
def _fill(shapes: PreparedShapes) -> None:
    """Decide the cells that no edge touches: those side by side are alike."""
    table = shapes.table
    for q in range(len(table)):
        size = table[q, SIZE]
        frame = shapes.frames[q]
        for row in range(size):
            base = table[q, CELLS] + row * size
            py = frame[1] + (row + 0.5) / frame[3]
            known, inside = False, False
            for column in range(size):
                if shapes.cells[base + column] == MIXED:
                    known = False
                    continue
                if not known:
                    px = frame[0] + (column + 0.5) / frame[2]
                    inside = _in_row(shapes, q, row, px, py)
                    known = True
                shapes.cells[base + column] = _INSIDE if inside else _OUTSIDE
