"""The Coordinator as a state machine: reports in, requests and plan changes out."""

import pytest

from sparkswarm.config import SwarmConfig
from sparkswarm.errors import PlanError, ProtocolError
from sparkswarm.observe.describe import reason, what
from sparkswarm.protocol.coordinator import Coordinator
from sparkswarm.protocol.elastic import resized
from sparkswarm.protocol.messages import (
    CloseRound,
    CostReport,
    Decision,
    DecisionKind,
    IdGrant,
    IdRequest,
    MeasuredThroughput,
    NothingFeasible,
    PlanPublished,
    Proposal,
    Reason,
    ReduceRequest,
    Refusal,
    Refused,
    ReportsDue,
)
from sparkswarm.protocol.partition import moved, reshared, split
from sparkswarm.protocol.plan import Plan

MANY = 1e6
IGNORED = DecisionKind.IGNORED_REPORT
ONE_CELL = (Refusal(m_low=1, reason=Reason.NOTHING_FITS),)


def make(executors=4, **settings):
    settings = {"bounds": (0, 0, 1, 1), "grid": (8, 8)} | settings
    config = SwarmConfig(executors=executors, **settings)
    return Coordinator(Plan.initial(config.make_grid(), executors), config)


def report(coordinator, costs, number=0, received=MANY):
    """Let every executor report; return all that is said in answer."""
    return [
        message
        for m, cost in enumerate(costs)
        for message in coordinator.handle(CostReport(m, number, cost, received))
    ]


def of(kind, messages):
    return [message for message in messages if isinstance(message, kind)]


def verdict(messages):
    [decision] = [m for m in of(Decision, messages) if what(m) in ("rebalance", "do nothing")]
    return what(decision)


def test_nothing_is_decided_before_all_have_reported():
    coordinator = make()
    assert report(coordinator, [9, 1, 1]) == []
    assert verdict(coordinator.handle(CostReport(3, 0, 1, MANY))) == "rebalance"


def test_the_highest_is_asked_with_three_numbers_for_the_lowest():
    coordinator = make(max_pairs_per_round=1, max_receivers=1)
    [request] = of(ReduceRequest, report(coordinator, [5, 9, 1, 5]))
    assert request.to == 1
    assert request.m_lows == (2,)
    assert request.c_lows == (1,)
    assert request.system_received == 4 * MANY
    assert request.fresh_ids[0] >= max(p.id for p in coordinator.plan.partitions) + 1
    assert len(request.payload) == 24


def test_with_the_papers_model_costs_are_numerators_over_all_that_arrived():
    coordinator = make(cost_model="paper", max_pairs_per_round=1, max_receivers=1)
    [request] = of(ReduceRequest, report(coordinator, [5e6, 9e6, 1e6, 5e6]))
    assert request.c_lows == (1e6 / (4 * MANY),)


def test_several_pairs_get_disjoint_runs_of_ids():
    coordinator = make(executors=6)
    requests = of(ReduceRequest, report(coordinator, [9, 8, 7, 1, 1, 1]))
    assert len(requests) > 1
    ids = [i for request in requests for i in request.fresh_ids]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize(
    ("costs", "received", "expected"),
    [
        pytest.param([1, 1, 1, 1], MANY, "do nothing", id="balanced"),
        pytest.param([9, 1, 1, 1], MANY, "rebalance", id="one hot"),
        pytest.param([9, 1, 1, 1], 0, "do nothing", id="nothing arrived"),
        pytest.param([0, 0, 0, 0], MANY, "do nothing", id="nothing costs anything"),
        pytest.param([1.2, 1, 1, 0.8], 20, "do nothing", id="too few arrivals to tell"),
    ],
)
def test_every_round_ends_with_a_decision_and_its_reason(costs, received, expected):
    messages = report(make(), costs, received=received)
    assert verdict(messages) == expected
    assert all(reason(decision) for decision in of(Decision, messages))


def test_late_unknown_and_repeated_reports_change_nothing():
    coordinator = make()
    report(coordinator, [9, 1, 1, 1], number=3)
    assert of(ReduceRequest, coordinator.handle(CostReport(0, 2, 1e9, MANY))) == []
    assert of(ReduceRequest, coordinator.handle(CostReport(0, 3, 1e9, MANY))) == []
    assert of(Decision, coordinator.handle(CostReport(17, 3, 1, MANY)))[0].kind is IGNORED


def test_silent_executors_do_not_stop_the_round_and_are_left_alone():
    coordinator = make(executors=3)
    report(coordinator, [9, 1])
    messages = coordinator.handle(ReportsDue(0))
    [request] = of(ReduceRequest, messages)
    assert (request.m_high, request.m_lows) == (0, (1,))
    assert any("[2]" in reason(decision) for decision in of(Decision, messages))
    assert coordinator.handle(ReportsDue(0)) == [], "a round is decided once"


def prepared_move(coordinator, request, taker=None):
    """The simplest thing m_high could propose: its first partition moves."""
    partition = coordinator.plan.owned_by(request.m_high)[0]
    taker = request.m_lows[0] if taker is None else taker
    change = moved(partition, request.m_high, taker, request.fresh_ids[0])
    return Proposal(request.m_high, request.round, (change,), ((taker, 1.0),), Reason.ABOVE_LEVEL)


def asked(coordinator, costs=(9, 1, 1, 1)):
    return of(ReduceRequest, report(coordinator, costs))[0]


def test_a_proposal_that_fits_is_published_as_the_next_plan():
    coordinator = make()
    proposal = prepared_move(coordinator, asked(coordinator))
    messages = coordinator.handle(proposal)
    assert of(PlanPublished, messages) == [PlanPublished(1, proposal.changes)]
    assert coordinator.plan.version == 1
    assert proposal.changes[0].created[0] in coordinator.plan.partitions
    [decision] = of(Decision, messages)
    assert (decision.kind, decision.reason) == (DecisionKind.CHANGE, Reason.ABOVE_LEVEL)
    assert decision.made == decision.changes == proposal.changes
    assert (decision.executors, decision.costs) == ((0, 1), (-1.0, 1.0))


def test_ids_that_were_not_granted_are_refused():
    coordinator = make()
    request = asked(coordinator)
    partition = coordinator.plan.owned_by(0)[0]
    change = moved(partition, 0, 1, request.fresh_ids[0] + 10_000)
    before = coordinator.plan
    messages = coordinator.handle(Proposal(0, 0, (change,), (), Reason.ABOVE_LEVEL))
    assert [refused.change for refused in of(Refused, messages)] == [change]
    assert not of(PlanPublished, messages)
    assert coordinator.plan == before


def test_ids_are_granted_for_one_proposal():
    coordinator = make()
    request = asked(coordinator)
    coordinator.handle(prepared_move(coordinator, request))
    [partition] = [p for p in coordinator.plan.partitions if p.id == request.fresh_ids[0]]
    back = moved(partition, request.m_lows[0], 0, request.fresh_ids[0] + 1)
    assert of(Refused, coordinator.handle(Proposal(0, 0, (back,), (), Reason.ABOVE_LEVEL)))


def test_a_proposal_of_an_earlier_round_is_refused():
    coordinator = make()
    proposal = prepared_move(coordinator, asked(coordinator))
    report(coordinator, [1, 1, 1, 1], number=1)
    assert of(Refused, coordinator.handle(proposal))
    assert coordinator.plan.version == 0


def test_what_still_fits_of_a_proposal_is_made_and_the_rest_refused():
    coordinator = make(executors=2)
    request = asked(coordinator, (9, 1))
    [mine], [other] = coordinator.plan.owned_by(0), coordinator.plan.owned_by(1)
    first = request.fresh_ids[0]
    left, right = mine.cells.split_columns(1)
    good = split(mine, [(left, {0: 64}), (right, {1: 64})], first)
    stale = moved(good.created[0], 0, 1, first + 2)
    stale = moved(stale.created[0], 1, 0, first + 3)
    messages = coordinator.handle(Proposal(0, 0, (good, stale), (), Reason.ABOVE_LEVEL))
    assert of(PlanPublished, messages) == [PlanPublished(1, (good,))]
    assert [refused.change for refused in of(Refused, messages)] == [stale]
    assert other in coordinator.plan.partitions


def test_when_nothing_is_feasible_the_next_machine_is_asked():
    coordinator = make(max_pairs_per_round=1, max_receivers=1)
    request = asked(coordinator, (9, 6, 5, 1))
    assert request.m_high == 0
    messages = coordinator.handle(NothingFeasible(0, 0, ONE_CELL))
    [second] = of(ReduceRequest, messages)
    assert (second.m_high, second.m_lows) == (1, (3,))
    assert any(decision.reason is Reason.NOTHING_FITS for decision in of(Decision, messages))
    assert of(ReduceRequest, coordinator.handle(NothingFeasible(1, 0, ONE_CELL))) == []
    assert of(ReduceRequest, coordinator.handle(NothingFeasible(0, 0, ONE_CELL))) == []


def test_requests_for_ids_wait_for_the_decision():
    coordinator = make()
    coordinator.handle(CostReport(0, 0, 1, MANY))
    assert coordinator.handle(IdRequest(0, 0, 3)) == []
    before = coordinator.plan.next_id
    messages = [m for k in (1, 2, 3) for m in coordinator.handle(CostReport(k, 0, 1, MANY))]
    [grant] = of(IdGrant, messages)
    assert (grant.to, grant.first_id, grant.count) == (0, before, 3)
    assert grant.mean_cost == 1
    assert coordinator.plan.next_id == before + 3


def test_an_executor_that_is_giving_load_away_gets_no_ids_for_tidying_up():
    coordinator = make()
    assert asked(coordinator).m_high == 0
    assert coordinator.handle(IdRequest(0, 0, 1)) == []
    assert of(IdGrant, coordinator.handle(IdRequest(1, 0, 1)))


def test_flickering_costs_stop_being_chased():
    coordinator = make(executors=2)
    verdicts = [
        verdict(report(coordinator, [9, 1] if number % 2 else [1, 9], number=number))
        for number in range(20)
    ]
    assert verdicts[:2] == ["rebalance"] * 2
    assert set(verdicts[4:]) == {"do nothing"}


def test_the_five_stages_can_be_chosen():
    coordinator = make(decision="five_stages")
    verdicts = [verdict(report(coordinator, [9, 1, 1, 1], number=n)) for n in range(3)]
    assert verdicts == ["do nothing", "do nothing", "rebalance"]


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -1.0])
def test_a_report_that_makes_no_sense_is_said_and_left_out(number):
    coordinator = make(executors=3)
    messages = report(coordinator, [9, 1, number])
    [request] = of(ReduceRequest, messages)
    assert (request.m_high, request.m_lows) == (0, (1,))
    assert any(decision.kind is IGNORED for decision in of(Decision, messages))


def test_when_no_report_makes_sense_nothing_happens():
    messages = report(make(executors=2), [float("nan")] * 2)
    assert {type(message) for message in messages} == {Decision}


def test_an_executor_may_change_only_what_it_owns():
    coordinator = make()
    request = asked(coordinator)
    [other] = coordinator.plan.owned_by(1)
    messages = coordinator.handle(
        Proposal(0, 0, (moved(other, 1, 2, request.fresh_ids[0]),), (), Reason.ABOVE_LEVEL)
    )
    assert of(Refused, messages)[0].reason is Reason.NOT_OWNER
    assert "does not own" in reason(of(Decision, messages)[0])
    assert coordinator.plan.version == 0


def test_nothing_is_given_to_an_executor_that_does_not_exist():
    coordinator = make()
    messages = coordinator.handle(prepared_move(coordinator, asked(coordinator), taker=77))
    assert of(Refused, messages)[0].reason is Reason.UNKNOWN_EXECUTOR
    assert "0 to 3" in reason(of(Decision, messages)[0])


def test_tidying_up_and_giving_load_away_do_not_disturb_each_other():
    coordinator = make(max_pairs_per_round=1, max_receivers=1)
    assert asked(coordinator, (9, 6, 5, 1)).m_high == 0
    [grant] = of(IdGrant, coordinator.handle(IdRequest(1, 0, 1)))
    [second] = of(ReduceRequest, coordinator.handle(NothingFeasible(0, 0, ONE_CELL)))
    assert second.m_high == 1
    [partition] = coordinator.plan.owned_by(1)
    tidy = reshared(partition, {1: 64}, grant.first_id)
    assert of(PlanPublished, coordinator.handle(Proposal(1, 0, (tidy,), (), Reason.TIDYING)))
    move = moved(tidy.created[0], 1, 3, second.fresh_ids[0])
    assert of(PlanPublished, coordinator.handle(Proposal(1, 0, (move,), (), Reason.ABOVE_LEVEL)))


def test_the_runtime_may_say_what_was_achieved():
    coordinator = make(decision="five_stages")
    verdicts = []
    for number, achieved in enumerate([5, 6, 7, 6, 5, 4, 3]):
        coordinator.handle(MeasuredThroughput(number, achieved))
        verdicts.append(verdict(report(coordinator, [9, 1, 1, 1], number=number)))
    assert verdicts == ["do nothing"] * 6 + ["rebalance"]


def test_the_five_stages_ask_the_highest_however_little_it_is_above_the_rest():
    coordinator = make(decision="five_stages", max_pairs_per_round=1, max_receivers=1)
    for number in range(2):
        report(coordinator, [1.001, 1, 1, 1], number=number)
    assert of(ReduceRequest, report(coordinator, [1.001, 1, 1, 1], number=2))


def test_a_message_that_is_not_for_a_coordinator_is_an_error():
    with pytest.raises(ProtocolError, match="CloseRound"):
        make().handle(CloseRound(0, 0))


# -- another number of executors ---------------------------------------------------------------


@pytest.mark.parametrize("executors", [2, 7])
def test_resizing_publishes_the_plan_and_says_why(executors):
    coordinator = make()
    before = coordinator.plan
    plan, changes = resized(before, executors)
    published, decision = coordinator.resize(executors)
    assert coordinator.plan == plan
    assert published == PlanPublished(1, changes)
    assert what(decision) == f"resize to {executors} executors"
    assert "there were 4" in reason(decision)
    assert decision.made == changes


def test_resizing_to_the_same_number_changes_nothing():
    coordinator = make()
    report(coordinator, [9, 1, 1])
    [decision] = coordinator.resize(4)
    assert isinstance(decision, Decision)
    assert coordinator.plan.version == 0
    assert verdict(coordinator.handle(CostReport(3, 0, 1, MANY))) == "rebalance"


def test_resizing_to_none_is_refused_and_changes_nothing():
    coordinator = make()
    report(coordinator, [9, 1, 1])
    with pytest.raises(PlanError, match="at least one executor"):
        coordinator.resize(0)
    assert verdict(coordinator.handle(CostReport(3, 0, 1, MANY))) == "rebalance"


@pytest.mark.parametrize("executors", [2, 3, 5])
def test_a_round_that_had_begun_ends_without_a_decision(executors):
    coordinator = make()
    report(coordinator, [9, 1, 1], number=3)
    coordinator.handle(IdRequest(0, 3, 1))
    coordinator.resize(executors)
    version = coordinator.plan.version
    late = [
        *report(coordinator, [9, 1, 1, 1], number=3),
        *coordinator.handle(ReportsDue(3)),
        *coordinator.handle(IdRequest(0, 3, 1)),
        *coordinator.handle(NothingFeasible(0, 3, ONE_CELL)),
    ]
    assert {type(message) for message in late} == {Decision}
    assert {decision.kind for decision in late} == {IGNORED}
    assert coordinator.plan.version == version


@pytest.mark.parametrize("executors", [2, 5])
def test_proposals_and_answers_of_before_a_resize_are_refused(executors):
    coordinator = make(max_pairs_per_round=1, max_receivers=1)
    request = asked(coordinator)
    [grant] = of(IdGrant, coordinator.handle(IdRequest(1, 0, 1)))
    [kept] = coordinator.plan.owned_by(1)
    proposal = prepared_move(coordinator, request)
    tidy = Proposal(1, 0, (reshared(kept, {1: 64}, grant.first_id),), (), Reason.TIDYING)
    coordinator.resize(executors)
    before = coordinator.plan
    for late in (proposal, tidy):
        messages = coordinator.handle(late)
        assert [refused.change for refused in of(Refused, messages)] == list(late.changes)
        assert not of(PlanPublished, messages)
    assert coordinator.handle(NothingFeasible(0, 0, ONE_CELL)) == []
    assert coordinator.plan == before


@pytest.mark.parametrize("executors", [2, 7])
@pytest.mark.parametrize("reported", [0, 3, 4])
def test_the_next_round_waits_for_the_new_number_of_executors(executors, reported):
    coordinator = make()
    report(coordinator, [9, 1, 1, 1][:reported], number=5)
    coordinator.resize(executors)
    costs = [9.0] + [1.0] * (executors - 1)
    assert report(coordinator, costs[:-1], number=6) == []
    assert verdict(coordinator.handle(CostReport(executors - 1, 6, 1, MANY))) == "rebalance"


def test_resizing_twice_between_two_rounds_loses_no_round():
    coordinator = make()
    report(coordinator, [1, 1, 1, 1], number=5)
    coordinator.resize(6)
    coordinator.resize(3)
    assert verdict(report(coordinator, [9, 1, 1], number=6)) == "rebalance"


def test_resizing_before_the_first_round():
    coordinator = make()
    _, decision = coordinator.resize(6)
    assert decision.round == 0
    assert verdict(report(coordinator, [9, 1, 1, 1, 1, 1])) == "rebalance"


def test_an_executor_that_left_is_unknown_and_a_new_one_is_not():
    coordinator = make()
    coordinator.resize(3)
    assert of(Decision, coordinator.handle(CostReport(3, 1, 9, MANY)))[0].kind is IGNORED
    coordinator.resize(4)
    assert coordinator.handle(CostReport(3, 1, 9, MANY)) == []


def test_new_executors_without_load_are_given_some():
    coordinator = make(executors=2)
    report(coordinator, [5, 5])
    coordinator.resize(4)
    requests = of(ReduceRequest, report(coordinator, [5, 5, 0, 0], number=1))
    assert {request.m_high for request in requests} == {0, 1}
    assert {m for request in requests for m in request.m_lows} == {2, 3}


def test_what_a_resize_does_to_the_load_is_no_surprise():
    """Flickering is held against the load, but the jump that we made ourselves is not."""
    coordinator = make(executors=3)
    report(coordinator, [9, 1, 1])
    report(coordinator, [1, 1, 9], number=1)
    coordinator.resize(2)
    assert verdict(report(coordinator, [9, 2], number=2)) == "rebalance"


def test_a_refused_change_is_decided_about_and_not_made():
    coordinator = make()
    proposal = prepared_move(coordinator, asked(coordinator))
    report(coordinator, [1, 1, 1, 1], number=1)
    [decision] = of(Decision, coordinator.handle(proposal))
    assert (decision.kind, decision.reason) == (DecisionKind.REFUSE, Reason.OLD_ROUND)
    assert (decision.changes, decision.made) == (proposal.changes, ())


def test_of_what_was_refused_the_decision_has_what_came_closest():
    coordinator = make(max_pairs_per_round=1, max_receivers=1)
    request = asked(coordinator, (9, 6, 5, 1))
    change = prepared_move(coordinator, request).changes[0]
    poor, better = (
        Refusal(
            m_low=3, reason=Reason.GAIN_TOO_SMALL, changes=(change,), numbers={"gain": g, "cost": 9}
        )
        for g in (0.1, 0.2)
    )
    answer = NothingFeasible(0, 0, (*ONE_CELL, better, poor))
    decision = of(Decision, coordinator.handle(answer))[0]
    assert (decision.kind, decision.executors) == (DecisionKind.NOTHING_TO_GIVE, (0, 3))
    assert decision.numbers == {"gain": 0.2, "cost": 9, "options": 3}
    assert (decision.changes, decision.made) == ((change,), ())
