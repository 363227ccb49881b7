"""Records: plans and manifests as files, each in full or as what changed since another.

Owns their names, their checksum and how they refer to each other. A name has the version, a
checksum of the content and the number of the writer, so it stands for one content for ever: tasks
are given names, and read what they do not know yet. Written by the driver before and after a batch;
read by the driver and by tasks, once for each process that needs them.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from sparkswarm.errors import PlanError, StoreError
from sparkswarm.protocol.plan import Plan
from sparkswarm.store.files import Files, Folder
from sparkswarm.store.manifest import Manifest, changed_between

DIFFERENCES_FROM = 1_000
"""Number of partitions from which on differences are written."""

LONGEST_CHAIN = 30
"""Number of differences after a record in full."""

LARGEST_DIFFERENCE = 0.25
"""Changes after a record in full, as a fraction of the partitions."""

Record: TypeAlias = Plan | Manifest
_Kind = TypeVar("_Kind", Plan, Manifest)


@dataclass(frozen=True, slots=True)
class _Known:
    """A record that was read or written.

    Attributes
    ----------
    since
        Names of the records that it builds on, the one in full first.
    changed
        Number of changes since that one.
    """

    record: Record
    since: tuple[str, ...] = ()
    changed: int = 0


class RecordFiles:
    """The plans and manifests of a checkpoint; those that this process knows are not read again."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._known: dict[str, _Known] = {}
        self._last: dict[type[Record], str] = {}

    def write(self, record: Record, writer: int) -> str:
        """Make a record durable, unless it is the last one written; return its name.

        The name has the writer's number: no writer deletes what another has written since.
        """
        kind, folder = type(record), Folder.PLANS
        if isinstance(record, Manifest):
            folder = Folder.MANIFESTS
        last = self._last.get(kind, "")
        before = self._known.get(last)
        if before and (before.record is record or before.record == record):
            return last
        known = _Known(record)
        body = None
        if before and len(record.partitions) >= DIFFERENCES_FROM:
            body = _difference(before.record, record)
            known = _Known(record, (*before.since, last), before.changed + body["changed"])
            body["since"] = last
        if (
            body is None
            or known.changed > LARGEST_DIFFERENCE * len(record.partitions)
            or len(known.since) > LONGEST_CHAIN
        ):
            known, body = _Known(record), record.to_json()
        content = to_bytes(body)
        name = f"{folder}/{record.version:012d}-{zlib.crc32(content):08x}-{writer}.json"
        self._files.write(name, content)
        self._known[name] = known
        self._last[kind] = name
        return name

    def read(self, kind: type[_Kind], name: str) -> _Kind:
        """Return a record by its name; StoreError where it is missing or corrupt."""
        # A copy: another thread may forget records meanwhile.
        known = dict(self._known)
        bodies: list[tuple[str, dict[str, Any]]] = []
        since: str | None = name
        while since is not None and since not in known:
            body = read_json(self._files, since)
            if body is None:
                raise StoreError(
                    f"{since} is missing from {self._files.root}; the checkpoint is damaged: "
                    "restore it from a copy, or start again with another checkpoint"
                )
            bodies.append((since, body))
            since = body.get("since")
        for at, body in reversed(bodies):
            try:
                known[at] = self._known[at] = _opened(kind, body, known)
            except (KeyError, TypeError, PlanError, StoreError) as error:
                raise corrupt(self._files, at) from error
        found = known[name].record
        if not isinstance(found, kind):
            raise corrupt(self._files, name)
        return found

    def needed(self, name: str) -> set[str]:
        """Return the names of the files that a record needs; it must have been read or written."""
        return {name, *self._known[name].since}

    def retain(self, names: Collection[str]) -> None:
        """Forget all records but these; the files of the others may be gone."""
        self._known = {name: known for name, known in self._known.items() if name in names}


def _difference(before: Record, after: Record) -> dict[str, Any]:
    if isinstance(before, Plan) and isinstance(after, Plan):
        return after.difference(*changed_between(before.partitions, after.partitions))
    if isinstance(before, Manifest) and isinstance(after, Manifest):
        return after.difference(before)
    raise TypeError(f"{type(before)} and {type(after)} are records of different kinds")


def _opened(kind: type[Record], body: dict[str, Any], known: dict[str, _Known]) -> _Known:
    if body.get("since") is None:
        return _Known(kind.from_json(body))
    before = known[body["since"]]
    record: Record = before.record.with_difference(body)
    return _Known(record, (*before.since, body["since"]), before.changed + int(body["changed"]))


# -- files -------------------------------------------------------------------------------------

_FILE = re.compile(rb'\{"crc":(\d+),"body":(.*)\}', re.DOTALL)


def to_bytes(body: dict[str, Any]) -> bytes:
    """Return JSON values as a file with a checksum."""
    text = json.dumps(body, separators=(",", ":"))
    return f'{{"crc":{zlib.crc32(text.encode())},"body":{text}}}'.encode()


def read_json(files: Files, name: str) -> dict[str, Any] | None:
    """Read what :func:`to_bytes` made; None where there is no file."""
    content = files.read(name)
    if content is None:
        return None
    found = _FILE.fullmatch(content)
    if found is None or int(found[1]) != zlib.crc32(found[2]):
        raise corrupt(files, name)
    try:
        body = json.loads(found[2])
    except ValueError as error:
        raise corrupt(files, name) from error
    if not isinstance(body, dict):
        raise corrupt(files, name)
    return body


def corrupt(files: Files, name: str) -> StoreError:
    """Return the error for a file that is not what was written."""
    return StoreError(
        f"{name} in {files.root} is corrupt; restore it from a copy, or start again "
        "with another checkpoint"
    )
