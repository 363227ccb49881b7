"""SWARM over a field: its statistics are the round's, and it follows the load."""

import numpy as np
import pytest

from sparkswarm.experiments.placement import PlacementTotals
from sparkswarm.experiments.policies import place
from sparkswarm.experiments.scenarios import Mix
from sparkswarm.experiments.service import STORED

CALM = Mix(np.array([1.0, 0.0]), np.array([1.0, 0.0]))
HOT = Mix(np.array([0.6, 0.4]), np.array([1.0, 1.0]))


def totals(mix: Mix, points: float = 1e6) -> PlacementTotals:
    return PlacementTotals(points * mix.points, points * np.outer(mix.points, mix.queries))


@pytest.fixture
def placement(space, machines):
    return place("swarm", space, machines, STORED, 0)[0]


def seconds(placement, mix):
    load = placement.load(mix)
    return STORED.per_point[0] * load.share + STORED.per_match * load.matches


def close(placement, number, mix):
    return placement.close_round(number, totals(mix), mix, 1e6 * seconds(placement, mix))


def test_units_see_the_tuples_and_the_checks_of_their_round(placement, space):
    load = placement.load(HOT)
    close(placement, 0, HOT)
    # The first round doubles: statistics start from nothing, and that is a jump.
    received = [sum(u.statistics(p.id).points for p in u.partitions) for u in placement.swarm.units]
    checks = [sum(u.statistics(p.id).checks for p in u.partitions) for u in placement.swarm.units]
    assert sum(received) == pytest.approx(2e6, rel=1e-6)
    assert sum(checks) == pytest.approx(
        2e6 * STORED.checks_per_match * load.matches.sum(), rel=1e-6
    )


def test_queries_of_hotspots_come_and_go_and_stay_counted(placement, space):
    for number, mix in enumerate([CALM, HOT, HOT, CALM, CALM]):
        close(placement, number, mix)
        for unit in placement.swarm.units:
            for partition in unit.partitions:
                held = sum(
                    int(sample.overlapping(partition.cells).sum())
                    for sample, present in zip(space.sample, mix.queries, strict=True)
                    if present
                )
                assert unit.statistics(partition.id).queries == pytest.approx(held)


def test_queries_held_are_those_of_the_plan(placement, space):
    for number in range(4):
        close(placement, number, HOT)
    routed = [placement.swarm.index.route_queries(sample).owner for sample in space.sample]
    expected = sum(np.bincount(owner, minlength=5) for owner in routed) * space.weight
    np.testing.assert_allclose(placement.held(HOT), expected)


@pytest.mark.parametrize("name", ["swarm", "swarm_paper"])
def test_the_load_gets_more_even_round_by_round(name, space, machines):
    placement, _ = place(name, space, machines, STORED, 0)

    def most():
        return float(seconds(placement, CALM).max() / seconds(placement, CALM).mean())

    before = most()
    for number in range(24):
        close(placement, number, CALM)
    assert most() < 0.8 * before
    if name == "swarm":
        assert most() < 1.1


def test_moves_are_weighed_by_what_the_messages_say(placement, space, machines):
    _, moves = close(placement, 0, CALM)
    assert moves.changes > 0
    assert moves.queries.sum() > 0
    assert np.trace(moves.queries) == 0
    assert moves.plan_bytes > 0
    # Two numbers from every executor, and three for each m_low.
    assert moves.statistics_bytes > machines.executors * 16
    assert (moves.statistics_bytes - machines.executors * 16) % 24 == 0
