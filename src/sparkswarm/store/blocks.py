"""Blocks: recent points, sorted by location, in files that never change.

Owns the layout of a block: an Arrow table that can be memory-mapped, and the metadata about it
that the manifest holds. Points have a location in the grid and an event time; ids and further
columns may be of any type.

The cells of a block are divided into at most :data:`TILES` by :data:`TILES` tiles, and its points
are sorted by tile, row by row. So the points of a rectangle are in few contiguous runs, and a
query reads little more than it finds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sparkswarm.compiled import FloatArray, LongArray, compiled
from sparkswarm.errors import InputError
from sparkswarm.geometry import EVERYWHERE, Box, CellRect, Grid, Scale, place
from sparkswarm.store.formats import table_from_bytes, tables_to_bytes

TileArray = npt.NDArray[np.uint16]

VERSION = 1

MIN_TIME, MAX_TIME = -(2**63), 2**63 - 1
"""Earliest and latest time: microseconds since 1970 in 64 bits."""

TILES = 128
"""Tiles per row and per column of a block; their numbers fit 16 bits."""

TILE = "tile"
"""Column with the tile of each point. It belongs to the block, not to the point."""


class Tiling(NamedTuple):
    """The first cell of a block, and columns and rows of cells per tile, as plain numbers."""

    col_start: int
    row_start: int
    columns: int
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockMeta:
    """Summary of a block, known without reading it.

    Attributes
    ----------
    rows
        Number of points, at least one.
    size
        Bytes of the points, as :func:`row_sizes` counts them.
    oldest, newest
        First and last event time.
    cells
        Smallest rectangle of cells that contains all points.
    """

    rows: int
    size: int
    oldest: int
    newest: int
    cells: CellRect

    @property
    def tiling(self) -> Tiling:
        """How the cells are divided into tiles."""
        columns, rows = (-(-cells // TILES) for cells in (self.cells.columns, self.cells.rows))
        return Tiling(self.cells.col_start, self.cells.row_start, columns, rows)


@dataclass(frozen=True)
class Block:
    """Some points, at least one.

    Attributes
    ----------
    points
        ``id``, ``x``, ``y``, ``time`` (microseconds), further columns of the points, and ``tile``,
        by which they are sorted.
    meta
        Summary of the points.
    """

    points: pa.Table
    meta: BlockMeta

    @classmethod
    def concat(cls, parts: Sequence[pa.Table], grid: Grid) -> Block | None:
        """Build a block from several tables of points or of blocks; None where they are empty."""
        own = [part.drop_columns([TILE]) if TILE in part.column_names else part for part in parts]
        if not own:
            return None
        # Blocks of earlier settings may lack a column; it is null there.
        points = pa.concat_tables(own, promote_options="permissive").combine_chunks()
        if not points.num_rows:
            return None
        x, y, time = (points.column(name).to_numpy() for name in ("x", "y", "time"))
        column, row = grid.place_points(x, y)
        meta = BlockMeta(
            rows=points.num_rows,
            size=int(row_sizes(points).sum()),
            oldest=int(time.min()),
            newest=int(time.max()),
            cells=CellRect(
                int(column.min()), int(row.min()), int(column.max()) + 1, int(row.max()) + 1
            ),
        )
        tiling = meta.tiling
        tile = (row - tiling.row_start) // tiling.rows * TILES
        tile = (tile + (column - tiling.col_start) // tiling.columns).astype(np.uint16)
        order = np.argsort(tile, kind="stable")
        points = points.take(pa.array(order)).append_column(TILE, pa.array(tile[order]))
        return cls(points.combine_chunks(), meta)

    @classmethod
    def from_bytes(cls, content: pa.Buffer, offset: int, meta: BlockMeta) -> Block:
        """Read one of the blocks of a file that :func:`blocks_to_bytes` returned."""
        return cls(table_from_bytes(content, offset, VERSION), meta)

    @cached_property
    def x(self) -> FloatArray:
        """Coordinates along x."""
        values: FloatArray = self.points.column("x").to_numpy()
        return values

    @cached_property
    def y(self) -> FloatArray:
        """Coordinates along y."""
        values: FloatArray = self.points.column("y").to_numpy()
        return values

    @cached_property
    def time(self) -> LongArray:
        """Event times."""
        values: LongArray = self.points.column("time").to_numpy()
        return values

    @cached_property
    def tile(self) -> TileArray:
        """Tile of each point; never decreases."""
        values: TileArray = self.points.column(TILE).to_numpy()
        return values

    def rows_in(
        self,
        cells: CellRect,
        grid: Grid,
        box: Box = EVERYWHERE,
        since: int = MIN_TIME,
        until: int = MAX_TIME,
    ) -> LongArray:
        """Return the rows of points in ``cells`` and ``box``, from ``since`` to ``until``.

        All limits but the stops of ``cells`` are inclusive.
        """
        limits = Box(*map(float, box))
        own, tiling = self.meta.cells, self.meta.tiling
        columns = (self.x, self.y, self.time, self.tile)
        return _rows_in(*columns, limits, since, until, cells, own, tiling, grid.scale)


def blocks_to_bytes(blocks: Sequence[Block]) -> tuple[pa.Buffer, list[int]]:
    """Return the content of a file with some blocks, and the offset of each."""
    return tables_to_bytes([block.points for block in blocks], VERSION)


@compiled
def _rows_in(
    x: FloatArray,
    y: FloatArray,
    time: LongArray,
    tile: TileArray,
    box: Box,
    since: int,
    until: int,
    cells: CellRect,
    own: CellRect,
    tiling: Tiling,
    scale: Scale,
) -> LongArray:
    min_x, min_y, max_x, max_y = box
    # First and last column and row of the cells that the box, the block and ``cells`` share.
    col, row = place(
        min(max(min_x, scale.min_x), scale.max_x), min(max(min_y, scale.min_y), scale.max_y), scale
    )
    last_col, last_row = place(
        min(max(max_x, scale.min_x), scale.max_x), min(max(max_y, scale.min_y), scale.max_y), scale
    )
    col, row = max(col, cells[0], own[0]), max(row, cells[1], own[1])
    last_col = min(last_col, cells[2] - 1, own[2] - 1)
    last_row = min(last_row, cells[3] - 1, own[3] - 1)
    if col > last_col or row > last_row:
        return np.empty(0, np.int64)
    # The tiles of one row of tiles are contiguous.
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
            # Without a branch, which the processor could not predict.
            inside = (x[i] >= min_x) & (x[i] <= max_x) & (y[i] >= min_y) & (y[i] <= max_y)
            rows[count] = i
            count += inside & (time[i] >= since) & (time[i] <= until)
    # Where the whole block counts, the cells of points need not be computed.
    if cells[0] <= own[0] and cells[1] <= own[1] and cells[2] >= own[2] and cells[3] >= own[3]:
        return rows[:count].copy()
    kept = 0
    for k in range(count):
        column, line = place(x[rows[k]], y[rows[k]], scale)
        if cells[0] <= column < cells[2] and cells[1] <= line < cells[3]:
            rows[kept] = rows[k]
            kept += 1
    return rows[:kept].copy()


def row_sizes(points: pa.Table) -> LongArray:
    """Return the bytes of each row: those of its values, and 4 for the length of a text or a list.

    They depend on the values alone. Null bitmaps, padding and file headers don't count.
    """
    sizes = np.zeros(points.num_rows, np.int64)
    for name, column in zip(points.column_names, points.columns, strict=True):
        if name == TILE:
            continue
        sizes += np.concatenate(
            [np.empty(0, np.int64), *(_sizes(chunk) for chunk in column.chunks)]
        )
    return sizes


def _sizes(array: pa.Array) -> LongArray:
    kind = array.type
    if pa.types.is_dictionary(kind):
        return _sizes(array.dictionary_decode())
    if pa.types.is_null(kind):
        return np.zeros(len(array), np.int64)
    if pa.types.is_boolean(kind):
        return np.ones(len(array), np.int64)
    if pa.types.is_struct(kind):
        return sum(map(_sizes, array.flatten()), np.zeros(len(array), np.int64))
    if pa.types.is_map(kind):
        return _sizes(array.cast(pa.list_(pa.struct([kind.key_field, kind.item_field]))))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        lengths = _lengths(pc.list_value_length(array))
        running = np.concatenate([np.zeros(1, np.int64), np.cumsum(_sizes(array.flatten()))])
        stops = np.cumsum(lengths)
        within: LongArray = running[stops] - running[stops - lengths]
        return within + 4
    try:
        return np.full(len(array), kind.bit_width // 8, np.int64)
    except ValueError:  # no fixed width
        pass
    try:
        return _lengths(pc.binary_length(array)) + 4
    except pa.ArrowNotImplementedError:
        raise InputError(f"a column of type {kind} cannot be kept for snapshot queries") from None


def _lengths(lengths: pa.Array) -> LongArray:
    found: LongArray = pc.fill_null(lengths, 0).to_numpy().astype(np.int64)
    return found
