"""What tasks are given: names instead of plan and manifest, and the same input at the other end."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from sparkswarm.errors import StoreError
from sparkswarm.protocol.partition import moved
from sparkswarm.spark.task_input import TaskInput, packed_input, unpacked_input
from sparkswarm.store import awaited, records
from sparkswarm.store.awaited import announcement, awaited_name
from sparkswarm.store.epochs import Epochs
from sparkswarm.store.records import RecordFiles

from ...support.tasks import Tasks, register


class Worker:
    """A Python worker, which knows what it has read."""

    def __init__(self, tasks: Tasks) -> None:
        self._records = RecordFiles(tasks.input.files)

    def open(self, packed: bytes) -> TaskInput:
        return unpacked_input(packed, lambda files: self._records)


def move(tasks: Tasks) -> None:
    """Move a partition before the next batch."""
    ids, plan = tasks.plan.reserve(1)
    partition = plan.partitions[0]
    giver = partition.owners[0]
    tasks.use_plan(plan.apply([moved(partition, giver, 1 - giver, ids[0])]))


@pytest.mark.parametrize("differences_from", [0, 1_000])
def test_a_task_is_given_names_and_finds_plan_and_manifest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, differences_from: int
) -> None:
    monkeypatch.setattr(records, "DIFFERENCES_FROM", differences_from)
    tasks = Tasks(tmp_path)
    epochs, worker = Epochs(tasks.input.files, 3), Worker(tasks)
    epochs.take_over()
    for batch in range(5):
        if batch % 2:
            move(tasks)
        tasks.input = replace(tasks.input, epoch=epochs.begin(tasks.input.epoch))
        before = tasks.input
        if batch == 3:
            tasks.compact()
        else:
            tasks.apply(register(batch, 1, 1, 6, 6))
        for given in (before, tasks.input):
            for reader in (worker, Worker(tasks)):
                assert reader.open(packed_input(given)) == given
        assert len(packed_input(before)) == pytest.approx(len(packed_input(tasks.input)), abs=400)
        tasks.commit()


def test_an_input_that_is_not_stored_is_given_whole(tmp_path: Path) -> None:
    tasks = Tasks(tmp_path)
    assert Worker(tasks).open(packed_input(tasks.input)) == tasks.input


def test_a_task_waits_for_the_operations_of_its_batch(tmp_path: Path) -> None:
    """It may run before the driver has applied them, and another task after."""
    tasks = Tasks(tmp_path)
    epochs = Epochs(tasks.input.files, 3)
    epochs.take_over()
    before = replace(tasks.input, epoch=epochs.begin(tasks.input.epoch))
    name = awaited_name(before.epoch.batch, before.attempt)
    packed = packed_input(replace(before, awaited=name))
    with ThreadPoolExecutor(1) as pool:
        early = pool.submit(Worker(tasks).open, packed)
        tasks.input = before
        tasks.apply(register(1, 1, 1, 6, 6))
        with announcement(before.files, name) as difference:
            assert not early.done()
            manifest = tasks.input.epoch.manifest
            difference |= manifest.difference(before.epoch.manifest)
        for opened in (early.result(), Worker(tasks).open(packed)):
            assert opened.epoch.manifest == manifest


def test_a_task_does_not_wait_for_operations_that_failed(tmp_path: Path) -> None:
    tasks = Tasks(tmp_path)
    name = awaited_name(0, "a")
    with pytest.raises(ValueError, match="full"), announcement(tasks.input.files, name):
        raise ValueError("the disk is full")
    with pytest.raises(StoreError, match="not applied"):
        Worker(tasks).open(packed_input(replace(tasks.input, awaited=name)))


def test_a_task_waits_no_longer_than_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(awaited, "LONGEST_WAIT_S", 0.0)
    tasks = Tasks(tmp_path)
    with pytest.raises(StoreError, match="has not applied"):
        Worker(tasks).open(packed_input(replace(tasks.input, awaited=awaited_name(0, "a"))))
