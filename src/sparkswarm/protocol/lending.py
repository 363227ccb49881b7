"""Lending: which executor matches each point of a chunk, by the prices of the points.

Owns the division of one chunk's work; it knows neither state nor plan. Runs in a route task, once
a chunk of about 100,000 points, before the first is sent. Deterministic: the retry of a task lends
the same points. Each chunk is balanced for itself, so the batch is, and no task waits for another.
Differs from the paper, whose points are matched where their partition lives.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sparkswarm.compiled import BoolArray, FloatArray, IntArray, LongArray, compiled
from sparkswarm.errors import ProtocolError

MARGIN = 0.01
"""Fraction of the mean by which a load may exceed it: the cap of lenders and borrowers."""

LEAST_GAIN = 0.02
"""Fraction of the mean by which the largest load must fall, or nothing is lent."""

SMALLEST_LOAN = 0.003
"""Fraction of the cap below which a surplus, or room, is not worth a loan of its own."""


MOST_FETCHING = 1.0
"""Cost of fetching queries, as a share of the work that is lent, above which nothing is lent."""

NO_FETCHING: FloatArray = np.empty((0, 0))
"""Where all hosts have all queries, or it does not matter."""


class Lent(NamedTuple):
    """Who matches each point of a chunk, and the loans, in the order they were made.

    Attributes
    ----------
    executor
        The executor that matches each point; -1 where the point is not routed.
    lender, borrower, slot
        Of each loan: its executors, and the slot of the partition. No loan occurs twice.
    points
        Number of points of each loan.
    """

    executor: IntArray
    lender: IntArray
    borrower: IntArray
    slot: IntArray
    points: LongArray


def lend(
    price: FloatArray,
    slot: IntArray,
    owner: IntArray,
    executors: int,
    host: IntArray | None = None,
    slots: int | None = None,
    fetching: FloatArray | None = None,
) -> Lent:
    """Divide a chunk's points evenly: executors above the mean lend points to those below.

    Executors above the cap lend, highest first: of their (slot, owner) groups, costliest first,
    points go in the chunk's order to the executor with the least load until either is at the cap.
    A borrower on a host without the queries bears the cost of fetching them too, in proportion to
    what it borrows of the group. The largest load, with that, is never above what it was without
    lending. A chunk that is even already costs one pass.

    Parameters
    ----------
    price
        Cost of each point, finite and not negative, in any unit.
    slot
        Position of each point's partition in the plan; -1 where the point is not routed.
    owner
        The executor that owns each point. A shared partition has several.
    executors
        Number of executors.
    host
        Host of each executor, from 0. Borrowers on the lender's own host are preferred.
    slots
        Number of partitions in the plan; by default as many as the points need.
    fetching
        Cost, in the unit of ``price``, of fetching the queries of each partition to each host, of
        shape (slots, hosts); 0 where the host has them. Borrowers on other hosts than the lender's
        are those where it is least, and at most ``MOST_FETCHING`` of the group's cost.

    Raises
    ------
    ProtocolError
        If a point's owner or slot is not one of those.
    """
    price = np.ascontiguousarray(price, dtype=np.float64)
    slot = np.ascontiguousarray(slot, dtype=np.int32)
    owner = np.ascontiguousarray(owner, dtype=np.int32)
    if not len(price) == len(slot) == len(owner):
        raise ProtocolError(f"{len(price)} prices, {len(slot)} slots, {len(owner)} owners")
    load, executor, last_slot = _add_up(price, slot, owner, executors)
    if last_slot == BAD_OWNER or (slots is not None and last_slot >= slots):
        raise ProtocolError(f"a point's owner or slot is not among {executors} and {slots}")
    cap = float(load.mean()) * (1.0 + MARGIN) if executors else 0.0
    gain = LEAST_GAIN * cap
    # NaN and infinity compare false: where prices are no numbers, nothing is lent.
    if load.max(initial=0.0) >= cap + gain > cap:
        one_host = np.zeros(executors, dtype=np.int32)
        host = one_host if host is None else np.ascontiguousarray(host, dtype=np.int32)
        if len(host) != executors:
            raise ProtocolError(f"{len(host)} hosts of {executors} executors")
        if fetching is None:
            fetching = NO_FETCHING
        elif fetching.shape[0] <= last_slot or fetching.shape[1] <= host.max():
            raise ProtocolError(
                f"slot {last_slot} and host {host.max()} are not in {fetching.shape}"
            )
        lent = executor.copy()
        before = float(load.max())
        loans = _lend(price, slot, owner, load, lent, cap, host, last_slot + 1, fetching)
        if before - float(load.max()) >= gain:
            return Lent(lent, *loans)
    none = np.empty(0, dtype=np.int32)
    return Lent(executor, none, none, none, np.empty(0, dtype=np.int64))


def lend_among_hosts(
    price: FloatArray,
    slot: IntArray,
    owner: IntArray,
    executors: int,
    host: IntArray,
    slots: int,
    fetching: FloatArray,
) -> Lent:
    """Divide a chunk's points evenly as :func:`lend` does, and then within each busy host.

    A host that is left above the mean, because fetching is dear, divides evenly what it has: there
    nothing is fetched. The largest load is never above what it was without lending.
    """
    lent = lend(price, slot, owner, executors, host, slots, fetching)
    executor = lent.executor
    load = np.bincount(executor + 1, price, executors + 1)[1:]
    busy_hosts = np.unique(host[load > load.mean() * (1.0 + MARGIN)])
    if not len(busy_hosts):
        return lent
    for busy in busy_hosts:
        mates = np.flatnonzero(host == busy).astype(np.int32)
        number = np.full(executors + 1, -1, dtype=np.int32)
        number[mates] = np.arange(len(mates))
        here = np.flatnonzero(number[executor] >= 0)
        within = lend(price[here], slot[here], number[executor[here]], len(mates))
        executor[here] = mates[within.executor]
    away = np.flatnonzero((executor >= 0) & (executor != owner))
    pairs = owner[away].astype(np.int64) * executors + executor[away]
    loans, points = np.unique(pairs * slots + slot[away], return_counts=True)
    pairs, of = np.divmod(loans, slots)
    lender, borrower = np.divmod(pairs, executors)
    lender, borrower, of = (part.astype(np.int32) for part in (lender, borrower, of))
    return Lent(executor, lender, borrower, of, points)


class Agreed(NamedTuple):
    """Loans of load that divides at will: the group, the borrower and the amount of each."""

    group: LongArray
    borrower: IntArray
    amount: FloatArray


def agree(
    owner: IntArray, cost: FloatArray, executors: int, host: IntArray | None = None
) -> Agreed:
    """Agree on loans between groups of known cost, as :func:`lend` does before it deals points.

    ``owner`` and ``cost`` are of one (partition, owner) group each; for models without points.
    """
    load: FloatArray = np.bincount(owner, cost, executors).astype(np.float64)
    cap = float(load.mean()) * (1.0 + MARGIN)
    if not load.max() >= cap * (1.0 + LEAST_GAIN) > cap:
        cap = np.inf
    hosts = np.zeros(executors, dtype=np.int32) if host is None else host.astype(np.int32)
    lends = load > cap
    lenders = np.flatnonzero(lends[owner])
    own = owner[lenders].astype(np.int32)
    _, group, borrower, amount, _ = _agree(
        load, lends, hosts, own, np.zeros_like(own), NO_FETCHING, cost[lenders], cap
    )
    return Agreed(lenders[group], borrower, amount)


BAD_OWNER = -2
"""Instead of the last slot: a point's owner is not an executor."""


@compiled
def _add_up(
    price: FloatArray, slot: IntArray, owner: IntArray, executors: int
) -> tuple[FloatArray, IntArray, int]:
    """Return the load of each executor, the owner of each routed point, and the last slot."""
    load = np.zeros(executors, dtype=np.float64)
    executor = np.empty(len(slot), dtype=np.int32)
    last_slot = -1
    for i in range(len(slot)):
        if slot[i] < 0:
            executor[i] = -1
            continue
        m = owner[i]
        if m < 0 or m >= executors:
            return load, executor, BAD_OWNER
        executor[i] = m
        load[m] += price[i]
        last_slot = max(last_slot, slot[i])
    return load, executor, last_slot


@compiled
def _lend(
    price: FloatArray,
    slot: IntArray,
    owner: IntArray,
    load: FloatArray,
    executor: IntArray,
    cap: float,
    host: IntArray,
    slots: int,
    fetching: FloatArray,
) -> tuple[IntArray, IntArray, IntArray, LongArray]:
    """Change ``executor`` and ``load`` by what is lent; return the loans.

    Two passes over the points: what each group of a lender costs, and, after the loans have been
    agreed on as if load divided at will, who matches which point.
    """
    lends = load > cap
    head, following, group_slot, group_owner, cost = _groups(price, slot, owner, lends, slots)
    end, group, borrower, amount, factor = _agree(
        load, lends, host, group_owner, group_slot, fetching, cost, cap
    )
    lent = np.zeros(len(amount), dtype=np.int64)
    present = np.zeros(len(cost), dtype=np.int64)
    for loan in range(len(group) - 1, -1, -1):
        present[group[loan]] = loan
    for i in range(len(slot)):
        if slot[i] < 0 or not lends[owner[i]]:
            continue
        g = head[slot[i]]
        while group_owner[g] != owner[i]:
            g = following[g]
        if load[owner[i]] <= cap or price[i] <= 0:
            continue
        for loan in range(present[g], end[g]):
            to = borrower[loan]
            # No sum of whole points is the amount exactly, but the cap holds exactly.
            if amount[loan] > 0 and load[to] + factor[loan] * price[i] <= cap:
                executor[i] = to
                load[owner[i]] -= price[i]
                load[to] += factor[loan] * price[i]
                amount[loan] -= price[i]
                lent[loan] += 1
                break
            if loan == present[g] and (amount[loan] <= 0 or load[to] >= cap * (1 - SMALLEST_LOAN)):
                present[g] += 1
                if loan + 1 < end[g]:
                    amount[loan + 1] += amount[loan]
    made = np.flatnonzero(lent)
    return group_owner[group[made]], borrower[made], group_slot[group[made]], lent[made]


@compiled
def _groups(
    price: FloatArray, slot: IntArray, owner: IntArray, lends: BoolArray, slots: int
) -> tuple[IntArray, IntArray, IntArray, IntArray, FloatArray]:
    """Return the lenders' (slot, owner) groups as linked lists by slot.

    The first group of each slot, the next of the same slot, and each group's slot, owner and cost.
    Only a shared partition has more than one.
    """
    head = np.full(slots, -1, dtype=np.int32)
    following = np.empty(len(slot), dtype=np.int32)
    group_slot = np.empty(len(slot), dtype=np.int32)
    group_owner = np.empty(len(slot), dtype=np.int32)
    cost = np.empty(len(slot), dtype=np.float64)
    count = 0
    for i in range(len(slot)):
        if slot[i] < 0 or not lends[owner[i]]:
            continue
        g = head[slot[i]]
        while g >= 0 and group_owner[g] != owner[i]:
            g = following[g]
        if g < 0:
            g = np.int32(count)
            following[g], head[slot[i]] = head[slot[i]], g
            group_slot[g], group_owner[g], cost[g] = slot[i], owner[i], 0.0
            count += 1
        cost[g] += price[i]
    return head, following, group_slot[:count], group_owner[:count], cost[:count]


@compiled
def _agree(
    load: FloatArray,
    lends: BoolArray,
    host: IntArray,
    group_owner: IntArray,
    group_slot: IntArray,
    fetching: FloatArray,
    cost: FloatArray,
    cap: float,
) -> tuple[LongArray, LongArray, IntArray, FloatArray, FloatArray]:
    """Agree on the loans as if load divided at will. Loans of one group follow each other.

    Returns the end of each group's loans, and the group, borrower and amount of each loan, and by
    which factor fetching makes it dearer for the borrower.
    """
    load = load.copy()
    rank = np.empty(len(load), dtype=np.int64)
    rank[np.argsort(-load, kind="mergesort")] = np.arange(len(load))
    # By lender, the highest load first, then by cost; mergesort is stable: ties keep their order.
    costliest = np.argsort(-cost, kind="mergesort")
    ranked = costliest[np.argsort(rank[group_owner[costliest]], kind="mergesort")]
    group = np.empty(16, dtype=np.int64)
    borrower = np.empty(16, dtype=np.int32)
    amount = np.empty(16, dtype=np.float64)
    factor = np.empty(16, dtype=np.float64)
    end = np.zeros(len(cost), dtype=np.int64)
    loans = 0
    for g in ranked:
        lender = group_owner[g]
        to_hosts = fetching[group_slot[g]] if len(fetching) else fetching[:1].ravel()
        rest = cost[g]
        while rest > 0 and load[lender] - cap > SMALLEST_LOAN * cap:
            to = _least_loaded(load, lends, host, host[lender], to_hosts, cost[g], cap)
            if to < 0:
                break
            dearer = 1.0
            if len(to_hosts) and host[to] != host[lender]:
                dearer += to_hosts[host[to]] / cost[g]
            if loans == len(amount):
                group = np.append(group, np.empty_like(group))
                borrower = np.append(borrower, np.empty_like(borrower))
                amount = np.append(amount, np.empty_like(amount))
                factor = np.append(factor, np.empty_like(factor))
            lent = min(rest, load[lender] - cap, (cap - load[to]) / dearer)
            group[loans], borrower[loans], amount[loans], factor[loans] = g, to, lent, dearer
            loans += 1
            end[g] = loans
            rest -= lent
            load[lender] -= lent
            load[to] = load[to] + lent * dearer if lent * dearer < cap - load[to] else cap
    return end, group[:loans], borrower[:loans], amount[:loans], factor[:loans]


@compiled
def _least_loaded(
    load: FloatArray,
    lends: BoolArray,
    host: IntArray,
    near: int,
    fetching: FloatArray,
    cost: float,
    cap: float,
) -> int:
    """Return the least loaded executor below the cap, or -1.

    Those on the host ``near`` come first, then those whose host needs the least of ``fetching``,
    of queries of a group of this cost.
    """
    found, least = -1, np.inf
    for m in range(len(load)):
        if lends[m] or cap - load[m] <= SMALLEST_LOAN * cap:
            continue
        needed = -1.0
        if host[m] != near:
            needed = fetching[host[m]] if len(fetching) else 0.0
            if needed > MOST_FETCHING * cost:
                continue
        if needed < least or (needed == least and load[m] < load[found]):
            found, least = m, needed
    return found
