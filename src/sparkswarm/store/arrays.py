"""Named arrays in one file that can be memory-mapped: an Arrow file of a single row of lists.

Owns the format and nothing about what the arrays mean.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Arrays = Mapping[str, npt.NDArray[Any]]


def pack(arrays: Arrays, meta: Mapping[str, Any] | None = None) -> pa.Buffer:
    """Return the arrays, of one or two dimensions, and a few facts as the bytes of a file."""
    columns, fields = [], []
    for name, array in arrays.items():
        flat = pa.array(np.ascontiguousarray(array).reshape(-1))
        offsets = pa.array([0, len(flat)], pa.int64())
        columns.append(pa.LargeListArray.from_arrays(offsets, flat))
        width = str(array.shape[1]) if array.ndim == 2 else ""
        fields.append(pa.field(name, columns[-1].type, metadata={"width": width}))
    schema = pa.schema(fields, metadata={"meta": json.dumps(meta or {})})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, schema) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))
    return sink.getvalue()


def unpack(content: pa.Buffer) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
    """Return what :func:`pack` was given; the arrays are read-only views of ``content``."""
    reader = pa.ipc.open_file(content)
    batch = reader.get_batch(0)
    arrays: dict[str, npt.NDArray[Any]] = {}
    for field, column in zip(reader.schema, batch.columns, strict=True):
        flat = column.flatten().to_numpy(zero_copy_only=True)
        width = field.metadata[b"width"]
        arrays[field.name] = flat.reshape(-1, int(width)) if width else flat
    return arrays, json.loads(reader.schema.metadata[b"meta"])
