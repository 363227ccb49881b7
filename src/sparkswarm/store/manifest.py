"""The manifest: which files make up the queries of each partition, and the ledger.

Owns the names. A file counts only because a manifest names it; what a failed attempt left
behind is named by none. Moving, splitting and merging partitions changes names alone: no query
is read or written for it.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from sparkswarm.errors import StoreError
from sparkswarm.protocol.geometry import CellRect
from sparkswarm.protocol.partition import Partition
from sparkswarm.store.files import FileRef


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
    """

    version: int
    partitions: Mapping[int, tuple[Piece, ...]]
    ledger: tuple[FilePair, ...]

    @classmethod
    def initial(cls, partitions: Iterable[Partition], buckets: int) -> Manifest:
        """Return the manifest of a run without queries."""
        pieces = {p.id: (Piece(p.cells, FilePair()),) for p in partitions}
        return cls(0, pieces, (FilePair(),) * buckets)

    def following(self, old: Iterable[Partition], new: Iterable[Partition]) -> Manifest:
        """Return the manifest for another tiling of the same cells.

        A new partition goes on with the files of the old partitions under its cells.
        """
        old = list(old)
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
        return replace(self, version=self.version + 1, partitions=result)

    def updated(self, partitions: Mapping[int, Piece], ledger: Mapping[int, FilePair]) -> Manifest:
        """Return the manifest after some partitions and buckets were written."""
        return Manifest(
            self.version + 1,
            {**self.partitions, **{key: (piece,) for key, piece in partitions.items()}},
            tuple(ledger.get(i, files) for i, files in enumerate(self.ledger)),
        )

    def refs(self) -> set[FileRef]:
        """Return every file that counts."""
        return {
            ref
            for files in (
                *(piece.files for pieces in self.partitions.values() for piece in pieces),
                *self.ledger,
            )
            for ref in files.refs
        }

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
                        Piece(
                            CellRect(*map(operator.index, cells)), FilePair(ref(base), ref(delta))
                        )
                        for cells, base, delta in pieces
                    )
                    for key, pieces in data["partitions"].items()
                },
                tuple(FilePair(ref(base), ref(delta)) for base, delta in data["ledger"]),
            )
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            raise StoreError(f"this is not a manifest: {error!r}") from error


def _file_ref(name: str, rows: int, size: int, crc: int) -> FileRef:
    if not isinstance(name, str):
        raise TypeError(f"{name!r} is not a name")
    return FileRef(name, operator.index(rows), operator.index(size), operator.index(crc))
