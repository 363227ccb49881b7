"""A host keeps what its tasks use, no more than fits, and nothing that is not named any more."""

from __future__ import annotations

import pickle
import random
from dataclasses import replace
from pathlib import Path

import pytest

from sparkswarm.errors import StoreError
from sparkswarm.store.copies import FETCHED
from sparkswarm.store.files import FileRef, Files
from sparkswarm.store.statistics import open_soft

SIZE = 100


class Host:
    """A host with room for some files of a shared folder."""

    def __init__(self, folder: Path, files: int = 0) -> None:
        self.cache = folder / "cache"
        self.files = Files(str(folder / "store"), str(self.cache), files * SIZE, copied=True)
        self.written = 0

    def write(self, batch: int, folder: str = "segments") -> FileRef:
        self.written += 1
        name = f"{folder}/{batch + 1:012d}-{self.written}.arrow"
        return self.files.write(name, self.content(name))

    @staticmethod
    def content(name: str) -> bytes:
        return random.Random(name).randbytes(SIZE)

    def map(self, ref: FileRef, batch: int) -> int:
        """Map a file; return the number of bytes that were fetched for it."""
        before = FETCHED.total
        assert self.files.mmap(ref, batch).to_pybytes() == self.content(ref.name)
        return FETCHED.total - before

    @property
    def kept(self) -> set[str]:
        found = (path for path in self.cache.rglob("*") if path.is_file())
        return {f"{p.parent.name}/{p.name}" for p in found if not p.name.startswith(".")}


def names(*refs: FileRef) -> set[str]:
    return {ref.name for ref in refs}


def test_a_file_on_a_shared_folder_is_copied_once(tmp_path: Path) -> None:
    host = Host(tmp_path)
    ref = host.write(0)
    assert [host.map(ref, batch) for batch in (0, 0, 1)] == [SIZE, 0, 0]
    assert host.kept == names(ref)


def test_what_a_task_has_written_for_itself_is_not_fetched(tmp_path: Path) -> None:
    host = Host(tmp_path)
    ref = host.write(0)
    host.files.keep(ref, host.content(ref.name), 0)
    assert host.map(ref, 0) == 0


def test_the_least_recently_used_goes_when_there_is_no_room(tmp_path: Path) -> None:
    host = Host(tmp_path, 3)
    first, second, third, fourth = (host.write(0) for _ in range(4))
    for batch, ref in enumerate((first, second, third)):
        host.map(ref, batch)
    assert host.files.use(first, 3)
    assert host.map(fourth, 4) == SIZE
    assert host.kept == names(first, third, fourth)
    assert not host.files.use(second, 5)
    assert host.map(second, 5) == SIZE


def test_a_batch_that_needs_more_than_there_is_room_for_fails_and_says_so(tmp_path: Path) -> None:
    host = Host(tmp_path, 2)
    first, second, third = (host.write(0) for _ in range(3))
    host.map(first, 1)
    host.map(second, 1)
    with pytest.raises(StoreError, match=r"batch 1 needs more than cache_bytes \(200\)"):
        host.map(third, 1)
    host.files.keep(third, host.content(third.name), 1)
    assert host.kept == names(first, second)
    assert host.map(third, 2) == SIZE


def test_a_file_that_was_fetched_ahead_is_there_when_a_batch_needs_it(tmp_path: Path) -> None:
    host = Host(tmp_path)
    ref = host.write(0)
    before = FETCHED.total
    host.files.warm(ref, 3)
    assert FETCHED.total - before == SIZE
    assert host.map(ref, 4) == 0


def test_files_are_fetched_ahead_only_where_the_last_batch_leaves_room(tmp_path: Path) -> None:
    host = Host(tmp_path, 2)
    old, used, wanted, more = (host.write(0) for _ in range(4))
    host.map(old, 2)
    host.map(used, 3)
    host.files.warm(wanted, 3)
    assert host.kept == names(used, wanted)
    host.files.warm(more, 3)
    assert host.kept == names(used, wanted)


def test_what_a_later_batch_uses_already_stays_when_it_is_fetched_ahead_too_late(
    tmp_path: Path,
) -> None:
    host = Host(tmp_path, 2)
    first, second, third = (host.write(0) for _ in range(3))
    host.map(first, 5)
    host.map(second, 5)
    host.files.warm(first, 4)
    with pytest.raises(StoreError, match="batch 5 needs more"):
        host.map(third, 5)


def test_a_file_that_is_gone_is_not_fetched_ahead(tmp_path: Path) -> None:
    host = Host(tmp_path)
    ref = host.write(0)
    (tmp_path / "store" / ref.name).unlink()
    host.files.warm(ref, 1)
    assert host.kept == set()


def test_files_that_the_manifest_no_longer_names_go(tmp_path: Path) -> None:
    host = Host(tmp_path)
    old, named, new = host.write(3), host.write(3), host.write(4)
    for ref in (old, named, new):
        host.map(ref, 4)
    # This batch has written a file that no manifest names yet.
    host.files.retain_copies(names(named), 4)
    assert host.kept == names(named, new)
    host.files.retain_copies(names(named), 5)
    assert host.kept == names(named)


def test_soft_files_are_read_without_a_copy(tmp_path: Path) -> None:
    host = Host(tmp_path)
    ref = host.write(0, "soft")
    content = open_soft(host.files, ref)
    assert content is not None
    assert content.to_pybytes() == host.content(ref.name)
    assert host.kept == set()
    (tmp_path / "store" / ref.name).write_bytes(b"damaged")
    assert open_soft(host.files, ref) is None


def test_a_copy_that_went_while_it_was_mapped_is_fetched_anew(tmp_path: Path) -> None:
    host = Host(tmp_path)
    ref = host.write(0)
    buffer = host.files.mmap(ref, 0)
    host.files.retain_copies((), 1)
    assert host.kept == set()
    assert buffer.to_pybytes() == host.content(ref.name)
    assert host.map(ref, 1) == SIZE


def test_the_driver_keeps_its_copies_apart_and_without_a_limit(tmp_path: Path) -> None:
    host = Host(tmp_path, files=1)
    driver = replace(host.files, bounded=False)
    refs = [host.write(0) for _ in range(3)]
    before = FETCHED.total
    for ref in refs:
        driver.mmap(ref, 1)
    assert FETCHED.total - before == 3 * SIZE
    # A task that runs beside the driver has its own room.
    assert host.map(refs[0], 1) == SIZE
    assert pickle.loads(pickle.dumps(driver)) == host.files
    assert pickle.loads(pickle.dumps(driver)).bounded
