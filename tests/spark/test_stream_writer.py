"""``match(...).writeStream`` says what ``start`` says; the handle is that of a StreamingQuery."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.listener import StreamingQueryListener

from sparkswarm import (
    ConfigError,
    ConsoleSink,
    DeltaSink,
    KafkaSink,
    MemorySink,
    NoopSink,
    ParquetSink,
    Swarm,
)
from sparkswarm.observe.progress import count_unread
from sparkswarm.spark.stream_writer import MatchStream

from .test_engine import WITH_EXPIRY
from .world import config, difference, expected, make_world, matches_of


def writer(**arguments):
    """Return a writer that returns what it would start with."""
    return MatchStream(None, lambda **given: given, arguments).writeStream


# -- without Spark -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "sink"),
    [
        (lambda w: w.start("out"), ParquetSink("out")),
        (lambda w: w.format("parquet").option("PATH", "out").start(), ParquetSink("out")),
        (lambda w: w.option("writer", "spark").start("out"), ParquetSink("out", "spark")),
        (lambda w: w.format("delta").start("out"), DeltaSink("out")),
        (lambda w: w.start("out", "delta", "append"), DeltaSink("out")),
        (lambda w: w.format("console").option("numRows", "3").start(), ConsoleSink(3)),
        (lambda w: w.outputMode("append").format("noop").start(), NoopSink()),
        (
            lambda w: (
                w.format("kafka")
                .option("kafka.bootstrap.servers", "host:9092")
                .option("kafka.transactional.id", "matches-writer")
                .option("kafka.security.protocol", "SSL")
                .option("topic", "matches")
                .start()
            ),
            KafkaSink(
                "host:9092", "matches", "matches-writer", options={"security.protocol": "SSL"}
            ),
        ),
    ],
)
def test_formats_and_options_are_sinks(written, sink):
    assert written(writer())["sink"] == sink


def test_what_else_a_writer_says_are_arguments_of_start():
    chosen = writer(points="points", results="pairs").format("noop")
    chosen = chosen.option("checkpointLocation", "folder").queryName("a run")
    assert chosen.trigger(availableNow=True).start() == {
        "points": "points",
        "results": "pairs",
        "sink": NoopSink(),
        "checkpoint": "folder",
        "name": "a run",
        "trigger": {"availableNow": True},
    }
    assert writer().foreachBatch(print).start()["sink"] is print


@pytest.mark.parametrize(
    ("written", "message"),
    [
        (lambda w: w.format("parket"), "format must be one of .*did you mean parquet"),
        (lambda w: w.start(), "format parquet needs the option path"),
        (lambda w: w.format("delta").start(), "format delta needs the option path"),
        (lambda w: w.format("kafka").option("topic", "t").start(), "needs the option kafka.boot"),
        (lambda w: w.format("console").option("numRows", "few").start(), "numrows must be a whole"),
        (lambda w: w.format("noop").start("out"), "noop has no option path"),
        (lambda w: w.option("checkpointLocatoin", "f").start("out"), "mean checkpointlocation"),
        (lambda w: w.outputMode("update"), 'outputMode must be "append"'),
        (lambda w: w.foreachBatch(None), "foreachBatch needs a function"),
        (lambda w: w.format("noop").foreachBatch(print).start(), "both foreachBatch and format"),
    ],
)
def test_what_makes_no_sense_is_an_error(written, message):
    with pytest.raises(ConfigError, match=message):
        written(writer())


def source(latest, end):
    return SimpleNamespace(latestOffset=latest, endOffset=end)


def test_unread_rows_are_what_topics_have_and_no_batch_has_read():
    kafka = source('{"points": {"0": 90, "1": 40}}', '{"points": {"0": 70, "1": 40}}')
    new_partition = source('{"fences": {"0": 5, "1": 2}}', '{"fences": {"0": 5}}')
    files = source(None, '{"logOffset": 3}')
    rate = source("12", "10")
    assert count_unread([kafka, files, new_partition, rate]) == 22
    assert count_unread([files, rate]) is None


# -- on Spark ----------------------------------------------------------------------------------


def test_matches_in_memory_are_a_view_and_the_handle_is_that_of_a_streaming_query(spark, tmp_path):
    world = make_world(86, batches=2)
    folders = world.write(tmp_path / "world")
    swarm = Swarm(spark, config(executors=2))
    streams = folders.read_points(spark), folders.read_operations(spark)
    writer = swarm.match(*streams, preload=folders.read_preload(spark), **WITH_EXPIRY).writeStream
    writer = writer.format("memory").queryName("matches").trigger(availableNow=True)
    handle = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    assert handle.awaitTermination()
    found = spark.table("matches").toArrow()
    assert matches_of(found) == expected(world).matches
    query = handle.query
    assert (handle.id, handle.runId, handle.name) == (query.id, query.runId, "matches")
    assert not handle.isActive
    assert handle.exception() is None
    assert handle.lastProgress.batchId == 1
    assert [p.batchId for p in handle.recentProgress] == [0, 1]
    # The bulk load is one.
    assert handle.status.batches == handle.status().batches == 3
    assert handle.status["isTriggerActive"] is False
    assert handle.status.unread_rows is handle.unread_rows is None


def test_what_ended_a_run_is_its_exception(spark, tmp_path):
    folders = make_world(87, batches=1).write(tmp_path / "world")
    matches = Swarm(spark, config()).match(folders.read_points(spark))

    def fail(results, batch_id):
        raise OSError("the disk is full")

    writer = matches.writeStream.foreachBatch(fail)
    handle = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    with pytest.raises(StreamingQueryException, match="the disk is full"):
        handle.awaitTermination()
    assert "the disk is full" in str(handle.exception())


class Listener(StreamingQueryListener):
    """Remembers how one query ended, as Spark tells everybody who listens."""

    def __init__(self):
        self.query_id, self.ended, self.error = None, threading.Event(), "nothing was told"

    def onQueryStarted(self, event):  # noqa: N802 (the names are Spark's)
        pass

    def onQueryProgress(self, event):  # noqa: N802
        pass

    def onQueryIdle(self, event):  # noqa: N802
        pass

    def onQueryTerminated(self, event):  # noqa: N802
        if str(event.id) == self.query_id:
            self.error = event.exception
            self.ended.set()


def test_a_stop_that_was_asked_for_is_no_error_and_the_run_goes_on(spark, tmp_path):
    world = make_world(88, batches=2)
    folders = world.write(tmp_path / "world")
    memory, may_stop = MemorySink(), threading.Event()

    def sink(results, batch_id):
        memory(results, batch_id)
        may_stop.set()
        assert stopping.wait(60)  # so that the stop comes in the middle of a batch

    def start():
        swarm = Swarm(spark, config(executors=2))
        streams = folders.read_points(spark), folders.read_operations(spark)
        preload = folders.read_preload(spark)
        writer = swarm.match(*streams, preload=preload, **WITH_EXPIRY).writeStream
        writer = writer.foreachBatch(sink).trigger(processingTime="0 seconds")
        return writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()

    listener, stopping = Listener(), threading.Event()
    handle = start()
    listener.query_id = handle.id
    spark.streams.addListener(listener)
    try:
        assert may_stop.wait(60)
        assert handle.isActive
        stopper = threading.Thread(target=handle.stop)
        stopper.start()
        stopping.set()
        stopper.join(60)
        assert handle.awaitTermination(60)
        assert listener.ended.wait(60)
    finally:
        spark.streams.removeListener(listener)
    assert listener.error is handle.exception() is None
    assert not handle.isActive
    handle = start()
    handle.processAllAvailable()
    handle.stop()
    assert not difference(matches_of(memory.table()), expected(world).matches)
