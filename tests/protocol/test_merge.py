"""Merging finds rectangles, all of them that joining two by two can find, and loses no cell."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkswarm.geometry import CellRect
from sparkswarm.protocol.merge import Merge, find_merges
from sparkswarm.protocol.partition import Partition, merged
from sparkswarm.protocol.plan import Plan

from ..support.strategies import Operation, World, grid_of, operations, painted, tilings


def cells_of(rect: CellRect) -> list[tuple[int, int]]:
    return list(
        itertools.product(
            range(rect.col_start, rect.col_stop), range(rect.row_start, rect.row_stop)
        )
    )


def form_a_rectangle(a: CellRect, b: CellRect) -> bool:
    around = CellRect(
        min(a.col_start, b.col_start),
        min(a.row_start, b.row_start),
        max(a.col_stop, b.col_stop),
        max(a.row_stop, b.row_stop),
    )
    return around.area == a.area + b.area


def left_over(partitions: list[Partition], found: list[Merge]) -> list[CellRect]:
    """Return the rectangles of one executor after its merges, shared ones apart."""
    gone = {p.id for merge in found for p in merge.partitions}
    stay = [p.cells for p in partitions if p.id not in gone and not p.is_shared]
    return stay + [merge.cells for merge in found]


# Two executors, so that one holds many partitions that touch.
some_tilings = tilings(executors=2)


def holdings(plan: Plan) -> list[list[Partition]]:
    return [list(plan.owned_by(executor)) for executor in range(plan.executors)]


@given(some_tilings)
def test_the_members_of_a_merge_are_exactly_its_rectangle(plan: Plan) -> None:
    for partitions in holdings(plan):
        for merge in find_merges(partitions):
            covered = [cell for p in merge.partitions for cell in cells_of(p.cells)]
            assert sorted(covered) == cells_of(merge.cells)


@given(some_tilings)
def test_every_member_is_one_of_ours_not_shared_and_in_one_merge_only(plan: Plan) -> None:
    for partitions in holdings(plan):
        found = find_merges(partitions)
        members = [p for merge in found for p in merge.partitions]
        assert len({p.id for p in members}) == len(members)
        assert all(p in partitions and not p.is_shared for p in members)
        assert all(len(merge.partitions) > 1 for merge in found)


@given(some_tilings)
def test_no_two_of_the_rectangles_left_can_be_joined(plan: Plan) -> None:
    for partitions in holdings(plan):
        rects = left_over(partitions, find_merges(partitions))
        for a, b in itertools.combinations(rects, 2):
            assert not form_a_rectangle(a, b)


@given(some_tilings, st.lists(operations, max_size=10))
def test_merging_keeps_the_tiling_and_a_second_time_finds_nothing(
    plan: Plan, history: list[Operation]
) -> None:
    world = World(plan)
    for operation in history:
        world.step(operation)
    plan = world.plan
    for executor in range(plan.executors):
        before = painted(plan)
        others = [p for p in plan.partitions if p.owners != (executor,)]
        found = find_merges(plan.owned_by(executor))
        ids, plan = plan.reserve(len(found))
        plan = plan.apply(
            merged(merge.partitions, merge.cells, fresh)
            for merge, fresh in zip(found, ids, strict=True)
        )
        plan.check_tiling()
        assert [p for p in plan.partitions if p.owners != (executor,)] == others
        for merge, fresh in zip(found, ids, strict=True):
            assert (painted(plan)[merge.cells.slices] == fresh).all()
        unchanged = painted(plan) < ids.start
        assert (painted(plan)[unchanged] == before[unchanged]).all()
        assert find_merges(plan.owned_by(executor)) == []


@given(some_tilings, st.randoms(use_true_random=False))
def test_the_order_in_which_partitions_come_does_not_matter(plan: Plan, rng: random.Random) -> None:
    for partitions in holdings(plan):
        found = find_merges(partitions)
        assert find_merges(iter(partitions)) == found
        rng.shuffle(partitions)
        assert find_merges(partitions) == found


def numbered(*rects: tuple[int, int, int, int]) -> list[Partition]:
    return [Partition(i, CellRect(*rect), (0,)) for i, rect in enumerate(rects)]


@pytest.mark.parametrize(
    ("rects", "expected"),
    [
        pytest.param([(0, 0, 1, 2), (1, 0, 3, 2)], [(0, 0, 3, 2)], id="side by side"),
        pytest.param([(1, 0, 3, 2), (0, 0, 1, 2)], [(0, 0, 3, 2)], id="side by side, right first"),
        pytest.param([(0, 0, 2, 1), (0, 1, 2, 4)], [(0, 0, 2, 4)], id="one above the other"),
        pytest.param([(0, 1, 2, 4), (0, 0, 2, 1)], [(0, 0, 2, 4)], id="one below the other"),
        pytest.param([(0, 0, 1, 2), (2, 0, 3, 2)], [], id="a gap between"),
        pytest.param([(0, 0, 1, 2), (1, 0, 2, 3)], [], id="sides of different length"),
        pytest.param([(0, 0, 1, 2), (1, 1, 2, 3)], [], id="sides that are shifted"),
        pytest.param([(0, 0, 1, 1), (1, 1, 2, 2)], [], id="corners that touch"),
        pytest.param(
            [(0, 0, 1, 2), (1, 0, 2, 1), (1, 1, 2, 2)],
            [(0, 0, 2, 2)],
            id="two that must be joined before the third fits",
        ),
        pytest.param(
            [(0, 0, 1, 1), (1, 0, 2, 1), (4, 4, 5, 5), (4, 5, 5, 6), (8, 8, 9, 9)],
            [(0, 0, 2, 1), (4, 4, 5, 6)],
            id="two merges and one left alone",
        ),
        pytest.param([(0, 0, 3, 3)], [], id="one alone"),
        pytest.param([], [], id="none"),
    ],
)
def test_merges_worked_by_hand(rects, expected) -> None:
    assert sorted(merge.cells for merge in find_merges(numbered(*rects))) == expected


def test_a_pinwheel_of_five_stays() -> None:
    pinwheel = numbered((0, 0, 2, 1), (2, 0, 3, 2), (1, 2, 3, 3), (0, 1, 1, 3), (1, 1, 2, 2))
    Plan(0, grid_of(3, 3), 1, tuple(pinwheel), 5).check_tiling()
    assert find_merges(pinwheel) == []


@pytest.mark.parametrize(("columns", "rows"), [(1, 9), (9, 1), (4, 4), (6, 5), (7, 3)])
def test_a_grid_split_to_its_last_cell_becomes_one_again(columns: int, rows: int) -> None:
    plan = Plan.initial(grid_of(columns, rows), columns * rows)
    cells = [Partition(p.id, p.cells, (0,)) for p in plan.partitions]
    assert len(cells) == columns * rows
    (merge,) = find_merges(cells)
    assert merge.cells == plan.grid.cells
    assert sorted(p.id for p in merge.partitions) == [p.id for p in cells]


def test_shared_partitions_are_left_alone_and_joined_across_nothing() -> None:
    left, middle, right = numbered((0, 0, 1, 2), (1, 0, 2, 2), (2, 0, 3, 2))
    shared = Partition(middle.id, middle.cells, (0, 1), (32, 32))
    assert find_merges([left, shared, right]) == []
    assert find_merges([shared, Partition(9, right.cells, (0, 1), (32, 32))]) == []
