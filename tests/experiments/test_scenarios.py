"""The scenarios are those of the paper's evaluation."""

import numpy as np
import pytest

from sparkswarm.errors import ConfigError
from sparkswarm.experiments import names
from sparkswarm.experiments.scenarios import SCENARIOS, TimedHotspot, find_scenario

MINUTE = 60


def test_the_command_line_offers_every_scenario():
    assert tuple(SCENARIOS) == names.SCENARIOS


def test_the_sweep_doubles_from_one_to_64_million():
    sweep = find_scenario("queries-sweep")
    assert [n // 1_000_000 for n in sweep.queries] == [1, 2, 4, 8, 16, 32, 64]
    assert sweep.hotspots == ()


@pytest.mark.parametrize("name", [n for n, s in SCENARIOS.items() if s.hotspots])
def test_hotspots_are_squares_of_15_percent_that_come_after_ten_minutes(name):
    scenario = find_scenario(name)
    assert min(t.start for t in scenario.hotspots) == 10 * MINUTE
    assert all(t.spatial.side == 0.15 for t in scenario.hotspots)
    most = 0.4 / len(scenario.hotspots)
    for hotspot in scenario.hotspots:
        shares = [hotspot.point_share(s) for s in range(scenario.minutes * MINUTE)]
        assert max(shares) == pytest.approx(most, rel=1e-3)


@pytest.mark.parametrize("name", list(SCENARIOS))
def test_what_arrives_always_adds_up_and_calm_frames_the_trouble(name):
    scenario = find_scenario(name)
    for at in np.linspace(0, scenario.minutes * MINUTE, 500):
        assert scenario.mix(float(at)).points.sum() == pytest.approx(1.0)
    for at in (0.0, scenario.minutes * MINUTE - 1.0):
        calm = scenario.mix(at)
        assert calm.points[0] == 1.0
        assert not calm.queries[1:].any()


def test_a_bell_is_strongest_halfway_and_symmetric():
    bell = TimedHotspot(100, 400)
    assert bell.point_share(250) == pytest.approx(0.4)
    assert bell.point_share(200) == pytest.approx(bell.point_share(300))
    assert bell.point_share(101) < 0.01


def test_a_step_is_there_at_once_and_gone_at_once():
    step = TimedHotspot(100, 400, intensity="step")
    assert [step.point_share(at) for at in (99.9, 100, 399.9, 400)] == [0, 0.4, 0.4, 0]


def test_all_queries_of_a_hotspot_come_within_its_first_minute():
    hotspot = TimedHotspot(100, 400)
    assert [hotspot.registered(at) for at in (99, 130, 160, 399, 400)] == [0, 0.5, 1, 1, 0]


def test_consecutive_hotspots_touch_and_overlapping_ones_overlap():
    first, second = find_scenario("two-consecutive-hotspots").hotspots
    assert first.stop == second.start
    first, second = find_scenario("two-overlapping-hotspots").hotspots
    assert first.start < second.start < first.stop < second.stop
    assert first.corner != second.corner


def test_a_shortened_scenario_keeps_its_proportions():
    short = find_scenario("step-hotspot").shortened(6)
    assert (short.minutes, short.hotspots[0].start, short.hotspots[0].stop) == (6, 60, 240)


def test_what_cannot_be_is_refused():
    with pytest.raises(ConfigError, match="one-uniform-hotspot"):
        find_scenario("no-such")
    with pytest.raises(ConfigError, match="at least one minute"):
        find_scenario("step-hotspot").shortened(0)
