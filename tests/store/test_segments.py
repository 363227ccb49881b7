"""Bases, directories, and the cache of opened files."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sparkswarm.geometry import Bounds, CellRect, Grid
from sparkswarm.store.cache import QueryCache
from sparkswarm.store.directory import Directory, find_sorted
from sparkswarm.store.files import FileRef, Files
from sparkswarm.store.formats import arrays_to_bytes
from sparkswarm.store.manifest import Manifest, SegmentRef
from sparkswarm.store.operations import store_operations
from sparkswarm.store.prices import PriceRaster
from sparkswarm.store.queries import NEVER, Op, Operations, Queries, cell_array
from sparkswarm.store.segments import NONE_REMOVED, Base, each_once, with_own_delta

from ..support.stored import Box, Known, boxes_in, columns, found_in, lattice, listed
from ..support.strategies import grid_of

GRID = grid_of(4, 4)
LEFT, RIGHT = GRID.cells.split_columns(2)
ON_LEFT: Box = (0.5, 0.5, 1.5, 1.5)
ON_RIGHT: Box = (2.5, 0.5, 3.5, 1.5)
ON_BOTH: Box = (1.5, 0.5, 2.5, 1.5)

KNOWN = st.dictionaries(
    st.integers(-(2**63), 2**63 - 1),
    st.tuples(boxes_in(GRID), st.sampled_from([NEVER, NEVER, 5, 2**40])),
    max_size=20,
)


# -- bases -------------------------------------------------------------------------------------


@given(KNOWN)
def test_a_base_survives_its_file(known: Known) -> None:
    details = pa.array([f"{key}".encode() for key in known], pa.large_binary())
    queries = columns(known)._replace(attributes=details)
    base = Base.from_bytes(Base.build(queries, GRID, GRID.cells).to_bytes())
    assert listed(base.queries) == known
    assert [int(value.as_py()) for value in base.attributes] == base.index.ids.tolist()
    plain = Base.from_bytes(Base.build(columns(known), GRID, GRID.cells).to_bytes())
    assert plain.attributes is None


@given(boxes_in(GRID), st.sampled_from([LEFT, RIGHT, CellRect(1, 1, 2, 2)]))
@example((0.0, 0.0, 1.0, 1.0), CellRect(1, 1, 2, 2))
def test_only_queries_that_overlap_a_segment_serve_it(box: Box, cells: CellRect) -> None:
    base = Base.build(columns({1: (box, NEVER)}), GRID, GRID.cells)
    serves = bool(len(base.live_queries(NONE_REMOVED, cells, GRID).ids))
    assert serves == columns({1: (box, NEVER)}).cells(GRID).rect(0).overlaps(cells)
    x, y = lattice(GRID)
    column, row = GRID.place_points(x, y)
    inside = cells.contains_cells(column, row)
    found = found_in(base, NONE_REMOVED, x[inside], y[inside], 0)
    assert serves or not any(found)


def test_a_query_of_several_segments_is_returned_once() -> None:
    parts = [columns({1: (ON_BOTH, NEVER), 2: (ON_LEFT, 7)}), columns({1: (ON_BOTH, NEVER)})]
    assert listed(each_once(parts)) == {1: (ON_BOTH, NEVER), 2: (ON_LEFT, 7)}
    older = [columns({1: (ON_BOTH, 5)}), columns({1: (ON_LEFT, NEVER)})]
    assert listed(each_once(older)) == {1: (ON_LEFT, NEVER)}
    assert listed(each_once([])) == {}


def test_a_segment_of_format_2_is_read_with_its_own_delta() -> None:
    base = Base.build(columns({1: (ON_LEFT, NEVER), 2: (ON_BOTH, NEVER)}), GRID, GRID.cells)
    added = Base.build(columns({3: (ON_LEFT, 9), 4: (ON_RIGHT, NEVER)}), GRID, LEFT)
    dead = np.flatnonzero(base.index.ids == 2).astype(np.int32)
    content = arrays_to_bytes({**added.arrays(), "dead": dead})
    segment = with_own_delta(base, content, LEFT, GRID)
    assert listed(segment.live_queries(GRID.cells, GRID)) == {
        1: (ON_LEFT, NEVER),
        3: (ON_LEFT, 9),
    }


# -- directories -------------------------------------------------------------------------------


@given(
    st.sets(st.integers(-50, 50)).map(sorted),
    st.lists(st.integers(-50, 50)).map(sorted),
)
@example([2**62], [])
@example([0, 1], [1] * 40)
def test_ids_are_found_where_they_are(wanted: list[int], among: list[int]) -> None:
    start, stop = find_sorted(np.array(wanted, np.int64), np.array(among, np.int64))
    for value, low, high in zip(wanted, start, stop, strict=True):
        assert high - low == among.count(value)
        assert all(found == value for found in among[low:high])


@pytest.mark.parametrize("grid", [GRID, Grid(Bounds(0.0, 0.0, 4.0, 4.0), 70_000, 4)])
def test_a_directory_says_where_queries_are(grid: Grid) -> None:
    left, right = grid.cells.split_columns(grid.columns // 2)
    bases = [
        (left, Base.build(columns({5: (ON_LEFT, NEVER), 1: (ON_BOTH, 7)}), grid, left)),
        (right, Base.build(columns({1: (ON_BOTH, 7), 3: (ON_RIGHT, NEVER)}), grid, right)),
    ]
    directory = Directory.from_bytes(Directory.build(bases, grid).to_bytes())
    assert directory.ids.tolist() == [1, 1, 3, 5]
    assert directory.is_home.tolist() == [1, 0, 1, 1]
    for i, key in enumerate(directory.ids):
        index = bases[directory.base[i]][1].index
        position = directory.position[i]
        assert index.ids[position] == key
        cells = Queries(index.ids, index.boxes, index.ids).cells(grid)
        assert directory.cells[i].tolist() == cell_array(cells)[position].tolist()
    assert directory.expiry_at(np.arange(4)).tolist() == [7, 7, NEVER, NEVER]
    empty = Directory.build([], grid)
    assert len(Directory.from_bytes(empty.to_bytes()).ids) == 0


# -- prices ------------------------------------------------------------------------------------


def test_a_fine_grid_has_a_coarse_raster() -> None:
    raster = PriceRaster.empty(Grid(Bounds(0.0, 0.0, 1.0, 1.0), 5000, 3))
    assert (raster.factor, raster.counts.shape) == (3, (1, 1667))
    cells = np.array([[0, 0, 3, 1], [2, 1, 4, 3], [4997, 0, 5000, 3], [0, 0, 0, 0]])
    counted = PriceRaster.from_bytes(raster.corrected([cells]).to_bytes())
    assert counted.counts[0, :2].tolist() == [2, 1]
    assert counted.counts[0, -2:].tolist() == [1, 1]
    assert counted.counts.sum() == 5
    assert not counted.corrected(removed=[cells]).counts.any()


# -- the cache -----------------------------------------------------------------------------------


class CountedFiles(Files):
    """Files that count how often each is mapped."""

    def mmap(self, ref: FileRef, batch: int = 0) -> pa.Buffer:
        MAPPED.append(ref.name)
        return super().mmap(ref, batch)


MAPPED: list[str] = []


def test_a_cache_maps_and_builds_every_file_once(tmp_path) -> None:
    files = CountedFiles(str(tmp_path))
    base = Base.build(columns({1: (ON_LEFT, NEVER), 2: (ON_RIGHT, NEVER)}), GRID, GRID.cells)
    ref = files.write("base", base.to_bytes(), 2)
    left, right = SegmentRef(LEFT, ref), SegmentRef(RIGHT, ref)
    manifest = Manifest(0, {0: (left,), 1: (right,)})
    cache = QueryCache(files)
    made: list[list[int]] = []

    def build(queries: Queries) -> int:
        made.append(sorted(queries.ids.tolist()))
        return len(made)

    MAPPED.clear()
    for one in (left, right, left):
        segment = cache.segment(one, manifest, GRID)
        assert segment.cells == one.cells
        assert not len(segment.removed)
        assert cache.built(ref, segment.base, build) == 1
    assert (MAPPED, made) == (["base"], [[1, 2]])
    cache.drop_built()
    assert cache.built(ref, base, build) == 2
    cache.begin(1, {ref.name})
    cache.segment(left, manifest, GRID)
    assert MAPPED == ["base"]
    cache.begin(2, set())
    cache.segment(left, manifest, GRID)
    assert MAPPED == ["base", "base"]


def test_a_segment_without_a_base_is_empty(tmp_path) -> None:
    cache = QueryCache(Files(str(tmp_path)))
    ref = SegmentRef(GRID.cells)
    segment = cache.segment(ref, Manifest(0, {0: (ref,)}), GRID)
    assert len(segment.live_queries(GRID.cells, GRID).ids) == 0
    assert cache.built(None, segment.base, lambda queries: 1) is None


def test_a_delta_is_read_again_as_it_was_written(tmp_path) -> None:
    files = Files(str(tmp_path))
    details = pa.array([b"{}", None], pa.large_binary())
    queries = columns({7: (ON_LEFT, 5), 9: (ON_RIGHT, NEVER)})._replace(attributes=details)
    operations = Operations(np.full(2, Op.REGISTER, np.int8), queries, np.arange(2))
    written = QueryCache(files)
    stored = store_operations(
        operations,
        Manifest(0, {0: (SegmentRef(GRID.cells),)}),
        written,
        GRID,
        batch=3,
        clock=0,
        purge_before=0,
        write=lambda content, rows: files.write("delta", content, rows),
    )
    for cache in (written, QueryCache(files)):
        (one,) = cache.deltas(stored.manifest)
        assert one.delta.ids.tolist() == [7, 9]
        assert one.delta.batches.tolist() == [3, 3]
        assert one.delta.added.index.ids[one.delta.positions].tolist() == [7, 9]
        assert listed(one.delta.added.queries) == listed(queries)
