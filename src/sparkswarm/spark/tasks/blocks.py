"""Blocks: the points of the recent past, for snapshot queries.

``BlockWriter`` runs in the task of each executor and leaves the points of a batch in blocks.
``blocks_after`` runs on the driver, once a batch: which blocks count from now on. Blocks stay where
they were written. When partitions move, split or merge, they inherit the blocks of those before
them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparkswarm.apps.bound import block_column
from sparkswarm.geometry import CellRect
from sparkswarm.spark.task_output import WrittenBlock
from sparkswarm.store.blocks import Block, BlockMeta, blocks_to_bytes
from sparkswarm.store.files import FileRef, Folder
from sparkswarm.store.manifest import BlockRef
from sparkswarm.store.queries import PLAIN_NAMES, TIME
from sparkswarm.window.compaction import choose_compaction, compact
from sparkswarm.window.windows import Window

if TYPE_CHECKING:
    from sparkswarm.spark.tasks.context import BatchContext


class BlockWriter:
    """Writes the points that one executor receives in one batch."""

    def __init__(self, ctx: BatchContext, executor: int) -> None:
        self._ctx = ctx
        self._executor = executor
        users = ctx.input.point_columns
        self._names = {name: block_column(theirs) for name, theirs in users.items()} | PLAIN_NAMES
        self._parts: dict[int, list[pa.Table]] = {}

    def add(self, partition_id: int, points: pa.Table, rows: npt.NDArray[np.int64]) -> None:
        """Keep some points of a partition."""
        self._parts.setdefault(partition_id, []).append(points.take(pa.array(rows)))

    def close(self) -> tuple[WrittenBlock, ...]:
        """Write the new blocks, and merge old ones where that is due."""
        ctx, epoch = self._ctx, self._ctx.epoch
        found: list[tuple[int, Block | None, tuple[int, ...]]] = [
            (partition_id, Block.concat(list(map(self._named, parts)), ctx.grid), ())
            for partition_id, parts in self._parts.items()
        ]
        for partition in ctx.plan.partitions:
            kept = epoch.manifest.blocks.get(partition.id, ())
            if partition.owners[0] == self._executor and kept:
                for group in choose_compaction(kept):
                    parts = [(ctx.block(kept[i]), kept[i].cells) for i in group]
                    merged = compact(parts, ctx.grid, ctx.earliest_window_start)
                    found.append((partition.id, merged, group))
        cells_of = {p.id: p.cells for p in ctx.plan.partitions}
        places = self._write([block for _, block, _ in found if block])
        return tuple(
            WrittenBlock(
                key,
                _ref(cells_of[key], block.meta, *next(places)) if block else None,
                group,
            )
            for key, block, group in found
        )

    def _write(self, blocks: list[Block]) -> Iterator[tuple[FileRef, int]]:
        if blocks:
            content, offsets = blocks_to_bytes(blocks)
            name = self._ctx.file_name(Folder.BLOCKS, f"e{self._executor}")
            rows = sum(block.meta.rows for block in blocks)
            file = self._ctx.input.files.write(name, content, rows)
            yield from ((file, offset) for offset in offsets)

    def _named(self, points: pa.Table) -> pa.Table:
        if TIME not in points.column_names:
            now = np.full(points.num_rows, self._ctx.epoch.clock)
            points = points.append_column(TIME, pa.array(now))
        return points.rename_columns([self._names[name] for name in points.column_names])


def _ref(cells: CellRect, meta: BlockMeta, file: FileRef, offset: int) -> BlockRef:
    return BlockRef(cells=cells, meta=meta, file=file, offset=offset)


def blocks_after(
    blocks: Mapping[int, tuple[BlockRef, ...]],
    written: Iterable[WrittenBlock],
    window: Window,
    max_event_time: int,
) -> dict[int, tuple[BlockRef, ...]]:
    """Return the blocks that count after a batch.

    Parameters
    ----------
    blocks
        Those that counted before it.
    written
        Those that the executors wrote.
    window
        How long points are kept.
    max_event_time
        The latest event time, the batch included.
    """
    written = list(written)
    replaced = {(one.partition, i) for one in written for i in one.replaces}
    after = {
        key: [kept for i, kept in enumerate(some) if (key, i) not in replaced]
        for key, some in blocks.items()
    }
    for one in written:
        if one.block is not None:
            after.setdefault(one.partition, []).append(one.block)
    everything = [block for some in after.values() for block in some]
    since = window.start(max_event_time, everything).at_least
    return {
        key: tuple(block for block in some if block.meta.newest >= since)
        for key, some in after.items()
    }
