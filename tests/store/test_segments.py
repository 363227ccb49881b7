"""Segments: whatever happens to queries and to partitions, points meet the queries there are."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sparkswarm.geometry import CellRect, Grid
from sparkswarm.index.match import match
from sparkswarm.protocol.partition import Partition, PlanChange, merged, moved, split
from sparkswarm.protocol.plan import Plan
from sparkswarm.store import ledger, segments
from sparkswarm.store.files import FileRef, Files
from sparkswarm.store.ledger import Bucket, apply_operations
from sparkswarm.store.manifest import Manifest, SegmentFiles, SegmentRef
from sparkswarm.store.queries import NEVER, Op, Operations, Queries
from sparkswarm.store.segments import (
    NO_BASE,
    NO_DELTA,
    Base,
    Delta,
    Segment,
    SegmentCache,
    apply_changes,
    live_queries,
)

from ..support.strategies import (
    Operation,
    grid_of,
    make_changes,
    operations,
    part_of_the_examples,
    tilings,
)

Box = tuple[float, float, float, float]
Known = dict[int, tuple[Box, int]]

DELTA_LEAST = st.sampled_from([0, 1, 2, 4, 1024])
START = 1000
"""When histories begin."""


def columns(known: Known) -> Queries:
    """Return the queries of a dict as columns."""
    return Queries(
        np.array(list(known), dtype=np.int64),
        np.array([box for box, _ in known.values()], dtype=np.float64).reshape(-1, 4),
        np.array([expires for _, expires in known.values()], dtype=np.int64),
    )


def listed(queries: Queries) -> Known:
    """Return columns of queries as a dict; each id must be there once."""
    assert len(set(queries.ids.tolist())) == len(queries.ids), "an id is there twice"
    rows = zip(queries.ids.tolist(), queries.boxes.tolist(), queries.expires.tolist(), strict=True)
    return {key: (tuple(box), expires) for key, box, expires in rows}


def reread(new: Base | Delta) -> Base | Delta:
    """Send a segment through the bytes of its file."""
    return type(new).from_bytes(new.to_bytes())


def found_at(
    stored: Segment, x: npt.NDArray[np.float64], y: npt.NDArray[np.float64], time: int
) -> list[list[int]]:
    """Return the ids that each point matches in a segment, sorted."""
    which = np.arange(len(x))
    found = match(
        x, y, None, which, stored.base.index, stored.removed_mask(), stored.delta.index, now=time
    )
    result: list[list[int]] = [[] for _ in x]
    stops = np.cumsum(found.counts)
    for point, ids in zip(
        found.points, np.split(stored.ids_at(found.positions), stops[:-1]), strict=True
    ):
        result[point] = sorted(ids.tolist())
    return result


def expected_at(known: Known, x: float, y: float, time: int) -> list[int]:
    """Return the same by looking at every query."""
    return sorted(
        key
        for key, ((min_x, min_y, max_x, max_y), expires) in known.items()
        if min_x <= x <= max_x and min_y <= y <= max_y and time < expires
    )


def lattice(grid: Grid) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return the corners, the edges' middles and the centres of all cells."""
    xs = np.arange(0.0, grid.columns + 0.5, 0.5)
    ys = np.arange(0.0, grid.rows + 0.5, 0.5)
    x, y = np.meshgrid(xs, ys)
    return x.ravel(), y.ravel()


# -- one partition -----------------------------------------------------------------------------

GRID = grid_of(4, 4)


def boxes_in(grid: Grid) -> st.SearchStrategy[Box]:
    """Rectangles that touch the bounds, many of them on the edges of cells."""

    def side(size: int) -> st.SearchStrategy[tuple[float, float]]:
        one = st.one_of(
            st.integers(-2, 2 * size + 2).map(lambda v: v / 2),
            st.floats(-1.0, size + 1.0, allow_subnormal=False),
        )
        return st.tuples(one, one).map(lambda s: (min(*s, float(size)), max(*s, 0.0)))

    return st.tuples(side(grid.columns), side(grid.rows)).map(
        lambda s: (s[0][0], s[1][0], s[0][1], s[1][1])
    )


LIVES = st.one_of(st.none(), st.none(), st.integers(-3, 12))


class Turn(NamedTuple):
    """What is taken out of a partition and put in, and the time that passes before."""

    removed: set[int]
    added: dict[int, tuple[Box, int | None]]
    passes: int


TURNS = st.builds(
    Turn,
    st.sets(st.integers(-3, 12), max_size=6),
    st.dictionaries(st.integers(-3, 12), st.tuples(boxes_in(GRID), LIVES), max_size=6),
    st.integers(0, 5),
)


@given(st.lists(TURNS, min_size=1, max_size=8), st.integers(0, 6), DELTA_LEAST)
def test_a_partition_holds_what_a_dict_would(turns: list[Turn], late: int, least: int) -> None:
    stored = Segment(GRID.cells, NO_BASE, NO_DELTA)
    known: Known = {}
    now = START
    x, y = lattice(GRID)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segments, "DELTA_LEAST", least)
        for turn in turns:
            now += turn.passes
            purge = now - late
            # What is there already must be taken out to be put in.
            removed = turn.removed | (turn.added.keys() & known.keys())
            added = {
                key: (box, NEVER if lives is None else now + lives)
                for key, (box, lives) in turn.added.items()
            }
            known = {key: value for key, value in known.items() if key not in removed} | added
            gone = np.array(sorted(removed), dtype=np.int64)
            new = reread(apply_changes([stored], GRID, GRID.cells, gone, columns(added), purge))
            if isinstance(new, Base):
                stored = Segment(GRID.cells, new, NO_DELTA)
                assert (_expiries(new) >= purge).all()
            else:
                stored = Segment(GRID.cells, stored.base, new)
                size = len(new.index.ids) + len(new.removed) / 2
                assert size <= max(least, 0.125 * len(stored.base.index.ids))
            held = listed(live_queries([stored], GRID))
            fresh = {key: value for key, value in known.items() if value[1] >= purge}
            assert fresh.items() <= held.items() <= known.items()
            for time in (purge, now, now + 5):
                found = found_at(stored, x, y, time)
                assert found == [expected_at(known, *at, time) for at in zip(x, y, strict=True)]


def _expiries(base: Base) -> npt.NDArray[np.int64]:
    return base.index.expires if len(base.index.expires) else np.array([NEVER])


@given(st.dictionaries(st.integers(), boxes_in(GRID), max_size=20).map(
    lambda found: {key % 2**62: (box, NEVER) for key, box in found.items()}
), st.lists(st.integers(-3, 12), max_size=5))  # fmt: skip
def test_a_base_finds_its_queries_by_id(known: Known, others: list[int]) -> None:
    base = Base.build(columns(known), GRID, GRID.cells)
    for asked in (base, reread(base)):
        assert isinstance(asked, Base)
        positions = asked.positions_of(np.array([*known, *others], dtype=np.int64))
        wanted = sorted([*known, *(key for key in others if key in known)])
        assert sorted(asked.index.ids[positions].tolist()) == wanted


def test_a_segment_that_nobody_wrote_holds_nothing() -> None:
    stored = Segment(GRID.cells, NO_BASE, NO_DELTA)
    assert len(live_queries([stored], GRID).ids) == 0
    assert len(live_queries([], GRID).ids) == 0
    assert found_at(stored, *lattice(GRID), 0) == [[]] * 81
    for new in (NO_BASE, NO_DELTA):
        assert listed(reread(new).queries) == {}


# -- many partitions ---------------------------------------------------------------------------


class Told(NamedTuple):
    """An operation on a query; what it does depends on whether the query is there."""

    id: int
    unregister: bool
    corners: tuple[int, int, int, int]
    lives: int | None


class Batch(NamedTuple):
    """A batch of operations on queries, and the time that passes before."""

    told: list[Told]
    passes: int


TOLD = st.builds(
    Told,
    st.integers(0, 3),
    st.booleans(),
    st.tuples(*[st.integers(0, 16)] * 4),
    st.one_of(st.none(), st.integers(1, 8)),
)
BATCHES = st.builds(Batch, st.lists(TOLD, min_size=1, max_size=6), st.integers(0, 9))
CUTS_AND_MERGES = st.builds(Operation, st.sampled_from(["cut", "merge"]), st.integers(0, 2**16))
STEPS = st.lists(st.one_of(BATCHES, CUTS_AND_MERGES, operations), min_size=4, max_size=20)


def of_one_executor(plan: Plan) -> Plan:
    """Return a plan in which all neighbours can be merged."""
    partitions = tuple(Partition(p.id, p.cells, (0,)) for p in plan.partitions)
    return replace(plan, partitions=partitions, executors=1)


TILINGS = tilings(3, 3, executors=2)
PLANS = st.one_of(TILINGS, TILINGS.map(of_one_executor), TILINGS.map(of_one_executor))


class World:
    """A plan, its manifest, its files and its ledger; and a dict that is told the same."""

    def __init__(self, plan: Plan, late: int) -> None:
        self.plan = plan
        self.grid = plan.grid
        self.late = late
        self.now = START
        self.manifest = Manifest.initial(plan.partitions, 1)
        self.files: dict[FileRef, pa.Buffer] = {}
        self.ledger = (Bucket.empty(), Bucket.empty())
        self.known: Known = {}
        self.written = 0

    # -- what happens --------------------------------------------------------------------

    def replan(self, operation: Operation) -> None:
        """Move, split, merge or share partitions."""
        plan, changes = make_changes(self.plan, operation)
        self.apply(plan, *changes)

    def apply(self, plan: Plan, *changes: PlanChange) -> None:
        """Change the plan; its ids are reserved."""
        after = plan.apply(changes)
        self.manifest = self.manifest.for_plan(self.plan.partitions, after.partitions)
        self.plan = after

    def tell(self, batch: Batch) -> None:
        """Register, update and unregister queries, each once."""
        rows: dict[int, tuple[Op, Box, int]] = {}
        self.now += batch.passes
        for id_, unregister, corners, lives in batch.told:
            is_there = id_ in self.known and self.known[id_][1] > self.now
            if id_ in rows or (unregister and not is_there):
                continue
            op = Op.UNREGISTER if unregister else (Op.UPDATE if is_there else Op.REGISTER)
            rows[id_] = (op, self._box(corners), NEVER if lives is None else self.now + lives)
        self.do(rows)

    def _box(self, corners: tuple[int, int, int, int]) -> Box:
        """Return a rectangle that touches the bounds and may reach a cell beyond them."""
        at = np.array(corners) / 16
        x = np.sort(at[:2] * (self.grid.columns + 2) - 1)
        y = np.sort(at[2:] * (self.grid.rows + 2) - 1)
        return (
            min(x[0], self.grid.columns), min(y[0], self.grid.rows), max(x[1], 0), max(y[1], 0)
        )  # fmt: skip

    def do(self, rows: dict[int, tuple[Op, Box, int]]) -> None:
        """Apply operations as a batch does: by id, then by place."""
        purge = self.now - self.late
        op = np.array([row[0] for row in rows.values()], dtype=np.int8)
        queries = columns({key: row[1:] for key, row in rows.items()})
        settled = apply_operations(
            *self.ledger, Operations(op, queries, np.zeros(len(op), np.int64)), self.now, purge
        )
        assert not settled.fault.any()
        self.ledger = (settled.base or self.ledger[0], settled.delta)
        for key, (what, box, expires) in rows.items():
            self.known.pop(key, None)
            if what != Op.UNREGISTER:
                self.known[key] = (box, expires)
        removed_from = settled.removed.cells(self.grid)
        added_to = settled.added.cells(self.grid)
        written = {}
        for p in self.plan.partitions:
            removed = settled.removed.take(removed_from.overlapping(p.cells)).ids
            added = settled.added.take(added_to.overlapping(p.cells))
            if len(removed) or len(added.ids):
                new = apply_changes(self.opened(p.id), self.grid, p.cells, removed, added, purge)
                ref = FileRef(f"{self.written}", len(new.index.ids), 0, 0)
                self.written += 1
                self.files[ref] = new.to_bytes()
                base = self.manifest.partitions[p.id][0].files.base
                pair = SegmentFiles(ref) if isinstance(new, Base) else SegmentFiles(base, ref)
                written[p.id] = SegmentRef(p.cells, pair)
        self.manifest = self.manifest.with_segments(written, {})
        # What the manifest does not name must not be needed.
        self.files = {ref: self.files[ref] for ref in self.manifest.files()}

    # -- what is to be seen --------------------------------------------------------------

    def opened(self, partition_id: int) -> list[Segment]:
        return [
            Segment(
                segment.cells,
                Base.from_bytes(self.files[segment.files.base]) if segment.files.base else NO_BASE,
                Delta.from_bytes(self.files[segment.files.delta])
                if segment.files.delta
                else NO_DELTA,
            )
            for segment in self.manifest.partitions[partition_id]
        ]

    def check(self) -> None:
        """Compare what points meet with what they should, wherever and whenever they are."""
        purge = self.now - self.late
        x, y = lattice(self.grid)
        column, row = self.grid.place_points(x, y)
        for p in self.plan.partitions:
            opened = self.opened(p.id)
            assert sum(segment.cells.area for segment in opened) == p.cells.area
            fresh = {k: v for k, v in self.known.items() if v[1] >= purge}
            placed = columns(fresh).cells(self.grid)
            here = set(columns(fresh).take(placed.overlapping(p.cells)).ids.tolist())
            assert here <= listed(live_queries(opened, self.grid)).keys()
            for segment in opened:
                c = segment.cells
                inside = (column >= c.col_start) & (column < c.col_stop)
                inside &= (row >= c.row_start) & (row < c.row_stop)
                px, py = x[inside], y[inside]
                for time in (purge, self.now, self.now + 4):
                    assert found_at(segment, px, py, time) == [
                        expected_at(self.known, *at, time) for at in zip(px, py, strict=True)
                    ]
                # Too late for a promise of what is found, but never twice.
                for ids in found_at(segment, px, py, 0):
                    assert len(set(ids)) == len(ids)


@part_of_the_examples(0.5)
@given(PLANS, STEPS, st.integers(0, 4), DELTA_LEAST, DELTA_LEAST)
def test_points_meet_the_queries_there_are_however_partitions_change(
    plan: Plan, steps: list[Batch | Operation], late: int, least: int, ledger_least: int
) -> None:
    world = World(plan, late)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segments, "DELTA_LEAST", least)
        patch.setattr(ledger, "DELTA_LEAST", ledger_least)
        for step in steps:
            if isinstance(step, Batch):
                world.tell(step)
            else:
                world.replan(step)
            world.check()


@pytest.mark.parametrize("seed", range(24))
def test_points_meet_the_queries_there_are_through_a_long_history(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(seed)
    monkeypatch.setattr(segments, "DELTA_LEAST", rng.choice([0, 1, 2, 1024]))
    monkeypatch.setattr(ledger, "DELTA_LEAST", rng.choice([0, 1, 1024]))
    world = World(Plan.initial(grid_of(3, 3), rng.choice([1, 1, 2])), late=rng.randrange(5))

    def told() -> Told:
        corners = tuple(rng.randrange(17) for _ in range(4))
        lives = rng.choice([None, rng.randint(1, 8)])
        return Told(rng.randrange(5), rng.random() < 0.5, corners, lives)  # type: ignore[arg-type]

    for _ in range(40):
        if rng.random() < 0.4:
            world.tell(Batch([told() for _ in range(rng.randint(1, 2))], rng.randrange(6)))
        else:
            kind = rng.choice(["cut", "merge", "merge", "carve", "move"])
            world.replan(Operation(kind, rng.randrange(2**16)))
        world.check()


# -- by hand -----------------------------------------------------------------------------------

LEFT, RIGHT = GRID.cells.split_columns(2)
ON_LEFT: Box = (0.5, 0.5, 1.5, 1.5)
ON_RIGHT: Box = (2.5, 0.5, 3.5, 1.5)
ON_BOTH: Box = (1.5, 0.5, 2.5, 1.5)
ELSEWHERE: Box = (0.5, 2.5, 3.5, 3.5)


def whole_world(late: int = 0) -> World:
    return World(Plan.initial(GRID, 1), late)


def split_in_two(world: World) -> None:
    (whole,) = world.plan.partitions
    ids, plan = world.plan.reserve(2)
    shares = whole.shares
    world.apply(plan, split(whole, [(LEFT, shares), (RIGHT, shares)], ids.start))


def merge_again(world: World) -> None:
    (fresh,), plan = world.plan.reserve(1)
    world.apply(plan, merged(world.plan.partitions, GRID.cells, fresh))


def rewrite(world: World) -> None:
    """Register something that all partitions store, so that segments become one base."""
    world.do({99: (Op.REGISTER, ELSEWHERE, NEVER)})
    assert all(len(opened) == 1 for opened in world.manifest.partitions.values())


@pytest.fixture(params=[0, 1024], ids=["a base each time", "deltas"])
def delta_least(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "DELTA_LEAST", request.param)
    monkeypatch.setattr(segments, "DELTA_SHARE", 0.0)


@pytest.mark.parametrize("box", [ON_LEFT, ON_RIGHT, ON_BOTH], ids=["left", "right", "both"])
@pytest.mark.usefixtures("delta_least")
def test_a_query_unregistered_in_a_child_does_not_come_back_with_the_merge(box: Box) -> None:
    world = whole_world()
    world.do({1: (Op.REGISTER, box, NEVER), 2: (Op.REGISTER, ELSEWHERE, NEVER)})
    split_in_two(world)
    world.do({1: (Op.UNREGISTER, box, NEVER)})
    world.check()
    merge_again(world)
    world.check()
    (whole,) = world.plan.partitions
    assert listed(live_queries(world.opened(whole.id), GRID)).keys() == {2}
    rewrite(world)
    world.check()
    assert listed(live_queries(world.opened(whole.id), GRID)).keys() == {2, 99}


@pytest.mark.parametrize(("old", "new"), [(ON_LEFT, ON_RIGHT), (ON_BOTH, ON_LEFT)])
@pytest.mark.usefixtures("delta_least")
def test_a_query_that_went_to_another_child_is_there_once_after_the_merge(
    old: Box, new: Box
) -> None:
    world = whole_world()
    world.do({1: (Op.REGISTER, old, NEVER)})
    split_in_two(world)
    world.do({1: (Op.UPDATE, new, NEVER)})
    world.check()
    merge_again(world)
    world.check()
    rewrite(world)
    world.check()
    (whole,) = world.plan.partitions
    assert listed(live_queries(world.opened(whole.id), GRID))[1] == (new, NEVER)


@pytest.mark.usefixtures("delta_least")
def test_a_query_of_both_children_is_there_once_after_the_merge() -> None:
    world = whole_world()
    split_in_two(world)
    world.do({1: (Op.REGISTER, ON_BOTH, NEVER)})
    merge_again(world)
    world.check()
    (whole,) = world.plan.partitions
    assert listed(live_queries(world.opened(whole.id), GRID)) == {1: (ON_BOTH, NEVER)}
    rewrite(world)
    world.check()


BOXES = {"left": ON_LEFT, "right": ON_RIGHT, "both": ON_BOTH}


@pytest.mark.parametrize("old", BOXES)
@pytest.mark.parametrize("new", BOXES)
@pytest.mark.parametrize("other", ["left", "right"])
@pytest.mark.parametrize("is_based", [False, True], ids=["in a delta", "in a base"])
def test_an_id_that_was_purged_and_is_used_again_is_there_once_and_survives_a_merge(
    old: str, new: str, other: str, is_based: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "DELTA_LEAST", 0)
    monkeypatch.setattr(segments, "DELTA_LEAST", 0 if is_based else 1024)
    world = whole_world(late=5)
    split_in_two(world)
    world.do({1: (Op.REGISTER, BOXES[old], world.now + 1)})
    monkeypatch.setattr(segments, "DELTA_LEAST", 1024)
    world.now += 100
    # The ledger forgets the query; partitions that nothing happens to still have it.
    world.do({2: (Op.REGISTER, BOXES[other], NEVER)})
    world.do({1: (Op.REGISTER, BOXES[new], NEVER)})
    world.check()
    merge_again(world)
    world.check()
    rewrite(world)
    world.check()
    (whole,) = world.plan.partitions
    assert listed(live_queries(world.opened(whole.id), GRID))[1] == (BOXES[new], NEVER)
    world.do({1: (Op.UNREGISTER, BOXES[new], NEVER)})
    world.check()


def test_a_move_and_a_split_write_nothing() -> None:
    world = whole_world()
    world.do({1: (Op.REGISTER, ON_BOTH, NEVER)})
    files = dict(world.files)
    world.plan = Plan(0, GRID, 2, world.plan.partitions, world.plan.next_id)
    (fresh,), plan = world.plan.reserve(1)
    world.apply(plan, moved(world.plan.partitions[0], 0, 1, fresh))
    split_in_two(world)
    assert world.manifest.files() == files.keys()
    world.check()


@given(boxes_in(GRID), st.sampled_from([LEFT, RIGHT, CellRect(1, 1, 2, 2)]))
@example((0.0, 0.0, 1.0, 1.0), CellRect(1, 1, 2, 2))
def test_only_queries_that_overlap_a_segment_serve_it(box: Box, cells: CellRect) -> None:
    base = Base.build(columns({1: (box, NEVER)}), GRID, GRID.cells)
    serves = bool(len(Segment(cells, base, NO_DELTA).live_queries(GRID).ids))
    x, y = lattice(GRID)
    column, row = GRID.place_points(x, y)
    touches = columns({1: (box, NEVER)}).cells(GRID).rect(0).overlaps(cells)
    assert serves == touches
    inside = [
        i
        for i, (c, r) in enumerate(zip(column.tolist(), row.tolist(), strict=True))
        if cells.contains(CellRect(c, r, c + 1, r + 1))
    ]
    found = found_at(Segment(cells, base, NO_DELTA), x[inside], y[inside], 0)
    assert serves or found == [[]] * len(inside)


# -- the cache -----------------------------------------------------------------------------------


class CountedFiles(Files):
    """Files that count how often each is mapped."""

    def mmap(self, ref: FileRef) -> pa.Buffer:
        MAPPED.append(ref.name)
        return super().mmap(ref)


MAPPED: list[str] = []


def stored_segment(files: Files, name: str, known: Known, removed: list[int]) -> SegmentRef:
    """Write a base and, where something is removed, a delta that removes it and adds 99."""
    base = Base.build(columns(known), GRID, GRID.cells)
    pair = SegmentFiles(files.write(f"{name}-base", base.to_bytes(), len(known)))
    if removed:
        segment = Segment(GRID.cells, base, NO_DELTA)
        added = columns({99: (ON_LEFT, NEVER)})
        delta = apply_changes([segment], GRID, GRID.cells, np.array(removed), added, 0)
        pair = replace(pair, delta=files.write(f"{name}-delta", delta.to_bytes(), 1))
    return SegmentRef(GRID.cells, pair)


def test_a_cache_maps_and_builds_every_file_once(tmp_path) -> None:
    files = CountedFiles(str(tmp_path))
    known = {1: (ON_LEFT, NEVER), 2: (ON_RIGHT, NEVER)}
    ref = stored_segment(files, "a", known, removed=[2])
    left, right = (SegmentRef(cells, ref.files) for cells in GRID.cells.split_columns(2))
    cache = SegmentCache(files)
    made: list[list[int]] = []

    def build(queries: Queries) -> int:
        made.append(sorted(queries.ids.tolist()))
        return len(made)

    MAPPED.clear()
    for one in (left, right, left):
        assert cache.open(one).cells == one.cells
        assert cache.removed(one).sum() == 1
        assert cache.built(one, build) == (1, 2)
    assert listed(live_queries([cache.open(left)], GRID)).keys() == {1, 99}
    assert sorted(MAPPED) == ["a-base", "a-delta"]
    assert made == [[1, 2], [99]]
    assert cache.removed(left) is cache.removed(right)


def test_a_cache_keeps_what_the_manifest_names(tmp_path) -> None:
    files = CountedFiles(str(tmp_path))
    first, second = (
        stored_segment(files, name, {1: (ON_LEFT, NEVER)}, removed=[1]) for name in "ab"
    )
    cache = SegmentCache(files)
    built: list[Queries] = []
    for ref in (first, second):
        cache.open(ref)
        cache.built(ref, built.append)
        cache.removed(ref)
    MAPPED.clear()
    cache.retain({second.files.base, second.files.delta})
    cache.open(second)
    cache.removed(second)
    assert MAPPED == []
    cache.open(first)
    cache.removed(first)
    assert sorted(MAPPED) == ["a-base", "a-delta"]
    count = len(built)
    cache.drop_built()
    cache.built(second, built.append)
    assert len(built) == count + 2


def test_a_segment_without_files_is_empty(tmp_path) -> None:
    cache = SegmentCache(Files(str(tmp_path)))
    ref = SegmentRef(GRID.cells, SegmentFiles())
    assert len(cache.open(ref).live_queries(GRID).ids) == 0
    assert len(cache.removed(ref)) == 0
    assert cache.built(ref, lambda queries: 1) == (None, None)
