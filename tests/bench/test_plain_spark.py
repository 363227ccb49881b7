"""The benchmark's inputs are what they promise, and plain Spark finds every result in them."""

import numpy as np
import pytest
from pyspark.sql import SparkSession

from sparkswarm.bench import plain_spark
from sparkswarm.bench.inputs import brute_force_sample, count_matches, write_inputs
from sparkswarm.bench.plain_spark import WARM_UP, run_plain_spark
from sparkswarm.errors import WorkloadError
from sparkswarm.workloads import CONTIGUOUS_US, Rectangles, cities_density

BATCHES = 4


@pytest.fixture(scope="module")
def spark():
    # Other tests may have started one, and use it after these; whoever started it stops it.
    return (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", False)
        .config("spark.log.level", "ERROR")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )


def small(folder, **kwargs):
    numbers = {"batches": BATCHES, "points": 2_000, "queries": 3_000, "change_share": 0.1}
    density = cities_density(CONTIGUOUS_US, 100, 100)
    return write_inputs(folder, density=density, side=0.01, **(numbers | kwargs))


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    return small(tmp_path_factory.mktemp("inputs"))


def expected(inputs, churn):
    """The number of results of every batch, every point compared with every query."""
    everything = inputs.points
    return [
        int(brute_force_sample(inputs, batch, churn, everything)[1].sum())
        for batch in range(BATCHES)
    ]


def test_the_same_seed_writes_the_same_inputs(inputs, tmp_path):
    again, other = small(tmp_path / "again"), small(tmp_path / "other", seed=1)
    for one, another in zip(inputs.read_points(1), again.read_points(1), strict=True):
        np.testing.assert_array_equal(one, another)
    np.testing.assert_array_equal(inputs.read_queries(2), again.read_queries(2))
    assert not np.array_equal(inputs.read_points(1)[1], other.read_points(1)[1])


def test_every_point_has_an_id_of_its_own_and_a_tenth_of_the_queries_change(inputs):
    ids = np.concatenate([inputs.read_points(batch)[0] for batch in range(BATCHES)])
    assert np.unique(ids).size == BATCHES * inputs.points
    moved = inputs.read_queries(1).min_x != inputs.read_queries(0).min_x
    assert moved.sum() == inputs.changes == 300


def test_files_are_older_the_earlier_their_batch(inputs):
    files = sorted(inputs.points_folder.iterdir())
    times = [file.stat().st_mtime for file in files]
    assert len(files) == BATCHES * inputs.files_per_batch
    assert times == sorted(set(times))


def test_the_sweep_counts_as_comparing_all_does(inputs):
    ids, x, y = inputs.read_points(3)
    sample, counts = brute_force_sample(inputs, 3, churn=True, sample=500)
    swept = count_matches(x, y, inputs.read_queries(3))
    np.testing.assert_array_equal(swept[np.searchsorted(ids, sample)], counts)
    assert counts.sum() > 0


def test_rectangles_are_closed():
    corners = np.array([0.0, 0.0, 1.0, 1.0, 2.0]), np.array([0.0, 1.0, 0.0, 1.0, 0.0])
    unit = Rectangles(*(np.array([edge]) for edge in (0.0, 0.0, 1.0, 1.0)))
    assert count_matches(*corners, unit).tolist() == [1, 1, 1, 1, 0]


@pytest.mark.parametrize("wrong", [{"batches": 0}, {"change_share": 2}, {"centres": "nowhere"}])
def test_inputs_that_cannot_be_are_refused(tmp_path, wrong):
    with pytest.raises(WorkloadError):
        small(tmp_path, **wrong)


@pytest.mark.parametrize("churn", [False, True])
def test_plain_spark_finds_every_result(spark, inputs, monkeypatch, churn):
    """Changed queries match where they are now and nowhere else, whichever table they are in."""
    # Changes gather for two batches, are folded into the large table in the third, then gather.
    monkeypatch.setattr(plain_spark, "REBUILD_AT", 0.25)
    before = spark.conf.get("spark.sql.shuffle.partitions")
    told = []
    run = run_plain_spark(spark, inputs, BATCHES, churn, lambda *batch: told.append(batch))
    assert run.results == expected(inputs, churn)
    assert [batch for batch, _ in told] == list(range(BATCHES))
    assert run.seconds == [seconds for _, seconds in told][WARM_UP:]
    assert run.points_per_second > 0
    assert spark.conf.get("spark.sql.shuffle.partitions") == before


def test_lists_have_the_results_of_pairs(spark, inputs):
    run = run_plain_spark(spark, inputs, BATCHES, churn=False, lists=True)
    assert run.results == expected(inputs, churn=False)


def test_more_batches_than_there_are_cannot_be_run(spark, inputs):
    with pytest.raises(WorkloadError):
        run_plain_spark(spark, inputs, BATCHES + 1, churn=False)
