"""The handle of a run: status, plan, decisions, snapshot queries, stop.

Used on the driver, from any thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery

from sparkswarm.apps.events.nearest import nearest_of
from sparkswarm.apps.events.objects import BoundEvents
from sparkswarm.apps.events.reading import (
    ObjectPosition,
    Positions,
    bucket_of,
    object_position,
    objects_inside,
)
from sparkswarm.errors import ConfigError, InputError
from sparkswarm.observe.html import handle_html, plot
from sparkswarm.observe.progress import Status, count_unread
from sparkswarm.protocol.messages import Decision
from sparkswarm.protocol.plan import Plan
from sparkswarm.spark.sinks import Sinks
from sparkswarm.store.epochs import Commit
from sparkswarm.store.formats import table_from_bytes
from sparkswarm.store.names import hash_name, name_of_value

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from sparkswarm.spark.driver.questions import SnapshotQuestions
    from sparkswarm.spark.driver.run import RunLoop

STOPPED = "StoppedError"
"""The error that a batch raises where a stop was requested before it began."""


class Handle:
    """A run that was started.

    Attributes
    ----------
    query
        Spark's streaming query.
    sinks
        Where results, summaries and answers go; ``handle.sinks.results.table()`` returns the
        results of a run with ``sink="memory"``.
    """

    def __init__(
        self, run: RunLoop, query: StreamingQuery, sinks: Sinks, questions: SnapshotQuestions
    ) -> None:
        self._run = run
        self._questions = questions
        self.query = query
        self.sinks = sinks
        self._positions: tuple[int, Positions] | None = None

    @property
    def status(self) -> Status:
        """The state of the run; ``print`` it to read it. ``status()`` is the same."""
        run = self._run
        plan = self.plan()
        return Status(
            active=self.query.isActive,
            policy=run.config.policy,
            executors=plan.executors,
            round=run.round,
            partitions=len(plan.partitions),
            decisions=tuple(self.decisions()[-5:]),
            unread_rows=self.unread_rows,
            spark=self.query.status,
            **run.totals.status_fields(),
        )

    @property
    def unread_rows(self) -> int | None:
        """How many rows the sources had that no batch has read, as Spark last said; else None."""
        progress = self.query.lastProgress
        return count_unread(progress.sources) if progress else None

    def plan(self) -> Plan:
        """Return the plan of the last batch."""
        return self._run.plan

    def decisions(self) -> list[Decision]:
        """Return the last decisions of the Coordinator, with their reasons, oldest first."""
        return list(self._run.decisions)

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
        answer covers all committed batches and is collected on the driver; send many
        queries, or queries with large answers, in the stream of queries instead.

        Parameters
        ----------
        min_x, min_y, max_x, max_y
            The rectangle, edges included.
        since, until
            First and last time, both included; a datetime without a zone is local time.
        count
            Return only the number of points.
        columns
            Values of the application's ``query_columns``.

        Raises
        ------
        ConfigError
            If the run keeps no points.
        InputError
            If the query makes no sense.
        """
        with self._committed() as commit:
            box = min_x, min_y, max_x, max_y
            return self._questions.answer(commit, box, since, until, count, columns or {})

    def inside(self, fence: object) -> pa.Table:
        """Return the objects that are in a fence, as of the last commit.

        Needs a run with :class:`~sparkswarm.Events`, as :meth:`where` and :meth:`nearest` do. It
        may be called while the run goes on.

        Returns
        -------
        A row for each object: ``object``, ``time``, ``x`` and ``y`` of its last point, ``since``
        when it is in the fence, and the ``seconds`` from then to its last point.
        """
        return objects_inside(self._objects(), self._number(fence), self._events)

    def nearest_to(self, query: object) -> pa.Table:
        """Return the answer of a standing point as of the last commit, nearest first.

        Needs a run with :class:`~sparkswarm.Nearest`.

        Returns
        -------
        A row for each object: ``object``, ``time``, ``x`` and ``y`` of its last point, and its
        ``distance``, in units of the coordinates or in metres, as the query has its radius.
        """
        events = self._events
        if events.settings.nearest is None:
            raise ConfigError("no queries ask for the nearest; give Events nearest=Nearest(k)")
        return nearest_of(self._objects(), self._number(query), events)

    def _number(self, fence: object) -> int:
        """Return the number of a query with an id of the user's."""
        events = self._events
        if events.has_names:
            name = name_of_value(fence, events.fence_type)
            with self._committed() as commit:
                renumbered = commit.manifest.renumbered
            return renumbered.get(name, hash_name(name))
        if isinstance(fence, bool) or not isinstance(fence, int):
            raise InputError(f"a fence has a whole number as its id, got {fence!r}")
        return fence

    def where(self, object: object) -> ObjectPosition | None:
        """Return where an object is and in which fences, as of the last commit.

        None where nothing is known of it: it was never seen, or is silent for too long.
        """
        events = self._events
        for table in self._objects(bucket_of(object, events)):
            return object_position(table, object, events)
        return None

    def nearest(self, x: float, y: float, k: int = 1, within: float | None = None) -> pa.Table:
        """Return the k objects nearest to a place, nearest first, as of the last commit.

        Parameters
        ----------
        x, y
            The place.
        k
            Maximum number of objects.
        within
            Largest distance, in units of the coordinates; None for any.

        Returns
        -------
        A row for each object: ``object``, ``time``, ``x`` and ``y`` of its last point, and its
        ``distance``, in units of the coordinates on a plane.
        """
        events = self._events
        with self._committed() as commit:
            positions = self._positions
            if positions is None or positions[0] != commit.batch:
                positions = self._positions = commit.batch, Positions(self._objects(), events)
        return positions[1].nearest(x, y, k, within)

    @property
    def _events(self) -> BoundEvents:
        events = self._run.layout.events
        if events is None:
            raise ConfigError("this run keeps no objects; give Swarm events")
        return events

    @contextmanager
    def _committed(self) -> Iterator[Commit]:
        """Give the last commit, whose files stay until this ends."""
        with self._run.epochs.pinned() as commit:
            if commit is None:
                raise ConfigError("this run has not begun")
            yield commit

    def _objects(self, bucket: int | None = None) -> Iterator[pa.Table]:
        """Yield what is known of the objects of a bucket, or of all buckets."""
        with self._committed() as commit:
            for number, ref in commit.manifest.objects.items():
                if bucket is None or number == bucket:
                    yield table_from_bytes(self._run.files.mmap(ref.file), ref.offset)

    def set_executors(self, executors: int) -> None:
        """Change the number of executors from the next batch on.

        An executor is a task of each batch. Spark must have the cores to run them: adding
        machines is up to Spark, dividing the work among them is up to this setting.
        """
        if isinstance(executors, bool) or not isinstance(executors, int) or executors < 1:
            raise ConfigError(f"executors must be a whole number of at least 1, got {executors!r}")
        self._run.request_executors(executors)

    def stop(self) -> None:
        """End the run after the batch under way; start on the same checkpoint to go on."""
        with self._run.batch_lock:
            self._run.stop_requested = True
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
            if self._is_stop(error):
                return True
            if self._run.failure:
                # Of Spark's message the reason is at the end, behind two stack traces.
                raise StreamingQueryException(f"{self._run.failure}\n\n{error}") from error
            raise

    def process_all_available(self) -> None:
        """Wait until all that the sources have now is in the sink. For tests."""
        self.query.processAllAvailable()

    # -- as a StreamingQuery has it ------------------------------------------------------------

    @property
    def id(self) -> str:
        """The id of the run, which its checkpoint keeps."""
        return str(self.query.id)

    @property
    def runId(self) -> str:  # noqa: N802 (the names are Spark's)
        """The id of this start."""
        return str(self.query.runId)

    @property
    def name(self) -> str | None:
        """The name of the streaming query."""
        return self.query.name

    @property
    def isActive(self) -> bool:  # noqa: N802
        """Whether it is running."""
        return self.query.isActive

    @property
    def lastProgress(self) -> StreamingQueryProgress | None:  # noqa: N802
        """Spark's progress of the last trigger; ``status.last`` is ours."""
        return self.query.lastProgress

    @property
    def recentProgress(self) -> list[StreamingQueryProgress]:  # noqa: N802
        """Spark's progress of the last triggers."""
        return self.query.recentProgress

    def exception(self) -> StreamingQueryException | None:
        """Return what ended the run; None while it runs, or where it was asked to stop."""
        error = self.query.exception()
        return None if error is None or self._is_stop(error) else error

    @staticmethod
    def _is_stop(error: StreamingQueryException) -> bool:
        return STOPPED in str(error)

    def awaitTermination(self, timeout: float | None = None) -> bool:  # noqa: N802
        """Wait as :meth:`await_termination` does."""
        return self.await_termination(timeout)

    def processAllAvailable(self) -> None:  # noqa: N802
        """Wait as :meth:`process_all_available` does."""
        self.process_all_available()

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
