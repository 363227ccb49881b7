"""Hosts are told what a plan brings them and tasks have used; a batch never knows."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

from sparkswarm.geometry import Bounds, Grid
from sparkswarm.protocol.hosts import ONE_HOST, Hosts
from sparkswarm.protocol.partition import reshared
from sparkswarm.protocol.plan import Plan
from sparkswarm.spark.driver.warming import Warmer
from sparkswarm.spark.task_output import TaskOutput, TaskStage
from sparkswarm.store.files import FileRef, Files
from sparkswarm.store.manifest import BaseGroup, Manifest, SegmentRef


@dataclass
class Told:
    """Anchors on two hosts, and a frame that notes what its tasks are told."""

    hosts: tuple[str, ...] = ("a", "b")
    jobs: list[tuple[Any, ...]] = field(default_factory=list)
    wait: threading.Event = field(default_factory=threading.Event)
    error: Exception | None = None

    def of_executors(self, numbers: list[int]) -> Told:
        return self

    def mapInArrow(self, task: Any, schema: str) -> Told:  # noqa: N802
        self.jobs.append(task.args)
        return self

    def collect(self) -> None:
        self.wait.wait(60)
        if self.error:
            raise self.error


def copied(tmp_path) -> Files:
    return Files(str(tmp_path / "store"), str(tmp_path / "cache"), copied=True)


ONE, TWO = FileRef("one", 10, 1, 1), FileRef("two", 3, 1, 1)


def used(*refs: FileRef) -> list[TaskOutput]:
    return [TaskOutput(batch=4, stage=TaskStage.EXECUTE, task=0, used=refs)]


def test_a_host_is_told_what_tasks_have_used_of_what_a_plan_brings_it(tmp_path):
    warmer, anchors, files = Warmer(copied(tmp_path)), Told(), copied(tmp_path)
    anchors.wait.set()
    plan = Plan.initial(Grid(Bounds(0.0, 0.0, 4.0, 4.0), 4, 4), 2)
    left, right = plan.partitions
    segments = {
        left.id: (SegmentRef(left.cells, ONE), SegmentRef(left.cells, TWO)),
        right.id: (SegmentRef(right.cells),),
    }
    bases = (BaseGroup(FileRef("directory", 13, 1, 1), (ONE, TWO)),)
    manifest = Manifest(0, segments, bases)
    assert warmer.follow(plan, manifest, None) == ONE_HOST
    assert warmer.follow(plan, manifest, anchors) == Hosts((0, 1), (13, 0))
    warmer.end_batch(4, used(ONE))
    ids, reserved = plan.reserve(1)
    after = reserved.apply([reshared(left, {1: 64}, ids[0])])
    there = manifest.for_plan(plan.partitions, after.partitions)
    assert warmer.follow(after, there, anchors) == Hosts((0, 1), (0, 13))
    assert warmer.follow(after, there, anchors) == Hosts((0, 1), (0, 13))
    assert anchors.jobs == [(files, 4, {1: (ONE,)})]


def test_one_job_at_a_time_tells_hosts_and_its_failure_is_none_of_the_batch(tmp_path):
    warmer, anchors = Warmer(copied(tmp_path)), Told(error=RuntimeError("no executors"))
    job = warmer.fetch({"a": [ONE]}, anchors)
    assert warmer.fetch({"b": [TWO]}, anchors) is None
    anchors.wait.set()
    assert job.result() is None
    assert warmer.fetch({"b": [TWO]}, anchors).result() is None
    assert [told for _, _, told in anchors.jobs] == [{0: (ONE,)}, {1: (TWO,)}]


def test_hosts_that_map_files_where_they_are_written_are_told_nothing(tmp_path):
    assert Warmer(Files(str(tmp_path))).fetch({"a": [ONE]}, Told()) is None
    assert Warmer(copied(tmp_path)).fetch({}, Told()) is None
