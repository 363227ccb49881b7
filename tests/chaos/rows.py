"""The rows of the table, in the order in which they run."""

from __future__ import annotations

from . import (
    bad_rows,
    checkpoints,
    endurance,
    fuzzing,
    hostile,
    hotspots,
    kills,
    overload,
    speculation,
    storage,
    takeover,
)
from .trial import Row

ROWS = [
    Row("kill -9 of a busy Python worker every 2 s", 3, kills.workers, 30),
    Row("kill -9 of an executor process", 4, kills.executors, 5),
    Row("kill -9 of the driver at 8 places", 5, kills.driver, 40),
    Row("two drivers, the older frozen and woken", 3, takeover.two_drivers, 5),
    Row("speculation, deleted shuffle files", 3, speculation.speculation, 20),
    Row("the last commit deleted", 1, checkpoints.last_commit, 20),
    Row("files of a checkpoint damaged", 3, checkpoints.damaged_files, 171),
    Row("older formats, changed settings", 1, checkpoints.settings, 8),
    Row("disk full, slow storage", 2, storage.storage, 30),
    Row("a million rows, 5% bad", 2, bad_rows.rows, bad_rows.WHOLE),
    Row("99% of the points in one cell", 1, hotspots.one_cell, 20),
    Row("hotspots that flicker", 3, hotspots.flicker, 5 * hotspots.BATCHES),
    Row("queries that cover the world, nest, and are long", 3, hostile.queries, 3 * hostile.LARGE),
    Row("batches without a pause", 4, endurance.batches, endurance.WHOLE),
    Row("10 x the sustainable rate", 3, overload.overload, 1_000),
    Row("seeds of the fuzzer", 3, fuzzing.seeds, fuzzing.SEEDS),
]
