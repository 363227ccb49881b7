"""Runs to write journals of: plans that change, and batches under them."""

from __future__ import annotations

from sparkswarm.geometry import Bounds, Grid
from sparkswarm.observe.progress import Progress
from sparkswarm.protocol.messages import Decision, DecisionKind, Reason
from sparkswarm.protocol.partition import moved, reshared
from sparkswarm.protocol.plan import Plan

GRID = Grid(Bounds(-125.0, 24.0, -66.0, 50.0), 40, 20)


def first_plan(executors: int = 4) -> Plan:
    return Plan.initial(GRID, executors)


def after_a_move(plan: Plan, partition: int, to: int) -> Plan:
    """Return the next plan, in which an executor has one more partition."""
    (fresh,), plan = plan.reserve(1)
    old = plan.partitions[partition]
    return plan.apply([moved(old, old.owners[0], to, fresh)])


def after_sharing(plan: Plan, partition: int, *owners: int) -> Plan:
    """Return the next plan, in which a partition is shared evenly."""
    (fresh,), plan = plan.reserve(1)
    shares = dict.fromkeys(owners, 64 // len(owners))
    return plan.apply([reshared(plan.partitions[partition], shares, fresh)])


def progress(batch: int, plan: Plan, bad: str = "outside the bounds") -> Progress:
    return Progress(
        batch=batch,
        seconds=0.5,
        points=1000 + batch,
        matches=200,
        checks=300,
        operations=7,
        lag_s=12.4,
        quarantined={("point", bad): 3},
        plan_version=plan.version,
        busy_s=tuple(0.01 * (m + 1) for m in range(plan.executors)),
        points_by_executor=tuple(100 * (m + 1) for m in range(plan.executors)),
    )


def decided(
    number: int, kind: DecisionKind = DecisionKind.KEEP, reason: Reason = Reason.NOTHING_ARRIVED
) -> list[Decision]:
    return [Decision(round=number, kind=kind, reason=reason)]


def wandering(batches: int, executors: int = 4) -> list[tuple[Progress, Plan, list[Decision]]]:
    """Return a run in which every third batch has a new plan."""
    plan, run = first_plan(executors), []
    for batch in range(batches):
        if batch % 3 == 2:
            old = plan.partitions[batch % executors]
            plan = after_a_move(plan, batch % executors, (old.owners[0] + 1) % executors)
        run.append((progress(batch, plan), plan, decided(batch)))
    return run
