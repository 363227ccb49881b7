"""Learning what a point and a check cost from an executor's own busy time.

Owns a least-squares estimate of two prices. It knows no clock: busy time is told to it.
"""

from __future__ import annotations

import math

import numpy as np

from sparkswarm.compiled import FloatArray

LARGEST_RATE = 1e100
"""More points or checks in a second than this are no measurement."""


class PriceLearner:
    """Learn ``busy = per_point * points + per_check * checks`` round by round.

    Weighted least squares with exponential forgetting, pulled towards a prior so that the
    answer stays sensible where the rounds cannot tell the two prices apart (an executor
    whose points always meet the same number of candidates). Prices never become negative.

    Parameters
    ----------
    per_point, per_check
        The prior: prices believed before anything is seen, in seconds.
    memory
        Rounds that count: an observation's weight falls by 1/e after that many.
    trust
        How much the prior weighs, as a fraction of one typical round.
    """

    def __init__(
        self, per_point: float, per_check: float, memory: float = 20.0, trust: float = 0.05
    ) -> None:
        self._prior = np.array([per_point, per_check], dtype=np.float64)
        self._keep = float(np.exp(-1.0 / memory))
        self._trust = trust
        self._rounds = 0.0
        self._gram: FloatArray = np.zeros((2, 2))
        self._moment: FloatArray = np.zeros(2)

    def observe(self, points: float, checks: float, busy: float) -> None:
        """Take in one round; rounds without points or time teach nothing."""
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
    def prices(self) -> tuple[float, float]:
        """(per_point, per_check) as believed now."""
        diagonal = np.diag(self._gram)
        if not diagonal.any():
            return float(self._prior[0]), float(self._prior[1])
        # The prior is scaled to what was seen: it says how the prices relate, the data how
        # large they are.
        seen = self._prior @ self._moment / (self._prior @ self._gram @ self._prior)
        prior = self._prior * max(float(seen), 0.0)
        pull = np.diag(self._trust / self._rounds * np.maximum(diagonal, diagonal.max() * 1e-12))
        solved: FloatArray = np.linalg.solve(self._gram + pull, self._moment + pull @ prior).astype(
            np.float64
        )
        return self._non_negative(solved)

    def _non_negative(self, solved: FloatArray) -> tuple[float, float]:
        """Where one price came out negative, set it to 0 and refit the other alone."""
        for i in (0, 1):
            if solved[i] < 0:
                alone = self._moment[1 - i] / self._gram[1 - i, 1 - i]
                return (0.0, float(alone)) if i == 0 else (float(alone), 0.0)
        return float(solved[0]), float(solved[1])
