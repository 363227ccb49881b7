"""The policy ``static_history``: the space is cut once, by the cost of a sample of the past."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple, cast

import numpy as np

from sparkswarm.compiled import LongArray
from sparkswarm.errors import ConfigError, PlanError
from sparkswarm.geometry import CellRect, Grid, QueryCells
from sparkswarm.policies.policy import History, PointRouter, StaticPolicy
from sparkswarm.policies.routing import RouteByPlan
from sparkswarm.protocol.cost import WorkModel
from sparkswarm.protocol.global_index import GlobalIndex
from sparkswarm.protocol.partition import Partition
from sparkswarm.protocol.plan import Plan


@dataclass(frozen=True, slots=True)
class StaticHistory(StaticPolicy):
    """A division by the cost of some history, for ever (paper, "Static Grid Based on History").

    Attributes
    ----------
    model
        Prices of a point and of each query that overlaps its cell. With None, all points together
        cost as much as all queries in their cells.
    """

    name: ClassVar[str] = "static_history"
    model: WorkModel | None = field(default_factory=WorkModel)

    def first_plan(self, grid: Grid, executors: int, history: History | None = None) -> Plan:
        """Cut the space in two, in proportion to the executors of either side, and again.

        The cells of k executors are cut into a part for k // 2 of them and one for the rest,
        along the line that divides the cost most nearly so, and each part again. Costs are
        counted cell by cell. Equally good lines go by the longer side and then by the number
        of cells; cells without cost count one each, so that a history without points divides
        the space evenly. A single cell stays whole and serves one executor: those for whom
        nothing is left come last. ConfigError without a history.

        Differs: the paper says that the costs are almost equal, not how they are made so. Not
        by halving the costliest again and again, as in the even division: of 22 executors it
        leaves ten with a sixteenth each, and the largest cost, measured, at 1.37 times the
        mean; in proportion it is 1.01 to 1.24 times. A rival must not be crippled.
        """
        if history is None:
            raise ConfigError(
                f"the policy {self.name!r} divides the space by the past: give it a history, "
                "a sample of points and queries"
            )
        if executors < 1:
            raise PlanError(f"a plan needs at least one executor, got {executors}")
        costs = _Costs.of(grid, history, self.model)
        partitions = tuple(
            Partition(executor, cells, (executor,))
            for executor, cells in enumerate(_divided(costs, grid.cells, executors))
        )
        return Plan(0, grid, executors, partitions, len(partitions))

    def router(self, index: GlobalIndex, executors: int) -> PointRouter:
        """Route by the plan."""
        return RouteByPlan(index)


class _Costs(NamedTuple):
    """Prefix sums over the grid of what a history costs.

    Counts are whole numbers, so the sum of any rectangle is exact.
    """

    points: LongArray
    checks: LongArray
    model: WorkModel

    @classmethod
    def of(cls, grid: Grid, history: History, model: WorkModel | None) -> _Costs:
        """Count the points of every cell, and the queries that each is checked against."""
        columns, rows = grid.place_points(history.x, history.y)
        placed = columns >= 0
        cell = rows[placed].astype(np.int64) * grid.columns + columns[placed]
        counted = np.bincount(cell, minlength=grid.cells.area)
        points = counted.reshape(grid.rows, grid.columns)
        checks = points * _queries_per_cell(grid, history.queries)
        if model is None:
            model = WorkModel(per_point=1.0, per_check=float(points.sum() / max(1, checks.sum())))
        return cls(_sums(points), _sums(checks), model)

    def of_cells(self, cells: CellRect) -> float:
        """Return the cost of some cells."""
        points, checks = (int(_by_columns(s, cells)[-1]) for s in (self.points, self.checks))
        return self.model.per_point * points + self.model.per_check * checks

    def parts(self, cells: CellRect, some: int, executors: int) -> tuple[CellRect, CellRect]:
        """Cut two or more cells so that the first part suits ``some`` of the executors best."""
        is_free = self.of_cells(cells) == 0.0
        ways = [
            (cells.columns, _by_columns, cells.split_columns),
            (cells.rows, _by_rows, cells.split_rows),
        ]
        if cells.rows > cells.columns:
            ways.reverse()
        found = []
        for length, along, cut in ways:
            if length == 1:
                continue
            by_area = _excess(np.arange(length + 1) * (cells.area // length), some, executors)
            by_cost = self.model.per_point * _excess(
                along(self.points, cells), some, executors
            ) + self.model.per_check * _excess(along(self.checks, cells), some, executors)
            errors = np.abs(by_area if is_free else by_cost)
            best = np.lexsort((np.abs(by_area), errors))[0]
            found.append((float(errors[best]), 1 + int(best), cut))
        # Of equal lines the first, which is across the longer side.
        _, line, cut = min(found, key=lambda one: one[0])
        return cut(line)


def _divided(costs: _Costs, cells: CellRect, executors: int) -> Iterator[CellRect]:
    """Divide cells among executors in proportion to cost; yield the cells of each."""
    if executors == 1 or cells.area == 1:
        yield cells
        return
    some = executors // 2
    first, second = costs.parts(cells, some, executors)
    if costs.of_cells(cells) == 0.0:
        # Without cost, every executor gets cells as long as there are enough.
        some = min(max(some, executors - second.area), first.area)
    yield from _divided(costs, first, some)
    yield from _divided(costs, second, executors - some)


def _excess(upto: LongArray, some: int, executors: int) -> LongArray:
    """Return by how much the first 1, 2, ... exceed their due, times the executors: exactly."""
    return cast(LongArray, (upto * executors - upto[-1] * some)[1:-1])


def _queries_per_cell(grid: Grid, queries: QueryCells) -> LongArray:
    """Count the queries that overlap each cell: +1 and -1 at the corners, summed up."""
    inside = queries.clipped(grid.cells)
    steps = np.zeros((grid.rows + 1, grid.columns + 1), dtype=np.int64)
    np.add.at(steps, (inside.row_start, inside.col_start), 1)
    np.add.at(steps, (inside.row_start, inside.col_stop), -1)
    np.add.at(steps, (inside.row_stop, inside.col_start), -1)
    np.add.at(steps, (inside.row_stop, inside.col_stop), 1)
    return cast(LongArray, steps.cumsum(axis=0).cumsum(axis=1)[:-1, :-1])


def _sums(cells: LongArray) -> LongArray:
    """Return, for every corner of the grid, the sum of the cells before its row and column."""
    sums = np.zeros((cells.shape[0] + 1, cells.shape[1] + 1), dtype=np.int64)
    sums[1:, 1:] = cells.cumsum(axis=0).cumsum(axis=1)
    return sums


def _by_columns(sums: LongArray, cells: CellRect) -> LongArray:
    """Return the sums of the first 0, 1, 2, ... columns of some cells."""
    band = slice(cells.col_start, cells.col_stop + 1)
    upto = sums[cells.row_stop, band] - sums[cells.row_start, band]
    return cast(LongArray, upto - upto[0])


def _by_rows(sums: LongArray, cells: CellRect) -> LongArray:
    """Return the sums of the first 0, 1, 2, ... rows of some cells."""
    band = slice(cells.row_start, cells.row_stop + 1)
    upto = sums[band, cells.col_stop] - sums[band, cells.col_start]
    return cast(LongArray, upto - upto[0])
