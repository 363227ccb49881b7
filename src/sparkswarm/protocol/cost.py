"""Cost models: from a partition's statistics to its load, and to the loads of a split's sides.

Owns the meaning of "load". A model turns statistics into a *numerator*, which an executor adds
up over its partitions by itself, and a numerator into a cost once R(S), the arrivals of the
whole system, is known: two numbers per executor suffice. A new model is a class here, a line in
``COST_MODELS`` and its name in config.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple, Protocol, Self, TypeVar, cast

import numpy as np

from sparkswarm.compiled import FloatArray
from sparkswarm.config import CostModelName
from sparkswarm.protocol.statistics import CHECKS, PRE_SPAN_Q, SPAN_Q, Axis, N, Q, R, Statistics

_Amount = TypeVar("_Amount", float, FloatArray)


PER_BYTE_FETCHED = 1e-7
"""Seconds for each byte of queries that a host fetches: 10 MB/s, as many small files come."""

BYTES_OF_QUERY = 100
"""Bytes of a stored query, about."""


class Prices(NamedTuple):
    """Seconds of an executor's task for what it does: one cost, the time of the task.

    The defaults are those of one core of today, for whole tasks of Spark.

    Attributes
    ----------
    per_point, per_check, per_match
        Receiving a point, checking one candidate query, and passing on one result.
    per_piece
        Matching the points of one partition, apart from the points.
    per_task
        Starting the task.
    per_operation
        Applying one operation on a query.
    """

    per_point: float = 4e-7
    per_check: float = 1e-8
    per_match: float = 2.5e-8
    per_piece: float = 2e-5
    per_task: float = 5e-3
    per_operation: float = 5e-6

    def of_task(
        self, points: _Amount, checks: _Amount, matches: _Amount, pieces: _Amount
    ) -> _Amount:
        """Return the seconds of a task without operations, or of each of several tasks."""
        return (
            self.per_task
            + self.per_point * points
            + self.per_check * checks
            + self.per_match * matches
            + self.per_piece * pieces
        )

    def work(self, checks: _Amount, matches: _Amount) -> _Amount:
        """Return checks and results together, as the number of checks that cost as much."""
        return checks + (self.per_match / self.per_check if self.per_check else 0.0) * matches


WORK_ONLY = Prices(per_match=0.0, per_piece=0.0, per_task=0.0, per_operation=0.0)
"""Prices where time is measured without what is fixed, as in simulated rounds."""


class CostModel(Protocol):
    """What the rest of the protocol asks of a cost model.

    Attributes
    ----------
    learns_prices
        Whether its costs depend on :class:`Prices`, so that measuring them is worth while.
    needs_exact_queries
        Whether queries must be recounted after a split or a merge; otherwise an estimate will
        do, and nobody needs to read them.
    forgets_jumps
        Whether statistics should drop the past when arrivals jump, see
        :meth:`Statistics.close_round`.
    """

    learns_prices: ClassVar[bool]
    needs_exact_queries: ClassVar[bool]
    forgets_jumps: ClassVar[bool]

    def with_prices(self, prices: Prices) -> Self:
        """Return the model with these prices; the model itself where it has none."""

    def numerator(self, statistics: Statistics) -> float:
        """Return Num(C(p)), the partition's cost before R(S) is known."""

    def split(self, statistics: Statistics, axis: Axis, line: int) -> tuple[float, float]:
        """Return the numerators of the first ``line`` lines and of the rest.

        The first never falls and the second never rises as ``line`` grows, which lets a binary
        search find the best line.
        """

    def profile(self, statistics: Statistics, axis: Axis) -> FloatArray:
        """Return the part of the numerator that falls on each line of an axis."""

    def cost(self, numerator: float, system_received: float) -> float:
        """Turn a numerator into a cost; ``system_received`` is R(S)."""

    def moving(self, queries: float, to_fetch: float = 0.0) -> float:
        """Return the cost, paid once, of handing over a partition with that many queries.

        ``to_fetch`` of them must be fetched by another host.
        """


@dataclass(frozen=True, slots=True)
class PaperModel:
    """C(p) = N(p) Q(p) R(p) / R(S): equations 1 to 7 of the paper.

    Where nothing arrived, R(S) = 0 and so is every R(p): the cost is 0. A product is cubic in
    the size of a partition, so equal costs are not equal work.
    """

    learns_prices: ClassVar[bool] = False
    needs_exact_queries: ClassVar[bool] = True
    forgets_jumps: ClassVar[bool] = False

    def with_prices(self, prices: Prices) -> Self:
        """Return the model itself: it has no prices."""
        return self

    def numerator(self, statistics: Statistics) -> float:
        """Return N Q R."""
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
        """Apply equation 7."""
        return numerator / system_received if system_received > 0 else 0.0

    def moving(self, queries: float, to_fetch: float = 0.0) -> float:
        """Return 0: the paper's unit of cost says nothing about moves."""
        return 0.0


@dataclass(frozen=True, slots=True)
class WorkModel:
    """Additive work: points and candidates checked, each with its price in seconds.

    Statistics count results among the checks, see :meth:`Prices.work`.

    Half the work is half the cost, so equal costs are equal work, and the two sides of a split
    are a prefix sum and its complement, exactly. Handing over one query costs as much as
    receiving ``points_per_query_moved`` points, and ``per_query_fetched`` more where another host
    must fetch it.
    """

    per_point: float = Prices().per_point
    per_check: float = Prices().per_check
    points_per_query_moved: float = 0.05
    per_query_fetched: float = BYTES_OF_QUERY * PER_BYTE_FETCHED
    learns_prices: ClassVar[bool] = True
    needs_exact_queries: ClassVar[bool] = False
    forgets_jumps: ClassVar[bool] = True

    def with_prices(self, prices: Prices) -> Self:
        """Return the model with these prices."""
        return replace(self, per_point=prices.per_point, per_check=prices.per_check)

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

    def moving(self, queries: float, to_fetch: float = 0.0) -> float:
        """Return the price of moving queries."""
        handed_over = self.points_per_query_moved * self.per_point * queries
        return handed_over + self.per_query_fetched * to_fetch


COST_MODELS: dict[CostModelName, Callable[[], CostModel]] = {
    "paper": PaperModel,
    "work": WorkModel,
}
"""The cost models by their names in the settings."""


def make_cost_model(name: CostModelName) -> CostModel:
    """Return the cost model of that name."""
    return COST_MODELS[name]()
