"""Who gives to whom."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkswarm.protocol.pairing import Group, level, pair

costs_of_executors = st.lists(st.floats(0, 1000), min_size=2, max_size=30)


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


def test_givers_and_receivers_can_be_restricted():
    costs = [9.0, 8.0, 1.0, 0.0]
    [group] = pair(costs, 4, 1, givers=[1], receivers=[2])
    assert (group.m_high, group.m_lows) == (1, (2,))
