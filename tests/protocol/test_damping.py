"""Hotspots that flicker must not make us thrash; hotspots that stay must not wait."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sparkswarm.protocol.damping import SURPRISE, Damping

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
