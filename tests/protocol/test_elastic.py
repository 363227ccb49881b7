"""Another number of executors: the tiling stays, and those who stay take over from the rest."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkswarm.errors import PlanError
from sparkswarm.geometry import CellRect
from sparkswarm.protocol.elastic import resized
from sparkswarm.protocol.global_index import GlobalIndex
from sparkswarm.protocol.partition import TICKETS, ChangeKind, Partition
from sparkswarm.protocol.plan import Plan

from ..support.strategies import EXECUTORS, World, grid_of, operations, tilings


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """Any plan that some history may lead to."""
    world = World(draw(tilings()))
    for operation in draw(st.lists(operations, max_size=5)):
        world.step(operation)
    return world.plan


fewer = st.integers(1, EXECUTORS - 1)


# -- whatever the plan -------------------------------------------------------------------------


@given(plans(), st.integers(1, 2 * EXECUTORS))
def test_the_plan_is_sound_and_an_index_that_follows_the_changes_agrees(
    plan: Plan, executors: int
) -> None:
    before = copy.deepcopy(plan)
    after, changes = resized(plan, executors)
    after.check()
    assert after.executors == executors
    assert after.grid == plan.grid
    assert plan == before
    index = GlobalIndex(plan)
    for change in changes:
        index.apply(change)
    index.check_tiling()
    assert dict(index.partitions) == {p.id: p for p in after.partitions}
    assert resized(plan, executors) == (after, changes)


@given(plans(), st.integers(1, 2 * EXECUTORS))
def test_the_version_counts_up_if_and_only_if_the_number_changes(
    plan: Plan, executors: int
) -> None:
    after, changes = resized(plan, executors)
    assert after.version == plan.version + (executors != EXECUTORS)
    if executors == EXECUTORS:
        assert after is plan
        assert changes == ()


@given(plans(), st.integers(1, EXECUTORS))
def test_growing_changes_nothing_but_the_number(plan: Plan, more: int) -> None:
    after, changes = resized(plan, EXECUTORS + more)
    assert changes == ()
    assert after == replace(plan, executors=EXECUTORS + more, version=plan.version + 1)


@given(plans(), fewer)
def test_what_leaving_executors_have_is_moved_and_nothing_else(plan: Plan, executors: int) -> None:
    after, changes = resized(plan, executors)
    concerned = tuple(p for p in plan.partitions if max(p.owners) >= executors)
    assert tuple(p for change in changes for p in change.retired) == concerned
    assert {p for p in plan.partitions if p not in concerned} <= set(after.partitions)
    ids = [p.id for change in changes for p in change.created]
    assert ids == list(range(plan.next_id, plan.next_id + len(concerned)))
    assert after.next_id == plan.next_id + len(concerned)
    for change in changes:
        [old], [new] = change.retired, change.created
        assert change.kind is ChangeKind.MOVE
        assert new.cells == old.cells
        assert new.parents == (old.id,)
        assert new.previous_owners == old.owners


@given(plans(), fewer)
def test_who_stays_keeps_all_its_tickets(plan: Plan, executors: int) -> None:
    _, changes = resized(plan, executors)
    for change in changes:
        [old], [new] = change.retired, change.created
        for owner, tickets in old.shares.items():
            assert owner >= executors or new.shares[owner] >= tickets
        assert sum(new.shares.values()) == TICKETS


def all_alone(plan: Plan) -> Plan:
    """Give every partition to its first owner."""
    partitions = tuple(replace(p, owners=p.owners[:1], tickets=()) for p in plan.partitions)
    return replace(plan, partitions=partitions)


@given(plans().map(all_alone), fewer)
def test_everyone_is_given_as_many_partitions_but_for_one(plan: Plan, executors: int) -> None:
    _, changes = resized(plan, executors)
    takers = [p.owners[0] for change in changes for p in change.created]
    received = [takers.count(m) for m in range(executors)]
    assert max(received) <= min(received) + 1


@given(plans())
def test_the_last_executor_has_everything_alone(plan: Plan) -> None:
    after, _ = resized(plan, 1)
    assert {p.owners for p in after.partitions} == {(0,)}


@given(plans(), st.integers(1, EXECUTORS))
def test_whoever_came_and_had_nothing_leaves_nothing_behind(plan: Plan, more: int) -> None:
    grown, _ = resized(plan, EXECUTORS + more)
    back, changes = resized(grown, EXECUTORS)
    assert changes == ()
    assert back == replace(plan, version=plan.version + 2)


@pytest.mark.parametrize("executors", [0, -3])
def test_someone_must_stay(executors: int) -> None:
    with pytest.raises(PlanError, match=f"at least one executor, got {executors}"):
        resized(Plan.initial(grid_of(2, 2), 2), executors)


# -- worked by hand ----------------------------------------------------------------------------


def strips(*stakes: tuple[int, dict[int, int]], executors: int) -> Plan:
    """Return a plan of strips with these widths and shares."""
    partitions, start = [], 0
    for i, (columns, shares) in enumerate(stakes):
        cells = CellRect(start, 0, start + columns, 1)
        tickets = tuple(shares.values()) if len(shares) > 1 else ()
        partitions.append(Partition(i, cells, tuple(shares), tickets))
        start += columns
    return Plan(0, grid_of(start, 1), executors, tuple(partitions), len(partitions))


def alone(columns: int, owner: int) -> tuple[int, dict[int, int]]:
    return columns, {owner: TICKETS}


def shares_after(plan: Plan, executors: int) -> dict[int, dict[int, int]]:
    """Return the shares of every partition that was moved, by its old id."""
    _, changes = resized(plan, executors)
    return {change.retired[0].id: change.created[0].shares for change in changes}


def test_one_each_from_the_largest_on() -> None:
    plan = strips(alone(3, 0), alone(1, 1), alone(2, 2), alone(2, 3), alone(4, 4), executors=5)
    assert shares_after(plan, 3) == {4: {0: TICKETS}, 3: {1: TICKETS}}


def test_where_all_have_received_as_many_the_fewest_cells_decide() -> None:
    plan = strips(alone(1, 0), alone(1, 1), alone(4, 2), alone(3, 2), alone(2, 3), executors=4)
    assert shares_after(plan, 2) == {2: {0: TICKETS}, 3: {1: TICKETS}, 4: {1: TICKETS}}


def test_what_one_has_already_does_not_count() -> None:
    """Those who stay are balanced: one with many partitions, or large ones, needs them."""
    many = strips(alone(9, 0), alone(1, 0), alone(1, 1), alone(2, 2), executors=3)
    assert shares_after(many, 2) == {3: {0: TICKETS}}
    nothing = strips(alone(1, 0), alone(2, 2), alone(2, 3), executors=4)
    assert shares_after(nothing, 2) == {1: {0: TICKETS}, 2: {1: TICKETS}}


def test_tickets_go_to_someone_new_or_are_added_to_those_of_an_owner() -> None:
    plan = strips((1, {0: 16, 3: 20, 2: 28}), alone(5, 1), executors=4)
    assert shares_after(plan, 3) == {0: {0: 16 + 20, 2: 28}}
    plan = strips((1, {1: 16, 3: 20, 2: 28}), alone(5, 0), executors=4)
    assert shares_after(plan, 3) == {0: {1: 16, 2: 28, 0: 20}}


def test_the_shares_of_several_that_leave_are_dealt_one_by_one_and_make_one_change() -> None:
    plan = strips((1, {4: 30, 2: 4, 3: 30}), alone(5, 0), alone(5, 1), alone(5, 2), executors=5)
    after, changes = resized(plan, 3)
    assert [change.describe() for change in changes] == ["move p0@4+2+3 into p4@2+0+1"]
    assert after.partitions[-1].shares == {2: 4, 0: 30, 1: 30}


def test_a_shared_partition_may_end_up_with_one_owner() -> None:
    plan = strips((1, {1: 32, 2: 32}), alone(5, 0), executors=3)
    after, [change] = resized(plan, 1)
    assert change.created[0].owners == (0,)
    assert change.created[0].tickets == ()
    assert change.created[0].previous_owners == (1, 2)
    assert len(after.owned_by(0)) == 2
