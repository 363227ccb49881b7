"""Messages: all that Coordinator, load-balancing units and GlobalIndex machines say.

Frozen data, nothing else. ``to`` says who gets a message: an executor's id or one of the
names below. A runtime delivers them; how is its own business. Addresses and round numbers
are the envelope; what a message *says* is its payload, and for the two that the paper
counts, ``payload`` gives the very bytes.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from sparkswarm.protocol.holding import Holding
from sparkswarm.protocol.partition import PlanChange

COORDINATOR = "coordinator"
EVERYONE = "everyone"
JOURNAL = "journal"
Address = int | str


@dataclass(frozen=True, slots=True)
class CloseRound:
    """The round is over: close the statistics and report. From the runtime's clock.

    Attributes
    ----------
    round
        The round that ended.
    busy
        Seconds that this executor worked in it, if the runtime measures that.
    length
        How long it was, as a multiple of the usual: where rounds end at the borders of
        batches, some are longer, and that more arrived in them is no news.
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
        """Two numbers."""
        return struct.pack("<dd", self.numerator, self.received)


@dataclass(frozen=True, slots=True)
class ReportsDue:
    """Stop waiting: executors that have not reported are taken for silent. From the clock."""

    round: int
    to: Address = COORDINATOR


@dataclass(frozen=True, slots=True)
class MeasuredThroughput:
    """The throughput of a round, where R(S) does not say it. From the runtime, before it ends.

    R(S) measures throughput where sources are throttled to the slowest executor, as the
    paper's are. Elsewhere it measures what arrives, and the runtime must tell.
    """

    round: int
    throughput: float
    to: Address = COORDINATOR


@dataclass(frozen=True, slots=True)
class ReduceRequest:
    """To m_high: level yourself with these executors.

    For each m_low three numbers: C(m_low), R(S) and a fresh partition id. The paper has one
    m_low; an executor that is far above the others may be given several.
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
        """Three numbers for each m_low."""
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

    Attributes
    ----------
    moved
        (m_low, cost) for each executor that was given something.
    reason
        For the log.
    """

    executor: int
    round: int
    changes: tuple[PlanChange, ...]
    moved: tuple[tuple[int, float], ...]
    reason: str
    to: Address = COORDINATOR


@dataclass(frozen=True, slots=True)
class NothingFeasible:
    """To the Coordinator: m_high cannot be relieved; try the next machine."""

    executor: int
    round: int
    reason: str
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
    """``count`` ids from ``first_id`` on, and the mean cost of an executor now."""

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
    reason: str


@dataclass(frozen=True, slots=True)
class Logged:
    """A decision and its reason, for the journal."""

    round: int
    what: str
    reason: str
    to: Address = JOURNAL

    def __str__(self) -> str:
        return f"round {self.round}: {self.what} ({self.reason})"


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
    | Logged
)
