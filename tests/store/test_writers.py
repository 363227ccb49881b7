"""Two drivers on one checkpoint: one goes on, whenever the other is stopped and goes on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs

from sparkswarm.errors import StoreError, TakenOverError
from sparkswarm.protocol.plan import Plan
from sparkswarm.store.epochs import INITIAL, Commit, Epoch, Epochs
from sparkswarm.store.files import Content, FileRef, Files, Folder
from sparkswarm.store.manifest import DeltaRef, Manifest
from sparkswarm.store.writers import NumberedRecords, Writer

from ..support.strategies import grid_of

PLAN = Plan.initial(grid_of(4, 4), 2)


class Elsewhere(Files):
    """Files that are remote as far as the code can tell."""

    @cached_property
    def _remote(self) -> tuple[fs.FileSystem, str]:
        folder = self.root.removeprefix("elsewhere://")
        return fs.SubTreeFileSystem(folder, fs.LocalFileSystem()), "here"


@pytest.fixture(params=["local", "remote"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Files:
    if request.param == "local":
        return Files(str(tmp_path))
    return Elsewhere(f"elsewhere://{tmp_path}", str(tmp_path / "cache"))


def at_once(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


# -- creating ----------------------------------------------------------------------------------


def test_a_file_is_created_once(files: Files) -> None:
    assert files.create("a/b", b"first")
    assert not files.create("a/b", b"second")
    assert files.read("a/b") == b"first"
    files.write("a/c", b"written")
    assert not files.create("a/c", b"created")
    assert files.list("a") == ["a/b", "a/c"]


def test_of_several_that_create_a_file_at_once_one_succeeds(tmp_path: Path) -> None:
    files = Files(str(tmp_path))
    for turn in range(20):
        start, made = threading.Barrier(6), []

        def create(number: int, name: str, made: list[int], start: threading.Barrier) -> None:
            start.wait()
            if files.create(name, b"%d" % number * 1000):
                made.append(number)

        given = f"a/{turn}", made, start
        at_once([threading.Thread(target=create, args=(n, *given)) for n in range(6)])
        assert len(made) == 1
        assert files.read(f"a/{turn}") == b"%d" % made[0] * 1000
    assert len(list((tmp_path / "a").iterdir())) == 20, "nothing half-written is left"


def test_a_store_is_created_in_by_what_the_driver_was_given(tmp_path: Path) -> None:
    def creator(uri: str, content: bytes) -> None:
        path = Path(uri.removeprefix("elsewhere://"))
        path = path.with_name("here") / path.name
        if not path.exists():
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(content)

    files = Elsewhere(f"elsewhere://{tmp_path}/", creator=creator)
    assert files.create("a", b"one")
    assert not files.create("a", b"two")
    assert files.read("a") == b"one"


# -- taking over -------------------------------------------------------------------------------


def test_the_last_that_took_over_writes(files: Files) -> None:
    writers = [Writer.take_over(files) for _ in range(3)]
    assert [writer.number for writer in writers] == [1, 2, 3]
    for writer in writers[:2]:
        with pytest.raises(TakenOverError, match=r"another driver, process \d+ on .* Nothing is l"):
            writer.check()
        with pytest.raises(TakenOverError):
            writer.delete(["a"])
    writers[2].check()
    assert len(files.list(Folder.WRITERS)) == 1


def test_many_that_take_over_at_once_get_numbers_of_their_own(tmp_path: Path) -> None:
    files, taken, start = Files(str(tmp_path)), [], threading.Barrier(8)

    def take_over() -> None:
        start.wait()
        taken.append(Writer.take_over(files))

    at_once([threading.Thread(target=take_over) for _ in range(8)])
    numbers = [writer.number for writer in taken]
    assert len(set(numbers)) == 8
    max(taken, key=lambda writer: writer.number).check()
    with pytest.raises(TakenOverError):
        min(taken, key=lambda writer: writer.number).check()


def test_a_record_is_written_once_and_not_after_it_was_closed(files: Files) -> None:
    records = NumberedRecords(files, Folder.COMMITS)
    first = Writer.take_over(files)
    assert records.create(0, {"by": 1}, first)
    assert not records.create(0, {"by": 1, "again": True}, first)
    second = Writer.take_over(files)
    records.close(0, second)
    records.close(1, second)
    assert records.read(0) == {"by": 1}
    assert records.read(1) is None
    # The first writer looked before it was replaced, and creates now.
    assert not files.create(records.name(1), b"late")
    third = Writer.take_over(files)
    records.close(1, third)
    with pytest.raises(TakenOverError):
        records.create(1, {"by": 2}, second)
    assert records.create(1, {"by": 3}, third)
    assert records.read(1) == {"by": 3}
    assert records.numbers() == [0, 1]


def test_who_has_not_taken_over_writes_nothing(files: Files) -> None:
    manifest = Manifest.initial(PLAN.partitions)
    with pytest.raises(StoreError, match="open for reading only"):
        Epochs(files, 3).commit(Commit(batch=INITIAL, plan=PLAN, manifest=manifest))


# -- whenever the older one is stopped ---------------------------------------------------------


class SlowFiles(Files):
    """Files of a driver that is frozen before one of its changes, and wakes after the others."""

    def __init__(self, root: str, frozen_before: int, meanwhile: Callable[[], None]) -> None:
        super().__init__(root)
        self.__dict__.update(left=frozen_before, meanwhile=meanwhile)

    def _change(self) -> None:
        self.__dict__["left"] -= 1
        if self.__dict__["left"] == 0:
            self.__dict__["meanwhile"]()

    def write(self, name: str, content: Content, rows: int = 0, durable: bool = True) -> FileRef:
        self._change()
        return super().write(name, content, rows, durable=False)

    def create(self, name: str, content: Content) -> bool:
        self._change()
        return super().create(name, content)

    def delete(self, names: Any) -> None:
        self._change()
        super().delete(names)

    def list(self, folder: str) -> Sequence[str]:
        if folder == Folder.DELTAS:
            self._change()
        return super().list(folder)


class Driver:
    """What a driver does to a checkpoint: batches with a delta each, and cleaning."""

    def __init__(self, files: Files, name: str) -> None:
        self.files, self.name, self.written = files, name, 0
        self.epochs = Epochs(files, 2)
        self.epochs.take_over()
        self.epochs.collect_garbage()
        if self.epochs.last_commit() is None:
            manifest = Manifest.initial(PLAN.partitions)
            self.epochs.commit(Commit(batch=INITIAL, plan=PLAN, manifest=manifest))

    def run_batch(self) -> Commit:
        """Do the batch after the last commit as the run loop does; return the commit."""
        return self.end_batch(self.begin_batch())

    def begin_batch(self, after: Commit | None = None) -> Commit:
        """Do a batch but for its commit."""
        last = after or self.epochs.last_commit()
        assert last is not None
        batch = last.batch + 1
        self.epochs.writer.check()
        epoch = self.epochs.epoch_of(batch) or self.epochs.begin(
            Epoch(batch=batch, clock=batch, plan=last.plan, manifest=last.manifest)
        )
        self.written += 1
        content = f"{batch}".encode()
        ref = self.files.write(f"deltas/{batch}-{self.name}-{self.written}", content)
        manifest = epoch.manifest.with_delta(DeltaRef(batch, ref), merged=0)
        return Commit(batch=batch, plan=epoch.plan, manifest=manifest)

    def end_batch(self, commit: Commit) -> Commit:
        done = self.epochs.commit(commit)
        self.epochs.collect_garbage()
        return done


def assert_nothing_lost(root: Path) -> None:
    """Every batch left its delta once, and all that the last commit names is there."""
    files = Files(str(root))
    epochs = Epochs(files, 2)
    last = epochs.last_commit()
    assert last is not None
    assert [delta.batch for delta in last.manifest.deltas] == list(range(last.batch + 1))
    for delta in last.manifest.deltas:
        assert files.mmap(delta.file).to_pybytes() == f"{delta.batch}".encode()
    for batch in (last.batch, last.batch - 1):
        if batch > INITIAL:
            epoch = epochs.epoch_of(batch)
            assert epoch is not None
            assert all(files.mmap(ref) for ref in epoch.manifest.files())


@pytest.mark.parametrize("batches", [(0,), (2,), (1, 1)])
def test_a_driver_that_was_frozen_anywhere_neither_loses_nor_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batches: tuple[int, ...]
) -> None:
    # No machine crashes here.
    monkeypatch.setattr("os.fsync", lambda file: None)
    for frozen_before in range(1, 100):
        if not froze_and_woke(tmp_path / str(frozen_before), frozen_before, batches):
            break
    assert frozen_before > 25


def froze_and_woke(root: Path, frozen_before: int, batches: Sequence[int]) -> bool:
    """Freeze a driver before a change while others run batches; return whether it had so many."""
    others: list[Driver] = []
    committed, running = [INITIAL], []

    def meanwhile() -> None:
        # One takes over after the other; the last is in the middle of a batch.
        for number, count in enumerate(batches):
            others.append(Driver(Files(str(root)), f"other{number}"))
            committed.extend(others[-1].run_batch().batch for _ in range(count))
            running.append(others[-1].begin_batch())

    driver = None
    try:
        driver = Driver(SlowFiles(str(root), frozen_before, meanwhile), "frozen")
        committed.extend(driver.run_batch().batch for _ in range(4))
    except TakenOverError:
        assert others
    if not others:
        return False
    if driver and driver.epochs.writer.number > others[-1].epochs.writer.number:
        # It was frozen before it took over.
        with pytest.raises(TakenOverError):
            others[-1].end_batch(running[-1])
        driver.run_batch()
    else:
        if driver:
            with pytest.raises(TakenOverError):
                driver.run_batch()
        others[-1].end_batch(running[-1])
        others[-1].run_batch()
    assert_nothing_lost(root)
    last = Epochs(Files(str(root)), 2).last_commit()
    assert last is not None
    assert last.batch > max(committed)
    return True


def test_a_batch_that_two_drivers_run_counts_once(tmp_path: Path) -> None:
    older = Driver(Files(str(tmp_path)), "older")
    commit = older.run_batch()
    newer = Driver(Files(str(tmp_path)), "newer")
    # Spark's own log did not have the batch, so it runs again.
    before = newer.epochs.commit_of(commit.batch - 1)
    assert before is not None
    assert newer.end_batch(newer.begin_batch(before)) == commit
    newer.run_batch()
    assert_nothing_lost(tmp_path)


def test_what_the_older_driver_has_not_committed_is_deleted_but_not_what_it_has(
    tmp_path: Path,
) -> None:
    older = Driver(Files(str(tmp_path)), "older")
    older.run_batch()
    older.files.write("segments/uncommitted", b"")
    newer = Driver(Files(str(tmp_path)), "newer")
    assert not Files(str(tmp_path)).list("segments")
    newer.run_batch()
    with pytest.raises(TakenOverError):
        older.run_batch()
    newer.run_batch()
    assert_nothing_lost(tmp_path)


def test_no_two_writers_use_one_name_for_a_plan_or_a_manifest(tmp_path: Path) -> None:
    files, manifest = Files(str(tmp_path)), Manifest.initial(PLAN.partitions)
    names = set()
    for _ in range(3):
        epochs = Epochs(files, 3)
        epochs.take_over()
        epoch = Epoch(batch=0, clock=0, plan=PLAN, manifest=manifest)
        stored = epochs.begin(epoch).stored
        files.delete([name for name in files.list("epochs")])
        assert stored is not None
        names |= {stored.plan_name, stored.manifest_name}
    assert len(names) == 6


# -- pinned ------------------------------------------------------------------------------------


def test_the_files_of_a_commit_stay_while_it_is_in_use(tmp_path: Path) -> None:
    driver = Driver(Files(str(tmp_path)), "one")
    driver.run_batch()
    epochs = driver.epochs
    with epochs.pinned() as commit:
        assert commit is not None
        for batch in range(1, 6):
            ref = driver.files.write(f"deltas/merged-{batch}", b"")
            plan, manifest = commit.plan, commit.manifest.with_delta(DeltaRef(batch, ref), merged=1)
            epochs.begin(Epoch(batch=batch, clock=0, plan=plan, manifest=manifest))
            epochs.commit(Commit(batch=batch, plan=plan, manifest=manifest))
            epochs.collect_garbage()
        assert epochs.commit_of(commit.batch) is None
        for ref in commit.manifest.files():
            driver.files.mmap(ref)
    epochs.collect_garbage()
    for ref in commit.manifest.files():
        with pytest.raises(StoreError, match="missing"):
            driver.files.mmap(ref)
