"""Whatever dies and whenever, the output is that of a run in which nothing died."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException

from sparkswarm import ParquetSink, StoreError
from sparkswarm.store.epochs import Epochs
from sparkswarm.store.files import Files

from ..support.damage import cut_short, flip_a_byte, remove
from ..support.processes import kill_group
from .driver_main import (
    AFTER_COMMIT,
    AFTER_EPOCH,
    AFTER_OPERATIONS,
    BEFORE_COMMIT,
    BEFORE_EPOCH,
    IN_EXECUTE,
    WORKERS,
    Orders,
)
from .event_world import expected_events, told_events, walking_world
from .world import (
    Folders,
    Restless,
    difference,
    expected,
    last_json,
    make_world,
    matches_in,
    start_world,
)

PATIENCE = 300
"""Seconds that a driver may take."""

KILLED = -9


def orders_for(world, tmp_path, **more):
    folders = world.write(tmp_path / "world")
    return Orders(
        str(folders.folder),
        folders.files,
        str(tmp_path / "checkpoint"),
        str(tmp_path / "out"),
        world.event_time,
        marker=str(tmp_path / "marker"),
        **more,
    )


def drive(orders, tmp_path):
    """Run a driver to its end, natural or not; return its exit code and its last words."""
    log = tmp_path / "driver.log"
    process = orders.start(log)
    try:
        code = process.wait(PATIENCE)
    finally:
        # A driver that was killed leaves its JVM behind.
        kill_group(process)
    return code, log.read_text()


def assert_same_as_if_nothing_had_happened(tmp_path, world):
    assert not difference(matches_in(tmp_path / "out"), expected(world).matches)


# -- the driver dies ---------------------------------------------------------------------------


EVERY_STAGE = (
    (BEFORE_COMMIT, -1),
    (BEFORE_EPOCH, 0),
    (AFTER_EPOCH, 1),
    (AFTER_OPERATIONS, 2),
    (IN_EXECUTE, 3),
    (BEFORE_COMMIT, 4),
    (AFTER_COMMIT, 5),
)


def kill_one_by_one(orders, tmp_path, stages, world):
    """Start a driver for each stage, which dies there; check what it leaves."""
    wanted = expected(world).matches
    for stage, batch in stages:
        Path(orders.marker).unlink(missing_ok=True)
        doomed = replace(orders, kill=stage, batch=batch, shared_host=bool(batch % 2))
        code, said = drive(doomed, tmp_path)
        assert code == KILLED, f"{stage}: {said[-3000:]}"
        done = {k: n for k, n in matches_in(tmp_path / "out").items() if k[0] < batch}
        assert done == {k: n for k, n in wanted.items() if k[0] < batch}, stage


def test_killed_drivers_and_workers_leave_the_results_and_events_of_a_run_that_lived(tmp_path):
    """Two drivers die one after the other; the third lives, but its workers die."""
    world = walking_world(35)
    told, more = tmp_path / "events", {"master": "local[2,4]", "by_tasks": True}
    orders = orders_for(world, tmp_path, resize=(3, 2, 4), events=str(told), **more)
    kill_one_by_one(orders, tmp_path, ((IN_EXECUTE, 3), (BEFORE_COMMIT, 4)), world)
    Path(orders.marker).unlink()
    code, said = drive(replace(orders, kill=WORKERS, batch=5), tmp_path)
    assert code == 0, said[-3000:]
    assert Path(orders.marker).exists()
    assert_same_as_if_nothing_had_happened(tmp_path, world)
    assert not difference(told_events(pq.read_table(told)), expected_events(world).events)


@pytest.mark.long
@pytest.mark.parametrize("by_tasks", [False, True])
def test_a_driver_killed_stage_after_stage_leaves_the_output_of_one_that_lived(tmp_path, by_tasks):
    world = make_world(71, batches=7, points=80, operations=40, event_time=True, preload=60)
    orders = orders_for(world, tmp_path, resize=(3, 2, 4), by_tasks=by_tasks)
    kill_one_by_one(orders, tmp_path, EVERY_STAGE, world)
    code, said = drive(orders, tmp_path)
    assert code == 0, said[-3000:]
    assert_same_as_if_nothing_had_happened(tmp_path, world)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(
    "stage",
    [BEFORE_EPOCH, AFTER_EPOCH, AFTER_OPERATIONS, IN_EXECUTE, BEFORE_COMMIT, AFTER_COMMIT],
)
def test_a_driver_killed_once_leaves_the_output_of_one_that_lived(tmp_path, stage, seed):
    world = make_world(72 + seed, batches=4, event_time=bool(seed))
    resize, shared_host = ((2, 5), False) if seed else ((), True)
    orders = orders_for(
        world, tmp_path, kill=stage, batch=2, resize=resize, shared_host=shared_host
    )
    code, said = drive(orders, tmp_path)
    assert code == KILLED, said[-3000:]
    code, said = drive(orders, tmp_path)
    assert code == 0, said[-3000:]
    assert_same_as_if_nothing_had_happened(tmp_path, world)


# -- a worker dies -----------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize(
    "where",
    [{"by_tasks": True}, {"shared_host": False}, {"shared_host": False, "hardened": True}],
    ids=["on one host", "while points are lent", "in a hardened session"],
)
def test_workers_killed_within_a_batch_change_nothing(tmp_path, where):
    world = make_world(75, batches=4)
    more = {"master": "local[2,4]", "resize": (3, 4), **where}
    orders = orders_for(world, tmp_path, kill=WORKERS, batch=2, **more)
    code, said = drive(orders, tmp_path)
    assert code == 0, said[-3000:]
    assert Path(orders.marker).exists()
    told = json.loads(last_json(said))
    assert told["executors"] == [3, 4]
    assert (told["lent"] > 0) == ("shared_host" in where)
    assert_same_as_if_nothing_had_happened(tmp_path, world)


# -- a batch comes again -----------------------------------------------------------------------


def start(spark, folders, tmp_path, checkpoint="checkpoint", sink=None, event_time=False):
    sink = sink or ParquetSink(str(tmp_path / "out"))
    return start_world(spark, folders, tmp_path / checkpoint, sink, event_time)


@pytest.mark.parametrize("event_time", [True, False])
def test_a_batch_that_comes_again_after_all_was_done_leaves_the_same_rows(
    spark, tmp_path, event_time
):
    world = make_world(76, batches=4, event_time=event_time)
    folders = world.write(tmp_path / "world")
    sink = Restless(ParquetSink(str(tmp_path / "out")), 1, executors=(3, 5))
    handle = start(spark, folders, tmp_path, sink=sink, event_time=event_time)
    sink.watch(handle)
    handle.await_termination()
    assert_same_as_if_nothing_had_happened(tmp_path, world)
    for path in (tmp_path / "checkpoint" / "spark" / "commits").glob("*3*"):
        path.unlink()
    shutil.rmtree(tmp_path / "out" / "batch_id=3")
    handle = start(spark, folders, tmp_path, event_time=event_time)
    handle.await_termination()
    assert handle.status().batches == 1
    assert_same_as_if_nothing_had_happened(tmp_path, world)


# -- the checkpoint is damaged -----------------------------------------------------------------


@pytest.fixture(scope="module")
def stopped(spark, tmp_path_factory):
    """A run that stopped after two of three batches, and its world."""
    tmp_path = tmp_path_factory.mktemp("stopped")
    world = make_world(77, batches=3, preload=80)
    folders = world.write(tmp_path / "world")
    late = [path for path in tmp_path.glob("world/*/00002*.parquet")]
    aside = tmp_path / "aside"
    aside.mkdir()
    for path in late:
        path.rename(aside / f"{path.parent.name}-{path.name}")
    start(spark, folders, tmp_path).await_termination()
    for path in late:
        (aside / f"{path.parent.name}-{path.name}").rename(path)
    return world, tmp_path


@pytest.fixture
def damaged(stopped, tmp_path):
    """A copy of that run, to be damaged; workers have not seen the files of the copy."""
    world, source = stopped
    shutil.copytree(source / "checkpoint", tmp_path / "checkpoint")
    shutil.copytree(source / "out", tmp_path / "out")
    return world, Folders(source / "world", 2), tmp_path


def stored(tmp_path, folder):
    """Return the files of a folder that the last commit names."""
    root = tmp_path / "checkpoint" / "swarm"
    last = Epochs(Files(str(root)), 10).last_commit()
    return [root / r.name for r in last.manifest.files() if r.name.startswith(folder)]


def test_an_undamaged_copy_goes_on(spark, damaged):
    world, folders, tmp_path = damaged
    start(spark, folders, tmp_path).await_termination()
    assert_same_as_if_nothing_had_happened(tmp_path, world)


@pytest.mark.parametrize("folder", ["segments", "deltas"])
@pytest.mark.parametrize(
    ("damage", "word"), [(flip_a_byte, "corrupt"), (cut_short, "corrupt"), (remove, "missing")]
)
def test_damaged_queries_end_the_run_with_the_name_of_the_file(
    spark, damaged, folder, damage, word
):
    _, folders, tmp_path = damaged
    before = matches_in(tmp_path / "out")
    files = stored(tmp_path, folder)
    assert files
    for path in files:
        damage(path)
    handle = start(spark, folders, tmp_path)
    with pytest.raises(StreamingQueryException, match=rf"{folder}/\S+\.arrow .*{word}"):
        handle.await_termination()
    assert matches_in(tmp_path / "out") == before


@pytest.mark.parametrize("folder", ["manifests", "plans", "commits"])
@pytest.mark.parametrize("damage", [flip_a_byte, cut_short])
def test_a_damaged_record_keeps_the_run_from_starting(spark, damaged, folder, damage):
    _, folders, tmp_path = damaged
    damage(max((tmp_path / "checkpoint" / "swarm" / folder).iterdir()))
    with pytest.raises(StoreError, match=rf"{folder}/[-\w]+\.json .*corrupt"):
        start(spark, folders, tmp_path)


@pytest.mark.parametrize("folder", ["manifest", "plan"])
def test_a_missing_record_keeps_the_run_from_starting(spark, damaged, folder):
    _, folders, tmp_path = damaged
    for path in (tmp_path / "checkpoint" / "swarm" / f"{folder}s").iterdir():
        path.unlink()
    with pytest.raises(StoreError, match=rf"{folder}.* missing"):
        start(spark, folders, tmp_path)


def test_a_run_whose_last_commits_are_gone_does_not_go_on(spark, damaged):
    """Spark would run batch 2; without what batch 1 left, nobody knows the queries."""
    _, folders, tmp_path = damaged
    before = matches_in(tmp_path / "out")
    (tmp_path / "checkpoint" / "swarm" / "commits" / "000000000002.json").unlink()
    handle = start(spark, folders, tmp_path)
    with pytest.raises(StreamingQueryException, match="Spark runs batch 2, but"):
        handle.await_termination()
    assert matches_in(tmp_path / "out") == before
