"""Cleaning of a checkpoint: what no batch needs any more is deleted.

Runs on the driver, between batches. Everything here may be cut short and done again.
"""

from __future__ import annotations

from collections.abc import Collection

from sparkswarm.config import SwarmConfig
from sparkswarm.store.epochs import Epochs
from sparkswarm.store.files import Files, Folder, batch_prefix
from sparkswarm.store.quarantine import batch_of

CLEAN_EVERY = 5
"""Batches between two cleanings."""

SWEEP_EVERY = 100
"""Batches between two searches for files that crashes left half-written."""


def clean_at_start(epochs: Epochs, files: Files, config: SwarmConfig) -> None:
    """Delete what an earlier driver left; this one has taken over."""
    epochs.collect_garbage()
    epochs.writer.delete(files.list(Folder.SOFT))
    _sweep(files, config)


def clean_after(
    batch: int, epochs: Epochs, files: Files, config: SwarmConfig, soft: Collection[str]
) -> None:
    """Delete what is not needed after a batch; of soft files, ``soft`` and its own stay."""
    if batch % CLEAN_EVERY:
        return
    epochs.collect_garbage()
    # The next batch needs what this one left.
    this = batch_prefix(Folder.SOFT, batch)
    epochs.writer.delete(
        name for name in files.list(Folder.SOFT) if name < this and name not in soft
    )
    if config.quarantine_batches:
        oldest = batch - config.quarantine_batches
        old = [f for f in files.folders(Folder.QUARANTINE) if batch_of(f, oldest) < oldest]
        if old:
            epochs.writer.check()
        for folder in old:
            files.delete_folder(folder)
    if batch % SWEEP_EVERY == 0:
        _sweep(files, config)


def _sweep(files: Files, config: SwarmConfig) -> None:
    for folder in Folder:
        files.delete_unfinished(folder, config.unfinished_file_seconds)
