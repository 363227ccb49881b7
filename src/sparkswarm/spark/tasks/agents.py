"""Agents: the executors' side of a rebalancing policy.

They run after a batch in which the policy's controller has something to say or to ask: when a round
ends, and while the plan changes. The driver runs them itself where what they need is small; else
``agents_task`` runs in tasks. Running again gives the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from sparkswarm.geometry import CellRect, QueryCells
from sparkswarm.policies import Agent, AgentContext, make_policy
from sparkswarm.protocol.plan import Plan
from sparkswarm.spark.task_input import TaskInput
from sparkswarm.spark.task_output import TaskOutput, TaskStage

if TYPE_CHECKING:
    from sparkswarm.spark.tasks.context import BatchContext


def make_agent(
    task_input: TaskInput,
    executor: int,
    plan: Plan,
    file_name: Callable[[str, str], str],
    queries_in: Callable[[CellRect], QueryCells],
) -> Agent | None:
    """Return the policy's agent of an executor under a plan; None where it has none."""
    return make_policy(task_input.config.policy).agent(
        AgentContext(
            executor=executor,
            plan=plan,
            config=task_input.config,
            control=task_input.control,
            files=task_input.files,
            file_name=file_name,
            queries_in=queries_in,
            query_changes=task_input.query_changes,
        )
    )


def agents_task(ctx: BatchContext, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Run the agents of some executors, given by number; yields no rows."""
    for batch in batches:
        for executor in batch.column("id").to_pylist():
            agent = make_agent(ctx.input, executor, ctx.plan, ctx.file_name, ctx.queries_in)
            if agent is not None:
                report = agent.close()
                ctx.collect(
                    TaskOutput(
                        batch=ctx.epoch.batch,
                        stage=TaskStage.AGENT,
                        task=executor,
                        agent=report,
                    )
                )
    yield from ()
