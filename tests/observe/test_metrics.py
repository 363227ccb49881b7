"""The metrics: one table, what is served, the dashboard, and the numbers themselves."""

import json
import re
import sys
import urllib.error
import urllib.request
from dataclasses import fields, replace
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from sparkswarm.errors import ConfigError, MissingExtraError
from sparkswarm.geometry import Bounds, CellRect, Grid
from sparkswarm.observe.metrics import METRICS, Metrics, metrics_table
from sparkswarm.observe.progress import Counts, HostUse, Progress
from sparkswarm.protocol.messages import Decision, DecisionKind, Reason
from sparkswarm.protocol.partition import Partition, reshared, split
from sparkswarm.protocol.plan import Plan

DOCS = Path(__file__).resolve().parents[2] / "docs"
DASHBOARD = DOCS / "grafana" / "sparkswarm.json"
NAMES = {metric.name for metric in METRICS}
OF_HISTOGRAMS = {
    f"{metric.name}_{part}"
    for metric in METRICS
    if metric.kind == "histogram"
    for part in ("bucket", "sum", "count", "created")
}


def progress(batch=0, **changed):
    facts = {
        "seconds": 2.0, "points": 100, "matches": 30, "checks": 60, "operations": 5,
        "quarantined": {("point", "not a number"): 3}, "plan_version": 0, "busy_s": (1.0, 3.0),
        "points_by_executor": (40, 60), "snapshot_queries": 4, "late": 7,
        "latency": {("0.01",): 60, ("+Inf",): 100},
        "hosts": (HostUse("10.0.0.2", 2, 1, 700, 30),),
    }  # fmt: skip
    return Progress(batch=batch, **{**facts, **changed})


def plan():
    first = Plan.initial(Grid(Bounds(0, 0, 8, 8), 8, 8), 2)
    ids, first = first.reserve(1)
    return first.apply([reshared(first.partitions[0], {0: 32, 1: 32}, ids[0])])


def halved(*numbers):
    """Return a decision by which partitions were split, one of each number."""
    partitions = [Partition(n, CellRect(0, 2 * n, 8, 2 * n + 2), (0,)) for n in numbers]
    return Decision(
        round=0,
        kind=DecisionKind.CHANGE,
        reason=Reason.ABOVE_LEVEL,
        changes=tuple(
            split(p, [(cells, {m: 64}) for m, cells in enumerate(p.cells.split_rows(1))], 10 + p.id)
            for p in partitions
        ),
        executors=(0, 1),
    )


class SparksProgress:
    """What a listener gets from Spark, as far as we look."""

    batchId, numInputRows, inputRowsPerSecond = 1, 105, 50.0  # noqa: N815
    processedRowsPerSecond, durationMs = 40.0, {"addBatch": 1500, "triggerExecution": 2000}  # noqa: N815

    class Source:
        metrics = {"maxOffsetsBehindLatest": "7"}  # noqa: RUF012
        latestOffset, endOffset = '{"points": {"0": 9, "1": 8}}', '{"points": {"0": 2, "1": 3}}'  # noqa: N815

    class Silent:
        metrics = latestOffset = endOffset = None  # noqa: N815

    sources = [Source(), Silent()]  # noqa: RUF012


@pytest.fixture
def metrics():
    metrics = Metrics()
    rebalance = Decision(round=0, kind=DecisionKind.REBALANCE, reason=Reason.FIRST_ROUND)
    metrics(progress(0), plan(), [rebalance, halved(0)])
    nothing = Decision(
        round=1, kind=DecisionKind.NOTHING_TO_GIVE, reason=Reason.HOLDS_NOTHING, executors=(3,)
    )
    more = [halved(1), nothing]
    metrics(progress(1, busy_s=(2.0, 2.0)), plan(), more)
    metrics.merge(SparksProgress())
    return metrics


def test_numbers_add_up_over_batches(metrics):
    values = metrics.values()
    get = lambda name, **labels: values[name, tuple(sorted(labels.items()))]  # noqa: E731
    assert get("sparkswarm_batches_total") == 2
    assert get("sparkswarm_points_total") == 200
    assert get("sparkswarm_results_total") == 60
    assert get("sparkswarm_checks_total") == 120
    assert get("sparkswarm_query_operations_total") == 10
    assert get("sparkswarm_snapshot_queries_total") == 8
    assert get("sparkswarm_late_points_total") == 14
    assert get("sparkswarm_quarantined_total", kind="point", reason="not a number") == 6
    assert get("sparkswarm_executor_busy_seconds_total", executor="0") == 3
    assert get("sparkswarm_executor_busy_seconds_total", executor="1") == 5
    assert get("sparkswarm_executor_points_total", executor="1") == 120
    assert get("sparkswarm_decisions_total", what="split") == 2
    assert get("sparkswarm_decisions_total", what="rebalance") == 1
    assert get("sparkswarm_decisions_total", what="nothing_to_give") == 1
    assert get("sparkswarm_batch_seconds_count") == 2
    assert get("sparkswarm_batch_seconds_sum") == 4


def test_every_change_of_a_proposal_counts_and_a_refused_one_does_not():
    metrics = Metrics()
    made = halved(0, 1)
    refused = replace(made, kind=DecisionKind.REFUSE, reason=Reason.PLAN_CHANGED)
    metrics(progress(0), plan(), [made, refused])
    values = metrics.values()
    assert values["sparkswarm_decisions_total", (("what", "split"),)] == 2
    assert values["sparkswarm_decisions_total", (("what", "refuse"),)] == 1


def test_gauges_are_as_the_last_batch_left_them(metrics):
    values = {name: value for (name, labels), value in metrics.values().items() if not labels}
    assert values["sparkswarm_balance_ratio"] == 1
    assert values["sparkswarm_critical_path_seconds"] == 2
    assert values["sparkswarm_executors"] == 2
    assert values["sparkswarm_partitions"] == 2
    assert values["sparkswarm_shared_partitions"] == 1
    assert values["sparkswarm_unread_rows"] == 12
    assert values["sparkswarm_plan_version"] == 1
    assert values["sparkswarm_last_batch"] == 1
    assert values["sparkswarm_last_batch_timestamp_seconds"] > 1.7e9


def test_sparks_numbers_stand_beside_ours(metrics):
    first, second = metrics.rows()
    assert (first["batch"], second["batch"]) == (0, 1)
    assert "spark" not in first
    assert second["spark"]["input_rows"] == 105
    assert second["spark"]["milliseconds"]["addBatch"] == 1500
    assert (second["points"], second["balance"]) == (100, 1.0)
    assert (second["snapshot_queries"], second["late"]) == (4, 7)
    values = metrics.values()
    assert values["sparkswarm_spark_phase_seconds", (("phase", "addBatch"),)] == 1.5
    assert values["sparkswarm_spark_input_rows_per_second", ()] == 50
    assert values["sparkswarm_spark_source_behind_offsets", (("source", "0"),)] == 7
    assert ("sparkswarm_spark_source_behind_offsets", (("source", "1"),)) not in values


def test_every_metric_of_the_table_is_served_and_nothing_else(metrics):
    served = metrics.serve()
    try:
        with urllib.request.urlopen(served.url) as answer:
            text = answer.read().decode()
    finally:
        served.close()
    samples = {s.name for family in text_string_to_metric_families(text) for s in family.samples}
    created = {name for name in samples if name.endswith("_created")}
    histograms = {metric.name for metric in METRICS if metric.kind == "histogram"}
    assert samples - created - OF_HISTOGRAMS == NAMES - histograms
    assert OF_HISTOGRAMS - samples <= {f"{name}_created" for name in histograms}
    for metric in METRICS:
        assert metric.meaning.replace("\\", "\\\\") in text


def test_only_this_machine_is_served_unless_asked(metrics):
    served = metrics.serve()
    assert served.url.startswith("http://127.0.0.1:")
    assert served.server.server_address[0] == "127.0.0.1"
    served.close()
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(served.url)


def test_a_port_that_is_taken_is_named(metrics):
    served = metrics.serve()
    try:
        with pytest.raises(ConfigError, match=f"127.0.0.1:{served.server.server_port}"):
            metrics.serve(served.server.server_port)
    finally:
        served.close()


def test_names_are_as_prometheus_likes_them():
    for metric in METRICS:
        assert re.fullmatch(r"sparkswarm_[a-z_]+", metric.name)
        assert metric.name.endswith("_total") == (metric.kind == "counter")
        assert (metric.of_batch is None) != (metric.of_spark is None)
    assert len(NAMES) == len(METRICS)


def test_the_page_has_every_metric():
    page = metrics_table()
    for metric in METRICS:
        kind = ", ".join(filter(None, (metric.kind, metric.unit)))
        assert f"| `{metric.name}` | {kind} |" in page


def test_the_docs_name_metrics_of_the_table_only():
    found = [name for page in DOCS.rglob("*.md") for name in used(page.read_text(encoding="utf-8"))]
    assert set(found) <= NAMES
    assert len(set(found)) == len(NAMES)


# -- the dashboard -----------------------------------------------------------------------------


def expressions(thing):
    if isinstance(thing, dict):
        for key, value in thing.items():
            if key in ("expr", "query") and isinstance(value, str):
                yield value
            else:
                yield from expressions(value)
    elif isinstance(thing, list):
        for value in thing:
            yield from expressions(value)


def used(expression):
    """Return the names of metrics in an expression."""
    return re.findall(r"(sparkswarm_\w+)", expression)


def test_the_dashboard_uses_names_of_the_table_only_and_all_but_new_counts():
    found = [name for e in expressions(json.loads(DASHBOARD.read_text())) for name in used(e)]
    assert set(found) <= NAMES | OF_HISTOGRAMS
    histograms = {metric.name for metric in METRICS if metric.kind == "histogram"}
    shown = {re.sub(r"_(bucket|sum|count)$", "", n) if n in OF_HISTOGRAMS else n for n in found}
    counts = {f.metadata["metric"]["name"] for f in fields(Counts)}
    assert shown | counts == NAMES | histograms


def test_the_dashboard_groups_by_labels_that_there_are():
    labels = {metric.name: set(metric.labels) for metric in METRICS}
    for expression in expressions(json.loads(DASHBOARD.read_text())):
        for group in re.findall(r"by \(([^)]*)\)", expression):
            wanted = set(group.split(", ")) - {"le"}
            for name in used(expression):
                assert wanted <= labels.get(name, set()), expression


def test_counters_are_shown_as_rates():
    counters = {metric.name for metric in METRICS if metric.kind == "counter"}
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        for target in panel["targets"]:
            for name in set(used(target["expr"])) & (counters | OF_HISTOGRAMS):
                assert re.search(rf"(rate|increase)\({name}\b", target["expr"]), target["expr"]


def test_the_panels_do_not_overlap_and_have_titles():
    taken = set()
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        at = panel["gridPos"]
        cells = {(at["x"] + i, at["y"] + j) for i in range(at["w"]) for j in range(at["h"])}
        assert not cells & taken
        assert max(x for x, _ in cells) < 24
        taken |= cells
        assert panel["title"]


def test_without_prometheus_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(MissingExtraError, match=r"sparkswarm\[metrics\]"):
        Metrics()
