"""A sink that appends each batch to a Delta Lake table exactly once.

Runs on the driver, once a batch; a batch may come again after a failure. The tasks write results as
Parquet files into the table's folder, where no reader sees them; the driver adds them in one commit
that also records the batch under the id of the run. Delta records such a number but enforces
nothing: a repeat is found by reading the record first, and of two drivers that both have read it
the second one's commit fails.
"""

from __future__ import annotations

import json
import logging
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame

from sparkswarm.errors import ConfigError, InputError, StoreError, missing_extra
from sparkswarm.spark.sinks import BatchOfRun, check_files, current_run, is_written
from sparkswarm.store.files import local_path

if TYPE_CHECKING:
    from deltalake import DeltaTable

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class DeltaSink:
    """Appends rows to a Delta Lake table, each batch in one commit.

    Results go to a table in a local or shared folder by the tasks, without passing the driver. All
    else (summaries, answers, events, tables on object storage) is collected and written by the
    driver. The table is made if there is none. Files of attempts that failed stay in its folder,
    invisible, until it is vacuumed.

    Parameters
    ----------
    path
        The table: a folder, or a URI that the package deltalake supports.
    storage_options
        What deltalake needs to reach it, such as credentials.
    """

    path: str
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    reads_all_rows: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not isinstance(self.path, str) or not self.path.strip():
            raise ConfigError(f"path must be the path of a table, got {self.path!r}")
        _deltalake()

    def __call__(self, results: DataFrame, batch_id: int) -> None:
        """Append a batch that the driver collects, unless it is there already."""
        delta = _deltalake()
        rows = results.toArrow()
        table, batch = self._open(rows.schema), BatchOfRun(current_run(), batch_id)
        if not self._is_done(table, batch):
            with _commit(self.path):
                delta.write_deltalake(
                    table, rows, mode="append", commit_properties=_recording(batch)
                )

    def stage(self, batch_id: int, attempt: str) -> Path | None:
        """Make a folder for the files of an attempt at a batch; None where the driver must write.

        The folder stays if the batch is committed: the table refers to its files.
        """
        folder = local_path(self.path)
        if folder is None:
            return None
        staged = folder / f"batch-{batch_id}-{attempt}"
        staged.mkdir(parents=True)
        return staged

    def publish(self, staged: Path, batch_id: int, files: Iterable[str], schema: pa.Schema) -> None:
        """Add the files of a batch to the table, unless it is there already."""
        delta = _deltalake()
        names = sorted(files)
        check_files(staged, names, self.path)
        table, batch = self._open(schema), BatchOfRun(current_run(), batch_id)
        if not names or self._is_done(table, batch):
            shutil.rmtree(staged)
            return
        for file in staged.iterdir():
            if file.name not in names:
                file.unlink()
        actions = [
            delta.transaction.AddAction(
                path=f"{staged.name}/{name}",
                size=(staged / name).stat().st_size,
                partition_values={},
                modification_time=time.time_ns() // 1_000_000,
                data_change=True,
                stats=json.dumps({"numRecords": pq.read_metadata(staged / name).num_rows}),
            )
            for name in names
        ]
        with _commit(self.path):
            table.create_write_transaction(
                actions, mode="append", schema=table.schema(), commit_properties=_recording(batch)
            )

    def _open(self, schema: pa.Schema) -> DeltaTable:
        """Return the table as it is now, made if there is none."""
        delta = _deltalake()
        options = dict(self.storage_options) or None
        if not delta.DeltaTable.is_deltatable(self.path, storage_options=options):
            delta.DeltaTable.create(
                self.path, schema=schema, mode="ignore", storage_options=options
            )
        table: DeltaTable = delta.DeltaTable(self.path, storage_options=options)
        wanted = delta.Schema.from_arrow(schema)
        found = [(one.name, one.type) for one in table.schema().fields]
        if table.metadata().partition_columns or found != [(f.name, f.type) for f in wanted.fields]:
            raise InputError(
                f"the Delta table {self.path} has the columns {table.schema().to_json()}, and the "
                f"rows have {wanted.to_json()}; give another path"
            )
        return table

    def _is_done(self, table: DeltaTable, batch: BatchOfRun) -> bool:
        last = table.transaction_version(batch.run)
        known = None if last is None else BatchOfRun(batch.run, last)
        if not is_written(known, batch, f"in {self.path}"):
            return False
        logger.info("batch %d is in %s already", batch.batch, self.path)
        return True


def _recording(batch: BatchOfRun) -> Any:
    """Return properties of a commit that record a batch; no other commit is taken for it."""
    delta = _deltalake()
    transaction = delta.transaction.Transaction(batch.run, batch.batch)
    return delta.CommitProperties(app_transactions=[transaction])


@contextmanager
def _commit(path: str) -> Iterator[None]:
    try:
        yield
    except _deltalake().exceptions.CommitFailedError as error:
        raise StoreError(
            f"Delta refused a commit to {path} ({error}): another driver runs on the same "
            "checkpoint, or the table was changed meanwhile. Run one driver; the batch is "
            "repeated at a restart"
        ) from error


def _deltalake() -> Any:
    try:
        import deltalake
    except ImportError as error:
        raise missing_extra("deltalake", "delta") from error
    return deltalake
