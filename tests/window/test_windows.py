"""Windows: whatever is split, moved, merged, compacted and dropped, a query sees its window."""

from __future__ import annotations

import pickle
import random
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkswarm.errors import ConfigError, InputError
from sparkswarm.geometry import EVERYWHERE, Box, CellRect
from sparkswarm.store.blocks import MIN_TIME, Block
from sparkswarm.store.manifest import BlockRef
from sparkswarm.window.compaction import choose_compaction, compact
from sparkswarm.window.windows import (
    WINDOWS,
    Bytes,
    Count,
    Sliding,
    Tumbling,
    Window,
    WindowStart,
    exact_start,
    time_weights,
)

from ..support.blocks import GRID, POINTS, Point, block_of, block_ref, listed, ref_of
from ..support.strategies import part_of_the_examples
from ..support.tilings import halves

# -- a stream and its partitions ---------------------------------------------------------------


class Held(NamedTuple):
    """Cells of a partition and a block for them."""

    cells: CellRect
    block: Block

    @property
    def ref(self) -> BlockRef:
        return ref_of(self.cells, self.block.meta)


Tiling = dict[CellRect, list[Held]]


def retiled(tiling: Tiling, rng: random.Random) -> Tiling:
    """Split, move and merge at random: successors go on with the blocks under their cells."""
    held = [one for blocks in tiling.values() for one in blocks]
    return {
        cells: [
            Held(common, one.block)
            for one in held
            if (common := one.cells.intersection(cells)).area
        ]
        for cells in halves(GRID.cells, rng)
    }


def began(tiling: Tiling, window: Window, now: int) -> int:
    """Return when the window begins, as the engine finds out."""
    held = [one for blocks in tiling.values() for one in blocks]
    start = window.start(now, [one.ref for one in held])
    if not start.read:
        return start.at_least
    some = [held[i] for i in start.read]
    found = [time_weights(one.block, one.cells, GRID, window, start.at_least) for one in some]
    since = exact_start(found, start.remaining)
    assert since >= start.at_least
    return since


def expected_beginning(points: list[Point], window: Window, now: int) -> int:
    """Return when the window begins, from all points that there ever were."""
    if isinstance(window, Sliding):
        return now - int(window.length)
    if isinstance(window, Tumbling):
        return now - now % int(window.length)
    total, least = 0, window.points if isinstance(window, Count) else window.limit
    for point in sorted(points, key=lambda p: -p.time):
        total += 1 if isinstance(window, Count) else point.size
        if total >= least:
            return point.time
    return MIN_TIME


EDGES = st.one_of(st.integers(-1, 10).map(lambda v: v / 2), st.floats(-1, 5))
BOXES = st.one_of(
    st.just(EVERYWHERE),
    st.tuples(EDGES, EDGES, EDGES, EDGES).map(
        lambda e: Box(min(e[0], e[2]), min(e[1], e[3]), max(e[0], e[2]), max(e[1], e[3]))
    ),
)


class Batch(NamedTuple):
    """Points, with times from when the batch comes, and what is asked after it."""

    points: list[Point]
    passes: int
    box: Box
    narrower: tuple[int, int]


BATCHES = st.builds(
    Batch,
    st.lists(POINTS, max_size=12),
    st.integers(0, 8),
    BOXES,
    st.tuples(st.integers(-30, 2), st.integers(-10, 10)),
)


@pytest.mark.parametrize("kind", [Sliding, Tumbling, Count, Bytes])
@part_of_the_examples(0.4)
@given(st.integers(1, 25), st.lists(BATCHES, min_size=1, max_size=8), st.integers())
def test_a_query_sees_the_points_of_its_window(kind, length, batches, seed):
    window = kind(40 * length if kind is Bytes else length)  # a point has about 40 bytes
    rng = random.Random(seed)
    tiling: Tiling = {GRID.cells: []}
    history: list[Point] = []
    clock, now = 0, MIN_TIME
    for batch in batches:
        clock += batch.passes
        points = [p._replace(time=p.time + clock) for p in batch.points]
        for cells, blocks in tiling.items():
            here = [p for p in points if p.is_in(cells)]
            for lot in (here[0::2], here[1::2]):  # an owner each
                if lot:
                    blocks.append(Held(cells, block_of(lot)))
        history += points
        if not history:
            continue
        now = max(p.time for p in history)
        tiling = retiled(tiling, rng)

        since = expected_beginning(history, window, now)
        assert began(tiling, window, now) == since
        assert window.start(now, [p.ref for ps in tiling.values() for p in ps]).at_least <= since

        low, high = max(since, now + batch.narrower[0]), now + batch.narrower[1]
        min_x, min_y, max_x, max_y = batch.box
        expected = [
            p
            for p in history
            if min_x <= p.x <= max_x and min_y <= p.y <= max_y and low <= p.time <= high
        ]
        assert seen(tiling, batch.box, low, high) == sorted(map(repr, expected))

        if rng.random() < 0.5:
            everything = [p.ref for ps in tiling.values() for p in ps]
            sure = rng.choice([since, window.start(now, everything).at_least])
            tiling = {cells: kept(cells, blocks, sure, rng) for cells, blocks in tiling.items()}
            in_window = [repr(p) for p in history if p.time >= since]
            assert seen(tiling, EVERYWHERE, since, now) == sorted(in_window)
            assert began(tiling, window, now) == since


def seen(tiling: Tiling, box: Box, since: int, until: int) -> list[str]:
    """Return what all partitions together find."""
    return sorted(
        repr(point)
        for blocks in tiling.values()
        for cells, block in blocks
        for point in listed(block.points.take(block.rows_in(cells, GRID, box, since, until)))
    )


def kept(cells: CellRect, blocks: list[Held], since: int, rng: random.Random) -> list[Held]:
    """Drop what of a partition has expired, and compact the rest."""
    blocks = [one for one in blocks if one.block.meta.newest >= since]
    chosen = choose_compaction(
        [one.ref for one in blocks], fan_in=2, max_points=rng.choice([2, 8, 100])
    )
    flat = [i for part in chosen for i in part]
    assert len(flat) == len(set(flat))
    made = []
    for part in chosen:
        block = compact([(blocks[i].block, blocks[i].cells) for i in part], GRID, since)
        if block is not None:
            assert block.meta.oldest >= since
            made.append(Held(cells, block))
    return [one for i, one in enumerate(blocks) if i not in flat] + made


def test_a_window_of_no_bytes_is_refused():
    with pytest.raises(ConfigError, match="at least one byte"):
        Bytes(0)


@pytest.mark.parametrize("kind", [Sliding, Tumbling])
def test_a_window_of_time_is_as_long_as_a_duration_says(kind):
    assert kind("5 minutes") == kind(300_000_000)
    assert kind(1).length == 1


@pytest.mark.parametrize("kind", [Sliding, Tumbling])
@pytest.mark.parametrize("length", [0, -1, 1.5, True, None, 2**53 + 1, "0 s", "soon"])
def test_a_window_of_no_time_is_refused(kind, length):
    with pytest.raises((ConfigError, InputError), match=r"longer than nothing|is no duration"):
        kind(length)


# -- which blocks are read and dropped ---------------------------------------------------------


@pytest.mark.parametrize("window", [Count(25), Bytes(250)])
def test_only_blocks_at_the_border_are_read(window):
    blocks = [block_ref(10, t, t + 9) for t in range(0, 100, 10)]
    found = window.start(99, blocks)
    unit = 1 if isinstance(window, Count) else 10
    assert found == WindowStart(at_least=70, read=(7,), remaining=5 * unit)
    assert [p.meta.newest < found.at_least for p in blocks] == [True] * 7 + [False] * 3


def test_a_block_that_is_not_whole_may_hold_nothing():
    half = CellRect(0, 0, 2, 3)
    blocks = [block_ref(10, 0, 9), block_ref(10, 10, 19), block_ref(10, 20, 29, half)]
    assert Count(10).start(29, blocks) == WindowStart(at_least=10, read=(1, 2), remaining=10)
    assert Count(25).start(29, blocks) == WindowStart(at_least=MIN_TIME, read=(0, 2), remaining=15)
    assert Count(31).start(29, blocks) == WindowStart(at_least=MIN_TIME, read=(), remaining=31)


def test_points_of_one_time_are_all_in_a_window_or_none():
    block = block_of([Point(str(i), 1, 1, time, None) for i, time in enumerate([3, 5, 5, 5, 9])])
    for size, since in [(1, 9), (2, 5), (4, 5), (5, 3), (6, MIN_TIME)]:
        assert began({GRID.cells: [Held(GRID.cells, block)]}, Count(size), 9) == since


# -- names ---------------------------------------------------------------------------------------


def test_every_window_is_registered_under_its_name() -> None:
    assert [kind.__name__ for kind in WINDOWS.values()] == ["Sliding", "Tumbling", "Count", "Bytes"]
    assert all(kind.name == name and kind.meaning for name, kind in WINDOWS.items())


def test_the_argument_of_an_earlier_version_answers_with_its_new_name() -> None:
    assert Count(points=3) == Count(3)
    with pytest.raises(TypeError, match=r"renamed to Count\(points=\.\.\.\)"):
        Count(size=3)  # type: ignore[call-arg]


@pytest.mark.parametrize("window", [Sliding(5), Tumbling(5), Count(5), Bytes(5)])
def test_a_window_travels_to_tasks(window: Window) -> None:
    assert pickle.loads(pickle.dumps(window)) == window
