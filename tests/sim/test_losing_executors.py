"""What the protocol does when an executor dies, without any simulation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sparkswarm.config import SwarmConfig
from sparkswarm.errors import ProtocolError
from sparkswarm.geometry import CellRect, QueryCells
from sparkswarm.protocol.coordinator import Coordinator
from sparkswarm.protocol.messages import (
    CostReport,
    Decision,
    DecisionKind,
    PlanPublished,
    Proposal,
    Reason,
    ReduceRequest,
    Refused,
)
from sparkswarm.protocol.partition import Partition, moved
from sparkswarm.protocol.plan import Plan
from sparkswarm.protocol.unit import LoadBalancingUnit

KEEP = DecisionKind.KEEP
CONFIG = SwarmConfig(
    bounds=(0, 0, 8, 8), grid=(8, 8), executors=4, decision="five_stages", beta=1, min_gain=0.0
)


def coordinator() -> Coordinator:
    return Coordinator(Plan.initial(CONFIG.make_grid(), CONFIG.executors), CONFIG)


def report(to: Coordinator, number: int, costs: dict[int, float]) -> list[object]:
    """Let executors report, and return all that the Coordinator says."""
    said: list[object] = []
    for executor, cost in costs.items():
        said += to.handle(CostReport(executor, number, cost, 100.0))
    return said


def test_what_a_lost_executor_had_goes_to_the_others() -> None:
    one = coordinator()
    orphan = one.plan.owned_by(2)[0]
    (change, _) = one.lose(2)
    assert isinstance(change, PlanPublished)
    assert change.version == one.plan.version == 1
    assert change.changes[0].retired == (orphan,)
    assert one.plan.owned_by(2) == ()
    one.plan.check()


def test_orphans_go_to_those_with_the_fewest_partitions() -> None:
    one = coordinator()
    one.lose(3)
    one.lose(2)
    assert sorted(len(one.plan.owned_by(m)) for m in (0, 1)) == [2, 2]


def test_only_tickets_of_the_lost_change_hands_in_a_shared_cell() -> None:
    one = coordinator()
    first = one.plan.partitions[0]
    shared = replace(first, owners=(0, 1, 3), tickets=(16, 16, 32))
    one.plan = replace(one.plan, partitions=(shared, *one.plan.partitions[1:]))
    one.lose(3)
    (heir,) = [p for p in one.plan.partitions if p.cells == first.cells]
    assert sum(heir.tickets) == 64
    assert heir.shares[0] >= 16
    assert 3 not in heir.owners


def test_one_who_has_nothing_is_lost_without_a_change() -> None:
    one = coordinator()
    one.lose(2)
    one.regain(2)
    (only,) = one.lose(2)
    assert isinstance(only, Decision)


def test_the_last_executor_cannot_be_lost() -> None:
    one = coordinator()
    for executor in (0, 1, 2):
        one.lose(executor)
    with pytest.raises(ProtocolError, match="last"):
        one.lose(3)


def test_a_round_does_not_wait_for_the_lost_and_gives_them_nothing() -> None:
    one = coordinator()
    one.lose(2)
    report(one, 1, {0: 9.0, 1: 1.0, 3: 2.0})
    said = report(one, 2, {0: 9.0, 1: 1.0, 3: 2.0})
    requests = [message for message in said if isinstance(message, ReduceRequest)]
    assert requests
    assert all(2 not in request.m_lows for request in requests)


def test_a_proposal_to_give_to_one_who_was_lost_meanwhile_is_refused() -> None:
    one = coordinator()
    report(one, 1, {0: 9.0, 1: 2.0, 2: 1.0, 3: 2.0})
    said = report(one, 2, {0: 9.0, 1: 2.0, 2: 1.0, 3: 2.0})
    request = next(message for message in said if isinstance(message, ReduceRequest))
    receiver = request.m_lows[0]
    one.lose(receiver)
    mine = one.plan.owned_by(request.m_high)[0]
    change = moved(mine, request.m_high, receiver, request.fresh_ids[0])
    answers = one.handle(Proposal(request.m_high, request.round, (change,), (), Reason.ABOVE_LEVEL))
    assert any(isinstance(answer, Refused) for answer in answers)
    assert one.plan.owned_by(receiver) == ()


def test_one_who_comes_back_is_counted_on_again() -> None:
    one = coordinator()
    one.lose(2)
    one.regain(2)
    said = report(one, 1, {0: 1.0, 1: 1.0, 3: 1.0})
    assert not any(isinstance(message, Decision) and message.kind is KEEP for message in said)
    said = report(one, 1, {2: 0.0})
    assert any(isinstance(message, Decision) and message.kind is KEEP for message in said)


def test_queries_that_come_after_the_plan_are_counted_and_points_kept() -> None:
    held: list[CellRect] = []
    partition = Partition(1, CellRect(0, 0, 4, 4), (0,))
    unit = LoadBalancingUnit(0, [partition], CONFIG, lambda _: QueryCells.of(held))
    four = np.array([0, 1, 2, 3], dtype=np.int32)
    unit.collect_points(np.array([1, 1, 1, 1]), four, four)
    unit.statistics(1).close_round()
    points = unit.statistics(1).points
    held.append(CellRect(0, 0, 2, 2))
    unit.recount(1)
    assert unit.statistics(1).queries == 1
    assert unit.statistics(1).points == points > 0
    unit.recount(99)
