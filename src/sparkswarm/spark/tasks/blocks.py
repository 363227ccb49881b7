"""Keep: the points of the recent past, for snapshot queries.

Owns how an executor leaves the points of a batch in blocks, and what the driver makes of that:
which blocks count from now on, and which have expired. Blocks stay where they were written. When
partitions move, split or merge, they inherit the blocks of those before them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparkswarm.apps.bound import block_column
from sparkswarm.geometry import CellRect
from sparkswarm.spark.task_input import ExecutorReport, WrittenBlock
from sparkswarm.spark.tasks.context import Desk
from sparkswarm.store.blocks import Block, BlockMeta, blocks_to_bytes
from sparkswarm.store.files import FileRef, Folder
from sparkswarm.store.manifest import BlockRef
from sparkswarm.store.queries import PLAIN_NAMES, TIME
from sparkswarm.window.compaction import choose_compaction, compact
from sparkswarm.window.windows import Window


class Keeper:
    """Keeps the points that one executor receives in one batch.

    Parameters
    ----------
    at
        What the task works with.
    executor
        Which executor it is.
    names
        What the user calls the columns of the points, by our names for them.
    """

    def __init__(self, at: Desk, executor: int, names: Mapping[str, str]) -> None:
        self._at = at
        self._executor = executor
        self._names = {name: block_column(users) for name, users in names.items()}
        self._names |= PLAIN_NAMES
        self._parts: dict[int, list[pa.Table]] = {}

    def add(self, partition_id: int, points: pa.Table, which: npt.NDArray[np.int64]) -> None:
        """Keep some points of a partition."""
        self._parts.setdefault(partition_id, []).append(points.take(pa.array(which)))

    def close(self) -> tuple[WrittenBlock, ...]:
        """Write the blocks, and those that are better put together; say which there are."""
        at, epoch = self._at, self._at.briefing.epoch
        found: list[tuple[int, Block | None, tuple[int, ...]]] = [
            (partition_id, Block.concat(list(map(self._named, parts)), at.grid), ())
            for partition_id, parts in self._parts.items()
        ]
        for partition in epoch.plan.partitions:
            kept = epoch.manifest.blocks.get(partition.id, ())
            if partition.owners[0] == self._executor and kept:
                for group in choose_compaction(kept):
                    parts = [(at.block(kept[i]), kept[i].cells) for i in group]
                    found.append((partition.id, compact(parts, at.grid, at.window_begins), group))
        cells_of = {p.id: p.cells for p in epoch.plan.partitions}
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
            name = self._at.name_file(Folder.BLOCKS, f"e{self._executor}")
            rows = sum(block.meta.rows for block in blocks)
            file = self._at.briefing.files.write(name, content, rows)
            yield from ((file, offset) for offset in offsets)

    def _named(self, points: pa.Table) -> pa.Table:
        if TIME not in points.column_names:
            now = np.full(points.num_rows, self._at.briefing.epoch.clock)
            points = points.append_column(TIME, pa.array(now))
        return points.rename_columns([self._names[name] for name in points.column_names])


def _ref(cells: CellRect, meta: BlockMeta, file: FileRef, offset: int) -> BlockRef:
    return BlockRef(cells=cells, meta=meta, file=file, offset=offset)


def kept_after(
    blocks: Mapping[int, tuple[BlockRef, ...]],
    reports: Iterable[ExecutorReport],
    window: Window,
    now: int,
) -> dict[int, tuple[BlockRef, ...]]:
    """Return the blocks that count after a batch.

    Parameters
    ----------
    blocks
        Those that counted before it.
    reports
        What the executors wrote.
    window
        How long points are kept.
    now
        The latest time seen, the batch included.
    """
    written = [one for report in reports for one in report.blocks]
    replaced = {(one.partition, i) for one in written for i in one.replaces}
    after = {
        key: [kept for i, kept in enumerate(some) if (key, i) not in replaced]
        for key, some in blocks.items()
    }
    for one in written:
        if one.block is not None:
            after.setdefault(one.partition, []).append(one.block)
    since = window.start(now, [kept for some in after.values() for kept in some]).at_least
    return {
        key: tuple(kept for kept in some if kept.meta.newest >= since)
        for key, some in after.items()
    }
