"""How much memory a process and all that it started use, read from Linux's /proc."""

from __future__ import annotations

import os
import threading
from pathlib import Path


def memory_in_use(root: int | None = None) -> int:
    """Return the bytes that a process and its descendants use, pages they share counted once."""
    total = 0
    for pid in _family(os.getpid() if root is None else root):
        try:
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
        except OSError:
            continue
        for line in rollup.splitlines():
            if line.startswith("Pss:"):
                total += int(line.split()[1]) * 1024
    return total


def _family(root: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except OSError:
                continue
            parent = int(stat.rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(entry.name))
    family, waiting = [], [root]
    while waiting:
        pid = waiting.pop()
        family.append(pid)
        waiting += children.get(pid, [])
    return family


class MemoryWatch:
    """Looks at the memory in use now and then; ``peak`` is the most that was seen."""

    def __init__(self, every: float = 0.5) -> None:
        self.peak = 0
        self._every = every
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> MemoryWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _look(self) -> None:
        while True:
            self.peak = max(self.peak, memory_in_use())
            if self._done.wait(self._every):
                return
