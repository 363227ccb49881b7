"""Messages between the Coordinator, the load-balancing units and the GlobalIndex machines.

Owns every message and :class:`Decision`, the record of what was decided. All are frozen data.
``to`` is the receiver: an executor's id or one of the names below. How a message travels is up
to the runtime. ``payload`` gives the exact bytes of the two messages whose size the paper
counts; addresses and round numbers are the envelope.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from sparkswarm.protocol.holding import Holding
from sparkswarm.protocol.partition import PlanChange

COORDINATOR = "coordinator"
EVERYONE = "everyone"
JOURNAL = "journal"
Address = int | str


class DecisionKind(StrEnum):
    """What was decided. The values are written to journals and metrics."""

    KEEP = "keep"
    REBALANCE = "rebalance"
    ASK = "ask"
    CHANGE = "change"
    REFUSE = "refuse"
    NOTHING_TO_GIVE = "nothing_to_give"
    RESIZE = "resize"
    MISSING_REPORT = "missing_report"
    IGNORED_REPORT = "ignored_report"
    LOST = "lost"
    REGAINED = "regained"


class Reason(StrEnum):
    """Why it was decided. The comment lists the ``numbers`` that come with a reason."""

    # KEEP and REBALANCE
    NOTHING_ARRIVED = "nothing_arrived"
    NO_LOAD = "no_load"
    GAIN_ENOUGH = "gain_enough"  # gain, threshold, slowest, mean
    GAIN_TOO_SMALL = "gain_too_small"  # as above; of a move: gain, cost
    LOAD_UNSTABLE = "load_unstable"  # surprise, rounds
    FIRST_ROUND = "first_round"
    STAGE_MOVED = "stage_moved"  # previous, throughput, stage
    STAGES_ENDED = "stages_ended"  # previous, throughput
    REPEATED = "repeated"  # times
    # ASK and CHANGE
    ABOVE_LEVEL = "above_level"  # level
    TIDYING = "tidying"
    # REFUSE
    OLD_ROUND = "old_round"  # current
    PLAN_CHANGED = "plan_changed"
    NOT_OWNER = "not_owner"
    UNKNOWN_EXECUTOR = "unknown_executor"  # executors
    IDS_NOT_GRANTED = "ids_not_granted"
    # NOTHING_TO_GIVE, with the number of options looked at
    HOLDS_NOTHING = "holds_nothing"
    NO_ROOM = "no_room"  # level
    NOTHING_FITS = "nothing_fits"
    MOVE_TOO_EXPENSIVE = "move_too_expensive"  # gain, price
    # RESIZE, LOST and REGAINED
    REQUESTED = "requested"  # executors, before
    SAME_NUMBER = "same_number"  # executors
    EXECUTOR_DIED = "executor_died"
    EXECUTOR_IS_BACK = "executor_is_back"
    # MISSING_REPORT and IGNORED_REPORT
    NO_REPORT = "no_report"
    LATE_OR_UNKNOWN = "late_or_unknown"
    UNUSABLE_NUMBERS = "unusable_numbers"  # numerator, received


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What was decided in a round, and why: the only form of a decision.

    ``sparkswarm.observe.describe`` turns it into sentences; nothing else does.

    Attributes
    ----------
    changes
        Changes of the plan, made or not: see ``made``.
    executors
        The executors concerned: the giver first, then the receivers.
    costs
        A number for each of ``executors``, or none: what each costs (ASK), or how much cost
        the change takes from the giver and brings to each receiver (CHANGE).
    numbers
        What the reason is based on, by name.
    """

    round: int
    kind: DecisionKind
    reason: Reason
    changes: tuple[PlanChange, ...] = ()
    executors: tuple[int, ...] = ()
    costs: tuple[float, ...] = ()
    numbers: Mapping[str, float] = field(default_factory=dict)
    to: Address = JOURNAL

    @property
    def made(self) -> tuple[PlanChange, ...]:
        """The changes of the plan that were made; none of a refused or unprofitable one."""
        return self.changes if self.kind in _MAKING_CHANGES else ()


_MAKING_CHANGES = frozenset({DecisionKind.CHANGE, DecisionKind.RESIZE, DecisionKind.LOST})


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Something that an executor could have given to another, and why it does not.

    Attributes
    ----------
    changes
        What would have changed; empty where there was nothing to choose.
    """

    m_low: int
    reason: Reason
    changes: tuple[PlanChange, ...] = ()
    numbers: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CloseRound:
    """The round is over: close the statistics and report. From the runtime's clock.

    Attributes
    ----------
    busy
        Seconds that this executor worked in the round, if the runtime measures that.
    length
        Length of the round as a multiple of the usual one. Where rounds end at batch
        boundaries some are longer, and receive more without being busier.
    """

    to: Address
    round: int
    busy: float | None = None
    length: float = 1.0


@dataclass(frozen=True, slots=True)
class CostReport:
    """An executor's two numbers, Num(C(m)) and R(m)."""

    executor: int
    round: int
    numerator: float
    received: float
    to: Address = COORDINATOR

    @property
    def payload(self) -> bytes:
        """The two numbers, encoded."""
        return struct.pack("<dd", self.numerator, self.received)


@dataclass(frozen=True, slots=True)
class ReportsDue:
    """Stop waiting for reports: decide without the missing ones. From the runtime's clock."""

    round: int
    to: Address = COORDINATOR


@dataclass(frozen=True, slots=True)
class MeasuredThroughput:
    """The throughput of a round, where R(S) does not measure it. Sent before the round ends.

    R(S) measures throughput where sources are throttled to the slowest executor, as the
    paper's are. Elsewhere it measures arrivals, and the runtime must tell.
    """

    round: int
    throughput: float
    to: Address = COORDINATOR


@dataclass(frozen=True, slots=True)
class ReduceRequest:
    """To m_high: give load to these executors until you are level with them.

    For each m_low three numbers: C(m_low), R(S) and a fresh partition id. The paper has one
    m_low; an executor far above the others may be given several.
    """

    m_high: int
    round: int
    m_lows: tuple[int, ...]
    c_lows: tuple[float, ...]
    system_received: float
    fresh_ids: tuple[int, ...]

    @property
    def to(self) -> Address:
        """The executor asked."""
        return self.m_high

    @property
    def payload(self) -> bytes:
        """Three numbers for each m_low, encoded."""
        return b"".join(
            struct.pack("<ddq", c_low, self.system_received, fresh_id)
            for c_low, fresh_id in zip(self.c_lows, self.fresh_ids, strict=True)
        )


@dataclass(frozen=True, slots=True)
class Takeover:
    """To m_low: take these partitions. The runtime adds their continuous queries."""

    m_high: int
    to: Address
    round: int
    holdings: tuple[Holding, ...]


@dataclass(frozen=True, slots=True)
class TakenOver:
    """To m_high: everything has arrived."""

    m_low: int
    to: Address
    round: int


@dataclass(frozen=True, slots=True)
class Proposal:
    """To the Coordinator: the changes an executor has prepared.

    ``moved`` holds (m_low, cost) for each executor that was given something.
    """

    executor: int
    round: int
    changes: tuple[PlanChange, ...]
    moved: tuple[tuple[int, float], ...]
    reason: Reason
    to: Address = COORDINATOR


@dataclass(frozen=True, slots=True)
class NothingFeasible:
    """To the Coordinator: m_high cannot be relieved; try the next machine."""

    executor: int
    round: int
    refusals: tuple[Refusal, ...]
    to: Address = COORDINATOR


@dataclass(frozen=True, slots=True)
class IdRequest:
    """To the Coordinator: an executor wants to merge or un-share and needs fresh ids."""

    executor: int
    round: int
    count: int
    to: Address = COORDINATOR


@dataclass(frozen=True, slots=True)
class IdGrant:
    """``count`` ids from ``first_id`` on, and the present mean cost of an executor."""

    to: Address
    round: int
    first_id: int
    count: int
    mean_cost: float
    system_received: float


@dataclass(frozen=True, slots=True)
class PlanPublished:
    """To all GlobalIndex machines and executors: the plan has changed."""

    version: int
    changes: tuple[PlanChange, ...]
    to: Address = EVERYONE


@dataclass(frozen=True, slots=True)
class Refused:
    """To the proposer: this change was not made."""

    to: Address
    round: int
    change: PlanChange
    reason: Reason


Message = (
    CloseRound
    | CostReport
    | ReportsDue
    | MeasuredThroughput
    | ReduceRequest
    | Takeover
    | TakenOver
    | Proposal
    | NothingFeasible
    | IdRequest
    | IdGrant
    | PlanPublished
    | Refused
    | Decision
)
