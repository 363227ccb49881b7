"""Hotspots: when, where, and exactly how much they attract."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkswarm.errors import WorkloadError
from sparkswarm.geometry import Bounds
from sparkswarm.workloads import Density, Hotspot

BOUNDS = Bounds(-10.0, 20.0, 30.0, 25.0)
shapes: st.SearchStrategy[Any] = st.sampled_from(["uniform", "normal"])


@st.composite
def hotspots(draw: st.DrawFn) -> Hotspot:
    side = draw(st.floats(0.01, 1))
    corner = draw(st.tuples(st.floats(0, 1 - side), st.floats(0, 1 - side)))
    return Hotspot(
        0, 1, side, draw(st.floats(0, 1)), draw(st.floats(0, 1)), corner, draw(shapes)
    )  # fmt: skip


def cells_touched(hotspot: Hotspot, rows: int, columns: int) -> np.ndarray:
    """Return which cells of a grid share some area with the hotspot."""

    def lines(corner: float, cells: int) -> np.ndarray:
        low, high = np.arange(cells) / cells, np.arange(1, cells + 1) / cells
        return np.asarray((low < corner + hotspot.side) & (high > corner))

    x, y = hotspot.corner
    return np.asarray(lines(y, rows)[:, None] & lines(x, columns)[None, :])


def test_active_from_start_until_before_stop() -> None:
    hotspot = Hotspot(10, 13)
    assert [r for r in range(20) if hotspot.active(r)] == [10, 11, 12]


def test_the_defaults_are_the_paper_s() -> None:
    region = Hotspot(0, 1).region(Bounds(0, 0, 100, 200))
    edges = [region.min_x, region.min_y, region.max_x, region.max_y]
    assert edges == pytest.approx([5, 10, 20, 40])


@given(hotspot=hotspots())
def test_the_region_lies_inside_the_bounds(hotspot: Hotspot) -> None:
    region = hotspot.region(BOUNDS)
    assert BOUNDS.min_x <= region.min_x < region.max_x <= BOUNDS.max_x
    assert BOUNDS.min_y <= region.min_y < region.max_y <= BOUNDS.max_y
    assert region.width == pytest.approx(hotspot.side * BOUNDS.width)


@pytest.mark.parametrize(
    ("corner", "side"), [((0.9, 0.9), 0.1), ((0.0, 0.0), 1), ((0.85, 0), 0.15)]
)
def test_a_hotspot_may_touch_the_far_edge(corner: tuple[float, float], side: float) -> None:
    region = Hotspot(0, 1, side=side, corner=corner).region(BOUNDS)
    assert region.max_x == pytest.approx(BOUNDS.max_x)
    assert region.max_x <= BOUNDS.max_x


class TestPointsDensity:
    @given(
        hotspot=hotspots(), rows=st.integers(1, 40), columns=st.integers(1, 40),
        seed=st.integers(0, 999),
    )  # fmt: skip
    def test_the_shares_are_exact(
        self, hotspot: Hotspot, rows: int, columns: int, seed: int
    ) -> None:
        base = Density("base", BOUNDS, np.random.default_rng(seed).random((rows, columns)) + 0.01)
        mixed = hotspot.points_density(base)
        added = mixed.weights - (1 - hotspot.point_share) * base.weights
        assert mixed.bounds == BOUNDS
        assert added.min() > -1e-12
        assert added.sum() == pytest.approx(hotspot.point_share, abs=1e-12)
        touched = cells_touched(hotspot, rows, columns)
        assert np.abs(added[~touched]).sum() < 1e-12

    def test_uniform_fills_whole_cells_alike_and_others_by_area(self) -> None:
        base = Density("base", BOUNDS, np.ones((10, 10)))
        hotspot = Hotspot(0, 1, side=0.25, point_share=1, corner=(0.1, 0.3))
        weights = hotspot.points_density(base).weights
        along = np.array([0.4, 0.4, 0.2])
        np.testing.assert_allclose(weights[3:6, 1:4], np.outer(along, along), atol=1e-12)
        assert weights[3:6, 1:4].sum() == pytest.approx(1)

    def test_a_hotspot_smaller_than_a_cell_falls_into_it(self) -> None:
        base = Density("base", BOUNDS, np.ones((4, 4)))
        for shape in ("uniform", "normal"):
            hotspot = Hotspot(0, 1, 0.01, 1.0, corner=(0.3, 0.6), shape=shape)
            assert hotspot.points_density(base).weights[2, 1] == pytest.approx(1)

    def test_normal_has_a_deviation_of_a_fifth_of_the_side(self) -> None:
        base = Density("base", BOUNDS, np.ones((1000, 1000)))
        hotspot = Hotspot(0, 1, side=0.5, point_share=1, corner=(0.25, 0.25), shape="normal")
        along = hotspot.points_density(base).weights.sum(axis=0)
        place = (np.arange(1000) + 0.5) / 1000
        mean = (along * place).sum()
        deviation = math.sqrt((along * (place - mean) ** 2).sum())
        cut = 1 - 2 * 2.5 * math.exp(-(2.5**2) / 2) / math.sqrt(2 * math.pi) / math.erf(
            2.5 / math.sqrt(2)
        )  # what cutting off beyond 2.5 deviations leaves of the variance
        assert mean == pytest.approx(0.5)
        assert deviation == pytest.approx(0.2 * 0.5 * math.sqrt(cut), rel=1e-3)

    def test_a_share_of_0_changes_nothing(self) -> None:
        base = Density("base", BOUNDS, np.random.default_rng(0).random((7, 5)))
        mixed = Hotspot(0, 1, point_share=0).points_density(base)
        np.testing.assert_allclose(mixed.weights, base.weights, rtol=1e-14)


class TestQueries:
    @given(hotspot=hotspots(), seed=st.integers(0, 999))
    def test_centres_lie_inside_the_hotspot(self, hotspot: Hotspot, seed: int) -> None:
        queries = hotspot.sample_queries(np.random.default_rng(seed), 200, 0.01, BOUNDS)
        region = hotspot.region(BOUNDS)
        x, y = (queries.min_x + queries.max_x) / 2, (queries.min_y + queries.max_y) / 2
        assert (x >= region.min_x - 1e-9).all()
        assert (x <= region.max_x + 1e-9).all()
        assert (y >= region.min_y - 1e-9).all()
        assert (y <= region.max_y + 1e-9).all()
        np.testing.assert_allclose(queries.max_x - queries.min_x, 0.01 * BOUNDS.width)
        np.testing.assert_allclose(queries.max_y - queries.min_y, 0.01 * BOUNDS.height)

    @pytest.mark.parametrize("shape", ["uniform", "normal"])
    def test_centres_follow_the_points_density(self, shape: Any) -> None:
        base = Density("base", BOUNDS, np.ones((10, 10)))
        hotspot = Hotspot(0, 1, side=0.4, point_share=1, corner=(0.2, 0.5), shape=shape)
        expected = hotspot.points_density(base).weights * 100_000
        queries = hotspot.sample_queries(np.random.default_rng(5), 100_000, 0.01, BOUNDS)
        x, y = (queries.min_x + queries.max_x) / 2, (queries.min_y + queries.max_y) / 2
        column, row = base.grid.place_points(x, y)
        counts = np.bincount(row * 10 + column, minlength=100).reshape(10, 10)
        cells = expected > 1e-6
        statistic = ((counts[cells] - expected[cells]) ** 2 / expected[cells]).sum()
        freedom = cells.sum() - 1
        assert counts[cells].sum() == 100_000
        assert abs(statistic - freedom) < 5 * math.sqrt(2 * freedom)

    def test_none(self) -> None:
        queries = Hotspot(0, 1).sample_queries(np.random.default_rng(0), 0, 0.01, BOUNDS)
        assert [edge.size for edge in queries] == [0] * 4

    @pytest.mark.parametrize(("n", "side"), [(-1, 0.1), (1, 0.0), (1, 2.0), (1, math.nan)])
    def test_refuses(self, n: int, side: float) -> None:
        with pytest.raises(WorkloadError, match="must be"):
            Hotspot(0, 1).sample_queries(np.random.default_rng(0), n, side, BOUNDS)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        pytest.param(
            {"start": -1}, "start must be at least 0, got -1", id="before the first round"
        ),
        pytest.param({"start": 5, "stop": 5}, "start < stop", id="never active"),
        pytest.param({"stop": 7.5}, "stop must be a whole number", id="half a round"),
        pytest.param({"side": 0}, "above 0 and at most 1, got 0", id="no area"),
        pytest.param({"side": 1.01}, "at most 1", id="larger than the space"),
        pytest.param({"side": math.nan}, "at most 1, got nan", id="side NaN"),
        pytest.param({"side": "wide"}, "must be a number, got 'wide'", id="side in words"),
        pytest.param({"point_share": 1.5}, "point_share must be between", id="too many points"),
        pytest.param({"query_share": -0.1}, "query_share must be between", id="negative queries"),
        pytest.param({"query_share": math.nan}, "query_share must be", id="query share NaN"),
        pytest.param({"corner": (0.9, 0.0)}, "not fit inside", id="sticks out east"),
        pytest.param({"corner": (0.0, 0.86)}, "not fit.*from 0 to 0.85", id="sticks out north"),
        pytest.param({"corner": (-0.1, 0.0)}, "corner must be between", id="sticks out west"),
        pytest.param({"corner": (0.1, math.nan)}, "corner must be between", id="corner NaN"),
        pytest.param({"corner": (0.1,)}, "pair of shares", id="half a corner"),
        pytest.param({"corner": 0.1}, "pair of shares", id="corner a number"),
        pytest.param({"shape": "round"}, "one of uniform, normal, got 'round'", id="shape unknown"),
    ],
)
def test_refuses(change: dict[str, Any], says: str) -> None:
    with pytest.raises(WorkloadError, match=says):
        Hotspot(**({"start": 0, "stop": 10} | change))


def test_a_list_for_a_corner_becomes_a_tuple() -> None:
    """Settings files know lists only."""
    corner: Any = [0.1, 0.2]
    assert Hotspot(0, 1, corner=corner) == Hotspot(0, 1, corner=(0.1, 0.2))
    assert hash(Hotspot(0, 1, corner=corner))
