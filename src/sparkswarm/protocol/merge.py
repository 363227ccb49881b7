"""Merging: joins adjacent partitions of one executor into larger rectangles.

Small partitions left over from past hotspots cost memory and routing time for nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from sparkswarm.geometry import CellRect
from sparkswarm.protocol.partition import Partition


class Merge(NamedTuple):
    """Partitions that together are exactly ``cells``."""

    partitions: tuple[Partition, ...]
    cells: CellRect


def find_merges(partitions: Iterable[Partition]) -> list[Merge]:
    """Join two partitions of an executor that share a whole side until no two do.

    Linear in the number of partitions and joins. Shared partitions stay: their owners would
    have to agree. Differs: five rectangles in a pinwheel form a rectangle although no two of
    them do. The paper does not say how to find such sets, and they stay.
    """
    members: dict[CellRect, tuple[Partition, ...]] = {
        p.cells: (p,) for p in sorted(partitions, key=lambda p: p.id) if not p.is_shared
    }
    by_side = {side: cells for cells in members for side in _sides(cells)}
    todo = list(members)
    while todo:
        cells = todo.pop()
        other = next(filter(None, map(by_side.get, _facing_sides(cells))), None)
        if cells not in members or other is None:
            continue
        joined = CellRect(
            min(cells.col_start, other.col_start),
            min(cells.row_start, other.row_start),
            max(cells.col_stop, other.col_stop),
            max(cells.row_stop, other.row_stop),
        )
        for old in (cells, other):
            for side in _sides(old):
                del by_side[side]
        members[joined] = members.pop(cells) + members.pop(other)
        by_side |= dict.fromkeys(_sides(joined), joined)
        todo.append(joined)
    return [Merge(parts, cells) for cells, parts in members.items() if len(parts) > 1]


_Side = tuple[str, int, int, int]


def _sides(c: CellRect) -> list[_Side]:
    """Return the four sides with their position and extent."""
    return [
        ("left", c.col_start, c.row_start, c.row_stop),
        ("right", c.col_stop, c.row_start, c.row_stop),
        ("top", c.row_start, c.col_start, c.col_stop),
        ("bottom", c.row_stop, c.col_start, c.col_stop),
    ]


def _facing_sides(c: CellRect) -> list[_Side]:
    """Return the sides that a fitting neighbour would have."""
    left, right, top, bottom = _sides(c)
    return [
        ("right", *left[1:]),
        ("left", *right[1:]),
        ("bottom", *top[1:]),
        ("top", *bottom[1:]),
    ]
