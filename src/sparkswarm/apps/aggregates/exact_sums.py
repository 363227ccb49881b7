"""Sums that are exact, so that no order of adding and no division of the work can show.

A sum of floating-point numbers depends on the order in which they are added. Here it does not.
A number is written in **digits** of 32 bits at fixed places: digit ``k`` counts in units of
``2**(32 * k)``. A double has 53 bits and so touches three digits at most. Digits are added as
whole numbers, each on its own, and what exceeds 32 bits is carried over afterwards. The one
rounding happens at the end: a total is the double closest to the true sum, as that of
``math.fsum``, and a mean the double closest to the true mean.

A table of sums has as many digits as its numbers need, the same for all its rows: three or
four for what people measure, 66 in the worst case, when the smallest double meets the largest.
Whole numbers of 64 bits have two or three.

Infinities and NaN have no digits; that they occurred is kept beside them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sparkswarm.compiled import ByteArray, FloatArray, LongArray, compiled

NOT_A_NUMBER, PLUS_INFINITY, MINUS_INFINITY = 1, 2, 4
"""What else was added; bits of :attr:`Sums.strange`."""

_BITS = 32
_BASE = 1 << _BITS
_MASK = _BASE - 1
_LOWEST = -34
"""The place of the digit that the smallest double, ``2**-1074``, touches."""


class Sums(NamedTuple):
    """One sum a row.

    Attributes
    ----------
    digits
        Of shape (rows, digits), the least significant first. All but the last are from 0 to
        2**32 - 1; the last has the sign. There are no more digits than the rows need.
    place
        Where the first digit stands.
    strange
        What was added that is no number.
    """

    digits: LongArray
    place: int
    strange: ByteArray

    @classmethod
    def zero(cls, rows: int) -> Sums:
        """Return sums of nothing."""
        return cls(np.zeros((rows, 1), np.int64), 0, np.zeros(rows, np.uint8))

    def take(self, which: npt.NDArray[np.intp] | npt.NDArray[np.bool_]) -> Sums:
        """Return the chosen rows, by index or by mask."""
        return _carried(self.digits[which], self.place, self.strange[which])

    @classmethod
    def joined(cls, parts: Sequence[Sums]) -> Sums:
        """Put several tables of sums one below another."""
        place = min((part.place for part in parts), default=0)
        stop = max((part.place + part.digits.shape[1] for part in parts), default=1)
        digits = np.zeros((sum(len(part.digits) for part in parts), stop - place), np.int64)
        row = 0
        for part in parts:
            rows, width = part.digits.shape
            digits[row : row + rows, part.place - place : part.place - place + width] = part.digits
            row += rows
        strange = np.concatenate([np.empty(0, np.uint8), *(part.strange for part in parts)])
        return _carried(digits, place, strange)

    def added(self, starts: npt.NDArray[np.intp], stops: npt.NDArray[np.intp]) -> Sums:
        """Return the total of each stretch of rows; stretches are not empty and may overlap."""
        # Differences of running sums are right even where the running sums go around.
        running = np.zeros((len(self.digits) + 1, self.digits.shape[1]), np.int64)
        np.cumsum(self.digits, axis=0, out=running[1:])
        strange = np.zeros(len(starts), np.uint8)
        for bit in (NOT_A_NUMBER, PLUS_INFINITY, MINUS_INFINITY) if self.strange.any() else ():
            seen = np.concatenate([np.zeros(1, np.int64), np.cumsum(self.strange & bit != 0)])
            strange |= np.where(seen[stops] > seen[starts], bit, 0).astype(np.uint8)
        return _carried(running[stops] - running[starts], self.place, strange)

    def totals(self) -> list[float]:
        """Return the double closest to each sum; infinite where no double is large enough."""
        return self.means(np.ones(len(self.digits), np.int64))

    def means(self, counts: LongArray) -> list[float]:
        """Return the double closest to each sum divided by its count, which is not 0."""
        up, down = _BITS * max(self.place, 0), _BITS * max(-self.place, 0)
        means = [
            _divided(number << up, count << down)
            for number, count in zip(self._numbers(), counts.tolist(), strict=True)
        ]
        for row in np.flatnonzero(self.strange).tolist():
            means[row] = _STRANGE_TOTALS[int(self.strange[row])]
        return means

    def whole_totals(self) -> list[int | None]:
        """Return each sum of whole numbers; None where 64 bits do not hold it."""
        shift = _BITS * self.place
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


_STRANGE_TOTALS = {
    strange: math.nan
    if strange & NOT_A_NUMBER or strange == PLUS_INFINITY | MINUS_INFINITY
    else math.inf
    if strange == PLUS_INFINITY
    else -math.inf
    for strange in range(1, 8)
}


def _divided(number: int, by: int) -> float:
    try:
        return number / by
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def sums_of_floats(groups: LongArray, values: FloatArray, rows: int) -> Sums:
    """Add up values by the row, ``groups``, that each belongs to."""
    sizes = np.abs(values[np.isfinite(values) & (values != 0.0)])
    if not len(sizes):
        digits, place = np.zeros((rows, 1), np.int64), 0
    else:
        # The smallest value's last bit may stand 52 bits below its first.
        place = max(_LOWEST, (math.frexp(sizes.min())[1] - 53) // _BITS)
        last = math.frexp(sizes.max())[1] // _BITS
        digits = np.zeros((rows, last - place + 3), np.int64)
    strange = np.zeros(rows, np.uint8)
    _add_floats(groups, values, place, digits, strange)
    return _carried(digits, place, strange)


def sums_of_integers(groups: LongArray, values: LongArray, rows: int) -> Sums:
    """Add up whole numbers by the row, ``groups``, that each belongs to."""
    digits = np.zeros((rows, 2), np.int64)
    _add_integers(groups, values, digits)
    return _carried(digits, 0, np.zeros(rows, np.uint8))


def _carried(digits: LongArray, place: int, strange: ByteArray) -> Sums:
    """Carry over, and leave out digits that nobody needs: equal sums then look equal."""
    digits = np.concatenate([digits, np.zeros((len(digits), 1), np.int64)], axis=1)
    _carry(digits)
    # The last digit is but a sign where it repeats the one below, read as a signed number.
    while digits.shape[1] > 1 and not np.any(digits[:, -1] + (digits[:, -2] >> _BITS - 1)):
        below = digits[:, -2] - (digits[:, -2] >> _BITS - 1 << _BITS)
        digits = np.column_stack([digits[:, :-2], below])
    used = np.flatnonzero(digits.any(axis=0))
    first = int(used[0]) if len(used) else digits.shape[1] - 1
    place = place + first if len(used) else 0
    return Sums(np.ascontiguousarray(digits[:, first:]), place, strange)


@compiled
def _carry(digits: LongArray) -> None:
    rows, width = digits.shape
    for row in range(rows):
        for k in range(width - 1):
            digits[row, k + 1] += digits[row, k] >> _BITS
            digits[row, k] &= _MASK


@compiled
def _add_floats(
    groups: LongArray, values: FloatArray, place: int, digits: LongArray, strange: ByteArray
) -> None:
    bits = values.view(np.int64)
    for i in range(len(values)):
        group = groups[i]
        exponent = bits[i] >> 52 & 0x7FF
        fraction = bits[i] & 0xFFFFFFFFFFFFF
        if exponent == 0x7FF:
            if fraction:
                strange[group] |= NOT_A_NUMBER
            elif bits[i] > 0:
                strange[group] |= PLUS_INFINITY
            else:
                strange[group] |= MINUS_INFINITY
            continue
        if exponent:
            fraction |= 1 << 52
        elif fraction:
            exponent = 1
        else:
            continue
        # The value is fraction * 2**(exponent - 1075).
        shift = exponent - 1075 - place * _BITS
        k = shift // _BITS
        up = shift % _BITS
        # 53 bits moved up by less than 32 do not fit into 64, so they go in two parts.
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
