"""``sparkswarm bench fences``: polygons and circles, against shapely in Spark; events; names.

The rival is what a PySpark user who knows shapely writes: the fences are broadcast, each Python
worker builds an STRtree once, and ``mapInArrow`` asks it about a batch of points. Two forms of it
are measured, and the faster counts: ``query`` with a predicate, and ``query`` for candidates that
are then tested with prepared polygons. Both give pairs of a point and a fence, as the engine does
here.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import shapely
from pyspark.sql import DataFrame, SparkSession

from sparkswarm.bench.fence_events import ROUNDS, run_events, strings_to_longs
from sparkswarm.bench.plain_spark import WARM_UP, batch_seconds, bench_session
from sparkswarm.config import SwarmConfig
from sparkswarm.spark.engine import Swarm
from sparkswarm.spark.sinks import MemorySink, NoopSink, Sink

SIDE = 100.0
"""Side of the space, from 0 in both directions."""
GRID = (1000, 1000)
CITIES = 50
"""Number of places around which half of the fences and points lie."""
POINTS_SCHEMA = "id LONG, x DOUBLE, y DOUBLE, at TIMESTAMP"
FENCES_SCHEMA = "id LONG, geometry BINARY, radius DOUBLE"

STEPS = 7
"""Steps of the benchmark."""

OnStep = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class FenceSettings:
    """Numbers of fences, points of a batch, batches after warming up, and points to check.

    ``queries`` are the rectangles whose ids are whole numbers, then strings. ``step`` is how far an
    object moves between two of its points, on each axis; 0: to any other place. ``cross`` is as in
    :class:`~sparkswarm.Events`, 0 for none.
    """

    polygons: int = 100_000
    circles: int = 1_000
    countries: int = 20
    points: int = 500_000
    objects: int = 1_000_000
    step: float = 0.05
    cross: float = 0.0
    queries: int = 1_000_000
    batches: int = 3
    checked: int = 200
    cores: int = 2
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FencesRun:
    """Points per second of the engine and of each form of the rival, and what was checked."""

    points_per_s: float
    predicate: float
    prepared: float
    events_per_s: float
    objects: int
    strings_to_longs: float
    asks_per_s: float
    checked: int
    wrong: int

    def to_json(self) -> dict[str, Any]:
        """Return JSON values."""
        rival = max(self.predicate, self.prepared)
        return {
            "match": {
                "points_per_s": round(self.points_per_s),
                "rivals": {
                    "shapely_in_spark": round(rival),
                    "shapely_predicate": round(self.predicate),
                    "shapely_prepared": round(self.prepared),
                },
                "ratio": round(self.points_per_s / rival, 2),
            },
            "events": {
                "points_per_s": round(self.events_per_s),
                "share_of_match": round(self.events_per_s / self.points_per_s, 2),
                "objects": self.objects,
            },
            "strings": {"ratio_to_longs": round(self.strings_to_longs, 3)},
            "nearest": {"asks_per_s": round(self.asks_per_s, 1)},
            "oracle": {"checked": self.checked, "wrong": self.wrong},
        }


def run_fences(settings: FenceSettings, on_step: OnStep = lambda _: None) -> FencesRun:
    """Run the benchmark; ``on_step`` is called before each of its :data:`STEPS`."""
    on_step("inputs")
    rng = np.random.default_rng(settings.seed)
    cities = rng.uniform(0.1 * SIDE, 0.9 * SIDE, (CITIES, 2))
    fences = make_fences(settings, cities, rng)
    positions = places(settings.objects, cities, rng)
    with tempfile.TemporaryDirectory(prefix="sparkswarm-") as name:
        folder = Path(name)
        number = max(WARM_UP, -(-settings.objects // settings.points)) + settings.batches
        for batch in range(number):
            for part in range(batch * settings.cores, (batch + 1) * settings.cores):
                size = settings.points // settings.cores
                # The objects in turn.
                ids = (np.arange(size) + part * size) % settings.objects
                moved = positions[ids] + rng.normal(0, settings.step, (size, 2))
                positions[ids] = (
                    np.clip(moved, 0, SIDE) if settings.step else places(size, cities, rng)
                )
                _write_points(folder / "points", part, batch, ids, positions[ids])
        sample = places(settings.checked, cities, rng)
        _write_points(folder / "sample", 0, 0, np.arange(settings.checked), sample)
        (folder / "fences").mkdir()
        pq.write_table(fences, folder / "fences" / "0.parquet")
        with bench_session("sparkswarm bench fences", settings.cores) as spark:
            bench = _Bench(spark, folder, settings)
            on_step("oracle")
            wrong = wrong_points(bench.matches(), fences, sample)
            on_step("sparkswarm")
            own = bench.speed(bench.match("points", NoopSink()))
            on_step("shapely, query with a predicate")
            predicate = bench.speed(bench.rival(fences, prepared=False))
            on_step("shapely, prepared polygons")
            prepared = bench.speed(bench.rival(fences, prepared=True))
            on_step("events")
            seconds, objects, asks = run_events(
                *(spark, folder, bench.stream("points"), bench.fences(), bench.config),
                settings.cross,
            )
            on_step("whole numbers and strings")
            streams = [bench.stream("points") for _ in range(2 * ROUNDS)]
            ratio = strings_to_longs(spark, folder, streams, settings.queries, bench.config)
    return FencesRun(
        points_per_s=own,
        predicate=predicate,
        prepared=prepared,
        events_per_s=bench.speed(seconds),
        objects=objects,
        strings_to_longs=ratio,
        asks_per_s=asks,
        checked=settings.checked,
        wrong=wrong,
    )


# -- inputs ------------------------------------------------------------------------------------


def places(
    number: int, cities: npt.NDArray[np.float64], rng: np.random.Generator
) -> npt.NDArray[np.float64]:
    """Return x and y of places, half of them around cities."""
    found = rng.uniform(0, SIDE, (number, 2))
    near = rng.random(number) < 0.5
    chosen = cities[rng.integers(len(cities), size=int(near.sum()))]
    found[near] = chosen + rng.normal(0, 0.02 * SIDE, (len(chosen), 2))
    inside: npt.NDArray[np.float64] = np.clip(found, 0, SIDE)
    return inside


def make_fences(
    settings: FenceSettings, cities: npt.NDArray[np.float64], rng: np.random.Generator
) -> pa.Table:
    """Return polygons of 5 to 200 vertices, circles, and countries of 10,000 vertices and more."""
    small, large = settings.polygons, settings.countries
    vertices = np.concatenate([rng.integers(5, 201, small), rng.integers(10_000, 20_001, large)])
    sizes = np.concatenate([rng.uniform(0.0005, 0.003, small), rng.uniform(0.05, 0.1, large)])
    shapes = stars(places(small + large, cities, rng), sizes * SIDE, vertices, rng)
    middles = shapely.points(places(settings.circles, cities, rng))
    radius = rng.uniform(0.0005, 0.003, settings.circles) * SIDE
    geometry = shapely.to_wkb(np.concatenate([shapes, middles]))
    return pa.table(
        {
            "id": np.arange(len(geometry)),
            "geometry": pa.array(geometry, pa.binary()),
            "radius": pa.array([None] * len(shapes) + radius.tolist(), pa.float64()),
        }
    )


def stars(
    middles: npt.NDArray[np.float64],
    sizes: npt.NDArray[np.float64],
    vertices: npt.NDArray[np.int64],
    rng: np.random.Generator,
) -> npt.NDArray[np.object_]:
    """Return ragged polygons around their middles, with these numbers of vertices."""
    polygon = np.repeat(np.arange(len(vertices)), vertices)
    place = np.arange(len(polygon)) - np.repeat(np.cumsum(vertices) - vertices, vertices)
    angle = (place + rng.uniform(0, 0.9, len(polygon))) / vertices[polygon] * 2 * np.pi
    far = sizes[polygon] * rng.uniform(0.6, 1.0, len(polygon))
    unit = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    rings = shapely.linearrings(middles[polygon] + far[:, None] * unit, indices=polygon)
    made: npt.NDArray[np.object_] = shapely.polygons(rings)
    return made


def _write_points(
    folder: Path,
    number: int,
    batch: int,
    ids: npt.NDArray[np.int64],
    points: npt.NDArray[np.float64],
) -> None:
    """Write a file of points, those of a batch with one time."""
    folder.mkdir(exist_ok=True)
    at = pa.array(np.full(len(points), batch * 60_000_000)).cast(pa.timestamp("us", "UTC"))
    table = pa.table({"id": ids, "x": points[:, 0].copy(), "y": points[:, 1].copy(), "at": at})
    pq.write_table(table, folder / f"{number:05}.parquet")


# -- runs --------------------------------------------------------------------------------------


class _Bench:
    """Runs of the engine and of the rival on the same files."""

    def __init__(self, spark: SparkSession, folder: Path, settings: FenceSettings) -> None:
        self._spark, self._folder, self._settings = spark, folder, settings
        self.config = SwarmConfig(bounds=(0, 0, SIDE, SIDE), grid=GRID, executors=settings.cores)

    def speed(self, seconds: list[float]) -> float:
        """Return points per second, by the median of the last batches."""
        return self._settings.points / median(seconds[-self._settings.batches :])

    def fences(self) -> DataFrame:
        """Return the fences as queries to preload."""
        return self._spark.read.schema(FENCES_SCHEMA).parquet(str(self._folder / "fences"))

    def matches(self) -> set[tuple[int, int]]:
        """Return the pairs that the engine finds for the sample."""
        sink = MemorySink()
        self.match("sample", sink)
        table = sink.table()
        pairs = zip(table["id"].to_pylist(), table["query_id"].to_pylist(), strict=True)
        return set(pairs)

    def match(self, points: str, sink: Sink) -> list[float]:
        """Match the points of a folder with the engine; return the seconds of each batch."""
        checkpoint = self._folder / f"checkpoint-{points}"
        handle = Swarm(self._spark, self.config).start(
            self.stream(points),
            preload=self.fences(),
            sink=sink,
            checkpoint=str(checkpoint),
            results="pairs",
            trigger={"availableNow": True},
        )
        handle.await_termination()
        shutil.rmtree(checkpoint, ignore_errors=True)
        return list(batch_seconds(handle.query).values())

    def rival(self, fences: pa.Table, *, prepared: bool) -> list[float]:
        """Match the points with shapely; return the seconds of each batch."""
        content = self._spark.sparkContext.broadcast(fences)
        points = self.stream("points")
        pairs = points.mapInArrow(
            partial(shapely_pairs, content, prepared), "id LONG, query_id LONG"
        )
        checkpoint = self._folder / f"checkpoint-rival-{prepared}"
        query = (
            pairs.writeStream.format("noop")
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        content.unpersist()
        return list(batch_seconds(query).values())

    def stream(self, name: str) -> DataFrame:
        """Return the points of a folder, a batch at a time."""
        reader = self._spark.readStream.schema(POINTS_SCHEMA)
        reader = reader.option("maxFilesPerTrigger", self._settings.cores)
        return reader.parquet(str(self._folder / name))


class _Trees:
    """The fences of the rival in a Python worker."""

    def __init__(self, fences: pa.Table) -> None:
        radius = fences["radius"].to_numpy()
        circle = ~np.isnan(radius)
        geometries = shapely.from_wkb(fences["geometry"].to_numpy(zero_copy_only=False))
        ids = fences["id"].to_numpy()
        self.polygons, self.polygon_ids = geometries[~circle], ids[~circle]
        self.middles = shapely.get_coordinates(geometries[circle])
        self.circle_ids, self.radius = ids[circle], radius[circle]
        self.polygon_tree = shapely.STRtree(self.polygons)
        low, high = self.middles - self.radius[:, None], self.middles + self.radius[:, None]
        self.circle_tree = shapely.STRtree(shapely.box(*low.T, *high.T))

    def pairs(
        self, xy: npt.NDArray[np.float64], prepared: bool
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the rows of points and the ids of the fences that contain them."""
        points = shapely.points(xy)
        if prepared:
            row, at = self.polygon_tree.query(points)
            kept = shapely.intersects_xy(self.polygons[at], xy[row, 0], xy[row, 1])
            row, at = row[kept], at[kept]
        else:
            row, at = self.polygon_tree.query(points, predicate="intersects")
        near, middle = self.circle_tree.query(points)
        apart = xy[near] - self.middles[middle]
        kept = (apart * apart).sum(axis=1) <= self.radius[middle] ** 2
        rows = np.concatenate([row, near[kept]])
        return rows, np.concatenate([self.polygon_ids[at], self.circle_ids[middle[kept]]])


_trees: dict[bool, _Trees] = {}
"""The trees of a worker, which serves many tasks, by whether polygons are prepared."""


def shapely_pairs(
    content: Any, prepared: bool, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Match points with shapely, in a task of the rival."""
    if prepared not in _trees:
        _trees[prepared] = _Trees(content.value)
        if prepared:
            shapely.prepare(_trees[prepared].polygons)
    for batch in batches:
        xy = np.stack([batch.column("x").to_numpy(), batch.column("y").to_numpy()], axis=1)
        rows, found = _trees[prepared].pairs(xy, prepared)
        ids = batch.column("id").to_numpy()[rows]
        yield pa.record_batch({"id": ids, "query_id": found})


def wrong_points(
    found: set[tuple[int, int]], fences: pa.Table, points: npt.NDArray[np.float64]
) -> int:
    """Compare points with every fence by shapely; return the number with other matches."""
    trees = _Trees(fences)
    shapely.prepare(trees.polygons)
    wrong = 0
    for number, (x, y) in enumerate(points.tolist()):
        inside = trees.polygon_ids[shapely.intersects_xy(trees.polygons, x, y)]
        apart = np.hypot(trees.middles[:, 0] - x, trees.middles[:, 1] - y)
        wanted = {*inside.tolist(), *trees.circle_ids[apart <= trees.radius].tolist()}
        wrong += wanted != {query for point, query in found if point == number}
    return wrong
