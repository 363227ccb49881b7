"""Compaction: a partition's blocks stay few, and points are rewritten a few times only."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkswarm.geometry import CellRect
from sparkswarm.store.manifest import BlockRef
from sparkswarm.window.compaction import choose_compaction, compact

from ..support.blocks import GRID, Point, block_of, block_ref


def test_nothing_left_is_no_block() -> None:
    assert compact([], GRID, 0) is None
    assert compact([(block_of([Point("a", 1, 1, 5, None)]), GRID.cells)], GRID, 6) is None


def compacted_at_once(rows: list[int], fan: int, most: int) -> tuple[list[BlockRef], int]:
    """Let blocks come one by one, each newer; return what is left and the points rewritten."""
    blocks: list[BlockRef] = []
    written = 0
    for time, count in enumerate(rows):
        blocks.append(block_ref(count, time, time))
        while chosen := choose_compaction(blocks, fan, most):
            gone = {i for part in chosen for i in part}
            assert sum(map(len, chosen)) == len(gone)
            left = [p for i, p in enumerate(blocks) if i not in gone]
            for part in chosen:
                metas = [blocks[i].meta for i in part]
                total = sum(meta.rows for meta in metas)
                assert len(part) > 1
                assert total <= most
                written += total
                oldest, newest = min(m.oldest for m in metas), max(m.newest for m in metas)
                left.append(block_ref(total, oldest, newest))
            blocks = left
        large = sum(p.meta.rows > most // 2 for p in blocks)
        assert len(blocks) < 4 * (large + 1) * fan
        # Neighbours only: blocks still follow each other in time.
        spans = sorted((p.meta.oldest, p.meta.newest) for p in blocks)
        assert all(a[1] < b[0] for a, b in itertools.pairwise(spans))
    assert sum(p.meta.rows for p in blocks) == sum(rows)
    return blocks, written


@given(
    st.lists(st.integers(1, 40), max_size=80), st.integers(2, 5), st.sampled_from([2, 16, 64, 1000])
)
def test_the_number_of_blocks_stays_small(rows, fan, most):
    compacted_at_once(rows, fan, most)


@pytest.mark.parametrize(("fan", "few"), [(4, 12), (8, 15)])
def test_points_are_rewritten_a_few_times_only(fan, few):
    blocks, written = compacted_at_once([1] * 2000, fan, 1 << 20)
    assert len(blocks) < few
    assert written < 2000 * np.log2(2000)


def test_a_part_of_a_large_block_counts_as_what_it_is_worth():
    """A twelfth of a block of 1200 points is about a hundred points."""
    cell = CellRect(1, 1, 2, 2)
    blocks = [block_ref(1200, t, t, cell) for t in range(4)]
    assert blocks[0].points == 100
    assert choose_compaction(blocks, fan_in=4, max_points=1000) == [(0, 1, 2, 3)]
    assert (
        choose_compaction([replace(p, cells=GRID.cells) for p in blocks], fan_in=4, max_points=1000)
        == []
    )
