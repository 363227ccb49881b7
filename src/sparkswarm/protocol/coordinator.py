"""The Coordinator, as a state machine: reports in, requests and plan changes out.

Owns the plan, the ids and the decision. It knows two numbers per executor and round, never
a statistic. Every decision leaves a :class:`Decision` with its reason.
"""

from __future__ import annotations

import math
from collections import Counter

from sparkswarm.config import SwarmConfig
from sparkswarm.errors import ProtocolError
from sparkswarm.protocol.cost import make_cost_model
from sparkswarm.protocol.decision import Group, level, make_decider, pair
from sparkswarm.protocol.elastic import resized
from sparkswarm.protocol.messages import (
    CostReport,
    Decision,
    DecisionKind,
    IdGrant,
    IdRequest,
    MeasuredThroughput,
    Message,
    NothingFeasible,
    PlanPublished,
    Proposal,
    Reason,
    ReduceRequest,
    Refused,
    ReportsDue,
)
from sparkswarm.protocol.partition import Partition, PlanChange, moved
from sparkswarm.protocol.plan import Plan

PIECES_PER_PAIR = 5
"""Ids set aside for what one m_low may get beyond whole partitions: a cell cut out of a
partition leaves up to four pieces around it."""


class Coordinator:
    """The one GlobalIndex machine that also decides (paper, "Adaptive Load Balancing").

    Parameters
    ----------
    plan
        The plan in force.
    config
        The settings.
    """

    def __init__(self, plan: Plan, config: SwarmConfig) -> None:
        self.plan = plan
        self._config = config
        self._decider = make_decider(config)
        self._model = make_cost_model(config.cost_model)
        self._round = -1
        self._reports: dict[int, CostReport] = {}
        self._costs: list[float] = []
        self._system_received = 0.0
        self._asked: dict[int, ReduceRequest] = {}
        self._granted: dict[int, list[range]] = {}
        self._achieved: MeasuredThroughput | None = None
        self._tried: set[int] = set()
        self._waiting: list[IdRequest] = []
        self._unusable: set[int] = set()
        self._lost: set[int] = set()

    def handle(self, message: Message) -> list[Message]:
        """Take one message and return what to send."""
        match message:
            case CostReport():
                return self._report(message)
            case ReportsDue():
                return self._close() if message.round == self._round else []
            case MeasuredThroughput():
                self._achieved = message
                return []
            case Proposal():
                return self._proposal(message)
            case NothingFeasible():
                return self._next_machine(message)
            case IdRequest():
                return self._grant(message)
        raise ProtocolError(f"a Coordinator cannot handle {message!r}")

    def resize(self, executors: int) -> list[Message]:
        """Go on with another number of executors; return what to send.

        What the executors that leave had is moved to those that stay. A round that has
        begun is over without a decision: all that still arrives of it is late, because it
        was said among another number of executors. The next round is a round like any other.
        PlanError if no executor would be left, and nothing has changed then.
        """
        plan, changes = resized(self.plan, executors)
        same = plan.version == self.plan.version
        decision = Decision(
            round=max(self._round, 0),
            kind=DecisionKind.RESIZE,
            reason=Reason.SAME_NUMBER if same else Reason.REQUESTED,
            changes=changes,
            numbers={"executors": executors, "before": self.plan.executors},
        )
        if same:
            return [decision]
        self.plan = plan
        self._start_over()
        return [PlanPublished(plan.version, changes), decision]

    def lose(self, executor: int) -> list[Message]:
        """Go on without an executor that died; return what to send.

        What it had goes to those that are left, each time to the one with the fewest
        partitions. As after a resize, a round that has begun is over. It must not be the last.
        """
        left = [m for m in range(self.plan.executors) if m not in self._lost | {executor}]
        if not left:
            raise ProtocolError(f"executor {executor} is the last one")
        self._lost.add(executor)
        held = Counter(m for partition in self.plan.partitions for m in partition.owners)
        orphans = self.plan.owned_by(executor)
        ids, plan = self.plan.reserve(len(orphans))
        changes: list[PlanChange] = []
        for fresh_id, partition in zip(ids, orphans, strict=True):
            taker = min(left, key=lambda m: (held[m], m))
            held[taker] += 1
            changes.append(moved(partition, executor, taker, fresh_id))
        decision = Decision(
            round=max(self._round, 0),
            kind=DecisionKind.LOST,
            reason=Reason.EXECUTOR_DIED,
            changes=tuple(changes),
            executors=(executor,),
        )
        self._start_over()
        if not changes:
            return [decision]
        self.plan = plan.apply(changes)
        return [PlanPublished(self.plan.version, tuple(changes)), decision]

    def regain(self, executor: int) -> list[Message]:
        """Count on an executor again that was lost; it has nothing until it is given load."""
        self._lost.discard(executor)
        return [
            Decision(
                round=max(self._round, 0),
                kind=DecisionKind.REGAINED,
                reason=Reason.EXECUTOR_IS_BACK,
                executors=(executor,),
            )
        ]

    def _start_over(self) -> None:
        """End a round that has begun, among other executors: what still arrives of it is late."""
        if self._reports or self._unusable:
            self._begin(self._round + 1)
        self._decider.forget()

    def _begin(self, number: int) -> None:
        """Start a round: nothing of the one before counts any more."""
        self._round = number
        self._reports = {}
        self._costs = []
        self._asked = {}
        self._granted = {}
        self._tried = set()
        self._waiting = []
        self._unusable = set()

    def _report(self, report: CostReport) -> list[Message]:
        """Wait for all executors, then decide."""
        known = 0 <= report.executor < self.plan.executors and report.executor not in self._lost
        if report.round < self._round or not known:
            return [self._ignored(report, Reason.LATE_OR_UNKNOWN)]
        if report.round > self._round:
            self._begin(report.round)
        if self._costs:
            return []
        messages: list[Message] = []
        if all(math.isfinite(n) and n >= 0 for n in (report.numerator, report.received)):
            self._reports[report.executor] = report
        else:
            self._unusable.add(report.executor)
            messages.append(self._ignored(report, Reason.UNUSABLE_NUMBERS))
        expected = self.plan.executors - len(self._lost)
        if len(self._reports.keys() | self._unusable) == expected:
            messages += self._close()
        return messages

    def _ignored(self, report: CostReport, reason: Reason) -> Decision:
        return Decision(
            round=report.round,
            kind=DecisionKind.IGNORED_REPORT,
            reason=reason,
            executors=(report.executor,),
            numbers={"numerator": report.numerator, "received": report.received},
        )

    def _close(self) -> list[Message]:
        """Decide, and serve the requests for ids that had to wait for the decision."""
        if self._costs or not self._reports:
            return []
        messages = self._decide()
        for request in self._waiting:
            messages += self._grant(request)
        return messages

    def _decide(self) -> list[Message]:
        """Compute R(S) and the costs, decide, and ask the most loaded to give."""
        self._system_received = sum(report.received for report in self._reports.values())
        known = {
            m: self._model.cost(report.numerator, self._system_received)
            for m, report in self._reports.items()
        }
        mean = sum(known.values()) / len(known)
        # A silent executor is neither asked nor given anything: it looks like the mean.
        self._costs = [known.get(m, mean) for m in range(self.plan.executors)]
        silent = [m for m in range(self.plan.executors) if m not in known]
        messages: list[Message] = []
        if silent:
            messages.append(
                Decision(
                    round=self._round,
                    kind=DecisionKind.MISSING_REPORT,
                    reason=Reason.NO_REPORT,
                    executors=tuple(silent),
                )
            )
        if self._system_received <= 0:
            kind, reason = DecisionKind.KEEP, Reason.NOTHING_ARRIVED
            return [*messages, Decision(round=self._round, kind=kind, reason=reason)]
        throughput = self._system_received
        if self._achieved is not None and self._achieved.round == self._round:
            throughput = self._achieved.throughput
        ruling = self._decider.decide(known, throughput, self._system_received)
        messages.append(
            Decision(
                round=self._round,
                kind=ruling.kind,
                reason=ruling.reason,
                numbers=ruling.numbers,
            )
        )
        if ruling.kind is DecisionKind.REBALANCE:
            messages += self._ask(
                list(known), list(known), self._config.max_pairs_per_round or len(known)
            )
        return messages

    def _ask(self, givers: list[int], receivers: list[int], pairs: int) -> list[Message]:
        groups = pair(
            self._costs,
            max_pairs=pairs,
            max_receivers=self._config.max_receivers or len(self._costs),
            tolerance=self._decider.tolerance(len(self._reports), self._system_received),
            givers=givers,
            receivers=receivers,
        )
        messages: list[Message] = []
        for group in groups:
            request = self._request(group)
            self._asked[group.m_high] = request
            self._tried.add(group.m_high)
            messages.append(request)
            executors = (group.m_high, *group.m_lows)
            messages.append(
                Decision(
                    round=self._round,
                    kind=DecisionKind.ASK,
                    reason=Reason.ABOVE_LEVEL,
                    executors=executors,
                    costs=tuple(self._costs[m] for m in executors),
                    numbers={"level": level(self._costs[group.m_high], group.c_lows)},
                )
            )
        return messages

    def _request(self, group: Group) -> ReduceRequest:
        """Write the request, with a run of ids long enough for anything m_high may do."""
        each = PIECES_PER_PAIR + len(self.plan.owned_by(group.m_high))
        ids = self._reserve(group.m_high, each * len(group.m_lows))
        return ReduceRequest(
            m_high=group.m_high,
            round=self._round,
            m_lows=group.m_lows,
            c_lows=group.c_lows,
            system_received=self._system_received,
            fresh_ids=tuple(ids[i * each] for i in range(len(group.m_lows))),
        )

    def _reserve(self, executor: int, count: int) -> range:
        ids, self.plan = self.plan.reserve(count)
        self._granted.setdefault(executor, []).append(ids)
        return ids

    def _proposal(self, proposal: Proposal) -> list[Message]:
        """Publish what fits the plan of a proposal, and refuse the rest with the reason."""
        granted = self._take_grant(proposal)
        messages: list[Message] = []
        accepted: list[PlanChange] = []
        current = set(self.plan.partitions)
        for change in proposal.changes:
            refusal = self._why_not(change, proposal, current, granted)
            if refusal is None:
                accepted.append(change)
                current = current.difference(change.retired).union(change.created)
            else:
                messages += [
                    Refused(proposal.executor, proposal.round, change, refusal),
                    Decision(
                        round=proposal.round,
                        kind=DecisionKind.REFUSE,
                        reason=refusal,
                        changes=(change,),
                        executors=(proposal.executor,),
                        numbers={"current": self._round, "executors": self.plan.executors},
                    ),
                ]
        if accepted:
            self.plan = self.plan.apply(accepted)
            costs: tuple[float, ...] = ()
            if len(accepted) == len(proposal.changes):
                for m_low, cost in proposal.moved:
                    self._decider.expect(proposal.executor, m_low, cost)
                gains = [cost for _, cost in proposal.moved]
                costs = (-sum(gains), *gains)
            else:
                self._decider.forget()
            messages += [
                PlanPublished(self.plan.version, tuple(accepted)),
                Decision(
                    round=proposal.round,
                    kind=DecisionKind.CHANGE,
                    reason=proposal.reason,
                    changes=tuple(accepted),
                    executors=(proposal.executor, *(m_low for m_low, _ in proposal.moved)),
                    costs=costs,
                ),
            ]
        return messages

    def _why_not(
        self, change: PlanChange, proposal: Proposal, current: set[Partition], granted: range
    ) -> Reason | None:
        """Return why a change cannot be made, or None.

        The owners of a shared partition may propose different changes to it in one round:
        the first to arrive is made.
        """
        if proposal.round != self._round:
            return Reason.OLD_ROUND
        if not current.issuperset(change.retired):
            return Reason.PLAN_CHANGED
        if not all(proposal.executor in partition.owners for partition in change.retired):
            return Reason.NOT_OWNER
        if not all(0 <= m < self.plan.executors for p in change.created for m in p.owners):
            return Reason.UNKNOWN_EXECUTOR
        if not all(partition.id in granted for partition in change.created):
            return Reason.IDS_NOT_GRANTED
        return None

    def _take_grant(self, proposal: Proposal) -> range:
        """Find the run of ids that a proposal uses; it can be used only once."""
        first = min((p.id for change in proposal.changes for p in change.created), default=-1)
        runs = self._granted.get(proposal.executor, [])
        granted = next((run for run in runs if first in run), range(0))
        self._granted[proposal.executor] = [run for run in runs if run != granted]
        request = self._asked.get(proposal.executor)
        if request is not None and request.fresh_ids[0] in granted:
            del self._asked[proposal.executor]
        return granted

    def _next_machine(self, answer: NothingFeasible) -> list[Message]:
        """Try the next most loaded machine with the same receivers."""
        request = self._asked.pop(answer.executor, None)
        if request is None or answer.round != self._round:
            return []
        decision = _nothing_to_give(answer)
        busy = {m for asked in self._asked.values() for m in (asked.m_high, *asked.m_lows)}
        free = [m for m in request.m_lows if m not in busy]
        givers = [m for m in self._reports if m not in self._tried | busy | set(free)]
        return [decision, *self._ask(givers, free, len(free))]

    def _grant(self, request: IdRequest) -> list[Message]:
        """Grant ids for tidying up, unless the executor is already giving load away."""
        if request.round != self._round or request.executor in self._asked:
            return []
        if not self._costs:
            self._waiting.append(request)
            return []
        ids = self._reserve(request.executor, request.count)
        mean = sum(self._costs) / len(self._costs)
        return [
            IdGrant(request.executor, request.round, ids[0], len(ids), mean, self._system_received)
        ]


def _nothing_to_give(answer: NothingFeasible) -> Decision:
    """Return what an executor found nothing in, with the most profitable option it refused."""
    if not answer.refusals:
        return Decision(
            round=answer.round,
            kind=DecisionKind.NOTHING_TO_GIVE,
            reason=Reason.HOLDS_NOTHING,
            executors=(answer.executor,),
        )
    best = max(answer.refusals, key=lambda refusal: refusal.numbers.get("gain", -math.inf))
    return Decision(
        round=answer.round,
        kind=DecisionKind.NOTHING_TO_GIVE,
        reason=best.reason,
        changes=best.changes,
        executors=(answer.executor, best.m_low),
        numbers={**best.numbers, "options": len(answer.refusals)},
    )
