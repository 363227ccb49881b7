"""Exact sums: the closest double to the true sum, whatever the order and the division."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sparkswarm.apps.aggregates.exact_sums import Sums, sums_of_floats, sums_of_integers

ROWS = 3
FLOATS = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False),
    st.floats(-1e3, 1e3),
    st.integers(-(2**53), 2**53).map(float),
)
WHOLE = st.integers(-(2**63), 2**63 - 1)


def lots_of(values):
    """Values, each with its row, in a few parts."""
    return st.lists(st.lists(st.tuples(st.integers(0, ROWS - 1), values), max_size=12), max_size=4)


def summed(lot, whole=False):
    groups = np.array([row for row, _ in lot], np.int64)
    if whole:
        return sums_of_integers(groups, np.array([v for _, v in lot], np.int64), ROWS)
    return sums_of_floats(groups, np.array([v for _, v in lot], np.float64), ROWS)


def put_together(parts):
    """Add up the sums of several parts, row by row."""
    if not parts:
        return Sums.zero(ROWS)
    stacked = Sums.concat(parts)
    order = np.arange(ROWS * len(parts)).reshape(-1, ROWS).T.ravel()
    starts = np.arange(ROWS) * len(parts)
    return stacked.take(order).added(starts, starts + len(parts))


def assert_same(a, b):
    assert a.exponent == b.exponent
    np.testing.assert_array_equal(a.digits, b.digits)
    np.testing.assert_array_equal(a.nonfinite, b.nonfinite)


def rounded(exact):
    """Return the closest double to a fraction."""
    try:
        return exact.numerator / exact.denominator
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


@given(lots_of(FLOATS))
@example([[(0, 1e308), (0, 1e308)], [(0, -1e308)]])
@example([[(0, 1e308), (0, 1e308)]])
@example([[(0, 5e-324), (1, -1.7976931348623157e308)], [(0, 5e-324)]])
@example([[(0, -5e-324)], [(0, 2.0**1023)], [(0, -(2.0**1023))]])
def test_totals_and_means_are_the_closest_doubles(lots):
    sums = put_together([summed(lot) for lot in lots])
    values = [[v for lot in lots for row, v in lot if row == r] for r in range(ROWS)]
    exact = [sum(map(Fraction, of_row), Fraction(0)) for of_row in values]
    counts = [max(len(of_row), 1) for of_row in values]
    assert sums.totals() == [rounded(total) for total in exact]
    assert sums.means(np.array(counts)) == [
        rounded(total / count) for total, count in zip(exact, counts, strict=True)
    ]


@given(lots_of(WHOLE))
@example([[(0, 2**63 - 1)], [(0, 1)]])
@example([[(0, -(2**63))], [(0, -1)]])
@example([[(0, -(2**63)), (1, 2**32), (2, -(2**32))]])
def test_whole_numbers_never_overflow(lots):
    sums = put_together([summed(lot, whole=True) for lot in lots])
    exact = [sum(v for lot in lots for row, v in lot if row == r) for r in range(ROWS)]
    assert sums.whole_totals() == [x if -(2**63) <= x < 2**63 else None for x in exact]
    assert sums.means(np.full(ROWS, 7)) == [x / 7 for x in exact]


@given(lots_of(st.floats()), st.randoms(use_true_random=False))
def test_no_order_and_no_division_shows(lots, random):
    whole = summed([pair for lot in lots for pair in lot])
    shuffled = [pair for lot in lots for pair in lot]
    random.shuffle(shuffled)
    cuts = sorted(random.choices(range(len(shuffled) + 1), k=2))
    parts = [shuffled[: cuts[0]], shuffled[cuts[0] : cuts[1]], shuffled[cuts[1] :]]
    assert_same(put_together([summed(part) for part in parts]), whole)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([math.inf, 1.0], math.inf),
        ([-math.inf, 1e308], -math.inf),
        ([math.inf, -math.inf], math.nan),
        ([math.nan, math.inf], math.nan),
        ([1.0, math.nan], math.nan),
        ([-0.0], 0.0),
    ],
)
def test_what_is_no_number_is_remembered(values, expected):
    sums = put_together([summed([(1, value)]) for value in values])
    assert sums.totals()[1] == pytest.approx(expected, nan_ok=True, rel=0, abs=0)
    assert sums.totals()[0] == 0.0


def test_ordinary_numbers_need_three_digits():
    speeds = np.random.default_rng(5).uniform(1, 100, 100_000)
    sums = sums_of_floats(np.zeros(len(speeds), np.int64), speeds, 1)
    assert sums.digits.shape == (1, 3)
    assert sums.totals() == [math.fsum(speeds)]
