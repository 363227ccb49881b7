"""``sparkswarm bench latency``: points that are due, their results, and a hotspot."""

from __future__ import annotations

import numpy as np
import pytest
from pyspark.sql import SparkSession

from sparkswarm.bench.appended_points import POINT, AppendedPoints
from sparkswarm.bench.latency import run_latency
from sparkswarm.bench.latency_results import MODES, LatencySettings
from sparkswarm.errors import ConfigError


def test_points_are_dealt_out_to_files_by_id(tmp_path):
    source = AppendedPoints(tmp_path, partitions=2)
    ids = np.arange(5)
    source.add(ids, ids / 2, ids * 3.0, ids + 100)
    source.add(ids[:0], ids[:0] / 1, ids[:0] / 1, ids[:0])
    source.close()
    for i, wanted in enumerate([[0, 2, 4], [1, 3]]):
        found = np.fromfile(tmp_path / str(i), POINT)
        assert found["id"].tolist() == wanted
        assert found["x"].tolist() == [n / 2 for n in wanted]
        assert found["y"].tolist() == [n * 3.0 for n in wanted]
        assert found["at"].tolist() == [n + 100 for n in wanted]


@pytest.mark.parametrize(
    ("settings", "reason"),
    [({"modes": ("two_stages",)}, "got two_stages"), ({"rates": (0,)}, "from 1 on")],
)
def test_settings_that_make_no_sense_are_refused(settings, reason):
    with pytest.raises(ConfigError, match=reason):
        LatencySettings(**settings)


@pytest.mark.long
def test_each_mode_has_latencies_and_all_results_are_right():
    if (running := SparkSession.getActiveSession()) is not None:
        running.stop()
    steps = []
    settings = LatencySettings(
        rates=(500,), queries=100_000, repeat=1, seconds=3.0, warm_up=2.0, hotspot=True
    )
    found = run_latency(settings, steps.append).to_json()
    assert len(steps) == settings.steps
    assert found["oracle"] == {"checked": len(MODES) * 500 * (5 + 3), "wrong": 0}
    for mode in MODES:
        one = found["modes"][mode]["500"]
        assert 0 < one["p50_ms"] <= one["p99_ms"]
        assert len(found["hotspot"][mode]["p50_ms"]) == 3
