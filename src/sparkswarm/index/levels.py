"""Chooses the levels of an index of rectangles; see :mod:`sparkswarm.index.layout`."""

from __future__ import annotations

import numpy as np

from sparkswarm.compiled import FloatArray, IntArray, compiled
from sparkswarm.index.layout import (
    COLUMNS,
    FIRST,
    LEVEL_FIELDS,
    ROWS,
    SCALE_X,
    SCALE_Y,
    SHIFT,
    place_of,
)

_CELLS_A_SIDE = 2.0 * (1.0 - 2.0**-20)
"""Cells that the widest rectangle of a level spans; a little below 2 because of rounding, so that
none overlaps more than three."""
_MAX_COLUMNS = 1 << 24
"""Columns and rows of the finest level at most: rounding errors stay far below a cell."""
_CLASSES = 25
"""Classes of width, each half as wide as the one before; the last has all that is smaller."""
_CELLS_A_QUERY = 8
"""A level with more cells per rectangle than this gets larger cells. Where these are crowded, it
has a hash table instead, with at least half as many buckets per rectangle."""
_CROWD = 3.0
"""Rectangles that begin in the cell of a rectangle, itself included: with more on average, cells
are crowded. Of rectangles that are evenly distributed there are 1.1."""
_FOLD = 16
"""A level with this many times fewer rectangles than a coarser one is merged into it."""


@compiled
def _class_of(extent: float, whole: float) -> int:
    """Return how often ``whole`` can be halved and still be at least ``extent``."""
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
def choose_levels(boxes: FloatArray, region: FloatArray) -> tuple[IntArray, FloatArray]:
    """Return the level of every rectangle, and :attr:`RangeIndex.levels`."""
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
        # Only the part in the region matters.
        width = min(max(box[2], region[0]), region[2]) - min(max(box[0], region[0]), region[2])
        height = min(max(box[3], region[1]), region[3]) - min(max(box[1], region[1]), region[3])
        at = _class_of(width, whole_x) * _CLASSES + _class_of(height, whole_y)
        classes[i] = at
        number[at] += 1
        widest[at, 0] = max(widest[at, 0], width)
        widest[at, 1] = max(widest[at, 1], height)
    # Merge a rare class into the finest of the coarser classes that have many more rectangles.
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
    for i in range(n):
        if classes[i] >= 0:
            classes[i] = home[classes[i]]
    levels = np.empty((np.count_nonzero(total), LEVEL_FIELDS))
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
            larger = np.sqrt(_CELLS_A_QUERY * total[at] / buckets)
            few_columns, few_rows = max(1, int(columns * larger)), max(1, int(rows * larger))
            by_x, by_y = scale_x * few_columns / columns, scale_y * few_rows / rows
            here = classes == at
            if (
                few_columns * few_rows <= _CELLS_A_QUERY * total[at]
                and _crowd(boxes[here], region, by_x, by_y, few_columns, few_rows) <= _CROWD
            ):
                scale_x, scale_y, columns, rows = by_x, by_y, few_columns, few_rows
                buckets = columns * rows
            else:
                shift = 63
                while (1 << (64 - shift)) < _CELLS_A_QUERY // 2 * total[at]:
                    shift -= 1
                buckets = 1 << (64 - shift)
        levels[level, SCALE_X] = scale_x
        levels[level, SCALE_Y] = scale_y
        levels[level, COLUMNS] = columns
        levels[level, ROWS] = rows
        levels[level, FIRST] = first
        levels[level, SHIFT] = shift
        first += buckets
        numbered[at] = level
        level += 1
    out = np.empty(n, np.int32)
    for i in range(n):
        out[i] = numbered[classes[i]] if classes[i] >= 0 else -1
    return out, levels


@compiled
def _crowd(
    boxes: FloatArray, region: FloatArray, scale_x: float, scale_y: float, columns: int, rows: int
) -> float:
    """Return how many rectangles begin in the cell of a rectangle, on average."""
    begin = np.zeros(columns * rows, np.int32)
    pairs = 0
    for i in range(len(boxes)):
        column = place_of(boxes[i, 0], region[0], scale_x, columns)
        row = place_of(boxes[i, 1], region[1], scale_y, rows)
        pairs += 1 + 2 * begin[row * columns + column]
        begin[row * columns + column] += 1
    return pairs / max(1, len(boxes))
