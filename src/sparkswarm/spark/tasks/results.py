"""Results that leave a task: as rows for Spark, or in a file that the task writes itself.

Runs in the tasks that match points. Rows on their way into Spark cost more than the matching, so a
sink of files is written by the tasks. A file counts only because the task's output names it: the
driver publishes those files and no others, and what failed attempts wrote is deleted.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from sparkswarm.spark.task_input import ResultFiles
    from sparkswarm.spark.tasks.context import BatchContext
    from sparkswarm.spark.tasks.lots import Lot

SLICE_ROWS = 131_072
"""Most rows that are given to Spark at once: it holds them outside its heap."""


class ResultOutput:
    """The results of one task, lot by lot.

    Parameters
    ----------
    ctx
        The task's context.
    name
        Part of the name of its file: the task's number.
    """

    def __init__(self, ctx: BatchContext, name: str) -> None:
        self._schema = ctx.input.output_schema
        self._to = ctx.input.result_files
        self._name = f"part-{name}-{ctx.attempt}.parquet"
        self._writer: pq.ParquetWriter | None = None

    def add(self, lot: Lot) -> pa.RecordBatch | None:
        """Take the results of a lot; return them as rows if Spark is to have them."""
        results = self._schema.results
        if results is None:
            return None
        schema = self._schema
        columns = lot.results(schema.include, schema.id_type, schema.properties, schema.pairs)
        rows = schema.result_rows(columns)
        if self._to is None:
            return rows
        if rows.num_rows:
            # Packed rows among the results have columns of their own, which are not written.
            table = pa.Table.from_batches([rows.select(results.names)]).cast(results)
            self._write(table, self._to)
        return None

    @staticmethod
    def slices(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield rows in pieces of bounded size, as Spark is to have them."""
        for start in range(0, rows.num_rows, SLICE_ROWS):
            yield rows.slice(start, SLICE_ROWS)

    def _write(self, table: pa.Table, to: ResultFiles) -> None:
        if self._writer is None:
            path = Path(to.folder, self._name)
            # Ids are distinct or nearly so: a dictionary of them would be larger than they are.
            self._writer = pq.ParquetWriter(path, table.schema, use_dictionary=False)
        self._writer.write_table(table)

    def close(self) -> tuple[str, ...]:
        """Complete the file; return its name, if there is one."""
        if self._writer is None:
            return ()
        self._writer.close()
        return (self._name,)
