"""Slots: which partition each cell belongs to, mapped by all processes of a host.

Owns the files of these arrays, one for each plan, in the folder for copies. With 10,000 columns and
rows an array has 400 MB, and a host has a worker for each core. A process that changes its array
gets pages of its own, so nobody sees what another changed. Nothing depends on a file: one that is
gone is written again, and where there is no room the array is made in memory. Used by tasks and by
the driver, when they open the index of a plan.
"""

from __future__ import annotations

import os
import time
import uuid
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import numpy as np

from sparkswarm.compiled import IntArray
from sparkswarm.protocol.global_index import fill_slots
from sparkswarm.protocol.plan import Plan
from sparkswarm.store.copies import cache_folder
from sparkswarm.store.private import private_folder

LEAST_CELLS = 1 << 22
"""Cells of the smallest array that is mapped: 16 MB. Smaller ones are made sooner than found."""

UNUSED_S = 600.0
"""Seconds after which a file that nobody opens is deleted. Who has mapped it keeps it."""


def mapped_slots(plan: Plan) -> IntArray | None:
    """Return the slot of each cell, mapped from a file of this host; None for a small grid.

    Also None where there is no room for the file.
    """
    shape = plan.grid.rows, plan.grid.columns
    if plan.grid.cells.area < LEAST_CELLS:
        return None
    cache = Path(cache_folder())
    private_folder(cache)
    folder = cache / "slots"
    folder.mkdir(exist_ok=True)
    rects = np.array([partition.cells for partition in plan.partitions], np.int32)
    path = folder / sha256(np.array(shape, np.int64).tobytes() + rects.tobytes()).hexdigest()[:32]
    try:
        return _mapped(path, shape)
    except FileNotFoundError:
        _delete_unused(folder)
    temporary = folder / f".{uuid.uuid4().hex}"
    try:
        _write(temporary, plan, shape)
        temporary.replace(path)
        return _mapped(path, shape)
    except OSError:
        temporary.unlink(missing_ok=True)
        return None


def _mapped(path: Path, shape: tuple[int, int]) -> IntArray:
    os.utime(path)
    # Copy on write: changes go to pages of this process.
    found: IntArray = np.memmap(path, np.int32, "c", shape=shape).view(np.ndarray)
    return found


def _write(path: Path, plan: Plan, shape: tuple[int, int]) -> None:
    with path.open("xb") as file:
        # A write to a mapped page for which the disk has no room would end the process.
        os.posix_fallocate(file.fileno(), 0, 4 * shape[0] * shape[1])
    fill_slots(plan, np.memmap(path, np.int32, "r+", shape=shape).view(np.ndarray))


def _delete_unused(folder: Path) -> None:
    before = time.time() - UNUSED_S
    for path in folder.iterdir():
        # Another process may delete it at the same time.
        with suppress(FileNotFoundError):
            if path.stat().st_mtime < before:
                path.unlink()
