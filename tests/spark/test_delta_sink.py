"""DeltaSink: each batch is one commit, and no batch is committed twice."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.errors import StreamingQueryException

import sparkswarm.spark.delta_sink
from sparkswarm import DeltaSink
from sparkswarm.errors import ConfigError, InputError, StoreError

from .test_sinks import start
from .world import difference, expected, fail_one_commit, make_world, matches_of

SCHEMA = pa.schema([("id", pa.int64())])


@pytest.fixture
def run(monkeypatch):
    """Act as the run of this name."""

    def act(name):
        monkeypatch.setattr(sparkswarm.spark.delta_sink, "current_run", lambda: name)

    act("a run")
    return act


def write(sink, batch, *ids, attempt="first"):
    """Write a batch as tasks and driver do."""
    staged = sink.stage(batch, attempt)
    for i in ids:
        pq.write_table(pa.table({"id": [i]}, schema=SCHEMA), staged / f"part-{i}.parquet")
    (staged / "part-of-a-failed-task.parquet").touch()
    sink.publish(staged, batch, [f"part-{i}.parquet" for i in ids], SCHEMA)
    return staged


def ids_in(path):
    return sorted(DeltaTable(str(path)).to_pyarrow_table()["id"].to_pylist())


@pytest.mark.usefixtures("run")
def test_a_batch_is_one_commit(tmp_path):
    sink = DeltaSink(str(tmp_path))
    write(sink, 0, 1, 2)
    version = DeltaTable(str(tmp_path)).version()
    staged = write(sink, 1, 3, 4, 5)
    table = DeltaTable(str(tmp_path))
    assert (table.version(), table.transaction_version("a run")) == (version + 1, 1)
    assert ids_in(tmp_path) == [1, 2, 3, 4, 5]
    assert not (staged / "part-of-a-failed-task.parquet").exists()


@pytest.mark.usefixtures("run")
def test_a_batch_that_comes_again_is_not_written_again(tmp_path):
    sink = DeltaSink(str(tmp_path))
    write(sink, 0, 1)
    write(sink, 1, 2)
    version = DeltaTable(str(tmp_path)).version()
    staged = write(DeltaSink(str(tmp_path)), 1, 2, attempt="second")
    assert DeltaTable(str(tmp_path)).version() == version
    assert ids_in(tmp_path) == [1, 2]
    assert not staged.exists()


@pytest.mark.usefixtures("run")
def test_a_batch_older_than_the_last_is_an_error_and_changes_nothing(tmp_path):
    sink = DeltaSink(str(tmp_path))
    write(sink, 5, 1)
    with pytest.raises(StoreError, match="checkpoint is older than what was written"):
        write(sink, 3, 2)
    assert DeltaTable(str(tmp_path)).transaction_version("a run") == 5
    assert ids_in(tmp_path) == [1]


@pytest.mark.usefixtures("run")
def test_of_two_drivers_that_both_find_nothing_one_commits(tmp_path):
    sink = DeltaSink(str(tmp_path))
    write(sink, 0, 1)

    class Slow(DeltaSink):
        def _is_done(self, table, batch):
            done = super()._is_done(table, batch)
            write(sink, 1, 2, attempt="by the other driver")
            return done

    with pytest.raises(StoreError, match="another driver"):
        write(Slow(str(tmp_path)), 1, 2)
    assert ids_in(tmp_path) == [1, 2]


def test_two_runs_write_to_one_table(tmp_path, run):
    sink = DeltaSink(str(tmp_path))
    for name in ("a run", "another"):
        run(name)
        write(sink, 0, 1, attempt=name)
    assert ids_in(tmp_path) == [1, 1]


@pytest.mark.usefixtures("run")
def test_a_table_with_other_columns_is_an_error(tmp_path):
    DeltaTable.create(str(tmp_path), schema=pa.schema([("name", pa.string())]))
    with pytest.raises(InputError, match=r"has the columns .*name.* give another path"):
        write(DeltaSink(str(tmp_path)), 0, 1)


@pytest.mark.usefixtures("run")
def test_without_results_there_is_a_table(tmp_path):
    write(DeltaSink(str(tmp_path)), 0)
    assert ids_in(tmp_path) == []


def test_a_path_is_needed():
    with pytest.raises(ConfigError, match="path must be"):
        DeltaSink("")


# -- on Spark ----------------------------------------------------------------------------------


@pytest.mark.parametrize("writer", ["tasks", "driver"])
def test_a_run_that_fails_after_the_commit_has_each_result_once(
    spark, tmp_path, monkeypatch, writer
):
    world = make_world(85, batches=3)
    out = tmp_path / "out"
    fail_one_commit(monkeypatch, 1)
    if writer == "driver":
        monkeypatch.setattr(DeltaSink, "stage", lambda *_: None)
    with pytest.raises(StreamingQueryException, match="the disk is full"):
        start(spark, tmp_path, world, DeltaSink(str(out)), results="pairs")
    start(spark, tmp_path, world, DeltaSink(str(out)), results="pairs")
    table = DeltaTable(str(out))
    found = table.to_pyarrow_table()
    wanted = expected(world).matches
    # Batches are not a column: all points of the world have ids of their own.
    batches = {point: batch for batch, point, _ in wanted}
    numbers = pa.array([batches[i] for i in found["id"].to_pylist()], pa.int64())
    assert not difference(matches_of(found.append_column("batch_id", numbers)), wanted)
    in_duckdb = duckdb.from_arrow(table.to_pyarrow_dataset()).count("*").fetchall()
    assert in_duckdb == [(sum(wanted.values()),)]
    folders = [p for p in Path(out).iterdir() if p.name.startswith("batch-")]
    assert bool(folders) == (writer == "tasks")
