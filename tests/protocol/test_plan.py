"""Plans tile the grid exactly, from the first one through every change, and survive JSON."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from dataclasses import FrozenInstanceError, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sparkswarm.errors import PlanError
from sparkswarm.geometry import Bounds, CellRect, Grid
from sparkswarm.protocol.partition import (
    TICKETS,
    ChangeKind,
    Partition,
    PlanChange,
    merged,
    moved,
    reshared,
    split,
)
from sparkswarm.protocol.plan import Plan, changed_partitions, covers_once

from ..support.strategies import (
    Operation,
    World,
    grid_of,
    grids,
    operations,
    painted,
    tilings,
)

# -- the initial plan --------------------------------------------------------------------------


def halved(grid: Grid, executors: int) -> list[CellRect]:
    """Halve the largest, the oldest of them if several, until there are enough."""
    pieces = [grid.cells]
    alive = [True]
    while sum(alive) < executors:
        areas = [rect.area if living else 0 for rect, living in zip(pieces, alive, strict=True)]
        largest = areas.index(max(areas))
        rect = pieces[largest]
        if rect.area == 1:
            break
        alive[largest] = False
        if rect.columns >= rect.rows:
            middle = rect.col_start + rect.columns // 2
            pieces += [rect._replace(col_stop=middle), rect._replace(col_start=middle)]
        else:
            middle = rect.row_start + rect.rows // 2
            pieces += [rect._replace(row_stop=middle), rect._replace(row_start=middle)]
        alive += [True, True]
    return [rect for rect, living in zip(pieces, alive, strict=True) if living]


@given(grids(13, 13), st.integers(1, 200))
def test_the_initial_plan_tiles_the_grid_with_one_partition_for_each_executor(
    grid: Grid, executors: int
) -> None:
    plan = Plan.initial(grid, executors)
    plan.check_tiling()
    assert (painted(plan) >= 0).all()
    wanted = min(executors, grid.cells.area)
    assert [p.owners for p in plan.partitions] == [(m,) for m in range(wanted)]
    ids = [p.id for p in plan.partitions]
    assert ids == sorted(set(ids))
    assert plan.next_id == max(ids) + 1
    assert (plan.version, plan.grid, plan.executors) == (0, grid, executors)
    assert all(p.parents == p.previous_owners == () for p in plan.partitions)


@given(grids(13, 13), st.integers(1, 200))
def test_the_largest_partition_is_halved_first_across_its_longer_side(
    grid: Grid, executors: int
) -> None:
    plan = Plan.initial(grid, executors)
    assert [p.cells for p in plan.partitions] == halved(grid, executors)


@given(grids(13, 13), st.integers(2, 200))
def test_no_partition_is_larger_than_one_that_was_halved(grid: Grid, executors: int) -> None:
    before = Plan.initial(grid, executors - 1).partitions
    after = Plan.initial(grid, executors).partitions
    gone = {p.cells for p in before} - {p.cells for p in after}
    if executors > grid.cells.area:
        assert before == after
    else:
        (whole,) = gone
        halves = {p.cells for p in after} - {p.cells for p in before}
        assert whole.area == max(p.cells.area for p in before)
        shorter, longer = sorted((whole.columns, whole.rows))
        areas = [longer // 2 * shorter, (longer - longer // 2) * shorter]
        assert sorted(half.area for half in halves) == areas


@pytest.mark.parametrize(
    ("columns", "rows", "executors", "cells"),
    [
        pytest.param(7, 5, 1, [(0, 0, 7, 5)], id="one executor gets all"),
        pytest.param(8, 4, 2, [(0, 0, 4, 4), (4, 0, 8, 4)], id="columns are the longer side"),
        pytest.param(4, 8, 2, [(0, 0, 4, 4), (0, 4, 4, 8)], id="rows are the longer side"),
        pytest.param(4, 4, 2, [(0, 0, 2, 4), (2, 0, 4, 4)], id="a square is cut by columns"),
        pytest.param(
            5, 2, 3, [(0, 0, 2, 2), (2, 0, 3, 2), (3, 0, 5, 2)], id="the larger half goes first"
        ),
        pytest.param(1, 3, 9, [(0, 0, 1, 1), (0, 1, 1, 2), (0, 2, 1, 3)], id="fewer cells"),
        pytest.param(1, 1, 4, [(0, 0, 1, 1)], id="one cell"),
        pytest.param(
            8,
            8,
            5,
            [(0, 4, 4, 8), (4, 0, 8, 4), (4, 4, 8, 8), (0, 0, 2, 4), (2, 0, 4, 4)],
            id="five executors, as in the paper's figure",
        ),
    ],
)
def test_the_initial_plan_worked_by_hand(columns, rows, executors, cells) -> None:
    plan = Plan.initial(grid_of(columns, rows), executors)
    assert sorted(p.cells for p in plan.partitions) == sorted(cells)


def test_every_split_gives_two_new_ids() -> None:
    assert [p.id for p in Plan.initial(grid_of(8, 8), 1).partitions] == [0]
    assert [p.id for p in Plan.initial(grid_of(8, 8), 2).partitions] == [1, 2]
    assert [p.id for p in Plan.initial(grid_of(8, 8), 3).partitions] == [2, 3, 4]


@pytest.mark.parametrize("executors", [0, -3])
def test_a_plan_without_executors_is_refused(executors: int) -> None:
    with pytest.raises(PlanError, match=f"at least one executor, got {executors}"):
        Plan.initial(grid_of(2, 2), executors)


# -- changes -----------------------------------------------------------------------------------

LEFT, RIGHT = CellRect(0, 0, 2, 4), CellRect(2, 0, 4, 4)
TWO = Plan(
    version=3,
    grid=grid_of(4, 4),
    executors=3,
    partitions=(Partition(4, LEFT, (0,)), Partition(6, RIGHT, (1,))),
    next_id=10,
)
P4, P6 = TWO.partitions


@given(tilings(), st.integers(0, 5))
def test_reserved_ids_are_the_next_ones_and_are_given_once(plan: Plan, count: int) -> None:
    first, after_first = plan.reserve(count)
    second, after_second = after_first.reserve(2)
    assert list(first) == list(range(plan.next_id, plan.next_id + count))
    assert list(second) == [plan.next_id + count, plan.next_id + count + 1]
    assert after_second == replace(plan, next_id=plan.next_id + count + 2)


def test_changes_are_made_in_their_order_and_give_the_next_version() -> None:
    first = moved(P6, 1, 0, fresh_id=8)
    second = merged((P4, first.created[0]), TWO.grid.cells, fresh_id=9)
    after = TWO.apply([first, second])
    assert after.partitions == second.created
    assert after.version == 4
    assert (after.grid, after.executors, after.next_id) == (TWO.grid, 3, 10)
    with pytest.raises(PlanError, match="p8 is not in the plan"):
        TWO.apply([second, first])


def test_the_partitions_of_a_plan_stay_in_order_of_id() -> None:
    first = moved(P4, 0, 2, fresh_id=9)
    second = moved(P6, 1, 2, fresh_id=8)
    assert [p.id for p in TWO.apply([first, second]).partitions] == [8, 9]


def test_changes_may_come_from_an_iterator() -> None:
    after = TWO.apply(moved(p, p.owners[0], 2, p.id + 3) for p in (P4, P6))
    assert [(p.id, p.owners) for p in after.partitions] == [(7, (2,)), (9, (2,))]


HALVES = LEFT.split_rows(2)

REFUSED: dict[str, tuple[list[PlanChange], str]] = {
    "a partition that was never there": (
        [moved(Partition(5, LEFT, (0,)), 0, 1, 8)],
        "p5 is not in the plan",
    ),
    "a partition with the id of another": (
        [moved(replace(P4, owners=(2,)), 2, 1, 8)],
        "p4 is not in the plan",
    ),
    "a partition that an earlier change retired": (
        [moved(P4, 0, 1, 8), moved(P4, 0, 2, 9)],
        "p4 is not in the plan",
    ),
    "one of several partitions is not there": (
        [merged((P4, replace(P6, owners=(2,))), TWO.grid.cells, 8)],
        "p6 is not in the plan",
    ),
    "an id that nobody reserved": ([moved(P4, 0, 1, 10)], "id 10 is not a fresh id"),
    "an id far beyond": ([moved(P4, 0, 1, 1000)], "id 1000 is not a fresh id"),
    "the second id of a split was not reserved": (
        [split(P4, [(HALVES[0], {0: TICKETS}), (HALVES[1], {1: TICKETS})], 9)],
        "id 10 is not a fresh id",
    ),
    "the id of the partition itself": ([moved(P4, 0, 1, 4)], "id 4 is not a fresh id"),
    "an id in use": ([moved(P4, 0, 1, 6)], "id 6 is not a fresh id"),
    "an id older than the parent": ([moved(P4, 0, 1, 3)], "id 3 is not a fresh id"),
    "an id older than one of the parents": (
        [merged((P4, P6), TWO.grid.cells, 5)],
        "id 5 is not a fresh id",
    ),
    "a negative id": ([moved(P4, 0, 1, -1)], "id -1 is not a fresh id"),
    "an id that an earlier change took": (
        [moved(P4, 0, 1, 8), moved(P6, 1, 2, 8)],
        "id 8 is not a fresh id",
    ),
    "one id for two pieces": (
        [
            PlanChange(
                ChangeKind.SPLIT,
                (P4,),
                (Partition(8, HALVES[0], (0,)), Partition(8, HALVES[1], (1,))),
            )
        ],
        "id 8 is not a fresh id",
    ),
    "an executor beyond the last": ([moved(P4, 0, 3, 8)], "executors are 0 to 2"),
    "a negative executor": ([moved(P4, 0, -1, 8)], "executors are 0 to 2"),
    "an unknown executor among good ones": (
        [split(P4, [(HALVES[0], {0: TICKETS}), (HALVES[1], {1: 20, 2: 4, 7: 40})], 8)],
        "executors are 0 to 2",
    ),
}


@pytest.mark.parametrize(("changes", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_a_change_that_does_not_fit_is_refused_and_the_plan_stays(changes, message) -> None:
    before = copy.deepcopy(TWO)
    with pytest.raises(PlanError, match=message) as refused:
        TWO.apply(changes)
    assert changes[-1].describe() in str(refused.value)
    assert before == TWO
    with pytest.raises(PlanError, match=message):
        TWO.apply([moved(P4, 0, 2, 7), *changes] if P4 not in changes[0].retired else changes)
    assert before == TWO


@given(tilings(), st.lists(operations, max_size=15))
def test_whatever_is_done_the_tiling_stays_exact_and_older_plans_stay_as_they_were(
    plan: Plan, history: list[Operation]
) -> None:
    world = World(plan)
    plans = [(plan, copy.deepcopy(plan))]
    for operation in history:
        world.step(operation)
        world.plan.check_tiling()
        painted(world.plan)
        plans.append((world.plan, copy.deepcopy(world.plan)))
    assert [current.version for current, _ in plans] == list(range(len(plans)))
    assert all(current == then for current, then in plans)


@given(tilings())
def test_an_executor_owns_its_partitions_alone_or_with_others(plan: Plan) -> None:
    for executor in range(plan.executors + 1):
        expected = tuple(p for p in plan.partitions if p.owners.count(executor))
        assert plan.owned_by(executor) == expected


def test_a_plan_cannot_be_changed_in_place() -> None:
    with pytest.raises(FrozenInstanceError):
        TWO.version = 4  # type: ignore[misc]


# -- checking the tiling -----------------------------------------------------------------------


@given(tilings(), st.data())
def test_a_hole_is_found(plan: Plan, data: st.DataObject) -> None:
    lost = data.draw(st.sampled_from(plan.partitions))
    damaged = replace(plan, partitions=tuple(p for p in plan.partitions if p != lost))
    first = f"column {lost.cells.col_start}, row {lost.cells.row_start}, covered 0 times"
    with pytest.raises(PlanError, match=f"^{lost.cells.area} cells are not .* is {first}"):
        damaged.check_tiling()


@given(tilings(), st.data())
def test_a_double_cover_is_found(plan: Plan, data: st.DataObject) -> None:
    twin = data.draw(st.sampled_from(plan.partitions))
    damaged = replace(plan, partitions=(*plan.partitions, replace(twin, id=plan.next_id)))
    first = f"column {twin.cells.col_start}, row {twin.cells.row_start}, covered 2 times"
    with pytest.raises(PlanError, match=f"^{twin.cells.area} cells are not .* is {first}"):
        damaged.check_tiling()


@given(tilings(), st.data())
def test_a_hole_and_a_double_cover_of_the_same_size_do_not_make_up_for_each_other(
    plan: Plan, data: st.DataObject
) -> None:
    assume(len(plan.partitions) > 1)
    one, other = data.draw(st.permutations(plan.partitions))[:2]
    shifted = CellRect(
        other.cells.col_start,
        other.cells.row_start,
        min(other.cells.col_start + one.cells.columns, plan.grid.columns),
        min(other.cells.row_start + one.cells.rows, plan.grid.rows),
    )
    kept = tuple(p for p in plan.partitions if p != one)
    with pytest.raises(PlanError, match="covered exactly once"):
        replace(plan, partitions=(*kept, replace(one, cells=shifted))).check_tiling()


@pytest.mark.parametrize(
    "cells",
    [
        CellRect(-1, 0, 2, 4),
        CellRect(0, -1, 2, 4),
        CellRect(0, 0, 5, 4),
        CellRect(0, 0, 2, 5),
    ],
)
def test_a_partition_that_reaches_outside_the_grid_is_found(cells: CellRect) -> None:
    damaged = replace(TWO, partitions=(replace(P4, cells=cells), P6))
    with pytest.raises(PlanError, match=r"p4 reaches outside the grid.*col_start="):
        damaged.check_tiling()


# -- checking the rest -------------------------------------------------------------------------


@given(tilings(), st.lists(operations, max_size=10))
def test_nothing_is_found_wrong_whatever_is_done(plan: Plan, history: list[Operation]) -> None:
    world = World(plan)
    for operation in history:
        world.step(operation)
    world.plan.check()


@pytest.mark.parametrize(
    ("damaged", "message"),
    [
        (replace(TWO, partitions=(P4, replace(P6, id=4))), r"below 10: \[4, 4\]"),
        (replace(TWO, partitions=(P6, P4)), r"below 10: \[6, 4\]"),
        (replace(TWO, next_id=6), r"below 6: \[4, 6\]"),
        (replace(TWO, partitions=(replace(P4, id=-1), P6)), r"below 10: \[-1, 6\]"),
        (replace(TWO, executors=1), "p6: executors are 0 to 0"),
        (replace(TWO, partitions=(replace(P4, owners=(-1,)), P6)), "p4: executors are 0 to 2"),
        (
            replace(TWO, partitions=(replace(P4, owners=(0, 3), tickets=(32, 32)), P6)),
            "p4: executors are 0 to 2",
        ),
        (replace(TWO, partitions=(P6,)), "covered 0 times"),
    ],
)
def test_ids_executors_and_the_tiling_are_all_checked(damaged: Plan, message: str) -> None:
    TWO.check()
    with pytest.raises(PlanError, match=message):
        damaged.check()


def test_a_plan_may_have_given_all_its_ids_and_may_start_at_id_zero() -> None:
    replace(TWO, next_id=7).check()
    replace(TWO, partitions=(replace(P4, id=0), P6)).check()


# -- JSON --------------------------------------------------------------------------------------


@given(tilings(), st.lists(operations, max_size=10))
def test_a_plan_survives_json(plan: Plan, history: list[Operation]) -> None:
    world = World(plan)
    for operation in history:
        world.step(operation)
    text = json.dumps(world.plan.to_json(), allow_nan=False)
    read = Plan.from_json(json.loads(text))
    assert read == world.plan
    assert json.dumps(read.to_json(), allow_nan=False) == text


def test_awkward_bounds_survive_json_to_the_last_bit() -> None:
    grid = Grid(Bounds(-0.1, 0.1, 0.1 + 0.2, 1e300), 3, 2)
    plan = Plan.initial(grid, 2)
    assert Plan.from_json(json.loads(json.dumps(plan.to_json()))) == plan


def test_the_json_form_is_written_out_here_because_stored_plans_depend_on_it() -> None:
    plan = TWO.apply([reshared(P6, {0: 16, 2: 48}, fresh_id=8)])
    assert plan.to_json() == {
        "version": 4,
        "bounds": [0.0, 0.0, 4.0, 4.0],
        "grid": [4, 4],
        "executors": 3,
        "next_id": 10,
        "partitions": [
            {
                "id": 4,
                "cells": [0, 0, 2, 4],
                "owners": [0],
                "tickets": [],
                "parents": [],
                "previous_owners": [],
            },
            {
                "id": 8,
                "cells": [2, 0, 4, 4],
                "owners": [0, 2],
                "tickets": [16, 48],
                "parents": [6],
                "previous_owners": [1],
            },
        ],
    }


Damage = Callable[[dict[str, Any]], object]


def refuses(damage: Damage) -> None:
    data = TWO.to_json()
    damage(data)
    with pytest.raises(PlanError):
        Plan.from_json(json.loads(json.dumps(data)))


DAMAGED: dict[str, Damage] = {
    "no partitions": lambda d: d["partitions"].clear(),
    "a partition is missing": lambda d: d["partitions"].pop(),
    "a partition is there twice": lambda d: d["partitions"].append(d["partitions"][0]),
    "a border is off by one": lambda d: d["partitions"][0]["cells"].__setitem__(2, 3),
    "a partition without cells": lambda d: d["partitions"][0].update(cells=[0, 0, 0, 4]),
    "a partition without owners": lambda d: d["partitions"][0].update(owners=[]),
    "an owner twice": lambda d: d["partitions"][0].update(owners=[1, 1], tickets=[32, 32]),
    "an owner without tickets": lambda d: d["partitions"][0].update(owners=[0, 1]),
    "a ticket too few": lambda d: d["partitions"][0].update(owners=[0, 1], tickets=[32, 31]),
    "three borders": lambda d: d["partitions"][0].update(cells=[0, 0, 2]),
    "five borders": lambda d: d["partitions"][0].update(cells=[0, 0, 2, 4, 4]),
    "two partitions with one id": lambda d: d["partitions"][1].update(id=4),
    "partitions out of order": lambda d: d["partitions"].reverse(),
    "an id that is not yet given": lambda d: d.update(next_id=6),
    "a negative id": lambda d: d["partitions"][0].update(id=-1),
    "an executor beyond the last": lambda d: d["partitions"][1].update(owners=[3]),
    "a negative executor": lambda d: d["partitions"][1].update(owners=[-1]),
    "no executors": lambda d: d.update(executors=0),
    "a fraction for a border": lambda d: d["partitions"][0].update(cells=[0, 0, 2.9, 4]),
    "infinity for a whole number": lambda d: d.update(version=float("inf")),
    "the grid is smaller": lambda d: d.update(grid=[4, 3]),
    "the grid is larger": lambda d: d.update(grid=[5, 4]),
    "a grid of three numbers": lambda d: d.update(grid=[4, 4, 4]),
    "a grid without cells": lambda d: d.update(grid=[0, 4]),
    "inverted bounds": lambda d: d.update(bounds=[4, 0, 0, 4]),
    "infinite bounds": lambda d: d.update(bounds=[0, 0, float("inf"), 4]),
    "three bounds": lambda d: d.update(bounds=[0, 0, 4]),
    "words for numbers": lambda d: d.update(next_id="many"),
    "null for a number": lambda d: d.update(version=None),
    "a list for a partition": lambda d: d.update(partitions=[[0, 0, 2, 4]]),
    "a number for the partitions": lambda d: d.update(partitions=7),
}


@pytest.mark.parametrize("damage", DAMAGED.values(), ids=DAMAGED.keys())
def test_a_damaged_plan_is_refused(damage: Damage) -> None:
    refuses(damage)


@pytest.mark.parametrize("key", TWO.to_json().keys())
def test_a_plan_that_lacks_something_is_refused_and_what_it_lacks_is_named(key: str) -> None:
    data = TWO.to_json()
    del data[key]
    with pytest.raises(PlanError, match=f"not a plan: .*{key}"):
        Plan.from_json(data)


@pytest.mark.parametrize("key", TWO.to_json()["partitions"][0].keys())
def test_a_partition_that_lacks_something_is_refused_and_what_it_lacks_is_named(key: str) -> None:
    data = TWO.to_json()
    del data["partitions"][1][key]
    with pytest.raises(PlanError, match=f"not a plan: .*{key}"):
        Plan.from_json(data)


@pytest.mark.parametrize("data", [None, 7, "plan", [], ["version"]])
def test_what_is_no_plan_at_all_is_refused(data: Any) -> None:
    with pytest.raises(PlanError, match="not a plan"):
        Plan.from_json(data)


FRACTIONS: dict[str, Damage] = {
    "an id": lambda d: d["partitions"][0].update(id=4.7),
    "an owner": lambda d: d["partitions"][0].update(owners=[0.9]),
    "the grid": lambda d: d.update(grid=[4.9, 4]),
    "the next id": lambda d: d.update(next_id=10.5),
}


@pytest.mark.parametrize("damage", FRACTIONS.values(), ids=FRACTIONS.keys())
def test_a_fraction_for_a_whole_number_is_refused(damage: Damage) -> None:
    refuses(damage)


def _rects(side: int) -> st.SearchStrategy[CellRect]:
    edges = st.tuples(st.integers(0, side - 1), st.integers(1, side)).map(sorted)
    edges = edges.filter(lambda edge: edge[0] < edge[1])
    return st.tuples(edges, edges).map(lambda e: CellRect(e[0][0], e[1][0], e[0][1], e[1][1]))


@given(st.lists(_rects(2), min_size=1, max_size=5))
def test_what_covers_each_cell_once_is_known_by_area_and_corners(rects: list[CellRect]) -> None:
    covered = np.zeros((2, 2), dtype=int)
    for rect in rects:
        covered[rect.slices] += 1
    partitions = [Partition(i, rect, (0,)) for i, rect in enumerate(rects)]
    assert covers_once(partitions, [CellRect(0, 0, 2, 2)]) == (covered == 1).all()


@pytest.mark.parametrize("seed", range(100))
def test_changed_partitions_are_those_that_only_one_plan_has(seed):
    rng = random.Random(seed)

    def some(numbers):
        return [Partition(i, CellRect(0, 0, 1, 1), (0,)) for i in numbers]

    old = some(sorted(rng.sample(range(300), rng.randrange(200))))
    known = {p.id for p in old}
    # What stays may be the same object or one like it; new ones may be anywhere between.
    stay = [rng.choice([p, *some([p.id])]) for p in old if rng.random() > rng.choice([0, 0.2])]
    fresh = some(i for i in rng.sample(range(400), rng.randrange(8)) if i not in known)
    new = sorted([*stay, *fresh], key=lambda p: p.id)
    retired, created = changed_partitions(old, new)
    assert [p.id for p in retired] == [p.id for p in old if p not in stay]
    assert list(created) == sorted(fresh, key=lambda p: p.id)
