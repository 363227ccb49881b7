"""The handle of a run in Real-time Mode: two streaming queries that end together.

Used on the driver, from any thread.
"""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.errors import StreamingQueryException

from sparkswarm.errors import ConfigError
from sparkswarm.observe.progress import Status
from sparkswarm.spark.handle import Handle
from sparkswarm.spark.sinks import Sinks

if TYPE_CHECKING:
    from sparkswarm.spark.driver.questions import SnapshotQuestions
    from sparkswarm.spark.driver.run import RunLoop
    from sparkswarm.spark.realtime import TwoStreams

WATCH_SECONDS = 0.2
"""Time between two looks at whether both queries run."""


class RealTimeHandle(Handle):
    """A run in Real-time Mode.

    Attributes
    ----------
    query
        Spark's streaming query of the points.
    operations
        That of the operations, in micro-batches.
    """

    def __init__(self, run: RunLoop, streams: TwoStreams, questions: SnapshotQuestions) -> None:
        super().__init__(run, streams.points, Sinks(), questions)
        self.operations = streams.operations
        self._by_owner = streams.by_owner
        threading.Thread(target=self._watch, name="sparkswarm-realtime", daemon=True).start()

    def _watch(self) -> None:
        """End both when one has ended."""
        while self.query.isActive and self.operations.isActive:
            time.sleep(WATCH_SECONDS)
        self.stop()

    @property
    def status(self) -> Status:
        """The state of the run; ``print`` it to read it. ``status()`` is the same."""
        return replace(super().status, active=self.isActive)

    @property
    def isActive(self) -> bool:  # noqa: N802
        """Whether both queries run."""
        return self.query.isActive and self.operations.isActive

    def set_executors(self, executors: int) -> None:
        """Change the number of executors, where they have no tasks of their own."""
        if self._by_owner:
            raise ConfigError(
                "in Real-time Mode each executor has a task that does not end: stop the run, and "
                "start it with another number of executors"
            )
        super().set_executors(executors)

    def stop(self) -> None:
        """End the run; points since the last trigger come again when it is started again."""
        with self._run.batch_lock:
            self._run.stop_requested = True
        # Now it is between two batches: the next one begins within a second.
        self.operations.stop()
        self.query.stop()

    def exception(self) -> StreamingQueryException | None:
        """Return what ended the run; None while it runs, or where it was asked to stop."""
        error = self.operations.exception()
        if error is not None and not self._is_stop(error):
            return error
        return super().exception()

    def await_termination(self, timeout: float | None = None) -> bool:
        """Wait until the run has ended; return whether it has. Raises what ended it."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while self.isActive:
            if deadline is not None and time.monotonic() > deadline:
                return False
            time.sleep(WATCH_SECONDS)
        self.stop()
        if (error := self.exception()) is not None:
            raise error
        return True
