"""Snapshots: whatever is split, moved, merged, compacted and dropped, a query sees its window."""

from __future__ import annotations

import itertools
import random
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkswarm.errors import ConfigError, InputError
from sparkswarm.geometry import CellRect
from sparkswarm.store import tables
from sparkswarm.store.blocks import TILE, Block, Meta, row_sizes
from sparkswarm.window.windows import (
    BEGINNING,
    Count,
    Piece,
    Rectangle,
    Size,
    Sliding,
    Tumbling,
    Window,
    begins,
    border,
    compacted,
    expired,
    moments,
    rows_in,
    surely_since,
    to_compact,
)

from ..support.strategies import grid_of, part_of_the_examples
from ..support.tilings import halves

GRID = grid_of(4, 3)
EVERYWHERE = Rectangle(-np.inf, -np.inf, np.inf, np.inf)
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
    block = Block.from_points(table_of(points), GRID)
    assert block is not None
    content, (begin,) = tables.pack([block.points])
    return Block(tables.unpack(content, begin), block.meta)


def listed(table: pa.Table) -> list[Point]:
    own = table.drop_columns([TILE]) if TILE in table.column_names else table
    return [Point(**row) for row in own.to_pylist()]


# -- a stream and its partitions ---------------------------------------------------------------


class Held(NamedTuple):
    """A piece of a partition and its block."""

    cells: CellRect
    block: Block

    @property
    def piece(self) -> Piece:
        return Piece(self.cells, self.block.meta)


Tiling = dict[CellRect, list[Held]]


def tiled_anew(tiling: Tiling, rng: random.Random) -> Tiling:
    """Split, move and merge at random: successors go on with the pieces under their cells."""
    held = [piece for pieces in tiling.values() for piece in pieces]
    return {
        cells: [
            Held(common, piece.block)
            for piece in held
            if (common := piece.cells.intersection(cells)).area
        ]
        for cells in halves(GRID.cells, rng)
    }


def began(tiling: Tiling, window: Window, now: int) -> int:
    """Return when the window begins, as the engine finds out."""
    held = [piece for pieces in tiling.values() for piece in pieces]
    pieces = [piece.piece for piece in held]
    if isinstance(window, Sliding | Tumbling):
        return surely_since(window, now, pieces)
    at_least, look, rest = border(pieces, window)
    found = [moments(held[i].block, held[i].cells, GRID, window, at_least) for i in look]
    since = begins(found, rest)
    assert since >= at_least
    return since


def expected_beginning(points: list[Point], window: Window, now: int) -> int:
    """Return when the window begins, from all points that there ever were."""
    if isinstance(window, Sliding):
        return now - int(window.length)
    if isinstance(window, Tumbling):
        return now - now % int(window.length)
    total, least = 0, window.size if isinstance(window, Count) else window.bytes
    for point in sorted(points, key=lambda p: -p.time):
        total += 1 if isinstance(window, Count) else point.size
        if total >= least:
            return point.time
    return BEGINNING


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
EDGES = st.one_of(st.integers(-1, 10).map(lambda v: v / 2), st.floats(-1, 5))
RECTANGLES = st.one_of(
    st.just(EVERYWHERE),
    st.tuples(EDGES, EDGES, EDGES, EDGES).map(
        lambda e: Rectangle(min(e[0], e[2]), min(e[1], e[3]), max(e[0], e[2]), max(e[1], e[3]))
    ),
)


class Batch(NamedTuple):
    """Points, with times from when the batch comes, and what is asked after it."""

    points: list[Point]
    passes: int
    rectangle: Rectangle
    narrower: tuple[int, int]


BATCHES = st.builds(
    Batch,
    st.lists(POINTS, max_size=12),
    st.integers(0, 8),
    RECTANGLES,
    st.tuples(st.integers(-30, 2), st.integers(-10, 10)),
)


@pytest.mark.parametrize("kind", [Sliding, Tumbling, Count, Size])
@part_of_the_examples(0.4)
@given(st.integers(1, 25), st.lists(BATCHES, min_size=1, max_size=8), st.integers())
def test_a_query_sees_the_points_of_its_window(kind, length, batches, seed):
    window = kind(40 * length if kind is Size else length)  # a point has about 40 bytes
    rng = random.Random(seed)
    tiling: Tiling = {GRID.cells: []}
    history: list[Point] = []
    clock, now = 0, BEGINNING
    for batch in batches:
        clock += batch.passes
        points = [p._replace(time=p.time + clock) for p in batch.points]
        for cells, pieces in tiling.items():
            here = [p for p in points if p.is_in(cells)]
            for lot in (here[0::2], here[1::2]):  # an owner each
                if lot:
                    pieces.append(Held(cells, block_of(lot)))
        history += points
        if not history:
            continue
        now = max(p.time for p in history)
        tiling = tiled_anew(tiling, rng)

        since = expected_beginning(history, window, now)
        assert began(tiling, window, now) == since
        assert surely_since(window, now, [p.piece for ps in tiling.values() for p in ps]) <= since

        low, high = max(since, now + batch.narrower[0]), now + batch.narrower[1]
        min_x, min_y, max_x, max_y = batch.rectangle
        expected = [
            p
            for p in history
            if min_x <= p.x <= max_x and min_y <= p.y <= max_y and low <= p.time <= high
        ]
        assert seen(tiling, batch.rectangle, low, high) == sorted(map(repr, expected))

        if rng.random() < 0.5:
            everything = [p.piece for ps in tiling.values() for p in ps]
            sure = rng.choice([since, surely_since(window, now, everything)])
            tiling = {cells: kept(cells, pieces, sure, rng) for cells, pieces in tiling.items()}
            in_window = [repr(p) for p in history if p.time >= since]
            assert seen(tiling, EVERYWHERE, since, now) == sorted(in_window)
            assert began(tiling, window, now) == since


def seen(tiling: Tiling, rectangle: Rectangle, since: int, until: int) -> list[str]:
    """Return what all partitions together find."""
    return sorted(
        repr(point)
        for pieces in tiling.values()
        for cells, block in pieces
        for point in listed(block.points.take(rows_in(block, cells, GRID, rectangle, since, until)))
    )


def kept(cells: CellRect, pieces: list[Held], since: int, rng: random.Random) -> list[Held]:
    """Drop what of a partition has expired, and compact the rest."""
    gone = expired([piece.piece for piece in pieces], since)
    pieces = [piece for piece, is_gone in zip(pieces, gone, strict=True) if not is_gone]
    chosen = to_compact([piece.piece for piece in pieces], fan=2, most=rng.choice([2, 8, 100]))
    flat = [i for part in chosen for i in part]
    assert len(flat) == len(set(flat))
    made = []
    for part in chosen:
        block = compacted([(pieces[i].block, pieces[i].cells) for i in part], GRID, since)
        if block is not None:
            assert block.meta.oldest >= since
            made.append(Held(cells, block))
    return [piece for i, piece in enumerate(pieces) if i not in flat] + made


# -- blocks ------------------------------------------------------------------------------------


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
    assert Block.from_points(table_of([]), GRID) is None
    assert compacted([], GRID, 0) is None
    assert compacted([(block_of([Point("a", 1, 1, 5, None)]), GRID.cells)], GRID, 6) is None


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


def test_a_window_of_no_bytes_is_refused():
    with pytest.raises(ConfigError, match="at least one byte"):
        Size(0)


@pytest.mark.parametrize("kind", [Sliding, Tumbling])
def test_a_window_of_time_is_as_long_as_a_duration_says(kind):
    assert kind("5 minutes") == kind(300_000_000)
    assert kind(1).length == 1


@pytest.mark.parametrize("kind", [Sliding, Tumbling])
@pytest.mark.parametrize("length", [0, -1, 1.5, True, None, 2**53 + 1, "0 s", "soon"])
def test_a_window_of_no_time_is_refused(kind, length):
    with pytest.raises((ConfigError, InputError), match=r"longer than nothing|is no duration"):
        kind(length)


# -- which blocks are read, dropped and written anew -------------------------------------------


def piece(rows: int, oldest: int, newest: int, cells: CellRect = GRID.cells) -> Piece:
    return Piece(cells, Meta(rows, 10 * rows, oldest, newest, GRID.cells))


@pytest.mark.parametrize("window", [Count(25), Size(250)])
def test_only_blocks_at_the_border_are_read(window):
    pieces = [piece(10, t, t + 9) for t in range(0, 100, 10)]
    found = border(pieces, window)
    unit = 1 if isinstance(window, Count) else 10
    assert found == (70, (7,), 5 * unit)
    assert expired(pieces, found.at_least) == [True] * 7 + [False] * 3


def test_a_piece_that_is_not_whole_may_hold_nothing():
    half = CellRect(0, 0, 2, 3)
    pieces = [piece(10, 0, 9), piece(10, 10, 19), piece(10, 20, 29, half)]
    assert border(pieces, Count(10)) == (10, (1, 2), 10)
    assert border(pieces, Count(25)) == (BEGINNING, (0, 2), 15)
    assert border(pieces, Count(31)) == (BEGINNING, (), 31)


def test_points_of_one_time_are_all_in_a_window_or_none():
    block = block_of([Point(str(i), 1, 1, time, None) for i, time in enumerate([3, 5, 5, 5, 9])])
    for size, since in [(1, 9), (2, 5), (4, 5), (5, 3), (6, BEGINNING)]:
        assert began({GRID.cells: [Held(GRID.cells, block)]}, Count(size), 9) == since


def compacted_at_once(rows: list[int], fan: int, most: int) -> tuple[list[Piece], int]:
    """Let pieces come one by one, each newer; return what is left and the points written anew."""
    pieces: list[Piece] = []
    written = 0
    for time, count in enumerate(rows):
        pieces.append(piece(count, time, time))
        while chosen := to_compact(pieces, fan, most):
            gone = {i for part in chosen for i in part}
            assert sum(map(len, chosen)) == len(gone)
            left = [p for i, p in enumerate(pieces) if i not in gone]
            for part in chosen:
                metas = [pieces[i].meta for i in part]
                total = sum(meta.rows for meta in metas)
                assert len(part) > 1
                assert total <= most
                written += total
                oldest, newest = min(m.oldest for m in metas), max(m.newest for m in metas)
                left.append(piece(total, oldest, newest))
            pieces = left
        large = sum(p.meta.rows > most // 2 for p in pieces)
        assert len(pieces) < 4 * (large + 1) * fan
        # Neighbours only: blocks still follow each other in time.
        spans = sorted((p.meta.oldest, p.meta.newest) for p in pieces)
        assert all(a[1] < b[0] for a, b in itertools.pairwise(spans))
    assert sum(p.meta.rows for p in pieces) == sum(rows)
    return pieces, written


@given(
    st.lists(st.integers(1, 40), max_size=80), st.integers(2, 5), st.sampled_from([2, 16, 64, 1000])
)
def test_the_number_of_blocks_stays_small(rows, fan, most):
    compacted_at_once(rows, fan, most)


@pytest.mark.parametrize(("fan", "few"), [(4, 12), (8, 15)])
def test_points_are_written_anew_a_few_times_only(fan, few):
    pieces, written = compacted_at_once([1] * 2000, fan, 1 << 20)
    assert len(pieces) < few
    assert written < 2000 * np.log2(2000)


def test_a_part_of_a_large_block_counts_as_what_it_is_worth():
    """A twelfth of a block of 1200 points is about a hundred points."""
    cell = CellRect(1, 1, 2, 2)
    pieces = [piece(1200, t, t, cell) for t in range(4)]
    assert pieces[0].points == 100
    assert to_compact(pieces, fan=4, most=1000) == [(0, 1, 2, 3)]
    assert to_compact([p._replace(cells=GRID.cells) for p in pieces], fan=4, most=1000) == []


def all_of(block: Block, cells: CellRect) -> list[Any]:
    return listed(block.points.take(rows_in(block, cells, GRID, EVERYWHERE, -100, 100)))


def test_two_halves_see_each_point_once():
    """Points on the line between two cells belong to the upper one, on the far edge to the last."""
    block = block_of([Point(str(x), x, 3.0, 0, None) for x in (0.0, 1.9, 2.0, 4.0)])
    left, right = GRID.cells.split_columns(2)
    assert [p.id for p in all_of(block, left)] == ["0.0", "1.9"]
    assert [p.id for p in all_of(block, right)] == ["2.0", "4.0"]
