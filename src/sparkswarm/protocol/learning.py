"""Learns the prices of points, checks, results, pieces and tasks from the time of tasks.

Owns a least-squares estimate of :class:`Prices`. It has no clock: the caller measures. Runs where
the reports arrive: on the driver once a task, in a load-balancing unit once a round.
"""

from __future__ import annotations

import math

import numpy as np

from sparkswarm.compiled import FloatArray
from sparkswarm.protocol.cost import Prices

LARGEST_RATE = 1e100
"""Points, checks or others in a second above which a measurement is discarded."""

STALL = 3.0
"""Times the predicted time, or part of it, to which the time of a task is clipped."""

TRUST_OF_TASKS = 0.05
"""Weight of the prior where single tasks are observed. Executors with even loads have tasks that
are all alike, so that noise decides between prices: with a tenth of this, all their time was at
times put down to their start."""

LEAST = 0.01
"""Part of its prior below which no price falls: nothing is free."""


class PriceLearner:
    """Learns the time of a task as the sum of its amounts, each times its price.

    Weighted least squares of relative errors, with exponential forgetting. A prior keeps the
    answer sensible where tasks cannot tell prices apart, because their amounts grow together.
    Robust against tasks that stall: a time is clipped to three times what the present prices
    predict, and a long time weighs less than a short one. No price is ever negative.

    Parameters
    ----------
    prior
        Prices assumed before anything is measured. Only their ratios matter after that. A price
        that is 0 there is not learnt.
    memory
        Number of observations after which the weight of one has fallen to 1/e.
    trust
        Weight of the prior: a price twice the prior is as bad as this number of observations whose
        time is twice the predicted.
    """

    def __init__(
        self, prior: Prices | None = None, memory: float = 20.0, trust: float = 0.005
    ) -> None:
        self._prior = np.array(prior or Prices(), dtype=np.float64)
        self._keep = float(np.exp(-1.0 / memory))
        self._trust = trust
        self._gram: FloatArray = np.zeros((len(self._prior), len(self._prior)))
        self._moment: FloatArray = np.zeros(len(self._prior))
        self._believed: FloatArray | None = None

    def observe(
        self,
        *,
        points: float,
        checks: float,
        matches: float = 0.0,
        pieces: float = 0.0,
        operations: float = 0.0,
        seconds: float,
    ) -> None:
        """Take in one task, or one round; those without points or operations are skipped."""
        amounts = np.array([points, checks, matches, pieces, 1.0, operations], dtype=np.float64)
        amounts[self._prior <= 0] = 0.0
        if not ((amounts >= 0).all() and points + operations > 0):
            return
        if not (seconds > 0 and math.isfinite(seconds)):
            return
        if self._believed is not None:
            predicted = float(self._believed @ amounts)
            seconds = min(max(seconds, predicted / STALL), predicted * STALL)
        # Relative error counts, not absolute: a short task teaches as much as a long one.
        if not (amounts < LARGEST_RATE * min(seconds, 1.0)).all():
            return
        amounts /= seconds
        self._gram = self._gram * self._keep + np.outer(amounts, amounts)
        self._moment = self._moment * self._keep + amounts

    @property
    def prices(self) -> Prices:
        """The present estimate; times are clipped by what was read last."""
        on_prior = float(self._prior @ self._gram @ self._prior)
        if not on_prior > 0:
            return Prices(*self._prior.tolist())
        # The prior is scaled to the data: it gives the ratios of the prices, the data their size.
        prior = self._prior * (float(self._prior @ self._moment) / on_prior)
        learnt = prior > 0
        # In units of the prior all prices are about 1. A price that turns out to be far above its
        # prior is held to the prior less: a second solution weighs by the first.
        unit = prior[learnt]
        gram = self._gram[np.ix_(learnt, learnt)] * np.outer(unit, unit)
        moment = self._moment[learnt] * unit
        found: FloatArray = np.ones(len(unit))
        for _ in range(2):
            pull = self._trust / np.maximum(1.0, found) ** 2
            matrix = gram + np.diag(pull)
            found = LEAST + _non_negative(matrix, moment + pull - LEAST * matrix.sum(axis=1))
        self._believed = np.zeros_like(prior)
        self._believed[learnt] = found * unit
        return Prices(*self._believed.tolist())


def _non_negative(matrix: FloatArray, wanted: FloatArray) -> FloatArray:
    """Solve ``matrix @ x = wanted`` in the sense of least squares with x >= 0.

    The method of Lawson and Hanson: variables leave 0 one by one, the most wanted first.
    """
    n = len(wanted)
    x: FloatArray = np.zeros(n)
    free = np.zeros(n, dtype=np.bool_)
    for _ in range(3 * n):
        slope = np.where(free, -np.inf, wanted - matrix @ x)
        if slope.max() <= 1e-12 * np.abs(wanted).max():
            break
        free[slope.argmax()] = True
        while True:
            solved = np.zeros(n)
            solved[free] = np.linalg.solve(matrix[np.ix_(free, free)], wanted[free])
            below = free & (solved <= 0)
            if not below.any():
                break
            step = (x[below] / (x[below] - solved[below])).min()
            x = x + step * (solved - x)
            free &= x > 1e-15
        x = solved
    return x
