"""A Kafka broker for tests: one node, on loopback, in a folder of its own."""

from __future__ import annotations

import base64
import os
import signal
import socket
import subprocess
import time
import uuid
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

BUILD = Path(__file__).parents[2] / "build"
JARS, CONNECTOR = BUILD / "kafka", BUILD / "kafka-connector"

PATIENCE = 180.0
"""Seconds that a broker may take to start."""

PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
inter.broker.listener.name=PLAINTEXT
log.dirs={folder}/logs
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
auto.create.topics.enable=false
"""


class Broker:
    """A broker that can be killed and started again on the same folder."""

    def __init__(self, folder: Path) -> None:
        for jars in (JARS, CONNECTOR):
            if not (jars / ".complete").exists():
                raise RuntimeError(f"{jars} has no jars; run the tests with make test-kafka")
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        port, controller = _free_ports(2)
        self.servers = f"127.0.0.1:{port}"
        properties = PROPERTIES.format(port=port, controller=controller, folder=folder)
        (folder / "server.properties").write_text(properties)
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        self._run("kafka.tools.StorageTool", "format", "-t", cluster, "-c").wait(PATIENCE)

    def start(self) -> None:
        """Start it, and wait until it answers."""
        self._process = self._run("kafka.Kafka")
        client = AdminClient({"bootstrap.servers": self.servers, "log_level": 0})
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                if client.list_topics(timeout=5.0).brokers:
                    return
            except KafkaException:
                if time.monotonic() > deadline or self._process.poll() is not None:
                    log = (self._folder / "log").read_text()[-3000:]
                    raise RuntimeError(f"the broker does not start: {log}") from None

    @property
    def pid(self) -> int:
        """The process to kill."""
        assert self._process is not None
        return self._process.pid

    def wait_for_its_end(self) -> None:
        """Wait until somebody has killed it."""
        assert self._process is not None
        self._process.wait(PATIENCE)

    def stop(self) -> None:
        """End it."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(60)
            except subprocess.TimeoutExpired:
                self._process.kill()

    def create_topics(self, *names: str, partitions: int = 2) -> None:
        """Create topics."""
        client = AdminClient({"bootstrap.servers": self.servers})
        made = client.create_topics([NewTopic(name, partitions) for name in names])
        for future in made.values():
            future.result(60)

    def _run(self, main: str, *arguments: str) -> subprocess.Popen[bytes]:
        options = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", f"{JARS}/*"]
        properties = str(self._folder / "server.properties")
        with open(self._folder / "log", "ab") as log:
            return subprocess.Popen(
                ["java", *options, main, *arguments, properties],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, "KAFKA_OPTS": ""},
            )


def _free_ports(number: int) -> list[int]:
    sockets = [socket.socket() for _ in range(number)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports
