"""Whether to rebalance, by five stages or predicted gain; who gives to whom."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkswarm.protocol.decision import (
    TRANSITIONS,
    FiveStages,
    Group,
    PredictedGain,
    Stage,
    Throughput,
    diagram,
    gain_worth_having,
    level,
    pair,
)
from sparkswarm.protocol.hosts import Hosts
from sparkswarm.protocol.messages import DecisionKind

NOTHING, REBALANCE = DecisionKind.KEEP, DecisionKind.REBALANCE


def verdicts(throughputs, beta=20):
    decider = FiveStages(beta)
    return [decider.decide({0: 1.0}, r, r).kind for r in throughputs]


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
        decider.decide({0: 1.0}, r, r)
        assert decider.stage is not Stage.FLIP


def decide(decider, costs, received):
    return decider.decide(dict(enumerate(costs)), received, received)


MANY = 1e9
"""Arrivals enough for chance to play no part."""


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
    decision = decide(PredictedGain(min_gain=0.05), costs, MANY)
    assert decision.kind is expected
    assert decision.reason


def test_what_chance_explains_is_no_reason_to_rebalance():
    costs = [1.1, 1.0, 0.9]
    assert decide(PredictedGain(0.05), costs, 3 * 100_000).kind is REBALANCE
    assert decide(PredictedGain(0.05), costs, 3 * 400).kind is NOTHING
    assert gain_worth_having(0.05, 3, 3 * 400) == pytest.approx(3 / 20)


@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=20))
def test_the_decision_depends_only_on_proportions(costs):
    decider = PredictedGain(0.05)
    once, twice = (decide(decider, [c * f for c in costs], MANY) for f in (1.0, 2.0))
    assert once.kind is twice.kind


# -- who gives to whom --------------------------------------------------------------------------


costs_of_executors = st.lists(st.floats(0, 1000, allow_subnormal=False), min_size=2, max_size=30)


def gifts(costs, groups):
    """What each group would move if load divided at will: all its receivers up to its level."""
    for group in groups:
        even = level(costs[group.m_high], group.c_lows)
        for m_low, c_low in zip(group.m_lows, group.c_lows, strict=True):
            yield group.m_high, m_low, even - c_low


def after(costs, groups):
    result = list(costs)
    for m_high, m_low, gift in gifts(costs, groups):
        result[m_high] -= gift
        result[m_low] += gift
    return result


@given(costs_of_executors)
def test_one_pair_is_the_papers_highest_and_lowest(costs):
    groups = pair(costs, max_pairs=1, max_receivers=1)
    mean = sum(costs) / len(costs)
    if max(costs) <= mean or min(costs) >= mean:
        assert groups == []
        return
    [group] = groups
    assert costs[group.m_high] == max(costs)
    assert [costs[m] for m in group.m_lows] == [min(costs)] == list(group.c_lows)
    [(_, _, c_max)] = gifts(costs, groups)
    assert c_max == pytest.approx((max(costs) - min(costs)) / 2)


@given(costs_of_executors, st.integers(1, 30))
def test_disjoint_pairs_are_disjoint_and_meet_in_the_middle(costs, most):
    groups = pair(costs, max_pairs=most, max_receivers=1)
    involved = [m for group in groups for m in (group.m_high, *group.m_lows)]
    assert len(involved) == len(set(involved))
    assert len(groups) <= most
    levelled = after(costs, groups)
    for group in groups:
        assert levelled[group.m_high] == pytest.approx(levelled[group.m_lows[0]])
    assert max(levelled) <= max(costs) * (1 + 1e-9)


@given(costs_of_executors)
def test_without_limits_everyone_arrives_at_the_mean(costs):
    groups = pair(costs, max_pairs=len(costs), max_receivers=len(costs))
    mean = sum(costs) / len(costs)
    assert after(costs, groups) == pytest.approx([mean] * len(costs), abs=1e-6)


@given(costs_of_executors, st.integers(1, 10), st.integers(2, 10))
def test_limits_hold_and_nobody_both_gives_and_receives(costs, most, receivers):
    groups = pair(costs, max_pairs=most, max_receivers=receivers)
    assert sum(len(group.m_lows) for group in groups) <= most
    assert all(1 <= len(group.m_lows) <= receivers for group in groups)
    givers = {group.m_high for group in groups}
    assert len(givers) == len(groups)
    assert givers.isdisjoint(m for group in groups for m in group.m_lows)
    assert all(gift > 0 for _, _, gift in gifts(costs, groups))


@given(costs_of_executors, st.floats(0.01, 0.5))
def test_those_within_the_tolerance_need_not_give(costs, tolerance):
    groups = pair(costs, len(costs), len(costs), tolerance)
    mean = sum(costs) / len(costs)
    assert {group.m_high for group in groups} == {
        m for m, cost in enumerate(costs) if cost > mean * (1 + tolerance)
    }


def test_one_far_above_gives_to_several_idle_ones():
    groups = pair([9.0, 0.0, 0.0], max_pairs=3, max_receivers=3)
    assert groups == [Group(0, (1, 2), (0.0, 0.0))]
    assert level(9.0, (0.0, 0.0)) == 3.0


def test_a_receiver_of_several_is_reckoned_with_what_the_others_bring():
    costs = [5.0, 5.0, 2.0]
    groups = pair(costs, max_pairs=3, max_receivers=3)
    assert [group.m_lows for group in groups] == [(2,), (2,)]
    assert after(costs, groups) == pytest.approx([4.0, 4.0, 4.0])


def test_receivers_on_the_givers_host_come_first():
    costs = [9.0, 0.0, 1.0, 2.0]
    hosts = Hosts((0, 1, 1, 0))
    [group] = pair(costs, max_pairs=3, max_receivers=3, hosts=hosts)
    assert group.m_lows == (3, 1, 2)
    [alone] = pair(costs, max_pairs=1, max_receivers=3, hosts=hosts)
    assert alone.m_lows == (3,)


@given(costs_of_executors, st.randoms())
def test_hosts_change_who_gives_to_whom_and_not_what_comes_of_it(costs, random):
    hosts = Hosts(tuple(random.randrange(3) for _ in costs))
    groups = pair(costs, len(costs), len(costs), hosts=hosts)
    mean = sum(costs) / len(costs)
    assert after(costs, groups) == pytest.approx([mean] * len(costs), abs=1e-6)


def test_givers_and_receivers_can_be_restricted():
    costs = [9.0, 8.0, 1.0, 0.0]
    [group] = pair(costs, 4, 1, givers=[1], receivers=[2])
    assert (group.m_high, group.m_lows) == (1, (2,))
