"""Asking: a snapshot query from outside the stream, answered at once.

Owns the way from the driver to the answer; the answer itself is that of
:mod:`sparkswarm.spark.tasks.answers`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812

from sparkswarm.errors import ConfigError, InputError
from sparkswarm.spark.driver.run import Run
from sparkswarm.spark.task_input import Briefing
from sparkswarm.spark.tasks.context import Desk
from sparkswarm.spark.tasks.operations import deal_operations
from sparkswarm.spark.tasks.packing import PARCELS
from sparkswarm.store.epochs import Epoch
from sparkswarm.store.quarantine import Quarantine
from sparkswarm.store.queries import DETAILS, EDGES


def ask(
    run: Run,
    box: tuple[float, float, float, float],
    since: datetime | None,
    until: datetime | None,
    count: bool,
    columns: Mapping[str, Any],
) -> pa.Table:
    """Answer one snapshot query about what is committed."""
    form = run.form.answers
    if form is None:
        raise ConfigError("this run keeps no points to ask about; give Swarm a window")
    commit = run.epochs.last_commit()
    assert commit is not None
    epoch = Epoch(
        batch=commit.batch, clock=commit.max_event_time, plan=commit.plan, manifest=commit.manifest
    )
    briefing = Briefing(
        run.files, "ask", epoch, 0, run.config,
        application=run.form.application, window=run.form.window, now=epoch.clock, answers=True,
    )  # fmt: skip
    quarantine = Quarantine(run.files, commit.batch, "ask")
    row = _row(box, since, until, count)
    application = run.form.application
    if application and len(application.query_schema):
        if unknown := columns.keys() - set(application.query_schema.names):
            raise InputError(f"queries have no column {', '.join(sorted(unknown))}")
        details = json.dumps(dict(columns), default=str).encode()
        row = row.append_column(DETAILS, pa.array([details], pa.binary()))
    elif columns:
        raise InputError("queries have no columns of their own without an application")
    dealt = deal_operations(Desk(briefing, None), row, quarantine)
    for (_, reason), _ in quarantine.faults().items():
        raise InputError(f"the query cannot be answered: {reason}")
    asks = run.spark.createDataFrame(dealt.parcels, PARCELS)
    sent = asks.repartitionById(commit.plan.executors, F.col("target"))
    return run.batches.answers(sent, briefing, form).drop("query_id").toArrow()


def _row(
    box: tuple[float, float, float, float],
    since: datetime | None,
    until: datetime | None,
    count: bool,
) -> pa.Table:
    """Return the query as it would come in the stream."""
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
