"""Ticks: a source of Spark's that has something new each second, so that there are batches.

Spark runs no batch while the sources have nothing new. Runs on the driver, once per start.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812


def ticks(spark: SparkSession) -> DataFrame:
    """Return a stream with a row each second; ``value`` counts them."""
    rate = spark.readStream.format("rate").option("rowsPerSecond", 1).option("numPartitions", 1)
    return rate.load()


def with_ticks(points: DataFrame) -> DataFrame:
    """Return the same stream of points, with a batch each second also where no point comes."""
    row = [F.lit(None).cast(field.dataType).alias(field.name) for field in points.schema]
    # Spark knows only when it runs the batch that this leaves nothing.
    return points.union(ticks(points.sparkSession).where(F.col("value") < 0).select(*row))
