"""Partitions, and changes that hand exactly the same cells on."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkswarm.errors import PlanError
from sparkswarm.geometry import CellRect
from sparkswarm.protocol.partition import (
    TICKETS,
    ChangeKind,
    Partition,
    PlanChange,
    Shares,
    merged,
    moved,
    reshared,
    split,
    successor,
)
from sparkswarm.protocol.plan import Plan

from ..support.strategies import Operation, World, grid_of, make_changes, operations, tilings

WHOLE = CellRect(2, 1, 6, 5)
LEFT, RIGHT = WHOLE.split_columns(1)
TOP, BOTTOM = WHOLE.split_rows(3)


def partition(cells: CellRect, number: int = 1, *owners: int) -> Partition:
    """Return a partition with these owners, the first of whom has most of the tickets."""
    if len(owners) < 2:
        return Partition(number, cells, owners or (0,))
    others = len(owners) - 1
    return Partition(number, cells, owners, (TICKETS - 7 * others, *[7] * others))


# -- partitions --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "cells",
    [CellRect(3, 3, 3, 5), CellRect(3, 3, 5, 3), CellRect(5, 3, 3, 5), CellRect(5, 5, 3, 3)],
)
def test_a_partition_without_cells_is_refused(cells: CellRect) -> None:
    with pytest.raises(PlanError, match=r"partition 7 has no cells.*col_start="):
        Partition(7, cells, (0,))


@pytest.mark.parametrize("owners", [(), (1, 1), (0, 2, 0)])
def test_a_partition_without_owners_or_with_one_twice_is_refused(owners) -> None:
    with pytest.raises(PlanError, match=r"partition 7 needs distinct owners, got \("):
        Partition(7, WHOLE, owners)


def test_a_partition_is_shared_when_it_has_several_owners() -> None:
    assert not Partition(1, WHOLE, (3,)).is_shared
    assert Partition(1, WHOLE, (3, 0), (16, 48)).is_shared


def test_the_shares_are_the_tickets_of_each_owner_and_all_of_them_for_one_alone() -> None:
    assert Partition(1, WHOLE, (3,)).shares == {3: TICKETS}
    assert Partition(1, WHOLE, (3, 0), (16, 48)).shares == {3: 16, 0: 48}
    everybody = Partition(1, WHOLE, tuple(range(TICKETS)), (1,) * TICKETS)
    assert everybody.shares == dict.fromkeys(range(TICKETS), 1)


@pytest.mark.parametrize(
    ("owners", "tickets"),
    [
        pytest.param((1, 2), (), id="none"),
        pytest.param((1, 2), (64,), id="too few owners have some"),
        pytest.param((1, 2), (32, 16, 16), id="more have some than there are owners"),
        pytest.param((1, 2), (64, 0), id="an owner without"),
        pytest.param((1, 2), (65, -1), id="less than none"),
        pytest.param((1, 2), (32, 31), id="one is lost"),
        pytest.param((1, 2), (32, 33), id="one too many"),
    ],
)
def test_a_shared_partition_whose_tickets_do_not_add_up_is_refused(owners, tickets) -> None:
    with pytest.raises(
        PlanError, match=r"partition 7 needs tickets for 2 owners, 64 in all, got \("
    ):
        Partition(7, WHOLE, owners, tickets)


def test_tickets_of_a_partition_that_is_not_shared_are_refused() -> None:
    with pytest.raises(PlanError, match="partition 7 has one owner and must not have tickets"):
        Partition(7, WHOLE, (1,), (TICKETS,))


@pytest.mark.parametrize(
    ("cells", "is_cell"),
    [
        (CellRect(3, 4, 4, 5), True),
        (CellRect(3, 4, 5, 5), False),
        (CellRect(3, 4, 4, 6), False),
        (CellRect(3, 4, 5, 6), False),
    ],
)
def test_a_partition_is_a_cell_when_it_has_just_one(cells: CellRect, is_cell: bool) -> None:
    assert partition(cells).is_cell == is_cell


def test_partitions_and_changes_cannot_be_changed_in_place() -> None:
    one = partition(WHOLE, 3, 1)
    with pytest.raises(FrozenInstanceError):
        one.owners = (2,)  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        moved(one, 1, 2, 4).created = ()  # type: ignore[misc]


# -- changes that cannot be --------------------------------------------------------------------


def change(retired: list[CellRect], created: list[CellRect]) -> PlanChange:
    return PlanChange(
        ChangeKind.SPLIT,
        tuple(partition(cells, i) for i, cells in enumerate(retired)),
        tuple(partition(cells, 10 + i) for i, cells in enumerate(created)),
    )


@pytest.mark.parametrize(
    ("retired", "created"),
    [
        pytest.param([WHOLE], [WHOLE], id="one becomes one"),
        pytest.param([WHOLE], [LEFT, RIGHT], id="one becomes two columns"),
        pytest.param([WHOLE], [BOTTOM, TOP], id="one becomes two rows, in any order"),
        pytest.param([LEFT, RIGHT], [WHOLE], id="two become one"),
        pytest.param(
            [WHOLE], [*TOP.split_columns(2), *BOTTOM.split_columns(1)], id="one becomes four"
        ),
    ],
)
def test_a_change_hands_on_exactly_the_same_cells(retired, created) -> None:
    made = change(retired, created)
    assert made.cells == WHOLE


GAP = RIGHT._replace(col_start=RIGHT.col_start + 1)
OUTSIDE = RIGHT._replace(col_start=RIGHT.col_start + 1, col_stop=RIGHT.col_stop + 1)
SHIFTED = TOP._replace(row_start=TOP.row_start + 1, row_stop=TOP.row_stop + 1)


@pytest.mark.parametrize(
    ("retired", "created"),
    [
        pytest.param([WHOLE], [LEFT], id="a part is dropped"),
        pytest.param([LEFT], [WHOLE], id="cells are won"),
        pytest.param([WHOLE], [LEFT, GAP], id="a gap"),
        pytest.param([LEFT, GAP], [WHOLE], id="a gap in a merge"),
        pytest.param([WHOLE], [LEFT, OUTSIDE], id="as many cells, one column outside"),
        pytest.param([LEFT, OUTSIDE], [WHOLE], id="a merge of as many cells, one column outside"),
        pytest.param([WHOLE], [LEFT, RIGHT, LEFT], id="a cell twice and too many"),
    ],
)
def test_a_change_that_does_not_cover_the_same_cells_is_refused(retired, created) -> None:
    with pytest.raises(PlanError, match=r"split p0@0.* into p10@0.* does not cover the same cells"):
        change(retired, created)


@pytest.mark.parametrize("position", range(3))
def test_an_overlap_is_found_though_the_number_of_cells_is_right(position: int) -> None:
    # The first row is missing, the last row of SHIFTED is there twice.
    pieces = [SHIFTED, BOTTOM]
    assert sum(cells.area for cells in pieces) == WHOLE.area
    with pytest.raises(PlanError, match="covers a cell twice"):
        change([WHOLE], pieces)
    with pytest.raises(PlanError, match="covers a cell twice"):
        change(pieces, [WHOLE])
    # Wherever the two stand among other pieces.
    first, second = BOTTOM.split_columns(2)
    three = [SHIFTED, first, second]
    with pytest.raises(PlanError, match="covers a cell twice"):
        change([WHOLE], three[position:] + three[:position])


@pytest.mark.parametrize(
    ("retired", "created", "message"),
    [
        ([LEFT, RIGHT], [TOP, BOTTOM], "not 2 into 2"),
        ([], [WHOLE], "not 0 into 1"),
        ([WHOLE], [], "not 1 into 0"),
        ([], [], "not 0 into 0"),
    ],
)
def test_several_cannot_become_several_nor_anything_nothing(retired, created, message) -> None:
    with pytest.raises(PlanError, match=message):
        change(retired, created)


# -- changes as they are made ------------------------------------------------------------------


def test_a_successor_names_its_parents_and_all_their_owners_once() -> None:
    parents = (partition(LEFT, 3, 2, 0), partition(RIGHT, 5, 1, 2))
    heir = successor(9, WHOLE, {4: TICKETS}, *parents)
    assert heir == Partition(9, WHOLE, (4,), (), parents=(3, 5), previous_owners=(2, 0, 1))


def test_a_successor_leaves_out_who_has_no_tickets() -> None:
    heir = successor(9, WHOLE, {4: 24, 0: 0, 2: 40}, partition(WHOLE, 3, 1))
    assert heir == Partition(9, WHOLE, (4, 2), (24, 40), parents=(3,), previous_owners=(1,))
    alone = successor(9, WHOLE, {4: 0, 2: TICKETS}, partition(WHOLE, 3, 1))
    assert alone == Partition(9, WHOLE, (2,), (), parents=(3,), previous_owners=(1,))
    with pytest.raises(PlanError, match=r"distinct owners, got \(\)"):
        successor(9, WHOLE, {4: 0}, partition(WHOLE, 3, 1))


def test_a_move_replaces_the_giver_by_the_taker() -> None:
    made = moved(partition(WHOLE, 3, 1), giver=1, taker=4, fresh_id=8)
    assert made.kind is ChangeKind.MOVE
    assert made.retired == (partition(WHOLE, 3, 1),)
    assert made.created == (Partition(8, WHOLE, (4,), (), parents=(3,), previous_owners=(1,)),)


def test_a_move_of_a_share_hands_over_its_tickets_and_leaves_the_others_theirs() -> None:
    shared = Partition(3, WHOLE, (0, 1, 2), (10, 20, 34))
    (heir,) = moved(shared, giver=1, taker=4, fresh_id=8).created
    assert heir.shares == {0: 10, 4: 20, 2: 34}
    assert (heir.id, heir.cells, heir.parents) == (8, WHOLE, (3,))
    assert heir.previous_owners == (0, 1, 2)


def test_a_share_that_moves_to_another_owner_adds_to_its_tickets() -> None:
    shared = Partition(3, WHOLE, (0, 1, 2), (10, 20, 34))
    (heir,) = moved(shared, giver=1, taker=2, fresh_id=8).created
    assert heir.shares == {0: 10, 2: 54}
    (alone,) = moved(heir, giver=0, taker=2, fresh_id=9).created
    assert alone == Partition(9, WHOLE, (2,), (), parents=(8,), previous_owners=heir.owners)


def test_only_an_owner_can_give_a_partition_away() -> None:
    with pytest.raises(PlanError):
        moved(partition(WHOLE, 3, 1), giver=2, taker=4, fresh_id=8)


def test_a_split_numbers_its_pieces_in_order_from_the_fresh_id() -> None:
    made = split(partition(WHOLE, 3, 1), [(RIGHT, {1: TICKETS}), (LEFT, {4: TICKETS})], fresh_id=8)
    assert made.kind is ChangeKind.SPLIT
    assert made.retired == (partition(WHOLE, 3, 1),)
    assert made.created == (
        Partition(8, RIGHT, (1,), (), parents=(3,), previous_owners=(1,)),
        Partition(9, LEFT, (4,), (), parents=(3,), previous_owners=(1,)),
    )


def test_a_split_with_a_shared_piece_is_for_sharing() -> None:
    made = split(partition(WHOLE, 3, 1), [(LEFT, {1: TICKETS}), (RIGHT, {4: 16, 0: 48})], 8)
    assert made.kind is ChangeKind.SHARE
    assert made.created[1] == Partition(9, RIGHT, (4, 0), (16, 48), (3,), (1,))


def test_a_merge_keeps_the_owner_and_names_every_parent() -> None:
    parts = (partition(LEFT, 3, 1), partition(RIGHT, 5, 1))
    made = merged(parts, WHOLE, fresh_id=8)
    assert made.kind is ChangeKind.MERGE
    assert made.retired == parts
    assert made.created == (Partition(8, WHOLE, (1,), (), parents=(3, 5), previous_owners=(1,)),)


@pytest.mark.parametrize(
    ("before", "after", "kind"),
    [
        ((1,), {1: 32, 2: 32}, ChangeKind.SHARE),
        ((1, 2), {1: 1, 2: 2, 0: 61}, ChangeKind.SHARE),
        ((1, 2, 0), {2: 63, 1: 1}, ChangeKind.SHARE),
        ((1, 2), {2: TICKETS}, ChangeKind.UNSHARE),
    ],
)
def test_new_tickets_share_a_partition_and_for_one_owner_unshare_it(
    before: tuple[int, ...], after: Shares, kind: ChangeKind
) -> None:
    made = reshared(partition(WHOLE, 3, *before), after, fresh_id=8)
    assert made.kind is kind
    assert made.retired == (partition(WHOLE, 3, *before),)
    (heir,) = made.created
    assert (heir.id, heir.cells, heir.shares) == (8, WHOLE, after)
    assert (heir.owners, heir.parents, heir.previous_owners) == (tuple(after), (3,), before)


def test_a_change_describes_itself_in_one_line() -> None:
    alone, shared = partition(WHOLE, 3, 1), partition(WHOLE, 3, 1, 2)
    two = (partition(LEFT, 3, 1), partition(RIGHT, 5, 1))
    halves = [(LEFT, {1: TICKETS}), (RIGHT, {4: TICKETS})]
    assert moved(alone, 1, 4, 8).describe() == "move p3@1 into p8@4"
    assert split(alone, halves, 7).describe() == "split p3@1 into p7@1 p8@4"
    assert merged(two, WHOLE, 8).describe() == "merge p3@1 p5@1 into p8@1"
    assert reshared(alone, {1: 32, 2: 32}, 8).describe() == "share p3@1 into p8@1+2"
    assert reshared(shared, {2: TICKETS}, 8).describe() == "unshare p3@1+2 into p8@2"


@given(tilings(), st.lists(operations, max_size=10))
def test_whatever_is_done_the_new_partitions_know_whom_they_come_from(
    plan: Plan, history: list[Operation]
) -> None:
    world = World(plan)
    for operation in history:
        for made in world.step(operation):
            for heir in made.created:
                parents = [p for p in made.retired if p.id in heir.parents]
                assert [p.id for p in parents] == list(heir.parents)
                handed = [heir.cells.intersection(p.cells).area for p in parents]
                assert sum(handed) == heir.cells.area
                assert set(heir.previous_owners) == {m for p in parents for m in p.owners}
                assert len(set(heir.previous_owners)) == len(heir.previous_owners)


@pytest.mark.parametrize("kind", ["move", "cut", "carve", "carve shared", "share"])
def test_the_operations_of_these_tests_do_what_their_names_say(kind: str) -> None:
    plan = Plan.initial(grid_of(6, 6), 3)
    made = [change for seed in range(50) for change in make_changes(plan, Operation(kind, seed))[1]]
    assert made
    kinds = {
        "move": {ChangeKind.MOVE},
        "cut": {ChangeKind.SPLIT},
        "carve": {ChangeKind.SPLIT},
        "carve shared": {ChangeKind.SPLIT, ChangeKind.SHARE},
        "share": {ChangeKind.SHARE},
    }
    assert {change.kind for change in made} == kinds[kind]
    most = {"cut": 2, "carve": 5, "carve shared": 5}
    assert max(len(change.created) for change in made) == most.get(kind, 1)
