"""Agreement: the executors choose a new Coordinator, though some of them may lie.

The paper has one sentence: when the Coordinator fails, the executors choose another
GlobalIndex machine by Byzantine agreement. This is that agreement, as state machines without
clock or network: :class:`Agreement` for an executor, :class:`Tally` for everyone who has no
vote, which is how a GlobalIndex machine learns whether it is the Coordinator.

**Terms.** Time is cut into terms, numbered from 0. The Coordinator of a term is a function of
its number: the candidates take turns. So nobody can ever hold two different Coordinators for
the same term, and what is left to agree on is the term. This is how PBFT changes views
(Castro and Liskov, 1999); the two steps are those of Bracha's reliable broadcast (1987):

1. An executor that suspects the Coordinator of term t tells all: ``Suspect(t)``.
2. Whoever has heard a *quorum* of suspicions of t tells all: ``Vote(t + 1)``. So does whoever
   has heard f + 1 such votes: one of them is honest.
3. Whoever has heard a quorum of votes for t + 1 is in that term, with its Coordinator. If it
   suspects that one too, it says so at once; if the Coordinator gives no sign of life in
   time, it says so then. Either way the next candidate's turn comes.

A suspicion of t counts for every earlier term, and a vote for t for every earlier term, so a
machine keeps one number of each kind for each executor, whatever liars send.

**Why it holds.** Of n executors f = (n - 1) // 3 may lie: send anything, different things to
different machines, or nothing, as those do that have crashed. A quorum is (n + f) // 2 + 1.
It is at most n - f, so the honest can reach it alone; at least f + 1 of its members are honest.

- *No minority deposes a Coordinator.* An honest vote needs a quorum of suspicions, or f + 1
  votes and thus an honest vote before it. So before the first honest vote for t + 1 a quorum
  suspected t, f + 1 honest executors or more among them. Liars alone are too few, and so are
  liars and mistaken executors together, as long as they are no quorum.
- *Nobody is left behind.* Where one honest machine is in term t, at least f + 1 honest
  executors voted for t or later and told all. Every honest executor hears them, votes too, and
  so everyone hears a quorum.
- *A live one is found.* If all honest executors suspect a Coordinator, they are a quorum, and
  by the point before all of them go on to the next term; so they come to a candidate that
  they don't all suspect. It takes timeouts that are long enough in the end: a runtime
  should double them with each term that fails.
- *Terms only grow.* A lower one is never taken, so a replayed message changes nothing.

With n below 4 nobody may lie (f = 0). With n = 2 both must agree, so two executors cannot
replace a Coordinator when one of them has crashed as well; 1 and 3 executors can.

**What must be trusted.** That the network names the true sender, and that what one machine
sends to another arrives in order, in the end and once; not more. Nobody believes what is said
about others: every machine counts the votes that it heard from the voters themselves. A list
of voters can be made up by whoever forwards it, unless votes are signed, and nothing here is
signed. So :class:`Elected` is a machine's own count and goes into its journal; another who
wants to know is :meth:`told <Agreement.told>` by the voters.

**A Coordinator that returns** has missed votes, or its commands carry a lower term than the
executor is in. The executor answers with :meth:`Agreement.told`. When a quorum has answered,
``Tally.coordinator`` is another, and it steps down; until then nobody follows it.

**Restarts and growth.** ``term`` must survive a crash; everything else is told again. n is
fixed in an instance. When the number of executors changes, which is a change of the plan that
the Coordinator of a term publishes, everyone makes a new instance with the term it is in, and
tells all where it stands. Who is the Coordinator of a term does not depend on n, so machines
that learn of the change at different times cannot disagree on that; until all have, at most
(n - 1) // 3 of the smaller n may lie.

How a runtime uses it::

    agreement = Agreement(me, executors, candidates, term=stored_term)
    send(agreement.suspect(machine))    # the failure detector no longer hears machine
    send(agreement.trust(machine))      # it hears it again
    send(agreement.handle(sender, msg)) # a Suspect or a Vote arrived
    send(agreement.timeout(term))       # no command of that term's Coordinator came in time

Start a timer whenever ``term`` has changed, and again when it fired.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sparkswarm.errors import ProtocolError
from sparkswarm.protocol.messages import EVERYONE, Address

NEVER = -1
"""Before all terms: nothing was suspected, or voted for, yet."""


@dataclass(frozen=True, slots=True)
class Suspect:
    """From an executor: the Coordinators of this term and of all before are dead to me.

    The last one that a sender sent counts: a lower term takes a suspicion back.
    """

    term: int
    to: Address = EVERYONE


@dataclass(frozen=True, slots=True)
class Vote:
    """From an executor: let it be this term, or a later one. It is never taken back."""

    term: int
    to: Address = EVERYONE


@dataclass(frozen=True, slots=True)
class Elected:
    """The Coordinator of a term, and whose votes a machine heard itself."""

    term: int
    machine: str
    voters: tuple[int, ...]


def liars(executors: int) -> int:
    """Return f, how many of so many executors may lie, crash or be silent."""
    return (executors - 1) // 3


def quorum(executors: int) -> int:
    """Return how many must agree: any two quorums have an honest executor in common."""
    return (executors + liars(executors)) // 2 + 1


def coordinator_of(term: int, candidates: Sequence[str]) -> str:
    """Return the candidate whose turn a term is."""
    return candidates[term % len(candidates)]


def valid(elected: Elected, executors: int, candidates: Sequence[str]) -> bool:
    """Say whether a quorum of different executors elected the machine whose turn it was."""
    voters = set(elected.voters)
    return (
        elected.machine == coordinator_of(elected.term, candidates)
        and len(voters) == len(elected.voters) >= quorum(executors)
        and voters <= set(range(executors))
    )


class Tally:
    """What one machine heard of the votes, and the term that follows from them.

    A GlobalIndex machine needs no more: it is the Coordinator as long as ``coordinator`` is
    its own name, and stamps its commands with ``term``.

    Parameters
    ----------
    executors
        How many vote, n; their ids are 0 to n - 1.
    candidates
        The GlobalIndex machines in the order of their turns, the same for everyone.
    term
        The term to start in: 0, or the last one known before a crash.

    Attributes
    ----------
    term
        The newest term that a quorum voted for.
    certificate
        The votes that brought that term about; None in the term it started in.
    """

    def __init__(self, executors: int, candidates: Sequence[str], term: int = 0) -> None:
        if executors < 1 or not candidates or term < 0:
            raise ProtocolError(
                f"an agreement needs executors, candidates and a term from 0 on, "
                f"got {executors}, {candidates!r} and {term}"
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
        """Count a vote; say whether the term has changed. Anything else is no news here."""
        if not isinstance(message, Vote) or not self.is_sound(sender, message):
            return False
        self.count(int(sender), message.term)
        return self.elect()

    def is_sound(self, sender: Address, message: Suspect | Vote) -> bool:
        """Whether a voter sent it and its term is a number: liars may send anything."""
        return type(sender) is int and 0 <= sender < self.executors and type(message.term) is int

    def count(self, voter: int, term: int) -> None:
        """Take a vote down; an earlier term than before changes nothing."""
        self.votes[voter] = max(self.votes[voter], term)

    def backed_by(self, count: int) -> int:
        """Return the newest term that at least ``count`` executors voted for, or later ones."""
        return _reached(self.votes, count)

    def elect(self) -> bool:
        """Go to the newest term with a quorum; say whether that is a new one."""
        term = self.backed_by(quorum(self.executors))
        if term <= self.term:
            return False
        self.term = term
        voters = tuple(m for m, vote in enumerate(self.votes) if vote >= term)
        self.certificate = Elected(term, self.coordinator, voters)
        return True


class Agreement:
    """One executor's part. Every method returns the messages to send.

    A message to ``EVERYONE`` goes to all executors and all GlobalIndex machines; whether it
    also comes back to its sender makes no difference.

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
        """The term this executor is in; it takes no command of an earlier one."""
        return self._tally.term

    @property
    def coordinator(self) -> str:
        """The Coordinator of the term."""
        return self._tally.coordinator

    @property
    def certificate(self) -> Elected | None:
        """The votes that brought the term about, see :class:`Tally`."""
        return self._tally.certificate

    def suspect(self, machine: str) -> list[Suspect | Vote]:
        """Hear from the failure detector that a GlobalIndex machine is silent."""
        self._suspected.add(machine)
        self._hurry()
        return self._suspect_coordinator() if machine == self.coordinator else []

    def trust(self, machine: str) -> list[Suspect | Vote]:
        """Hear from the failure detector that a machine is there again.

        A suspicion is taken back, lest mistakes of many executors, made at different times,
        add up to a quorum. A vote stays: others may have acted on it.
        """
        self._suspected.discard(machine)
        if machine != self.coordinator or self._suspicions[self.me] < self.term:
            return []
        self._suspicions[self.me] = self.term - 1
        return [Suspect(self.term - 1)]

    def timeout(self, term: int) -> list[Suspect | Vote]:
        """Hear from the clock that the Coordinator of ``term`` has done nothing in time."""
        if term != self.term:
            return []
        self._hurry()
        return self._suspect_coordinator()

    def handle(self, sender: Address, message: Suspect | Vote) -> list[Suspect | Vote]:
        """Take what another executor says; what is malformed or not from one is ignored."""
        if not self._tally.is_sound(sender, message) or sender == self.me:
            return []
        if isinstance(message, Vote):
            self._tally.count(int(sender), message.term)
        else:
            self._suspicions[int(sender)] = message.term
        return self._settle()

    def told(self, to: Address) -> list[Suspect | Vote]:
        """Say where this executor stands, to a machine that was away or is behind."""
        return [
            Suspect(self._suspicions[self.me], to),
            Vote(self._tally.votes[self.me], to),
        ]

    def _hurry(self) -> None:
        """Pass over candidates that are suspected, from here on, without waiting for the clock.

        Each only once: else executors that suspect different machines, or all of them, would
        go from term to term as fast as messages travel, for ever.
        """
        self._hurry_until = self.term + len(self._tally.candidates) - 1

    def _suspect_coordinator(self) -> list[Suspect | Vote]:
        if self._suspicions[self.me] >= self.term:
            return []
        self._suspicions[self.me] = self.term
        return [Suspect(self.term), *self._settle()]

    def _settle(self) -> list[Suspect | Vote]:
        """Draw all conclusions from what was heard."""
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
    """Return the newest term that at least ``count`` of these have reached."""
    return sorted(terms, reverse=True)[count - 1]
