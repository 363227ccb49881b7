"""Parcels: many rows packed into one value, and who gets them.

Owns the form in which rows go through Spark's shuffle between our own tasks.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

PARCELS = "kind TINYINT, target INT, rows BINARY"
"""What a parcel is to Spark; below, the same to Arrow."""
SCHEMA = pa.schema([("kind", pa.int8()), ("target", pa.int32()), ("rows", pa.binary())])

POINTS, OPERATION, RANGE, COUNT, EFFECT, SAID, PARTIAL = range(7)
"""The kinds: points for an executor; operations for a bucket of the ledger; snapshot queries for an
executor; what an executor's partitions must take out and put in; what was written, for the driver;
what was added to the state of queries, for the executor that keeps it."""

Parcel = tuple[int, int, bytes | None]
"""Kind, target, rows."""

Task = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""What :meth:`pyspark.sql.DataFrame.mapInArrow` runs."""


def parcels(some: Iterable[Parcel]) -> pa.RecordBatch:
    """Return parcels as Spark takes them."""
    columns = zip(*some, strict=True)
    arrays = [
        pa.array(list(next(columns, ())), field.type)  # none at all are three empty columns
        for field in SCHEMA
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def to_bytes(rows: pa.RecordBatch | pa.Table) -> bytes:
    """Return rows as the bytes of an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write(rows)
    return sink.getvalue().to_pybytes()


def from_bytes(content: Iterable[pa.Buffer]) -> pa.Table:
    """Return the rows of several Arrow streams of one schema, one after another."""
    batches = list(itertools.chain.from_iterable(map(pa.ipc.open_stream, content)))
    return pa.Table.from_batches(batches)


def nulls(rows: pa.Table, name: str) -> npt.NDArray[np.bool_]:
    """Say for each row whether a column is null."""
    return pc.is_null(rows.column(name)).to_numpy(zero_copy_only=False)
