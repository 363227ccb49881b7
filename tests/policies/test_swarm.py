"""Rounds and messages of the controller: reports in, control out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sparkswarm.config import SwarmConfig
from sparkswarm.observe.describe import describe
from sparkswarm.policies import AgentReport, BlockSums, Collected, TaskWork
from sparkswarm.policies.swarm import SwarmControl, SwarmController, effective
from sparkswarm.protocol.cost import Prices
from sparkswarm.protocol.messages import (
    CostReport,
    NothingFeasible,
    Proposal,
    Reason,
    ReduceRequest,
)
from sparkswarm.protocol.partition import moved
from sparkswarm.protocol.plan import Plan
from sparkswarm.store.files import FileRef

CONFIG = SwarmConfig(bounds=(0, 0, 8, 8), grid=(8, 8), executors=2, round_batches=1)


def report(executor: int, *messages, **kwargs):
    return AgentReport(executor=executor, messages=messages, **kwargs)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def controller(clock: Clock | None = None, **settings) -> SwarmController:
    config = SwarmConfig(**({"bounds": (0, 0, 8, 8), "grid": (8, 8), "executors": 2} | settings))
    return SwarmController(Plan.initial(config.make_grid(), 2), config, clock or Clock())


def uneven(control: SwarmControl, of_round: int = 0):
    """Close a round in which executor 0 has all the work."""
    assert control.closes_round == of_round
    return [
        report(0, CostReport(0, of_round, 9.0, 9000.0)),
        report(1, CostReport(1, of_round, 1.0, 1000.0)),
    ]


def test_rounds_end_with_the_first_batch_that_begins_late_enough():
    clock = Clock()
    it = controller(clock, round_seconds=15.0)
    closes = []
    for clock.now in (0.0, 7.0, 14.9, 15.0, 16.0, 29.9, 30.0):
        control = it.begin_batch()
        closes.append(control.closes_round)
        it.end_batch([])
    assert closes == [None, None, None, 0, None, None, 1]


def test_rounds_by_batches_have_so_many():
    it = controller(round_batches=3)
    closes = []
    for _ in range(7):
        control = it.begin_batch()
        closes.append(control.closes_round)
        it.end_batch([])
    assert closes == [None, None, 0, None, None, 1, None]


def test_agents_run_after_the_first_batch_so_that_the_first_round_finds_statistics():
    it = controller(round_batches=3)
    control = it.begin_batch()
    assert (control.due, control.closes_round) == (True, None)
    it.end_batch([report(m, statistics={7: np.zeros((1, 10))}) for m in range(2)])
    assert not it.begin_batch().due


def test_a_request_goes_out_with_the_next_batch_and_its_answer_is_in_force_in_the_one_after():
    it = controller(round_batches=1)
    control = it.begin_batch()
    it.end_batch(uneven(control))

    asked = it.begin_batch()
    (request,) = asked.messages[0]
    assert isinstance(request, ReduceRequest)
    assert asked.closes_round is None, "nobody reports costs that are about to change"
    assert it.plan.version == 0

    mine = it.plan.owned_by(0)[0]
    change = moved(mine, 0, 1, request.fresh_ids[0])
    parcel = FileRef("soft/parcel", 0, 1, 2)
    proposal = Proposal(0, 0, (change,), ((1, 4.0),), Reason.ABOVE_LEVEL)
    it.end_batch([report(0, proposal, handed_over={1: parcel}), report(1)])

    told = it.begin_batch()
    assert told.changes == (change,)
    assert told.handed_over == {1: (parcel,)}
    assert it.plan.version == 1
    assert told.closes_round == 1
    assert it.begin_batch().changes == (), "told once"


def test_where_nothing_can_be_given_the_rounds_go_on():
    it = controller(round_batches=1)
    control = it.begin_batch()
    it.end_batch(uneven(control))
    it.begin_batch()
    it.end_batch([report(0, NothingFeasible(0, 0, ())), report(1)])
    assert it.begin_batch().closes_round == 1


def test_a_silent_executor_does_not_stop_the_round():
    it = controller(round_batches=1)
    it.begin_batch()
    decisions = it.end_batch([report(0, CostReport(0, 0, 9.0, 9000.0))])
    assert any("no report from [1]" in describe(decision) for decision in decisions)
    assert it.round == 1


def test_prices_hold_until_the_next_round_closes():
    it = controller(round_batches=2)
    first, second = Prices(per_point=1e-6), Prices(per_point=2e-6)
    before = it.begin_batch()
    it.observe([], first)
    it.end_batch([report(0), report(1)])
    closing = it.begin_batch()
    assert (closing.closes_round, closing.prices) == (0, first)
    assert before.prices == Prices()
    it.observe([], second)
    it.end_batch([report(0)])
    assert it.begin_batch().prices == first


def test_the_price_of_a_candidate_is_what_it_led_to():
    it = controller(round_batches=2)
    prices = Prices(per_point=1e-6, per_check=1e-8, per_match=3e-8)
    work = TaskWork(points=10, checks=200, matches=100, pieces=1, seconds=1.0)
    everywhere = BlockSums(np.arange(4), np.full(4, 250.0))
    it.observe([work], prices, candidates=[everywhere])
    lending = it.lending_prices
    assert lending is not None
    assert lending.per_point == 1e-6
    assert lending.per_query == pytest.approx((200e-8 + 300e-8) / 1000)
    assert controller(lending=False).lending_prices is None


def test_what_others_collected_waits_for_the_agents_of_its_owner():
    it = controller(round_batches=3)
    file = FileRef("soft/collected", 0, 1, 2)
    mine = it.plan.owned_by(1)[0].id
    it.observe([], Prices(), [Collected(points=file, partitions=(mine, 999))])
    assert it.begin_batch().collected == {1: (file,)}
    it.end_batch([])
    assert file.name in it.soft_files, "nobody read it"
    assert it.begin_batch().collected == {1: (file,)}
    it.end_batch([report(0), report(1)])
    assert it.begin_batch().collected == {}


def test_states_are_handed_on_and_those_of_executors_that_left_are_forgotten():
    it = controller(round_batches=5)
    it.begin_batch()
    states = [FileRef(f"soft/m{m}", 0, 1, 2) for m in range(2)]
    it.end_batch([report(m, statistics=states[m]) for m in range(2)])
    assert it.begin_batch().statistics == dict(enumerate(states))
    it.resize(1)
    after = it.begin_batch()
    assert after.statistics == {0: states[0]}
    assert {p.owners for change in after.changes for p in change.created} == {(0,)}


def test_a_plan_changed_by_hand_is_told_like_any_other():
    it = controller(round_batches=5)

    def swap(plan: Plan):
        ids, plan = plan.reserve(1)
        change = moved(plan.partitions[0], 0, 1, ids[0])
        return plan.apply([change]), [change]

    it.force(swap)
    control = it.begin_batch()
    assert len(control.changes) == 1
    assert it.plan.owned_by(0) == ()


def test_units_hear_how_long_a_round_was():
    it = controller(round_batches=1)
    control = it.begin_batch()
    assert control.round_length == 1.0
    it.end_batch(uneven(control))
    it.begin_batch()
    it.end_batch([])
    assert it.begin_batch().round_length == 2.0
    clock = Clock()
    by_time = controller(clock, round_seconds=10.0)
    clock.now = 25.0
    assert by_time.begin_batch().round_length == 2.5


def test_statistics_that_came_without_a_file_are_added_up_by_partition():
    it = controller(round_batches=3)
    mine, other = (it.plan.owned_by(m)[0].id for m in range(2))
    for times in (1, 2):
        points = {mine: np.full((16, 2), times), 999: np.zeros((1, 2))}
        it.observe([], Prices(), [Collected(points=points, partitions=tuple(points))])
    it.observe([], Prices(), [Collected(points={other: np.ones((16, 2))}, partitions=(other,))])
    collected = it.begin_batch().collected
    assert {
        m: [{k: v.sum() for k, v in some.items()} for some in given]
        for m, given in collected.items()
    } == {
        0: [{mine: 96.0}],
        1: [{other: 32.0}],
    }
    it.end_batch([report(0), report(1)])
    assert it.begin_batch().collected == {}


def test_while_statistics_are_small_a_round_takes_place_between_two_batches():
    it = controller(round_batches=1)
    assert not it.begin_batch().is_light, "nobody has statistics yet"
    here = {7: np.zeros((1, 10))}
    it.end_batch([report(m, statistics=here) for m in range(2)])
    assert it.continue_batch() is None, "nothing to say"

    control = it.begin_batch()
    assert control.is_light
    it.end_batch([replace(one, statistics=here) for one in uneven(control, of_round=1)])
    asked = it.continue_batch()
    assert asked is not None
    assert asked.closes_round is None
    (request,) = asked.messages[0]
    change = moved(it.plan.owned_by(0)[0], 0, 1, request.fresh_ids[0])
    proposal = Proposal(0, 1, (change,), ((1, 4.0),), Reason.ABOVE_LEVEL)
    it.end_batch([report(0, proposal, handed_over={1: here}), report(1)])

    told = it.continue_batch()
    assert told is not None
    assert (told.changes, told.handed_over) == ((change,), {1: (here,)})
    it.end_batch([report(0), report(1)])
    assert it.continue_batch() is None
    assert it.begin_batch().closes_round == 2


def test_what_needs_files_or_queries_waits_for_tasks():
    large = FileRef("soft/m0", 0, 1, 2)
    for settings, statistics in (({}, large), ({"cost_model": "paper"}, {7: np.zeros((1, 10))})):
        it = controller(round_batches=1, **settings)
        it.begin_batch()
        it.end_batch([report(m, statistics=statistics) for m in range(2)])
        control = it.begin_batch()
        assert not control.is_light
        it.end_batch(uneven(control, of_round=1))
        assert it.continue_batch() is None
        assert it.begin_batch().messages


def test_the_settings_of_the_protocol_are_made_once():
    """Agents ask for them between any two batches, and to check them all anew takes longer."""
    config = SwarmConfig(executors=3)
    assert effective(config) is effective(SwarmConfig(executors=3))
    assert not effective(config).shared_cells
