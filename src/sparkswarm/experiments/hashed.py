"""Placements by hashes of cells: to one executor, or to the less loaded of two.

Owns the hashing, the executors that hold a query over several cells, and how two executors
divide the points of the cells that they share.
"""

from __future__ import annotations

import numpy as np

from sparkswarm.compiled import FloatArray, LongArray, compiled
from sparkswarm.experiments.field import Field
from sparkswarm.experiments.placement import FixedPlacement, Load, Moves, PlacementTotals
from sparkswarm.experiments.scenarios import Mix
from sparkswarm.experiments.service import Service
from sparkswarm.geometry import Grid, QueryCells
from sparkswarm.policies import HashCell
from sparkswarm.protocol.global_index import GlobalIndex
from sparkswarm.protocol.messages import Decision
from sparkswarm.protocol.plan import Plan

SWEEPS = 6
"""Iterations over all pairs; more have no visible effect."""


class Hashed(FixedPlacement):
    """Points go by a hash of their cell; a query is held by the executors of all its cells."""

    def __init__(self, field: Field, executors: int) -> None:
        owner = first_choice(field.grid, executors)
        of_cells = owner[field.rows, field.columns]
        held = _holders(field, [owner], executors)
        super().__init__(*field.by_label(of_cells, executors), held)


class Paired:
    """Partial key grouping over cells: a point goes to the less loaded of two executors.

    Both candidates of a cell are hashes of it, and both hold its queries. The load is work,
    known to every source at once, which is at least as good as the published method, where
    sources count what they sent. In a slice, the two candidates of a pair therefore have equal
    loads, unless all points of the pair go to one of them.
    """

    rebalances = False

    def __init__(self, field: Field, executors: int, service: Service) -> None:
        choices = [first_choice(field.grid, executors), second_choice(field.grid, executors)]
        first, second = (choice[field.rows, field.columns] for choice in choices)
        pairs, label = np.unique(first * executors + second, return_inverse=True)
        self._executors = executors
        self._first, self._second = pairs // executors, pairs % executors
        self._points, self._matches = field.by_label(label, len(pairs))
        self._service = service
        self._held = _holders(field, choices, executors)
        self._part: FloatArray = np.full(len(pairs), 0.5)

    def load(self, mix: Mix) -> Load:
        """Divide the points of every pair, starting from the last division."""
        points = self._points @ mix.points
        matches = (self._matches @ mix.queries) @ mix.points
        held = self.held(mix)
        per_point = float(self._service.point_seconds(held).mean())
        seconds = per_point * points + self._service.per_match * matches
        level_pairs(seconds, self._first, self._second, self._part, self._executors)
        return Load(self._divided(points), self._divided(matches), held)

    def _divided(self, values: FloatArray) -> FloatArray:
        first = np.bincount(self._first, values * self._part, self._executors)
        second = np.bincount(self._second, values * (1 - self._part), self._executors)
        return np.asarray(first + second, dtype=np.float64)

    def held(self, mix: Mix) -> FloatArray:
        """Return how many queries each executor holds."""
        return self._held @ mix.queries

    def close_round(
        self, number: int, totals: PlacementTotals, mix: Mix, busy: FloatArray
    ) -> tuple[list[Decision], Moves | None]:
        """Decide nothing."""
        return [], None


# -- hashes ------------------------------------------------------------------------------------


def first_choice(grid: Grid, executors: int) -> LongArray:
    """Return the executor of every cell, of shape (rows, columns): the policy ``hash_cell``."""
    rows, columns = np.indices((grid.rows, grid.columns))
    x = grid.bounds.min_x + (columns.ravel() + 0.5) / grid.columns_per_unit
    y = grid.bounds.min_y + (rows.ravel() + 0.5) / grid.rows_per_unit
    index = GlobalIndex(Plan.initial(grid, 1))
    router = HashCell().router(index, executors)
    owners = router.assign(np.asarray(x), np.asarray(y), np.zeros(len(x), dtype=np.int64))
    return owners.astype(np.int64).reshape(grid.rows, grid.columns)


def second_choice(grid: Grid, executors: int) -> LongArray:
    """Return another executor for every cell, from the hash of the mirrored cell."""
    first = first_choice(grid, executors)
    if executors == 1:
        return first
    return (first + 1 + first_choice(grid, executors - 1)[::-1, ::-1]) % executors


def _holders(field: Field, choices: list[LongArray], executors: int) -> FloatArray:
    """Count the queries of each source on each executor, in all cells that they overlap."""
    held = []
    for sample in field.sample:
        query, cell = cells_of(sample, field.grid.columns)
        pairs = [query * executors + choice.ravel()[cell] for choice in choices]
        once = np.unique(np.concatenate(pairs))
        held.append(np.bincount(once % executors, minlength=executors) * field.weight)
    return np.stack(held, axis=-1)


def cells_of(queries: QueryCells, columns: int) -> tuple[LongArray, LongArray]:
    """Return (query, cell) for every cell that a query overlaps, in row-major order."""
    width = (queries.col_stop - queries.col_start).astype(np.int64)
    area = width * (queries.row_stop - queries.row_start)
    query = np.repeat(np.arange(len(area)), area)
    turn = np.arange(len(query)) - np.repeat(np.cumsum(area) - area, area)
    row = queries.row_start[query] + turn // width[query]
    return query, row * columns + queries.col_start[query] + turn % width[query]


@compiled
def level_pairs(
    seconds: FloatArray, first: LongArray, second: LongArray, part: FloatArray, executors: int
) -> None:
    """Divide the work of every pair so that its two executors have loads as equal as possible.

    ``part`` is the share of the first executor of each pair. A step never increases the larger of
    two loads, so the iterations approach the division with the smallest maximum.
    """
    given = np.zeros(executors)
    for i in range(len(seconds)):
        given[first[i]] += seconds[i] * part[i]
        given[second[i]] += seconds[i] * (1 - part[i])
    for _ in range(SWEEPS):
        for i in range(len(seconds)):
            a, b = first[i], second[i]
            if a == b or seconds[i] <= 0:
                continue
            others_a = given[a] - seconds[i] * part[i]
            others_b = given[b] - seconds[i] * (1 - part[i])
            even = 0.5 + (others_b - others_a) / (2 * seconds[i])
            part[i] = min(1.0, max(0.0, even))
            given[a] = others_a + seconds[i] * part[i]
            given[b] = others_b + seconds[i] * (1 - part[i])
