"""The ledger: which queries are registered, and where, by id.

Owns one bucket of ids: which are registered, and with which rectangles. An operation that
unregisters or moves a query does not tell where the query was; the ledger does, so only the
partitions that hold the query are changed.

It keeps no attributes of queries: an operation that registers or updates one brings them.

A bucket is a base, sorted by id, and a small delta of what changed since, rewritten with each
change; when the delta has grown, both become the next base. Runs in the task of a bucket, once per
batch with operations; each attempt writes its own files.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparkswarm.compiled import BoolArray, ByteArray, IntArray, LongArray, compiled, hash64
from sparkswarm.store.formats import arrays_from_bytes, arrays_to_bytes
from sparkswarm.store.queries import NEVER, Op, Operations, Queries, positions_of

VERSION = 1

DELTA_SHARE = 0.125
"""A delta may have this share of its base's rows before both become the next base."""
DELTA_LEAST = 1024
"""A delta may always have this many rows."""


class LedgerFault(IntEnum):
    """Why the ledger rejects an operation."""

    NONE = 0
    DUPLICATE = 1
    UNKNOWN = 2


class Bucket(NamedTuple):
    """A base or a delta of one bucket: queries sorted by id, and which are registered."""

    queries: Queries
    registered: ByteArray

    @classmethod
    def empty(cls) -> Bucket:
        """Return a bucket without queries."""
        return cls(Queries.empty(), np.empty(0, np.uint8))

    def to_bytes(self) -> pa.Buffer:
        """Return the content of its file."""
        queries = self.queries
        arrays = {"ids": queries.ids, "boxes": queries.boxes, "expires": queries.expires}
        return arrays_to_bytes({**arrays, "registered": self.registered}, VERSION)

    @classmethod
    def from_bytes(cls, content: pa.Buffer) -> Bucket:
        """Read what :meth:`to_bytes` returned."""
        arrays = arrays_from_bytes(content, VERSION)
        queries = Queries(arrays["ids"], arrays["boxes"], arrays["expires"])
        return cls(queries, arrays["registered"])


class LedgerUpdate(NamedTuple):
    """The outcome of a batch of operations.

    Attributes
    ----------
    fault
        A :class:`LedgerFault` of each operation.
    removed
        Queries to remove from their partitions, as they were registered.
    added
        Queries to add to their partitions.
    base, delta
        The new bucket; ``base`` is None where it is unchanged.
    """

    fault: ByteArray
    removed: Queries
    added: Queries
    base: Bucket | None
    delta: Bucket


def apply_operations(
    base: Bucket, delta: Bucket, operations: Operations, now: int, purge_before: int
) -> LedgerUpdate:
    """Apply operations to a bucket, one query at a time in their order.

    Registering what is registered, and updating or unregistering what is not, is rejected.
    A query that expired at ``now`` or before is not registered any more. One that expired
    before ``purge_before`` is purged when the base is next written.
    """
    order = np.lexsort((operations.order, operations.queries.ids))
    ids, first = np.unique(operations.queries.ids[order], return_index=True)
    old, present, in_base = _looked_up(base, delta, ids)
    alive = present & (old.expires > now)
    fault, last = _settle(order, np.append(first, len(order)), operations.op, alive)
    changed = last != _UNCHANGED
    added = operations.queries.take(last[last >= 0])
    removed = old.take(changed & present)

    # Ids that were unregistered stay in the delta only while the base still has them.
    kept = np.isin(delta.queries.ids, ids[changed], invert=True)
    gone = ids[(last == _UNREGISTERED) & in_base]
    blank = Queries(gone, np.zeros((len(gone), 4)), np.full(len(gone), NEVER))
    queries = Queries.concat([delta.queries.take(kept), added.without_attributes(), blank])
    registered = np.concatenate(
        [delta.registered[kept], np.ones(len(added.ids), np.uint8), np.zeros(len(gone), np.uint8)]
    )
    by_id = np.argsort(queries.ids, kind="stable")
    new = Bucket(queries.take(by_id), registered[by_id])
    if len(new.queries.ids) <= max(DELTA_LEAST, DELTA_SHARE * len(base.queries.ids)):
        return LedgerUpdate(fault, removed, added, None, new)
    return LedgerUpdate(fault, removed, added, _merged(base, new, purge_before), Bucket.empty())


def _looked_up(base: Bucket, delta: Bucket, ids: LongArray) -> tuple[Queries, BoolArray, BoolArray]:
    """Return the queries of ``ids``, whether each is registered, and whether the base has it."""
    old = Queries(ids, np.zeros((len(ids), 4)), np.full(len(ids), NEVER))
    present = np.zeros(len(ids), dtype=bool)
    in_base = positions_of(ids, base.queries.ids)
    for bucket, found in ((base, in_base), (delta, positions_of(ids, delta.queries.ids))):
        here, at = found >= 0, found[found >= 0]
        old.boxes[here] = bucket.queries.boxes[at]
        old.expires[here] = bucket.queries.expires[at]
        present[here] = bucket.registered[at] == 1
    return old, present, in_base >= 0


def _merged(base: Bucket, delta: Bucket, purge_before: int) -> Bucket:
    untouched = np.ones(len(base.queries.ids), dtype=bool)
    found = positions_of(delta.queries.ids, base.queries.ids)
    untouched[found[found >= 0]] = False
    queries = Queries.concat(
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
    order: LongArray, starts: LongArray, op: npt.NDArray[np.int8], alive: BoolArray
) -> tuple[ByteArray, LongArray]:
    """Return the fault of each operation, and for each id the last operation that counts."""
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


def bucket_of(ids: LongArray, buckets: int) -> IntArray:
    """Return the bucket of each id: a hash that spreads any pattern of ids evenly."""
    return _bucket_of(np.ascontiguousarray(ids, dtype=np.int64), buckets)


@compiled
def _bucket_of(ids: LongArray, buckets: int) -> IntArray:
    result = np.empty(len(ids), dtype=np.int32)
    for i in range(len(ids)):
        result[i] = np.int32(hash64(np.uint64(ids[i])) % np.uint64(buckets))
    return result
