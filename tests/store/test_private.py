"""Copies of remote files are safe from other users of the machine."""

import os

import pytest

from sparkswarm.errors import StoreError
from sparkswarm.store.files import Files
from sparkswarm.store.private import private_folder


def test_it_is_made_for_this_user_alone_whatever_the_umask(tmp_path):
    before = os.umask(0)
    try:
        private_folder(tmp_path / "deep" / "cache")
    finally:
        os.umask(before)
    assert (tmp_path / "deep" / "cache").stat().st_mode & 0o777 == 0o700
    private_folder(tmp_path / "deep" / "cache")


def test_one_that_others_could_only_read_becomes_private(tmp_path):
    folder = tmp_path / "cache"
    folder.mkdir()
    folder.chmod(0o755)
    private_folder(folder)
    assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("mode", [0o757, 0o770, 0o702])
def test_one_that_others_may_write_to_is_refused(tmp_path, mode):
    folder = tmp_path / "cache"
    folder.mkdir()
    folder.chmod(mode)
    with pytest.raises(StoreError, match="other users may write"):
        private_folder(folder)


def test_one_of_another_user_is_refused(tmp_path, monkeypatch):
    folder = tmp_path / "cache"
    private_folder(folder)
    mine = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: mine + 1)
    with pytest.raises(StoreError, match=f"belongs to user {mine}"):
        private_folder(folder)


def test_a_link_to_a_folder_is_refused(tmp_path):
    private_folder(tmp_path / "elsewhere")
    (tmp_path / "cache").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreError, match="not a folder"):
        private_folder(tmp_path / "cache")


def test_a_copy_is_not_read_from_a_folder_that_somebody_prepared(tmp_path):
    cache = tmp_path / "cache"
    cache.mkdir(mode=0o777)
    cache.chmod(0o777)
    files = Files((tmp_path / "checkpoint").as_uri().replace("file://", "mock://", 1), str(cache))
    with pytest.raises(StoreError, match="other users may write"):
        files.mmap(files.write("a", b"content"))
