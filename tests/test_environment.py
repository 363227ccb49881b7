"""The environment that `make setup` makes can run Spark, Java and Python workers included."""

from collections.abc import Iterator

import pyarrow as pa
from pyspark import TaskContext

from .support.spark import spark  # noqa: F401


def test_spark_routes_rows_to_python_workers(spark):  # noqa: F811
    def tag(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        partition = TaskContext.get().partitionId()
        for batch in batches:
            actual = pa.array([partition] * batch.num_rows, pa.int32())
            yield pa.RecordBatch.from_arrays(
                [batch.column("id"), batch.column("wanted"), actual], ["id", "wanted", "actual"]
            )

    rows = (
        spark.range(12)
        .selectExpr("id", "cast(id % 3 as int) as wanted")
        .repartitionById(3, "wanted")
        .mapInArrow(tag, "id long, wanted int, actual int")
        .collect()
    )
    # Each row was in the very partition it asked for, and none was lost or doubled.
    assert sorted((row.id, row.wanted, row.actual) for row in rows) == [
        (n, n % 3, n % 3) for n in range(12)
    ], rows
