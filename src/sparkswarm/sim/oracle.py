"""The oracle: sees every input and output of a run, and decides whether the run was correct.

It does not know how the cluster works, except for the invariants of plans and terms.

**Results.** The system is asynchronous, so the version of a query that a point meets is only
known within limits. Version k of a query is *possible* for a point if its operation was emitted
before the point was acknowledged, and no later operation was acknowledged before the point was
emitted. Before its registration a query has version 0.

- If every possible version matches the point, there must be one result.
- If none does, there must be none.
- Otherwise there may be one. Its version must be possible and match the point.
- There are never two.

A version matches the points in its rectangle and, if there is an application, only those that the
application accepts. The oracle calls the application once, with all tuples of the run.

**Running counts.** The results of a stateful query are numbered along lanes, each at one
executor at a time. The numbers of a lane must be 1, 2, 3, ... without gap or repetition, and
when its query is gone, a final result must have the total.

**Snapshot queries.** A point that was emitted and acknowledged within the window and before the
query was asked must be in the answer. One that was acknowledged before the window, was emitted
after the query or lies outside the range must not be in it, and none may be in it twice. An
answer may lack points of machines that were declared dead, if it is marked partial and names
them.

**Acknowledgement.** If no machine crashed or was declared dead, no tuple may be lost on its way:
one that had to be sent again counts as lost.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sparkswarm.errors import PlanError
from sparkswarm.protocol.global_index import GlobalIndex
from sparkswarm.protocol.partition import Partition, PlanChange
from sparkswarm.protocol.plan import Plan
from sparkswarm.sim.clock import Clock
from sparkswarm.sim.tuples import Answered, Ask, Final, Lane, Match, Operation, Point, Rectangle

if TYPE_CHECKING:
    from sparkswarm.sim.matching import Matching

SHOWN = 5
"""Number of violations of a run that are reported in full."""


@dataclass(slots=True)
class OracleVerdict:
    """The violations of a run.

    Attributes
    ----------
    lost
        Number of missing results, and of tuples that were lost or never acknowledged.
    duplicated
        Number of duplicated results.
    partial
        Number of answers that are marked partial. They are not violations.
    violations
        All violations as text, lost and duplicated results included.
    """

    lost: int = 0
    duplicated: int = 0
    partial: int = 0
    violations: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Fate:
    """When a tuple was emitted and acknowledged."""

    item: Point | Operation
    emitted: int
    done: float = math.inf


@dataclass(slots=True)
class _Asked:
    """A snapshot query and when it was asked."""

    ask: Ask
    at: int


class Oracle:
    """The oracle of one run.

    Attributes
    ----------
    matches
        The results that have reached the sink.

    Parameters
    ----------
    clock
        Virtual time.
    plan
        The first plan.
    counts_all
        Whether the window of the run is known exactly. If not, answers are only checked for
        points that must not be in them.
    matching
        The application of the run, if it has one.
    """

    def __init__(
        self, clock: Clock, plan: Plan, counts_all: bool, matching: Matching | None = None
    ) -> None:
        self._clock = clock
        self._matching = matching
        self._denied: set[tuple[int, int, int, int]] = set()
        self._counts_all = counts_all
        self._points: dict[tuple[int, int], _Fate] = {}
        self._operations: dict[int, list[_Fate]] = {}
        self.matches: list[Match] = []
        self._finals: list[Final] = []
        self._keeper: dict[tuple[int, int], int] = {}
        self._questions: dict[int, _Asked] = {}
        self._answers: list[Answered] = []
        self._again: list[Point | Operation] = []
        self._partitions: dict[int, Partition] = {p.id: p for p in plan.partitions}
        self._coordinators: dict[int, str] = {}
        self._plans: dict[int, tuple[PlanChange, ...]] = {}
        self.disturbed = False
        self._dead: set[int] = set()
        self.rounds: list[int] = []
        self.verdict = OracleVerdict()

    # -- inputs and outputs ---------------------------------------------------------------------

    def emitted(self, item: Point | Operation) -> None:
        """Record that a source emitted a tuple for the first time."""
        fate = _Fate(item, self._clock.now)
        if isinstance(item, Point):
            self._points[item.source, item.number] = fate
        else:
            self._operations.setdefault(item.query, []).append(fate)

    def acknowledged(self, item: Point | Operation) -> None:
        """Record that a source received the acknowledgement of a tuple."""
        if isinstance(item, Point):
            self._points[item.source, item.number].done = self._clock.now
        else:
            for fate in self._operations[item.query]:
                if fate.item == item:
                    fate.done = self._clock.now

    def sent_again(self, item: Point | Operation) -> None:
        """Record that a source had to send a tuple again."""
        self._again.append(item)

    def result(self, result: Match | Final) -> None:
        """Record a result that arrived at the sink."""
        if isinstance(result, Match):
            self.matches.append(result)
        else:
            self._finals.append(result)

    def kept(self, executor: int, point: Point) -> None:
        """Record which executor stored a point last, for snapshot queries."""
        self._keeper[point.source, point.number] = executor

    def asked(self, ask: Ask) -> None:
        """Record a snapshot query of a source."""
        self._questions[ask.number] = _Asked(ask, self._clock.now)

    def answered(self, answer: Answered) -> None:
        """Record an answer that a source received."""
        self._answers.append(answer)

    # -- the cluster ------------------------------------------------------------------------------

    def crashed(self) -> None:
        """Record that a machine crashed or was cut off."""
        self.disturbed = True

    def fenced(self, executor: int) -> None:
        """Record that an executor was declared dead."""
        self.disturbed = True
        self._dead.add(executor)

    def became_coordinator(self, term: int, name: str) -> None:
        """Check that a term has only one Coordinator."""
        if term:
            self.disturbed = True
        if self._coordinators.setdefault(term, name) != name:
            self.wrong(f"term {term} has two Coordinators, {self._coordinators[term]} and {name}")

    def round_began(self, term: int, number: int) -> None:
        """Record the start of a round."""
        self.rounds.append(self._clock.now)

    def plan_changed(self, term: int, plan: Plan, changes: tuple[PlanChange, ...]) -> None:
        """Check a new plan: it must tile the space, and its partition ids must be new."""
        if term < max(self._coordinators, default=0):
            self.wrong(f"a Coordinator of term {term} publishes in term {max(self._coordinators)}")
        if self._plans.setdefault(plan.version, changes) != changes:
            self.wrong(f"there are two plans of version {plan.version}")
        try:
            plan.check()
        except PlanError as error:
            self.wrong(f"plan {plan.version}: {error}")
        for change in changes:
            for partition in change.created:
                if partition.id in self._partitions:
                    self.wrong(f"partition id {partition.id} is used again")
                self._partitions[partition.id] = partition

    def index_changed(self, name: str, index: GlobalIndex) -> None:
        """Check an index: every cell must lead to one partition that contains it."""
        try:
            index.check_tiling()
        except PlanError as error:
            self.wrong(f"the index of {name}: {error}")

    def wrong(self, what: str) -> None:
        """Record a violation."""
        self.verdict.violations.append(f"{self._clock.now} us: {what}")

    def seen(self) -> dict[str, int]:
        """Return the number of tuples, results and answers."""
        return {
            "points": len(self._points),
            "operations": sum(map(len, self._operations.values())),
            "results": len(self.matches),
            "snapshot queries": len(self._answers),
            "sent again": len(self._again),
            "runs with an application": int(self._matching is not None),
            "pairs that an application denied": len(self._denied),
        }

    # -- judgement --------------------------------------------------------------------------

    def judge(self) -> OracleVerdict:
        """Compare all results with brute force, and return the verdict."""
        self._judge_delivery()
        self._judge_matches()
        self._judge_counts()
        for answer in self._answers:
            self._judge_answer(answer)
        return self.verdict

    def _lost(self, what: str) -> None:
        self.verdict.lost += 1
        self.wrong(f"lost: {what}")

    def _duplicated(self, what: str) -> None:
        self.verdict.duplicated += 1
        self.wrong(f"duplicated: {what}")

    def _judge_delivery(self) -> None:
        fates = [*self._points.values(), *(f for o in self._operations.values() for f in o)]
        for fate in fates:
            if fate.done == math.inf:
                self._lost(f"{fate.item} was never acknowledged")
        if not self.disturbed:
            for item in self._again:
                self._lost(f"{item} had to be sent again, though no machine died")

    def _ask_the_application(self) -> None:
        """Find the points in the rectangle of a version that the application rejects."""
        if self._matching is None:
            return
        points = [f.item for f in self._points.values() if isinstance(f.item, Point)]
        operations = [
            f.item
            for fates in self._operations.values()
            for f in fates
            if isinstance(f.item, Operation) and f.item.rectangle is not None
        ]
        pairs = [
            (p, o)
            for p, point in enumerate(points)
            for o, operation in enumerate(operations)
            if _contains(operation.rectangle, point)
        ]
        decided = self._matching.decide(points, operations, pairs)
        for (p, o), matches in zip(pairs, decided, strict=True):
            if not matches:
                self._denied.add(_key(operations[o], points[p]))

    def _is_match(self, operation: Operation, point: Point) -> bool:
        """Whether a point matches a version of a query."""
        return _contains(operation.rectangle, point) and _key(operation, point) not in self._denied

    def _judge_matches(self) -> None:
        self._ask_the_application()
        found: dict[tuple[int, int, int], list[Match]] = {}
        for match in self.matches:
            found.setdefault((match.query, match.source, match.number), []).append(match)
        for query, operations in self._operations.items():
            for (source, number), point in self._points.items():
                matches = found.pop((query, source, number), [])
                self._judge_pair(operations, point, matches)
        for key in found:
            self.wrong(f"a result for a query or a point that was never emitted: {key}")

    def _judge_pair(self, operations: list[_Fate], point: _Fate, matches: list[Match]) -> None:
        item = point.item
        assert isinstance(item, Point)
        fits = [isinstance(o.item, Operation) and self._is_match(o.item, item) for o in operations]
        if not matches and not any(fits):
            return
        if len(matches) > 1:
            self._duplicated(f"{item} has {len(matches)} results: {matches}")
        possible = _possible(operations, point)
        for match in matches:
            k = match.version
            if k not in possible:
                self.wrong(f"{match} for {item}: possible are versions {possible} of the query")
            elif not fits[k - 1]:
                self.wrong(f"{match} for {item}, which that version does not match")
        if not matches and all(k > 0 and fits[k - 1] for k in possible):
            query = operations[0].item
            self._lost(f"the result of {item} and version {possible} of {query}")

    def _judge_counts(self) -> None:
        counts: dict[Lane, list[int]] = {}
        for match in self.matches:
            if match.lane is not None:
                counts.setdefault(match.lane, []).append(match.running)
        for lane, numbers in counts.items():
            if sorted(numbers) != list(range(1, len(numbers) + 1)):
                self.wrong(f"the running count {lane} went {sorted(numbers)}")
        finals = Counter(final.lane for final in self._finals)
        for final in self._finals:
            if final.total != len(counts.get(final.lane, [])) or finals[final.lane] > 1:
                self.wrong(f"{final}, but its numbers were {sorted(counts.get(final.lane, []))}")
        for lane in counts:
            if lane not in finals:
                self.wrong(f"the running count {lane} never ended: its state was left behind")

    def _judge_answer(self, answer: Answered) -> None:
        asked = self._questions[answer.number]
        self.verdict.partial += bool(answer.partial_because)
        if not self._dead.issuperset(answer.partial_because):
            self.wrong(
                f"{asked.ask} blames {answer.partial_because}; dead are {sorted(self._dead)}"
            )
        if len(set(answer.points)) != len(answer.points):
            self.wrong(f"the answer to {asked.ask} has a point twice")
        got = set(answer.points)
        for key, fate in self._points.items():
            item = fate.item
            assert isinstance(item, Point)
            inside = _contains(asked.ask.rectangle, item)
            too_late = fate.emitted > answer.until or fate.done < answer.since
            if key in got and (not inside or too_late):
                self.wrong(f"the answer to {asked.ask} has {item}, which is out of it")
            must = inside and fate.emitted >= answer.since and fate.done <= asked.at
            excused = self._keeper.get(key) in answer.partial_because
            if must and key not in got and self._counts_all and not excused:
                self._lost(f"{item} in the answer to {asked.ask}")


def _contains(rectangle: Rectangle | None, point: Point) -> bool:
    if rectangle is None:
        return False
    x1, y1, x2, y2 = rectangle
    return x1 <= point.x <= x2 and y1 <= point.y <= y2


def _key(operation: Operation, point: Point) -> tuple[int, int, int, int]:
    return operation.query, operation.version, point.source, point.number


def _possible(operations: list[_Fate], point: _Fate) -> list[int]:
    """Return the versions of a query that a point may have met."""
    first = 0
    for k, operation in enumerate(operations, start=1):
        if operation.done <= point.emitted:
            first = k
    last = first
    for k, operation in enumerate(operations, start=1):
        if operation.emitted <= point.done:
            last = max(last, k)
    return list(range(first, last + 1))


def describe(violations: Iterable[str]) -> list[str]:
    """Return the first violations, and the number of further ones."""
    told = list(violations)
    more = len(told) - SHOWN
    return told[:SHOWN] + ([f"and {more} more"] if more > 0 else [])
