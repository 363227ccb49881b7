"""Files with several tables, each found by where it begins.

Owns the layout: Arrow streams one after another. Tables of one file need not have the same columns,
and one of them can be mapped and read without the others.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

_ALIGNED = 64


def pack(tables: Sequence[pa.Table]) -> tuple[pa.Buffer, list[int]]:
    """Return the content of a file, and where in it each table begins."""
    sink = pa.BufferOutputStream()
    begins = []
    for table in tables:
        begins.append(sink.tell())
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table.combine_chunks())
        sink.write(b"\0" * (-sink.tell() % _ALIGNED))
    return sink.getvalue(), begins


def unpack(content: pa.Buffer, begin: int) -> pa.Table:
    """Return the table that begins there; nothing is copied."""
    return pa.ipc.open_stream(content.slice(begin)).read_all()
