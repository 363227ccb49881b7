"""The synthetic sources: rows that only the seed, the options and their number decide."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from sparkswarm.errors import ConfigError
from sparkswarm.options import options_of
from sparkswarm.spark.sources import BatchReader, StreamReader, register_sources
from sparkswarm.workloads import CONTIGUOUS_US, WORLD, cities_density
from sparkswarm.workloads import synthetic_rows as source_rows
from sparkswarm.workloads.synthetic_options import (
    CitiesOptions,
    QueriesOptions,
    SourceOptions,
    option_name,
    options_table,
    parse_options,
)
from sparkswarm.workloads.synthetic_rows import BLOCK, read_rows

DOCS = Path(__file__).resolve().parents[2] / "docs"
EVERYTHING = {
    "seed": "7",
    "grid": "40,30",
    "daylight": "true",
    "rowsPerSecond": "10",
    "hotspot": "0.1,0.2,0.1,0.5,600,2400,0.6,0.7; 0.5,0.5,0.2,0.1,0,4000",
}
"""Options under which rows of three virtual hours differ in every way."""


def options(kind=CitiesOptions, **given):
    return parse_options(kind, {"grid": "100", **{k: str(v) for k, v in given.items()}})


def rows(these, start, stop):
    batches = list(read_rows(these, start, stop))
    return pa.Table.from_batches(batches) if batches else pa.table({})


def columns(table):
    """The columns as arrays, with a number that stands for null."""
    filled = [column.fill_null(-1e300) if column.null_count else column for column in table.columns]
    return dict(zip(table.column_names, (c.to_numpy() for c in filled), strict=True))


def assert_same_rows(one, other):
    assert one.schema == other.schema
    for name, column in columns(one).items():
        np.testing.assert_array_equal(column, columns(other)[name], err_msg=name)


def points(these, n):
    table = columns(rows(these, 0, n))
    return table["x"], table["y"]


# Rows.


@pytest.mark.parametrize(
    "these",
    [
        parse_options(CitiesOptions, {**EVERYTHING, "badRows": "0.2"}),
        parse_options(QueriesOptions, {**EVERYTHING, "queries": "5000", "churn": "0.1"}),
    ],
    ids=["points", "queries"],
)
def test_rows_are_the_same_however_the_stream_is_cut(these):
    whole = rows(these, 0, 2 * BLOCK + 100)

    @settings(max_examples=20)
    @given(cut=st.tuples(*[st.integers(0, len(whole) - 1)] * 2).map(sorted))
    def check(cut):
        start, stop = cut[0], cut[1] + 1
        assert_same_rows(rows(these, start, stop), whole.slice(start, stop - start))

    check()


def test_another_seed_gives_other_rows():
    assert (points(options(seed=1), 1000)[0] != points(options(seed=2), 1000)[0]).all()


def test_event_time_is_exact_to_the_microsecond_far_from_now():
    table = rows(options(rowsPerSecond=1, start="2999-12-31T23:59:59.999999"), 0, 1)
    assert table["ts"].to_pylist() == [datetime(2999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)]
    assert rows(options(rowsPerSecond=1), 10**12 - 1, 10**12)["ts"].cast("int64")[0].as_py() > 1e18


def test_ids_are_consecutive_and_event_time_passes_with_them():
    these = options(rowsPerSecond=7, start="2024-05-01T12:30:00.5+02:00")
    table = rows(these, BLOCK - 10, BLOCK + 10)
    assert table["id"].to_pylist() == list(range(BLOCK - 10, BLOCK + 10))
    start = datetime(2024, 5, 1, 10, 30, 0, 500_000, tzinfo=UTC)
    wanted = [start + timedelta(microseconds=n * 10**6 // 7) for n in table["id"].to_pylist()]
    assert table["ts"].to_pylist() == wanted


def chi_square(these, density, n):
    """The statistic of n points on cells that expect 5 or more, and a bound it rarely exceeds."""
    rows, columns = density.weights.shape
    coarse = density.weights.reshape(20, rows // 20, 20, columns // 20).sum(axis=(1, 3))
    x, y = points(these, n)
    seen, _, _ = np.histogram2d(
        y,
        x,
        bins=20,
        range=[
            [density.bounds.min_y, density.bounds.max_y],
            [density.bounds.min_x, density.bounds.max_x],
        ],
    )
    expected = coarse * n
    enough = expected >= 5
    cells = int(enough.sum())
    statistic = ((seen - expected)[enough] ** 2 / expected[enough]).sum()
    return statistic, cells + 5 * np.sqrt(2 * cells)


@pytest.mark.parametrize(("name", "bounds"), [("us", CONTIGUOUS_US), ("world", WORLD)])
def test_points_follow_the_density_of_the_cities(name, bounds):
    statistic, bound = chi_square(
        options(bounds=name, seed=3), cities_density(bounds, 100, 100), 100_000
    )
    assert statistic < bound


def test_daylight_follows_the_hour_of_virtual_time():
    these = options(bounds="world", daylight="true", start="2025-01-01T06:00", rowsPerSecond=100)
    morning, evening = (cities_density(WORLD, 100, 100, hour_utc=h) for h in (6.5, 18.5))
    statistic, bound = chi_square(these, morning, 100_000)
    assert statistic < bound
    statistic, bound = chi_square(these, evening, 100_000)
    assert statistic > 10 * bound


def inside(x, y, corner, side):
    b = CONTIGUOUS_US
    across, up = (x - b.min_x) / b.width - corner[0], (y - b.min_y) / b.height - corner[1]
    return (across >= 0) & (across <= side) & (up >= 0) & (up <= side)


def test_a_hotspot_draws_its_share_in_its_time_and_only_then():
    spot = options(rowsPerSecond=1000, hotspot="0.05,0.05,0.15,0.4,20,40")
    x, y = points(spot, 60_000)
    calm_x, calm_y = points(options(rowsPerSecond=1000), 60_000)
    second = np.arange(60_000) // 1000
    active = (second >= 20) & (second < 40)
    np.testing.assert_array_equal(x[~active], calm_x[~active])
    moved = (x != calm_x) | (y != calm_y)
    assert inside(x, y, (0.05, 0.05), 0.15)[moved].all()
    assert moved[active].mean() == pytest.approx(0.4, abs=0.015)


def test_a_hotspot_with_a_second_corner_glides_there():
    spot = options(rowsPerSecond=1000, hotspot="0.1,0.8,0.1,1,0,10,0.9,0.0")
    x, y = points(spot, 10_000)
    for second, corner in ((0, (0.1, 0.8)), (5, (0.5, 0.4)), (9, (0.82, 0.08))):
        part = slice(second * 1000, second * 1000 + 100)
        assert inside(x[part], y[part], (corner[0] - 1e-9, corner[1] - 0.01), 0.12).all()


def test_bad_rows_are_a_share_of_every_kind_and_leave_the_others_alone():
    n, b = 40_000, CONTIGUOUS_US
    good = columns(rows(options(), 0, n))
    bad = rows(options(badRows="0.2"), 0, n)
    faults = np.zeros(n, dtype=int)
    for name, low, high in (("x", b.min_x, b.max_x), ("y", b.min_y, b.max_y)):
        null = bad[name].is_null().to_numpy()
        value = bad[name].fill_null(0).to_numpy()
        outside = np.isfinite(value) & ~null & ((value < low) | (value > high))
        for fault in (null, np.isnan(value), np.isposinf(value), np.isneginf(value), outside):
            share = 0.2 / 4 / 2 / (2 if np.isinf(value[fault]).any() else 1)
            assert fault.mean() == pytest.approx(share, rel=0.2)
            faults += fault
        assert (value < low)[outside].any()
        assert (value > high)[outside].any()
        untouched = ~(null | ~np.isfinite(value) | outside)
        np.testing.assert_array_equal(value[untouched], good[name][untouched])
    assert faults.max() == 1
    assert faults.mean() == pytest.approx(0.2, rel=0.05)
    assert bad["id"].null_count == bad["ts"].null_count == 0


def test_points_stay_inside_the_bounds_up_to_the_far_corner():
    x, y = points(options(hotspot="0.5,0.5,0.5,1,0,100"), 50_000)
    assert inside(x, y, (0, 0), 1).all()
    assert max(x) <= CONTIGUOUS_US.max_x
    assert max(y) <= CONTIGUOUS_US.max_y


def test_the_density_is_built_once_for_all_micro_batches():
    these = options(grid="31,17")
    before = source_rows._density.cache_info().misses
    for start in range(0, 50_000, 10_000):
        rows(these, start, start + 10_000)
    assert source_rows._density.cache_info().misses == before + 1


def test_query_operations_keep_as_many_queries_alive():
    these = options(QueriesOptions, queries=50, churn="0.1", side="0.01")
    alive = set()
    for op in rows(these, 0, 50 + 3 * 200).to_pylist():
        rectangle = [op[edge] for edge in ("min_x", "min_y", "max_x", "max_y")]
        if op["op"] == "register":
            assert op["id"] not in alive
            alive.add(op["id"])
        elif op["op"] == "update":
            assert op["id"] in alive
        else:
            assert op["op"] == "unregister"
            alive.remove(op["id"])
            assert rectangle == [None] * 4
        if op["op"] != "unregister":
            sides = rectangle[2] - rectangle[0], rectangle[3] - rectangle[1]
            assert sides == pytest.approx((0.01 * CONTIGUOUS_US.width, 0.01 * CONTIGUOUS_US.height))
    assert alive == set(range(200, 250))


# Options.


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        (CitiesOptions, "rowsPerBatch", "0"),
        (CitiesOptions, "rowsPerBatch", "1.5"),
        (CitiesOptions, "rowsPerSecond", "0"),
        (CitiesOptions, "rowsPerSecond", "fast"),
        (CitiesOptions, "realTime", "maybe"),
        (CitiesOptions, "numPartitions", "0"),
        (CitiesOptions, "numPartitions", "10001"),
        (CitiesOptions, "seed", "-1"),
        (CitiesOptions, "seed", "9223372036854775808"),
        (CitiesOptions, "limit", "0"),
        (CitiesOptions, "limit", "many"),
        (CitiesOptions, "limit", "1000000000001"),
        (CitiesOptions, "start", "yesterday"),
        (CitiesOptions, "start", "1969-12-31"),
        (CitiesOptions, "bounds", "mars"),
        (CitiesOptions, "bounds", "1,2,3"),
        (CitiesOptions, "bounds", "10,0,0,10"),
        (CitiesOptions, "bounds", "0,0,nan,1"),
        (CitiesOptions, "bounds", "-30,-50,-25,-45"),
        (CitiesOptions, "grid", "0"),
        (CitiesOptions, "grid", "10,10,10"),
        (CitiesOptions, "grid", "4001"),
        (CitiesOptions, "daylight", "yes"),
        (CitiesOptions, "hotspot", "0.1,0.1"),
        (CitiesOptions, "hotspot", "0.95,0.1,0.1,0.4,0,10"),
        (CitiesOptions, "hotspot", "0.1,0.1,0.1,1.4,0,10"),
        (CitiesOptions, "hotspot", "0.1,0.1,0.1,0.4,10,10"),
        (CitiesOptions, "hotspot", "0.1,0.1,0.1,0.4,0.5,10"),
        (CitiesOptions, "hotspot", "0.1,0.1,0.1,0.4,0,inf"),
        (CitiesOptions, "hotspot", "0.1,0.1,0.1,0.4,0,10,0.95,0.1"),
        (CitiesOptions, "badRows", "1.1"),
        (CitiesOptions, "badRows", "nan"),
        (QueriesOptions, "queries", "0"),
        (QueriesOptions, "side", "0"),
        (QueriesOptions, "side", "1.1"),
        (QueriesOptions, "churn", "-0.1"),
    ],
)
def test_a_value_that_is_not_allowed_is_refused_with_its_range(kind, name, value):
    allowed = {
        option.name: option.kind.allowed for option in options_of(kind, option_name).values()
    }
    with pytest.raises(ConfigError) as refusal:
        parse_options(kind, {name.lower(): value})
    assert f"option {name} must be {allowed[name]}, got {value!r}" in str(refusal.value)


def test_an_unknown_option_is_refused_and_the_known_ones_are_named():
    with pytest.raises(ConfigError, match=r"no option 'rowPerBatch' .*'5'.*rowsPerBatch"):
        parse_options(CitiesOptions, {"rowPerBatch": "5"})
    with pytest.raises(ConfigError, match="no option 'churn'"):
        parse_options(CitiesOptions, {"churn": "0.1"})


@pytest.mark.parametrize("kind", [SourceOptions, CitiesOptions, QueriesOptions])
def test_the_docs_hold_the_table_of_options(kind):
    table = options_table(kind)
    page = (DOCS / "how-to" / "synthetic-streams.md").read_text(encoding="utf-8")
    assert table in page, "run `make docs`"


# Offsets.


def borders(reader, batches, row=0):
    limit = reader.getDefaultReadLimit()
    found = [row]
    for _ in range(batches):
        found.append(reader.latestOffset({"row": found[-1]}, limit)["row"])
    return found


def test_micro_batches_have_a_fixed_size_and_end_with_the_limit():
    assert borders(StreamReader(options(rowsPerBatch=10)), 3) == [0, 10, 20, 30]
    assert borders(StreamReader(options(rowsPerBatch=10, limit=25)), 4) == [0, 10, 20, 25, 25]
    assert borders(StreamReader(options(limit=25)), 2, row=40) == [40, 40, 40]


def test_queries_come_all_at_once_and_then_by_churn():
    still = StreamReader(options(QueriesOptions, queries=1000))
    assert borders(still, 2) == [0, 1000, 1000]
    assert borders(still, 1, row=400) == [400, 1000]
    churning = StreamReader(options(QueriesOptions, queries=1000, churn="0.01"))
    assert borders(churning, 3) == [0, 1000, 1010, 1020]


def test_spark_has_the_last_word_on_the_size_of_a_micro_batch():
    reader = StreamReader(options(rowsPerBatch=10, limit=25))
    assert reader.latestOffset({"row": 5}, ReadMaxRows(3)) == {"row": 8}
    assert reader.latestOffset({"row": 5}, ReadAllAvailable()) == {"row": 25}


def test_real_time_waits_for_the_clock_unless_all_is_wanted_now(monkeypatch):
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    reader = StreamReader(options(realTime="true", rowsPerSecond=10, rowsPerBatch=50, limit=200))
    limit = reader.getDefaultReadLimit()
    assert reader.latestOffset({"row": 30}, limit) == {"row": 30}
    now[0] += 2
    assert reader.latestOffset({"row": 30}, limit) == {"row": 50}
    now[0] += 100
    assert reader.latestOffset({"row": 50}, limit) == {"row": 100}
    now[0] -= 101
    assert reader.latestOffset({"row": 100}, limit) == {"row": 100}
    reader.prepareForTriggerAvailableNow()
    assert reader.latestOffset({"row": 100}, limit) == {"row": 150}


@pytest.mark.parametrize(
    "ask",
    [
        BatchReader,
        lambda endless: StreamReader(endless).prepareForTriggerAvailableNow(),
        lambda endless: StreamReader(endless).latestOffset({"row": 0}, ReadAllAvailable()),
    ],
    ids=["batch", "availableNow", "once"],
)
def test_reading_an_endless_stream_to_its_end_is_refused(ask):
    with pytest.raises(ConfigError, match="option limit is '', which means endless"):
        ask(options())


@pytest.mark.parametrize(("start", "stop", "pieces"), [(0, 10, 3), (5, 7, 4), (9, 9, 2), (3, 4, 1)])
def test_the_tasks_of_a_micro_batch_share_its_rows(start, stop, pieces):
    reader = StreamReader(options(numPartitions=pieces))
    parts = reader.partitions({"row": start}, {"row": stop})
    assert len(parts) == min(pieces, stop - start)
    assert [n for part in parts for n in range(part.start, part.stop)] == list(range(start, stop))


# On Spark.


@pytest.fixture(scope="module")
def registered(spark):
    register_sources(spark)
    return spark


def run(spark, checkpoint, form="swarm_cities", **given):
    """Read to the limit; return the rows of each micro-batch by its number."""
    seen = {}

    def keep(batch, number):
        seen[number] = batch.toArrow()

    source = spark.readStream.format(form).options(grid=100, seed=5, **given)
    query = source.load().writeStream.foreachBatch(keep)
    query = query.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    query.awaitTermination()
    return seen


def in_order(tables):
    return pa.concat_tables(tables).sort_by("ts")


def test_a_restart_goes_on_without_gap_and_a_replay_repeats_its_rows(registered, tmp_path):
    first = run(registered, tmp_path, limit=2500, rowsPerBatch=1000)
    assert [len(first[n]) for n in sorted(first)] == [1000, 1000, 500]
    (tmp_path / "commits" / "2").unlink()
    (tmp_path / "commits" / ".2.crc").unlink(missing_ok=True)
    second = run(registered, tmp_path, limit=4000, rowsPerBatch=1500, numPartitions=3)
    assert sorted(second) == [2, 3]
    assert_same_rows(in_order([first[2]]), in_order([second[2]]))

    stream = in_order([first[0], first[1], second[2], second[3]])
    assert stream["id"].to_pylist() == list(range(4000))
    assert json.loads((tmp_path / "offsets" / "3").read_text().splitlines()[-1]) == {"row": 4000}
    batch = registered.read.format("swarm_cities").options(grid=100, seed=5, limit=4000).load()
    assert_same_rows(in_order([batch.toArrow()]), stream)


def test_spark_sees_the_rows_that_were_drawn(registered):
    given = {"badRows": 0.3, "limit": 20_000, "numPartitions": 3, "grid": 100}
    frame = registered.read.format("swarm_cities").options(**given).load()
    assert frame.rdd.getNumPartitions() == 3
    drawn = rows(options(badRows="0.3"), 0, 20_000)
    assert_same_rows(in_order([frame.toArrow()]), drawn)


def test_queries_stream_too(registered, tmp_path):
    seen = run(registered, tmp_path, "swarm_queries", queries=300, churn=0.1, limit=350)
    assert [len(seen[n]) for n in sorted(seen)] == [300, 30, 20]
    drawn = rows(options(QueriesOptions, seed=5, queries=300, churn="0.1"), 0, 350)
    assert in_order(seen.values()).drop(["ts"]).equals(drawn.drop(["ts"]))


def test_spark_tells_what_is_wrong_with_an_option(registered, tmp_path):
    with pytest.raises(AnalysisException, match="option badRows must be a number from 0 to 1"):
        registered.readStream.format("swarm_cities").option("badRows", 2).load()
    with pytest.raises(AnalysisException, match="there is no option 'path'"):
        registered.read.format("swarm_cities").load("somewhere")
    with pytest.raises(StreamingQueryException, match="option limit is ''"):
        run(registered, tmp_path)
