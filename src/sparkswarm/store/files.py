"""Files of a checkpoint on any filesystem: written as a whole, checked when read.

Owns how bytes get to storage and back. A file is never changed after it is written; its name
appears with the full content or not at all. Local files are memory-mapped in place. Files of other
filesystems (those that pyarrow.fs supports: S3, GCS, HDFS, ...) are copied to a local cache when
they are first mapped. Used by the driver and by tasks.
"""

from __future__ import annotations

import os
import re
import tempfile
import uuid
import zlib
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import unquote, urlparse

import pyarrow as pa
from pyarrow import fs

from sparkswarm.errors import StoreError
from sparkswarm.store.private import private_folder

Content: TypeAlias = "bytes | pa.Buffer"


class Folder(StrEnum):
    """Folders of a checkpoint, as they are named on disk."""

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


def arrow_uri(uri: str) -> str:
    """Return a URI as pyarrow.fs spells it: what Spark calls ``s3a`` is ``s3`` there."""
    return re.sub(r"^s3[an]://", "s3://", uri)


@dataclass(frozen=True)
class Files:
    """The files under one root, a path or a URI.

    Parameters
    ----------
    root
        A local path, or a URI that pyarrow.fs understands.
    cache
        Folder for copies of remote files; by default one of this user in the system's temporary
        folder. Not used for local roots.
    """

    root: str
    cache: str = field(
        default_factory=lambda: os.path.join(tempfile.gettempdir(), f"sparkswarm-{os.getuid()}")
    )

    @cached_property
    def _remote(self) -> tuple[fs.FileSystem, str] | None:
        if local_path(self.root) is not None:
            return None
        try:
            system, path = fs.FileSystem.from_uri(arrow_uri(self.root))
        except (pa.ArrowException, OSError, ValueError) as error:
            raise StoreError(
                f"cannot open {self.root}: {error}; use a local path or a URI "
                "that pyarrow.fs supports"
            ) from error
        return system, path.rstrip("/")

    def __getstate__(self) -> dict[str, str]:
        return {"root": self.root, "cache": self.cache}

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
        ``durable=False`` writing is cheaper, and a crash of the machine may lose the file.
        """
        data = pa.py_buffer(content)
        if self._remote is None:
            self._write_local(self.path(name), data, durable)
        else:
            self._write_remote(*self._remote, name, data)
        return FileRef(name, rows, data.size, zlib.crc32(data))

    def _write_local(self, path: Path, data: pa.Buffer, durable: bool) -> None:
        _make_folder(path.parent)
        temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
        try:
            with open(temporary, "wb") as file:
                file.write(data)
                if durable:
                    file.flush()
                    os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        if durable:
            _sync_folder(path.parent)

    def _write_remote(self, system: fs.FileSystem, root: str, name: str, data: pa.Buffer) -> None:
        path = f"{root}/{name}"
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
                self._cached(name).unlink(missing_ok=True)

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

    def read(self, name: str) -> bytes | None:
        """Return the content of a file; None if it does not exist."""
        try:
            if self._remote is None:
                return self.path(name).read_bytes()
            system, root = self._remote
            with system.open_input_file(f"{root}/{name}") as file:
                return bytes(file.readall())
        except FileNotFoundError:
            return None

    def mmap(self, ref: FileRef) -> pa.Buffer:
        """Return the content of a file, memory-mapped and checked.

        Raises
        ------
        StoreError
            If the file is missing, has another size, or another checksum.
        """
        try:
            buffer = self._mapped(ref)
            crc = zlib.crc32(buffer)
            if (buffer.size, crc) != (ref.size, ref.crc) and self._remote is not None:
                # The local copy may be damaged.
                buffer = self._mapped(ref, refetch=True)
                crc = zlib.crc32(buffer)
        except FileNotFoundError as error:
            raise StoreError(
                f"{ref.name} is missing from {self.root}; the checkpoint is damaged: restore it "
                "from a copy, or start again with another checkpoint"
            ) from error
        if (buffer.size, crc) != (ref.size, ref.crc):
            if self._remote is not None:
                self._cached(ref.name).unlink(missing_ok=True)
            raise StoreError(
                f"{ref.name} in {self.root} is corrupt: {buffer.size} bytes with checksum {crc}, "
                f"should be {ref.size} with {ref.crc}; restore it from a copy, or start again "
                "with another checkpoint"
            )
        return buffer

    def _mapped(self, ref: FileRef, refetch: bool = False) -> pa.Buffer:
        path = self.path(ref.name) if self._remote is None else self._fetched(ref, refetch)
        # The buffer keeps the mapping alive, so the file may be deleted while in use.
        with pa.memory_map(str(path)) as file:
            return file.read_buffer()

    def _cached(self, name: str) -> Path:
        return Path(self.cache) / sha256(self.root.encode()).hexdigest()[:16] / name

    def _fetched(self, ref: FileRef, refetch: bool) -> Path:
        """Return a local copy, fetched if it is missing or ``refetch`` is set."""
        private_folder(Path(self.cache))
        path = self._cached(ref.name)
        if refetch or not path.exists() or path.stat().st_size != ref.size:
            content = self.read(ref.name)
            if content is None:
                raise FileNotFoundError(ref.name)
            self._write_local(path, pa.py_buffer(content), durable=False)
        return path


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
