"""Decisions: whether this is a round to rebalance.

Everything that affects the answer is in this file. The paper's mechanism is the table
``TRANSITIONS``; docs/explanation/protocol.md draws its diagram from that same table.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from sparkswarm.protocol.messages import DecisionKind, Reason

KEEP, REBALANCE = DecisionKind.KEEP, DecisionKind.REBALANCE


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruling:
    """Whether to rebalance (``KEEP`` or ``REBALANCE``), and why."""

    kind: DecisionKind
    reason: Reason
    numbers: Mapping[str, float] = field(default_factory=dict)


class Decider(Protocol):
    """What a Coordinator asks once a round."""

    def decide(self, costs: Sequence[float], throughput: float) -> Ruling:
        """Decide from the executors' costs and the throughput of the round.

        ``throughput`` is R(S) where sources are throttled to the slowest executor, as in
        the paper; a runtime whose sources are not throttled must say what it achieved.
        """


class Stage(Enum):
    """The five stages of the paper's decision mechanism, from left to right."""

    FLIP = "flip decision"
    DOUBT = "doubt"
    START = "start"
    TRUST = "trust"
    SURE = "sure"


class Throughput(Enum):
    """What moves the stage pointer."""

    ROSE = "R(S) > previous R(S)"
    DID_NOT_RISE = "R(S) <= previous R(S)"


TRANSITIONS: dict[tuple[Stage, Throughput], Stage] = {
    (Stage.DOUBT, Throughput.ROSE): Stage.START,
    (Stage.START, Throughput.ROSE): Stage.TRUST,
    (Stage.TRUST, Throughput.ROSE): Stage.SURE,
    (Stage.SURE, Throughput.ROSE): Stage.SURE,
    (Stage.SURE, Throughput.DID_NOT_RISE): Stage.TRUST,
    (Stage.TRUST, Throughput.DID_NOT_RISE): Stage.START,
    (Stage.START, Throughput.DID_NOT_RISE): Stage.DOUBT,
    (Stage.DOUBT, Throughput.DID_NOT_RISE): Stage.FLIP,
}
"""Where the pointer goes. ``FLIP`` is never a place to stay: reaching it flips the decision
and puts the pointer back on ``START``."""


class FiveStages:
    """The paper's decision mechanism (figure "Decision mechanism for load balancing").

    Starts at "do nothing". The decision in force stays until the pointer is driven to the
    leftmost stage by rounds without better throughput, or until it was taken ``beta`` times
    in a row.
    """

    def __init__(self, beta: int) -> None:
        self.beta = beta
        self.stage = Stage.START
        self.rebalances = False
        self._taken = 0
        self._previous: float | None = None

    def decide(self, costs: Sequence[float], throughput: float) -> Ruling:
        """Move the pointer by the throughput and apply the decision in force."""
        previous, self._previous = self._previous, throughput
        reason, numbers = Reason.FIRST_ROUND, {"throughput": throughput}
        if previous is not None:
            moved = Throughput.ROSE if throughput > previous else Throughput.DID_NOT_RISE
            self.stage = TRANSITIONS[self.stage, moved]
            reason = Reason.STAGES_ENDED if self.stage is Stage.FLIP else Reason.STAGE_MOVED
            numbers |= {"previous": previous, "stage": list(Stage).index(self.stage)}
        if self._taken >= self.beta:
            self.stage = Stage.FLIP
            reason = Reason.REPEATED
            numbers |= {"times": self._taken}
        if self.stage is Stage.FLIP:
            self.stage = Stage.START
            self.rebalances = not self.rebalances
            self._taken = 0
        self._taken += 1
        kind = REBALANCE if self.rebalances else KEEP
        return Ruling(kind=kind, reason=reason, numbers=numbers)


CHANCE = 3.0
"""Standard deviations of a Poisson count: differences below that are chance."""


def gain_worth_having(min_gain: float, executors: int, received: float) -> float:
    """Return the smallest predicted gain to act on.

    At least ``min_gain``, and more where so little arrived at an executor that chance alone
    makes loads differ: three standard deviations of what an executor receives in a round.
    """
    return max(min_gain, CHANCE / math.sqrt(max(1.0, received / max(1, executors))))


class PredictedGain:
    """Rebalance when the slowest executor is predicted to get faster by enough.

    Differs from the paper, whose five stages need several rounds to leave "do nothing" and
    read R(S), a measure of what arrives, as throughput. The prediction is the mean: load
    divides at will, which shared cells make nearly true. Where it does not, the executor
    that is asked finds nothing feasible and says so.
    """

    def __init__(self, min_gain: float) -> None:
        self.min_gain = min_gain

    def decide(self, costs: Sequence[float], throughput: float) -> Ruling:
        """Compare the slowest executor with the mean, where all would be."""
        slowest = max(costs, default=0.0)
        if slowest <= 0:
            return Ruling(kind=KEEP, reason=Reason.NO_LOAD)
        mean = sum(costs) / len(costs)
        gain = 1.0 - mean / slowest
        threshold = gain_worth_having(self.min_gain, len(costs), throughput)
        numbers = {"gain": gain, "threshold": threshold, "slowest": slowest, "mean": mean}
        if gain > threshold:
            return Ruling(kind=REBALANCE, reason=Reason.GAIN_ENOUGH, numbers=numbers)
        return Ruling(kind=KEEP, reason=Reason.GAIN_TOO_SMALL, numbers=numbers)


def diagram() -> str:
    """Return the five stages as a Mermaid state diagram, drawn from ``TRANSITIONS``."""
    lines = ["stateDiagram-v2", "    direction LR"]
    lines += [f'    state "{stage.value}" as {stage.name}' for stage in Stage]
    lines.append("    [*] --> START")
    lines += [
        f"    {start.name} --> {end.name}: {moved.value}"
        for (start, moved), end in TRANSITIONS.items()
    ]
    lines.append("    FLIP --> START: flip the decision")
    lines += [
        f"    {stage.name} --> FLIP: same decision beta times"
        for stage in Stage
        if stage is not Stage.FLIP
    ]
    return "\n".join(lines) + "\n"
