"""Random tilings and random histories of changes, and slow oracles to compare with.

An operation is a kind and a seed: what it does depends on the plan that it meets, so any
list of operations is a valid history and Hypothesis can shorten it freely.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from hypothesis import settings
from hypothesis import strategies as st

from sparkswarm.geometry import Bounds, CellRect, Grid, QueryCells
from sparkswarm.protocol.global_index import GlobalIndex, Overlaps
from sparkswarm.protocol.merge import find_merges
from sparkswarm.protocol.partition import (
    TICKETS,
    PlanChange,
    Shares,
    merged,
    moved,
    reshared,
    split,
    successor,
)
from sparkswarm.protocol.plan import Plan

EXECUTORS = 5

KINDS = ("move", "cut", "carve", "carve shared", "merge", "share", "unshare")


def part_of_the_examples(fraction: float) -> settings:
    """For tests whose every example is long: run this part of the profile's examples."""
    return settings(max_examples=max(5, round(settings.default.max_examples * fraction)))


# -- grids and tilings -------------------------------------------------------------------------


def grid_of(columns: int, rows: int) -> Grid:
    """Return a grid whose cells have side 1, so that (c + 0.5, r + 0.5) is the centre of one."""
    return Grid(Bounds(0.0, 0.0, float(columns), float(rows)), columns, rows)


def grids(max_columns: int = 7, max_rows: int = 7) -> st.SearchStrategy[Grid]:
    """Small grids with cells of side 1."""
    return st.builds(grid_of, st.integers(1, max_columns), st.integers(1, max_rows))


def deal(owners: list[int], rng: random.Random) -> Shares:
    """Deal the tickets out to these owners, at random, at least one to each."""
    cuts = [0, *sorted(rng.sample(range(1, TICKETS), len(owners) - 1)), TICKETS]
    return {m: high - low for m, (low, high) in zip(owners, itertools.pairwise(cuts), strict=True)}


def shares(executors: int = EXECUTORS) -> st.SearchStrategy[Shares]:
    """One owner mostly, sometimes several."""
    one = st.integers(0, executors - 1).map(lambda owner: {owner: TICKETS})
    several = st.builds(
        lambda owners, seed: deal(owners, random.Random(seed)),
        st.lists(st.integers(0, executors - 1), min_size=2, unique=True),
        st.integers(0, 2**16),
    )
    return st.one_of(one, one, one, several)


@st.composite
def tilings(
    draw: st.DrawFn, max_columns: int = 7, max_rows: int = 7, executors: int = EXECUTORS
) -> Plan:
    """Any tiling of a small grid by rectangles, pinwheels and all, with any owners.

    The first cell not yet covered gets a rectangle as wide as fits and as high as it likes:
    what is free in a row is free below it too, so every tiling can come out.
    """
    grid = draw(grids(max_columns, max_rows))
    covered = np.zeros((grid.rows, grid.columns), dtype=bool)
    rects = []
    while not covered.all():
        row, column = map(int, np.argwhere(~covered)[0])
        taken = np.flatnonzero(covered[row, column:])
        free = int(taken[0]) if len(taken) else grid.columns - column
        width = draw(st.integers(1, free))
        height = draw(st.integers(1, grid.rows - row))
        rects.append(CellRect(column, row, column + width, row + height))
        covered[rects[-1].slices] = True
    if draw(st.booleans()):
        rects.reverse()
    first = draw(st.integers(0, 3))
    partitions = tuple(
        successor(first + i, rect, draw(shares(executors))) for i, rect in enumerate(rects)
    )
    return Plan(0, grid, executors, partitions, first + len(rects))


def rects_within(cells: CellRect) -> st.SearchStrategy[CellRect]:
    """Non-empty rectangles of these cells."""

    def side(start: int, stop: int) -> st.SearchStrategy[tuple[int, int]]:
        return st.integers(start, stop - 1).flatmap(
            lambda low: st.integers(low + 1, stop).map(lambda high: (low, high))
        )

    return st.tuples(
        side(cells.col_start, cells.col_stop), side(cells.row_start, cells.row_stop)
    ).map(lambda s: CellRect(s[0][0], s[1][0], s[0][1], s[1][1]))


# -- operations --------------------------------------------------------------------------------


class Operation(NamedTuple):
    """Something to do to a plan."""

    kind: str
    seed: int


operations = st.builds(Operation, st.sampled_from(KINDS), st.integers(0, 2**16))


def make_changes(plan: Plan, operation: Operation) -> tuple[Plan, list[PlanChange]]:
    """Return the plan with its ids reserved and the changes; none where there is nothing to do."""
    rng = random.Random(operation.seed)
    if operation.kind == "merge":
        return _merges(plan, rng.randrange(plan.executors))
    partition = rng.choice(plan.partitions)
    if operation.kind == "move":
        giver = rng.choice(partition.owners)
        takers = [m for m in range(plan.executors) if m != giver]
        if not takers:
            return plan, []
        (fresh,), plan = plan.reserve(1)
        return plan, [moved(partition, giver, rng.choice(takers), fresh)]
    if operation.kind in ("share", "unshare"):
        most = plan.executors if operation.kind == "share" else len(partition.owners) - 1
        if most < 1:
            return plan, []
        (fresh,), plan = plan.reserve(1)
        chosen = rng.sample(range(plan.executors), rng.randint(min(2, most), most))
        return plan, [reshared(partition, deal(chosen, rng), fresh)]
    pieces = _cut(partition.cells, rng) if operation.kind == "cut" else _carve(partition.cells, rng)
    most = min(3, plan.executors) if operation.kind == "carve shared" else 1
    given = [
        (cells, deal(rng.sample(range(plan.executors), rng.randint(1, most)), rng))
        for cells in pieces
    ]
    ids, plan = plan.reserve(len(given))
    return plan, [split(partition, given, ids.start)]


def _merges(plan: Plan, executor: int) -> tuple[Plan, list[PlanChange]]:
    found = find_merges(plan.owned_by(executor))
    ids, plan = plan.reserve(len(found))
    return plan, [
        merged(merge.partitions, merge.cells, fresh)
        for merge, fresh in zip(found, ids, strict=True)
    ]


def _cut(cells: CellRect, rng: random.Random) -> list[CellRect]:
    lines = [(cells.split_columns, line) for line in range(1, cells.columns)]
    lines += [(cells.split_rows, line) for line in range(1, cells.rows)]
    if not lines:
        return [cells]
    cut, line = rng.choice(lines)
    return list(cut(line))


def _carve(cells: CellRect, rng: random.Random) -> list[CellRect]:
    """Cut a random rectangle out of these cells and lay up to four others around it like vanes."""
    left, right = sorted(rng.sample(range(cells.col_start, cells.col_stop + 1), 2))
    top, bottom = sorted(rng.sample(range(cells.row_start, cells.row_stop + 1), 2))
    pieces = [
        CellRect(left, top, right, bottom),
        CellRect(cells.col_start, cells.row_start, right, top),
        CellRect(right, cells.row_start, cells.col_stop, bottom),
        CellRect(left, bottom, cells.col_stop, cells.row_stop),
        CellRect(cells.col_start, top, left, cells.row_stop),
    ]
    return [piece for piece in pieces if piece.area]


class World:
    """A plan and an index that get the same changes."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.index = GlobalIndex(plan)

    def step(self, operation: Operation) -> list[PlanChange]:
        """Do one operation and return what it changed."""
        plan, changes = make_changes(self.plan, operation)
        self.plan = plan.apply(changes)
        for change in changes:
            self.index.apply(change)
        return changes


# -- oracles -----------------------------------------------------------------------------------


def painted(plan: Plan) -> npt.NDArray[np.int64]:
    """Return the partition id of every cell, by painting one partition after another."""
    ids = np.full((plan.grid.rows, plan.grid.columns), -1, dtype=np.int64)
    for partition in plan.partitions:
        assert (ids[partition.cells.slices] == -1).all(), "a cell is covered twice"
        ids[partition.cells.slices] = partition.id
    assert (ids >= 0).all(), "a cell is not covered"
    return ids


def centres(grid: Grid) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return the centre of every cell, row after row, for grids with cells of side 1."""
    rows, columns = np.indices((grid.rows, grid.columns))
    return columns.ravel() + 0.5, rows.ravel() + 0.5


def routed_ids(index: GlobalIndex) -> npt.NDArray[np.int64]:
    """Return the partition id that the centre of every cell is routed to."""
    x, y = centres(index.grid)
    return index.route(x, y).partition.reshape(index.grid.rows, index.grid.columns)


def all_rects(cells: CellRect) -> list[CellRect]:
    """Return every non-empty rectangle of these cells."""
    return [
        CellRect(left, top, right, bottom)
        for left in range(cells.col_start, cells.col_stop)
        for right in range(left + 1, cells.col_stop + 1)
        for top in range(cells.row_start, cells.row_stop)
        for bottom in range(top + 1, cells.row_stop + 1)
    ]


def every_tiling(cells: CellRect) -> Iterator[list[CellRect]]:
    """Yield every way to cut a whole grid into rectangles, which are many even for a small one."""

    def complete(rects: list[CellRect], covered: np.ndarray) -> Iterator[list[CellRect]]:
        if covered.all():
            yield rects
            return
        row, column = map(int, np.argwhere(~covered)[0])
        for right in range(column + 1, cells.col_stop + 1):
            for bottom in range(row + 1, cells.row_stop + 1):
                rect = CellRect(column, row, right, bottom)
                if not covered[rect.slices].any():
                    after = covered.copy()
                    after[rect.slices] = True
                    yield from complete([*rects, rect], after)

    yield from complete([], np.zeros((cells.row_stop, cells.col_stop), dtype=bool))


def found_per_query(overlaps: Overlaps) -> list[list[int]]:
    """Return the ids that each query found, sorted, repetitions and all."""
    start, partition = overlaps
    assert start[0] == 0
    assert start[-1] == len(partition)
    return [
        sorted(partition[low:high].tolist()) for low, high in itertools.pairwise(start.tolist())
    ]


def expected_per_query(plan: Plan, rects: list[CellRect]) -> list[list[int]]:
    """Return the same by looking at every cell of every query."""
    ids = painted(plan)
    return [np.unique(ids[rect.slices]).tolist() for rect in rects]


def every_query(grid: Grid) -> tuple[list[CellRect], QueryCells]:
    """Return every query there can be in a small grid, in both forms."""
    rects = all_rects(grid.cells)
    return rects, QueryCells.of(rects)
