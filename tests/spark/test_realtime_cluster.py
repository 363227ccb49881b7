"""Real-time Mode on several hosts: routers send points to their owners, and hosts die."""

from __future__ import annotations

from collections import Counter
from contextlib import closing

import pytest

from sparkswarm.bench.local_cluster import LocalCluster

from .realtime_world import World, check_identity, real_time_session

pytestmark = pytest.mark.long


@pytest.fixture
def cluster(tmp_path_factory):
    with closing(LocalCluster(tmp_path_factory.mktemp("cluster"), hosts=2, cores=6)) as cluster:
        yield cluster


@pytest.fixture
def spark(cluster):
    made = real_time_session(cluster.master)
    yield made
    made.stop()


def test_points_are_matched_once_while_partitions_move_between_hosts(spark, tmp_path):
    world = World(tmp_path, partitions=2)
    with world.start(spark, "1 minute", executors=4) as handle:
        before = handle.plan().version

        def plan_changes() -> bool:
            world.add(100, 0.0, 20.0)
            world.add(10)
            return handle.plan().version > before + 1

        world.wait(plan_changes)
        world.add(500)
        world.wait(world.all_are_found)
        assert world.found() == Counter(world.expected())
        world.wait(lambda: handle.status.points == len(world.points))
        assert handle.exception() is None


def test_after_the_end_of_a_host_nothing_is_lost(spark, cluster, tmp_path):
    world = World(tmp_path)
    with world.start(spark) as handle:
        for _ in range(3):
            world.add(200)
            world.wait(world.all_are_found)
        cluster.kill_host(cluster.hosts[1])
        world.add(200)
        world.wait(lambda: not handle.isActive or world.all_are_found())
    with world.start(spark) as handle:
        world.add(200)
        world.wait(world.all_are_found)
        assert handle.exception() is None
    check_identity(world.rows())
    assert len({version for _, _, version in world.rows()}) == 1
