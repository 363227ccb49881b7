"""The Coordinator's role on a GlobalIndex machine, for one term.

Owns the rounds, the heartbeat and the knowledge of who is there. What to decide is the
protocol's :class:`~sparkswarm.protocol.coordinator.Coordinator`; that nobody else decides at
the same time is what terms and the store are for: a plan counts when the store has taken it,
and the store takes none of a term that is over.

A new Coordinator needs little: the newest plan is in the store, costs come with the next
round, and ids begin a block further on, so that none that its predecessor granted can come
back under another meaning.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sparkswarm.observe.describe import describe
from sparkswarm.protocol.coordinator import Coordinator
from sparkswarm.protocol.messages import CloseRound, Decision, Message, PlanPublished, ReportsDue
from sparkswarm.sim.bugs import Bug
from sparkswarm.sim.clock import MILLISECOND
from sparkswarm.sim.storage import DeposedError
from sparkswarm.sim.tuples import Alive, Answer, Beat, Command

if TYPE_CHECKING:
    from sparkswarm.sim.router import Router

BEAT = 25 * MILLISECOND
"""How often the Coordinator says that it is there, and how things stand."""

REPORTS_DUE = 25 * MILLISECOND
"""How long it waits for reports."""

SILENT = 160 * MILLISECOND
"""A machine that was not heard for so long counts as dead."""

IDS_PER_TERM = 1000
"""A new Coordinator leaves out so many ids."""

ROUNDS_PER_TERM = 1000
"""Rounds of a term are numbered from term x this on."""


class Chair:
    """Preside over one term.

    Parameters
    ----------
    router
        The GlobalIndex machine that has the role.
    term
        Its term; the store has been told.
    """

    def __init__(self, router: Router, term: int) -> None:
        self._router = router
        self._world = router.world
        self.term = term
        self.round = term * ROUNDS_PER_TERM
        plan = self._world.store.plan
        if term:
            plan = replace(plan, next_id=plan.next_id + IDS_PER_TERM)
        self._coordinator = Coordinator(plan, self._world.config)
        self._first_id = plan.next_id
        now = self._world.clock.now
        self._heard = {f"ex{m}": now for m in range(self._world.executors)}
        self._heard |= {f"gi{g}": now for g in range(self._world.routers)}
        self._absent: set[int] = set()
        self._seated = True
        self._world.oracle.presides(self.term, router.name)
        self._beat()
        router.after(self._world.round_length, self._close_round)

    def step_down(self, reason: str) -> None:
        """Stop deciding."""
        self._seated = False
        self._world.note(self._router.name, f"steps down from term {self.term}: {reason}")

    def handle(self, source: str, message: Alive | Answer) -> None:
        """Take a sign of life, or what an executor answers."""
        if not self._seated:
            return
        self._heard[source] = self._world.clock.now
        match message:
            case Alive():
                self._welcome(source, message)
            case Answer() if message.term == self.term:
                self._send(self._coordinator.handle(message.message))

    # -- rounds ---------------------------------------------------------------------------------

    def _close_round(self) -> None:
        if not self._seated:
            return
        self.round += 1
        self._world.oracle.round_began(self.term, self.round)
        if Bug.ID_REUSE in self._world.bugs:
            plan = self._coordinator.plan
            self._coordinator.plan = replace(plan, next_id=self._first_id)
        for m in self._present():
            self._command(f"ex{m}", CloseRound(m, self.round))
        self._router.after(REPORTS_DUE, self._due, self.round)
        self._router.after(self._world.round_length, self._close_round)

    def _due(self, number: int) -> None:
        if self._seated:
            self._send(self._coordinator.handle(ReportsDue(number)))

    def _send(self, messages: list[Message]) -> None:
        """Publish plans, pass requests on, and note decisions."""
        for message in messages:
            if not self._seated:
                return
            match message:
                case Decision():
                    self._world.note(self._router.name, describe(message))
                case PlanPublished():
                    self._publish(message)
                case _:
                    self._command(f"ex{message.to}", message)

    def _publish(self, message: PlanPublished) -> None:
        """Make a plan durable, then tell everyone."""
        store = self._world.store
        try:
            store.append(self.term, self._coordinator.plan, message.changes)
        except DeposedError:
            self.step_down("the store refuses its plan")
            return
        self._world.oracle.plan_changed(self.term, self._coordinator.plan, message.changes)
        self._world.committed(self._router)
        for g in range(self._world.routers):
            self._command(f"gi{g}", message)
        for m in range(self._world.executors):
            self._command(f"ex{m}", message)

    def _command(self, name: str, message: Any) -> None:
        command = Command(self.term, message)
        if name == self._router.name:
            self._router.handle(name, command)
        else:
            self._router.send(name, command)

    # -- who is there ---------------------------------------------------------------------------

    def _present(self) -> list[int]:
        return [m for m in range(self._world.executors) if m not in self._absent]

    def _beat(self) -> None:
        """Say how things stand, and see who has fallen silent."""
        if not self._seated:
            return
        now = self._world.clock.now
        self._heard[self._router.name] = now
        store = self._world.store
        silent = {name for name, heard in self._heard.items() if now - heard > SILENT}
        heard = [m for m in range(self._world.executors) if f"ex{m}" not in silent]
        if 2 * len(heard) > self._world.executors:
            # One who hears only a minority is cut off itself, and declares nobody dead.
            for m in self._present():
                if f"ex{m}" in silent:
                    self._lose(m)
        if not self._seated:
            return
        routers = tuple(g for g in range(self._world.routers) if f"gi{g}" not in silent)
        beat = Beat(
            self.term, self._router.number, self._coordinator.plan.version, store.lives,
            tuple(sorted(self._absent)), routers,
        )  # fmt: skip
        for name in self._world.machines:
            if name != self._router.name:
                self._router.cast(name, beat)
        self._router.after(BEAT, self._beat)

    def _lose(self, executor: int) -> None:
        """Declare an executor dead: refuse what it still writes, give away what it had."""
        store = self._world.store
        if store.term != self.term and Bug.TWO_COORDINATORS not in self._world.bugs:
            self.step_down("another term has begun")
            return
        self._absent.add(executor)
        messages = self._coordinator.lose(executor)
        version = self._coordinator.plan.version
        store.fence(executor, version)
        self._world.oracle.fenced(executor)
        self._send(messages)

    def _welcome(self, source: str, message: Alive) -> None:
        """Let an executor in that comes back with nothing."""
        if not source.startswith("ex"):
            return
        executor = int(source.removeprefix("ex"))
        if executor in self._absent and message.life == self._world.store.lives[executor]:
            self._absent.discard(executor)
            self._send(self._coordinator.regain(executor))
