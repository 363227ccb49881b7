"""The order of the batches of several streams."""

import threading

import pytest

from sparkswarm.bench.turns import Turns

WAIT = 30


def stream(turns, number, batches, order):
    """Run the batches of a stream in a thread, as Spark does."""
    wait = turns.observer(number)

    def run():
        for batch in range(batches):
            order.append((batch, number))
            wait(None, None, ())

    thread = threading.Thread(target=run)
    thread.start()
    return thread


@pytest.mark.parametrize("first", [0, 1])
def test_batches_take_turns_whichever_stream_is_quicker_at_first(first):
    order, turns = [], Turns(2, 5)
    threads = [stream(turns, number, 5, order) for number in (first, 1 - first)]
    for thread in threads:
        thread.join(WAIT)
        assert not thread.is_alive()
    assert sorted(order[:2]) == [(0, 0), (0, 1)]
    assert order[2:] == [(batch, number) for batch in range(1, 5) for number in (0, 1)]


def test_what_a_batch_waited_is_told():
    turns = Turns(2, 2)
    for thread in [stream(turns, number, 2, []) for number in (0, 1)]:
        thread.join(WAIT)
    assert [len(waited) for waited in turns.waited] == [2, 2]
    assert all(seconds >= 0 for waited in turns.waited for seconds in waited)


class Query:
    """A query that fails, or runs for ever."""

    def __init__(self, fails):
        self.isActive = not fails

    def exception(self):
        return None if self.isActive else "why"

    def awaitTermination(self, timeout=None):  # noqa: N802
        if not self.isActive:
            raise ValueError("why")


@pytest.mark.parametrize("failed", [0, 1])
def test_where_a_stream_fails_the_others_are_not_waited_for(failed):
    with pytest.raises(ValueError, match="why"):
        Turns(2, 5).await_all([Query(number == failed) for number in (0, 1)])


def test_one_stream_never_waits():
    order, turns = [], Turns(1, 5)
    stream(turns, 0, 5, order).join(WAIT)
    assert len(order) == 5


def test_at_the_end_nobody_waits():
    order, turns = [], Turns(2, 5)
    turns.end()
    alone = stream(turns, 0, 3, order)
    alone.join(WAIT)
    assert not alone.is_alive()
