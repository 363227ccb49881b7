"""Which driver writes a checkpoint, and what keeps an earlier one from writing.

Every driver that opens a checkpoint to write takes the next *writer number*. Resource managers
restart drivers that they believe dead, so the writer before may be alive, and frozen between any
two instructions. Three rules make that harmless, with one operation of the store: to create a file
unless there is one (``Files.create``).

- Records are created, never overwritten, and a new writer *closes* the numbers that the one before
  could write next. A record that comes afterwards has no effect.
- Files are deleted from a list that was made before the writer looked for a later one, and no two
  writers use one name for a file.
- A writer that finds a later one ends with :class:`~sparkswarm.errors.TakenOverError`.

Used by the driver: once at the start, and before each record and each deletion.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from sparkswarm.errors import TakenOverError
from sparkswarm.store.files import Files, Folder
from sparkswarm.store.records import read_json, to_bytes

_RECORD = re.compile(r"\w+/(\d{12})(-\d+)?\.json")


@dataclass(frozen=True)
class Writer:
    """The right of this process to write a checkpoint, until another takes it."""

    files: Files
    number: int

    @classmethod
    def take_over(cls, files: Files) -> Writer:
        """Become the writer; the one before stops when it next looks."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        who = {"host": socket.gethostname(), "process": os.getpid(), "since": now}
        content = to_bytes({**who, "start": uuid4().hex})
        writers = NumberedRecords(files, Folder.WRITERS)
        while True:
            number = max(writers.numbers(), default=0) + 1
            if files.create(writers.name(number), content) and writers.numbers()[-1] == number:
                files.delete(name for name in writers.names() if record_number(name) < number)
                return cls(files, number)

    def check(self) -> None:
        """Raise TakenOverError if another has become the writer."""
        writers = NumberedRecords(self.files, Folder.WRITERS)
        last = max(writers.numbers(), default=0)
        if last <= self.number:
            return
        who = writers.read(last) or {}
        raise TakenOverError(
            f"another driver, process {who.get('process')} on {who.get('host')}, took over "
            f"{self.files.root} at {who.get('since')}, so this one stops. Nothing is lost: the "
            "other goes on from the last commit. If it should not, stop it and start this one again"
        )

    def delete(self, names: Iterable[str]) -> None:
        """Delete files that were listed before, unless another has become the writer."""
        if gone := list(names):
            self.check()
            self.files.delete(gone)


class NumberedRecords:
    """The records of a folder: each number is written once, whoever writes it.

    A file that names a writer closes its own name, to all writers before that one, and sends
    readers on to the name that this writer uses.
    """

    def __init__(self, files: Files, folder: Folder) -> None:
        self._files, self._folder = files, folder

    def name(self, number: int, writer: int | None = None) -> str:
        """Return the name that a number has; after it was closed, the one for a writer."""
        closed = "" if writer is None else f"-{writer}"
        return f"{self._folder}/{number:012d}{closed}.json"

    def names(self) -> list[str]:
        """Return the names of all files of records, without other files in the folder."""
        return [name for name in self._files.list(self._folder) if _RECORD.fullmatch(name)]

    def numbers(self) -> list[int]:
        """Return the numbers that have files, in order."""
        return sorted({record_number(name) for name in self.names()})

    def read(self, number: int) -> dict[str, Any] | None:
        """Return a record; None if it was never written."""
        return self._find(number)[1]

    def create(self, number: int, body: dict[str, Any], writer: Writer) -> bool:
        """Make a record durable, unless there is one; return whether it was written."""
        writer.check()
        name, found = self._find(number, writer)
        if found is None and self._files.create(name, to_bytes(body)):
            return True
        writer.check()
        return False

    def close(self, number: int, writer: Writer) -> None:
        """See that no earlier writer writes a record that is not there yet."""
        while True:
            name, found = self._find(number, writer)
            if found is not None or name == self.name(number, writer.number):
                return
            self._files.create(name, to_bytes({"writer": writer.number}))

    def _find(self, number: int, writer: Writer | None = None) -> tuple[str, dict[str, Any] | None]:
        """Return the name and the content of a record, None while it is not written."""
        name = self.name(number)
        while (body := read_json(self._files, name)) is not None and "writer" in body:
            if writer and body["writer"] > writer.number:
                writer.check()
            name = self.name(number, body["writer"])
        return name, body


def record_number(name: str) -> int:
    """Return the number in the name of a record."""
    return int(name.rsplit("/", 1)[1][:12])
