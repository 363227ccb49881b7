"""A sink that writes each batch to a Kafka topic exactly once.

Runs on the driver, once a batch; a batch may come again after a failure. One producer with a fixed
transactional id writes the rows of a batch and a marker, which names the batch, in one transaction.
Starting a producer decides the transaction of the one before it, so the marker that is read then is
final: a batch that it names is not written again. Consumers must read with the isolation level
``read_committed``.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from sparkswarm.errors import ConfigError, InputError, StoreError, missing_extra
from sparkswarm.spark.driver.named_columns import column_of
from sparkswarm.spark.sinks import BatchOfRun, current_run, is_written

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Producer

logger = logging.getLogger(__name__)

PATIENCE_SECONDS = 300.0
"""Seconds for which a request is tried again while the broker does not answer."""

ATTEMPT_SECONDS = 15.0
"""Seconds that one attempt at a request may take."""


@dataclass
class _Writer:
    """The producer of this process, and the marker as it left it; none before the first batch."""

    producer: Producer | None = None
    marker: BatchOfRun | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)


@dataclass(frozen=True)
class KafkaSink:
    """Writes rows as JSON to a topic, each batch in one transaction.

    The tasks compute the rows and their JSON. The driver fetches them partition by partition and
    writes them, because a transaction of Kafka belongs to one producer: its speed is that of one
    process. Every start of the producer fences off the one before, so of two drivers with the same
    transactional id the older one fails.

    Parameters
    ----------
    servers
        Addresses of brokers, ``host:port``, separated by commas.
    topic
        Where rows are written. It must exist, unless brokers create topics.
    transactional_id
        Name of the writer: one for each sink of each run, and the same after a restart. The topic
        ``<transactional_id>-marker`` has its marker; it is created with one partition.
    key
        Column whose value is the key of each message; without one, messages have no key.
    options
        More settings of librdkafka's producer, such as ``security.protocol``. They are given to
        the consumer and the administration client of the marker too, where they have a meaning.
    """

    servers: str
    topic: str
    transactional_id: str
    key: str | None = "id"
    options: Mapping[str, str | int | float | bool] = field(default_factory=dict)
    _writer: _Writer = field(default_factory=_Writer, repr=False, compare=False)
    reads_all_rows: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for name in ("servers", "topic", "transactional_id"):
            if not isinstance(getattr(self, name), str) or not getattr(self, name).strip():
                raise ConfigError(f"{name} must be text, got {getattr(self, name)!r}")
        _confluent_kafka()

    @property
    def marker_topic(self) -> str:
        """The topic with the marker.

        It is this writer's alone: an open transaction of another writer in its partition would
        hide the marker from readers of committed messages.
        """
        return f"{self.transactional_id}-marker"

    def __call__(self, results: DataFrame, batch_id: int) -> None:
        """Write a batch, unless it is written already."""
        batch, writer = BatchOfRun(current_run(), batch_id), self._writer
        with writer.lock:
            try:
                if writer.producer is None:
                    writer.producer, writer.marker = self._open()
                if is_written(writer.marker, batch, f"under the id {self.transactional_id}"):
                    logger.info("batch %d is in %s already", batch_id, self.topic)
                    return
                self._write(writer.producer, results, batch)
            except BaseException:
                # What is open is decided by the next producer.
                writer.producer = writer.marker = None
                raise
            writer.marker = batch

    def _open(self) -> tuple[Producer, BatchOfRun | None]:
        """Return a producer, all earlier ones fenced off, and the marker that they left."""
        kafka = _confluent_kafka()
        self._create_marker_topic()
        producer = kafka.Producer(
            {
                "linger.ms": 20,
                "compression.type": "lz4",
                "transaction.timeout.ms": 300_000,
                **self.options,
                "bootstrap.servers": self.servers,
                "transactional.id": self.transactional_id,
            }
        )
        _retried("start a transaction", producer.init_transactions, ATTEMPT_SECONDS)
        return producer, self._read_marker()

    def _create_marker_topic(self) -> None:
        kafka = _confluent_kafka()
        from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

        client = AdminClient(self._client_options())
        topic = NewTopic(self.marker_topic, 1, config={"cleanup.policy": "compact"})

        def create() -> None:
            try:
                client.create_topics([topic])[self.marker_topic].result(ATTEMPT_SECONDS)
            except kafka.KafkaException as error:
                if error.args[0].code() != kafka.KafkaError.TOPIC_ALREADY_EXISTS:
                    raise

        _retried(f"create the topic {self.marker_topic}", create)
        found = _retried("read metadata", client.list_topics, self.marker_topic, ATTEMPT_SECONDS)
        partitions = len(found.topics[self.marker_topic].partitions)
        if partitions > 1:
            raise ConfigError(
                f"the topic {self.marker_topic} has {partitions} partitions; delete it, the sink "
                "creates it with one"
            )

    def _read_marker(self) -> BatchOfRun | None:
        """Return the last committed marker."""
        kafka = _confluent_kafka()
        consumer = kafka.Consumer(
            {
                **self._client_options(),
                "group.id": f"{self.transactional_id}-marker",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
            }
        )
        marker = None
        deadline = time.monotonic() + PATIENCE_SECONDS
        try:
            consumer.assign([kafka.TopicPartition(self.marker_topic, 0, kafka.OFFSET_BEGINNING)])
            while time.monotonic() < deadline:
                message = consumer.poll(1.0)
                error = message.error() if message is not None else None
                if message is None or (error is not None and error.retriable()):
                    continue
                if error is not None and error.code() == kafka.KafkaError._PARTITION_EOF:
                    return marker
                if error is not None and error.code() not in _transient(kafka):
                    _raise("read the marker", error)
                if error is None:
                    marker = BatchOfRun(**json.loads(message.value()))
        finally:
            consumer.close()
        raise StoreError(
            f"the marker in {self.marker_topic} could not be read from {self.servers} within "
            f"{PATIENCE_SECONDS:.0f} s; check that the brokers can be reached"
        )

    def _client_options(self) -> dict[str, Any]:
        shared = ("security.", "sasl.", "ssl.", "client.", "socket.", "broker.")
        options = {k: v for k, v in self.options.items() if k.startswith(shared)}
        return {**options, "bootstrap.servers": self.servers}

    def _write(self, producer: Producer, results: DataFrame, marker: BatchOfRun) -> None:
        """Write the rows of a batch and its marker in one transaction."""
        kafka = _confluent_kafka()
        if self.key is not None and self.key not in results.columns:
            raise InputError(
                f"there is no column {self.key} for the key of messages; there are "
                f"{', '.join(results.columns)}"
            )
        key = (column_of(results, self.key) if self.key else F.lit(None)).cast("string")
        rows = results.select(key.alias("key"), F.to_json(F.struct("*")).alias("value"))
        # All tasks run before the transaction is open, side by side, and each once.
        rows = rows.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            rows.count()
            producer.begin_transaction()
            try:
                for row in rows.toLocalIterator(prefetchPartitions=True):
                    _produce(producer, self.topic, row.value, row.key)
                _produce(producer, self.marker_topic, json.dumps(marker._asdict()), "marker")
                commit = producer.commit_transaction
                _retried(f"commit batch {marker.batch}", commit, ATTEMPT_SECONDS)
            except BaseException:
                try:
                    producer.abort_transaction(ATTEMPT_SECONDS)
                except kafka.KafkaException as error:
                    logger.warning("a transaction was left to be aborted later: %s", error)
                raise
        finally:
            rows.unpersist()


def _produce(producer: Producer, topic: str, value: str, key: str | None) -> None:
    """Queue a message; wait while the queue is full."""
    while True:
        try:
            producer.produce(topic, value=value, key=key)
        except BufferError:
            producer.poll(0.1)
        else:
            return


def _retried(what: str, request: Callable[..., Any], *arguments: object) -> Any:
    """Make a request until it succeeds, as long as its failures are temporary."""
    kafka = _confluent_kafka()
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return request(*arguments)
        except kafka.KafkaException as failure:
            error = failure.args[0]
            temporary = error.retriable() or error.code() in _transient(kafka)
            if not temporary or error.txn_requires_abort() or time.monotonic() > deadline:
                _raise(what, error)


def _transient(kafka: Any) -> tuple[int, ...]:
    """Return codes of errors that pass, although librdkafka does not call them retriable."""
    error = kafka.KafkaError
    return (error._TRANSPORT, error._ALL_BROKERS_DOWN, error._TIMED_OUT, error._RESOLVE)


def _raise(what: str, error: KafkaError) -> NoReturn:
    kafka = _confluent_kafka()
    if error.code() in (kafka.KafkaError._FENCED, kafka.KafkaError.INVALID_PRODUCER_EPOCH):
        raise StoreError(
            f"Kafka refused to {what}: another writer has started with the same transactional id. "
            "Run one driver only, and give each run and each sink an id of its own"
        )
    raise StoreError(f"Kafka could not {what}: {error.str()}; the batch is repeated at a restart")


def _confluent_kafka() -> Any:
    try:
        import confluent_kafka
    except ImportError as error:
        raise missing_extra("confluent-kafka", "kafka") from error
    return confluent_kafka
