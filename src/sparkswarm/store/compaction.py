"""Compaction: queries written anew, as bases without deltas.

Runs in the task of each executor, for its partitions, when deltas have grown; the raster of prices
is made on the driver, when all of them are done. Bulk loads write bases in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from sparkswarm.geometry import CellRect, Grid
from sparkswarm.protocol.partition import Partition
from sparkswarm.store.cache import OpenDelta, QueryCache
from sparkswarm.store.directory import Directory
from sparkswarm.store.files import FileRef
from sparkswarm.store.manifest import BaseGroup, Manifest, SegmentRef
from sparkswarm.store.prices import PriceRaster
from sparkswarm.store.queries import Queries
from sparkswarm.store.segments import Base, each_once, unexpired

Write = Callable[[str, pa.Buffer, int], FileRef]
"""Writes a file, given a part of its name, its content and the number of its rows."""


class WrittenBases(NamedTuple):
    """New segments by partition id, and their bases; None where no partition has queries."""

    segments: Mapping[int, tuple[SegmentRef, ...]]
    group: BaseGroup | None


def base_queries(
    manifest: Manifest, cache: QueryCache, partitions: Iterable[int], cells: CellRect, grid: Grid
) -> Queries:
    """Return the queries in bases that count and overlap some cells, each once.

    ``partitions`` are all those that overlap the cells.
    """
    return each_once(
        [
            cache.segment(ref, manifest, grid).live_queries(cells, grid)
            for key in partitions
            for ref in manifest.partitions[key]
            if ref.cells.overlaps(cells)
        ]
    )


def delta_queries(opened: Sequence[OpenDelta], cells: CellRect, grid: Grid) -> Queries:
    """Return the queries in deltas that count and overlap some cells, each once."""
    found = [one.delta.added.live_queries(one.removed, cells, grid) for one in opened]
    if any(one.blocks is not None for one in opened):
        return each_once(found)
    return Queries.concat(found)


def write_bases(
    partitions: Sequence[Partition],
    queries_of: Callable[[Partition], Queries],
    grid: Grid,
    purge_before: int,
    write_base: Write,
    write: Write,
    most: int = 0,
) -> WrittenBases:
    """Write bases for each partition that has queries, and one directory for all of them.

    ``write_base`` writes bases, ``write`` the directory. A base has at most ``most`` queries,
    unless they are in one cell; 0 makes one base for each partition.
    """
    segments: dict[int, tuple[SegmentRef, ...]] = {}
    bases: list[tuple[CellRect, Base]] = []
    refs: list[FileRef] = []
    for partition in partitions:
        own: list[SegmentRef] = []
        every = unexpired(queries_of(partition), purge_before)
        for cells, queries in _tiled(every, partition.cells, grid, most):
            own.append(SegmentRef(cells))
            if len(queries.ids):
                base = Base.build(queries, grid, cells)
                name = f"p{partition.id}-base" + (f"-{len(own)}" if len(own) > 1 else "")
                ref = write_base(name, base.to_bytes(), len(queries.ids))
                own[-1] = SegmentRef(cells, ref)
                bases.append((cells, base))
                refs.append(ref)
        segments[partition.id] = tuple(own)
    if not refs:
        return WrittenBases(segments, None)
    directory = Directory.build(bases, grid)
    ref = write(f"e{partitions[0].owners[0]}-directory", directory.to_bytes(), len(directory.ids))
    return WrittenBases(segments, BaseGroup(ref, tuple(refs)))


def _tiled(
    queries: Queries, cells: CellRect, grid: Grid, most: int
) -> Iterator[tuple[CellRect, Queries]]:
    """Yield cells that tile the given ones, with at most ``most`` queries each, and these."""
    if not most or len(queries.ids) <= most or cells.area == 1:
        yield cells, queries
        return
    placed = queries.cells(grid).clipped(cells)
    if cells.columns >= cells.rows:
        middle = int(np.median(placed.col_start)) - cells.col_start
        halves = cells.split_columns(min(max(middle, 1), cells.columns - 1))
    else:
        middle = int(np.median(placed.row_start)) - cells.row_start
        halves = cells.split_rows(min(max(middle, 1), cells.rows - 1))
    for half in halves:
        yield from _tiled(queries.take(placed.overlapping(half)), half, grid, most)


def count_prices(directories: Iterable[Directory], grid: Grid) -> PriceRaster:
    """Return the raster of prices of new bases."""
    cells = (one.cells[one.is_home == 1] for one in directories)
    return PriceRaster.empty(grid).corrected(added=cells)
