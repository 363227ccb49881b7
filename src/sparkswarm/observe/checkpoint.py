"""What a checkpoint says: the plan and why it is so, what is stored, what went wrong.

Reads a checkpoint without Spark and changes nothing in it, so it may be asked while the run goes
on. Owns what is known, not how it looks; :mod:`sparkswarm.observe.tables` shows it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow import fs

from sparkswarm.apps.application import NO_WATERMARK
from sparkswarm.errors import StoreError
from sparkswarm.observe import journal
from sparkswarm.observe.held import Held, when
from sparkswarm.protocol.partition import Partition
from sparkswarm.store.epochs import INITIAL, Commit, Epochs
from sparkswarm.store.files import FileRef, Files, local_path
from sparkswarm.store.manifest import SegmentFiles
from sparkswarm.store.quarantine import FOLDER as QUARANTINE

OF_QUERIES = ("segments", "ledger")
HELD = ("states", "blocks")
"""Folders of a checkpoint: files with queries, and with what is kept besides."""

RECORD = re.compile(r"\w+/(\d{12})\.json")
"""The name of an epoch or a commit; the number is one more than its batch."""


@dataclass(frozen=True)
class RecordedDecision:
    """A decision as the journal has it.

    ``entry`` is the journal's, see :func:`sparkswarm.observe.describe.decision_json`. Journals of
    earlier versions have only its round and its text.
    """

    entry: Mapping[str, Any]

    @property
    def batch(self) -> int | None:
        """The batch after which it was decided."""
        return self.entry.get("batch")

    @property
    def round(self) -> int:
        """The round it belongs to."""
        return int(self.entry["round"])

    @property
    def kind(self) -> str | None:
        """The value of its :class:`DecisionKind`; None in journals of earlier versions."""
        return self.entry.get("kind")

    @property
    def is_change(self) -> bool:
        """Whether it changed the plan."""
        return bool(self.entry.get("made"))

    @property
    def created(self) -> list[int]:
        """The ids of the partitions that it created."""
        changes = self.entry.get("changes", ()) if self.is_change else ()
        return [number for change in changes for number in change["created"]]

    @property
    def lines(self) -> list[tuple[str, str]]:
        """(what, reason) of each change that has a reason of its own; else one pair of text."""
        changes = self.entry.get("changes", ())
        if changes and all("reason" in change for change in changes):
            return [(change["what"], change["reason"]) for change in changes]
        return [(str(self.entry["what"]), str(self.entry["reason"]))]


@dataclass(frozen=True)
class PartitionFacts:
    """A partition, and what is stored for it.

    Attributes
    ----------
    partition
        The partition.
    share
        Its part of the space.
    base, delta
        Rows of its files; after a split the files of the whole may serve its parts.
    size
        Bytes of its files.
    why
        The decision that made it, where the journal remembers it.
    states, blocks
        The state of queries at home in it, and its recent points.
    """

    partition: Partition
    share: float
    base: int
    delta: int
    size: int
    why: RecordedDecision | None
    states: Held
    blocks: Held


@dataclass(frozen=True)
class Explained:
    """A checkpoint.

    Attributes
    ----------
    folder
        Where it is.
    facts
        What does not change during the run.
    commit
        What the last batch left; None before the first.
    runs_again
        Batches that can run again.
    under_way
        A batch that began and is not done; it is running, or will when the run goes on.
    partitions
        The partitions of the plan, in order of id.
    stored
        Files that are there, by folder.
    missing, damaged
        Files that count and are not there, or have another content than they had.
    quarantined
        Bad rows by kind and reason.
    decisions
        From the journal, oldest first; none where there is no journal.
    """

    folder: str
    facts: Mapping[str, Any]
    commit: Commit | None
    runs_again: tuple[int, ...]
    under_way: int | None
    partitions: tuple[PartitionFacts, ...]
    stored: Mapping[str, int]
    missing: tuple[str, ...]
    damaged: tuple[str, ...]
    quarantined: Mapping[tuple[str, str], int]
    decisions: tuple[RecordedDecision, ...]

    @property
    def is_whole(self) -> bool:
        """Whether all that counts is there, as far as was looked."""
        return not self.missing and not self.damaged

    @property
    def states(self) -> Held:
        """The state that is kept for queries."""
        held = self.commit.manifest.states.values() if self.commit else ()
        return Held.of_states(state for some in held for state in some)

    @property
    def blocks(self) -> Held:
        """The recent points that are kept."""
        held = self.commit.manifest.blocks.values() if self.commit else ()
        return Held.of_blocks(kept for some in held for kept in some)

    def files(self, folder: str) -> dict[str, tuple[int, int, int]]:
        """Return files, rows and bytes with queries that count, of bases and of deltas."""
        found: dict[str, tuple[int, int, int]] = {}
        if self.commit is None:
            return found
        manifest = self.commit.manifest
        pieces = [piece.files for pieces in manifest.partitions.values() for piece in pieces]
        pairs: Iterable[SegmentFiles] = pieces if folder == "segments" else manifest.ledger
        pairs = list(pairs)
        for kind in ("base", "delta"):
            refs = {ref for pair in pairs if (ref := getattr(pair, kind)) is not None}
            found[kind] = (len(refs), sum(r.rows for r in refs), sum(r.size for r in refs))
        return found

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-ready form."""
        commit = self.commit
        plan = commit.plan if commit else None
        return {
            "checkpoint": self.folder,
            **self.facts,
            "last_batch": commit.batch if commit and commit.batch > INITIAL else None,
            "clock": event_time(commit),
            "watermark": watermark(commit),
            "under_way": self.under_way,
            "runs_again": list(self.runs_again),
            "plan": None
            if plan is None
            else {
                "version": plan.version,
                "executors": plan.executors,
                "partitions": [_partition_json(facts) for facts in self.partitions],
            },
            "manifest": commit.manifest.version if commit else None,
            "files": {
                folder: {
                    "stored": self.stored[folder],
                    **{
                        kind: {"files": files, "rows": rows, "bytes": size}
                        for kind, (files, rows, size) in self.files(folder).items()
                    },
                }
                for folder in OF_QUERIES
            },
            "states": {"stored": self.stored["states"], **_states_json(self.states)},
            "blocks": {"stored": self.stored["blocks"], **_blocks_json(self.blocks)},
            "missing": list(self.missing),
            "damaged": list(self.damaged),
            "quarantined": [
                {"kind": kind, "reason": reason, "rows": rows}
                for (kind, reason), rows in sorted(self.quarantined.items())
            ],
            "decisions": [dict(decision.entry) for decision in self.decisions],
        }


def explain_checkpoint(folder: str, verify: bool = False) -> Explained:
    """Read what a checkpoint says.

    Parameters
    ----------
    folder
        The checkpoint, a local path or a URI.
    verify
        Read every file that counts and compare its checksum; otherwise only see that it is
        there.

    Raises
    ------
    StoreError
        If it is no checkpoint, is damaged beyond reading, or was written in another format.
    """
    found = _explained(folder, verify)
    while not found.is_whole:
        again = _explained(folder, verify)
        # What a run that goes on needs no longer, it deletes.
        if again.commit == found.commit:
            break
        found = again
    return found


def _explained(folder: str, verify: bool) -> Explained:
    root = str(local_path(folder) or folder.rstrip("/"))
    files = Files(f"{root}/swarm")
    epochs = Epochs(files, keep=0)
    if epochs.run_fact("format") is None:
        raise StoreError(_no_checkpoint(root))
    epochs.check_run({})  # refuses another format
    facts = {name: epochs.run_fact(name) for name in ("bounds", "grid", "buckets")}
    commit = epochs.last_commit()
    begun = _batches(files, "epochs")
    done = commit.batch if commit else INITIAL - 1
    decisions = _decisions(root)
    refs = sorted(commit.manifest.files() if commit else (), key=lambda ref: ref.name)
    stored = {folder: files.names(folder) for folder in (*OF_QUERIES, *HELD)}
    there = {name for names in stored.values() for name in names}
    return Explained(
        folder=root,
        facts=facts,
        commit=commit,
        runs_again=tuple(batch for batch in begun if batch > INITIAL),
        under_way=begun[-1] if begun and begun[-1] > done else None,
        partitions=_partitions(commit, decisions) if commit else (),
        stored={name: len(names) for name, names in stored.items()},
        missing=tuple(ref.name for ref in refs if ref.name not in there),
        damaged=tuple(_damaged(files, [r for r in refs if r.name in there])) if verify else (),
        quarantined=_quarantined(files),
        decisions=decisions,
    )


def event_time(commit: Commit | None) -> str | None:
    """Return the latest event time as text; None where events have no time."""
    return None if commit is None or commit.max_event_time <= 0 else when(commit.max_event_time)


def watermark(commit: Commit | None) -> str | None:
    """Return the watermark of the last batch as text; None where there is none."""
    return None if commit is None or commit.watermark == NO_WATERMARK else when(commit.watermark)


def _no_checkpoint(root: str) -> str:
    path = local_path(root)
    if path is not None and not path.exists():
        return f"{root} does not exist; give the folder that the run has as its checkpoint"
    if path is not None and (path / "run.json").exists():
        return f"{root} is a part of a checkpoint; give the folder above it, {path.parent}"
    return (
        f"{root} is not a checkpoint of sparkswarm: it has no swarm/run.json; give the folder "
        "that the run has as its checkpoint"
    )


def _batches(files: Files, folder: str) -> list[int]:
    found = (RECORD.fullmatch(name) for name in files.names(folder))
    return [int(match[1]) - 1 for match in found if match]


def _partitions(
    commit: Commit, decisions: tuple[RecordedDecision, ...]
) -> tuple[PartitionFacts, ...]:
    plan, manifest = commit.plan, commit.manifest
    made_by = {number: decision for decision in decisions for number in decision.created}
    found = []
    for partition in plan.partitions:
        pairs = [piece.files for piece in manifest.partitions.get(partition.id, ())]
        bases = {pair.base for pair in pairs if pair.base}
        deltas = {pair.delta for pair in pairs if pair.delta}
        found.append(
            PartitionFacts(
                partition,
                partition.cells.area / plan.grid.cells.area,
                sum(ref.rows for ref in bases),
                sum(ref.rows for ref in deltas),
                sum(ref.size for ref in bases | deltas),
                made_by.get(partition.id),
                Held.of_states(manifest.states.get(partition.id, ())),
                Held.of_blocks(manifest.blocks.get(partition.id, ())),
            )
        )
    return tuple(found)


def _partition_json(facts: PartitionFacts) -> dict[str, Any]:
    p = facts.partition
    return {
        "id": p.id,
        "cells": list(p.cells),
        "share_of_space": facts.share,
        "owners": list(p.owners),
        "tickets": list(p.tickets),
        "parents": list(p.parents),
        "previous_owners": list(p.previous_owners),
        "rows": {"base": facts.base, "delta": facts.delta},
        "bytes": facts.size,
        "states": _states_json(facts.states),
        "blocks": _blocks_json(facts.blocks),
        "why": None
        if facts.why is None
        else f"{facts.why.entry['what']} ({facts.why.entry['reason']})",
    }


def _states_json(held: Held) -> dict[str, Any]:
    return held.to_json("due", "last_due")


def _blocks_json(held: Held) -> dict[str, Any]:
    return held.to_json("oldest", "newest")


def _damaged(files: Files, refs: Iterable[FileRef]) -> Iterable[str]:
    for ref in refs:
        try:
            files.map(ref)
        except StoreError:
            yield ref.name


def _quarantined(files: Files) -> dict[tuple[str, str], int]:
    """Count the bad rows; only two columns are read."""
    path = local_path(files.root)
    system: fs.FileSystem
    if path is not None:
        system, root = fs.LocalFileSystem(), str(path)
    else:
        system, root = fs.FileSystem.from_uri(files.root)
    selector = fs.FileSelector(f"{root}/{QUARANTINE}", recursive=True, allow_not_found=True)
    names = [info.path for info in system.get_file_info(selector) if info.extension == "parquet"]
    counts: Counter[tuple[str, str]] = Counter()
    try:
        if names:
            rows = ds.dataset(names, filesystem=system, format="parquet")
            for batch in rows.to_batches(columns=["kind", "reason"]):
                counts.update(zip(*(column.to_pylist() for column in batch.columns), strict=True))
    except (pa.ArrowException, OSError) as error:
        raise StoreError(f"the quarantine in {files.root} cannot be read: {error}") from error
    return dict(counts)


def _decisions(root: str) -> tuple[RecordedDecision, ...]:
    """Return the decisions of the journal; entries that are not decisions are skipped."""
    path = local_path(root)
    if path is None:
        return ()
    found: list[RecordedDecision] = []
    chunk = journal.read(Path(path) / journal.IN_CHECKPOINT)
    while chunk.lines:
        for entry in chunk.entries():
            is_decision = entry.pop("entry", None) == "decision"
            if is_decision and {"round", "what", "reason"} <= entry.keys():
                found.append(RecordedDecision({"batch": None, **entry}))
        chunk = journal.read(path / journal.IN_CHECKPOINT, chunk.stop)
    return tuple(found)
