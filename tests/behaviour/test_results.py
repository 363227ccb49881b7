"""Results on every engine are those of a brute-force join."""

from __future__ import annotations

import pytest

from ..support.scenarios import SCENARIOS, Scenario
from .engines import Engine


@pytest.mark.parametrize("scenario", SCENARIOS, ids=str)
def test_results_are_those_of_brute_force(engine: Engine, scenario: Scenario) -> None:
    found = engine.matches(scenario)
    assert found - scenario.expected == {}, "reported, but wrong or twice"
    assert scenario.expected - found == {}, "missing"
