"""A cluster of this machine: Spark's standalone master, and workers that look like hosts.

Each worker has an address of its own on the loopback network (127.0.0.2 and up), and a folder of
its own for copies of files. All processes end with :meth:`LocalCluster.close`, or with the
process that started them.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import pyspark

from sparkswarm.errors import SparkswarmError
from sparkswarm.store.copies import CACHE_VARIABLE

PATIENCE = 300.0
"""Seconds that a process of the cluster may take to start."""

DRIVER_HOST = "127.0.0.1"
"""Address of the master and of the driver."""

_DEPLOY = "org.apache.spark.deploy"


_UNTIL_PARENT_ENDS = '("$@" </dev/null; kill -9 0) & cat; kill -9 0'
"""Runs a command in its own session until it ends, or until nobody holds the standard input."""


class ClusterError(SparkswarmError, RuntimeError):
    """A process of the cluster does not start."""


_Answer = TypeVar("_Answer")


def spark_class(name: str, *arguments: str) -> list[str]:
    """Return the command that runs a class of PySpark's jars."""
    return [str(Path(pyspark.__file__).parent / "bin" / "spark-class"), name, *arguments]


class Daemon:
    """A server, in a session of its own, with its output in a file.

    Attributes
    ----------
    log
        The file.
    """

    def __init__(
        self, folder: Path, name: str, command: Sequence[str], environment: Mapping[str, str]
    ) -> None:
        self.log = folder / f"{name}.log"
        # Tests and other benchmarks may run on the same machine: no variable of theirs counts.
        own = {key: value for key, value in os.environ.items() if not key.startswith("SPARK_")}
        with open(self.log, "wb") as file:
            self._process = subprocess.Popen(
                ["sh", "-c", _UNTIL_PARENT_ENDS, "sh", *command],
                stdin=subprocess.PIPE,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={
                    **own,
                    "PYSPARK_PYTHON": sys.executable,
                    "SPARK_DAEMON_MEMORY": "256m",
                    **environment,
                },
            )

    def await_line(self, pattern: str) -> re.Match[str]:
        """Return the first match of a pattern in the output."""
        return self.await_answer(lambda: re.search(pattern, self._said), repr(pattern))

    def await_answer(self, ask: Callable[[], _Answer | None], what: str) -> _Answer:
        """Return the first answer to a question that is asked again and again."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            if (answer := ask()) is not None:
                return answer
            if self.has_ended:
                break
            time.sleep(0.1)
        self.close()
        raise ClusterError(f"no {what} from a server; {self.log}:\n{self._said[-2000:]}")

    @property
    def _said(self) -> str:
        return self.log.read_text(errors="replace")

    @property
    def has_ended(self) -> bool:
        """Whether the process is no longer there."""
        return self._process.poll() is not None

    def close(self) -> None:
        """Kill the process and all that it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()


class LocalCluster:
    """A standalone cluster with some hosts.

    Parameters
    ----------
    folder
        Where logs, caches and what Spark writes go.
    hosts
        Number of workers.
    cores
        Cores of each; they need not exist.
    memory
        What each worker has for its executors, as Spark writes it.
    environment
        Further variables of the workers' environment.

    Attributes
    ----------
    master
        Address of the master, for Spark.
    """

    def __init__(
        self,
        folder: Path,
        hosts: int,
        cores: int = 1,
        memory: str = "1g",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._folder = folder
        self._cores, self._memory = cores, memory
        self._environment = dict(environment or {})
        self.hosts = tuple(f"127.0.0.{2 + i}" for i in range(hosts))
        self._workers: dict[str, Daemon] = {}
        ports = ("--port", "0", "--webui-port", "0")
        command = spark_class(f"{_DEPLOY}.master.Master", "--host", DRIVER_HOST, *ports)
        self._master = Daemon(folder, "master", command, {"SPARK_LOCAL_IP": DRIVER_HOST})
        try:
            self.master = self._master.await_line(r"Starting Spark master at (spark://\S+)")[1]
            self._master.await_line("New state: ALIVE")
            for host in self.hosts:
                self._start(host)
            for worker in self._workers.values():
                worker.await_line("Successfully registered with master")
        except BaseException:
            self.close()
            raise

    def folder_of(self, host: str) -> Path:
        """Return the folder of a host."""
        return self._folder / host

    def start_host(self, host: str) -> None:
        """Start the worker of a host that was killed."""
        self._start(host)
        self._workers[host].await_line("Successfully registered with master")

    def _start(self, host: str) -> None:
        own = self.folder_of(host)
        for name in ("work", "local", "cache"):
            (own / name).mkdir(parents=True, exist_ok=True)
        self._workers[host] = Daemon(
            own,
            "worker",
            spark_class(
                *(f"{_DEPLOY}.worker.Worker", "--host", host, "--port", "0", "--webui-port", "0"),
                *("--cores", str(self._cores), "--memory", self._memory),
                *("--work-dir", str(own / "work"), self.master),
            ),
            {
                "SPARK_LOCAL_IP": host,
                "SPARK_LOCAL_DIRS": str(own / "local"),
                CACHE_VARIABLE: str(own / "cache"),
                **self._environment,
            },
        )

    def await_death(self) -> str:
        """Wait until the worker of some host has ended; return the host."""
        return self._master.await_answer(self._dead_host, "death of a worker")

    def _dead_host(self) -> str | None:
        return next((h for h, worker in self._workers.items() if worker.has_ended), None)

    def kill_host(self, host: str) -> None:
        """Kill a host's worker with its executors and their Python processes."""
        self._workers.pop(host).close()

    def close(self) -> None:
        """End all processes."""
        for host in tuple(self._workers):
            self.kill_host(host)
        self._master.close()
