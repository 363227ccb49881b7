"""Densities: what they refuse, what they keep, and that draws follow the weights."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from sparkswarm.errors import SparkswarmError, WorkloadError
from sparkswarm.geometry import Bounds, Grid
from sparkswarm.workloads import QUERY_SIDE, Density

BOUNDS = Bounds(-10.0, 20.0, 30.0, 25.0)

shapes = st.tuples(st.integers(1, 12), st.integers(1, 12))
weights = hnp.arrays(np.float64, shapes, elements=st.floats(0, 1e6, allow_subnormal=False)).filter(
    lambda w: w.max() > 0
)
seeds = st.integers(0, 2**32 - 1)
corners = st.floats(-1e6, 1e6)
extents = st.floats(1e-3, 1e6)
bounds = st.builds(
    lambda x, y, w, h: Bounds(x, y, x + w, y + h), corners, corners, extents, extents
)


def chi_square_is_plausible(counts: np.ndarray, weights: np.ndarray) -> bool:
    """Whether Pearson's statistic lies within five deviations of its mean."""
    expected = weights * counts.sum()
    assert expected[expected > 0].min() > 5, "the test needs more draws"
    cells = expected > 0
    statistic = ((counts[cells] - expected[cells]) ** 2 / expected[cells]).sum()
    freedom = cells.sum() - 1
    return bool(abs(statistic - freedom) < 5 * np.sqrt(2 * freedom))


class TestWhatADensityIs:
    def test_counts_become_shares(self) -> None:
        density = Density("d", BOUNDS, np.array([[1, 2, 3], [0, 0, 4]]))
        assert density.weights.dtype == np.float64
        assert density.weights.sum() == pytest.approx(1)
        np.testing.assert_allclose(density.weights, [[0.1, 0.2, 0.3], [0, 0, 0.4]])
        assert density.grid == Grid(BOUNDS, columns=3, rows=2)

    def test_weights_are_a_read_only_copy(self) -> None:
        mine = np.ones((2, 2))
        density = Density("d", BOUNDS, mine)
        mine[0, 0] = 7
        assert density.weights[0, 0] == 0.25
        with pytest.raises(ValueError, match="read-only"):
            density.weights[0, 0] = 1

    def test_huge_and_tiny_weights_neither_overflow_nor_vanish(self) -> None:
        for scale in (1e308, 5e-324):
            density = Density("d", BOUNDS, np.full((2, 2), scale))
            np.testing.assert_array_equal(density.weights, 0.25)

    def test_pickle_keeps_the_draws_and_the_lock_and_drops_the_tables(self) -> None:
        density = Density("d", BOUNDS, np.random.default_rng(1).random((200, 200)))
        before = density.sample_points(np.random.default_rng(2), 50)
        packed = pickle.dumps(density)
        assert len(packed) < 1.1 * density.weights.nbytes
        copy = pickle.loads(packed)
        assert not copy.weights.flags.writeable
        np.testing.assert_array_equal(before, copy.sample_points(np.random.default_rng(2), 50))

    @pytest.mark.parametrize(
        ("bad", "says"),
        [
            pytest.param([[1.0, np.nan]], "finite, got nan in row 0, column 1", id="NaN"),
            pytest.param([[np.inf], [1.0]], "finite, got inf in row 0, column 0", id="infinite"),
            pytest.param([[1.0], [-2.0]], "non-negative, got -2.0 in row 1", id="negative"),
            pytest.param([[0.0, 0.0]], "no positive weight", id="nothing positive"),
            pytest.param(np.empty((0, 3)), "no positive weight", id="no cells"),
            pytest.param([1.0, 2.0], r"two dimensions.*\(2,\)", id="one dimension"),
            pytest.param([[["a"]]], "real numbers", id="text"),
            pytest.param([[1 + 2j]], "real numbers", id="complex"),
        ],
    )
    def test_refuses(self, bad: object, says: str) -> None:
        with pytest.raises(WorkloadError, match=says):
            Density("d", BOUNDS, np.asarray(bad))

    def test_refuses_a_grid_that_the_bounds_cannot_hold(self) -> None:
        with pytest.raises(SparkswarmError, match="narrow"):
            Density("d", Bounds(0, 0, 5e-324, 1), np.ones((1, 2)))


class TestSampling:
    @given(w=weights, seed=seeds, n=st.integers(0, 10**7))
    def test_counts_sum_to_n_and_avoid_empty_cells(self, w: np.ndarray, seed: int, n: int) -> None:
        density = Density("d", BOUNDS, w)
        counts = density.sample_counts(np.random.default_rng(seed), n)
        assert counts.dtype == np.int64
        assert counts.shape == w.shape
        assert counts.sum() == n
        assert (counts[density.weights == 0] == 0).all()
        assert (counts >= 0).all()

    @given(w=weights, space=bounds, seed=seeds)
    def test_points_lie_inside_the_bounds(self, w: np.ndarray, space: Bounds, seed: int) -> None:
        density = Density("d", space, w)
        x, y = density.sample_points(np.random.default_rng(seed), 500)
        assert x.shape == y.shape == (500,)
        assert not density.grid.point_faults(x, y).any()

    @given(w=weights, space=bounds)
    def test_the_largest_random_number_stays_inside_too(self, w: np.ndarray, space: Bounds) -> None:
        class Largest(np.random.Generator):
            def random(self, size: Any = None, *_: Any, **__: Any) -> Any:
                return np.full(size, np.nextafter(1, 0))

        density = Density("d", space, w)
        x, y = density.sample_points(Largest(np.random.PCG64()), 1)
        assert not density.grid.point_faults(x, y).any()

    def test_what_rounding_leaves_over_is_not_counted_in_an_empty_cell(self) -> None:
        density = Density("d", BOUNDS, np.array([[0.1] * 10 + [0.0]]))
        for seed in range(20):
            counts = density.sample_counts(np.random.default_rng(seed), 10**18)
            assert counts[0, -1] == 0
            assert counts.sum() == 10**18

    def test_points_follow_the_weights(self) -> None:
        rng = np.random.default_rng(7)
        w = rng.random((8, 9)) ** 4 + 0.01
        w[2:4, :5] = 0
        density = Density("d", BOUNDS, w)
        column, row = density.grid.place_points(*density.sample_points(rng, 400_000))
        counts = np.bincount(row * 9 + column, minlength=72).reshape(8, 9)
        assert counts[density.weights == 0].sum() == 0
        assert chi_square_is_plausible(counts, density.weights)

    def test_counts_follow_the_weights(self) -> None:
        rng = np.random.default_rng(8)
        density = Density("d", BOUNDS, rng.random((20, 30)) ** 4 + 0.01)
        assert chi_square_is_plausible(density.sample_counts(rng, 400_000), density.weights)

    def test_points_are_uniform_within_a_cell(self) -> None:
        density = Density("d", BOUNDS, np.array([[0.0, 1.0], [0.0, 0.0]]))
        x, y = density.sample_points(np.random.default_rng(9), 100_000)
        assert (x >= 10).all()
        assert (y <= 22.5).all()
        counts = np.histogram2d(x, y, bins=(10, 10), range=((10, 30), (20, 22.5)))[0]
        assert chi_square_is_plausible(counts, np.full((10, 10), 0.01))

    def test_points_come_in_no_order(self) -> None:
        """A prefix of the stream looks like the whole stream."""
        density = Density("d", BOUNDS, np.ones((1, 4)))
        x, _ = density.sample_points(np.random.default_rng(10), 40_000)
        counts = np.histogram(x[:4000], bins=4, range=(-10, 30))[0]
        assert chi_square_is_plausible(counts, np.full(4, 0.25))

    def test_extreme_skew_is_drawn_right(self) -> None:
        """Nearly all cells share one slice of the guide."""
        w = np.full((300, 300), 1e-9)
        w[123, 45] = 1
        density = Density("d", BOUNDS, w)
        column, row = density.grid.place_points(
            *density.sample_points(np.random.default_rng(11), 1_000_000)
        )
        elsewhere = ((row != 123) | (column != 45)).sum()
        assert elsewhere == pytest.approx(90, abs=50)  # 1e6 x 9e-5, five deviations

    def test_row_0_is_south_and_column_0_is_west(self) -> None:
        density = Density("d", BOUNDS, np.array([[1.0, 0.0], [0.0, 0.0], [0.0, 0.0]]))
        x, y = density.sample_points(np.random.default_rng(12), 1000)
        assert x.max() <= 10.0
        assert y.max() <= 20 + 5 / 3

    def test_the_seed_decides(self) -> None:
        density = Density("d", BOUNDS, np.ones((5, 5)))
        one, two, other = (density.sample_points(np.random.default_rng(s), 9)[0] for s in (3, 3, 4))
        np.testing.assert_array_equal(one, two)
        assert (one != other).any()

    @given(w=weights, space=bounds, seed=seeds, side=st.floats(1e-4, 1))
    def test_queries_have_the_size_asked_for_and_their_centre_inside(
        self, w: np.ndarray, space: Bounds, seed: int, side: float
    ) -> None:
        queries = Density("d", space, w).sample_queries(np.random.default_rng(seed), 100, side)
        slack = 1e-9 * max(map(abs, (space.min_x, space.max_x, space.min_y, space.max_y)))
        np.testing.assert_allclose(queries.max_x - queries.min_x, side * space.width, atol=slack)
        np.testing.assert_allclose(queries.max_y - queries.min_y, side * space.height, atol=slack)
        middle_x, middle_y = (queries[0] + queries[2]) / 2, (queries[1] + queries[3]) / 2
        assert (middle_x >= space.min_x - slack).all()
        assert (middle_x <= space.max_x + slack).all()
        assert (middle_y >= space.min_y - slack).all()
        assert (middle_y <= space.max_y + slack).all()

    def test_queries_stick_out_and_still_have_cells(self) -> None:
        density = Density("d", BOUNDS, np.ones((4, 4)))
        queries = density.sample_queries(np.random.default_rng(13), 2000, side=0.3)
        assert (queries.min_x < BOUNDS.min_x).any()
        assert (queries.max_y > BOUNDS.max_y).any()
        assert not density.grid.place_queries(*queries).fault.any()

    def test_the_default_query_has_the_paper_s_side(self) -> None:
        queries = Density("d", BOUNDS, np.ones((4, 4))).sample_queries(np.random.default_rng(1), 5)
        np.testing.assert_allclose(queries.max_x - queries.min_x, QUERY_SIDE * 40)

    def test_drawing_nothing(self) -> None:
        density, rng = Density("d", BOUNDS, np.ones((2, 2))), np.random.default_rng(0)
        assert [a.size for a in density.sample_points(rng, 0)] == [0, 0]
        assert [a.size for a in density.sample_queries(rng, 0)] == [0] * 4
        assert density.sample_counts(rng, 0).sum() == 0

    def test_refuses(self) -> None:
        density, rng = Density("d", BOUNDS, np.ones((2, 2))), np.random.default_rng(0)
        for draw in (density.sample_points, density.sample_counts, density.sample_queries):
            with pytest.raises(WorkloadError, match="n must be at least 0, got -1"):
                draw(rng, -1)
            with pytest.raises(WorkloadError, match=r"whole number, got 1\.5"):
                draw(rng, 1.5)  # type: ignore[arg-type]
        for side in (0, -0.1, 1.1, float("nan"), float("inf")):
            with pytest.raises(WorkloadError, match="share of the side"):
                density.sample_queries(rng, 1, side)
