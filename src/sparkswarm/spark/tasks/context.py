"""What a Python worker keeps between tasks.

Any worker may run any executor's task, so nothing here is more than a memory of what can be
found again: the briefing, the GlobalIndex of the plan, the files mapped.
"""

from __future__ import annotations

import gc
import pickle
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark import TaskContext

from sparkswarm.apps.bound import BoundApplication
from sparkswarm.geometry import CellRect, QueryCells
from sparkswarm.index.build import build_index
from sparkswarm.index.layout import RangeIndex
from sparkswarm.index.match import match
from sparkswarm.policies.policy import Policy, make_policy
from sparkswarm.protocol.global_index import GlobalIndex
from sparkswarm.protocol.statistics import Statistics
from sparkswarm.spark.task_input import Briefing, batch_prefix
from sparkswarm.store.blocks import Block
from sparkswarm.store.files import FileRef
from sparkswarm.store.formats import table_from_bytes, tables_to_bytes
from sparkswarm.store.manifest import BlockRef
from sparkswarm.store.segments import Segment, SegmentCache, live_queries


class Desk:
    """All that a task of one batch works with."""

    def __init__(self, briefing: Briefing, former: Desk | None) -> None:
        self.briefing = briefing
        self.grid = briefing.epoch.plan.grid
        self.policy: Policy = make_policy(briefing.config.policy)
        same = (
            former
            and former.briefing.files == briefing.files
            and former.briefing.epoch.plan == briefing.epoch.plan
        )
        self.index: GlobalIndex = (
            former.index if former and same else GlobalIndex(briefing.epoch.plan)
        )
        self._segments = SegmentCache(briefing.files)
        self._tables: dict[FileRef, pa.Buffer] = {}
        self._blocks: dict[tuple[FileRef, int], Block] = {}
        self._places: dict[tuple[int, int], tuple[RangeIndex, RangeIndex]] = {}
        if former and former.briefing.files == briefing.files:
            named = briefing.epoch.manifest.files()
            self._segments = former._segments
            self._segments.retain(named)
            if former.briefing.application != briefing.application:
                self._segments.drop_built()
            self._tables = {ref: kept for ref, kept in former._tables.items() if ref in named}
            self._blocks = {key: kept for key, kept in former._blocks.items() if key[0] in named}

    @cached_property
    def slot_of(self) -> npt.NDArray[np.int32]:
        """From a partition's id to its place in the plan."""
        plan = self.briefing.epoch.plan
        slots = np.full(plan.next_id, -1, dtype=np.int32)
        for slot, partition in enumerate(plan.partitions):
            slots[partition.id] = slot
        return slots

    def first_owner(self, partition: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
        """Return the first owner of some partitions: who writes for them, and keeps their state."""
        return self._first_owners[self.slot_of[partition]]

    @cached_property
    def _first_owners(self) -> npt.NDArray[np.int32]:
        partitions = self.briefing.epoch.plan.partitions
        return np.array([p.owners[0] for p in partitions], dtype=np.int32)

    def name_file(self, folder: str, name: str) -> str:
        """Return a name that no other attempt at this batch uses; it begins with the batch."""
        context = TaskContext.get()
        attempt = context.taskAttemptId() if context else 0
        begin = batch_prefix(folder, self.briefing.epoch.batch)
        return f"{begin}-{name}-{self.briefing.attempt}-{attempt}.arrow"

    def pieces(self, partition_id: int) -> list[Segment]:
        """Return what is stored of a partition."""
        return list(map(self._segments.open, self.briefing.epoch.manifest.partitions[partition_id]))

    def dead(self, partition_id: int, number: int) -> npt.NDArray[np.uint8]:
        """Return which queries of a piece's base are dead."""
        return self._segments.removed(self.briefing.epoch.manifest.partitions[partition_id][number])

    def built(
        self, application: BoundApplication, partition_id: int, number: int
    ) -> tuple[Any, Any]:
        """Return what an application made of a piece's base and of its delta."""
        ref = self.briefing.epoch.manifest.partitions[partition_id][number]
        return self._segments.built(ref, lambda queries: application.build(queries, self.grid))

    def places(self, partition_id: int, number: int) -> tuple[RangeIndex, RangeIndex]:
        """Return a piece's base and delta that find queries by place, base first, not by id."""
        key = partition_id, number
        if key not in self._places:
            piece = self.pieces(partition_id)[number]
            base, delta = piece.base.index, piece.delta.index
            border = len(base.ids)
            self._places[key] = (
                base._replace(ids=np.arange(border)),
                delta._replace(ids=np.arange(border, border + len(delta.ids))),
            )
        return self._places[key]

    def write_tables(
        self, folder: str, name: str, some: Sequence[pa.Table]
    ) -> list[tuple[FileRef, int]]:
        """Write tables, if there are any, into one file; return where each of them is."""
        if not some:
            return []
        content, begins = tables_to_bytes(some)
        rows = sum(table.num_rows for table in some)
        ref = self.briefing.files.write(self.name_file(folder, name), content, rows)
        return [(ref, begin) for begin in begins]

    def _content(self, ref: FileRef) -> pa.Buffer:
        if ref not in self._tables:
            self._tables[ref] = self.briefing.files.mmap(ref)
        return self._tables[ref]

    def block(self, kept: BlockRef) -> Block:
        """Return a block of recent points."""
        key = kept.file, kept.offset
        if key not in self._blocks:
            self._blocks[key] = Block.from_bytes(self._content(kept.file), kept.offset, kept.meta)
        return self._blocks[key]

    def states(self, partition_id: int) -> list[pa.Table]:
        """Return what is kept for the queries at home in a partition."""
        return [
            table.filter(self.at_home(table, state.cells))
            for state in self.briefing.epoch.manifest.states.get(partition_id, ())
            for table in [table_from_bytes(self._content(state.file), state.offset)]
        ]

    def at_home(self, state: pa.Table, cells: CellRect) -> pa.BooleanArray:
        """Say which rows of a table of state are of queries at home in some cells."""
        row, column = np.divmod(state.column("home").to_numpy(), self.grid.columns)
        inside = (column >= cells.col_start) & (column < cells.col_stop)
        return pa.array(inside & (row >= cells.row_start) & (row < cells.row_stop))

    def homes(self, home: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the partitions of some homes."""
        row, column = np.divmod(home, self.grid.columns)
        return self.index.partition_of(column, row)

    @cached_property
    def window_begins(self) -> int:
        """A time before which nothing is in the window of recent points, nor will be."""
        assert self.briefing.window is not None
        kept = self.briefing.epoch.manifest.blocks.values()
        blocks = [block for some in kept for block in some]
        return self.briefing.window.start(self.briefing.now, blocks).at_least

    def queries_under(self, cells: CellRect) -> QueryCells:
        """Return the queries of some cells, clipped to them."""
        pieces = [
            Segment(piece.cells.intersection(cells), piece.base, piece.delta)
            for partition in self.index.overlap(cells)
            for piece in self.pieces(partition.id)
            if piece.cells.overlaps(cells)
        ]
        return live_queries(pieces, self.grid).cells(self.grid).clipped(cells)


def _warm_up() -> None:
    """Run what is compiled once, so that no executor's first batch looks like more work."""
    which = np.zeros(1, np.int64)
    index = build_index(which, np.zeros((1, 4)), None, (0.0, 0.0, 1.0, 1.0))
    match(np.zeros(1), np.zeros(1), None, which, index)
    cell = which.astype(np.int32)
    Statistics(CellRect(0, 0, 1, 1)).collect_points(cell, cell, np.zeros(1))


_desks: dict[str, tuple[bytes, Desk]] = {}
_frozen = False


def desk(briefing: bytes) -> Desk:
    """Return what a task with this (pickled) briefing works with.

    Worker processes serve one run as a rule; one desk is kept for each checkpoint.
    """
    global _frozen
    if not _frozen:
        _warm_up()
        # Spark collects garbage after every task. Modules are not garbage, and looking through
        # them takes longer than a small task does.
        gc.collect()
        gc.freeze()
        _frozen = True
    for packed, kept in _desks.values():
        if packed == briefing:
            return kept
    opened: Briefing = pickle.loads(briefing)
    root = opened.files.root
    former = _desks.get(root)
    _desks[root] = (briefing, Desk(opened, former[1] if former else None))
    return _desks[root][1]
