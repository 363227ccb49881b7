"""Learns what a point and a check cost from an executor's own busy time.

Owns a least-squares estimate of two prices. It has no clock: the caller measures busy time.
"""

from __future__ import annotations

import math

import numpy as np

from sparkswarm.compiled import FloatArray
from sparkswarm.protocol.cost import Prices

LARGEST_RATE = 1e100
"""Points or checks in a second above which a measurement is discarded."""


class PriceLearner:
    """Learns ``busy = per_point * points + per_check * checks`` round by round.

    Weighted least squares with exponential forgetting. A prior keeps the answer sensible where
    the rounds cannot tell the two prices apart, because every point meets the same number of
    candidates. Prices never become negative.

    Parameters
    ----------
    prior
        Prices assumed before anything is measured.
    memory
        Number of rounds after which the weight of an observation has fallen to 1/e.
    trust
        Weight of the prior, as a fraction of one typical round.
    """

    def __init__(
        self, prior: Prices | None = None, memory: float = 20.0, trust: float = 0.05
    ) -> None:
        self._prior = np.array(prior or Prices(), dtype=np.float64)
        self._keep = float(np.exp(-1.0 / memory))
        self._trust = trust
        self._rounds = 0.0
        self._gram: FloatArray = np.zeros((2, 2))
        self._moment: FloatArray = np.zeros(2)

    def observe(self, points: float, checks: float, busy: float) -> None:
        """Take in one round; rounds without points or busy time are skipped."""
        if not (points > 0 and checks >= 0 and busy > 0 and math.isfinite(busy)):
            return
        # Relative error counts, not absolute: a quiet round teaches as much as a busy one.
        amounts = np.array([points / busy, checks / busy], dtype=np.float64)
        if not (amounts < LARGEST_RATE).all():
            return
        self._rounds = self._rounds * self._keep + 1.0
        self._gram = self._gram * self._keep + np.outer(amounts, amounts)
        self._moment = self._moment * self._keep + amounts

    @property
    def prices(self) -> Prices:
        """The present estimate."""
        diagonal = np.diag(self._gram)
        if not diagonal.any():
            return Prices(float(self._prior[0]), float(self._prior[1]))
        # The prior is scaled to the data: it gives the ratio of the prices, the data their size.
        seen = self._prior @ self._moment / (self._prior @ self._gram @ self._prior)
        prior = self._prior * max(float(seen), 0.0)
        pull = np.diag(self._trust / self._rounds * np.maximum(diagonal, diagonal.max() * 1e-12))
        solved: FloatArray = np.linalg.solve(self._gram + pull, self._moment + pull @ prior).astype(
            np.float64
        )
        return self._non_negative(solved)

    def _non_negative(self, solved: FloatArray) -> Prices:
        """Set a price that came out negative to 0 and refit the other alone."""
        for i in (0, 1):
            if solved[i] < 0:
                alone = float(self._moment[1 - i] / self._gram[1 - i, 1 - i])
                return Prices(0.0, alone) if i == 0 else Prices(alone, 0.0)
        return Prices(float(solved[0]), float(solved[1]))
