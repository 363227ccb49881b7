"""Real-time Mode: tasks that do not end with a batch, and match each packet of points as it comes.

``match_packets`` runs in a task for each partition of the points' source; where executors are on
several hosts ``route_packets`` runs there, and ``match_packets`` in a task for each executor.
Between two packets a task looks whether plan or queries have changed; a point that was sent to the
former owner of its partition is matched there, since any task can map the partition. After a
failure a task begins again where its stream was committed last: results come again, with the same
point and version.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparkswarm.observe.progress import LATENCY_S
from sparkswarm.spark.columns import QUERY_VERSION, TARGET
from sparkswarm.spark.tasks.direct import DirectWork
from sparkswarm.spark.tasks.packets import packets
from sparkswarm.spark.tasks.points import coordinates
from sparkswarm.spark.tasks.reports import write_report
from sparkswarm.store.blocks import MAX_TIME
from sparkswarm.store.queries import TIME

if TYPE_CHECKING:
    from sparkswarm.spark.tasks.context import BatchContext
    from sparkswarm.spark.tasks.follower import ContextFollower

REPORT_SECONDS = 0.5
"""Time between two reports of a task."""


class TaskSink(Protocol):
    """Takes results in the task that finds them."""

    def open(self, partition_id: int, epoch_id: int) -> bool:
        """Begin; return whether the task's results are wanted."""

    def write(self, results: pa.RecordBatch) -> None:
        """Take results."""

    def close(self, error: BaseException | None) -> None:
        """End, also after an error."""


class MatchPackets:
    """What ``endless_task`` runs where points are matched.

    Parameters
    ----------
    sink
        Takes results in the task; without one they are the task's rows.
    """

    def __init__(self, sink: TaskSink | None = None) -> None:
        self._sink = sink

    def __call__(
        self, follower: ContextFollower, trigger: int, batches: Iterable[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        """Match packets until the trigger ends."""
        found = PacketMatcher(follower).results(batches)
        if self._sink is None:
            yield from found
            return
        sink, error = self._sink, None
        wanted = sink.open(follower.task, trigger)
        try:
            for results in found:
                if wanted:
                    sink.write(results)
        except BaseException as raised:
            error = raised
            raise
        finally:
            sink.close(error)


class PacketMatcher:
    """Matches the packets of one task, and reports twice a second."""

    def __init__(self, follower: ContextFollower) -> None:
        self._follower = follower
        self._reporter = f"{follower.task:06d}-{uuid.uuid4().hex[:8]}"
        self._reports = 0
        self._ctx: BatchContext | None = None
        self._work: DirectWork | None = None
        self._latency: npt.NDArray[np.int64] = np.zeros(len(LATENCY_S), np.int64)
        self._due = 0.0

    def results(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the results of each packet, with the version of the queries."""
        for points in packets(batches):
            if points is None:
                self._report()
                continue
            work = self._current()
            for rows in work.match(points):
                version = pa.repeat(pa.scalar(self._follower.version, pa.int64()), rows.num_rows)
                yield pa.RecordBatch.from_arrays(
                    [*rows.columns, version], [*rows.schema.names, QUERY_VERSION]
                )
            self._see_latency(points)
        self._report()

    def _current(self) -> DirectWork:
        """Return the work in progress, under the last commit and the present time."""
        changed, now = self._follower.changed(), time.time()
        if changed is not None or self._work is None or now >= self._due:
            self._report()
            self._ctx = ctx = changed or self._ctx
            assert ctx is not None
            # Files of a report have names of their own.
            ctx.input = replace(ctx.input, attempt=f"{self._reporter}-{self._reports}")
            self._work = DirectWork(ctx, self._follower.task)
            self._due = now + REPORT_SECONDS
        ctx = self._ctx
        assert ctx is not None
        assert self._work is not None
        micros = round(now * 1e6)
        latest = min(MAX_TIME, micros + round(min(ctx.input.config.max_future_seconds, 1e12) * 1e6))
        ctx.epoch = replace(ctx.epoch, clock=micros, latest_time=latest)
        return self._work

    def _see_latency(self, points: pa.Table) -> None:
        if TIME in points.column_names:
            times = points.column(TIME).drop_null().to_numpy()
            seconds = time.time() - times / 1e6
            place = np.searchsorted(LATENCY_S, seconds).clip(max=len(LATENCY_S) - 1)
            self._latency += np.bincount(place, minlength=len(LATENCY_S))

    def _report(self) -> None:
        """Leave a report of the work since the last one, if there was any."""
        if self._work is None:
            return
        output, self._work = self._work.close(), None
        if not output.points and not output.rejected:
            return
        latency = tuple(self._latency.tolist()) if self._latency.any() else ()
        self._latency[:] = 0
        name = f"{self._reporter}-{self._reports:09d}"
        self._reports += 1
        write_report(self._follower.input.files, name, replace(output, latency=latency))


def route_packets(
    follower: ContextFollower, trigger: int, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Add the executor of each point; invalid points go to the first, which rejects them."""
    ctx: BatchContext | None = None
    seen = 0
    for points in packets(batches):
        if points is None:
            continue
        ctx = follower.changed() or ctx
        assert ctx is not None
        x, y = coordinates(points)
        keys = np.arange(seen, seen + len(x))
        seen += len(x)
        owner = ctx.router.assign(x, y, keys).clip(min=0)
        yield from points.append_column(TARGET, pa.array(owner)).combine_chunks().to_batches()
