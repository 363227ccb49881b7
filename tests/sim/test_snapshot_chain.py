"""A snapshot query finds every point that is kept, each once, however its partition moved."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkswarm.geometry import CellRect
from sparkswarm.protocol.partition import (
    TICKETS,
    Partition,
    PlanChange,
    merged,
    moved,
    reshared,
    split,
)
from sparkswarm.protocol.plan import Plan
from sparkswarm.sim.kept_points import (
    KeptPoints,
    Rectangle,
    SimCount,
    SimSliding,
    SimTumbling,
    Window,
)
from sparkswarm.sim.lineage import Lineage
from sparkswarm.sim.snapshot_chain import (
    Acknowledgement,
    ChainAnswer,
    ChainResults,
    Question,
    Request,
    SnapshotQuery,
    Step,
    answer,
)

from ..support.strategies import EXECUTORS, Operation, World, grid_of, operations, tilings

ASKER = 0

Point = tuple[int, float, float, float]
"""Id, x, y, time."""


class Swarm:
    """Executors that keep what they get where they got it, while the plan changes.

    Every point is also written down in one list, for brute force. Ids follow the order in
    which points came, or say nothing of it.
    """

    def __init__(self, plan: Plan, window: Window, scrambled: bool = False) -> None:
        self.factor = 7919 if scrambled else 1
        self.world = World(plan)
        self.window = window
        self.lineage = Lineage()
        self.now = 0.0
        self.points: list[Point] = []
        self.keeper: dict[int, int] = {}
        self.kept: dict[tuple[int, int], KeptPoints] = {}
        self._begin(plan.partitions)

    def _begin(self, partitions: Iterable[Partition]) -> None:
        for p in partitions:
            for owner in p.owners:
                self.kept[owner, p.id] = KeptPoints(self.world.plan.grid, self.window, self.now)

    def receive(self, x: Sequence[float], y: Sequence[float]) -> None:
        ids = np.arange(len(self.points), len(self.points) + len(x)) * self.factor % 10_007
        routed = self.world.index.route(np.array(x), np.array(y), ids * 31)
        for i, x_, y_, partition, owner in zip(
            ids.tolist(), x, y, routed.partition.tolist(), routed.owner.tolist(), strict=True
        ):
            self.kept[owner, partition].add(i, x_, y_, self.now)
            self.points.append((i, x_, y_, self.now))
            self.keeper[i] = owner

    def change(self, *changes: PlanChange) -> None:
        for change in changes:
            self.lineage.record(change, self.now)
            self._begin(change.created)

    def operate(self, operation: Operation) -> None:
        self.change(*self.world.step(operation))

    def expire(self) -> None:
        for kept in self.kept.values():
            kept.expire(self.now)
        for partition in self.lineage.expire(self.window.since(self.now)):
            for owner in partition.owners:
                del self.kept[owner, partition.id]

    def question(self, rectangle: Rectangle) -> Question:
        return Question.about(7, ASKER, rectangle, self.window, self.now)

    def everything(self, rectangle: Rectangle) -> list[int]:
        """The ids that a query must find, without a look at any lineage."""
        if isinstance(self.window, SimCount):
            still = [p for kept in self.kept.values() for p in kept.points.tolist()]
            found = []
            for partition in self.world.plan.partitions:
                mine = [p for p in still if _cell_of(p, partition.cells)]
                found += sorted(mine, key=lambda p: (p[3], p[0]))[-self.window.size :]
        else:
            since = self.window.since(self.now)
            found = [p for p in self.points if since <= p[3] <= self.now]
        return sorted(
            i
            for i, x, y, _ in found
            if rectangle.min_x <= x <= rectangle.max_x and rectangle.min_y <= y <= rectangle.max_y
        )

    def answer(self, request: Request) -> list[ChainResults | Acknowledgement]:
        """What the machine asked sends; it knows the plan in force."""
        step, partitions = request.step, self.world.plan.partitions
        retired = all(p.id != step.partition.id for p in partitions)
        return answer(
            request,
            self.kept.get((step.machine, step.partition.id)),
            self.lineage,
            [p for p in partitions if p.cells.overlaps(step.partition.cells)] if retired else (),
            points_per_message=2,
        )


def _cell_of(point: Point, cells: CellRect) -> bool:
    return (
        cells.col_start <= int(point[1]) < cells.col_stop
        and cells.row_start <= int(point[2]) < cells.row_stop
    )


class Asking:
    """A query on its way: what was sent and has not arrived is drawn from in any order."""

    def __init__(
        self,
        swarm: Swarm,
        rectangle: Rectangle,
        rng: random.Random,
        partitions: Sequence[Partition] | None = None,
        dead: Iterable[int] = (),
    ) -> None:
        self.swarm = swarm
        self.rng = rng
        self.dead = set(dead)
        self.given_up: set[int] = set()
        known = swarm.world.plan.partitions if partitions is None else partitions
        grid = swarm.world.plan.grid
        self.query = SnapshotQuery(swarm.question(rectangle), known, grid, swarm.lineage)
        self.requests: list[Request] = []
        self.inbox: list[tuple[int, ChainResults | Acknowledgement]] = []
        assert self.query.answer is None
        self._send(self.query.start())

    def _send(self, requests: list[Request]) -> None:
        for request in requests:
            assert request.to == request.step.machine
            assert request.to not in self.given_up
            self.requests.append(request)
            if request.to in self.dead:
                continue
            for message in self.swarm.answer(request):
                assert message.to == ASKER
                # Some come twice.
                for _ in range(self.rng.choice([1, 1, 2])):
                    self.inbox.append((request.step.machine, message))

    def deliver_one(self) -> bool:
        if not self.inbox:
            return False
        sender, message = self.inbox.pop(self.rng.randrange(len(self.inbox)))
        self._send(self.query.handle(sender, message))
        return True

    def give_up(self, machine: int) -> None:
        self.given_up.add(machine)
        self._send(self.query.give_up(machine))

    def run(self) -> ChainAnswer:
        while True:
            while self.deliver_one():
                pass
            if not self.query.waiting_for:
                break
            assert self.query.answer is None
            self.give_up(self.query.waiting_for[0])
        found = self.query.answer
        assert found is not None
        return found


def ids_of(found: ChainAnswer) -> list[int]:
    """The ids found; each point must be there once and with its own place and time."""
    ids = found.points["id"].tolist()
    assert len(ids) == len(set(ids))
    return sorted(ids)


windows = st.one_of(
    st.integers(1, 8).map(SimSliding),
    st.integers(1, 8).map(SimTumbling),
    st.integers(1, 8).map(SimCount),
)


def receive_some(swarm: Swarm, rng: random.Random) -> None:
    grid, count = swarm.world.plan.grid, rng.randint(0, 12)
    swarm.receive(
        [rng.randrange(4 * grid.columns) / 4 for _ in range(count)],
        [rng.randrange(4 * grid.rows) / 4 for _ in range(count)],
    )


@st.composite
def swarms(draw: st.DrawFn) -> Swarm:
    """A random history: points come, the plan changes, time goes on or not, data expire."""
    swarm = Swarm(draw(tilings(5, 5)), draw(windows), scrambled=True)
    for _ in range(draw(st.integers(0, 10))):
        rng = random.Random(draw(st.integers(0, 2**16)))
        receive_some(swarm, rng)
        for operation in draw(st.lists(operations, max_size=2)):
            swarm.operate(operation)
        swarm.now += rng.choice([0, 1, 1, 2])
        if rng.random() < 0.3:
            swarm.expire()
    return swarm


def drawn_rectangle(swarm: Swarm, rng: random.Random) -> Rectangle:
    bounds = swarm.world.plan.grid.bounds
    x = sorted(rng.uniform(-1, bounds.max_x + 1) for _ in range(2))
    y = sorted(rng.uniform(-1, bounds.max_y + 1) for _ in range(2))
    return Rectangle(x[0], y[0], x[1], y[1])


seeds = st.integers(0, 2**32)


# -- complete and exact ------------------------------------------------------------------------


@given(swarms(), seeds)
def test_every_point_of_the_window_is_found_once_in_any_order(swarm: Swarm, seed: int) -> None:
    rng = random.Random(seed)
    bounds = swarm.world.plan.grid.bounds
    whole = Rectangle(bounds.min_x, bounds.min_y, bounds.max_x, bounds.max_y)
    for rectangle in (whole, drawn_rectangle(swarm, rng), drawn_rectangle(swarm, rng)):
        asking = Asking(swarm, rectangle, rng)
        found = asking.run()
        assert ids_of(found) == swarm.everything(rectangle)
        assert not found.partial_because
        assert len(asking.requests) == len({request.step for request in asking.requests})
        by_id = {point[0]: point for point in swarm.points}
        assert all(by_id[point[0]] == point for point in found.points.tolist())
        order = [(point[3], point[0]) for point in found.points.tolist()]
        assert order == sorted(order)


@given(swarms(), st.lists(operations, min_size=1, max_size=4), seeds)
def test_an_asker_that_is_behind_is_led_to_the_partitions_in_force(
    swarm: Swarm, todo: list[Operation], seed: int
) -> None:
    rng = random.Random(seed)
    known = swarm.world.plan.partitions
    for operation in todo:
        swarm.operate(operation)
        receive_some(swarm, rng)
    rectangle = drawn_rectangle(swarm, rng)
    found = Asking(swarm, rectangle, rng, partitions=known).run()
    assert ids_of(found) == swarm.everything(rectangle)
    assert not found.partial_because


@pytest.mark.parametrize("window", [SimSliding(100), SimCount(100)])
def test_where_machines_disagree_on_what_is_in_force_a_point_counts_once(window: Window) -> None:
    """p1 of 1 and 2 went to 3. 1 knows and names p2, which leads back to p1; 2 does not know."""
    swarm = small(window)
    shared = reshared(swarm.world.plan.partitions[0], {1: 32, 2: 32}, fresh_id=2)
    (p2,) = apply(swarm, shared)
    swarm.receive([0.5] * 64, [0.5] * 64)
    assert set(swarm.keeper.values()) == {1, 2}
    (p3,) = apply(swarm, reshared(p2, {3: TICKETS}, fresh_id=3))
    swarm.receive([0.5], [0.5])
    query = SnapshotQuery(swarm.question(EVERYWHERE), (p2,), GRID, swarm.lineage)
    requests = query.start()
    while requests:
        step = requests[0].step
        knows = [p3] if step.machine == 1 else []
        messages = answer(
            requests[0], swarm.kept[step.machine, step.partition.id], swarm.lineage, knows
        )
        requests = requests[1:]
        for message in messages:
            requests += query.handle(step.machine, message)
    assert query.answer is not None
    assert ids_of(query.answer) == list(range(65))


# -- machines that are dead --------------------------------------------------------------------


@given(swarms(), st.sets(st.integers(0, EXECUTORS - 1), max_size=3), seeds)
def test_all_but_the_part_of_dead_machines_is_found_and_they_are_named(
    swarm: Swarm, dead: set[int], seed: int
) -> None:
    rng = random.Random(seed)
    rectangle = drawn_rectangle(swarm, rng)
    asking = Asking(swarm, rectangle, rng, dead=dead)
    found = asking.run()
    expected = swarm.everything(rectangle)
    named = set(found.partial_because)
    assert list(found.partial_because) == sorted(named)
    assert named == {r.step.machine for r in asking.requests} & dead
    assert {swarm.keeper[i] for i in expected} & dead <= named
    alive = [i for i in expected if swarm.keeper[i] not in dead]
    if isinstance(swarm.window, SimCount):
        # Without the newest of the dead, older points of others are among the newest.
        assert set(alive) <= set(ids_of(found))
    else:
        assert ids_of(found) == alive


@given(swarms(), st.integers(0, EXECUTORS - 1), st.integers(0, 20), seeds)
def test_a_machine_that_dies_on_the_way_costs_no_more_than_its_own_part(
    swarm: Swarm, machine: int, when: int, seed: int
) -> None:
    rng = random.Random(seed)
    rectangle = drawn_rectangle(swarm, rng)
    asking = Asking(swarm, rectangle, rng)
    for _ in range(when):
        asking.deliver_one()
    asking.give_up(machine)
    found = asking.run()
    expected = set(swarm.everything(rectangle))
    missing = expected - set(ids_of(found))
    assert set(found.partial_because) <= {machine}
    assert {swarm.keeper[i] for i in missing} <= set(found.partial_because)
    if not isinstance(swarm.window, SimCount):
        assert set(ids_of(found)) <= expected


# -- how many are asked ------------------------------------------------------------------------

GRID = grid_of(4, 2)
WHOLE = GRID.cells
LEFT, RIGHT = WHOLE.split_columns(2)
EVERYWHERE = Rectangle(0.0, 0.0, 4.0, 2.0)


def small(window: Window, executors: int = 4) -> Swarm:
    return Swarm(Plan(0, GRID, executors, (Partition(1, WHOLE, (1,)),), 100), window)


def apply(swarm: Swarm, change: PlanChange) -> tuple[Partition, ...]:
    swarm.world.plan = swarm.world.plan.apply([change])
    swarm.world.index.apply(change)
    swarm.change(change)
    return change.created


def steps_of(asking: Asking) -> list[tuple[int, int, CellRect]]:
    """Which partition, at which machine, about which cells."""
    return [(r.step.partition.id, r.step.machine, r.step.cells) for r in asking.requests]


def chain_of_moves(window: Window, points: int) -> Swarm:
    """p1@1 at 0, p2@2 at 10, p3@3 at 20, p4@1 at 30; some points in the middle of each."""
    swarm = small(window)
    (partition,) = swarm.world.plan.partitions
    for taker in (2, 3, 1, None):
        swarm.now += 5
        swarm.receive([0.5] * points, [0.5] * points)
        swarm.now += 5
        if taker is not None:
            owner = partition.owners[0]
            (partition,) = apply(swarm, moved(partition, owner, taker, partition.id + 1))
    return swarm


@pytest.mark.parametrize(
    ("length", "asked"),
    [(9, [4]), (10, [4, 3]), (15, [4, 3]), (25, [4, 3, 2]), (100, [4, 3, 2, 1])],
)
def test_only_as_much_of_the_chain_is_asked_as_the_window_reaches(
    length: int, asked: list[int]
) -> None:
    """At 40, the window begins at 40 - length; p4 began at 30, p3 at 20, p2 at 10."""
    swarm = chain_of_moves(SimSliding(length), points=2)
    asking = Asking(swarm, EVERYWHERE, random.Random(0))
    assert ids_of(asking.run()) == swarm.everything(EVERYWHERE)
    assert [partition for partition, _, _ in steps_of(asking)] == asked


@pytest.mark.parametrize(
    ("count", "asked"),
    [(1, [4]), (2, [4]), (3, [4, 3]), (4, [4, 3]), (5, [4, 3, 2]), (9, [4, 3, 2, 1])],
)
def test_only_as_much_of_the_chain_is_asked_as_it_takes_to_count(
    count: int, asked: list[int]
) -> None:
    swarm = chain_of_moves(SimCount(count), points=2)
    asking = Asking(swarm, EVERYWHERE, random.Random(0))
    assert ids_of(asking.run()) == list(range(8))[-count:]
    assert [partition for partition, _, _ in steps_of(asking)] == asked


def test_a_count_window_is_of_the_whole_partition_not_of_the_range() -> None:
    swarm = small(SimCount(2))
    swarm.receive([0.5, 0.5], [0.5, 0.5])
    (p1,) = swarm.world.plan.partitions
    apply(swarm, moved(p1, 1, 2, fresh_id=2))
    swarm.receive([3.5], [0.5])
    asking = Asking(swarm, Rectangle(0.0, 0.0, 1.0, 1.0), random.Random(0))
    assert ids_of(asking.run()) == [1]
    assert steps_of(asking) == [(2, 2, WHOLE), (1, 1, WHOLE)]


def test_of_points_that_came_at_the_same_time_the_larger_ids_are_the_newer() -> None:
    """p1 has what came at 0 and p2 what came at 0 too, with a smaller id: p1 must be asked."""
    swarm = small(SimCount(1))
    swarm.points = [(i, 9.0, 9.0, 0.0) for i in range(5)]
    swarm.receive([0.5], [0.5])
    (p1,) = swarm.world.plan.partitions
    apply(swarm, moved(p1, 1, 2, fresh_id=2))
    del swarm.points[:]
    swarm.receive([0.5], [0.5])
    assert ids_of(Asking(swarm, EVERYWHERE, random.Random(0)).run()) == [5]


def test_expired_partitions_are_not_asked() -> None:
    """The question reaches back for ever; the machines' lineage does not."""
    swarm = chain_of_moves(SimSliding(22), points=2)
    swarm.expire()
    assert len(swarm.lineage) == 2
    rectangle = EVERYWHERE
    question = Question(7, ASKER, rectangle, since=-1e9, until=swarm.now)
    asking = Asking(swarm, rectangle, random.Random(0))
    query = SnapshotQuery(question, swarm.world.plan.partitions, GRID, swarm.lineage)
    asking.query, asking.requests, asking.inbox = query, [], []
    asking._send(query.start())
    asking.run()
    assert [partition for partition, _, _ in steps_of(asking)] == [4, 3, 2]


def test_what_a_machine_has_forgotten_ends_the_chain() -> None:
    swarm = chain_of_moves(SimSliding(100), points=1)
    del swarm.kept[3, 3]
    asking = Asking(swarm, EVERYWHERE, random.Random(0))
    assert not asking.run().partial_because
    assert [partition for partition, _, _ in steps_of(asking)] == [4, 3]


def test_the_example_of_the_paper() -> None:
    """p1 in m1 is split: p2 stays, p3 goes to m2, which is asked and asks m1 about p1."""
    swarm = small(SimSliding(100))
    swarm.receive([0.5, 3.5], [0.5, 0.5])
    swarm.now += 1
    (p1,) = swarm.world.plan.partitions
    apply(swarm, split(p1, [(LEFT, {1: TICKETS}), (RIGHT, {2: TICKETS})], fresh_id=2))
    swarm.receive([0.5, 3.5], [1.5, 1.5])
    right = Rectangle(2.0, 0.0, 4.0, 2.0)
    asking = Asking(swarm, right, random.Random(0))
    assert ids_of(asking.run()) == [1, 3]
    assert steps_of(asking) == [(3, 2, RIGHT), (1, 1, RIGHT)]


def test_only_the_cells_of_the_range_are_asked_about() -> None:
    swarm = small(SimSliding(100))
    swarm.receive([0.5, 1.5, 3.5], [0.5, 0.5, 0.5])
    asking = Asking(swarm, Rectangle(1.25, 0.25, 1.75, 0.75), random.Random(0))
    assert ids_of(asking.run()) == [1]
    assert steps_of(asking) == [(1, 1, CellRect(1, 0, 2, 1))]


def test_split_and_merged_again_finds_all_once() -> None:
    swarm = small(SimSliding(100))
    swarm.receive([0.5, 3.5], [0.5, 0.5])
    (p1,) = swarm.world.plan.partitions
    halves = apply(swarm, split(p1, [(LEFT, {1: TICKETS}), (RIGHT, {1: TICKETS})], fresh_id=2))
    swarm.receive([0.5, 3.5], [0.5, 0.5])
    apply(swarm, merged(halves, WHOLE, fresh_id=4))
    swarm.receive([0.5, 3.5], [0.5, 0.5])
    asking = Asking(swarm, EVERYWHERE, random.Random(0))
    assert ids_of(asking.run()) == [0, 1, 2, 3, 4, 5]
    assert sorted(steps_of(asking)) == [
        *((1, 1, LEFT), (1, 1, RIGHT)),
        *((2, 1, LEFT), (3, 1, RIGHT)),
        (4, 1, WHOLE),
    ]


def test_a_parent_that_several_owners_name_is_asked_once() -> None:
    swarm = small(SimSliding(100))
    swarm.receive([0.5] * 8, [0.5] * 8)
    (p1,) = swarm.world.plan.partitions
    apply(swarm, reshared(p1, {1: 20, 2: 20, 3: 24}, fresh_id=2))
    swarm.receive([0.5] * 64, [0.5] * 64)
    assert len({swarm.keeper[i] for i in range(8, 72)}) == 3
    asking = Asking(swarm, EVERYWHERE, random.Random(0))
    assert ids_of(asking.run()) == list(range(72))
    assert sorted(steps_of(asking)) == [(1, 1, WHOLE), *((2, m, WHOLE) for m in (1, 2, 3))]


def test_behind_a_dead_machine_the_chain_goes_on() -> None:
    swarm = chain_of_moves(SimSliding(100), points=1)
    asking = Asking(swarm, EVERYWHERE, random.Random(0), dead=[2, 3])
    found = asking.run()
    assert ids_of(found) == [0, 3]
    assert found.partial_because == (2, 3)


def test_outside_the_bounds_there_is_nothing_to_ask() -> None:
    swarm = small(SimCount(3))
    asking = Asking(swarm, Rectangle(9.0, 9.0, 10.0, 10.0), random.Random(0))
    assert asking.requests == []
    assert ids_of(asking.run()) == []


# -- what arrives ------------------------------------------------------------------------------


def one_step() -> tuple[SnapshotQuery, Step, list[ChainResults | Acknowledgement]]:
    swarm = small(SimSliding(100))
    swarm.receive([0.5, 1.5, 2.5], [0.5, 0.5, 0.5])
    query = SnapshotQuery(
        swarm.question(EVERYWHERE), swarm.world.plan.partitions, GRID, swarm.lineage
    )
    (request,) = query.start()
    return query, request.step, swarm.answer(request)


def test_results_are_counted_and_the_acknowledgement_says_how_many_there_are() -> None:
    query, step, (first, second, acknowledgement) = one_step()
    assert isinstance(acknowledgement, Acknowledgement)
    assert acknowledgement.results == 2
    for message in (acknowledgement, first, first, acknowledgement):
        assert query.handle(step.machine, message) == []
        assert query.answer is None
        assert query.waiting_for == (1,)
    query.handle(step.machine, second)
    assert query.waiting_for == ()
    assert query.answer is not None
    assert ids_of(query.answer) == [0, 1, 2]


def test_what_is_not_awaited_or_not_from_whom_it_says_is_ignored() -> None:
    query, step, messages = one_step()
    for message in messages:
        query.handle(step.machine + 1, message)
        query.handle("g0", message)
    other, _, _ = one_step()
    other.question = Question(8, ASKER, EVERYWHERE, 0, 9)
    for message in messages:
        other.handle(step.machine, message)
    assert query.answer is other.answer is None
    for message in messages:
        query.handle(step.machine, message)
    assert query.answer is not None
    answered = query.answer
    assert query.handle(step.machine, messages[0]) == query.give_up(step.machine) == []
    assert query.answer is answered
    assert not answered.partial_because


def test_what_a_machine_sent_before_it_was_given_up_counts() -> None:
    query, step, (first, second, acknowledgement) = one_step()
    query.handle(step.machine, second)
    query.give_up(step.machine)
    assert query.answer is not None
    assert ids_of(query.answer) == [2]
    assert query.answer.partial_because == (step.machine,)
    assert query.handle(step.machine, first) == query.handle(step.machine, acknowledgement) == []
    assert ids_of(query.answer) == [2]


def test_later_points_do_not_count_however_late_a_machine_answers() -> None:
    swarm = small(SimSliding(100))
    swarm.receive([0.5], [0.5])
    query = SnapshotQuery(
        swarm.question(EVERYWHERE), swarm.world.plan.partitions, GRID, swarm.lineage
    )
    (request,) = query.start()
    swarm.now += 1
    swarm.receive([0.5], [0.5])
    for message in swarm.answer(request):
        query.handle(1, message)
    assert query.answer is not None
    assert ids_of(query.answer) == [0]
