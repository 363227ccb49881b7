"""Queues in slices of virtual time: how many tuples may leave the sources, and what they wait.

Owns the arithmetic of one slice and nothing else. Every machine and every link is a
*station* with a first-in-first-out queue, kept as seconds of work. Within a slice tuples
arrive evenly, so a backlog moves along a straight line and its mean is exact.
"""

from __future__ import annotations

from sparkswarm.compiled import FloatArray, compiled

STEPS = 200
"""More steps than the search can need: each leaves one station more with an empty queue."""


@compiled
def allowed(
    backlog: FloatArray,
    demand: FloatArray,
    per_tuple: FloatArray,
    capacity: FloatArray,
    window: float,
    travelling: float,
) -> float:
    """Return how many tuples the sources may emit in a slice: as many as keep them in the window.

    The sources have at most ``window`` tuples pending. After ``n`` more, station r is left
    with ``max(0, backlog + n demand - capacity)`` seconds of work, which are so many tuples
    of ``per_tuple`` seconds each; and ``n travelling`` tuples are on their way between the
    machines. The sum grows with n and is convex, so Newton's steps from above find the
    largest n at once.

    Parameters
    ----------
    backlog
        Seconds of work that wait at each station.
    demand
        Seconds of work that an emitted tuple brings to each, on average over all tuples.
    per_tuple
        Seconds of work that a tuple takes which does visit the station.
    capacity
        Seconds of work that each can do in the slice.
    window, travelling
        Tuples that may be pending; which part of a slice a tuple travels.
    """
    n = window / travelling if travelling > 0 else 1e300
    for r in range(len(backlog)):
        if demand[r] > 0:
            n = min(n, (capacity[r] - backlog[r] + window * per_tuple[r]) / demand[r])
    n = max(n, 0.0)
    for _ in range(STEPS):
        pending = n * travelling
        slope = travelling
        for r in range(len(backlog)):
            left = backlog[r] + n * demand[r] - capacity[r]
            if left > 0 and per_tuple[r] > 0:
                pending += left / per_tuple[r]
                slope += demand[r] / per_tuple[r]
        if n <= 0 or slope <= 0 or pending <= window * (1 + 1e-9):
            break
        n = max(0.0, n - (pending - window) / slope)
    return n


@compiled
def serve(
    backlog: FloatArray,
    demand: FloatArray,
    capacity: FloatArray,
    n: float,
    length: float,
    busy: FloatArray,
    wait: FloatArray,
) -> None:
    """Let a slice pass with ``n`` tuples, evenly spread over it.

    Changes ``backlog``; writes to ``busy`` the seconds of work done and to ``wait`` how long
    a tuple that arrived in the slice waits, on average.
    """
    for r in range(len(backlog)):
        start = backlog[r]
        end = start + n * demand[r] - capacity[r]
        if end >= 0:
            mean = (start + end) / 2
            busy[r] = capacity[r]
            backlog[r] = end
        else:
            # It falls to nothing within the slice and stays there.
            mean = start * start / (2 * (start - end))
            busy[r] = start + n * demand[r]
            backlog[r] = 0.0
        wait[r] = mean * length / capacity[r] if capacity[r] > 0 else 0.0
