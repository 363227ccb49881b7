"""Lending: nothing lost, nothing twice, never worse, few pairs, the own host first."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkswarm.errors import ProtocolError
from sparkswarm.protocol.lending import (
    LEAST_GAIN,
    MARGIN,
    MOST_FETCHING,
    SMALLEST_LOAN,
    Lent,
    agree,
    lend,
    lend_among_hosts,
)


def reference(price, slot, owner, executors, host, slots=None, fetching=None):
    """The same dealing in plain Python: dictionaries and lists, group by group.

    Returns the executor of each point and the loans, or None where nothing is worth lending.
    """
    routed = [i for i in range(len(slot)) if slot[i] >= 0]
    load = [0.0] * executors
    for i in routed:
        load[owner[i]] += price[i]
    # numpy adds pairwise from eight numbers on, and the cap must be the same to the last bit.
    cap = float(np.mean(load)) * (1 + MARGIN)
    gain, before = LEAST_GAIN * cap, max(load)
    if not before >= cap + gain > cap:
        return None
    small = SMALLEST_LOAN * cap
    lenders = [m for m in sorted(range(executors), key=lambda m: -load[m]) if load[m] > cap]
    groups: dict[tuple[int, int], float] = {}
    for i in routed:
        if owner[i] in lenders:
            groups[slot[i], owner[i]] = groups.get((slot[i], owner[i]), 0.0) + price[i]
    agreed, planned = [], list(load)

    def needed(key, m):
        """What fetching the group's queries to an executor costs; less than nothing near by."""
        if host[m] == host[key[1]]:
            return -1.0
        return 0.0 if fetching is None else fetching[key[0]][host[m]]

    for lender in lenders:
        own = [key for key in groups if key[1] == lender]
        for key in sorted(own, key=lambda key: -groups[key]):
            rest = groups[key]
            while rest > 0 and planned[lender] - cap > small:
                room = [
                    m
                    for m in range(executors)
                    if m not in lenders
                    and cap - planned[m] > small
                    and needed(key, m) <= MOST_FETCHING * groups[key]
                ]
                if not room:
                    break
                to = min(room, key=lambda m: (needed(key, m), planned[m]))
                dearer = 1 + max(0.0, needed(key, to)) / groups[key]
                amount = min(rest, planned[lender] - cap, (cap - planned[to]) / dearer)
                agreed.append([key, to, amount, 0, dearer])
                rest -= amount
                planned[lender] -= amount
                more = amount * dearer
                planned[to] = planned[to] + more if more < cap - planned[to] else cap
    executor = [-1 if slot[i] < 0 else owner[i] for i in range(len(slot))]
    closed: set[int] = set()
    for i in routed:
        if load[owner[i]] <= cap or price[i] <= 0 or owner[i] not in lenders:
            continue
        mine = [k for k, loan in enumerate(agreed) if loan[0] == (slot[i], owner[i])]
        for k in [k for k in mine if k not in closed]:
            _, to, amount, _, dearer = agreed[k]
            if amount > 0 and load[to] + dearer * price[i] <= cap:
                executor[i] = to
                load[owner[i]] -= price[i]
                load[to] += dearer * price[i]
                agreed[k][2] -= price[i]
                agreed[k][3] += 1
                break
            open_ones = [k for k in mine if k not in closed]
            if k == open_ones[0] and (amount <= 0 or load[to] >= cap * (1 - SMALLEST_LOAN)):
                closed.add(k)
                if len(open_ones) > 1:
                    agreed[open_ones[1]][2] += amount
    if before - max(load) < gain:
        return None
    return executor, [(key[1], to, key[0], n) for key, to, _, n, _ in agreed if n]


def rows(lent: Lent) -> list[tuple[int, int, int, int]]:
    return list(zip(*(part.tolist() for part in lent[1:]), strict=True))


@st.composite
def chunks(draw):
    """A chunk, and the hosts: some partitions are shared, some points are not routed."""
    executors = draw(st.integers(1, 7))
    slots = draw(st.integers(1, 9))
    size = draw(st.integers(0, 150))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    likely = rng.dirichlet(np.full(slots, draw(st.sampled_from([0.2, 1.0, 50.0]))))
    slot = np.where(rng.random(size) < 0.05, -1, rng.choice(slots, size, p=likely))
    owners = rng.integers(0, executors, (slots, 2))
    shared = rng.random(slots) < 0.3
    pick = np.where(shared[slot], rng.integers(0, 2, size), 0)
    values = draw(
        st.lists(st.sampled_from([0.0, 0.5, 1.0, 1.0, 1.0, 2.0, 7.5]), min_size=1, max_size=4)
    )
    price = rng.choice(values, size) * rng.choice([1.0, 1.1], size)
    host = rng.integers(0, draw(st.integers(1, 3)), executors)
    owner = np.where(slot < 0, -1, owners[slot, pick])
    return (
        price.astype(np.float64),
        slot.astype(np.int32),
        owner.astype(np.int32),
        executors,
        host.astype(np.int32),
    )


def loads(price, executor, executors):
    routed = executor >= 0
    return np.bincount(executor[routed], price[routed], minlength=executors)


@given(chunks())
def test_as_in_plain_python(chunk):
    lent = lend(*chunk)
    expected = reference(*(part.tolist() if hasattr(part, "tolist") else part for part in chunk))
    if expected is None:
        assert rows(lent) == []
        assert lent.executor.tolist() == np.where(chunk[1] < 0, -1, chunk[2]).tolist()
    else:
        assert (lent.executor.tolist(), rows(lent)) == expected


@st.composite
def chunks_to_fetch(draw):
    """A chunk, the number of slots, and what fetching each partition to each host costs."""
    chunk = draw(chunks())
    slots = int(chunk[1].max(initial=0)) + 1
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    dear = draw(st.sampled_from([0.1, 3.0, 30.0, 1e9]))
    return (*chunk, slots, rng.choice([0.0, 0.3, 1.0], (slots, 3)) * dear)


@given(chunks_to_fetch())
def test_what_must_be_fetched_counts_as_in_plain_python(chunk):
    lent = lend(*chunk)
    expected = reference(*(part.tolist() if hasattr(part, "tolist") else part for part in chunk))
    if expected is None:
        assert rows(lent) == []
    else:
        assert (lent.executor.tolist(), rows(lent)) == expected


@given(chunks_to_fetch())
def test_with_what_is_fetched_the_largest_load_is_not_above_that_without_lending(chunk):
    price, slot, owner, executors, host, _, fetching = chunk
    lent = lend(*chunk)
    assert ((lent.executor >= 0) == (slot >= 0)).all()
    before = loads(price, np.where(slot < 0, -1, owner), executors)
    after = loads(price, lent.executor, executors)
    for lender, borrower, of, _ in rows(lent):
        cost = price[(slot == of) & (owner == lender)].sum()
        part = price[(slot == of) & (owner == lender) & (lent.executor == borrower)].sum()
        if host[borrower] != host[lender]:
            assert fetching[of, host[borrower]] <= MOST_FETCHING * cost * (1 + 1e-12)
            after[borrower] += fetching[of, host[borrower]] * part / cost
    assert after.max() <= before.max() * (1 + 1e-12)
    if rows(lent):
        assert after.max() < before.max() - LEAST_GAIN * before.mean() * 0.99


@given(chunks_to_fetch())
def test_among_hosts_nothing_is_lost_and_what_is_lent_beyond_stays_on_its_host(chunk):
    price, slot, owner, executors, host, *_ = chunk
    lent, first = lend_among_hosts(*chunk), lend(*chunk)
    assert ((lent.executor >= 0) == (slot >= 0)).all()
    elsewhere = (slot >= 0) & (lent.executor != owner)
    keys = zip(owner[elsewhere], lent.executor[elsewhere], slot[elsewhere], strict=True)
    assert Counter(keys) == {loan[:3]: loan[3] for loan in rows(lent)}
    before, after = (loads(price, one.executor, executors) for one in (first, lent))
    assert after.max() <= before.max() * (1 + 1e-12)
    moved = lent.executor != first.executor
    assert (host[lent.executor[moved]] == host[first.executor[moved]]).all()


def test_a_busy_host_divides_its_work_where_no_other_takes_it():
    """Executors 0 and 1 are on host 0, which has most of the work."""
    slot, host = np.int32([0] * 300 + [1] * 200 + [2] * 10), np.int32([0, 0, 1])
    dear = np.full((3, 2), 1e9)
    assert rows(lend(np.ones(510), slot, slot, 3, host, 3, dear)) == []
    lent = lend_among_hosts(np.ones(510), slot, slot, 3, host, 3, dear)
    assert [loan[:3] for loan in rows(lent)] == [(0, 1, 0)]
    assert np.bincount(lent.executor)[:2] == pytest.approx([250, 250], abs=3)


def test_what_costs_more_to_fetch_than_it_is_worth_stays_on_its_host():
    """Executors 0 and 1 are on host 0; 2, with least load, on host 1."""
    slot, host = np.int32([0] * 300 + [1] * 100), np.int32([0, 0, 1])
    cheap, dear = (np.full((2, 2), cost) for cost in (3.0, 301.0))
    assert {b for _, b, _, _ in rows(lend(np.ones(400), slot, slot, 3, host, 2, cheap))} == {1, 2}
    assert {b for _, b, _, _ in rows(lend(np.ones(400), slot, slot, 3, host, 2, dear))} == {1}


def test_a_host_that_has_the_queries_comes_before_one_with_less_load():
    slot, host = np.int32([0] * 300 + [1] * 50), np.arange(3, dtype=np.int32)
    fetching = np.array([[0.0, 0.0, 30.0], [0.0, 0.0, 0.0]])
    assert next(b for _, b, _, _ in rows(lend(np.ones(350), slot, slot, 3, host, 2, fetching))) == 1
    assert next(b for _, b, _, _ in rows(lend(np.ones(350), slot, slot, 3, host))) == 2


def test_what_fetching_costs_must_be_known_for_every_slot():
    price, slot = np.ones(9), np.zeros(9, np.int32)
    with pytest.raises(ProtocolError, match="slot 0 and host 0 are not in"):
        lend(price, slot, slot, 2, fetching=np.zeros((0, 1)))


@given(chunks())
def test_nothing_is_lost_nothing_is_lent_twice_and_never_worse(chunk):
    price, slot, owner, executors, _ = chunk
    lent = lend(*chunk)
    assert lent.executor.dtype == np.int32
    assert ((lent.executor >= 0) == (slot >= 0)).all()
    assert (lent.executor < executors).all()
    # The loans say exactly what was lent.
    elsewhere = (slot >= 0) & (lent.executor != owner)
    keys = zip(owner[elsewhere], lent.executor[elsewhere], slot[elsewhere], strict=True)
    counted: dict[tuple[int, int, int], int] = {}
    for key in keys:
        counted[key] = counted.get(key, 0) + 1
    assert counted == {loan[:3]: loan[3] for loan in rows(lent)}
    assert len(counted) == len(rows(lent)), "a (lender, borrower, partition) occurs once"
    before = loads(price, np.where(slot < 0, -1, owner), executors)
    after = loads(price, lent.executor, executors)
    assert after.max() <= before.max() * (1 + 1e-12)
    if rows(lent):
        assert after.max() < before.max() - LEAST_GAIN * before.mean() * 0.99
        assert set(lent.lender).isdisjoint(lent.borrower), "nobody both lends and borrows"
        cap = before.mean() * (1 + MARGIN)
        assert (after[lent.borrower] <= cap * (1 + 1e-9)).all()
        assert (before[lent.lender] > cap).all()


@given(chunks())
def test_the_same_chunk_is_lent_the_same_way(chunk):
    first, second = lend(*chunk), lend(*chunk)
    assert all((a == b).all() for a, b in zip(first, second, strict=True))


@given(chunks(), st.integers(0, 5))
def test_points_of_a_group_go_in_runs_of_the_chunks_order(chunk, extra):
    """Where all points cost the same, each loan is one run, and what stays comes last."""
    price, slot, owner, executors, host = chunk
    price = np.ones_like(price)
    lent = lend(price, slot, owner, executors, host, 9 + extra)
    for s, m in {(s, m) for m, _, s, _ in rows(lent)}:
        to = lent.executor[(slot == s) & (owner == m)].tolist()
        runs = [m for k, m in enumerate(to) if k == 0 or to[k - 1] != m]
        assert len(runs) == len(set(runs))
        assert m not in runs[:-1]


def skewed(rng, executors=22, slots=80, size=50_000, hot=0.3):
    """Points of equal partitions, and a hotspot in one of them."""
    slot = np.where(rng.random(size) < hot, 3, rng.integers(0, slots, size)).astype(np.int32)
    price = 1 + 0.05 * rng.poisson(40, size)
    return price, slot, (slot % executors).astype(np.int32), executors


@settings(max_examples=30)
@given(st.integers(0, 1000), st.floats(0.0, 0.8))
def test_a_large_chunk_ends_up_even_in_few_pairs(seed, hot):
    price, slot, owner, executors = skewed(np.random.default_rng(seed), size=20_000, hot=hot)
    lent = lend(price, slot, owner, executors)
    before = loads(price, owner, executors)
    after = loads(price, lent.executor, executors)
    if before.max() > before.mean() * 1.04:
        assert after.mean() / after.max() > 0.975
    assert len(lent.points) <= 2 * executors


@settings(max_examples=30)
@given(st.integers(0, 1000), st.floats(0.0, 0.8))
def test_where_fetching_is_dear_a_busy_host_ends_up_even_in_itself(seed, hot):
    price, slot, owner, executors = skewed(np.random.default_rng(seed), size=20_000, hot=hot)
    host = np.arange(executors, dtype=np.int32) % 4
    dear = np.full((80, 4), 1e9)
    lent = lend_among_hosts(price, slot, owner, executors, host, 80, dear)
    after = loads(price, lent.executor, executors)
    assert (host[lent.lender] == host[lent.borrower]).all()
    for one in range(4):
        here = after[host == one]
        if here.mean() > after.mean() * 1.04:
            assert here.mean() / here.max() > 0.975


def test_an_even_chunk_lends_nothing():
    slot = np.arange(10_000, dtype=np.int32) % 40
    lent = lend(np.ones(10_000), slot, slot % 8, 8)
    assert rows(lent) == []
    assert (lent.executor == slot % 8).all()


@pytest.mark.parametrize(("extra", "lends"), [(0.005, False), (0.025, False), (0.04, True)])
def test_what_is_lent_must_gain_enough(extra, lends):
    """One executor has that much more than nine others."""
    slot = np.arange(10, dtype=np.int32).repeat(1000)
    price = np.ones(10_000)
    price[:1000] = 1 + extra
    assert bool(rows(lend(price, slot, slot, 10))) is lends


def test_one_point_that_is_dearer_than_the_mean_stays_where_it_is():
    lent = lend(np.array([100.0, 1.0]), np.int32([0, 1]), np.int32([0, 1]), 3)
    assert rows(lent) == []


def test_two_dear_points_are_parted():
    lent = lend(np.array([8.0, 8.0]), np.int32([0, 0]), np.int32([0, 0]), 2)
    assert lent.executor.tolist() == [1, 0]
    assert rows(lent) == [(0, 1, 0, 1)]


def test_the_costliest_partition_of_the_highest_is_lent_first():
    slot = np.int32([0] * 100 + [1] * 300 + [2] * 500)
    owner = np.int32([0] * 400 + [1] * 500)
    lent = lend(np.ones(900), slot, owner, 4)
    assert next((m, s) for m, _, s, _ in rows(lent)) == (1, 2)
    assert (0, 0) not in {(m, s) for m, _, s, _ in rows(lent)}


def test_borrowers_on_the_lenders_host_come_first():
    """Executors 1 and 2 share the lender's host; 3, with less load, is on another."""
    slot = np.int32([0] * 180 + [1] * 30 + [2] * 30)
    host = np.int32([7, 7, 7, 9])
    lent = lend(np.ones(240), slot, slot, 4, host)
    assert rows(lent)[:2] == [(0, 1, 0, 30), (0, 2, 0, 30)]
    assert {b for _, b, _, _ in rows(lent)[2:]} == {3}
    nobody_near = lend(np.ones(240), slot, slot, 4, np.arange(4, dtype=np.int32))
    assert next(b for _, b, _, _ in rows(nobody_near)) == 3


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_prices_that_are_no_numbers_lend_nothing(bad):
    slot = np.int32([0] * 10 + [1])
    price = np.full(11, 1.0)
    price[3] = bad
    assert rows(lend(price, slot, slot, 2)) == []


@pytest.mark.parametrize(
    ("slot", "owner", "executors", "slots", "host"),
    [
        pytest.param([0], [1], 1, None, None, id="no such executor"),
        pytest.param([0], [-1], 1, None, None, id="no owner"),
        pytest.param([4], [0], 1, 4, None, id="no such slot"),
        pytest.param([0, 0], [0, 0], 2, None, [0], id="a host is missing"),
        pytest.param([0, 0, 0], [0, 0], 2, None, None, id="an owner is missing"),
    ],
)
def test_what_does_not_fit_together_is_refused(slot, owner, executors, slots, host):
    hosts = None if host is None else np.int32(host)
    with pytest.raises(ProtocolError):
        lend(np.ones(2)[: len(owner)], np.int32(slot), np.int32(owner), executors, hosts, slots)


def test_no_points_and_nobody():
    empty = np.empty(0, dtype=np.int32)
    assert lend(np.empty(0), empty, empty, 5).executor.shape == (0,)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 10_000)), min_size=1, max_size=20))
def test_load_that_divides_at_will_is_levelled_to_the_cap(groups):
    owner = np.array([m for m, _ in groups], dtype=np.int32)
    cost = np.array([c for _, c in groups]) / 100
    agreed = agree(owner, cost, 6)
    load = np.bincount(owner, cost, 6)
    after = load.copy()
    np.subtract.at(after, owner[agreed.group], agreed.amount)
    np.add.at(after, agreed.borrower, agreed.amount)
    lent = np.bincount(agreed.group, agreed.amount, len(cost)) if len(agreed.group) else 0 * cost
    assert (lent <= cost * (1 + 1e-9)).all()
    assert after.max() <= max(load.max(), 1e-300) * (1 + 1e-9)
    if load.max() > load.mean() * (1 + MARGIN) * (1 + LEAST_GAIN):
        assert after.max() <= load.mean() * (1 + MARGIN) * (1 + 2 * SMALLEST_LOAN)
    else:
        assert len(agreed.group) == 0
