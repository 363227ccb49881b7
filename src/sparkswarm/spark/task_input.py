"""Contract: what a task is given.

Built on the driver once a batch, packed, and sent with the code of every task of the batch.
Plan, manifest, queries, points and statistics are not in it: tasks find them in the files that it
names.
"""

from __future__ import annotations

import pickle  # noqa: S403 (the driver sends it to tasks through Spark; never read from a file)
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from sparkswarm.apps.bound import BoundApplication
from sparkswarm.apps.events.objects import BoundEvents
from sparkswarm.config import SwarmConfig
from sparkswarm.policies import LendingPrices
from sparkswarm.protocol.plan import Plan
from sparkswarm.spark.task_output import AnswerSchema, FixesRef, OutputKind, OutputSchema
from sparkswarm.store.awaited import await_manifest
from sparkswarm.store.blocks import MIN_TIME
from sparkswarm.store.epochs import Epoch
from sparkswarm.store.files import FileRef, Files
from sparkswarm.store.manifest import Manifest
from sparkswarm.store.records import RecordFiles
from sparkswarm.window.windows import Window

VERSION = 1
"""Counts incompatible changes to :class:`TaskInput`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PointFiles:
    """What tasks read from files of points themselves.

    Attributes
    ----------
    columns
        The files' names of the columns, by our names.
    schema
        The columns under our names, with the types that matching gets.
    time_zone
        Of event times that have none themselves.
    """

    columns: Mapping[str, str]
    schema: pa.Schema
    time_zone: str = "UTC"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultFiles:
    """Where tasks write results themselves, as Parquet files.

    Attributes
    ----------
    folder
        A local folder, of this attempt at the batch alone.
    """

    folder: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskInput:
    """Everything a task must know about its batch.

    Attributes
    ----------
    files
        The checkpoint.
    config
        The settings.
    epoch
        What fixes the batch. Its manifest includes the batch's own operations once they are stored.
    awaited
        Name of the file for which tasks wait, which says what the batch's own operations change in
        the manifest (:mod:`sparkswarm.store.awaited`); None where that is known.
    attempt
        Part of the name of every file that this attempt at the batch writes.
    control
        What the policy's controller says to its agents; None for a policy without a controller.
    collect_statistics
        Whether statistics of partitions are collected.
    match_weight
        Number of checks that take as long as one match.
    lending
        Prices of points for lending; None where nothing is lent.
    hosts
        The host of each executor, by number; empty where it does not matter.
    borrowed
        Partitions that executors borrowed points of in the batch before: (partition id, borrower).
    application
        What decides beyond rectangles; None where nothing does.
    window
        How long points are kept; None where they are not.
    events
        Which events of objects are reported; None for none.
    fix_files
        Whether points go to the tasks that keep their objects in files, which all can read.
    fixes
        These files.
    outputs
        What somebody reads.
    point_columns
        The user's names of the points' columns, by our names.
    point_files
        What tasks read from files of points; None where Spark reads the points.
    result_files
        Where tasks write results themselves; None where Spark gets the rows.
    output_schema, answer_schema
        Columns of the rows that matching and answering return.
    max_event_time
        Latest event time of earlier batches, in microseconds; MIN_TIME before the first event.
    purge_before
        Queries that expired before this time need not be kept.
    window_start
        Time from which snapshot queries see points.
    operations
        Number of operations that the driver read from the batch.
    query_changes
        Files with the queries that this batch added and removed, for statistics; where agents do
        not run in every batch, also those of the batches before.
    fence_changes
        File with the fences that the operations of this batch changed; None where none did, or
        where no events are reported.
    id_type
        Type of the ids of queries where they come back.
    """

    files: Files
    config: SwarmConfig
    epoch: Epoch
    attempt: str
    awaited: str | None = None
    control: object | None = None
    collect_statistics: bool = False
    match_weight: float = 0.0
    lending: LendingPrices | None = None
    hosts: tuple[int, ...] = ()
    borrowed: tuple[tuple[int, int], ...] = ()
    application: BoundApplication | None = None
    window: Window | None = None
    events: BoundEvents | None = None
    fix_files: bool = False
    fixes: tuple[FixesRef, ...] = ()
    outputs: frozenset[OutputKind] = frozenset()
    point_columns: Mapping[str, str] = field(default_factory=dict)
    point_files: PointFiles | None = None
    result_files: ResultFiles | None = None
    output_schema: OutputSchema = field(default_factory=OutputSchema)
    answer_schema: AnswerSchema | None = None
    max_event_time: int = MIN_TIME
    purge_before: int = MIN_TIME
    window_start: int = 0
    operations: int = 0
    query_changes: tuple[FileRef, ...] = ()
    fence_changes: FileRef | None = None
    id_type: pa.DataType = field(default_factory=pa.int64)
    version: int = VERSION


def packed_input(task_input: TaskInput) -> bytes:
    """Return an input as it is sent with every task.

    Where plan and manifest are stored, their names are sent, and what the batch has changed in the
    manifest since.
    """
    epoch, stored, difference = task_input.epoch, task_input.epoch.stored, None
    if stored is not None:
        if epoch.manifest is not stored.manifest:
            difference = epoch.manifest.difference(stored.manifest)
        nothing = Manifest(0, {})
        epoch = replace(
            epoch,
            plan=replace(epoch.plan, partitions=()),
            manifest=nothing,
            stored=replace(stored, manifest=nothing),
        )
    packed = pickle.dumps((replace(task_input, epoch=epoch), difference))
    return zlib.compress(packed, level=1)


def unpacked_input(packed: bytes, records_of: Callable[[Files], RecordFiles]) -> TaskInput:
    """Return the input that was packed; ``records_of`` a checkpoint are those known to a worker."""
    task_input: TaskInput
    task_input, difference = pickle.loads(zlib.decompress(packed))  # noqa: S301 (from the driver)
    task_input = _with_records(task_input, difference, records_of)
    if task_input.awaited is None:
        return task_input
    epoch = task_input.epoch
    manifest = await_manifest(task_input.files, task_input.awaited, epoch.manifest)
    return replace(task_input, epoch=replace(epoch, manifest=manifest))


def _with_records(
    task_input: TaskInput,
    difference: Mapping[str, Any] | None,
    records_of: Callable[[Files], RecordFiles],
) -> TaskInput:
    """Return an input with the plan and the manifest whose names it has."""
    epoch, stored = task_input.epoch, task_input.epoch.stored
    if stored is None:
        return task_input
    records = records_of(task_input.files)
    plan = records.read(Plan, stored.plan_name)
    manifest = stored_manifest = records.read(Manifest, stored.manifest_name)
    if difference is not None:
        manifest = stored_manifest.with_difference(difference)
    records.retain({stored.plan_name, stored.manifest_name})
    stored = replace(stored, manifest=stored_manifest)
    return replace(task_input, epoch=replace(epoch, plan=plan, manifest=manifest, stored=stored))
