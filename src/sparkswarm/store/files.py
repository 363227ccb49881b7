"""Files of a checkpoint on any filesystem: written as a whole, checked when read.

Owns how bytes get to storage and back. A file is never changed after it is written; its name
appears with the full content or not at all, and ``create`` replaces none. Local files are
memory-mapped in place. Files of other filesystems (those that pyarrow.fs supports: S3, GCS, HDFS,
...) are copied to the host when they are first mapped. Used by the driver and by tasks.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import uuid
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import unquote, urlparse

import pyarrow as pa
from pyarrow import fs

from sparkswarm.errors import StoreError
from sparkswarm.store.copies import Copies, cache_folder

Content: TypeAlias = "bytes | pa.Buffer"
Creator: TypeAlias = Callable[[str, bytes], None]

_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK)
"""What local filesystems without hard links say."""


class Folder(StrEnum):
    """Folders of a checkpoint, as they are named on disk."""

    WRITERS = "writers"
    PLANS = "plans"
    MANIFESTS = "manifests"
    EPOCHS = "epochs"
    COMMITS = "commits"
    SEGMENTS = "segments"
    DELTAS = "deltas"
    LEDGER = "ledger"
    """Only in checkpoints of format 2."""
    STATES = "states"
    BLOCKS = "blocks"
    OBJECTS = "objects"
    SOFT = "soft"
    REPORTS = "reports"
    """Of tasks in Real-time Mode."""
    QUARANTINE = "quarantine"


@dataclass(frozen=True, slots=True)
class FileRef:
    """A file, and what to check its content against.

    Attributes
    ----------
    name
        Path within the checkpoint.
    rows
        Number of queries, rows of state or points in it.
    size
        Bytes.
    crc
        CRC-32 of the content.
    """

    name: str
    rows: int
    size: int
    crc: int

    def __reduce__(self) -> tuple[Any, ...]:
        return FileRef, (self.name, self.rows, self.size, self.crc)


_SCHEME = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*:/")
"""How a URI begins; a local name may have a colon too, but no slash behind it."""


def batch_prefix(folder: str, batch: int) -> str:
    """Return how the names of a batch's files begin; those of earlier batches sort before it."""
    return f"{folder}/{batch + 1:012d}"


def local_path(uri: str) -> Path | None:
    """Return the local path of a URI or a plain path; None where it is not local."""
    parsed = urlparse(uri)
    if parsed.scheme == "file":
        return Path(unquote(parsed.path))
    return None if _SCHEME.match(uri) else Path(uri).absolute()


SCHEMES = ("s3a", "hdfs", "abfss", "gs", "dbfs")
"""Remote filesystems, as users and Spark spell them."""

_WHOLE_OBJECTS = ("s3", "gcs", "abfs")
"""Filesystems of pyarrow on which a file appears when it is complete, and a move is a copy."""

_DBFS = "/dbfs"
"""Where Databricks mounts its filesystem."""


def check_scheme(uri: str) -> None:
    """Refuse a URI that is not spelled as Spark and pyarrow both can be told; StoreError."""
    scheme = urlparse(uri).scheme
    if local_path(uri) is None and scheme not in SCHEMES:
        advice = "; write s3a://" if scheme in ("s3", "s3n") else ""
        known = ", ".join(f"{name}:{'/' if name == 'dbfs' else '//'}" for name in SCHEMES)
        raise StoreError(
            f"{uri} begins with {scheme}:, which is not one of {known}{advice}; a local path has "
            "no scheme"
        )


def arrow_uri(uri: str) -> str:
    """Return a URI as pyarrow.fs spells it: what Spark calls ``s3a`` is ``s3`` there."""
    return re.sub(r"^s3[an]://", "s3://", uri)


def _open_remote(uri: str) -> tuple[fs.FileSystem, str]:
    if uri.startswith("dbfs:/") and os.path.isdir(_DBFS):
        return fs.LocalFileSystem(), f"{_DBFS}/{uri.removeprefix('dbfs:/').strip('/')}"
    try:
        system, path = _from_uri(uri)
    except (pa.ArrowException, OSError, ValueError) as error:
        extra = "; or install sparkswarm[hdfs] on the driver and on all workers"
        raise StoreError(
            f"cannot open {uri}: {error}; use a local path or a URI that pyarrow.fs supports"
            f"{extra if uri.startswith('hdfs:') else ''}"
        ) from error
    return system, path.rstrip("/")


def _from_uri(uri: str) -> tuple[fs.FileSystem, str]:
    if uri.startswith("hdfs:"):
        # Without the extra, pyarrow may find libhdfs and a JVM.
        with suppress(ModuleNotFoundError):
            from sparkswarm.store.hdfs import open_hdfs

            return open_hdfs(uri)
    found: tuple[fs.FileSystem, str] = fs.FileSystem.from_uri(arrow_uri(uri))
    return found


@dataclass(frozen=True)
class Files:
    """The files under one root, a path or a URI.

    Parameters
    ----------
    root
        A local path, or a URI that pyarrow.fs understands.
    cache
        Folder for copies of files; by default that of the host, see
        :func:`~sparkswarm.store.copies.cache_folder`.
    cache_bytes
        Largest size of the copies on a host; 0 is unlimited.
    copied
        Whether files of a local root are copied too, because it is a folder on the network.
    bounded
        Whether ``cache_bytes`` holds here. The driver, which reads the ids and the changes of all
        queries, keeps its copies apart and without a limit.
    creator
        Creates a file with a URI and a content unless there is one, for stores whose filesystem in
        pyarrow cannot; without it a store is asked first. Stays in the driver.
    """

    root: str
    cache: str | None = None
    cache_bytes: int = 0
    copied: bool = False
    bounded: bool = field(default=True, compare=False)
    creator: Creator | None = field(default=None, compare=False, repr=False)

    @property
    def is_local(self) -> bool:
        """Whether files are read where they are written, on this host."""
        return self._copies is None

    @cached_property
    def _remote(self) -> tuple[fs.FileSystem, str] | None:
        return None if local_path(self.root) is not None else _open_remote(self.root)

    @property
    def _filesystem(self) -> tuple[fs.FileSystem, str]:
        return self._remote or (fs.LocalFileSystem(), str(self.path("")))

    @cached_property
    def _copies(self) -> Copies | None:
        if self._remote is None and not self.copied:
            return None
        if self.bounded:
            return Copies(self.cache or cache_folder(), self.root, self.cache_bytes)
        return Copies(self.cache or cache_folder(), f"driver of {self.root}")

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("root", "cache", "cache_bytes", "copied")}

    def path(self, name: str) -> Path:
        """Return the path of a file of a local root."""
        root = local_path(self.root)
        if root is None:
            raise StoreError(f"{self.root} is not a local folder")
        return root / name

    # -- writing ---------------------------------------------------------------------------

    def write(self, name: str, content: Content, rows: int = 0, durable: bool = True) -> FileRef:
        """Write a whole file; when this returns, it survives a crash of the machine.

        Concurrent readers of the name get either the old content or the new. With
        ``durable=False`` writing is cheaper, and a crash of the machine may lose the file until
        :meth:`make_durable` has returned.
        """
        data = pa.py_buffer(content)
        if self._remote is None:
            self._write_local(self.path(name), data, durable)
        else:
            self._write_remote(*self._remote, name, data)
        return FileRef(name, rows, data.size, zlib.crc32(data))

    def make_durable(self, name: str) -> None:
        """Let a file that was written with ``durable=False`` survive a crash of the machine."""
        if self._remote is None:
            path = self.path(name)
            with open(path, "rb") as file:
                os.fsync(file.fileno())
            _sync_folder(path.parent)

    def create(self, name: str, content: Content) -> bool:
        """Write a whole file, durable, unless there is one; return whether it was written.

        Of several processes that create a file at the same time, one succeeds.
        """
        data = pa.py_buffer(content)
        if self._remote is None:
            return self._create_local(self.path(name), data)
        if self.creator is not None:
            self.creator(f"{self.root.rstrip('/')}/{name}", data.to_pybytes())
            # A store may say no to the repetition of a request that had succeeded.
            return bool(self.read(name) == data.to_pybytes())
        system, root = self._remote
        if system.get_file_info(f"{root}/{name}").type != fs.FileType.NotFound:
            return False
        self._write_remote(system, root, name, data)
        return True

    def _create_local(self, path: Path, data: pa.Buffer) -> bool:
        with _temporary(path, data, durable=True) as temporary:
            try:
                os.link(temporary, path)
            except FileExistsError:
                return False
            except OSError as error:
                if error.errno not in _NO_LINKS:
                    raise
                if path.exists():
                    return False
                os.replace(temporary, path)
        _sync_folder(path.parent)
        return True

    def _write_local(self, path: Path, data: pa.Buffer, durable: bool) -> None:
        with _temporary(path, data, durable) as temporary:
            os.replace(temporary, path)
        if durable:
            _sync_folder(path.parent)

    def _write_remote(self, system: fs.FileSystem, root: str, name: str, data: pa.Buffer) -> None:
        path = f"{root}/{name}"
        if system.type_name in _WHOLE_OBJECTS:
            with system.open_output_stream(path) as stream:
                stream.write(data)
            return
        folder = path.rsplit("/", 1)[0]
        system.create_dir(folder, recursive=True)
        temporary = f"{folder}/.{uuid.uuid4().hex}"
        try:
            with system.open_output_stream(temporary) as stream:
                stream.write(data)
            system.move(temporary, path)
        except BaseException:
            with suppress(OSError):
                system.delete_file(temporary)
            raise

    def delete(self, names: Iterable[str]) -> None:
        """Delete files; missing ones are ignored."""
        for name in names:
            if self._remote is None:
                self.path(name).unlink(missing_ok=True)
            else:
                system, root = self._remote
                if system.get_file_info(f"{root}/{name}").type != fs.FileType.NotFound:
                    system.delete_file(f"{root}/{name}")
            if self._copies is not None:
                self._copies.delete(name)

    def delete_folder(self, folder: str) -> None:
        """Delete a folder with all that is in it; a missing one is ignored."""
        if self._remote is None:
            shutil.rmtree(self.path(folder), ignore_errors=True)
        else:
            system, root = self._remote
            system.delete_dir_contents(f"{root}/{folder}", missing_dir_ok=True)
            with suppress(FileNotFoundError):
                system.delete_dir(f"{root}/{folder}")

    def delete_unfinished(self, folder: str, seconds: float) -> int:
        """Delete the files in a folder that a crash left half-written; return their number.

        They are older than ``seconds``, by the clock of the store.
        """
        system, root = self._filesystem
        selector = fs.FileSelector(f"{root}/{folder}", allow_not_found=True)
        before = datetime.now(UTC) - timedelta(seconds=min(seconds, 1e9))
        left = [
            info.path
            for info in system.get_file_info(selector)
            if info.is_file and info.base_name.startswith(".") and info.mtime < before
        ]
        for path in left:
            with suppress(FileNotFoundError):
                system.delete_file(path)
        return len(left)

    # -- reading ---------------------------------------------------------------------------

    def list(self, folder: str) -> Sequence[str]:
        """Return the sorted names of the files in a folder; none if there is no folder."""
        if self._remote is None:
            path = self.path(folder)
            entries = os.scandir(path) if path.is_dir() else ()
            found = [entry.name for entry in entries if entry.is_file()]
        else:
            system, root = self._remote
            selector = fs.FileSelector(f"{root}/{folder}", allow_not_found=True)
            found = [info.base_name for info in system.get_file_info(selector) if info.is_file]
        return sorted(f"{folder}/{name}" for name in found if not name.startswith("."))

    def folders(self, folder: str) -> Sequence[str]:
        """Return the sorted names of the folders in a folder."""
        system, root = self._filesystem
        selector = fs.FileSelector(f"{root}/{folder}", allow_not_found=True)
        infos = system.get_file_info(selector)
        found = [info.base_name for info in infos if info.type == fs.FileType.Directory]
        return sorted(f"{folder}/{name}" for name in found)

    def read(self, name: str) -> bytes | None:
        """Return the content of a file; None if it does not exist."""
        try:
            if self._remote is None:
                return self.path(name).read_bytes()
            system, root = self._remote
            with system.open_input_file(f"{root}/{name}") as file:
                return bytes(file.readall())
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (IsADirectoryError, PermissionError) as error:
            raise StoreError(
                f"{self.root}/{name} cannot be read: {error.strerror}; give it back its content "
                "and its owner, or restore the checkpoint"
            ) from error

    def load(self, ref: FileRef) -> pa.Buffer:
        """Return the content of a file that is read once: checked, in memory, without a copy.

        Raises
        ------
        StoreError
            If the file is missing, has another size, or another checksum.
        """
        content = self.read(ref.name)
        if content is None:
            raise self._missing(ref)
        return self._checked(ref, pa.py_buffer(content))

    def mmap(self, ref: FileRef, batch: int = 0) -> pa.Buffer:
        """Return the content of a file, memory-mapped and checked, for the use of a batch.

        Raises
        ------
        StoreError
            If the file is missing, has another size, or another checksum; or if there is no room
            for its copy.
        """
        try:
            if self._copies is None:
                return self._checked(ref, _mapped(self.path(ref.name)))
            try:
                return self._checked(ref, self._copy(self._copies, ref, batch))
            except StoreError:
                if not self._copies.use(ref, batch):
                    raise
                # The copy may be damaged, or have gone meanwhile.
                self._copies.delete(ref.name)
                return self._checked(ref, self._copy(self._copies, ref, batch))
        except FileNotFoundError as error:
            raise self._missing(ref) from error
        except StoreError:
            if self._copies is not None:
                self._copies.delete(ref.name)
            raise

    def _copy(self, copies: Copies, ref: FileRef, batch: int) -> pa.Buffer:
        return _mapped(copies.fetch(ref, batch, lambda: self.read(ref.name)))

    def _checked(self, ref: FileRef, buffer: pa.Buffer) -> pa.Buffer:
        crc = zlib.crc32(buffer)
        if (buffer.size, crc) != (ref.size, ref.crc):
            raise StoreError(
                f"{ref.name} in {self.root} is corrupt: {buffer.size} bytes with checksum {crc}, "
                f"should be {ref.size} with {ref.crc}; restore it from a copy, or start again "
                "with another checkpoint"
            )
        return buffer

    def _missing(self, ref: FileRef) -> StoreError:
        return StoreError(
            f"{ref.name} is missing from {self.root}; the checkpoint is damaged: restore it "
            "from a copy, or start again with another checkpoint"
        )

    # -- copies on this host ---------------------------------------------------------------

    def keep(self, ref: FileRef, content: Content, batch: int) -> None:
        """Keep a copy of a file that was written and is going to be mapped, if there is room."""
        if self._copies is not None:
            self._copies.keep(ref.name, pa.py_buffer(content), batch)

    def warm(self, ref: FileRef, batch: int) -> None:
        """Make a copy of a file that a later batch will map, if there is room beside this one's."""
        if self._copies is not None:
            self._copies.warm(ref, batch, lambda: self.read(ref.name))

    def use(self, ref: FileRef, batch: int) -> bool:
        """Note that a batch uses a file that was mapped; return False if it must be mapped anew."""
        return self._copies is None or self._copies.use(ref, batch)

    def retain_copies(self, names: Collection[str], batch: int) -> None:
        """Delete the copies of all files but these, and those that this batch has written."""
        if self._copies is not None:
            self._copies.retain(names, batch)


def _mapped(path: Path) -> pa.Buffer:
    # The buffer keeps the mapping alive, so the file may be deleted while in use.
    with pa.memory_map(str(path)) as file:
        return file.read_buffer()


@contextmanager
def _temporary(path: Path, data: pa.Buffer, durable: bool) -> Iterator[Path]:
    """Write a file beside the one that it is to become, whose name nobody lists."""
    _make_folder(path.parent)
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with open(temporary, "wb") as file:
            file.write(data)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)


def _make_folder(path: Path) -> None:
    """Make a folder and its parents so that they survive a crash of the machine."""
    if not path.is_dir():
        _make_folder(path.parent)
        path.mkdir(exist_ok=True)
        _sync_folder(path.parent)


def _sync_folder(path: Path) -> None:
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
