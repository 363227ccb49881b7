"""A plan: one immutable version of which partition covers which cells, and who owns it.

A plan is written before a batch runs with it, and is all that a GlobalIndex is built from. It
holds the next unused partition id, so that ids stay unique across restarts.
"""

from __future__ import annotations

import heapq
import operator
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sparkswarm.compiled import LongArray
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
        created: dict[int, Partition] = {}
        gone: set[int] = set()
        for change in changes:
            for partition in change.retired:
                if partition.id in created:
                    known = created.pop(partition.id) == partition
                else:
                    position, found = self._look_up(partition.id)
                    known = position not in gone and found == partition
                    gone.add(position)
                if not known:
                    raise PlanError(f"{change.describe()}: p{partition.id} is not in the plan")
            for partition in change.created:
                newest_parent = max((p.id for p in change.retired), default=-1)
                position, found = self._look_up(partition.id)
                is_used = partition.id in created or (found and position not in gone)
                if not newest_parent < partition.id < self.next_id or is_used:
                    raise PlanError(f"{change.describe()}: id {partition.id} is not a fresh id")
                if not all(0 <= owner < self.executors for owner in partition.owners):
                    raise PlanError(f"{change.describe()}: executors are 0 to {self.executors - 1}")
                created[partition.id] = partition
        return self.next_version(gone, [created[key] for key in sorted(created)])

    def next_version(self, gone: Iterable[int], created: Iterable[Partition]) -> Plan:
        """Return the next version: without some positions, with partitions in order of id.

        What stays is copied in runs, so the time depends on what changes.
        """
        places: list[tuple[int, int, Partition | None]] = [(i, 1, None) for i in gone]
        places += [(self._look_up(p.id)[0], 0, p) for p in created]
        partitions: list[Partition] = []
        copied = 0
        for position, _, partition in sorted(places, key=operator.itemgetter(0, 1)):
            partitions += self.partitions[copied:position]
            copied = position
            if partition is None:
                copied += 1
            else:
                partitions.append(partition)
        partitions += self.partitions[copied:]
        return replace(self, version=self.version + 1, partitions=tuple(partitions))

    def find(self, partition_id: int) -> Partition | None:
        """Return a partition by its id; None where it is not in the plan."""
        return self._look_up(partition_id)[1]

    def _look_up(self, partition_id: int) -> tuple[int, Partition | None]:
        """Return where a partition is, or would be, and the partition if it is there."""
        if not self.partitions or partition_id > self.partitions[-1].id:
            return len(self.partitions), None
        position = bisect_left(self.partitions, partition_id, key=_id)
        found = self.partitions[position]
        return position, found if found.id == partition_id else None

    def owned_by(self, executor: int) -> tuple[Partition, ...]:
        """Return the partitions that ``executor`` owns, alone or with others."""
        return tuple(p for p in self.partitions if executor in p.owners)

    def check(self) -> None:
        """Raise PlanError unless ids, owners and tiling are valid."""
        self._check_partitions()
        self.check_tiling()

    def _check_partitions(self) -> None:
        ids = [partition.id for partition in self.partitions]
        if ids != sorted(set(ids)) or not all(0 <= i < self.next_id for i in ids):
            raise PlanError(f"ids must be distinct, in order and below {self.next_id}: {ids}")
        for partition in self.partitions:
            if not all(0 <= owner < self.executors for owner in partition.owners):
                raise PlanError(f"p{partition.id}: executors are 0 to {self.executors - 1}")

    def check_tiling(self) -> None:
        """Raise PlanError unless every cell belongs to exactly one partition."""
        for partition in self.partitions:
            if not self.grid.cells.contains(partition.cells):
                raise PlanError(f"p{partition.id} reaches outside the grid: {partition.cells}")
        if covers_once(self.partitions, [self.grid.cells]):
            return
        covered = np.zeros((self.grid.rows, self.grid.columns), dtype=np.int16)
        for partition in self.partitions:
            covered[partition.cells.slices] += 1
        wrong = np.argwhere(covered != 1)
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
        plan = cls._parsed(data)
        plan.check()
        return plan

    def difference(
        self, retired: Sequence[Partition], created: tuple[Partition, ...]
    ) -> dict[str, Any]:
        """Return what changed since a plan without the one and with the other, as JSON values."""
        part = replace(self, partitions=created)
        numbers = {"retired": [p.id for p in retired], "changed": len(retired) + len(created)}
        return {**part.to_json(), **numbers}

    def with_difference(self, data: Mapping[str, Any]) -> Plan:
        """Return the plan that differs from this one by what :meth:`difference` returned."""
        part = self._parsed(data)
        found = [self.find(partition_id) for partition_id in data.get("retired", ())]
        retired = [partition for partition in found if partition is not None]
        part._check_partitions()
        if (
            len(retired) < len(found)
            or any(self.find(partition.id) for partition in part.partitions)
            or not covers_once(part.partitions, [partition.cells for partition in retired])
            or part.grid != self.grid
        ):
            raise PlanError(f"plan {part.version} does not differ from plan {self.version} so")
        gone = {self._look_up(partition.id)[0] for partition in retired}
        return replace(part, partitions=self.next_version(gone, part.partitions).partitions)

    @classmethod
    def _parsed(cls, data: Mapping[str, Any]) -> Plan:
        try:
            return cls(
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


_id = operator.attrgetter("id")


def changed_partitions(
    old: Iterable[Partition], new: Iterable[Partition]
) -> tuple[tuple[Partition, ...], tuple[Partition, ...]]:
    """Return the partitions that are only in the one plan, and only in the other, in order.

    Both are in order of id. Most partitions stay, as the same objects: runs of them are compared as
    tuples, for which no line of Python runs.
    """
    old, new = tuple(old), tuple(new)
    gone: list[Partition] = []
    fresh: list[Partition] = []
    i = j = 0
    while True:
        run = _common(old, i, new, j)
        i, j = i + run, j + run
        if i == len(old) or j == len(new):
            return (*gone, *old[i:]), (*fresh, *new[j:])
        before, after = old[i], new[j]
        if before.id < after.id:
            gone.append(before)
        elif after.id < before.id:
            fresh.append(after)
        i += before.id <= after.id
        j += after.id <= before.id


_LONGEST_RUN = 4096
"""Partitions that are compared at a time."""


def _common(old: tuple[Partition, ...], i: int, new: tuple[Partition, ...], j: int) -> int:
    """Return for how many partitions both go on alike."""
    first, size = i, 1
    while i < len(old):
        some = old[i : i + size]
        if some == new[j : j + size]:
            i, j = i + len(some), j + len(some)
            size = min(2 * size, _LONGEST_RUN)
        else:
            break
    while size > 1:
        size //= 2
        some = old[i : i + size]
        if some and some == new[j : j + size]:
            i, j = i + len(some), j + len(some)
    return i - first


def covers_once(partitions: Iterable[Partition], cells: Iterable[CellRect]) -> bool:
    """Return whether partitions within disjoint rectangles of cells cover each cell once.

    In time that depends on their number alone. If the corners of both cancel each other out in
    pairs, each cell is covered an odd number of times; if the areas are the same too, once.
    """
    ours = np.array([p.cells for p in partitions], dtype=np.int64).reshape(-1, 4)
    theirs = np.array(list(cells), dtype=np.int64).reshape(-1, 4)

    def area(rects: LongArray) -> int:
        return int(((rects[:, 2] - rects[:, 0]) * (rects[:, 3] - rects[:, 1])).sum())

    every = np.concatenate([ours, theirs])
    corners = np.concatenate([every[:, [i, j]] for i in (0, 2) for j in (1, 3)])
    # Cells are numbered with 32-bit integers, and so are corners in each direction.
    _, counts = np.unique((corners[:, 0] << 32) | corners[:, 1], return_counts=True)
    return area(ours) == area(theirs) and not (counts % 2).any()
