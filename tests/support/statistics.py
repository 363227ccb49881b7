"""Counts of a run of rows or columns, read off a partition's statistics."""

from __future__ import annotations

from sparkswarm.protocol.statistics import CHECKS, PRE_SPAN_Q, SPAN_Q, Axis, N, Q, R, Statistics

KEEP = 1.0
"""No decay, so that numbers equal a count over all rounds."""


def points_in(statistics: Statistics, axis: Axis, start: int, stop: int) -> float:
    """Return N of lines ``start`` to ``stop - 1``."""
    return _sum(statistics, axis, N, start, stop)


def queries_in(statistics: Statistics, axis: Axis, start: int, stop: int) -> float:
    """Return Q of lines ``start`` to ``stop - 1``: those that start there or reach the first."""
    reach = float(statistics.lines(axis)[start, SPAN_Q])
    return _sum(statistics, axis, Q, start, stop) + reach


def received_in(statistics: Statistics, axis: Axis, start: int, stop: int) -> float:
    """Return R of lines ``start`` to ``stop - 1``."""
    reach = float(statistics.lines(axis)[start, PRE_SPAN_Q])
    return _sum(statistics, axis, R, start, stop) + reach


def checks_in(statistics: Statistics, axis: Axis, start: int, stop: int) -> float:
    """Return the candidates checked on lines ``start`` to ``stop - 1``."""
    return _sum(statistics, axis, CHECKS, start, stop)


def _sum(statistics: Statistics, axis: Axis, field: int, start: int, stop: int) -> float:
    lines = statistics.lines(axis)
    before = float(lines[start - 1, field]) if start else 0.0
    return float(lines[stop - 1, field]) - before
