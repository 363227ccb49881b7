"""Cost models: from a partition's statistics to one number, and to two for any split.

Owns the meaning of "load". A model turns statistics into a *numerator*, which an executor
can add up over its partitions without knowing anyone else, and a numerator into a cost once
R(S), the arrivals of the whole system, is known: two numbers per executor suffice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, cast

import numpy as np

from sparkswarm.compiled import FloatArray
from sparkswarm.config import CostModelName
from sparkswarm.protocol.statistics import CHECKS, PRE_SPAN_Q, SPAN_Q, Axis, N, Q, R, Statistics


class CostModel(Protocol):
    """What the rest of the protocol asks of a cost model."""

    @property
    def name(self) -> str:
        """Its name in settings and reports."""

    def numerator(self, statistics: Statistics) -> float:
        """Num(C(p)): the partition's cost before R(S) is known."""

    def split(self, statistics: Statistics, axis: Axis, line: int) -> tuple[float, float]:
        """Numerators of the first ``line`` lines and of the rest, read off two lines.

        The first never falls and the second never rises as ``line`` grows, which is what
        lets a binary search find the best line.
        """

    def profile(self, statistics: Statistics, axis: Axis) -> FloatArray:
        """Return how the numerator spreads over the lines of an axis; it adds up to the whole."""

    def cost(self, numerator: float, system_received: float) -> float:
        """Turn a numerator into a cost; ``system_received`` is R(S)."""

    def moving(self, queries: float) -> float:
        """Return the cost, paid once, of handing over a partition with that many queries."""


@dataclass(frozen=True, slots=True)
class PaperModel:
    """C(p) = N(p) Q(p) R(p) / R(S): equations 1 to 7 of the paper.

    Where nothing arrived, R(S) = 0 and so is every R(p): the cost is 0, nothing is overloaded.
    A product is cubic in the size of a partition, so equal costs are not equal work; see
    docs/explanation/decisions.md for what that does to the balance.
    """

    name: str = "paper"

    def numerator(self, statistics: Statistics) -> float:
        """N Q R."""
        last = statistics.values[-1]
        return float(last[N] * last[Q] * last[R])

    def split(self, statistics: Statistics, axis: Axis, line: int) -> tuple[float, float]:
        """Apply the formulas of "Searching for Best Split"."""
        lines = statistics.lines(axis)
        first, after, last = lines[line - 1], lines[line], lines[-1]
        queries = last[Q] - first[Q] + after[SPAN_Q]
        received = last[R] - first[R] + after[PRE_SPAN_Q]
        return (
            float(first[N] * first[Q] * first[R]),
            float((last[N] - first[N]) * queries * received),
        )

    def profile(self, statistics: Statistics, axis: Axis) -> FloatArray:
        """Spread the product as the points are spread."""
        last = statistics.values[-1]
        points = np.diff(statistics.lines(axis)[:, N], prepend=0.0)
        return cast(FloatArray, points * (last[Q] * last[R]))

    def cost(self, numerator: float, system_received: float) -> float:
        """Equation 7."""
        return numerator / system_received if system_received > 0 else 0.0

    def moving(self, queries: float) -> float:
        """Nothing: the paper's unit of cost says nothing about moves."""
        return 0.0


@dataclass(frozen=True, slots=True)
class WorkModel:
    """Additive work: points and candidates checked, each with its price.

    Half the work is half the cost, so equal costs are equal work, and a split's two sides
    are a prefix sum and its complement, exactly.

    Attributes
    ----------
    per_point, per_check
        The price in seconds of receiving a point and of checking one candidate query: what
        a core of today needs, until an executor has learnt its own from its busy time.
    points_per_query_moved
        Handing one query to another executor costs as much as receiving so many points.
    """

    per_point: float = 1e-6
    per_check: float = 2e-8
    points_per_query_moved: float = 0.05
    name: str = "work"

    def numerator(self, statistics: Statistics) -> float:
        """Return the work of the partition."""
        last = statistics.values[-1]
        return float(self.per_point * last[N] + self.per_check * last[CHECKS])

    def split(self, statistics: Statistics, axis: Axis, line: int) -> tuple[float, float]:
        """Return the work on either side of the line."""
        lines = statistics.lines(axis)
        first, last = lines[line - 1], lines[-1]
        return (
            float(self.per_point * first[N] + self.per_check * first[CHECKS]),
            float(
                self.per_point * (last[N] - first[N])
                + self.per_check * (last[CHECKS] - first[CHECKS])
            ),
        )

    def profile(self, statistics: Statistics, axis: Axis) -> FloatArray:
        """Return the work of each line."""
        lines = statistics.lines(axis)
        prefix = self.per_point * lines[:, N] + self.per_check * lines[:, CHECKS]
        return np.diff(prefix, prepend=0.0)

    def cost(self, numerator: float, system_received: float) -> float:
        """Return the numerator: work needs no scaling."""
        return numerator

    def moving(self, queries: float) -> float:
        """Return the price of moving queries."""
        return self.points_per_query_moved * self.per_point * queries


def make_cost_model(name: CostModelName) -> CostModel:
    """Return the cost model of that name."""
    return PaperModel() if name == "paper" else WorkModel()
