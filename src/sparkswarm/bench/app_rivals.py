"""The rivals in ``sparkswarm bench apps``: every kind of query in plain Spark, written by hand.

What an engineer who knows Spark well would write, with no Python in the data path. Points and
continuous queries are joined as in :mod:`sparkswarm.bench.plain_spark`: queries in memory by cell,
one shuffle of the points, a merge join. In addition:

- **subscriptions**: the conditions are columns of the queries, and part of the join condition;
- **aggregates**: Spark's own windows with a watermark, in append mode, with the default state
  store, which keeps state in memory;
- **snapshots**: each batch is appended to Parquet files with the cell of each point; a batch's
  snapshot queries are broadcast by cell and joined with the files of the window.
"""

from __future__ import annotations

import tempfile

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.readwriter import DataStreamWriter

from sparkswarm.bench.app_inputs import BATCH_SECONDS, LATE, SECOND, AppInputs
from sparkswarm.bench.inputs import Inputs
from sparkswarm.bench.plain_spark import (
    SETTINGS,
    SHUFFLE_PARTITIONS_PER_CORE,
    PlainSpark,
    follow,
    inside,
)
from sparkswarm.spark.session import temporary_settings
from sparkswarm.spark.sinks import NoopSink, Sink

POINTS = "id BIGINT, x DOUBLE, y DOUBLE, ts TIMESTAMP, speed DOUBLE, kind STRING"
EDGES = "min_x DOUBLE, min_y DOUBLE, max_x DOUBLE, max_y DOUBLE"
ASKS = f"op STRING, id BIGINT, {EDGES}"
SUBSCRIPTIONS = f"id BIGINT, {EDGES}, where STRING, least_speed DOUBLE, only_kind STRING"
AGGREGATES = f"id BIGINT, {EDGES}, aggregate STRING, window STRING"

CELL_SIDE = 1.0
"""Side of a cell relative to that of a continuous query, best for few results per point."""

ASK_CELL_SIDE = 5.0
"""The same for snapshot queries, which are larger: a few cells for each."""


class Rivals:
    """Runs of plain Spark over some inputs.

    Parameters
    ----------
    spark
        The session.
    inputs
        The inputs.
    window
        Length of the window of snapshot queries, in seconds.
    sink
        Gets the rows of each batch; by default they are computed and dropped.
    """

    def __init__(
        self, spark: SparkSession, inputs: AppInputs, window: int, sink: Sink | None = None
    ) -> None:
        self._spark = spark
        self._inputs = inputs
        self._window = window
        self._sink = sink or NoopSink()
        self._partitions = SHUFFLE_PARTITIONS_PER_CORE * spark.sparkContext.defaultParallelism

    def seconds(self, kind: str) -> list[float]:
        """Return the seconds of every batch of a kind of query."""
        settings = SETTINGS | {"spark.sql.shuffle.partitions": str(self._partitions)}
        run = {
            "subscriptions": self._subscriptions,
            "aggregates": self._aggregates,
            "snapshots": self._snapshots,
        }[kind]
        with temporary_settings(self._spark, settings):
            return run()

    def _subscriptions(self) -> list[float]:
        fast = F.col("least_speed").isNull() | (F.col("speed") >= F.col("least_speed"))
        same = F.col("only_kind").isNull() | (F.col("kind") == F.col("only_kind"))
        queries = self._read("subscriptions", SUBSCRIPTIONS)
        details = ("least_speed", "only_kind")
        join = self._join(queries, CELL_SIDE, details, fast & same)

        def each(points: DataFrame, batch: int) -> None:
            self._sink(join.match(points), batch)

        try:
            return self._run(self._stream().writeStream.foreachBatch(each))
        finally:
            join.close()

    def _aggregates(self) -> list[float]:
        join = self._join(self._read("aggregates", AGGREGATES), CELL_SIDE)
        points = self._stream().withWatermark("ts", f"{LATE // SECOND} seconds")
        told = (
            join.match(points, "ts", "speed")
            .groupBy(F.window("ts", f"{BATCH_SECONDS} seconds"), "query")
            .agg(F.count("*").alias("count"), F.avg("speed"), F.max("speed").alias("most"))
        )
        try:
            return self._run(told.writeStream.foreachBatch(self._sink).outputMode("append"))
        finally:
            join.close()

    def _snapshots(self) -> list[float]:
        with tempfile.TemporaryDirectory() as kept:
            # Without continuous queries: only for the cells.
            nothing = self._read("subscriptions", SUBSCRIPTIONS).limit(0)
            join = self._join(nothing, ASK_CELL_SIDE)
            now: list[int] = []

            def each(points: DataFrame, batch: int) -> None:
                first = max(0, batch - self._window // BATCH_SECONDS - 1)
                files = [f"{kept}/{earlier}" for earlier in range(first, batch)]
                if files:
                    self._answer(join, batch, files, now[-1])
                recent = join.with_cell(points.select("id", "x", "y", "ts", "speed"))
                recent.write.option("compression", "none").parquet(f"{kept}/{batch}")
                latest = self._spark.read.parquet(f"{kept}/{batch}").agg(F.max("ts")).collect()
                now.append(max([latest[0][0], *now[-1:]]))

            try:
                return self._run(self._stream().writeStream.foreachBatch(each))
            finally:
                join.close()

    def _answer(self, join: PlainSpark, batch: int, files: list[str], now: object) -> None:
        since = F.lit(now) - F.expr(f"INTERVAL {self._window} SECONDS")
        recent = self._spark.read.parquet(*files).where(F.col("ts") >= since)
        asks = self._spark.read.schema(ASKS).parquet(str(self._inputs.asks_file(batch)))
        asks = F.broadcast(join.exploded(asks.withColumnRenamed("id", "query")))
        found = recent.join(asks, "cell").where(inside())
        columns = ["query", "id", "x", "y", "ts", "speed"]
        counts = found.where("op = 'count'").groupBy("query").count()
        self._sink(found.where("op = 'range'").select(*columns), batch)
        self._sink(counts, batch)

    def _read(self, kind: str, schema: str) -> DataFrame:
        return self._spark.read.schema(schema).parquet(str(self._inputs.folder / kind))

    def _join(
        self,
        queries: DataFrame,
        cell_side: float,
        details: tuple[str, ...] = (),
        condition: Column | None = None,
    ) -> PlainSpark:
        i = self._inputs
        space = Inputs(i.folder, i.bounds, i.side, i.batches, i.points, 0, 0, i.files_per_batch)
        return PlainSpark(
            self._spark, space, self._partitions, cell_side, queries, details, condition
        )

    def _stream(self) -> DataFrame:
        return (
            self._spark.readStream.schema(POINTS)
            .option("maxFilesPerTrigger", self._inputs.files_per_batch)
            .parquet(str(self._inputs.folder / "points"))
        )

    def _run(self, writer: DataStreamWriter) -> list[float]:
        seconds: dict[int, float] = {}
        with tempfile.TemporaryDirectory() as checkpoint:
            query = (
                writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
            )
            try:
                follow(query, seconds.__setitem__)
            finally:
                query.stop()
        return [seconds[batch] for batch in range(self._inputs.batches)]
