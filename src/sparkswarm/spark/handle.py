"""The handle: what a user holds of a run that was started."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming import StreamingQuery

from sparkswarm.errors import ConfigError
from sparkswarm.observe.html import handle_html, plot
from sparkswarm.observe.progress import Status
from sparkswarm.protocol.messages import Decision
from sparkswarm.protocol.plan import Plan
from sparkswarm.spark.driver.asking import ask
from sparkswarm.spark.driver.run import Run, StoppedError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Handle:
    """A run that was started."""

    def __init__(self, run: Run, query: StreamingQuery) -> None:
        self._run = run
        self.query = query

    def status(self) -> Status:
        """Return the state of the run; ``print`` it to read it."""
        run = self._run
        plan = self.plan()
        return Status(
            active=self.query.isActive,
            policy=run.config.policy,
            executors=plan.executors,
            round=run.planner.round,
            partitions=len(plan.partitions),
            decisions=tuple(self.decisions()[-5:]),
            **run.totals.so_far(),
        )

    def plan(self) -> Plan:
        """Return the plan in force."""
        assert self._run.plan is not None
        return self._run.plan

    def decisions(self) -> list[Decision]:
        """Return the last decisions of the Coordinator, with their reasons, oldest first."""
        return self._run.planner.journal

    def ask(
        self,
        min_x: float,
        min_y: float,
        max_x: float,
        max_y: float,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        count: bool = False,
        columns: Mapping[str, Any] | None = None,
    ) -> pa.Table:
        """Answer a snapshot query: which points of the recent past are in a rectangle.

        Needs a run that keeps points, see the ``window`` of :class:`~sparkswarm.Swarm`. The
        answer is about all batches committed so far and is collected here; many queries, or
        large answers, had better come in the stream of queries.

        Parameters
        ----------
        min_x, min_y, max_x, max_y
            The rectangle, edges included.
        since, until
            Narrow down the time, both included; a datetime without a zone is local time.
        count
            Whether to say only how many.
        columns
            What the application wants to know of a query, by its ``query_columns``.

        Raises
        ------
        ConfigError
            If the run keeps no points.
        InputError
            If the query makes no sense.
        """
        box = (min_x, min_y, max_x, max_y)
        return ask(self._run, box, since, until, count, columns or {})

    def set_executors(self, executors: int) -> None:
        """Share the work among so many executors from the next batch on.

        An executor is a task of each batch. Spark must have the cores to run them: adding
        machines is Spark's business, sharing the work among them is ours.
        """
        if isinstance(executors, bool) or not isinstance(executors, int) or executors < 1:
            raise ConfigError(f"executors must be a whole number of at least 1, got {executors!r}")
        self._run.planner.want_executors(executors)

    def stop(self) -> None:
        """End the run after the batch under way; start on the same checkpoint to go on."""
        with self._run.between:
            self._run.stopping = True
        # Not under the lock: Spark waits for a batch that may be waiting for it.
        self.query.stop()

    def await_termination(self, timeout: float | None = None) -> bool:
        """Wait until the run has ended; return whether it has. Raises what ended it."""
        try:
            if timeout is None:
                self.query.awaitTermination()
                return True
            return bool(self.query.awaitTermination(timeout))  # type: ignore[arg-type]  # floats do
        except StreamingQueryException as error:
            if StoppedError.__name__ in str(error):
                return True
            raise

    def process_all_available(self) -> None:
        """Wait until all that the sources have now is in the sink. For tests."""
        self.query.processAllAvailable()

    def plot(self) -> Figure:
        """Draw the partitions of the plan in force and the work of the last batch."""
        last = self._run.totals.last
        return plot(self.plan(), last.busy_s if last else ())

    def _repr_html_(self) -> str:
        """Return the state of the run and its plan, for notebooks."""
        return handle_html(self.status(), self.plan())

    def __enter__(self) -> Handle:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
