"""Channels deliver each message once and in order, whatever the network does."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from sparkswarm.sim.clock import MILLISECOND, Clock
from sparkswarm.sim.delivery import Endpoint
from sparkswarm.sim.network import Frame, Network, Weather


class Peer:
    """A machine that only talks."""

    def __init__(self, name: str, clock: Clock, network: Network) -> None:
        self.name = name
        self.incarnation = 1
        self.clock = clock
        self.network = network
        self.got: list[Any] = []
        self.last = 0
        self.endpoint = Endpoint(self)

    def carry(self, target: str, frame: Frame) -> None:
        self.network.send(self.name, target, frame)

    def after(self, delay: int, action: Callable[..., None], *arguments: Any) -> None:
        incarnation = self.incarnation

        def unless_dead() -> None:
            if incarnation == self.incarnation:
                action(*arguments)

        self.clock.after(delay, unless_dead)

    def deliver(self, source: str, payload: Any) -> None:
        self.got.append(payload)
        self.last = self.clock.now

    def restart(self) -> None:
        self.incarnation += 1
        self.got = []
        self.endpoint = Endpoint(self)


def make_pair(weather: Weather, seed: int) -> tuple[Clock, Network, Peer, Peer]:
    clock = Clock()
    peers: dict[str, Peer] = {}

    def arrive(source: str, target: str, frame: Frame) -> None:
        peers[target].endpoint.receive(source, frame)

    network = Network(clock, random.Random(seed), weather, arrive)
    peers["a"], peers["b"] = Peer("a", clock, network), Peer("b", clock, network)
    return clock, network, peers["a"], peers["b"]


def run(clock: Clock, until: int = 10_000 * MILLISECOND) -> None:
    while clock.now < until and clock.step():
        pass


ROUGH = Weather(delay=100, jitter=20_000, loss=0.3, doubling=0.3)


@pytest.mark.parametrize("seed", range(5))
def test_what_is_lost_doubled_and_overtaken_arrives_once_and_in_order(seed: int) -> None:
    clock, _, a, b = make_pair(ROUGH, seed)
    for number in range(60):
        clock.after(number * 500, a.endpoint.send, "b", number)
    run(clock)
    assert b.got == list(range(60))


def test_a_cast_is_not_repaired() -> None:
    clock, _, a, b = make_pair(ROUGH, 1)
    for number in range(200):
        a.endpoint.cast("b", number)
    run(clock)
    assert len(set(b.got)) < 200
    assert len(b.got) != len(set(b.got))
    assert b.got != sorted(b.got)


@pytest.mark.parametrize("seed", range(5))
def test_a_receiver_that_restarts_gets_what_it_had_not_acknowledged(seed: int) -> None:
    clock, _, a, b = make_pair(ROUGH, seed)
    for number in range(40):
        clock.after(number * 1000, a.endpoint.send, "b", number)
    clock.after(20 * MILLISECOND, b.restart)
    run(clock)
    # Something of before may come again, but the new incarnation sees no gap and no repetition.
    assert b.got == list(range(b.got[0], 40))
    assert b.got[0] <= 20


def test_what_was_not_acknowledged_reaches_the_next_incarnation_once() -> None:
    clock, network, a, b = make_pair(Weather(), 0)
    network.cut(("b", "a"))
    for number in range(3):
        a.endpoint.send("b", number)
    run(clock, 20 * MILLISECOND)
    assert b.got == [0, 1, 2]
    b.restart()
    network.mend(("b", "a"))
    run(clock)
    assert b.got == [0, 1, 2]


def test_a_straggler_of_an_earlier_session_is_ignored() -> None:
    _, _, _, b = make_pair(Weather(), 0)
    b.endpoint.receive("a", ("data", 20_000, 1, 1, "new"))
    b.endpoint.receive("a", ("data", 10_000, 2, 1, "old"))
    b.endpoint.receive("a", ("data", 20_000, 2, 1, "newer"))
    assert b.got == ["new", "newer"]


def test_a_sender_that_restarts_begins_anew() -> None:
    clock, _, a, b = make_pair(ROUGH, 2)
    for number in range(10):
        a.endpoint.send("b", f"old {number}")
    clock.after(15 * MILLISECOND, a.restart)
    for number in range(10):
        clock.after(16 * MILLISECOND, lambda n=number: a.endpoint.send("b", f"new {n}"))
    run(clock)
    assert [m for m in b.got if m.startswith("new")] == [f"new {n}" for n in range(10)]
    old = [m for m in b.got if m.startswith("old")]
    assert old == [f"old {n}" for n in range(len(old))]


def test_nothing_crosses_a_division_until_it_heals() -> None:
    clock, network, a, b = make_pair(Weather(), 0)
    group = frozenset({"a"})
    network.divide(group)
    a.endpoint.send("b", "hello")
    run(clock, 200 * MILLISECOND)
    assert b.got == []
    network.heal(group)
    run(clock)
    assert b.got == ["hello"]


def test_a_clogged_link_is_slow_one_way() -> None:
    clock, network, a, b = make_pair(Weather(delay=100, jitter=0), 0)
    network.clog(("a", "b"), 1000 * MILLISECOND)
    a.endpoint.cast("b", "slow")
    b.endpoint.cast("a", "fast")
    run(clock)
    assert (a.got, b.got) == (["fast"], ["slow"])
    assert (a.last, b.last > 1000) == (100, True)
