"""The hotspot benchmark: its stream is what it promises, its processes measure and are checked."""

import json
from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest

from sparkswarm.bench.adapt import AdaptRun, run_adapt, total_batches
from sparkswarm.bench.adapt_stream import AdaptError, AdaptSettings, write_stream
from sparkswarm.bench.adapt_turns import Series
from sparkswarm.bench.pictures import draw_adapt
from sparkswarm.errors import WorkloadError
from sparkswarm.workloads import CONTIGUOUS_US, Density, Hotspot, cities_density

HOTSPOT = Hotspot(start=2, stop=4, corner=(0.82, 0.82), query_share=0.5)
SETTINGS = AdaptSettings(
    batches=5,
    points=2_000,
    queries=1_000,
    hotspot=HOTSPOT,
    path_executors=3,
    policies=("swarm", "static_history"),
)


@pytest.fixture(scope="module")
def density() -> Density:
    return cities_density(CONTIGUOUS_US, 100, 100)


def series(policy: str = "swarm", **kwargs) -> Series:
    """Three batches of two executors; the hotspot is the one in the middle."""
    values = {
        "seconds": [1.0, 2.0, 1.0],
        "busy": [[0.1, 0.1], [0.3, 0.1], [0.1, 0.1]],
        "received": [[50, 50], [75, 25], [50, 50]],
        "matches": [7, 9, 7],
        "partitions": 2,
        "sample": {0: 1, 3: 2},
        "decisions": [],
    }
    return Series(policy=policy, **(values | kwargs))


def test_the_numbers_are_those_of_the_hotspot_alone():
    hotspot = Hotspot(start=1, stop=2)
    assert series().throughput(hotspot) == 50
    assert series().critical_path(hotspot) == pytest.approx(0.3)
    assert series().latency(hotspot) == pytest.approx((75 * 0.3 + 25 * 0.1) / 100)


def test_wrong_results_are_found(density, tmp_path):
    truth = write_stream(tmp_path, density, SETTINGS)
    right = series(matches=list(truth.matches), sample=dict(truth.sample))
    truth.check([right])
    wrong = [n + (batch == 1) for batch, n in enumerate(truth.matches)]
    with pytest.raises(AdaptError, match="in batch 1"):
        truth.check([right, replace(right, matches=wrong)])
    with pytest.raises(AdaptError, match="of point 0"):
        truth.check([replace(right, sample=truth.sample | {0: -1})])


def test_the_stream_has_a_hotspot_of_points_and_queries(density, tmp_path):
    truth = write_stream(tmp_path, density, SETTINGS)
    region = HOTSPOT.region(density.bounds)
    for batch in range(SETTINGS.batches):
        parts = sorted((tmp_path / "points").glob(f"{batch:05d}-*.parquet"))
        x, y = (
            np.concatenate([pq.read_table(part)[name].to_numpy() for part in parts])
            for name in ("x", "y")
        )
        inside = (x >= region.min_x) & (x <= region.max_x) & (y >= region.min_y)
        assert len(x) == SETTINGS.points
        assert (inside.mean() > 0.35) == HOTSPOT.active(batch)
        operations = pq.read_table(tmp_path / f"operations/{batch:05d}.parquet")
        expected = {2: "register", 4: "unregister"}.get(batch)
        assert operations.num_rows == (SETTINGS.hot_queries if expected else 0)
        assert set(operations["op"].to_pylist()) <= {expected}
    files = sorted((tmp_path / "points").iterdir())
    assert [f.stat().st_mtime for f in files] == sorted({f.stat().st_mtime for f in files})
    assert len(truth.sample) >= 200 * SETTINGS.batches


def test_a_hotspot_has_quiet_batches_before_and_after_it():
    for hotspot in (Hotspot(start=0, stop=3), Hotspot(start=3, stop=5)):
        with pytest.raises(WorkloadError):
            AdaptSettings(batches=5, hotspot=hotspot)


@pytest.mark.long
def test_both_parts_run_and_report_in_the_promised_form(density, tmp_path):
    told = []
    run = run_adapt(density, SETTINGS, lambda *batch: told.append(batch))
    assert len(told) == len(set(told)) == total_batches(SETTINGS)
    assert isinstance(run, AdaptRun)
    found = json.loads(json.dumps(run.to_json()))
    for part, executors in (("wall", 2), ("critical_path", 3), ("latency", 3)):
        assert found[part].pop("executors") == executors
        assert found[part].keys() == set(SETTINGS.policies)
        assert all(value > 0 for value in found[part].values())
    assert run.path["swarm"].decisions
    assert len(run.path["swarm"].busy[0]) == 3
    for name in SETTINGS.policies:
        batches = found["batches"]["critical_path"][name]
        assert batches["points"] == [SETTINGS.points] * SETTINGS.batches
        assert batches["results"] == found["batches"]["wall"]["swarm"]["results"]
    draw_adapt(run, tmp_path / "new" / "adapt.png")
    assert (tmp_path / "new" / "adapt.png").stat().st_size > 10_000


@pytest.mark.long
def test_a_process_that_fails_says_why(density, tmp_path):
    with pytest.raises(AdaptError, match="policy must be"):
        run_adapt(density, replace(SETTINGS, policies=("guess",)), keep=tmp_path)
