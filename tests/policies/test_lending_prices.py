"""Prices of candidates: learnt by block of cells, in any unit, forgotten in time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkswarm.geometry import Bounds, Grid
from sparkswarm.policies import Blocks, BlockSums, LendingPrices
from sparkswarm.policies.lending_prices import SIDE, CandidatePrice
from sparkswarm.protocol.cost import Prices

LEARNT = Prices(per_point=1e-6, per_match=3e-8)


def sums(**amounts: float) -> BlockSums:
    """Return sums by block, given as b7=1.0."""
    blocks = np.array([int(name[1:]) for name in amounts], np.int32)
    return BlockSums(blocks, np.array([*amounts.values()]))


@given(
    columns=st.integers(1, 300),
    rows=st.integers(1, 300),
    cells=st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), max_size=20),
)
def test_every_cell_is_in_one_block_and_neighbours_share_it(
    columns: int, rows: int, cells: list[tuple[float, float]]
) -> None:
    grid = Grid(Bounds(0, 0, 1, 1), columns, rows)
    column = np.array([min(int(x * columns), columns - 1) for x, _ in cells], np.int32)
    row = np.array([min(int(y * rows), rows - 1) for _, y in cells], np.int32)
    amount = np.arange(1.0, len(cells) + 1)
    found = np.zeros(SIDE * SIDE)
    Blocks.of(grid).add(found, column, row, amount)
    expected = np.zeros((SIDE, SIDE))
    for c, r, a in zip(column, row, amount, strict=True):
        expected[r * SIDE // rows, c * SIDE // columns] += a
    assert np.array_equal(found, expected.ravel())
    short = BlockSums.of(found)
    assert np.array_equal(np.flatnonzero(found), short.block)
    assert np.array_equal(found[short.block], short.amount)


def test_before_anything_is_known_a_candidate_costs_what_a_match_does() -> None:
    price = CandidatePrice()
    price.observe(1.0, [], [])
    prices = price.prices(LEARNT)
    assert (prices.per_point, prices.per_query) == (1e-6, 3e-8)
    assert np.array_equal(prices.by_block(), np.full(SIDE * SIDE, 3e-8))


def test_where_candidates_lead_to_more_they_cost_more() -> None:
    price = CandidatePrice()
    of_two_tasks = [sums(b1=600.0, b2=1000.0), sums(b1=400.0)]
    price.observe(4.0, of_two_tasks, [sums(b1=30.0), sums(b2=10.0)])
    prices = price.prices(LEARNT)
    assert prices.per_query == pytest.approx(4.0 / 2000)
    factor = prices.by_block() / prices.per_query
    assert factor[[1, 2, 3]] == pytest.approx([1.5, 0.5, 1.0], rel=1e-3)


@given(unit=st.floats(1e-9, 1e9))
def test_the_unit_of_what_was_found_does_not_matter_and_may_change(unit: float) -> None:
    price = CandidatePrice()
    for scale in (1.0, unit):
        found = sums(b1=30.0 * scale, b2=10.0 * scale)
        price.observe(4.0, [sums(b1=1000.0, b2=1000.0)], [found])
    factor = price.prices(LEARNT).factors
    assert factor is not None
    assert factor[[1, 2]] == pytest.approx([1.5, 0.5], rel=1e-3)


def test_what_changes_is_followed() -> None:
    price = CandidatePrice()
    for more in (1.9, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1):
        found = sums(b1=1000.0 * more, b2=1000.0 * (2 - more))
        price.observe(1.0, [sums(b1=1000.0, b2=1000.0)], [found])
    factor = price.prices(LEARNT).factors
    assert factor is not None
    assert factor[1] == pytest.approx(0.1, abs=0.15)


def test_prices_without_blocks_are_the_same_everywhere() -> None:
    prices = LendingPrices(per_point=1.0, per_query=0.5)
    assert set(prices.by_block().tolist()) == {0.5}
