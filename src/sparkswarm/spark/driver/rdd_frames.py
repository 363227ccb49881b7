"""DataFrames of Spark's own RDDs of rows.

Spark's API in Python has no way from an RDD of internal rows to a DataFrame; the classes behind it
have. Runs on the driver.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, SparkSession

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


def some_partitions(rows: DataFrame, numbers: Sequence[int]) -> DataFrame:
    """Return the rows of some partitions of a frame that scans an RDD."""
    found = _classes_of(rows.sparkSession._jvm)
    scan = rows._jdf.queryExecution().logical()
    # A set of numbers is a function from a number to whether it is in it.
    chosen = found.python_utils.toSeq(list(numbers)).toSet()
    rdd = found.pruning.create(scan.rdd(), chosen)
    return rdd_frame(rows.sparkSession, scan.output(), rdd, found.unknown(len(numbers)))
