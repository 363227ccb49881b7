"""Executors agree on the Coordinator in any order of messages, whatever a third of them say."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkswarm.errors import ProtocolError
from sparkswarm.protocol.messages import EVERYONE, Address
from sparkswarm.sim.election import (
    Agreement,
    Elected,
    Suspect,
    Tally,
    Vote,
    coordinator_of,
    liars,
    quorum,
)

CANDIDATES = ("g0", "g1", "g2")

Message = Suspect | Vote


def valid(elected: Elected, executors: int, candidates: Sequence[str]) -> bool:
    """Return whether a quorum of different executors elected the machine whose turn it was."""
    voters = set(elected.voters)
    return (
        elected.machine == coordinator_of(elected.term, candidates)
        and len(voters) == len(elected.voters) >= quorum(executors)
        and voters <= set(range(executors))
    )


class Network:
    """Honest executors, liars, GlobalIndex machines, and a message queue for each pair.

    The queue to deliver from is drawn, so messages of different senders overtake each other
    at will. Everything that must always hold is checked after every delivery.
    """

    def __init__(
        self, n: int, rng: random.Random, lying: Iterable[int] = (), candidates=CANDIDATES
    ) -> None:
        self.rng = rng
        self.n = n
        self.lying = tuple(lying)
        self.candidates = tuple(candidates)
        self.honest = {m: Agreement(m, n, candidates) for m in range(n) if m not in self.lying}
        self.routers = {g: Tally(n, candidates) for g in candidates}
        self.queues: dict[tuple[int, Address], deque[Message]] = {}
        self.voted = dict.fromkeys(range(n), 0)
        self.suspected: dict[int, set[int]] = {}
        self.sent = 0

    @property
    def machines(self) -> dict[Address, Agreement | Tally]:
        return {**self.honest, **self.routers}

    def post(self, sender: int, messages: Iterable[Message]) -> None:
        for message in messages:
            self.sent += 1
            if sender not in self.lying:
                self._note(sender, message)
            to = [*range(self.n), *self.routers] if message.to == EVERYONE else [message.to]
            for receiver in to:
                if receiver not in self.lying:
                    self.queues.setdefault((sender, receiver), deque()).append(message)

    def _note(self, sender: int, message: Message) -> None:
        if isinstance(message, Vote):
            assert message.term >= self.voted[sender]
            self.voted[sender] = message.term
        else:
            for term in range(message.term + 1):
                self.suspected.setdefault(term, set()).add(sender)

    def lie(self, liar: int) -> None:
        """Let a liar send something to someone: equivocations, floods and replays come of it."""
        now = max(machine.term for machine in self.machines.values())
        term = self.rng.choice([now - 1, now, now, now + 1, now + 1, now + 2, now + 1000, 0])
        what = self.rng.choice([Suspect, Vote])
        to = self.rng.choice([*self.honest, *self.routers, EVERYONE])
        self.post(liar, [what(term, to)])

    def deliver_one(self) -> bool:
        waiting = [pair for pair, queue in self.queues.items() if queue]
        if not waiting:
            return False
        sender, receiver = self.rng.choice(waiting)
        message = self.queues[sender, receiver].popleft()
        machine = self.machines[receiver]
        before = machine.term
        said = machine.handle(sender, message)
        if isinstance(machine, Agreement):
            assert isinstance(said, list)
            self.post(int(receiver), said)
        assert machine.term >= before
        self.check(machine)
        return True

    def check(self, machine: Agreement | Tally) -> None:
        """Whoever is in a term got there by a quorum, of whom f + 1 suspected the one before."""
        assert machine.coordinator == coordinator_of(machine.term, self.candidates)
        if machine.term == 0:
            return
        elected = machine.certificate
        assert elected is not None
        assert (elected.term, elected.machine) == (machine.term, machine.coordinator)
        assert valid(elected, self.n, self.candidates)
        for voter in set(elected.voters) - set(self.lying):
            assert self.voted[voter] >= machine.term
        suspects = self.suspected.get(machine.term - 1, set())
        assert len(suspects) >= quorum(self.n) - len(self.lying)

    def run(self, most: int = 200_000) -> None:
        for _ in range(most):
            if not self.deliver_one():
                return
        raise AssertionError("they never fall silent")

    def check_that_all_agree(self) -> None:
        assert len({machine.term for machine in self.machines.values()}) == 1


def drawn_liars(n: int, rng: random.Random, most: int | None = None) -> list[int]:
    return rng.sample(range(n), rng.randint(0, liars(n) if most is None else most))


sizes = st.integers(1, 13)
seeds = st.integers(0, 2**32)


# -- how many ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n", "f", "q"),
    [
        (1, 0, 1),
        (2, 0, 2),
        (3, 0, 2),
        (4, 1, 3),
        (5, 1, 4),
        (6, 1, 4),
        (7, 2, 5),
        (10, 3, 7),
        (13, 4, 9),
        (22, 7, 15),
    ],
)
def test_how_many_may_lie_and_how_many_must_agree(n: int, f: int, q: int) -> None:
    assert (liars(n), quorum(n)) == (f, q)


@pytest.mark.parametrize("n", range(1, 101))
def test_quorums_meet_in_an_honest_executor_and_the_honest_are_one(n: int) -> None:
    f, q = liars(n), quorum(n)
    assert f < n / 3
    assert 2 * q - n >= f + 1
    assert q <= n - f
    assert q - f >= f + 1


# -- safety ------------------------------------------------------------------------------------


@given(sizes, seeds)
def test_whatever_happens_in_whatever_order_all_end_in_the_same_term(n: int, seed: int) -> None:
    """Honest executors suspect and trust at random, and liars say anything to anyone."""
    rng = random.Random(seed)
    network = Network(n, rng, drawn_liars(n, rng))
    for _ in range(rng.randint(1, 120)):
        draw = rng.random()
        m = rng.choice(list(network.honest))
        if draw < 0.15:
            network.post(m, network.honest[m].suspect(rng.choice(CANDIDATES)))
        elif draw < 0.2:
            network.post(m, network.honest[m].trust(rng.choice(CANDIDATES)))
        elif draw < 0.25:
            network.post(m, network.honest[m].timeout(rng.randint(0, 3)))
        elif draw < 0.5 and network.lying:
            network.lie(rng.choice(network.lying))
        else:
            network.deliver_one()
    network.run()
    network.check_that_all_agree()


@given(sizes, seeds)
def test_liars_with_too_few_mistaken_executors_depose_nobody(n: int, seed: int) -> None:
    rng = random.Random(seed)
    network = Network(n, rng, rng.sample(range(n), liars(n)))
    mistaken = rng.sample(list(network.honest), quorum(n) - 1 - liars(n))
    for m in mistaken:
        network.post(m, network.honest[m].suspect("g0"))
    for liar in network.lying:
        network.post(liar, [Suspect(0), Suspect(5), Vote(1), Vote(2), Vote(10**30)])
        for _ in range(5):
            network.lie(liar)
    network.run()
    assert {machine.term for machine in network.machines.values()} == {0}
    assert set(network.voted.values()) == {0}


@given(sizes, seeds)
def test_a_quorum_of_suspicions_does_depose(n: int, seed: int) -> None:
    """The other side of the border: one more, and there is a new Coordinator."""
    rng = random.Random(seed)
    network = Network(n, rng)
    for m in rng.sample(range(n), quorum(n)):
        network.post(m, network.honest[m].suspect("g0"))
    network.run()
    assert {machine.term for machine in network.machines.values()} == {1}
    assert {machine.coordinator for machine in network.machines.values()} == {"g1"}


def test_one_whom_liars_help_takes_all_others_along() -> None:
    """n = 4: 0 and 1 suspect, 3 lies to 0 and 1 only; 2 hears two votes, both honest."""
    network = Network(4, random.Random(1), lying=[3])
    for m in (0, 1):
        network.post(m, network.honest[m].suspect("g0"))
        network.post(3, [Suspect(0, to=m), Vote(1, to=m)])
    network.run()
    assert network.honest[2].term == 1
    network.check_that_all_agree()


@given(sizes, seeds)
def test_floods_of_far_terms_make_nobody_say_a_word(n: int, seed: int) -> None:
    rng = random.Random(seed)
    network = Network(n, rng, rng.sample(range(n), liars(n)))
    for liar in network.lying:
        for term in range(50):
            network.post(liar, [Vote(term * 10**6), Suspect(term)])
    before = network.sent
    network.run()
    assert network.sent == before


# -- liveness ----------------------------------------------------------------------------------


def elect_a_live_one(network: Network, dead: set[str], lie: Callable[[], None]) -> None:
    """Fire timers of executors whose Coordinator is dead, until nobody's is."""
    for _ in range(len(network.candidates) + 1):
        network.run()
        late = [m for m in network.honest if network.honest[m].coordinator in dead]
        if not late:
            return
        for m in late:
            network.post(m, network.honest[m].timeout(network.honest[m].term))
            lie()
    raise AssertionError("no live Coordinator was found")


@given(sizes, seeds)
def test_timeouts_lead_to_a_live_coordinator_past_dead_candidates(n: int, seed: int) -> None:
    """As many executors as may lie are silent or lie; candidates are dead in any pattern."""
    rng = random.Random(seed)
    network = Network(n, rng, rng.sample(range(n), liars(n)))
    dead = {"g0", *rng.sample(CANDIDATES, rng.randint(0, 1))}
    noisy = rng.random() < 0.7

    def lie() -> None:
        for liar in network.lying if noisy else ():
            network.lie(liar)

    elect_a_live_one(network, dead, lie)
    network.check_that_all_agree()
    assert network.honest[next(iter(network.honest))].coordinator not in dead


@given(sizes, seeds)
def test_candidates_known_to_be_dead_are_passed_over_without_a_timeout(n: int, seed: int) -> None:
    rng = random.Random(seed)
    network = Network(n, rng, rng.sample(range(n), liars(n)))
    todo = [(m, g) for m in network.honest for g in ("g0", "g1")]
    rng.shuffle(todo)
    for m, g in todo:
        network.post(m, network.honest[m].suspect(g))
        network.deliver_one()
    network.run()
    assert {machine.coordinator for machine in network.machines.values()} == {"g2"}
    assert {machine.term for machine in network.machines.values()} == {2}


@given(sizes, seeds)
def test_they_fall_silent_even_where_nobody_is_trusted_by_a_quorum(n: int, seed: int) -> None:
    """Each trusts one candidate or none; without a limit they would change terms for ever."""
    rng = random.Random(seed)
    candidates = [f"g{i}" for i in range(rng.randint(1, 6))]
    network = Network(n, rng, candidates=candidates)
    for m in range(n):
        trusted = rng.choice([*candidates, None])
        for g in candidates:
            if g != trusted:
                network.post(m, network.honest[m].suspect(g))
    network.run(most=n * n * 200)
    network.check_that_all_agree()


@pytest.mark.parametrize("n", [1, 3, 4, 7])
def test_as_many_as_may_lie_can_have_crashed_for_good(n: int) -> None:
    network = Network(n, random.Random(n), lying=range(n - liars(n), n))
    for agreement in network.honest.values():
        network.post(agreement.me, agreement.suspect("g0"))
    network.run()
    assert {machine.coordinator for machine in network.machines.values()} == {"g1"}


def test_of_two_executors_one_alone_replaces_nobody() -> None:
    alone = Agreement(0, 2, CANDIDATES)
    assert alone.suspect("g0") == [Suspect(0)]
    assert alone.term == 0


# -- suspicion and trust -----------------------------------------------------------------------


def test_mistakes_made_one_after_another_do_not_add_up() -> None:
    network = Network(7, random.Random(3))
    for m in range(7):
        network.post(m, network.honest[m].suspect("g0"))
        network.run()
        network.post(m, network.honest[m].trust("g0"))
        network.run()
    assert {machine.term for machine in network.machines.values()} == {0}


def test_a_suspicion_is_said_once_and_of_the_coordinator_only() -> None:
    agreement = Agreement(0, 4, CANDIDATES)
    assert agreement.trust("g0") == []
    assert agreement.suspect("g2") == []
    assert agreement.suspect("g0") == [Suspect(0)]
    assert agreement.suspect("g0") == agreement.timeout(0) == []
    assert agreement.timeout(1) == []
    assert agreement.trust("g2") == []
    assert agreement.trust("g0") == [Suspect(-1)]
    assert agreement.timeout(0) == [Suspect(0)]


def test_a_timer_of_an_earlier_term_changes_nothing() -> None:
    agreement = Agreement(0, 1, CANDIDATES)
    assert agreement.timeout(0) == [Suspect(0), Vote(1)]
    assert agreement.timeout(0) == []
    assert (agreement.term, agreement.coordinator) == (1, "g1")


# -- who was away ------------------------------------------------------------------------------


@given(st.integers(2, 13), seeds)
def test_who_was_away_is_told_by_a_quorum_and_steps_down(n: int, seed: int) -> None:
    rng = random.Random(seed)
    network = Network(n, rng, rng.sample(range(n), liars(n)))
    for m, agreement in network.honest.items():
        network.post(m, agreement.suspect("g0"))
    network.run()
    returned = Tally(n, CANDIDATES)
    for heard, m in enumerate(rng.sample(list(network.honest), quorum(n)), start=1):
        assert returned.coordinator == "g0"
        for message in network.honest[m].told("g0"):
            assert message.to == "g0"
            returned.handle(m, message)
        assert (returned.coordinator == "g1") == (heard == quorum(n))

    forgetful, *others = network.honest
    restarted = Agreement(forgetful, n, CANDIDATES)
    for m in others:
        for message in network.honest[m].told(forgetful):
            restarted.handle(m, message)
    assert restarted.term == 1


def test_a_machine_starts_in_the_term_it_remembers() -> None:
    agreement = Agreement(2, 4, CANDIDATES, term=7)
    assert (agreement.term, agreement.coordinator, agreement.certificate) == (7, "g1", None)
    assert agreement.told(3) == [Suspect(-1, 3), Vote(7, 3)]
    for m in (0, 1, 3):
        assert agreement.handle(m, Vote(6)) == []
    assert agreement.term == 7
    assert agreement.suspect("g1") == [Suspect(7)]


def test_a_vote_is_never_taken_back_not_even_by_who_has_forgotten_it() -> None:
    tally = Tally(4, CANDIDATES)
    for m, term in [(0, 1), (0, 0), (1, 1), (1, -1), (2, 1)]:
        tally.handle(m, Vote(term))
    assert tally.certificate == Elected(1, "g1", (0, 1, 2))


def test_an_executor_that_jumps_ahead_has_the_votes_to_show_for_it() -> None:
    tally = Tally(4, CANDIDATES)
    assert [tally.handle(m, Vote(term)) for m, term in enumerate([5, 9, 4])] == [False, False, True]
    assert tally.certificate == Elected(4, "g1", (0, 1, 2))
    assert tally.handle(3, Vote(5)) is True
    assert tally.certificate == Elected(5, "g2", (0, 1, 3))


# -- nonsense ----------------------------------------------------------------------------------


@pytest.mark.parametrize("sender", ["g0", -1, 4, True, 1.0, None])
@pytest.mark.parametrize("real", [(2, 3), (1, 2)])
def test_only_executors_have_a_vote(sender: Address, real: tuple[int, int]) -> None:
    agreement, tally = Agreement(0, 4, CANDIDATES), Tally(4, CANDIDATES)
    for m in real:
        agreement.handle(m, Suspect(0))
        tally.handle(m, Vote(1))
    assert agreement.handle(sender, Suspect(0)) == agreement.handle(sender, Vote(1)) == []
    assert tally.handle(sender, Vote(1)) is False
    assert (agreement.term, tally.term) == (0, 0)


@pytest.mark.parametrize("term", [None, "1", 1.5, float("nan"), -2, True])
def test_a_term_that_is_no_number_is_ignored(term: object) -> None:
    agreement, tally = Agreement(0, 4, CANDIDATES), Tally(4, CANDIDATES)
    for m in (1, 2, 3):
        assert agreement.handle(m, Vote(term)) == agreement.handle(m, Suspect(term)) == []
        assert tally.handle(m, Vote(term)) is False
    assert agreement.term == 0


def test_what_an_executor_hears_from_itself_is_not_counted_again() -> None:
    agreement = Agreement(0, 4, CANDIDATES)
    agreement.suspect("g0")
    agreement.trust("g0")
    assert agreement.handle(0, Suspect(0)) == []
    assert agreement.handle(1, Suspect(0)) == agreement.handle(2, Suspect(0)) == []


@pytest.mark.parametrize(
    "elected",
    [
        Elected(1, "g2", (0, 1, 2)),
        Elected(1, "g1", (0, 1)),
        Elected(1, "g1", (0, 1, 1)),
        Elected(1, "g1", (0, 1, 1, 2)),
        Elected(1, "g1", (0, 1, 4)),
        Elected(1, "g1", (0, 1, -1)),
    ],
    ids=["not its turn", "too few", "one twice", "one twice of many", "unknown", "negative"],
)
def test_a_certificate_that_does_not_hold(elected: Elected) -> None:
    assert valid(Elected(1, "g1", (0, 1, 2)), 4, CANDIDATES)
    assert not valid(elected, 4, CANDIDATES)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Agreement(4, 4, CANDIDATES),
        lambda: Agreement(-1, 4, CANDIDATES),
        lambda: Tally(0, CANDIDATES),
        lambda: Tally(4, ()),
        lambda: Tally(4, CANDIDATES, term=-1),
    ],
)
def test_what_cannot_be_is_refused(make: Callable[[], object]) -> None:
    with pytest.raises(ProtocolError):
        make()
