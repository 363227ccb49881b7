"""Virtual time: a queue of things to do, in the order of their time.

Owns the present. Time is whole microseconds, and what is due at the same time happens in the
order in which it was asked for, so that the same seed gives the same history everywhere.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

MILLISECOND = 1000
"""Microseconds."""


class Clock:
    """Do one thing after another, know what time it is, and count what was done."""

    def __init__(self) -> None:
        self.now = 0
        self._queue: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._asked = 0
        self.done = 0

    def after(self, delay: int, action: Callable[..., None], *arguments: Any) -> None:
        """Do ``action`` when ``delay`` microseconds have passed."""
        self._asked += 1
        heapq.heappush(self._queue, (self.now + delay, self._asked, action, arguments))

    def step(self) -> bool:
        """Do the next thing; False if there is none."""
        if not self._queue:
            return False
        self.done += 1
        self.now, _, action, arguments = heapq.heappop(self._queue)
        action(*arguments)
        return True
