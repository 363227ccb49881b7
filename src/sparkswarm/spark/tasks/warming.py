"""Warming: fetches the files of partitions that moved to a host before a batch needs them.

Runs in a task on the host, beside batches. The files are fetched in threads of the Python worker,
so the task ends at once and no batch waits for its core. Nothing depends on it: what is not there
in time is fetched by the batch, and an error comes up there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import pyarrow as pa

from sparkswarm.store.files import FileRef, Files

FETCHERS = 4
"""Number of files that a worker fetches at the same time."""


def warm_task(
    files: Files,
    batch: int,
    wanted: Mapping[int, Sequence[FileRef]],
    batches: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Begin to fetch what the executors in ``batches`` want; ``batch`` is the last one."""
    for rows in batches:
        for executor in rows.column(0).to_pylist():
            for ref in wanted[executor]:
                _fetchers().submit(files.warm, ref, batch)
    return iter(())


@cache
def _fetchers() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(FETCHERS, "sparkswarm-warming")
