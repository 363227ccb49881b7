"""Questions of the user about recent points, answered between batches as those of the stream are.

Runs on the driver, in any thread.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.types import LongType, StructField, StructType

from sparkswarm.arguments import NUMBERS, check_argument
from sparkswarm.errors import ConfigError, InputError
from sparkswarm.spark.driver.batch import DriverContext, Stages, answer_frame, packed_frame
from sparkswarm.spark.task_input import TaskInput
from sparkswarm.spark.task_output import OutputKind
from sparkswarm.spark.tasks.operations import check_operations
from sparkswarm.store.epochs import Commit, Epoch
from sparkswarm.store.queries import DETAILS, EDGES

if TYPE_CHECKING:
    from sparkswarm.spark.driver.run import RunLoop

Box = tuple[float, float, float, float]
"""The smaller x and y of a rectangle, then the larger."""


class SnapshotQuestions:
    """Answers snapshot queries that are not in the stream."""

    def __init__(self, run: RunLoop) -> None:
        self._run = run
        self._asking = threading.Lock()
        self._context = DriverContext()

    def answer(
        self,
        commit: Commit,
        box: Box,
        since: datetime | None,
        until: datetime | None,
        count: bool,
        columns: Mapping[str, Any],
    ) -> pa.Table:
        """Answer a question about what a commit names."""
        run = self._run
        row = _snapshot_row(box, since, until, count)
        if columns or run.layout.application:
            row = self._with_columns(row, columns)
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
        check_argument("columns", columns, Mapping, "a dictionary", optional=False)
        if not known and columns:
            raise InputError("queries have no columns of their own without an application")
        if unknown := columns.keys() - set(known):
            raise InputError(f"queries have no column {', '.join(sorted(unknown))}")
        if not known:
            return row
        details = json.dumps(dict(columns), default=str).encode()
        return row.append_column(DETAILS, pa.array([details], pa.binary()))


def _snapshot_row(
    box: Box,
    since: datetime | None,
    until: datetime | None,
    count: bool,
) -> pa.Table:
    """Return a snapshot query as it would come in the stream."""
    for name, value in zip(EDGES, box, strict=True):
        check_argument(name, value, NUMBERS, "a number", optional=False)
    for name, when in (("since", since), ("until", until)):
        check_argument(name, when, datetime, "a datetime")
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
