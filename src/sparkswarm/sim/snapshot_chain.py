"""Snapshot queries: what is in this range now, wherever it was kept.

SWARM moves partitions and not their data (paper, "Correctness of Query Execution"). A point
stays with the machine that owned its partition when it came. So a snapshot query asks the
owners of the partitions that it overlaps, then the owners of their parents, and so on along
the chain, until the data have expired. Here are both sides: :func:`answer` for a machine that
is asked, :class:`SnapshotQuery` for the one that asks, the paper's m_q.

**A step** is one machine asked about some cells of one partition. The machine sends its
results and then an acknowledgement with their number and the next steps. m_q knows from the
acknowledgements whom to wait for and how many results, and answers when all is in.

- *Complete.* A point is kept once, by an owner of the partition that covered its cell. That is
  the partition in force or one of its ancestors, and every owner of each is asked.
- *Nothing twice.* The partitions in force share no cell. The parents of a partition share
  none, and each is asked only about the cells through which it was reached. So no two steps
  ask for the same point. A step named by several machines (the owners of a shared partition
  have the same parents) is taken once, and a message that comes twice counts once. Where
  machines disagree on what is in force, two ways may lead to a point: its id counts once.
- *No longer than needed.* What parents keep is no newer than the beginning of their child. So
  m_q leaves out parents of what began before the window, and for a count window parents of
  what began when there are enough newer points already.
- *It never waits for ever.* When a machine is given up, its steps are over without it, and m_q
  takes the next steps from its own lineage. The answer is marked partial and names the machine.

**Windows.** A window of time is a time to begin with, see :mod:`sparkswarm.sim.kept_points`.
``until`` is when the query was asked: later points don't count, so that it does not matter when
a machine answers. A window of a count N is, for each partition in force, the N newest points of
its cells that the partition and its ancestors still keep; the query sees those in its range.
For that the machines send their N newest points of the cells, whether in the range or not, and
m_q finds the N newest of all. Such a window is as it is when the machines answer, because
a point that came later has let an older one expire.

**A partition that is no more.** m_q may be behind and ask for a partition as one in force that
has just been retired. Its machine then names the partitions that took over, and they are asked
instead. A machine asked for a partition that it is about to take over must answer when it has.

Differs: m_q asks every machine itself, where in the paper a machine passes the query on to the
next. That is one more message on the way to each link; in return a machine that dies with the
query in hand takes nothing but its own part with it, and a step named twice is asked once. And
nobody tells the previous machine in the chain that a partition has expired: every machine
drops it from its lineage by the clock.
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
        Its number; m_q gives each of its queries another.
    asker
        m_q.
    rectangle
        The range, edges included.
    since, until
        The times that count, both included.
    newest
        How many points a count window has, None for a window of time.
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
        """Ask what of a window is in a rectangle, now."""
        if isinstance(window, SimCount):
            return cls(number, asker, rectangle, -math.inf, math.inf, window.size)
        return cls(number, asker, rectangle, window.since(now), now)


class Step(NamedTuple):
    """A machine to be asked about some cells of a partition.

    Attributes
    ----------
    root
        The partition in force whose lineage this is.
    partition
        That one itself, or an ancestor.
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
        """Whether the partition is taken to be in force."""
        return self.partition.id == self.root


@dataclass(frozen=True, slots=True)
class Request:
    """From m_q: answer this question for this step."""

    question: Question
    step: Step

    @property
    def to(self) -> Address:
        """The machine asked."""
        return self.step.machine


@dataclass(frozen=True, slots=True, eq=False)
class Results:
    """To m_q: points. ``part`` counts the messages of one step from 0."""

    to: Address
    number: int
    step: Step
    part: int
    points: Points


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """To m_q: so many messages with results I sent, and these are the next to ask.

    ``before`` bounds what they keep: nothing of it came later.
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
) -> list[Results | Acknowledgement]:
    """Answer for one machine and one partition; the acknowledgement comes last.

    Parameters
    ----------
    request
        What m_q asked.
    kept
        What this machine keeps of the partition, which may be nothing yet; None if it was
        retired and has expired, and then so has all that its parents kept.
    lineage
        The retired partitions that this machine knows, those that have expired left out.
    successors
        If this machine knows that the partition is no longer in force: the partitions in
        force that have its cells. Only looked at where m_q takes it to be in force.
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
        Results(question.asker, question.number, step, part, found[i : i + points_per_message])
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

    Which points are the newest of a partition takes all its cells to say.
    """
    return tuple(
        Step(partition.id, partition, owner, wanted if question.newest is None else partition.cells)
        for partition in partitions
        if (wanted := partition.cells.intersection(cells)).area
        for owner in partition.owners
    )


def _next_steps(step: Step, lineage: Lineage) -> tuple[Step, ...]:
    """Return a step to each owner of each parent, about the cells of this step."""
    return tuple(
        Step(step.root, link.partition, owner, wanted)
        for link in lineage.chain(step.partition)
        if link.partition.id in step.partition.parents
        if (wanted := link.cells.intersection(step.cells)).area
        for owner in link.partition.owners
    )


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """What a snapshot query found.

    Attributes
    ----------
    points
        Oldest first.
    partial_because
        The machines whose part is missing; none if the answer is complete.
    """

    points: Points
    partial_because: tuple[int, ...]

    @property
    def is_partial(self) -> bool:
        """Whether something may be missing."""
        return bool(self.partial_because)


@dataclass(slots=True)
class _Progress:
    """What has come of one step."""

    parts: dict[int, Points] = field(default_factory=dict)
    acknowledgement: Acknowledgement | None = None

    @property
    def is_done(self) -> bool:
        return self.acknowledgement is not None and all(
            part in self.parts for part in range(self.acknowledgement.results)
        )


class SnapshotQuery:
    """m_q: asks, waits, and combines the answers.

    Requests may be addressed to m_q itself, like to any other machine.

    Parameters
    ----------
    question
        What is asked.
    partitions
        The partitions in force, as far as m_q knows: all, or those that overlap the range.
    grid
        The cells.
    lineage
        What m_q knows of retired partitions, to go around a machine that is dead.
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
        self._answer: Answer | None = None

    @property
    def answer(self) -> Answer | None:
        """The answer, None as long as something is awaited."""
        if self._answer is None and self._started and not self._open:
            self._answer = Answer(self._combined(), tuple(sorted(self._missing)))
        return self._answer

    @property
    def waiting_for(self) -> tuple[int, ...]:
        """The machines that have not answered everything yet."""
        return tuple(sorted({step.machine for step in self._open}))

    def start(self) -> list[Request]:
        """Ask the owners of the partitions in force."""
        self._started = True
        return self._ask(self._first, math.inf)

    def handle(self, sender: Address, message: Results | Acknowledgement) -> list[Request]:
        """Take what a machine sent; what is not awaited, or not from it, is ignored."""
        progress = self._open.get(message.step)
        if (
            progress is None
            or message.number != self.question.number
            or sender != message.step.machine
        ):
            return []
        if isinstance(message, Results):
            progress.parts.setdefault(message.part, message.points)
        else:
            progress.acknowledgement = message
        if not progress.is_done or progress.acknowledgement is None:
            return []
        self._close(message.step)
        return self._ask(progress.acknowledgement.next, progress.acknowledgement.before)

    def give_up(self, machine: int) -> list[Request]:
        """Wait no longer for a machine, now or later in this query. What it sent counts."""
        self._dead.add(machine)
        requests: list[Request] = []
        for step in [step for step in self._open if step.machine == machine]:
            self._close(step)
            requests += self._go_around(step)
        return requests

    def _ask(self, steps: Iterable[Step], before: float) -> list[Request]:
        requests: list[Request] = []
        for step in steps:
            if step in self._asked or not self._needs(step.root, before):
                continue
            self._asked.add(step)
            if step.machine in self._dead:
                requests += self._go_around(step)
            else:
                self._open[step] = _Progress()
                requests.append(Request(self.question, step))
        return requests

    def _needs(self, root: int, before: float) -> bool:
        """Say whether points that came before some time can still matter."""
        if self.question.newest is None:
            return before >= self.question.since
        newer = sum(int((points["time"] > before).sum()) for points in self._found[root])
        return newer < self.question.newest

    def _go_around(self, step: Step) -> list[Request]:
        self._missing.add(step.machine)
        return self._ask(_next_steps(step, self._lineage), math.inf)

    def _close(self, step: Step) -> None:
        self._found[step.root] += self._open.pop(step).parts.values()

    def _combined(self) -> Points:
        lots = [_distinct(lot) for lot in self._found.values()]
        if self.question.newest is not None:
            lots = [lot[-self.question.newest :] for lot in lots]
        return self.question.rectangle.of(_distinct(lots))


def _distinct(lots: Iterable[Points]) -> Points:
    """Put points together, each once, newest last."""
    points = np.concatenate([no_points(), *lots])
    _, first = np.unique(points["id"], return_index=True)
    return newest_last(points[first])
