"""Compiles the kernels that the first batch needs, while Spark starts.

Kernels are compiled on first use and then cached on disk. On a fresh clone that would happen in
the first batch, in every Python worker; here two processes do it while the JVM starts. A kernel
that is missing here is compiled in the first batch.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparkswarm.apps.application import Pairs
from sparkswarm.apps.subscriptions.application import Subscriptions
from sparkswarm.compiled import FloatArray, LongArray
from sparkswarm.config import SwarmConfig
from sparkswarm.geometry import Bounds, Grid
from sparkswarm.index import build
from sparkswarm.index.match import match
from sparkswarm.policies.lending_prices import SIDE, Blocks
from sparkswarm.protocol.lending import lend
from sparkswarm.protocol.local import LocalSwarm
from sparkswarm.spark.tasks.lots import interleave, take_values
from sparkswarm.spark.tasks.match import kept_matches, matched_pairs
from sparkswarm.spark.tasks.packing import group_rows
from sparkswarm.store.deltas import Delta, find_queries, settle_operations
from sparkswarm.store.directory import Directory
from sparkswarm.store.prices import PriceRaster
from sparkswarm.store.queries import NEVER, Op, Operations, Queries
from sparkswarm.store.segments import Base
from sparkswarm.workloads import CONTIGUOUS_US, cities_density
from sparkswarm.workloads.density import rectangles_around

MODULE = "sparkswarm.demo.warm_up"

POINTS = 70_000
"""Enough points that every step of matching is used."""


def is_needed() -> bool:
    """Return whether the kernel that takes longest to compile is not on disk yet."""
    kernel: Any = build._fill
    folder = Path(kernel.stats.cache_path)
    return not any(folder.glob("build._fill-*.nbi"))


@contextmanager
def in_background() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Compile in separate processes, if needed; they end with the block at the latest."""
    parts = list(PARTS) if is_needed() else []
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", f"from {MODULE} import PARTS; PARTS[{part!r}]()"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for part in parts
    ]
    try:
        yield processes
    finally:
        for process in processes:
            process.terminate()
            process.wait()


def compile_matching() -> None:
    """Build indexes of queries, match points, and lend them."""
    x, y = _places()
    ids, boxes = np.arange(POINTS), _boxes(x, y)
    queries, grid = Queries(ids, boxes, np.zeros(POINTS, np.int64)), Grid(CONTIGUOUS_US, 1, 1)
    base = Base.build(queries, grid, grid.cells)
    times, removed = np.full(POINTS, -1), np.zeros(POINTS, np.uint8)
    found = match(x, y, times, ids, base.index, removed)
    out = np.empty(len(found.positions), np.int64)
    take_values(base.index.ids, found.positions, out)
    interleave(out, found.counts.reshape(1, -1))
    cell = np.zeros(POINTS, np.int32)
    lend(np.ones(POINTS), cell, cell, 2)
    Blocks.of(grid).add(np.zeros(SIDE * SIDE), cell, cell, np.ones(POINTS))


def compile_routing() -> None:
    """Generate, route and count points and queries, and register the queries."""
    x, y = cities_density(CONTIGUOUS_US, 50, 50).sample_points(np.random.default_rng(0), POINTS)
    boxes, ids = _boxes(x, y), np.arange(POINTS)
    op = np.full(POINTS, Op.REGISTER, np.int8)
    config = SwarmConfig(bounds=_edges(CONTIGUOUS_US), grid=(50, 50), executors=2)
    swarm = LocalSwarm(config)
    _route(swarm, x, y, boxes, ids, op)
    # Arrays from Arrow are read-only, which is another type to the compiler.
    for array in (x, y, ids, op):
        array.flags.writeable = False
    _route(swarm, x, y, boxes, ids, op)
    swarm.close_round(0, {0: 1.0, 1: 2.0})
    _match_conditions(x, y, boxes, ids)


def _route(
    swarm: LocalSwarm,
    x: FloatArray,
    y: FloatArray,
    boxes: FloatArray,
    ids: LongArray,
    op: npt.NDArray[np.int8],
) -> None:
    """Route points and queries, and register the queries."""
    edges = [np.array(edge) for edge in boxes.T]
    for edge in edges:
        edge.flags.writeable = x.flags.writeable
    cells = swarm.plan.grid.place_queries(*edges)
    swarm.index.overlaps(cells)
    for unit in swarm.units:
        for partition in swarm.plan.owned_by(unit.executor):
            unit.collect_queries(partition.id, cells)
    routed = swarm.send(x, y, np.ones(POINTS))
    group_rows(routed.owner.astype(np.int32), len(swarm.units))
    grid, queries = swarm.plan.grid, Queries(ids, boxes, np.full(POINTS, NEVER))
    settled = settle_operations(Operations(op, queries, ids), (), (), grid, 0, 0)
    base = Base.build(queries, grid, grid.cells)
    directory = Directory.build([(grid.cells, base)], grid)
    find_queries(ids, [(0, directory)], [(0, Delta.build(settled.changes, grid))], grid)
    PriceRaster.empty(grid).corrected([directory.cells])


def _match_conditions(x: FloatArray, y: FloatArray, boxes: FloatArray, ids: LongArray) -> None:
    """Evaluate conditions of subscriptions."""
    application = Subscriptions({"topic": "text", "likes": "number"})
    edges = dict(zip(("min_x", "min_y", "max_x", "max_y"), boxes[:2].T, strict=True))
    none = pa.nulls(2, pa.list_(pa.string()))
    where = pa.array(["topic = 'food'", "likes > 5"])
    built = application.build(
        pa.table({"id": ids[:2], **edges, "where": where, "all_of": none, "any_of": none})
    )
    assert built is not None
    points = pa.table({"id": ids, "x": x, "y": y, "topic": ["food"] * len(x), "likes": ids})
    counts, positions = np.ones(POINTS, np.int32), (ids % 2).astype(np.int32)
    keep = application.match(built, points, Pairs(*matched_pairs(counts, positions)))
    kept_matches(counts, positions, keep)


def _places() -> tuple[FloatArray, FloatArray]:
    rng, b = np.random.default_rng(0), CONTIGUOUS_US
    return rng.uniform(b.min_x, b.max_x, POINTS), rng.uniform(b.min_y, b.max_y, POINTS)


def _boxes(x: FloatArray, y: FloatArray) -> FloatArray:
    return np.column_stack(rectangles_around(x, y, 0.003, CONTIGUOUS_US))


def _edges(bounds: Bounds) -> tuple[float, float, float, float]:
    return bounds.min_x, bounds.min_y, bounds.max_x, bounds.max_y


PARTS = {"matching": compile_matching, "routing": compile_routing}
"""Two parts that take about the same time."""


def main() -> None:
    """Compile now, if needed, and print that."""
    with in_background() as processes:
        if processes:
            print("Compiling kernels, the first time only (about 20 seconds)")
        for process in processes:
            process.wait()
