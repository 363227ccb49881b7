"""Fences and objects of a checkpoint, as the map shows them."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import shapely

from sparkswarm import SwarmConfig
from sparkswarm.apps.events.objects import BoundEvents, buckets_of, object_schema
from sparkswarm.apps.events.settings import Events
from sparkswarm.index.layout import NEVER
from sparkswarm.index.shapes import EARTH_RADIUS
from sparkswarm.map import fences
from sparkswarm.map.fences import FenceView
from sparkswarm.spark.tasks.context import BatchContext
from sparkswarm.store.epochs import INITIAL, Commit, Epochs
from sparkswarm.store.manifest import ObjectsRef
from sparkswarm.store.names import hash_name

from ..support.tasks import Tasks, operations_table, register

EVENTS = BoundEvents(Events(), pa.string(), pa.string())


class Checkpoint:
    """A checkpoint whose commits are written by hand, by default of a space of 8 by 8."""

    def __init__(self, folder: Path, config: SwarmConfig | None = None) -> None:
        self.folder = folder
        self.tasks = Tasks(folder / "swarm", id_type=pa.string(), config=config)
        self.epochs = Epochs(self.tasks.input.files, 10)
        self.epochs.take_over()
        self.epochs.check_run({})
        self.batch = INITIAL

    def commit(self, *rows: dict[str, Any], at: int = 0) -> None:
        """Apply operations, whose geometry may be a shape, and commit a batch."""
        if rows:
            table = operations_table(*rows)
            texts = [row.get("geometry") for row in rows]
            table = table.append_column("geometry", pa.array(texts, pa.string()))
            for name in ("radius", "radius_m"):
                values = pa.array([row.get(name) for row in rows], pa.float64())
                table = table.append_column(name, values)
            properties = pa.array([row.get("properties") for row in rows], pa.string())
            self.tasks._apply(table.append_column("properties", properties))
        self.epochs.commit(
            Commit(
                batch=self.batch,
                plan=self.tasks.plan,
                manifest=self.tasks.input.epoch.manifest,
                max_event_time=at,
            )
        )
        self.tasks.commit(at)
        self.batch += 1

    def keep(self, *objects: tuple[str, float, float, int, list[str]]) -> None:
        """Store objects: id, x, y, time and fences; the next commit has them."""
        ctx = BatchContext(self.tasks.input)
        by_bucket: dict[int, list[dict[str, Any]]] = {}
        for name, x, y, time, stays in objects:
            row: dict[str, Any] = {"object": name, "time": time, "x": x, "y": y, "names": stays}
            row["fences"] = [hash_name(stay.encode()) for stay in stays]
            row |= {"until": [NEVER] * len(stays), "since": [0] * len(stays)}
            row["dwelt"] = [0] * len(stays)
            (bucket,) = buckets_of(pa.array([name])).tolist()
            by_bucket.setdefault(bucket, []).append(row)
        refs = {}
        for bucket, rows in by_bucket.items():
            table = pa.Table.from_pylist(rows, schema=object_schema(EVENTS))
            ((file, offset),) = ctx.write_tables("objects", f"b{bucket}", [table])
            refs[bucket] = ObjectsRef(
                file=file, offset=offset, rows=len(rows), oldest=0, until=NEVER
            )  # fmt: skip
        epoch = self.tasks.input.epoch
        manifest = epoch.manifest.with_objects(refs)
        self.tasks.input = replace(self.tasks.input, epoch=replace(epoch, manifest=manifest))


@pytest.fixture
def checkpoint(tmp_path):
    made = Checkpoint(tmp_path)
    made.commit(at=100)
    return made


def shown(scene):
    return json.loads(scene.fences())


def test_fences_of_all_shapes_are_outlined(checkpoint):
    hole = "POLYGON ((1 1, 5 1, 5 5, 1 5, 1 1), (2 2, 3 2, 3 3, 2 3, 2 2))"
    two = "MULTIPOLYGON (((0 6, 1 6, 1 7, 0 6)), ((6 6, 7 6, 7 7, 6 6)))"
    checkpoint.commit(
        register("box", 0.0, 0.0, 2.0, 1.0, properties='{"name":"Box"}'),
        {"op": "register", "id": "hole", "geometry": hole},
        {"op": "register", "id": "two", "geometry": two},
        {"op": "register", "id": "circle", "geometry": "POINT (4 4)", "radius": 2.0},
        {"op": "register", "id": "globe", "geometry": "POINT (4 4)", "radius_m": 50_000.0},
        at=200,
    )
    found = shown(FenceView(checkpoint.folder))
    assert (found["batch"], found["total"], found["density"]) == (0, 5, None)
    by_id = {one["id"]: one for one in found["fences"]}
    rings = {
        name: [np.reshape(ring, (-1, 2)) for ring in one["rings"]] for name, one in by_id.items()
    }
    assert shapely.Polygon(rings["box"][0]).equals(shapely.box(0, 0, 2, 1))
    assert shapely.Polygon(rings["hole"][0], rings["hole"][1:]).equals(shapely.from_wkt(hole))
    assert [len(ring) for ring in rings["two"]] == [4, 4]
    assert np.allclose(np.hypot(*(rings["circle"][0] - 4).T), 2)
    lon, lat = np.radians(rings["globe"][0] - [4, 0]).T
    cosine = np.sin(lat) * math.sin(math.radians(4))
    cosine += np.cos(lat) * math.cos(math.radians(4)) * np.cos(lon)
    assert np.allclose(np.arccos(cosine) * EARTH_RADIUS, 50_000, rtol=1e-4)
    assert by_id["box"]["properties"] == '{"name":"Box"}'
    assert {one["inside"] for one in found["fences"]} == {None}


def test_a_large_outline_is_thinned_and_many_fences_are_the_largest(checkpoint, monkeypatch):
    angle = np.linspace(0, 2 * math.pi, 5001)
    ring = np.stack([4 + 3 * np.cos(angle), 4 + 3 * np.sin(angle)], axis=1)
    rows = [register(f"s{i}", 1.0, 1.0, 1.0 + i / 10, 2.0) for i in range(1, 9)]
    big = {"op": "register", "id": "big", "geometry": shapely.Polygon(ring).wkt}
    checkpoint.commit(*rows, big)
    monkeypatch.setattr(fences, "MOST_FENCES", 3)
    found = shown(FenceView(checkpoint.folder))
    assert found["total"] == 9
    assert [one["id"] for one in found["fences"]] == ["big", "s8", "s7"]
    (outline,) = found["fences"][0]["rings"]
    assert len(outline) / 2 <= fences.MOST_VERTICES + 1
    assert outline[:2] == outline[-2:]
    monkeypatch.setattr(fences, "MOST_READ", 5)
    found = shown(FenceView(checkpoint.folder))
    assert (found["total"], found["fences"]) == (9, [])


def test_objects_are_counted_by_place_and_fence_and_the_nearest_is_told(checkpoint):
    checkpoint.commit(register("a", 0.0, 0.0, 4.0, 4.0), at=200)
    scene = FenceView(checkpoint.folder)
    assert scene.nearest(1.0, 1.0) == b"null"
    checkpoint.keep(
        ("van-1", 1.0, 1.0, 300, ["a"]), ("van-2", 1.01, 1.0, 310, ["a"]),
        ("van-3", 7.0, 7.0, 320, []), ("long ago", 6.0, 1.0, 150, []),
    )  # fmt: skip
    checkpoint.commit(at=320)
    found = shown(scene)
    assert found["batch"] == 1
    assert [(one["id"], one["inside"]) for one in found["fences"]] == [("a", 2)]
    density = found["density"]
    assert sorted(density["counts"]) == [1, 2]
    assert density["objects"] == 4
    assert len(density["cells"]) == 2
    near = json.loads(scene.nearest(6.0, 6.5))
    assert (near["object"], near["x"], near["fences"]) == ("van-3", 7.0, {})
    assert json.loads(scene.nearest(0.0, 0.0))["fences"].keys() == {"a"}


def test_a_folder_without_a_checkpoint_has_nothing(tmp_path):
    assert shown(FenceView(tmp_path)) == {"batch": None, "total": 0, "fences": [], "density": None}
    (tmp_path / "swarm").mkdir()
    (tmp_path / "swarm" / "run.json").write_text("torn")
    assert shown(FenceView(tmp_path))["total"] == 0
