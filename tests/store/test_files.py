"""Files: whole or not at all, checked when they come back, on whatever filesystem."""

from __future__ import annotations

import os
import pickle
import threading
import time
import zlib
from dataclasses import replace
from functools import cached_property
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import fs

from sparkswarm.errors import StoreError
from sparkswarm.store.files import FileRef, Files, arrow_uri, check_scheme, local_path


class Elsewhere(Files):
    """Files that are remote as far as the code can tell: a folder behind a pyarrow filesystem."""

    @cached_property
    def _remote(self) -> tuple[fs.FileSystem, str]:
        folder = self.root.removeprefix("elsewhere://")
        return fs.SubTreeFileSystem(folder, fs.LocalFileSystem()), "here"


KINDS = ("path", "uri", "remote")


def make(kind: str, folder: Path) -> Files:
    """Return files whose bytes end up in ``folder / here``."""
    folder.mkdir(parents=True, exist_ok=True)
    cache = str(folder.parent / "cache")
    if kind == "path":
        return Files(str(folder / "here"), cache)
    if kind == "uri":
        return Files((folder / "here").as_uri(), cache)
    return Elsewhere(f"elsewhere://{folder}", cache)


@pytest.fixture(params=KINDS)
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Files:
    return make(request.param, tmp_path / "store")


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    """Return where the bytes end up, whatever the kind."""
    return tmp_path / "store" / "here"


@pytest.fixture
def remote(tmp_path: Path) -> Files:
    return make("remote", tmp_path / "store")


def whole(path: Path) -> list[str]:
    """Return all that a folder holds, half-written files too."""
    return sorted(entry.name for entry in path.iterdir())


# -- where they are ----------------------------------------------------------------------------

NAMES = st.text(
    st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=20
).filter(lambda name: name not in (".", ".."))


@given(st.lists(NAMES, min_size=1, max_size=3))
def test_a_path_and_its_uri_name_the_same_place_whatever_the_characters(parts: list[str]) -> None:
    path = Path("/", *parts)
    assert local_path(path.as_uri()) == path
    if "://" not in str(path):
        assert local_path(str(path)) == path


def test_what_is_a_path_and_what_is_not() -> None:
    assert local_path("some/folder") == Path.cwd() / "some" / "folder"
    assert local_path("/a/b c%20d") == Path("/a/b c%20d")
    assert local_path("file:/a/b%20c") == Path("/a/b c")
    assert local_path("file:///a/b%25c") == Path("/a/b%c")
    assert local_path("file://localhost/a") == Path("/a")
    for uri in ("s3://bucket/x", "gs://b/x", "hdfs://host:9000/x", "mock:///x"):
        assert local_path(uri) is None


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("odd", ["a b", "ünï-✓", "100%", "%41", "a#b?c;d&e", 'it\'s "so"', "[x]"])
def test_any_name_will_do_for_a_folder_and_for_a_file(kind: str, odd: str, tmp_path: Path) -> None:
    files = make(kind, tmp_path / odd)
    ref = files.write(f"{odd}/{odd}.x", b"content", rows=3)
    assert (tmp_path / odd / "here" / odd / f"{odd}.x").read_bytes() == b"content"
    assert files.list(odd) == [f"{odd}/{odd}.x"]
    assert files.read(ref.name) == b"content"
    assert files.mmap(ref).to_pybytes() == b"content"
    files.delete([ref.name])
    assert files.list(odd) == []


def test_a_filesystem_that_pyarrow_knows_is_opened_from_its_uri(tmp_path: Path) -> None:
    for root in ("mock:///some/folder", "mock:///some/folder/"):
        files = Files(root, str(tmp_path))
        ref = files.write("a/b", b"content")
        files.write("a/b", b"Content")
        files.write("a/c", b"")
        assert files.list("a") == ["a/b", "a/c"]
        assert files.read("a/b") == b"Content"
        assert files.read("a/d") is None
        files.delete(["a/c", "a/c"])
        assert files.list("a") == ["a/b"]
        with pytest.raises(StoreError, match=r"a/b in mock:.* is corrupt"):
            files.mmap(ref)


@pytest.mark.parametrize("root", ["nosuch://bucket/folder", "mock:///not a uri"])
def test_a_filesystem_that_nobody_knows_is_refused_with_a_remedy(root: str) -> None:
    with pytest.raises(StoreError, match=f"cannot open {root}: .*; use a local path or a URI"):
        Files(root).write("a", b"")


def test_files_are_pickled_without_their_connection(files: Files) -> None:
    ref = files.write("a/b", b"content")
    assert files.mmap(ref).to_pybytes() == b"content"
    other = pickle.loads(pickle.dumps(files))
    assert other == files
    assert other.mmap(ref).to_pybytes() == b"content"
    assert pickle.loads(pickle.dumps(Files("mock:///x"))).read("y") is None


# -- writing -----------------------------------------------------------------------------------


def test_a_file_may_become_durable_later(
    files: Files, stored: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files.write("a/x", b"the folder")
    synced: list[str] = []
    fsync = os.fsync

    def note(descriptor: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    ref = files.write("a/b", b"content", durable=False)
    assert files.mmap(ref).to_pybytes() == b"content"
    assert synced == []
    files.make_durable("a/b")
    if not isinstance(files, Elsewhere):
        assert synced == [str(stored / "a" / "b"), str(stored / "a")]


def test_what_is_written_comes_back_and_the_reference_describes_it(files: Files) -> None:
    @given(st.binary(max_size=100), st.integers(0, 2**40), st.booleans())
    def check(content: bytes, rows: int, durable: bool) -> None:
        ref = files.write("deep/down/file", content, rows, durable)
        assert ref == FileRef("deep/down/file", rows, len(content), zlib.crc32(content))
        assert files.read(ref.name) == content
        assert files.mmap(ref).to_pybytes() == content

    check()


def test_a_buffer_of_arrow_is_written_as_its_bytes(files: Files) -> None:
    ref = files.write("x", pa.py_buffer(b"0123456789").slice(2, 5))
    assert (ref.size, ref.crc) == (5, zlib.crc32(b"23456"))
    assert files.read("x") == b"23456"


def test_writing_again_replaces_all_of_the_old_content(files: Files, stored: Path) -> None:
    files.write("a", b"long old content")
    ref = files.write("a", b"new")
    assert files.read("a") == b"new"
    assert files.mmap(ref).to_pybytes() == b"new"
    assert whole(stored) == ["a"]


def test_a_reader_never_sees_half_a_file(files: Files) -> None:
    contents = [bytes([65 + i]) * (200_000 * (1 + i % 2)) for i in range(8)]
    files.write("a", contents[0])
    done = threading.Event()
    seen: set[bytes] = set()
    odd: list[object] = []

    def read() -> None:
        while not done.is_set():
            content = files.read("a")
            (seen.add if content in contents else odd.append)(content)  # type: ignore[arg-type]
            names = files.list("")
            if names != ["/a"]:
                odd.append(names)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for content in contents * 5:
        files.write("a", content, durable=False)
    done.set()
    for reader in readers:
        reader.join()
    assert not odd
    assert seen


def test_a_write_that_fails_leaves_what_was_there_and_nothing_else(
    files: Files, stored: Path
) -> None:
    # A file cannot take the place of a folder.
    files.write("a/b/c", b"content")
    with pytest.raises(OSError, match=r"a/b|directory"):
        files.write("a/b", b"new")
    assert files.read("a/b/c") == b"content"
    assert whole(stored / "a") == ["b"]


# -- listing and deleting ----------------------------------------------------------------------


def test_names_are_sorted_and_of_one_folder(files: Files) -> None:
    for name in ("a/3", "a/1", "b/2", "a/2", "a/10", "ab/1"):
        files.write(name, b"")
    assert files.list("a") == ["a/1", "a/10", "a/2", "a/3"]
    assert files.list("b") == ["b/2"]


def test_a_folder_that_is_not_there_has_no_names(files: Files) -> None:
    assert files.list("nothing") == []
    files.write("a/b", b"")
    assert files.list("nothing") == []
    assert files.list("a/nothing") == []


def test_half_written_files_and_folders_have_no_names(files: Files, stored: Path) -> None:
    files.write("a/whole", b"")
    files.write("a/folder/x", b"")
    (stored / "a" / ".whole.0123456789abcdef").write_bytes(b"hal")
    assert files.list("a") == ["a/whole"]


def test_what_is_not_there_reads_as_none(files: Files) -> None:
    assert files.read("a/b") is None
    files.write("a/b", b"")
    assert files.read("a/b") == b""
    assert files.read("a/c") is None


def test_below_a_file_there_is_nothing_and_a_folder_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    assert Files(f"{tmp_path}/file").read("run.json") is None
    (tmp_path / "run.json").mkdir()
    with pytest.raises(StoreError, match=r"/run.json cannot be read: Is a directory; give it"):
        Files(str(tmp_path)).read("run.json")


def test_deleting_what_is_not_there_is_no_error(files: Files) -> None:
    refs = [files.write(name, name.encode()) for name in ("a/1", "a/2", "a/3")]
    files.delete(["a/1", "a/1", "a/4", "b/1"])
    files.delete(iter(["a/1", "a/2"]))
    files.delete([])
    assert files.list("a") == ["a/3"]
    assert files.read("a/1") is None
    assert files.mmap(refs[2]).to_pybytes() == b"a/3"


# -- mapping -----------------------------------------------------------------------------------


def test_a_mapping_outlives_its_file(files: Files) -> None:
    content = os.urandom(100_000)
    ref = files.write("a", content)
    buffer = files.mmap(ref)
    files.write("a", b"other")
    assert buffer.to_pybytes() == content
    files.delete(["a"])
    assert buffer.to_pybytes() == content
    with pytest.raises(StoreError, match="a is missing"):
        files.mmap(ref)


def test_a_missing_file_is_named_with_a_remedy(files: Files) -> None:
    with pytest.raises(StoreError) as caught:
        files.mmap(FileRef("segments/7.arrow", 1, 1, 1))
    for said in ("segments/7.arrow is missing", files.root, "restore it", "another checkpoint"):
        assert said in str(caught.value)


def flip(content: bytes) -> bytes:
    return content[:3] + bytes([content[3] ^ 1]) + content[4:]


DAMAGE = {
    "a bit is wrong": flip,
    "the end is missing": lambda content: content[:-1],
    "there is more than there should be": lambda content: content + b"\0",
    "it is empty": lambda content: b"",
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_file_is_named_with_a_remedy(files: Files, stored: Path, damage) -> None:
    ref = files.write("segments/7.arrow", b"0123456789")
    (stored / ref.name).write_bytes(damage(b"0123456789"))
    with pytest.raises(StoreError) as caught:
        files.mmap(ref)
    for said in ("segments/7.arrow in", "corrupt", files.root, "restore it", "another checkpoint"):
        assert said in str(caught.value)
    (stored / ref.name).write_bytes(b"0123456789")
    assert files.mmap(ref).to_pybytes() == b"0123456789"


@pytest.mark.parametrize("field", ["size", "crc"])
def test_a_file_must_be_the_one_that_was_meant(files: Files, field: str) -> None:
    ref = files.write("a", b"content")
    with pytest.raises(StoreError, match=r"a in .* is corrupt: 7 bytes with checksum"):
        files.mmap(replace(ref, **{field: getattr(ref, field) + 1}))


# -- the cache of remote files -----------------------------------------------------------------


def cached(files: Files) -> list[Path]:
    found = (path for path in Path(files.cache).rglob("*") if path.is_file())
    return [path for path in found if not path.name.startswith(".")]


def test_local_files_are_mapped_where_they_lie(tmp_path: Path) -> None:
    for kind in ("path", "uri"):
        files = make(kind, tmp_path / "store")
        assert files.mmap(files.write("a", b"content")).to_pybytes() == b"content"
        assert cached(files) == []


def test_a_remote_file_is_fetched_once(remote: Files, stored: Path) -> None:
    ref = remote.write("a/b", b"content")
    assert cached(remote) == []
    remote.mmap(ref)
    assert [path.read_bytes() for path in cached(remote)] == [b"content"]
    (stored / "a" / "b").unlink()
    assert remote.mmap(ref).to_pybytes() == b"content"
    assert pickle.loads(pickle.dumps(remote)).mmap(ref).to_pybytes() == b"content"


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_copy_is_fetched_again(remote: Files, damage) -> None:
    ref = remote.write("a", b"0123456789")
    remote.mmap(ref)
    (copy,) = cached(remote)
    copy.write_bytes(damage(b"0123456789"))
    assert remote.mmap(ref).to_pybytes() == b"0123456789"
    assert [path.read_bytes() for path in cached(remote)] == [b"0123456789"]


def test_a_copy_that_someone_deleted_is_fetched_again(remote: Files) -> None:
    ref = remote.write("a/b", b"content")
    remote.mmap(ref)
    (copy,) = cached(remote)
    copy.unlink()
    assert remote.mmap(ref).to_pybytes() == b"content"


def test_a_damaged_remote_file_leaves_no_copy(remote: Files, stored: Path) -> None:
    ref = remote.write("a", b"0123456789")
    (stored / "a").write_bytes(b"0123x56789")
    for _ in range(2):
        with pytest.raises(StoreError, match="corrupt"):
            remote.mmap(ref)
        assert cached(remote) == []


def test_a_file_that_was_written_again_is_fetched_again(remote: Files) -> None:
    old = remote.write("a", b"old content")
    buffer = remote.mmap(old)
    new = remote.write("a", b"new content")
    assert remote.mmap(new).to_pybytes() == b"new content"
    assert buffer.to_pybytes() == b"old content"


def test_deleting_a_remote_file_deletes_its_copy(remote: Files) -> None:
    ref = remote.write("a/b", b"content")
    remote.mmap(ref)
    remote.delete([ref.name])
    assert cached(remote) == []
    with pytest.raises(StoreError, match="missing"):
        remote.mmap(ref)


def test_stores_with_one_cache_do_not_mix_their_copies(tmp_path: Path) -> None:
    stores = [make("remote", tmp_path / name) for name in ("one", "two")]
    refs = [files.write("a", files.root[-3:].encode()) for files in stores]
    assert [files.mmap(ref).to_pybytes() for files, ref in zip(stores, refs, strict=True)] == [
        b"one",
        b"two",
    ]


def test_many_may_fetch_a_file_at_once(remote: Files) -> None:
    content = os.urandom(300_000)
    ref = remote.write("a", content)
    found: list[bytes] = []
    threads = [
        threading.Thread(target=lambda: found.append(remote.mmap(ref).to_pybytes()))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [content] * 8
    assert len(cached(remote)) == 1


@pytest.mark.parametrize("uri", ["dbfs:/x", "hdfs:/x", "abfss:/x", "wasbs://c@a/x", "s3a://b/x"])
def test_a_path_with_a_scheme_is_not_a_local_folder(uri: str) -> None:
    assert local_path(uri) is None


@pytest.mark.parametrize("path", ["file:/a/b", "file:///a/b", "/a/b"])
def test_a_local_path_may_be_a_uri(path: str) -> None:
    assert local_path(path) == Path("/a/b")


@pytest.mark.parametrize("name", ["a:b", "2026-01-01T10:00", "run 1"])
def test_a_local_name_may_have_a_colon(name: str) -> None:
    assert local_path(name) == Path(name).absolute()


@pytest.mark.parametrize("root", ["dbfs:/x", "unknown://x/y"])
def test_a_filesystem_that_is_not_known_is_refused_by_its_uri(
    root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StoreError, match=f"cannot open {root}: .*; use a local path or a URI"):
        Files(root).write("a", b"content")
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("uri", "wanted"),
    [
        ("s3a://bucket/a", "s3://bucket/a"),
        ("s3n://bucket/a", "s3://bucket/a"),
        ("s3://bucket/a", "s3://bucket/a"),
        ("gs://bucket/s3a://", "gs://bucket/s3a://"),
    ],
)
def test_sparks_spelling_of_s3_is_pyarrows_too(uri: str, wanted: str) -> None:
    assert arrow_uri(uri) == wanted


@pytest.mark.parametrize(
    "uri", ["s3a://b/x", "hdfs://h:1/x", "abfss://c@a.b/x", "gs://b/x", "dbfs:/x", "x", "file:/x"]
)
def test_there_is_one_spelling_of_every_filesystem(uri: str) -> None:
    check_scheme(uri)


@pytest.mark.parametrize(
    ("uri", "advice"),
    [("s3://b/x", "write s3a://"), ("s3n://b/x", "write s3a://"), ("ftp://h/x", "hdfs://, ")],
)
def test_another_spelling_is_refused_with_the_right_one(uri: str, advice: str) -> None:
    with pytest.raises(StoreError, match=f"{uri} begins with .*{advice}"):
        check_scheme(uri)


def test_files_of_a_databricks_mount_are_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparkswarm.store.files._DBFS", str(tmp_path / "mount"))
    (tmp_path / "mount").mkdir()
    files = Files("dbfs:/a/b", str(tmp_path / "cache"))
    ref = files.write("c/d", b"content")
    assert (tmp_path / "mount" / "a" / "b" / "c" / "d").read_bytes() == b"content"
    assert files.mmap(ref).to_pybytes() == b"content"
    assert len(cached(files)) == 1


# -- what is bounded ---------------------------------------------------------------------------


def test_files_left_half_written_are_deleted_when_they_are_old(files: Files, stored: Path) -> None:
    files.write("a/whole", b"")
    for name, age in ((".old.123", 100), (".new.123", 10)):
        (stored / "a" / name).write_bytes(b"hal")
        os.utime(stored / "a" / name, (time.time() - age,) * 2)
    assert files.delete_unfinished("a", 50) == 1
    assert whole(stored / "a") == [".new.123", "whole"]
    assert files.delete_unfinished("nothing", 0) == 0


def test_folders_are_listed_and_deleted_whole(files: Files) -> None:
    for name in ("a/b/1", "a/b/2", "a/c/1", "a/d"):
        files.write(name, b"")
    assert files.folders("a") == ["a/b", "a/c"]
    assert files.folders("nothing") == []
    files.delete_folder("a/b")
    files.delete_folder("a/nothing")
    assert files.folders("a") == ["a/c"]
    assert files.list("a") == ["a/d"]
