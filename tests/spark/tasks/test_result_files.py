"""Results that tasks write: of a task that runs several times, one file counts."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark import Accumulator

from sparkswarm import ParquetSink
from sparkswarm.spark.columns import QUERY_ID, QUERY_IDS
from sparkswarm.spark.driver.batch import OutputCollector
from sparkswarm.spark.task_input import ResultFiles
from sparkswarm.spark.task_output import OutputSchema
from sparkswarm.spark.tasks import direct
from sparkswarm.spark.tasks.context import BatchContext
from sparkswarm.store.queries import ID

from ...support.tasks import RESULTS, Tasks, points_table, register, with_partition

PAIRS = pa.schema([(ID, pa.int64()), (QUERY_ID, pa.int64())])
POINTS = [(n, 0.5 + n % 8, 0.5 + n // 8) for n in range(64)]


def collector() -> OutputCollector:
    """Return a collector without Spark; accumulators need it for their numbers alone."""
    numbers = itertools.count()
    context: Any = SimpleNamespace(accumulator=lambda v, p: Accumulator(next(numbers), v, p))
    return OutputCollector(context)


def dying(rows: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield half of the rows, then fail as a task does that loses its machine."""
    yield from rows[: len(rows) // 2]
    raise OSError("the machine is gone")


@pytest.mark.parametrize("schema", [RESULTS, PAIRS])
def test_of_a_retried_task_and_its_speculative_twin_one_file_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, schema: pa.Schema
) -> None:
    monkeypatch.setattr(direct, "CHUNK_ROWS", 8)
    tasks = Tasks(tmp_path / "checkpoint")
    tasks.apply(*(register(n, 0.0, 0.0, 1.0 + n, 8.0) for n in range(8)))
    out = tmp_path / "out"
    sink = ParquetSink(str(out))
    staged = sink.stage(0, "test")
    tasks.input = replace(
        tasks.input,
        result_files=ResultFiles(folder=str(staged)),
        output_schema=OutputSchema(results=schema),
    )
    table = points_table(*POINTS, (64, float("nan"), 1.0))
    rows = [batch for chunk in with_partition(table, 3) for batch in chunks(chunk)]
    outputs = collector()
    context = BatchContext(tasks.input)
    with pytest.raises(OSError, match="the machine is gone"):
        list(direct.match_task(context.for_task(3, 10, outputs.add), dying(rows)))
    assert [*staged.iterdir()], "it had written results"
    for attempt in (11, 12):
        assert not list(direct.match_task(context.for_task(3, attempt, outputs.add), rows))
    assert len([*staged.iterdir()]) == 3
    (counted,) = outputs.take(0)
    assert (counted.points, sum(counted.rejected.values())) == (64, 1)
    sink.publish(staged, 0, counted.result_files, schema)
    (file,) = (out / "batch_id=0").iterdir()
    assert [path.name for path in out.iterdir()] == ["batch_id=0"]
    found = sorted(
        (row[ID], query)
        for row in pq.read_table(file).to_pylist()
        for query in row.get(QUERY_IDS, [row.get(QUERY_ID)])
    )
    assert found == sorted((p, q) for p, x, _ in POINTS for q in range(8) if x <= 1.0 + q)


def chunks(rows: pa.RecordBatch) -> list[pa.RecordBatch]:
    """Return rows as Spark sends them, a few at a time."""
    return [rows.slice(start, 8) for start in range(0, rows.num_rows, 8)]


def test_columns_of_points_come_back_with_every_pair(tmp_path: Path) -> None:
    """Of any type, with nulls, and in slices of larger tables."""
    tasks = Tasks(tmp_path)
    tasks.apply(*(register(n, 0.0, 0.0, 1.0 + n, 8.0) for n in range(8)))
    also = {
        "__speed": pa.array([n / 4 for n in range(64)]),
        "__seats": pa.array([None if n % 3 else n for n in range(64)]),
        "__name": pa.array([f"van {n}" for n in range(64)]),
        "__seen": pa.array([n * 10**6 for n in range(64)], pa.timestamp("us", "UTC")),
    }
    table = points_table(*POINTS)
    for name, values in also.items():
        table = table.append_column(name, values)
    schema = pa.schema(
        [(ID, pa.int64()), *((n, v.type) for n, v in also.items()), (QUERY_ID, pa.int64())]
    )
    tasks.input = replace(
        tasks.input, output_schema=OutputSchema(results=schema, include=tuple(also))
    )
    rows = tasks.run(direct.match_task, with_partition(table.slice(5, 50)))
    found = sorted(
        pa.Table.from_batches(rows).to_pylist(), key=lambda row: (row[ID], row[QUERY_ID])
    )
    given = [row for row in table.slice(5, 50).drop_columns(["__x", "__y"]).to_pylist()]
    assert found == [
        {**row, QUERY_ID: q} for row in given for q in range(8) if POINTS[row[ID]][1] <= 1.0 + q
    ]
