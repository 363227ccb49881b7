"""The manifest: the files that hold queries, state and recent points of each partition.

Owns the references to files and their JSON form. A file counts only because a manifest names it;
files left behind by failed attempts are named by none. Moving, splitting and merging partitions
changes references alone: no data is read or written for it. Made by the driver, read by tasks.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, TypeVar

from sparkswarm.errors import StoreError
from sparkswarm.geometry import CellRect
from sparkswarm.protocol.partition import Partition
from sparkswarm.store.blocks import BlockMeta
from sparkswarm.store.files import FileRef


@dataclass(frozen=True, slots=True)
class SegmentFiles:
    """A base and the delta since; either may be missing."""

    base: FileRef | None = None
    delta: FileRef | None = None

    @property
    def refs(self) -> list[FileRef]:
        """Those of the two that exist."""
        return [ref for ref in (self.base, self.delta) if ref is not None]


@dataclass(frozen=True, slots=True)
class SegmentRef:
    """Cells of a partition, and the files with the queries that overlap them."""

    cells: CellRect
    files: SegmentFiles


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
    """

    cells: CellRect
    file: FileRef
    offset: int
    due: int | None

    def within(self, cells: CellRect) -> StateRef | None:
        """Return the part of the state in ``cells``; None where there is none."""
        here = self.cells.intersection(cells)
        return replace(self, cells=here) if here.area else None


_Ref = TypeVar("_Ref", BlockRef, StateRef)


@dataclass(frozen=True, slots=True)
class Manifest:
    """The files that count after a batch.

    Attributes
    ----------
    version
        Number of the manifest within its run, from 0.
    partitions
        Segments by partition id; those of a partition tile its cells.
    ledger
        Files of each bucket of the ledger.
    states
        State by partition id; partitions without state are absent.
    blocks
        Recent points by partition id; partitions without points are absent.
    """

    version: int
    partitions: Mapping[int, tuple[SegmentRef, ...]]
    ledger: tuple[SegmentFiles, ...]
    states: Mapping[int, tuple[StateRef, ...]] = field(default_factory=dict)
    blocks: Mapping[int, tuple[BlockRef, ...]] = field(default_factory=dict)

    @classmethod
    def initial(cls, partitions: Iterable[Partition], buckets: int) -> Manifest:
        """Return the manifest of a run without queries."""
        segments = {p.id: (SegmentRef(p.cells, SegmentFiles()),) for p in partitions}
        return cls(0, segments, (SegmentFiles(),) * buckets)

    def for_plan(self, old: Iterable[Partition], new: Iterable[Partition]) -> Manifest:
        """Return the manifest after the partitions changed from ``old`` to ``new``.

        Both tile the same cells. A new partition inherits the files of the old partitions that
        it overlaps.
        """
        old, new = list(old), list(new)
        result: dict[int, tuple[SegmentRef, ...]] = {}
        for partition in new:
            if partition.id in self.partitions:
                result[partition.id] = self.partitions[partition.id]
                continue
            segments = [
                SegmentRef(segment.cells.intersection(partition.cells), segment.files)
                for previous in old
                if previous.cells.overlaps(partition.cells)
                for segment in self.partitions[previous.id]
                if segment.cells.overlaps(partition.cells)
            ]
            if len({segment.files for segment in segments}) == 1:
                segments = [SegmentRef(partition.cells, segments[0].files)]
            result[partition.id] = tuple(segments)
        return replace(
            self,
            version=self.version + 1,
            partitions=result,
            states=_inherited(self.states, old, new),
            blocks=_inherited(self.blocks, old, new),
        )

    def with_segments(
        self,
        partitions: Mapping[int, SegmentRef],
        ledger: Mapping[int, SegmentFiles],
        states: Mapping[int, tuple[StateRef, ...]] = MappingProxyType({}),
    ) -> Manifest:
        """Return the manifest with new files for some partitions, buckets and states."""
        segments = {key: (segment,) for key, segment in partitions.items()}
        return replace(
            self,
            version=self.version + 1,
            partitions={**self.partitions, **segments},
            ledger=tuple(ledger.get(i, files) for i, files in enumerate(self.ledger)),
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

    def files(self) -> set[FileRef]:
        """Return every file that counts."""
        pairs = [segment.files for segments in self.partitions.values() for segment in segments]
        refs = {ref for pair in (*pairs, *self.ledger) for ref in pair.refs}
        refs |= {state.file for states in self.states.values() for state in states}
        return refs | {block.file for blocks in self.blocks.values() for block in blocks}

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-ready form; files are listed once and referred to by position."""
        refs = sorted(self.files(), key=lambda ref: ref.name)
        number = {ref: i for i, ref in enumerate(refs)}

        def pair(files: SegmentFiles) -> list[int | None]:
            return [None if ref is None else number[ref] for ref in (files.base, files.delta)]

        return {
            "version": self.version,
            "files": [[ref.name, ref.rows, ref.size, ref.crc] for ref in refs],
            "partitions": {
                str(key): [[list(segment.cells), *pair(segment.files)] for segment in segments]
                for key, segments in self.partitions.items()
            },
            "ledger": [pair(files) for files in self.ledger],
            "states": {
                str(key): [[list(s.cells), number[s.file], s.offset, s.due] for s in states]
                for key, states in self.states.items()
            },
            "blocks": {
                str(key): [
                    [list(b.cells), _meta_to_json(b.meta), number[b.file], b.offset] for b in blocks
                ]
                for key, blocks in self.blocks.items()
            },
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Manifest:
        """Read what :meth:`to_json` returned; StoreError where the data is malformed."""
        try:
            refs = [_file_ref(*entry) for entry in data["files"]]

            def pair(base: int | None, delta: int | None) -> SegmentFiles:
                return SegmentFiles(ref(base), ref(delta))

            def ref(number: int | None) -> FileRef | None:
                if number is not None and number < 0:
                    raise IndexError(number)
                return None if number is None else refs[number]

            return cls(
                operator.index(data["version"]),
                {
                    int(key): tuple(
                        SegmentRef(_cells(cells), pair(base, delta))
                        for cells, base, delta in segments
                    )
                    for key, segments in data["partitions"].items()
                },
                tuple(pair(base, delta) for base, delta in data["ledger"]),
                {
                    int(key): tuple(
                        StateRef(
                            cells=_cells(cells),
                            file=refs[number],
                            offset=operator.index(offset),
                            due=due,
                        )
                        for cells, number, offset, due in states
                    )
                    for key, states in data["states"].items()
                },
                {
                    int(key): tuple(
                        BlockRef(
                            cells=_cells(cells),
                            meta=_meta_from_json(meta),
                            file=refs[number],
                            offset=operator.index(offset),
                        )
                        for cells, meta, number, offset in blocks
                    )
                    for key, blocks in data["blocks"].items()
                },
            )
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            raise StoreError(f"this is not a manifest: {error!r}") from error


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


def _inherited(
    refs: Mapping[int, tuple[_Ref, ...]], old: list[Partition], new: list[Partition]
) -> dict[int, tuple[_Ref, ...]]:
    """Distribute the references of the old partitions among the new ones."""
    existing = [ref for previous in old for ref in refs.get(previous.id, ())]
    unchanged = {previous.id for previous in old}
    return _nonempty(
        {
            partition.id: refs.get(partition.id, ())
            if partition.id in unchanged
            else tuple(here for ref in existing if (here := ref.within(partition.cells)))
            for partition in new
        }
    )
