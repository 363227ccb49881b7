"""The demo's stream: cities around the world through one day, subscriptions, and a hotspot.

Owns what is streamed and how the engine is started on it. It shows nothing.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from sparkswarm.apps.subscriptions.application import Subscriptions
from sparkswarm.config import PolicyName, SwarmConfig
from sparkswarm.geometry import Bounds
from sparkswarm.spark.engine import Handle, Swarm

POINTS, QUERIES, CHANGES = 200_000, 100_000, 3_000
"""Points of a batch, subscriptions registered, and operations on them in every later batch."""

BOUNDS = Bounds(-180, -60, 180, 75)
"""The world as far as cities go: without the ice around the poles."""

GRID = (720, 270)
"""Cells of half a degree."""

SIDE, BAD_ROWS = 0.0006, 0.001
"""A subscription's side as a share of the world's, some 20 km; and the share of bad points."""

HOTSPOT_SHARE = 0.6
HOTSPOT = "0.46,0.68,0.02,{share},{start},{stop},0.433,0.66"
"""A square of 7 by 3 degrees, which glides from Morocco over the Atlantic. A batch takes it a
fifteenth of its width or so further: were it much faster, its load would be no longer in one
place for long enough that SWARM thinks moving anything worth its while. It stays in one of the
partitions of an even division into eight."""

RATE = round(POINTS / (24 * 60))
"""Points in a second of the stream's time: a batch lasts 24 minutes, and 60 batches a day."""

TOPICS = ("food", "music", "news", "science", "sport", "traffic", "travel", "weather")


@dataclass(frozen=True)
class Scene:
    """What is streamed: so many batches, a day if there are 60."""

    batches: int
    executors: int
    seed: int

    @property
    def phases(self) -> dict[str, range]:
        """The batches before, during and after the hotspot."""
        borders = [0, self.batches // 3, 2 * self.batches // 3, self.batches]
        names = ("before", "during", "after")
        return {
            f"{name} the hotspot": range(*some)
            for name, some in zip(names, pairwise(borders), strict=True)
        }

    @property
    def during(self) -> range:
        """The batches in which the hotspot is there."""
        return self.phases["during the hotspot"]

    def hour(self, batch: int) -> float:
        """Return the hour of the day, UTC, in the middle of a batch."""
        return (batch + 0.5) * POINTS / RATE / 3600 % 24

    def point_options(self) -> dict[str, object]:
        """Return the options of the source of points: where people are awake, and the hotspot."""
        start, stop = (POINTS * batch // RATE for batch in (self.during.start, self.during.stop))
        return {
            **self._options(HOTSPOT_SHARE, start, stop),
            "rowsPerBatch": POINTS, "rowsPerSecond": RATE, "limit": POINTS * self.batches,
            "daylight": True, "badRows": BAD_ROWS,
        }  # fmt: skip

    def query_options(self) -> dict[str, object]:
        """Return the options of the source of operations on subscriptions.

        They wait where people live, asleep or not; those that are new while the hotspot is there
        wait in it. In this stream's own time a batch lasts a second, the first one longer.
        """
        later = QUERIES // CHANGES
        return {
            **self._options(1.0, self.during.start + later, self.during.stop + later),
            "queries": QUERIES, "churn": CHANGES / QUERIES, "rowsPerSecond": CHANGES,
            "limit": QUERIES + CHANGES * (self.batches - 1), "side": SIDE,
        }  # fmt: skip

    def _options(self, share: float, start: int, stop: int) -> dict[str, object]:
        b = BOUNDS
        return {
            "bounds": f"{b.min_x},{b.min_y},{b.max_x},{b.max_y}",
            "grid": f"{GRID[0]},{GRID[1]}",
            "hotspot": HOTSPOT.format(share=share, start=start, stop=max(stop, start + 1)),
            "seed": self.seed,
        }

    def points(self, spark: SparkSession) -> DataFrame:
        """Return the points, each with a topic and a number of likes."""
        rows = _stream(spark, "swarm_cities", self.point_options())
        likes = F.pmod(F.hash("id", F.lit("likes")), F.lit(100))
        return rows.withColumns({"topic": _topic(F.hash("id")), "likes": likes})

    def queries(self, spark: SparkSession) -> DataFrame:
        """Return the operations; half of the subscriptions ask for something special."""
        rows = _stream(spark, "swarm_queries", self.query_options())
        of_topic = F.concat(F.lit("topic = '"), _topic(F.col("id")), F.lit("'"))
        liked = F.concat(F.lit("likes >= "), F.pmod("id", F.lit(50)).cast("string"))
        kind = F.pmod("id", F.lit(4))
        return rows.withColumn("where", F.when(kind == 0, of_topic).when(kind == 1, liked))

    def start(self, spark: SparkSession, policy: PolicyName, folder: str, pace: int) -> Handle:
        """Start the stream under a policy, a batch every ``pace`` seconds if Spark keeps up."""
        b = BOUNDS
        config = SwarmConfig(
            bounds=(b.min_x, b.min_y, b.max_x, b.max_y), grid=GRID,
            executors=self.executors, policy=policy, round_batches=1,
        )  # fmt: skip
        application = Subscriptions({"topic": "text", "likes": "number"})
        # For each of the two, Spark starts a Python to ask it for its columns.
        with ThreadPoolExecutor() as pool:
            streams = [pool.submit(of, spark) for of in (self.points, self.queries)]
            points, queries = (stream.result() for stream in streams)
        return Swarm(spark, config, application).start(
            points, queries, sink="noop",
            checkpoint=f"{folder}/{policy}", trigger={"processingTime": f"{pace} seconds"},
        )  # fmt: skip


def _stream(spark: SparkSession, source: str, options: dict[str, object]) -> DataFrame:
    texts = {name: str(value) for name, value in options.items()}
    return spark.readStream.format(source).options(**texts).load()


def _topic(number: Column) -> Column:
    """Return a topic for each number."""
    return F.element_at(
        F.array(*map(F.lit, TOPICS)), (F.pmod(number, F.lit(len(TOPICS))) + 1).cast("int")
    )
