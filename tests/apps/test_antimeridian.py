"""Polygons across the anti-meridian and around poles, compared with what they were before."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkswarm.apps.antimeridian import split_antimeridian, split_geometries
from sparkswarm.apps.shapes import BEYOND, parse_shapes

BAND = [[0, 60], [90, 60], [180, 60], [-90, 60], [0, 60]]
"""Around the north pole, eastward."""


def wrapped(geometry: shapely.Geometry) -> shapely.Geometry:
    """Return a geometry with all longitudes from -180 to 180, as many files have it."""
    return shapely.transform(geometry, lambda xy: np.column_stack([_in_range(xy[:, 0]), xy[:, 1]]))


def _in_range(x: np.ndarray) -> np.ndarray:
    return np.asarray((x + 180) % 360 - 180)


def covers(geometry: shapely.Geometry, *place: float) -> bool:
    return bool(shapely.intersects_xy(geometry, *place))


@given(
    st.integers(0, 2**32),
    st.sampled_from([-181.0, -90.0, 0.0, 170.0, 180.0, 250.0]),
    st.booleans(),
    st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_a_polygon_contains_what_it_did_before_it_was_cut(
    seed: int, middle: float, with_hole: bool, beyond: bool
) -> None:
    rng = np.random.default_rng(seed)
    # Quarters of a degree: nothing is rounded by going around the earth.
    angle = np.sort(rng.random(12)) * 2 * np.pi
    far = rng.uniform(10, 60, (12, 1))
    ring = np.stack([np.cos(angle), np.sin(angle)], 1) * far + (middle, 0)
    whole = shapely.make_valid(shapely.Polygon(np.round(ring * 4) / 4))
    if with_hole:
        whole = whole.difference(shapely.box(middle - 4, -4, middle + 4, 4))
    if whole.geom_type not in ("Polygon", "MultiPolygon") or whole.is_empty:
        return
    if (np.abs(np.diff(shapely.get_coordinates(whole)[:, 0])) > 180).any():
        return
    split = split_antimeridian(whole if beyond else wrapped(whole))
    assert split.is_valid
    assert -180 <= split.bounds[0] <= split.bounds[2] <= 180
    assert split.area == pytest.approx(whole.area)
    for x, y in zip(rng.uniform(-180, 180, 300), rng.uniform(-60, 60, 300), strict=True):
        assert covers(split, x, y) == any(covers(whole, x + turn, y) for turn in (-360, 0, 360))


def test_what_does_not_cross_is_the_same_object() -> None:
    for text in (
        "POLYGON ((0 0, 170 0, 170 5, 0 0))",
        "POINT (180 1)",
        "LINESTRING (170 0, -170 1)",
        "POLYGON EMPTY",
        "POLYGON ((-180 -90, 0 -90, 180 -90, 180 90, 0 90, -180 90, -180 -90))",
    ):
        geometry = shapely.from_wkt(text)
        assert split_antimeridian(geometry) is geometry
    assert split_antimeridian(shapely.Point(190, 5)) == shapely.Point(-170, 5)


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("start", range(4))
def test_a_ring_around_a_pole_contains_it(backwards: bool, start: int) -> None:
    ring = [*BAND[start:4], *BAND[:start]]
    ring = [*ring, ring[0]][:: -1 if backwards else 1]
    north = split_antimeridian(shapely.Polygon(ring))
    south = split_antimeridian(shapely.Polygon([(x, -y) for x, y in ring]))
    for x in (-180, -100, 0, 45, 180):
        assert covers(north, x, 90)
        assert covers(north, x, 75)
        assert not covers(north, x, 50)
        assert covers(south, x, -90)
        assert covers(south, x, -75)
        assert not covers(south, x, -50)


def test_a_ring_around_both_poles_is_told_by_its_direction() -> None:
    ring = [(0, 10), (90, -10), (180, 10), (-90, -10), (0, 10)]
    east = split_antimeridian(shapely.Polygon(ring))
    west = split_antimeridian(shapely.Polygon(ring[::-1]))
    assert covers(east, 30, 90)
    assert not covers(east, 30, -90)
    assert covers(west, 30, -90)
    assert not covers(west, 30, 90)


def test_a_band_around_the_earth_is_a_polygon_with_a_hole_at_the_pole() -> None:
    hole = [(x, 80) for x, _ in BAND]
    band = split_antimeridian(shapely.Polygon(BAND, [hole]))
    assert band.is_valid
    for x in (-180, -135, 0, 60, 180):
        assert [covers(band, x, y) for y in (90, 85, 70, 50)] == [False, False, True, False]


def test_columns_keep_what_does_not_cross_and_what_is_no_geometry() -> None:
    texts = ["POINT (1 2)", "nonsense", None, "", "POLYGON ((179 0, -179 0, -179 1, 179 1, 179 0))"]
    found = split_geometries(pa.array(texts)).to_pylist()
    assert found[:4] == [b"POINT (1 2)", b"nonsense", None, b""]
    assert shapely.from_wkb(found[4]).area == pytest.approx(2.0)
    crossed = shapely.from_wkt("POLYGON ((170 0, -170 10, -170 0, 170 10, 170 0))")
    (kept,) = split_geometries(pa.array([shapely.to_wkb(crossed)])).to_pylist()
    assert not shapely.from_wkb(kept).is_valid


def test_polygons_beyond_the_world_are_rejected_where_coordinates_are_degrees() -> None:
    texts = pa.array(["POLYGON ((170 0, 190 0, 190 5, 170 0))", "POLYGON ((1 0, 2 0, 2 5, 1 0))"])
    none = np.full(2, np.nan)
    assert parse_shapes(texts, none, none, world=True).reasons.tolist() == [BEYOND, None]
    assert parse_shapes(texts, none, none).reasons.tolist() == [None, None]
