"""Parts of a delta: what each host needs of it.

Owns how a delta is divided where executors are on several hosts, so that a host fetches what
changed at its places. The grid is divided into blocks, and the blocks that the same hosts need
form a part: the queries that overlap them, indexed. What all hosts need is in one more file: where
the versions are that don't count any more, and the cells that changed, for prices. Which queries
changed is in another, for tasks with state. The delta itself is read by the driver alone. Written
on the driver, with the delta; read in tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparkswarm.compiled import BoolArray, IntArray, LongArray
from sparkswarm.geometry import CellRect, Grid
from sparkswarm.protocol.partition import Partition
from sparkswarm.store.deltas import Delta
from sparkswarm.store.directory import find_sorted
from sparkswarm.store.files import FileRef
from sparkswarm.store.formats import Arrays, arrays_from_bytes, arrays_to_bytes
from sparkswarm.store.manifest import PART_BLOCKS, DeltaParts
from sparkswarm.store.queries import cell_array
from sparkswarm.store.segments import VERSIONS, Base

MOST_PARTS = 64
"""Number of parts of a delta from which on blocks with several hosts count as those of one."""

WRITERS = 8
"""Number of files of a delta that are written at the same time."""

_HOST_BITS = 62


class PartBlocks:
    """The blocks of a grid, by which deltas are divided."""

    def __init__(self, grid: Grid) -> None:
        self._columns = np.arange(grid.columns) * PART_BLOCKS // grid.columns
        self._rows = np.arange(grid.rows) * PART_BLOCKS // grid.rows

    def of(self, column: IntArray, row: IntArray) -> LongArray:
        """Return the block of each cell."""
        return self._rows[row] * PART_BLOCKS + self._columns[column]

    def over(self, cells: Iterable[CellRect]) -> BoolArray:
        """Return which blocks overlap some of these cells."""
        found = np.zeros((PART_BLOCKS, PART_BLOCKS), dtype=bool)
        for one in cells:
            found[self._slices(one)] = True
        return found.ravel()

    def _slices(self, cells: CellRect) -> tuple[slice, slice]:
        rows, columns = self._rows, self._columns
        return (
            slice(int(rows[cells.row_start]), int(rows[cells.row_stop - 1]) + 1),
            slice(int(columns[cells.col_start]), int(columns[cells.col_stop - 1]) + 1),
        )

    def assigned(self, partitions: Iterable[Partition], hosts: Sequence[int]) -> bytes:
        """Return the part of each block, given the host of each executor."""
        needed = np.zeros((PART_BLOCKS, PART_BLOCKS), dtype=np.int64)
        for partition in partitions:
            bits = 0
            for owner in partition.owners:
                bits |= 1 << hosts[owner] % _HOST_BITS
            needed[self._slices(partition.cells)] |= bits
        distinct, part = np.unique(needed, return_inverse=True)
        if len(distinct) > MOST_PARTS:
            _, part = np.unique(needed & -needed, return_inverse=True)
        return part.astype(np.uint8).tobytes()

    def overlapping(self, cells: npt.NDArray[np.integer], blocks: BoolArray) -> BoolArray:
        """Return which rectangles of cells, of shape (n, 4), overlap some of these blocks.

        Rectangles that are all 0 overlap none.
        """
        sums = np.zeros((PART_BLOCKS + 1, PART_BLOCKS + 1), np.int32)
        blocks = blocks.reshape(PART_BLOCKS, PART_BLOCKS)
        sums[1:, 1:] = blocks.cumsum(axis=0).cumsum(axis=1)
        exists = cells[:, 2] > cells[:, 0]
        left, low, right, high = np.where(exists[:, None], cells, 1).T
        left, right = self._columns[left * exists], self._columns[right - 1] + 1
        low, high = self._rows[low * exists], self._rows[high - 1] + 1
        number = sums[high, right] - sums[low, right] - sums[high, left] + sums[low, left]
        found: BoolArray = exists & (number > 0)
        return found


@dataclass(frozen=True)
class DeltaPart:
    """The changes of a delta in some blocks.

    Attributes
    ----------
    added
        The queries that exist now and overlap the blocks.
    origin, order
        Sorted positions of these queries in the whole delta, and for each its position here.
    """

    added: Base
    origin: IntArray
    order: IntArray

    def to_bytes(self) -> pa.Buffer:
        """Return the content of its file."""
        arrays: Arrays = {"in_delta": self.origin, "in_part": self.order}
        return arrays_to_bytes({**self.added.arrays(), **arrays}, self.added.version)

    @classmethod
    def from_bytes(cls, content: pa.Buffer) -> DeltaPart:
        """Read what :meth:`to_bytes` returned."""
        arrays = arrays_from_bytes(content, *VERSIONS)
        return cls(Base.from_arrays(arrays), arrays["in_delta"], arrays["in_part"])

    def positions_of(self, positions: LongArray) -> LongArray:
        """Return where queries are here, given their positions in the delta; some are not."""
        start, stop = find_sorted(self.origin.astype(np.int64), positions)
        return self.order[stop > start].astype(np.int64)


@dataclass(frozen=True)
class SharedPart:
    """What all hosts need of a delta.

    Attributes
    ----------
    dead
        As in :class:`~sparkswarm.store.deltas.Changes`.
    before, after
        The cells of queries before and now, of shape (n, 4) each, in any order.
    """

    dead: LongArray
    before: npt.NDArray[np.integer]
    after: npt.NDArray[np.integer]

    def to_bytes(self) -> pa.Buffer:
        """Return the content of its file."""
        arrays = {"dead": self.dead, "before": self.before, "after": self.after}
        return arrays_to_bytes(arrays, compressed=True)

    @classmethod
    def from_bytes(cls, content: pa.Buffer) -> SharedPart:
        """Read what :meth:`to_bytes` returned."""
        return cls(**arrays_from_bytes(content))


@dataclass(frozen=True)
class ChangedIds:
    """Which queries a delta changed, for state: ``ids``, ``batches`` as in Changes."""

    ids: LongArray
    batches: LongArray

    def to_bytes(self) -> pa.Buffer:
        """Return the content of its file."""
        return arrays_to_bytes({"ids": self.ids, "batches": self.batches})

    @classmethod
    def from_bytes(cls, content: pa.Buffer) -> ChangedIds:
        """Read what :meth:`to_bytes` returned."""
        return cls(**arrays_from_bytes(content))


def _in_order(cells: IntArray, kind: type[np.integer]) -> npt.NDArray[np.integer]:
    """Return rectangles of cells row by row, which takes less room when compressed."""
    return cells[np.lexsort(cells.T)].astype(kind)


def write_parts(
    delta: Delta,
    part_of: bytes,
    grid: Grid,
    write: Callable[[str, pa.Buffer, int], FileRef],
) -> DeltaParts:
    """Write a delta in parts.

    Parameters
    ----------
    part_of
        The part of each block.
    write
        Writes a file, given a part of its name, its content and the number of its rows.
    """
    blocks, part_of_block = PartBlocks(grid), np.frombuffer(part_of, np.uint8)
    queries = delta.added.queries
    after = cell_array(queries.rectangles().cells(grid))
    small = max(grid.columns, grid.rows) < 2**16
    kind = np.uint16 if small else np.int32
    shared = SharedPart(delta.dead, _in_order(delta.before, kind), _in_order(after, kind))
    changed, every = ChangedIds(delta.ids, delta.batches), len(delta.ids)
    contents = [("shared", shared.to_bytes(), every), ("changed", changed.to_bytes(), every)]
    for number in range(int(part_of_block.max()) + 1):
        origin = np.flatnonzero(blocks.overlapping(after, part_of_block == number))
        added = Base.build(queries.take(origin), grid, grid.cells)
        # Ids are distinct.
        by_id = np.argsort(added.index.ids, kind="stable")
        order = by_id[np.searchsorted(added.index.ids, queries.ids[origin], sorter=by_id)]
        part = DeltaPart(added, origin.astype(np.int32), order.astype(np.int32))
        contents.append((f"part{number}", part.to_bytes(), len(origin)))
    # Each is a request to a store, or waits for a disk.
    with ThreadPoolExecutor(WRITERS) as pool:
        first, second, *files = pool.map(lambda content: write(*content), contents)
    return DeltaParts(shared=first, changed=second, files=tuple(files), part_of=part_of)
