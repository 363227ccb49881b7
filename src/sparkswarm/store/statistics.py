"""Statistics between batches, and the queries that a batch changed.

Owns how that travels which load-balancing units leave for the next batch, when any process may run
them: small statistics as they are, in the messages of tasks and driver, larger ones as soft files.
Those are not durable and may be missing after a crash: then statistics are collected again, and
results don't change. Each attempt writes its own files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from sparkswarm.compiled import BoolArray, FloatArray, LongArray
from sparkswarm.errors import StoreError
from sparkswarm.geometry import QueryCells
from sparkswarm.store.files import FileRef, Files
from sparkswarm.store.formats import arrays_from_bytes, arrays_to_bytes

VERSION = 1

MOST_INLINE, MOST_INLINE_OF_ALL = 2**20, 2**25
"""Bytes of statistics that travel without a file at most: of one executor, and of all together."""

SoftStatistics = FileRef | Mapping[int, FloatArray]
"""Statistics of some partitions by id, or the file that has them."""


def keep(
    files: Files, values: Mapping[int, FloatArray], executors: int, name: Callable[[], str]
) -> SoftStatistics:
    """Return statistics as they are where they are small, else write them to a file.

    ``name`` makes the name of the file.
    """
    size = sum(some.nbytes for some in values.values())
    if size <= min(MOST_INLINE, MOST_INLINE_OF_ALL // executors):
        return values
    return files.write(name(), to_bytes(values), durable=False)


def recall(files: Files, kept: SoftStatistics | None) -> Mapping[int, FloatArray] | None:
    """Return what was kept; None where it is gone."""
    if not isinstance(kept, FileRef):
        return kept
    content = open_soft(files, kept)
    return None if content is None else from_bytes(content)


def to_bytes(statistics: Mapping[int, FloatArray]) -> pa.Buffer:
    """Return the content of a file with the statistics of some partitions, by id.

    All have the same fields, as many as there are columns.
    """
    values = list(statistics.values())
    return arrays_to_bytes(
        {
            "partition": np.array(list(statistics), np.int64),
            "lines": np.array([len(some) for some in values], np.int64),
            "values": np.concatenate(values) if values else np.zeros((0, 1)),
        },
        VERSION,
    )


def from_bytes(content: pa.Buffer) -> dict[int, FloatArray]:
    """Read what :func:`to_bytes` returned."""
    arrays = arrays_from_bytes(content, VERSION)
    ends = np.cumsum(arrays["lines"])
    each = np.split(arrays["values"], ends[:-1]) if len(ends) else []
    return dict(zip(arrays["partition"].tolist(), each, strict=True))


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
        return files.load(ref)
    except StoreError:
        return None
