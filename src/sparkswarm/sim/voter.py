"""An executor's part in choosing the Coordinator: it listens for one, and votes.

Owns the failure detector of the Coordinator, and carries what the protocol's
:class:`~sparkswarm.sim.election.Agreement` says. Some executors may be liars; what a
liar says is drawn here, and it is the only thing that it lies about.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sparkswarm.protocol.messages import EVERYONE
from sparkswarm.sim.clock import MILLISECOND
from sparkswarm.sim.election import Agreement, Suspect, Vote

if TYPE_CHECKING:
    from sparkswarm.sim.executor import Executor

SILENT = 160 * MILLISECOND
"""A Coordinator that was not heard for so long is suspected; doubled with each term in vain."""

REPEAT = 4
"""Where executors stand is told again every so many beats, once anyone was suspected."""


class Voter:
    """Executor m as one who votes."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._world = executor.world
        candidates = [f"gi{g}" for g in range(self._world.routers)]
        known = self._world.store.terms.get(executor.name, 0)
        self._agreement = Agreement(executor.number, self._world.executors, candidates, known)
        self._heard = self._world.clock.now
        self._in_vain = 0
        self._beats = 0
        self._stirred = known > 0

    @property
    def term(self) -> int:
        """The term that this executor is in."""
        return self._agreement.term

    @property
    def coordinator(self) -> str:
        """The Coordinator of that term."""
        return self._agreement.coordinator

    def follows(self, term: int, sender: str) -> bool:
        """Whether to listen to a Coordinator; one whose time is over is told so."""
        if term == self.term:
            self._heard = self._world.clock.now
            self._in_vain = 0
            self._say(self._agreement.trust(self.coordinator))
            return True
        if term < self.term:
            self._say(self._agreement.told(sender))
        return False

    def handle(self, sender: str, message: Suspect | Vote) -> None:
        """Take what another executor says."""
        self._stirred = True
        before = self.term
        said = self._agreement.handle(int(sender.removeprefix("ex")), message)
        self._after(before, said)

    def beat(self) -> None:
        """Look at the clock, and tell again where I stand."""
        self._beats += 1
        if self._world.clock.now - self._heard > SILENT << min(self._in_vain, 3):
            self._stirred = True
            before = self.term
            self._after(before, self._agreement.timeout(before))
        if self._stirred and self._beats % REPEAT == 0:
            self._say(self._agreement.told(EVERYONE))
        if self._executor.number in self._world.liars:
            self._lie()

    def _after(self, before: int, said: Sequence[Suspect | Vote]) -> None:
        if self.term != before:
            self._world.store.terms[self._executor.name] = self.term
            self._heard = self._world.clock.now
            self._in_vain += 1
        self._say(said)

    def _say(self, messages: Sequence[Suspect | Vote]) -> None:
        for message in messages:
            if message.to != EVERYONE:
                self._executor.send(str(message.to), message)
                continue
            for name in self._world.machines:
                if name.startswith(("ex", "gi")) and name != self._executor.name:
                    self._executor.send(name, message)

    def _lie(self) -> None:
        """Say anything to anyone."""
        luck = self._world.luck_of_liars
        if luck.random() < 0.3:
            kind = luck.choice((Suspect, Vote))
            name = luck.choice([n for n in self._world.machines if n.startswith(("ex", "gi"))])
            if name != self._executor.name:
                self._executor.send(name, kind(luck.randrange(-1, self.term + 4)))
