"""Rounds and messages of the controller: reports in, control out."""

from __future__ import annotations

import pytest

from sparkswarm.config import SwarmConfig
from sparkswarm.observe.describe import describe
from sparkswarm.policies import AgentReport
from sparkswarm.policies.swarm import SwarmControl, SwarmController
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


def report(executor: int, *messages, points: int = 1000, checks: int = 5000, **kwargs):
    busy = points * 2e-6 + checks * 1e-7
    return AgentReport(
        executor=executor, points=points, checks=checks, busy_s=busy, messages=messages, **kwargs
    )


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


def test_prices_are_learnt_from_all_and_hold_until_the_next_round_closes():
    it = controller(round_batches=2)
    before = it.begin_batch()
    it.end_batch([report(0), report(1, points=100, checks=90_000)])
    closing = it.begin_batch()
    assert closing.closes_round == 0
    assert closing.prices != before.prices
    for done in ((1000.0, 5000.0), (100.0, 90_000.0)):
        told = 2e-6 * done[0] + 1e-7 * done[1]
        assert closing.prices.of_task(*done, 0.0, 0.0) == pytest.approx(told, rel=0.1)
    it.end_batch([report(0, points=10, checks=10)])
    assert it.begin_batch().prices == closing.prices


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
