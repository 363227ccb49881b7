"""Packets on the driver: the Java class that packs rows by time, and the frame that it makes.

Runs on the driver, once per start, in Real-time Mode only. Spark has no timeout after which it
sends what it has to Python, so rows are packed before, by the Java class ``sparkswarm.Packets``.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.types import ArrayType, StructType

from sparkswarm.spark.driver.jars import load_jar
from sparkswarm.spark.tasks.packets import PACKED_COLUMN

LINGER_MS = 2.0
"""Time from one packet to the next, at least; a row that comes later leaves at once."""

PACKET_ROWS = 4096
"""Most rows of a packet."""

SETTINGS = {
    # A packet, and the empty row before it.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "2",
    # Spark sends what it has when there are more bytes than these.
    "spark.sql.execution.pandas.udf.buffer.size": "64",
}
"""Settings with which Spark sends each packet to Python at once."""


def packets_of(frame: DataFrame) -> DataFrame:
    """Return rows in packets, one in each row of a column with arrays."""
    spark = frame.sparkSession
    load_jar(spark, "sparkswarm.spark", "packets.jar")
    jvm: Any = spark._jvm
    schema = StructType().add(PACKED_COLUMN, ArrayType(frame.schema))
    java_schema = jvm.org.apache.spark.sql.types.DataType.fromJson(schema.json())
    packer = jvm.sparkswarm.Packets(LINGER_MS, PACKET_ROWS)
    encoder = jvm.org.apache.spark.sql.Encoders.row(java_schema)
    return DataFrame(frame._jdf.mapPartitions(packer, encoder), spark)
