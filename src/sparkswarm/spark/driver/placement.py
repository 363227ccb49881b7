"""Placement: the tasks of an executor run on the same host in every batch.

Owns which host that is, and how Spark is told. An executor's segments are mapped on its host; on
another one they would have to be fetched. Spark's scheduler knows where the rows of a cached or
local collection are, and prefers to run a task there: so a frame with one row for each executor,
each row at home on the executor's host, is joined with what the executors get. Both sides are
partitioned by the executor's number, so the join moves nothing. A host that is gone or busy is no
obstacle: the task runs elsewhere, with the same results.

Runs on the driver. Hosts are looked up once a batch; a frame is made when they change.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from sparkswarm.spark.driver.rdd_frames import rdd_frame, some_partitions
from sparkswarm.spark.session import executor_hosts

logger = logging.getLogger(__name__)

ANCHOR = "anchor"
"""Column with the number of an executor, beside the columns of packed rows."""


def assign_hosts(
    before: Sequence[str], executors: int, weights: Mapping[str, int]
) -> tuple[str, ...]:
    """Return the host of each executor: evenly by weight, with as few changes as that takes.

    Parameters
    ----------
    before
        Hosts of the executors until now; some may be gone, and their number may differ.
    executors
        Number of executors.
    weights
        How much of the work each host can take.
    """
    total = sum(weights.values())
    most = {host: -(-executors * weight // total) for host, weight in weights.items()}
    taken: Counter[str] = Counter()
    hosts = [""] * executors
    for m, host in enumerate(before[:executors]):
        if taken[host] < most.get(host, 0):
            hosts[m] = host
            taken[host] += 1
    for m in range(executors):
        if not hosts[m]:
            room = [host for host in weights if taken[host] < most[host]]
            hosts[m] = min(room, key=lambda host: ((taken[host] + 1) / weights[host], host))
            taken[hosts[m]] += 1
    return tuple(hosts)


@dataclass(frozen=True)
class Anchors:
    """Where the tasks of each executor run, as Spark takes it.

    Attributes
    ----------
    hosts
        The host of each executor.
    frame
        A row with the number of each executor; its partition is at home on the executor's host.
    """

    hosts: tuple[str, ...]
    frame: DataFrame

    @property
    def numbers(self) -> tuple[int, ...]:
        """The host of each executor, as a number."""
        hosts = sorted(set(self.hosts))
        return tuple(map(hosts.index, self.hosts))

    @property
    def executors(self) -> DataFrame:
        """The numbers of the executors, as ``id``; a task for each, on its host."""
        return self.frame.select(F.col(ANCHOR).cast("bigint").alias("id"))

    def of_executors(self, numbers: Sequence[int]) -> DataFrame:
        """Return the numbers of some executors; a task for each, on its host."""
        return some_partitions(self.frame, numbers)

    def place(self, rows: DataFrame) -> DataFrame:
        """Return packed rows, partitioned by target, on the hosts of their targets."""
        # The rows of an executor are passed on as they come: the other side is what is hashed.
        on_hosts = rows.join(self.frame.hint("shuffle_hash"), F.col("target") == F.col(ANCHOR))
        return on_hosts.drop(ANCHOR)


class HostPlacement:
    """The hosts of the executors, from batch to batch."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._known: dict[str, int] = {}
        self._hosts: tuple[str, ...] = ()
        self._anchors: Anchors | None = None
        self._works = True

    @property
    def one_host(self) -> bool:
        """Whether all executors of Spark were on one host when last looked up."""
        return len(self._known) <= 1

    def look_up(self, executors: int) -> Anchors | None:
        """Return where the tasks of a batch should run; None where there is no choice."""
        known = executor_hosts(self._spark)
        if known == self._known and executors == len(self._hosts):
            return self._anchors
        if self._known and known != self._known:
            logger.info("hosts of Spark's executors: %s, before: %s", known, self._known)
        self._known = known
        self._hosts = assign_hosts(self._hosts, executors, known)
        self._anchors = None
        if not self.one_host and self._works:
            try:
                self._anchors = Anchors(self._hosts, anchored(self._spark, self._hosts))
            except (Py4JError, TypeError) as error:
                self._works = False
                logger.warning("executors have no hosts of their own with this Spark: %s", error)
        return self._anchors


def anchored(spark: SparkSession, hosts: Sequence[str]) -> DataFrame:
    """Return the numbers of executors, each in a partition at home on a host.

    Spark's API in Python cannot say where a partition is, nor how a frame is partitioned; the
    classes behind it can.
    """
    context: Any = spark.sparkContext
    jvm = context._jvm
    sql = jvm.org.apache.spark.sql
    numbers = spark.range(0, len(hosts), 1, 1).select(F.col("id").cast("int").alias(ANCHOR))
    query = numbers._jdf.queryExecution()
    sequence = jvm.org.apache.spark.api.python.PythonUtils.toSeq
    rows = query.executedPlan().executeCollect()
    at_home = [jvm.scala.Tuple2(rows[m], sequence([host])) for m, host in enumerate(hosts)]
    row_class = jvm.java.lang.Class.forName("org.apache.spark.sql.catalyst.InternalRow")
    tag = jvm.scala.reflect.ClassTag.apply(row_class)
    rdd = context._jsc.sc().makeRDD(sequence(at_home), tag)
    columns = query.analyzed().output()
    target = sql.catalyst.expressions.DirectShufflePartitionID(columns.head())
    by_number = sql.catalyst.plans.physical.ShufflePartitionIdPassThrough(target, len(hosts))
    return rdd_frame(spark, columns, rdd, by_number)
