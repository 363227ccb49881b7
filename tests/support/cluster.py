"""A standalone cluster of Spark: a master and its workers, processes of this machine."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyspark

from .processes import kill_group

BIN = Path(pyspark.__file__).parent / "bin"
DEPLOY = "org.apache.spark.deploy"


@dataclass(frozen=True)
class Cluster:
    """A master and its workers, processes of this machine."""

    master: str
    folder: Path


class Daemon:
    """A process of Spark's own cluster manager, in the foreground of a session of its own."""

    def __init__(self, folder: Path, name: str, *command: str) -> None:
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
                "SPARK_LOCAL_DIRS": str(folder / name / "local"),
                "SPARK_DAEMON_MEMORY": "256m",
            },
        )

    def await_line(self, pattern: str) -> re.Match[str]:
        """Read what it says until something matches, and return the match."""
        assert self.process.stdout
        for line in self.process.stdout:
            self.file.write(line)
            found = re.search(pattern, line.decode(errors="replace"))
            if found:
                return found
        self.close()
        raise RuntimeError(f"no {pattern!r} in what {self.log} says:\n{self.log.read_text()}")

    def keep_reading(self) -> None:
        """Let go of its output, which would stop it when the pipe is full."""
        subprocess.Popen(
            ["cat"], stdin=self.process.stdout, stdout=self.file, start_new_session=True
        )
        if self.process.stdout:
            self.process.stdout.close()

    def close(self) -> None:
        """Kill it and all that it started."""
        kill_group(self.process)
        self.file.close()


@contextmanager
def standalone_cluster(
    folder: Path, hosts: tuple[str, ...] = ("127.0.0.1", "127.0.0.1")
) -> Iterator[Cluster]:
    """Run a master, and on each of these addresses a worker with one core."""
    daemons: list[Daemon] = []
    try:
        master = Daemon(
            folder, "master", f"{DEPLOY}.master.Master",
            "--host", "127.0.0.1", "--port", "0", "--webui-port", "0",
        )  # fmt: skip
        daemons.append(master)
        address = master.await_line(r"Starting Spark master at (spark://\S+)").group(1)
        master.await_line("New state: ALIVE")
        master.keep_reading()
        for number, host in enumerate(hosts):
            worker = Daemon(
                folder, f"worker-{number}", f"{DEPLOY}.worker.Worker",
                "--host", host, "--port", "0", "--webui-port", "0",
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
