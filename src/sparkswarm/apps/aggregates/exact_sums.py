"""Exact sums: the result does not depend on the order of addition or the division of the work.

A number is represented by **digits** of 32 bits: digit ``k`` counts in units of ``2**(32 * k)``.
A double has 53 significant bits and so touches at most three digits. Digits are added separately,
as 64-bit integers, and carries are propagated afterwards. The only rounding happens at the end: a
total is the double closest to the exact sum, like that of ``math.fsum``, and a mean the double
closest to the exact mean.

All rows of a table of sums have the same number of digits, as many as the numbers need: three or
four for typical measurements, 66 in the worst case, when the smallest double meets the largest.
Sums of 64-bit integers have two or three.

Infinities and NaN have no digits; flags beside the digits record that they occurred.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sparkswarm.compiled import BoolArray, ByteArray, FloatArray, LongArray, compiled

NOT_A_NUMBER, PLUS_INFINITY, MINUS_INFINITY = 1, 2, 4
"""Bits of :attr:`Sums.nonfinite`."""

_BITS = 32
_BASE = 1 << _BITS
_MASK = _BASE - 1
_LOWEST = -34
"""The digit of the smallest double, ``2**-1074``."""


class Sums(NamedTuple):
    """One sum per row.

    Attributes
    ----------
    digits
        Shape (rows, digits), least significant first. All but the last are from 0 to 2**32 - 1;
        the last is signed. There are no more digits than the rows need.
    exponent
        The first digit counts in units of ``2**(32 * exponent)``.
    nonfinite
        Whether NaN, infinity or minus infinity was added, as bits.
    """

    digits: LongArray
    exponent: int
    nonfinite: ByteArray

    @classmethod
    def zero(cls, rows: int) -> Sums:
        """Return empty sums."""
        return cls(np.zeros((rows, 1), np.int64), 0, np.zeros(rows, np.uint8))

    def take(self, rows: npt.NDArray[np.intp] | BoolArray) -> Sums:
        """Return some rows, by index or by mask."""
        return _carried(self.digits[rows], self.exponent, self.nonfinite[rows])

    @classmethod
    def concat(cls, parts: Sequence[Sums]) -> Sums:
        """Concatenate tables of sums."""
        exponent = min((part.exponent for part in parts), default=0)
        stop = max((part.exponent + part.digits.shape[1] for part in parts), default=1)
        digits = np.zeros((sum(len(part.digits) for part in parts), stop - exponent), np.int64)
        row = 0
        for part in parts:
            rows, width = part.digits.shape
            first = part.exponent - exponent
            digits[row : row + rows, first : first + width] = part.digits
            row += rows
        nonfinite = np.concatenate([np.empty(0, np.uint8), *(part.nonfinite for part in parts)])
        return _carried(digits, exponent, nonfinite)

    def added(self, starts: npt.NDArray[np.intp], stops: npt.NDArray[np.intp]) -> Sums:
        """Return the total of each range of rows; ranges are not empty and may overlap."""
        # Differences of running sums are right even if the running sums overflow.
        running = np.zeros((len(self.digits) + 1, self.digits.shape[1]), np.int64)
        np.cumsum(self.digits, axis=0, out=running[1:])
        nonfinite = np.zeros(len(starts), np.uint8)
        for bit in (NOT_A_NUMBER, PLUS_INFINITY, MINUS_INFINITY) if self.nonfinite.any() else ():
            seen = np.concatenate([np.zeros(1, np.int64), np.cumsum(self.nonfinite & bit != 0)])
            nonfinite |= np.where(seen[stops] > seen[starts], bit, 0).astype(np.uint8)
        return _carried(running[stops] - running[starts], self.exponent, nonfinite)

    def totals(self) -> list[float]:
        """Return the double closest to each sum; infinite if no double is large enough."""
        return self.means(np.ones(len(self.digits), np.int64))

    def means(self, counts: LongArray) -> list[float]:
        """Return the double closest to each sum divided by its count, which is not 0."""
        up, down = _BITS * max(self.exponent, 0), _BITS * max(-self.exponent, 0)
        means = [
            _divided(number << up, count << down)
            for number, count in zip(self._numbers(), counts.tolist(), strict=True)
        ]
        for row in np.flatnonzero(self.nonfinite).tolist():
            means[row] = _NONFINITE_TOTALS[int(self.nonfinite[row])]
        return means

    def whole_totals(self) -> list[int | None]:
        """Return each sum of integers; None if it does not fit 64 bits."""
        shift = _BITS * self.exponent
        totals = (number << shift for number in self._numbers())
        return [total if -(1 << 63) <= total < 1 << 63 else None for total in totals]

    def _numbers(self) -> list[int]:
        """Return each sum in units of the first digit."""
        rows, width = self.digits.shape
        size = 4 * (width - 1) + 8
        content = np.empty((rows, size), np.uint8)
        content[:, :-8] = self.digits[:, :-1].astype("<u4").view(np.uint8).reshape(rows, size - 8)
        last = np.ascontiguousarray(self.digits[:, -1:]).astype("<i8")
        content[:, -8:] = last.view(np.uint8).reshape(rows, 8)
        raw = content.tobytes()
        return [
            int.from_bytes(raw[at : at + size], "little", signed=True)
            for at in range(0, rows * size, size)
        ]


_NONFINITE_TOTALS = {
    bits: math.nan
    if bits & NOT_A_NUMBER or bits == PLUS_INFINITY | MINUS_INFINITY
    else math.inf
    if bits == PLUS_INFINITY
    else -math.inf
    for bits in range(1, 8)
}


def _divided(number: int, by: int) -> float:
    try:
        return number / by
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def sums_of_floats(groups: LongArray, values: FloatArray, rows: int) -> Sums:
    """Add up values by row; ``groups`` has the row of each value."""
    sizes = np.abs(values[np.isfinite(values) & (values != 0.0)])
    if not len(sizes):
        digits, exponent = np.zeros((rows, 1), np.int64), 0
    else:
        # The last bit of the smallest value may be 52 bits below its first.
        exponent = max(_LOWEST, (math.frexp(sizes.min())[1] - 53) // _BITS)
        last = math.frexp(sizes.max())[1] // _BITS
        digits = np.zeros((rows, last - exponent + 3), np.int64)
    nonfinite = np.zeros(rows, np.uint8)
    _add_floats(groups, values, exponent, digits, nonfinite)
    return _carried(digits, exponent, nonfinite)


def sums_of_integers(groups: LongArray, values: LongArray, rows: int) -> Sums:
    """Add up integers by row; ``groups`` has the row of each value."""
    digits = np.zeros((rows, 2), np.int64)
    _add_integers(groups, values, digits)
    return _carried(digits, 0, np.zeros(rows, np.uint8))


def _carried(digits: LongArray, exponent: int, nonfinite: ByteArray) -> Sums:
    """Propagate carries and drop unused digits: equal sums then have equal arrays."""
    digits = np.concatenate([digits, np.zeros((len(digits), 1), np.int64)], axis=1)
    _carry(digits)
    # The last digit is redundant if it only extends the sign of the one below.
    while digits.shape[1] > 1 and not np.any(digits[:, -1] + (digits[:, -2] >> _BITS - 1)):
        below = digits[:, -2] - (digits[:, -2] >> _BITS - 1 << _BITS)
        digits = np.column_stack([digits[:, :-2], below])
    used = np.flatnonzero(digits.any(axis=0))
    first = int(used[0]) if len(used) else digits.shape[1] - 1
    exponent = exponent + first if len(used) else 0
    return Sums(np.ascontiguousarray(digits[:, first:]), exponent, nonfinite)


@compiled
def _carry(digits: LongArray) -> None:
    rows, width = digits.shape
    for row in range(rows):
        for k in range(width - 1):
            digits[row, k + 1] += digits[row, k] >> _BITS
            digits[row, k] &= _MASK


@compiled
def _add_floats(
    groups: LongArray, values: FloatArray, first: int, digits: LongArray, nonfinite: ByteArray
) -> None:
    bits = values.view(np.int64)
    for i in range(len(values)):
        group = groups[i]
        exponent = bits[i] >> 52 & 0x7FF
        fraction = bits[i] & 0xFFFFFFFFFFFFF
        if exponent == 0x7FF:
            if fraction:
                nonfinite[group] |= NOT_A_NUMBER
            elif bits[i] > 0:
                nonfinite[group] |= PLUS_INFINITY
            else:
                nonfinite[group] |= MINUS_INFINITY
            continue
        if exponent:
            fraction |= 1 << 52
        elif fraction:
            exponent = 1
        else:
            continue
        # The value is fraction * 2**(exponent - 1075).
        shift = exponent - 1075 - first * _BITS
        k = shift // _BITS
        up = shift % _BITS
        # 53 bits shifted by up to 31 do not fit 64 bits, so they are shifted in two parts.
        low = (fraction & _MASK) << up
        high = (fraction >> _BITS) << up
        if bits[i] < 0:
            low, high = -low, -high
        digits[group, k] += low & _MASK
        digits[group, k + 1] += (low >> _BITS) + (high & _MASK)
        digits[group, k + 2] += high >> _BITS


@compiled
def _add_integers(groups: LongArray, values: LongArray, digits: LongArray) -> None:
    for i in range(len(values)):
        digits[groups[i], 0] += values[i] & _MASK
        digits[groups[i], 1] += values[i] >> _BITS
