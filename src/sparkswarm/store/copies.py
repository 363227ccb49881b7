"""Copies: the files of a checkpoint that one host keeps on its own disk.

Owns the folder of the copies, which all processes of the host share: what is in it, how much, and
which goes first. A copy is made when a task maps a file of a remote store, and when it writes one
that it will map. It goes when the manifest no longer names it, or when room is needed and it was
not used in this batch. The modification time of a copy is the batch that used it last, in seconds
since 1970. Used by tasks and by the driver; a copy that is gone is fetched again.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
import threading
import uuid
import zlib
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from stat import S_ISREG
from typing import TYPE_CHECKING

import pyarrow as pa

from sparkswarm.errors import StoreError
from sparkswarm.store.private import private_folder

if TYPE_CHECKING:
    from sparkswarm.store.files import FileRef

CACHE_VARIABLE = "SPARKSWARM_CACHE"
"""Environment variable with the folder for the copies of all checkpoints on a host."""

LOCKS = 64
"""Number of files that the processes of a host can fetch at the same time."""

_FIRST_BATCH = -1


class FetchedBytes:
    """Counts what this process has fetched.

    Attributes
    ----------
    total
        Bytes since the process began.
    """

    def __init__(self) -> None:
        self.total = 0
        self._taken = 0
        self._lock = threading.Lock()

    def add(self, size: int) -> None:
        """Count a file; several threads may fetch."""
        with self._lock:
            self.total += size

    def take(self) -> int:
        """Return what was fetched since the last call."""
        with self._lock:
            new, self._taken = self.total - self._taken, self.total
        return new


FETCHED = FetchedBytes()
"""Of this process."""


def take_fetched() -> int:
    """Return what this process has fetched since the last call."""
    return FETCHED.take()


def cache_folder() -> str:
    """Return the folder for copies on this host."""
    default = os.path.join(tempfile.gettempdir(), f"sparkswarm-{os.getuid()}")
    return os.environ.get(CACHE_VARIABLE, default)


class Copies:
    """The copies of the files of one checkpoint on this host.

    Parameters
    ----------
    cache
        Folder for the copies of all checkpoints.
    root
        The checkpoint.
    limit
        Largest number of bytes of this checkpoint's copies; 0 is unlimited.
    """

    def __init__(self, cache: str, root: str, limit: int = 0) -> None:
        self._cache = Path(cache)
        self._folder = self._cache / sha256(root.encode()).hexdigest()[:16]
        self._limit = limit

    def path(self, name: str) -> Path:
        """Return where the copy of a file is, if there is one."""
        return self._folder / name

    def use(self, ref: FileRef, batch: int) -> bool:
        """Note that a batch uses a file; return whether there is a copy."""
        try:
            if not self._has(ref):
                return False
            _stamp(self.path(ref.name), batch)
        except FileNotFoundError:
            return False
        return True

    def _has(self, ref: FileRef) -> bool:
        with suppress(FileNotFoundError):
            return self.path(ref.name).stat().st_size == ref.size
        return False

    def fetch(self, ref: FileRef, batch: int, read: Callable[[], bytes | None]) -> Path:
        """Return a copy of a file, made with what ``read`` returns if there is none.

        Raises
        ------
        FileNotFoundError
            If ``read`` finds no file.
        StoreError
            If the files of this batch do not fit on the host.
        """
        # Of the processes of a host that need a file at the same time, one fetches it.
        with self._locked(_fetch_lock(ref)):
            if not self.use(ref, batch):
                content = read()
                if content is None:
                    raise FileNotFoundError(ref.name)
                FETCHED.add(len(content))
                if not self.keep(ref.name, pa.py_buffer(content), batch):
                    raise StoreError(
                        f"batch {batch} needs more than cache_bytes ({self._limit:,}) of files on "
                        f"one host: no room for the {ref.size:,} bytes of {ref.name}; give hosts "
                        "larger caches, or use more hosts with the policy swarm, which divides "
                        "the queries among them"
                    )
        return self.path(ref.name)

    def warm(self, ref: FileRef, batch: int, read: Callable[[], bytes | None]) -> None:
        """Make a copy of a file for a later batch, where there is room beside what this one uses.

        A copy that is there stays as it is: a later batch may use it already.
        """
        with self._locked(_fetch_lock(ref)):
            if not self._has(ref) and (content := read()) is not None:
                FETCHED.add(len(content))
                self.keep(ref.name, pa.py_buffer(content), batch)

    def keep(self, name: str, content: pa.Buffer, batch: int) -> bool:
        """Make a copy of a file that has this content, if there is room; return whether."""
        with self._locked("room"):
            if not self._make_room(content.size, batch):
                return False
            path = self.path(name)
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
            try:
                temporary.write_bytes(content)
                _stamp(temporary, batch)
                temporary.replace(path)
            except BaseException:
                temporary.unlink(missing_ok=True)
                raise
        return True

    def delete(self, name: str) -> None:
        """Delete a copy, if there is one."""
        self.path(name).unlink(missing_ok=True)

    def retain(self, names: Collection[str], batch: int) -> None:
        """Delete the copies of all files but these, and those that this batch has written."""
        written_now = f"{batch - _FIRST_BATCH:012d}"
        for name, _, _ in self._listed():
            if name not in names and name.rpartition("/")[2] < written_now:
                self.delete(name)

    def _make_room(self, size: int, batch: int) -> bool:
        """Delete what was not used for longest, and not in this batch; return whether it fits."""
        if not self._limit:
            return True
        copies = list(self._listed())
        free = self._limit - sum(size for _, _, size in copies)
        old = sorted((used, size, name) for name, used, size in copies if used < batch)
        if free + sum(size for _, size, _ in old) < size:
            return False
        for _, freed, name in old:
            if free >= size:
                break
            # A process that has it mapped keeps its mapping.
            self.delete(name)
            free += freed
        return True

    def _listed(self) -> Iterator[tuple[str, int, int]]:
        """Yield the name of each copy, the batch that used it last, and its size."""
        for path in self._folder.rglob("*"):
            with suppress(FileNotFoundError):
                status = path.stat()
                if S_ISREG(status.st_mode) and not path.name.startswith("."):
                    used = int(status.st_mtime) + _FIRST_BATCH
                    yield path.relative_to(self._folder).as_posix(), used, status.st_size

    @contextmanager
    def _locked(self, name: str) -> Iterator[None]:
        private_folder(self._cache)
        self._folder.mkdir(parents=True, exist_ok=True)
        with open(self._folder / f".{name}", "wb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def _fetch_lock(ref: FileRef) -> str:
    return f"fetch-{zlib.crc32(ref.name.encode()) % LOCKS}"


def _stamp(path: Path, batch: int) -> None:
    when = batch - _FIRST_BATCH
    os.utime(path, (when, when))
