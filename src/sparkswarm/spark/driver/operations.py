"""Reads the operations of a batch without its points.

Inside ``foreachBatch`` the frame is a scan of an RDD that exists already: Spark pushes nothing
below it, and a filter that keeps operations reads every point. But the RDD is the union of the
branches of the stream, and that of the operations is the last (``layout.union_stream``): a job on
the RDD from which that branch makes lines reads nothing else, makes no lines, and needs no Python
worker. The stages that read points are given the other partitions. Where the frame looks different,
a filter it is, and lines are parsed. Runs on the driver, once a batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv
from pyspark.serializers import FramedSerializer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.util import _load_from_socket

from sparkswarm.spark.columns import OPERATIONS
from sparkswarm.spark.driver.rdd_frames import frame_of_rdd, some_partitions
from sparkswarm.store.queries import ABOUT

_BARRIER = "CollectMetrics"
"""Spark's name of the node that keeps the operations apart."""


_BLOCK = 1 << 20
"""Bytes of lines that are parsed at a time; more where a line is longer."""


class _Bytes(FramedSerializer):
    """Hands over bytes as they are."""

    def loads(self, obj: bytes) -> bytes:
        return obj


class SeparatedRows(NamedTuple):
    """The rows of a batch, told apart.

    Attributes
    ----------
    operations
        The operations in the order in which Spark read them; None without any.
    points
        The other rows; where they cannot be told apart, all rows.
    """

    operations: pa.Table | None
    points: DataFrame


def separate_rows(rows: DataFrame, types: Mapping[str, pa.DataType]) -> SeparatedRows:
    """Read the operations of a batch.

    ``types`` are their columns, in the order in which rows and lines have them.
    """
    branch = _operations_branch(rows)
    if branch is None:
        lines = rows.select(OPERATIONS)
        column = lines.where(F.col(OPERATIONS).isNotNull()).toArrow().column(0)
        return SeparatedRows(parse_lines(column, types) if len(column) else None, rows)
    if branch.rdd is None:
        return SeparatedRows(None, rows)
    operations = _read_rdd(rows.sparkSession, branch.rdd, pa.schema(types.items()))
    number, total = branch.rdd.getNumPartitions(), branch.partitions
    # The stages after need a task, so that everybody reports.
    points = (
        some_partitions(rows, range(total - number), without=OPERATIONS) if number < total else rows
    )
    return SeparatedRows(operations if operations.num_rows else None, points)


def _read_rdd(spark: SparkSession, rdd: Any, schema: pa.Schema) -> pa.Table:
    """Return the rows of an RDD of internal rows, in a job on it alone."""
    context, frame = spark.sparkContext, frame_of_rdd(spark, from_arrow_schema(schema), rdd)._jdf
    batches = frame.toArrowBatchRdd(frame.queryExecution().executedPlan()).toJavaRDD()
    partitions: Any = context._jvm.java.util.ArrayList()  # type: ignore[union-attr]
    for partition in range(rdd.getNumPartitions()):
        partitions.add(partition)
    served = context._jvm.PythonRDD.runJob(context._jsc.sc(), batches, partitions)  # type: ignore
    with _load_from_socket(served, _Bytes()) as stream:
        found = [pa.ipc.read_record_batch(pa.py_buffer(one), schema) for one in stream]
    table = pa.Table.from_batches(found, schema)
    # Spark does not check its strings.
    table.validate(full=True)
    return table


class _Branch(NamedTuple):
    """The branch of the operations in the frame of a batch.

    Attributes
    ----------
    rdd
        The RDD of operations before they become lines, with as many partitions as the branch, which
        are the last of the frame's; None where the branch has none.
    partitions
        Number of partitions of the frame.
    """

    rdd: Any
    partitions: int


def _operations_branch(rows: DataFrame) -> _Branch | None:
    """Return the branch of the operations; None where the frame is not the union it should be."""
    plan = rows._jdf.queryExecution().logical()
    if plan.getClass().getSimpleName() != "LogicalRDD":
        return None
    rdd = scan = plan.rdd()
    while rdd.getClass().getSimpleName() != "UnionRDD":
        before = rdd.dependencies()
        if before.size() != 1 or before.apply(0).getClass().getSimpleName() != "OneToOneDependency":
            return None
        rdd = before.apply(0).rdd()
    branches, total = rdd.rdds(), scan.getNumPartitions()
    last = branches.apply(branches.size() - 1)
    while True:
        scope, before = last.scope(), last.dependencies()
        if scope.isDefined() and scope.get().name() == _BARRIER:
            return _Branch(last, total)
        if before.size() != 1:
            # Spark leaves out a branch without partitions.
            return _Branch(None, total)
        last = before.apply(0).rdd()


def parse_lines(lines: pa.ChunkedArray, types: Mapping[str, pa.DataType]) -> pa.Table:
    """Return operations, given as lines of CSV, with the engine's columns."""
    whole = pa.concat_arrays(lines.chunks)
    offsets = np.frombuffer(whole.buffers()[1], np.int32)[
        whole.offset : whole.offset + len(whole) + 1
    ]
    # Every line ends with a line break, so the values side by side are a file.
    content = whole.buffers()[2].slice(int(offsets[0]), int(offsets[-1] - offsets[0]))
    rows = pa.csv.read_csv(
        pa.BufferReader(content),
        read_options=pa.csv.ReadOptions(
            column_names=list(types),
            use_threads=False,
            # A line must fit a block, and a geometry or a list of keywords may be long.
            block_size=max(_BLOCK, int(np.diff(offsets).max(initial=0))),
        ),
        parse_options=pa.csv.ParseOptions(newlines_in_values=True),
        convert_options=pa.csv.ConvertOptions(
            column_types=dict(types),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
    for at, name in enumerate(rows.column_names):
        if name in ("id", ABOUT) and types[name] == pa.string():
            ids = [None if one is None else bytes.fromhex(one) for one in rows[name].to_pylist()]
            rows = rows.set_column(at, name, pa.array(ids, pa.binary()).cast(pa.string()))
    return rows
