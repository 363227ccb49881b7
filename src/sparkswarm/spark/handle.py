"""The handle of a run: status, plan, decisions, snapshot queries, stop.

Used on the driver, from any thread.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import LongType, StructField, StructType

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
from sparkswarm.spark.driver.batch import DriverContext, Stages, answer_frame, packed_frame
from sparkswarm.spark.sinks import Sinks
from sparkswarm.spark.task_input import TaskInput
from sparkswarm.spark.task_output import OutputKind
from sparkswarm.spark.tasks.operations import check_operations
from sparkswarm.store.epochs import Commit, Epoch
from sparkswarm.store.formats import table_from_bytes
from sparkswarm.store.names import hash_name, name_of_value
from sparkswarm.store.queries import DETAILS, EDGES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from sparkswarm.spark.driver.run import RunLoop

STOPPED = "StoppedError"
"""The error that a batch raises where a stop was requested before it began."""


WATCH_SECONDS = 0.2
"""Time between two looks at whether both queries run."""


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

    def __init__(self, run: RunLoop, query: StreamingQuery, sinks: Sinks) -> None:
        self._run = run
        self.query = query
        self.sinks = sinks
        self._positions: tuple[int, Positions] | None = None
        self._asking = threading.Lock()
        self._context = DriverContext()

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
            row = _snapshot_row((min_x, min_y, max_x, max_y), since, until, count)
            if columns or self._run.layout.application:
                row = self._with_columns(row, columns or {})
            return self._answer(commit, row)

    def _answer(self, commit: Commit, row: pa.Table) -> pa.Table:
        """Answer a snapshot query from what a commit names."""
        run = self._run
        if run.layout.answers is None or run.layout.answer_schema is None:
            raise ConfigError("this run keeps no points to ask about; give Swarm a window")
        task_input = TaskInput(
            files=run.files,
            config=run.config,
            epoch=Epoch(
                batch=commit.batch,
                clock=commit.max_event_time,
                plan=commit.plan,
                manifest=commit.manifest,
                stored=commit.stored,
            ),
            attempt="ask",
            application=run.layout.application,
            window=run.layout.window,
            outputs=frozenset({OutputKind.ANSWERS}),
            answer_schema=replace(run.layout.answer_schema, id_type=pa.int64()),
            max_event_time=commit.max_event_time,
        )
        with self._asking:
            # It goes on from that of the last question: an index of the plan is large.
            context = self._context.open(task_input)
            quarantine = context.quarantine("snapshot")
            checked = check_operations(context, row, quarantine)
        for _, reason in quarantine.faults():
            raise InputError(f"the query cannot be answered: {reason}")
        packed = packed_frame(run.spark, checked.snapshots)
        stages = Stages(task_input, run.collector)
        # The query has no id of the user's.
        plain = StructType([StructField("query_id", LongType()), *run.layout.answers.fields[1:]])
        found = answer_frame(run.spark, packed, stages, plain)
        return found.drop("query_id").toArrow()

    def _with_columns(self, row: pa.Table, columns: Mapping[str, Any]) -> pa.Table:
        """Return a query with the application's columns."""
        application = self._run.layout.application
        known = application.query_schema.names if application else []
        if not known and columns:
            raise InputError("queries have no columns of their own without an application")
        if unknown := columns.keys() - set(known):
            raise InputError(f"queries have no column {', '.join(sorted(unknown))}")
        if not known:
            return row
        details = json.dumps(dict(columns), default=str).encode()
        return row.append_column(DETAILS, pa.array([details], pa.binary()))

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


class RealTimeHandle(Handle):
    """A run in Real-time Mode.

    Attributes
    ----------
    query
        Spark's streaming query of the points.
    operations
        That of the operations, in micro-batches.
    """

    def __init__(
        self, run: RunLoop, query: StreamingQuery, operations: StreamingQuery, by_owner: bool
    ) -> None:
        super().__init__(run, query, Sinks())
        self.operations = operations
        self._by_owner = by_owner
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


def _snapshot_row(
    box: tuple[float, float, float, float],
    since: datetime | None,
    until: datetime | None,
    count: bool,
) -> pa.Table:
    """Return a snapshot query as it would come in the stream."""
    edges = dict(zip(EDGES, map(float, box), strict=True))
    times = {"expires": None, "order": None, "since": _micros(since), "until": _micros(until)}
    return pa.table(
        {
            "op": ["count" if count else "range"],
            "id": pa.array([0], pa.int64()),
            **{edge: pa.array([value], pa.float64()) for edge, value in edges.items()},
            **{name: pa.array([value], pa.int64()) for name, value in times.items()},
        }
    )


def _micros(when: datetime | None) -> int | None:
    return None if when is None else round(when.timestamp() * 1_000_000)
