"""The quarantine: rows that cannot be served, kept with the reason why.

Owns the files of the quarantine. A task writes the bad rows of its batch under a name that
does not depend on the attempt, so a batch that runs again leaves the same rows, once.
"""

from __future__ import annotations

import json
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

NULL_ID, NULL_VALUE, NULL_TIME = "null id", "null coordinate", "null time"
UNKNOWN_OP = "unknown operation"
DUPLICATE_ID, UNKNOWN_ID = "duplicate id", "unknown id"
NOTHING_KEPT = "no points are kept for snapshot queries"
NO_SINK = "there is no sink for answers"
BACKWARDS = "since is after until"
FAULT_REASONS = {
    1: "not a number",
    2: "infinite coordinate",
    3: "outside the bounds",
    4: "inverted rectangle",
}
"""Why a point or a query has no place, by :class:`~sparkswarm.geometry.Fault`."""


@dataclass
class Quarantine:
    """The bad rows that one task meets."""

    files: Files
    batch: int
    task: str
    _rows: list[tuple[str, str, str]] = field(default_factory=list)

    def add(
        self, kind: str, rows: pa.Table, names: Mapping[str, str], reasons: npt.NDArray[Any]
    ) -> None:
        """Keep ``rows``, each with its reason; ``names`` gives columns their users' names."""
        chosen = [name for name in rows.column_names if name in names]
        for row, reason in zip(rows.select(chosen).to_pylist(), reasons, strict=True):
            shown = {names[name]: value for name, value in row.items()}
            self._rows.append((kind, str(reason), json.dumps(shown, default=_shown)))

    def faults(self) -> dict[tuple[str, str], int]:
        """Count the rows by kind and reason."""
        return dict(Counter((kind, reason) for kind, reason, _ in self._rows))

    def write(self) -> None:
        """Make the rows durable; nothing is written where there are none."""
        if self._rows:
            columns = [pa.array(column) for column in zip(*self._rows, strict=True)]
            sink = pa.BufferOutputStream()
            pq.write_table(pa.Table.from_arrays(columns, schema=SCHEMA), sink)
            self.files.write(f"{folder_of(self.batch)}/{self.task}.parquet", sink.getvalue())


def _shown(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def folder_of(batch: int) -> str:
    """Return the folder of a batch's bad rows."""
    return f"{Folder.QUARANTINE}/batch_id={batch}"


def first_reason(
    n: int, checks: list[tuple[npt.NDArray[np.bool_], str]]
) -> npt.NDArray[np.object_]:
    """Return for each of n rows the first reason that applies, None where it is good."""
    reasons = np.full(n, None, dtype=object)
    for bad, reason in reversed(checks):
        reasons[bad] = reason
    return reasons
