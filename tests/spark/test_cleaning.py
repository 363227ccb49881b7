"""What a run leaves is bounded: rejected rows, and what crashes left half-written."""

import os

import pytest

from sparkswarm import SwarmConfig
from sparkswarm.errors import TakenOverError
from sparkswarm.protocol.plan import Plan
from sparkswarm.spark.driver.cleaning import CLEAN_EVERY, clean_after, clean_at_start
from sparkswarm.store.epochs import INITIAL, Commit, Epochs
from sparkswarm.store.files import Files
from sparkswarm.store.manifest import Manifest
from sparkswarm.store.quarantine import folder_of

from ..support.strategies import grid_of

PLAN = Plan.initial(grid_of(4, 4), 2)


@pytest.fixture
def checkpoint(tmp_path):
    files = Files(str(tmp_path))
    epochs = Epochs(files, 3)
    epochs.take_over()
    epochs.commit(Commit(batch=INITIAL, plan=PLAN, manifest=Manifest.initial(PLAN.partitions)))
    return epochs, files


@pytest.mark.parametrize(("kept", "left"), [(7, 7), (0, 20), (100, 20)])
def test_rejected_rows_of_the_last_batches_are_kept(checkpoint, kept, left):
    epochs, files = checkpoint
    config = SwarmConfig(quarantine_batches=kept)
    for batch in range(20):
        files.write(f"{folder_of(batch)}/match-0-a.parquet", b"")
    files.write("quarantine/of the user/x", b"")
    clean_after(20, epochs, files, config, set())
    names = files.folders("quarantine")
    assert names == sorted(
        [*(folder_of(b) for b in range(20 - left, 20)), "quarantine/of the user"]
    )
    clean_after(21, epochs, files, SwarmConfig(quarantine_batches=1), set())
    assert files.folders("quarantine") == names, f"cleaned every {CLEAN_EVERY} batches"


def test_what_a_crash_left_half_written_is_deleted_when_the_next_driver_starts(
    checkpoint, tmp_path
):
    epochs, files = checkpoint
    (tmp_path / "segments").mkdir()
    (tmp_path / "segments" / ".x.arrow.0123").write_bytes(b"hal")
    clean_at_start(epochs, files, SwarmConfig())
    assert len(os.listdir(tmp_path / "segments")) == 1, "another may be writing it"
    clean_at_start(epochs, files, SwarmConfig(unfinished_file_seconds=0))
    assert os.listdir(tmp_path / "segments") == []


def test_a_driver_that_was_replaced_cleans_nothing(checkpoint):
    epochs, files = checkpoint
    files.write(f"{folder_of(0)}/match-0-a.parquet", b"")
    files.write("soft/000000000001-a", b"")
    Epochs(files, 3).take_over()
    with pytest.raises(TakenOverError):
        clean_after(20, epochs, files, SwarmConfig(quarantine_batches=1), set())
    assert files.folders("quarantine")
    assert files.list("soft")
