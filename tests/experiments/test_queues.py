"""The arithmetic of a slice: the window is kept, work is conserved, waits are exact."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkswarm.experiments.queues import allowed, serve

amounts = st.floats(0.0, 5.0)


@given(
    st.lists(st.tuples(amounts, st.floats(1e-6, 1.0), st.floats(1e-6, 1.0)), min_size=1),
    st.floats(1.0, 1e5),
    st.floats(0.0, 0.5),
)
def test_the_sources_emit_as_much_as_the_window_allows_and_no_more(stations, window, travelling):
    backlog, demand, per_tuple = (np.array(column) for column in zip(*stations, strict=True))
    capacity = np.full(len(backlog), 0.1)
    n = allowed(backlog, demand, per_tuple, capacity, window, travelling)

    def pending(emitted: float) -> float:
        left = np.maximum(backlog + emitted * demand - capacity, 0.0)
        return float((left / per_tuple).sum()) + emitted * travelling

    assert n >= 0
    if n > 0:
        assert pending(n) <= window * (1 + 1e-6)
        assert pending(n * 1.001 + 1e-3) > window * (1 - 1e-6)
    else:
        assert pending(1e-3) > window * (1 - 1e-6)


def test_nothing_leaves_while_more_than_the_window_waits():
    backlog, one = np.array([20.0]), np.array([1.0])
    assert allowed(backlog, one, one, np.array([0.1]), 10.0, 0.0) == 0.0


@given(amounts, st.floats(0.0, 3.0), st.floats(0.01, 1.0))
def test_work_is_done_or_left_and_never_lost(start, arriving, capacity):
    backlog, busy, wait = np.array([start]), np.zeros(1), np.zeros(1)
    serve(backlog, np.array([arriving]), np.array([capacity]), 1.0, 1.0, busy, wait)
    assert backlog[0] + busy[0] == pytest.approx(start + arriving)
    assert 0 <= busy[0] <= capacity + 1e-12


@pytest.mark.parametrize(
    ("start", "arriving", "capacity"),
    [(0.0, 0.05, 0.1), (0.0, 0.3, 0.1), (0.5, 0.02, 0.1), (0.03, 0.02, 0.1), (0.05, 0.1, 0.05)],
    ids=["idle", "overloaded", "busy throughout", "drains within the slice", "half a core"],
)
def test_the_mean_wait_is_that_of_many_tuples_in_a_row(start, arriving, capacity):
    tuples, length = 20_000, 0.1
    speed = capacity / length
    free, waits = start / speed, []
    for time in (np.arange(tuples) + 0.5) * length / tuples:
        waits.append(max(0.0, free - time))
        free = max(free, time) + arriving / tuples / speed
    backlog, busy, wait = np.array([start]), np.zeros(1), np.zeros(1)
    serve(backlog, np.array([arriving]), np.array([capacity]), 1.0, length, busy, wait)
    assert wait[0] == pytest.approx(np.mean(waits), rel=1e-3, abs=1e-5)
