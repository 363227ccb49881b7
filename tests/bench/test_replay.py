"""Replaying a file of points: what is read of it, what is drawn from it, and what a run reports."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkswarm.bench import replay
from sparkswarm.bench.drift import drift_hotspots, write_drift
from sparkswarm.bench.inputs import compare_all
from sparkswarm.bench.pictures import draw_replay
from sparkswarm.bench.replay import ReplayRun, ReplaySettings, compare, prepare, replay_on
from sparkswarm.bench.replay_inputs import (
    FILES_PER_BATCH,
    ReplayStream,
    bounds_around,
    coordinate_columns,
    read_points,
    write_replay,
)
from sparkswarm.bench.replay_series import ReplayBatch, ReplaySeries, balance, median_run
from sparkswarm.bench.task_times import stage_seconds
from sparkswarm.errors import WorkloadError
from sparkswarm.geometry import Bounds
from sparkswarm.workloads import Rectangles

from ..support.spark import spark  # noqa: F401

POINTS = 400


def write(file: Path, **columns) -> Path:
    pq.write_table(pa.table(columns), file, row_group_size=3)
    return file


# -- reading -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("found", "given_names", "expected"),
    [
        (["t", "lon", "lat"], (None, None), ("lon", "lat")),
        (["lon", "lat", "x", "y"], (None, None), ("x", "y")),
        (["Longitude", "LATITUDE"], (None, None), ("Longitude", "LATITUDE")),
        (["easting", "northing", "x", "y"], ("easting", "northing"), ("easting", "northing")),
        (["lon", "height"], (None, "height"), ("lon", "height")),
    ],
)
def test_the_columns_of_coordinates_are_found(found, given_names, expected):
    assert coordinate_columns(found, given_names) == expected


@pytest.mark.parametrize("given_names", [(None, None), ("x", "nowhere")])
def test_columns_that_are_not_there_are_named(given_names):
    with pytest.raises(WorkloadError, match="a, lat"):
        coordinate_columns(["a", "lat"], given_names)


coordinates = st.one_of(st.none(), st.floats(-9, 9), st.sampled_from([np.nan, np.inf]))


@given(st.lists(st.tuples(coordinates, coordinates), min_size=1, max_size=20), st.integers(1, 20))
def test_points_keep_their_order_and_what_is_left_out_is_counted(tmp_path_factory, rows, most):
    file = tmp_path_factory.mktemp("points") / "points.parquet"
    write(
        file,
        lat=pa.array([y for _, y in rows], pa.float64()),
        name=["a"] * len(rows),
        lon=pa.array([x for x, _ in rows], pa.float64()),
    )
    usable = [row for row in rows if None not in row and np.isfinite(row).all()]
    read = read_points(file, most)
    assert list(zip(read.x, read.y, strict=True)) == usable[:most]
    if len(usable) <= most and len(read.x) < most:
        assert read.skipped == len(rows) - len(usable)
    elif len(read.x) == most:
        upto = [i for i, row in enumerate(rows) if row in usable][most - 1] + 1
        assert read.skipped == upto - most


def test_points_outside_the_bounds_are_skipped(tmp_path):
    file = write(tmp_path / "p.parquet", x=[1, 5, 2, 9], y=[1.0, 1.0, 2.0, 1.0])
    read = read_points(file, 10, bounds=Bounds(0, 0, 5, 5))
    assert read.x.tolist() == [1, 5, 2]
    assert read.skipped == 1


def test_the_files_of_a_folder_are_read_by_name(tmp_path):
    for name, value in (("b", 2.0), ("a", 1.0)):
        write(tmp_path / f"{name}.parquet", x=[value], y=[value])
    assert read_points(tmp_path, 10).x.tolist() == [1, 2]


@pytest.mark.parametrize("content", [None, b"no Parquet"])
def test_a_file_that_cannot_be_read_is_named(tmp_path, content):
    file = tmp_path / "points.parquet"
    if content:
        file.write_bytes(content)
    with pytest.raises(WorkloadError, match=r"points\.parquet"):
        read_points(file, 10)


def test_the_bounds_contain_all_points_even_on_a_line():
    x, y = np.array([1.0, 3.0]), np.array([2.0, 2.0])
    b = bounds_around(x, y)
    assert b.min_x < 1 < 3 < b.max_x < 3.01
    assert b.min_y < 2 < b.max_y


# -- the stream --------------------------------------------------------------------------------


def test_the_stream_has_the_points_in_order_and_the_exact_number_of_results(tmp_path):
    rng = np.random.default_rng(0)
    x, y = rng.random((2, 3 * POINTS + 7))
    stream = write_replay(tmp_path, x, y, POINTS, queries=200, side=0.1, churn=0.25, seed=1)
    assert stream.batches == 3
    queries = pa.concat_tables(
        pq.read_table(file) for file in sorted((tmp_path / "queries").iterdir())
    )
    now = np.array([queries[edge].to_numpy() for edge in Rectangles._fields])
    for batch in range(stream.batches + 1):
        files = [tmp_path / f"points/{batch:05d}-{i}.parquet" for i in range(FILES_PER_BATCH)]
        points = pa.concat_tables(pq.read_table(file) for file in files)
        first = min(batch, 2) * POINTS
        assert points["x"].to_pylist() == x[first : first + POINTS].tolist()
        assert points["id"].to_pylist() == list(range(batch * POINTS, (batch + 1) * POINTS))
        changes = pq.read_table(tmp_path / f"changes/{batch:05d}.parquet")
        assert changes.num_rows == (50 if batch < 3 else 0)
        for edge, name in zip(now, Rectangles._fields, strict=True):
            edge[changes["id"].to_numpy()] = changes[name].to_numpy()
        counts = compare_all(points["x"].to_numpy(), points["y"].to_numpy(), Rectangles(*now))
        assert stream.matches[batch] == counts.sum() > 0
        if batch in stream.checked_batches:
            ids = points["id"].to_pylist()
            assert {i: stream.sample[i] for i in ids} == dict(
                zip(ids, counts.tolist(), strict=True)
            )
    assert len(stream.sample) == 2 * POINTS


def test_too_few_points_are_refused_with_what_to_do(tmp_path):
    file = write(tmp_path / "p.parquet", x=np.arange(1000.0), y=np.arange(1000.0))
    with pytest.raises(WorkloadError, match="--points-per-batch 333"):
        prepare(ReplaySettings(points=str(file), points_per_batch=400), tmp_path)


def test_drifting_points_have_hotspots_that_begin_with_a_batch(tmp_path):
    file = tmp_path / "drift.parquet"
    batches, points = 9, 20_000
    hotspots = write_drift(file, batches, points, seed=3)
    assert hotspots == drift_hotspots(batches, seed=3)
    assert [spot.start for spot in hotspots] == [3, 7]
    x, y = (pq.read_table(file)[name].to_numpy().reshape(batches, points) for name in ("x", "y"))
    for spot in hotspots:
        region = spot.region(Bounds(-180, -90, 180, 90))
        inside = (region.min_x <= x) & (x <= region.max_x)
        inside &= (region.min_y <= y) & (y <= region.max_y)
        share = inside.mean(axis=1)
        active = [spot.active(batch) for batch in range(batches)]
        assert share[active].min() > spot.point_share - 0.02 > 0.1
        assert share[np.logical_not(active)].max() < share[active].min() / 2


# -- figures -----------------------------------------------------------------------------------


def batch(**kwargs) -> ReplayBatch:
    values = {
        "seconds": 2.0,
        "points": 100,
        "matches": 5,
        "lent": 10,
        "tasks": (0.1, 0.3),
        "all_tasks": 0.5,
        "work": (),
        "partitions": 3,
    }
    return ReplayBatch(**(values | kwargs))


def test_balance_is_the_mean_over_the_longest():
    assert balance([0.1, 0.3]) == pytest.approx(2 / 3)
    assert balance([]) is None
    assert balance([0.0]) is None


def test_the_warm_up_is_listed_and_does_not_count():
    series = ReplaySeries([batch(seconds=9.0), batch(seconds=9.0), batch(), batch(lent=0)], {})
    found = series.to_json()
    assert found["points_per_s"] == 50
    assert found["seconds"] == [9.0, 9.0, 2.0, 2.0]
    assert found["balance"] == [0.6667] * 4
    assert found["work_balance"] == [None] * 4
    assert found["task_s"] == [0.4] * 4
    assert found["lent"] == [0.1, 0.1, 0.1, 0.0]
    assert series.mean(lambda b: b.lent / b.points) == pytest.approx(0.05)


def test_the_first_batches_of_hotspots_are_looked_at_after_the_warm_up():
    works = [(), (1.0, 1.0), (1.0, 3.0), (2.0, 3.0)]
    series = ReplaySeries([replace(batch(), work=work) for work in works], {})
    facts = {"hotspots": [[1, 2], [2, 3], [3, 4], [4, 5]], "batches": 4}
    run = ReplayRun(ReplaySettings(points="drift"), {"swarm": series}, series, facts)
    assert run.hotspot_firsts == run.to_json()["data"]["hotspot_firsts"] == [2, 3]
    assert series.lowest_work_balance(run.hotspot_firsts) == pytest.approx(2 / 3)
    assert series.lowest_work_balance([0]) is None
    assert replace(run, facts={}).hotspot_firsts == []


def test_every_wrong_number_is_found(tmp_path):
    stream = ReplayStream(tmp_path, Bounds(0, 0, 1, 1), 2, 100, False, [5, 6, 6], {0: 1, 200: 0})
    right = ReplaySeries([batch(matches=5), batch(matches=6)], {0: 1})
    assert compare(stream, right) == (4, 0)
    assert compare(stream, replace(right, sample={200: 2})) == (4, 2)
    assert compare(stream, replace(right, batches=[batch(matches=5), batch()])) == (4, 1)


def test_the_median_of_several_runs_counts_and_all_rates_are_listed():
    runs = [ReplaySeries([batch(seconds=seconds)] * 3, {}) for seconds in (0.5, 2.0, 1.0, 4.0)]
    found = median_run(runs)
    assert found.batches == runs[1].batches
    assert found.runs == tuple(run.points_per_second for run in runs)
    assert found.to_json()["runs"] == [round(rate) for rate in found.runs]


def test_of_a_tasks_attempts_the_successful_one_counts():
    tasks = [(1, "SUCCESS", 20), (0, "FAILED", 99), (0, "SUCCESS", 10)]
    assert stage_seconds(tasks) == (0.01, 0.02)


def test_the_picture_shows_policies_and_hotspots(tmp_path):
    settings = ReplaySettings(points="some/file.parquet", batches=4)
    series = ReplaySeries([batch()] * 4, {})
    run = ReplayRun(settings, {"swarm": series}, series, {"hotspots": [[2, 3]], "batches": 4})
    draw_replay(run, tmp_path / "replay.png")
    assert (tmp_path / "replay.png").stat().st_size > 10_000


# -- on Spark ----------------------------------------------------------------------------------


def test_a_run_reports_every_batch_and_all_results_are_right(
    spark,  # noqa: F811
    tmp_path,
    monkeypatch,
):
    monkeypatch.setattr(replay, "COMPILED_AFTER", 1)
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 4 * 1000))
    file = write(tmp_path / "points.parquet", lon=x, lat=y)
    settings = ReplaySettings(
        points=str(file),
        executors=3,
        queries=300,
        side=0.02,
        policies=("swarm", "replicated"),
        batches=4,
        points_per_batch=1000,
        churn=0.1,
    )
    stream, facts = prepare(settings, tmp_path)
    told = []
    run = replay_on(spark, stream, settings, facts, lambda *one: told.append(one))
    found = json.loads(json.dumps(run.to_json()))
    assert {"one_host", "policies", "oracle"} <= found.keys()
    assert found["policies"].keys() == {"swarm", "replicated"}
    for policy in found["policies"].values():
        assert policy["points_per_s"] > 0
        assert policy["matches"] == stream.matches[:4]
        for name in ("seconds", "balance", "longest_task_s", "task_s", "partitions", "lent"):
            assert len(policy[name]) == 4, name
        assert all(0 < value <= 1 for value in policy["balance"])
        assert all(0 <= share < 1 for share in policy["lent"])
    assert len(run.series["swarm"].batches[0].tasks) == 3
    assert found["oracle"] == {"checked": run.checked, "wrong": 0}
    assert run.checked > 2 * 2 * 400
    assert ("replicated", 3) in told
