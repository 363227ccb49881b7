"""The manifest: the files that hold queries, state and recent points of each partition.

Owns the references to files and their JSON form. A file counts only because a manifest names it;
files left behind by failed attempts are named by none. Moving, splitting and merging partitions
changes references alone: no data is read or written for it. Made by the driver, read by tasks.
"""

from __future__ import annotations

import math
import operator
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress, filterfalse
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from sparkswarm.errors import StoreError
from sparkswarm.geometry import CellRect
from sparkswarm.protocol.partition import Partition
from sparkswarm.protocol.plan import changed_partitions
from sparkswarm.store.blocks import BlockMeta
from sparkswarm.store.files import FileRef


@dataclass(frozen=True, slots=True)
class SegmentRef:
    """Cells of a partition, and the base with the queries that overlap them.

    Attributes
    ----------
    cells, base
        The cells; the base is None where no query was there when it was written.
    own_delta
        Only in checkpoints of format 2, where every segment had its own.
    """

    cells: CellRect
    base: FileRef | None = None
    own_delta: FileRef | None = None


@dataclass(frozen=True, slots=True)
class BaseGroup:
    """Bases that were written together, and the directory of all of them."""

    directory: FileRef
    bases: tuple[FileRef, ...]


PART_BLOCKS = 64
"""Columns, and rows, of blocks by which deltas are divided into parts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaParts:
    """A delta in the files that tasks read where executors are on several hosts.

    Attributes
    ----------
    shared, changed
        What all hosts need, and what those with state need.
    files
        Each has the changes in the blocks of one part.
    part_of
        The part of each block of the grid, row after row.
    """

    shared: FileRef
    changed: FileRef
    files: tuple[FileRef, ...]
    part_of: bytes

    def over(self, blocks: npt.NDArray[np.bool_]) -> list[int]:
        """Return the parts of some blocks."""
        parts: list[int] = np.unique(np.frombuffer(self.part_of, np.uint8)[blocks]).tolist()
        return parts


@dataclass(frozen=True, slots=True)
class DeltaRef:
    """What operations did to queries up to a batch, which wrote the file.

    The rows of the file are the queries that were changed. ``parts`` is None where all executors
    share a host.
    """

    batch: int
    file: FileRef
    parts: DeltaParts | None = None

    def files(self) -> tuple[FileRef, ...]:
        """Return all of its files."""
        parts = self.parts
        return (self.file, parts.shared, parts.changed, *parts.files) if parts else (self.file,)


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockRef:
    """A block of recent points, and the cells of a partition for which it counts.

    Attributes
    ----------
    cells
        Points of the block outside these cells belong to other partitions.
    meta
        Summary of the whole block.
    file, offset
        A file holds the blocks that one executor wrote in one batch.
    """

    cells: CellRect
    meta: BlockMeta
    file: FileRef
    offset: int

    @property
    def is_whole(self) -> bool:
        """Whether all points of the block count."""
        return self.cells.contains(self.meta.cells)

    @property
    def points(self) -> int:
        """Number of points that count: exact where the block is whole, else estimated."""
        share = self.cells.intersection(self.meta.cells).area / self.meta.cells.area
        return max(1, round(self.meta.rows * share))

    def within(self, cells: CellRect) -> BlockRef | None:
        """Return the part of the block in ``cells``; None where there is none."""
        here = self.cells.intersection(cells)
        if not here.area or not here.overlaps(self.meta.cells):
            return None
        return replace(self, cells=here)


@dataclass(frozen=True, slots=True, kw_only=True)
class StateRef:
    """State of the queries at home in some cells of a partition.

    Attributes
    ----------
    cells
        The file may hold state of queries at home elsewhere; that does not count.
    file, offset
        A file holds the states that one executor wrote in one batch.
    due
        Watermark at which the state has results to emit; None if never.
    batch
        The batch that wrote it. What it says about queries that changed later does not count.
    """

    cells: CellRect
    file: FileRef
    offset: int
    due: int | None
    batch: int = -1

    def within(self, cells: CellRect) -> StateRef | None:
        """Return the part of the state in ``cells``; None where there is none."""
        here = self.cells.intersection(cells)
        return replace(self, cells=here) if here.area else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectsRef:
    """What is known of the objects of a bucket.

    Attributes
    ----------
    file, offset
        A file holds the buckets that one task wrote in one batch.
    rows
        Number of objects, at least one.
    oldest
        Time of the object that has been silent for longest.
    until
        Earliest expiry of a fence that an object is in.
    """

    file: FileRef
    offset: int
    rows: int
    oldest: int
    until: int


_Ref = TypeVar("_Ref", BlockRef, StateRef)
_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class Manifest:
    """The files that count after a batch.

    Attributes
    ----------
    version
        Number of the manifest within its run, from 0.
    partitions
        Segments by partition id; those of a partition tile its cells.
    bases
        All bases of segments. A base's number, counted through the groups, says in deltas which
        base is meant.
    deltas
        What operations changed since the bases were written, oldest first.
    prices
        The raster of prices of the bases; None where there are none.
    states
        State by partition id; partitions without state are absent.
    blocks
        Recent points by partition id; partitions without points are absent.
    objects
        Objects that events keep track of, by bucket; buckets without objects are absent.
    renumbered
        Numbers of names that have another one than their hash.
    """

    version: int
    partitions: Mapping[int, tuple[SegmentRef, ...]]
    bases: tuple[BaseGroup, ...] = ()
    deltas: tuple[DeltaRef, ...] = ()
    prices: FileRef | None = None
    states: Mapping[int, tuple[StateRef, ...]] = field(default_factory=dict)
    blocks: Mapping[int, tuple[BlockRef, ...]] = field(default_factory=dict)
    objects: Mapping[int, ObjectsRef] = field(default_factory=dict)
    renumbered: Mapping[bytes, int] = field(default_factory=dict)

    @classmethod
    def initial(cls, partitions: Iterable[Partition]) -> Manifest:
        """Return the manifest of a run without queries."""
        return cls(0, {p.id: (SegmentRef(p.cells),) for p in partitions})

    def for_plan(self, old: Iterable[Partition], new: Iterable[Partition]) -> Manifest:
        """Return the manifest after the partitions changed from ``old`` to ``new``.

        Both tile the same cells. A new partition inherits the files of the old partitions that
        it overlaps.
        """
        retired, created = changed_between(tuple(old), tuple(new))
        partitions, states, blocks = dict(self.partitions), dict(self.states), dict(self.blocks)
        for partition, under in zip(created, _overlapped(created, retired), strict=True):
            stored = [segment for previous in under for segment in self.partitions[previous.id]]
            partitions[partition.id] = _segments_within(stored, partition.cells)
            if inherited := _inherited(self.states, under, partition.cells):
                states[partition.id] = inherited
            if kept_points := _inherited(self.blocks, under, partition.cells):
                blocks[partition.id] = kept_points
        for partition in retired:
            partitions.pop(partition.id, None)
            states.pop(partition.id, None)
            blocks.pop(partition.id, None)
        return replace(
            self, version=self.version + 1, partitions=partitions, states=states, blocks=blocks
        )

    @property
    def is_of_format_2(self) -> bool:
        """Whether queries are stored as in format 2, without directories."""
        return not self.bases and any(
            segment.base or segment.own_delta
            for segments in self.partitions.values()
            for segment in segments
        )

    def with_renumbered(self, names: Mapping[bytes, int]) -> Manifest:
        """Return the manifest with other numbers for some names."""
        return replace(self, renumbered={**self.renumbered, **names}) if names else self

    def base_numbers(self) -> dict[FileRef, int]:
        """Return the numbers of the bases."""
        return {ref: i for i, ref in enumerate(ref for group in self.bases for ref in group.bases)}

    def with_delta(self, delta: DeltaRef, merged: int) -> Manifest:
        """Return the manifest with a delta in place of the last ``merged`` ones."""
        older = self.deltas[: len(self.deltas) - merged]
        return replace(self, version=self.version + 1, deltas=(*older, delta))

    def with_bases(
        self,
        segments: Mapping[int, tuple[SegmentRef, ...]],
        bases: Iterable[BaseGroup],
        prices: FileRef,
        states: Mapping[int, tuple[StateRef, ...]] = MappingProxyType({}),
    ) -> Manifest:
        """Return the manifest with new bases for every partition, which need no deltas."""
        return replace(
            self,
            version=self.version + 1,
            partitions={key: segments[key] for key in self.partitions},
            bases=tuple(bases),
            deltas=(),
            prices=prices,
            states=_nonempty({**self.states, **states}),
        )

    def with_state_and_blocks(
        self, states: Mapping[int, tuple[StateRef, ...]], blocks: Mapping[int, tuple[BlockRef, ...]]
    ) -> Manifest:
        """Return the manifest with these states and blocks; itself where nothing changes."""
        states, blocks = _nonempty(states), _nonempty(blocks)
        if (states, blocks) == (self.states, self.blocks):
            return self
        return replace(self, version=self.version + 1, states=states, blocks=blocks)

    def with_objects(self, changed: Mapping[int, ObjectsRef | None]) -> Manifest:
        """Return the manifest with other objects in some buckets, None for none."""
        if not changed:
            return self
        merged = {**self.objects, **changed}
        objects = {bucket: ref for bucket, ref in merged.items() if ref is not None}
        return replace(self, version=self.version + 1, objects=objects)

    def files(self) -> set[FileRef]:
        """Return every file that counts."""
        refs: set[FileRef | None] = {self.prices}
        for segments in self.partitions.values():
            for segment in segments:
                refs |= {segment.base, segment.own_delta}
        for group in self.bases:
            refs |= {group.directory, *group.bases}
        refs |= {file for delta in self.deltas for file in delta.files()}
        refs |= {state.file for states in self.states.values() for state in states}
        refs |= {block.file for blocks in self.blocks.values() for block in blocks}
        refs |= {objects.file for objects in self.objects.values()}
        return {ref for ref in refs if ref is not None}

    def file_names(self) -> set[str]:
        """Return the names of the files that count."""
        names = {ref.name for group in self.bases for ref in (group.directory, *group.bases)}
        segments = [segment for some in self.partitions.values() for segment in some]
        names |= {segment.base.name for segment in segments if segment.base}
        names |= {segment.own_delta.name for segment in segments if segment.own_delta}
        names |= {file.name for delta in self.deltas for file in delta.files()}
        names |= {state.file.name for states in self.states.values() for state in states}
        names |= {block.file.name for blocks in self.blocks.values() for block in blocks}
        names |= {objects.file.name for objects in self.objects.values()}
        return names | ({self.prices.name} if self.prices else set())

    def difference(self, before: Manifest) -> dict[str, Any]:
        """Return what changed since another manifest, JSON-ready."""
        changed: dict[str, Any] = {
            name: _changed(getattr(before, name), getattr(self, name)) for name in _BY_ID
        }
        gone = {name: _gone(getattr(before, name), getattr(self, name)) for name in _BY_ID}
        same_bases = self.bases == before.bases
        part = replace(self, bases=() if same_bases else self.bases, **changed)
        number = sum(map(len, changed.values())) + sum(map(len, gone.values()))
        if not same_bases:
            number += sum(len(group.bases) for group in self.bases)
        return {**part.to_json(), "gone": gone, "same_bases": same_bases, "changed": number}

    def with_difference(self, data: Mapping[str, Any]) -> Manifest:
        """Return the manifest that differs from this one by what :meth:`difference` returned."""
        part = self.from_json(data)
        merged: dict[str, Any] = {}
        try:
            for name in _BY_ID:
                # Differences of older checkpoints have no objects.
                gone = set(data["gone"].get(name, ()))
                kept = getattr(self, name)
                if not gone <= kept.keys():
                    raise StoreError(f"{name} without {sorted(gone - kept.keys())} lose them")
                merged[name] = {**kept, **getattr(part, name)}
                for key in gone:
                    del merged[name][key]
            return replace(part, bases=self.bases if data["same_bases"] else part.bases, **merged)
        except (KeyError, TypeError) as error:
            raise StoreError(f"this is not a difference of manifests: {error!r}") from error

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-ready form; files are listed once and referred to by position."""
        refs = sorted(self.files(), key=lambda ref: ref.name)
        number: dict[FileRef | None, int | None] = {ref: i for i, ref in enumerate(refs)}
        number[None] = None

        def segment_to_json(segment: SegmentRef) -> list[Any]:
            own = [] if segment.own_delta is None else [number[segment.own_delta]]
            return [list(segment.cells), number[segment.base], *own]

        def delta_to_json(delta: DeltaRef) -> list[Any]:
            whole = [delta.batch, number[delta.file]]
            if delta.parts is None:
                return whole
            part_of = zlib.compress(delta.parts.part_of).hex()
            return [*whole, [number[ref] for ref in delta.files()[1:]], part_of]

        return {
            "version": self.version,
            "files": [[ref.name, ref.rows, ref.size, ref.crc] for ref in refs],
            "partitions": {
                str(key): list(map(segment_to_json, segments))
                for key, segments in self.partitions.items()
            },
            "bases": [
                [number[group.directory], [number[base] for base in group.bases]]
                for group in self.bases
            ],
            "deltas": list(map(delta_to_json, self.deltas)),
            "prices": number[self.prices],
            "states": {
                str(key): [
                    [list(s.cells), number[s.file], s.offset, s.due, s.batch] for s in states
                ]
                for key, states in self.states.items()
            },
            "blocks": {
                str(key): [
                    [list(b.cells), _meta_to_json(b.meta), number[b.file], b.offset] for b in blocks
                ]
                for key, blocks in self.blocks.items()
            },
            "objects": {
                str(key): [number[o.file], o.offset, o.rows, o.oldest, o.until]
                for key, o in self.objects.items()
            },
            "renumbered": {name.hex(): number for name, number in self.renumbered.items()},
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Manifest:
        """Read what :meth:`to_json` returned, of format 2 too.

        StoreError where the data is malformed.
        """
        try:
            refs = [_file_ref(*entry) for entry in data["files"]]

            def file(number: int) -> FileRef:
                if number < 0:
                    raise IndexError(number)
                return refs[number]

            def optional(number: int | None) -> FileRef | None:
                return None if number is None else file(number)

            def parts(numbers: Sequence[int] = (), part_of: str = "") -> DeltaParts | None:
                if not numbers:
                    return None
                shared, changed, *files = map(file, numbers)
                blocks = zlib.decompress(bytes.fromhex(part_of))
                if len(blocks) != PART_BLOCKS**2 or max(blocks) >= len(files):
                    raise ValueError(f"{len(files)} parts of {len(blocks)} blocks")
                return DeltaParts(
                    shared=shared, changed=changed, files=tuple(files), part_of=blocks
                )

            return cls(
                operator.index(data["version"]),
                {
                    int(key): tuple(
                        SegmentRef(_cells(cells), *map(optional, numbers))
                        for cells, *numbers in segments
                    )
                    for key, segments in data["partitions"].items()
                },
                tuple(
                    BaseGroup(file(directory), tuple(map(file, bases)))
                    for directory, bases in data.get("bases", ())
                ),
                tuple(
                    DeltaRef(operator.index(batch), file(number), parts(*divided))
                    for batch, number, *divided in data.get("deltas", ())
                ),
                optional(data.get("prices")),
                {
                    int(key): tuple(
                        StateRef(
                            cells=_cells(cells),
                            file=file(number),
                            offset=operator.index(offset),
                            due=due,
                            # Of format 2: as all deltas are younger.
                            batch=operator.index(*batch) if batch else -1,
                        )
                        for cells, number, offset, due, *batch in states
                    )
                    for key, states in data["states"].items()
                },
                {
                    int(key): tuple(
                        BlockRef(
                            cells=_cells(cells),
                            meta=_meta_from_json(meta),
                            file=file(number),
                            offset=operator.index(offset),
                        )
                        for cells, meta, number, offset in blocks
                    )
                    for key, blocks in data["blocks"].items()
                },
                {
                    int(key): ObjectsRef(
                        file=file(number),
                        offset=operator.index(offset),
                        rows=operator.index(rows),
                        oldest=operator.index(oldest),
                        until=operator.index(until),
                    )
                    for key, (number, offset, rows, oldest, until) in data.get(
                        "objects", {}
                    ).items()
                },
                {
                    bytes.fromhex(name): operator.index(number)
                    for name, number in data.get("renumbered", {}).items()
                },
            )
        except (AttributeError, IndexError, KeyError, TypeError, ValueError, zlib.error) as error:
            raise StoreError(f"this is not a manifest: {error!r}") from error


_BY_ID = ("partitions", "states", "blocks", "objects")
"""What a manifest holds by partition id, or by bucket."""


def _changed(before: Mapping[int, _Value], after: Mapping[int, _Value]) -> dict[int, _Value]:
    if before is after:
        return {}
    # What stays is the same object in almost all cases: no value is compared then, and no line of
    # Python runs for it.
    is_other = map(operator.is_not, map(before.get, after), after.values())
    return {key: after[key] for key in compress(after, is_other) if before.get(key) != after[key]}


def _gone(before: Mapping[int, object], after: Mapping[int, object]) -> list[int]:
    return [] if before is after else list(filterfalse(after.__contains__, before))


def _file_ref(name: str, rows: int, size: int, crc: int) -> FileRef:
    if not isinstance(name, str):
        raise TypeError(f"{name!r} is not a name")
    return FileRef(name, operator.index(rows), operator.index(size), operator.index(crc))


def _cells(cells: list[int]) -> CellRect:
    return CellRect(*map(operator.index, cells))


def _meta_to_json(meta: BlockMeta) -> list[Any]:
    return [meta.rows, meta.size, meta.oldest, meta.newest, list(meta.cells)]


def _meta_from_json(data: list[Any]) -> BlockMeta:
    rows, size, oldest, newest = map(operator.index, data[:4])
    return BlockMeta(rows=rows, size=size, oldest=oldest, newest=newest, cells=_cells(data[4]))


def _nonempty(refs: Mapping[int, tuple[_Ref, ...]]) -> dict[int, tuple[_Ref, ...]]:
    return {key: some for key, some in refs.items() if some}


def changed_between(
    old: tuple[Partition, ...], new: tuple[Partition, ...]
) -> tuple[tuple[Partition, ...], tuple[Partition, ...]]:
    """Return the partitions that are only in the one plan, and only in the other.

    Asked for the same two plans again, as manifest and plan of a batch do, it knows the answer.
    """
    global _last_changed
    last_old, last_new, changed = _last_changed
    if old is not last_old or new is not last_new:
        changed = changed_partitions(old, new)
        _last_changed = old, new, changed
    return changed


_last_changed: tuple[Any, Any, tuple[tuple[Partition, ...], tuple[Partition, ...]]] = (
    *(None, None),
    ((), ()),
)


def _segments_within(stored: Sequence[SegmentRef], cells: CellRect) -> tuple[SegmentRef, ...]:
    """Return the segments of a partition whose cells were those of others; one where one does."""
    if len(stored) > 1:
        stored = [segment for segment in stored if segment.cells.overlaps(cells)]
    first = stored[0]
    if len(stored) == 1 and first.cells == cells:
        return (first,)
    if all((s.base, s.own_delta) == (first.base, first.own_delta) for s in stored[1:]):
        return (SegmentRef(cells, first.base, first.own_delta),)
    return tuple(replace(s, cells=s.cells.intersection(cells)) for s in stored)


def _inherited(
    refs: Mapping[int, tuple[_Ref, ...]], retired: Iterable[Partition], cells: CellRect
) -> tuple[_Ref, ...]:
    """Return the references of retired partitions that count for the cells of a new one."""
    if not refs:
        return ()
    existing = (ref for previous in retired for ref in refs.get(previous.id, ()))
    return tuple(here for ref in existing if (here := ref.within(cells)))


def _overlapped(
    created: Sequence[Partition], retired: Sequence[Partition]
) -> Iterator[list[Partition]]:
    """Yield for each new partition the retired ones that it overlaps, in their order.

    A partition that has just been made of others overlaps these. Else the retired ones are found by
    squares of cells, each about as large as one of them.
    """
    by_id = {partition.id: partition for partition in retired}
    area = sum(partition.cells.area for partition in retired)
    side = max(1, math.isqrt(area // len(retired))) if retired else 1

    def squares(cells: CellRect) -> Iterator[tuple[int, int]]:
        for column in range(cells.col_start // side, (cells.col_stop - 1) // side + 1):
            for row in range(cells.row_start // side, (cells.row_stop - 1) // side + 1):
                yield column, row

    in_square: dict[tuple[int, int], list[int]] = {}
    for partition in created:
        cells = partition.cells
        parents = [by_id[i] for i in sorted(partition.parents) if i in by_id]
        if len(parents) == 1 and parents[0].cells == cells:
            yield parents
            continue
        if sum(cells.intersection(parent.cells).area for parent in parents) == cells.area:
            yield [parent for parent in parents if parent.cells.overlaps(cells)]
            continue
        if not in_square:
            for i, one in enumerate(retired):
                for square in squares(one.cells):
                    in_square.setdefault(square, []).append(i)
        near = {i for square in squares(cells) for i in in_square.get(square, ())}
        yield [retired[i] for i in sorted(near) if retired[i].cells.overlaps(cells)]
