"""Points in Parquet files that tasks read: types, missing columns, missing files."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparkswarm.errors import InputError
from sparkswarm.spark.columns import INPUT_PARTITION, POINT_FILE, QUERY_IDS
from sparkswarm.spark.task_input import PointFiles
from sparkswarm.spark.tasks.direct import match_task
from sparkswarm.spark.tasks.point_files import read_point_files
from sparkswarm.store.queries import ID, TIME, X, Y

from ...support.tasks import Tasks, register

PLAIN = PointFiles(
    columns={ID: "name", X: "pos.x", Y: "y"},
    schema=pa.schema([(ID, pa.string()), (X, pa.float64()), (Y, pa.float64())]),
)
TIMED = PointFiles(columns={TIME: "at"}, schema=pa.schema([(TIME, pa.int64())]))
NOON = dt.datetime(2026, 7, 1, 12, 0, 0, 250_000)


def write(path: Path, **options: object) -> str:
    """Write three points, one without a coordinate; return Spark's name of the file."""
    table = pa.table(
        {
            "other": pa.array([0, 0, 0]),
            "y": pa.array([1, 2, None], pa.int32()),
            "pos.x": pa.array([1.0, 2.0, 3.0], pa.float32()),
            "name": ["a", "b", "c"],
        }
    )
    pq.write_table(table, path, **options)
    return f"file:{path}"


def times(path: Path, values: pa.Array, zone: str = "UTC", **options: object) -> list[int | None]:
    """Return the event times that are read of a file."""
    pq.write_table(pa.table({"at": values}), path, **options)
    wanted = replace(TIMED, time_zone=zone)
    found = read_point_files([f"file:{path}"], wanted, 100)
    return [value for batch in found for value in batch.column(0).to_pylist()]


def test_columns_get_the_names_and_types_of_the_stream(tmp_path: Path) -> None:
    files = [write(tmp_path / f"a b%20{i}.parquet", row_group_size=2) for i in range(2)]
    batches = list(read_point_files(files, PLAIN, 2))
    assert [batch.num_rows for batch in batches] == [2, 1, 2, 1]
    assert all(batch.schema == PLAIN.schema for batch in batches)
    rows = pa.Table.from_batches(batches).to_pylist()
    assert rows[:3] == [
        {ID: "a", X: 1.0, Y: 1.0},
        {ID: "b", X: 2.0, Y: 2.0},
        {ID: "c", X: 3.0, Y: None},
    ]


@pytest.mark.parametrize(
    ("values", "zone", "hour"),
    [
        (pa.array([NOON], pa.timestamp("us", "UTC")), "Europe/Berlin", 12),
        (pa.array([NOON], pa.timestamp("us")), "Europe/Berlin", 10),
        (pa.array([NOON], pa.timestamp("ms")), "UTC", 12),
        (pa.array([NOON], pa.timestamp("ns", "America/New_York")), "UTC", 12),
    ],
)
def test_event_times_are_those_that_spark_would_read(tmp_path, values, zone, hour) -> None:
    expected = NOON.replace(hour=hour, tzinfo=dt.UTC).timestamp() * 1e6
    assert times(tmp_path / "t.parquet", values, zone) == [expected]


def test_dates_and_old_timestamps_are_times(tmp_path: Path) -> None:
    day = pa.array([dt.date(2026, 7, 1), None])
    midnight = dt.datetime(2026, 7, 1, tzinfo=dt.UTC).timestamp() * 1e6
    assert times(tmp_path / "d.parquet", day) == [midnight, None]
    old = pa.array([NOON], pa.timestamp("us"))
    noon = NOON.replace(tzinfo=dt.UTC).timestamp() * 1e6
    path = tmp_path / "o.parquet"
    assert times(path, old, use_deprecated_int96_timestamps=True) == [noon]


def test_schema_drift_is_told_by_file_and_column(tmp_path: Path) -> None:
    path = tmp_path / "new.parquet"
    pq.write_table(pa.table({"name": ["a"], "y": [1.0]}), path)
    with pytest.raises(InputError, match=r"new\.parquet has no column pos\.x; it has name, y"):
        list(read_point_files([f"file:{path}"], PLAIN, 10))
    pq.write_table(pa.table({"name": ["a"], "y": [1.0], "pos.x": ["east"]}), path)
    with pytest.raises(InputError, match=r"column pos\.x of the file .* does not become double"):
        list(read_point_files([f"file:{path}"], PLAIN, 10))
    number = pa.schema([(ID, pa.int8())])
    pq.write_table(pa.table({"name": [300]}), path)
    with pytest.raises(InputError, match="does not become int8"):
        list(read_point_files([f"file:{path}"], replace(PLAIN, schema=number), 10))


def test_files_that_are_gone_or_broken_are_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"lost\.parquet is gone: files must stay"):
        list(read_point_files([f"file:{tmp_path}/lost.parquet"], PLAIN, 10))
    half = tmp_path / "half.parquet"
    write(half)
    half.write_bytes(half.read_bytes()[:-20])
    with pytest.raises(InputError, match=r"half\.parquet cannot be read as a Parquet file"):
        list(read_point_files([f"file:{half}"], PLAIN, 10))


def test_a_task_matches_and_routes_the_points_of_its_files(tmp_path: Path) -> None:
    tasks = Tasks(tmp_path / "checkpoint")
    tasks.apply(register(5, 0.0, 0.0, 1.5, 1.5), register(6, 0.0, 0.0, 8.0, 8.0))
    tasks.input = replace(tasks.input, point_files=PLAIN)
    files = [write(tmp_path / f"{i}.parquet") for i in range(2)]
    rows = pa.record_batch({POINT_FILE: files, INPUT_PARTITION: pa.array([3, 3], pa.int32())})
    found = [row for batch in tasks.run(match_task, [rows]) for row in batch.to_pylist()]
    assert sorted((row[ID], sorted(row[QUERY_IDS])) for row in found) == [
        *[("a", [5, 6])] * 2,
        *[("b", [6])] * 2,
    ]
    (output,) = [o for o in tasks.outputs if o.task == 3]
    assert output.points == 4
    assert sum(output.rejected.values()) == 2, "points without a coordinate"
    tasks.route(pa.table({POINT_FILE: files}))
    assert tasks.outputs[-1].counts.points == 4
