"""Memory use of a process and its descendants; Linux only."""

from __future__ import annotations

import os
import threading
from pathlib import Path


def memory_in_use(root: int | None = None) -> int:
    """Return the bytes that a process and its descendants use; shared pages count once."""
    total = 0
    for pid in _descendants(os.getpid() if root is None else root):
        try:
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
        except OSError:
            continue
        for line in rollup.splitlines():
            if line.startswith("Pss:"):
                total += int(line.split()[1]) * 1024
    return total


def _descendants(root: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except OSError:
                continue
            parent = int(stat.rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(entry.name))
    found, waiting = [], [root]
    while waiting:
        pid = waiting.pop()
        found.append(pid)
        waiting += children.get(pid, [])
    return found


class MemoryWatch:
    """Samples the memory in use every ``every`` seconds; ``peak`` is the maximum."""

    def __init__(self, every: float = 0.5) -> None:
        self.peak = 0
        self._every = every
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> MemoryWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _sample(self) -> None:
        while True:
            self.peak = max(self.peak, memory_in_use())
            if self._done.wait(self._every):
                return
