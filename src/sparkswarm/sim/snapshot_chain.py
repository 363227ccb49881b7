"""Snapshot queries: the recent points in a range, wherever they are stored.

SWARM moves partitions but not their data (paper, "Correctness of Query Execution"). A point
stays with the machine that owned its partition when it arrived. So a snapshot query asks the
owners of the partitions that it overlaps, then the owners of their parents, and so on along
the lineage, until the data have expired. Both sides are here: :func:`answer` for a machine that
is asked, :class:`SnapshotQuery` for the machine that asks, the paper's m_q.

**A step** is one machine asked about some cells of one partition. The machine sends its
results and then an acknowledgement with their number and the next steps. From the
acknowledgements m_q knows which machines and how many results to wait for.

- *Complete.* A point is stored once, by an owner of the partition that covered its cell. That is
  the partition in force or one of its ancestors, and every owner of each is asked.
- *No duplicates.* The partitions in force share no cell. The parents of a partition share
  none, and each is asked only about the cells through which it was reached. So no two steps
  ask for the same point. A step named by several machines (the owners of a shared partition
  have the same parents) is taken once, and a repeated message counts once. If machines disagree
  on which partitions are in force, a point may be found twice: its id counts once.
- *No unnecessary steps.* The points of parents are not newer than the beginning of their child.
  So m_q skips parents of partitions that began before the window; for a count window, it skips
  parents when there are enough newer points already.
- *Termination.* When a machine is given up, its steps end without it, and m_q takes the next
  steps from its own lineage. The answer is marked partial and names the machine.

**Windows.** A time window is given by its start, see :mod:`sparkswarm.sim.kept_points`. ``until``
is when the query was asked: later points do not count, so the result does not depend on when a
machine answers. A count window of N is, for each partition in force, the N newest points of
its cells that the partition and its ancestors still hold; the query sees those in its range.
For that the machines send their N newest points of the cells, in the range or not, and m_q finds
the N newest of all. Such a window is as of when the machines answer, because points that arrived
later have replaced older ones.

**Retired partitions.** m_q may have an old plan and ask for a partition that has just been
retired. The asked machine then names its successors, and they are asked instead. A machine asked
about a partition that it is taking over must answer after the takeover.

Differs: m_q asks every machine itself, where in the paper a machine passes the query on to the
next. That is one more message for each step; in return a machine that dies during a query loses
only its own part, and a step named twice is taken once. And no machine is told that a partition
has expired: every machine drops it from its lineage by the clock.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from sparkswarm.geometry import CellRect, Grid
from sparkswarm.protocol.messages import Address
from sparkswarm.protocol.partition import Partition
from sparkswarm.sim.kept_points import (
    KeptPoints,
    Points,
    Rectangle,
    SimCount,
    Window,
    newest_last,
    no_points,
)
from sparkswarm.sim.lineage import Lineage

POINTS_PER_MESSAGE = 1000
"""A machine with more results than this sends several messages."""


@dataclass(frozen=True, slots=True)
class Question:
    """A snapshot query.

    Attributes
    ----------
    number
        Its number, unique for its m_q.
    asker
        m_q.
    rectangle
        The range, edges included.
    since, until
        The times that count, both included.
    newest
        Size of a count window; None for a time window.
    """

    number: int
    asker: int
    rectangle: Rectangle
    since: float
    until: float
    newest: int | None = None

    @classmethod
    def about(
        cls, number: int, asker: int, rectangle: Rectangle, window: Window, now: float
    ) -> Question:
        """Return the question for the points of a window in a rectangle, now."""
        if isinstance(window, SimCount):
            return cls(number, asker, rectangle, -math.inf, math.inf, window.size)
        return cls(number, asker, rectangle, window.since(now), now)


class Step(NamedTuple):
    """A machine to ask about some cells of a partition.

    Attributes
    ----------
    root
        Id of the partition in force.
    partition
        That partition, or an ancestor of it.
    machine
        One of its owners.
    cells
        The cells that are wanted.
    """

    root: int
    partition: Partition
    machine: int
    cells: CellRect

    @property
    def is_first(self) -> bool:
        """Whether m_q takes the partition to be in force."""
        return self.partition.id == self.root


@dataclass(frozen=True, slots=True)
class Request:
    """From m_q: a question, for one step."""

    question: Question
    step: Step

    @property
    def to(self) -> Address:
        """The machine asked."""
        return self.step.machine


@dataclass(frozen=True, slots=True, eq=False)
class ChainResults:
    """To m_q: points. ``part`` numbers the messages of a step from 0."""

    to: Address
    number: int
    step: Step
    part: int
    points: Points


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """To m_q: the number of messages with results, and the next steps.

    The points of the next steps are not newer than ``before``.
    """

    to: Address
    number: int
    step: Step
    results: int
    next: tuple[Step, ...]
    before: float


def answer(
    request: Request,
    kept: KeptPoints | None,
    lineage: Lineage,
    successors: Iterable[Partition] = (),
    points_per_message: int = POINTS_PER_MESSAGE,
) -> list[ChainResults | Acknowledgement]:
    """Answer for one machine and one partition; the acknowledgement comes last.

    Parameters
    ----------
    request
        The request of m_q.
    kept
        The points of the partition on this machine; None if the partition was retired and has
        expired, and with it its parents.
    lineage
        The retired partitions that this machine knows, without expired ones.
    successors
        If the partition is no longer in force: the partitions in force that have its cells.
        Ignored unless m_q takes it to be in force.
    """
    question, step = request.question, request.step
    after = _first_steps(question, successors, step.cells) if step.is_first else ()
    if after or kept is None:
        return [Acknowledgement(question.asker, question.number, step, 0, after, math.inf)]
    if question.newest is None:
        found = kept.in_range(question.rectangle, step.cells, question.since, question.until)
    else:
        found = kept.newest(question.newest, step.cells, question.until)
    starts = range(0, len(found), points_per_message)
    results = [
        ChainResults(question.asker, question.number, step, part, found[i : i + points_per_message])
        for part, i in enumerate(starts)
    ]
    return [
        *results,
        Acknowledgement(
            to=question.asker,
            number=question.number,
            step=step,
            results=len(results),
            next=_next_steps(step, lineage),
            before=kept.began,
        ),
    ]


def _first_steps(
    question: Question, partitions: Iterable[Partition], cells: CellRect
) -> tuple[Step, ...]:
    """Return a step to each owner of partitions in force that overlap these cells.

    For a count window, a step is about all cells of its partition.
    """
    return tuple(
        Step(partition.id, partition, owner, wanted if question.newest is None else partition.cells)
        for partition in partitions
        if (wanted := partition.cells.intersection(cells)).area
        for owner in partition.owners
    )


def _next_steps(step: Step, lineage: Lineage) -> tuple[Step, ...]:
    """Return a step to each owner of each parent, for the cells of this step."""
    return tuple(
        Step(step.root, link.partition, owner, wanted)
        for link in lineage.chain(step.partition)
        if link.partition.id in step.partition.parents
        if (wanted := link.cells.intersection(step.cells)).area
        for owner in link.partition.owners
    )


@dataclass(frozen=True, slots=True, eq=False)
class ChainAnswer:
    """The answer of a snapshot query.

    Attributes
    ----------
    points
        Points, oldest first.
    partial_because
        The machines whose points are missing; empty if the answer is complete.
    """

    points: Points
    partial_because: tuple[int, ...]


@dataclass(slots=True)
class _Progress:
    """The messages that have arrived in one step."""

    parts: dict[int, Points] = field(default_factory=dict)
    acknowledgement: Acknowledgement | None = None

    @property
    def is_done(self) -> bool:
        return self.acknowledgement is not None and all(
            part in self.parts for part in range(self.acknowledgement.results)
        )


class SnapshotQuery:
    """A snapshot query on m_q: sends requests and combines the answers.

    Requests may be addressed to m_q itself.

    Parameters
    ----------
    question
        What is asked.
    partitions
        The partitions in force that m_q knows: all, or those that overlap the range.
    grid
        The cells.
    lineage
        The retired partitions that m_q knows, to bypass dead machines.
    """

    def __init__(
        self, question: Question, partitions: Sequence[Partition], grid: Grid, lineage: Lineage
    ) -> None:
        self.question = question
        edges = ([edge] for edge in question.rectangle)
        cells = grid.place_queries(*map(np.array, edges)).rect(0)
        self._first = _first_steps(question, partitions, cells)
        self._lineage = lineage
        self._asked: set[Step] = set()
        self._open: dict[Step, _Progress] = {}
        self._found: defaultdict[int, list[Points]] = defaultdict(list)
        self._dead: set[int] = set()
        self._missing: set[int] = set()
        self._started = False
        self._answer: ChainAnswer | None = None

    @property
    def answer(self) -> ChainAnswer | None:
        """The answer; None until all results have arrived."""
        if self._answer is None and self._started and not self._open:
            self._answer = ChainAnswer(self._combined(), tuple(sorted(self._missing)))
        return self._answer

    @property
    def waiting_for(self) -> tuple[int, ...]:
        """The machines with unanswered requests."""
        return tuple(sorted({step.machine for step in self._open}))

    def start(self) -> list[Request]:
        """Ask the owners of the partitions in force."""
        self._started = True
        return self._ask(self._first, math.inf)

    def handle(self, sender: Address, message: ChainResults | Acknowledgement) -> list[Request]:
        """Handle a message; unexpected ones and wrong senders are ignored."""
        progress = self._open.get(message.step)
        if (
            progress is None
            or message.number != self.question.number
            or sender != message.step.machine
        ):
            return []
        if isinstance(message, ChainResults):
            progress.parts.setdefault(message.part, message.points)
        else:
            progress.acknowledgement = message
        if not progress.is_done or progress.acknowledgement is None:
            return []
        self._close(message.step)
        return self._ask(progress.acknowledgement.next, progress.acknowledgement.before)

    def give_up(self, machine: int) -> list[Request]:
        """Stop waiting for a machine for the rest of this query; what it has sent counts."""
        self._dead.add(machine)
        requests: list[Request] = []
        for step in [step for step in self._open if step.machine == machine]:
            self._close(step)
            requests += self._bypass(step)
        return requests

    def _ask(self, steps: Iterable[Step], before: float) -> list[Request]:
        requests: list[Request] = []
        for step in steps:
            if step in self._asked or not self._needs(step.root, before):
                continue
            self._asked.add(step)
            if step.machine in self._dead:
                requests += self._bypass(step)
            else:
                self._open[step] = _Progress()
                requests.append(Request(self.question, step))
        return requests

    def _needs(self, root: int, before: float) -> bool:
        """Return whether points from before some time can be part of the answer."""
        if self.question.newest is None:
            return before >= self.question.since
        newer = sum(int((points["time"] > before).sum()) for points in self._found[root])
        return newer < self.question.newest

    def _bypass(self, step: Step) -> list[Request]:
        self._missing.add(step.machine)
        return self._ask(_next_steps(step, self._lineage), math.inf)

    def _close(self, step: Step) -> None:
        self._found[step.root] += self._open.pop(step).parts.values()

    def _combined(self) -> Points:
        groups = [_distinct(group) for group in self._found.values()]
        if self.question.newest is not None:
            groups = [group[-self.question.newest :] for group in groups]
        return self.question.rectangle.of(_distinct(groups))


def _distinct(groups: Iterable[Points]) -> Points:
    """Concatenate points, each once, newest last."""
    points = np.concatenate([no_points(), *groups])
    _, first = np.unique(points["id"], return_index=True)
    return newest_last(points[first])
