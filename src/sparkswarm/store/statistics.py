"""Soft files: statistics between batches, and the queries that a batch changed.

Owns the formats of what load-balancing units leave for the next batch. Any worker may run the next
batch's task of an executor, so statistics travel in files. The files are not durable and may be
missing after a crash: then statistics are collected again, and results don't change. Written and
read in tasks, once per executor and batch; each attempt writes its own files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from sparkswarm.compiled import BoolArray, FloatArray, LongArray
from sparkswarm.errors import StoreError
from sparkswarm.geometry import QueryCells
from sparkswarm.protocol.statistics import Statistics
from sparkswarm.store.files import FileRef, Files
from sparkswarm.store.formats import arrays_from_bytes, arrays_to_bytes

VERSION = 1


def to_bytes(statistics: Mapping[int, FloatArray]) -> pa.Buffer:
    """Return the content of a file with the statistics of some partitions, by id."""
    return arrays_to_bytes({str(key): values for key, values in statistics.items()}, VERSION)


def from_bytes(content: pa.Buffer) -> dict[int, FloatArray]:
    """Read what :func:`to_bytes` returned."""
    return {int(key): values for key, values in arrays_from_bytes(content, VERSION).items()}


def points_to_bytes(statistics: Mapping[int, Statistics]) -> pa.Buffer:
    """Return the content of a file with the points that a task collected, by partition."""
    return to_bytes({key: one.new_points for key, one in statistics.items()})


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryChanges:
    """Queries added to partitions and removed from them in one batch, for all executors.

    Attributes
    ----------
    partition
        Partition id of each change, sorted: an executor reads the changes of its own.
    added
        Whether the query was added; else it was removed.
    cells
        Cells of the query.
    """

    partition: LongArray
    added: BoolArray
    cells: QueryCells

    def of(self, partition_id: int) -> tuple[QueryCells, QueryCells]:
        """Return the cells of the queries that a partition got, and of those that it lost."""
        low, high = np.searchsorted(self.partition, [partition_id, partition_id + 1])
        added, cells = self.added[low:high], self.cells.take(np.arange(low, high))
        return cells.take(added), cells.take(~added)

    def to_bytes(self) -> pa.Buffer:
        """Return the content of a file."""
        return arrays_to_bytes(
            {
                "partition": self.partition,
                "added": self.added.view(np.uint8),
                "col_start": self.cells.col_start,
                "row_start": self.cells.row_start,
                "col_stop": self.cells.col_stop,
                "row_stop": self.cells.row_stop,
            },
            VERSION,
        )

    @classmethod
    def from_bytes(cls, content: pa.Buffer) -> QueryChanges:
        """Read what :meth:`to_bytes` returned."""
        arrays = arrays_from_bytes(content, VERSION)
        cells = QueryCells(
            col_start=arrays["col_start"],
            row_start=arrays["row_start"],
            col_stop=arrays["col_stop"],
            row_stop=arrays["row_stop"],
            fault=np.zeros(len(arrays["partition"]), np.uint8),
        )
        added = arrays["added"].view(np.bool_)
        return cls(partition=arrays["partition"], added=added, cells=cells)


def open_soft(files: Files, ref: FileRef | None) -> pa.Buffer | None:
    """Return the content of a soft file; None where there is none or it is damaged."""
    if ref is None:
        return None
    try:
        return files.mmap(ref)
    except StoreError:
        return None
