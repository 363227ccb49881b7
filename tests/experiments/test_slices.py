"""Slices: the slowest station sets the pace, and what waits is what the window holds."""

import numpy as np
import pytest

from sparkswarm.experiments.machines import Machines
from sparkswarm.experiments.placement import Load, Moves
from sparkswarm.experiments.service import STORED
from sparkswarm.experiments.slices import Slices

MACHINES = Machines(executors=4, routers=1, sources=2, hosts=2)


def load(*share: float, matches: float = 200.0) -> Load:
    shares = np.array(share)
    return Load(shares, shares * matches, np.full(len(share), 1e5))


def settled(slices: Slices, which: Load, times: int = 100):
    for _ in range(times):
        passed = slices.carry(which)
    return passed


@pytest.mark.parametrize(
    "shares", [(0.25, 0.25, 0.25, 0.25), (0.7, 0.1, 0.1, 0.1)], ids=["even", "skewed"]
)
def test_throughput_is_what_the_slowest_executor_lets_through(shares):
    slices = Slices(MACHINES, STORED, collects=False)
    passed = settled(slices, load(*shares))
    point = float(STORED.point_seconds(np.array([1e5]))[0]) + 200 * STORED.per_match
    assert passed.processed / 0.1 == pytest.approx(1 / (max(shares) * point), rel=1e-3)
    assert passed.busy[0] == pytest.approx(0.1)


def test_latency_is_what_is_pending_over_what_is_processed():
    """Little's law, whatever the skew."""
    for shares in ((0.25, 0.25, 0.25, 0.25), (0.7, 0.1, 0.1, 0.1), (0.4, 0.4, 0.1, 0.1)):
        passed = settled(Slices(MACHINES, STORED, collects=False), load(*shares))
        assert passed.latency == pytest.approx(MACHINES.window / (passed.processed / 0.1), rel=0.01)


def test_where_points_are_cheap_the_network_sets_the_pace():
    slices = Slices(MACHINES, STORED, collects=False)
    passed = settled(slices, load(0.25, 0.25, 0.25, 0.25, matches=0.0))
    links = passed.busy[MACHINES.executors + MACHINES.routers :]
    assert links.max() == pytest.approx(0.1)
    assert passed.busy[: MACHINES.executors].max() < 0.1


def test_collecting_statistics_costs_time():
    even = load(0.25, 0.25, 0.25, 0.25)
    with_it = settled(Slices(MACHINES, STORED, collects=True), even).processed
    without = settled(Slices(MACHINES, STORED, collects=False), even).processed
    assert with_it < without


def test_all_that_is_emitted_is_processed_or_pending():
    slices = Slices(MACHINES, STORED, collects=False)
    which = load(0.4, 0.3, 0.2, 0.1)
    emitted = processed = 0.0
    for _ in range(50):
        passed = slices.carry(which)
        emitted += passed.emitted
        processed += passed.processed
    assert emitted == pytest.approx(processed + slices.pending)
    assert 0 < slices.pending <= MACHINES.window


def test_moving_queries_takes_half_a_core_from_both_until_it_is_done():
    slices = Slices(MACHINES, STORED, collects=False)
    which = load(0.25, 0.25, 0.25, 0.25)
    before = settled(slices, which).processed
    queries = np.zeros((4, 4))
    queries[1, 2] = 0.6 / STORED.per_query
    slices.move(Moves(queries, 0.0, 0.0, 1))
    during = [slices.carry(which).processed for _ in range(11)]
    after = [slices.carry(which).processed for _ in range(30)][-1]
    assert during[5] == pytest.approx(before / 2, rel=0.05)
    assert after == pytest.approx(before, rel=0.01)


def test_a_backlog_that_nobody_adds_to_drains():
    slices = Slices(MACHINES, STORED, collects=False)
    for _ in range(10):
        slices.carry(load(1.0, 0.0, 0.0, 0.0), emitted=1e6)
    assert slices.pending > 0
    for _ in range(200):
        slices.carry(load(1.0, 0.0, 0.0, 0.0), emitted=0.0)
    assert slices.pending == 0.0
