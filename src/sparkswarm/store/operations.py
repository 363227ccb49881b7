"""Stores a batch's operations as one delta.

Runs on the driver, once a batch with operations. A batch that runs again writes another file with
the same content; the manifest names one of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pyarrow as pa

from sparkswarm.geometry import Grid
from sparkswarm.store.cache import QueryCache
from sparkswarm.store.deltas import MERGE_RATIO, Delta, Settled, settle_operations
from sparkswarm.store.files import FileRef
from sparkswarm.store.manifest import DeltaParts, DeltaRef, Manifest
from sparkswarm.store.names import number_names
from sparkswarm.store.queries import Operations


class StoredOperations(NamedTuple):
    """The manifest with a batch's operations, and what they did."""

    manifest: Manifest
    settled: Settled


def store_operations(
    operations: Operations,
    manifest: Manifest,
    cache: QueryCache,
    grid: Grid,
    *,
    batch: int,
    clock: int,
    purge_before: int,
    write: Callable[[pa.Buffer, int], FileRef],
    divide: Callable[[Delta], DeltaParts | None] = lambda delta: None,
) -> StoredOperations:
    """Apply operations, and write what they change to a file.

    Parameters
    ----------
    manifest, cache
        The files before, and the cache in which they are opened.
    clock
        The present: a query that expired is not registered any more.
    purge_before
        Queries that expired before need not be kept.
    write
        Writes a file, given its content and the number of its rows.
    divide
        Writes a delta in parts, where hosts need only some.
    """
    names = operations.queries.names
    if names is not None:
        numbered = number_names(
            names, manifest.renumbered, lambda numbers: cache.names_of(numbers, manifest)
        )
        manifest = manifest.with_renumbered(numbered.renumbered)
        operations = operations.with_ids(numbered.numbers)
    deltas = [(ref.batch, cache.whole_delta(ref)) for ref in manifest.deltas]
    directories = cache.directories(manifest.bases)
    settled = settle_operations(operations, directories, deltas, grid, clock, batch)
    changes, merged = settled.changes, 0
    if not len(changes.ids):
        return StoredOperations(manifest, settled)
    for before, delta in reversed(deltas):
        if len(delta.ids) > MERGE_RATIO * len(changes.ids):
            break
        changes = changes.after(delta.changes, before, purge_before)
        merged += 1
    delta = Delta.build(changes, grid)
    ref = DeltaRef(batch, write(delta.to_bytes(), len(delta.ids)), divide(delta))
    cache.keep(ref.file, delta)
    return StoredOperations(manifest.with_delta(ref, merged), settled)
