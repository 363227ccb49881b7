"""The store refuses those whose time is over, and knows what the dead left."""

from __future__ import annotations

import pytest

from sparkswarm.geometry import Bounds, CellRect, Grid
from sparkswarm.protocol.partition import moved
from sparkswarm.protocol.plan import Plan
from sparkswarm.sim.records import new_record, portion
from sparkswarm.sim.storage import DeposedError, Storage
from sparkswarm.sim.tuples import Operation, Point

GRID = Grid(Bounds(0, 0, 4, 4), 4, 4)


def make() -> Storage:
    return Storage(Plan.initial(GRID, 3), frozenset())


def move(store: Storage, partition_id: int, giver: int, taker: int) -> int:
    """Publish a move; return the id of the new partition."""
    partition = next(p for p in store.plan.partitions if p.id == partition_id)
    ids, plan = store.plan.reserve(1)
    change = moved(partition, giver, taker, ids[0])
    store.append(store.term, plan.apply([change]), (change,))
    return ids[0]


def register(store: Storage, holder: tuple[int, int], query: int) -> None:
    cells = CellRect(0, 0, 4, 4)
    store.records[holder].apply(
        Operation(0, 1, query, 1, (0.0, 0.0, 4.0, 4.0), cells, cells, False)
    )


def test_a_term_is_given_once_and_only_upwards() -> None:
    store = make()
    assert store.claim(2)
    assert not store.claim(2)
    assert not store.claim(1)
    assert store.claim(3)


def test_plans_of_a_term_that_is_over_are_refused() -> None:
    store = make()
    store.claim(0)
    first = store.plan.partitions[0]
    move(store, first.id, 0, 1)
    store.claim(1)
    _, plan = store.plan.reserve(1)
    with pytest.raises(DeposedError):
        store.append(0, plan, ())
    assert len(store.plans) == 2


def test_a_version_is_written_once() -> None:
    store = make()
    store.claim(0)
    with pytest.raises(DeposedError):
        store.append(0, store.plan, ())


def test_a_fence_ends_a_life_and_what_was_created_before() -> None:
    store = make()
    store.claim(0)
    owned = [store.plan.owned_by(m)[0].id for m in range(3)]
    store.fence(1, 1)
    assert store.lives == (0, 1, 0)
    assert store.has_lost((owned[1], 1))
    assert not store.has_lost((owned[0], 0))
    move(store, owned[1], 1, 0)
    again = move(store, owned[0], 0, 1)
    assert not store.has_lost((again, 1))


def test_the_state_of_the_dead_is_put_together_from_before_them() -> None:
    """Executor 0 gives p to 1, and 1 to 2; 1 dies before it has learnt of either."""
    store = make()
    store.claim(0)
    first = store.plan.owned_by(0)[0].id
    register(store, (first, 0), 7)
    store.records[first, 0].seen.add(Point(0, 3, 1.0, 1.0, 0, 0))
    second = move(store, first, 0, 1)
    third = move(store, second, 1, 2)
    store.fence(1, len(store.plans) - 1)
    # The one before is alive and may still process: nothing is final.
    assert store.final((second, 1)) is None
    store.records[first, 0].retired_by = store.change_to(second)
    final = store.final((second, 1))
    assert final is not None
    change = store.change_to(third)
    assert change is not None
    record = new_record(change, third)
    record.absorb(portion(final, 1, change, record.partition, 2, frozenset()))
    assert list(record.entries) == [7]
    assert Point(0, 3, 1.0, 1.0, 0, 0) in record.seen


def test_what_a_living_executor_holds_is_final_only_when_it_has_stopped() -> None:
    store = make()
    store.claim(0)
    first = store.plan.owned_by(0)[0].id
    assert store.final((first, 0)) is None
    move(store, first, 0, 1)
    assert store.final((first, 0)) is None
