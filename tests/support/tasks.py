"""Runs the tasks of batches in this process, without Spark: rows in, rows out.

What Spark does between tasks is played by ``shuffled``; what the driver does, by its own functions.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import cloudpickle

from sparkswarm import Application, SwarmConfig
from sparkswarm.apps.bound import BoundApplication
from sparkswarm.policies import AgentReport, Controller, make_policy
from sparkswarm.protocol.cost import Prices
from sparkswarm.protocol.plan import Plan
from sparkswarm.spark.columns import INPUT_PARTITION, QUERY_IDS
from sparkswarm.spark.driver.batch import DriverContext
from sparkswarm.spark.driver.outputs import manifest_after
from sparkswarm.spark.driver.rebalance import rebalance
from sparkswarm.spark.task_input import TaskInput
from sparkswarm.spark.task_output import (
    AnswerSchema,
    OutputKind,
    OutputSchema,
    TaskOutput,
    TaskStage,
)
from sparkswarm.spark.tasks.agents import agents_task
from sparkswarm.spark.tasks.bases import (
    check_task,
    compact_task,
    manifest_with_bases,
    settle_task,
    write_task,
)
from sparkswarm.spark.tasks.context import BatchContext
from sparkswarm.spark.tasks.direct import match_task
from sparkswarm.spark.tasks.execute import execute_task
from sparkswarm.spark.tasks.operations import apply_operations
from sparkswarm.spark.tasks.packing import RowKind, packed
from sparkswarm.spark.tasks.route import route_task
from sparkswarm.store.epochs import Epoch
from sparkswarm.store.files import Files
from sparkswarm.store.manifest import Manifest
from sparkswarm.store.queries import EDGES, ID, TIME, X, Y
from sparkswarm.window.windows import Window

Rows = Iterable[pa.RecordBatch]
TaskFunction = Callable[[BatchContext, Rows], Iterator[pa.RecordBatch]]

RESULTS = pa.schema([(ID, pa.int64()), (QUERY_IDS, pa.list_(pa.int64()))])
ANSWERS = AnswerSchema(
    names=("query_id", "count", "id", "x", "y", "time"),
    columns=pa.schema(
        [("id", pa.int64()), ("x", pa.float64()), ("y", pa.float64()), ("time", pa.int64())]
    ),
)


def points_table(*points: tuple[Any, ...]) -> pa.Table:
    """Return points (id, x, y) or (id, x, y, time) under the engine's names."""
    names = [ID, X, Y, TIME][: len(points[0])] if points else [ID, X, Y]
    types = [pa.int64(), pa.float64(), pa.float64(), pa.int64()]
    columns = list(zip(*points, strict=True)) if points else [()] * len(names)
    return pa.table(
        {name: pa.array(c, t) for name, c, t in zip(names, columns, types, strict=False)}
    )


def with_partition(points: pa.Table, number: int = 0) -> Rows:
    """Return points as the task of an input partition gets them."""
    numbers = pa.array([number] * points.num_rows, pa.int32())
    return points.append_column(INPUT_PARTITION, numbers).to_batches()


def operations_table(*rows: dict[str, Any]) -> pa.Table:
    """Return operations under the engine's names; what a row leaves out is null."""
    named = any(isinstance(row.get("id"), str) for row in rows)
    types = {"op": pa.string(), "id": pa.string() if named else pa.int64()}
    types |= dict.fromkeys(EDGES, pa.float64())
    types |= dict.fromkeys(("expires", "order", "since", "until"), pa.int64())
    if any("details" in row for row in rows):
        types["details"] = pa.binary()
    return pa.table({n: pa.array([row.get(n) for row in rows], t) for n, t in types.items()})


def register(number: int | str, *box: float, **more: Any) -> dict[str, Any]:
    """Return an operation that registers a rectangle."""
    return {"op": "register", "id": number, **dict(zip(EDGES, box, strict=True)), **more}


def bind(
    application: Application,
    query_columns: pa.Schema | None = None,
    point_columns: pa.Schema | None = None,
) -> BoundApplication:
    """Return an application as tasks get it; by default its columns of queries are strings."""
    points = pa.schema([("id", pa.int64()), ("x", pa.float64()), ("y", pa.float64())])
    points = points.append(pa.field("time", pa.int64()))
    points = pa.unify_schemas([points, point_columns or pa.schema([])])
    bound = application.bind(points)
    columns = query_columns or pa.schema([(name, pa.string()) for name in bound.query_columns])
    names = {f"__{name}": name for name in bound.point_columns}
    return BoundApplication(cloudpickle.dumps(bound), columns, names, points)


@dataclass
class Tasks:
    """The tasks of one batch after another.

    Attributes
    ----------
    outputs
        What the tasks of the current batch sent to the driver.
    """

    folder: Path
    executors: int = 2
    policy: str = "static_uniform"
    application: Application | None = None
    window: Window | None = None
    config: SwarmConfig | None = None
    id_type: pa.DataType = field(default_factory=pa.int64)
    outputs: list[TaskOutput] = field(default_factory=list)
    input: TaskInput = field(init=False)
    _context: DriverContext = field(default_factory=DriverContext)

    def __post_init__(self) -> None:
        config = self.config or SwarmConfig(
            bounds=(0, 0, 8, 8),
            grid=(8, 8),
            executors=self.executors,
            policy=self.policy,
            round_batches=1,
        )
        plan = make_policy(config.policy).first_plan(config.make_grid(), config.executors)
        bound = None if self.application is None else bind(self.application)
        stateful = bound is not None and bound.stateful is not None
        self.input = TaskInput(
            files=Files(str(self.folder)),
            config=config,
            epoch=Epoch(batch=0, clock=0, plan=plan, manifest=Manifest.initial(plan.partitions)),
            attempt="test",
            application=bound,
            window=self.window,
            outputs=frozenset(OutputKind),
            point_columns={ID: "id", X: "x", Y: "y", TIME: "time"},
            output_schema=OutputSchema(
                results=RESULTS.set(1, pa.field(QUERY_IDS, pa.list_(self.id_type))),
                id_type=self.id_type,
                partial_state=stateful,
            ),
            id_type=self.id_type,
            answer_schema=ANSWERS,
        )

    @property
    def plan(self) -> Plan:
        """The plan of the current batch."""
        return self.input.epoch.plan

    def run(self, function: TaskFunction, rows: Rows, task: int = 0) -> list[pa.RecordBatch]:
        """Run one task; its output is added to ``outputs``."""
        context = BatchContext(self.input).for_task(task, 0, self.outputs.append)
        return list(function(context, rows))

    def route(self, points: pa.Table) -> Rows:
        """Route the rows of one input partition."""
        return self.run(route_task, with_partition(points))

    def declare(self, query_columns: pa.Schema, point_columns: pa.Schema) -> None:
        """Say which columns the application has."""
        assert self.application is not None
        bound = bind(self.application, query_columns, point_columns)
        names = {**self.input.point_columns, **bound.point_names}
        self.input = replace(self.input, application=bound, point_columns=names)

    def use_plan(self, plan: Plan) -> None:
        """Change the plan of the next batch."""
        epoch = self.input.epoch
        manifest = epoch.manifest.for_plan(epoch.plan.partitions, plan.partitions)
        self.input = replace(self.input, epoch=replace(epoch, plan=plan, manifest=manifest))

    def apply(self, *rows: dict[str, Any]) -> Rows:
        """Apply operations; the next tasks see them. Return packed snapshot queries."""
        return self._apply(operations_table(*rows))

    def apply_table(self, rows: pa.Table) -> None:
        """Apply operations with the application's columns."""
        plain = ("op", "id", *EDGES)
        listed = [
            {name: row[name] for name in plain}
            | {"details": json.dumps({n: v for n, v in row.items() if n not in plain}).encode()}
            for row in rows.to_pylist()
        ]
        self._apply(operations_table(*listed))

    def _apply(self, operations: pa.Table) -> Rows:
        applied = apply_operations(self._context.open(self.input), operations)
        self.outputs.append(applied.output)
        self.input = applied.input
        return [packed(applied.snapshots)]

    def load(self, *rows: dict[str, Any], batch_rows: int | None = None) -> None:
        """Load queries in bulk, in batches of so many rows; the next tasks see them."""
        checked = self.run(check_task, operations_table(*rows).to_batches(batch_rows))
        by_place: list[pa.RecordBatch] = []
        for rows_of_one in shuffled(checked, RowKind.OPERATIONS).values():
            by_place += self.run(settle_task, rows_of_one)
        for rows_of_one in shuffled(by_place, RowKind.PARTITION_QUERIES).values():
            self.run(write_task, rows_of_one)
        self._use_bases()

    def compact(self) -> None:
        """Write the queries of all partitions anew."""
        for executor in range(self.plan.executors):
            self.run(compact_task, [pa.record_batch({"id": pa.array([executor])})], executor)
        self._use_bases()

    def _use_bases(self) -> None:
        stages = (TaskStage.BASES, TaskStage.SETTLE)
        outputs = {o.key: o for o in self.outputs if o.stage in stages}
        manifest = manifest_with_bases(self._context.open(self.input), list(outputs.values()))
        self.input = replace(self.input, epoch=replace(self.input.epoch, manifest=manifest))

    def match(self, *points: tuple[Any, ...]) -> dict[int, list[int]]:
        """Match points; return the sorted ids of the queries of each point that has some."""
        return self._match(points_table(*points))

    def match_table(self, points: pa.Table) -> dict[int, list[int]]:
        """Match points with columns of the application."""
        ours = {"id": ID, "x": X, "y": Y}
        return self._match(
            points.rename_columns([ours.get(n, f"__{n}") for n in points.schema.names])
        )

    def match_directly(self, *points: tuple[Any, ...]) -> dict[int, list[int]]:
        """Match points in the task that reads them, as :meth:`match` does in those of executors."""
        found: dict[int, list[int]] = {}
        for batch in self.run(match_task, with_partition(points_table(*points), 7)):
            for row in batch.to_pylist():
                found[row[ID]] = sorted(row[QUERY_IDS])
        return found

    def _match(self, points: pa.Table) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for rows in shuffled(self.route(points), RowKind.POINTS).values():
            for batch in self.run(execute_task, rows):
                for row in batch.to_pylist():
                    if row[ID] is not None:
                        found[row[ID]] = sorted(row[QUERY_IDS])
        return found

    def run_agents(self, controller: Controller) -> None:
        """Let a policy's controller and its agents see what the batch's tasks did."""
        controller.observe([], Prices(), [o.collected for o in self.outputs if o.collected])
        rebalance(controller, self.input, self._run_agents, self._context.open)

    def _run_agents(self, task_input: TaskInput) -> list[AgentReport]:
        """Run all agents in a task."""
        numbers = pa.record_batch({"id": pa.array(range(self.plan.executors), pa.int64())})
        context = BatchContext(task_input).for_task(0, 0, self.outputs.append)
        list(agents_task(context, [numbers]))
        return [o.agent for o in self.outputs if o.agent]

    def commit(self, max_event_time: int = 0, **epoch: Any) -> None:
        """End the batch: the next one has its manifest."""
        manifest = manifest_after(self.input, self.outputs, max_event_time)
        before = self.input.epoch
        self.outputs.clear()
        self.input = replace(
            self.input,
            epoch=replace(before, batch=before.batch + 1, manifest=manifest, **epoch),
            max_event_time=max_event_time,
            query_changes=(),
            fence_changes=None,
        )


def shuffled(rows: Rows, kind: RowKind) -> dict[int, list[pa.RecordBatch]]:
    """Return the packed rows of one kind by target, as Spark's shuffle would."""
    table = pa.Table.from_batches(list(rows))
    chosen = [row for row in table.to_pylist() if row["kind"] == int(kind)]
    targets: dict[int, list[pa.RecordBatch]] = {}
    for row in chosen:
        batch = pa.RecordBatch.from_pylist([row], schema=table.schema)
        targets.setdefault(row["target"], []).append(batch)
    return dict(sorted(targets.items()))
