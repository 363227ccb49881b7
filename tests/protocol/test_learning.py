"""Learning prices: right where rounds can tell, sensible where they cannot."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkswarm.compiled import FloatArray
from sparkswarm.protocol.cost import WORK_ONLY, Prices
from sparkswarm.protocol.learning import LEAST, TRUST_OF_TASKS, PriceLearner

PRIOR = WORK_ONLY._replace(per_point=1e-6, per_check=2e-8)


def work(per_point: float, per_check: float) -> Prices:
    """Prices of points and checks alone."""
    return WORK_ONLY._replace(per_point=per_point, per_check=per_check)


def observe(learner: PriceLearner, points: float, checks: float, seconds: float) -> None:
    learner.observe(points=points, checks=checks, seconds=seconds)


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
        observe(learner, points, checks, busy)


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
    for price, amount, true in zip(learnt[:2], (points, checks), prices, strict=True):
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
        observe(learner, points, candidates * points, price * points)
    learnt = learner.prices
    assert min(learnt) >= 0
    assert learnt[0] + learnt[1] * candidates == pytest.approx(price, rel=0.02)
    # The rounds do not say how the two relate, so that is the prior's to say.
    if candidates:
        assert learnt[1] / learnt[0] == pytest.approx(PRIOR[1] / PRIOR[0], rel=0.02)


def test_one_round_sets_the_scale_and_the_prior_the_ratio() -> None:
    learner = PriceLearner(work(1.0, 3.0))
    observe(learner, points=10.0, checks=10.0, seconds=80.0)
    assert learner.prices[:2] == pytest.approx((2.0, 6.0))


def test_without_checks_the_price_of_a_point_is_learnt_alone() -> None:
    learner = PriceLearner(PRIOR)
    for points in (100.0, 300.0):
        observe(learner, points, 0.0, 7e-6 * points)
    per_point, per_check = learner.prices[:2]
    assert per_point == pytest.approx(7e-6, rel=1e-6)
    assert per_check == pytest.approx(7 * PRIOR[1], rel=1e-3)


@pytest.mark.parametrize(
    ("which", "observed"),
    [
        ("the point's", [(1.0, 1.0, 1.0), (4.0, 1.0, 0.5)]),
        ("the check's", [(1.0, 1.0, 1.0), (1.0, 4.0, 0.5)]),
    ],
)
def test_a_price_that_comes_out_negative_is_next_to_nothing_and_the_other_fits_alone(
    which: str, observed: list[tuple[float, float, float]]
) -> None:
    learner = PriceLearner(work(1.0, 1.0))
    for _ in range(200):
        for points, checks, busy in observed:
            observe(learner, points, checks, busy)
    least, kept = (0, 1) if which == "the point's" else (1, 0)
    prices = learner.prices
    # Nothing is free: a price is at least a twentieth of the prior, scaled to what was seen.
    # Least squares of 1 = price * amount / busy over amounts (1, 1) and (8, 2).
    assert prices[least] == pytest.approx(LEAST * (2 + 10) / (4 + 100), rel=0.05)
    assert prices[kept] == pytest.approx(3 / 5, rel=0.1)


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
    observe(fresh, *garbage)
    assert fresh.prices == PRIOR
    taught, untouched = PriceLearner(PRIOR), PriceLearner(PRIOR)
    for learner in (taught, untouched):
        teach(learner, (3e-6, 5e-8), rounds=5)
    observe(taught, *garbage)
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
        observe(learner, *observed)
        assert all(math.isfinite(price) and price >= 0 for price in learner.prices)


def test_when_the_prices_change_so_does_what_is_believed() -> None:
    learner = PriceLearner(PRIOR)
    teach(learner, (1e-6, 2e-8), rounds=200, seed=1)
    assert learner.prices[:2] == pytest.approx((1e-6, 2e-8), rel=0.01)
    teach(learner, (4e-6, 1e-8), rounds=100, seed=2)
    assert learner.prices[:2] == pytest.approx((4e-6, 1e-8), rel=0.05)


def test_the_prior_wears_off_as_rounds_come_in() -> None:
    learner = PriceLearner(PRIOR)
    teach(learner, (4e-6, 1e-8), rounds=1000)
    assert learner.prices[:2] == pytest.approx((4e-6, 1e-8), rel=0.02)


def test_memory_says_how_fast_the_past_is_forgotten() -> None:
    """After as many rounds as it remembers, the past weighs 1/e of what it did."""
    short, long = (
        PriceLearner(work(1.0, 0.0), memory=4.0),
        PriceLearner(work(1.0, 0.0), memory=400.0),
    )
    for learner in (short, long):
        for busy in [1.0] * 50 + [2.0] * 4:
            observe(learner, 1.0, 0.0, busy)
    assert short.prices[0] > 1.2 > long.prices[0]

    # Old: weight sum w, amounts 1; new: weight 1, amounts 1/2. Price = moment / gram.
    once = PriceLearner(work(1.0, 0.0), memory=1.0)
    observe(once, 1.0, 0.0, 1.0)
    observe(once, 1.0, 0.0, 2.0)
    w = math.exp(-1.0)
    assert once.prices[0] == pytest.approx((w + 0.5) / (w + 0.25))


def test_a_quiet_round_teaches_as_much_as_a_busy_one() -> None:
    """Relative errors count: the same mistake, made on a thousand times the points or not."""
    quiet_wrong, busy_wrong = PriceLearner(work(1.0, 0.0)), PriceLearner(work(1.0, 0.0))
    for learner, wrong, right in ((quiet_wrong, 1.0, 1000.0), (busy_wrong, 1000.0, 1.0)):
        for _ in range(400):
            observe(learner, wrong, 0.0, wrong * 2.0)
            observe(learner, right, 0.0, right * 1.0)
    assert quiet_wrong.prices[0] == pytest.approx(busy_wrong.prices[0])


@pytest.mark.parametrize("trust", [0.02, 1.0])
def test_the_prior_weighs_so_many_observations(trust: float) -> None:
    """Two rounds of memory 1, so the older weighs 1/e. Solved by hand, in relative amounts.

    The prior is told as one row for each price, whose scale is the one that fits both rounds best.
    Then once more, where the row of a price above its prior is scaled to that price.
    """
    older, newer = np.array([2.0, 1.0]), np.array([1.0, 3.0])
    weights = math.exp(-1.0), 1.0
    learner = PriceLearner(work(1.0, 2.0), memory=1.0, trust=trust)
    for amounts in (older, newer):
        observe(learner, amounts[0] * 10, amounts[1] * 10, 10.0)

    rounds = list(zip(weights, (older, newer), strict=True))
    prior = np.array([1.0, 2.0])
    told = [w * (a @ prior) for w, a in rounds]
    prior *= sum(told) / sum(w * (a @ prior) ** 2 for w, a in rounds)
    solved = prior
    for _ in range(2):
        unit = np.maximum(prior, solved)
        matrix = [math.sqrt(w) * a for w, a in rounds]
        matrix += [math.sqrt(trust) * row for row in np.diag(1 / unit)]
        wanted = [math.sqrt(w) for w in weights] + list(math.sqrt(trust) * prior / unit)
        solved, *_ = np.linalg.lstsq(np.array(matrix), np.array(wanted))
    assert learner.prices[:2] == pytest.approx(tuple(solved))


# -- the time of whole tasks --------------------------------------------------------------------

TRUE = Prices(per_point=9e-7, per_check=6e-9, per_match=5e-8, per_piece=8e-5, per_task=1.2e-2)


class Task(NamedTuple):
    points: float
    checks: float
    matches: float
    pieces: float
    seconds: float


def tasks(
    n: int, seed: int, *, noise: float = 0.15, stalled: float = 0.05, spread: float = 1.0
) -> list[Task]:
    """Tasks of 20 to 200 ms; ``spread`` says how much candidates and results vary by task."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(n):
        points = rng.uniform(5e3, 1e5)
        checks = points * 60 * rng.lognormal(0, 0.8 * spread)
        matches = points * 12 * rng.lognormal(0, 0.8 * spread)
        pieces = float(rng.integers(1, 60)) if spread else 10.0
        seconds = TRUE.of_task(points, checks, matches, pieces) * rng.lognormal(0, noise)
        seconds *= 10 if rng.random() < stalled else 1
        found.append(Task(points, checks, matches, pieces, float(seconds)))
    return found


def learnt_from(
    observed: list[Task], executors: int = 22, memory: float = 200.0, trust: float = TRUST_OF_TASKS
) -> Prices:
    """Prices after tasks that come in batches, with prices read after each batch."""
    learner = PriceLearner(memory=memory, trust=trust)
    for k, task in enumerate(observed):
        learner.observe(**task._asdict())
        if k % executors == executors - 1:
            assert min(learner.prices) >= 0
    return learner.prices


def error(prices: Prices, observed: list[Task]) -> FloatArray:
    """Relative errors of predicted times, without the noise."""
    points, checks, matches, pieces, _ = np.array(observed).T
    true = TRUE.of_task(points, checks, matches, pieces)
    return prices.of_task(points, checks, matches, pieces) / true - 1


@pytest.mark.parametrize("seed", range(5))
def test_planted_prices_are_recovered_though_some_tasks_stall(seed: int) -> None:
    prices = learnt_from(tasks(1000, seed))
    assert prices.per_point == pytest.approx(TRUE.per_point, rel=0.3)
    assert prices.per_check == pytest.approx(TRUE.per_check, rel=0.35)
    assert prices.per_match == pytest.approx(TRUE.per_match, rel=0.3)
    assert np.abs(error(prices, tasks(300, 99))).max() < 0.15


def test_without_noise_stalls_and_prior_the_prices_are_exact() -> None:
    prices = learnt_from(tasks(1000, 3, noise=0.0, stalled=0.0), memory=1e9, trust=1e-4)
    assert prices[:5] == pytest.approx(TRUE[:5], rel=0.02)


@pytest.mark.parametrize("seed", range(5))
def test_the_first_batch_already_predicts_the_next(seed: int) -> None:
    few = tasks(22, seed)
    assert np.median(np.abs(error(learnt_from(few), tasks(300, 99)))) < 0.25


@pytest.mark.parametrize("seed", range(5))
def test_where_amounts_grow_together_the_prior_says_which_is_dearer(seed: int) -> None:
    """Every point meets as many candidates and results as any other."""
    alike = tasks(1000, seed, spread=0.0)
    prices = learnt_from(alike)
    assert np.abs(error(prices, alike)).max() < 0.15
    assert prices.per_match / prices.per_check == pytest.approx(2.5, rel=0.5)
    assert 0.1 < prices.per_check / prices.per_point / (1e-8 / 4e-7) < 10


def test_tasks_that_are_all_alike_do_not_hide_what_makes_them_long() -> None:
    """Where work is balanced, the start of a task explains its time as well as its results do."""

    def even_task(rng: np.random.Generator) -> Task:
        points, checks, matches = rng.uniform(8e3, 1.2e4), *rng.normal((1.5e6, 3e5), (5e4, 1e4))
        seconds = TRUE.of_task(points, checks, matches, 8.0) * rng.lognormal(0, 0.3)
        return Task(points, checks, matches, 8.0, float(seconds))

    wrong = []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        prices = learnt_from([even_task(rng) for _ in range(200)])
        wrong.append(np.median(np.abs(error(prices, tasks(300, 99)))))
    assert max(wrong) < 0.4


def test_a_stalled_task_moves_the_prices_little() -> None:
    calm = tasks(200, 1, stalled=0.0)
    stalled = [*calm, calm[0]._replace(seconds=1000 * calm[0].seconds)]
    before, after = learnt_from(calm), learnt_from(stalled)
    assert after == pytest.approx(before, rel=0.05)


def test_operations_have_a_price_too() -> None:
    rng = np.random.default_rng(1)
    learner = PriceLearner(memory=200)
    for task in tasks(400, 2, noise=0.0, stalled=0.0):
        operations = float(rng.integers(0, 2000))
        seconds = task.seconds + 2e-5 * operations
        learner.observe(**task._replace(seconds=seconds)._asdict(), operations=operations)
    assert learner.prices.per_operation == pytest.approx(2e-5, rel=0.05)
    only = PriceLearner()
    only.observe(points=0, checks=0, operations=1000, seconds=1.0)
    assert only.prices != Prices(), "a task without points but with operations teaches"


def test_results_count_as_the_checks_that_cost_as_much() -> None:
    prices = Prices(per_check=2e-8, per_match=6e-8)
    assert prices.work(100.0, 10.0) == pytest.approx(130.0)
    assert prices.work(np.array([1.0, 2.0]), np.array([0.0, 1.0])) == pytest.approx([1.0, 5.0])
    assert WORK_ONLY._replace(per_check=0.0).work(4.0, 1.0) == 4.0
