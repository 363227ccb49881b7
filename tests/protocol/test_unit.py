"""The load-balancing unit as a state machine."""

import numpy as np
import pytest

from sparkswarm.config import SwarmConfig
from sparkswarm.errors import ProtocolError
from sparkswarm.geometry import CellRect, QueryCells
from sparkswarm.protocol.cost import Prices, WorkModel
from sparkswarm.protocol.messages import (
    CloseRound,
    CostReport,
    IdGrant,
    IdRequest,
    NothingFeasible,
    PlanPublished,
    Proposal,
    Reason,
    ReduceRequest,
    Refused,
    ReportsDue,
    TakenOver,
    Takeover,
)
from sparkswarm.protocol.partition import ChangeKind, Partition, moved, reshared
from sparkswarm.protocol.plan import Plan
from sparkswarm.protocol.unit import LoadBalancingUnit

from ..support.strategies import grid_of

LEFT = Partition(1, CellRect(0, 0, 4, 4), (0,))
RIGHT = Partition(2, CellRect(4, 0, 8, 4), (0,))


def make(partitions=(LEFT, RIGHT), executor=0, queries_of=None, **settings):
    settings = {"bounds": (0, 0, 1, 1), "grid": (8, 8), "payback_rounds": 1e9} | settings
    config = SwarmConfig(**settings)
    return LoadBalancingUnit(executor, partitions, config, queries_of)


def feed(unit, partition, cells, checks=0.0):
    """Send one point to each of the given (column, row) cells."""
    columns, rows = np.array(cells, dtype=np.int32).T
    unit.collect_points(
        np.full(len(cells), partition.id), columns, rows, np.full(len(cells), checks)
    )


def everywhere(partition, times=1):
    c = partition.cells
    return [
        (column, row)
        for column in range(c.col_start, c.col_stop)
        for row in range(c.row_start, c.row_stop)
    ] * times


def close(unit, number=1, busy=None):
    return unit.handle(CloseRound(unit.executor, number, busy))


def request(m_low=1, c_low=0.0, fresh_id=100):
    return ReduceRequest(0, 1, (m_low,), (c_low,), 1000.0, (fresh_id,))


def test_it_reports_two_numbers_and_nothing_else():
    unit = make()
    feed(unit, LEFT, everywhere(LEFT), checks=5)
    unit.collect_queries(RIGHT.id, QueryCells.of([CellRect(4, 0, 6, 2)]))
    [report] = close(unit)
    model = unit.model
    assert isinstance(report, CostReport)
    # The first round stands for its past: 16 points weigh as 32 do in the long run.
    assert report.numerator == pytest.approx(32 * model.per_point + 32 * 5 * model.per_check)
    assert report.received == 17
    assert len(report.payload) == 16


def test_points_reach_the_statistics_of_their_own_partition():
    unit = make()
    ids = np.array([RIGHT.id, LEFT.id, RIGHT.id])
    columns, rows = np.array([4, 0, 7], dtype=np.int32), np.array([0, 1, 3], dtype=np.int32)
    unit.collect_points(ids, columns, rows)
    close(unit)
    assert unit.statistics(LEFT.id).received == 1
    assert unit.statistics(RIGHT.id).received == 2


def test_points_of_a_partition_it_does_not_hold_are_an_error():
    with pytest.raises(ProtocolError, match="partition 9"):
        feed(make(), Partition(9, CellRect(0, 0, 1, 1), (0,)), [(0, 0)])


def test_queries_are_clipped_counted_and_removed():
    unit = make()
    wide = QueryCells.of([CellRect(2, 1, 7, 3)])
    for partition in (LEFT, RIGHT):
        unit.collect_queries(partition.id, wide)
    close(unit)
    assert unit.statistics(LEFT.id).queries == unit.statistics(RIGHT.id).queries == 1
    unit.remove_queries(LEFT.id, wide)
    close(unit, 2)
    assert unit.statistics(LEFT.id).queries == 0
    assert unit.statistics(RIGHT.id).queries == 1


def test_prices_are_learnt_from_busy_time():
    unit = make()
    for number in range(1, 30):
        feed(unit, LEFT, everywhere(LEFT, 1 + number % 5), checks=number % 7)
        points = 16 * (1 + number % 5)
        close(unit, number, busy=points * 3e-5 + points * (number % 7) * 4e-6)
    assert isinstance(unit.model, WorkModel)
    assert unit.model.per_point == pytest.approx(3e-5, rel=0.1)
    assert unit.model.per_check == pytest.approx(4e-6, rel=0.1)


def test_a_whole_partition_is_offered_to_m_low_before_the_coordinator_hears_of_it():
    unit = make()
    feed(unit, LEFT, everywhere(LEFT))
    feed(unit, RIGHT, everywhere(RIGHT))
    close(unit)
    [takeover] = unit.handle(request())
    assert isinstance(takeover, Takeover)
    assert takeover.to == 1
    [holding] = takeover.holdings
    assert holding.partition.owners == (1,)
    assert holding.statistics.points == unit.statistics(LEFT.id).points
    [proposal] = unit.handle(TakenOver(1, 0, 1))
    assert isinstance(proposal, Proposal)
    assert [change.kind for change in proposal.changes] == [ChangeKind.MOVE]
    assert unit.handle(TakenOver(1, 0, 1)) == [], "an acknowledgement counts once"


def test_a_single_partition_is_split():
    unit = make([LEFT])
    feed(unit, LEFT, everywhere(LEFT))
    close(unit)
    unit.handle(request())
    [proposal] = unit.handle(TakenOver(1, 0, 1))
    [change] = proposal.changes
    assert change.kind is ChangeKind.SPLIT
    assert sorted(p.owners for p in change.created) == [(0,), (1,)]
    assert {p.cells.area for p in change.created} == {8}


def test_a_chain_of_splits_gives_every_receiver_its_statistics():
    unit = make([LEFT])
    feed(unit, LEFT, everywhere(LEFT, 10))
    close(unit)
    wanted = ReduceRequest(0, 1, (1, 2, 3), (0.0, 0.0, 0.0), 1000.0, (100, 120, 140))
    takeovers = unit.handle(wanted)
    assert [takeover.to for takeover in takeovers] == [1, 2, 3]
    points = [sum(h.statistics.points for h in t.holdings) for t in takeovers]
    assert points == pytest.approx([unit.statistics(LEFT.id).points / 4] * 3)
    assert unit.handle(TakenOver(1, 0, 1)) == unit.handle(TakenOver(3, 0, 1)) == []
    assert len(unit.handle(TakenOver(2, 0, 1))) == 1, "reported once all have taken over"


def test_nothing_feasible_is_said_with_the_reason():
    cell = Partition(3, CellRect(0, 0, 1, 1), (0,))
    unit = make([cell], shared_cells=False)
    feed(unit, cell, [(0, 0)] * 50)
    close(unit)
    [answer] = unit.handle(request())
    assert isinstance(answer, NothingFeasible)
    assert [refusal.reason for refusal in answer.refusals] == [Reason.NOTHING_FITS]
    [empty] = make([]).handle(request())
    assert isinstance(empty, NothingFeasible)


def test_a_hot_cell_is_shared_when_that_is_allowed():
    cell = Partition(3, CellRect(0, 0, 1, 1), (0,))
    unit = make([cell])
    feed(unit, cell, [(0, 0)] * 50)
    close(unit)
    [takeover] = unit.handle(request())
    [holding] = takeover.holdings
    assert holding.partition.shares == {0: 32, 1: 32}
    assert holding.statistics.points == pytest.approx(unit.statistics(3).points / 2)


def test_plan_changes_are_followed_with_their_statistics():
    unit = make([LEFT])
    feed(unit, LEFT, everywhere(LEFT))
    close(unit)
    unit.handle(request())
    [proposal] = unit.handle(TakenOver(1, 0, 1))
    unit.handle(PlanPublished(1, proposal.changes))
    [kept] = unit.partitions
    assert kept.owners == (0,)
    assert kept.parents == (LEFT.id,)
    assert unit.statistics(kept.id).points == 16


def proposed():
    """Return a giver, a taker that was sent the statistics, and what the giver proposes."""
    giver, taker = make([LEFT]), make([], executor=1)
    feed(giver, LEFT, everywhere(LEFT))
    close(giver)
    [takeover] = giver.handle(request())
    assert taker.handle(takeover) == [TakenOver(1, 0, 1)]
    [proposal] = giver.handle(TakenOver(1, 0, 1))
    return giver, taker, proposal


def test_m_low_uses_the_statistics_it_was_sent():
    _, taker, proposal = proposed()
    assert taker.partitions == [], "nothing is its own before the plan says so"
    taker.handle(PlanPublished(1, proposal.changes))
    [partition] = taker.partitions
    assert taker.statistics(partition.id).points == 16


def test_what_was_refused_is_forgotten():
    giver, taker, proposal = proposed()
    assert giver.handle(Refused(0, 1, proposal.changes[0], "a test")) == []
    assert giver.partitions == [LEFT]
    close(taker, 2)
    close(taker, 3)
    taker.handle(PlanPublished(2, proposal.changes))
    [partition] = taker.partitions
    assert taker.statistics(partition.id).points == 0


def test_a_plan_that_comes_after_the_next_round_has_closed_still_finds_the_statistics():
    _, taker, proposal = proposed()
    close(taker, 2)
    taker.handle(PlanPublished(1, proposal.changes))
    [partition] = taker.partitions
    assert taker.statistics(partition.id).points == 16


def test_without_statistics_the_queries_at_least_are_counted():
    queries = QueryCells.of([CellRect(0, 0, 2, 2)] * 3)
    unit = make([], executor=1, queries_of=lambda partition: queries)
    unit.handle(PlanPublished(1, (moved(LEFT, 0, 1, 9),)))
    assert unit.statistics(9).queries == 3


def test_a_move_is_measured_against_what_it_wins_in_a_round():
    """N stands for 1 / (1 - decay) rounds, so half of a cost is what a round brings."""
    for payback, feasible in ((0.9, False), (1.1, True)):
        unit = make([LEFT], payback_rounds=payback, shared_cells=False)
        # 32 points weigh as 64; half of them move and win 32 in cost, 16 a round.
        feed(unit, LEFT, everywhere(LEFT, 2))
        # One side of the split holds 320 queries, whose move costs as much as 16 points.
        unit.collect_queries(LEFT.id, QueryCells.of([CellRect(0, 0, 4, 4)] * 320))
        close(unit)
        [answer] = unit.handle(request())
        assert isinstance(answer, Takeover) == feasible


def test_owners_of_a_cell_that_is_shared_again_scale_their_statistics():
    cell = Partition(3, CellRect(0, 0, 1, 1), (0, 1), (32, 32))
    unit = make([cell], executor=1)
    feed(unit, cell, [(0, 0)] * 40)
    close(unit)
    before = unit.statistics(3).points
    unit.handle(PlanPublished(1, (reshared(cell, {0: 32, 1: 8, 2: 24}, 9),)))
    assert unit.statistics(9).points == pytest.approx(before / 4)


def test_it_asks_for_ids_to_merge_and_merges():
    asked_for = []

    def queries_of(partition):
        asked_for.append(partition.id)
        return QueryCells.of([CellRect(3, 0, 5, 1)])

    unit = make(queries_of=queries_of, merge_every_rounds=5)
    feed(unit, LEFT, everywhere(LEFT))
    for partition in (LEFT, RIGHT):
        unit.collect_queries(partition.id, QueryCells.of([CellRect(3, 0, 5, 1)]))
    assert len(close(unit, 4)) == 1, "only every fifth round"
    _, wanted = close(unit, 5)
    assert wanted == IdRequest(0, 5, 1)
    [proposal] = unit.handle(IdGrant(0, 5, 50, 1, 1.0, 1.0))
    [change] = proposal.changes
    assert change.kind is ChangeKind.MERGE
    assert change.created[0].cells == CellRect(0, 0, 8, 4)
    unit.handle(PlanPublished(1, proposal.changes))
    whole = unit.statistics(50)
    assert whole.queries == 1, "a query in both halves is counted once"
    assert asked_for == [50]


def test_it_uses_no_more_ids_than_it_was_granted():
    parts = [Partition(i, CellRect(0, 2 * i, 2, 2 * i + 1), (0,)) for i in range(1, 4)]
    parts += [Partition(10 + i, CellRect(2, 2 * i, 4, 2 * i + 1), (0,)) for i in range(1, 4)]
    unit = make(parts, merge_every_rounds=1)
    [proposal] = unit.handle(IdGrant(0, 5, 50, 2, 1.0, 1.0))
    assert [change.created[0].id for change in proposal.changes] == [50, 51]


@pytest.mark.parametrize(("points_here", "unshared"), [(1, True), (400, False)])
def test_a_shared_cell_that_has_cooled_down_goes_back_to_its_first_owner(points_here, unshared):
    cell = Partition(3, CellRect(0, 0, 1, 1), (0, 1), (32, 32))
    unit = make([cell, RIGHT], merge_every_rounds=0)
    feed(unit, cell, [(0, 0)] * points_here)
    feed(unit, RIGHT, everywhere(RIGHT, 20))
    report, *wanted = close(unit)
    assert bool(wanted) == unshared
    answers = unit.handle(IdGrant(0, 1, 50, 1, report.numerator, 1000.0))
    assert bool(answers) == unshared
    if unshared:
        [change] = answers[0].changes
        assert change.kind is ChangeKind.UNSHARE
        assert change.created[0].owners == (0,)


def test_only_the_first_owner_unshares():
    cell = Partition(3, CellRect(0, 0, 1, 1), (0, 1), (32, 32))
    other = Partition(4, CellRect(4, 0, 8, 4), (1,))
    unit = make([cell, other], executor=1)
    feed(unit, other, everywhere(other, 20))
    assert len(close(unit)) == 1


def test_a_partition_that_leaves_with_a_move_is_gone():
    unit = make()
    unit.handle(PlanPublished(1, (moved(LEFT, 0, 3, 9),)))
    assert unit.partitions == [RIGHT]


def test_a_message_that_is_not_for_a_unit_is_an_error():
    with pytest.raises(ProtocolError, match="ReportsDue"):
        make().handle(ReportsDue(0))


def test_a_unit_goes_on_where_its_state_was_left():
    plan = Plan.initial(grid_of(8, 8), 1)
    before = LoadBalancingUnit(0, plan.partitions, SwarmConfig(executors=1))
    cell = np.array([3], dtype=np.int32)
    before.collect_points(np.array([plan.partitions[0].id]), cell, cell, np.array([7.0]))
    before.handle(CloseRound(0, 0))
    after = LoadBalancingUnit(0, plan.partitions, SwarmConfig(executors=1))
    after.restore({key: values.copy() for key, values in before.state().items()})
    (report,) = after.handle(CloseRound(0, 1))
    (expected,) = before.handle(CloseRound(0, 1))
    assert report == expected
    assert report.numerator > 0


def test_a_state_of_other_partitions_changes_nothing():
    plan = Plan.initial(grid_of(8, 8), 1)
    unit = LoadBalancingUnit(0, plan.partitions, SwarmConfig(executors=1))
    unit.restore({99: np.ones((16, 10)), plan.partitions[0].id: np.ones((3, 10))})
    assert unit.statistics(plan.partitions[0].id).points == 0


def test_prices_that_are_told_are_used():
    plan = Plan.initial(grid_of(8, 8), 1)
    unit = LoadBalancingUnit(0, plan.partitions, SwarmConfig(executors=1, decay=0.5))
    unit.use_prices(Prices(2.0, 0.5))
    cell = np.array([3], dtype=np.int32)
    unit.collect_points(np.array([plan.partitions[0].id]), cell, cell, np.array([8.0]))
    (report,) = unit.handle(CloseRound(0, 0))
    assert report.numerator == pytest.approx(2.0 * 1 + 0.5 * 8)


def test_a_unit_without_a_past_counts_the_queries_there_are():
    plan = Plan.initial(grid_of(8, 8), 1)
    queries = QueryCells.of([CellRect(0, 0, 2, 2), CellRect(3, 3, 4, 8)])
    unit = LoadBalancingUnit(0, plan.partitions, SwarmConfig(executors=1), lambda _: queries)
    unit.recount_queries()
    assert unit.statistics(plan.partitions[0].id).queries == 2


def test_a_round_of_twice_the_usual_length_is_no_jump_of_the_load():
    plan = Plan.initial(grid_of(8, 8), 1)
    usual, stretched = (
        LoadBalancingUnit(0, plan.partitions, SwarmConfig(executors=1)) for _ in range(2)
    )
    cells = np.full(100, 3, dtype=np.int32)
    ids = np.full(100, plan.partitions[0].id)
    for number in range(4):
        usual.collect_points(ids, cells, cells)
        (expected,) = usual.handle(CloseRound(0, number))
        for _ in range(1 + number % 2):
            stretched.collect_points(ids, cells, cells)
        (report,) = stretched.handle(CloseRound(0, number, length=1.0 + number % 2))
        assert report == expected
