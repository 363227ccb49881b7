"""A run on Spark leaves a journal in its checkpoint."""

import pytest
from pyspark.sql import SparkSession

from sparkswarm import Swarm, SwarmConfig, session
from sparkswarm.observe.describe import reason, what
from sparkswarm.observe.journal import find, read
from sparkswarm.spark.sources import register_sources


@pytest.fixture(scope="module")
def spark():
    running = SparkSession.getActiveSession()
    quiet = {"spark.ui.enabled": False, "spark.log.level": "ERROR"}
    spark = running or session("journal", "local[2]", quiet)
    register_sources(spark)
    yield spark
    if running is None:
        spark.stop()


def start(spark, checkpoint, limit):
    points = spark.readStream.format("swarm_cities").options(
        grid=100, rowsPerBatch=500, limit=limit
    )
    queries = spark.readStream.format("swarm_queries").options(grid=100, queries=50)
    config = SwarmConfig(bounds=(-125, 24, -66, 50), grid=(100, 100), executors=2, round_batches=1)
    return Swarm(spark, config).start(
        points.load(), queries.load(), sink="noop", checkpoint=checkpoint,
        trigger={"availableNow": True},
    )  # fmt: skip


@pytest.mark.long
def test_a_run_leaves_a_journal_and_goes_on_with_it(spark, tmp_path):
    for limit in (1500, 2500):
        handle = start(spark, str(tmp_path), limit)
        handle.await_termination()
    entries = read(find(tmp_path)).entries()
    batches = [entry for entry in entries if entry["entry"] == "batch"]
    assert [entry["entry"] for entry in entries[:2]] == ["start", "plan"]
    assert [entry["entry"] for entry in entries].count("start") == 2
    assert [batch["batch"] for batch in batches] == list(range(len(batches)))
    assert sum(batch["points"] for batch in batches) == 2500
    assert sum(batch["operations"] for batch in batches) == 50
    assert batches[-1]["plan"] == handle.plan().version
    decisions = [entry for entry in entries if entry["entry"] == "decision"]
    last = handle.decisions()[-1]
    assert (decisions[-1]["what"], decisions[-1]["reason"]) == (what(last), reason(last))
