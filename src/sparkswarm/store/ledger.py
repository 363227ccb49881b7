"""The ledger: which queries are registered, and where, by id.

Owns the answer to "is this id registered, and which rectangle must be taken out?" for one
bucket of ids. An operation that unregisters or moves a query says nothing about where the
query was; the ledger knows, so only the partitions that hold the query hear of it.

It keeps no details of queries: an operation that registers or updates one brings them.

A bucket is a base, sorted by id, and a small delta of what changed since, rewritten with each
change; when the delta has grown, both become the next base.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sparkswarm.compiled import LongArray, compiled, hash64
from sparkswarm.store.queries import NEVER, Op, Operations, Queries, find

DELTA_SHARE = 0.125
"""A delta may have this share of its base's rows before both are written anew ..."""
DELTA_LEAST = 1024
"""... and may always have this many."""


class LedgerFault(IntEnum):
    """Why the ledger refuses an operation."""

    NONE = 0
    DUPLICATE = 1
    UNKNOWN = 2


class Bucket(NamedTuple):
    """Part of a ledger: queries sorted by id, and which of them are registered."""

    queries: Queries
    registered: npt.NDArray[np.uint8]

    @classmethod
    def empty(cls) -> Bucket:
        """Return a bucket in which nothing was ever registered."""
        return cls(Queries.none(), np.empty(0, np.uint8))


class Settled(NamedTuple):
    """What became of a batch of operations.

    Attributes
    ----------
    fault
        For each operation, a :class:`LedgerFault`.
    removed
        Queries, as they were, to take out of their partitions.
    added
        Queries to put into their partitions.
    base, delta
        The bucket from now on; ``base`` is None where it is unchanged.
    """

    fault: npt.NDArray[np.uint8]
    removed: Queries
    added: Queries
    base: Bucket | None
    delta: Bucket


def settle(
    base: Bucket, delta: Bucket, operations: Operations, now: int, purge_before: int
) -> Settled:
    """Apply operations to a bucket, one query at a time in their order.

    Registering what is registered, and updating or unregistering what is not, is refused.
    A query that expired at ``now`` or before is not registered any more. One that expired
    before ``purge_before`` is forgotten when the base is next written.
    """
    order = np.lexsort((operations.order, operations.queries.ids))
    ids, first = np.unique(operations.queries.ids[order], return_index=True)
    old, present, in_base = _looked_up(base, delta, ids)
    alive = present & (old.expires > now)
    fault, last = _settle(order, np.append(first, len(order)), operations.op, alive)
    changed = last != _UNCHANGED
    added = operations.queries.take(last[last >= 0])
    removed = old.take(changed & present)

    # Forgotten ids stay in the delta as such only while the base still has them.
    kept = np.isin(delta.queries.ids, ids[changed], invert=True)
    gone = ids[(last == _UNREGISTERED) & in_base]
    blank = Queries(gone, np.zeros((len(gone), 4)), np.full(len(gone), NEVER))
    queries = Queries.joined([delta.queries.take(kept), added.without_details(), blank])
    registered = np.concatenate(
        [delta.registered[kept], np.ones(len(added.ids), np.uint8), np.zeros(len(gone), np.uint8)]
    )
    by_id = np.argsort(queries.ids, kind="stable")
    new = Bucket(queries.take(by_id), registered[by_id])
    if len(new.queries.ids) <= max(DELTA_LEAST, DELTA_SHARE * len(base.queries.ids)):
        return Settled(fault, removed, added, None, new)
    return Settled(fault, removed, added, _merged(base, new, purge_before), Bucket.empty())


def _looked_up(
    base: Bucket, delta: Bucket, ids: LongArray
) -> tuple[Queries, npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Return what is known of ``ids``, whether each is there, and whether the base has it."""
    old = Queries(ids, np.zeros((len(ids), 4)), np.full(len(ids), NEVER))
    present = np.zeros(len(ids), dtype=bool)
    in_base = find(base.queries.ids, ids)
    for bucket, found in ((base, in_base), (delta, find(delta.queries.ids, ids))):
        here, at = found >= 0, found[found >= 0]
        old.boxes[here] = bucket.queries.boxes[at]
        old.expires[here] = bucket.queries.expires[at]
        present[here] = bucket.registered[at] == 1
    return old, present, in_base >= 0


def _merged(base: Bucket, delta: Bucket, purge_before: int) -> Bucket:
    untouched = np.ones(len(base.queries.ids), dtype=bool)
    found = find(base.queries.ids, delta.queries.ids)
    untouched[found[found >= 0]] = False
    queries = Queries.joined(
        [base.queries.take(untouched), delta.queries.take(delta.registered == 1)]
    )
    queries = queries.take(queries.expires >= purge_before)
    queries = queries.take(np.argsort(queries.ids, kind="stable"))
    return Bucket(queries, np.ones(len(queries.ids), np.uint8))


_UNCHANGED = -2
_UNREGISTERED = -1
_REGISTER, _UNREGISTER = int(Op.REGISTER), int(Op.UNREGISTER)
_DUPLICATE, _UNKNOWN = int(LedgerFault.DUPLICATE), int(LedgerFault.UNKNOWN)


@compiled
def _settle(
    order: LongArray, starts: LongArray, op: npt.NDArray[np.int8], alive: npt.NDArray[np.bool_]
) -> tuple[npt.NDArray[np.uint8], LongArray]:
    """Return each operation's fault, and for each id the operation that prevails."""
    fault = np.zeros(len(order), dtype=np.uint8)
    last = np.full(len(alive), _UNCHANGED, dtype=np.int64)
    for i in range(len(alive)):
        is_registered = alive[i]
        for j in range(starts[i], starts[i + 1]):
            at = order[j]
            if op[at] == _REGISTER and is_registered:
                fault[at] = _DUPLICATE
            elif op[at] != _REGISTER and not is_registered:
                fault[at] = _UNKNOWN
            else:
                is_registered = op[at] != _UNREGISTER
                last[i] = at if is_registered else _UNREGISTERED
    return fault, last


def bucket_of(ids: LongArray, buckets: int) -> npt.NDArray[np.int32]:
    """Return the bucket of each id: a hash that spreads any pattern of ids evenly."""
    return _bucket_of(np.ascontiguousarray(ids, dtype=np.int64), buckets)


@compiled
def _bucket_of(ids: LongArray, buckets: int) -> npt.NDArray[np.int32]:
    result = np.empty(len(ids), dtype=np.int32)
    for i in range(len(ids)):
        result[i] = np.int32(hash64(np.uint64(ids[i])) % np.uint64(buckets))
    return result
