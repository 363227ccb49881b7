"""What the map shows of a checkpoint beside its journal: fences, and where objects are.

Reads the last commit of a run that may go on, and changes nothing. Fences are simplified, and of
many only the largest are shown. What was read is kept until there is a new commit.
"""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparkswarm.apps.events.objects import FENCES, NAMES, OBJECT, TIME, BoundEvents, X, Y
from sparkswarm.apps.events.reading import Positions, bucket_of, object_position
from sparkswarm.apps.events.settings import Events
from sparkswarm.errors import SparkswarmError
from sparkswarm.geometry import Bounds
from sparkswarm.index.shapes import CIRCLE, EARTH_RADIUS, POLYGON, SPHERE
from sparkswarm.store.cache import QueryCache
from sparkswarm.store.compaction import base_queries, delta_queries
from sparkswarm.store.epochs import Commit, Epochs
from sparkswarm.store.files import Files
from sparkswarm.store.formats import table_from_bytes
from sparkswarm.store.queries import Queries

MOST_FENCES = 2_000
"""Fences that are shown: the largest."""
MOST_READ = 300_000
"""Fences up to which any are shown; to choose among more would take seconds."""
MOST_VERTICES = 200
"""Vertices of a ring that are shown."""
ROUND = 48
"""Vertices of a circle."""
COLUMNS = 160
"""Columns of the density of objects."""


class FenceView:
    """The fences and objects of a checkpoint's folder, as JSON."""

    def __init__(self, checkpoint: Path) -> None:
        self._folder = checkpoint / "swarm"
        self._lock = threading.Lock()
        self._batch: int | None = None
        self._answer = b'{"batch": null, "total": 0, "fences": [], "density": null}'
        self._events: BoundEvents | None = None
        self._tables: dict[int, pa.Table] = {}
        self._positions: Positions | None = None

    def fences(self) -> bytes:
        """Return the fences and the density of objects as of the last commit."""
        with self._lock:
            self._refresh()
            return self._answer

    def nearest(self, x: float, y: float) -> bytes:
        """Return the object nearest to a place, with the fences that it is in; null for none."""
        with self._lock:
            self._refresh()
            events = self._events
            if events is None:
                return b"null"
            if self._positions is None:
                self._positions = Positions(self._tables.values(), events)
            for row in self._positions.nearest(x, y, 1, None).to_pylist():
                table = self._tables[bucket_of(row["object"], events)]
                at = object_position(table, row["object"], events)
                if at is not None:
                    fences = {str(name): _text(since) for name, since in at.fences.items()}
                    found = {"object": str(at.object), "x": at.x, "y": at.y, "fences": fences}
                    return json.dumps({**found, "time": _text(at.time)}).encode()
        return b"null"

    def _refresh(self) -> None:
        if not self._folder.is_dir():
            return
        try:
            files = Files(str(self._folder))
            epochs = Epochs(files, 2)
            commit = epochs.last_commit()
            if commit is None or commit.batch == self._batch:
                return
            before = epochs.commit_of(commit.batch - 1)
            self._read(files, commit, before)
        except (SparkswarmError, OSError):
            # The run may have deleted a file meanwhile: the next poll sees what is new.
            return

    def _read(self, files: Files, commit: Commit, before: Commit | None) -> None:
        queries, total = _queries(files, commit)
        self._tables = {
            bucket: table_from_bytes(files.mmap(ref.file), ref.offset)
            for bucket, ref in commit.manifest.objects.items()
        }
        self._events, self._positions = _events(self._tables), None
        inside = _inside(self._tables)
        since = before.max_event_time if before is not None else commit.max_event_time
        self._answer = json.dumps(
            {
                "batch": commit.batch,
                "total": total,
                "fences": list(_fences(queries, inside, bool(self._tables))),
                "density": _density(self._tables, commit.plan.grid.bounds, since),
            },
            allow_nan=False,
        ).encode()
        self._batch = commit.batch


def _text(when: datetime) -> str:
    return when.strftime("%Y-%m-%d %H:%M:%S UTC")


def _queries(files: Files, commit: Commit) -> tuple[Queries, int]:
    """Return the queries to show, and how many there are."""
    grid, manifest, cache = commit.plan.grid, commit.manifest, QueryCache(files)
    stored = sum(len(directory.ids) for _, directory in cache.directories(manifest.bases))
    stored += sum(ref.file.rows for ref in manifest.deltas)
    if stored > MOST_READ:
        return Queries.empty(), stored
    partitions = [partition.id for partition in commit.plan.partitions]
    old = base_queries(manifest, cache, partitions, grid.cells, grid)
    queries = Queries.concat([old, delta_queries(cache.deltas(manifest), grid.cells, grid)])
    queries = queries.take(queries.expires > commit.max_event_time)
    sides = queries.boxes[:, 2:] - queries.boxes[:, :2]
    largest = np.argsort(-sides.prod(axis=1), kind="stable")[:MOST_FENCES]
    return queries.take(largest), len(queries.ids)


def _events(tables: dict[int, pa.Table]) -> BoundEvents | None:
    for table in tables.values():
        named = pa.string() if NAMES in table.column_names else pa.int64()
        return BoundEvents(Events(), table.schema.field(OBJECT).type, named)
    return None


def _inside(tables: dict[int, pa.Table]) -> dict[int, int]:
    """Return the number of objects in each fence."""
    lists = [table.column(FENCES).combine_chunks() for table in tables.values()]
    parts = [column.flatten().to_numpy() for column in lists]
    ids, counts = np.unique(np.concatenate([np.empty(0, np.int64), *parts]), return_counts=True)
    return dict(zip(ids.tolist(), counts.tolist(), strict=True))


def _fences(queries: Queries, inside: dict[int, int], counted: bool) -> Iterator[dict[str, Any]]:
    for i, number in enumerate(queries.ids.tolist()):
        box = queries.boxes[i].tolist()
        record = None if queries.shapes is None else queries.shapes[i].as_py()
        name = str(number) if queries.names is None else queries.names[i].as_py().decode()
        properties = None if queries.properties is None else queries.properties[i].as_py()
        yield {
            "id": name,
            "rings": [ring.round(9).ravel().tolist() for ring in _rings(box, record)],
            "properties": properties.decode() if properties else None,
            "inside": inside.get(number, 0) if counted else None,
        }


def _rings(box: list[float], record: bytes | None) -> list[npt.NDArray[np.float64]]:
    """Return the outline of a fence, each ring of shape (n, 2) and closed."""
    if not record:
        x1, y1, x2, y2 = box
        return [np.array([(x1, y1), (x2, y1), (x2, y2), (x1, y2), (x1, y1)])]
    words = np.frombuffer(record, np.float64)
    turn = np.linspace(0, 2 * math.pi, ROUND + 1)
    if words[0] == CIRCLE:
        x, y, radius = words[1:4]
        return [np.stack([x + radius * np.cos(turn), y + radius * np.sin(turn)], axis=1)]
    if words[0] == SPHERE:
        return [_circle_on_sphere(words[1:4].tolist(), turn)]
    if words[0] != POLYGON:
        return []
    number = int(words[1])
    ends = 2 + number + 2 * np.cumsum(words[2 : 2 + number].astype(np.int64))
    rings = np.split(words[2 + number :], (ends - 2 - number)[:-1])
    return [_thinned(ring.reshape(-1, 2)) for ring in rings]


def _circle_on_sphere(
    circle: list[float], turn: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Return places at a distance; longitudes go beyond 180 where the circle does."""
    longitude, latitude, metres = circle
    angle, south = metres / EARTH_RADIUS, math.radians(latitude)
    sine = np.sin(south) * np.cos(angle) + np.cos(south) * np.sin(angle) * np.cos(turn)
    y = np.arcsin(np.clip(sine, -1, 1))
    across = np.sin(turn) * np.sin(angle) * np.cos(south)
    x = np.arctan2(across, np.cos(angle) - np.sin(south) * sine)
    return np.stack([longitude + np.degrees(x), np.degrees(y)], axis=1)


def _thinned(ring: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return a ring with at most about MOST_VERTICES vertices, the first and the last included."""
    step = -(-len(ring) // MOST_VERTICES)
    return ring if step == 1 else np.concatenate([ring[:-1:step], ring[-1:]])


def _density(tables: dict[int, pa.Table], bounds: Bounds, since: int) -> dict[str, Any] | None:
    """Return how many objects with a fix after a time are in each cell of a raster."""
    if not tables:
        return None
    rows = int(min(COLUMNS, max(8, round(COLUMNS * bounds.height / bounds.width))))
    counts = np.zeros((COLUMNS, rows))
    edges = [(bounds.min_x, bounds.max_x), (bounds.min_y, bounds.max_y)]
    for table in tables.values():
        fresh = table.column(TIME).to_numpy() > since
        x, y = (table.column(name).to_numpy()[fresh] for name in (X, Y))
        counts += np.histogram2d(x, y, bins=(COLUMNS, rows), range=edges)[0]
    filled = np.flatnonzero(counts)
    return {
        "columns": COLUMNS,
        "rows": rows,
        "cells": filled.tolist(),
        "counts": counts.ravel()[filled].astype(int).tolist(),
        "objects": sum(table.num_rows for table in tables.values()),
    }
