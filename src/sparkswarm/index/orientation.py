"""On which side of a line a point lies, decided exactly.

Owns the one rule on which tests of points against edges rest. The sign of the determinant is
computed in floats; where it could be wrong by rounding, it is computed again without rounding, as
a sum of exact products (Dekker's product, Knuth's sum, Shewchuk's expansions). It is exact unless
a product of two coordinates overflows or underflows.
"""

from __future__ import annotations

import numpy as np

from sparkswarm.compiled import FloatArray, compiled

_ERROR = (3.0 + 16.0 * 2.0**-53) * 2.0**-53
"""Shewchuk's bound of the relative error of the determinant."""
_SPLITTER = 2.0**27 + 1.0


@compiled
def orientation(ax: float, ay: float, bx: float, by: float, px: float, py: float) -> int:
    """Return 1 if p lies left of the line from a to b, -1 if right of it, 0 if on it."""
    left, right = (ax - px) * (by - py), (ay - py) * (bx - px)
    determinant = left - right
    bound = _ERROR * (abs(left) + abs(right))
    if determinant > bound:
        return 1
    if determinant < -bound:
        return -1
    return _exact(ax, ay, bx, by, px, py)


@compiled
def _exact(ax: float, ay: float, bx: float, by: float, px: float, py: float) -> int:
    terms = np.zeros(12)
    number = 0
    for a, b in ((ax, by), (-ay, bx), (-ax, py), (ay, px), (-px, by), (py, bx)):
        high, low = _product(a, b)
        number = _add(terms, number, low)
        number = _add(terms, number, high)
    # The last term that is not 0 is larger than all before it together.
    for i in range(number - 1, -1, -1):
        if terms[i] != 0.0:
            return 1 if terms[i] > 0.0 else -1
    return 0


@compiled
def _product(a: float, b: float) -> tuple[float, float]:
    """Return the product of two numbers as a sum of two."""
    high = a * b
    c = _SPLITTER * a
    a_high = c - (c - a)
    a_low = a - a_high
    c = _SPLITTER * b
    b_high = c - (c - b)
    b_low = b - b_high
    error = ((a_high * b_high - high) + a_high * b_low + a_low * b_high) + a_low * b_low
    return high, error


@compiled
def _add(terms: FloatArray, number: int, value: float) -> int:
    """Add a number to an expansion of non-overlapping terms, smallest first."""
    for i in range(number):
        total = value + terms[i]
        part = total - value
        terms[i] = (value - (total - part)) + (terms[i] - part)
        value = total
    terms[number] = value
    return number + 1
