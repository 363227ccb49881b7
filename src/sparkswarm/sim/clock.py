"""Virtual time: a queue of scheduled actions.

Time is in whole microseconds. Actions due at the same time run in the order in which they were
scheduled, so the same seed gives the same history on every machine.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

MILLISECOND = 1000
"""Microseconds."""


class Clock:
    """The current time, and the actions that are due later."""

    def __init__(self) -> None:
        self.now = 0
        self._queue: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._scheduled = 0
        self.done = 0

    def after(self, delay: int, action: Callable[..., None], *arguments: Any) -> None:
        """Schedule an action in ``delay`` microseconds."""
        self._scheduled += 1
        heapq.heappush(self._queue, (self.now + delay, self._scheduled, action, arguments))

    def step(self) -> bool:
        """Run the next action; return False if there is none."""
        if not self._queue:
            return False
        self.done += 1
        self.now, _, action, arguments = heapq.heappop(self._queue)
        action(*arguments)
        return True
