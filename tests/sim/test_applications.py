"""Applications between simulated machines: details go wherever queries go, through all faults."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from sparkswarm.apps.aggregates.application import Aggregates
from sparkswarm.apps.application import Application, Pairs
from sparkswarm.errors import ConfigError
from sparkswarm.geometry import CellRect
from sparkswarm.sim.bugs import Bug
from sparkswarm.sim.cluster import draw_scenario
from sparkswarm.sim.matching import Matching
from sparkswarm.sim.tuples import Operation, Point
from sparkswarm.sim.workload import (
    NewOperation,
    NewPoint,
    draw_workload,
)

from ..support.scenarios import EDGES, SCENARIOS, SIDE, Circles, Scenario
from .machines import found_by


@pytest.mark.parametrize("scenario", [SCENARIOS[0], SCENARIOS[2]], ids=str)
def test_a_scenario_notices_details_that_stay_behind(scenario: Scenario) -> None:
    found, world = found_by(scenario, 0, frozenset({Bug.DETAILS_LEFT_BEHIND}))
    assert found - scenario.expected, "without details a query asks for nothing"
    assert not scenario.expected - found
    assert any("does not match" in violation for violation in world.oracle.verdict.violations)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=str)
def test_scenarios_are_worth_running(scenario: Scenario) -> None:
    inside = scenario._replace(matches=lambda point, query: True).expected
    assert len(scenario.expected) > 150
    asks = scenario.name != "subscriptions that ask for nothing"
    assert (len(inside) - len(scenario.expected) > 300) is asks
    for number, batch in enumerate(scenario.batches):
        assert scenario.operations_table(number).num_rows == len(batch.operations)
        assert scenario.points_table(number).column("x").to_pylist() == [
            row["x"] for row in batch.points
        ]
        assert all(0 <= row[c] <= SIDE for row in batch.points for c in "xy")


# -- drawn runs --------------------------------------------------------------------------------


def test_an_application_leaves_the_rest_of_a_seed_as_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    grid = draw_scenario(1).config.make_grid()
    demand = draw_scenario(1).demand
    detailed = draw_workload(1, grid, 2, demand)
    assert detailed.matching is not None
    monkeypatch.setattr("sparkswarm.sim.workload.APPLICATIONS", 0.0)
    plain = draw_workload(1, grid, 2, demand)
    assert plain.matching is None
    same = 0
    for script, other in zip(detailed.scripts, plain.scripts, strict=True):
        for one, two in zip(script, other, strict=True):
            if isinstance(one, NewOperation):
                assert one.reach == two.reach
                same += one.rectangle == two.rectangle
                assert replace(one, details=(), rectangle=None, cells=None) == replace(
                    two, rectangle=None, cells=None
                )
            elif isinstance(one, NewPoint):
                assert replace(one, details=()) == two
            else:
                assert one == two
    assert same


# -- tables ------------------------------------------------------------------------------------

CELLS = CellRect(0, 0, 4, 4)
COLUMNS = pa.schema({"radius": pa.float64(), "colour": pa.string()})
COLOUR = pa.schema({"colour": pa.string()})


def operation(query: int, *details: object) -> Operation:
    return Operation(0, query, query, 1, (0.0, 0.0, 4.0, 4.0), CELLS, CELLS, False, details)


def point(number: int, x: float, *details: object) -> Point:
    return Point(0, number, x, 2.0, 0, 0, details)


def test_pairs_are_decided_each_by_its_own_point_and_query() -> None:
    matching = Matching(Circles(), COLUMNS, COLOUR)
    points = [point(1, 2.5, "red"), point(2, 3.5, None)]
    operations = [operation(7, 1.0, None), operation(8, None, "red"), operation(9)]
    pairs = [(1, 0), (0, 0), (0, 1), (1, 1), (1, 2)]
    for _ in range(2):  # what was built is kept
        assert matching.decide(points, operations, pairs) == [False, True, True, False, True]
    assert matching.decide(points, operations[1:], [(1, 0)]) == [False]
    # The same query with other details is another.
    assert matching.decide(points, [operation(7, 2.0, None)], [(1, 0)]) == [True]
    assert matching.decide(points, operations, []) == []


class Looks(Application):
    """Says what it is given."""

    query_columns = {"colour": "STRING"}  # noqa: RUF012

    def build(self, queries: pa.Table) -> pa.Table:
        return queries

    def match(self, built: pa.Table, points: pa.Table, pairs: Pairs) -> list[bool]:
        assert built.column_names == ["id", *EDGES, "expires", "colour"]
        assert points.column_names == ["id", "x", "y", "time"]
        assert built.column("colour").type == pa.string(), "typed also where all are null"
        return [True] * len(pairs.points)


def test_an_application_gets_the_columns_that_it_gets_on_spark() -> None:
    matching = Matching(Looks(), COLOUR, pa.schema([]))
    assert matching.decide([point(1, 1.0)], [operation(7, None)], [(0, 0)]) == [True]


def test_what_cannot_run_here_is_refused() -> None:
    with pytest.raises(ConfigError, match="Aggregates keeps state by batch"):
        Matching(Aggregates(), COLUMNS, COLOUR)
    with pytest.raises(ConfigError, match="needs the columns"):
        Matching(Circles(), COLOUR, COLOUR)
