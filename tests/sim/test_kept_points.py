"""What is kept is what has not expired, and what is found in it is what brute force finds."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkswarm.errors import ConfigError, ProtocolError
from sparkswarm.geometry import CellRect
from sparkswarm.sim.kept_points import (
    POINT,
    KeptPoints,
    Points,
    Rectangle,
    SimCount,
    SimSliding,
    SimTumbling,
    Window,
    newest_last,
    no_points,
)

from ..support.strategies import grid_of, rects_within

GRID = grid_of(4, 4)
EVERYWHERE = Rectangle(0.0, 0.0, 4.0, 4.0)

Point = tuple[int, float, float, float]

windows = st.one_of(
    st.integers(1, 6).map(SimSliding),
    st.integers(1, 6).map(SimTumbling),
    st.integers(1, 6).map(SimCount),
)
# Quarters meet the edges of cells and of rectangles often.
coordinates = st.integers(0, 16).map(lambda quarters: quarters / 4)
rectangles = st.tuples(coordinates, coordinates, coordinates, coordinates).map(
    lambda c: Rectangle(min(c[0], c[2]), min(c[1], c[3]), max(c[0], c[2]), max(c[1], c[3]))
)


@st.composite
def streams(draw: st.DrawFn, most: int = 40) -> list[Point]:
    """Points in the order of their times, with many at the same time."""
    steps = draw(st.lists(st.tuples(st.integers(0, 2), coordinates, coordinates), max_size=most))
    ids = draw(st.permutations(range(len(steps))))
    times = np.cumsum([step for step, _, _ in steps]).tolist()
    return [(i, x, y, float(t)) for i, t, (_, x, y) in zip(ids, times, steps, strict=True)]


def kept_of(points: list[Point], window: Window) -> KeptPoints:
    kept = KeptPoints(GRID, window)
    for point in points:
        kept.add(*point)
    return kept


def as_list(points: Points) -> list[Point]:
    return points.tolist()


# -- expiry ------------------------------------------------------------------------------------


@given(streams(), windows, st.integers(0, 9))
def test_what_is_kept_is_what_has_not_expired(
    points: list[Point], window: Window, later: int
) -> None:
    kept = kept_of(points, window)
    now = (points[-1][3] if points else 0.0) + later
    before = len(kept)

    gone = kept.expire(now)

    match window:
        case SimCount(size):
            expected = points[-size:]
        case SimSliding(length):
            expected = [p for p in points if now - p[3] <= length]
        case SimTumbling(length):
            expected = [p for p in points if p[3] // length == now // length]
    assert as_list(kept.points) == expected
    assert len(kept) == len(expected) == before - gone
    assert kept.expire(now) == 0


@given(streams(), st.lists(st.integers(0, 40), max_size=4), windows)
def test_points_may_come_in_lots_and_expire_in_between(
    points: list[Point], cuts: list[int], window: Window
) -> None:
    one_by_one, in_lots = KeptPoints(GRID, window), KeptPoints(GRID, window)
    edges = [0, *sorted(cut for cut in cuts if cut <= len(points)), len(points)]
    for low, high in itertools.pairwise(edges):
        lot = np.array(points[low:high], dtype=POINT)
        in_lots.add(lot["id"], lot["x"], lot["y"], lot["time"])
        for point in points[low:high]:
            one_by_one.add(*point)
        if high:
            assert in_lots.expire(points[high - 1][3]) == one_by_one.expire(points[high - 1][3])
        assert as_list(in_lots.points) == as_list(one_by_one.points)


def test_a_stream_of_any_length_takes_the_room_of_its_window() -> None:
    kept = KeptPoints(GRID, SimCount(10))
    for i in range(10_000):
        kept.add(i, 1.0, 1.0, float(i))
        assert kept.points["id"].tolist() == list(range(max(0, i - 9), i + 1))
    assert len(kept._rows) < 50


@pytest.mark.parametrize(
    ("window", "now", "since"),
    [
        (SimSliding(10), 25.0, 15.0),
        (SimTumbling(10), 25.0, 20.0),
        (SimTumbling(10), 20.0, 20.0),
        (SimTumbling(10), -1.0, -10.0),
        (SimTumbling(0.3), 213.89999999999998, 213.89999999999998),
        (SimCount(3), 25.0, -math.inf),
    ],
)
def test_when_windows_begin(window: Window, now: float, since: float) -> None:
    assert window.since(now) == since


@given(st.floats(0, 1e9), st.floats(1e-3, 1e6))
def test_a_tumbling_window_has_begun_and_is_not_over(now: float, length: float) -> None:
    since = SimTumbling(length).since(now)
    assert since <= now
    assert now - since <= length * (1 + 1e-9) + 1e-6


# -- finding -----------------------------------------------------------------------------------


def in_cells(point: Point, cells: CellRect) -> bool:
    column, row = (min(int(c), 3) for c in point[1:3])
    return cells.contains(CellRect(column, row, column + 1, row + 1))


@given(streams(), rectangles, rects_within(GRID.cells), st.integers(0, 30), st.integers(0, 30))
def test_in_range_is_what_brute_force_finds(
    points: list[Point], rectangle: Rectangle, cells: CellRect, since: int, until: int
) -> None:
    found = kept_of(points, SimSliding(1000)).in_range(rectangle, cells, since, until)
    assert as_list(found) == [
        p
        for p in points
        if since <= p[3] <= until
        and rectangle.min_x <= p[1] <= rectangle.max_x
        and rectangle.min_y <= p[2] <= rectangle.max_y
        and in_cells(p, cells)
    ]


@given(streams(), rects_within(GRID.cells), st.integers(1, 9), st.integers(0, 30))
def test_the_newest_are_the_last_by_time_and_then_by_id(
    points: list[Point], cells: CellRect, count: int, until: int
) -> None:
    found = kept_of(points, SimSliding(1000)).newest(count, cells, until)
    matching = [p for p in points if p[3] <= until and in_cells(p, cells)]
    assert as_list(found) == sorted(matching, key=lambda p: (p[3], p[0]))[-count:]


@pytest.mark.parametrize("x", [1.0, 3.0])
@pytest.mark.parametrize("y", [0.5, 2.5])
def test_the_edges_of_a_rectangle_belong_to_it(x: float, y: float) -> None:
    kept = kept_of([(0, x, y, 0.0)], SimSliding(9))
    rectangle = Rectangle(1.0, 0.5, 3.0, 2.5)
    assert len(kept.in_range(rectangle, GRID.cells, 0.0, 0.0)) == 1
    for outside in (
        Rectangle(1.25, 0.5, 2.75, 2.5),
        Rectangle(1.0, 0.75, 3.0, 2.25),
    ):
        assert len(kept.in_range(outside, GRID.cells, 0.0, 0.0)) == 0


def test_what_was_found_stays_as_it_was() -> None:
    kept = kept_of([(0, 1.0, 1.0, 0.0), (1, 1.0, 1.0, 1.0)], SimCount(2))
    found = [
        kept.points,
        kept.in_range(EVERYWHERE, GRID.cells, 0, 9),
        kept.newest(2, GRID.cells, 9),
    ]
    kept._rows["id"] = -1
    assert [points["id"].tolist() for points in found] == [[0, 1]] * 3


def test_newest_last_of_nothing_is_nothing() -> None:
    assert len(newest_last(no_points())) == 0
    assert len(kept_of([], SimCount(3)).newest(2, GRID.cells, 9.0)) == 0
    assert len(kept_of([], SimCount(3)).in_range(EVERYWHERE, GRID.cells, 0.0, 9.0)) == 0


# -- nonsense ----------------------------------------------------------------------------------


@pytest.mark.parametrize("times", [1.5, [2.5, 2.25], [1.0], float("nan"), [2.5, float("nan")]])
def test_time_does_not_go_back(times: float | list[float]) -> None:
    kept = KeptPoints(GRID, SimSliding(100), began=1.0)
    kept.add(0, 1.0, 1.0, 2.0)
    count = np.size(times)
    with pytest.raises(ProtocolError, match="must not decrease"):
        kept.add(np.arange(count), np.ones(count), np.ones(count), np.array(times))
    assert as_list(kept.points) == [(0, 1.0, 1.0, 2.0)]


def test_nothing_is_kept_from_before_the_beginning() -> None:
    kept = KeptPoints(GRID, SimSliding(100), began=1.0)
    with pytest.raises(ProtocolError):
        kept.add(0, 1.0, 1.0, 0.5)
    kept.add(0, 1.0, 1.0, 1.0)
    assert len(kept) == 1


@pytest.mark.parametrize("length", [0, -1, math.inf, math.nan])
@pytest.mark.parametrize("kind", [SimSliding, SimTumbling])
def test_a_window_needs_a_length(kind: type[SimSliding] | type[SimTumbling], length: float) -> None:
    with pytest.raises(ConfigError):
        kind(length)


def test_a_count_window_needs_a_point() -> None:
    with pytest.raises(ConfigError):
        SimCount(0)
