"""Learning prices: right where rounds can tell, sensible where they cannot."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkswarm.protocol.cost import Prices
from sparkswarm.protocol.learning import PriceLearner

PRIOR = Prices(1e-6, 2e-8)


def teach(
    learner: PriceLearner,
    prices: tuple[float, float],
    rounds: int,
    noise: float = 0.0,
    seed: int = 3,
) -> None:
    """Show rounds whose points and checks vary independently."""
    rng = np.random.default_rng(seed)
    for _ in range(rounds):
        points, checks = rng.uniform(1e4, 1e6), rng.uniform(1e5, 1e8)
        busy = (prices[0] * points + prices[1] * checks) * rng.lognormal(0.0, noise)
        learner.observe(points, checks, busy)


def test_before_anything_is_seen_the_prior_is_believed() -> None:
    assert PriceLearner(PRIOR).prices == PRIOR


@pytest.mark.parametrize(
    "prices", [(1e-6, 2e-8), (5e-6, 5e-8), (2e-7, 1e-7), (1e-5, 1e-9), (4.0, 0.02)]
)
def test_prices_are_recovered_from_noisy_busy_times(prices: tuple[float, float]) -> None:
    learner = PriceLearner(PRIOR)
    teach(learner, prices, rounds=100, noise=0.05)
    points, checks = 5e5, 5e7
    learnt = learner.prices
    for price, amount, true in zip(learnt, (points, checks), prices, strict=True):
        share = amount * true / (points * prices[0] + checks * prices[1])
        if share > 0.2:  # a price that is lost in the noise cannot be learnt
            assert price == pytest.approx(true, rel=0.25)
    predicted = learnt[0] * points + learnt[1] * checks
    assert predicted == pytest.approx(prices[0] * points + prices[1] * checks, rel=0.1)


@given(
    per_point=st.floats(1e-8, 1e-3),
    candidates=st.floats(0.0, 1e3),
    rounds=st.integers(1, 40),
)
def test_where_points_and_checks_go_together_it_predicts_the_time_all_the_same(
    per_point: float, candidates: float, rounds: int
) -> None:
    learner = PriceLearner(PRIOR)
    rng = np.random.default_rng(5)
    price = per_point * (1 + candidates / 50)
    for _ in range(rounds):
        points = rng.uniform(1e3, 1e5)
        learner.observe(points, candidates * points, price * points)
    learnt = learner.prices
    assert min(learnt) >= 0
    assert learnt[0] + learnt[1] * candidates == pytest.approx(price, rel=0.02)
    # The rounds do not say how the two relate, so that is the prior's to say.
    if candidates:
        assert learnt[1] / learnt[0] == pytest.approx(PRIOR[1] / PRIOR[0], rel=0.02)


def test_one_round_sets_the_scale_and_the_prior_the_ratio() -> None:
    learner = PriceLearner(Prices(1.0, 3.0))
    learner.observe(points=10.0, checks=10.0, busy=80.0)
    assert learner.prices == pytest.approx((2.0, 6.0))


def test_without_checks_the_price_of_a_point_is_learnt_alone() -> None:
    learner = PriceLearner(PRIOR)
    for points in (100.0, 300.0):
        learner.observe(points, 0.0, 7e-6 * points)
    per_point, per_check = learner.prices
    assert per_point == pytest.approx(7e-6, rel=1e-6)
    assert per_check == pytest.approx(7 * PRIOR[1], rel=1e-3)


@pytest.mark.parametrize(
    ("which", "observed"),
    [
        ("the point's", [(1.0, 1.0, 1.0), (4.0, 1.0, 0.5)]),
        ("the check's", [(1.0, 1.0, 1.0), (1.0, 4.0, 0.5)]),
    ],
)
def test_a_price_that_comes_out_negative_is_zero_and_the_other_fits_alone(
    which: str, observed: list[tuple[float, float, float]]
) -> None:
    learner = PriceLearner(Prices(1.0, 1.0))
    for _ in range(200):
        for points, checks, busy in observed:
            learner.observe(points, checks, busy)
    zero, kept = (0, 1) if which == "the point's" else (1, 0)
    prices = learner.prices
    assert prices[zero] == 0.0
    # Least squares of 1 = price * amount / busy over amounts 1 and 2; the later observation
    # of each pair weighs a little more.
    assert prices[kept] == pytest.approx(3 / 5, rel=0.02)


GARBAGE = {
    "no points": (0.0, 5.0, 1.0),
    "no time": (10.0, 5.0, 0.0),
    "negative points": (-1.0, 5.0, 1.0),
    "negative time": (10.0, 5.0, -1.0),
    "NaN points": (math.nan, 5.0, 1.0),
    "NaN checks": (10.0, math.nan, 1.0),
    "NaN time": (10.0, 5.0, math.nan),
    "infinite points": (math.inf, 5.0, 1.0),
    "infinite checks": (10.0, math.inf, 1.0),
    "infinite time": (10.0, 5.0, math.inf),
    "negative checks": (10.0, -5.0, 1.0),
    "a time too short to square its inverse": (1e9, 0.0, 1e-200),
    "a time too short to divide by": (1e9, 0.0, 5e-324),
}


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE)
@pytest.mark.filterwarnings("error")
def test_garbage_teaches_nothing(garbage: tuple[float, float, float]) -> None:
    fresh = PriceLearner(PRIOR)
    fresh.observe(*garbage)
    assert fresh.prices == PRIOR
    taught, untouched = PriceLearner(PRIOR), PriceLearner(PRIOR)
    for learner in (taught, untouched):
        teach(learner, (3e-6, 5e-8), rounds=5)
    taught.observe(*garbage)
    assert taught.prices == untouched.prices


@given(
    rounds=st.lists(
        st.tuples(st.floats(1e-3, 1e12), st.floats(0.0, 1e15), st.floats(1e-9, 1e6)), max_size=30
    )
)
def test_prices_are_finite_and_never_negative_whatever_is_seen(
    rounds: list[tuple[float, float, float]],
) -> None:
    learner = PriceLearner(PRIOR)
    for observed in rounds:
        learner.observe(*observed)
        assert all(math.isfinite(price) and price >= 0 for price in learner.prices)


def test_when_the_prices_change_so_does_what_is_believed() -> None:
    learner = PriceLearner(PRIOR)
    teach(learner, (1e-6, 2e-8), rounds=200, seed=1)
    assert learner.prices == pytest.approx((1e-6, 2e-8), rel=0.01)
    teach(learner, (4e-6, 1e-8), rounds=100, seed=2)
    assert learner.prices == pytest.approx((4e-6, 1e-8), rel=0.05)


def test_the_prior_wears_off_as_rounds_come_in() -> None:
    learner = PriceLearner(PRIOR)
    teach(learner, (4e-6, 1e-8), rounds=1000)
    assert learner.prices == pytest.approx((4e-6, 1e-8), rel=0.02)


def test_memory_says_how_fast_the_past_is_forgotten() -> None:
    """After as many rounds as it remembers, the past weighs 1/e of what it did."""
    short, long = (
        PriceLearner(Prices(1.0, 0.0), memory=4.0),
        PriceLearner(Prices(1.0, 0.0), memory=400.0),
    )
    for learner in (short, long):
        for busy in [1.0] * 50 + [2.0] * 4:
            learner.observe(1.0, 0.0, busy)
    assert short.prices[0] > 1.2 > long.prices[0]

    # Old: weight sum w, amounts 1; new: weight 1, amounts 1/2. Price = moment / gram.
    once = PriceLearner(Prices(1.0, 0.0), memory=1.0)
    once.observe(1.0, 0.0, 1.0)
    once.observe(1.0, 0.0, 2.0)
    w = math.exp(-1.0)
    assert once.prices[0] == pytest.approx((w + 0.5) / (w + 0.25))


def test_a_quiet_round_teaches_as_much_as_a_busy_one() -> None:
    """Relative errors count: the same mistake, made on a thousand times the points or not."""
    quiet_wrong, busy_wrong = PriceLearner(Prices(1.0, 0.0)), PriceLearner(Prices(1.0, 0.0))
    for learner, wrong, right in ((quiet_wrong, 1.0, 1000.0), (busy_wrong, 1000.0, 1.0)):
        for _ in range(400):
            learner.observe(wrong, 0.0, wrong * 2.0)
            learner.observe(right, 0.0, right * 1.0)
    assert quiet_wrong.prices[0] == pytest.approx(busy_wrong.prices[0])


@pytest.mark.parametrize("trust", [0.05, 1.0])
def test_the_prior_weighs_a_fraction_of_one_typical_round(trust: float) -> None:
    """Two rounds of memory 1, so the older weighs 1/e. Solved by hand, in relative amounts.

    A typical round is their weighted mean. The prior is told as a round like that, of which it
    is sure of either price on its own, and its scale is the one that fits both rounds best.
    """
    older, newer = np.array([2.0, 1.0]), np.array([1.0, 3.0])
    weights = math.exp(-1.0), 1.0
    learner = PriceLearner(Prices(1.0, 2.0), memory=1.0, trust=trust)
    for amounts in (older, newer):
        learner.observe(amounts[0] * 10, amounts[1] * 10, 10.0)

    rounds = list(zip(weights, (older, newer), strict=True))
    prior = np.array([1.0, 2.0])
    told = [w * (a @ prior) for w, a in rounds]
    scale = sum(told) / sum(w * (a @ prior) ** 2 for w, a in rounds)
    typical = sum(w * a**2 for w, a in rounds) / sum(weights)
    # Weighted rows of an ordinary least-squares problem: the two rounds, and two of the prior.
    matrix = [math.sqrt(w) * a for w, a in rounds]
    matrix += [math.sqrt(trust) * row for row in np.diag(np.sqrt(typical))]
    wanted = [math.sqrt(w) for w in weights]
    wanted += list(math.sqrt(trust) * np.sqrt(typical) * prior * scale)
    solved, *_ = np.linalg.lstsq(np.array(matrix), np.array(wanted))
    assert learner.prices == pytest.approx(tuple(solved))
