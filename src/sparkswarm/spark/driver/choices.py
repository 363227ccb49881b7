"""Settings that nobody gave: bounds, grid and executors, chosen before a run starts.

Runs on the driver, once per start. Bounds come from a look at the first rows, in a short streaming
query of its own whose progress is forgotten; a run that continues keeps the bounds and the grid of
its checkpoint.
"""

from __future__ import annotations

import atexit
import logging
import math
import shutil
import tempfile
import threading
import time
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery

from sparkswarm.config import SwarmConfig
from sparkswarm.errors import ConfigError
from sparkswarm.geometry import WORLD, Fault
from sparkswarm.observe.progress import Progress
from sparkswarm.spark.columns import POINT_FILE, QueryColumns
from sparkswarm.spark.driver.layout import StreamLayout
from sparkswarm.spark.driver.operations import separate_rows
from sparkswarm.spark.driver.selection import select_operations
from sparkswarm.spark.session import is_local
from sparkswarm.spark.task_input import PointFiles
from sparkswarm.spark.tasks.operations import with_shapes
from sparkswarm.spark.tasks.point_files import read_point_files
from sparkswarm.store.epochs import Epochs
from sparkswarm.store.files import Files
from sparkswarm.store.quarantine import FAULT_REASONS, POINT
from sparkswarm.store.queries import EDGES, GEOMETRY, SHAPE_COLUMNS, X, Y, boxes_of

logger = logging.getLogger(__name__)

CHOSEN = ("bounds", "grid", "executors")
"""Settings that are chosen where nobody gave them."""

PATIENCE_SECONDS = 10.0
"""Seconds without a row after which a look at a stream that has none yet ends."""

POLL_SECONDS = 0.1
"""Seconds between looks at whether the first rows have come."""

PAUSE = "5 seconds"
"""Time from the beginning of one batch of a look to that of the next: it ends in between."""

IDLE = "Waiting for"
"""How Spark begins what it says of a stream between two batches, or without new rows."""

SAMPLE = 20_000
"""Largest number of queries whose place is looked at."""

LOOK_ROWS = 1 << 17
"""Rows of a file of points that are looked at together."""

MARGIN = 0.5
"""What is added to each side of the space that the first rows take up, as a share of it."""

SIDES = (100, 1000)
"""Fewest and most columns and rows of a grid that is chosen."""

OUTSIDE_SHARE = 0.01
"""Share of a batch's points outside of the bounds from which on the bounds are called wrong."""


@dataclass(frozen=True)
class FirstRows:
    """What the first rows are: how many of each, and the space that they take up."""

    points: int = 0
    queries: int = 0
    box: tuple[float, float, float, float] | None = None

    def __add__(self, other: FirstRows) -> FirstRows:
        boxes = np.array([one.box for one in (self, other) if one.box])
        box = (*boxes[:, :2].min(0).tolist(), *boxes[:, 2:].max(0).tolist()) if len(boxes) else None
        return FirstRows(self.points + other.points, self.queries + other.queries, box)


def choose_settings(
    config: SwarmConfig,
    missing: Collection[str],
    files: Files,
    stream: DataFrame,
    layout: StreamLayout,
    preload: DataFrame | None,
    columns: QueryColumns,
) -> SwarmConfig:
    """Return the settings, those that are missing chosen; say in one line what they are."""
    if not missing:
        return config
    epochs = Epochs(files, config.replayable_batches)
    chosen: dict[str, Any] = {}
    reasons: dict[str, str] = {}
    for name in ("bounds", "grid"):
        fact = epochs.run_fact(name)
        if name in missing and fact is not None:
            chosen[name], reasons[name] = tuple(fact), "of the checkpoint"
    if {"bounds", "grid"} & set(missing) - chosen.keys():
        seen = FirstRows() if preload is None else look_at_preload(preload, columns, layout)
        if "bounds" in missing or seen.queries == 0:
            seen += look_at_stream(stream, layout)
        some = f"{seen.points:,} points and {seen.queries:,} queries"
        if "bounds" in missing and "bounds" not in chosen:
            chosen["bounds"] = bounds_around(seen.box)
            reasons["bounds"] = f"around the first {some}" if seen.box else "as no row came in time"
        if "grid" in missing and "grid" not in chosen:
            side = grid_side(seen.queries)
            chosen["grid"] = (side, side) if seen.queries else config.grid
            reasons["grid"] = f"for {seen.queries:,} queries" if seen.queries else "the default"
    if "executors" in missing:
        chosen["executors"] = max(2, stream.sparkSession.sparkContext.defaultParallelism)
        reasons["executors"] = "as Spark has cores"
    given = ", ".join(f"{name}={_text(chosen[name])} ({reasons[name]})" for name in chosen)
    logger.warning("Chosen: %s. Other values can be given to Swarm", given)
    return replace(config, **chosen)


def look_at_preload(preload: DataFrame, columns: QueryColumns, layout: StreamLayout) -> FirstRows:
    """Return what static queries are."""
    rows = select_operations(preload, columns, register_all=True)
    # Not the ids, which may be of any type.
    rows = rows.select(*(name for name in rows.columns if name in (*EDGES, *SHAPE_COLUMNS)))
    total = rows.count()
    if total > SAMPLE:
        rows = rows.sample(fraction=SAMPLE / total, seed=0)
    return replace(_seen_queries(rows.toArrow(), layout), queries=total)


def look_at_stream(stream: DataFrame, layout: StreamLayout) -> FirstRows:
    """Return what the first rows of a stream are; nothing where none comes in time."""
    found: list[FirstRows] = []
    ended = threading.Event()

    def look(batch: DataFrame, _: int) -> None:
        if ended.is_set():
            return
        seen = FirstRows()
        if layout.point_files is not None:
            seen += _seen_files(batch, layout.point_files)
        elif X in batch.columns:
            seen += _seen_points(batch)
        if layout.has_operations:
            table = separate_rows(batch, layout.queries.operation_types).operations
            seen += _seen_queries(table, layout) if table is not None else FirstRows()
        if seen.box is not None:
            found.append(seen)
            ended.set()

    with tempfile.TemporaryDirectory(prefix="sparkswarm-", ignore_cleanup_errors=True) as folder:
        writer = stream.writeStream.foreachBatch(look).option("checkpointLocation", folder)
        writer = writer.trigger(processingTime=PAUSE)
        query = writer.queryName("sparkswarm looks at the first rows").start()
        try:
            _wait_for_rows(query, ended)
        finally:
            ended.set()
            query.stop()
    return found[0] if found else FirstRows()


def _wait_for_rows(query: StreamingQuery, ended: threading.Event) -> None:
    """Wait until a look has seen rows and rests, or its sources have had none for some seconds.

    A stop in the middle of a batch would fill the log with what it interrupts.
    """
    idle = 0.0
    while idle < PATIENCE_SECONDS:
        time.sleep(POLL_SECONDS)
        if error := query.exception():
            raise error
        is_idle = query.status["message"].startswith(IDLE)
        if is_idle and ended.is_set():
            return
        idle = idle + POLL_SECONDS if is_idle else 0.0


def _seen_points(batch: DataFrame) -> FirstRows:
    finite = F.abs(F.col(X)) < math.inf, F.abs(F.col(Y)) < math.inf  # Spark ranks NaN above
    edges = [one(name) for one in (F.min, F.max) for name in (X, Y)]
    row = batch.where(finite[0] & finite[1]).agg(F.count(F.lit(1)), *edges).first()
    return FirstRows(row[0], 0, tuple(row[1:])) if row is not None and row[0] else FirstRows()


def _seen_files(batch: DataFrame, wanted: PointFiles) -> FirstRows:
    """Return what the points in the files of a batch are."""
    wanted = replace(wanted, schema=pa.schema([wanted.schema.field(name) for name in (X, Y)]))
    paths = batch.select(POINT_FILE).toArrow().column(0).drop_null().to_pylist()
    seen = FirstRows()
    for rows in read_point_files(paths, wanted, LOOK_ROWS):
        x, y = (np.asarray(rows.column(name), np.float64) for name in (X, Y))
        known = np.isfinite(x) & np.isfinite(y)
        if known.any():
            x, y = x[known], y[known]
            box = float(x.min()), float(y.min()), float(x.max()), float(y.max())
            seen += FirstRows(len(x), 0, box)
    return seen


def _seen_queries(table: pa.Table, layout: StreamLayout) -> FirstRows:
    total = table.num_rows
    table = table.slice(0, SAMPLE)
    if GEOMETRY in table.column_names:
        table, _ = with_shapes(table, layout.events)
    boxes = boxes_of(table)
    boxes = boxes[np.isfinite(boxes).all(axis=1)]
    if not len(boxes):
        return FirstRows(queries=total)
    return FirstRows(0, total, (*boxes[:, :2].min(0).tolist(), *boxes[:, 2:].max(0).tolist()))


def bounds_around(box: tuple[float, float, float, float] | None) -> tuple[float, ...]:
    """Return a box with a margin, in round numbers; longitudes and latitudes stay what they are."""
    if box is None:
        return WORLD.edges
    bounds = [*zip(box[:2], box[2:], strict=True)]
    within = [*zip(WORLD.edges[:2], WORLD.edges[2:], strict=True)]
    on_earth = all(w <= a and b <= e for (a, b), (w, e) in zip(bounds, within, strict=True))
    wider = [_widened(*span) for span in bounds]
    if on_earth:
        wider = [(max(a, w), min(b, e)) for (a, b), (w, e) in zip(wider, within, strict=True)]
    return (*(low for low, _ in wider), *(high for _, high in wider))


def _widened(low: float, high: float) -> tuple[float, float]:
    # A side without length gets some, whatever the size of the numbers.
    margin = MARGIN * (high - low) or max(abs(low) * 1e-3, 1e-3)
    digits = 1 - math.floor(math.log10(margin))
    step = 10.0**-digits
    ends = math.floor((low - margin) / step) * step, math.ceil((high + margin) / step) * step
    return round(ends[0], digits), round(ends[1], digits)


def grid_side(queries: int) -> int:
    """Return the columns and rows of a grid with about as many cells as there are queries."""
    return min(max(math.ceil(math.sqrt(queries) / 100) * 100, SIDES[0]), SIDES[1])


def temporary_checkpoint(spark: SparkSession) -> str:
    """Return a new folder that is deleted when Python ends, and warn that it is."""
    if not is_local(spark):
        raise ConfigError(
            "checkpoint is missing: on a cluster it must be a folder that all machines see"
        )
    folder = tempfile.mkdtemp(prefix="sparkswarm-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    logger.warning(
        "No checkpoint was given: %s is used and deleted when Python ends, and no restart can go "
        "on from it",
        folder,
    )
    return folder


class OutsideWatch:
    """An observer that says when many points are outside of the bounds; once for each start."""

    def __init__(self, config: SwarmConfig) -> None:
        self._bounds = config.bounds
        self._said = False

    def __call__(self, progress: Progress, *_: object) -> None:
        """Look at a batch."""
        rejected = sum(n for (kind, _), n in progress.quarantined.items() if kind == POINT)
        outside = progress.quarantined.get((POINT, FAULT_REASONS[Fault.OUTSIDE]), 0)
        if self._said or outside <= OUTSIDE_SHARE * (progress.points + rejected):
            return
        self._said = True
        logger.warning(
            "Batch %d: %d of %d points are outside of the bounds %s and were rejected; they are in "
            "the quarantine. Start on a new checkpoint with other bounds, such as bounds='world'",
            *(progress.batch, outside, progress.points + rejected, _text(self._bounds)),
        )


def _text(value: Any) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(f'{one:.12g}' for one in value)})"
    return str(value)
