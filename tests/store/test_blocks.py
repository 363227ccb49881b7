"""Blocks: points come back as they were, with metadata, by cells, box and time."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkswarm.errors import InputError
from sparkswarm.geometry import CellRect
from sparkswarm.store.blocks import Block, row_sizes

from ..support.blocks import GRID, POINTS, Point, block_of, listed, table_of


@given(st.lists(POINTS, min_size=1))
def test_a_block_knows_its_points(points):
    block = block_of(points)
    assert sorted(map(repr, listed(block.points))) == sorted(map(repr, points))
    assert (np.diff(block.tile.astype(int)) >= 0).all()
    meta = block.meta
    times = [p.time for p in points]
    assert (meta.rows, meta.oldest, meta.newest) == (len(points), min(times), max(times))
    assert meta.size == sum(p.size for p in points)
    assert all(p.is_in(meta.cells) for p in points)
    for smaller in (
        meta.cells._replace(col_start=meta.cells.col_start + 1),
        meta.cells._replace(row_start=meta.cells.row_start + 1),
        meta.cells._replace(col_stop=meta.cells.col_stop - 1),
        meta.cells._replace(row_stop=meta.cells.row_stop - 1),
    ):
        assert not all(p.is_in(smaller) for p in points)


def test_a_block_without_points_is_none():
    assert Block.concat([table_of([])], GRID) is None


@pytest.mark.parametrize(
    ("values", "of_type", "sizes"),
    [
        ([1, None], pa.int16(), [2, 2]),
        ([True, None], pa.bool_(), [1, 1]),
        (["aé", "", None], pa.string(), [7, 4, 4]),
        (["aé", "", None], pa.dictionary(pa.int8(), pa.string()), [7, 4, 4]),
        ([b"abc"], pa.large_binary(), [7]),
        ([["a", "bc"], None, []], pa.list_(pa.string()), [4 + 5 + 6, 4, 4]),
        ([{"a": 1, "b": "x"}], pa.struct([("a", pa.int32()), ("b", pa.string())]), [4 + 5]),
        ([[("k", 1)], None], pa.map_(pa.string(), pa.int64()), [4 + 5 + 8, 4]),
        ([None], pa.null(), [0]),
    ],
)
def test_the_size_of_a_row_is_that_of_its_values(values, of_type, sizes):
    array = pa.array(values, of_type)
    table = pa.table({"a": pa.chunked_array([array[:1], array[1:]]), "b": np.arange(len(array))})
    assert row_sizes(table).tolist() == [size + 8 for size in sizes]


def test_what_has_no_size_cannot_be_kept():
    with pytest.raises(InputError, match="cannot be kept"):
        row_sizes(pa.table({"a": pa.array([[1]], pa.list_view(pa.int8()))}))


def all_of(block: Block, cells: CellRect) -> list[Point]:
    return listed(block.points.take(block.rows_in(cells, GRID, since=-100, until=100)))


def test_two_halves_see_each_point_once():
    """Points on the line between two cells belong to the upper one, on the far edge to the last."""
    block = block_of([Point(str(x), x, 3.0, 0, None) for x in (0.0, 1.9, 2.0, 4.0)])
    left, right = GRID.cells.split_columns(2)
    assert [p.id for p in all_of(block, left)] == ["0.0", "1.9"]
    assert [p.id for p in all_of(block, right)] == ["2.0", "4.0"]
