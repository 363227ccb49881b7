"""Rebalancing between batches: a policy's controller, and the agents of the executors.

Runs on the driver, once a batch, after its commit. While what agents need is small, they run here,
and a whole round takes place between two batches. Else they run in a job of their own, and what the
controller says next waits for the next batch. Nothing here is durable: after a failure statistics
are collected again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from sparkswarm.policies import AgentReport, Controller
from sparkswarm.protocol.messages import Decision
from sparkswarm.protocol.plan import Plan
from sparkswarm.spark.task_input import TaskInput
from sparkswarm.spark.tasks.agents import make_agent
from sparkswarm.spark.tasks.context import BatchContext
from sparkswarm.store.files import batch_prefix

OpenContext = Callable[[TaskInput], BatchContext]


def rebalance(
    controller: Controller,
    task_input: TaskInput,
    run_job: Callable[[TaskInput], Sequence[AgentReport]],
    open_context: OpenContext,
) -> tuple[list[Decision], bool]:
    """Let the policy learn from a batch; return what was decided, and whether agents ran.

    ``run_job`` runs the agents in tasks, ``open_context`` opens files on the driver.
    """
    control = controller.begin_batch()
    reports: Sequence[AgentReport] = ()
    if control.due:
        given = replace(task_input, control=control)
        if control.is_light:
            reports = run_here(given, controller.plan, open_context, 0)
        else:
            reports = run_job(given)
    decisions = [*controller.end_batch(reports)]
    exchange = 1
    while (more := controller.continue_batch()) is not None:
        # The agents have read before what queries changed.
        given = replace(task_input, control=more, query_changes=())
        decisions += controller.end_batch(run_here(given, controller.plan, open_context, exchange))
        exchange += 1
    return decisions, bool(reports)


def run_here(
    task_input: TaskInput, plan: Plan, open_context: OpenContext, exchange: int
) -> list[AgentReport]:
    """Run the agents of all executors, under a plan that may be newer than the batch's."""
    batch, suffix = task_input.epoch.batch, f"{task_input.attempt}-driver{exchange}.arrow"
    agents = (
        make_agent(
            task_input,
            executor,
            plan,
            lambda folder, name: f"{batch_prefix(folder, batch)}-{name}-{suffix}",
            lambda cells: open_context(task_input).queries_in(cells),
        )
        for executor in range(plan.executors)
    )
    return [agent.close() for agent in agents if agent is not None]
