"""The ledger: operations on queries, compared with a dict that is told the same."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sparkswarm.store import ledger
from sparkswarm.store.ledger import Bucket, LedgerFault, LedgerUpdate, apply_operations, bucket_of
from sparkswarm.store.queries import NEVER, Op, Operations, Queries, positions_of

LOWEST, HIGHEST = -(2**63), 2**63 - 1
IDS = (0, 1, 2, 3, -1, 7, LOWEST, LOWEST + 1, HIGHEST, HIGHEST - 1, 2**40)
Known = dict[int, tuple[tuple[float, ...], int]]


class Operation(NamedTuple):
    """One operation; ``lives`` counts from the batch's present."""

    op: Op
    id: int
    lives: int | None
    order: int


class Batch(NamedTuple):
    """Operations, the time that passes before them, and how late points may come."""

    operations: list[Operation]
    passes: int
    late: int


OPERATIONS = st.builds(
    Operation,
    st.sampled_from(Op),
    st.sampled_from(IDS),
    st.one_of(st.none(), st.integers(-2, 6)),
    st.integers(-2, 2),
)
BATCHES = st.builds(Batch, st.lists(OPERATIONS, max_size=12), st.integers(0, 4), st.integers(0, 3))
HISTORIES = st.lists(BATCHES, min_size=1, max_size=10)
DELTA_LEAST = st.sampled_from([0, 1, 2, 4, 8, 1024])


def arrays_of(batch: Batch, now: int, serial: int) -> Operations:
    """Return a batch in columns, every rectangle another."""
    n = len(batch.operations)
    boxes = 1000.0 * serial + np.arange(4.0 * n).reshape(n, 4)
    expires = [NEVER if o.lives is None else now + o.lives for o in batch.operations]
    return Operations(
        np.array([o.op for o in batch.operations], dtype=np.int8),
        Queries(
            np.array([o.id for o in batch.operations], dtype=np.int64),
            boxes,
            np.array(expires, dtype=np.int64),
        ),
        np.array([o.order for o in batch.operations], dtype=np.int64),
    )


def listed(queries: Queries) -> Known:
    """Return queries as a dict; each id must be there once."""
    assert len(set(queries.ids.tolist())) == len(queries.ids)
    return {
        key: (tuple(box), expires)
        for key, box, expires in zip(
            queries.ids.tolist(), queries.boxes.tolist(), queries.expires.tolist(), strict=True
        )
    }


class Oracle:
    """A dict of the registered queries."""

    def __init__(self) -> None:
        self.known: Known = {}

    def settle(self, operations: Operations, now: int) -> tuple[list[int], Known, Known]:
        """Return faults, and what was taken out and put in for good."""
        before = dict(self.known)
        queries = operations.queries
        fault = [0] * len(operations.op)
        touched = set()
        for i in sorted(range(len(fault)), key=lambda i: int(operations.order[i])):
            key, op = int(queries.ids[i]), operations.op[i]
            is_registered = key in self.known and self.known[key][1] > now
            # Something registered in this batch is there for the rest of it, whatever its expiry.
            is_registered |= key in self.known and key in touched
            if op == Op.REGISTER and is_registered:
                fault[i] = LedgerFault.DUPLICATE
            elif op != Op.REGISTER and not is_registered:
                fault[i] = LedgerFault.UNKNOWN
            else:
                touched.add(key)
                self.known.pop(key, None)
                if op != Op.UNREGISTER:
                    self.known[key] = (tuple(queries.boxes[i].tolist()), int(queries.expires[i]))
        removed = {key: before[key] for key in touched if key in before}
        added = {key: self.known[key] for key in touched if key in self.known}
        return fault, removed, added

    def purge(self, before: int) -> None:
        self.known = {key: value for key, value in self.known.items() if value[1] >= before}


def reread(bucket: Bucket) -> Bucket:
    """Send a bucket through a file."""
    return Bucket.from_bytes(bucket.to_bytes())


def contents(base: Bucket, delta: Bucket) -> Known:
    """Return what a bucket says is registered, and check its form."""
    for part in (base, delta):
        ids = part.queries.ids
        assert (ids[1:] > ids[:-1]).all(), "not sorted, or an id twice"
        assert set(part.registered.tolist()) <= {0, 1}
        assert {len(column) for column in part.queries[:3]} == {len(part.registered)}
    assert (base.registered == 1).all()
    found = listed(base.queries)
    unregistered = set(delta.queries.ids[delta.registered == 0].tolist())
    assert unregistered <= set(found), "an id is unregistered that the base does not have"
    for key in delta.queries.ids.tolist():
        found.pop(key, None)
    return found | listed(delta.queries.take(delta.registered == 1))


@given(HISTORIES, DELTA_LEAST)
@example([Batch([Operation(Op.REGISTER, 1, 0, 0)], 0, 0)] * 3, 0)
def test_any_history_of_operations_leaves_what_a_dict_would_hold(
    history: list[Batch], least: int
) -> None:
    base, delta = Bucket.empty(), Bucket.empty()
    oracle, now = Oracle(), 100
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ledger, "DELTA_LEAST", least)
        for serial, batch in enumerate(history):
            now += batch.passes
            operations = arrays_of(batch, now, serial)
            settled = apply_operations(base, delta, operations, now, now - batch.late)
            fault, removed, added = oracle.settle(operations, now)
            assert settled.fault.tolist() == fault
            assert listed(settled.removed) == removed
            assert listed(settled.added) == added
            if settled.base is not None:
                oracle.purge(now - batch.late)
                assert len(settled.delta.queries.ids) == 0
                base = reread(settled.base)
            delta = reread(settled.delta)
            assert len(delta.queries.ids) <= max(least, 0.125 * len(base.queries.ids))
            assert contents(base, delta) == oracle.known


def operations(*rows: tuple[Op, int, float, int], order: list[int] | None = None) -> Operations:
    """Return operations of (what, id, side of the rectangle, expiry), in order."""
    boxes = np.array([(0.0, 0.0, side, side) for _, _, side, _ in rows]).reshape(-1, 4)
    return Operations(
        np.array([row[0] for row in rows], dtype=np.int8),
        Queries(
            np.array([row[1] for row in rows], dtype=np.int64),
            boxes,
            np.array([row[3] for row in rows], dtype=np.int64),
        ),
        np.array(range(len(rows)) if order is None else order, dtype=np.int64),
    )


def told(*batches: Operations, now: int = 0) -> tuple[LedgerUpdate, Bucket, Bucket]:
    """Return what became of the last batch, and the bucket."""
    base, delta = Bucket.empty(), Bucket.empty()
    for batch in batches:
        settled = apply_operations(base, delta, batch, now, 0)
        base, delta = settled.base or base, settled.delta
    return settled, base, delta


def sides(queries: Queries) -> dict[int, float]:
    return {key: box[2] for key, (box, _) in listed(queries).items()}


def test_no_operations_change_nothing() -> None:
    first = operations((Op.REGISTER, 1, 2.0, NEVER))
    settled, _, delta = told(first, operations())
    assert len(settled.fault) == 0
    assert settled.base is None
    assert sides(settled.removed) == sides(settled.added) == {}
    assert sides(delta.queries) == {1: 2.0}


def test_an_update_takes_out_what_was_and_puts_in_what_is() -> None:
    settled, _, _ = told(
        operations((Op.REGISTER, 1, 2.0, NEVER)), operations((Op.UPDATE, 1, 3.0, NEVER))
    )
    assert sides(settled.removed) == {1: 2.0}
    assert sides(settled.added) == {1: 3.0}


def test_of_several_operations_on_a_query_only_the_outcome_counts() -> None:
    settled, _, delta = told(
        operations((Op.REGISTER, 1, 2.0, NEVER)),
        operations(
            (Op.UPDATE, 1, 3.0, NEVER),
            (Op.UNREGISTER, 1, 0.0, NEVER),
            (Op.REGISTER, 1, 4.0, NEVER),
            (Op.UPDATE, 1, 5.0, NEVER),
            (Op.REGISTER, 2, 6.0, NEVER),
            (Op.UNREGISTER, 2, 0.0, NEVER),
        ),
    )
    assert not settled.fault.any()
    assert sides(settled.removed) == {1: 2.0}
    assert sides(settled.added) == {1: 5.0}
    assert sides(delta.queries) == {1: 5.0}


def test_operations_take_effect_in_their_order_not_as_they_come() -> None:
    settled, _, _ = told(
        operations(
            (Op.UNREGISTER, 1, 0.0, NEVER),
            (Op.UPDATE, 1, 3.0, NEVER),
            (Op.REGISTER, 1, 2.0, NEVER),
            order=[30, 20, 10],
        )
    )
    assert not settled.fault.any()
    assert sides(settled.added) == {}


def test_operations_of_equal_order_take_effect_as_they_come() -> None:
    settled, _, _ = told(
        operations(
            (Op.REGISTER, 1, 2.0, NEVER),
            (Op.UNREGISTER, 1, 0.0, NEVER),
            (Op.REGISTER, 1, 3.0, NEVER),
            (Op.REGISTER, 1, 4.0, NEVER),
            order=[0, 0, 0, 0],
        )
    )
    assert settled.fault.tolist() == [0, 0, 0, LedgerFault.DUPLICATE]
    assert sides(settled.added) == {1: 3.0}


def test_what_is_refused_has_no_effect() -> None:
    settled, _, delta = told(
        operations((Op.REGISTER, 1, 2.0, NEVER)),
        operations(
            (Op.REGISTER, 1, 3.0, NEVER), (Op.UPDATE, 2, 3.0, NEVER), (Op.UNREGISTER, 3, 3.0, NEVER)
        ),
    )
    unknown = LedgerFault.UNKNOWN
    assert settled.fault.tolist() == [LedgerFault.DUPLICATE, unknown, unknown]
    assert sides(settled.removed) == sides(settled.added) == {}
    assert sides(delta.queries) == {1: 2.0}


@pytest.mark.parametrize(("expires", "is_there"), [(99, False), (100, False), (101, True)])
def test_a_query_that_expired_by_now_is_not_registered_any_more(expires, is_there) -> None:
    for op in (Op.UPDATE, Op.UNREGISTER):
        settled, _, _ = told(
            operations((Op.REGISTER, 1, 2.0, expires)), operations((op, 1, 3.0, NEVER)), now=100
        )
        assert settled.fault.tolist() == [0 if is_there else LedgerFault.UNKNOWN]
        assert sides(settled.removed) == ({1: 2.0} if is_there else {})
    settled, _, _ = told(
        operations((Op.REGISTER, 1, 2.0, expires)), operations((Op.REGISTER, 1, 3.0, 99)), now=100
    )
    assert settled.fault.tolist() == [LedgerFault.DUPLICATE if is_there else 0]
    # It still lies in partitions, so it must be taken out of them.
    assert sides(settled.removed) == ({} if is_there else {1: 2.0})
    assert sides(settled.added) == ({} if is_there else {1: 3.0})


def test_faults_keep_their_numbers() -> None:
    assert [(fault.name, int(fault)) for fault in LedgerFault] == [
        ("NONE", 0),
        ("DUPLICATE", 1),
        ("UNKNOWN", 2),
    ]
    assert [(op.name, int(op)) for op in Op] == [("REGISTER", 0), ("UPDATE", 1), ("UNREGISTER", 2)]


# -- buckets -----------------------------------------------------------------------------------

ANY_ID = st.integers(LOWEST, HIGHEST)


@given(st.lists(ANY_ID, max_size=30), st.integers(1, 2**31 - 1))
def test_every_id_has_one_bucket_whoever_asks(ids: list[int], buckets: int) -> None:
    together = bucket_of(np.array(ids, dtype=np.int64), buckets).tolist()
    assert all(0 <= bucket < buckets for bucket in together)
    assert together == [int(bucket_of(np.array([key]), buckets)[0]) for key in ids]


PATTERNS = {
    "counting": np.arange(100_000),
    "negative": -np.arange(100_000),
    "multiples of the buckets": np.arange(100_000) * 48,
    "high bits only": np.arange(100_000) << 44,
    "high and low bits": (np.arange(100_000) << 40) + np.arange(100_000) * 1024,
    "anything": np.random.default_rng(7).integers(LOWEST, HIGHEST, 100_000),
}


@pytest.mark.parametrize("ids", PATTERNS.values(), ids=PATTERNS)
@pytest.mark.parametrize("buckets", [1, 2, 7, 16, 48])
def test_any_pattern_of_ids_spreads_evenly(ids: np.ndarray, buckets: int) -> None:
    counts = np.bincount(bucket_of(ids, buckets), minlength=buckets)
    expected = len(ids) / buckets
    assert len(counts) == buckets
    assert abs(counts - expected).max() <= 6 * np.sqrt(expected)


@given(st.sets(ANY_ID, max_size=20), st.lists(ANY_ID, max_size=20))
def test_ids_are_found_where_they_are(there: set[int], others: list[int]) -> None:
    ids = np.array(sorted(there), dtype=np.int64)
    asked = np.array([*there, *others], dtype=np.int64)
    place = {key: i for i, key in enumerate(ids.tolist())}
    assert positions_of(asked, ids).tolist() == [place.get(key, -1) for key in asked.tolist()]
