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

from sparkswarm.compiled import BoolArray, ByteArray, LongArray
from sparkswarm.geometry import Grid
from sparkswarm.index.layout import readonly
from sparkswarm.index.shapes import PreparedShapes
from sparkswarm.store.deltas import Delta, delta_target, positions_in
from sparkswarm.store.directory import Directory, find_sorted
from sparkswarm.store.files import FileRef, Files
from sparkswarm.store.manifest import BaseGroup, DeltaParts, DeltaRef, Manifest, SegmentRef
from sparkswarm.store.parts import ChangedIds, DeltaPart, SharedPart
from sparkswarm.store.prices import PriceRaster
from sparkswarm.store.queries import Queries, cell_array
from sparkswarm.store.segments import NO_BASE, NONE_REMOVED, Base, Segment, with_own_delta


class _Format(Protocol):
    @classmethod
    def from_bytes(cls, content: pa.Buffer) -> Any: ...


_File = TypeVar("_File", bound=_Format)


@dataclass(frozen=True, slots=True)
class OpenDelta:
    """A delta of the manifest, or a part of one, and which of its queries a later one removed.

    Attributes
    ----------
    ref, delta
        The file and its content.
    removed
        1 for each query that does not count any more; empty where all count.
    blocks
        1 for each block whose points are matched with it; None where all points are.
    """

    ref: FileRef
    delta: Delta | DeltaPart
    removed: ByteArray
    blocks: BoolArray | None = None


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

    def used(self) -> tuple[FileRef, ...]:
        """Return the files with queries that were used in this batch."""
        kinds = Base, Delta, DeltaPart
        return tuple(ref for ref in self._used if isinstance(self._mapped[ref], kinds))

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
        number = self._numbered[1][ref.base]
        return Segment(ref.cells, base, self._mask(ref.base, number, base, manifest.deltas))

    def deltas(self, manifest: Manifest, blocks: BoolArray | None = None) -> list[OpenDelta]:
        """Return the deltas, oldest first; of those in parts, the parts of some blocks."""
        opened = []
        for i, ref in enumerate(manifest.deltas):
            later, parts = manifest.deltas[i + 1 :], self._parts(ref)
            if parts is None or blocks is None:
                delta = self.whole_delta(ref)
                mask = self._mask(ref.file, delta_target(ref.batch), delta, later)
                opened.append(OpenDelta(ref.file, delta, mask))
                continue
            for number in parts.over(blocks):
                part = self._open(parts.files[number], DeltaPart)
                mask = self._mask(parts.files[number], delta_target(ref.batch), part, later)
                own = np.frombuffer(parts.part_of, np.uint8) == number
                opened.append(OpenDelta(parts.files[number], part, mask, own))
        return opened

    def changed_ids(self, manifest: Manifest) -> list[Delta | ChangedIds]:
        """Return which queries changed, by delta."""
        return [
            self.whole_delta(ref) if parts is None else self._open(parts.changed, ChangedIds)
            for ref in manifest.deltas
            for parts in [self._parts(ref)]
        ]

    def whole_delta(self, ref: DeltaRef) -> Delta:
        """Return a delta as a whole."""
        return self._open(ref.file, Delta)

    def _parts(self, ref: DeltaRef) -> DeltaParts | None:
        """Return the parts of a delta, None where it has none or is here as a whole."""
        return None if ref.file in self._mapped else ref.parts

    def _changed(self, ref: DeltaRef) -> Delta | SharedPart:
        """Return what a delta says about all places."""
        parts = self._parts(ref)
        return (
            self._open(ref.file, Delta) if parts is None else self._open(parts.shared, SharedPart)
        )

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
            delta = self.whole_delta(ref)
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

    def _mask(
        self,
        ref: FileRef,
        target: int,
        stored: Base | Delta | DeltaPart,
        deltas: Sequence[DeltaRef],
    ) -> ByteArray:
        """Return 1 for each query of a file that some deltas removed; empty where none was."""
        wanted = tuple(deltas)
        applied, mask = self._removed.get(ref, ((), NONE_REMOVED))
        if applied == wanted:
            return mask
        if wanted[: len(applied)] != applied:
            # Deltas were merged, or an earlier batch runs again.
            applied, mask = (), NONE_REMOVED
        dead = [positions_in(self._changed(d).dead, target) for d in wanted[len(applied) :]]
        if isinstance(stored, DeltaPart):
            dead = list(map(stored.positions_of, dead))
        if any(map(len, dead)):
            base = stored if isinstance(stored, Base) else stored.added
            writable = mask.copy() if len(mask) else np.zeros(len(base.index.ids), np.uint8)
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
            changed = [self._changed(ref) for ref in manifest.deltas]
            if changed:
                after = (
                    d.after
                    if isinstance(d, SharedPart)
                    else cell_array(d.added.queries.cells(grid))
                    for d in changed
                )
                raster = raster.corrected(after, (d.before for d in changed))
            self._prices = key, raster
        return self._prices[1]
