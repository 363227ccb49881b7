"""A run on Spark tells its numbers, Spark's beside ours, and shows itself in a notebook."""

import pytest

from sparkswarm import Swarm
from sparkswarm.observe.metrics import Metrics

from .world import config, make_world

BATCHES = 3


@pytest.fixture(scope="module")
def told(spark, tmp_path_factory):
    """A run that is over, and its metrics."""
    folder = tmp_path_factory.mktemp("metrics")
    folders = make_world(seed=3, batches=BATCHES, bad=0.05).write(folder / "world")
    metrics = Metrics()
    handle = Swarm(spark, config(executors=3)).start(
        folders.read_points(spark),
        folders.read_operations(spark),
        sink="noop",
        checkpoint=str(folder / "checkpoint"),
        observers=[metrics],
    )
    listener = metrics.listen(spark, handle)
    handle.process_all_available()
    handle.stop()
    # Listeners hear of things when Spark gets to it; the bus hands them over before it is empty.
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    spark.streams.removeListener(listener)
    return handle, metrics


def test_the_numbers_are_those_of_the_status(told):
    handle, metrics = told
    status, values = handle.status(), metrics.values()
    assert values["sparkswarm_batches_total", ()] == status.batches == BATCHES
    assert values["sparkswarm_points_total", ()] == status.points > 0
    assert values["sparkswarm_results_total", ()] == status.matches > 0
    assert values["sparkswarm_query_operations_total", ()] == status.operations > 0
    assert values["sparkswarm_partitions", ()] == len(handle.plan().partitions)
    bad = {
        labels: value
        for (name, labels), value in values.items()
        if name == "sparkswarm_quarantined_total"
    }
    assert bad == {
        (("kind", kind), ("reason", reason)): count
        for (kind, reason), count in status.quarantined.items()
    }


def test_spark_and_we_mean_the_same_batches(told):
    _, metrics = told
    rows = metrics.rows()
    assert [row["batch"] for row in rows] == list(range(BATCHES))
    heard = [row for row in rows if "spark" in row]
    # The first batches may be over before anyone listens.
    assert rows[-1] in heard
    for row in heard:
        # Spark counts the bad rows and the operations too.
        assert row["spark"]["input_rows"] > row["points"] > 0
        assert {"addBatch", "triggerExecution"} <= row["spark"]["milliseconds"].keys()


def test_a_handle_shows_itself_in_a_notebook(told):
    handle, _ = told
    html = handle._repr_html_()
    assert handle.status()._repr_html_() in html
    assert handle.plan()._repr_html_() in html
    assert len(handle.plot().axes) == 2
