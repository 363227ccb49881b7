"""Compaction: queries written anew, as bases without deltas.

Runs in the task of each executor, for its partitions, when deltas have grown; the raster of prices
is made on the driver, when all of them are done. Bulk loads write bases in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa

from sparkswarm.geometry import CellRect, Grid
from sparkswarm.protocol.partition import Partition
from sparkswarm.store.cache import QueryCache
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

    segments: Mapping[int, SegmentRef]
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


def delta_queries(manifest: Manifest, cache: QueryCache, cells: CellRect, grid: Grid) -> Queries:
    """Return the queries in deltas that count and overlap some cells."""
    opened = cache.deltas(manifest)
    return Queries.concat(
        [one.delta.added.live_queries(one.removed, cells, grid) for one in opened]
    )


def write_bases(
    partitions: Sequence[Partition],
    queries_of: Callable[[Partition], Queries],
    grid: Grid,
    purge_before: int,
    write_base: Write,
    write: Write,
) -> WrittenBases:
    """Write a base for each partition that has queries, and one directory for all of them.

    ``write_base`` writes bases, ``write`` the directory.
    """
    segments = {partition.id: SegmentRef(partition.cells) for partition in partitions}
    bases: list[tuple[CellRect, Base]] = []
    refs: list[FileRef] = []
    for partition in partitions:
        queries = unexpired(queries_of(partition), purge_before)
        if len(queries.ids):
            base = Base.build(queries, grid, partition.cells)
            ref = write_base(f"p{partition.id}-base", base.to_bytes(), len(queries.ids))
            segments[partition.id] = SegmentRef(partition.cells, ref)
            bases.append((partition.cells, base))
            refs.append(ref)
    if not refs:
        return WrittenBases(segments, None)
    directory = Directory.build(bases, grid)
    ref = write(f"e{partitions[0].owners[0]}-directory", directory.to_bytes(), len(directory.ids))
    return WrittenBases(segments, BaseGroup(ref, tuple(refs)))


def count_prices(directories: Iterable[Directory], grid: Grid) -> PriceRaster:
    """Return the raster of prices of new bases."""
    cells = (one.cells[one.is_home == 1] for one in directories)
    return PriceRaster.empty(grid).corrected(added=cells)
