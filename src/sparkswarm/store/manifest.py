"""The manifest: which files make up the queries of each partition, what is kept, and the ledger.

Owns the names. A file counts only because a manifest names it; what a failed attempt left
behind is named by none. Moving, splitting and merging partitions changes names alone: nothing
is read or written for it.
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
from sparkswarm.store.blocks import Meta
from sparkswarm.store.files import FileRef
from sparkswarm.window import windows


@dataclass(frozen=True, slots=True)
class FilePair:
    """A base and the delta since; either may be missing."""

    base: FileRef | None = None
    delta: FileRef | None = None

    @property
    def refs(self) -> list[FileRef]:
        """The files there are."""
        return [ref for ref in (self.base, self.delta) if ref is not None]


@dataclass(frozen=True, slots=True)
class Piece:
    """Cells of a partition and the files that serve them."""

    cells: CellRect
    files: FilePair


@dataclass(frozen=True, slots=True)
class Kept:
    """A block of recent points, and the cells of a partition for which it counts.

    Attributes
    ----------
    piece
        The cells, and what is known of the block.
    file, begin
        Where it is: a file holds the blocks that one executor wrote in one batch.
    """

    piece: windows.Piece
    file: FileRef
    begin: int

    @property
    def cells(self) -> CellRect:
        """The cells for which it counts."""
        return self.piece.cells

    def within(self, cells: CellRect) -> Kept | None:
        """Return what a partition of these cells keeps of it; None where that is nothing."""
        here = self.piece.cells.intersection(cells)
        if not here.area or not here.overlaps(self.piece.meta.cells):
            return None
        return replace(self, piece=self.piece._replace(cells=here))


@dataclass(frozen=True, slots=True)
class State:
    """State of queries, and the cells in which those queries are at home.

    Attributes
    ----------
    cells
        Queries at home elsewhere may be in the file; their state is not this one.
    file, begin
        Where it is: a file holds the states that one executor wrote in one batch.
    due
        The watermark at which there is something to tell of it; None where there never is.
    """

    cells: CellRect
    file: FileRef
    begin: int
    due: int | None

    def within(self, cells: CellRect) -> State | None:
        """Return what a partition of these cells goes on with; None where that is nothing."""
        here = self.cells.intersection(cells)
        return replace(self, cells=here) if here.area else None


_Held = TypeVar("_Held", Kept, State)


@dataclass(frozen=True, slots=True)
class Manifest:
    """What is stored, as of the end of a batch.

    Attributes
    ----------
    version
        Counts the manifests of a run, from 0.
    partitions
        The pieces of each partition, by its id; together they tile it.
    ledger
        The files of each bucket.
    states
        What is kept for the queries of each partition that has some, by its id.
    blocks
        The recent points of each partition that has some, by its id.
    """

    version: int
    partitions: Mapping[int, tuple[Piece, ...]]
    ledger: tuple[FilePair, ...]
    states: Mapping[int, tuple[State, ...]] = field(default_factory=dict)
    blocks: Mapping[int, tuple[Kept, ...]] = field(default_factory=dict)

    @classmethod
    def initial(cls, partitions: Iterable[Partition], buckets: int) -> Manifest:
        """Return the manifest of a run without queries."""
        pieces = {p.id: (Piece(p.cells, FilePair()),) for p in partitions}
        return cls(0, pieces, (FilePair(),) * buckets)

    def following(self, old: Iterable[Partition], new: Iterable[Partition]) -> Manifest:
        """Return the manifest for another tiling of the same cells.

        A new partition goes on with the files of the old partitions under its cells.
        """
        old, new = list(old), list(new)
        result: dict[int, tuple[Piece, ...]] = {}
        for partition in new:
            if partition.id in self.partitions:
                result[partition.id] = self.partitions[partition.id]
                continue
            pieces = [
                Piece(piece.cells.intersection(partition.cells), piece.files)
                for former in old
                if former.cells.overlaps(partition.cells)
                for piece in self.partitions[former.id]
                if piece.cells.overlaps(partition.cells)
            ]
            if len({piece.files for piece in pieces}) == 1:
                pieces = [Piece(partition.cells, pieces[0].files)]
            result[partition.id] = tuple(pieces)
        return replace(
            self,
            version=self.version + 1,
            partitions=result,
            states=_inherited(self.states, old, new),
            blocks=_inherited(self.blocks, old, new),
        )

    def updated(
        self,
        partitions: Mapping[int, Piece],
        ledger: Mapping[int, FilePair],
        states: Mapping[int, tuple[State, ...]] = MappingProxyType({}),
    ) -> Manifest:
        """Return the manifest after some partitions, buckets and states were written."""
        return replace(
            self,
            version=self.version + 1,
            partitions={**self.partitions, **{key: (piece,) for key, piece in partitions.items()}},
            ledger=tuple(ledger.get(i, files) for i, files in enumerate(self.ledger)),
            states=_some({**self.states, **states}),
        )

    def keeping(
        self, states: Mapping[int, tuple[State, ...]], blocks: Mapping[int, tuple[Kept, ...]]
    ) -> Manifest:
        """Return the manifest with other states and blocks; itself where they are the same."""
        states, blocks = _some(states), _some(blocks)
        if (states, blocks) == (self.states, self.blocks):
            return self
        return replace(self, version=self.version + 1, states=states, blocks=blocks)

    def refs(self) -> set[FileRef]:
        """Return every file that counts."""
        pairs = [piece.files for pieces in self.partitions.values() for piece in pieces]
        refs = {ref for files in (*pairs, *self.ledger) for ref in files.refs}
        refs |= {state.file for some in self.states.values() for state in some}
        return refs | {kept.file for some in self.blocks.values() for kept in some}

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-ready form; files are listed once and then numbered."""
        refs = sorted(self.refs(), key=lambda ref: ref.name)
        number = {ref: i for i, ref in enumerate(refs)}

        def pair(files: FilePair) -> list[int | None]:
            return [None if ref is None else number[ref] for ref in (files.base, files.delta)]

        return {
            "version": self.version,
            "files": [[ref.name, ref.rows, ref.size, ref.crc] for ref in refs],
            "partitions": {
                str(key): [[list(piece.cells), *pair(piece.files)] for piece in pieces]
                for key, pieces in self.partitions.items()
            },
            "ledger": [pair(files) for files in self.ledger],
            "states": {
                str(key): [[list(one.cells), number[one.file], one.begin, one.due] for one in some]
                for key, some in self.states.items()
            },
            "blocks": {
                str(key): [
                    [list(one.cells), one.piece.meta, number[one.file], one.begin] for one in some
                ]
                for key, some in self.blocks.items()
            },
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Manifest:
        """Read what :meth:`to_json` wrote; StoreError where that is not what it is."""
        try:
            refs = [_file_ref(*entry) for entry in data["files"]]

            def ref(number: int | None) -> FileRef | None:
                if number is not None and number < 0:
                    raise IndexError(number)
                return None if number is None else refs[number]

            return cls(
                operator.index(data["version"]),
                {
                    int(key): tuple(
                        Piece(_cells(cells), FilePair(ref(base), ref(delta)))
                        for cells, base, delta in pieces
                    )
                    for key, pieces in data["partitions"].items()
                },
                tuple(FilePair(ref(base), ref(delta)) for base, delta in data["ledger"]),
                {
                    int(key): tuple(
                        State(_cells(cells), refs[number], operator.index(begin), due)
                        for cells, number, begin, due in some
                    )
                    for key, some in data["states"].items()
                },
                {
                    int(key): tuple(
                        Kept(_piece(cells, meta), refs[number], operator.index(begin))
                        for cells, meta, number, begin in some
                    )
                    for key, some in data["blocks"].items()
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


def _piece(cells: list[int], meta: list[Any]) -> windows.Piece:
    rows, size, oldest, newest = map(operator.index, meta[:4])
    return windows.Piece(_cells(cells), Meta(rows, size, oldest, newest, _cells(meta[4])))


def _some(held: Mapping[int, tuple[_Held, ...]]) -> dict[int, tuple[_Held, ...]]:
    return {key: some for key, some in held.items() if some}


def _inherited(
    held: Mapping[int, tuple[_Held, ...]], old: list[Partition], new: list[Partition]
) -> dict[int, tuple[_Held, ...]]:
    """Return what partitions of another tiling hold of what those of this one held."""
    there = [one for former in old for one in held.get(former.id, ())]
    same = {former.id for former in old}
    return _some(
        {
            partition.id: held.get(partition.id, ())
            if partition.id in same
            else tuple(here for one in there if (here := one.within(partition.cells)))
            for partition in new
        }
    )
