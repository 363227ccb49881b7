"""Rows in an order that does not change when a task runs again.

What the route task lends, and what it deals to the owners of a shared cell, depends on the order of
its rows. Rows that come out of a shuffle have another order at each attempt, and Spark takes it
that a task makes the same of them in any order: after the loss of an executor some points would go
to two others, and some to none. Runs on the driver, once a batch.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

DETERMINATE = "DETERMINATE"
"""Spark's word for rows that come in the same order at each attempt."""


def in_fixed_order(rows: DataFrame) -> DataFrame:
    """Return rows sorted within their partitions by a hash of them, unless their order is fixed."""
    level = rows._jdf.queryExecution().toRdd().outputDeterministicLevel()
    if level.toString() == DETERMINATE:
        return rows
    return rows.sortWithinPartitions(F.xxhash64(*rows.columns))
