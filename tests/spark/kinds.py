"""Streams with all kinds of queries at once, and what must come of them.

A scene has continuous queries with conditions, aggregates over windows of time, and snapshot
queries about the recent past, on points that come out of order and sometimes late. The oracle goes
through it row by row in plain Python: slow, and easy to believe.
"""

from __future__ import annotations

import math
import os
import random
from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import shapely

from sparkswarm import Bytes, Count, Sliding, Tumbling

from .world import BOUNDS, FIRST_TIME

SECOND = 1_000_000
START = 1_700_000_000 * SECOND
DELAY = 4 * SECOND
MICROS = pa.timestamp("us", "UTC")

POINTS = pa.schema(
    [
        *(("id", pa.int64()), ("x", pa.float64()), ("y", pa.float64()), ("ts", MICROS)),
        *(("speed", pa.float64()), ("kind", pa.string()), ("load", pa.int32())),
    ]
)
QUERIES = pa.schema(
    [
        *(("op", pa.string()), ("id", pa.int64())),
        *((edge, pa.float64()) for edge in ("min_x", "min_y", "max_x", "max_y")),
        *((name, pa.string()) for name in ("where", "aggregate", "window", "slide")),
        *(("since", MICROS), ("until", MICROS)),
    ]
)
POINTS_DDL = "id BIGINT, x DOUBLE, y DOUBLE, ts TIMESTAMP, speed DOUBLE, kind STRING, load INT"
QUERIES_DDL = (
    "op STRING, id BIGINT, min_x DOUBLE, min_y DOUBLE, max_x DOUBLE, max_y DOUBLE, where STRING, "
    "aggregate STRING, window STRING, slide STRING, since TIMESTAMP, until TIMESTAMP"
)

SHAPES = pa.schema(
    [("geometry", pa.string()), ("radius", pa.float64()), ("radius_m", pa.float64())]
)
SHAPES_DDL = ", geometry STRING, radius DOUBLE, radius_m DOUBLE"

CONDITIONS = {
    None: lambda p: True,
    "speed > 50": lambda p: p["speed"] is not None and p["speed"] > 50,
    "kind = 'bus' or load between 2 and 4": lambda p: p["kind"] == "bus" or 2 <= p["load"] <= 4,
}
WINDOWS = {("10 s", None): (10, 10), ("10 s", "5 s"): (10, 5), ("3 s", "1 s"): (3, 1)}
AGGREGATES = ("count", "count, mean(speed)", "sum(load), min(speed), max(speed), sum(speed)")


def inside(point: dict[str, Any], query: dict[str, Any]) -> bool:
    """Say whether a point matches a query, whatever its kind."""
    return (
        covers(query, point["x"], point["y"])
        and (query.get("expires") is None or point["ts"] < query["expires"])
        and CONDITIONS[query.get("where")](point)
    )


def covers(query: dict[str, Any], x: float, y: float) -> bool:
    """Say whether a place lies in the shape of a query, its boundary included."""
    if query.get("geometry") is None:
        return query["min_x"] <= x <= query["max_x"] and query["min_y"] <= y <= query["max_y"]
    shape = parsed(query["geometry"])
    if query.get("radius") is not None:
        return math.hypot(x - shape.x, y - shape.y) <= query["radius"]
    if query.get("radius_m") is not None:
        return metres(x, y, shape.x, shape.y) <= query["radius_m"]
    return bool(shapely.intersects_xy(shape, x, y))


@cache
def parsed(text: str) -> Any:
    """Return a shape that shapely is ready to ask."""
    shape = shapely.from_geojson(text) if text.startswith("{") else shapely.from_wkt(text)
    shapely.prepare(shape)
    return shape


def metres(x: float, y: float, other_x: float, other_y: float) -> float:
    """Return the length of the great circle between two places, in metres."""
    a, b, c, d = map(math.radians, (y, other_y, other_x - x, other_y - y))
    h = math.sin(d / 2) ** 2 + math.cos(a) * math.cos(b) * math.sin(c / 2) ** 2
    return 2 * 6_371_008.8 * math.asin(math.sqrt(h))


class Scene:
    """Batches of points and of operations, from a seed.

    Parameters
    ----------
    seed
        Fixes everything.
    kinds
        Which queries there are, of ``continuous``, ``aggregates``, ``snapshots``.
    batches, points, operations
        How many there are, and how many of each in a batch.
    shapes
        Whether queries are polygons and circles as well as rectangles.
    """

    def __init__(
        self, seed: int, kinds: tuple[str, ...], batches: int = 6, points: int = 150,
        operations: int = 24, shapes: bool = False,
    ) -> None:  # fmt: skip
        draw = random.Random(seed)
        self.shapes = shapes
        self.corners: list[tuple[float, float]] = []
        self.batches: list[tuple[list[dict[str, Any]], list[dict[str, Any]]]] = []
        live: list[int] = []
        number = point_id = 0
        for batch in range(batches):
            rows = []
            for _ in range(operations):
                kind = draw.choice(kinds)
                if kind == "snapshots":
                    number += 1
                    rows.append(self._snapshot(draw, number, batch))
                    continue
                what = draw.choice(["register", "register", "register", "update", "unregister"])
                if what == "register" or not live:
                    number += 1
                    live.append(number)
                    rows.append({"op": "register", "id": number, **self._query(draw, kind)})
                elif what == "update":
                    rows.append({"op": what, "id": draw.choice(live), **self._query(draw, kind)})
                else:
                    rows.append({"op": what, "id": live.pop(draw.randrange(len(live)))})
            some = []
            for _ in range(points):
                point_id += 1
                some.append(self._point(draw, point_id, batch))
            self.batches.append((rows, some))

    def _box(self, draw: random.Random) -> dict[str, Any]:
        if self.shapes and draw.random() < 0.8:
            return self._shape(draw)
        x, y = draw.uniform(BOUNDS[0], BOUNDS[2]), draw.uniform(BOUNDS[1], BOUNDS[3])
        w, h = draw.uniform(0, BOUNDS[2] - x) ** 0.9, draw.uniform(0, BOUNDS[3] - y) ** 0.9
        right, top = min(x + w, BOUNDS[2]), min(y + h, BOUNDS[3])
        return {"min_x": x, "min_y": y, "max_x": right, "max_y": top}

    def _shape(self, draw: random.Random) -> dict[str, Any]:
        x, y = draw.uniform(BOUNDS[0], BOUNDS[2]), draw.uniform(BOUNDS[1], BOUNDS[3])
        if draw.random() < 0.4:
            name, unit = draw.choice([("radius", 1.0), ("radius_m", 111_000.0)])
            return {"geometry": f"POINT ({x!r} {y!r})", name: draw.uniform(0, 3) * unit}
        vertices = draw.choice([3, 7, 40])
        angles = sorted(draw.uniform(0, 2 * math.pi) for _ in range(vertices))
        far = [draw.uniform(0.5, 4) for _ in angles]
        ring = [
            (x + r * math.cos(a), y + r * math.sin(a)) for a, r in zip(angles, far, strict=True)
        ]
        shape = shapely.make_valid(shapely.Polygon(ring))
        shape = shape.difference(shapely.Point(x, y).buffer(0.4, quad_segs=3))
        parts = [one for one in shapely.get_parts(shape) if one.geom_type == "Polygon"]
        shape = shapely.MultiPolygon(parts)
        if not parts or not shape.is_valid:
            return self._shape(draw)
        self.corners += ring
        to_text = draw.choice([shapely.to_geojson, lambda one: shapely.to_wkt(one, -1)])
        return {"geometry": to_text(shape)}

    def _query(self, draw: random.Random, kind: str) -> dict[str, Any]:
        query = {**self._box(draw), "where": draw.choice(list(CONDITIONS))}
        if kind == "aggregates":
            query["aggregate"] = draw.choice(AGGREGATES)
            query["window"], query["slide"] = draw.choice(list(WINDOWS))
        return query

    def _snapshot(self, draw: random.Random, number: int, batch: int) -> dict[str, Any]:
        row = {"op": draw.choice(["range", "count"]), "id": number, **self._box(draw)}
        row["where"] = draw.choice(list(CONDITIONS))
        now = START + 5 * SECOND * batch
        if draw.random() < 0.3:
            row["since"] = now - draw.randrange(20 * SECOND)
        if draw.random() < 0.3:
            row["until"] = now - draw.randrange(10 * SECOND)
            row["since"] = min(row.get("since", row["until"]), row["until"])
        return row

    def _point(self, draw: random.Random, point_id: int, batch: int) -> dict[str, Any]:
        late = draw.randrange(15 * SECOND) if draw.random() < 0.15 else 0
        ts = START + 5 * SECOND * batch + draw.randrange(5 * SECOND) - late
        point = {
            "id": point_id,
            # Some at the very same place, and at the very same time.
            "x": draw.choice([draw.uniform(BOUNDS[0], BOUNDS[2]), 1.0]),
            "y": draw.uniform(BOUNDS[1], BOUNDS[3]),
            "ts": draw.choice([ts, ts // SECOND * SECOND]),
            "speed": draw.choice([None, draw.uniform(0, 100), 0.1]),
            "kind": draw.choice([None, "bus", "täxi"]),
            "load": draw.randrange(6),
        }
        if self.corners and draw.random() < 0.2:
            x, y = draw.choice(self.corners)
            if BOUNDS[0] <= x <= BOUNDS[2] and BOUNDS[1] <= y <= BOUNDS[3]:
                point |= {"x": x, "y": y}
        return point

    def write(self, folder: Path, first: int = 0, last: int | None = None) -> None:
        """Write the files of some batches, which Spark's file source takes one by one."""
        for i, rows in list(enumerate(self.batches))[first:last]:
            queries = pa.schema([*QUERIES, *SHAPES]) if self.shapes else QUERIES
            names = ("queries", queries), ("points", POINTS)
            for (name, schema), some in zip(names, rows, strict=True):
                (folder / name).mkdir(parents=True, exist_ok=True)
                path = folder / name / f"{i:05}.parquet"
                pq.write_table(pa.Table.from_pylist(some, schema=schema), path)
                os.utime(path, (FIRST_TIME + i, FIRST_TIME + i))

    def streams(self, spark: Any, folder: Path) -> tuple[Any, Any]:
        """Return the streams of points and of operations."""
        reader = spark.readStream.option("maxFilesPerTrigger", 1)
        return (
            reader.schema(POINTS_DDL).parquet(str(folder / "points")),
            reader.schema(QUERIES_DDL + SHAPES_DDL * self.shapes).parquet(str(folder / "queries")),
        )


@dataclass
class Expected:
    """What must come of a scene.

    Attributes
    ----------
    matches
        (batch, point, query) of continuous queries.
    summaries
        (batch, query, start, end, aggregates) of windows.
    answers
        (batch, query, count or None, point or None) of snapshot queries.
    late
        Points too late for a window, once for each query.
    """

    matches: Counter[tuple[int, int, int]]
    summaries: Counter[tuple[Any, ...]]
    answers: Counter[tuple[Any, ...]]
    late: int


def expected(scene: Scene, window: Any = None) -> Expected:
    """Go through a scene."""
    found = Expected(Counter(), Counter(), Counter(), 0)
    live: dict[int, dict[str, Any]] = {}
    state: dict[int, dict[int, list[dict[str, Any]]]] = {}
    past: list[dict[str, Any]] = []
    for batch, (rows, points) in enumerate(scene.batches):
        watermark = max((p["ts"] for p in past), default=None)
        if watermark is not None:
            watermark -= DELAY
        for row in rows:
            if row["op"] in ("range", "count"):
                _answer(found, batch, row, past, window)
                continue
            state.pop(row["id"], None)
            if row["op"] == "unregister":
                del live[row["id"]]
            else:
                live[row["id"]] = row
        for key, windows in state.items():
            for end in [end for end in windows if watermark is not None and end <= watermark]:
                _tell(found, batch, key, live[key], end, windows.pop(end))
        for point in points:
            for key, query in live.items():
                if not inside(point, query):
                    continue
                if query.get("aggregate") is None:
                    found.matches[batch, point["id"], key] += 1
                    continue
                length, slide = (s * SECOND for s in WINDOWS[query["window"], query.get("slide")])
                first = point["ts"] // slide * slide + slide
                ends = range(first, first + length, slide)
                open_ends = [e for e in ends if watermark is None or e > watermark]
                found.late += not open_ends
                for end in open_ends:
                    state.setdefault(key, {}).setdefault(end, []).append(point)
        past += points
    return found


def _tell(
    found: Expected, batch: int, key: int, query: dict[str, Any], end: int, points: list[Any]
) -> None:
    length = WINDOWS[query["window"], query.get("slide")][0] * SECOND
    told = []
    for term in query["aggregate"].split(", "):
        name, _, column = term.rstrip(")").partition("(")
        values = [p[column] for p in points if p[column] is not None] if column else points
        value: Any = len(values)
        if name != "count" and not values:
            continue
        if name in ("sum", "mean"):
            exact = sum(map(Fraction, values)) / (len(values) if name == "mean" else 1)
            value = int(exact) if (name, column) == ("sum", "load") else float(exact)
        elif name in ("min", "max"):
            value = {"min": min, "max": max}[name](values)
        told.append((f"{name}_{column}" if column else name, value))
    found.summaries[batch, key, end - length, end, tuple(sorted(told))] += 1


def _answer(found: Expected, batch: int, ask: dict[str, Any], past: list[Any], window: Any) -> None:
    hits = answer(ask, past, window)
    if ask["op"] == "count":
        found.answers[batch, ask["id"], len(hits), None] += 1
    for p in hits if ask["op"] == "range" else ():
        found.answers[batch, ask["id"], None, p["id"]] += 1


def answer(ask: dict[str, Any], past: list[Any], window: Any) -> list[Any]:
    """Return the points that a snapshot query sees."""
    if not past:
        return []
    now = max(p["ts"] for p in past)
    newest = sorted(past, key=lambda p: -p["ts"])
    if isinstance(window, Sliding):
        since = now - window.length
    elif isinstance(window, Tumbling):
        since = now // window.length * window.length
    else:
        least = window.points if isinstance(window, Count) else window.limit
        total, since = 0, None
        for p in newest:
            total += size_of(p) if isinstance(window, Bytes) else 1
            if total >= least:
                since = p["ts"]
                break
    since = max([s for s in (since, ask.get("since")) if s is not None], default=None)
    until = ask.get("until")
    return [
        p
        for p in past
        if inside(p, ask)
        and (since is None or p["ts"] >= since)
        and (until is None or p["ts"] <= until)
    ]


def size_of(point: dict[str, Any]) -> int:
    """Return the bytes of a point's values: five of 8 bytes, one of 4, and a text."""
    return 5 * 8 + 4 + 4 + len((point["kind"] or "").encode())


# -- what came of it ---------------------------------------------------------------------------


def told(table: pa.Table) -> Counter[tuple[Any, ...]]:
    """Return summaries as the oracle has them."""
    found: Counter[tuple[Any, ...]] = Counter()
    for row in table.to_pylist():
        batch, key = row.pop("batch_id"), row.pop("query_id")
        start, end = (_micros(row.pop(f"window_{edge}")) for edge in ("start", "end"))
        values = sorted((name, value) for name, value in row.items() if value is not None)
        found[batch, key, start, end, tuple(values)] += 1
    return found


def answered(table: pa.Table) -> Counter[tuple[Any, ...]]:
    """Return answers as the oracle has them."""
    return Counter(
        (row["batch_id"], row["query_id"], row["count"], row["id"]) for row in table.to_pylist()
    )


def _micros(when: datetime) -> int:
    return round(when.timestamp() * SECOND)
