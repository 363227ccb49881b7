"""DataFrames of Spark's own RDDs of rows.

Spark's API in Python has no way from an RDD of internal rows to a DataFrame; the classes behind it
have. Runs on the driver.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame, SparkSession


def rdd_frame(spark: SparkSession, columns: Any, rdd: Any, partitioning: Any) -> DataFrame:
    """Return the frame of an RDD of internal rows with these columns, partitioned in this way."""
    jvm: Any = spark._jvm
    session, sql = spark._jsparkSession, jvm.org.apache.spark.sql
    none = getattr(jvm.scala, "None$").__getattr__("MODULE$")
    nothing = jvm.org.apache.spark.api.python.PythonUtils.toSeq([])
    plan = sql.execution.LogicalRDD(
        columns, rdd, partitioning, nothing, False, none, session, none, none, False
    )
    return DataFrame(sql.classic.Dataset.ofRows(session, plan), spark)
