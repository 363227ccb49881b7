"""Queueing in one slice of virtual time: how many tuples the sources emit, and how long they wait.

Pure arithmetic. Every machine and every link is a *station* with a first-in-first-out queue,
measured in seconds of work. Tuples arrive evenly within a slice, so a backlog changes linearly
and its mean is exact.
"""

from __future__ import annotations

from sparkswarm.compiled import FloatArray, compiled

STEPS = 200
"""Upper bound of the search: each step leaves one more station with an empty queue."""


@compiled
def allowed(
    backlog: FloatArray,
    demand: FloatArray,
    per_tuple: FloatArray,
    capacity: FloatArray,
    window: float,
    travelling: float,
) -> float:
    """Return the largest number of tuples that the sources may emit in a slice.

    The sources have at most ``window`` tuples pending. After ``n`` more, station r has
    ``max(0, backlog + n demand - capacity)`` seconds of work left, in tuples of ``per_tuple``
    seconds each, and ``n travelling`` tuples are between machines. The sum increases with n and
    is convex, so Newton's method from above finds the largest n.

    Parameters
    ----------
    backlog
        Seconds of work queued at each station.
    demand
        Seconds of work per emitted tuple at each station, averaged over all tuples.
    per_tuple
        Seconds of work per tuple that visits the station.
    capacity
        Seconds of work that each station can do in the slice.
    window, travelling
        Maximum number of pending tuples; fraction of a slice that a tuple travels.
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
    """Advance all stations by a slice in which ``n`` tuples arrive evenly.

    Updates ``backlog``; writes the seconds of work done to ``busy`` and the mean waiting time of
    the tuples to ``wait``.
    """
    for r in range(len(backlog)):
        start = backlog[r]
        end = start + n * demand[r] - capacity[r]
        if end >= 0:
            mean = (start + end) / 2
            busy[r] = capacity[r]
            backlog[r] = end
        else:
            # The queue becomes empty within the slice and stays empty.
            mean = start * start / (2 * (start - end))
            busy[r] = start + n * demand[r]
            backlog[r] = 0.0
        wait[r] = mean * length / capacity[r] if capacity[r] > 0 else 0.0
