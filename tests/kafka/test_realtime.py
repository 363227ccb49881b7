"""Real-time Mode between Kafka topics: each point is matched, and a restart loses none."""

from __future__ import annotations

import json
import time
from collections import defaultdict

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from pyspark.sql import functions as F  # noqa: N812

from sparkswarm import Swarm, session

from .broker import CONNECTOR, Broker

pytestmark = pytest.mark.kafka

PATIENCE = 120.0
POINTS = "id BIGINT, x DOUBLE, y DOUBLE"
QUERIES = "id BIGINT, min_x DOUBLE, min_y DOUBLE, max_x DOUBLE, max_y DOUBLE"
BOXES = {1: (0.0, 0.0, 6.0, 6.0), 2: (4.0, 4.0, 10.0, 10.0), 3: (20.0, 20.0, 21.0, 21.0)}


@pytest.fixture(scope="module")
def spark():
    made = session(
        master="local[3]",
        real_time=True,
        config={
            "spark.jars": ",".join(map(str, sorted(CONNECTOR.glob("*.jar")))),
            "spark.ui.enabled": False,
            "spark.log.level": "ERROR",
            "spark.driver.host": "127.0.0.1",
        },
    )
    yield made
    made.stop()


class Topics:
    """Points that were sent, and the matches that came back."""

    def __init__(self, broker: Broker) -> None:
        self.servers = broker.servers
        broker.create_topics("points", "matches", partitions=1)
        self._producer = Producer({"bootstrap.servers": self.servers})
        self._consumer = Consumer({"bootstrap.servers": self.servers, "group.id": "test"})
        self._consumer.assign([TopicPartition("matches", 0, OFFSET_BEGINNING)])
        self.points: dict[int, tuple[float, float]] = {}
        self.found: dict[int, list[tuple[int, list[int]]]] = defaultdict(list)

    def send(self, number: int) -> None:
        for _ in range(number):
            i = len(self.points)
            self.points[i] = float(i * 7 % 25), float(i * 11 % 25)
            x, y = self.points[i]
            self._producer.produce("points", json.dumps({"id": i, "x": x, "y": y}))
        assert self._producer.flush(60) == 0

    def expected(self) -> dict[int, list[int]]:
        inside = {
            i: [q for q, (x0, y0, x1, y1) in BOXES.items() if x0 <= x <= x1 and y0 <= y <= y1]
            for i, (x, y) in self.points.items()
        }
        return {i: queries for i, queries in inside.items() if queries}

    def once(self) -> dict[int, list[int]]:
        """Return the matches of each point with the highest version."""
        return {i: sorted(max(found)[1]) for i, found in self.found.items()}

    def wait(self) -> None:
        """Wait until all matches have come."""
        deadline = time.monotonic() + PATIENCE
        while self.once() != self.expected():
            assert time.monotonic() < deadline, "matches are missing"
            message = self._consumer.poll(0.5)
            if message is not None and message.error() is None:
                row = json.loads(message.value())
                assert message.key() == str(row["id"]).encode()
                self.found[row["id"]].append((row["query_version"], row["query_ids"]))


def test_each_point_is_matched_also_after_a_restart(spark, broker, tmp_path):
    topics = Topics(broker)

    def start():
        read = spark.readStream.format("kafka").option("subscribe", "points")
        read = read.option("kafka.bootstrap.servers", topics.servers)
        rows = read.option("startingOffsets", "earliest").load()
        points = rows.select(F.from_json(F.col("value").cast("string"), POINTS).alias("p"))
        queries = spark.createDataFrame([(i, *box) for i, box in BOXES.items()], QUERIES)
        swarm = Swarm(spark, bounds=(0, 0, 25, 25), grid=(25, 25), executors=2)
        writer = swarm.match(points.select("p.*"), preload=queries).writeStream.format("kafka")
        writer = writer.option("kafka.bootstrap.servers", topics.servers).option("topic", "matches")
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        return writer.trigger(realTime="5 seconds").start()

    for _ in range(2):
        with start() as handle:
            for _ in range(4):
                topics.send(100)
                topics.wait()
            assert handle.exception() is None
    assert {len({version for version, _ in found}) for found in topics.found.values()} == {1}
