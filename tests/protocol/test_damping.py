"""Damping: a flicker must not make us thrash; a load that goes on to new places is followed."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkswarm.config import SwarmConfig
from sparkswarm.protocol import decision
from sparkswarm.protocol.damping import JUMPS_BEFORE_WATCHING, NEW_PLACES, SURPRISE, Damping
from sparkswarm.protocol.local import LocalSwarm

HERE, THERE = {0: 9.0, 1: 1.0}, {0: 1.0, 1: 9.0}


def holds(rounds, **settings):
    """In which rounds rebalancing is held back."""
    damping = Damping(**settings)
    return [damping.observe(costs) is not None for costs in rounds]


def test_a_first_change_is_believed_at_once():
    assert holds([HERE] * 5 + [THERE] * 5) == [False] * 10


def test_a_steady_load_is_never_held():
    assert not any(holds([HERE] * 50))


def test_flicker_is_acted_on_twice_and_then_waited_out():
    held = holds([HERE, THERE] * 20)
    assert held[:2] == [False, False]
    assert all(held[3:])


def test_slower_flicker_is_held_back_more_and_more():
    rounds = ([HERE] * 4 + [THERE] * 4) * 6
    held = holds(rounds)
    first, last = held[:16], held[-16:]
    assert sum(first) < 8 < sum(last)


def test_calm_brings_trust_back():
    damping = Damping(memory=5)
    for costs in [HERE, THERE] * 5:
        damping.observe(costs)
    waits = [damping.observe(HERE) is not None for _ in range(60)]
    assert waits[0]
    assert not any(waits[20:])
    assert damping.observe(THERE) is None, "after a long calm a change is believed at once"


def test_no_hold_lasts_longer_than_the_longest():
    damping = Damping(longest=6)
    for costs in [HERE, THERE] * 30:
        damping.observe(costs)
    waits = [damping.observe(THERE) is not None for _ in range(10)]
    assert sum(waits) <= 6


def test_our_own_moves_do_not_surprise_us():
    damping = Damping()
    for _ in range(20):
        assert damping.observe(HERE) is None
        damping.expect(0, 1, 8.0)
        assert damping.observe(THERE) is None
        damping.expect(1, 0, 8.0)


@given(st.lists(st.floats(1 - SURPRISE / 2, 1 + SURPRISE / 2), min_size=4, max_size=4))
def test_small_fluctuations_are_no_surprise(factors):
    damping = Damping()
    for _ in range(10):
        assert damping.observe(dict.fromkeys(range(4), 1.0)) is None
        assert damping.observe(dict(enumerate(factors))) is None


def test_rounds_without_load_are_no_surprise():
    assert not any(holds([HERE, {0: 0.0, 1: 0.0}] * 10))


def test_executors_that_are_silent_or_new_are_no_surprise():
    rounds = [{0: 1.0, 1: 1.0}, {0: 1.0}, {0: 1.0, 1: 1.0, 2: 5.0}] * 10
    assert not any(holds(rounds))


def test_what_chance_can_do_is_no_surprise():
    rng = np.random.default_rng(1)
    damping = Damping()
    for _ in range(200):
        points = rng.multinomial(40, [1 / 20] * 20)
        assert damping.observe(dict(enumerate(map(float, points))), received=40) is None


def test_jumping_for_ever_is_held_for_ever():
    assert all(holds([HERE, THERE] * 2000)[3:])


def test_what_was_forgotten_cannot_surprise():
    damping = Damping()
    for costs in [HERE, THERE] * 10:
        damping.observe(costs)
        damping.forget()
    assert damping.observe(HERE) is None


# -- drift and flicker on the whole protocol ----------------------------------------------------


def one_hot(m, executors=22):
    return {n: 10.0 if n == m else 1.0 for n in range(executors)}


def test_a_hotspot_that_moves_one_executor_further_every_round_is_followed():
    """Today's drift is no flicker: the load is never where it was. A watch costs two rounds."""
    held = holds([one_hot(m % 22) for m in range(200)])
    first = int(JUMPS_BEFORE_WATCHING)
    assert not any(held[:first])
    assert sum(held[:18]) == NEW_PLACES
    assert sum(held) <= 5 * NEW_PLACES


def test_a_load_that_stays_after_many_jumps_is_followed_after_one_calm_round():
    held = holds([one_hot(m) for m in (0, 1, 2, 3, 4, 4, 4, 4)])
    assert held == [False] * 4 + [True] + [False] * 3


@given(st.lists(st.integers(0, 21), min_size=40, max_size=40))
def test_however_the_load_jumps_a_hold_ends_after_two_new_places(places):
    """Places that were not seen for as long as is remembered are new."""
    damping = Damping()
    recent: list[int] = []
    held = 0
    for place in places:
        hold = damping.observe(one_hot(place))
        is_new = bool(recent) and place not in recent[-10:]
        held = held + 1 if hold is not None and is_new else 0
        assert held <= NEW_PLACES
        recent.append(place)


def stream(hot, damped, monkeypatch, executors=22, rounds=30):
    """Run a protocol with half of the points in a hotspot; return balance and moves by round."""
    if not damped:
        monkeypatch.setattr(decision.Damping, "observe", lambda *_: None)
    rng = np.random.default_rng(1)
    config = SwarmConfig(
        bounds=(0, 0, 1, 1), grid=(64, 64), executors=executors, merge_every_rounds=0
    )
    swarm = LocalSwarm(config)
    balance, moves = [], []
    for number in range(rounds):
        spread = (rng.random((2, 15_000)) - 0.5) * 0.2 + np.array(hot(number))[:, None]
        x, y = np.hstack([spread, rng.random((2, 15_000))])
        owner = swarm.send(x, y).owner
        swarm.close_round(number)
        work = np.bincount(owner, minlength=executors)
        balance.append(work.mean() / work.max())
        moves.append(len(swarm.changes))
    monkeypatch.undo()
    return np.array(balance), np.array(moves)


@pytest.mark.parametrize("step", [0.15, 0.5])
def test_drift_is_balanced_as_well_as_without_damping(step, monkeypatch):
    def around(number):
        return 0.5 + 0.35 * np.cos(step * number), 0.5 + 0.35 * np.sin(step * number)

    free, _ = stream(around, False, monkeypatch)
    damped, moves = stream(around, True, monkeypatch)
    assert damped.mean() > 0.85 * free.mean()
    assert damped[15:].mean() > 0.9 * free[15:].mean()
    assert (moves[10:] > 0).mean() > 0.7


def test_a_flicker_is_waited_out_and_balanced_better_than_by_chasing_it(monkeypatch):
    def flicker(number):
        return (0.15, 0.15) if number % 2 else (0.85, 0.85)

    free, chased = stream(flicker, False, monkeypatch)
    damped, moves = stream(flicker, True, monkeypatch)
    assert chased[15:].sum() > 100
    assert moves[8:].sum() < 10
    assert damped[10:].mean() > free[10:].mean()
