"""The benchmark of applications: both sides do the same, and the oracle says that it is right."""

from collections import Counter

import pytest

from sparkswarm.bench.app_inputs import write_app_inputs
from sparkswarm.bench.app_rivals import Rivals
from sparkswarm.bench.apps import KINDS, WINDOW_SECONDS, AppsSettings, Bench, run_apps
from sparkswarm.bench.plain_spark import JVM_OPTIONS
from sparkswarm.spark.session import session
from sparkswarm.spark.sinks import MemorySink

pytestmark = pytest.mark.long


def test_the_report_has_every_kind_and_nothing_is_wrong():
    sizes = {"batches": 5, "points": 3000, "queries": 3000, "aggregates": 3000, "asks": 20}
    heard = []
    settings = AppsSettings(**sizes, repeat=1)
    found = run_apps(settings, heard.append).to_json()
    assert len(heard) == settings.steps
    assert list(found) == list(KINDS)
    for row in found.values():
        assert row["ratio"] == pytest.approx(row["points_per_s"] / row["plain_spark"], rel=0.01)
        assert row["oracle"]["checked"] > 0
        assert row["oracle"]["wrong"] == 0
        assert row["seconds"]["commit"] > 0
    assert any("plain Spark, snapshots" in said for said in heard)


def test_plain_spark_gives_the_same_rows(tmp_path):
    inputs = write_app_inputs(
        tmp_path / "inputs",
        batches=5,
        points=4000,
        queries=4000,
        aggregates=4000,
        asks=20,
        seed=3,
        side=0.05,
    )
    spark = session("test", "local[2]", {"spark.ui.enabled": False, **JVM_OPTIONS})
    try:
        bench = Bench(spark, inputs, tmp_path, 2)
        ours = {name: MemorySink() for name in ("sink", "summaries", "answers")}
        bench.start("mixed", ours).await_termination()
        rows = {name: sink.table().to_pylist() for name, sink in ours.items()}
        matches = Counter((r["batch_id"], r["id"], q) for r in rows["sink"] for q in r["query_ids"])
        plain = taken(spark, inputs, "subscriptions")
        assert Counter((b, r["id"], r["query"]) for b, r in plain) == matches
        assert matches

        told = Counter(
            (r["query_id"], r["window_end"].timestamp(), r["count"], r["max_speed"])
            for r in rows["summaries"]
        )
        plain = taken(spark, inputs, "aggregates")
        end = Counter(
            (r["query"], r["window"]["end"].timestamp(), r["count"], r["most"]) for _, r in plain
        )
        # Spark ends with a batch without points, in which the last windows close.
        assert told
        assert told <= end

        points = Counter(
            (r["batch_id"], r["query_id"], r["id"]) for r in rows["answers"] if r["count"] is None
        )
        counts = Counter(
            (r["batch_id"], r["query_id"], r["count"]) for r in rows["answers"] if r["count"]
        )
        plain = taken(spark, inputs, "snapshots")
        assert points == Counter((b, r["query"], r["id"]) for b, r in plain if "id" in r)
        assert counts == Counter((b, r["query"], r["count"]) for b, r in plain if "count" in r)
        assert points
    finally:
        spark.stop()


def taken(spark, inputs, kind):
    """Return all that plain Spark finds, with the batch of each row."""
    found = []

    def take(rows, batch):
        found.extend((batch, row) for row in rows.toArrow().to_pylist())

    Rivals(spark, inputs, WINDOW_SECONDS, take).seconds(kind)
    return found
