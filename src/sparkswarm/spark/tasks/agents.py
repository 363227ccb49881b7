"""Agents: the executors' side of a rebalancing policy.

``agents_task`` runs after the points were matched, in batches in which the policy's controller has
something to say or to ask: when a round ends, and while the plan changes. Running again writes
other files with the same content.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from sparkswarm.policies import Agent, AgentContext, make_policy
from sparkswarm.spark.task_output import TaskOutput, TaskStage

if TYPE_CHECKING:
    from sparkswarm.spark.tasks.context import BatchContext


def make_agent(ctx: BatchContext, executor: int) -> Agent | None:
    """Return the policy's agent of an executor; None where it has none."""
    return make_policy(ctx.input.config.policy).agent(
        AgentContext(
            executor=executor,
            plan=ctx.plan,
            config=ctx.input.config,
            control=ctx.input.control,
            files=ctx.input.files,
            file_name=ctx.file_name,
            queries_in=ctx.queries_in,
            query_changes=ctx.input.query_changes,
        )
    )


def agents_task(ctx: BatchContext, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Run the agents of some executors, given by number; yields no rows."""
    for batch in batches:
        for executor in batch.column("id").to_pylist():
            agent = make_agent(ctx, executor)
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
