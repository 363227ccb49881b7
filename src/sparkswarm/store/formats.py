"""Formats: named arrays in one file, or several tables in one file; both can be memory-mapped.

Owns how values become bytes, and knows nothing of their meaning. Arrays are an Arrow file with one
row of lists. Tables are Arrow streams one after another, each found by its offset; they may have
different columns, and one can be read without the others.

Every format that is built on these has a ``VERSION``. Files of version 1 don't state it; a file of
another version than the code's is refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparkswarm.errors import StoreError

Arrays = Mapping[str, npt.NDArray[Any]]

_ALIGNMENT = 64


def arrays_to_bytes(arrays: Arrays, version: int = 1, compressed: bool = False) -> pa.Buffer:
    """Return the content of a file with these arrays, of one or two dimensions each.

    Compressed arrays take memory of their own when they are read; others are mapped.
    """
    columns, fields = [], []
    for name, array in arrays.items():
        flat = pa.array(np.ascontiguousarray(array).reshape(-1))
        offsets = pa.array([0, len(flat)], pa.int64())
        columns.append(pa.LargeListArray.from_arrays(offsets, flat))
        width = str(array.shape[1]) if array.ndim == 2 else ""
        fields.append(pa.field(name, columns[-1].type, metadata={"width": width}))
    meta = {} if version == 1 else {"version": version}
    schema = pa.schema(fields, metadata={"meta": json.dumps(meta)})
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd" if compressed else None)
    with pa.ipc.new_file(sink, schema, options=options) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))
    return sink.getvalue()


def arrays_from_bytes(content: pa.Buffer, *versions: int) -> dict[str, npt.NDArray[Any]]:
    """Return what :func:`arrays_to_bytes` was given; the arrays are read-only views.

    ``versions`` are those that are accepted, by default 1 alone.
    """
    reader = pa.ipc.open_file(content)
    _check_version(json.loads(reader.schema.metadata[b"meta"]).get("version", 1), *versions or (1,))
    batch = reader.get_batch(0)
    arrays: dict[str, npt.NDArray[Any]] = {}
    for field, column in zip(reader.schema, batch.columns, strict=True):
        flat = column.flatten().to_numpy(zero_copy_only=True)
        width = field.metadata[b"width"]
        arrays[field.name] = flat.reshape(-1, int(width)) if width else flat
    return arrays


def tables_to_bytes(tables: Sequence[pa.Table], version: int = 1) -> tuple[pa.Buffer, list[int]]:
    """Return the content of a file with these tables, and the offset of each."""
    if version != 1:
        tables = [
            table.replace_schema_metadata(
                {**(table.schema.metadata or {}), b"version": str(version)}
            )
            for table in tables
        ]
    whole = [table.combine_chunks() for table in tables]
    offsets: list[int] = []

    def write(sink: pa.NativeFile) -> None:
        offsets.clear()
        for table in whole:
            offsets.append(sink.tell())
            with pa.ipc.new_stream(sink, table.schema) as writer:
                writer.write_table(table)
            sink.write(b"\0" * (-sink.tell() % _ALIGNMENT))

    return written(write), offsets


def written(write: Callable[[pa.NativeFile], None]) -> pa.Buffer:
    """Return what a function writes, which is called twice: its length is measured first.

    A buffer that grows while it is written is copied several times.
    """
    measured = pa.MockOutputStream()
    write(measured)
    content = pa.allocate_buffer(measured.size())
    with pa.FixedSizeBufferWriter(content) as sink:
        write(sink)
    return content


def table_from_bytes(content: pa.Buffer, offset: int, version: int = 1) -> pa.Table:
    """Return the table at an offset; nothing is copied."""
    table = pa.ipc.open_stream(content.slice(offset)).read_all()
    _check_version(int((table.schema.metadata or {}).get(b"version", 1)), version)
    return table


def _check_version(found: int, *wanted: int) -> None:
    if found not in wanted:
        raise StoreError(
            f"the file has version {found} of its format, this version of sparkswarm reads "
            f"{' and '.join(map(str, wanted))}; use the version that wrote it, or another "
            "checkpoint"
        )
