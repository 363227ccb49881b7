"""Points and blocks of them, for tests of storage and windows."""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa
from hypothesis import strategies as st

from sparkswarm.geometry import CellRect
from sparkswarm.store.blocks import TILE, Block, BlockMeta, blocks_to_bytes
from sparkswarm.store.files import FileRef
from sparkswarm.store.manifest import BlockRef

from .strategies import grid_of

GRID = grid_of(4, 3)
SCHEMA = pa.schema(
    {
        "id": pa.string(),
        "x": pa.float64(),
        "y": pa.float64(),
        "time": pa.int64(),
        "tags": pa.list_(pa.int32()),
    }
)


class Point(NamedTuple):
    """A point with an id and a column that is kept."""

    id: str
    x: float
    y: float
    time: int
    tags: list[int] | None

    @property
    def size(self) -> int:
        return len(self.id.encode()) + 4 + 3 * 8 + 4 + 4 * len(self.tags or [])

    def is_in(self, cells: CellRect) -> bool:
        column, row = min(int(self.x), GRID.columns - 1), min(int(self.y), GRID.rows - 1)
        return (
            cells.col_start <= column < cells.col_stop and cells.row_start <= row < cells.row_stop
        )


def table_of(points: list[Point]) -> pa.Table:
    return pa.Table.from_pylist([point._asdict() for point in points], SCHEMA)


def block_of(points: list[Point]) -> Block:
    block = Block.concat([table_of(points)], GRID)
    assert block is not None
    content, (offset,) = blocks_to_bytes([block])
    return Block.from_bytes(content, offset, block.meta)


def listed(table: pa.Table) -> list[Point]:
    own = table.drop_columns([TILE]) if TILE in table.column_names else table
    return [Point(**row) for row in own.to_pylist()]


def ref_of(cells: CellRect, meta: BlockMeta) -> BlockRef:
    """Return a reference to a block that is in no file."""
    return BlockRef(cells=cells, meta=meta, file=FileRef("", 0, 0, 0), offset=0)


def block_ref(rows: int, oldest: int, newest: int, cells: CellRect = GRID.cells) -> BlockRef:
    """Return a reference to some points anywhere in the grid."""
    meta = BlockMeta(rows=rows, size=10 * rows, oldest=oldest, newest=newest, cells=GRID.cells)
    return ref_of(cells, meta)


def axis(size: int) -> st.SearchStrategy[float]:
    """Coordinates, many of them on the edges of cells."""
    return st.one_of(st.integers(0, 2 * size).map(lambda v: v / 2), st.floats(0, size))


POINTS = st.builds(
    Point,
    st.text(max_size=3),
    axis(4),
    axis(3),
    st.integers(-12, 6),
    st.one_of(st.none(), st.lists(st.integers(0, 9), max_size=2)),
)
