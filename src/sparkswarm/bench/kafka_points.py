"""Points from one Kafka topic, results in another, for ``sparkswarm bench latency --kafka``."""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Iterable, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from sparkswarm.errors import missing_extra

POLL_SECONDS = 0.1
MOST_MESSAGES = 1_000


class KafkaPoints:
    """Topics of a run, with a producer of points and a consumer of results.

    Parameters
    ----------
    spark, servers
        The session, and the brokers.
    schema
        Columns of the points and their types.
    partitions
        Number of partitions of both topics.

    Attributes
    ----------
    topic
        Where results are to go.
    found
        Each result: the point's id, when it was read, its number of queries, the sum of their ids.
    """

    def __init__(self, spark: SparkSession, servers: str, schema: str, partitions: int = 1) -> None:
        try:
            import confluent_kafka as kafka
            from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
        except ImportError as error:
            raise missing_extra("confluent-kafka", "kafka") from error
        run = uuid.uuid4().hex[:8]
        self._points, self.topic = f"points-{run}", f"results-{run}"
        self._servers, self._partitions = servers, partitions
        self._names = [column.split()[0] for column in schema.split(",")]
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
        read = spark.readStream.format("kafka").option("kafka.bootstrap.servers", servers)
        lines = read.option("subscribe", self._points).option("startingOffsets", "earliest").load()
        parsed = F.from_json(F.col("value").cast("string"), schema)
        self.frame: DataFrame = lines.select(parsed.alias("point")).select("point.*")
        self.found: list[tuple[int, float, int, int]] = []
        self._ended = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def add(self, rows: Iterable[Sequence[Any]]) -> None:
        """Send points."""
        for row in rows:
            # Numbers may be given as text.
            pairs = zip(self._names, row, strict=True)
            value = "{" + ",".join(f'"{name}":{one}' for name, one in pairs) + "}"
            self._producer.produce(self._points, value, partition=int(row[0]) % self._partitions)
        self._producer.poll(0)

    def _read(self) -> None:
        while not self._ended.is_set():
            for message in self._consumer.consume(MOST_MESSAGES, POLL_SECONDS):
                if message.error() is None:
                    row = json.loads(message.value())
                    ids = row["query_ids"]
                    self.found.append((row["id"], time.time(), len(ids), sum(ids)))

    def close(self) -> None:
        """End producer and consumer."""
        self._producer.flush(10)
        self._ended.set()
        self._reader.join()
        self._consumer.close()
