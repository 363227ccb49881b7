"""Turns: several streams of one session run their batches one after another.

So neither slows the other down, and all pay alike for what a young process costs, such as Java's
compiling, and for what else the machine does in that minute. Owns the order of the batches.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from pyspark.sql.streaming.query import StreamingQuery

from sparkswarm.observe.progress import Observer, Progress
from sparkswarm.protocol.messages import Decision
from sparkswarm.protocol.plan import Plan

LOOK_EVERY = 1
"""Seconds between two looks at whether a stream has failed."""


class Turns:
    """The turns of some streams: the next batch is of the stream that has had the fewest.

    The first batches run together.

    Parameters
    ----------
    streams, batches
        Number of streams, and of the batches after which a stream waits no more.

    Attributes
    ----------
    waited
        Of each stream, the seconds that each batch waited at its end.
    """

    def __init__(self, streams: int, batches: int) -> None:
        self.waited: list[list[float]] = [[] for _ in range(streams)]
        self._batches = batches
        self._over = False
        self._changed = threading.Condition()

    def observer(self, stream: int) -> Observer:
        """Return what the batches of a stream are to call at their end: it waits for its turn."""
        mine = self.waited[stream]

        def wait(_progress: Progress, _plan: Plan, _decisions: Sequence[Decision]) -> None:
            began = time.monotonic()
            with self._changed:
                mine.append(0.0)
                self._changed.notify_all()
                self._changed.wait_for(
                    lambda: self._over or len(mine) >= self._batches or self._next() == stream
                )
                mine[-1] = time.monotonic() - began

        return wait

    def end(self) -> None:
        """Let all streams go on: they are to be stopped, or one has failed."""
        with self._changed:
            self._over = True
            self._changed.notify_all()

    def await_all(self, queries: Sequence[StreamingQuery]) -> None:
        """Wait until all streams have ended; where one fails, raise why."""
        while running := [query for query in queries if query.isActive]:
            for query in queries:
                if not query.isActive and query.exception() is not None:
                    query.awaitTermination()
            running[0].awaitTermination(LOOK_EVERY)
        for query in queries:
            query.awaitTermination()

    def _next(self) -> int:
        # Of equals, the first in the list.
        return min(range(len(self.waited)), key=lambda stream: len(self.waited[stream]))
