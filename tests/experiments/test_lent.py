"""Lending in the experiments: even at once, paid for in fetched queries, invisible to the plan."""

import numpy as np
import pytest

from sparkswarm.experiments.lent import KEEP_ROUNDS
from sparkswarm.experiments.placement import Moves, PlacementTotals
from sparkswarm.experiments.policies import place
from sparkswarm.experiments.scenarios import Mix
from sparkswarm.experiments.service import STORED
from sparkswarm.experiments.slices import Slices

CALM = Mix(np.array([1.0, 0.0]), np.array([1.0, 0.0]))
HOT = Mix(np.array([0.6, 0.4]), np.array([1.0, 1.0]))


def work(load, held):
    return STORED.point_seconds(held) * load.share + STORED.per_match * load.matches


def close(placement, number, mix):
    totals = PlacementTotals(1e6 * mix.points, 1e6 * np.outer(mix.points, mix.queries))
    load = placement.load(mix)
    return placement.close_round(number, totals, mix, 1e6 * work(load, load.held))


@pytest.fixture
def both(space, machines):
    return [place(name, space, machines, STORED, 0)[0] for name in ("swarm", "swarm_lending")]


def test_a_hotspot_is_even_before_the_first_round_ends(both):
    """By the price of a tuple where its partition lives: a borrower's larger index is its cost."""
    plain, lending = both
    held = plain.held(HOT)
    before, after = work(plain.load(HOT), held), work(lending.load(HOT), held)
    assert before.mean() / before.max() < 0.6
    assert after.mean() / after.max() > 0.85
    assert after.max() < before.max()


def test_a_borrower_fetches_a_partition_once_and_holds_it_while_it_borrows(both):
    plain, lending = both
    np.testing.assert_array_equal(lending.held(HOT), plain.held(HOT))
    lending.load(HOT)
    fetched = lending.held(HOT) - plain.held(HOT)
    assert fetched.max() > 0
    _, moves = close(lending, 0, HOT)
    np.testing.assert_allclose(moves.fetched.sum(axis=0), fetched)
    assert np.trace(moves.fetched) == 0
    # The plan has changed where it lent, and with it what is fetched. In the end nothing is.
    for number in range(1, 40):
        _, moves = close(lending, number, CALM)
    assert moves.fetched.sum() == 0
    assert all(39 - used <= KEEP_ROUNDS for used in lending._copies.values())


def test_owners_see_the_statistics_and_learn_the_prices_of_their_own_points(both):
    for placement in both:
        close(placement, 0, HOT)
    plain, lending = both
    assert lending.swarm.plan.partitions == plain.swarm.plan.partitions
    for a, b in zip(plain.swarm.units, lending.swarm.units, strict=True):
        for partition in a.partitions:
            mine, other = a.statistics(partition.id), b.statistics(partition.id)
            np.testing.assert_allclose(mine.values, other.values)


def test_fetching_is_paid_on_the_links_alone(machines):
    queries = np.zeros((5, 5))
    fetched = queries.copy()
    fetched[0, 1] = 1e6
    slices = Slices(machines, STORED, collects=True)
    slices.move(Moves(queries, 0.0, 0.0, 0, fetched))
    assert slices._background[: machines.executors].sum() == 0
    seconds = machines.link_seconds(1e6 * machines.query_bytes)
    assert slices._background.sum() == pytest.approx(2 * seconds), "out of a host, into another"
