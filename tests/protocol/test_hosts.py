"""State is fetched by other hosts only, and is the dearer the more a host holds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkswarm.protocol.hosts import CROWDING, ONE_HOST, Hosts

QUERIES = st.floats(0, 1e9)
HELD = st.lists(st.integers(0, 10**9), min_size=2, max_size=5)


@given(QUERIES)
def test_within_a_host_nothing_is_fetched(queries: float) -> None:
    assert ONE_HOST.to_fetch(0, 7, queries) == 0.0
    assert Hosts((0, 1, 0), (5, 5)).to_fetch(0, 2, queries) == 0.0


@given(QUERIES)
def test_where_nothing_is_known_of_state_all_hosts_are_alike(queries: float) -> None:
    assert Hosts((0, 1)).to_fetch(0, 1, queries) == queries
    assert Hosts((0, 1), (0, 0)).to_fetch(0, 1, queries) == queries


def test_a_host_with_room_fetches_what_it_gets_and_a_crowded_one_pays_more() -> None:
    hosts = Hosts((0, 1, 2), (40, 100, 160))
    assert hosts.to_fetch(2, 0, 10) == 10
    assert hosts.to_fetch(0, 1, 20) == pytest.approx(20 * 1.2**CROWDING)
    assert hosts.to_fetch(0, 2, 40) == pytest.approx(40 * 2.0**CROWDING)


@given(HELD, QUERIES, QUERIES)
def test_more_queries_never_cost_less(held: list[int], some: float, more: float) -> None:
    hosts = Hosts(tuple(range(len(held))), tuple(held))
    low, high = sorted((some, more))
    assert low <= hosts.to_fetch(0, 1, low) <= hosts.to_fetch(0, 1, high)
