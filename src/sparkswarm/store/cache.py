"""The cache of opened files with queries.

Kept by a worker process, and by the driver, from batch to batch. Everything in it can be computed
again from the files.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparkswarm.compiled import ByteArray, LongArray
from sparkswarm.geometry import Grid
from sparkswarm.index.layout import readonly
from sparkswarm.index.shapes import PreparedShapes
from sparkswarm.store.deltas import Delta, delta_target, positions_in
from sparkswarm.store.directory import Directory, find_sorted
from sparkswarm.store.files import FileRef, Files
from sparkswarm.store.manifest import BaseGroup, DeltaRef, Manifest, SegmentRef
from sparkswarm.store.prices import PriceRaster
from sparkswarm.store.queries import Queries, cell_array
from sparkswarm.store.segments import NO_BASE, NONE_REMOVED, Base, Segment, with_own_delta


class _Format(Protocol):
    @classmethod
    def from_bytes(cls, content: pa.Buffer) -> Any: ...


_File = TypeVar("_File", bound=_Format)


@dataclass(frozen=True, slots=True)
class OpenDelta:
    """A delta of the manifest, and which of its queries a later one removed.

    Attributes
    ----------
    ref, delta
        The file and its content.
    removed
        1 for each query that does not count any more; empty where all count.
    """

    ref: FileRef
    delta: Delta
    removed: ByteArray


class QueryCache:
    """Opened files of one checkpoint."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._batch = 0
        self._used: set[FileRef] = set()
        self._mapped: dict[FileRef, Any] = {}
        self._removed: dict[FileRef, tuple[tuple[DeltaRef, ...], ByteArray]] = {}
        self._built: dict[FileRef, Any] = {}
        self._shapes: dict[FileRef, PreparedShapes] = {}
        self._migrated: dict[SegmentRef, Segment] = {}
        self._numbered: tuple[tuple[BaseGroup, ...], dict[FileRef, int]] | None = None
        self._prices: tuple[tuple[FileRef | None, tuple[DeltaRef, ...]], PriceRaster] | None = None

    def begin(self, batch: int, names: Collection[str]) -> None:
        """Begin a batch: drop everything about files with other names than these."""
        self._batch = batch
        self._used.clear()
        self._files.retain_copies(names, batch)
        for cached in (self._mapped, self._removed, self._built, self._shapes):
            for ref in [ref for ref in cached if ref.name not in names]:
                del cached[ref]
        self._migrated.clear()

    def drop_built(self) -> None:
        """Drop what an application built, before another application builds."""
        self._built.clear()

    # -- files -----------------------------------------------------------------------------

    def _open(self, ref: FileRef, kind: type[_File]) -> _File:
        if ref not in self._used:
            if ref not in self._mapped or not self._files.use(ref, self._batch):
                self._mapped[ref] = kind.from_bytes(self._files.mmap(ref, self._batch))
            self._used.add(ref)
        return cast(_File, self._mapped[ref])

    def keep(self, ref: FileRef, opened: Any) -> None:
        """Keep what this process has just written, so that it need not be opened."""
        self._mapped[ref] = opened
        self._used.add(ref)

    def segment(self, ref: SegmentRef, manifest: Manifest, grid: Grid) -> Segment:
        """Return a segment; its base is mapped when first opened."""
        if ref.own_delta is not None:
            return self._migrated_segment(ref, grid)
        if ref.base is None:
            return Segment(ref.cells, NO_BASE, NONE_REMOVED)
        base = self._open(ref.base, Base)
        if not manifest.deltas:
            return Segment(ref.cells, base, NONE_REMOVED)
        if self._numbered is None or self._numbered[0] is not manifest.bases:
            self._numbered = manifest.bases, manifest.base_numbers()
        number, size = self._numbered[1][ref.base], len(base.index.ids)
        return Segment(ref.cells, base, self._mask(ref.base, number, size, manifest.deltas))

    def deltas(self, manifest: Manifest) -> list[OpenDelta]:
        """Return the deltas, oldest first."""
        opened = []
        for i, ref in enumerate(manifest.deltas):
            delta = self._open(ref.file, Delta)
            size, later = len(delta.added.index.ids), manifest.deltas[i + 1 :]
            mask = self._mask(ref.file, delta_target(ref.batch), size, later)
            opened.append(OpenDelta(ref.file, delta, mask))
        return opened

    def directories(self, bases: Sequence[BaseGroup]) -> list[tuple[int, Directory]]:
        """Return the directories of a manifest's bases, each with the number of its first base."""
        opened, first = [], 0
        for group in bases:
            opened.append((first, self._open(group.directory, Directory)))
            first += len(group.bases)
        return opened

    def names_of(self, numbers: LongArray, manifest: Manifest) -> pa.LargeBinaryArray:
        """Return the names of queries, by sorted distinct numbers; null where there is none."""
        parts: list[pa.LargeBinaryArray] = []
        rows: list[LongArray] = []

        def found(here: LongArray, base: Base, positions: npt.NDArray[Any]) -> None:
            if len(here) and base.names is not None:
                rows.append(here)
                parts.append(base.names.take(pa.array(positions)))

        # As where operations are applied: the newest delta counts, and bases are the oldest.
        left = np.arange(len(numbers))
        for ref in reversed(manifest.deltas):
            delta = self._open(ref.file, Delta)
            start, stop = find_sorted(numbers[left], delta.ids)
            known = stop > start
            positions = delta.positions[start[known]]
            found(left[known][positions >= 0], delta.added, positions[positions >= 0])
            left = left[~known]
        for group in manifest.bases:
            directory = self._open(group.directory, Directory)
            start, stop = find_sorted(numbers[left], directory.ids)
            here, entry = left[stop > start], start[stop > start]
            for number in np.unique(directory.base[entry]).tolist():
                mine = directory.base[entry] == number
                base = self._open(group.bases[number], Base)
                found(here[mine], base, directory.position[entry[mine]])
        if not parts:
            return pa.nulls(len(numbers), pa.large_binary())
        place = np.full(len(numbers), -1)
        place[np.concatenate(rows)] = np.arange(sum(map(len, rows)))
        return pa.concat_arrays(parts).take(pa.array(place, mask=place < 0))

    def _migrated_segment(self, ref: SegmentRef, grid: Grid) -> Segment:
        if ref not in self._migrated and ref.own_delta is not None:
            base = self._open(ref.base, Base) if ref.base else NO_BASE
            content = self._files.mmap(ref.own_delta, self._batch)
            self._migrated[ref] = with_own_delta(base, content, ref.cells, grid)
        return self._migrated[ref]

    # -- what is made of them --------------------------------------------------------------

    def _mask(self, ref: FileRef, target: int, size: int, deltas: Sequence[DeltaRef]) -> ByteArray:
        """Return 1 for each query of a file that some deltas removed; empty where none was."""
        wanted = tuple(deltas)
        applied, mask = self._removed.get(ref, ((), NONE_REMOVED))
        if applied == wanted:
            return mask
        if wanted[: len(applied)] != applied:
            # Deltas were merged, or an earlier batch runs again.
            applied, mask = (), NONE_REMOVED
        dead = [
            positions_in(self._open(d.file, Delta).dead, target) for d in wanted[len(applied) :]
        ]
        if any(map(len, dead)):
            writable = mask.copy() if len(mask) else np.zeros(size, np.uint8)
            for positions in dead:
                writable[positions] = 1
            mask = readonly(writable, np.uint8)
        self._removed[ref] = wanted, mask
        return mask

    def built(self, ref: FileRef | None, queries: Base, build: Callable[[Queries], Any]) -> Any:
        """Return what ``build`` made of the queries of a file; None where it has none.

        ``build`` must be the same in all calls.
        """
        if ref is None or not len(queries.index.ids):
            return None
        if ref not in self._built:
            self._built[ref] = build(queries.queries)
        return self._built[ref]

    def shapes(self, ref: FileRef | None, queries: Base) -> PreparedShapes | None:
        """Return the shapes of the queries of a file; None where all are rectangles."""
        if ref is None or queries.shapes is None:
            return None
        if ref not in self._shapes:
            self._shapes[ref] = queries.prepare_shapes()
        return self._shapes[ref]

    def prices(self, manifest: Manifest, grid: Grid) -> PriceRaster:
        """Return the raster of prices, corrected by the deltas."""
        key = manifest.prices, manifest.deltas
        if self._prices is None or self._prices[0] != key:
            raster = PriceRaster.empty(grid)
            if manifest.prices is not None:
                raster = self._open(manifest.prices, PriceRaster)
            deltas = [self._open(ref.file, Delta) for ref in manifest.deltas]
            if deltas:
                added = (cell_array(d.added.queries.cells(grid)) for d in deltas)
                raster = raster.corrected(added, (d.before for d in deltas))
            self._prices = key, raster
        return self._prices[1]
