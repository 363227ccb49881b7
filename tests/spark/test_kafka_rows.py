"""What KafkaSink makes of rows, without a broker; with one it is tested in tests/kafka."""

import json

import pytest

pytest.importorskip("confluent_kafka")

from sparkswarm import InputError, KafkaSink
from sparkswarm.spark.sinks import BatchOfRun


class Producer:
    """Stands for Kafka's: keeps what one transaction writes."""

    def __init__(self):
        self.open, self.messages, self.ended = [], [], []

    def begin_transaction(self):
        """Begin."""
        self.open = []

    def produce(self, topic, value, key):
        """Queue a message."""
        self.open.append((topic, key, json.loads(value)))

    def commit_transaction(self, seconds):
        """Make what was queued visible."""
        self.messages += self.open
        self.ended.append("commit")

    def abort_transaction(self, seconds):
        """Drop what was queued."""
        self.ended.append("abort")


def sink_with(key):
    return KafkaSink("localhost:1", "out", "writer", key=key)


@pytest.mark.parametrize("key", ["vehicle.id", "ve`hicle", "a column", "vehicle.x.y"])
def test_a_key_may_have_any_name(spark, key):
    rows = spark.createDataFrame([(7, "taxi"), (8, None)], "key BIGINT, `kind.of` STRING")
    producer = Producer()
    sink_with(key)._write(producer, rows.withColumnRenamed("key", key), BatchOfRun("run", 3))
    *told, marker = producer.messages
    assert sorted(told, key=str) == [
        ("out", "7", {key: 7, "kind.of": "taxi"}),
        ("out", "8", {key: 8}),
    ]
    assert marker == ("writer-marker", "marker", {"run": "run", "batch": 3})
    assert producer.ended == ["commit"]


def test_without_a_key_messages_have_none(spark):
    producer = Producer()
    sink_with(None)._write(producer, spark.range(1), BatchOfRun("run", 0))
    assert producer.messages[0] == ("out", None, {"id": 0})


def test_a_key_that_is_no_column_is_refused_before_anything_is_written(spark):
    producer = Producer()
    with pytest.raises(InputError, match=r"no column vehicle.id for the key .* there are id$"):
        sink_with("vehicle.id")._write(producer, spark.range(1), BatchOfRun("run", 0))
    assert not producer.ended
