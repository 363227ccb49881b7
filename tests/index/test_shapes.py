"""Points against shapes, compared with shapely and with exact arithmetic."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkswarm.apps.shapes import parse_shapes
from sparkswarm.index.orientation import orientation
from sparkswarm.index.shapes import PreparedShapes, covered, prepare_shapes
from sparkswarm.store.segments import flat_records


def prepared(*texts: str) -> PreparedShapes:
    none = np.full(len(texts), np.nan)
    parsed = parse_shapes(pa.array(texts), none, none)
    assert [one for one in parsed.reasons if one] == []
    starts, words = flat_records(parsed.records)
    return prepare_shapes(words, starts, parsed.boxes)


def inside(geometry: shapely.Geometry, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return which points a geometry covers; the engine asks only about points of its box."""
    min_x, min_y, max_x, max_y = geometry.bounds
    box = (min_x <= x) & (x <= max_x) & (min_y <= y) & (y <= max_y)
    return covered(prepared(shapely.to_wkb(geometry, hex=True)), 0, x, y) & box


def star(rng: np.random.Generator, vertices: int, grain: float) -> shapely.Geometry:
    """Return a ragged polygon with a hole, its coordinates multiples of ``grain``."""
    angle = np.sort(rng.random(vertices)) * 2 * np.pi
    far = rng.uniform(4, 10, vertices)
    shell = np.round(np.stack([far * np.cos(angle), far * np.sin(angle)], 1) / grain) * grain
    hole = shapely.Point(0, 0).buffer(1.5, quad_segs=max(1, vertices // 16))
    made = shapely.make_valid(shapely.Polygon(shell)).difference(hole)
    parts = [one for one in shapely.get_parts(made) if one.geom_type == "Polygon"]
    return shapely.set_precision(shapely.MultiPolygon(parts), grain)


@given(st.integers(0, 2**32), st.sampled_from([3, 8, 30, 200, 3000]), st.booleans())
@settings(max_examples=40, deadline=None)
def test_polygons_cover_the_points_that_shapely_says(seed: int, vertices: int, raw: bool) -> None:
    rng = np.random.default_rng(seed)
    geometry = star(rng, vertices, 2.0**-6)
    if geometry.is_empty or not geometry.is_valid or geometry.geom_type == "LineString":
        return
    corners = shapely.get_coordinates(geometry)
    middles = (corners[1:] + corners[:-1]) / 2
    free = rng.uniform(-11, 11, (500, 2))
    lattice = np.round(free * 64) / 64
    points = np.concatenate([corners, middles, free if raw else lattice])
    shapely.prepare(geometry)
    expected = shapely.intersects_xy(geometry, points[:, 0], points[:, 1])
    assert (inside(geometry, points[:, 0], points[:, 1]) == expected).all()


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=3, max_size=12))
@settings(max_examples=300, deadline=None)
def test_polygons_on_a_small_lattice_agree_with_shapely_everywhere(
    corners: list[tuple[int, int]],
) -> None:
    made = shapely.make_valid(shapely.Polygon(corners))
    parts = [one for one in shapely.get_parts(made) if one.geom_type in ("Polygon", "MultiPolygon")]
    geometry = shapely.union_all(parts)
    if geometry.is_empty or not geometry.is_valid:
        return
    x, y = (axis.ravel() / 2 for axis in np.meshgrid(np.arange(15.0), np.arange(15.0)))
    assert (inside(geometry, x, y) == shapely.intersects_xy(geometry, x, y)).all()


coordinates = st.one_of(
    st.floats(-1e6, 1e6).filter(lambda v: v == 0 or abs(v) > 1e-100),
    st.integers(-4, 4).map(lambda n: 0.1 * n),
    st.integers(-4, 4).map(lambda n: 12.0 + n * 2.0**-49),
)


@given(st.tuples(*[coordinates] * 6))
@settings(max_examples=500, deadline=None)
def test_orientation_is_exact(values: tuple[float, ...]) -> None:
    ax, ay, bx, by, px, py = map(Fraction, values)
    exact = (ax - px) * (by - py) - (ay - py) * (bx - px)
    assert orientation(*values) == (exact > 0) - (exact < 0)


def test_a_large_polygon_compares_few_edges_for_a_point() -> None:
    angle = np.linspace(0, 2 * np.pi, 50_000, endpoint=False)
    far = 10 + np.sin(angle * 97)
    ring = shapely.Polygon(np.stack([far * np.cos(angle), far * np.sin(angle)], 1))
    shapes = prepared(ring.wkt)
    mixed = (shapes.cells == 2).mean()
    edges_per_row = len(shapes.edges) / (len(shapes.starts) - 1)
    assert mixed * edges_per_row < 64


@pytest.mark.parametrize(
    ("text", "radius", "metres", "reason"),
    [
        ("POLYGON ((0 0, 1 1, 1 0, 0 1, 0 0))", None, None, "Self-intersection"),
        ("POLYGON ((0 0, 1 1, 0 0))", None, None, "geometry"),
        ("POLYGON ((0 0, 1 1, 2 2, 0 0))", None, None, "invalid geometry"),
        ("POLYGON EMPTY", None, None, "empty"),
        ("not a shape", None, None, "neither WKB, WKT nor GeoJSON"),
        ('{"type": "Polygon"}', None, None, "neither WKB, WKT nor GeoJSON"),
        ("LINESTRING (0 0, 1 1)", None, None, "LineString"),
        ("POINT (1 1)", None, None, "needs radius"),
        ("POINT (1 1)", -1.0, None, "at least 0"),
        ("POINT (1 1)", 1.0, 1.0, "only one of"),
        ("POINT (181 1)", None, 5.0, "longitude"),
        ("POLYGON ((0 0, 1 0, 1 1, 0 0))", 1.0, None, "only a POINT"),
        (None, 1.0, None, "needs a geometry"),
    ],
)
def test_a_shape_that_makes_no_sense_is_rejected_with_the_reason(
    text: str | None, radius: float | None, metres: float | None, reason: str
) -> None:
    radii = (np.array([np.nan if r is None else r]) for r in (radius, metres))
    parsed = parse_shapes(pa.array([text], pa.string()), *radii)
    assert reason in parsed.reasons[0]


def test_wkb_wkt_and_geojson_give_the_same_record() -> None:
    geometry = shapely.Polygon([(0, 0), (4, 0), (4, 4)], [[(3, 1), (3.5, 1), (3.5, 2)]])
    wkb = shapely.to_wkb(geometry, hex=True)
    texts = [geometry.wkt, wkb, wkb.lower(), shapely.to_geojson(geometry)]
    texts.append(geometry.wkt.encode().hex())
    none = np.full(len(texts), np.nan)
    parsed = parse_shapes(pa.array(texts), none, none)
    assert len(set(parsed.records.to_pylist())) == 1
    assert parsed.boxes.tolist() == [[0, 0, 4, 4]] * len(texts)


@given(st.floats(-180, 180), st.floats(-90, 90), st.floats(0, 2.1e7), st.integers(0, 2**32))
@settings(max_examples=200, deadline=None)
def test_a_circle_on_the_sphere_is_right_at_poles_and_anti_meridian(
    longitude: float, latitude: float, metres: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    text = pa.array([f"POINT ({longitude!r} {latitude!r})"])
    parsed = parse_shapes(text, np.array([np.nan]), np.array([metres]))
    starts, words = flat_records(parsed.records)
    shapes = prepare_shapes(words, starts, parsed.boxes)
    x, y = rng.uniform(-180, 180, 200), np.degrees(np.arcsin(rng.uniform(-1, 1, 200)))

    def unit(lon: np.ndarray, lat: np.ndarray) -> np.ndarray:
        lon, lat = np.radians(lon), np.radians(lat)
        return np.stack([np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)])

    a, b = unit(np.array(longitude), np.array(latitude))[:, None], unit(x, y)
    angle = np.arctan2(np.linalg.norm(np.cross(a.T, b.T), axis=1), (a * b).sum(axis=0))
    distance = angle * 6_371_008.8
    clear = np.abs(distance - metres) > 1.0
    min_x, min_y, max_x, max_y = parsed.boxes[0]
    box = (min_x <= x) & (x <= max_x) & (min_y <= y) & (y <= max_y)
    found = covered(shapes, 0, x, y) & box
    assert (found[clear] == (distance <= metres)[clear]).all()


def test_a_circle_in_units_contains_its_edge() -> None:
    parsed = parse_shapes(pa.array(["POINT (1 2)"]), np.array([5.0]), np.array([np.nan]))
    starts, words = flat_records(parsed.records)
    shapes = prepare_shapes(words, starts, parsed.boxes)
    x, y = np.array([4.0, 6.0, 4.001, 1.0]), np.array([6.0, 2.0, 6.0, -3.0])
    assert covered(shapes, 0, x, y).tolist() == [True, True, False, True]
