"""Plain Spark as a rival in ``sparkswarm bench engine``, as fast as possible.

What an engineer who knows Spark well would write by hand, with no Python in the data path. The
space is divided into square cells. The queries are cached as one row per cell with an array of
all queries that overlap it, partitioned and sorted by cell. So only the points are shuffled and
sorted, and a merge join brings them to their candidates, one cell after another, while its
queries are in the processor's cache. An ``inline`` and a comparison turn candidates into results,
pairs of a point and a query; a ``filter`` of the array makes lists, a row for each point.

Changed queries go to a small table that overrides the large one. When it has grown to a share of
the large one, the large one is rebuilt.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import ceil
from statistics import median

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery

from sparkswarm.bench.inputs import CHANGES_SCHEMA, POINTS_SCHEMA, QUERIES_SCHEMA, Inputs
from sparkswarm.errors import WorkloadError
from sparkswarm.spark.session import session, temporary_settings

WARM_UP = 2
"""Batches that are not measured, in which Java compiles its code."""

CELL_SIDE = 0.5
"""Side of a cell relative to that of a query. Smaller cells have fewer candidates, but there are
more of them in every batch. 0.5 is best for points with many results, 1 for points with few."""

SHUFFLE_PARTITIONS_PER_CORE = 4
"""More than one, so that the cells of a large city do not delay one core."""

REBUILD_AT = 0.1
"""Share of changed queries at which the large table is rebuilt."""

JVM_OPTIONS = {"spark.driver.memory": "8g", "spark.driver.extraJavaOptions": "-XX:+UseParallelGC"}
"""Options of the session on one machine; they cannot be set later."""

SETTINGS = {
    # Sizes are known in advance: adaptive execution would cost more than it gains.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.inMemoryColumnarStorage.compressed": "false",
}
"""Settings of the session while the rival runs."""

_EDGES = ("min_x", "min_y", "max_x", "max_y")


@dataclass(frozen=True)
class PlainSparkRun:
    """The result of a run.

    Attributes
    ----------
    points
        Points per batch.
    seconds
        Seconds of each batch after the first :data:`WARM_UP`, as in Spark's progress reports
        (``triggerExecution``): listing files, reading and matching points, computing all results
        for a sink that drops them, logging progress. With changing queries, also updating the
        tables.
    results
        Number of results of every batch, the first included; empty if they were not counted.
    """

    points: int
    seconds: list[float]
    results: list[int]

    @property
    def points_per_second(self) -> float:
        """Throughput in the median batch."""
        return self.points / median(self.seconds)


def run_plain_spark(
    spark: SparkSession,
    inputs: Inputs,
    batches: int,
    churn: bool,
    on_batch: Callable[[int, float], None] | None = None,
    count: bool = True,
    cell_side: float = CELL_SIDE,
    lists: bool = False,
) -> PlainSparkRun:
    """Match a stream of points with the queries, one micro-batch for each batch of the inputs.

    The queries are cached before the first batch. Results are counted in a second run over the
    same batches, which is not measured.

    Parameters
    ----------
    spark
        The session; it should have been started with :data:`JVM_OPTIONS`. Settings that are
        changed for the run are restored.
    inputs
        The inputs.
    batches
        Number of batches, the warm-up included.
    churn
        Whether the changes of each batch are applied before its points are matched.
    on_batch
        Called after every batch of the measured run with its number and its seconds.
    count
        Whether to count the results.
    cell_side
        Side of a cell relative to that of a query.
    lists
        Whether results are lists of queries, a row for each point, instead of pairs. Without
        churn only.

    Raises
    ------
    WorkloadError
        If the inputs have fewer batches, or none is left after the warm-up.
    """
    if not WARM_UP < batches <= inputs.batches:
        raise WorkloadError(
            f"batches must be above {WARM_UP} (the warm-up) and at most {inputs.batches} (in the "
            f"inputs), got {batches}"
        )
    partitions = SHUFFLE_PARTITIONS_PER_CORE * spark.sparkContext.defaultParallelism
    settings = SETTINGS | {"spark.sql.shuffle.partitions": str(partitions)}
    seconds: dict[int, float] = {}
    results: dict[int, int] = {}

    def timed(batch: int, took: float) -> None:
        seconds[batch] = took
        if on_batch:
            on_batch(batch, took)

    def count_results(found: DataFrame, batch: int) -> None:
        if lists:
            found = found.select(F.explode("query_ids"))
        results[batch] = found.count()

    with temporary_settings(spark, settings):
        first = PlainSpark(spark, inputs, partitions, cell_side)
        _run(first, batches, churn, _drop_results, timed, lists)
        if count:
            again = PlainSpark(spark, inputs, partitions, cell_side)
            _run(again, batches, churn, count_results, lambda *_: None, lists)
    return PlainSparkRun(
        inputs.points,
        [seconds[batch] for batch in range(WARM_UP, batches)],
        [results[batch] for batch in range(batches if count else 0)],
    )


def _drop_results(results: DataFrame, batch: int) -> None:
    results.write.format("noop").mode("overwrite").save()


class PlainSpark:
    """The cached queries, and the join of points with them.

    Parameters
    ----------
    spark, inputs
        The session, and the inputs.
    partitions
        Number of partitions of the cells; must be ``spark.sql.shuffle.partitions``.
    cell_side
        Side of a cell relative to that of a query.
    queries
        The queries; by default those of the inputs.
    details
        Columns of the queries beside their rectangles.
    condition
        An additional join condition on the columns of points and queries.
    """

    def __init__(
        self,
        spark: SparkSession,
        inputs: Inputs,
        partitions: int,
        cell_side: float,
        queries: DataFrame | None = None,
        details: tuple[str, ...] = (),
        condition: Column | None = None,
    ) -> None:
        self._spark = spark
        self._inputs = inputs
        self._partitions = partitions
        self._details = details
        self._condition = condition
        self._columns = ceil(1 / (inputs.side * cell_side))
        files = spark.read.schema(QUERIES_SCHEMA)
        self._queries = queries or files.parquet(str(inputs.queries_folder))
        self._cells = self._kept(self._queries)
        self._changed: DataFrame | None = None
        self._changed_cells: DataFrame | None = None

    def stream(self, batches: int) -> DataFrame:
        """Return the stream of points, with a micro-batch for each of the first batches."""
        files = ",".join(f"batch={batch:05d}-*" for batch in range(batches))
        return (
            self._spark.readStream.schema(POINTS_SCHEMA)
            .option("maxFilesPerTrigger", self._inputs.files_per_batch)
            .option("pathGlobFilter", "{" + files + "}")
            .parquet(str(self._inputs.points_folder))
        )

    def with_cell(self, points: DataFrame) -> DataFrame:
        """Add the ``cell`` of each point."""
        cell = self._line("y", F.col("y")) * self._columns + self._line("x", F.col("x"))
        return points.withColumn("cell", cell)

    def match(self, points: DataFrame, *keep: str) -> DataFrame:
        """Return the results: all pairs of a point ``id`` and a ``query`` that contains it.

        ``keep`` are further columns of the points in the results.
        """
        names = points.columns
        points = self.with_cell(points)
        pairs = _inside(points.join(self._cells.hint("merge"), "cell"), names, self._condition)
        pairs = pairs.select("id", "query", *keep)
        if self._changed is None or self._changed_cells is None:
            return pairs
        # Changed queries are few and broadcast, so the points are shuffled only once.
        stale = F.broadcast(self._changed.select(F.col("id").alias("query")))
        changed = _inside(points.join(F.broadcast(self._changed_cells), "cell"), names, None)
        pairs = pairs.join(stale, "query", "left_anti").select("id", "query")
        return pairs.union(changed.select("id", "query"))

    def match_lists(self, points: DataFrame) -> DataFrame:
        """Return a row for each point in a query: its ``id`` and the array of its ``query_ids``.

        A point meets all queries of its cell in one array, so nothing has to be grouped.
        """
        x, y = F.col("x"), F.col("y")
        inside_of = F.filter(
            "queries",
            lambda q: (q.min_x <= x) & (x <= q.max_x) & (q.min_y <= y) & (y <= q.max_y),
        )
        found = self.with_cell(points).join(self._cells.hint("merge"), "cell")
        lists = found.select("id", F.transform(inside_of, lambda q: q.query).alias("query_ids"))
        return lists.where(F.size("query_ids") > 0)

    def change(self, batch: int) -> None:
        """Apply a batch's changes."""
        files = self._spark.read.schema(CHANGES_SCHEMA)
        changed = files.parquet(str(self._inputs.changes_file(batch))).drop("op")
        if self._changed is not None:
            changed = _overruled(self._changed, changed)
        # The checkpoint cuts the lineage, which would grow with each batch.
        changed = changed.coalesce(1).localCheckpoint()
        if changed.count() < REBUILD_AT * self._inputs.queries:
            self._changed = changed
            self._changed_cells = self._by_cell(changed, 1)
            return
        self._queries = _overruled(self._queries, changed).localCheckpoint()
        self._changed = self._changed_cells = None
        self._cells.unpersist()
        self._cells = self._kept(self._queries)

    def close(self) -> None:
        """Release the cached queries."""
        self._cells.unpersist()

    def _kept(self, queries: DataFrame) -> DataFrame:
        kept = self._by_cell(queries, self._partitions).sortWithinPartitions("cell")
        kept.persist(StorageLevel.MEMORY_ONLY).count()
        return kept

    def exploded(self, queries: DataFrame) -> DataFrame:
        """Return a row for every query and every ``cell`` that it overlaps."""
        for axis in ("x", "y"):
            first, last = (self._line(axis, F.col(f"{end}_{axis}")) for end in ("min", "max"))
            queries = queries.withColumn(f"line_{axis}", F.explode(F.sequence(first, last)))
        cell = F.col("line_y") * self._columns + F.col("line_x")
        return queries.withColumn("cell", cell).drop("line_x", "line_y")

    def _by_cell(self, queries: DataFrame, partitions: int) -> DataFrame:
        """Return a row for every ``cell`` with queries, with an array of these."""
        query = F.struct(F.col("id").alias("query"), *_EDGES, *self._details)
        return (
            self.exploded(queries)
            .select("cell", query.alias("query"))
            .repartition(partitions, "cell")
            .groupBy("cell")
            .agg(F.collect_list("query").alias("queries"))
        )

    def _line(self, axis: str, value: Column) -> Column:
        """Return the number of the column (axis x) or row (axis y) of cells of a value.

        It is monotonic, so no result is lost to rounding.
        """
        bounds = self._inputs.bounds
        start, length = (
            (bounds.min_x, bounds.width) if axis == "x" else (bounds.min_y, bounds.height)
        )
        line = F.floor((value - start) / (length / self._columns)).cast("int")
        return F.least(F.greatest(line, F.lit(0)), F.lit(self._columns - 1))


def inside() -> Column:
    """Return the condition that a point is in the rectangle of a query."""
    x, y = F.col("x"), F.col("y")
    across = (F.col("min_x") <= x) & (x <= F.col("max_x"))
    return across & (F.col("min_y") <= y) & (y <= F.col("max_y"))


def _inside(candidates: DataFrame, columns: list[str], condition: Column | None) -> DataFrame:
    pairs = candidates.select(*columns, F.inline("queries")).where(inside())
    return pairs if condition is None else pairs.where(condition)


def _overruled(queries: DataFrame, changed: DataFrame) -> DataFrame:
    """Return the queries with changes applied."""
    same = queries.join(F.broadcast(changed.select("id")), "id", "left_anti")
    return same.select("id", *_EDGES).union(changed.select("id", *_EDGES))


def _run(
    rival: PlainSpark,
    batches: int,
    churn: bool,
    sink: Callable[[DataFrame, int], None],
    on_batch: Callable[[int, float], None],
    lists: bool,
) -> None:
    """Run all batches once, with a sink for the results."""

    def run_batch(points: DataFrame, batch: int) -> None:
        if churn:
            rival.change(batch)
        sink(rival.match_lists(points) if lists else rival.match(points), batch)

    with tempfile.TemporaryDirectory() as checkpoint:
        query = (
            rival.stream(batches)
            .writeStream.foreachBatch(run_batch)
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        try:
            follow(query, on_batch)
        finally:
            query.stop()
            rival.close()


def follow(query: StreamingQuery, on_batch: Callable[[int, float], None]) -> None:
    """Wait until the query ends; call ``on_batch`` for every batch that Spark reports."""
    told = -1
    ended = False
    while not ended:
        ended = bool(query.awaitTermination(1))
        for progress in query.recentProgress:
            # A trigger that found no points reports no new batch.
            if progress["batchId"] > told and progress["numInputRows"]:
                told = progress["batchId"]
                on_batch(told, progress["durationMs"]["triggerExecution"] / 1000)


def batch_seconds(query: StreamingQuery) -> dict[int, float]:
    """Return the seconds (``triggerExecution``) of every recent batch with points, by number."""
    return {
        progress["batchId"]: progress["durationMs"]["triggerExecution"] / 1000
        for progress in query.recentProgress
        if progress["numInputRows"]
    }


def bench_session(name: str, cores: int, options: Mapping[str, str] | None = None) -> SparkSession:
    """Start a session for a benchmark on some cores of this machine."""
    quiet = dict.fromkeys(("spark.ui.enabled", "spark.ui.showConsoleProgress"), "false")
    return session(name, f"local[{cores}]", quiet | JVM_OPTIONS | dict(options or {}))
