"""An executor's part in the election: detects a failed Coordinator, and votes.

Owns the failure detector, and sends the messages of
:class:`~sparkswarm.sim.election.Agreement`. Executors that are liars also send random votes and
suspicions; they lie about nothing else.
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
"""A Coordinator silent for this long is suspected; doubled with each term without one."""

REPEAT = 4
"""Once any Coordinator was suspected, executors repeat their votes every n-th beat."""


class Voter:
    """The voter of one executor."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._world = executor.world
        candidates = [f"gi{g}" for g in range(self._world.routers)]
        known = self._world.store.terms.get(executor.name, 0)
        self._agreement = Agreement(executor.number, self._world.executors, candidates, known)
        self._heard = self._world.clock.now
        self._failed_terms = 0
        self._beats = 0
        self._was_suspected = known > 0

    @property
    def term(self) -> int:
        """The term that this executor is in."""
        return self._agreement.term

    @property
    def coordinator(self) -> str:
        """The Coordinator of that term."""
        return self._agreement.coordinator

    def follows(self, term: int, sender: str) -> bool:
        """Whether to obey a Coordinator; one whose term is over is sent the votes."""
        if term == self.term:
            self._heard = self._world.clock.now
            self._failed_terms = 0
            self._say(self._agreement.trust(self.coordinator))
            return True
        if term < self.term:
            self._say(self._agreement.told(sender))
        return False

    def handle(self, sender: str, message: Suspect | Vote) -> None:
        """Handle a suspicion or a vote of another executor."""
        self._was_suspected = True
        before = self.term
        said = self._agreement.handle(int(sender.removeprefix("ex")), message)
        self._after(before, said)

    def beat(self) -> None:
        """Suspect a silent Coordinator, and repeat votes that may not have arrived."""
        self._beats += 1
        if self._world.clock.now - self._heard > SILENT << min(self._failed_terms, 3):
            self._was_suspected = True
            before = self.term
            self._after(before, self._agreement.timeout(before))
        if self._was_suspected and self._beats % REPEAT == 0:
            self._say(self._agreement.told(EVERYONE))
        if self._executor.number in self._world.liars:
            self._lie()

    def _after(self, before: int, said: Sequence[Suspect | Vote]) -> None:
        if self.term != before:
            self._world.store.terms[self._executor.name] = self.term
            self._heard = self._world.clock.now
            self._failed_terms += 1
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
        """Send a random suspicion or vote to a random machine."""
        rng = self._world.liar_rng
        if rng.random() < 0.3:
            kind = rng.choice((Suspect, Vote))
            name = rng.choice([n for n in self._world.machines if n.startswith(("ex", "gi"))])
            if name != self._executor.name:
                self._executor.send(name, kind(rng.randrange(-1, self.term + 4)))
