"""The whole protocol at work in one process: Coordinator, units and index together."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkswarm.config import SwarmConfig
from sparkswarm.geometry import CellRect, QueryCells
from sparkswarm.protocol.local import LocalSwarm
from sparkswarm.protocol.messages import CostReport, ReduceRequest
from sparkswarm.protocol.plan import Plan


def make(executors=4, side=16, **settings):
    config = SwarmConfig(
        bounds=(0.0, 0.0, 1.0, 1.0), grid=(side, side), executors=executors, **settings
    )
    return LocalSwarm(config, keep_messages=True)


def play(swarm, number, x, y):
    """One round of points; returns how many each executor got."""
    routed = swarm.send(x, y)
    swarm.close_round(number)
    return np.bincount(routed.owner, minlength=len(swarm.units))


def efficiency(work):
    return work.mean() / work.max()


def corner(rng, n, side=0.3):
    return rng.random(n) * side, rng.random(n) * side


def test_points_crowded_in_a_corner_end_up_spread_over_all_executors():
    rng = np.random.default_rng(1)
    swarm = make()
    seen = [efficiency(play(swarm, r, *corner(rng, 20_000))) for r in range(8)]
    assert seen[0] < 0.4
    assert min(seen[4:]) > 0.9


def test_a_balanced_load_is_left_alone():
    rng = np.random.default_rng(1)
    swarm = make(merge_every_rounds=0)
    for r in range(10):
        play(swarm, r, rng.random(40_000), rng.random(40_000))
    assert swarm.plan.version == 0


def test_one_cell_that_gets_everything_is_shared_by_all():
    rng = np.random.default_rng(1)
    swarm = make()
    for r in range(6):
        work = play(swarm, r, 0.5 + rng.random(20_000) * 0.01, 0.5 + rng.random(20_000) * 0.01)
    assert efficiency(work) > 0.9
    [hot] = [p for p in swarm.plan.partitions if p.is_shared]
    assert hot.is_cell
    assert len(hot.owners) == 4


def test_without_shared_cells_a_hot_cell_stays_with_one_executor():
    rng = np.random.default_rng(1)
    swarm = make(shared_cells=False)
    for r in range(6):
        work = play(swarm, r, 0.5 + rng.random(20_000) * 0.01, 0.5 + rng.random(20_000) * 0.01)
    assert np.count_nonzero(work) == 1
    assert not any(p.is_shared for p in swarm.plan.partitions)


def test_a_cell_that_cools_down_is_no_longer_shared():
    rng = np.random.default_rng(1)
    swarm = make()
    for r in range(6):
        play(swarm, r, 0.5 + rng.random(20_000) * 0.01, 0.5 + rng.random(20_000) * 0.01)
    for r in range(6, 16):
        play(swarm, r, rng.random(20_000), rng.random(20_000))
    assert not any(p.is_shared for p in swarm.plan.partitions)


def test_a_round_of_statistics_costs_two_numbers_up_and_three_down():
    rng = np.random.default_rng(1)
    swarm = make(executors=7, max_pairs_per_round=1, max_receivers=1, merge_every_rounds=0)
    play(swarm, 0, *corner(rng, 20_000))
    reports = [m for m in swarm.sent if isinstance(m, CostReport)]
    requests = [m for m in swarm.sent if isinstance(m, ReduceRequest)]
    assert sum(len(m.payload) for m in reports) == 7 * 16
    assert sum(len(m.payload) for m in requests) == 24
    to_the_coordinator = {type(m).__name__ for m in swarm.sent if m.to == "coordinator"}
    assert to_the_coordinator == {"CostReport", "Proposal"}


def test_several_receivers_cost_three_numbers_each():
    rng = np.random.default_rng(1)
    swarm = make(executors=7)
    play(swarm, 0, *corner(rng, 20_000, side=0.1))
    requests = [m for m in swarm.sent if isinstance(m, ReduceRequest)]
    assert [len(m.payload) for m in requests] == [24 * len(m.m_lows) for m in requests]
    assert max(len(m.m_lows) for m in requests) > 1


def test_partitions_of_one_executor_that_form_a_rectangle_are_merged_in_due_time():
    rng = np.random.default_rng(1)
    config = SwarmConfig(
        bounds=(0.0, 0.0, 1.0, 1.0), grid=(16, 16), executors=2, merge_every_rounds=4
    )
    halves = Plan.initial(config.make_grid(), 2)
    pieces = Plan.initial(config.make_grid(), 8)
    # Eight pieces as if left over from a hotspot, four of them in each half.
    plan = replace(
        pieces,
        executors=2,
        partitions=tuple(
            replace(p, owners=(0 if p.cells.col_stop <= 8 else 1,)) for p in pieces.partitions
        ),
    )
    swarm = LocalSwarm(config, plan)
    for r in range(1, 4):
        play(swarm, r, rng.random(40_000), rng.random(40_000))
        assert len(swarm.plan.partitions) == 8
    play(swarm, 4, rng.random(40_000), rng.random(40_000))
    assert [p.cells for p in swarm.plan.partitions] == [p.cells for p in halves.partitions]


def test_a_flickering_hotspot_does_not_make_it_thrash():
    """A hotspot that jumps every round ends up balanced in both places; then little moves."""
    rng = np.random.default_rng(1)
    flicker, steady = make(merge_every_rounds=0), make(merge_every_rounds=0)
    versions = []
    for r in range(24):
        x, y = corner(rng, 20_000)
        work = play(flicker, r, *((x, y) if r % 2 else (1 - x, 1 - y)))
        play(steady, r, *((x, y) if r < 12 else (1 - x, 1 - y)))
        versions.append(flicker.plan.version)
    assert versions[-1] - versions[8] <= 5
    assert efficiency(work) > 0.85
    x, y = corner(rng, 20_000)
    assert efficiency(play(steady, 24, 1 - x, 1 - y)) > 0.85


@pytest.mark.parametrize("cost_model", ["work", "paper"])
@pytest.mark.parametrize("decision", ["gain", "five_stages"])
def test_every_choice_of_model_and_decision_runs_and_keeps_the_tiling(cost_model, decision):
    rng = np.random.default_rng(1)
    swarm = make(cost_model=cost_model, decision=decision, merge_every_rounds=3)
    everywhere = QueryCells.of([CellRect(c, r, c + 2, r + 2) for c in range(15) for r in range(15)])
    routed = swarm.index.route_queries(everywhere)
    for partition, owner in set(zip(routed.partition, routed.owner, strict=True)):
        swarm.units[owner].collect_queries(int(partition), everywhere)
    for r in range(20):
        play(swarm, r, *corner(rng, 5_000, side=0.1 + 0.04 * r))
        swarm.index.check_tiling()
        swarm.plan.check()
    assert swarm.plan.version > 0


@given(
    seed=st.integers(0, 2**32 - 1),
    executors=st.integers(1, 9),
    side=st.integers(1, 12),
    receivers=st.integers(0, 3),
    shared=st.booleans(),
)
def test_whatever_arrives_plan_index_and_units_agree(seed, executors, side, receivers, shared):
    rng = np.random.default_rng(seed)
    swarm = make(
        executors, side, max_receivers=receivers, shared_cells=shared, merge_every_rounds=2
    )
    for r in range(6):
        n = int(rng.integers(0, 3000))
        centre, spread = rng.random(2), rng.choice([0.02, 0.2, 1.0])
        x, y = (np.clip(c + spread * (rng.random(n) - 0.5), 0, 1) for c in centre)
        play(swarm, r, x, y)
        swarm.plan.check()
        swarm.index.check_tiling()
        assert dict(swarm.index.partitions) == {p.id: p for p in swarm.plan.partitions}
        for unit in swarm.units:
            held = sorted(unit.partitions, key=lambda p: p.id)
            assert tuple(held) == swarm.plan.owned_by(unit.executor)


def test_the_same_rounds_lead_to_the_same_plan():
    plans = []
    for _ in range(2):
        rng = np.random.default_rng(5)
        swarm = make(executors=6)
        for r in range(8):
            play(swarm, r, *corner(rng, 10_000))
        plans.append(swarm.plan.to_json())
    assert plans[0] == plans[1]


def test_more_executors_than_cells_leaves_some_idle_and_breaks_nothing():
    rng = np.random.default_rng(1)
    swarm = make(executors=9, side=2, shared_cells=False)
    for r in range(4):
        work = play(swarm, r, rng.random(5_000), rng.random(5_000))
    assert np.count_nonzero(work) == 4


def agree(swarm):
    """Check that plan, index and units all say the same."""
    swarm.plan.check()
    swarm.index.check_tiling()
    assert dict(swarm.index.partitions) == {p.id: p for p in swarm.plan.partitions}
    assert [unit.executor for unit in swarm.units] == list(range(swarm.plan.executors))
    for unit in swarm.units:
        held = sorted(unit.partitions, key=lambda p: p.id)
        assert tuple(held) == swarm.plan.owned_by(unit.executor)


def test_new_executors_are_filled_in_the_rounds_that_follow():
    rng = np.random.default_rng(1)
    swarm = make(executors=4)
    for r in range(6):
        play(swarm, r, *corner(rng, 20_000))
    swarm.resize(8)
    assert swarm.changes == []
    agree(swarm)
    work = [play(swarm, r, *corner(rng, 20_000)) for r in range(6, 12)]
    assert not work[0][4:].any()
    assert efficiency(work[-1]) > 0.85
    agree(swarm)


def test_when_executors_leave_the_others_take_over_and_even_it_out():
    rng = np.random.default_rng(1)
    swarm = make(executors=8)
    for r in range(6):
        play(swarm, r, *corner(rng, 20_000))
    swarm.resize(3)
    assert swarm.changes
    agree(swarm)
    work = [play(swarm, r, *corner(rng, 20_000)) for r in range(6, 12)]
    assert {len(seen) for seen in work} == {3}
    assert {seen.sum() for seen in work} == {20_000}
    assert efficiency(work[-1]) > 0.9


@given(
    seed=st.integers(0, 2**32 - 1),
    numbers=st.lists(st.integers(1, 9), min_size=2, max_size=6),
    side=st.integers(1, 12),
)
def test_whatever_the_numbers_of_executors_plan_index_and_units_agree(seed, numbers, side):
    rng = np.random.default_rng(seed)
    swarm = make(numbers[0], side, merge_every_rounds=2)
    for r, executors in enumerate(numbers):
        swarm.resize(executors)
        agree(swarm)
        spread = rng.choice([0.02, 0.2, 1.0])
        play(swarm, r, *corner(rng, int(rng.integers(0, 3000)), spread))
        agree(swarm)
