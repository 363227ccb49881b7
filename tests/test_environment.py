"""The environment that `make setup` makes can really run Spark, Java and Python workers included.

The Spark part runs in a process of its own, so that it neither meets nor stops another test's
session.
"""

import subprocess
import sys
from collections.abc import Iterator

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession


def test_spark_routes_rows_to_python_workers():
    done = subprocess.run(
        [sys.executable, __file__], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "ok"


def _tag_with_partition(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    partition = TaskContext.get().partitionId()
    for batch in batches:
        actual = pa.array([partition] * batch.num_rows, pa.int32())
        yield pa.RecordBatch.from_arrays(
            [batch.column("id"), batch.column("wanted"), actual], ["id", "wanted", "actual"]
        )


def _main() -> None:
    spark = (
        SparkSession.builder.master("local[2]")
        .appName("environment")
        .config("spark.ui.enabled", "false")
        .config("spark.log.level", "ERROR")
        # The host's name need not resolve for a session that is all on one machine.
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )
    try:
        rows = (
            spark.range(12)
            .selectExpr("id", "cast(id % 3 as int) as wanted")
            .repartitionById(3, "wanted")
            .mapInArrow(_tag_with_partition, "id long, wanted int, actual int")
            .collect()
        )
    finally:
        spark.stop()
    # Each row was in the very partition it asked for, and none was lost or doubled.
    assert sorted((row.id, row.wanted, row.actual) for row in rows) == [
        (n, n % 3, n % 3) for n in range(12)
    ], rows
    print("ok")


if __name__ == "__main__":
    _main()
