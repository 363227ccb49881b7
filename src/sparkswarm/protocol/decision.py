"""Whether to rebalance, and which executors give to which.

Owns everything between the costs of a round and the requests that follow from them: two
deciders, :class:`PredictedGain` and the paper's :class:`FiveStages`, and :func:`pair`. Runs in
the Coordinator, once a round. The stages of the paper's mechanism are the table ``TRANSITIONS``,
from which the diagram in the docs is drawn.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, Protocol

from sparkswarm.config import SwarmConfig
from sparkswarm.protocol.damping import Damping
from sparkswarm.protocol.hosts import ONE_HOST, Hosts
from sparkswarm.protocol.messages import DecisionKind, Reason

KEEP, REBALANCE = DecisionKind.KEEP, DecisionKind.REBALANCE


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruling:
    """Whether to rebalance (``KEEP`` or ``REBALANCE``), and why."""

    kind: DecisionKind
    reason: Reason
    numbers: Mapping[str, float] = field(default_factory=dict)


class Decider(Protocol):
    """Decides once a round whether to rebalance."""

    def decide(self, costs: Mapping[int, float], throughput: float, received: float) -> Ruling:
        """Decide from a round's numbers.

        Parameters
        ----------
        costs
            C(m) of the executors that reported.
        throughput
            The throughput of the round. This is R(S) where sources are throttled to the
            slowest executor, as in the paper; elsewhere the runtime measures it.
        received
            R(S), the arrivals of the round.
        """

    def tolerance(self, executors: int, received: float) -> float:
        """Return the fraction of the mean by which an executor may exceed it without giving."""

    def expect(self, m_high: int, m_low: int, cost: float) -> None:
        """Take note of cost that was moved, which is no change of the load."""

    def forget(self) -> None:
        """Take note that costs changed in a way that is not known."""


def make_decider(config: SwarmConfig) -> Decider:
    """Return the decider that the settings name."""
    if config.decision == "five_stages":
        return FiveStages(config.beta)
    return PredictedGain(config.min_gain)


# -- the paper's mechanism -----------------------------------------------------------------


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
"""Where the pointer goes. It never stays on ``FLIP``: reaching it flips the decision and puts
the pointer back on ``START``."""


class FiveStages:
    """The paper's decision mechanism (figure "Decision mechanism for load balancing").

    Starts with "do nothing". A decision stays in force until rounds without better throughput
    drive the pointer to the leftmost stage, or until it was taken ``beta`` times in a row.
    """

    def __init__(self, beta: int) -> None:
        self.beta = beta
        self.stage = Stage.START
        self.rebalances = False
        self._taken = 0
        self._previous: float | None = None

    def decide(self, costs: Mapping[int, float], throughput: float, received: float) -> Ruling:
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

    def tolerance(self, executors: int, received: float) -> float:
        """Return 0: the paper always asks the highest."""
        return 0.0

    def expect(self, m_high: int, m_low: int, cost: float) -> None:
        """Do nothing: only throughput counts."""

    def forget(self) -> None:
        """Do nothing: only throughput counts."""


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


# -- predicted gain ------------------------------------------------------------------------

CHANCE_OF_GAIN = 3.0
"""Standard deviations of a Poisson count below which differences are taken for chance."""


def gain_worth_having(min_gain: float, executors: int, received: float) -> float:
    """Return the smallest predicted gain to act on.

    At least ``min_gain``, and at least three standard deviations of what an executor receives
    in a round: where little arrives, loads differ by chance alone.
    """
    return max(min_gain, CHANCE_OF_GAIN / math.sqrt(max(1.0, received / max(1, executors))))


class PredictedGain:
    """Rebalance when the slowest executor is predicted to get faster by enough.

    Differs from the paper, whose five stages need several rounds to leave "do nothing" and
    read R(S), a measure of arrivals, as throughput. The predicted cost is the mean, as if load
    divided at will; with shared cells it nearly does. Where it does not, the executor that is
    asked finds nothing feasible and says so. Rebalancing waits while the load goes to and fro,
    see :class:`Damping`.
    """

    def __init__(self, min_gain: float) -> None:
        self.min_gain = min_gain
        self._damping = Damping()

    def decide(self, costs: Mapping[int, float], throughput: float, received: float) -> Ruling:
        """Compare the slowest executor with the mean."""
        ruling = self._predict(costs, throughput)
        hold = self._damping.observe(costs, received)
        if hold is not None and ruling.kind is REBALANCE:
            return Ruling(kind=KEEP, reason=Reason.LOAD_UNSTABLE, numbers=hold)
        return ruling

    def _predict(self, costs: Mapping[int, float], throughput: float) -> Ruling:
        slowest = max(costs.values(), default=0.0)
        if slowest <= 0:
            return Ruling(kind=KEEP, reason=Reason.NO_LOAD)
        mean = sum(costs.values()) / len(costs)
        gain = 1.0 - mean / slowest
        threshold = gain_worth_having(self.min_gain, len(costs), throughput)
        numbers = {"gain": gain, "threshold": threshold, "slowest": slowest, "mean": mean}
        if gain > threshold:
            return Ruling(kind=REBALANCE, reason=Reason.GAIN_ENOUGH, numbers=numbers)
        return Ruling(kind=KEEP, reason=Reason.GAIN_TOO_SMALL, numbers=numbers)

    def tolerance(self, executors: int, received: float) -> float:
        """Return half of the smallest gain to act on."""
        return gain_worth_having(self.min_gain, executors, received) / 2

    def expect(self, m_high: int, m_low: int, cost: float) -> None:
        """Expect cost that was moved at its new place."""
        self._damping.expect(m_high, m_low, cost)

    def forget(self) -> None:
        """Expect nothing of the next round."""
        self._damping.forget()


# -- who gives to whom ---------------------------------------------------------------------

ROUNDING = 1e-9
"""Fraction of the mean below which a gift is left over from rounding."""


class Group(NamedTuple):
    """One giver and its receivers.

    ``c_lows`` are the costs to reckon the receivers with: C(m_low) for a pair of its own. Where
    a receiver also gets something from others, that is counted in, so that every giver that
    levels itself with its receivers arrives at the mean.
    """

    m_high: int
    m_lows: tuple[int, ...]
    c_lows: tuple[float, ...]


def level(c_high: float, c_lows: Sequence[float]) -> float:
    """Return the cost at which a giver and its receivers are even.

    For one receiver, the distance to it is the paper's C_max = (C(m_high) - C(m_low)) / 2.
    """
    return (c_high + sum(c_lows)) / (len(c_lows) + 1)


def pair(
    costs: Sequence[float],
    max_pairs: int,
    max_receivers: int,
    tolerance: float = 0.0,
    givers: Sequence[int] | None = None,
    receivers: Sequence[int] | None = None,
    hosts: Hosts = ONE_HOST,
) -> list[Group]:
    """Choose givers and receivers.

    Parameters
    ----------
    costs
        C(m) by executor id.
    max_pairs
        Number of (m_high, m_low) pairs in all. 1 is the paper's choice: the highest and the
        lowest.
    max_receivers
        Number of receivers of one giver. With 1, pairs are disjoint and meet in the middle;
        with more, all aim for the mean.
    tolerance
        Executors above the mean by no more than this fraction do not give.
    givers, receivers
        Who may give and who may receive; all by default.
    hosts
        Of the executors. Where a giver has several receivers, those on its own host come first.
    """
    mean = sum(costs) / len(costs)
    everyone = range(len(costs))
    highs = sorted(everyone if givers is None else givers, key=lambda m: (-costs[m], m))
    highs = [m for m in highs if costs[m] > mean * (1.0 + tolerance)]
    lows = sorted(everyone if receivers is None else receivers, key=lambda m: (costs[m], m))
    if max_receivers == 1:
        return [
            Group(m_high, (m_low,), (costs[m_low],))
            for m_high, m_low in list(zip(highs, lows, strict=False))[:max_pairs]
            if costs[m_low] < mean
        ]
    least = ROUNDING * mean
    room = {m: mean - costs[m] for m in lows if costs[m] < mean - least}
    groups = []
    for m_high in highs:
        surplus = costs[m_high] - mean
        gifts: dict[int, float] = {}
        near = [m for m in room if hosts.are_one(m, m_high)]
        for m_low in dict.fromkeys([*near, *room]):
            if surplus <= least or max_pairs == 0 or len(gifts) == max_receivers:
                break
            gifts[m_low] = min(surplus, room[m_low])
            surplus -= gifts[m_low]
            room[m_low] -= gifts[m_low]
            if room[m_low] <= least:
                del room[m_low]
            max_pairs -= 1
        if gifts:
            c_lows = tuple(mean - gift for gift in gifts.values())
            groups.append(Group(m_high, tuple(gifts), c_lows))
    return groups
