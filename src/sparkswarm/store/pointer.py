"""The pointer: a file that names what tasks match with while no batch tells them.

In Real-time Mode tasks do not end, so none is sent the next plan. The driver replaces this file
after each commit, and tasks look at it between two packets of points: at its inode, and at its
content when that is another. Not durable: the driver writes it again when it starts.
"""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass

from sparkswarm.store.files import Files
from sparkswarm.store.records import corrupt, read_json, to_bytes

POINTER = "pointer.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pointer:
    """What tasks match with.

    Attributes
    ----------
    batch
        The batch whose commit it is.
    version
        The last batch that changed queries.
    plan, manifest
        Names of the records.
    match_weight
        Number of checks that take as long as one match.
    """

    batch: int
    version: int
    plan: str
    manifest: str
    match_weight: float = 0.0

    def write(self, files: Files) -> None:
        """Replace the pointer; readers get this one or the one before."""
        files.write(POINTER, to_bytes(asdict(self)), durable=False)


def read_pointer(files: Files) -> Pointer | None:
    """Return the pointer; None where there is none."""
    body = read_json(files, POINTER)
    if body is None:
        return None
    try:
        return Pointer(**body)
    except TypeError as error:
        raise corrupt(files, POINTER) from error


class PointerReader:
    """Reads the pointer of a local checkpoint when it has changed."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._path = files.path(POINTER)
        self._seen: tuple[int, int] | None = None

    def changed(self) -> Pointer | None:
        """Return the pointer, or None where it is the one that was returned last."""
        try:
            found = os.stat(self._path)
        except FileNotFoundError:
            return None
        # The number alone might be that of a file that was deleted since.
        state = found.st_ino, found.st_mtime_ns
        if state == self._seen:
            return None
        self._seen = state
        return read_pointer(self._files)

    def forget(self) -> None:
        """Return the pointer next time, even if it has not changed."""
        self._seen = None
