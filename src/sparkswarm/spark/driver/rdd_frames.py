"""DataFrames of Spark's own RDDs of rows.

Spark's API in Python has no way from an RDD of internal rows to a DataFrame; the classes behind it
have. Runs on the driver.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

_ARGUMENTS = 9
"""Arguments of Spark's class in all versions."""


class _Classes(NamedTuple):
    """Spark's classes, looked up once: each part of a name is a call into the JVM."""

    python_utils: Any
    pruning: Any
    unknown: Any
    logical_rdd: Any
    more: tuple[Any, ...]
    dataset: Any
    types: Any
    none: Any


@lru_cache(maxsize=1)
def _classes_of(jvm: Any) -> _Classes:
    spark = jvm.org.apache.spark
    name = "org.apache.spark.sql.execution.LogicalRDD"
    (constructor,) = jvm.java.lang.Class.forName(name).getConstructors()
    return _Classes(
        python_utils=spark.api.python.PythonUtils,
        pruning=spark.rdd.PartitionPruningRDD,
        unknown=spark.sql.catalyst.plans.physical.UnknownPartitioning,
        logical_rdd=spark.sql.execution.LogicalRDD,
        # Spark 4.3 has one argument more than 4.2.
        more=(False,) * (constructor.getParameterCount() - _ARGUMENTS),
        dataset=spark.sql.classic.Dataset,
        types=spark.sql.catalyst.types.DataTypeUtils,
        none=getattr(jvm.scala, "None$").__getattr__("MODULE$"),
    )


def rdd_frame(spark: SparkSession, columns: Any, rdd: Any, partitioning: Any) -> DataFrame:
    """Return the frame of an RDD of internal rows with these columns, partitioned in this way."""
    found, session = _classes_of(spark._jvm), spark._jsparkSession
    nothing, none = found.python_utils.toSeq([]), found.none
    plan = found.logical_rdd(
        columns, rdd, partitioning, nothing, False, none, session, none, none, *found.more
    )
    return DataFrame(found.dataset.ofRows(session, plan), spark)


def frame_of_rdd(spark: SparkSession, schema: StructType, rdd: Any) -> DataFrame:
    """Return the frame of an RDD whose internal rows have this schema."""
    partitioning = _classes_of(spark._jvm).unknown(rdd.getNumPartitions())
    return rdd_frame(spark, _attributes(spark, schema.json()), rdd, partitioning)


@lru_cache(maxsize=4)
def _attributes(spark: SparkSession, schema: str) -> Any:
    return _classes_of(spark._jvm).types.toAttributes(spark._jsparkSession.parseDataType(schema))


def some_partitions(
    rows: DataFrame, numbers: Sequence[int], without: str | None = None
) -> DataFrame:
    """Return the rows of some partitions of a frame that scans an RDD.

    They lack the last column if it is called ``without``, at no cost: rows are read by position.
    """
    found = _classes_of(rows.sparkSession._jvm)
    scan = rows._jdf.queryExecution().logical()
    columns = scan.output()
    if columns.last().name() == without:
        columns = columns.dropRight(1)
    # A set of numbers is a function from a number to whether it is in it.
    chosen = found.python_utils.toSeq(list(numbers)).toSet()
    rdd = found.pruning.create(scan.rdd(), chosen)
    return rdd_frame(rows.sparkSession, columns, rdd, found.unknown(len(numbers)))
