"""Blocks: points of the recent past, in the order of their time, in files that never change.

Owns the layout: an Arrow file that can be memory-mapped, and the few facts about it that the
driver keeps. Points of a block have a place in the grid and a time; ids and the other columns
kept are of any type.
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
from sparkswarm.protocol.geometry import CellRect, FloatArray, Grid

LongArray = npt.NDArray[np.int64]


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


@dataclass(frozen=True)
class Block:
    """Some points, at least one.

    Attributes
    ----------
    points
        ``id``, ``x``, ``y``, ``time`` (microseconds) and the columns kept, oldest first.
    meta
        What is known of them.
    """

    points: pa.Table
    meta: Meta

    @classmethod
    def from_points(cls, points: pa.Table, grid: Grid) -> Block | None:
        """Keep points; None where there are none. Those of one time stay in their order."""
        return cls.joined([points], grid)

    @classmethod
    def joined(cls, parts: Sequence[pa.Table], grid: Grid) -> Block | None:
        """Keep the points of several tables with the same columns."""
        points = pa.concat_tables(parts).combine_chunks() if parts else None
        if points is None or not points.num_rows:
            return None
        times = points.column("time").to_numpy()
        if (times[1:] < times[:-1]).any():
            order = np.argsort(times, kind="stable")
            points, times = points.take(order).combine_chunks(), times[order]
        column, row = grid.place_points(
            points.column("x").to_numpy(), points.column("y").to_numpy()
        )
        cells = CellRect(
            int(column.min()), int(row.min()), int(column.max()) + 1, int(row.max()) + 1
        )
        size = int(row_sizes(points).sum())
        return cls(points, Meta(points.num_rows, size, int(times[0]), int(times[-1]), cells))

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
        """When they were there; never decreases."""
        values: LongArray = self.points.column("time").to_numpy()
        return values

    def between(self, since: int, until: int) -> tuple[int, int]:
        """Return the first point and the one after the last from ``since`` to ``until``."""
        first = int(np.searchsorted(self.time, since))
        return first, max(first, int(np.searchsorted(self.time, until, "right")))


def pack(blocks: Sequence[Block]) -> pa.Buffer:
    """Return the content of a file with some blocks, at least one, that have the same columns."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, blocks[0].points.schema) as writer:
        for block in blocks:
            (batch,) = block.points.combine_chunks().to_batches()
            writer.write_batch(batch)
    return sink.getvalue()


def unpack(content: pa.Buffer, number: int, meta: Meta) -> Block:
    """Return one of the blocks that :func:`pack` wrote; nothing is copied."""
    batch = pa.ipc.open_file(content).get_batch(number)
    return Block(pa.Table.from_batches([batch]), meta)


def row_sizes(points: pa.Table) -> LongArray:
    """Return the bytes of each row: of its values, and 4 for the length of a text or a list.

    They depend on the values alone. Bytes for nulls, padding and the rest of a file don't count.
    """
    sizes = np.zeros(points.num_rows, np.int64)
    for column in points.columns:
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
