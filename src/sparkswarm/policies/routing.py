"""Policies whose plan never changes, and how each assigns points: by plan, by key or by cell.

The rivals of the paper's evaluation, and one by hash of the cell.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from sparkswarm.compiled import FloatArray, IntArray, LongArray, compiled, hash64
from sparkswarm.errors import PlanError
from sparkswarm.geometry import Grid, Scale, place
from sparkswarm.policies.policy import PointRouter, StaticPolicy
from sparkswarm.protocol.global_index import GlobalIndex


@dataclass(frozen=True, slots=True)
class RouteByPlan:
    """A point goes to an owner of its partition."""

    index: GlobalIndex

    def assign(self, x: FloatArray, y: FloatArray, keys: LongArray) -> IntArray:
        """Ask the index."""
        return self.index.route(x, y, keys).owner


@dataclass(frozen=True, slots=True)
class RouteByKey:
    """A point goes to the executor of its key, whatever its place."""

    grid: Grid
    executors: int

    def assign(self, x: FloatArray, y: FloatArray, keys: LongArray) -> IntArray:
        """Take keys modulo the number of executors."""
        x, y, keys = _checked(x, y, keys)
        return _assign_by_key(x, y, keys, self.grid.scale, self.executors)


@dataclass(frozen=True, slots=True)
class RouteByCell:
    """A point goes to the executor that the hash of its cell names."""

    grid: Grid
    executors: int

    def assign(self, x: FloatArray, y: FloatArray, keys: LongArray) -> IntArray:
        """Take hashes of cells modulo the number of executors."""
        x, y, keys = _checked(x, y, keys)
        return _assign_by_cell(x, y, self.grid.scale, self.executors)


@dataclass(frozen=True, slots=True)
class StaticUniform(StaticPolicy):
    """An even division for ever (paper, "Static Uniform Grid")."""

    name: ClassVar[str] = "static_uniform"

    def router(self, index: GlobalIndex, executors: int) -> PointRouter:
        """Route by the plan."""
        return RouteByPlan(index)


@dataclass(frozen=True, slots=True)
class Replicated(StaticPolicy):
    """Every executor has all queries, and points go round robin (paper, "Replicated")."""

    name: ClassVar[str] = "replicated"

    def router(self, index: GlobalIndex, executors: int) -> PointRouter:
        """Route by key."""
        return RouteByKey(index.grid, executors)


@dataclass(frozen=True, slots=True)
class HashCell(StaticPolicy):
    """A point goes by a hash of its cell, as keys usually are spread; not in the paper."""

    name: ClassVar[str] = "hash_cell"

    def router(self, index: GlobalIndex, executors: int) -> PointRouter:
        """Route by cell."""
        return RouteByCell(index.grid, executors)


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
def _assign_by_key(
    x: FloatArray, y: FloatArray, keys: LongArray, scale: Scale, executors: int
) -> IntArray:
    n = len(x)
    executor = np.empty(n, dtype=np.int32)
    for i in range(n):
        column, _ = place(x[i], y[i], scale)
        executor[i] = keys[i] % executors if column >= 0 else -1
    return executor


@compiled
def _assign_by_cell(x: FloatArray, y: FloatArray, scale: Scale, executors: int) -> IntArray:
    n = len(x)
    executor = np.empty(n, dtype=np.int32)
    for i in range(n):
        column, row = place(x[i], y[i], scale)
        if column >= 0:
            executor[i] = hash64(np.uint64(row * scale.columns + column)) % np.uint64(executors)
        else:
            executor[i] = -1
    return executor
