"""Polygons and circles on Spark, compared with shapely, while partitions change and runs break."""

import numpy as np
import pytest
import shapely
from pyspark.errors import StreamingQueryException

from sparkswarm import InputError, MemorySink, Sliding, Swarm

from .kinds import Scene
from .test_kinds import Run
from .world import BOUNDS, config, difference, matches_of, quarantine_in


def test_shapes_of_all_kinds_of_queries_while_partitions_change_and_a_batch_fails(spark, tmp_path):
    scene = Scene(21, ("continuous", "aggregates", "snapshots"), shapes=True)
    scene.write(tmp_path, 0, 4)
    run = Run(spark, tmp_path, scene, Sliding("12 s"))

    def failing(results, batch_id):
        if batch_id == 2:
            results.count()
            raise LookupError("no room left")
        run.restless(results, batch_id)

    with pytest.raises(StreamingQueryException, match="no room left"):
        run.through(failing)
    run.through()
    scene.write(tmp_path, 4)
    wanted = run.check(run.through(), late_of_this_start=False)
    assert len(wanted.matches) > 100
    assert wanted.summaries
    assert wanted.answers


def large_polygon(vertices):
    angle = np.linspace(0, 2 * np.pi, vertices, endpoint=False)
    far = 3 + np.sin(angle * 97) / 4
    return shapely.Polygon(np.stack([2 + far * np.cos(angle), 13 + far * np.sin(angle)], 1))


def test_shapes_are_loaded_in_bulk_beside_rectangles_and_bad_ones_are_kept_apart(spark, tmp_path):
    scene = Scene(22, ("continuous",), batches=2, points=400, operations=1)
    scene.write(tmp_path)
    points, _ = scene.streams(spark, tmp_path)
    shapes = {
        1: large_polygon(50_000),
        2: shapely.Polygon([(0, 11), (4, 11), (4, 16)], [[(3, 12), (3.5, 12), (3.5, 13)]]),
        3: shapely.box(-2, 11, 1.0, 14),
    }
    rows = [(key, bytearray(shapely.to_wkb(one)), None, None) for key, one in shapes.items()]
    rows += [(key, None, None, -1.0) for key in range(4, 20)]
    bow = shapely.from_wkt("POLYGON ((0 11, 1 12, 1 11, 0 12, 0 11))")
    rows += [
        (20, bytearray(shapely.to_wkb(bow)), None, None),
        (21, bytearray(b"nonsense"), None, None),
        (22, bytearray(shapely.to_wkb(shapely.Point(1, 12))), None, None),
        (23, bytearray(shapely.to_wkb(shapely.Point(50, 50))), 1.0, None),
    ]
    edges = ("min_x", "min_y", "max_x", "max_y")
    preload = spark.createDataFrame(
        [(k, g, r, *((None,) * 4 if m is None else BOUNDS)) for k, g, r, m in rows],
        "id LONG, geometry BINARY, radius DOUBLE, " + ", ".join(f"{e} DOUBLE" for e in edges),
    )
    sink = MemorySink()
    handle = Swarm(spark, config(executors=3)).start(
        points, preload=preload, sink=sink, checkpoint=str(tmp_path / "checkpoint"),
        trigger={"availableNow": True},
    )  # fmt: skip
    handle.await_termination()
    wanted = {}
    for batch, (_, some) in enumerate(scene.batches):
        for p in some:
            found = [k for k, s in shapes.items() if shapely.intersects_xy(s, p["x"], p["y"])]
            wanted |= {(batch, p["id"], key): 1 for key in (*found, *range(4, 20))}
    assert not difference(matches_of(sink.table()), type(matches_of(sink.table()))(wanted))
    assert handle.status().quarantined == {
        ("query", "invalid geometry: Self-intersection"): 1,
        ("query", "geometry is neither WKB, WKT nor GeoJSON"): 1,
        ("query", "a POINT needs radius or radius_m"): 1,
        ("query", "outside the bounds"): 1,
    }
    reasons = {reason for _, _, reason, _ in quarantine_in(tmp_path / "checkpoint")}
    assert "invalid geometry: Self-intersection[0.5 11.5]" in reasons


def test_a_geometry_is_text_or_binary(spark, tmp_path):
    scene = Scene(23, ("continuous",), batches=1, operations=1)
    scene.write(tmp_path)
    points, queries = scene.streams(spark, tmp_path)
    with pytest.raises(InputError, match="geometry"):
        Swarm(spark, config()).start(
            points, queries.selectExpr("op", "id", "1.5 AS geometry"), sink="noop",
            checkpoint=str(tmp_path / "c"),
        )  # fmt: skip
