"""Packets: all points that have come while the packet before was matched.

Runs in tasks of Real-time Mode, in a thread beside the one that matches. So packets grow with the
rate of the points, and with the time that matching takes.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterable, Iterator

import pyarrow as pa

WAITING_BATCHES = 1_000
"""Most batches of Spark that wait to be matched; then Spark waits, and its source."""

PACKET_ROWS = 65_536
"""Rows from which on a packet is matched before more is taken."""

IDLE_SECONDS = 1.0
"""Time without a row after which a task is told so."""

PACKED_COLUMN = "rows"
"""The column of packed rows, see the Java class ``sparkswarm.Packets``."""

_END = None


def packets(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table | None]:
    """Yield the rows of packed batches, all that wait; None where none came for a while."""
    waiting: queue.Queue[pa.RecordBatch | BaseException | None] = queue.Queue(WAITING_BATCHES)
    puller = threading.Thread(target=_pull, args=(batches, waiting), daemon=True)
    puller.start()
    ended = False
    while not ended:
        some: list[pa.RecordBatch] = []
        size = 0
        while not ended and size < PACKET_ROWS:
            try:
                one = waiting.get(block=not some, timeout=IDLE_SECONDS)
            except queue.Empty:
                break
            if isinstance(one, BaseException):
                raise one
            ended = one is _END
            if one is not None and (rows := unpacked(one)).num_rows:
                some.append(rows)
                size += rows.num_rows
        yield pa.Table.from_batches(some) if some else None
    puller.join()


def _pull(
    batches: Iterable[pa.RecordBatch], waiting: queue.Queue[pa.RecordBatch | BaseException | None]
) -> None:
    try:
        for batch in batches:
            waiting.put(batch)
    except BaseException as error:
        waiting.put(error)
        return
    waiting.put(_END)


def unpacked(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows of a batch of packets; empty packets have none."""
    return pa.RecordBatch.from_struct_array(batch.column(PACKED_COLUMN).flatten())
