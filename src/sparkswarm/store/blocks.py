"""Blocks: points of the recent past, in the order of their place, in files that never change.

Owns the layout: an Arrow table that can be memory-mapped, and the few facts about it that the
driver keeps. Points of a block have a place in the grid and a time; ids and the other columns
kept are of any type.

The cells of a block are divided into at most :data:`TILES` by :data:`TILES` tiles, and its points
are sorted by tile, row by row. So the points of a rectangle are in few stretches, and a query looks
at little more than it finds.
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

from sparkswarm.errors import InputError
from sparkswarm.geometry import CellRect, FloatArray, Grid

LongArray = npt.NDArray[np.int64]
TileArray = npt.NDArray[np.uint16]

TILES = 128
"""Tiles in a row and in a column of a block; their numbers fit 16 bits."""

TILE = "tile"
"""The column with a point's tile. It is the block's own, not the point's."""


class Tiling(NamedTuple):
    """How the cells of a block are divided into tiles, as plain numbers."""

    col_start: int
    row_start: int
    columns: int
    rows: int


class Meta(NamedTuple):
    """What is known of a block without reading it.

    Attributes
    ----------
    rows
        How many points it has, at least one.
    size
        Their bytes, as :func:`row_sizes` counts them.
    oldest, newest
        Their first and last time.
    cells
        The smallest rectangle of cells with all of them.
    """

    rows: int
    size: int
    oldest: int
    newest: int
    cells: CellRect

    @property
    def tiling(self) -> Tiling:
        """The first cell, and how many columns and rows of cells a tile has."""
        sides = (-(-cells // TILES) for cells in (self.cells.columns, self.cells.rows))
        return Tiling(self.cells.col_start, self.cells.row_start, *sides)


@dataclass(frozen=True)
class Block:
    """Some points, at least one.

    Attributes
    ----------
    points
        ``id``, ``x``, ``y``, ``time`` (microseconds), the columns kept, and ``tile``, by which
        they are sorted.
    meta
        What is known of them.
    """

    points: pa.Table
    meta: Meta

    @classmethod
    def from_points(cls, points: pa.Table, grid: Grid) -> Block | None:
        """Keep points; None where there are none."""
        return cls.joined([points], grid)

    @classmethod
    def joined(cls, parts: Sequence[pa.Table], grid: Grid) -> Block | None:
        """Keep the points of several tables, blocks or not."""
        own = [part.drop_columns([TILE]) if TILE in part.column_names else part for part in parts]
        if not own:
            return None
        # A column that was not kept at the time is null.
        points = pa.concat_tables(own, promote_options="permissive").combine_chunks()
        if not points.num_rows:
            return None
        x, y, time = (points.column(name).to_numpy() for name in ("x", "y", "time"))
        column, row = grid.place_points(x, y)
        cells = CellRect(
            int(column.min()), int(row.min()), int(column.max()) + 1, int(row.max()) + 1
        )
        size = int(row_sizes(points).sum())
        meta = Meta(points.num_rows, size, int(time.min()), int(time.max()), cells)
        tiling = meta.tiling
        tile = (row - tiling.row_start) // tiling.rows * TILES
        tile = (tile + (column - tiling.col_start) // tiling.columns).astype(np.uint16)
        order = np.argsort(tile, kind="stable")
        points = points.take(pa.array(order)).append_column(TILE, pa.array(tile[order]))
        return cls(points.combine_chunks(), meta)

    @cached_property
    def x(self) -> FloatArray:
        """Where the points are."""
        values: FloatArray = self.points.column("x").to_numpy()
        return values

    @cached_property
    def y(self) -> FloatArray:
        """Where the points are."""
        values: FloatArray = self.points.column("y").to_numpy()
        return values

    @cached_property
    def time(self) -> LongArray:
        """When they were there."""
        values: LongArray = self.points.column("time").to_numpy()
        return values

    @cached_property
    def tile(self) -> TileArray:
        """The tile of each; never decreases."""
        values: TileArray = self.points.column(TILE).to_numpy()
        return values


def row_sizes(points: pa.Table) -> LongArray:
    """Return the bytes of each row: of its values, and 4 for the length of a text or a list.

    They depend on the values alone. Bytes for nulls, padding and the rest of a file don't count.
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
    except ValueError:  # of no fixed width
        pass
    try:
        return _lengths(pc.binary_length(array)) + 4
    except pa.ArrowNotImplementedError:
        raise InputError(f"a column of type {kind} cannot be kept for snapshot queries") from None


def _lengths(lengths: pa.Array) -> LongArray:
    found: LongArray = pc.fill_null(lengths, 0).to_numpy().astype(np.int64)
    return found
