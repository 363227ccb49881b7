"""On a real cluster, with executors in other processes, nothing is different."""

import json
import os
import re
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pyspark
import pytest

from .driver_main import WORKERS, Orders
from .world import difference, expected, kill_group, last_json, make_world, matches_in

PATIENCE = 300
"""Seconds that anything may take."""

BIN = Path(pyspark.__file__).parent / "bin"
DEPLOY = "org.apache.spark.deploy"


@dataclass(frozen=True)
class Cluster:
    """A master and its workers, processes of this machine."""

    master: str
    folder: Path


class Daemon:
    """A process of Spark's own cluster manager, in the foreground of a session of its own."""

    def __init__(self, folder, name, *command):
        self.log = folder / f"{name}.log"
        self.file = open(self.log, "wb")  # noqa: SIM115 (closed by close)
        self.process = subprocess.Popen(
            [str(BIN / "spark-class"), *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={
                **os.environ,
                "SPARK_LOCAL_IP": "127.0.0.1",
                "PYSPARK_PYTHON": sys.executable,
                "SPARK_WORKER_DIR": str(folder / name),
                "SPARK_DAEMON_MEMORY": "256m",
            },
        )

    def await_line(self, pattern):
        """Read what it says until something matches, and return the match."""
        for line in self.process.stdout:
            self.file.write(line)
            found = re.search(pattern, line.decode(errors="replace"))
            if found:
                return found
        self.close()
        raise RuntimeError(f"no {pattern!r} in what {self.log} says:\n{self.log.read_text()}")

    def keep_reading(self):
        """Let go of its output, which would stop it when the pipe is full."""
        subprocess.Popen(
            ["cat"], stdin=self.process.stdout, stdout=self.file, start_new_session=True
        )
        self.process.stdout.close()

    def close(self):
        """Kill it and all that it started."""
        kill_group(self.process)
        self.file.close()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """Two workers with one core each."""
    folder = tmp_path_factory.mktemp("cluster")
    daemons = []
    try:
        master = Daemon(
            folder, "master", f"{DEPLOY}.master.Master",
            "--host", "127.0.0.1", "--port", "0", "--webui-port", "0",
        )  # fmt: skip
        daemons.append(master)
        address = master.await_line(r"Starting Spark master at (spark://\S+)").group(1)
        master.await_line("New state: ALIVE")
        master.keep_reading()
        for name in ("worker-0", "worker-1"):
            worker = Daemon(
                folder, name, f"{DEPLOY}.worker.Worker",
                "--host", "127.0.0.1", "--port", "0", "--webui-port", "0",
                "--cores", "1", "--memory", "1g", address,
            )  # fmt: skip
            daemons.append(worker)
        for worker in daemons[1:]:
            worker.await_line("Successfully registered with master")
            worker.keep_reading()
        yield Cluster(address, folder)
    finally:
        for daemon in daemons:
            daemon.close()


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
        code = process.wait(PATIENCE)
    finally:
        kill_group(process)
    said = log.read_text()
    assert code == 0, said[-5000:]
    return json.loads(last_json(said))


def test_a_cluster_finds_all_matches_while_plans_and_executors_change(cluster, tmp_path):
    world = make_world(81, batches=5, event_time=True, preload=50)
    said = drive(cluster, tmp_path, world, executors=2, resize=(4, 2))
    assert said["executors"] == [2, 4]
    assert said["versions"] == sorted(set(said["versions"]))
    assert not difference(matches_in(tmp_path / "out"), expected(world).matches)


@pytest.mark.long
def test_a_cluster_loses_python_workers_and_nothing_else(cluster, tmp_path):
    world = make_world(82, batches=4)
    said = drive(cluster, tmp_path, world, executors=4, kill=WORKERS, batch=2)
    assert (tmp_path / "marker").exists()
    assert said["executors"] == [4]
    assert not difference(matches_in(tmp_path / "out"), expected(world).matches)


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
