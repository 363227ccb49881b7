"""Decisions: whether this is a round to rebalance.

Everything that affects the answer is in this file. The paper's mechanism is the table
``TRANSITIONS``; docs/decision.md draws its diagram from that same table.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol


class Verdict(Enum):
    """The two decisions a Coordinator can take."""

    DO_NOTHING = "do nothing"
    REBALANCE = "rebalance"

    @property
    def flipped(self) -> Verdict:
        """The other one."""
        return Verdict.REBALANCE if self is Verdict.DO_NOTHING else Verdict.DO_NOTHING


@dataclass(frozen=True, slots=True)
class Decision:
    """A verdict and, for the log, its reason."""

    verdict: Verdict
    reason: str


class Decider(Protocol):
    """What a Coordinator asks once a round."""

    def decide(self, costs: Sequence[float], throughput: float) -> Decision:
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
        self.verdict = Verdict.DO_NOTHING
        self._taken = 0
        self._previous: float | None = None

    def decide(self, costs: Sequence[float], throughput: float) -> Decision:
        """Move the pointer by the throughput and apply the decision in force."""
        previous, self._previous = self._previous, throughput
        if previous is None:
            reason = "the first round has no earlier throughput to compare with"
        else:
            moved = Throughput.ROSE if throughput > previous else Throughput.DID_NOT_RISE
            self.stage = TRANSITIONS[self.stage, moved]
            reason = f"throughput {previous:g} -> {throughput:g}, stage {self.stage.value!r}"
        if self._taken >= self.beta:
            self.stage = Stage.FLIP
            reason = f"the same decision was taken {self._taken} times (beta = {self.beta})"
        if self.stage is Stage.FLIP:
            self.stage = Stage.START
            self.verdict = self.verdict.flipped
            self._taken = 0
            reason += "; decision flipped"
        self._taken += 1
        return Decision(self.verdict, reason)


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

    def decide(self, costs: Sequence[float], throughput: float) -> Decision:
        """Compare the slowest executor with the mean, where all would be."""
        slowest = max(costs, default=0.0)
        if slowest <= 0:
            return Decision(Verdict.DO_NOTHING, "no executor has any load")
        after = sum(costs) / len(costs)
        gain = 1.0 - after / slowest
        needed = gain_worth_having(self.min_gain, len(costs), throughput)
        verdict = Verdict.REBALANCE if gain > needed else Verdict.DO_NOTHING
        return Decision(
            verdict,
            f"the slowest executor would get {gain:.1%} faster "
            f"({slowest:.4g} -> {after:.4g}; threshold {needed:.1%})",
        )


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
