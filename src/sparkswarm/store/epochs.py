"""Epochs: the durable records of a run, written before and after every batch.

Owns the records and how long they are kept. An *epoch* names the plan, the manifest and the time
under which a batch runs; it is on disk before the batch begins, so a batch that runs again does the
same. A *commit* names the manifest after the batch. Used by the driver, once before and once after
every batch.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from sparkswarm.errors import ConfigError, StoreError
from sparkswarm.protocol.plan import Plan
from sparkswarm.store.blocks import MAX_TIME, MIN_TIME
from sparkswarm.store.files import Files, Folder
from sparkswarm.store.manifest import Manifest
from sparkswarm.store.records import RecordFiles, read_json, to_bytes
from sparkswarm.store.writers import NumberedRecords, Writer, record_number

FORMAT = 3
"""Version of the checkpoint as a whole; other code must not read it if this differs."""

MIGRATED = 2
"""The format that is read too: its queries are written anew by the first batch that runs."""

INITIAL = -1
"""Number of the batch whose commit a run starts with."""

_COLLECTED = (
    Folder.PLANS,
    Folder.MANIFESTS,
    Folder.SEGMENTS,
    Folder.DELTAS,
    Folder.LEDGER,
    Folder.STATES,
    Folder.BLOCKS,
    Folder.OBJECTS,
)
"""Folders whose files are deleted as soon as no record refers to them."""


@dataclass(frozen=True, slots=True)
class StoredEpoch:
    """Names of the plan and the manifest of a record, and the manifest with that name."""

    plan_name: str
    manifest_name: str
    manifest: Manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class Epoch:
    """What fixes a batch before it runs.

    Attributes
    ----------
    batch
        Spark's number of the batch.
    clock
        The present in this batch, in microseconds since 1970: the same however often it runs.
    plan, manifest
        The partitions, and the files before the batch's own operations.
    watermark, previous_watermark
        The watermark of this batch, and of the batch before.
    latest_time
        Points with a later time are rejected.
    stored
        Where the plan is stored, and the manifest as it was before the batch; None while they are
        not.
    """

    batch: int
    clock: int
    plan: Plan
    manifest: Manifest
    watermark: int = MIN_TIME
    previous_watermark: int = MIN_TIME
    latest_time: int = MAX_TIME
    stored: StoredEpoch | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """The outcome of a batch.

    Attributes
    ----------
    batch
        Spark's number of the batch, or INITIAL.
    plan, manifest
        The partitions in this batch, and the files after it.
    max_event_time
        Latest event time after the batch, in microseconds; MIN_TIME before the first event.
    watermark
        The watermark of the batch.
    stored
        Where plan and manifest are stored; None while they are not.
    """

    batch: int
    plan: Plan
    manifest: Manifest
    max_event_time: int = MIN_TIME
    watermark: int = MIN_TIME
    stored: StoredEpoch | None = field(default=None, compare=False)


class Epochs:
    """The records of one run, in a folder.

    Parameters
    ----------
    files
        The checkpoint.
    replayable
        Number of past batches that can run again; files that only older ones need are deleted.
    """

    def __init__(self, files: Files, replayable: int) -> None:
        self._files = files
        self._replayable = replayable
        self._record_files = RecordFiles(files)
        self._commits = NumberedRecords(files, Folder.COMMITS)
        self._epochs = NumberedRecords(files, Folder.EPOCHS)
        self._needed: dict[str, set[str]] = {}
        self._writer: Writer | None = None
        self._cleaning = threading.Lock()
        self._pinned: dict[object, StoredEpoch] = {}

    # -- who writes ------------------------------------------------------------------------

    def take_over(self) -> None:
        """Become the one that writes; any driver that was it before can write no more."""
        self._writer = writer = Writer.take_over(self._files)
        if writer.number > 1:
            # One that has looked for a later writer may still write one record, the next.
            following = _slot(self._last_batch() + 1)
            for records in (self._commits, self._epochs):
                records.close(following, writer)

    @property
    def writer(self) -> Writer:
        """The right to write, which :meth:`take_over` gives."""
        if self._writer is None:
            raise StoreError(f"{self._files.root} is open for reading only")
        return self._writer

    # -- the run ---------------------------------------------------------------------------

    def check_run(self, facts: dict[str, Any]) -> None:
        """Record what must not change during a run, or compare it with the record.

        Without facts nothing is written: for those who only read.
        """
        found = self._read("run.json")
        if found is None:
            body = {"format": FORMAT, **facts}
            if self._files.create("run.json", to_bytes(body)):
                return
            found = self._read("run.json") or body
        if found.get("format") not in (MIGRATED, FORMAT):
            raise StoreError(
                f"{self._files.root} was written in format {found.get('format')}, this version of "
                f"sparkswarm reads formats {MIGRATED} and {FORMAT}; use the version that wrote it, "
                "or start with another checkpoint and preload the queries"
            )
        for name, value in facts.items():
            if found.get(name) != value:
                raise ConfigError(
                    f"{name} is {value}, but the checkpoint {self._files.root} was made with "
                    f"{found.get(name)}; use that, or another checkpoint"
                )
        if facts and found["format"] == MIGRATED:
            self._write("run.json", {"format": FORMAT, **facts})

    def run_fact(self, name: str) -> Any:
        """Return a fact that :meth:`check_run` recorded; None if there is no run yet."""
        return (self._read("run.json") or {}).get(name)

    # -- the records -----------------------------------------------------------------------

    def last_commit(self) -> Commit | None:
        """Return the commit of the last batch; None if there is no run yet."""
        last = self._last_batch()
        return self.commit_of(last) if last >= INITIAL else None

    def _last_batch(self) -> int:
        """Return the last batch that has a commit; one before INITIAL if none has."""
        for number in reversed(self._commits.numbers()):
            if self._commits.read(number) is not None:
                return _batch(number)
        return INITIAL - 1

    def commit_of(self, batch: int) -> Commit | None:
        """Return the commit of a batch; None if there is none."""
        found = self._commits.read(_slot(batch))
        if found is None:
            return None
        stored = self._named(found)
        return Commit(
            batch=batch,
            plan=self._plan(stored),
            manifest=stored.manifest,
            # Of older checkpoints: "clock", 0 before the first event.
            max_event_time=int(
                found["latest"] if "latest" in found else found["clock"] or MIN_TIME
            ),
            watermark=int(found["watermark"]),
            stored=stored,
        )

    def epoch_of(self, batch: int) -> Epoch | None:
        """Return the epoch of a batch; None if it has never begun."""
        found = self._epochs.read(_slot(batch))
        if found is None:
            return None
        stored = self._named(found)
        previous_watermark, watermark = map(int, found["moment"])
        return Epoch(
            batch=batch,
            clock=int(found["time"]),
            plan=self._plan(stored),
            manifest=stored.manifest,
            watermark=watermark,
            previous_watermark=previous_watermark,
            latest_time=int(found.get("latest_time", MAX_TIME)),
            stored=stored,
        )

    def begun(self) -> list[int]:
        """Return the batches that have an epoch, in order."""
        numbers = self._epochs.numbers()
        return [_batch(n) for n in numbers if self._epochs.read(n) is not None]

    def begin(self, epoch: Epoch) -> Epoch:
        """Make an epoch durable, before its batch runs; return the one that the batch has."""
        stored = self._stored(epoch.plan, epoch.manifest)
        moment = [epoch.previous_watermark, epoch.watermark]
        names = {"plan": stored.plan_name, "manifest": stored.manifest_name}
        times = {"time": epoch.clock, "moment": moment, "latest_time": epoch.latest_time}
        if self._epochs.create(_slot(epoch.batch), {**times, **names}, self.writer):
            return replace(epoch, stored=stored)
        return self.epoch_of(epoch.batch) or epoch

    def commit(self, commit: Commit) -> Commit:
        """Make a commit durable; return the one that counts.

        A batch that runs again after its commit has the one that it has: the same queries and
        state, in other files.
        """
        stored = self._stored(commit.plan, commit.manifest)
        names = {"plan": stored.plan_name, "manifest": stored.manifest_name}
        record = {"latest": commit.max_event_time, "watermark": commit.watermark, **names}
        if self._commits.create(_slot(commit.batch), record, self.writer):
            return replace(commit, stored=stored)
        return self.commit_of(commit.batch) or commit

    @contextmanager
    def pinned(self) -> Iterator[Commit | None]:
        """Give the last commit, whose files stay until this ends; from any thread."""
        with self._cleaning:
            commit = self.last_commit()
            pin = object()
            if commit is not None and commit.stored is not None:
                self._pinned[pin] = commit.stored
        try:
            yield commit
        finally:
            with self._cleaning:
                self._pinned.pop(pin, None)

    def collect_garbage(self) -> int:
        """Delete the files that no replayable batch needs; return their number.

        Only between batches: no record refers yet to the files of a running batch.
        """
        with self._cleaning:
            return self._collect_garbage()

    def _collect_garbage(self) -> int:
        last = self._last_batch()
        # To run again, a batch needs its epoch and the commit of the batch before.
        kept: list[dict[str, Any] | None] = []
        old: list[str] = []
        for records, oldest in (
            (self._commits, last - self._replayable),
            (self._epochs, last - self._replayable + 1),
        ):
            old += [name for name in records.names() if record_number(name) < _slot(oldest)]
            kept += [records.read(n) for n in records.numbers() if n >= _slot(oldest)]
        needed: set[str] = set()
        manifests: set[str] = set()
        for stored in [*(self._named(r) for r in kept if r), *self._pinned.values()]:
            self._plan(stored)
            needed |= self._record_files.needed(stored.plan_name)
            needed |= self._record_files.needed(stored.manifest_name)
            manifests.add(stored.manifest_name)
            if stored.manifest_name not in self._needed:
                self._needed[stored.manifest_name] = stored.manifest.file_names()
        self._needed = {name: self._needed[name] for name in manifests}
        needed = needed.union(*self._needed.values())
        self._record_files.retain(needed)
        present = [name for folder in _COLLECTED for name in self._files.list(folder)]
        gone = old + [name for name in present if name not in needed]
        self.writer.delete(gone)
        return len(gone)

    # -- files -----------------------------------------------------------------------------

    def _stored(self, plan: Plan, manifest: Manifest) -> StoredEpoch:
        """Write plan and manifest unless they are the last written; return their names."""
        writer = self.writer.number
        plan_name = self._record_files.write(plan, writer)
        return StoredEpoch(plan_name, self._record_files.write(manifest, writer), manifest)

    def _named(self, record: dict[str, Any]) -> StoredEpoch:
        plan = _record_name(Folder.PLANS, record["plan"])
        name = _record_name(Folder.MANIFESTS, record["manifest"])
        return StoredEpoch(plan, name, self._record_files.read(Manifest, name))

    def _plan(self, stored: StoredEpoch) -> Plan:
        return self._record_files.read(Plan, stored.plan_name)

    def _write(self, name: str, body: dict[str, Any]) -> None:
        self._files.write(name, to_bytes(body))

    def _read(self, name: str) -> dict[str, Any] | None:
        return read_json(self._files, name)


def _record_name(folder: str, name: str | int) -> str:
    # Of older checkpoints: a number.
    return f"{folder}/{name:012d}.json" if isinstance(name, int) else name


def _slot(batch: int) -> int:
    """Return the number of a batch's records: that of the initial commit is 0."""
    return batch - INITIAL


def _batch(slot: int) -> int:
    return slot + INITIAL
