"""The awaited manifest: what a batch's operations change, for tasks that start before it is known.

The driver applies the operations of a batch while Spark plans and starts the tasks that match its
points. These are given the manifest before the operations and the name of a file, and wait for it.
The driver always writes it, also where operations could not be applied. Not durable: a batch that
runs again has a file of its own.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sparkswarm.errors import StoreError
from sparkswarm.store.files import Files, Folder, batch_prefix
from sparkswarm.store.manifest import Manifest
from sparkswarm.store.records import read_json, to_bytes

LONGEST_WAIT_S = 300.0
"""Longest time that a task waits for the file, in seconds."""

POLL_S = 0.001
"""Time between two looks for it, in seconds: local files are looked up in microseconds."""

_FAILED = "failed"


def awaited_name(batch: int, attempt: str) -> str:
    """Return the name of the file of an attempt at a batch."""
    return f"{batch_prefix(Folder.SOFT, batch)}-manifest-{attempt}.json"


@contextmanager
def announcement(files: Files, name: str) -> Iterator[dict[str, Any]]:
    """Take what operations change in the manifest, and write it; after an error, that they failed.

    The dictionary is to have what :meth:`Manifest.difference` returns.
    """
    body: dict[str, Any] = {}
    try:
        yield body
    except BaseException:
        body = {_FAILED: True}
        raise
    finally:
        files.write(name, to_bytes(body), durable=False)


def await_manifest(files: Files, name: str, before: Manifest) -> Manifest:
    """Wait for the manifest with the operations of a batch.

    Raises
    ------
    StoreError
        If it will not come.
    """
    until = time.monotonic() + LONGEST_WAIT_S
    while (body := read_json(files, name)) is None:
        if time.monotonic() > until:
            raise StoreError(
                f"the driver has not applied the operations of the batch in {LONGEST_WAIT_S:.0f} "
                f"seconds: there is no {name} in {files.root}. Look at the driver's log; the batch "
                "will run again"
            )
        time.sleep(POLL_S)
    if _FAILED in body:
        raise StoreError("the operations of the batch were not applied; the driver says why")
    return before.with_difference(body)
