"""Election of the Coordinator: a Byzantine agreement among the executors.

The paper has one sentence on it: when the Coordinator fails, the executors choose another
GlobalIndex machine by Byzantine agreement. This module has state machines for it, without clock
or network: :class:`Agreement` for an executor, and :class:`Tally` for machines without a vote,
by which a GlobalIndex machine learns whether it is the Coordinator.

**Terms.** Time is divided into terms, numbered from 0. The Coordinator of a term is a function of
its number: the candidates take turns. So there cannot be two Coordinators of one term, and
machines only have to agree on the term. This is the view change of PBFT (Castro and Liskov,
1999); its two steps are those of Bracha's reliable broadcast (1987):

1. An executor that suspects the Coordinator of term t sends ``Suspect(t)`` to all.
2. An executor that has received a *quorum* of suspicions of t sends ``Vote(t + 1)`` to all. So
   does one that has received f + 1 such votes, because at least one of them is honest.
3. A machine that has received a quorum of votes for t + 1 is in that term. If an executor
   suspects the new Coordinator too, it says so at once; if that Coordinator stays silent until a
   timeout, it says so then. In both cases it is the next candidate's turn.

A suspicion of t, and a vote for t, also count for every earlier term. So a machine stores one
number of each kind for each executor, whatever liars send.

**Why it is correct.** Of n executors f = (n - 1) // 3 may lie: send anything, different messages
to different machines, or nothing, as crashed ones do. A quorum is (n + f) // 2 + 1. It is at most
n - f, so the honest executors can reach it alone; at least f + 1 of its members are honest.

- *No minority deposes a Coordinator.* An honest vote needs a quorum of suspicions, or f + 1 votes
  and so an earlier honest vote. Before the first honest vote for t + 1 a quorum suspected t,
  at least f + 1 honest executors among them. Liars alone are too few, and so are liars together
  with mistaken executors as long as they are not a quorum.
- *Every honest machine reaches the term.* If one honest machine is in term t, at least f + 1
  honest executors have sent votes for t or later to all. Every honest executor receives them and
  votes too, so every machine receives a quorum.
- *A live Coordinator is found.* If all honest executors suspect a Coordinator, they are a quorum,
  and all of them reach the next term. So they reach a candidate that they do not all suspect. This
  needs timeouts that are long enough eventually: a runtime should double them with each failed
  term.
- *Terms only increase.* A lower term is never entered, so a replayed message has no effect.

With n below 4 no executor may lie (f = 0). With n = 2 both must agree, so two executors cannot
replace a Coordinator when one of them has crashed; 1 and 3 executors can.

**Assumptions.** The network names the true sender, and messages from one machine to another
arrive in order, eventually and once. Nothing is signed, so no machine trusts a list of votes that
another one forwards: each counts the votes that it received from the voters. :class:`Elected` is
therefore a machine's own count, for its journal; voters repeat their votes with
:meth:`told <Agreement.told>`.

**A Coordinator that returns** has missed votes, and its commands carry a lower term than the
executors are in. They answer with :meth:`Agreement.told`. When a quorum has answered,
``Tally.coordinator`` is another machine and it steps down; until then nobody obeys it.

**Restarts and growth.** ``term`` must survive a crash; everything else is sent again. n is fixed
for an instance. When the number of executors changes, which is a change of the plan, every
machine makes a new instance with its current term and repeats its votes. The Coordinator of a
term does not depend on n, so machines that learn of the change at different times still agree on
it; until all have, at most (n - 1) // 3 of the smaller n may lie.

Usage::

    agreement = Agreement(me, executors, candidates, term=stored_term)
    send(agreement.suspect(machine))    # the failure detector lost contact with machine
    send(agreement.trust(machine))      # contact is restored
    send(agreement.handle(sender, msg)) # a Suspect or a Vote arrived
    send(agreement.timeout(term))       # no command of that term's Coordinator arrived in time

Start a timer whenever ``term`` has changed, and again when it fired.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sparkswarm.errors import ProtocolError
from sparkswarm.protocol.messages import EVERYONE, Address

NEVER = -1
"""A term before all others: no suspicion or vote yet."""


@dataclass(frozen=True, slots=True)
class Suspect:
    """From an executor: it suspects the Coordinators of this term and of all earlier ones.

    The last one that a sender sent counts: a lower term withdraws a suspicion.
    """

    term: int
    to: Address = EVERYONE


@dataclass(frozen=True, slots=True)
class Vote:
    """From an executor: a vote for this term or a later one. It is never withdrawn."""

    term: int
    to: Address = EVERYONE


@dataclass(frozen=True, slots=True)
class Elected:
    """The Coordinator of a term, and the executors whose votes a machine received."""

    term: int
    machine: str
    voters: tuple[int, ...]


def liars(executors: int) -> int:
    """Return f, the number of executors that may lie, crash or be silent."""
    return (executors - 1) // 3


def quorum(executors: int) -> int:
    """Return the size of a quorum: any two quorums share an honest executor."""
    return (executors + liars(executors)) // 2 + 1


def coordinator_of(term: int, candidates: Sequence[str]) -> str:
    """Return the Coordinator of a term."""
    return candidates[term % len(candidates)]


class Tally:
    """The votes that one machine has received, and the term that follows from them.

    A GlobalIndex machine needs only this: it is the Coordinator while ``coordinator`` is its own
    name, and its commands carry ``term``.

    Parameters
    ----------
    executors
        Number of voters, n; their ids are 0 to n - 1.
    candidates
        The GlobalIndex machines in the order of their turns, the same on every machine.
    term
        The term to start in: 0, or the last one known before a crash.

    Attributes
    ----------
    term
        The newest term that a quorum voted for.
    certificate
        The votes for that term; None in the initial term.
    """

    def __init__(self, executors: int, candidates: Sequence[str], term: int = 0) -> None:
        if executors < 1 or not candidates or term < 0:
            raise ProtocolError(
                f"an election needs at least one executor and one candidate, and a term of at "
                f"least 0, got {executors}, {candidates!r} and {term}"
            )
        self.executors = executors
        self.candidates = tuple(candidates)
        self.term = term
        self.certificate: Elected | None = None
        self.votes = [NEVER] * executors

    @property
    def coordinator(self) -> str:
        """The Coordinator of the term."""
        return coordinator_of(self.term, self.candidates)

    def handle(self, sender: Address, message: Suspect | Vote) -> bool:
        """Count a vote; return whether the term has changed. Suspicions are ignored."""
        if not isinstance(message, Vote) or not self.is_sound(sender, message):
            return False
        self.count(int(sender), message.term)
        return self.elect()

    def is_sound(self, sender: Address, message: Suspect | Vote) -> bool:
        """Whether a voter sent it and its term is an integer: liars may send anything."""
        return type(sender) is int and 0 <= sender < self.executors and type(message.term) is int

    def count(self, voter: int, term: int) -> None:
        """Record a vote; a lower term than before has no effect."""
        self.votes[voter] = max(self.votes[voter], term)

    def backed_by(self, count: int) -> int:
        """Return the newest term for which, or a later one, at least ``count`` executors voted."""
        return _reached(self.votes, count)

    def elect(self) -> bool:
        """Enter the newest term with a quorum; return whether it is a new one."""
        term = self.backed_by(quorum(self.executors))
        if term <= self.term:
            return False
        self.term = term
        voters = tuple(m for m, vote in enumerate(self.votes) if vote >= term)
        self.certificate = Elected(term, self.coordinator, voters)
        return True


class Agreement:
    """The election on one executor. Every method returns the messages to send.

    A message to ``EVERYONE`` goes to all executors and all GlobalIndex machines. It may or may
    not be delivered to its sender.

    Parameters
    ----------
    me
        This executor.
    executors, candidates, term
        As in :class:`Tally`.
    """

    def __init__(self, me: int, executors: int, candidates: Sequence[str], term: int = 0) -> None:
        if not 0 <= me < executors:
            raise ProtocolError(f"executors are 0 to {executors - 1}, not {me}")
        self.me = me
        self._tally = Tally(executors, candidates, term)
        self._tally.count(me, term)
        self._suspicions = [NEVER] * executors
        self._suspected: set[str] = set()
        self._hurry_until = term

    @property
    def term(self) -> int:
        """The term of this executor; it ignores commands of earlier ones."""
        return self._tally.term

    @property
    def coordinator(self) -> str:
        """The Coordinator of the term."""
        return self._tally.coordinator

    @property
    def certificate(self) -> Elected | None:
        """The votes for the term, see :class:`Tally`."""
        return self._tally.certificate

    def suspect(self, machine: str) -> list[Suspect | Vote]:
        """Handle the loss of contact with a GlobalIndex machine."""
        self._suspected.add(machine)
        self._hurry()
        return self._suspect_coordinator() if machine == self.coordinator else []

    def trust(self, machine: str) -> list[Suspect | Vote]:
        """Handle restored contact with a GlobalIndex machine.

        The suspicion is withdrawn; otherwise mistakes of many executors at different times
        would add up to a quorum. A vote stays, because others may have acted on it.
        """
        self._suspected.discard(machine)
        if machine != self.coordinator or self._suspicions[self.me] < self.term:
            return []
        self._suspicions[self.me] = self.term - 1
        return [Suspect(self.term - 1)]

    def timeout(self, term: int) -> list[Suspect | Vote]:
        """Handle the timeout of the Coordinator of ``term``."""
        if term != self.term:
            return []
        self._hurry()
        return self._suspect_coordinator()

    def handle(self, sender: Address, message: Suspect | Vote) -> list[Suspect | Vote]:
        """Handle a message of another executor; malformed ones and other senders are ignored."""
        if not self._tally.is_sound(sender, message) or sender == self.me:
            return []
        if isinstance(message, Vote):
            self._tally.count(int(sender), message.term)
        else:
            self._suspicions[int(sender)] = message.term
        return self._settle()

    def told(self, to: Address) -> list[Suspect | Vote]:
        """Return this executor's suspicion and vote, for a machine that may have missed them."""
        return [
            Suspect(self._suspicions[self.me], to),
            Vote(self._tally.votes[self.me], to),
        ]

    def _hurry(self) -> None:
        """Skip suspected candidates without waiting for a timeout, each at most once.

        Without that limit executors that suspect all machines would change terms forever, as
        fast as messages travel.
        """
        self._hurry_until = self.term + len(self._tally.candidates) - 1

    def _suspect_coordinator(self) -> list[Suspect | Vote]:
        if self._suspicions[self.me] >= self.term:
            return []
        self._suspicions[self.me] = self.term
        return [Suspect(self.term), *self._settle()]

    def _settle(self) -> list[Suspect | Vote]:
        """Vote and enter terms as the received messages allow."""
        said: list[Suspect | Vote] = []
        few, many = liars(self._tally.executors) + 1, quorum(self._tally.executors)
        while True:
            wanted = max(_reached(self._suspicions, many) + 1, self._tally.backed_by(few))
            if wanted > self._tally.votes[self.me]:
                self._tally.count(self.me, wanted)
                said.append(Vote(wanted))
            if not self._tally.elect():
                return said
            if self.coordinator in self._suspected and self.term <= self._hurry_until:
                self._suspicions[self.me] = self.term
                said.append(Suspect(self.term))


def _reached(terms: Sequence[int], count: int) -> int:
    """Return the newest term that at least ``count`` of these terms reach."""
    return sorted(terms, reverse=True)[count - 1]
