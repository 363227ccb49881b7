"""Epochs: the durable records of a run, written before and after every batch.

Owns the records and how long they are kept. An *epoch* names the plan, the manifest and the time
under which a batch runs; it is on disk before the batch begins, so a batch that runs again does the
same. A *commit* names the manifest after the batch. Used by the driver, once before and once after
every batch.
"""

from __future__ import annotations

import json
import re
import zlib
from dataclasses import dataclass
from typing import Any, TypeVar

from sparkswarm.errors import ConfigError, PlanError, StoreError
from sparkswarm.protocol.plan import Plan
from sparkswarm.store.blocks import MIN_TIME
from sparkswarm.store.files import Files, Folder
from sparkswarm.store.manifest import Manifest

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
)
"""Folders whose files are deleted as soon as no record refers to them."""

_Record = TypeVar("_Record", Plan, Manifest)


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
    """

    batch: int
    clock: int
    plan: Plan
    manifest: Manifest
    watermark: int = MIN_TIME
    previous_watermark: int = MIN_TIME


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
        Latest event time so far, in microseconds; 0 before the first event.
    watermark
        The watermark of the batch.
    """

    batch: int
    plan: Plan
    manifest: Manifest
    max_event_time: int = 0
    watermark: int = MIN_TIME


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
        self._written: dict[str, Plan | Manifest] = {}
        self._needed: dict[str, set[str]] = {}

    # -- the run ---------------------------------------------------------------------------

    def check_run(self, facts: dict[str, Any]) -> None:
        """Record what must not change during a run, or compare it with the record.

        Without facts nothing is written: for those who only read.
        """
        found = self._read("run.json")
        if found is None:
            self._write("run.json", {"format": FORMAT, **facts})
            return
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
        names = self._records(Folder.COMMITS)
        return self.commit_of(_number(names[-1])) if names else None

    def commit_of(self, batch: int) -> Commit | None:
        """Return the commit of a batch; None if there is none."""
        found = self._read(_name(Folder.COMMITS, batch))
        if found is None:
            return None
        plan, manifest = self._named(found)
        return Commit(
            batch=batch,
            plan=plan,
            manifest=manifest,
            max_event_time=int(found["clock"]),
            watermark=int(found["watermark"]),
        )

    def epoch_of(self, batch: int) -> Epoch | None:
        """Return the epoch of a batch; None if it has never begun."""
        found = self._read(_name(Folder.EPOCHS, batch))
        if found is None:
            return None
        plan, manifest = self._named(found)
        previous_watermark, watermark = map(int, found["moment"])
        return Epoch(
            batch=batch,
            clock=int(found["time"]),
            plan=plan,
            manifest=manifest,
            watermark=watermark,
            previous_watermark=previous_watermark,
        )

    def begin(self, epoch: Epoch) -> None:
        """Make an epoch durable, before its batch runs."""
        named = self._stored(epoch.plan, epoch.manifest)
        moment = [epoch.previous_watermark, epoch.watermark]
        record = {"time": epoch.clock, "moment": moment, **named}
        self._write(_name(Folder.EPOCHS, epoch.batch), record)

    def commit(self, commit: Commit) -> None:
        """Make a commit durable."""
        named = self._stored(commit.plan, commit.manifest)
        record = {"clock": commit.max_event_time, "watermark": commit.watermark, **named}
        self._write(_name(Folder.COMMITS, commit.batch), record)

    def collect_garbage(self) -> int:
        """Delete the files that no replayable batch needs; return their number.

        Only between batches: no record refers yet to the files of a running batch.
        """
        commits, epochs = self._records(Folder.COMMITS), self._records(Folder.EPOCHS)
        last = _number(commits[-1]) if commits else INITIAL
        # To run again, a batch needs its epoch and the commit of the batch before.
        old = [name for name in epochs if _number(name) <= last - self._replayable]
        old += [name for name in commits if _number(name) < last - self._replayable]
        needed: set[str] = set()
        for name in {*commits, *epochs} - set(old):
            record = self._read(name) or {}
            needed |= {_numbered(Folder.PLANS, record["plan"])}
            needed |= {_numbered(Folder.MANIFESTS, record["manifest"])}
        manifests = [name for name in needed if name.startswith(f"{Folder.MANIFESTS}/")]
        for name in manifests:
            if name not in self._needed:
                self._needed[name] = {ref.name for ref in self._load(Manifest, name).files()}
            needed |= self._needed[name]
        self._needed = {name: self._needed[name] for name in manifests}
        stored = [name for folder in _COLLECTED for name in self._files.list(folder)]
        gone = old + [name for name in stored if name not in needed]
        self._files.delete(gone)
        return len(gone)

    # -- files -----------------------------------------------------------------------------

    def _records(self, folder: str) -> list[str]:
        """Return the names of epochs or commits in order, without other files in the folder."""
        return [name for name in self._files.list(folder) if _RECORD.fullmatch(name)]

    def _stored(self, plan: Plan, manifest: Manifest) -> dict[str, int]:
        """Write plan and manifest unless they are the last written; return their versions."""
        records: dict[str, Plan | Manifest] = {Folder.PLANS: plan, Folder.MANIFESTS: manifest}
        for folder, record in records.items():
            if self._written.get(folder) != record:
                name = _numbered(folder, record.version)
                self._write(name, record.to_json())
                self._written[folder] = record
                # A batch that runs again writes another manifest of the same number.
                self._needed.pop(name, None)
        return {"plan": plan.version, "manifest": manifest.version}

    def _named(self, record: dict[str, Any]) -> tuple[Plan, Manifest]:
        return (
            self._load(Plan, _numbered(Folder.PLANS, record["plan"])),
            self._load(Manifest, _numbered(Folder.MANIFESTS, record["manifest"])),
        )

    def _load(self, kind: type[_Record], name: str) -> _Record:
        found = self._read(name)
        if found is None:
            raise StoreError(
                f"{name} is missing from {self._files.root}; the checkpoint is damaged: restore "
                "it from a copy, or start again with another checkpoint"
            )
        try:
            return kind.from_json(found)
        except (PlanError, StoreError) as error:
            raise self._corrupt(name) from error

    def _corrupt(self, name: str) -> StoreError:
        return StoreError(
            f"{name} in {self._files.root} is corrupt; restore it from a copy, or start again "
            "with another checkpoint"
        )

    def _write(self, name: str, body: dict[str, Any]) -> None:
        text = json.dumps(body, separators=(",", ":"))
        crc = zlib.crc32(text.encode())
        self._files.write(name, f'{{"crc":{crc},"body":{text}}}'.encode())

    def _read(self, name: str) -> dict[str, Any] | None:
        content = self._files.read(name)
        if content is None:
            return None
        try:
            record = json.loads(content)
            body: dict[str, Any] = record["body"]
            whole = record["crc"] == zlib.crc32(json.dumps(body, separators=(",", ":")).encode())
        except (KeyError, TypeError, ValueError):
            whole = False
        if not whole:
            raise self._corrupt(name)
        return body


_RECORD = re.compile(r"\w+/\d{12}\.json")


def _numbered(folder: str, number: int) -> str:
    return f"{folder}/{number:012d}.json"


def _name(folder: str, batch: int) -> str:
    # One more than the batch: the initial commit has number 0, and names sort as numbers.
    return _numbered(folder, batch + 1)


def _number(name: str) -> int:
    return int(name.rsplit("/", 1)[1].removesuffix(".json")) - 1
