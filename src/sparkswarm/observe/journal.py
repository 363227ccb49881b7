"""The journal of a run: one line of JSON for each batch, change of plan and decision.

Owns the entries, their file, and reading it while it grows. Written on the driver by an observer,
once a batch; read by anyone, without Spark. Every line is an object with an ``entry``:

``start``
    The run started or continued: ``time``, ``policy``, ``rebalances``, ``bounds``, ``grid``,
    ``executors``, and ``offset``, the position of this line in the journal in bytes.
``plan``
    The plan changed: ``version``, ``executors``, ids of partitions ``retired``, and partitions
    ``created``. With ``whole`` it replaces the plan instead of changing it.
``batch``
    A batch is done: its counts and the other numbers of
    :class:`~sparkswarm.observe.progress.Progress`.
``decision``
    A decision after that batch: the fields of
    :func:`~sparkswarm.observe.describe.decision_json`.

Nothing is recovered from the journal, so it is not synced to disk: after a power failure its end
may be missing.
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
"""Path of the journal within a checkpoint."""

MAX_BYTES = 16 * 2**20
"""Maximum size of each of the two files of a journal: days of a quiet run, hours of a busy one."""

CHUNK_BYTES = 2**20
"""About how much :func:`read` returns."""

Entry = dict[str, Any]


class Journal:
    """Writes every batch to a file; an ``Observer``.

    A full file is renamed to ``.1``, replacing the one before, and a new file begins with the
    current plan, so that it can be read alone.

    Parameters
    ----------
    path
        The file; entries of earlier starts of the run are kept.
    policy
        The run's policy.
    max_bytes
        Maximum size of a file, unless a single batch needs more.
    clock
        Returns the time in seconds since 1970.
    rebalances
        Whether the policy changes the plan.
    """

    def __init__(
        self,
        path: Path | str,
        policy: str,
        max_bytes: int = MAX_BYTES,
        clock: Callable[[], float] = time.time,
        *,
        rebalances: bool = True,
    ) -> None:
        self._path = Path(path)
        self._policy = policy
        self._rebalances = rebalances
        self._max_bytes = max_bytes
        self._clock = clock
        self._base = 0
        self._plan: Plan | None = None

    def __call__(self, progress: Progress, plan: Plan, decisions: Sequence[Decision]) -> None:
        """Write a batch, the change of plan before it, and the decisions after it."""
        now = round(self._clock(), 3)
        batch = [_batch(progress, now), *(_decision(progress.batch, d) for d in decisions)]
        # If writing fails, the next batch repairs the file and writes the whole plan.
        known, self._plan = self._plan, None
        size = self._path.stat().st_size if known else self._repair()
        before = _changes(known, plan) if known else self._head(plan, now, size)
        data = _lines(before + batch)
        if size and size + len(data) > self._max_bytes:
            self._path.replace(_older(self._path))
            self._base += size
            data = _lines(self._head(plan, now, 0) + batch)
        # Opened for every batch: an observer is not told when the run ends.
        with self._path.open("ab") as file:
            file.write(data)
        self._plan = plan

    def _repair(self) -> int:
        """Find the journal's offset, end a torn last line, and return the file's size."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            files = _files(self._path, stack)
            if not (files and files[-1].is_newest):
                # There is no file, or its first line is torn.
                self._path.unlink(missing_ok=True)
                self._base = files[-1].base + files[-1].size() if files else 0
                return 0
            self._base, size, torn = files[-1].base, files[-1].size(), files[-1].is_torn()
        if torn:
            with self._path.open("ab") as file:
                file.write(b"\n")
        return size + torn

    def _head(self, plan: Plan, now: float, size: int) -> list[Entry]:
        """Return the entries from which a reader can start, for a file of ``size`` bytes."""
        b = plan.grid.bounds
        return [
            {
                "entry": "start",
                "offset": self._base + size,
                "time": now,
                "policy": self._policy,
                "rebalances": self._rebalances,
                "bounds": [b.min_x, b.min_y, b.max_x, b.max_y],
                "grid": [plan.grid.columns, plan.grid.rows],
                "executors": plan.executors,
            },
            *_changes(None, plan),
        ]


def _changes(old: Plan | None, new: Plan) -> list[Entry]:
    """Return an entry for the new plan; none if its version is the old one.

    A partition never changes under its id, so comparing ids is enough.
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
        "lag": round(progress.lag_s, 3),
        "busy": [round(seconds, 5) for seconds in progress.busy_s],
        "received": list(progress.points_by_executor),
        "loads": sorted(progress.points_by_partition.items()),
        "loans": [list(loan) for loan in progress.loans],
        "hosts": [use._asdict() for use in progress.hosts],
        **({} if progress.unread_rows is None else {"unread": progress.unread_rows}),
        # JSON has no infinity.
        **({"latency": min(99.0, progress.latency_s(0.99) or 0.0)} if progress.latency else {}),
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
    """Complete lines of a journal.

    Attributes
    ----------
    start, stop
        Their offsets, in bytes since the journal's beginning; dropping old lines does not
        change them.
    end
        Offset of the journal's end when it was read.
    """

    start: int
    stop: int
    end: int
    lines: bytes

    def entries(self) -> list[Entry]:
        """Return the entries; a line that a killed process left torn is skipped."""
        found = []
        for line in self.lines.splitlines():
            with suppress(ValueError):
                entry = json.loads(line)
                if isinstance(entry, dict):
                    found.append(entry)
        return found


def read(path: Path | str, since: int = 0, chunk_bytes: int = CHUNK_BYTES) -> Chunk:
    """Return the lines from an offset on, about ``chunk_bytes`` of them; continue at their stop.

    Reads no more than it returns, so polling is cheap. If the offset no longer exists, because
    old lines were dropped or another journal took its place, the chunk starts at the oldest line.
    A journal that does not exist yet has no lines.
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
                # A torn line at the end of the older file is skipped.
                start = max(since, file.base)
                return Chunk(start, start + len(lines), end, lines)
        return Chunk(since, since, end, b"")


def find(path: Path | str) -> Path:
    """Return the journal of a checkpoint, of a journal's folder, or a journal's file itself.

    The journal need not exist yet: a path that does not exist is taken for a checkpoint, or for
    a file if it ends in ``.jsonl``.
    """
    path = Path(path)
    name = Path(IN_CHECKPOINT).name
    if path.is_file() or (path.suffix == Path(name).suffix and not path.is_dir()):
        return path
    return path / name if (path / name).is_file() else path / IN_CHECKPOINT


@dataclass(frozen=True, slots=True)
class _File:
    """One of the two files of a journal, open for reading."""

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
        # A line longer than the chunk must not stop the reader.
        data += self.file.readline()
        return data[: data.rfind(b"\n") + 1]


def _files(path: Path, stack: ExitStack) -> list[_File]:
    """Open the files of a journal that exist, the older first."""
    found: list[_File] = []
    # The newer is opened first: if it is renamed meanwhile, it is found twice instead of never.
    for name, is_newest in ((path, True), (_older(path), False)):
        with suppress(FileNotFoundError):
            file = stack.enter_context(name.open("rb"))
            base = _base(file.readline())
            if base is not None and base not in [other.base for other in found]:
                found.insert(0, _File(file, base, is_newest))
    return found


def _base(first_line: bytes) -> int | None:
    """Return a file's offset in the journal; None if its first line is not a start entry."""
    with suppress(ValueError, KeyError, TypeError):
        if first_line.endswith(b"\n"):
            return int(json.loads(first_line)["offset"])
    return None


def _older(path: Path) -> Path:
    return path.with_name(path.name + ".1")
