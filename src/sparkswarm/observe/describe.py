"""Decisions in words and as JSON: the only place that turns a Decision into text.

Everything that shows decisions (status, journal, metrics, tables, map, demo) takes its text from
here, and reads everything else from the fields.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from sparkswarm.protocol.decision import Stage
from sparkswarm.protocol.messages import Decision, DecisionKind, Reason, Refusal
from sparkswarm.protocol.partition import ChangeKind, PlanChange


def describe(decision: Decision) -> str:
    """Return a decision in one sentence, such as ``round 3: rebalance (the slowest ...)``."""
    return f"round {decision.round}: {what(decision)} ({reason(decision)})"


def what(decision: Decision) -> str:
    """Return what was decided."""
    executor, *others = decision.executors or (-1,)
    match decision.kind:
        case DecisionKind.KEEP:
            return "do nothing"
        case DecisionKind.REBALANCE:
            return "rebalance"
        case DecisionKind.ASK:
            return f"ask {executor} to give to {', '.join(map(str, others))}"
        case DecisionKind.CHANGE:
            return "; ".join(change.describe() for change in decision.changes)
        case DecisionKind.REFUSE:
            return "refused " + "; ".join(change.describe() for change in decision.changes)
        case DecisionKind.NOTHING_TO_GIVE:
            return f"{executor} gives nothing"
        case DecisionKind.RESIZE:
            return f"resize to {decision.numbers['executors']:.0f} executors"
        case DecisionKind.MISSING_REPORT:
            return "decide without all reports"
        case DecisionKind.IGNORED_REPORT:
            return "report ignored"
        case DecisionKind.LOST:
            return f"lost {executor}"
        case DecisionKind.REGAINED:
            return f"regained {executor}"


def reason(decision: Decision) -> str:
    """Return why it was decided."""
    match decision.kind:
        case DecisionKind.CHANGE:
            return "; ".join(text for _, text in lines(decision) if text)
        case DecisionKind.NOTHING_TO_GIVE:
            return _why_nothing(decision)
    n = decision.numbers
    executor = decision.executors[0] if decision.executors else -1
    match decision.reason:
        case Reason.NOTHING_ARRIVED:
            return "nothing arrived"
        case Reason.NO_LOAD:
            return "no executor has any load"
        case Reason.GAIN_ENOUGH | Reason.GAIN_TOO_SMALL:
            return (
                f"the slowest executor would get {n['gain']:.1%} faster "
                f"({n['slowest']:.4g} -> {n['mean']:.4g}; threshold {n['threshold']:.1%})"
            )
        case Reason.LOAD_UNSTABLE:
            return (
                f"the load keeps jumping ({n['surprise']:.0%} of it was not where it was "
                f"expected); waiting for {n['rounds']:.0f} more calm rounds"
            )
        case Reason.FIRST_ROUND:
            return "the first round has no earlier throughput to compare with"
        case Reason.STAGE_MOVED:
            stage = list(Stage)[int(n["stage"])].value
            return f"throughput {n['previous']:g} -> {n['throughput']:g}, stage {stage!r}"
        case Reason.STAGES_ENDED:
            return (
                f"throughput {n['previous']:g} -> {n['throughput']:g}, "
                f"stage {Stage.FLIP.value!r}; decision flipped"
            )
        case Reason.REPEATED:
            return f"the same decision was taken {n['times']:.0f} times (beta); decision flipped"
        case Reason.ABOVE_LEVEL:
            lows = ", ".join(f"{cost:.4g}" for cost in decision.costs[1:])
            return f"it costs {decision.costs[0]:.4g}, they {lows}; level {n['level']:.4g}"
        case Reason.OLD_ROUND:
            return f"it belongs to round {decision.round}, this is round {n['current']:.0f}"
        case Reason.PLAN_CHANGED:
            return "the plan has changed since"
        case Reason.NOT_OWNER:
            return f"{executor} does not own what it would change"
        case Reason.UNKNOWN_EXECUTOR:
            return f"executors are 0 to {n['executors'] - 1:.0f}"
        case Reason.IDS_NOT_GRANTED:
            return f"its ids were not granted to {executor}"
        case Reason.REQUESTED:
            return f"there were {n['before']:.0f}; {len(decision.changes)} partitions change hands"
        case Reason.SAME_NUMBER:
            return f"there are {n['executors']:.0f} already"
        case Reason.EXECUTOR_DIED:
            return f"its {len(decision.changes)} partitions go to the others"
        case Reason.EXECUTOR_IS_BACK:
            return "it is back, without partitions"
        case Reason.NO_REPORT:
            return f"no report from {list(decision.executors)}"
        case Reason.LATE_OR_UNKNOWN:
            return f"late or unknown: {executor}"
        case Reason.UNUSABLE_NUMBERS:
            return f"{executor} reported {n['numerator']:g} and {n['received']:g}"
    return decision.reason.replace("_", " ")


def lines(decision: Decision) -> list[tuple[str, str]]:
    """Return (what, reason) for each change that was made; one pair for any other decision.

    Of several changes that give to the same executor, the first has the reason for all.
    """
    if decision.kind is not DecisionKind.CHANGE:
        return [(what(decision), reason(decision))]
    if decision.reason is Reason.TIDYING:
        cooled = sum(change.kind is ChangeKind.UNSHARE for change in decision.changes)
        why = f"tidying up: {cooled} cells cooled down, {len(decision.changes) - cooled} merges"
        reasons = {0: why}
    else:
        reasons = dict(_reasons(decision))
    return [(change.describe(), reasons.get(i, "")) for i, change in enumerate(decision.changes)]


def _reasons(decision: Decision) -> list[tuple[int, str]]:
    """Return, for each receiver, the position of its first change and what it is given."""
    found = []
    costs = decision.costs[1:] or [None] * (len(decision.executors) - 1)
    for m_low, cost in zip(decision.executors[1:], costs, strict=True):
        mine = [i for i, change in enumerate(decision.changes) if _gives_to(change, m_low)]
        if mine:
            amount = "" if cost is None else f"{cost:.4g} "
            given = describe_changes([decision.changes[i] for i in mine])
            found.append((mine[0], f"{amount}to {m_low}: {given}"))
    return found


def _gives_to(change: PlanChange, executor: int) -> bool:
    before, after = (
        sum(p.cells.area * p.shares.get(executor, 0) for p in partitions)
        for partitions in (change.retired, change.created)
    )
    return after > before


def describe_changes(changes: Sequence[PlanChange]) -> str:
    """Return what one executor gives to another, such as ``the first rows of p3``."""
    if all(change.kind is ChangeKind.MOVE for change in changes):
        return f"{len(changes)} whole partition{'s' if len(changes) > 1 else ''}"
    return ", ".join(_describe_part(change) for change in changes)


def _describe_part(change: PlanChange) -> str:
    (whole,) = change.retired
    if change.kind is not ChangeKind.SPLIT:
        return f"a share of a cell of p{whole.id}"
    cells = next((p.cells for p in change.created if p.owners != whole.owners), whole.cells)
    axis = "columns" if cells.rows == whole.cells.rows else "rows"
    is_first = cells[:2] == whole.cells[:2]
    return f"the {'first' if is_first else 'last'} {axis} of p{whole.id}"


def describe_refusal(giver: int, refusal: Refusal) -> str:
    """Return why ``giver`` does not give something to another executor."""
    n = refusal.numbers
    given = describe_changes(refusal.changes) if refusal.changes else ""
    match refusal.reason:
        case Reason.NO_ROOM:
            return f"{refusal.m_low} has no room below the level of {n['level']:.4g}"
        case Reason.GAIN_TOO_SMALL:
            return f"{given} would win {n['gain']:.4g} of {n['cost']:.4g}"
        case Reason.MOVE_TOO_EXPENSIVE:
            return f"{given} costs {n['price']:.4g} once and wins {n['gain']:.4g} a round"
    return f"nothing that {giver} holds fits {refusal.m_low}"


def _why_nothing(decision: Decision) -> str:
    if decision.reason is Reason.HOLDS_NOTHING:
        return "it holds nothing that could move"
    giver, m_low = decision.executors
    refusal = Refusal(
        m_low=m_low, reason=decision.reason, changes=decision.changes, numbers=decision.numbers
    )
    options = int(decision.numbers["options"])
    best = f" (the best of {options} options)" if options > 1 else ""
    return describe_refusal(giver, refusal) + best


def decision_json(decision: Decision) -> dict[str, Any]:
    """Return a decision for journals and JSON: its fields, and their text.

    ``what`` and ``reason`` are the text, ``code`` is the reason as data. Each change has its
    own ``what`` and, where it was made by a proposal, its ``reason``.
    """
    entry: dict[str, Any] = {
        "round": decision.round,
        "kind": decision.kind.value,
        "what": what(decision),
        "reason": reason(decision),
        "code": decision.reason.value,
        "executors": list(decision.executors),
        "costs": list(decision.costs),
        "numbers": {
            name: number if math.isfinite(number) else None
            for name, number in decision.numbers.items()
        },
        "made": bool(decision.made),
        "changes": [_change_json(change) for change in decision.changes],
    }
    if decision.kind is DecisionKind.CHANGE:
        for change, (_, why) in zip(entry["changes"], lines(decision), strict=True):
            change["reason"] = why
    return entry


def _change_json(change: PlanChange) -> dict[str, Any]:
    return {
        "kind": change.kind.value,
        "what": change.describe(),
        "retired": [p.id for p in change.retired],
        "created": [p.id for p in change.created],
    }
