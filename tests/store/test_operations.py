"""Operations: whatever happens to queries and to partitions, points meet the queries there are."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkswarm.protocol.partition import Partition, merged, moved, split
from sparkswarm.protocol.plan import Plan
from sparkswarm.store import deltas, prices
from sparkswarm.store.queries import NEVER, Op

from ..support.stored import Box, StoredWorld, Told
from ..support.strategies import (
    Operation,
    grid_of,
    make_changes,
    operations,
    part_of_the_examples,
    tilings,
)

COMPACT_LEAST = st.sampled_from([0, 1, 3, 8, 1024])


class Change(NamedTuple):
    """An operation on a query, before its times and its place are known."""

    op: Op
    id: int
    corners: tuple[int, int, int, int]
    lives: int | None


class Batch(NamedTuple):
    """A batch of operations, and the time that passes before."""

    changes: list[Change]
    passes: int


CHANGES = st.builds(
    Change,
    st.sampled_from(Op),
    st.integers(0, 5),
    st.tuples(*[st.integers(0, 16)] * 4),
    st.one_of(st.none(), st.integers(-1, 8)),
)
BATCHES = st.builds(Batch, st.lists(CHANGES, min_size=1, max_size=6), st.integers(0, 9))
CUTS_AND_MERGES = st.builds(Operation, st.sampled_from(["cut", "merge"]), st.integers(0, 2**16))
STEPS = st.lists(st.one_of(BATCHES, BATCHES, CUTS_AND_MERGES, operations), min_size=3, max_size=20)


def of_one_executor(plan: Plan) -> Plan:
    """Return a plan in which all neighbours can be merged."""
    partitions = tuple(Partition(p.id, p.cells, (0,)) for p in plan.partitions)
    return replace(plan, partitions=partitions, executors=1)


TILINGS = tilings(3, 3, executors=2)
PLANS = st.one_of(TILINGS, TILINGS.map(of_one_executor))
HOSTS = st.sampled_from([[], [0, 1], [1, 1]])
"""The hosts of the executors; none where it does not matter."""


def tell(world: StoredWorld, batch: Batch) -> None:
    """Apply a batch, and check what it says about itself."""
    world.now += batch.passes
    told = []
    for op, key, corners, lives in batch.changes:
        at = np.array(corners) / 16
        x = np.sort(at[:2] * (world.grid.columns + 2) - 1)
        y = np.sort(at[2:] * (world.grid.rows + 2) - 1)
        box = (
            min(x[0], world.grid.columns),
            min(y[0], world.grid.rows),
            max(x[1], 0.0),
            max(y[1], 0.0),
        )
        expires = NEVER if lives is None else world.now + lives
        told.append(Told(op, key, None if op == Op.UNREGISTER else box, expires))
    before, batch_number = dict(world.known), world.batch
    registered = {key for key, (_, expires) in before.items() if expires > world.now}
    replaced = ignored = 0
    touched = set()
    for one in told:
        if one.op == Op.UNREGISTER and one.id not in registered:
            ignored += 1
            continue
        replaced += one.op == Op.REGISTER and one.id in registered
        lives_on = one.op != Op.UNREGISTER and one.expires > world.now
        (registered.add if lives_on else registered.discard)(one.id)
        touched.add(one.id)
    stored = world.tell(*told)
    settled = stored.settled
    assert (settled.replaced, settled.ignored) == (replaced, ignored)
    assert settled.applied == len(told) - ignored
    changed = set(settled.changes.ids.tolist())
    assert changed <= touched
    # What was there before, or is there now, was changed in this batch.
    assert {key for key in touched if key in world.known} <= changed
    assert set(settled.changes.batches.tolist()) <= {batch_number}


@part_of_the_examples(0.5)
@given(PLANS, STEPS, st.integers(0, 4), COMPACT_LEAST, st.sampled_from([0, 1, 2, 100]), HOSTS)
def test_points_meet_the_queries_there_are_however_partitions_change(
    plan: Plan, steps: list[Batch | Operation], late: int, least: int, ratio: int, hosts: list[int]
) -> None:
    world = StoredWorld(plan, late, hosts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(deltas, "COMPACT_LEAST", least)
        patch.setattr("sparkswarm.store.operations.MERGE_RATIO", ratio)
        patch.setattr(prices, "MAX_SIDE", 2 if late % 2 else 2048)
        for step in steps:
            if isinstance(step, Batch):
                tell(world, step)
            else:
                reserved, changes = make_changes(world.plan, step)
                world.replan(reserved, *changes)
            world.check()


def test_a_query_registered_with_a_past_expiry_is_not_registered_for_later_operations() -> None:
    world = StoredWorld(Plan.initial(grid_of(3, 3), 1), late=5)
    world.now = 10
    box = (0.0, 0.0, 2.0, 2.0)
    settled = world.tell(
        Told(Op.REGISTER, 1, box, 10), Told(Op.REGISTER, 1, box, NEVER), Told(Op.UPDATE, 2, box, 9)
    ).settled
    assert (settled.applied, settled.replaced, settled.ignored) == (3, 0, 0)
    settled = world.tell(Told(Op.UPDATE, 3, box, 9), Told(Op.UNREGISTER, 3, None, NEVER)).settled
    assert (settled.applied, settled.replaced, settled.ignored) == (1, 0, 1)
    world.check()


@pytest.mark.parametrize("seed", range(24))
def test_points_meet_the_queries_there_are_through_a_long_history(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(seed)
    monkeypatch.setattr(deltas, "COMPACT_LEAST", rng.choice([4, 12, 1024]))
    plan = Plan.initial(grid_of(3, 3), rng.choice([1, 1, 2]))
    world = StoredWorld(plan, rng.randrange(5), hosts=[0, 1] if seed % 2 else [])

    def change() -> Change:
        corners = tuple(rng.randrange(17) for _ in range(4))
        lives = rng.choice([None, rng.randint(1, 8)])
        return Change(rng.choice(list(Op)), rng.randrange(30), corners, lives)  # type: ignore[arg-type]

    for _ in range(40):
        if rng.random() < 0.6:
            tell(world, Batch([change() for _ in range(rng.randint(1, 6))], rng.randrange(6)))
        else:
            kind = rng.choice(["cut", "merge", "merge", "carve", "move"])
            reserved, changes = make_changes(world.plan, Operation(kind, rng.randrange(2**16)))
            world.replan(reserved, *changes)
        world.check()


# -- by hand -----------------------------------------------------------------------------------

GRID = grid_of(4, 4)
LEFT, RIGHT = GRID.cells.split_columns(2)
ON_LEFT: Box = (0.5, 0.5, 1.5, 1.5)
ON_RIGHT: Box = (2.5, 0.5, 3.5, 1.5)
ON_BOTH: Box = (1.5, 0.5, 2.5, 1.5)
ELSEWHERE: Box = (0.5, 2.5, 3.5, 3.5)


def whole_world(late: int = 0) -> StoredWorld:
    return StoredWorld(Plan.initial(GRID, 1), late)


def split_in_two(world: StoredWorld) -> None:
    (whole,) = world.plan.partitions
    ids, plan = world.plan.reserve(2)
    shares = whole.shares
    world.replan(plan, split(whole, [(LEFT, shares), (RIGHT, shares)], ids.start))


def merge_again(world: StoredWorld) -> None:
    (fresh,), plan = world.plan.reserve(1)
    world.replan(plan, merged(world.plan.partitions, GRID.cells, fresh))


def test_deltas_grow_geometrically() -> None:
    world = whole_world()
    for i in range(64):
        world.tell(Told(Op.REGISTER, i, ON_LEFT))
        sizes = [delta.file.rows for delta in world.manifest.deltas]
        assert sum(sizes) == i + 1
        assert all(older > 2 * newer for older, newer in itertools.pairwise(sizes))
        assert len(sizes) <= 6


def test_a_batch_writes_one_file() -> None:
    world = whole_world()
    split_in_two(world)
    world.tell(Told(Op.REGISTER, 1, ON_LEFT), Told(Op.REGISTER, 2, ON_RIGHT))
    assert [ref.name for ref in world.manifest.files()] == ["0-delta"]
    before = world.manifest
    stored = world.tell(Told(Op.UNREGISTER, 7))
    assert stored.manifest is before
    assert stored.settled.ignored == 1


@pytest.mark.parametrize("is_based", [False, True], ids=["in a delta", "in a base"])
@pytest.mark.parametrize("box", [ON_LEFT, ON_RIGHT, ON_BOTH], ids=["left", "right", "both"])
def test_a_query_unregistered_in_a_child_does_not_come_back_with_the_merge(
    box: Box, is_based: bool
) -> None:
    world = whole_world()
    world.tell(Told(Op.REGISTER, 1, box), Told(Op.REGISTER, 2, ELSEWHERE))
    if is_based:
        world.compact()
    split_in_two(world)
    world.tell(Told(Op.UNREGISTER, 1))
    world.check()
    merge_again(world)
    world.check()
    assert world.queries().keys() == {2}
    world.compact()
    world.check()
    assert world.queries().keys() == {2}


@pytest.mark.parametrize(("old", "new"), [(ON_LEFT, ON_RIGHT), (ON_BOTH, ON_LEFT)])
def test_a_query_that_went_to_another_child_is_there_once_after_the_merge(
    old: Box, new: Box
) -> None:
    world = whole_world()
    split_in_two(world)
    world.tell(Told(Op.REGISTER, 1, old))
    world.compact()
    world.tell(Told(Op.UPDATE, 1, new))
    world.check()
    merge_again(world)
    world.check()
    world.compact()
    world.check()
    assert world.queries() == {1: (new, NEVER)}


def test_an_id_that_was_purged_may_be_used_again() -> None:
    world = whole_world(late=5)
    world.tell(Told(Op.REGISTER, 1, ON_BOTH, world.now + 1), Told(Op.REGISTER, 2, ELSEWHERE))
    world.now += 100
    assert world.tell(Told(Op.REGISTER, 1, ON_LEFT)).settled.replaced == 0
    world.check()
    world.compact()
    world.check()


def test_what_expired_is_not_registered_but_serves_late_points() -> None:
    world = whole_world(late=50)
    world.tell(Told(Op.REGISTER, 1, ON_BOTH, world.now + 1))
    world.now += 10
    assert world.tell(Told(Op.UNREGISTER, 1)).settled.ignored == 1
    assert world.queries().keys() == {1}
    world.check()


def test_a_move_and_a_split_write_nothing() -> None:
    world = whole_world()
    world.tell(Told(Op.REGISTER, 1, ON_BOTH))
    world.compact()
    files = world.manifest.files()
    world.plan = Plan(0, GRID, 2, world.plan.partitions, world.plan.next_id)
    (fresh,), plan = world.plan.reserve(1)
    world.replan(plan, moved(world.plan.partitions[0], 0, 1, fresh))
    split_in_two(world)
    assert world.manifest.files() == files
    world.check()


def test_many_segments_are_compacted() -> None:
    world = whole_world()
    world.tell(Told(Op.REGISTER, 1, ON_BOTH))
    world.compact()
    assert not deltas.is_compaction_due(world.manifest)
    (whole,) = world.plan.partitions
    (ref,) = world.manifest.partitions[whole.id]
    pieces = tuple(
        replace(ref, cells=cells) for cells in (*LEFT.split_rows(1), *RIGHT.split_rows(1))
    )
    crowded = {whole.id: (*pieces, pieces[0])}
    assert deltas.is_compaction_due(replace(world.manifest, partitions=crowded))


def test_masks_follow_a_manifest_that_goes_back() -> None:
    world = whole_world()
    world.tell(Told(Op.REGISTER, 1, ON_LEFT), Told(Op.REGISTER, 2, ON_LEFT))
    world.compact()
    (ref,) = world.manifest.partitions[world.plan.partitions[0].id]
    early = world.manifest
    world.files.__dict__["content"] = dict(world.files.__dict__["content"])
    world.tell(Told(Op.UNREGISTER, 1))
    one = world.manifest
    kept = dict(world.files.__dict__["content"])
    world.tell(Told(Op.UNREGISTER, 2))
    world.files.__dict__["content"].update(kept)
    for manifest, gone in ((one, 1), (world.manifest, 2), (one, 1), (early, 0)):
        assert world.cache.segment(ref, manifest, GRID).removed.sum() == gone
