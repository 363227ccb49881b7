"""Policies: how points find executors.

Owns the choice between SWARM and its rivals, those of the paper's evaluation and one by
hash. Whatever the policy, queries are kept by the partitions of a plan; a policy says which
plan to start with, who gets a point, and whose partitions an executor may need for that.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import ClassVar, NamedTuple, Protocol, cast

import numpy as np

from sparkswarm.compiled import FloatArray, IntArray, LongArray, compiled, hash64
from sparkswarm.errors import ConfigError, PlanError
from sparkswarm.geometry import CellRect, Grid, QueryCells, Scale, place
from sparkswarm.protocol.cost import WorkModel
from sparkswarm.protocol.global_index import GlobalIndex
from sparkswarm.protocol.partition import Partition
from sparkswarm.protocol.plan import Plan


@dataclass(frozen=True, slots=True, eq=False)
class History:
    """Samples of points and queries from the past.

    Attributes
    ----------
    x, y
        The points; those without a place in the grid count for nothing.
    queries
        The cells of the queries.
    """

    x: FloatArray
    y: FloatArray
    queries: QueryCells


class Policy(Protocol):
    """What a runtime asks of a policy. It is frozen data, and the same for everyone."""

    @property
    def name(self) -> str:
        """Its name in settings and reports."""

    @property
    def rebalances(self) -> bool:
        """Whether the plan follows the load, round by round."""

    def first_plan(self, grid: Grid, executors: int, history: History | None = None) -> Plan:
        """Return the plan to start with; PlanError where there is no executor."""

    def owners(
        self, index: GlobalIndex, executors: int, x: FloatArray, y: FloatArray, keys: LongArray
    ) -> IntArray:
        """Return the executor of every point, -1 where it has no place.

        ``keys`` spread evenly: positions do, and so do hashes of the points' ids.
        """

    def sees(self, plan: Plan, executor: int) -> tuple[Partition, ...]:
        """Return the partitions in which ``executor`` may be given a point."""


class _Even:
    """The space is divided evenly at first."""

    __slots__ = ()

    def first_plan(self, grid: Grid, executors: int, history: History | None = None) -> Plan:
        """Return the even division, whatever the history."""
        return Plan.initial(grid, executors)


class _ByPlan(_Even):
    """A point goes to an owner of its partition."""

    __slots__ = ()

    def owners(
        self, index: GlobalIndex, executors: int, x: FloatArray, y: FloatArray, keys: LongArray
    ) -> IntArray:
        """Ask the index, whose plan knows the executors."""
        return index.route(x, y, keys).owner

    def sees(self, plan: Plan, executor: int) -> tuple[Partition, ...]:
        """Return what it owns."""
        return plan.owned_by(executor)


class _Anywhere(_Even):
    """A point may go to any executor; the plan says only how queries are kept."""

    __slots__ = ()

    def sees(self, plan: Plan, executor: int) -> tuple[Partition, ...]:
        """Return all partitions."""
        return plan.partitions


@dataclass(frozen=True, slots=True)
class Swarm(_ByPlan):
    """SWARM: an even division at first, and then what the Coordinator makes of it."""

    name: ClassVar[str] = "swarm"
    rebalances: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class StaticUniform(_ByPlan):
    """An even division for ever (paper, "Static Uniform Grid")."""

    name: ClassVar[str] = "static_uniform"
    rebalances: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class StaticHistory(_ByPlan):
    """A division by the cost of some history, for ever (paper, "Static Grid Based on History").

    Attributes
    ----------
    model
        The prices: a point costs its own and one for each query that overlaps its cell.
    """

    name: ClassVar[str] = "static_history"
    rebalances: ClassVar[bool] = False
    model: WorkModel = field(default_factory=WorkModel)

    def first_plan(self, grid: Grid, executors: int, history: History | None = None) -> Plan:
        """Cut the space in proportion to the executors of either side, until each has its own.

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


@dataclass(frozen=True, slots=True)
class Replicated(_Anywhere):
    """Every executor has all queries, and points go round robin (paper, "Replicated")."""

    name: ClassVar[str] = "replicated"
    rebalances: ClassVar[bool] = False

    def owners(
        self, index: GlobalIndex, executors: int, x: FloatArray, y: FloatArray, keys: LongArray
    ) -> IntArray:
        """Deal the points out by their keys."""
        x, y, keys = _checked(x, y, keys)
        return _deal_by_key(x, y, keys, index.grid.scale, executors)


@dataclass(frozen=True, slots=True)
class HashCell(_Anywhere):
    """A point goes by a hash of its cell, as keys usually are spread; not in the paper."""

    name: ClassVar[str] = "hash_cell"
    rebalances: ClassVar[bool] = False

    def owners(
        self, index: GlobalIndex, executors: int, x: FloatArray, y: FloatArray, keys: LongArray
    ) -> IntArray:
        """Deal the cells out by their hashes."""
        x, y, keys = _checked(x, y, keys)
        return _deal_by_cell(x, y, index.grid.scale, executors)


_POLICIES: tuple[Policy, ...] = (
    Swarm(),
    StaticUniform(),
    StaticHistory(),
    Replicated(),
    HashCell(),
)

POLICY_NAMES = tuple(policy.name for policy in _POLICIES)
"""The policies there are."""


def make_policy(name: str) -> Policy:
    """Return the policy of that name; ConfigError where there is none."""
    for policy in _POLICIES:
        if policy.name == name:
            return policy
    allowed = " or ".join(map(repr, POLICY_NAMES))
    raise ConfigError(f"policy must be {allowed}, got {name!r}")


def replanned(plan: Plan, executors: int, policy: Policy, history: History | None = None) -> Plan:
    """Return the policy's first plan for another number of executors, to follow ``plan``.

    For policies that do not rebalance; SWARM keeps what it has learnt
    (:meth:`~sparkswarm.protocol.coordinator.Coordinator.resize`). The partitions have fresh
    ids and no parents.
    """
    first = policy.first_plan(plan.grid, executors, history)
    ids, reserved = plan.reserve(len(first.partitions))
    partitions = tuple(
        replace(partition, id=fresh_id)
        for fresh_id, partition in zip(ids, first.partitions, strict=True)
    )
    return replace(first, version=plan.version + 1, partitions=partitions, next_id=reserved.next_id)


# -- what a history says of every cell -----------------------------------------------------------


class _Costs(NamedTuple):
    """What the cells of a grid cost in a history, by sums over all cells before a corner.

    The sums are whole numbers, so those of any rectangle are exact.
    """

    points: LongArray
    checks: LongArray
    model: WorkModel

    @classmethod
    def of(cls, grid: Grid, history: History, model: WorkModel) -> _Costs:
        """Count the points of every cell, and the queries that each is checked against."""
        columns, rows = grid.place_points(history.x, history.y)
        placed = columns >= 0
        cell = rows[placed].astype(np.int64) * grid.columns + columns[placed]
        counted = np.bincount(cell, minlength=grid.cells.area)
        points = counted.reshape(grid.rows, grid.columns)
        checks = points * _queries_per_cell(grid, history.queries)
        return cls(_sums(points), _sums(checks), model)

    def of_cells(self, cells: CellRect) -> float:
        """Return the cost of some cells."""
        points, checks = (int(_by_columns(s, cells)[-1]) for s in (self.points, self.checks))
        return self.model.per_point * points + self.model.per_check * checks

    def parts(self, cells: CellRect, some: int, executors: int) -> tuple[CellRect, CellRect]:
        """Cut cells, more than one, so that the first part is best for some of the executors."""
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
        # Of equals the first, which is across the longer side.
        _, line, cut = min(found, key=lambda one: one[0])
        return cut(line)


def _divided(costs: _Costs, cells: CellRect, executors: int) -> Iterator[CellRect]:
    """Divide cells among so many executors, in proportion; yield what each gets, if anything."""
    if executors == 1 or cells.area == 1:
        yield cells
        return
    some = executors // 2
    first, second = costs.parts(cells, some, executors)
    if costs.of_cells(cells) == 0.0:
        # Nobody need go without, as long as there are cells.
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


# -- kernels -------------------------------------------------------------------------------------


def _checked(
    x: FloatArray, y: FloatArray, keys: LongArray
) -> tuple[FloatArray, FloatArray, LongArray]:
    if not len(x) == len(y) == len(keys):
        raise PlanError(f"arrays differ in length: {len(x)}, {len(y)}, {len(keys)}")
    return (
        np.ascontiguousarray(x, dtype=np.float64),
        np.ascontiguousarray(y, dtype=np.float64),
        np.ascontiguousarray(keys, dtype=np.int64),
    )


@compiled
def _deal_by_key(
    x: FloatArray, y: FloatArray, keys: LongArray, scale: Scale, executors: int
) -> IntArray:
    n = len(x)
    owners = np.empty(n, dtype=np.int32)
    for i in range(n):
        column, _ = place(x[i], y[i], scale)
        owners[i] = keys[i] % executors if column >= 0 else -1
    return owners


@compiled
def _deal_by_cell(x: FloatArray, y: FloatArray, scale: Scale, executors: int) -> IntArray:
    n = len(x)
    owners = np.empty(n, dtype=np.int32)
    for i in range(n):
        column, row = place(x[i], y[i], scale)
        if column >= 0:
            owners[i] = hash64(np.uint64(row * scale.columns + column)) % np.uint64(executors)
        else:
            owners[i] = -1
    return owners
