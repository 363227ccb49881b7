"""Algorithm 3 against an exact solver."""

from __future__ import annotations

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sparkswarm.protocol.subset import find_subset


def best_sum(costs: list[int], capacity: int) -> int:
    """Return the largest sum of a subset that fits, by trying all sums."""
    sums = {0}
    for cost in costs:
        sums |= {total + cost for total in sums if total + cost <= capacity}
    return max(sums)


costs_and_capacity = st.tuples(
    st.lists(st.integers(0, 1000), max_size=14), st.integers(0, 4000)
) | st.lists(st.integers(1, 60), min_size=1, max_size=14).flatmap(
    # Near the worst case: one item just over half, the rest just under.
    lambda rest: st.tuples(st.just([max(rest) + 1, *rest]), st.integers(1, 2 * max(rest) + 2))
)


@given(problem=costs_and_capacity)
@example(problem=([51, 50, 50], 100))  # the worst case: 51 of 100
@example(problem=([3, 2, 2], 4))
def test_at_least_half_of_what_the_best_subset_reaches_and_never_too_much(
    problem: tuple[list[int], int],
) -> None:
    costs, capacity = problem
    chosen = find_subset(costs, capacity)
    total = sum(costs[i] for i in chosen)
    assert len(set(chosen)) == len(chosen)
    assert total <= capacity
    assert 2 * total >= best_sum(costs, capacity)
    # Greedy: nothing that was left would still have fitted.
    left = [cost for i, cost in enumerate(costs) if i not in chosen and cost > 0]
    assert all(total + cost > capacity for cost in left)


@given(
    costs=st.lists(st.floats(0, 1e6), max_size=14),
    capacity=st.floats(0, 3e6),
)
def test_fractions_never_exceed_the_capacity_either(costs: list[float], capacity: float) -> None:
    chosen = find_subset(costs, capacity)
    total = 0.0
    for i in chosen:
        total += costs[i]
    assert total <= capacity
    assert math.fsum(costs[i] for i in chosen) <= capacity * (1 + 1e-12)


@given(problem=costs_and_capacity)
def test_the_costliest_come_first_and_equals_in_their_order(
    problem: tuple[list[int], int],
) -> None:
    costs, capacity = problem
    chosen = find_subset(costs, capacity)
    assert chosen == sorted(chosen, key=lambda i: (-costs[i], i))


@pytest.mark.parametrize(
    ("costs", "capacity", "chosen"),
    [
        pytest.param([1, 5, 3], 6, [1, 0], id="the largest that fits, then what still fits"),
        pytest.param([5, 5, 5], 10, [0, 1], id="it stops when the capacity is hit exactly"),
        pytest.param([7, 4, 3], 6, [1], id="too large is passed over"),
        pytest.param([7, 8], 6, [], id="nothing fits"),
        pytest.param([0, 2, 0], 5, [1], id="what costs nothing stays"),
        pytest.param([0, 0], 0, [], id="what costs nothing stays, even if nothing else can go"),
        pytest.param([4, -3, 2], 5, [0], id="nor is a negative cost taken"),
        pytest.param([], 5, [], id="no partitions"),
        pytest.param([1, 2], 0, [], id="no capacity"),
        pytest.param([1, 2], -1, [], id="less than no capacity"),
    ],
)
def test_examples(costs: list[float], capacity: float, chosen: list[int]) -> None:
    assert find_subset(costs, capacity) == chosen


def test_it_stops_at_an_exact_hit_and_looks_no_further() -> None:
    """A cost so small that adding it changes nothing would otherwise be taken too."""
    assert find_subset([1.0, 1e-30], 1.0) == [0]
