"""Summaries: the state of queries, and what a stateful application tells of it.

Owns the second half of a batch with state. What matched points add to the state of a query may come
from several executors, because the query may overlap several partitions. All of it goes to the
query's *home*, the partition with the cell of its lower left corner, whose first owner keeps the
state. When partitions move, split or merge, state goes with the homes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
from pyspark import Accumulator
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from sparkswarm.apps.application import Watermarks
from sparkswarm.protocol.partition import Partition
from sparkswarm.spark.task_input import Report, StateReport
from sparkswarm.spark.tasks.context import Desk, desk
from sparkswarm.spark.tasks.packing import PARTIAL, Parcel, Task, to_bytes
from sparkswarm.store.files import Folder
from sparkswarm.store.manifest import StateRef

FAN = 8
"""A partition's state is put together when it lies in so many files."""


def deal_partials(at: Desk, collected: Sequence[pa.Table], executor: int) -> Iterator[Parcel]:
    """Yield what an executor collected, for the executors that keep it.

    The first is for itself, with nothing in it: so everybody has one to know itself by.
    """
    yield PARTIAL, executor, None
    application = at.briefing.application
    if not collected or application is None or application.stateful is None:
        return
    table = application.stateful.combine(collected)
    owner = at.first_owner(at.homes(table.column("home").to_numpy()))
    for m in np.unique(owner):
        yield PARTIAL, int(m), to_bytes(table.filter(pa.array(owner == m)))


def summaries(
    parcels: DataFrame,
    briefing: bytes,
    executors: int,
    reports: Accumulator[list[Report]],
    schema: StructType,
) -> DataFrame:
    """Return what there is to tell; when all of it was read, state is stored and reported."""
    return parcels.repartitionById(executors, F.col("target")).mapInArrow(
        _task(briefing, reports), schema
    )


def _task(briefing: bytes, reports: Accumulator[list[Report]]) -> Task:
    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        executor, new = -1, []
        for batch in batches:
            if batch.num_rows:
                executor = batch.column("target")[0].as_py()
            for value in batch.column("rows").drop_null():
                new.append(pa.ipc.open_stream(value.as_buffer()).read_all())
        if executor < 0:
            return
        at = desk(briefing)
        home = _Home(at, executor)
        for partition in at.briefing.epoch.plan.partitions:
            if partition.owners[0] == executor:
                yield from home.advance(partition, new).to_batches()
        reports.add([home.report()])

    return task


class _Home:
    """The state that one executor keeps, in one batch."""

    def __init__(self, at: Desk, executor: int) -> None:
        self._at = at
        self._executor = executor
        self._late = 0
        self._written: list[tuple[Partition, tuple[StateRef, ...], pa.Table, int | None]] = []

    def advance(self, partition: Partition, new: Sequence[pa.Table]) -> pa.Table:
        """Do what the batch does to the state of a partition; return what there is to tell."""
        at = self._at
        application = at.briefing.application
        assert application is not None
        stateful = application.stateful
        assert stateful is not None
        here = [table.filter(at.at_home(table, partition.cells)) for table in new]
        here = [table for table in here if table.num_rows]
        there = at.briefing.epoch.manifest.states.get(partition.id, ())
        epoch = at.briefing.epoch
        watermarks = Watermarks(epoch.previous_watermark, epoch.watermark)
        due = any(state.due is not None and state.due <= watermarks.current for state in there)
        if not here and not due:
            return stateful.summary_schema.empty_table()
        whole = due or not stateful.append_only or len(there) >= FAN
        told = application.advance(at.states(partition.id) if whole else [], here, watermarks)
        self._late += told.late
        self._written.append((partition, () if whole else there, told.state, told.due))
        return told.summaries

    def report(self) -> StateReport:
        """Store what changed and say where it is."""
        at = self._at
        filled = [(p, before, t, due) for p, before, t, due in self._written if t.num_rows]
        states = {p.id: before for p, before, _, _ in self._written}
        places = at.write_tables(Folder.STATES, f"e{self._executor}", [t for _, _, t, _ in filled])
        for (p, before, _, due), (file, offset) in zip(filled, places, strict=True):
            states[p.id] = (*before, StateRef(cells=p.cells, file=file, offset=offset, due=due))
        return StateReport(at.briefing.epoch.batch, self._executor, states, self._late)
