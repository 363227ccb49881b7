"""Points from one Kafka topic, results in another, for ``sparkswarm bench latency --kafka``."""

from __future__ import annotations

import json
import threading
import time
import uuid
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from sparkswarm.bench.inputs import POINTS_SCHEMA
from sparkswarm.compiled import FloatArray, LongArray
from sparkswarm.errors import missing_extra

POLL_SECONDS = 0.1


class KafkaPoints:
    """Topics of a run, with a producer of points and a consumer of results.

    Parameters
    ----------
    servers
        The brokers.
    partitions
        Number of partitions of both topics.

    Attributes
    ----------
    topic
        Where results are to go.
    found
        Each result: the point's id, when it was read, its number of queries, the sum of their ids.
    """

    def __init__(self, servers: str, partitions: int = 1) -> None:
        try:
            import confluent_kafka as kafka
            from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
        except ImportError as error:
            raise missing_extra("confluent-kafka", "kafka") from error
        run = uuid.uuid4().hex[:8]
        self._points, self.topic = f"points-{run}", f"results-{run}"
        self._servers, self._partitions = servers, partitions
        options: dict[str, Any] = {"bootstrap.servers": servers}
        admin = AdminClient(options)
        topics = [NewTopic(name, partitions) for name in (self._points, self.topic)]
        for made in admin.create_topics(topics).values():
            made.result(60)
        self._producer: Any = kafka.Producer({**options, "linger.ms": 0})
        self._consumer: Any = kafka.Consumer(
            {**options, "group.id": run, "isolation.level": "read_committed"}
        )
        begin = kafka.OFFSET_BEGINNING
        self._consumer.assign(
            [kafka.TopicPartition(self.topic, p, begin) for p in range(partitions)]
        )
        self.found: list[tuple[int, float, int, int]] = []
        self._ended = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def stream(self, spark: SparkSession) -> DataFrame:
        """Return a stream of all points: ``id``, ``x`` and ``y``."""
        read = spark.readStream.format("kafka").option("kafka.bootstrap.servers", self._servers)
        read = read.option("subscribe", self._points).option("startingOffsets", "earliest")
        parsed = F.from_json(F.col("value").cast("string"), POINTS_SCHEMA)
        return read.load().select(parsed.alias("point")).select("point.*")

    def add(self, ids: LongArray, x: FloatArray, y: FloatArray, at: LongArray) -> None:
        """Send points; ``at`` are their times in microseconds."""
        for i, a, b, t in zip(*(some.tolist() for some in (ids, x, y, at)), strict=True):
            value = f'{{"id":{i},"x":{a!r},"y":{b!r}}}'
            self._producer.produce(
                self._points, value, partition=i % self._partitions, timestamp=t // 1000
            )
        self._producer.poll(0)

    def _read(self) -> None:
        while not self._ended.is_set():
            # Not consume: that waits until it has as many messages as it may return.
            message = self._consumer.poll(POLL_SECONDS)
            if message is not None and message.error() is None:
                now = time.time()
                row = json.loads(message.value())
                ids = row["query_ids"]
                self.found.append((row["id"], now, len(ids), sum(ids)))

    def close(self) -> None:
        """End producer and consumer."""
        self._producer.flush(10)
        self._ended.set()
        self._reader.join()
        self._consumer.close()
