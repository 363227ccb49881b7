"""Queries in a store without disks, and a dict that is told the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from hypothesis import strategies as st

from sparkswarm.geometry import CellRect, Grid
from sparkswarm.index.match import match
from sparkswarm.protocol.partition import PlanChange
from sparkswarm.protocol.plan import Plan
from sparkswarm.store.cache import QueryCache
from sparkswarm.store.compaction import base_queries, count_prices, delta_queries, write_bases
from sparkswarm.store.deltas import Delta, changed_after, is_compaction_due
from sparkswarm.store.files import FileRef, Files
from sparkswarm.store.manifest import PART_BLOCKS, DeltaParts, Manifest
from sparkswarm.store.operations import StoredOperations, store_operations
from sparkswarm.store.parts import PartBlocks, write_parts
from sparkswarm.store.queries import NEVER, Op, Operations, Queries
from sparkswarm.store.segments import Base

Box = tuple[float, float, float, float]
Known = dict[int, tuple[Box, int]]

START = 1000
"""When histories begin."""


def columns(known: Known) -> Queries:
    """Return the queries of a dict as columns."""
    return Queries(
        np.array(list(known), dtype=np.int64),
        np.array([box for box, _ in known.values()], dtype=np.float64).reshape(-1, 4),
        np.array([expires for _, expires in known.values()], dtype=np.int64),
    )


def listed(queries: Queries) -> Known:
    """Return columns of queries as a dict; each id must be there once."""
    assert len(set(queries.ids.tolist())) == len(queries.ids), "an id is there twice"
    rows = zip(queries.ids.tolist(), queries.boxes.tolist(), queries.expires.tolist(), strict=True)
    return {key: (tuple(box), expires) for key, box, expires in rows}


def found_in(
    base: Base,
    removed: npt.NDArray[np.uint8],
    x: npt.NDArray[np.float64],
    y: npt.NDArray[np.float64],
    time: int,
) -> list[list[int]]:
    """Return the ids that each point matches in one file."""
    found = match(x, y, None, np.arange(len(x)), base.index, removed, now=time)
    result: list[list[int]] = [[] for _ in x]
    ids = base.index.ids[found.positions]
    for point, some in zip(found.points, np.split(ids, np.cumsum(found.counts)[:-1]), strict=True):
        result[point] = some.tolist()
    return result


def expected_at(known: Known, x: float, y: float, time: int) -> list[int]:
    """Return the ids that a point should match, sorted."""
    return sorted(
        key
        for key, ((min_x, min_y, max_x, max_y), expires) in known.items()
        if min_x <= x <= max_x and min_y <= y <= max_y and time < expires
    )


def lattice(grid: Grid) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return the corners, the edges' middles and the centres of all cells."""
    xs = np.arange(0.0, grid.columns + 0.5, 0.5)
    ys = np.arange(0.0, grid.rows + 0.5, 0.5)
    x, y = np.meshgrid(xs, ys)
    return x.ravel(), y.ravel()


def boxes_in(grid: Grid) -> st.SearchStrategy[Box]:
    """Rectangles that touch the bounds, many of them on the edges of cells."""

    def side(size: int) -> st.SearchStrategy[tuple[float, float]]:
        one = st.one_of(
            st.integers(-2, 2 * size + 2).map(lambda v: v / 2),
            st.floats(-1.0, size + 1.0, allow_subnormal=False),
        )
        return st.tuples(one, one).map(lambda s: (min(*s, float(size)), max(*s, 0.0)))

    return st.tuples(side(grid.columns), side(grid.rows)).map(
        lambda s: (s[0][0], s[1][0], s[0][1], s[1][1])
    )


@dataclass(frozen=True)
class MemoryFiles(Files):
    """Files in a dict."""

    def __post_init__(self) -> None:
        self.__dict__["content"] = {}

    def write(
        self, name: str, content: bytes | pa.Buffer, rows: int = 0, durable: bool = True
    ) -> FileRef:
        data = pa.py_buffer(content)
        self.__dict__["content"][name] = data
        return FileRef(name, rows, data.size, 0)

    def mmap(self, ref: FileRef, batch: int = 0) -> pa.Buffer:
        return self.__dict__["content"][ref.name]


class Told(NamedTuple):
    """An operation: ``box`` is None to unregister."""

    op: Op
    id: int
    box: Box | None = None
    expires: int = NEVER


class StoredWorld:
    """A plan, its manifest and its files; and a dict that is told the same.

    With ``hosts``, the host of each executor, deltas are read in parts, as tasks do on a cluster.
    """

    def __init__(self, plan: Plan, late: int = 0, hosts: Sequence[int] = ()) -> None:
        self.plan = plan
        self.grid = plan.grid
        self.late = late
        self.now = START
        self.batch = 0
        self.manifest = Manifest.initial(plan.partitions)
        self.files = MemoryFiles("memory")
        self.cache = self.reader = QueryCache(self.files)
        self.hosts = hosts
        self.known: Known = {}
        self.changed: dict[int, int] = {}
        """The batch of the last change of queries, since bases were written."""

    # -- what happens --------------------------------------------------------------------

    def replan(self, plan: Plan, *changes: PlanChange) -> None:
        """Change the plan; its ids are reserved."""
        after = plan.apply(changes)
        self.manifest = self.manifest.for_plan(self.plan.partitions, after.partitions)
        self.plan = after

    def tell(self, *told: Told) -> StoredOperations:
        """Apply the operations of a batch; compact the queries if that is due."""
        stored = store_operations(
            Operations(
                np.array([one.op for one in told], np.int8),
                Queries(
                    np.array([one.id for one in told], np.int64),
                    np.array([one.box or (0.0,) * 4 for one in told], np.float64).reshape(-1, 4),
                    np.array([one.expires for one in told], np.int64),
                ),
                np.arange(len(told)),
            ),
            self.manifest,
            self.cache,
            self.grid,
            batch=self.batch,
            clock=self.now,
            purge_before=self.now - self.late,
            write=lambda content, rows: self._write("delta", content, rows),
            divide=self._divide,
        )
        registered = {key for key, (_, expires) in self.known.items() if expires > self.now}
        for one in told:
            if one.box is not None:
                self.known[one.id] = one.box, one.expires
                lives_on = one.expires > self.now
                (registered.add if lives_on else registered.discard)(one.id)
            elif one.id in registered:
                registered.remove(one.id)
                del self.known[one.id]
        self.manifest = stored.manifest
        self.changed |= dict.fromkeys(stored.settled.changes.ids.tolist(), self.batch)
        if is_compaction_due(self.manifest):
            self.compact()
        self.batch += 1
        if self.batch % 3 == 0:
            self.cache = QueryCache(self.files)
        # What the manifest does not name must not be needed.
        self.cache.begin(self.batch, self.manifest.file_names())
        # Tasks never have a whole delta where there are parts.
        self.reader = QueryCache(self.files) if self.hosts else self.cache
        content = self.files.__dict__["content"]
        names = {ref.name for ref in self.manifest.files()}
        for name in content.keys() - names:
            del content[name]
        return stored

    def _divide(self, delta: Delta) -> DeltaParts | None:
        if not self.hosts:
            return None
        part_of = PartBlocks(self.grid).assigned(self.plan.partitions, self.hosts)
        return write_parts(delta, part_of, self.grid, self._write)

    def compact(self) -> None:
        """Write the bases of all partitions anew, as the tasks of executors do."""
        segments, groups = {}, []
        self.changed.clear()
        for executor in range(self.plan.executors):
            mine = [p for p in self.plan.partitions if p.owners[0] == executor]
            written = write_bases(
                mine,
                lambda p: self._live([p.id], p.cells),
                self.grid,
                self.now - self.late,
                self._write,
                self._write,
                3 if self.hosts else 0,
            )
            segments.update(written.segments)
            groups += [written.group] if written.group else []
        directories = [one for _, one in self.cache.directories(groups)]
        raster = count_prices(directories, self.grid)
        prices = self._write("prices", raster.to_bytes(), 0)
        self.manifest = self.manifest.with_bases(segments, groups, prices)
        assert all(expires >= self.now - self.late for _, expires in self.queries().values())

    def _write(self, name: str, content: pa.Buffer, rows: int) -> FileRef:
        return self.files.write(f"{self.batch}-{name}", content, rows)

    # -- what is to be seen --------------------------------------------------------------

    def queries(self) -> Known:
        """Return all stored queries."""
        return listed(self._live([p.id for p in self.plan.partitions], self.grid.cells))

    def _live(self, partitions: list[int], cells: CellRect) -> Queries:
        old = base_queries(self.manifest, self.reader, partitions, cells, self.grid)
        opened = self.reader.deltas(self.manifest, PartBlocks(self.grid).over([cells]))
        return Queries.concat([old, delta_queries(opened, cells, self.grid)])

    def found(self, time: int) -> list[list[int]]:
        """Return the sorted ids that each point of the lattice matches."""
        x, y = lattice(self.grid)
        column, row = self.grid.place_points(x, y)
        result: list[list[int]] = [[] for _ in x]
        for refs in self.manifest.partitions.values():
            for ref in refs:
                segment, c = self.reader.segment(ref, self.manifest, self.grid), ref.cells
                inside = (column >= c.col_start) & (column < c.col_stop)
                rows = np.flatnonzero(inside & (row >= c.row_start) & (row < c.row_stop))
                some = found_in(segment.base, segment.removed, x[rows], y[rows], time)
                for i, ids in zip(rows, some, strict=True):
                    result[i] += ids
        valid = np.flatnonzero(column >= 0)
        block = PartBlocks(self.grid).of(column[valid], row[valid])
        blocks = np.isin(np.arange(PART_BLOCKS**2), block)
        for one in self.reader.deltas(self.manifest, blocks):
            rows = np.arange(len(x)) if one.blocks is None else valid[one.blocks[block]]
            some = found_in(one.delta.added, one.removed, x[rows], y[rows], time)
            for i, ids in zip(rows, some, strict=True):
                result[i] += ids
        return [sorted(ids) for ids in result]

    def check(self) -> None:
        """Compare what points meet with what they should, wherever and whenever they are."""
        purge = self.now - self.late
        x, y = lattice(self.grid)
        fresh = {key: value for key, value in self.known.items() if value[1] >= purge}
        assert fresh.items() <= self.queries().items() <= self.known.items()
        for time in (purge, self.now, self.now + 4):
            wanted = [expected_at(self.known, *at, time) for at in zip(x, y, strict=True)]
            assert self.found(time) == wanted
        ids = np.array(sorted({*self.known, *self.changed}), np.int64)
        opened = self.reader.changed_ids(self.manifest)
        for batch in range(-1, self.batch + 1):
            after = changed_after(ids, batch, opened).tolist()
            assert after == [self.changed.get(key, -1) > batch for key in ids.tolist()]
        raster = self.reader.prices(self.manifest, self.grid)
        counts = np.zeros_like(raster.counts)
        cells = columns(self.queries()).cells(self.grid)
        for i in range(len(cells.fault)):
            c, f = cells.rect(i), raster.factor
            counts[
                c.row_start // f : (c.row_stop - 1) // f + 1,
                c.col_start // f : (c.col_stop - 1) // f + 1,
            ] += 1
        assert np.array_equal(raster.counts, counts)
