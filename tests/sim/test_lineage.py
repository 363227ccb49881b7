"""The chain of former partitions leads to every point still stored, and to each just once."""

from __future__ import annotations

from collections import Counter, defaultdict

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sparkswarm.geometry import CellRect
from sparkswarm.protocol.partition import TICKETS, Partition, merged, moved, reshared, split
from sparkswarm.protocol.plan import Plan
from sparkswarm.sim.lineage import Lineage, Link

from ..support.strategies import Operation, World, centres, operations, tilings

Point = tuple[int, int, int]
"""The time at which it came, its column and its row; it is stored once for each arrival."""


class History:
    """A swarm whose executors keep what they get, where they got it.

    At each time a point arrives in every cell, and then the plan changes.
    """

    def __init__(self, plan: Plan) -> None:
        self.world = World(plan)
        self.lineage = Lineage()
        self.time = 0
        self.retired_at: dict[int, int] = {}
        self.stored: dict[tuple[int, int], list[Point]] = defaultdict(list)

    def live(self, *todo: Operation) -> None:
        x, y = centres(self.world.plan.grid)
        routed = self.world.index.route(x, y, 7 * np.arange(len(x)) + self.time)
        for partition, owner, column, row in zip(*(a.tolist() for a in routed), strict=True):
            self.stored[owner, partition].append((self.time, column, row))
        for operation in todo:
            for change in self.world.step(operation):
                self.lineage.record(change, self.time)
                self.retired_at |= {p.id: self.time for p in change.retired}
        self.time += 1

    def answer(self, partition: Partition) -> Counter[Point]:
        """What the owners of a partition and of its chain hold for its cells."""
        asked = [Link(partition, partition.cells), *self.lineage.chain(partition)]
        return Counter(
            (time, column, row)
            for link in asked
            for owner in link.partition.owners
            for time, column, row in self.stored[owner, link.partition.id]
            if link.cells.contains(CellRect(column, row, column + 1, row + 1))
        )

    def everything(self, cells: CellRect, since: int = 0) -> Counter[Point]:
        """What ever came to these cells."""
        return Counter(
            (time, column, row)
            for time in range(since, self.time)
            for column in range(cells.col_start, cells.col_stop)
            for row in range(cells.row_start, cells.row_stop)
        )


histories = st.lists(st.lists(operations, max_size=3), max_size=8)


@given(tilings(5, 5), histories)
def test_a_partition_and_its_chain_hold_every_point_of_its_cells_exactly_once(
    plan: Plan, todo: list[list[Operation]]
) -> None:
    history = History(plan)
    for at_once in todo:
        history.live(*at_once)
    history.live()
    for partition in history.world.plan.partitions:
        assert history.answer(partition) == history.everything(partition.cells)


@given(tilings(5, 5), histories)
def test_a_chain_names_retired_partitions_and_only_cells_that_were_theirs_and_are_wanted(
    plan: Plan, todo: list[list[Operation]]
) -> None:
    history = History(plan)
    for at_once in todo:
        history.live(*at_once)
    current = set(history.world.index.partitions)
    assert len(history.lineage) == len(history.retired_at)
    for partition in history.world.plan.partitions:
        for link in history.lineage.chain(partition):
            assert link.partition.id not in current
            assert link.cells.area > 0
            assert link.partition.cells.contains(link.cells)
            assert partition.cells.contains(link.cells)


@given(tilings(5, 5), histories)
def test_a_chain_is_newest_first(plan: Plan, todo: list[list[Operation]]) -> None:
    history = History(plan)
    for at_once in todo:
        history.live(*at_once)
    for partition in history.world.plan.partitions:
        chain = history.lineage.chain(partition)
        times = [history.retired_at[link.partition.id] for link in chain]
        assert times == sorted(times, reverse=True)


@given(tilings(5, 5), histories, st.integers(-1, 9))
def test_expiry_cuts_the_chain_at_what_was_retired_earlier_and_loses_nothing_newer(
    plan: Plan, todo: list[list[Operation]], before: int
) -> None:
    history = History(plan)
    for at_once in todo:
        history.live(*at_once)
    history.live()
    lineage = history.lineage
    chains = {p.id: lineage.chain(p) for p in history.world.plan.partitions}
    known = len(lineage)
    expected = {i for i, time in history.retired_at.items() if time < before}

    gone = lineage.expire(before)

    assert {p.id for p in gone} == expected
    assert len(gone) == len(expected)
    assert len(lineage) == known - len(gone)
    assert lineage.expire(before) == []
    for partition in history.world.plan.partitions:
        kept = [link for link in chains[partition.id] if link.partition.id not in expected]
        assert lineage.chain(partition) == kept
        newer = Counter(
            {p: count for p, count in history.answer(partition).items() if p[0] >= before}
        )
        assert newer == history.everything(partition.cells, since=max(0, before))


@given(tilings(5, 5), histories)
def test_when_everything_has_expired_no_chain_is_left(plan, todo) -> None:
    history = History(plan)
    for at_once in todo:
        history.live(*at_once)
    history.lineage.expire(history.time)
    assert len(history.lineage) == 0
    assert all(history.lineage.chain(p) == [] for p in history.world.plan.partitions)


# -- worked by hand ----------------------------------------------------------------------------

WHOLE = CellRect(0, 0, 4, 2)
LEFT, RIGHT = WHOLE.split_columns(2)
P1 = Partition(1, WHOLE, (1,))


def test_the_example_of_the_paper() -> None:
    """p1 in m1 is split into p2, which m1 keeps, and p3, which moves to m2."""
    lineage = Lineage()
    change = split(P1, [(LEFT, {1: TICKETS}), (RIGHT, {2: TICKETS})], fresh_id=2)
    lineage.record(change, time=5)
    p2, p3 = change.created
    assert (p3.parents, p3.previous_owners) == ((1,), (1,))
    assert lineage.chain(p3) == [Link(P1, RIGHT)]
    assert lineage.chain(p2) == [Link(P1, LEFT)]
    assert lineage.expire(before=5) == []
    assert lineage.chain(p3) == [Link(P1, RIGHT)]
    assert lineage.expire(before=6) == [P1]
    assert lineage.chain(p3) == lineage.chain(p2) == []


def test_a_partition_without_parents_has_no_chain() -> None:
    assert Lineage().chain(P1) == []
    assert len(Lineage()) == 0


def test_moves_make_a_chain_newest_first() -> None:
    lineage = Lineage()
    partition = P1
    former: list[Link] = []
    for time in range(4):
        change = moved(partition, partition.owners[0], time + 2, partition.id + 1)
        lineage.record(change, time)
        former.insert(0, Link(partition, WHOLE))
        (partition,) = change.created
    assert lineage.chain(partition) == former
    lineage.expire(before=2)
    assert lineage.chain(partition) == former[:2]


def test_split_and_merged_again_asks_the_first_for_each_half_once() -> None:
    lineage = Lineage()
    apart = split(P1, [(LEFT, {1: TICKETS}), (RIGHT, {1: TICKETS})], fresh_id=2)
    again = merged(apart.created, WHOLE, fresh_id=4)
    lineage.record(apart, time=0)
    lineage.record(again, time=1)
    left, right = apart.created
    assert lineage.chain(again.created[0]) == [
        Link(left, LEFT),
        Link(right, RIGHT),
        Link(P1, LEFT),
        Link(P1, RIGHT),
    ]


def test_all_owners_of_a_shared_parent_are_in_its_link() -> None:
    lineage = Lineage()
    shared = reshared(P1, {1: 20, 0: 20, 2: 24}, fresh_id=2)
    alone = reshared(shared.created[0], {0: TICKETS}, fresh_id=3)
    lineage.record(shared, time=0)
    lineage.record(alone, time=1)
    links = lineage.chain(alone.created[0])
    assert [link.partition.owners for link in links] == [(1, 0, 2), (1,)]


def test_a_chain_is_newest_first_also_where_branches_differ_in_age() -> None:
    lineage = Lineage()
    apart = split(P1, [(LEFT, {1: TICKETS}), (RIGHT, {1: TICKETS})], fresh_id=2)
    p2, p3 = apart.created
    (p4,) = (left_moves := moved(p2, 1, 0, fresh_id=4)).created
    (p5,) = (right_moves := moved(p3, 1, 2, fresh_id=5)).created
    (p6,) = (right_moves_again := moved(p5, 2, 0, fresh_id=6)).created
    (p7,) = (together := merged((p4, p6), WHOLE, fresh_id=7)).created
    for time, change in enumerate([apart, left_moves, right_moves, right_moves_again, together]):
        lineage.record(change, time)
    assert lineage.chain(p7) == [
        *(Link(p4, LEFT), Link(p6, RIGHT)),
        Link(p5, RIGHT),
        Link(p3, RIGHT),
        Link(p2, LEFT),
        *(Link(P1, LEFT), Link(P1, RIGHT)),
    ]
