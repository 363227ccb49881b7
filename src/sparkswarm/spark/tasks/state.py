"""State: what a stateful application keeps for each query, advanced once a batch.

Points may add to the state of a query on several executors, because the query may overlap several
partitions or come from several input partitions. All additions go to the query's *home*, the
partition with the cell of its lower left corner, whose first owner keeps the state
(``route_partial_state``, in the tasks that match points; then ``state_task``, for each executor and
batch). When partitions move, split or merge, state goes with
the homes. A task that runs again writes other files with the same content.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkswarm.apps.application import Stateful, Watermarks
from sparkswarm.apps.bound import BoundApplication
from sparkswarm.errors import ConfigError
from sparkswarm.observe.progress import Counts
from sparkswarm.protocol.partition import Partition
from sparkswarm.spark.columns import QUERY_ID
from sparkswarm.spark.task_output import TaskOutput, TaskStage, Written
from sparkswarm.spark.tasks.packing import PackedRows, RowKind, pack_rows
from sparkswarm.store.files import Folder
from sparkswarm.store.manifest import StateRef
from sparkswarm.store.names import values_of_names
from sparkswarm.store.queries import NAME

if TYPE_CHECKING:
    from sparkswarm.spark.tasks.context import BatchContext

MERGE_FILES = 8
"""Number of files at which a partition's state is merged into one."""


def route_partial_state(
    ctx: BatchContext, collected: Sequence[pa.Table], always: Iterable[int]
) -> Iterator[PackedRows]:
    """Yield what a task collected, for the executors that keep it.

    The first packages are empty, for the executors that must have one in ``always``: an executor
    knows its number from its rows.
    """
    for executor in always:
        yield RowKind.PARTIAL_STATE, executor, None
    if not collected:
        return
    _, stateful = _application(ctx)
    table = stateful.combine(collected)
    owner = ctx.first_owner(ctx.home_partitions(table.column("home").to_numpy()))
    for m in np.unique(owner):
        yield RowKind.PARTIAL_STATE, int(m), pack_rows(table.filter(pa.array(owner == m)))


def state_task(ctx: BatchContext, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Advance the state that one executor keeps; yield the application's summaries."""
    executor, new = -1, []
    for batch in batches:
        if batch.num_rows:
            executor = batch.column("target")[0].as_py()
        for value in batch.column("rows").drop_null():
            new.append(pa.ipc.open_stream(value.as_buffer()).read_all())
    if executor < 0:
        return
    writer = StateWriter(ctx, executor)
    for partition in ctx.plan.partitions:
        if partition.owners[0] == executor:
            yield from writer.advance(partition, new).to_batches()
    ctx.collect(writer.close())


def named_summaries(schema: pa.Schema, id_type: pa.DataType) -> pa.Schema:
    """Return the columns of summaries, with ids of queries as the user has them."""
    at = schema.get_field_index(QUERY_ID)
    return schema if at < 0 else schema.set(at, pa.field(QUERY_ID, id_type))


class _Advanced(NamedTuple):
    """New state of a partition, and the files before it that stay."""

    partition: Partition
    kept: tuple[StateRef, ...]
    table: pa.Table
    due: int | None


class StateWriter:
    """The state that one executor keeps, in one batch."""

    def __init__(self, ctx: BatchContext, executor: int) -> None:
        self._ctx = ctx
        self._executor = executor
        self._application, self._stateful = _application(ctx)
        self._late = 0
        self._advanced: list[_Advanced] = []

    def advance(self, partition: Partition, new: Sequence[pa.Table]) -> pa.Table:
        """Advance the state of a partition; return its summaries."""
        ctx = self._ctx
        here = [table.filter(pa.array(ctx.rows_at_home(table, partition.cells))) for table in new]
        here = [table for table in here if table.num_rows]
        stored = ctx.epoch.manifest.states.get(partition.id, ())
        watermarks = Watermarks(ctx.epoch.previous_watermark, ctx.epoch.watermark)
        due = any(s.due is not None and s.due <= watermarks.current for s in stored)
        if not here and not due:
            schema = named_summaries(self._stateful.summary_schema, ctx.input.id_type)
            return schema.empty_table()
        whole = due or not self._stateful.append_only or len(stored) >= MERGE_FILES
        states = ctx.states(partition.id) if whole else []
        plain = [t.drop_columns([NAME]) if NAME in t.column_names else t for t in states]
        update = self._application.advance(plain, here, watermarks)
        state, summaries = update.state, update.summaries
        if not pa.types.is_int64(ctx.input.id_type):
            state, summaries = self._named(states, state, summaries)
        self._late += update.late
        kept = () if whole else stored
        self._advanced.append(_Advanced(partition, kept, state, update.due))
        return summaries

    def _named(
        self, before: Sequence[pa.Table], state: pa.Table, summaries: pa.Table
    ) -> tuple[pa.Table, pa.Table]:
        """Return state with the names of its queries, and summaries with their ids.

        A query may have expired and be gone before its last window closes: state knows its name.
        """
        ctx, has_ids = self._ctx, QUERY_ID in summaries.column_names
        ids = state.column("id").to_numpy()
        told = summaries.column(QUERY_ID).to_numpy() if has_ids else np.empty(0, np.int64)
        wanted = np.unique(np.concatenate([ids, told]))
        names = ctx.queries.names_of(wanted, ctx.epoch.manifest)
        known = [table for table in before if NAME in table.column_names and table.num_rows]
        if known and names.null_count:
            old = pa.concat_tables([table.select(["id", NAME]) for table in known])
            numbers, first = np.unique(old.column("id").to_numpy(), return_index=True)
            at = np.minimum(np.searchsorted(numbers, wanted), len(numbers) - 1)
            rows = pa.array(first[at], mask=numbers[at] != wanted)
            names = pc.coalesce(names, old.column(NAME).combine_chunks().take(rows))
        of_state = names.take(pa.array(np.searchsorted(wanted, ids)))
        if has_ids:
            texts = names.take(pa.array(np.searchsorted(wanted, told))).cast(pa.string())
            place = summaries.schema.get_field_index(QUERY_ID)
            values = values_of_names(texts, ctx.input.id_type)
            summaries = summaries.set_column(place, QUERY_ID, values)
        return state.append_column(NAME, of_state), summaries

    def close(self) -> TaskOutput:
        """Write the new state; return where it is."""
        ctx = self._ctx
        filled = [one for one in self._advanced if one.table.num_rows]
        states = {one.partition.id: one.kept for one in self._advanced}
        name = f"e{self._executor}"
        places = ctx.write_tables(Folder.STATES, name, [one.table for one in filled])
        for one, (file, offset) in zip(filled, places, strict=True):
            new = StateRef(
                cells=one.partition.cells,
                file=file,
                offset=offset,
                due=one.due,
                batch=ctx.epoch.batch,
            )
            states[one.partition.id] = (*one.kept, new)
        return TaskOutput(
            batch=ctx.epoch.batch,
            stage=TaskStage.STATE,
            task=self._executor,
            counts=Counts(late=self._late),
            written=Written(states=states),
        )


def _application(ctx: BatchContext) -> tuple[BoundApplication, Stateful]:
    """Return the batch's application, which must be stateful."""
    application = ctx.input.application
    if application is None or application.stateful is None:
        raise ConfigError("the application keeps no state")
    return application, application.stateful
