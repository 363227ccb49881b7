"""What a checkpoint keeps besides queries, summed up: the state of queries, and recent points."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sparkswarm.store.files import FileRef
from sparkswarm.store.manifest import BlockRef, StateRef


@dataclass(frozen=True)
class Held:
    """What is kept besides queries, of a partition or of all: state, or recent points.

    Attributes
    ----------
    pieces, files, size
        In how many pieces it lies, in how many files, and their bytes. Partitions may share a
        file.
    rows
        Of state, those of the files, some of which may no longer count. Of points, how many there
        are; about, where a block counts for some of its cells only.
    first, last
        Of state, the watermarks at which there is something to tell; of points, their times. In
        microseconds, None where there are none.
    """

    pieces: int
    files: int
    rows: int
    size: int
    first: int | None
    last: int | None

    @classmethod
    def of_states(cls, states: Iterable[StateRef]) -> Held:
        """Sum up states."""
        states = list(states)
        due = [state.due for state in states if state.due is not None]
        refs = {state.file for state in states}
        return cls._of(len(states), refs, sum(ref.rows for ref in refs), due)

    @classmethod
    def of_blocks(cls, blocks: Iterable[BlockRef]) -> Held:
        """Sum up blocks."""
        blocks = list(blocks)
        times = [time for piece in blocks for time in (piece.meta.oldest, piece.meta.newest)]
        refs = {kept.file for kept in blocks}
        return cls._of(len(blocks), refs, sum(piece.points for piece in blocks), times)

    @classmethod
    def _of(cls, pieces: int, refs: set[FileRef], rows: int, times: list[int]) -> Held:
        size = sum(ref.size for ref in refs)
        return cls(
            pieces, len(refs), rows, size, min(times, default=None), max(times, default=None)
        )

    def to_json(self, first: str, last: str) -> dict[str, Any]:
        """Return a JSON-ready form; the names are those of the two times."""
        return {
            "pieces": self.pieces,
            "files": self.files,
            "rows": self.rows,
            "bytes": self.size,
            first: when(self.first),
            last: when(self.last),
        }


def when(time: int | None) -> str | None:
    """Return a time in microseconds as text; the number itself where no calendar has it."""
    if time is None:
        return None
    try:
        return datetime.fromtimestamp(time // 1_000_000, UTC).isoformat(timespec="seconds")
    except (OverflowError, ValueError, OSError):
        return str(time)
