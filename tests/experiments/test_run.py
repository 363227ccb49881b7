"""Whole runs: hotspots hurt who cannot follow, memory has an end, a seed fixes everything."""

from dataclasses import replace

import numpy as np
import pytest

from sparkswarm.errors import ConfigError
from sparkswarm.experiments.experiment import Settings, run_experiment
from sparkswarm.experiments.names import POLICIES
from sparkswarm.experiments.run import run_policy
from sparkswarm.experiments.scenarios import Scenario, find_scenario
from sparkswarm.experiments.service import STORED
from sparkswarm.workloads import cities_density

SLOW = replace(STORED, per_point=tuple(20 * seconds for seconds in STORED.per_point))
"""Executors so slow that never the network, always one of them sets the pace."""


@pytest.fixture(scope="module")
def outcomes(density, scenario, machines):
    settings = Settings(scenario, POLICIES, SLOW, machines, seed=1)
    return run_experiment(replace(settings, scenario=scenario), density)


def test_units_of_work_are_queries_times_tuples(outcomes, scenario):
    for o in outcomes.outcomes:
        assert len(o.minutes) == scenario.minutes
        for minute in (o.minutes[0], o.minutes[-1]):
            assert minute.work == pytest.approx(minute.queries * minute.tuples)
        assert o.minutes[0].queries == 1_000_000
        assert o.minutes[2].queries == 1_250_000


def test_swarm_bears_the_hotspot_better_than_what_stands_still(outcomes):
    def hurt(name):
        o = outcomes.of(name)
        return o.minutes[2].tuples / o.minutes[0].tuples

    assert hurt("static_history") < 0.6
    assert hurt("swarm") > 0.9
    assert outcomes.of("swarm").units_of_work(1, 3) > 2 * outcomes.of(
        "static_history"
    ).units_of_work(1, 3)


def test_who_does_more_work_has_the_lower_latency(outcomes):
    latency = {o.policy: o.latency_us() for o in outcomes.outcomes}
    tuples = {o.policy: np.mean([m.tuples for m in o.minutes]) for o in outcomes.outcomes}
    for o in outcomes.outcomes:
        window = o.machines.window / tuples[o.policy] * 1e6
        assert latency[o.policy] == pytest.approx(window, rel=0.05)


def test_only_swarm_decides_and_every_decision_has_a_reason(outcomes):
    deciding = {row["policy"] for row in outcomes.journal()}
    assert deciding == {"swarm", "swarm_lending", "swarm_paper"}
    assert all(row["reason"] and row["what"] for row in outcomes.journal())
    assert outcomes.of("swarm").changes > 0
    assert outcomes.of("static_history").traffic["statistics"] == 0


def test_nobody_works_more_than_all_the_time(outcomes):
    for o in outcomes.outcomes:
        busy = np.array([m.busy for m in o.minutes])
        assert busy.max() <= 1 + 1e-9
        assert 0 < o.balance() <= 1


def test_the_same_seed_gives_the_same_run_and_another_does_not(density, scenario, machines):
    def play(seed):
        settings = Settings(scenario.shortened(2), ("swarm",), SLOW, machines, seed)
        return run_experiment(settings, density)

    first, again, other = play(1), play(1), play(2)
    assert first.timeline() == again.timeline()
    assert first.journal() == again.journal()
    assert first.journal() != other.journal()


def test_a_policy_fails_where_its_queries_do_not_fit(space, scenario, machines):
    scarce = replace(machines, memory_bytes=0.5 * sum(space.counts) * STORED.query_bytes)
    failed = run_policy("replicated", scenario, space, scarce, STORED, 0)
    assert "GB" in failed.failed
    assert failed.units_of_work() is None
    assert failed.journal[-1]["what"] == "failed"
    assert run_policy("static_history", scenario.shortened(1), space, scarce, STORED, 0).minutes


def test_memory_can_run_out_when_the_hotspots_queries_come(space, scenario, machines):
    scarce = replace(machines, memory_bytes=1.1 * space.counts[0] * STORED.query_bytes)
    failed = run_policy("replicated", scenario, space, scarce, STORED, 0)
    assert failed.failed
    assert len(failed.minutes) == 1


def test_wrong_policies_are_refused(scenario):
    for names in ((), ("swarm", "swarm"), ("best",)):
        with pytest.raises(ConfigError):
            Settings(scenario, names, STORED)


@pytest.mark.long
@pytest.mark.parametrize("name", ["one-uniform-hotspot", "two-consecutive-hotspots"])
def test_a_whole_scenario_on_the_papers_cluster(name):
    settings = Settings(find_scenario(name), ("swarm", "static_history"), STORED)
    experiment = run_experiment(settings, cities_density())
    start, stop = experiment.hot_minutes
    swarm, history = experiment.of("swarm"), experiment.of("static_history")
    assert swarm.units_of_work(start, stop) > history.units_of_work(start, stop)


@pytest.mark.long
def test_the_sweep_runs_replicated_out_of_memory():
    sweep = find_scenario("queries-sweep").shortened(2)
    scenario = Scenario(sweep.name, "", "", queries=sweep.queries[-2:], minutes=2)
    experiment = run_experiment(Settings(scenario, ("replicated",), STORED), cities_density())
    assert [bool(o.failed) for o in experiment.outcomes] == [False, True]
