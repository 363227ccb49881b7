"""The five stages as the paper draws them, and the decision by predicted gain."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkswarm.protocol.decision import (
    TRANSITIONS,
    FiveStages,
    PredictedGain,
    Stage,
    Throughput,
    diagram,
    gain_worth_having,
)
from sparkswarm.protocol.messages import DecisionKind

NOTHING, REBALANCE = DecisionKind.KEEP, DecisionKind.REBALANCE


def verdicts(throughputs, beta=20):
    decider = FiveStages(beta)
    return [decider.decide([1.0], r).kind for r in throughputs]


@pytest.mark.parametrize(
    ("throughputs", "expected"),
    [
        pytest.param([5], [NOTHING], id="it starts by doing nothing"),
        pytest.param([5, 4], [NOTHING] * 2, id="one worse round is not enough to flip"),
        pytest.param(
            [5, 4, 3], [NOTHING, NOTHING, REBALANCE], id="two rounds without a rise flip it"
        ),
        pytest.param([5, 5, 5], [NOTHING, NOTHING, REBALANCE], id="standing still is no rise"),
        pytest.param(
            [5, 4, 3, 4, 5, 6], [NOTHING] * 2 + [REBALANCE] * 4, id="a decision that helps is kept"
        ),
        pytest.param(
            [5, 4, 3, 2, 1],
            [NOTHING, NOTHING, REBALANCE, REBALANCE, NOTHING],
            id="a decision that does not help is flipped back after two rounds",
        ),
        pytest.param(
            [1, 2, 3, 2, 1, 0, -1],
            [NOTHING] * 6 + [REBALANCE],
            id="trust built by two rises takes four falls to lose",
        ),
        pytest.param(
            [1, 2, 3, 4, 5, 6, 5, 4, 3, 2],
            [NOTHING] * 9 + [REBALANCE],
            id="the rightmost stage is the end, however often it rises",
        ),
    ],
)
def test_the_five_stages_decide(throughputs, expected):
    assert verdicts(throughputs) == expected


@pytest.mark.parametrize("beta", [1, 3, 20])
def test_beta_forces_a_flip_when_throughput_only_wobbles(beta):
    wobble = [5 + (i % 2) for i in range(3 * beta)]
    assert verdicts(wobble, beta) == [NOTHING] * beta + [REBALANCE] * beta + [NOTHING] * beta


def test_the_table_moves_one_stage_and_never_past_the_ends():
    order = list(Stage)
    for (start, moved), end in TRANSITIONS.items():
        step = 1 if moved is Throughput.ROSE else -1
        assert order.index(end) == min(order.index(start) + step, len(order) - 1)
    assert {start for start, _ in TRANSITIONS} == set(Stage) - {Stage.FLIP}
    assert len(TRANSITIONS) == 2 * (len(Stage) - 1)


def test_the_diagram_shows_every_transition_of_the_table():
    drawn = diagram()
    for (start, moved), end in TRANSITIONS.items():
        assert f"{start.name} --> {end.name}: {moved.value}" in drawn
    assert "FLIP --> START" in drawn


@given(st.lists(st.floats(0, 100), min_size=1), st.integers(1, 30))
def test_the_pointer_never_rests_on_flip(throughputs, beta):
    decider = FiveStages(beta)
    for r in throughputs:
        decider.decide([1.0], r)
        assert decider.stage is not Stage.FLIP


MANY = 1e9
"""Arrivals so many that chance plays no part."""


@pytest.mark.parametrize(
    ("costs", "expected"),
    [
        pytest.param([1, 1, 1], NOTHING, id="balanced"),
        pytest.param([0, 0, 0], NOTHING, id="no load at all"),
        pytest.param([], NOTHING, id="no executor"),
        pytest.param([1, 1, 1, 5], REBALANCE, id="one far above the rest"),
        pytest.param([1.04, 1, 0.96], NOTHING, id="less than the threshold"),
        pytest.param([1.06, 1, 0.94], REBALANCE, id="more than the threshold"),
        pytest.param([3, 3, 0, 0], REBALANCE, id="two equally slow ones"),
        pytest.param([7], NOTHING, id="a single executor has nobody to give to"),
    ],
)
def test_rebalance_when_the_slowest_is_predicted_to_gain(costs, expected):
    decision = PredictedGain(min_gain=0.05).decide(costs, MANY)
    assert decision.kind is expected
    assert decision.reason


def test_what_chance_explains_is_no_reason_to_rebalance():
    costs = [1.1, 1.0, 0.9]
    assert PredictedGain(0.05).decide(costs, 3 * 100_000).kind is REBALANCE
    assert PredictedGain(0.05).decide(costs, 3 * 400).kind is NOTHING
    assert gain_worth_having(0.05, 3, 3 * 400) == pytest.approx(3 / 20)


@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=20))
def test_the_decision_depends_only_on_proportions(costs):
    decider = PredictedGain(0.05)
    once, twice = (decider.decide([c * f for c in costs], MANY) for f in (1.0, 2.0))
    assert once.kind is twice.kind
