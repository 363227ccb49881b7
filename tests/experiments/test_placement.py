"""Where policies send points: every point somewhere, every match made, every query held."""

import numpy as np
import pytest

from sparkswarm.errors import ConfigError
from sparkswarm.experiments.hashed import cells_of, first_choice, level_pairs, second_choice
from sparkswarm.experiments.names import POLICIES
from sparkswarm.experiments.placement import by_owner
from sparkswarm.experiments.policies import (
    divided_by_product,
    limited_history,
    place,
)
from sparkswarm.experiments.scenarios import Mix
from sparkswarm.experiments.service import STORED
from sparkswarm.geometry import CellRect, QueryCells
from sparkswarm.protocol.cost import PaperModel
from sparkswarm.protocol.partition import TICKETS, reshared
from sparkswarm.protocol.plan import Plan
from sparkswarm.protocol.statistics import Statistics

MIXES = [Mix(np.array([1.0, 0.0]), np.array([1.0, 0.0])), Mix(np.array([0.6, 0.4]), np.ones(2))]


@pytest.mark.parametrize("mix", MIXES, ids=["calm", "hotspot"])
@pytest.mark.parametrize("name", POLICIES)
def test_every_tuple_goes_somewhere_and_makes_all_its_matches(name, mix, space, machines):
    placement, used = place(name, space, machines, STORED, seed=0)
    load = placement.load(mix)
    assert len(load.share) == used.executors
    assert load.share.sum() == pytest.approx(1.0)
    _, matches = space.within([space.grid.cells])
    assert load.matches.sum() == pytest.approx(float(mix.points @ matches[0] @ mix.queries))
    in_all = float(np.dot(space.counts, mix.queries))
    assert in_all * 0.999 <= load.held.sum() <= in_all * used.executors
    assert load.held.max() <= in_all * 1.2


def test_replicated_holds_everything_everywhere_on_more_executors(space, machines):
    placement, used = place("replicated", space, machines, STORED, seed=0)
    assert used.executors == machines.executors + machines.routers
    assert placement.load(MIXES[1]).held.tolist() == [sum(space.counts)] * used.executors


def test_a_query_is_held_by_the_executors_of_all_its_cells(space, machines):
    placement, _ = place("hash_cell", space, machines, STORED, seed=0)
    owner = first_choice(space.grid, 5)
    expected = np.zeros(5)
    for i in range(len(space.sample[0].fault)):
        expected[np.unique(owner[space.sample[0].rect(i).slices])] += space.weight
    np.testing.assert_allclose(placement.held(MIXES[0]), expected)


def test_owners_of_a_shared_partition_divide_its_points_by_their_tickets(space):
    plan = Plan.initial(space.grid, 2)
    first = plan.partitions[0]
    (fresh, *_), plan = plan.reserve(1)
    plan = plan.apply([reshared(first, {0: 16, 1: TICKETS - 16}, fresh)])
    points, matches = by_owner(space, plan)
    whole, all_matches = space.within([first.cells])
    np.testing.assert_allclose(points[0], whole[0] / 4)
    np.testing.assert_allclose(points.sum(axis=0), 1.0)
    np.testing.assert_allclose(matches[0], all_matches[0] / 4)


def test_cells_of_queries_are_those_they_overlap():
    queries = QueryCells.of([CellRect(1, 2, 3, 4), CellRect(0, 0, 1, 1)])
    query, cell = cells_of(queries, 10)
    assert query.tolist() == [0, 0, 0, 0, 1]
    assert cell.tolist() == [21, 22, 31, 32, 0]


def test_the_two_candidates_of_a_cell_differ_and_spread(space):
    first, second = first_choice(space.grid, 5), second_choice(space.grid, 5)
    assert (first != second).all()
    both = np.bincount((first * 5 + second).ravel(), minlength=25).reshape(5, 5)
    off_diagonal = both[~np.eye(5, dtype=bool)]
    assert off_diagonal.min() > 0.5 * off_diagonal.mean()


def test_pairs_are_levelled_as_far_as_two_choices_reach():
    first, second = np.array([0, 1, 2]), np.array([1, 2, 0])
    part = np.full(3, 0.5)
    level_pairs(np.array([6.0, 0.0, 0.0]), first, second, part, 3)
    assert part[0] == pytest.approx(0.5)
    part = np.full(3, 0.5)
    level_pairs(np.array([2.0, 5.0, 2.0]), first, second, part, 3)
    given = [2 * part[0] + 2 * (1 - part[2]), 5 * part[1] + 2 * (1 - part[0])]
    assert max(*given, 5 * (1 - part[1]) + 2 * part[2]) == pytest.approx(3.0, rel=0.01)


def test_two_choices_are_more_even_than_one(space, machines):
    def unevenness(name):
        matches = place(name, space, machines, STORED, 0)[0].load(MIXES[1]).matches
        return matches.max() / matches.mean()

    assert unevenness("pkg") < unevenness("hash_cell")


def test_a_history_divided_by_the_papers_product_has_costs_that_are_alike(density):
    history = limited_history(density, 0)
    columns, rows = density.grid.place_points(history.x, history.y)

    def unevenness(plan):
        cost = np.zeros(plan.executors)
        for partition in plan.partitions:
            c = partition.cells
            inside = (columns >= c.col_start) & (columns < c.col_stop)
            inside &= (rows >= c.row_start) & (rows < c.row_stop)
            statistics = Statistics(c)
            statistics.collect_points(columns[inside], rows[inside])
            statistics.collect_queries(history.queries.clipped(c))
            statistics.close_round()
            cost[partition.owners[0]] += PaperModel().numerator(statistics)
        return cost.max() / cost.mean()

    plan = divided_by_product(density, 6, 0)
    plan.check()
    assert not any(partition.is_shared for partition in plan.partitions)
    assert unevenness(plan) < 1.3
    assert unevenness(Plan.initial(density.grid, 6)) > 3


def test_an_unknown_policy_is_refused(space, machines):
    with pytest.raises(ConfigError, match="static_history"):
        place("best", space, machines, STORED, 0)
