"""Slots of cells: shared by the processes of a host, and nobody sees what another changes."""

import errno
import os
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkswarm import SwarmConfig
from sparkswarm.protocol.global_index import GlobalIndex
from sparkswarm.protocol.partition import moved
from sparkswarm.protocol.plan import Plan
from sparkswarm.store import slots
from sparkswarm.store.copies import CACHE_VARIABLE
from sparkswarm.store.slots import mapped_slots

POINTS = np.random.default_rng(0).random((2, 500))


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setattr(slots, "LEAST_CELLS", 1)
    return tmp_path / "cache" / "slots"


def plan_of(partitions, columns=40, rows=30):
    config = SwarmConfig(bounds=(0, 0, 1, 1), grid=(columns, rows), executors=3)
    return Plan.initial(config.make_grid(), partitions)


def with_a_move(plan):
    ids, plan = plan.reserve(1)
    return plan.apply([moved(plan.partitions[0], 0, 1, ids[0])])


def routed(index):
    return index.route(*POINTS).partition.tolist()


def test_a_small_grid_has_no_file(tmp_path, monkeypatch):
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    assert mapped_slots(plan_of(3)) is None
    assert not (tmp_path / "cache").exists()


@settings(max_examples=25)
@given(st.integers(1, 40), st.integers(1, 30), st.integers(1, 9))
def test_an_index_of_mapped_cells_is_that_of_the_plan(columns, rows, partitions):
    with pytest.MonkeyPatch.context() as patch, TemporaryDirectory() as folder:
        patch.setenv(CACHE_VARIABLE, folder)
        patch.setattr(slots, "LEAST_CELLS", 1)
        plan = plan_of(min(partitions, columns * rows), columns, rows)
        for _ in range(2):
            index = GlobalIndex(plan, mapped_slots(plan))
            index.check_tiling()
            assert routed(index) == routed(GlobalIndex(plan))


def test_processes_share_a_file_and_see_no_changes_of_others(cache):
    plan = plan_of(3)
    first = GlobalIndex(plan, mapped_slots(plan))
    (file,) = cache.iterdir()
    written = file.stat().st_ino
    second = GlobalIndex(plan, mapped_slots(plan))
    assert [one.stat().st_ino for one in cache.iterdir()] == [written]
    later = with_a_move(plan)
    first.follow(later)
    assert routed(first) == routed(GlobalIndex(later)) != routed(GlobalIndex(plan))
    assert routed(second) == routed(GlobalIndex(plan))
    assert routed(GlobalIndex(plan, mapped_slots(plan))) == routed(GlobalIndex(plan))


def test_plans_with_other_cells_have_other_files(cache):
    for partitions in (2, 3):
        plan = plan_of(partitions)
        assert routed(GlobalIndex(plan, mapped_slots(plan))) == routed(GlobalIndex(plan))
    assert len(list(cache.iterdir())) == 2


def test_files_that_nobody_opens_are_deleted_when_another_is_written(cache):
    old, other = plan_of(2), plan_of(3)
    mapped = mapped_slots(old)
    (file,) = cache.iterdir()
    os.utime(file, (0, 0))
    (cache / ".left-by-a-crash").touch()
    os.utime(cache / ".left-by-a-crash", (0, 0))
    mapped_slots(other)
    assert len(list(cache.iterdir())) == 1
    assert routed(GlobalIndex(old, mapped)) == routed(GlobalIndex(old))


def test_without_room_for_the_file_the_cells_are_in_memory(cache, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    assert mapped_slots(plan_of(3)) is None
    assert list(cache.iterdir()) == []
