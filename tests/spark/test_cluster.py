"""On a real cluster, with executors in other processes, nothing is different."""

import json
import os
import subprocess
import sys
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from sparkswarm.bench.local_cluster import LocalCluster

from ..support.processes import kill_group
from .driver_main import HOST, WORKERS, Orders
from .world import difference, expected, last_json, make_world, matches_in

PATIENCE = 300
"""Seconds that anything may take."""

TAKEN_OVER = 15
"""Seconds after which other hosts have done the work of one that died."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """Two hosts with one core each."""
    with closing(LocalCluster(tmp_path_factory.mktemp("cluster"), hosts=2)) as cluster:
        yield cluster


def drive(cluster, tmp_path, world, **more):
    """Run a world on the cluster; return what the driver says at the end."""
    folders = world.write(tmp_path / "world")
    orders = Orders(
        str(folders.folder),
        folders.files,
        str(tmp_path / "checkpoint"),
        str(tmp_path / "out"),
        world.event_time,
        master=cluster.master,
        marker=str(tmp_path / "marker"),
        **more,
    )
    log = tmp_path / "driver.log"
    process = orders.start(log, SPARK_LOCAL_IP="127.0.0.1")
    try:
        if more.get("kill") == HOST:
            cluster.start_host(cluster.await_death())
        code = process.wait(PATIENCE)
    finally:
        kill_group(process)
    said = log.read_text()
    assert code == 0, said[-5000:]
    return json.loads(last_json(said))


def test_a_cluster_finds_all_matches_while_plans_and_executors_change(cluster, tmp_path):
    world = make_world(81, batches=5, event_time=True, preload=50)
    said = drive(cluster, tmp_path, world, executors=2, resize=(4, 2), copy_files=True)
    assert said["executors"] == [2, 4]
    # Hosts copy what they need, and no more than everything that there is now.
    stored = sum(file.stat().st_size for file in (tmp_path / "checkpoint/swarm").rglob("*"))
    assert 0 < sum(said["fetched"]) < 2 * stored
    assert said["on_its_host"] == [1.0] * 5
    assert said["versions"] == sorted(set(said["versions"]))
    assert not difference(matches_in(tmp_path / "out"), expected(world).matches)


def test_each_host_fetches_ahead_what_is_meant_for_it(cluster, tmp_path):
    command = [sys.executable, str(Path(__file__).parent / "warming_main.py")]
    said = subprocess.run(
        [*command, cluster.master, str(tmp_path)],
        check=True, capture_output=True, text=True, timeout=PATIENCE,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
    ).stdout  # fmt: skip
    hosts = [cluster.folder_of(host) for host in json.loads(last_json(said))["hosts"]]
    kept = [sorted(path.name for path in host.rglob("segments/ahead-*")) for host in hosts]
    assert kept == [["ahead-0", "ahead-1"], ["ahead-2"]]


@pytest.mark.long
def test_a_cluster_loses_python_workers_and_nothing_else(cluster, tmp_path):
    world = make_world(82, batches=4)
    said = drive(cluster, tmp_path, world, executors=4, kill=WORKERS, batch=2)
    assert (tmp_path / "marker").exists()
    assert said["executors"] == [4]
    assert not difference(matches_in(tmp_path / "out"), expected(world).matches)


@pytest.mark.long
@pytest.mark.parametrize("shuffled", [0, 8])
def test_a_host_dies_in_a_batch_and_returns_and_nothing_is_lost(cluster, tmp_path, shuffled):
    """Points that were shuffled come in another order when their task runs again."""
    world = make_world(84, batches=12)
    dies = {"kill": HOST, "batch": 2, "copy_files": True}
    said = drive(cluster, tmp_path, world, executors=4, shuffled=shuffled, **dies)
    assert (tmp_path / "marker").exists()
    assert not difference(matches_in(tmp_path / "out"), expected(world).matches)
    # With two hosts before, with one after, and with two when it has returned.
    hosts = [len(names) for names in said["hosts"]]
    assert hosts[1] == hosts[-1] == 2
    assert 1 in hosts
    # Others took the tasks over; Spark waits 15 seconds for shuffle files of a host that is gone.
    killed = (tmp_path / "marker").stat().st_mtime
    took = min(ended for ended in said["ended"] if ended > killed) - killed
    assert took < TAKEN_OVER * (3 if shuffled else 1)
    assert said["on_its_host"][:2] + said["on_its_host"][-2:] == [1.0] * 4


ODD = """
import numpy as np
import pandas as pd
from sparkswarm import Application


class Odd(Application):
    def build(self, queries):
        return pd.Series(queries.column("id").to_numpy())

    def match(self, built, points, pairs):
        points = pd.Series(points.column("id").to_numpy())
        return ((points[pairs.points].to_numpy() + built[pairs.queries].to_numpy()) % 2 == 1)


def application():
    return Odd()
"""


@pytest.mark.long
def test_a_module_of_the_users_with_a_library_decides_on_a_cluster(cluster, tmp_path):
    module = tmp_path / "odd_pairs.py"
    module.write_text(ODD)
    world = make_world(83, batches=3, preload=50)
    drive(cluster, tmp_path, world, executors=3, application=str(module))
    matches = expected(world).matches
    odd = {key: n for key, n in matches.items() if (key[1] + key[2]) % 2}
    assert 0 < len(odd) < len(matches)
    assert not difference(matches_in(tmp_path / "out"), Counter(odd))
