"""What tasks are given: names instead of plan and manifest, and the same input at the other end."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from sparkswarm.protocol.partition import moved
from sparkswarm.spark.task_input import TaskInput, packed_input, unpacked_input
from sparkswarm.store import records
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
