"""Rows in an order that does not change when a task runs again.

What the route task lends, and what it deals to the owners of a shared cell, depends on the order of
its rows. Rows that come out of a shuffle have another order at each attempt, and Spark takes it
that a task makes the same of them in any order: after the loss of an executor some points would go
to two others, and some to none. Runs on the driver, once a batch.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import ArrayType, DataType, MapType, StructType, VariantType

DETERMINATE = "DETERMINATE"
"""Spark's word for rows that come in the same order at each attempt."""


def in_fixed_order(rows: DataFrame) -> DataFrame:
    """Return rows sorted within their partitions by a hash of them, unless their order is fixed."""
    level = rows._jdf.queryExecution().toRdd().outputDeterministicLevel()
    if level.toString() == DETERMINATE:
        return rows
    hashed = [_to_hash(field.name, field.dataType) for field in rows.schema]
    # A null adds nothing to a hash, in whichever column it is.
    nulls = [F.col(field.name).isNull() for field in rows.schema if field.nullable]
    return rows.sortWithinPartitions(F.xxhash64(*hashed, *nulls))


def _to_hash(name: str, kind: DataType) -> Column:
    """Return what stands for a column in the hash of a row.

    Spark hashes no maps, and of arrays only what is in them, one element after the other.
    """
    if isinstance(kind, (ArrayType, MapType, StructType, VariantType)):
        return F.to_json(F.struct(name), {"ignoreNullFields": "false"})
    return F.col(name)
