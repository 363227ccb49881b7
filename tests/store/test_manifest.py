"""The manifest: files follow the cells they serve, whatever becomes of partitions."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkswarm.errors import StoreError
from sparkswarm.geometry import CellRect
from sparkswarm.protocol.partition import Partition
from sparkswarm.protocol.plan import Plan
from sparkswarm.store.files import FileRef
from sparkswarm.store.manifest import (
    PART_BLOCKS,
    BaseGroup,
    DeltaParts,
    DeltaRef,
    Manifest,
    ObjectsRef,
    SegmentRef,
    StateRef,
)

from ..support.strategies import (
    Operation,
    grid_of,
    make_changes,
    operations,
    part_of_the_examples,
    tilings,
)

NAME_CHARACTERS = st.characters(exclude_categories=["Cs"])
REFS = st.text(NAME_CHARACTERS, min_size=1, max_size=8).map(
    lambda name: FileRef(name, len(name), 2**50 + len(name), zlib.crc32(name.encode()))
)
Files = tuple[FileRef | None, FileRef | None]
PAIRS = st.tuples(st.none() | REFS, st.none() | REFS)
"""A base, and a delta of its own as in format 2."""

NUMBERS = st.integers(-(2**63), 2**63 - 1)
OBJECTS = st.builds(
    ObjectsRef, file=REFS, offset=NUMBERS, rows=NUMBERS, oldest=NUMBERS, until=NUMBERS
)


PARTS = st.builds(
    lambda shared, changed, files, seed: DeltaParts(
        shared=shared,
        changed=changed,
        files=tuple(files),
        part_of=bytes(
            np.random.default_rng(seed).integers(0, len(files), PART_BLOCKS**2, np.uint8)
        ),
    ),
    *(REFS, REFS, st.lists(REFS, min_size=1, max_size=3), st.integers(0, 9)),
)
DELTAS = st.builds(DeltaRef, st.integers(-1, 2**40), REFS, st.none() | PARTS)


@st.composite
def stored(draw: st.DrawFn) -> tuple[Plan, Manifest]:
    """A plan and files for it: some partitions have their own, some share, some have none."""
    plan = draw(tilings(5, 5))
    some = draw(st.lists(PAIRS, min_size=1, max_size=4))
    segments = {p.id: (SegmentRef(p.cells, *draw(st.sampled_from(some))),) for p in plan.partitions}
    states = {
        p.id: (StateRef(cells=p.cells, file=draw(REFS), offset=1, due=None, batch=7),)
        for p in plan.partitions[:2]
    }
    groups = st.builds(BaseGroup, REFS, st.lists(REFS, max_size=3).map(tuple))
    return plan, Manifest(
        draw(st.integers(0, 2**40)),
        segments,
        tuple(draw(st.lists(groups, max_size=3))),
        tuple(draw(st.lists(DELTAS, max_size=3))),
        draw(st.none() | REFS),
        states,
        objects=draw(st.dictionaries(st.integers(0, 63), OBJECTS, max_size=3)),
    )


def files_of(segment: SegmentRef) -> Files:
    return segment.base, segment.own_delta


def served(plan: Plan, manifest: Manifest) -> dict[tuple[int, int], Files]:
    """Return the files of every cell; segments must tile their partitions."""
    files: dict[tuple[int, int], Files] = {}
    assert manifest.partitions.keys() == {p.id for p in plan.partitions}
    for p in plan.partitions:
        covered = np.zeros((plan.grid.rows, plan.grid.columns), dtype=int)
        for segment in manifest.partitions[p.id]:
            assert p.cells.contains(segment.cells)
            assert segment.cells.area > 0
            covered[segment.cells.slices] += 1
            for row in range(segment.cells.row_start, segment.cells.row_stop):
                for column in range(segment.cells.col_start, segment.cells.col_stop):
                    files[column, row] = files_of(segment)
        assert (covered[p.cells.slices] == 1).all(), "segments overlap, or leave cells out"
    assert len(files) == plan.grid.cells.area
    return files


def stepped(plan: Plan, manifest: Manifest, operation: Operation) -> tuple[Plan, Manifest]:
    reserved, changes = make_changes(plan, operation)
    after = reserved.apply(changes)
    return after, manifest.for_plan(plan.partitions, after.partitions)


@part_of_the_examples(0.5)
@given(stored(), st.lists(operations, max_size=8))
def test_every_cell_keeps_its_files_through_any_changes(
    start: tuple[Plan, Manifest], steps: list[Operation]
) -> None:
    plan, manifest = start
    files = served(plan, manifest)
    for step in steps:
        version = manifest.version
        plan, manifest = stepped(plan, manifest, step)
        assert served(plan, manifest) == files
        assert manifest.version == version + 1
        for name in ("bases", "deltas", "prices"):
            assert getattr(manifest, name) == getattr(start[1], name)


@part_of_the_examples(0.5)
@given(stored(), tilings(5, 5))
def test_every_cell_keeps_its_files_when_all_partitions_change_at_once(
    start: tuple[Plan, Manifest], other: Plan
) -> None:
    plan, manifest = start
    cells = plan.grid.cells
    clipped = [p.cells.intersection(cells) for p in other.partitions]
    # The other tiling, cut or filled up to the size of this one.
    rects = [rect for rect in clipped if rect.area]
    width, height = other.grid.columns, other.grid.rows
    rects += [CellRect(width, 0, cells.col_stop, cells.row_stop)] * (width < cells.col_stop)
    right = min(width, cells.col_stop)
    rects += [CellRect(0, height, right, cells.row_stop)] * (height < cells.row_stop)
    new = tuple(Partition(plan.next_id + i, rect, (0,)) for i, rect in enumerate(rects))
    after = Plan(1, plan.grid, plan.executors, new, plan.next_id + len(new))
    after.check()
    assert served(after, manifest.for_plan(plan.partitions, new)) == served(plan, manifest)


@given(stored(), operations)
def test_partitions_that_stay_keep_their_segments(
    start: tuple[Plan, Manifest], step: Operation
) -> None:
    plan, manifest = start
    after, followed = stepped(plan, manifest, step)
    for key in {p.id for p in plan.partitions} & {p.id for p in after.partitions}:
        assert followed.partitions[key] == manifest.partitions[key]
    assert manifest.for_plan(plan.partitions, plan.partitions).partitions == manifest.partitions


@part_of_the_examples(0.5)
@given(stored(), st.lists(operations, max_size=8))
def test_a_partition_whose_cells_all_have_the_same_files_is_one_segment(
    start: tuple[Plan, Manifest], steps: list[Operation]
) -> None:
    plan, manifest = start
    for step in steps:
        plan, manifest = stepped(plan, manifest, step)
        for p in plan.partitions:
            segments = manifest.partitions[p.id]
            if len(set(map(files_of, segments))) == 1:
                assert segments == (SegmentRef(p.cells, *files_of(segments[0])),)


@part_of_the_examples(0.5)
@given(stored(), st.lists(operations, max_size=5))
def test_changes_of_partitions_name_no_file_that_was_not_named_before(
    start: tuple[Plan, Manifest], steps: list[Operation]
) -> None:
    plan, manifest = start
    for step in steps:
        plan, manifest = stepped(plan, manifest, step)
    assert manifest.files() == start[1].files()
    assert manifest.file_names() == {ref.name for ref in manifest.files()}


def test_a_partition_split_and_merged_again_is_one_segment_as_before() -> None:
    base, other = FileRef("base", 1, 2, 3), FileRef("other", 1, 2, 3)
    cells = grid_of(4, 4).cells
    left, right = cells.split_columns(1)
    whole, again = Partition(0, cells, (0,)), Partition(3, cells, (0,))
    halves = (Partition(1, left, (0,)), Partition(2, right, (0,)))
    manifest = Manifest(5, {0: (SegmentRef(cells, base),)})
    split = manifest.for_plan((whole,), iter(halves))
    assert split.partitions == {1: (SegmentRef(left, base),), 2: (SegmentRef(right, base),)}
    merged = split.for_plan(iter(halves), (again,))
    assert merged == Manifest(7, {3: (SegmentRef(cells, base),)})
    changed = replace(split, partitions={**split.partitions, 1: (SegmentRef(left, other),)})
    assert changed.for_plan(halves, (again,)).partitions == {
        3: (SegmentRef(left, other), SegmentRef(right, base))
    }


def test_state_follows_the_cells_of_its_partition() -> None:
    cells = grid_of(4, 4).cells
    left, right = cells.split_columns(1)
    state = StateRef(cells=cells, file=FileRef("state", 1, 2, 3), offset=0, due=5, batch=2)
    manifest = Manifest(0, {0: (SegmentRef(cells),)}, states={0: (state,)})
    halves = (Partition(1, left, (0,)), Partition(2, right, (0,)))
    split = manifest.for_plan([Partition(0, cells, (0,))], halves)
    assert split.states == {1: (replace(state, cells=left),), 2: (replace(state, cells=right),)}


def test_a_run_begins_without_files() -> None:
    plan = Plan.initial(grid_of(4, 4), 3)
    manifest = Manifest.initial(plan.partitions)
    assert manifest.version == 0
    assert manifest.files() == set()
    assert set(served(plan, manifest).values()) == {(None, None)}
    assert not manifest.is_of_format_2


@given(stored(), REFS)
def test_a_delta_takes_the_place_of_those_it_was_merged_with(
    start: tuple[Plan, Manifest], file: FileRef
) -> None:
    manifest = start[1]
    for merged in range(len(manifest.deltas) + 1):
        updated = manifest.with_delta(DeltaRef(9, file), merged)
        kept = manifest.deltas[: len(manifest.deltas) - merged]
        assert updated.deltas == (*kept, DeltaRef(9, file))
        assert updated == replace(manifest, version=manifest.version + 1, deltas=updated.deltas)


@given(stored(), REFS)
def test_new_bases_take_the_place_of_all_queries(
    start: tuple[Plan, Manifest], file: FileRef
) -> None:
    plan, manifest = start
    group = BaseGroup(FileRef("directory", 1, 1, 1), (FileRef("a", 1, 1, 1), FileRef("b", 1, 1, 1)))
    segments = {p.id: (SegmentRef(p.cells, group.bases[0]),) for p in plan.partitions}
    updated = manifest.with_bases(segments, [group], file, {plan.partitions[0].id: ()})
    assert set(served(plan, updated).values()) == {(group.bases[0], None)}
    assert (updated.bases, updated.deltas, updated.prices) == ((group,), (), file)
    assert updated.base_numbers() == {group.bases[0]: 0, group.bases[1]: 1}
    assert updated.states.keys() == manifest.states.keys() - {plan.partitions[0].id}
    assert not updated.is_of_format_2


def test_a_manifest_of_format_2_is_read() -> None:
    data = {
        "version": 7,
        "files": [["a", 4, 5, 6], ["b", 1, 2, 3]],
        "partitions": {"3": [[[0, 0, 1, 2], 1, 0]], "4": [[[0, 0, 1, 2], None, 0]]},
        "ledger": [[None, None], [0, 1]],
        "states": {"3": [[[0, 0, 1, 2], 0, 64, None]]},
        "blocks": {},
    }
    manifest, a, b = Manifest.from_json(data), FileRef("a", 4, 5, 6), FileRef("b", 1, 2, 3)
    assert manifest.is_of_format_2
    assert [files_of(*segments) for segments in manifest.partitions.values()] == [(b, a), (None, a)]
    assert manifest.states[3][0].batch < 0
    assert Manifest.from_json(manifest.to_json()) == manifest


# -- JSON --------------------------------------------------------------------------------------


@part_of_the_examples(0.5)
@given(stored(), st.lists(operations, max_size=5))
def test_a_manifest_survives_json(start: tuple[Plan, Manifest], steps: list[Operation]) -> None:
    plan, manifest = start
    for step in steps:
        plan, manifest = stepped(plan, manifest, step)
    again = Manifest.from_json(json.loads(json.dumps(manifest.to_json())))
    assert again == manifest
    assert again.to_json() == manifest.to_json()
    assert all(
        type(segment.cells) is CellRect
        for segments in again.partitions.values()
        for segment in segments
    )


A, B = FileRef("a", 4, 5, 6), FileRef("b", 1, 2, 3)


def small_manifest() -> Manifest:
    cells = CellRect(0, 0, 1, 2)
    segment = SegmentRef(cells, B)
    return Manifest(7, {3: (segment,), 4: (segment,)}, (BaseGroup(A, (B,)),), (DeltaRef(5, A),), B)


def test_files_are_listed_once_in_json() -> None:
    assert small_manifest().to_json() == {
        "version": 7,
        "files": [["a", 4, 5, 6], ["b", 1, 2, 3]],
        "partitions": {"3": [[[0, 0, 1, 2], 1]], "4": [[[0, 0, 1, 2], 1]]},
        "bases": [[0, [1]]],
        "deltas": [[5, 0]],
        "prices": 1,
        "states": {},
        "blocks": {},
        "objects": {},
        "renumbered": {},
    }


def _set(*path: Any, to: Any) -> Callable[[Any], None]:
    def damage(data: Any) -> None:
        for key in path[:-1]:
            data = data[key]
        data[path[-1]] = to

    return damage


DAMAGE: dict[str, Callable[[Any], None]] = {
    **{f"no {key}": lambda data, key=key: data.pop(key)
       for key in ("version", "files", "partitions", "states")},
    **{f"{key} is {value!r}": _set(key, to=value)
       for key in ("version", "files", "partitions", "bases", "deltas", "states")
       for value in (None, "x", 1.5, float("inf"), [None], [[1]], {"x": 1})},
    "a file without a checksum": _set("files", 0, to=["a", 1, 2]),
    "a file with too much": _set("files", 0, to=["a", 1, 2, 3, 4]),
    "a file whose name is a number": _set("files", 0, 0, to=7),
    "a file whose size is a fraction": _set("files", 0, 2, to=1.5),
    "a file whose checksum is text": _set("files", 0, 3, to="3"),
    "a partition whose id is no number": _set("partitions", "x", to=[]),
    "a partition of nothing": _set("partitions", "3", to=None),
    "a segment without cells": _set("partitions", "3", 0, to=[]),
    "a segment with three files": _set("partitions", "3", 0, to=[[0, 0, 1, 2], 0, 1, 1]),
    "cells with three edges": _set("partitions", "3", 0, 0, to=[0, 0, 1]),
    "cells of text": _set("partitions", "3", 0, 0, to=["0", "0", "1", "2"]),
    "cells with a fraction": _set("partitions", "3", 0, 0, to=[0, 0, 1, 1.5]),
    "a file that is not listed": _set("partitions", "3", 0, 1, to=2),
    "a file counted from the end": _set("partitions", "3", 0, 1, to=-1),
    "a file by name": _set("deltas", 0, 1, to="a"),
    "a delta without a batch": _set("deltas", 0, to=[0]),
    "a group of bases without a directory": _set("bases", 0, 0, to=None),
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_what_is_not_a_manifest_is_refused(damage: Callable[[Any], None]) -> None:
    data = small_manifest().to_json()
    assert Manifest.from_json(data).version == 7
    damage(data)
    with pytest.raises(StoreError, match="this is not a manifest"):
        Manifest.from_json(data)


@pytest.mark.parametrize("data", [None, [], "text", 3, {}])
def test_what_is_nothing_like_a_manifest_is_refused(data: Any) -> None:
    with pytest.raises(StoreError, match="this is not a manifest"):
        Manifest.from_json(data)
