"""Packets on the driver: the Java class that packs rows by time, and the frame that it makes.

Runs on the driver, once per start. Spark has no timeout after which it sends what it has to Python,
so rows are packed before, by ``sparkswarm.Packets``: its source is in ``spark/java``, and the jar
beside it is built by ``scripts/build_java.py``. It is used in Real-time Mode only.
"""

from __future__ import annotations

from importlib.resources import as_file, files
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import ArrayType, StructType

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

_loaded: set[str] = set()


def load_packer(spark: SparkSession) -> None:
    """Let the driver and the executors of a session know the Java class."""
    context: Any = spark.sparkContext
    if context.applicationId in _loaded:
        return
    with as_file(files("sparkswarm.spark") / "java" / "packets.jar") as jar:
        url = context._jvm.java.io.File(str(jar)).toURI().toURL()
        context._jvm.java.lang.Thread.currentThread().getContextClassLoader().addURL(url)
        context._jsc.addJar(str(jar))
    _loaded.add(context.applicationId)


def packets_of(frame: DataFrame) -> DataFrame:
    """Return rows in packets, one in each row of a column with arrays."""
    spark = frame.sparkSession
    jvm: Any = spark._jvm
    schema = StructType().add(PACKED_COLUMN, ArrayType(frame.schema))
    java_schema = jvm.org.apache.spark.sql.types.DataType.fromJson(schema.json())
    packer = jvm.sparkswarm.Packets(LINGER_MS, PACKET_ROWS)
    encoder = jvm.org.apache.spark.sql.Encoders.row(java_schema)
    return DataFrame(frame._jdf.mapPartitions(packer, encoder), spark)
