"""Policies: where points go, and what the history makes of the space."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkswarm.config import SwarmConfig
from sparkswarm.errors import ConfigError, PlanError
from sparkswarm.geometry import Bounds, CellRect, Grid, QueryCells
from sparkswarm.policies import (
    POLICIES,
    History,
    Policy,
    StaticHistory,
    make_policy,
    replanned,
)
from sparkswarm.protocol.cost import WorkModel
from sparkswarm.protocol.global_index import GlobalIndex
from sparkswarm.protocol.partition import TICKETS, reshared
from sparkswarm.protocol.plan import Plan

TILING = ("swarm", "static_uniform", "static_history")
ANYWHERE = ("replicated", "hash_cell")


def grid_of(columns: int, rows: int) -> Grid:
    """Return a grid whose cells have side 1."""
    return Grid(Bounds(0.0, 0.0, float(columns), float(rows)), columns, rows)


def history_of(grid: Grid, counts: np.ndarray, rects: list[CellRect] | None = None) -> History:
    """Return a history with so many points in the middle of each cell."""
    rows, columns = np.indices((grid.rows, grid.columns))
    x = np.repeat(columns.ravel() + 0.5, counts.ravel())
    y = np.repeat(rows.ravel() + 0.5, counts.ravel())
    return History(x, y, QueryCells.of(rects or []))


def no_history(grid: Grid) -> History:
    return history_of(grid, np.zeros((grid.rows, grid.columns), dtype=int))


def owners(policy: Policy, index: GlobalIndex, executors: int, x, y, keys=None) -> list[int]:
    x, y = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    keys = np.arange(len(x)) if keys is None else np.asarray(keys, dtype=np.int64)
    found = policy.router(index, executors).assign(x, y, keys)
    assert found.dtype == np.int32
    return found.tolist()


every_policy = pytest.mark.parametrize("policy", [make_policy(n) for n in POLICIES], ids=POLICIES)


# -- names -------------------------------------------------------------------------------------


def test_the_policies_are_those_of_the_paper_and_one_by_hash() -> None:
    assert list(POLICIES) == [*TILING, *ANYWHERE]


@pytest.mark.parametrize("name", POLICIES)
def test_a_policy_is_made_by_its_name_and_only_swarm_rebalances(name: str) -> None:
    policy = make_policy(name)
    assert policy.name == name
    controller = policy.controller(Plan.initial(grid_of(8, 8), 2), SwarmConfig())
    assert (controller is not None) == (name == "swarm")


def test_an_unknown_name_is_refused_with_the_allowed_ones() -> None:
    with pytest.raises(ConfigError, match="got 'swarn'") as refused:
        make_policy("swarn")
    assert all(repr(name) in str(refused.value) for name in POLICIES)


@every_policy
def test_a_policy_travels(policy: Policy) -> None:
    assert pickle.loads(pickle.dumps(policy)) == policy
    assert len({policy, pickle.loads(pickle.dumps(policy))}) == 1


def test_policies_load_neither_spark_nor_anything_else_of_the_outside() -> None:
    program = "import json, sys, sparkswarm.policies; print(json.dumps(sorted(sys.modules)))"
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    loaded = set(json.loads(ran.stdout))
    assert not loaded & {"pyspark", "py4j", "pandas", "typer", "rich", "matplotlib"}


# -- what all have in common -------------------------------------------------------------------


@every_policy
@pytest.mark.parametrize("executors", [1, 3, 5, 40])
def test_every_first_plan_is_sound_and_leads_every_point_to_an_executor(
    policy: Policy, executors: int
) -> None:
    rng = np.random.default_rng(1)
    grid = grid_of(6, 5)
    plan = policy.first_plan(grid, executors, history_of(grid, rng.integers(0, 9, (5, 6))))
    plan.check()
    assert (plan.version, plan.executors) == (0, executors)
    found = owners(policy, GlobalIndex(plan), executors, rng.random(500) * 6, rng.random(500) * 5)
    assert set(found) <= set(range(executors))


@every_policy
def test_points_without_a_place_go_nowhere(policy: Policy) -> None:
    grid = grid_of(4, 4)
    index = GlobalIndex(policy.first_plan(grid, 3, no_history(grid)))
    x = [np.nan, 1.0, np.inf, -0.1, 1.0, 4.0, 4.1]
    y = [1.0, np.nan, 1.0, 1.0, -np.inf, 4.0, 1.0]
    found = owners(policy, index, 3, x, y)
    assert [owner == -1 for owner in found] == [True, True, True, True, True, False, True]
    assert owners(policy, index, 3, [], []) == []


@every_policy
def test_arrays_that_differ_in_length_are_refused(policy: Policy) -> None:
    grid = grid_of(4, 4)
    index = GlobalIndex(policy.first_plan(grid, 3, no_history(grid)))
    with pytest.raises(PlanError, match="differ in length: 2, 2, 1"):
        owners(policy, index, 3, [1, 2], [1, 2], [0])


@every_policy
@pytest.mark.parametrize("executors", [0, -2])
def test_a_plan_without_executors_is_refused(policy: Policy, executors: int) -> None:
    with pytest.raises(PlanError, match=f"at least one executor, got {executors}"):
        policy.first_plan(grid_of(2, 2), executors, no_history(grid_of(2, 2)))


@pytest.mark.parametrize("policy", [make_policy(name) for name in TILING], ids=TILING)
def test_in_a_tiling_points_go_to_owners_of_their_partition(policy: Policy) -> None:
    rng = np.random.default_rng(2)
    grid = grid_of(8, 8)
    plan = policy.first_plan(grid, 4, no_history(grid))
    [partition] = plan.owned_by(0)
    (fresh,), plan = plan.reserve(1)
    plan = plan.apply([reshared(partition, {0: 20, 2: TICKETS - 20}, fresh)])
    index = GlobalIndex(plan)
    x, y = rng.random(1000) * 8, rng.random(1000) * 8
    owned = [{p.id for p in plan.owned_by(m)} for m in range(4)]
    partitions = index.route(x, y).partition.tolist()
    for owner, partition_id in zip(owners(policy, index, 4, x, y), partitions, strict=True):
        assert partition_id in owned[owner]


# -- one by one --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["swarm", "static_uniform", "replicated", "hash_cell"])
def test_without_a_history_all_start_with_the_even_division(name: str) -> None:
    grid = grid_of(7, 9)
    assert make_policy(name).first_plan(grid, 5) == Plan.initial(grid, 5)


def test_with_a_history_swarm_divides_points_and_checks_alike() -> None:
    """12 points on the left, 4 on the right, each in 3 queries: 12/16 and 0, 4/16 and 1."""
    grid = grid_of(4, 1)
    history = history_of(grid, np.array([[6, 6, 2, 2]]), [CellRect(2, 0, 4, 1)] * 3)
    first = make_policy("swarm").first_plan(grid, 2, history)
    assert [p.cells for p in first.partitions] == [CellRect(0, 0, 2, 1), CellRect(2, 0, 4, 1)]
    crowded = history_of(grid, np.array([[8, 8, 8, 72]]))
    first = make_policy("swarm").first_plan(grid, 2, crowded)
    assert [p.cells for p in first.partitions] == [CellRect(0, 0, 3, 1), CellRect(3, 0, 4, 1)]


@pytest.mark.parametrize("name", ["static_uniform", "replicated", "hash_cell"])
def test_other_policies_start_with_the_even_division_whatever_the_history(name: str) -> None:
    grid = grid_of(7, 9)
    assert make_policy(name).first_plan(grid, 5, no_history(grid)) == Plan.initial(grid, 5)


@pytest.mark.parametrize("name", TILING)
def test_in_a_tiling_the_plan_says_where_points_go(name: str) -> None:
    rng = np.random.default_rng(3)
    plan = Plan.initial(grid_of(8, 8), 3)
    (fresh,), plan = plan.reserve(1)
    plan = plan.apply([reshared(plan.partitions[0], {0: 20, 2: TICKETS - 20}, fresh)])
    index = GlobalIndex(plan)
    x, y, keys = rng.random(1000) * 8, rng.random(1000) * 8, rng.integers(0, 2**62, 1000)
    expected = index.route(x, y, keys).owner.tolist()
    assert owners(make_policy(name), index, 3, x, y, keys) == expected


def test_replicated_deals_the_points_out_in_turn() -> None:
    index = GlobalIndex(Plan.initial(grid_of(4, 4), 2))
    x = [1.0, 1.0, 9.0, 1.0, 1.0]
    assert owners(make_policy("replicated"), index, 3, x, [1.0] * 5) == [0, 1, -1, 0, 1]
    keys = [-1, 2**62 + 1, 5, 3, -7]
    expected = [key % 7 if place < 4 else -1 for key, place in zip(keys, x, strict=True)]
    assert owners(make_policy("replicated"), index, 7, x, [1.0] * 5, keys) == expected


def splitmix64(number: int) -> int:
    """Finalise as Steele, Lea and Flood do, in plain whole numbers."""
    number = (number ^ (number >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    number = (number ^ (number >> 27)) * 0x94D049BB133111EB % 2**64
    return number ^ (number >> 31)


@pytest.mark.parametrize("executors", [1, 2, 7, 22, 100_000])
def test_hash_cell_goes_by_the_hash_of_the_cell_alone(executors: int) -> None:
    grid = grid_of(30, 20)
    index = GlobalIndex(Plan.initial(grid, 2))
    rows, columns = np.indices((20, 30))
    found = owners(
        make_policy("hash_cell"), index, executors, columns.ravel() + 0.3, rows.ravel() + 0.9
    )
    assert found == [splitmix64(cell) % executors for cell in range(600)]


def test_hash_cell_spreads_the_cells_evenly() -> None:
    rng = np.random.default_rng(4)
    index = GlobalIndex(Plan.initial(grid_of(300, 300), 22))
    found = owners(
        make_policy("hash_cell"), index, 22, rng.random(100_000) * 300, rng.random(100_000) * 300
    )
    assert np.bincount(found, minlength=22).min() > 0.9 * 100_000 / 22


# -- the division by history -------------------------------------------------------------------


def test_without_a_history_there_is_no_division_by_history() -> None:
    with pytest.raises(ConfigError, match="give it a history"):
        make_policy("static_history").first_plan(grid_of(4, 4), 2)


@given(st.integers(1, 13), st.integers(1, 13), st.integers(1, 30))
def test_a_history_without_points_serves_as_many_as_there_are_cells(columns, rows, executors):
    grid = grid_of(columns, rows)
    rects = [CellRect(0, 0, 1, rows)]
    history = history_of(grid, np.zeros((rows, columns), dtype=int), rects)
    plan = make_policy("static_history").first_plan(grid, executors, history)
    plan.check()
    assert [p.owners for p in plan.partitions] == [
        (m,) for m in range(min(executors, grid.cells.area))
    ]


@pytest.mark.parametrize("executors", [2, 3, 7, 16, 22, 31])
def test_a_history_without_points_divides_the_space_evenly(executors: int) -> None:
    grid = grid_of(300, 200)
    plan = make_policy("static_history").first_plan(grid, executors, no_history(grid))
    areas = np.array([p.cells.area for p in plan.partitions])
    assert len(areas) == executors
    assert areas.max() < 1.05 * areas.mean()
    assert areas.min() > 0.95 * areas.mean()


@st.composite
def histories(draw: st.DrawFn) -> tuple[Grid, np.ndarray, list[CellRect]]:
    """Small grids with some points in each cell and some queries, which may reach outside."""
    grid = grid_of(draw(st.integers(1, 7)), draw(st.integers(1, 7)))
    few = st.integers(0, 6)
    area = grid.columns * grid.rows
    counts = np.array(draw(st.lists(few, min_size=area, max_size=area)), dtype=int)
    corner = st.tuples(st.integers(-2, 7), st.integers(-2, 7))
    side = st.tuples(st.integers(1, 6), st.integers(1, 6))
    rects = [
        CellRect(column, row, column + width, row + height)
        for (column, row), (width, height) in draw(st.lists(st.tuples(corner, side), max_size=6))
    ]
    return grid, counts.reshape(grid.rows, grid.columns), rects


def slow_costs(counts: np.ndarray, rects: list[CellRect]) -> np.ndarray:
    """Return the cost of every cell, looking at every query for every cell.

    Prices of 1 and 1/4, with which floats are exact.
    """
    costs = np.zeros(counts.shape)
    for (row, column), points in np.ndenumerate(counts):
        cell = CellRect(column, row, column + 1, row + 1)
        costs[row, column] = points + 0.25 * points * sum(cell.overlaps(rect) for rect in rects)
    return costs


EXACT = StaticHistory(WorkModel(per_point=1.0, per_check=0.25))


def slow_parts(
    cells: CellRect, costs: np.ndarray, some: int, executors: int
) -> tuple[CellRect, CellRect]:
    """Try every line."""
    if not costs[cells.slices].any():
        costs = np.ones_like(costs)
    due = costs[cells.slices].sum() * some
    cuts = []
    for sides, length, is_longer in (
        (cells.split_columns, cells.columns, cells.columns >= cells.rows),
        (cells.split_rows, cells.rows, cells.rows > cells.columns),
    ):
        for line in range(1, length):
            first, second = sides(line)
            error = abs(costs[first.slices].sum() * executors - due)
            rank = (error, not is_longer, abs(line * executors - length * some), line)
            cuts.append((rank, first, second))
    _, first, second = min(cuts)
    return first, second


def slow_division(cells: CellRect, costs: np.ndarray, executors: int) -> list[CellRect]:
    if executors == 1 or cells.area == 1:
        return [cells]
    some = executors // 2
    first, second = slow_parts(cells, costs, some, executors)
    if not costs[cells.slices].any():
        while some > first.area:
            some -= 1
        while executors - some > second.area and some < first.area:
            some += 1
    return slow_division(first, costs, some) + slow_division(second, costs, executors - some)


@given(histories(), st.integers(1, 20))
def test_costs_are_divided_as_nearly_in_proportion_as_any_line_can(made, executors: int) -> None:
    grid, counts, rects = made
    plan = EXACT.first_plan(grid, executors, history_of(grid, counts, rects))
    plan.check()
    pieces = slow_division(grid.cells, slow_costs(counts, rects), executors)
    assert [p.cells for p in plan.partitions] == pieces
    assert [p.owners for p in plan.partitions] == [(m,) for m in range(len(pieces))]
    assert [p.id for p in plan.partitions] == list(range(len(pieces)))
    assert plan.next_id == len(pieces)


def strips_of(counts: list[int], executors: int) -> list[tuple[int, int]]:
    """Return the columns of every executor in a grid of one row."""
    grid = grid_of(len(counts), 1)
    plan = EXACT.first_plan(grid, executors, history_of(grid, np.array([counts])))
    return [(p.cells.col_start, p.cells.col_stop) for p in plan.partitions]


def test_divisions_worked_by_hand() -> None:
    assert strips_of([1] * 6, 3) == [(0, 2), (2, 4), (4, 6)]
    assert strips_of([4, 2, 2, 1, 1, 1, 1], 3) == [(0, 1), (1, 3), (3, 7)]
    # Of lines that cost the same, the one that divides the cells as well.
    assert strips_of([3, 0, 0, 0, 3], 2) == [(0, 2), (2, 5)]


def test_a_single_cell_serves_one_executor_and_those_left_with_nothing_come_last() -> None:
    # Two of the four are for the first cell, which is half of the cost.
    assert strips_of([6, 2, 2, 2], 4) == [(0, 1), (1, 2), (2, 4)]
    assert strips_of([5], 3) == [(0, 1)]


@pytest.mark.parametrize("seed", range(3))
def test_costs_are_almost_equal_where_executors_are_no_power_of_two(seed: int) -> None:
    rng = np.random.default_rng(seed)
    grid = grid_of(256, 256)
    x, y = np.clip(rng.exponential(40.0, (2, 20_000)), 0.0, 256.0)
    queries = grid.place_queries(x[:300], y[:300], x[:300] + 4, y[:300] + 4)
    plan = EXACT.first_plan(grid, 22, History(x, y, queries))
    counts = np.zeros((256, 256), dtype=int)
    columns, rows = grid.place_points(x, y)
    np.add.at(counts, (rows, columns), 1)
    checks = np.zeros((256, 256))
    for at in zip(
        queries.col_start, queries.row_start, queries.col_stop, queries.row_stop, strict=True
    ):
        checks[CellRect(*map(int, at)).slices] += 1
    costs = counts * (1 + 0.25 * checks)
    shares = np.array([costs[p.cells.slices].sum() for p in plan.partitions])
    assert len(shares) == 22
    assert shares.sum() == costs.sum() > 0
    assert shares.max() < 1.3 * shares.mean()


def test_the_history_counts_both_points_and_queries() -> None:
    grid = grid_of(8, 1)
    counts = np.full((1, 8), 100)
    policy = make_policy("static_history")

    def first_piece(rects: list[CellRect]) -> CellRect:
        return policy.first_plan(grid, 2, history_of(grid, counts, rects)).partitions[0].cells

    assert first_piece([]) == CellRect(0, 0, 4, 1)
    # A point costs as much as fifty checks: cells 0 and 1 cost four times the others.
    assert first_piece([CellRect(0, 0, 2, 1)] * 150) == CellRect(0, 0, 2, 1)


def test_points_and_queries_without_a_place_count_for_nothing() -> None:
    grid = grid_of(4, 4)
    edge = np.array([0.0, np.nan, 3.0, 9.0])
    far = np.array([1.0, 2.0, 2.0, 10.0])
    queries = grid.place_queries(edge, edge, far, far)
    assert np.count_nonzero(queries.fault) == 3
    x, y = np.array([0.5, np.nan, 9.0, -1.0, 0.5]), np.array([0.5, 1.0, 1.0, 1.0, np.inf])
    plan = EXACT.first_plan(grid, 6, History(x, y, queries))
    same = EXACT.first_plan(
        grid, 6, History(x[:1], y[:1], queries.take(np.array([0], dtype=np.intp)))
    )
    assert plan == same


def test_a_hot_spot_is_divided_and_the_rest_left_large() -> None:
    rng = np.random.default_rng(5)
    grid = grid_of(64, 64)
    x, y = np.clip(rng.normal(20.0, 3.0, (2, 100_000)), 0.0, 64.0)
    history = History(x, y, grid.place_queries(x[:500], y[:500], x[:500] + 1, y[:500] + 1))
    plan = make_policy("static_history").first_plan(grid, 16, history)
    even = Plan.initial(grid, 16)

    def busiest(of: Plan) -> int:
        return int(np.bincount(GlobalIndex(of).route(x, y).owner, minlength=16).max())

    assert busiest(plan) < 0.2 * busiest(even)
    assert plan == make_policy("static_history").first_plan(grid, 16, history)


# -- another number of executors ---------------------------------------------------------------


@every_policy
@pytest.mark.parametrize("executors", [1, 3, 9])
def test_a_plan_made_anew_follows_the_old_one_with_fresh_ids(
    policy: Policy, executors: int
) -> None:
    grid = grid_of(5, 5)
    history = no_history(grid)
    old = replace(Plan.initial(grid, 4), version=7, next_id=100)
    new = replanned(old, executors, policy, history)
    new.check()
    first = policy.first_plan(grid, executors, history)
    assert [p.id for p in new.partitions] == list(range(100, 100 + len(first.partitions)))
    assert [(p.cells, p.owners) for p in new.partitions] == [
        (p.cells, p.owners) for p in first.partitions
    ]
    assert (new.version, new.executors) == (8, executors)
    assert new.next_id == 100 + len(first.partitions)


def test_making_a_plan_by_history_anew_needs_the_history_too() -> None:
    with pytest.raises(ConfigError, match="history"):
        replanned(Plan.initial(grid_of(4, 4), 2), 3, make_policy("static_history"))
