"""The demo's streams: points of cities around the world, subscriptions, and a moving hotspot.

Owns the streams and the engine's settings; :mod:`sparkswarm.demo.view` shows the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from sparkswarm.apps.subscriptions.application import Subscriptions
from sparkswarm.config import PolicyName, SwarmConfig
from sparkswarm.geometry import Bounds
from sparkswarm.observe.progress import Observer
from sparkswarm.spark.engine import Swarm
from sparkswarm.spark.handle import Handle

POINTS, QUERIES, CHANGES = 200_000, 100_000, 1_000
"""Points of a batch, subscriptions registered at first, and operations in each later batch."""

BOUNDS = Bounds(-180, -60, 180, 75)
"""The inhabited world, without the polar regions."""

GRID = (1440, 540)
"""Cells of a quarter of a degree."""

SIDE, BAD_ROWS = 0.0016, 0.001
"""A subscription's side as a fraction of the world's, about 50 km; fraction of invalid points."""

HOTSPOT_SHARE, WAITING_SHARE = 0.6, 0.5
"""Shares of the points in the hotspot, and of the subscriptions that wait for it from the start,
all along its way. So a point there lies in hundreds of subscriptions, whose conditions decide:
matching is most of the work, as where rebalancing is needed, and most of it is in one place."""

HOTSPOT = "0.465,0.685,0.01,{share},{start},{stop},0.4515,0.675"
"""A square of 3.6 by 1.4 degrees that moves from Morocco over the Atlantic, by a fifteenth of its
width in a batch where there are 60, by a seventh where there are 30. If it were much faster,
rebalancing would not pay off before the load is elsewhere. It stays within one
partition of a uniform plan for eight executors."""

LEAST_BATCHES = 3
"""One before the hotspot, one during and one after it."""

RATE = round(POINTS / (24 * 60))
"""Points per second of event time: a batch covers 24 minutes, 60 batches a day."""

TOPICS = ("food", "music", "news", "science", "sport", "traffic", "travel", "weather")


@dataclass(frozen=True)
class Scene:
    """The demo's streams; 60 batches are a day.

    Attributes
    ----------
    batches, executors
        Number of batches, and of executors.
    seed
        Seed of all random numbers.
    pace
        Least number of seconds from one batch to the next.
    """

    batches: int
    executors: int
    seed: int
    pace: int = 1

    @classmethod
    def lasting(cls, seconds: int, executors: int, seed: int, streams: int) -> Scene:
        """Return a scene of about this length, in which each batch runs in some streams."""
        return cls(max(LEAST_BATCHES, seconds // streams), executors, seed, pace=streams)

    @property
    def phases(self) -> dict[str, range]:
        """The batches before, during and after the hotspot."""
        borders = [0, self.batches // 3, 2 * self.batches // 3, self.batches]
        names = ("before the hotspot", "during the hotspot", "after the hotspot")
        return {name: range(*some) for name, some in zip(names, pairwise(borders), strict=True)}

    @property
    def during(self) -> range:
        """The batches with the hotspot."""
        return self.phases["during the hotspot"]

    def hour(self, batch: int) -> float:
        """Return the hour of the day, UTC, in the middle of a batch."""
        return (batch + 0.5) * POINTS / RATE / 3600 % 24

    def point_options(self) -> dict[str, object]:
        """Return the options of the source of points: cities by time of day, and the hotspot."""
        start, stop = (POINTS * batch // RATE for batch in (self.during.start, self.during.stop))
        return {
            **self._options(HOTSPOT.format(share=HOTSPOT_SHARE, start=start, stop=stop)),
            "rowsPerBatch": POINTS,
            "rowsPerSecond": RATE,
            "limit": POINTS * self.batches,
            "daylight": True,
            "badRows": BAD_ROWS,
        }

    def query_options(self) -> dict[str, object]:
        """Return the options of the source of operations on subscriptions.

        Subscriptions are in the cities at any time of day, or wait for the hotspot; new ones during
        the hotspot are in it. In this stream's event time a batch lasts a second, the first one
        longer.
        """
        first, during = QUERIES // CHANGES, self.during
        waiting = HOTSPOT.format(share=WAITING_SHARE, start=0, stop=first)
        new = HOTSPOT.format(share=1.0, start=during.start + first, stop=during.stop + first)
        return {
            **self._options(f"{waiting};{new}"),
            "queries": QUERIES,
            "churn": CHANGES / QUERIES,
            "rowsPerSecond": CHANGES,
            "limit": QUERIES + CHANGES * (self.batches - 1),
            "side": SIDE,
        }

    def _options(self, hotspot: str) -> dict[str, object]:
        b = BOUNDS
        return {
            "bounds": f"{b.min_x},{b.min_y},{b.max_x},{b.max_y}",
            "grid": f"{GRID[0]},{GRID[1]}",
            "hotspot": hotspot,
            "seed": self.seed,
        }

    def points(self, spark: SparkSession) -> DataFrame:
        """Return the points, each with a topic and a number of likes."""
        rows = _stream(spark, "swarm_cities", self.point_options())
        likes = F.pmod(F.hash("id", F.lit("likes")), F.lit(100))
        return rows.withColumns({"topic": _topic(F.hash("id")), "likes": likes})

    def queries(self, spark: SparkSession) -> DataFrame:
        """Return the operations; each subscription wants a topic, some want points with likes."""
        rows = _stream(spark, "swarm_queries", self.query_options())
        topic = F.concat(F.lit("topic = '"), _topic(F.col("id")), F.lit("'"))
        likes = F.concat(F.lit(" and likes >= "), F.pmod("id", F.lit(50)).cast("string"))
        popular = F.pmod("id", F.lit(4)) == 0
        return rows.withColumn("where", F.when(popular, F.concat(topic, likes)).otherwise(topic))

    def start(
        self,
        spark: SparkSession,
        policy: PolicyName,
        folder: str,
        pace: int,
        observers: Sequence[Observer] = (),
    ) -> Handle:
        """Start the stream under a policy, a batch every ``pace`` seconds if Spark keeps up."""
        b = BOUNDS
        config = SwarmConfig(
            bounds=(b.min_x, b.min_y, b.max_x, b.max_y),
            grid=GRID,
            executors=self.executors,
            policy=policy,
            round_batches=2,
            # Each executor stands for a machine of its own.
            shared_host=False,
        )
        application = Subscriptions({"topic": "text", "likes": "number"})
        # For each of the two, Spark starts a Python process to get the schema.
        with ThreadPoolExecutor() as pool:
            streams = [pool.submit(of, spark) for of in (self.points, self.queries)]
            points, queries = (stream.result() for stream in streams)
        return Swarm(spark, config, application).start(
            points,
            queries,
            sink="noop",
            observers=observers,
            checkpoint=f"{folder}/{policy}",
            trigger={"processingTime": f"{pace} seconds"},
        )


def _stream(spark: SparkSession, source: str, options: dict[str, object]) -> DataFrame:
    texts = {name: str(value) for name, value in options.items()}
    return spark.readStream.format(source).options(**texts).load()


def _topic(number: Column) -> Column:
    """Return a topic for each number."""
    return F.element_at(
        F.array(*map(F.lit, TOPICS)), (F.pmod(number, F.lit(len(TOPICS))) + 1).cast("int")
    )
