"""The Coordinator's role on a GlobalIndex machine, for one term.

Owns the rounds, the heartbeat and the list of live machines. Decisions are made by the
protocol's :class:`~sparkswarm.protocol.coordinator.Coordinator`. Terms and the store ensure
that only one Coordinator decides: a plan is in force once the store has accepted it, and the
store refuses plans of a term that is over.

A new Coordinator reads the newest plan from the store and gets costs with the next round. It
skips a block of partition ids, so that an id granted by its predecessor is never used again.
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
from sparkswarm.sim.tuples import Alive, Beat, Command, Reply

if TYPE_CHECKING:
    from sparkswarm.sim.router import Router

BEAT = 25 * MILLISECOND
"""Interval of the Coordinator's heartbeat."""

REPORTS_DUE = 25 * MILLISECOND
"""How long a round waits for reports."""

SILENT = 160 * MILLISECOND
"""A machine that was silent for this long is declared dead."""

IDS_PER_TERM = 1000
"""Partition ids that a new Coordinator skips."""

ROUNDS_PER_TERM = 1000
"""Rounds of a term are numbered from term x ROUNDS_PER_TERM."""


class CoordinatorRole:
    """The Coordinator of one term.

    Parameters
    ----------
    router
        The GlobalIndex machine that has the role.
    term
        Its term, already claimed in the store.
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
        self._in_office = True
        self._world.oracle.became_coordinator(self.term, router.name)
        self._beat()
        router.after(self._world.round_length, self._close_round)

    def step_down(self, reason: str) -> None:
        """Stop deciding."""
        self._in_office = False
        self._world.note(self._router.name, f"steps down from term {self.term}: {reason}")

    def handle(self, source: str, message: Alive | Reply) -> None:
        """Handle a heartbeat, or the reply of an executor."""
        if not self._in_office:
            return
        self._heard[source] = self._world.clock.now
        match message:
            case Alive():
                self._welcome(source, message)
            case Reply() if message.term == self.term:
                self._send(self._coordinator.handle(message.message))

    # -- rounds ---------------------------------------------------------------------------------

    def _close_round(self) -> None:
        if not self._in_office:
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
        if self._in_office:
            self._send(self._coordinator.handle(ReportsDue(number)))

    def _send(self, messages: list[Message]) -> None:
        """Publish plans, forward requests, and record decisions."""
        for message in messages:
            if not self._in_office:
                return
            match message:
                case Decision():
                    self._world.note(self._router.name, describe(message))
                case PlanPublished():
                    self._publish(message)
                case _:
                    self._command(f"ex{message.to}", message)

    def _publish(self, message: PlanPublished) -> None:
        """Write a plan to the store, then send it to all machines."""
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

    # -- membership -----------------------------------------------------------------------------

    def _present(self) -> list[int]:
        return [m for m in range(self._world.executors) if m not in self._absent]

    def _beat(self) -> None:
        """Send a heartbeat, and declare silent executors dead."""
        if not self._in_office:
            return
        now = self._world.clock.now
        self._heard[self._router.name] = now
        store = self._world.store
        silent = {name for name, heard in self._heard.items() if now - heard > SILENT}
        heard = [m for m in range(self._world.executors) if f"ex{m}" not in silent]
        if 2 * len(heard) > self._world.executors:
            # A Coordinator that hears only a minority is cut off itself.
            for m in self._present():
                if f"ex{m}" in silent:
                    self._lose(m)
        if not self._in_office:
            return
        routers = tuple(g for g in range(self._world.routers) if f"gi{g}" not in silent)
        beat = Beat(
            term=self.term,
            coordinator=self._router.number,
            version=self._coordinator.plan.version,
            lives=store.lives,
            absent=tuple(sorted(self._absent)),
            routers=routers,
        )
        for name in self._world.machines:
            if name != self._router.name:
                self._router.cast(name, beat)
        self._router.after(BEAT, self._beat)

    def _lose(self, executor: int) -> None:
        """Declare an executor dead: fence it, and reassign its partitions."""
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
        """Readmit an executor that returned with a new, empty life."""
        if not source.startswith("ex"):
            return
        executor = int(source.removeprefix("ex"))
        if executor in self._absent and message.life == self._world.store.lives[executor]:
            self._absent.discard(executor)
            self._send(self._coordinator.regain(executor))
