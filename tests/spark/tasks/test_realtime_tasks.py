"""Tasks of Real-time Mode, without Spark: packets in, results of the last commit out."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from sparkswarm.errors import ConfigError, StoreError
from sparkswarm.observe.progress import LATENCY_S
from sparkswarm.protocol.partition import moved
from sparkswarm.spark.columns import QUERY_VERSION, TARGET
from sparkswarm.spark.driver.realtime import RealTimeTasks
from sparkswarm.spark.realtime_sinks import Foreach
from sparkswarm.spark.task_input import packed_input
from sparkswarm.spark.task_output import TaskStage
from sparkswarm.spark.tasks import packets as packets_module
from sparkswarm.spark.tasks import realtime
from sparkswarm.spark.tasks.follower import ContextFollower
from sparkswarm.spark.tasks.packets import packets
from sparkswarm.spark.tasks.realtime import MatchPackets, route_packets
from sparkswarm.spark.tasks.reports import take_reports
from sparkswarm.store.epochs import Commit, Epochs
from sparkswarm.store.manifest import Manifest
from sparkswarm.store.pointer import POINTER, PointerReader, read_pointer
from sparkswarm.store.queries import ID

from ...support.tasks import Tasks, points_table, register

Results = list[tuple[int, list[int], int]]


def packet(*points: tuple[Any, ...]) -> pa.RecordBatch:
    """Return points as the Java class packs them, behind an empty packet."""
    rows = points_table(*points).to_struct_array().combine_chunks()
    packed = pa.ListArray.from_arrays(pa.array([0, 0, len(rows)], pa.int32()), rows)
    return pa.RecordBatch.from_arrays([packed], ["rows"])


class Run:
    """A driver that commits, and tasks that follow it."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.tasks = Tasks(folder, **options)
        self.tasks.input = replace(self.tasks.input, collect_statistics=True)
        self.epochs = Epochs(self.tasks.input.files, 2)
        self.epochs.take_over()
        self.driver = RealTimeTasks(self.tasks.input.files, by_owner=False)

    def commit(self, *operations: dict[str, Any]) -> None:
        """Commit a batch with operations, and point the tasks to it."""
        if operations:
            self.tasks.apply(*operations)
        self.tasks.commit()
        epoch = self.tasks.input.epoch
        commit = Commit(batch=epoch.batch - 1, plan=epoch.plan, manifest=epoch.manifest)
        self.driver.point_to(self.epochs.commit(commit), bool(operations), 0.0)

    def follower(self, task: int = 0) -> ContextFollower:
        """Return what a task gets that starts now; its plan and manifest don't count."""
        given = self.tasks.input
        plan = replace(given.epoch.plan, partitions=())
        epoch = replace(given.epoch, plan=plan, manifest=Manifest(0, {}), stored=None)
        return ContextFollower(packed_input(replace(given, epoch=epoch)), task, 0)


def rows_of(results: Iterator[pa.RecordBatch]) -> Results:
    return [
        (row[ID], sorted(row["query_ids"]), row[QUERY_VERSION])
        for batch in results
        for row in batch.to_pylist()
    ]


def one_by_one(run: Run, monkeypatch: pytest.MonkeyPatch, *steps: Any) -> Results:
    """Return the results of packets, each matched before the next step.

    A step may also be a change to make, or None where nothing comes for a while.
    """

    def in_turn(_: Any) -> Iterator[pa.Table | None]:
        for step in steps:
            if callable(step):
                step()
            else:
                yield None if step is None else points_table(*step)

    monkeypatch.setattr(realtime, "packets", in_turn)
    return rows_of(MatchPackets()(run.follower(), 0, []))


def test_packets_have_all_rows_that_wait_and_no_empty_ones() -> None:
    batches = [packet((1, 1.0, 1.0)), packet(), packet((2, 2.0, 2.0), (3, 3.0, 3.0)), packet()]
    rows = [row for table in packets(batches) if table for row in table.column(ID).to_pylist()]
    assert rows == [1, 2, 3]


def test_a_task_hears_that_no_row_has_come_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packets_module, "IDLE_SECONDS", 0.001)
    heard = threading.Event()

    def batches() -> Iterator[pa.RecordBatch]:
        yield packet((1, 1.0, 1.0))
        assert heard.wait(30)

    for table in packets(batches()):
        if table is None:
            heard.set()
    assert heard.is_set()


def test_a_task_reports_when_nothing_comes_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(tmp_path)
    run.commit(register(1, 0, 0, 8, 8))
    seen: list[int] = []

    def look() -> None:
        outputs = take_reports(run.tasks.input.files, 1, TaskStage.MATCH)
        seen.extend(output.points for output in outputs)

    one_by_one(run, monkeypatch, [(1, 1.0, 1.0)], None, look, None, [(2, 1.0, 1.0)], None, look)
    assert seen == [1, 1]


def test_a_packet_is_matched_before_it_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packets_module, "PACKET_ROWS", 2)
    batches = (packet((i, 1.0, 1.0)) for i in range(9))
    sizes = [table.num_rows for table in packets(batches) if table]
    assert sum(sizes) == 9
    assert max(sizes) <= 2


def test_an_error_of_spark_reaches_the_task() -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield packet((1, 1.0, 1.0))
        raise OSError("the source is gone")

    with pytest.raises(OSError, match="the source is gone"):
        list(packets(batches()))


def test_a_query_counts_from_its_commit_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(tmp_path)
    run.commit(register(1, 0, 0, 8, 8))
    points = [(7, 5.0, 5.0)]
    later = register(2, 4, 4, 6, 6)
    gone = {"op": "unregister", "id": 1}
    found = one_by_one(
        *(run, monkeypatch, points, lambda: run.commit(later), points),
        *(run.commit, points, lambda: run.commit(gone), points),
    )
    assert [ids for _, ids, _ in found] == [[1], [1, 2], [1, 2], [2]]
    # A commit without operations is not another version of the queries.
    assert [version for _, _, version in found] == [0, 1, 1, 3]


def test_nothing_is_lost_or_found_twice_while_partitions_move(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(tmp_path)
    rng = np.random.default_rng(3)
    boxes = {q: (x, y, x + 2, y + 1) for q, (x, y) in enumerate(rng.uniform(0, 6, (40, 2)))}
    run.commit(*(register(q, *map(float, box)) for q, box in boxes.items()))

    def move() -> None:
        ids, plan = run.tasks.plan.reserve(1)
        one = plan.partitions[int(rng.integers(len(plan.partitions)))]
        run.tasks.use_plan(plan.apply([moved(one, one.owners[0], 1 - one.owners[0], ids[0])]))
        run.commit()

    places = {i: (float(x), float(y)) for i, (x, y) in enumerate(rng.uniform(0, 8, (60, 2)))}
    steps: list[Any] = [[(i, *place)] for i, place in places.items()]
    for at in (10, 20, 30, 40):
        steps.insert(at, move)
    found = one_by_one(run, monkeypatch, *steps)
    expected = {
        i: [q for q, (x0, y0, x1, y1) in boxes.items() if x0 <= x <= x1 and y0 <= y <= y1]
        for i, (x, y) in places.items()
    }
    assert {i: ids for i, ids, _ in found} == {i: ids for i, ids in expected.items() if ids}
    assert max(Counter(i for i, _, _ in found).values()) == 1


def test_files_that_are_gone_when_a_task_looks_are_those_of_an_older_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(tmp_path)
    run.commit(register(1, 0, 0, 8, 8))
    follower = run.follower()
    old = read_pointer(run.tasks.input.files)
    for q in range(2, 9):
        run.commit(register(q, 0, 0, 8, 8))
    run.epochs.collect_garbage()
    changed = PointerReader.changed
    answers = iter([old])
    monkeypatch.setattr(
        PointerReader, "changed", lambda reader: next(answers, None) or changed(reader)
    )
    ctx = follower.changed()
    assert ctx is not None
    assert ctx.epoch.batch == 7


def test_without_a_pointer_a_task_says_what_is_missing(tmp_path: Path) -> None:
    run = Run(tmp_path)
    with pytest.raises(StoreError, match="has no pointer to the last commit"):
        run.follower().changed()


def test_a_task_reports_what_it_did(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(tmp_path)
    run.commit(register(1, 0, 0, 8, 8), register(2, 0, 0, 1, 1))
    now = 1_700_000_000.0
    monkeypatch.setattr(realtime.time, "time", lambda: now)
    at = round(now * 1e6)
    points = [(1, 0.5, 0.5, at - 3_000), (2, 5.0, 5.0, at - 30_000), (3, 9.0, 9.0, at)]
    found = one_by_one(run, monkeypatch, points)
    assert [(i, ids) for i, ids, _ in found] == [(1, [1, 2]), (2, [1])]
    (output,) = take_reports(run.tasks.input.files, 5, TaskStage.MATCH)
    assert (output.batch, output.points, output.counts.matches) == (5, 2, 3)
    assert output.rejected == {("point", "outside the bounds"): 1}
    assert sum(output.points_by_partition.values()) == 2
    assert output.collected is not None
    assert set(output.collected.partitions) == set(output.points_by_partition)
    assert output.max_event_time == at - 3_000
    by_class = dict(zip(LATENCY_S, output.latency, strict=True))
    assert {most: n for most, n in by_class.items() if n} == {0.001: 1, 0.005: 1, 0.05: 1}
    assert take_reports(run.tasks.input.files, 6, TaskStage.MATCH) == []


def test_a_report_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.tasks.input.files.write("reports/000000-a-000000000.arrow", b"ARROW1")
    assert take_reports(run.tasks.input.files, 0, TaskStage.MATCH) == []


def test_points_are_routed_to_the_owners_of_the_last_commit(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.commit()
    rows = list(route_packets(run.follower(), 0, [packet((1, 0.5, 0.5), (2, 7.5, 7.5))]))
    routed = {row[ID]: row[TARGET] for batch in rows for row in batch.to_pylist()}
    ctx = run.follower().changed()
    assert ctx is not None
    owners = ctx.index.route(np.array([0.5, 7.5]), np.array([0.5, 7.5])).owner
    assert routed == {1: owners[0], 2: owners[1]}


def test_a_point_outside_goes_to_an_executor_that_rejects_it(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.commit()
    (rows,) = route_packets(run.follower(), 0, [packet((1, 99.0, 0.5))])
    assert rows.column(TARGET).to_pylist() == [0]


class Recorder:
    """A sink in the task."""

    def __init__(self, wanted: bool = True) -> None:
        self.wanted = wanted
        self.calls: list[Any] = []

    def open(self, partition_id: int, epoch_id: int) -> bool:
        self.calls.append(("open", partition_id, epoch_id))
        return self.wanted

    def write(self, results: pa.RecordBatch) -> None:
        self.calls.append(results.column(0).to_pylist())

    def close(self, error: BaseException | None) -> None:
        self.calls.append(("close", error))


@pytest.mark.parametrize("wanted", [True, False])
def test_a_sink_in_the_task_gets_results_between_open_and_close(
    tmp_path: Path, wanted: bool
) -> None:
    run = Run(tmp_path)
    run.commit(register(1, 0, 0, 8, 8))
    sink = Recorder(wanted)
    rows = MatchPackets(sink)(run.follower(3), 8, [packet((4, 1.0, 1.0))])
    assert list(rows) == []
    assert sink.calls == [("open", 3, 8), *([[4]] if wanted else []), ("close", None)]


def test_a_sink_in_the_task_hears_of_an_error(tmp_path: Path) -> None:
    run = Run(tmp_path)
    sink = Recorder()
    with pytest.raises(StoreError):
        list(MatchPackets(sink)(run.follower(), 0, [packet((4, 1.0, 1.0))]))
    assert isinstance(sink.calls[-1][1], StoreError)


class Writer:
    """What Spark's foreach takes."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def open(self, partition_id: int, epoch_id: int) -> bool:
        self.calls.append((partition_id, epoch_id))
        return True

    def process(self, row: Any) -> None:
        self.calls.append(row.asDict())

    def close(self, error: BaseException | None) -> None:
        self.calls.append(error)


def test_foreach_calls_an_object_as_spark_does(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.commit(register(1, 0, 0, 8, 8))
    writer = Writer()
    list(MatchPackets(Foreach(writer))(run.follower(3), 8, [packet((4, 1.0, 1.0))]))
    assert writer.calls == [(3, 8), {ID: 4, "query_ids": [1], QUERY_VERSION: 0}, None]


def test_foreach_calls_a_function_of_a_row(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.commit(register(1, 0, 0, 8, 8))
    found: list[Any] = []
    list(MatchPackets(Foreach(found.append))(run.follower(), 0, [packet((4, 1.0, 1.0))]))
    assert [tuple(row) for row in found] == [(4, [1], 0)]


@pytest.mark.parametrize("f", [None, "f", object()])
def test_foreach_needs_something_to_call(f: object) -> None:
    with pytest.raises(ConfigError, match="needs a function of a row or an object with process"):
        Foreach(f)


def test_the_version_is_known_again_after_a_restart(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.commit(register(1, 0, 0, 8, 8))
    run.commit()
    files, last = run.tasks.input.files, run.epochs.last_commit()
    assert last is not None
    RealTimeTasks(files, by_owner=False).point_to(last, False, 0.0)
    pointer = read_pointer(files)
    assert pointer is not None
    assert (pointer.batch, pointer.version) == (1, 0)
    files.delete([POINTER])
    RealTimeTasks(files, by_owner=False).point_to(last, False, 0.0)
    assert read_pointer(files).version == 1  # type: ignore[union-attr]
