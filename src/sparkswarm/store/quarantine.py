"""The quarantine: rejected rows and the reason for each.

Owns the files of the quarantine and the reasons. Runs in tasks that check rows. A task that runs
again replaces its file; a batch that runs again begins with an empty folder.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from sparkswarm.store.files import Files, Folder

SCHEMA = pa.schema([("kind", pa.string()), ("reason", pa.string()), ("row", pa.string())])
SPARK_SCHEMA = "kind STRING, reason STRING, row STRING"

POINT, QUERY = "point", "query"

_PLACE = re.compile(r"\s*\[.*\]$", re.DOTALL)
"""The end of a reason that is another for each row, such as the place of a self-intersection."""

NULL_ID, NULL_VALUE, NULL_TIME = "null id", "null coordinate", "null time"
LONG_ID = "id is too long"
FUTURE_TIME = "time in the future"
UNKNOWN_OP = "unknown operation"
NO_WINDOW = "no points are kept for snapshot queries"
NO_SINK = "there is no sink for answers"
SINCE_AFTER_UNTIL = "since is after until"
FAULT_REASONS = {
    1: "not a number",
    2: "infinite coordinate",
    3: "outside the bounds",
    4: "inverted rectangle",
}
"""Reasons by :class:`~sparkswarm.geometry.Fault`."""


@dataclass
class Quarantine:
    """The rejected rows of one task."""

    files: Files
    batch: int
    task: str
    _rows: list[tuple[str, str, str]] = field(default_factory=list)

    def add(
        self, kind: str, rows: pa.Table, names: Mapping[str, str], reasons: npt.NDArray[Any]
    ) -> None:
        """Add ``rows`` with a reason each; ``names`` maps columns to the user's names of them."""
        chosen = [name for name in rows.column_names if name in names]
        for row, reason in zip(rows.select(chosen).to_pylist(), reasons, strict=True):
            row_json = {names[name]: value for name, value in row.items()}
            self._rows.append((kind, str(reason), json.dumps(row_json, default=_text)))

    def faults(self) -> dict[tuple[str, str], int]:
        """Count the rows by kind and reason, without what a reason says of one row in brackets."""
        return dict(Counter((kind, _PLACE.sub("", reason)) for kind, reason, _ in self._rows))

    def write(self) -> None:
        """Write the rows to their file, if there are any."""
        if self._rows:
            columns = [pa.array(column) for column in zip(*self._rows, strict=True)]
            sink = pa.BufferOutputStream()
            pq.write_table(pa.Table.from_arrays(columns, schema=SCHEMA), sink)
            self.files.write(f"{folder_of(self.batch)}/{self.task}.parquet", sink.getvalue())


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def folder_of(batch: int) -> str:
    """Return the folder of a batch's rejected rows."""
    return f"{Folder.QUARANTINE}/batch_id={batch}"


def batch_of(folder: str, otherwise: int) -> int:
    """Return the batch of a folder of rejected rows; ``otherwise`` of other folders."""
    found = re.fullmatch(r".*/batch_id=(-?\d+)", folder)
    return int(found[1]) if found else otherwise


def first_reason(
    n: int, checks: list[tuple[npt.NDArray[np.bool_], str]]
) -> npt.NDArray[np.object_]:
    """Return for each of n rows the first reason that applies; None where none does."""
    reasons = np.full(n, None, dtype=object)
    for bad, reason in reversed(checks):
        reasons[bad] = reason
    return reasons
