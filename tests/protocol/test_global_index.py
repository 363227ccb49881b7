"""The GlobalIndex finds what brute force finds, also while it is being changed."""

from __future__ import annotations

import math
import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkswarm.errors import PlanError
from sparkswarm.geometry import Bounds, CellRect, Grid, QueryCells
from sparkswarm.protocol.global_index import GlobalIndex, RoutedPoints
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

from ..support.strategies import (
    EXECUTORS,
    Operation,
    World,
    all_rects,
    centres,
    deal,
    every_query,
    every_tiling,
    expected_per_query,
    found_per_query,
    grid_of,
    make_changes,
    operations,
    painted,
    part_of_the_examples,
    rects_within,
    routed_ids,
    shares,
    tilings,
)

# -- points ------------------------------------------------------------------------------------

coordinate = st.one_of(
    st.floats(-1.0, 8.0),
    st.integers(-1, 8).map(float),
    st.integers(0, 7).map(lambda border: math.nextafter(border, -1.0)),
    st.sampled_from([math.nan, math.inf, -math.inf]),
)
key = st.one_of(st.integers(-10, 10), st.integers(-(2**63), 2**63 - 1))


def slow_route(plan: Plan, x: float, y: float, key: int) -> tuple[int, int, int, int]:
    """Look at one partition after another; for grids with cells of side 1."""
    grid = plan.grid
    if not (0 <= x <= grid.columns and 0 <= y <= grid.rows):
        return -1, -1, -1, -1
    column, row = min(math.floor(x), grid.columns - 1), min(math.floor(y), grid.rows - 1)
    (partition,) = (
        p for p in plan.partitions if p.cells.contains(CellRect(column, row, column + 1, row + 1))
    )
    return partition.id, holder(partition, key), column, row


def holder(partition: Partition, key: int) -> int:
    """Return the owner of the ticket that a key draws, the tickets laid out one by one."""
    laid_out = [owner for owner, tickets in partition.shares.items() for _ in range(tickets)]
    assert len(laid_out) == TICKETS
    return laid_out[key % TICKETS]


def rows_of(routed: RoutedPoints) -> list[tuple[int, ...]]:
    return list(zip(*(column.tolist() for column in routed), strict=True))


@given(
    tilings(),
    st.lists(operations, max_size=10),
    st.lists(st.tuples(coordinate, coordinate, key), max_size=30),
)
def test_routing_points_equals_brute_force_over_the_partitions(plan, history, points) -> None:
    world = World(plan)
    for operation in history:
        world.step(operation)
    x, y = (np.array([point[i] for point in points], dtype=np.float64) for i in (0, 1))
    keys = np.array([point[2] for point in points], dtype=np.int64)
    routed = world.index.route(x, y, keys)
    assert rows_of(routed) == [slow_route(world.plan, *point) for point in points]
    assert [column.dtype for column in routed] == [np.int64, np.int32, np.int32, np.int32]


def test_routing_places_points_as_the_grid_does_at_awkward_numbers() -> None:
    grid = Grid(Bounds(0.1, -1e300, 0.1 + 0.2, 1e-300), 7, 3)
    index = GlobalIndex(Plan.initial(grid, 5))
    edges = np.linspace(0.1, 0.1 + 0.2, 8)
    x = np.concatenate([edges, np.nextafter(edges, 1.0), np.nextafter(edges, -1.0), [math.nan]])
    y = np.resize([-1e300, 1e-300, 0.0, -5e299, 2e-300, math.inf], len(x))
    routed = index.route(x, y)
    columns, rows = grid.place_points(x, y)
    assert (routed.column == columns).all()
    assert (routed.row == rows).all()
    assert 0 < (columns < 0).sum() < len(x)


def shared_alone(dealt: Shares) -> tuple[Partition, GlobalIndex]:
    """Return one shared partition and the index in which there is nothing else."""
    partition = successor(3, CellRect(0, 0, 2, 2), dealt)
    return partition, GlobalIndex(Plan(0, grid_of(2, 2), EXECUTORS, (partition,), 4))


@given(shares(), st.lists(key, min_size=1, max_size=20))
def test_the_points_of_a_shared_partition_go_to_one_owner_each_by_their_key(dealt, keys) -> None:
    partition, index = shared_alone(dealt)
    x = np.linspace(0.0, 2.0, len(keys))
    routed = index.route(x, x[::-1], np.array(keys, dtype=np.int64))
    assert (routed.partition == 3).all()
    assert routed.owner.tolist() == [holder(partition, key) for key in keys]
    again = index.route(x[::-1], x, np.array(keys, dtype=np.int64))
    assert (again.owner == routed.owner).all(), "the same key goes to the same owner"


@given(shares(), st.integers(-(2**40), 2**40))
def test_every_owner_gets_as_many_points_as_it_has_tickets(dealt: Shares, first: int) -> None:
    _, index = shared_alone(dealt)
    keys = first + np.arange(3 * TICKETS)
    middle = np.full(len(keys), 0.5)
    routed = index.route(middle, middle, keys)
    assert Counter(routed.owner.tolist()) == {m: 3 * tickets for m, tickets in dealt.items()}


def test_without_keys_the_position_decides() -> None:
    partition, index = shared_alone({2: 1, 0: 62, 1: 1})
    middle = np.full(TICKETS + 2, 0.5)
    expected = [holder(partition, position) for position in range(TICKETS + 2)]
    assert index.route(middle, middle).owner.tolist() == expected
    assert expected == [2, *[0] * 62, 1, 2, 0]


def test_no_points_are_routed_nowhere() -> None:
    index = GlobalIndex(Plan.initial(grid_of(2, 2), 2))
    assert [len(column) for column in index.route(np.array([]), np.array([]))] == [0, 0, 0, 0]


@pytest.mark.parametrize("lengths", [(2, 3, 3), (3, 2, 3), (3, 3, 2), (3, 3, 4)])
def test_arrays_that_differ_in_length_are_refused(lengths: tuple[int, int, int]) -> None:
    index = GlobalIndex(Plan.initial(grid_of(2, 2), 2))
    x, y, keys = (np.zeros(n) for n in lengths)
    with pytest.raises(PlanError, match="differ in length: {}, {}, {}".format(*lengths)):
        index.route(x, y, keys.astype(np.int64))


def test_lists_and_slices_are_routed_too() -> None:
    index = GlobalIndex(Plan.initial(grid_of(4, 4), 4))
    x, y = centres(index.grid)
    expected = index.route(x, y)
    assert rows_of(index.route(x.tolist(), y.tolist())) == rows_of(expected)
    assert rows_of(index.route(np.repeat(x, 2)[::2], np.repeat(y, 2)[::2])) == rows_of(expected)


def test_a_large_grid_routes_as_brute_force_does() -> None:
    grid = Grid(Bounds(-125.0, 24.0, -66.0, 50.0), 1000, 1000)
    world = World(Plan.initial(grid, 22))
    for seed in range(100):
        world.step(Operation(("cut", "move", "carve", "carve shared")[seed % 4], seed))
    rng = np.random.default_rng(1)
    x, y = rng.uniform(-127, -64, 100_000), rng.uniform(23, 51, 100_000)
    x[::1000] = math.nan
    keys = rng.integers(-(2**62), 2**62, 100_000)
    routed = world.index.route(x, y, keys)
    placed = (x >= -125) & (x <= -66) & (y >= 24) & (y <= 50)
    assert 0 < placed.sum() < 99_900
    column = np.minimum(((x[placed] + 125) * (1000 / 59)).astype(int), 999)
    row = np.minimum(((y[placed] - 24) * (1000 / 26)).astype(int), 999)
    ids = painted(world.plan)[row, column]
    tickets = {p.id: [holder(p, k) for k in range(TICKETS)] for p in world.plan.partitions}
    owners = [tickets[i][k % TICKETS] for i, k in zip(ids, keys[placed], strict=True)]
    assert (routed.partition[placed] == ids).all()
    assert (routed.owner[placed] == owners).all()
    assert (routed.column[placed] == column).all()
    assert (routed.row[placed] == row).all()
    assert all((array[~placed] == -1).all() for array in routed)


# -- queries -----------------------------------------------------------------------------------


def printed_query_overlap(partitions: list[Partition], query: CellRect) -> list[Partition]:
    """Algorithm 1 exactly as printed, rows counted downwards from the top.

    The paper's ``p.right + 1`` is our ``col_stop``, its next row below p our ``row_stop``.
    """
    grid_index = {
        (x, y): p
        for p in partitions
        for x in range(p.cells.col_start, p.cells.col_stop)
        for y in range(p.cells.row_start, p.cells.row_stop)
    }
    check_cell = [(query.col_start, query.row_start)]
    result: list[Partition] = []
    while check_cell:
        x, y = check_cell.pop()
        overlaps = x < query.col_stop and y < query.row_stop
        if overlaps and grid_index[x, y] not in result:
            p = grid_index[x, y]
            check_cell.append((p.cells.col_stop, y))
            check_cell.append((x, p.cells.row_stop))
            result.append(p)
    return result


def test_the_algorithm_as_printed_misses_a_partition_that_ours_finds() -> None:
    a, b, long, p, r = partitions = (
        Partition(0, CellRect(0, 0, 1, 5), (0,)),
        Partition(1, CellRect(0, 5, 1, 11), (0,)),
        Partition(2, CellRect(1, 0, 2, 11), (0,)),
        Partition(3, CellRect(2, 0, 3, 3), (0,)),
        Partition(4, CellRect(2, 3, 3, 11), (0,)),
    )  # fmt: skip
    plan = Plan(0, grid_of(3, 11), 1, partitions, 5)
    query = plan.grid.cells
    assert printed_query_overlap(list(partitions), query) == [a, b, long, r], "P is never found"
    found = GlobalIndex(plan).overlap(query)
    assert p in found
    assert sorted(found, key=lambda partition: partition.id) == [a, b, long, p, r]


def test_of_all_tilings_of_nine_cells_ours_misses_nothing_and_the_printed_one_does_in_twenty():
    grid = grid_of(3, 3)
    ways, misses = 0, 0
    for rects in every_tiling(grid.cells):
        partitions = tuple(Partition(i, rect, (0,)) for i, rect in enumerate(rects))
        index = GlobalIndex(Plan(0, grid, 1, partitions, len(rects)))
        found = index.overlap(grid.cells)
        assert len(found) == len(set(found)) == len(partitions)
        ways += 1
        misses += len(printed_query_overlap(list(partitions), grid.cells)) < len(partitions)
    assert (ways, misses) == (322, 20)


@given(tilings())
def test_every_query_finds_exactly_the_partitions_that_brute_force_finds(plan: Plan) -> None:
    rects, queries = every_query(plan.grid)
    overlaps = GlobalIndex(plan).overlaps(queries)
    assert found_per_query(overlaps) == expected_per_query(plan, rects)
    assert overlaps.start.dtype == overlaps.partition.dtype == np.int64


@given(tilings(11, 11), st.lists(operations, max_size=30), st.data())
def test_queries_find_their_partitions_after_any_history(plan, history, data) -> None:
    world = World(plan)
    for operation in history:
        world.step(operation)
    rects = data.draw(st.lists(rects_within(plan.grid.cells), max_size=10))
    found = found_per_query(world.index.overlaps(QueryCells.of(rects)))
    assert found == expected_per_query(world.plan, rects)
    for rect, ids in zip(rects, found, strict=True):
        one = world.index.overlap(rect)
        assert sorted(p.id for p in one) == ids
        assert all(world.plan.partitions.count(p) == 1 for p in one)


@given(tilings(), st.lists(st.tuples(*[coordinate] * 4), max_size=20))
def test_queries_with_a_fault_find_nothing_and_do_not_disturb_their_neighbours(plan, edges):
    array = np.array(edges, dtype=np.float64).reshape(-1, 4)
    queries = plan.grid.place_queries(*array.T)
    found = found_per_query(GlobalIndex(plan).overlaps(queries))
    rects = [queries.rect(i) for i in range(len(edges))]
    assert found == expected_per_query(plan, rects)
    assert all((ids == []) == (fault != 0) for ids, fault in zip(found, queries.fault, strict=True))


@given(tilings(4, 4), st.lists(operations, max_size=10))
def test_queries_are_routed_to_every_owner_of_every_partition_exactly_once(plan, history) -> None:
    world = World(plan)
    for operation in history:
        world.step(operation)
    rects, queries = every_query(plan.grid)
    routed = world.index.route_queries(queries)
    expected = sorted(
        (query, p.id, owner)
        for query, rect in enumerate(rects)
        for p in world.plan.partitions
        if p.cells.overlaps(rect)
        for owner in p.owners
    )
    found = list(zip(*(column.tolist() for column in routed), strict=True))
    assert sorted(found) == expected
    assert (np.diff(routed.query) >= 0).all()


def test_no_queries_are_routed_nowhere() -> None:
    index = GlobalIndex(Plan.initial(grid_of(2, 2), 2))
    none = QueryCells.of([])
    assert [len(column) for column in index.route_queries(none)] == [0, 0, 0]
    assert index.overlaps(none).start.tolist() == [0]
    bad = index.grid.place_queries(*[np.array([math.nan])] * 4)
    assert [len(column) for column in index.route_queries(bad)] == [0, 0, 0]


# -- changes made at once ----------------------------------------------------------------------


def test_an_index_of_a_plan_that_does_not_tile_is_refused() -> None:
    plan = Plan.initial(grid_of(4, 4), 4)
    with pytest.raises(PlanError, match="covered 0 times"):
        GlobalIndex(Plan(0, plan.grid, 4, plan.partitions[1:], plan.next_id))


def test_the_partitions_can_be_read_but_not_written() -> None:
    plan = Plan.initial(grid_of(4, 4), 3)
    index = GlobalIndex(plan)
    assert dict(index.partitions) == {p.id: p for p in plan.partitions}
    with pytest.raises(TypeError):
        index.partitions[99] = plan.partitions[0]  # type: ignore[index]


@part_of_the_examples(0.2)
@given(tilings(9, 9), st.lists(operations, min_size=100, max_size=100))
def test_a_hundred_operations_keep_the_tiling_exact_and_plan_and_index_in_step(
    plan: Plan, history: list[Operation]
) -> None:
    world = World(plan)
    given_out = {p.id for p in plan.partitions}
    for operation in history:
        for change in world.step(operation):
            for created in change.created:
                assert created.id > max(given_out), "ids only grow, so none comes back"
                given_out.add(created.id)
        world.plan.check_tiling()
        world.index.check_tiling()
        assert dict(world.index.partitions) == {p.id: p for p in world.plan.partitions}
    assert (routed_ids(world.index) == painted(world.plan)).all()
    fresh = GlobalIndex(world.plan)
    x, y = (np.repeat(values, TICKETS) for values in centres(plan.grid))
    assert rows_of(world.index.route(x, y)) == rows_of(fresh.route(x, y))
    _, queries = every_query(plan.grid)
    found, expected = world.index.overlaps(queries), fresh.overlaps(queries)
    assert found_per_query(found) == found_per_query(expected)


@given(tilings(6, 6), st.lists(st.lists(operations, max_size=8), max_size=4))
def test_an_index_that_follows_a_plan_is_as_one_made_of_it(plan, histories) -> None:
    world, index = World(plan), GlobalIndex(plan)
    plans = [plan]
    for history in histories:
        for operation in history:
            world.step(operation)
        plans.append(world.plan)
    # There and back, and to a plan of another run.
    for other in (*plans, *reversed(plans), Plan.initial(plan.grid, 3)):
        index.follow(other)
        index.check_tiling()
        fresh = GlobalIndex(other)
        assert dict(index.partitions) == dict(fresh.partitions)
        x, y = (np.repeat(values, TICKETS) for values in centres(plan.grid))
        assert rows_of(index.route(x, y)) == rows_of(fresh.route(x, y))


def test_an_index_does_not_follow_a_plan_with_a_hole_or_of_another_grid() -> None:
    plan = Plan.initial(grid_of(4, 4), 4)
    index = GlobalIndex(plan)
    for other in (
        Plan(1, plan.grid, 4, plan.partitions[1:], plan.next_id),
        Plan.initial(grid_of(4, 5), 4),
    ):
        with pytest.raises(PlanError, match="does not follow"):
            index.follow(other)
        assert dict(index.partitions) == {p.id: p for p in plan.partitions}
        index.check_tiling()


@given(tilings(), st.lists(operations, max_size=10), operations)
def test_a_change_writes_only_the_cells_concerned(plan, history, operation) -> None:
    world = World(plan)
    for earlier in history:
        world.step(earlier)
    before = world.index._cells.copy()
    ids = routed_ids(world.index)
    concerned = np.zeros(before.shape, dtype=bool)
    for change in world.step(operation):
        concerned[change.cells.slices] = True
    assert (world.index._cells[~concerned] == before[~concerned]).all()
    after = routed_ids(world.index)
    assert (after[~concerned] == ids[~concerned]).all()
    assert (after[concerned] != ids[concerned]).all()


P1 = Partition(1, CellRect(0, 0, 2, 4), (0,))
P2 = Partition(2, CellRect(2, 0, 4, 4), (1,))
TWO = Plan(0, grid_of(4, 4), 3, (P1, P2), 3)

REFUSED = {
    "a partition that was never there": (
        moved(Partition(7, P1.cells, (0,)), 0, 1, 8),
        "p7 is not in the index",
    ),
    "a partition with other owners": (
        moved(Partition(1, P1.cells, (2,)), 2, 1, 8),
        "p1 is not in the index",
    ),
    "one of several is not there": (
        merged((P1, Partition(2, P2.cells, (0,))), TWO.grid.cells, 8),
        "p2 is not in the index",
    ),
    "one id for two pieces": (
        PlanChange(
            ChangeKind.SPLIT,
            (P1,),
            tuple(Partition(5, cells, (0,)) for cells in P1.cells.split_rows(2)),
        ),
        "p5 is already in the index",
    ),
    "an id in use": (moved(P1, 0, 1, 2), "p2 is already in the index"),
    "its own id": (moved(P1, 0, 1, 1), "p1 is already in the index"),
    "one piece's id in use": (
        split(P1, [(CellRect(0, 0, 1, 4), {0: TICKETS}), (CellRect(1, 0, 2, 4), {1: TICKETS})], 1),
        "p1 is already in the index",
    ),
}


@pytest.mark.parametrize(("change", "message"), REFUSED.values(), ids=REFUSED.keys())
@pytest.mark.parametrize("gradually", [False, True])
def test_a_change_that_does_not_fit_is_refused_and_nothing_changes(
    change: PlanChange, message: str, gradually: bool
) -> None:
    index = GlobalIndex(TWO)
    before, tables = index._cells.copy(), (index._ids.copy(), index._rects.copy())
    with pytest.raises(PlanError, match=message) as refused:
        next(index.apply_gradually(change)) if gradually else index.apply(change)
    assert change.describe() in str(refused.value)
    assert (index._cells == before).all()
    assert (index._ids == tables[0]).all()
    assert (index._rects == tables[1]).all()
    assert dict(index.partitions) == {1: P1, 2: P2}
    index.check_tiling()
    index.apply(moved(P1, 0, 2, 3))
    index.apply(moved(P2, 1, 2, 4))
    assert routed_ids(index).tolist() == [[3, 3, 4, 4]] * 4


def test_a_partition_of_many_owners_among_partitions_of_few() -> None:
    plan = Plan.initial(grid_of(4, 4), TICKETS)
    world = World(plan)
    x, y = (np.repeat(values, TICKETS) for values in centres(plan.grid))
    rng = random.Random(1)
    for partition, count in zip(plan.partitions, [1, TICKETS, 3, 7, 40], strict=False):
        (fresh,), world.plan = world.plan.reserve(1)
        change = reshared(partition, deal(list(range(TICKETS))[:count], rng), fresh)
        world.plan = world.plan.apply([change])
        world.index.apply(change)
        assert rows_of(world.index.route(x, y)) == rows_of(GlobalIndex(world.plan).route(x, y))


# -- the check of the tiling -------------------------------------------------------------------


def test_a_cell_that_leads_to_the_wrong_partition_is_found() -> None:
    index = GlobalIndex(TWO)
    index.check_tiling()
    index._cells[3, 0] = index._cells[3, 3]
    with pytest.raises(PlanError, match=r"^1 cells lead to a partition not containing them"):
        index.check_tiling()


@pytest.mark.parametrize(
    "beyond",
    [CellRect(1, 0, 4, 4), CellRect(0, 1, 4, 4), CellRect(0, 0, 3, 4), CellRect(0, 0, 4, 3)],
)
def test_a_cell_outside_its_partition_is_found_on_every_side(beyond: CellRect) -> None:
    index = GlobalIndex(Plan.initial(grid_of(4, 4), 1))
    index._rects[0] = beyond
    with pytest.raises(PlanError, match=r"^4 cells lead to a partition not containing them"):
        index.check_tiling()


def test_a_cell_that_leads_to_a_retired_partition_is_found() -> None:
    index = GlobalIndex(TWO)
    old = index._cells[0, 0]
    index.apply(moved(P1, 0, 1, 3))
    index.check_tiling()
    index._cells[2, 1] = old
    with pytest.raises(PlanError, match=r"^1 cells lead to a partition not containing them"):
        index.check_tiling()


def test_a_hole_and_a_double_cover_are_found() -> None:
    index = GlobalIndex(TWO)
    del index._partitions[1]
    with pytest.raises(PlanError, match=r"^8 cells are not covered exactly once"):
        index.check_tiling()
    index = GlobalIndex(TWO)
    index._partitions[9] = Partition(9, CellRect(1, 1, 3, 3), (0,))
    with pytest.raises(PlanError, match=r"^4 cells are not covered exactly once"):
        index.check_tiling()


def test_an_update_under_way_excuses_only_its_own_cells() -> None:
    index = GlobalIndex(TWO)
    update = index.apply_gradually(moved(P1, 0, 1, 3))
    next(update)
    index.check_tiling()
    index._partitions[9] = Partition(9, CellRect(1, 0, 2, 1), (0,))
    with pytest.raises(PlanError, match=r"^1 cells are not covered exactly once"):
        index.check_tiling()
    del index._partitions[9]
    index._cells[0, 3] = index._cells[0, 0]
    with pytest.raises(PlanError, match=r"^1 cells lead to a partition not containing them"):
        index.check_tiling()


# -- changes made gradually --------------------------------------------------------------------


def check_while_updating(
    index: GlobalIndex, before: np.ndarray, under_way: list[PlanChange], queries: QueryCells
) -> None:
    """What must hold between any two steps of any updates."""
    index.check_tiling()
    now = routed_ids(index)
    right = now == before
    for change in under_way:
        for created in change.created:
            right[created.cells.slices] |= now[created.cells.slices] == created.id
    assert right.all(), "a cell leads neither to its old nor to its new partition"

    members = {}
    for partition in index.partitions.values():
        inside = np.zeros(before.shape, dtype=bool)
        inside[partition.cells.slices] = True
        members[partition.id] = inside
    asked = np.zeros((len(queries.fault), *before.shape), dtype=bool)
    for i in range(len(asked)):
        asked[i][queries.rect(i).slices] = True
    start, found = index.overlaps(queries)
    query = np.repeat(np.arange(len(asked)), np.diff(start))
    assert len(set(zip(query.tolist(), found.tolist(), strict=True))) == len(found), "found twice"
    inside = np.array([members[i] for i in found.tolist()])
    assert (inside & asked[query]).any(axis=(1, 2)).all(), "found without overlapping"
    covered = np.zeros_like(asked)
    np.logical_or.at(covered, query, inside)
    assert (covered >= asked).all(), "a cell of a query is in no partition that was found"

    routed = index.route_queries(queries)
    pairs = sorted(zip(*(column.tolist() for column in routed), strict=True))
    assert pairs == sorted(
        (q, i, owner)
        for q, i in zip(query.tolist(), found.tolist(), strict=True)
        for owner in index.partitions[i].owners
    )


@part_of_the_examples(0.5)
@given(tilings(5, 5), st.lists(operations, max_size=5), operations)
def test_between_the_steps_of_a_gradual_update_everything_finds_its_way(
    plan: Plan, history: list[Operation], operation: Operation
) -> None:
    world = World(plan)
    for earlier in history:
        world.step(earlier)
    index = world.index
    plan, changes = make_changes(world.plan, operation)
    _, queries = every_query(plan.grid)
    for change in changes:
        before, cells = routed_ids(index), index._cells.copy()
        at_once = GlobalIndex(plan)
        at_once.apply(change)
        steps = 0
        for _ in index.apply_gradually(change):
            steps += 1
            check_while_updating(index, before, [change], queries)
            assert (routed_ids(index) != before).sum() == steps, "one cell a step"
            assert set(index.partitions) >= {p.id for p in change.retired + change.created}
        assert steps == change.cells.area
        assert not index._updating
        plan = plan.apply([change])
        index.check_tiling()
        assert dict(index.partitions) == dict(at_once.partitions)
        assert dict(index.partitions) == {p.id: p for p in plan.partitions}
        assert (routed_ids(index) == routed_ids(at_once)).all()
        assert (routed_ids(index) == painted(plan)).all()
        outside = np.ones(cells.shape, dtype=bool)
        outside[change.cells.slices] = False
        assert (index._cells[outside] == cells[outside]).all()
        found = found_per_query(index.overlaps(queries))
        assert found == found_per_query(at_once.overlaps(queries))


@part_of_the_examples(0.5)
@given(
    tilings(5, 5),
    st.lists(operations, min_size=2, max_size=6),
    st.randoms(use_true_random=False),
)
def test_updates_of_different_partitions_may_be_under_way_at_once(plan, todo, rng) -> None:
    changes: list[PlanChange] = []
    reserved = plan
    for operation in todo:
        reserved, more = make_changes(reserved, operation)
        changes += [
            change
            for change in more
            if not any(change.cells.overlaps(other.cells) for other in changes)
        ]
    index = GlobalIndex(plan)
    before = routed_ids(index)
    _, queries = every_query(plan.grid)
    updates = [index.apply_gradually(change) for change in changes]
    while updates:
        update = rng.choice(updates)
        if next(update, "done") == "done":
            updates.remove(update)
        check_while_updating(index, before, changes, queries)
    after = reserved.apply(changes)
    fresh = GlobalIndex(after)
    assert (routed_ids(index) == painted(after)).all()
    assert dict(index.partitions) == dict(fresh.partitions)
    assert found_per_query(index.overlaps(queries)) == found_per_query(fresh.overlaps(queries))


def test_a_second_change_of_a_partition_being_updated_is_refused_until_the_first_is_done() -> None:
    index = GlobalIndex(TWO)
    first = split(P1, [(cells, {m: TICKETS}) for m, cells in enumerate(P1.cells.split_rows(2))], 3)
    update = index.apply_gradually(first)
    assert dict(index.partitions) == {1: P1, 2: P2}, "nothing happens before the first step"
    next(update)
    new, _ = first.created
    for again in (moved(P1, 0, 2, 8), moved(new, 0, 2, 8), merged((P1, P2), TWO.grid.cells, 8)):
        before = index._cells.copy()
        with pytest.raises(PlanError, match=rf"p{again.retired[0].id} is still being updated"):
            index.apply(again)
        with pytest.raises(PlanError, match="still being updated"):
            next(index.apply_gradually(again))
        assert (index._cells == before).all()
        assert set(index.partitions) == {1, 2, 3, 4}
    index.apply(moved(P2, 1, 2, 9))
    assert sum(1 for _ in update) == P1.cells.area - 1
    index.apply(moved(new, 0, 2, 10))
    index.check_tiling()
    assert routed_ids(index).tolist() == [[10, 10, 9, 9]] * 2 + [[4, 4, 9, 9]] * 2
    with pytest.raises(PlanError, match="p1 is not in the index"):
        index.apply(moved(P1, 0, 2, 11))


def test_slots_are_used_again_so_that_the_tables_do_not_grow_for_ever() -> None:
    world = World(Plan.initial(grid_of(4, 4), 4))
    for seed in range(200):
        world.step(Operation("move", seed))
    assert len(world.index._ids) == len(GlobalIndex(world.plan)._ids)
    assert (world.index._ids >= 0).sum() == 4
    assert sorted(world.index._ids[world.index._ids >= 0]) == sorted(world.index.partitions)


def test_all_rects_are_all_the_queries_there_are() -> None:
    assert len(all_rects(CellRect(0, 0, 3, 2))) == 6 * 3
    assert len(set(all_rects(CellRect(1, 2, 4, 4)))) == 6 * 3


def test_a_query_that_reaches_beyond_the_grid_finds_what_is_inside() -> None:
    index = GlobalIndex(TWO)
    everywhere = CellRect(-5, -5, 1000, 1000)
    assert {p.id for p in index.overlap(everywhere)} == set(index.partitions)
    assert index.overlap(CellRect(900, 900, 901, 901)) == []
