"""Snapshot queries: which points of the recent past are in a range, answered once.

Owns the blocks in which recent points are kept: what of them a query sees, when they can go, and
which are written anew as one. Everything is a function of columns; who runs it where, and which
files count, is the engine's affair.

**Blocks and pieces.** A block holds points in the order of their place and never changes. SWARM
moves no data (paper, "Correctness of Query Execution"): when a partition is split or moved, its
successors go on with its blocks, and each looks only at its own cells. So a partition has
*pieces*: a block, and the cells for which it counts. Of all pieces that there are, each cell of
each block is in one at most, and then no point is seen twice.

**Windows** are those of the paper: sliding and tumbling in time, a count, a storage size. They
are windows of the whole stream. ``now`` is the latest time seen in all batches that count, so an
answer does not depend on when it is computed. All times are event times in microseconds.

- ``Sliding(length)``: from ``now - length`` to ``now``, both included.
- ``Tumbling(length)``: from the last multiple of ``length`` since 1970 to ``now``.
- ``Count(size)``: the points at least as new as the ``size``-th newest.
- ``Size(bytes)``: the points at least as new as the one with which the newest points come to so
  many bytes.

Points of the same time are all in a window or all outside: it may hold a few more than asked for,
and in return depends on times alone, not on who received what in which order.

Differs from :mod:`sparkswarm.sim.kept_points`: there a count is of each partition, and time is
when a machine received the point, as in the paper's cluster.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sparkswarm.compiled import compiled
from sparkswarm.errors import ConfigError
from sparkswarm.geometry import CellRect, FloatArray, Grid, Scale, place
from sparkswarm.sim.kept_points import Count as Count
from sparkswarm.sim.kept_points import Rectangle as Rectangle
from sparkswarm.store.blocks import TILES, Block, Meta, TileArray, Tiling, row_sizes
from sparkswarm.window.durations import LONGEST, microseconds

LongArray = npt.NDArray[np.int64]

BEGINNING = -(2**63)
"""A time before all others."""

FAN = 8
"""So many small blocks in a row become one."""

MOST = 1 << 20
"""A block that was put together has at most so many points, so that it can go in good time."""


@dataclass(frozen=True, slots=True)
class _OfTime:
    """A window of time; its length is a duration such as ``"10 minutes"``, or microseconds."""

    length: int | str

    def __post_init__(self) -> None:
        length = microseconds(self.length) if isinstance(self.length, str) else self.length
        if isinstance(length, bool) or not isinstance(length, int) or not 0 < length <= LONGEST:
            raise ConfigError(f"a window must be longer than nothing, got {self.length!r}")
        object.__setattr__(self, "length", length)


@dataclass(frozen=True, slots=True)
class Sliding(_OfTime):
    """The points of the last ``length``, the latest point's time being the present."""


@dataclass(frozen=True, slots=True)
class Tumbling(_OfTime):
    """The points since the last multiple of ``length`` since 1970."""


@dataclass(frozen=True, slots=True)
class Size:
    """The newest points of the stream that come to so many bytes, see :func:`row_sizes`."""

    bytes: int

    def __post_init__(self) -> None:
        if self.bytes < 1:
            raise ConfigError(f"a window needs at least one byte, got {self.bytes}")


Window = Sliding | Tumbling | Count | Size


class Piece(NamedTuple):
    """Cells of a partition, and the block that counts for them; what the driver knows of it."""

    cells: CellRect
    meta: Meta

    @property
    def is_whole(self) -> bool:
        """Whether all points of the block count."""
        return self.cells.contains(self.meta.cells)

    @property
    def points(self) -> int:
        """About how many points count: exact where it is whole."""
        share = self.cells.intersection(self.meta.cells).area / self.meta.cells.area
        return max(1, round(self.meta.rows * share))


# -- answers -----------------------------------------------------------------------------------


def rows_in(
    block: Block, cells: CellRect, grid: Grid, rectangle: Rectangle, since: int, until: int
) -> LongArray:
    """Return which points of a piece are in a range, edges included, from since to until."""
    return _inside(
        block.x, block.y, block.time, block.tile, Rectangle(*map(float, rectangle)),
        since, until, cells, block.meta.cells, block.meta.tiling, grid.scale,
    )  # fmt: skip


@compiled
def _inside(
    x: FloatArray,
    y: FloatArray,
    time: LongArray,
    tile: TileArray,
    rectangle: Rectangle,
    since: int,
    until: int,
    cells: CellRect,
    of_block: CellRect,
    tiling: Tiling,
    scale: Scale,
) -> LongArray:
    min_x, min_y, max_x, max_y = rectangle
    # The first and the last column and row of cells that both the range and the piece have.
    col, row = place(
        min(max(min_x, scale.min_x), scale.max_x), min(max(min_y, scale.min_y), scale.max_y), scale
    )
    last_col, last_row = place(
        min(max(max_x, scale.min_x), scale.max_x), min(max(max_y, scale.min_y), scale.max_y), scale
    )
    col, row = max(col, cells[0], of_block[0]), max(row, cells[1], of_block[1])
    last_col = min(last_col, cells[2] - 1, of_block[2] - 1)
    last_row = min(last_row, cells[3] - 1, of_block[3] - 1)
    if col > last_col or row > last_row:
        return np.empty(0, np.int64)
    # Tiles of one row of tiles stand one after another.
    first_tile, last_tile = (col - tiling[0]) // tiling[2], (last_col - tiling[0]) // tiling[2]
    low, high = (row - tiling[1]) // tiling[3], (last_row - tiling[1]) // tiling[3]
    starts, stops = np.empty(high - low + 1, np.int64), np.empty(high - low + 1, np.int64)
    most = 0
    for k in range(high - low + 1):
        line = (low + k) * TILES
        starts[k] = np.searchsorted(tile, line + first_tile)
        stops[k] = np.searchsorted(tile, line + last_tile, side="right")
        most += stops[k] - starts[k]
    rows = np.empty(most, np.int64)
    count = 0
    for k in range(len(starts)):
        for i in range(starts[k], stops[k]):
            # Written without a branch: which points are inside is hard to guess.
            inside = (x[i] >= min_x) & (x[i] <= max_x) & (y[i] >= min_y) & (y[i] <= max_y)
            rows[count] = i
            count += inside & (time[i] >= since) & (time[i] <= until)
    # Where the whole block counts, no point needs its cell looked up.
    if (
        cells[0] <= of_block[0]
        and cells[1] <= of_block[1]
        and cells[2] >= of_block[2]
        and cells[3] >= of_block[3]
    ):
        return rows[:count].copy()
    kept = 0
    for k in range(count):
        column, line = place(x[rows[k]], y[rows[k]], scale)
        if cells[0] <= column < cells[2] and cells[1] <= line < cells[3]:
            rows[kept] = rows[k]
            kept += 1
    return rows[:kept].copy()


# -- when windows begin ------------------------------------------------------------------------


class Border(NamedTuple):
    """What is known of the beginning of a count or size window without reading a block.

    Attributes
    ----------
    at_least
        The window begins then or later; ``BEGINNING`` if nothing is known.
    look
        The pieces to be read to find out, by position.
    rest
        How much of the window must be found in them; the rest is in pieces that are surely newer.
    """

    at_least: int
    look: tuple[int, ...]
    rest: int


def border(pieces: Sequence[Piece], window: Count | Size) -> Border:
    """Narrow down where a count or size window begins; ``pieces`` are those of the whole stream."""
    least = _least(window)
    # At most so much is as new as the newest point of a piece, at least so much as its oldest.
    latest = _reached([(p.meta.newest, _weight(p.meta, window)) for p in pieces], least)
    whole = [(p.meta.oldest, _weight(p.meta, window)) for p in pieces if p.is_whole]
    at_least = _reached(whole, least)
    if latest == BEGINNING:
        return Border(BEGINNING, (), least)
    look, rest = [], least
    for i, piece in enumerate(pieces):
        if piece.is_whole and piece.meta.oldest > latest:
            rest -= _weight(piece.meta, window)
        elif piece.meta.newest >= at_least:
            look.append(i)
    return Border(at_least, tuple(look), rest)


class Moments(NamedTuple):
    """Distinct times, oldest first, and how many points or bytes there are of each."""

    times: LongArray
    weights: LongArray


def moments(block: Block, cells: CellRect, grid: Grid, window: Count | Size, since: int) -> Moments:
    """Return what a piece has of each time from ``since`` on."""
    everywhere = Rectangle(-np.inf, -np.inf, np.inf, np.inf)
    rows = rows_in(block, cells, grid, everywhere, since, 2**63 - 1)
    times, which = np.unique(block.time[rows], return_inverse=True)
    sizes = row_sizes(block.points)[rows] if isinstance(window, Size) else np.ones_like(rows)
    weights = np.zeros(len(times), np.int64)
    np.add.at(weights, which, sizes)
    return Moments(times, weights)


def begins(found: Sequence[Moments], rest: int) -> int:
    """Return when a count or size window begins, from the moments of all pieces to be read.

    ``BEGINNING`` where they do not hold the rest: all that there is, is in the window.
    """
    times = np.concatenate([np.empty(0, np.int64), *(part.times for part in found)])
    weights = np.concatenate([np.empty(0, np.int64), *(part.weights for part in found)])
    newest_first = np.argsort(times)[::-1]
    enough = np.searchsorted(np.cumsum(weights[newest_first]), rest)
    return int(times[newest_first[enough]]) if enough < len(times) else BEGINNING


def surely_since(window: Window, now: int, pieces: Sequence[Piece]) -> int:
    """Return a time before which nothing is in the window, nor will be.

    For windows of time it is when the window begins; for the others ``border`` or, later but
    closer, ``begins`` says it.
    """
    if isinstance(window, Sliding):
        return max(BEGINNING, now - int(window.length))
    if isinstance(window, Tumbling):
        return max(BEGINNING, now // int(window.length) * int(window.length))
    return border(pieces, window).at_least


def expired(pieces: Sequence[Piece], since: int) -> list[bool]:
    """Say which pieces can go because all their points are older."""
    return [piece.meta.newest < since for piece in pieces]


def _least(window: Count | Size) -> int:
    return window.size if isinstance(window, Count) else window.bytes


def _weight(meta: Meta, window: Count | Size) -> int:
    return meta.rows if isinstance(window, Count) else meta.size


def _reached(weights: Sequence[tuple[int, int]], least: int) -> int:
    """Return the latest of these times such that it and all later ones weigh enough."""
    total = 0
    for time, weight in sorted(weights, reverse=True):
        total += weight
        if total >= least:
            return time
    return BEGINNING


# -- writing blocks anew -----------------------------------------------------------------------


def to_compact(pieces: Sequence[Piece], fan: int = FAN, most: int = MOST) -> list[tuple[int, ...]]:
    """Choose pieces of one partition, by position, that had better be one block.

    Pieces stand in the order of time, and only neighbours are put together, so that blocks still
    become old one by one. A piece with more than half of ``most`` points is large and left
    alone. Others become one when ``fan`` of them or more are in a row, small ones first, and if
    none of them has more points than all the others: a point's block then doubles whenever the
    point is written anew, which is at most log2(``most``) times. Should a row of 4 ``fan`` be left
    by this, it becomes one all the same, so that a partition with k large pieces has fewer than
    4 (k + 1) ``fan`` when nothing is chosen.
    """
    order = sorted(range(len(pieces)), key=lambda i: (pieces[i].meta.newest, i))
    points = [pieces[i].points for i in order]
    bound = fan
    while True:
        parts = [
            part
            for run in _runs_below(points, min(bound, most // 2))
            if len(run) >= fan
            for part in _parts(run, points, most)
            if len(run) >= 4 * fan or _pays([points[i] for i in part], most)
        ]
        if parts or bound >= most // 2:
            return [tuple(order[i] for i in part) for part in parts]
        bound *= fan


def _pays(points: list[int], most: int) -> bool:
    """Whether the block would be twice the largest of its parts, or never be written again."""
    return sum(points) >= 2 * max(points) or sum(points) > most // 2


def _runs_below(points: list[int], bound: int) -> list[list[int]]:
    runs: list[list[int]] = [[]]
    for i, count in enumerate(points):
        if count <= bound:
            runs[-1].append(i)
        else:
            runs.append([])
    return runs


def _parts(run: list[int], points: list[int], most: int) -> list[list[int]]:
    """Divide a run so that no part has more than ``most`` points; leave out single pieces."""
    parts: list[list[int]] = [[]]
    for i in run:
        if sum(points[k] for k in parts[-1]) + points[i] > most:
            parts.append([])
        parts[-1].append(i)
    return [part for part in parts if len(part) > 1]


def compacted(parts: Sequence[tuple[Block, CellRect]], grid: Grid, since: int) -> Block | None:
    """Return one block with the points of several pieces, from ``since`` on; None if none is left.

    All blocks have the same columns.
    """
    everywhere = Rectangle(-np.inf, -np.inf, np.inf, np.inf)
    return Block.joined(
        [
            block.points.take(rows_in(block, cells, grid, everywhere, since, 2**63 - 1))
            for block, cells in parts
        ],
        grid,
    )
