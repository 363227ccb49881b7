"""The Coordinator, a state machine: cost reports in, requests and plan changes out.

Owns the plan, the partition ids and the decisions. It knows two numbers per executor and round,
never statistics. Every decision leaves a :class:`Decision`. Runs on the driver, or on one
machine of the simulator; a call takes microseconds.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping

from sparkswarm.config import SwarmConfig
from sparkswarm.errors import ProtocolError
from sparkswarm.protocol.cost import make_cost_model
from sparkswarm.protocol.decision import Group, level, make_decider, pair
from sparkswarm.protocol.elastic import resized
from sparkswarm.protocol.hosts import ONE_HOST
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
"""Ids reserved for each m_low beyond those for whole partitions: cutting a cell out of a
partition makes up to five pieces."""


class Coordinator:
    """The GlobalIndex machine that also decides (paper, "Adaptive Load Balancing").

    ``plan`` is the plan in force, ``hosts`` are those of the executors; by default all share one.
    """

    def __init__(self, plan: Plan, config: SwarmConfig) -> None:
        self.plan = plan
        self.hosts = ONE_HOST
        self._config = config
        self._decider = make_decider(config)
        self._model = make_cost_model(config.cost_model)
        self._round = -1
        self._reports: dict[int, CostReport] = {}
        self._costs: list[float] = []
        self._system_received = 0.0
        self._asked: dict[int, ReduceRequest] = {}
        self._granted: dict[int, list[range]] = {}
        self._measured: MeasuredThroughput | None = None
        self._tried: set[int] = set()
        self._waiting: list[IdRequest] = []
        self._unusable: set[int] = set()
        self._lost: set[int] = set()
        self._counted: tuple[Partition, ...] = ()
        self._held: Counter[int] = Counter()

    def handle(self, message: Message) -> list[Message]:
        """Take one message; return the messages to send."""
        match message:
            case CostReport():
                return self._report(message)
            case ReportsDue():
                return self._close() if message.round == self._round else []
            case MeasuredThroughput():
                self._measured = message
                return []
            case Proposal():
                return self._proposal(message)
            case NothingFeasible():
                return self._next_machine(message)
            case IdRequest():
                return self._grant(message)
        raise ProtocolError(f"a Coordinator cannot handle {message!r}")

    def resize(self, executors: int) -> list[Message]:
        """Change the number of executors; return the messages to send.

        Partitions of executors that leave move to those that stay. A round that has begun ends
        without a decision: reports and proposals of it that still arrive are late, because they
        belong to another number of executors.

        Raises
        ------
        PlanError
            If no executor would be left; nothing has changed then.
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
        """Go on without an executor that died; return the messages to send.

        Each of its partitions goes to the remaining executor with the fewest partitions. As
        after a resize, a round that has begun ends without a decision. The last executor cannot
        be lost.
        """
        left = [m for m in range(self.plan.executors) if m not in self._lost | {executor}]
        if not left:
            raise ProtocolError(f"executor {executor} is the last one and cannot be lost")
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
        """Use a lost executor again; it owns nothing until it is given load."""
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
        """End a round that has begun, because the executors are others now."""
        if self._reports or self._unusable:
            self._begin(self._round + 1)
        self._decider.forget()

    def _begin(self, number: int) -> None:
        """Start a round and forget the one before."""
        self._round = number
        self._reports = {}
        self._costs = []
        self._asked = {}
        self._granted = {}
        self._tried = set()
        self._waiting = []
        self._unusable = set()

    def _report(self, report: CostReport) -> list[Message]:
        """Record a report; decide once all executors have reported."""
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
        """Decide, then grant the ids that were requested before the decision."""
        if self._costs or not self._reports:
            return []
        messages = self._decide()
        for request in self._waiting:
            messages += self._grant(request)
        return messages

    def _decide(self) -> list[Message]:
        """Compute R(S) and the costs, decide, and ask the most loaded executors to give."""
        self._system_received = sum(report.received for report in self._reports.values())
        known = {
            m: self._model.cost(report.numerator, self._system_received)
            for m, report in self._reports.items()
        }
        mean = sum(known.values()) / len(known)
        # An executor that did not report counts as the mean: it neither gives nor receives.
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
        if self._measured is not None and self._measured.round == self._round:
            throughput = self._measured.throughput
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
            hosts=self.hosts,
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
        """Return the request, with ids enough for anything m_high may do."""
        each = PIECES_PER_PAIR + self._partitions_of(group.m_high)
        ids = self._reserve(group.m_high, each * len(group.m_lows))
        return ReduceRequest(
            m_high=group.m_high,
            round=self._round,
            m_lows=group.m_lows,
            c_lows=group.c_lows,
            system_received=self._system_received,
            fresh_ids=tuple(ids[i * each] for i in range(len(group.m_lows))),
        )

    def _partitions_of(self, executor: int) -> int:
        """Return how many partitions an executor owns."""
        if self._counted is not self.plan.partitions:
            self._counted = self.plan.partitions
            self._held = Counter(m for partition in self._counted for m in partition.owners)
        return self._held[executor]

    def _publish(self, changes: list[PlanChange]) -> None:
        """Apply changes, and count what executors own after them."""
        known = self._counted is self.plan.partitions
        self.plan = self.plan.apply(changes)
        if known:
            for change in changes:
                self._held.subtract(m for partition in change.retired for m in partition.owners)
                self._held.update(m for partition in change.created for m in partition.owners)
            self._counted = self.plan.partitions

    def _reserve(self, executor: int, count: int) -> range:
        ids, self.plan = self.plan.reserve(count)
        self._granted.setdefault(executor, []).append(ids)
        return ids

    def _proposal(self, proposal: Proposal) -> list[Message]:
        """Publish the changes of a proposal that fit the plan and refuse the others."""
        granted = self._take_grant(proposal)
        messages: list[Message] = []
        accepted: list[PlanChange] = []
        changed: dict[int, Partition | None] = {}
        for change in proposal.changes:
            refusal = self._why_not(change, proposal, changed, granted)
            if refusal is None:
                accepted.append(change)
                changed |= {partition.id: None for partition in change.retired}
                changed |= {partition.id: partition for partition in change.created}
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
            self._publish(accepted)
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
        self,
        change: PlanChange,
        proposal: Proposal,
        changed: Mapping[int, Partition | None],
        granted: range,
    ) -> Reason | None:
        """Return why a change cannot be made after those ``changed`` already, or None.

        Owners of a shared partition may propose different changes to it in one round: the
        first one is made.
        """
        if proposal.round != self._round:
            return Reason.OLD_ROUND
        in_force = (
            changed[p.id] if p.id in changed else self.plan.find(p.id) for p in change.retired
        )
        if tuple(in_force) != change.retired:
            return Reason.PLAN_CHANGED
        if not all(proposal.executor in partition.owners for partition in change.retired):
            return Reason.NOT_OWNER
        if not all(0 <= m < self.plan.executors for p in change.created for m in p.owners):
            return Reason.UNKNOWN_EXECUTOR
        if not all(partition.id in granted for partition in change.created):
            return Reason.IDS_NOT_GRANTED
        return None

    def _take_grant(self, proposal: Proposal) -> range:
        """Return the range of ids granted for a proposal; it can be used only once."""
        first = min((p.id for change in proposal.changes for p in change.created), default=-1)
        runs = self._granted.get(proposal.executor, [])
        granted = next((run for run in runs if first in run), range(0))
        self._granted[proposal.executor] = [run for run in runs if run != granted]
        request = self._asked.get(proposal.executor)
        if request is not None and request.fresh_ids[0] in granted:
            del self._asked[proposal.executor]
        return granted

    def _next_machine(self, answer: NothingFeasible) -> list[Message]:
        """Ask the next most loaded executor to give to the same receivers."""
        request = self._asked.pop(answer.executor, None)
        if request is None or answer.round != self._round:
            return []
        decision = _nothing_to_give(answer)
        busy = {m for asked in self._asked.values() for m in (asked.m_high, *asked.m_lows)}
        free = [m for m in request.m_lows if m not in busy]
        givers = [m for m in self._reports if m not in self._tried | busy | set(free)]
        return [decision, *self._ask(givers, free, len(free))]

    def _grant(self, request: IdRequest) -> list[Message]:
        """Grant ids for merging and un-sharing, unless the executor is giving load away."""
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
    """Return the decision for an executor that gives nothing, with the best option it refused."""
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
