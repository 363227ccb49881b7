"""Legs against shapes, compared with shapely and with brute force."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkswarm.apps.shapes import parse_shapes
from sparkswarm.index.build import build_index
from sparkswarm.index.layout import NEVER, readonly
from sparkswarm.index.legs import NO_SHAPES, Legs, crosses, find_crossed
from sparkswarm.index.shapes import PreparedShapes, prepare_shapes, sphere_distance
from sparkswarm.store.segments import flat_records

from .test_shapes import prepared, star

NONE = readonly((), np.uint8)


def legs_of(*places: tuple[float, float, float, float], time: int = 0) -> Legs:
    columns = np.array(places, np.float64).reshape(-1, 4).T
    return Legs(*map(np.ascontiguousarray, columns), np.full(len(places), time, np.int64))


def crossed_by(shapes: PreparedShapes, box: np.ndarray, legs: np.ndarray) -> np.ndarray:
    """Ask about one shape by itself, as the search does: only where the rectangles meet."""
    low, high = np.minimum(legs[:, :2], legs[:, 2:]), np.maximum(legs[:, :2], legs[:, 2:])
    near = ((box[:2] <= high) & (low <= box[2:])).all(axis=1)
    return np.array(
        [ok and crosses(shapes, 0, box, *leg) for ok, leg in zip(near, legs.tolist(), strict=True)]
    )


def expected(geometry: shapely.Geometry, legs: np.ndarray) -> np.ndarray:
    lines = shapely.linestrings(legs.reshape(-1, 2, 2))
    ends = shapely.intersects_xy(geometry, legs[:, 0], legs[:, 1])
    ends |= shapely.intersects_xy(geometry, legs[:, 2], legs[:, 3])
    return np.asarray(shapely.intersects(geometry, lines) & ~ends)


def lattice_legs(rng: np.random.Generator, corners: np.ndarray, grain: float) -> np.ndarray:
    """Return legs that are free, that end at corners, and that pass through corners and edges."""
    free = np.round(rng.uniform(-12, 12, (300, 4)) / grain) * grain
    short = np.round((free[:, :2] + rng.normal(0, 0.5, (300, 2))) / grain) * grain
    some = corners[rng.integers(len(corners), size=300)]
    away = np.round(rng.normal(0, 4, (300, 2)) / grain) * grain
    through = np.concatenate([some - away, some + away], axis=1)
    along = np.concatenate([2 * some[:-1] - some[1:], 2 * some[1:] - some[:-1]], axis=1)
    ending = np.concatenate([some, some + away], axis=1)
    return np.concatenate(
        [free, np.concatenate([free[:, :2], short], axis=1), through, along, ending]
    )


@given(st.integers(0, 2**32), st.sampled_from([3, 8, 30, 200, 3000]))
@settings(max_examples=30, deadline=None)
def test_polygons_are_crossed_by_the_legs_that_shapely_says(seed: int, vertices: int) -> None:
    rng = np.random.default_rng(seed)
    grain = 2.0**-6
    geometry = star(rng, vertices, grain)
    if geometry.is_empty or not geometry.is_valid or geometry.geom_type == "LineString":
        return
    legs = lattice_legs(rng, shapely.get_coordinates(geometry), grain)
    legs = legs[(legs[:, :2] != legs[:, 2:]).any(axis=1)]
    shapely.prepare(geometry)
    wanted = expected(geometry, legs)
    shapes = prepared(shapely.to_wkb(geometry, hex=True))
    found = crossed_by(shapes, np.array(geometry.bounds), legs)
    assert (found == wanted).all(), legs[found != wanted]
    assert wanted.any()


@given(st.integers(0, 2**32))
@settings(max_examples=30, deadline=None)
def test_rectangles_are_crossed_by_the_legs_that_shapely_says(seed: int) -> None:
    rng = np.random.default_rng(seed)
    low = rng.integers(-6, 6, 2).astype(float)
    box = np.concatenate([low, low + rng.integers(0, 5, 2)])
    geometry = shapely.box(*box)
    if not geometry.area:
        geometry = shapely.LineString([box[:2], box[2:]])
        geometry = geometry if geometry.length else shapely.Point(low)
    legs = rng.integers(-9, 9, (500, 4)).astype(float)
    legs = legs[(legs[:, :2] != legs[:, 2:]).any(axis=1)]
    assert (crossed_by(NO_SHAPES, box, legs) == expected(geometry, legs)).all()


@given(
    st.tuples(*[st.integers(-9, 9)] * 6),
    st.integers(0, 12),
    st.sampled_from([1.0, 1e-3, 1e6]),
)
@settings(max_examples=300, deadline=None)
def test_circles_are_crossed_by_the_legs_that_come_near(
    numbers: tuple[int, ...], radius: int, unit: float
) -> None:
    x, y, ax, ay, bx, by = (Fraction(n) for n in numbers)
    dx, dy = bx - ax, by - ay
    length = dx * dx + dy * dy
    if not length:
        return
    part = min(Fraction(1), max(Fraction(0), ((x - ax) * dx + (y - ay) * dy) / length))
    apart = (x - ax - part * dx) ** 2 + (y - ay - part * dy) ** 2
    ends = [(x - px) ** 2 + (y - py) ** 2 <= radius * radius for px, py in ((ax, ay), (bx, by))]
    if apart == radius * radius and part.denominator & (part.denominator - 1):
        return  # as near as floats can tell
    wanted = apart <= radius * radius and not any(ends)
    text = f"POINT ({numbers[0] * unit} {numbers[1] * unit})"
    parsed = parse_shapes(pa.array([text]), np.array([radius * unit]), np.array([np.nan]))
    starts, words = flat_records(parsed.records)
    shapes = prepare_shapes(words, starts, parsed.boxes)
    leg = np.array([numbers[2:]], float) * unit
    if unit == 1.0 or apart != radius * radius:
        assert crossed_by(shapes, parsed.boxes[0], leg).tolist() == [wanted]


@given(
    st.floats(-170, 170),
    st.floats(-89, 89),
    st.floats(1.0, 3e6),
    st.tuples(*[st.floats(-1, 1)] * 4),
    st.sampled_from([0.01, 1.0, 30.0]),
)
@settings(max_examples=200, deadline=None)
def test_circles_in_metres_are_crossed_by_the_legs_that_come_near(
    x: float, y: float, metres: float, ends: tuple[float, ...], reach: float
) -> None:
    parsed = parse_shapes(
        pa.array([f"POINT ({x!r} {y!r})"]), np.array([np.nan]), np.array([metres])
    )
    starts, words = flat_records(parsed.records)
    shapes = prepare_shapes(words, starts, parsed.boxes)
    ax, ay, bx, by = (middle + reach * end for middle, end in zip((x, y, x, y), ends, strict=True))
    ax, bx = np.clip([ax, bx], -180, 180)
    ay, by = np.clip([ay, by], -90, 90)
    part = np.linspace(0, 1, 20_001)
    apart = sphere_distance(x, y, ax + part * (bx - ax), ay + part * (by - ay))
    if (abs(apart - metres) < 1e-6 * metres + 1e-3).any() and apart.min() > metres * (1 - 1e-6):
        return  # the leg only touches the circle, as far as the samples tell
    if abs(apart[[0, -1]] - metres).min() < 1e-6 * metres + 1e-3:
        return
    wanted = apart.min() <= metres and (apart[[0, -1]] > metres).all()
    found = crossed_by(shapes, parsed.boxes[0], np.array([[ax, ay, bx, by]])).tolist()
    # What passes between two samples counts too.
    step = sphere_distance(ax, ay, bx, by) / len(part)
    if apart.min() > metres and apart.min() - step <= metres:
        return
    assert found == [wanted]


@given(
    st.integers(0, 2**32),
    st.sampled_from([0, 1, 40, 3000]),
    st.sampled_from([0.01, 1.0, 100.0]),
    st.booleans(),
)
@settings(max_examples=40, deadline=None)
def test_the_search_finds_what_looking_at_all_queries_finds(
    seed: int, number: int, reach: float, clustered: bool
) -> None:
    rng = np.random.default_rng(seed)
    middles = rng.normal(50, 0.5, (number, 2)) if clustered else rng.uniform(0, 100, (number, 2))
    sizes = rng.choice([0.01, 0.5, 20.0], (number, 2)) * rng.random((number, 2))
    boxes = np.concatenate([middles - sizes, middles + sizes], axis=1)
    expires = np.where(rng.random(number) < 0.3, 5, NEVER)
    removed = (rng.random(number) < 0.2).astype(np.uint8)
    index = build_index(np.arange(number), boxes, expires, (0.0, 0.0, 100.0, 100.0))
    start = rng.normal(50, 1, (60, 2)) if clustered else rng.uniform(0, 100, (60, 2))
    places = np.concatenate([start, start + rng.normal(0, reach, (60, 2))], axis=1)
    legs = Legs(*map(np.ascontiguousarray, places.T), rng.integers(0, 9, 60))
    leg, position = find_crossed(legs, index, readonly(removed, np.uint8), NO_SHAPES)
    found = sorted(zip(leg.tolist(), index.ids[position].tolist(), strict=True))
    at = {int(i): p for p, i in enumerate(index.ids)}
    wanted = []
    for i, place in enumerate(places):
        for q in range(number):
            if removed[at[q]] or legs.time[i] >= expires[q]:
                continue
            if crossed_by(NO_SHAPES, boxes[q], place[None])[0]:
                wanted.append((i, q))
    assert found == wanted


def test_a_leg_along_an_edge_touches_the_polygon_but_its_ends_are_outside() -> None:
    square = prepared("POLYGON ((0 0, 4 0, 4 4, 0 4, 0 0), (1 1, 3 1, 3 3, 1 3, 1 1))")
    box = np.array([0.0, 0.0, 4.0, 4.0])
    legs = np.array(
        [
            [-1.0, 0.0, 5.0, 0.0],  # along an edge
            [-1.0, 1.0, 1.0, -1.0],  # through a corner
            [-1.0, 2.0, 2.0, 2.0],  # into the hole
            [1.5, 2.0, 2.5, 2.0],  # within the hole
            [-1.0, 2.0, 0.0, 2.0],  # ends on the edge: inside
            [-1.0, 5.0, 5.0, 5.0],
        ]
    )
    assert crossed_by(square, box, legs).tolist() == [True, True, True, False, False, False]


@pytest.mark.parametrize("size", [1e-6, 1.0, 1e6])
def test_a_long_leg_through_a_large_polygon_of_any_size(size: float) -> None:
    rng = np.random.default_rng(5)
    geometry = shapely.transform(
        star(rng, 500, 2.0**-6), lambda xy: xy * 2.0 ** round(np.log2(size))
    )
    shapes, box = prepared(shapely.to_wkb(geometry, hex=True)), np.array(geometry.bounds)
    legs = np.array([[-1e9, 0.0, 1e9, 0.0], [-1e9, 1e9, 1e9, 1e9], [0.0, -1e9, 1e-9, 1e9]])
    assert crossed_by(shapes, box, legs).tolist() == expected(geometry, legs).tolist()
