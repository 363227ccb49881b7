"""The field: sums over rectangles and groups are counts, and matches are what they say."""

import numpy as np
import pytest

from sparkswarm.experiments.field import Field, containing
from sparkswarm.experiments.scenarios import Scenario
from sparkswarm.geometry import Bounds, CellRect, Grid
from sparkswarm.protocol.plan import Plan
from sparkswarm.workloads import QUERY_SIDE, Density


def test_rectangles_sum_up_to_their_cells(space):
    rects = [CellRect(0, 0, 80, 60), CellRect(3, 5, 40, 11), CellRect(7, 7, 8, 8)]
    points, matches = space.within(rects)
    for i, rect in enumerate(rects):
        inside = (space.columns >= rect.col_start) & (space.columns < rect.col_stop)
        inside &= (space.rows >= rect.row_start) & (space.rows < rect.row_stop)
        for a in range(space.sources):
            assert points[i, a] == pytest.approx(space.points[a, inside].sum(), abs=1e-12)
            for b in range(space.sources):
                product = (space.points[a, inside] * space.matches[b, inside]).sum()
                assert matches[i, a, b] == pytest.approx(product, rel=1e-9, abs=1e-9)


def test_groups_of_cells_sum_up_as_rectangles_do(space):
    parts = Plan.initial(space.grid, 6).partitions
    label = np.zeros(len(space.rows), dtype=np.int64)
    for i, part in enumerate(parts):
        c = part.cells
        inside = (space.columns >= c.col_start) & (space.columns < c.col_stop)
        inside &= (space.rows >= c.row_start) & (space.rows < c.row_stop)
        label[inside] = i
    for mine, other in zip(
        space.by_label(label, 6), space.within([p.cells for p in parts]), strict=True
    ):
        np.testing.assert_allclose(mine, other, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("cells", [20, 1000], ids=["queries in a cell", "queries over cells"])
def test_matches_are_those_of_real_queries_and_points(cells):
    rng = np.random.default_rng(0)
    weights = np.zeros((cells, cells))
    weights[4:8, 5:9] = rng.random((4, 4))
    density = Density("few", Bounds(0, 0, 1, 2), weights)
    field = Field(density, Scenario("calm", "", ""), 1000)
    (x, y), drawn = density.sample_points(rng, 3000), density.sample_queries(rng, 3000)
    inside = (drawn.min_x <= x[:, None]) & (x[:, None] <= drawn.max_x)
    inside &= (drawn.min_y <= y[:, None]) & (y[:, None] <= drawn.max_y)
    expected = float((field.points[0] * field.matches[0]).sum()) / 1000
    assert inside.mean() == pytest.approx(expected, rel=0.05)


def test_far_from_edges_a_query_contains_as_much_as_its_area():
    grid = Grid(Bounds(0, 0, 1, 1), 200, 100)
    even = np.full((100, 200), 1 / 20_000)
    assert containing(even, grid)[50, 100] == pytest.approx(QUERY_SIDE**2)


def test_the_sample_stands_for_all_queries(density, scenario):
    field = Field(density, scenario, 3_000_000)
    assert [len(s.fault) * field.weight for s in field.sample] == pytest.approx(field.counts)
    assert field.counts == [3_000_000, 750_000]
