"""Directories: bases by id.

Owns how a query is found that an operation names by its id alone. A task that writes bases writes
one directory for all of them, sorted by id. It also has the cells and the expiry of each query, so
that whoever applies operations reads directories, never bases. Written in tasks, with the bases;
read on the driver, in every batch with operations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparkswarm.compiled import ByteArray, IntArray, LongArray, compiled
from sparkswarm.geometry import CellRect, Grid
from sparkswarm.index.layout import readonly
from sparkswarm.store.formats import arrays_from_bytes, arrays_to_bytes
from sparkswarm.store.queries import NEVER, cell_array
from sparkswarm.store.segments import Base

VERSION = 1


@dataclass(frozen=True)
class Directory:
    """n entries sorted by id, one for each query and base that holds it.

    Attributes
    ----------
    ids
        Ids of the queries.
    base, position
        The base, by its number among those of the directory, and the query's position in it.
    cells
        Of shape (n, 4): the cells of the query, as in :class:`~sparkswarm.geometry.QueryCells`.
    is_home
        1 in one entry of each query: that of the base with the query's first cell.
    expires
        Expiry of each query; empty where none expires.
    """

    ids: LongArray
    base: IntArray
    position: IntArray
    cells: npt.NDArray[Any]
    is_home: ByteArray
    expires: LongArray

    @classmethod
    def build(cls, bases: Sequence[tuple[CellRect, Base]], grid: Grid) -> Directory:
        """Return the directory of bases, given with the cells of their partitions."""
        ids = np.concatenate([np.empty(0, np.int64), *(b.index.ids for _, b in bases)])
        order = np.argsort(ids, kind="stable")
        small = max(grid.columns, grid.rows) < 2**16
        kind = np.uint16 if small else np.int32
        cells, home, base, position, expires = [], [], [], [], []
        never = all(not len(b.index.expires) for _, b in bases)
        for number, (own, one) in enumerate(bases):
            queries = one.queries.rectangles()
            placed = queries.cells(grid)
            inside = (placed.col_start >= own.col_start) & (placed.col_start < own.col_stop)
            inside &= (placed.row_start >= own.row_start) & (placed.row_start < own.row_stop)
            cells.append(cell_array(placed).astype(kind))
            home.append(inside.astype(np.uint8))
            base.append(np.full(len(queries.ids), number, np.int32))
            position.append(np.arange(len(queries.ids), dtype=np.int32))
            expires.append(queries.expires)
        return cls(
            ids[order],
            np.concatenate([np.empty(0, np.int32), *base])[order],
            np.concatenate([np.empty(0, np.int32), *position])[order],
            np.concatenate([np.empty((0, 4), kind), *cells])[order],
            np.concatenate([np.empty(0, np.uint8), *home])[order],
            np.empty(0, np.int64) if never else np.concatenate(expires)[order],
        )

    def expiry_at(self, entries: npt.NDArray[np.intp]) -> LongArray:
        """Return the expiry of some entries."""
        if not len(self.expires):
            return np.full(len(entries), NEVER)
        return self.expires[entries]

    def to_bytes(self) -> pa.Buffer:
        """Return the content of its file."""
        return arrays_to_bytes(
            {
                "ids": self.ids,
                "base": self.base,
                "position": self.position,
                "cells": self.cells,
                "is_home": self.is_home,
                "expires": self.expires,
            },
            VERSION,
        )

    @classmethod
    def from_bytes(cls, content: pa.Buffer) -> Directory:
        """Read what :meth:`to_bytes` returned."""
        return cls(**arrays_from_bytes(content, VERSION))


def find_sorted(wanted: LongArray, among: LongArray) -> tuple[LongArray, LongArray]:
    """Return where each of ``wanted`` starts and stops in ``among``; both are sorted.

    ``wanted`` are distinct; in ``among`` an id may be repeated. The search goes forward from one to
    the next in steps that double, so it takes m log(n / m) steps: as good as a binary search for a
    few ids, and as good as a merge for many.
    """
    return _find_sorted(readonly(wanted, np.int64), readonly(among, np.int64))


@compiled
def _find_sorted(wanted: LongArray, among: LongArray) -> tuple[LongArray, LongArray]:
    start = np.empty(len(wanted), np.int64)
    stop = np.empty(len(wanted), np.int64)
    low, n = 0, len(among)
    for i in range(len(wanted)):
        value = wanted[i]
        # All before ``low`` are smaller. Find the first that is not.
        step = 1
        high = low
        while high < n and among[high] < value:
            low = high + 1
            high += step
            step *= 2
        high = min(high, n)
        while low < high:
            middle = (low + high) >> 1
            if among[middle] < value:
                low = middle + 1
            else:
                high = middle
        start[i] = low
        end = low
        while end < n and among[end] == value:
            end += 1
        stop[i] = end
        low = end
    return start, stop
