"""GlobalIndex: from a point or a query to the executors that must see it.

Owns the array cell -> slot and the tables slot -> partition. It follows changes of the plan and
knows nothing of loads or decisions. Runs wherever points are routed: in tasks, and on the
simulator's routers.

Each cell holds a small number, its slot; everything about the partition in that slot is in
tables beside it. One 4-byte store redirects a cell to another partition and its owner, so a
reader between two stores needs no latch and never sees half a change. Reader and writer take
turns in one thread; several threads need a lock of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from sparkswarm.compiled import FloatArray, IntArray, LongArray, compiled
from sparkswarm.errors import PlanError
from sparkswarm.geometry import CellRect, Grid, QueryCells, Scale, place
from sparkswarm.protocol.partition import Partition, PlanChange
from sparkswarm.protocol.plan import Plan, covers_once


class RoutedPoints(NamedTuple):
    """Where each point goes; all -1 for a point without a cell."""

    partition: LongArray
    owner: IntArray
    column: IntArray
    row: IntArray


class RoutedQueries(NamedTuple):
    """One row for each query, partition that it overlaps, and owner of that partition."""

    query: LongArray
    partition: LongArray
    owner: IntArray


class Overlaps(NamedTuple):
    """The partitions of query i are ``partition[start[i]:start[i + 1]]``."""

    start: LongArray
    partition: LongArray


class GlobalIndex:
    """The spatial grid index of the routing layer (paper, "The Global Index").

    During a gradual update, cells lead to the old partition or to the new ones. Both are
    right, because an executor that gave a partition away passes on what still reaches it.

    Parameters
    ----------
    plan
        The partitions.
    cells
        What :func:`fill_slots` wrote for the plan, which the index may change; by default an array
        of its own.

    Attributes
    ----------
    written
        Cells that were written since the index was made.
    """

    def __init__(self, plan: Plan, cells: IntArray | None = None) -> None:
        plan.check_tiling()
        self.grid: Grid = plan.grid
        partitions = plan.partitions
        self._partitions: dict[int, Partition] = {p.id: p for p in partitions}
        self._slot_of: dict[int, int] = {p.id: slot for slot, p in enumerate(partitions)}
        self._free: list[int] = []
        self._updating: set[int] = set()
        if cells is None:
            cells = np.empty((plan.grid.rows, plan.grid.columns), dtype=np.int32)
            fill_slots(plan, cells)
        self._cells = cells
        self.written = 0
        capacity = max(16, 2 * len(plan.partitions))
        self._ids: LongArray = np.full(capacity, -1, dtype=np.int64)
        self._rects: IntArray = np.zeros((capacity, 4), dtype=np.int32)
        # The owner of each ticket; a partition with one owner has one ticket.
        self._tickets: IntArray = np.zeros((capacity, 1), dtype=np.int32)
        self._ticket_count: IntArray = np.ones(capacity, dtype=np.int32)
        count = len(partitions)
        self._ids[:count] = [p.id for p in partitions]
        self._rects[:count] = [p.cells for p in partitions]
        self._tickets[:count, 0] = [p.owners[0] for p in partitions]
        for slot, partition in enumerate(partitions):
            if partition.is_shared:
                self._set_tickets(slot, partition)

    @property
    def partitions(self) -> Mapping[int, Partition]:
        """The partitions by id; during a gradual update both the old and the new."""
        return MappingProxyType(self._partitions)

    # -- routing ---------------------------------------------------------------------------

    def route(self, x: FloatArray, y: FloatArray, keys: LongArray | None = None) -> RoutedPoints:
        """Find the partition and the owner of every point, O(1) each.

        Parameters
        ----------
        x, y
            Coordinates. A point with a coordinate that is NaN, infinite or outside gets -1.
        keys
            A hash of each point's id. It selects the ticket in a shared partition, so that the
            same point always goes to the same owner. Defaults to the position.
        """
        x = np.ascontiguousarray(x, dtype=np.float64)
        y = np.ascontiguousarray(y, dtype=np.float64)
        if keys is None:
            keys = np.arange(len(x), dtype=np.int64)
        if not len(x) == len(y) == len(keys):
            raise PlanError(f"arrays differ in length: {len(x)}, {len(y)}, {len(keys)}")
        tables = self._cells, self._ids, self._tickets, self._ticket_count
        return RoutedPoints(*_route(x, y, keys, self.grid.scale, *tables))

    def partition_of(self, column: LongArray, row: LongArray) -> LongArray:
        """Return the partition of each cell."""
        return self._ids[self._cells[row, column]]

    def overlaps(self, queries: QueryCells) -> Overlaps:
        """Find the partitions that each query overlaps: Algorithm 1, queryOverlap.

        Differs: from a partition found, the search goes on from that partition's first cell
        *inside the query*, not from the cell where it was entered. As printed, a partition
        entered on a later row hides what lies beside its earlier rows.

        Why nothing is missed, by induction on (column + row) of a partition's first cell
        (a, b) inside the query. If b is the query's first row, the partition to the left
        also starts there and leads to (a, b); likewise above, if a is the first column.
        Otherwise let L hold (a-1, b). If L starts at row b, it leads to (a, b). If not, L
        holds (a-1, b-1) too, so the partition that holds (a, b-1) starts at column a, ends
        above b, and leads to (a, b).
        """
        queries = queries.clipped_all(self.grid.cells)
        return Overlaps(*_overlaps(*queries[:4], self._cells, self._ids, self._rects))

    def overlap(self, cells: CellRect) -> list[Partition]:
        """Return the partitions that overlap one query."""
        found = self.overlaps(QueryCells.of([cells])).partition
        return [self._partitions[int(partition_id)] for partition_id in found]

    def route_queries(self, queries: QueryCells) -> RoutedQueries:
        """Find every (partition, owner) that must hold each query."""
        start, partition = self.overlaps(queries)
        query = np.repeat(np.arange(len(start) - 1), np.diff(start))
        ids, where = np.unique(partition, return_inverse=True)
        owners = [self._partitions[int(i)].owners for i in ids]
        counts = np.array([len(of_one) for of_one in owners], dtype=np.int64)
        flat = np.array([owner for of_one in owners for owner in of_one], dtype=np.int32)
        first, count = (np.cumsum(counts) - counts)[where], counts[where]
        rows = np.repeat(np.arange(len(partition)), count)
        turn = np.arange(len(rows)) - np.repeat(np.cumsum(count) - count, count)
        return RoutedQueries(query[rows], partition[rows], flat[first[rows] + turn])

    # -- updating --------------------------------------------------------------------------

    def apply(self, change: PlanChange) -> None:
        """Apply a change at once; only its cells are written."""
        slots = self._begin(change)
        for partition, slot in zip(change.created, slots, strict=True):
            self._cells[partition.cells.slices] = slot
        self._end(change)

    def follow(self, plan: Plan) -> None:
        """Lead to the partitions of another plan; only the cells of those that differ are written.

        Raises
        ------
        PlanError
            If the plan does not tile the same grid; nothing has changed then.
        """
        # What stays is the same object in almost all cases; the plan of another run has the same
        # ids for other partitions.
        here = self._partitions.get
        created = [p for p in plan.partitions if here(p.id) is not p and here(p.id) != p]
        kept = {p.id for p in plan.partitions}.difference(p.id for p in created)
        retired = [p for p in self._partitions.values() if p.id not in kept]
        same_cells = covers_once(created, [p.cells for p in retired])
        if self._updating or plan.grid != self.grid or not same_cells:
            raise PlanError(f"plan {plan.version} does not follow from the partitions here")
        self._remove(retired)
        for partition in created:
            self._cells[partition.cells.slices] = self._add(partition)
            self.written += partition.cells.area

    def apply_gradually(self, change: PlanChange) -> Iterator[None]:
        """Apply a change cell by cell, so that routing can go on in between.

        The paper's latch-free update: "the cells that point to the old partition will
        gradually point to the new partitions". Drive the iterator to its end.

        Raises
        ------
        PlanError
            At the first step, if the change does not fit the index; nothing has changed then.
        """
        slots = self._begin(change)
        for partition, slot in zip(change.created, slots, strict=True):
            cells = partition.cells
            for row in range(cells.row_start, cells.row_stop):
                for column in range(cells.col_start, cells.col_stop):
                    self._cells[row, column] = slot
                    yield
        self._end(change)

    def check_tiling(self) -> None:
        """Raise PlanError unless each cell leads to the one partition that contains it.

        During a gradual update its cells may lead to the old partition or to a new one.
        """
        covered = np.zeros(self._cells.shape, dtype=np.int16)
        updating = np.zeros(self._cells.shape, dtype=bool)
        for partition in self._partitions.values():
            if partition.id in self._updating:
                updating[partition.cells.slices] = True
            else:
                covered[partition.cells.slices] += 1
        wrong = int((covered + updating != 1).sum())
        if wrong:
            raise PlanError(f"{wrong} cells are not covered exactly once")
        rows = np.arange(self.grid.rows)[:, np.newaxis]
        columns = np.arange(self.grid.columns)[np.newaxis, :]
        rect = self._rects[self._cells]
        inside = (
            (rect[..., 0] <= columns)
            & (rect[..., 1] <= rows)
            & (columns < rect[..., 2])
            & (rows < rect[..., 3])
            & (self._ids[self._cells] >= 0)
        )
        if not inside.all():
            raise PlanError(f"{int((~inside).sum())} cells lead to a partition not containing them")

    def _begin(self, change: PlanChange) -> list[int]:
        """Check a change and return the slots of its new partitions."""
        for partition in change.retired:
            if self._partitions.get(partition.id) != partition:
                raise PlanError(f"{change.describe()}: p{partition.id} is not in the index")
            if partition.id in self._updating:
                raise PlanError(f"{change.describe()}: p{partition.id} is still being updated")
        ids = set(self._partitions)
        for partition in change.created:
            if partition.id in ids:
                raise PlanError(f"{change.describe()}: p{partition.id} is already in the index")
            ids.add(partition.id)
        self._updating |= {partition.id for partition in (*change.retired, *change.created)}
        return [self._add(partition) for partition in change.created]

    def _end(self, change: PlanChange) -> None:
        """Remove the retired partitions, which no cell leads to any more."""
        self._updating -= {partition.id for partition in (*change.retired, *change.created)}
        self._remove(change.retired)

    def _remove(self, partitions: Iterable[Partition]) -> None:
        for partition in partitions:
            slot = self._slot_of.pop(partition.id)
            del self._partitions[partition.id]
            self._ids[slot] = -1
            self._free.append(slot)

    def _add(self, partition: Partition) -> int:
        slot = self._free.pop() if self._free else len(self._slot_of)
        if slot >= len(self._ids):
            self._ids = np.concatenate([self._ids, np.full_like(self._ids, -1)])
            self._rects = np.concatenate([self._rects, np.zeros_like(self._rects)])
            self._tickets = np.concatenate([self._tickets, np.zeros_like(self._tickets)])
            self._ticket_count = np.concatenate(
                [self._ticket_count, np.ones_like(self._ticket_count)]
            )
        self._ids[slot] = partition.id
        self._rects[slot] = partition.cells
        self._set_tickets(slot, partition)
        self._partitions[partition.id] = partition
        self._slot_of[partition.id] = slot
        return slot

    def _set_tickets(self, slot: int, partition: Partition) -> None:
        holders = np.repeat(partition.owners, partition.tickets or 1)
        if len(holders) > self._tickets.shape[1]:
            wider = np.zeros((len(self._tickets), len(holders)), dtype=np.int32)
            wider[:, : self._tickets.shape[1]] = self._tickets
            self._tickets = wider
        self._tickets[slot, : len(holders)] = holders
        self._ticket_count[slot] = len(holders)


def fill_slots(plan: Plan, cells: IntArray) -> None:
    """Write the slot of each cell, as a new index of the plan has it, to ``cells``, row by row."""
    _fill(cells, np.array([p.cells for p in plan.partitions], dtype=np.int32))


@compiled
def _fill(cells: IntArray, rects: IntArray) -> None:
    for slot in range(len(rects)):
        cells[rects[slot, 1] : rects[slot, 3], rects[slot, 0] : rects[slot, 2]] = slot


@compiled
def _route(
    x: FloatArray,
    y: FloatArray,
    keys: LongArray,
    scale: Scale,
    cells: IntArray,
    ids: LongArray,
    tickets: IntArray,
    ticket_count: IntArray,
) -> tuple[LongArray, IntArray, IntArray, IntArray]:
    n = len(x)
    out_partition = np.empty(n, dtype=np.int64)
    out_owner = np.empty(n, dtype=np.int32)
    out_column = np.empty(n, dtype=np.int32)
    out_row = np.empty(n, dtype=np.int32)
    # Two loops: the first has no branches that depend on tables, so it is vectorised.
    for i in range(n):
        out_column[i], out_row[i] = place(x[i], y[i], scale)
    for i in range(n):
        if out_column[i] < 0:
            out_partition[i] = -1
            out_owner[i] = -1
        else:
            # Unsigned indices: signed ones might count from the end, which costs a test each.
            slot = np.uint64(cells[np.uint64(out_row[i]), np.uint64(out_column[i])])
            count = ticket_count[slot]
            out_partition[i] = ids[slot]
            out_owner[i] = tickets[slot, keys[i] % count if count > 1 else 0]
    return out_partition, out_owner, out_column, out_row


@compiled
def _overlaps(
    col_start: IntArray,
    row_start: IntArray,
    col_stop: IntArray,
    row_stop: IntArray,
    cells: IntArray,
    ids: LongArray,
    rects: IntArray,
) -> tuple[LongArray, LongArray]:
    n = len(col_start)
    start = np.zeros(n + 1, dtype=np.int64)
    found = np.empty(n + n // 4 + 16, dtype=np.int64)
    count = 0
    # The last query that found a slot: tells whether p is in the result without a search.
    finder = np.full(len(ids), -1, dtype=np.int64)
    stack_column = np.empty(2 * len(ids) + 2, dtype=np.int32)
    stack_row = np.empty(2 * len(ids) + 2, dtype=np.int32)
    for q in range(n):
        first_column, first_row = col_start[q], row_start[q]
        stack_column[0], stack_row[0] = first_column, first_row
        height = 1
        while height > 0:
            height -= 1
            column, row = stack_column[height], stack_row[height]
            if column >= col_stop[q] or row >= row_stop[q]:
                continue
            slot = cells[row, column]
            if finder[slot] == q:
                continue
            finder[slot] = q
            if count == len(found):
                longer = np.empty(2 * count, dtype=np.int64)
                longer[:count] = found
                found = longer
            found[count] = ids[slot]
            count += 1
            stack_column[height] = rects[slot, 2]
            stack_row[height] = max(rects[slot, 1], first_row)
            stack_column[height + 1] = max(rects[slot, 0], first_column)
            stack_row[height + 1] = rects[slot, 3]
            height += 2
        start[q + 1] = count
    return start, found[:count]
