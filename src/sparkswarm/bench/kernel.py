"""The matching kernel without Spark, on all cores.

The upper bound for the engine: every process has the whole index in memory and its share of the
points in arrays, and does nothing but match.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from sparkswarm.bench.inputs import Inputs
from sparkswarm.geometry import Grid
from sparkswarm.index.match import match
from sparkswarm.spark.tasks.lots import take_values
from sparkswarm.store.queries import NEVER, Queries
from sparkswarm.store.segments import Base

CHUNK = 131_072
"""Points per call, as in the engine."""


def kernel_points_per_second(inputs: Inputs, batches: int, processes: int) -> float:
    """Return the points per second that ``processes`` processes match together."""
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(processes)
    with _pool(context, processes, barrier) as pool:
        work = [(inputs, batches, number, processes) for number in range(processes)]
        spans = pool.starmap(_work, work, chunksize=1)
    seconds: float = max(end for _, end in spans) - min(begin for begin, _ in spans)
    return batches * inputs.points / seconds


@contextmanager
def _pool(context: Any, processes: int, barrier: Any) -> Iterator[Any]:
    pool = context.Pool(processes, _begin, (barrier,))
    try:
        yield pool
    finally:
        pool.terminate()


_barrier: Any = None


def _begin(barrier: Any) -> None:
    global _barrier
    _barrier = barrier


def _work(inputs: Inputs, batches: int, number: int, processes: int) -> tuple[float, float]:
    """Match the share of one process; return when matching began and ended."""
    boxes = np.stack(inputs.read_queries(), axis=1)
    grid = Grid(inputs.bounds, 1, 1)
    queries = Queries(np.arange(len(boxes)), boxes, np.full(len(boxes), NEVER))
    base = Base.build(queries, grid, grid.cells)
    shares = [
        tuple(np.ascontiguousarray(c[number::processes]) for c in inputs.read_points(batch)[1:])
        for batch in range(batches)
    ]
    _match(base, *shares[0])  # compiles, and loads the index into the caches
    _barrier.wait()
    began = time.monotonic()
    for x, y in shares:
        _match(base, x, y)
    return began, time.monotonic()


def _match(base: Base, x: Any, y: Any) -> None:
    for start in range(0, len(x), CHUNK):
        rows = np.arange(start, min(start + CHUNK, len(x)))
        positions = match(x, y, None, rows, base.index).positions
        take_values(base.index.ids, positions, np.empty(len(positions), np.int64))
