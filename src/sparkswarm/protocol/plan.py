"""A plan: one immutable version of which partition covers which cells, and who owns it.

A plan is written before a batch runs with it, and is all that a GlobalIndex is built from. It
holds the next unused partition id, so that ids stay unique across restarts.
"""

from __future__ import annotations

import heapq
import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sparkswarm.errors import PlanError
from sparkswarm.geometry import Bounds, CellRect, Grid
from sparkswarm.protocol.partition import Partition, PlanChange


@dataclass(frozen=True, slots=True)
class Plan:
    """One version of the division of the grid among executors.

    Attributes
    ----------
    version
        Number of the plan in its run, from 0.
    executors
        Number of executors; their ids are 0 to ``executors - 1``.
    partitions
        The partitions in order of id; they tile the grid exactly.
    next_id
        The smallest partition id that was never reserved.
    """

    version: int
    grid: Grid
    executors: int
    partitions: tuple[Partition, ...]
    next_id: int

    @classmethod
    def initial(cls, grid: Grid, executors: int) -> Plan:
        """Divide the space evenly (paper, "Indexing and Initialization").

        The largest partition is halved across its longer side until every executor has one.
        With more executors than cells, the last executors start with none. Differs: sides are
        measured in cells, because a split line falls between cells; the halves of an odd side
        differ by one.
        """
        if executors < 1:
            raise PlanError(f"a plan needs at least one executor, got {executors}")
        next_id = 0
        heap = [(-grid.cells.area, next_id, grid.cells)]
        while len(heap) < executors and -heap[0][0] > 1:
            _, _, cells = heapq.heappop(heap)
            halves = (
                cells.split_columns(cells.columns // 2)
                if cells.columns >= cells.rows
                else cells.split_rows(cells.rows // 2)
            )
            for half in halves:
                next_id += 1
                heapq.heappush(heap, (-half.area, next_id, half))
        pieces = sorted((partition_id, cells) for _, partition_id, cells in heap)
        partitions = tuple(
            Partition(partition_id, cells, (executor,))
            for executor, (partition_id, cells) in enumerate(pieces)
        )
        return cls(0, grid, executors, partitions, next_id + 1)

    def reserve(self, count: int) -> tuple[range, Plan]:
        """Reserve ids for new partitions; return them and the plan with the next unused id."""
        ids = range(self.next_id, self.next_id + count)
        return ids, replace(self, next_id=ids.stop)

    def apply(self, changes: Iterable[PlanChange]) -> Plan:
        """Return the next version, with ``changes`` applied in order.

        Raises
        ------
        PlanError
            If a change retires a partition that is not in the plan, names an unknown executor,
            or uses an id that was never reserved, is in use, or is not newer than its parents'.
            That no retired id is used again is up to whoever reserves ids.
        """
        current = {partition.id: partition for partition in self.partitions}
        for change in changes:
            for partition in change.retired:
                if current.get(partition.id) != partition:
                    raise PlanError(f"{change.describe()}: p{partition.id} is not in the plan")
                del current[partition.id]
            for partition in change.created:
                newest_parent = max((p.id for p in change.retired), default=-1)
                if not newest_parent < partition.id < self.next_id or partition.id in current:
                    raise PlanError(f"{change.describe()}: id {partition.id} is not a fresh id")
                if not all(0 <= owner < self.executors for owner in partition.owners):
                    raise PlanError(f"{change.describe()}: executors are 0 to {self.executors - 1}")
                current[partition.id] = partition
        return replace(
            self,
            version=self.version + 1,
            partitions=tuple(current[key] for key in sorted(current)),
        )

    def owned_by(self, executor: int) -> tuple[Partition, ...]:
        """Return the partitions that ``executor`` owns, alone or with others."""
        return tuple(p for p in self.partitions if executor in p.owners)

    def check(self) -> None:
        """Raise PlanError unless ids, owners and tiling are valid."""
        ids = [partition.id for partition in self.partitions]
        if ids != sorted(set(ids)) or not all(0 <= i < self.next_id for i in ids):
            raise PlanError(f"ids must be distinct, in order and below {self.next_id}: {ids}")
        for partition in self.partitions:
            if not all(0 <= owner < self.executors for owner in partition.owners):
                raise PlanError(f"p{partition.id}: executors are 0 to {self.executors - 1}")
        self.check_tiling()

    def check_tiling(self) -> None:
        """Raise PlanError unless every cell belongs to exactly one partition."""
        covered = np.zeros((self.grid.rows, self.grid.columns), dtype=np.int16)
        for partition in self.partitions:
            if not self.grid.cells.contains(partition.cells):
                raise PlanError(f"p{partition.id} reaches outside the grid: {partition.cells}")
            covered[partition.cells.slices] += 1
        wrong = np.argwhere(covered != 1)
        if len(wrong):
            row, column = map(int, wrong[0])
            raise PlanError(
                f"{len(wrong)} cells are not covered exactly once, the first is column {column}, "
                f"row {row}, covered {covered[row, column]} times"
            )

    def to_json(self) -> dict[str, Any]:
        """Return the plan as JSON values, for :meth:`from_json`."""
        b = self.grid.bounds
        return {
            "version": self.version,
            "bounds": [b.min_x, b.min_y, b.max_x, b.max_y],
            "grid": [self.grid.columns, self.grid.rows],
            "executors": self.executors,
            "next_id": self.next_id,
            "partitions": [
                {
                    "id": p.id,
                    "cells": list(p.cells),
                    "owners": list(p.owners),
                    "tickets": list(p.tickets),
                    "parents": list(p.parents),
                    "previous_owners": list(p.previous_owners),
                }
                for p in self.partitions
            ],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Plan:
        """Read what :meth:`to_json` wrote; PlanError where it is not a plan."""
        try:
            plan = cls(
                version=operator.index(data["version"]),
                grid=Grid(Bounds(*map(float, data["bounds"])), *map(operator.index, data["grid"])),
                executors=operator.index(data["executors"]),
                next_id=operator.index(data["next_id"]),
                partitions=tuple(
                    Partition(
                        id=operator.index(p["id"]),
                        cells=CellRect(*map(operator.index, p["cells"])),
                        owners=tuple(map(operator.index, p["owners"])),
                        tickets=tuple(map(operator.index, p["tickets"])),
                        parents=tuple(map(operator.index, p["parents"])),
                        previous_owners=tuple(map(operator.index, p["previous_owners"])),
                    )
                    for p in data["partitions"]
                ),
            )
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise PlanError(f"this is not a plan: {error!r}") from error
        plan.check()
        return plan
