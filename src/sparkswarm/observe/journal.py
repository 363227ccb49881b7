"""The journal of a run: what happened, batch by batch, as lines of JSON.

Owns the entries, their file and how it is read while it grows. It hears of a run as any
observer does and knows nothing of Spark; it needs nothing but Python. Every line is an object
with an ``entry``:

``start``
    The run began or went on: ``time``, ``policy``, ``bounds``, ``grid``, ``executors``, and
    ``offset``, where in the journal this line stands.
``plan``
    The plan changed: ``version``, ``executors``, ids of partitions ``retired``, and partitions
    ``created``. With ``whole`` nothing that was there before counts.
``batch``
    A batch is done: its numbers, those of :class:`~sparkswarm.observe.progress.Progress`.
``decision``
    What was decided after that batch, and why: the fields of
    :func:`~sparkswarm.observe.describe.decision_json`.

The journal is for people who watch. Nothing is recovered from it, so it is not synchronised
with the disk: after a power cut its end may be missing.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

if TYPE_CHECKING:
    from sparkswarm.observe.progress import Progress
    from sparkswarm.protocol.messages import Decision
    from sparkswarm.protocol.partition import Partition
    from sparkswarm.protocol.plan import Plan

IN_CHECKPOINT = "journal/journal.jsonl"
"""Where a checkpoint has its journal."""

MAX_BYTES = 16 * 2**20
"""A journal has at most two files of this size: days of a quiet run, hours of a busy one."""

CHUNK_BYTES = 2**20
"""How much is read at once, about."""

Entry = dict[str, Any]


class Journal:
    """Write down every batch that it is told of; an ``Observer``.

    When the file is full it becomes the older one of two, in place of the one before, and a
    new file begins with the plan in force, so that it can be read alone.

    Parameters
    ----------
    path
        The file; what an earlier start of the run wrote there is kept.
    policy
        The run's policy.
    max_bytes
        How large a file may become. One that a single batch overfills is larger.
    clock
        Tells the time, in seconds since 1970.
    """

    def __init__(
        self,
        path: Path | str,
        policy: str,
        max_bytes: int = MAX_BYTES,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._path = Path(path)
        self._policy = policy
        self._max_bytes = max_bytes
        self._clock = clock
        self._base = 0
        self._plan: Plan | None = None

    def __call__(self, progress: Progress, plan: Plan, decisions: Sequence[Decision]) -> None:
        """Write a batch, what changed in the plan before it, and what was decided after it."""
        now = round(self._clock(), 3)
        batch = [_batch(progress, now), *(_decision(progress.batch, d) for d in decisions)]
        # Should this fail, the next batch mends the file and gives the whole plan.
        known, self._plan = self._plan, None
        size = self._path.stat().st_size if known else self._mend()
        before = _changes(known, plan) if known else self._head(plan, now, size)
        data = _lines(before + batch)
        if size and size + len(data) > self._max_bytes:
            self._path.replace(_older(self._path))
            self._base += size
            data = _lines(self._head(plan, now, 0) + batch)
        # Opened for every batch: nobody says when the run is over and it could be closed.
        with self._path.open("ab") as file:
            file.write(data)
        self._plan = plan

    def _mend(self) -> int:
        """Find out where the journal stands, end its last line, and return the file's size."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            files = _files(self._path, stack)
            if not (files and files[-1].is_newest):
                # There is no file, or one that ends within its first line.
                self._path.unlink(missing_ok=True)
                self._base = files[-1].base + files[-1].size() if files else 0
                return 0
            self._base, size, torn = files[-1].base, files[-1].size(), files[-1].is_torn()
        if torn:
            with self._path.open("ab") as file:
                file.write(b"\n")
        return size + torn

    def _head(self, plan: Plan, now: float, size: int) -> list[Entry]:
        """Return what a reader needs to know first, at the end of a file of such a size."""
        b = plan.grid.bounds
        return [
            {
                "entry": "start",
                "offset": self._base + size,
                "time": now,
                "policy": self._policy,
                "bounds": [b.min_x, b.min_y, b.max_x, b.max_y],
                "grid": [plan.grid.columns, plan.grid.rows],
                "executors": plan.executors,
            },
            *_changes(None, plan),
        ]


def _changes(old: Plan | None, new: Plan) -> list[Entry]:
    """Return an entry for the new plan; none where it is the old one.

    A partition never changes under its id, so ids say it all.
    """
    if old is not None and old.version == new.version:
        return []
    before = {p.id for p in old.partitions} if old else set()
    after = {p.id for p in new.partitions}
    entry: Entry = {"entry": "plan", "version": new.version, "executors": new.executors}
    if old is None:
        entry["whole"] = True
    entry["retired"] = sorted(before - after)
    entry["created"] = [_partition(p) for p in new.partitions if p.id not in before]
    return [entry]


def _partition(partition: Partition) -> Entry:
    entry: Entry = {
        "id": partition.id,
        "cells": list(partition.cells),
        "owners": list(partition.owners),
    }
    if partition.tickets:
        entry["tickets"] = list(partition.tickets)
    return entry


def _batch(progress: Progress, now: float) -> Entry:
    return {
        "entry": "batch",
        "batch": progress.batch,
        "time": now,
        "plan": progress.plan_version,
        "seconds": round(progress.seconds, 4),
        **progress.counts(),
        "balance": round(progress.balance, 4),
        "busy": [round(seconds, 5) for seconds in progress.busy_s],
        "received": list(progress.points_by_executor),
        "loads": sorted(progress.points_by_partition.items()),
        "quarantined": [
            [kind, reason, count] for (kind, reason), count in sorted(progress.quarantined.items())
        ],
    }


def _decision(batch: int, decision: Decision) -> Entry:
    # Not at the top: readers of a journal would wait for numba to load.
    from sparkswarm.observe.describe import decision_json

    return {"entry": "decision", "batch": batch, **decision_json(decision)}


def _lines(entries: Iterable[Entry]) -> bytes:
    return b"".join(json.dumps(e, separators=(",", ":")).encode() + b"\n" for e in entries)


# -- reading -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Chunk:
    """Whole lines of a journal.

    Attributes
    ----------
    start, stop
        Where in the journal they are, in bytes from its very beginning: offsets do not change
        when old lines are dropped.
    end
        Where the journal ended when it was read.
    lines
        The lines.
    """

    start: int
    stop: int
    end: int
    lines: bytes

    def entries(self) -> list[Entry]:
        """Return the entries; a line that a killed process left unfinished is none."""
        found = []
        for line in self.lines.splitlines():
            with suppress(ValueError):
                entry = json.loads(line)
                if isinstance(entry, dict):
                    found.append(entry)
        return found


def read(path: Path | str, since: int = 0, chunk_bytes: int = CHUNK_BYTES) -> Chunk:
    """Return lines from an offset on, at most about ``chunk_bytes``; ask again from their stop.

    Reads no more than it returns, so it can be asked every second. Where the offset is gone,
    because old lines were dropped or another journal is in the place, the chunk starts with
    the oldest line there is, and its ``start`` says so. A journal that is not there yet has
    no lines.
    """
    with ExitStack() as stack:
        files = _files(Path(path), stack)
        if not files:
            return Chunk(since, since, since, b"")
        end = files[-1].base + files[-1].size()
        if not files[0].base <= since <= end:
            since = files[0].base
        for file in files:
            stop = file.base + file.size()
            if since < stop and (lines := file.lines(since, chunk_bytes)):
                # What an unfinished line hides at the end of the older file is skipped.
                start = max(since, file.base)
                return Chunk(start, start + len(lines), end, lines)
        return Chunk(since, since, end, b"")


def find(path: Path | str) -> Path:
    """Return the journal that a path stands for: a checkpoint, its journal's folder, or a file.

    The journal need not be there yet; a path that nothing is at is taken for a checkpoint,
    or for a file if it ends in ``.jsonl``.
    """
    path = Path(path)
    name = Path(IN_CHECKPOINT).name
    if path.is_file() or (path.suffix == Path(name).suffix and not path.is_dir()):
        return path
    return path / name if (path / name).is_file() else path / IN_CHECKPOINT


@dataclass(frozen=True, slots=True)
class _File:
    """One of the two files, open."""

    file: BinaryIO
    base: int
    is_newest: bool

    def size(self) -> int:
        return self.file.seek(0, 2)

    def is_torn(self) -> bool:
        self.file.seek(-1, 2)
        return self.file.read(1) != b"\n"

    def lines(self, since: int, chunk_bytes: int) -> bytes:
        self.file.seek(max(0, since - self.base))
        data = self.file.read(chunk_bytes)
        # A line longer than the chunk must not stop the reader for ever.
        data += self.file.readline()
        return data[: data.rfind(b"\n") + 1]


def _files(path: Path, stack: ExitStack) -> list[_File]:
    """Open what there is of a journal, the older file first."""
    found: list[_File] = []
    # The newer is opened first: should it become the older meanwhile, it is met twice and not
    # missed.
    for name, is_newest in ((path, True), (_older(path), False)):
        with suppress(FileNotFoundError):
            file = stack.enter_context(name.open("rb"))
            base = _base(file.readline())
            if base is not None and base not in [other.base for other in found]:
                found.insert(0, _File(file, base, is_newest))
    return found


def _base(first_line: bytes) -> int | None:
    """Return where in the journal a file begins; None where its first line is no start."""
    with suppress(ValueError, KeyError, TypeError):
        if first_line.endswith(b"\n"):
            return int(json.loads(first_line)["offset"])
    return None


def _older(path: Path) -> Path:
    return path.with_name(path.name + ".1")
