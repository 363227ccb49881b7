"""Packing: many rows as one value through Spark's shuffle, and who gets them.

A hundred thousand points packed into one value go through the shuffle many times faster than as a
hundred thousand rows. Runs in tasks; ``ask`` uses it on the driver.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import IntEnum

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sparkswarm.compiled import IntArray, LongArray, compiled
from sparkswarm.store.formats import written

PACKED_DDL = "kind TINYINT, target INT, rows BINARY"
"""The columns of packed rows for Spark; below, the same for Arrow."""
PACKED_SCHEMA = pa.schema([("kind", pa.int8()), ("target", pa.int32()), ("rows", pa.binary())])


class RowKind(IntEnum):
    """What packed rows are, and who their target is."""

    POINTS = 0
    """Points for an executor."""
    OPERATIONS = 1
    """Queries of a bulk load, by id."""
    SNAPSHOT = 2
    """Snapshot queries of one kind for an executor."""
    PARTITION_QUERIES = 3
    """Queries of a bulk load, for the executor that writes them."""
    PARTIAL_STATE = 4
    """Additions to the state of queries, for the executor that keeps it."""
    FIXES = 5
    """Points with their matches, for the task that keeps their objects."""


PackedRows = tuple[RowKind, int, pa.Buffer | None]
"""Kind, target, rows."""

ArrowTask = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""What :meth:`pyspark.sql.DataFrame.mapInArrow` runs."""


def packed(some: Iterable[PackedRows]) -> pa.RecordBatch:
    """Return packed rows as a record batch."""
    rows = list(some)
    arrays = [
        pa.array([kind for kind, _, _ in rows], pa.int8()),
        pa.array([target for _, target, _ in rows], pa.int32()),
        _binary([content for _, _, content in rows]),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=PACKED_SCHEMA)


def _binary(content: Sequence[pa.Buffer | None]) -> pa.BinaryArray:
    """Return a column of bytes, which are copied once."""
    offsets = np.zeros(len(content) + 1, np.int32)
    np.cumsum([0 if one is None else one.size for one in content], out=offsets[1:])
    data = pa.py_buffer(b"".join(one for one in content if one is not None))
    given = pa.array([one is not None for one in content], pa.bool_())
    # A column of booleans has the bits that say which values are valid.
    return pa.Array.from_buffers(
        pa.binary(), len(content), [given.buffers()[1], pa.py_buffer(offsets), data]
    )


def pack_rows(rows: pa.RecordBatch | pa.Table) -> pa.Buffer:
    """Return rows as the bytes of an Arrow stream."""

    def write(sink: pa.NativeFile) -> None:
        with pa.ipc.new_stream(sink, rows.schema) as writer:
            writer.write(rows)

    return written(write)


def unpack_rows(content: Iterable[pa.Buffer]) -> pa.Table:
    """Return the rows of several Arrow streams of one schema, one after another."""
    batches = list(itertools.chain.from_iterable(map(pa.ipc.open_stream, content)))
    return pa.Table.from_batches(batches)


def nulls(rows: pa.Table, name: str) -> npt.NDArray[np.bool_]:
    """Return for each row whether a column is null."""
    return np.asarray(pc.is_null(rows.column(name)))


@compiled
def group_rows(group: IntArray, groups: int) -> tuple[LongArray, LongArray]:
    """Return the positions of each group's rows, and where each group starts in them.

    Rows with a negative group are left out. A counting sort.
    """
    starts = np.zeros(groups + 1, dtype=np.int64)
    for i in range(len(group)):
        if group[i] >= 0:
            starts[group[i] + 1] += 1
    for g in range(groups):
        starts[g + 1] += starts[g]
    next_free = starts[:-1].copy()
    order = np.empty(starts[-1], dtype=np.int64)
    for i in range(len(group)):
        if group[i] >= 0:
            order[next_free[group[i]]] = i
            next_free[group[i]] += 1
    return order, starts
