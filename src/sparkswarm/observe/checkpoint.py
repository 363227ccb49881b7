"""Reports what a checkpoint holds: the plan and its reasons, stored files, what is damaged.

Reads a checkpoint without Spark and changes nothing in it, so it can run beside the stream.
Owns the content of the report; :mod:`sparkswarm.observe.tables` shows it in a terminal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow import fs

from sparkswarm.errors import StoreError
from sparkswarm.observe import journal
from sparkswarm.observe.progress import Loan
from sparkswarm.protocol.partition import Partition
from sparkswarm.store.blocks import MIN_TIME
from sparkswarm.store.epochs import INITIAL, Commit, Epochs
from sparkswarm.store.files import FileRef, Files, Folder, local_path
from sparkswarm.store.manifest import BlockRef, StateRef

QUERY_FOLDERS = ("segments", "deltas")
OTHER_FOLDERS = ("states", "blocks")
"""Folders of a checkpoint: files with queries, and files with state and recent points."""


@dataclass(frozen=True, slots=True)
class RecordedDecision:
    """A decision as the journal has it.

    ``entry`` has the keys of :func:`sparkswarm.observe.describe.decision_json` and ``batch``.
    Journals of earlier versions have only the batch, the round, and ``what`` and ``reason`` as
    text.
    """

    entry: Mapping[str, Any]

    @property
    def kind(self) -> str | None:
        """The value of its DecisionKind; None in journals of earlier versions."""
        return self.entry.get("kind")

    @property
    def created(self) -> list[int]:
        """The ids of the partitions that it created."""
        changes = self.entry.get("changes", ()) if self.entry.get("made") else ()
        return [number for change in changes for number in change["created"]]

    @property
    def lines(self) -> list[tuple[str, str]]:
        """(what, reason) of each change where the changes have reasons, else of the whole."""
        changes = self.entry.get("changes", ())
        if not changes or not all("reason" in change for change in changes):
            changes = [self.entry]
        return [(str(each["what"]), str(each["reason"])) for each in changes]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSummary:
    """Files of state or of recent points, of one partition or of all.

    ``refs`` are references in the manifest; several may share a file. ``rows`` of state are those
    of the files, of points an estimate where a partition uses only some cells of a block.
    ``first`` and ``last`` are watermarks at which results are due, or times of points, in
    microseconds.
    """

    refs: int = 0
    files: int = 0
    rows: int = 0
    size: int = 0
    first: int | None = None
    last: int | None = None

    @classmethod
    def of_states(cls, states: Sequence[StateRef]) -> StoredSummary:
        """Sum up state."""
        files = {state.file for state in states}
        due = [state.due for state in states if state.due is not None]
        return cls._of(len(states), files, sum(file.rows for file in files), due)

    @classmethod
    def of_blocks(cls, blocks: Sequence[BlockRef]) -> StoredSummary:
        """Sum up recent points."""
        times = [time for b in blocks for time in (b.meta.oldest, b.meta.newest)]
        points = sum(block.points for block in blocks)
        return cls._of(len(blocks), {block.file for block in blocks}, points, times)

    @classmethod
    def _of(cls, refs: int, files: set[FileRef], rows: int, times: list[int]) -> StoredSummary:
        return cls(
            refs=refs,
            files=len(files),
            rows=rows,
            size=sum(file.size for file in files),
            first=min(times, default=None),
            last=max(times, default=None),
        )

    def to_json(self, first: str, last: str) -> dict[str, Any]:
        """Return a JSON-ready form, with the given names for the two times."""
        return {
            "pieces": self.refs,
            "files": self.files,
            "rows": self.rows,
            "bytes": self.size,
            first: time_text(self.first),
            last: time_text(self.last),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionReport:
    """A partition with its share of the space, its files, and the decision that created it.

    ``base_rows`` and ``size`` are queries and bytes of its segments; after a split the parts use
    the files of the whole until they are next written. ``delta_rows`` are those of deltas of its
    own, which only checkpoints of format 2 have. ``why`` is None where the journal does not have
    the decision.
    """

    partition: Partition
    share: float
    base_rows: int
    delta_rows: int
    size: int
    why: RecordedDecision | None
    states: StoredSummary
    blocks: StoredSummary

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-ready form."""
        p, why = self.partition, self.why
        return {
            "id": p.id,
            "cells": list(p.cells),
            "share_of_space": self.share,
            "owners": list(p.owners),
            "tickets": list(p.tickets),
            "parents": list(p.parents),
            "previous_owners": list(p.previous_owners),
            "rows": {"base": self.base_rows, "delta": self.delta_rows},
            "bytes": self.size,
            "states": self.states.to_json("due", "last_due"),
            "blocks": self.blocks.to_json("oldest", "newest"),
            "why": f"{why.entry['what']} ({why.entry['reason']})" if why else None,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointReport:
    """What a checkpoint holds.

    Attributes
    ----------
    folder
        The checkpoint's path or URI.
    facts
        Facts that never change during the run: bounds and grid.
    commit
        Outcome of the last batch; None if the run never wrote its first.
    replayable
        Batches that can run again.
    in_progress
        A batch that began and is not committed: it is running, or will run again.
    partitions
        The partitions of the plan, in order of id.
    stored
        Number of files in each folder.
    missing, damaged
        Files that the manifest names and that are absent, or fail their checksum.
    quarantined
        Rejected rows by kind and reason.
    decisions
        Decisions in the journal, oldest first.
    loans
        What the last batch in the journal lent, the largest first.
    """

    folder: str
    facts: Mapping[str, Any]
    commit: Commit | None
    replayable: tuple[int, ...]
    in_progress: int | None
    partitions: tuple[PartitionReport, ...]
    stored: Mapping[str, int]
    missing: tuple[str, ...]
    damaged: tuple[str, ...]
    quarantined: Mapping[tuple[str, str], int]
    decisions: tuple[RecordedDecision, ...]
    loans: tuple[Loan, ...] = ()

    @property
    def is_whole(self) -> bool:
        """Whether no file is missing or known to be damaged."""
        return not self.missing and not self.damaged

    @property
    def last_batch(self) -> int | None:
        """The last committed batch; None before the first."""
        return self.commit.batch if self.commit and self.commit.batch > INITIAL else None

    @property
    def event_time(self) -> str | None:
        """The latest event time; None where events have no time."""
        latest = self.commit.max_event_time if self.commit else MIN_TIME
        return time_text(latest) if latest != MIN_TIME else None

    @property
    def watermark(self) -> str | None:
        """The watermark of the last batch; None where there is none."""
        watermark = self.commit.watermark if self.commit else MIN_TIME
        return time_text(watermark) if watermark != MIN_TIME else None

    @property
    def states(self) -> StoredSummary:
        """State of all queries."""
        states = self.commit.manifest.states.values() if self.commit else ()
        return StoredSummary.of_states([*chain(*states)])

    @property
    def blocks(self) -> StoredSummary:
        """All recent points."""
        blocks = self.commit.manifest.blocks.values() if self.commit else ()
        return StoredSummary.of_blocks([*chain(*blocks)])

    def files(self) -> dict[str, tuple[int, int, int]]:
        """Return files, rows and bytes with queries that the manifest names, by kind."""
        if self.commit is None:
            return {}
        manifest = self.commit.manifest
        segments = [*chain(*manifest.partitions.values())]
        own = {segment.own_delta for segment in segments}
        return {
            "base": _sums({segment.base for segment in segments}),
            "delta": _sums({delta.file for delta in manifest.deltas} | own),
            "directory": _sums({group.directory for group in manifest.bases}),
        }

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-ready form."""
        commit = self.commit
        plan = commit and {
            "version": commit.plan.version,
            "executors": commit.plan.executors,
            "partitions": [partition.to_json() for partition in self.partitions],
        }
        files = {
            "stored": sum(self.stored[folder] for folder in QUERY_FOLDERS),
            **{
                kind: dict(zip(("files", "rows", "bytes"), sums, strict=True))
                for kind, sums in self.files().items()
            },
        }
        return {
            "checkpoint": self.folder,
            **self.facts,
            "last_batch": self.last_batch,
            "clock": self.event_time,
            "watermark": self.watermark,
            "under_way": self.in_progress,
            "runs_again": list(self.replayable),
            "plan": plan,
            "manifest": commit.manifest.version if commit else None,
            "files": {"segments": files},
            "states": {"stored": self.stored["states"], **self.states.to_json("due", "last_due")},
            "blocks": {"stored": self.stored["blocks"], **self.blocks.to_json("oldest", "newest")},
            "missing": list(self.missing),
            "damaged": list(self.damaged),
            "quarantined": [
                {"kind": kind, "reason": reason, "rows": rows}
                for (kind, reason), rows in sorted(self.quarantined.items())
            ],
            "decisions": [dict(decision.entry) for decision in self.decisions],
            "loans": [loan._asdict() for loan in self.loans],
        }


def explain_checkpoint(folder: str, verify: bool = False) -> CheckpointReport:
    """Read a checkpoint.

    Parameters
    ----------
    folder
        The checkpoint, a local path or a URI.
    verify
        Read every file that the manifest names and compare its checksum; otherwise only check
        that it exists.

    Raises
    ------
    StoreError
        If it is no checkpoint, is damaged beyond reading, or was written in another format.
    """
    report = _read(folder, verify)
    while not report.is_whole:
        again = _read(folder, verify)
        # A running stream deletes files that it no longer needs.
        if again.commit == report.commit:
            break
        report = again
    return report


def _read(folder: str, verify: bool) -> CheckpointReport:
    root = str(local_path(folder) or folder.rstrip("/"))
    files = Files(f"{root}/swarm")
    epochs = Epochs(files, replayable=0)
    if epochs.run_fact("format") is None:
        raise StoreError(_no_checkpoint(root))
    epochs.check_run({})  # rejects another format
    commit = epochs.last_commit()
    begun = epochs.begun()
    is_open = begun and (commit is None or begun[-1] > commit.batch)
    decisions, loans = _from_journal(root)
    refs = sorted(commit.manifest.files() if commit else (), key=lambda ref: ref.name)
    stored = {folder: files.list(folder) for folder in (*QUERY_FOLDERS, *OTHER_FOLDERS)}
    present = {name for names in stored.values() for name in names}
    return CheckpointReport(
        folder=root,
        facts={name: epochs.run_fact(name) for name in ("bounds", "grid")},
        commit=commit,
        replayable=tuple(batch for batch in begun if batch > INITIAL),
        in_progress=begun[-1] if is_open else None,
        partitions=tuple(_partitions(commit, decisions)) if commit else (),
        stored={name: len(names) for name, names in stored.items()},
        missing=tuple(ref.name for ref in refs if ref.name not in present),
        damaged=tuple(_damaged(files, [r for r in refs if r.name in present])) if verify else (),
        quarantined=_quarantined(files),
        decisions=decisions,
        loans=loans,
    )


def time_text(time: int | None) -> str | None:
    """Return microseconds since 1970 as ISO 8601, or as a number if outside the calendar."""
    if time is None:
        return None
    try:
        return datetime.fromtimestamp(time // 1_000_000, UTC).isoformat(timespec="seconds")
    except (OverflowError, ValueError, OSError):
        return str(time)


def _no_checkpoint(root: str) -> str:
    path = local_path(root)
    advice = "give the folder that the run has as its checkpoint"
    if path is not None and not path.exists():
        return f"{root} does not exist; {advice}"
    if path is not None and (path / "run.json").exists():
        return f"{root} is a part of a checkpoint; give the folder above it, {path.parent}"
    return f"{root} is not a checkpoint of sparkswarm: it has no swarm/run.json; {advice}"


def _sums(files: Iterable[FileRef | None]) -> tuple[int, int, int]:
    """Return the number of files, their rows and their bytes."""
    some = [file for file in files if file]
    return len(some), sum(file.rows for file in some), sum(file.size for file in some)


def _partitions(commit: Commit, decisions: Iterable[RecordedDecision]) -> Iterator[PartitionReport]:
    plan, manifest = commit.plan, commit.manifest
    created_by = {number: decision for decision in decisions for number in decision.created}
    for partition in plan.partitions:
        segments = manifest.partitions.get(partition.id, ())
        _, base_rows, base_size = _sums({segment.base for segment in segments})
        _, delta_rows, delta_size = _sums({segment.own_delta for segment in segments})
        yield PartitionReport(
            partition=partition,
            share=partition.cells.area / plan.grid.cells.area,
            base_rows=base_rows,
            delta_rows=delta_rows,
            size=base_size + delta_size,
            why=created_by.get(partition.id),
            states=StoredSummary.of_states(manifest.states.get(partition.id, ())),
            blocks=StoredSummary.of_blocks(manifest.blocks.get(partition.id, ())),
        )


def _damaged(files: Files, refs: Iterable[FileRef]) -> Iterator[str]:
    for ref in refs:
        try:
            files.load(ref)
        except StoreError:
            yield ref.name


def _quarantined(files: Files) -> dict[tuple[str, str], int]:
    """Count rejected rows; only two columns are read."""
    path = local_path(files.root)
    system, root = (
        fs.FileSystem.from_uri(files.root) if path is None else (fs.LocalFileSystem(), str(path))
    )
    selector = fs.FileSelector(f"{root}/{Folder.QUARANTINE}", recursive=True, allow_not_found=True)
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


def _from_journal(root: str) -> tuple[tuple[RecordedDecision, ...], tuple[Loan, ...]]:
    """Return the decisions in the journal, and the loans of its last batch."""
    decisions: list[RecordedDecision] = []
    loans: list[list[int]] = []
    for entry in _entries(root):
        kind = entry.pop("entry", None)
        if kind == "batch":
            loans = entry.get("loans", [])
        elif kind == "decision" and {"round", "what", "reason"} <= entry.keys():
            decisions.append(RecordedDecision({"batch": None, **entry}))
    return tuple(decisions), tuple(Loan(*loan) for loan in loans)


def _entries(root: str) -> Iterator[dict[str, Any]]:
    path = local_path(root)
    if path is None:
        return
    chunk = journal.read(path / journal.IN_CHECKPOINT)
    while chunk.lines:
        yield from chunk.entries()
        chunk = journal.read(path / journal.IN_CHECKPOINT, chunk.stop)
