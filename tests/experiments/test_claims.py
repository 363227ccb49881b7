"""The paper's claims are measured, not assumed."""

import numpy as np
import pytest

from sparkswarm.experiments.claims import across, claims
from sparkswarm.experiments.experiment import Experiment, Settings
from sparkswarm.experiments.machines import Machines
from sparkswarm.experiments.run import Minute, Outcome
from sparkswarm.experiments.scenarios import find_scenario
from sparkswarm.experiments.service import STORED

NAMES = ("swarm", "static_history", "static_uniform", "replicated")


def outcome(policy, queries, tuples, latency=1.0, failed=None):
    minutes = [Minute(t, queries, queries * t, latency, np.ones(40)) for t in tuples]
    return Outcome(policy, Machines(), queries, minutes, failed)


def sweep(swarm, history, replicated_fails=(32, 64)):
    scenario = find_scenario("queries-sweep")
    outcomes = []
    for n in scenario.queries:
        outcomes += [
            outcome("swarm", n, [swarm / n], latency=1.0),
            outcome("static_history", n, [history / n], latency=5.0),
            outcome("static_uniform", n, [1.0 / n]),
            outcome(
                "replicated", n, [2.0 / n],
                failed="memory" if n // 1_000_000 in replicated_fails else None,
            ),
        ]  # fmt: skip
    return Experiment(Settings(scenario, NAMES, STORED), "made up", outcomes)


def of(found, start):
    return next(c for c in found if c.what.startswith(start))


def test_the_headline_is_a_mean_of_ratios_and_says_when_it_is_not_reached():
    better, worse = claims(sweep(3.5, 1.0)), claims(sweep(2.5, 1.0))
    assert of(better, "swarm: units of work").ours == "3.50 x"
    assert of(better, "swarm: units of work").holds
    assert not of(worse, "swarm: units of work").holds
    assert of(better, "swarm: latency").ours == "5.00 x"
    assert of(better, "swarm: latency").holds


def test_where_replicated_fails_is_found():
    assert of(claims(sweep(3, 1)), "replicated runs out").holds
    later = of(claims(sweep(3, 1, replicated_fails=(64,))), "replicated runs out")
    assert later.ours == "at 64 million"
    assert not later.holds


def test_being_ahead_means_ahead_of_all():
    assert of(claims(sweep(3, 1)), "swarm does the most").holds
    assert not of(claims(sweep(0.5, 1)), "swarm does the most").holds


def timeline(name, swarm):
    scenario = find_scenario(name)
    start, stop = 10, 40 if "two" not in name else 50
    played = [swarm if start <= i < stop else 1.0 for i in range(60)]
    outcomes = [
        outcome("swarm", 1_000_000, played),
        outcome(
            "static_history", 1_000_000, [0.1 if start <= i < stop else 0.9 for i in range(60)]
        ),
        outcome("static_uniform", 1_000_000, [0.3] * 60),
    ]
    return Experiment(Settings(scenario, NAMES[:3], STORED), "made up", outcomes)


def test_hotspots_are_compared_with_what_was_before():
    found = claims(timeline("one-uniform-hotspot", 1.2))
    assert of(found, "swarm during").ours == "1.20 x"
    assert of(found, "the worst").holds
    assert of(found, "the best rival").holds
    assert of(found, "swarm: units of work against static_history, while").ours == "12.00 x"
    assert of(found, "swarm: units of work against static_history, while").holds is None


@pytest.mark.parametrize(
    ("name", "minute"), [("one-uniform-hotspot", 25), ("step-hotspot", 25)], ids=str
)
def test_the_hottest_minute_is_in_the_middle_of_the_hotspot(name, minute):
    assert abs(timeline(name, 1.0).hottest_minute - minute) <= 1


@pytest.mark.parametrize(("normal", "holds"), [(0.8, True), (1.3, False)])
def test_scenarios_are_compared_with_each_other(normal, holds):
    both = [timeline("one-uniform-hotspot", 1.0), timeline("one-normal-hotspot", normal)]
    (claim,) = across(both)
    assert claim.holds is holds
    assert across(both[:1]) == []
