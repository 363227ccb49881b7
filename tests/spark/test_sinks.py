"""ParquetSink: what the tasks write themselves is what Spark's writer would have written."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException

from sparkswarm import ParquetSink, Swarm
from sparkswarm.errors import ConfigError, StoreError

from .test_engine import WITH_EXPIRY
from .world import (
    Folders,
    config,
    difference,
    expected,
    fail_one_commit,
    make_world,
    matches_in,
)


def start(spark, tmp_path, world, sink, **options):
    written = (tmp_path / "world").exists()
    folders = Folders(tmp_path / "world", 2) if written else world.write(tmp_path / "world")
    settings = config(executors=3, shared_host=options.pop("shared_host", True))
    handle = Swarm(spark, settings).start(
        folders.read_points(spark),
        folders.read_operations(spark),
        sink=sink,
        checkpoint=str(tmp_path / "checkpoint"),
        trigger={"availableNow": True},
        **{**WITH_EXPIRY, **options},
    )
    handle.await_termination()
    return handle


@pytest.mark.parametrize("results", ["points", "pairs"])
@pytest.mark.parametrize("shared_host", [True, False])
def test_files_have_the_results_once_and_spark_reads_them(spark, tmp_path, results, shared_host):
    world = make_world(81, batches=3)
    out = tmp_path / "out"
    start(spark, tmp_path, world, ParquetSink(str(out)), results=results, shared_host=shared_host)
    wanted = expected(world).matches
    assert not difference(matches_in(out), wanted)
    frame = spark.read.parquet(str(out))
    last = "query_id" if results == "pairs" else "query_ids"
    assert frame.columns == ["id", last, "batch_id"]
    if results == "pairs":
        assert frame.count() == sum(wanted.values())
    assert not [path for path in out.iterdir() if path.name.startswith(".")]


def test_a_folder_with_the_batches_of_another_run_is_said(spark, tmp_path, caplog, monkeypatch):
    world, out = make_world(82, batches=2), ParquetSink(str(tmp_path / "out"))

    def warned():
        return [r.getMessage() for r in caplog.records if "another run" in r.getMessage()]

    fail_one_commit(monkeypatch, 1)
    with pytest.raises(StreamingQueryException, match="the disk is full"):
        start(spark, tmp_path, world, out)
    start(spark, tmp_path, world, out)
    assert not warned(), "a run goes on in its own folder"
    (tmp_path / "checkpoint").rename(tmp_path / "lost")
    start(spark, tmp_path, world, out)
    (said,) = warned()
    assert said.startswith(f"{out.path} has the batches of another run: those with the numbers of")
    assert not difference(matches_in(tmp_path / "out"), expected(world).matches)


def test_both_writers_write_the_same(spark, tmp_path):
    world = make_world(82, batches=2)
    found = {}
    for writer in ("tasks", "spark"):
        folder = tmp_path / writer
        start(spark, folder, world, ParquetSink(str(folder / "out"), writer=writer))
        frame = spark.read.parquet(str(folder / "out")).drop("batch_id")
        found[writer] = (frame.schema, matches_in(folder / "out"))
    assert found["tasks"] == found["spark"]


def test_a_batch_that_comes_again_replaces_its_files(spark, tmp_path, monkeypatch):
    world = make_world(83, batches=3)
    sink = ParquetSink(str(tmp_path / "out"))
    fail_one_commit(monkeypatch, 1)
    with pytest.raises(StreamingQueryException, match="the disk is full"):
        start(spark, tmp_path, world, sink)
    assert (tmp_path / "out" / "batch_id=1").exists()
    start(spark, tmp_path, world, sink)
    assert not difference(matches_in(tmp_path / "out"), expected(world).matches)


def test_a_batch_without_results_has_a_schema(spark, tmp_path):
    world = make_world(84, batches=1, operations=0)
    start(spark, tmp_path, world, ParquetSink(str(tmp_path / "out")))
    (file,) = (tmp_path / "out" / "batch_id=0").iterdir()
    table = pq.read_table(file, partitioning=None)
    assert (table.num_rows, table.column_names) == (0, ["id", "query_ids"])


def test_files_that_no_task_names_are_not_published(tmp_path):
    sink = ParquetSink(str(tmp_path))
    schema = pq.read_schema(_file(tmp_path / "any.parquet"))
    left = sink.stage(3, "first")
    staged = sink.stage(3, "second")
    assert not left.exists()
    _file(staged / "part-0-1.parquet")
    _file(staged / "part-0-2.parquet")
    sink.publish(staged, 3, ["part-0-2.parquet"], schema)
    assert [f.name for f in (tmp_path / "batch_id=3").iterdir()] == ["part-0-2.parquet"]


def test_a_folder_that_machines_do_not_share_is_an_error(tmp_path):
    sink = ParquetSink(str(tmp_path))
    schema = pq.read_schema(_file(tmp_path / "any.parquet"))
    with pytest.raises(StoreError, match="all machines share"):
        sink.publish(sink.stage(0, "a"), 0, ["part-0-1.parquet"], schema)


def test_only_local_folders_are_written_by_tasks():
    assert ParquetSink("s3://bucket/results").task_folder is None
    assert ParquetSink("s3://bucket/results").stage(0, "a") is None
    assert ParquetSink("/tmp/results", writer="spark").task_folder is None
    with pytest.raises(ConfigError, match="writer must be"):
        ParquetSink("/tmp/results", writer="hive")  # type: ignore[arg-type]


def _file(path: Path) -> Path:
    pq.write_table(pa.table({"id": [1]}), path)
    return path
