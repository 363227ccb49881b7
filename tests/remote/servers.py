"""Stores for tests, processes of this machine: one that speaks S3, and HDFS."""

from __future__ import annotations

import socket
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Protocol

import pyspark

from sparkswarm.bench.local_cluster import Daemon

BUILD = Path(__file__).parents[2] / "build"
"""Where ``scripts/fetch-jars.sh`` puts jars."""

BUCKET = "swarm"
KEY, SECRET, REGION = "test", "secret", "us-east-1"
PATIENCE = 60


class Store(Protocol):
    """A store for checkpoints; what it has is gone when it ends.

    Attributes
    ----------
    root
        A folder in it, as users spell it.
    environment
        What Python needs to know, in the environment of the driver and of the workers.
    spark
        What Spark needs to know.
    """

    root: str
    environment: dict[str, str]
    spark: dict[str, str]

    def close(self) -> None:
        """End it."""


class S3Server:
    """A server of S3 with one bucket."""

    def __init__(self, folder: Path) -> None:
        jars = _jars("s3")
        (port,) = _free_ports(1)
        endpoint = f"http://127.0.0.1:{port}"
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
        self._server = Daemon(folder, "s3", command, {})
        self._server.await_answer(lambda: _answer_of(f"{endpoint}/moto-api/"), "answer")
        request = urllib.request.Request(f"{endpoint}/{BUCKET}", method="PUT")
        urllib.request.urlopen(request, timeout=PATIENCE).close()
        self.root = f"s3a://{BUCKET}"
        self.environment = {
            "AWS_ENDPOINT_URL": endpoint,
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": REGION,
            "AWS_EC2_METADATA_DISABLED": "true",
        }
        s3a = "spark.hadoop.fs.s3a."
        self.spark = {
            "spark.jars": ",".join(jars),
            f"{s3a}endpoint": endpoint,
            f"{s3a}endpoint.region": REGION,
            f"{s3a}path.style.access": "true",
            f"{s3a}connection.ssl.enabled": "false",
            f"{s3a}access.key": KEY,
            f"{s3a}secret.key": SECRET,
            f"{s3a}aws.credentials.provider": (
                "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider"
            ),
        }

    def close(self) -> None:
        """End it."""
        self._server.close()


class Hdfs:
    """A NameNode and a DataNode."""

    def __init__(self, folder: Path) -> None:
        spark = Path(pyspark.__file__).parent / "jars"
        # Hadoop's servers beside the client that Spark has.
        jars = [*_jars("hdfs"), *map(str, spark.glob("hadoop-client-*.jar"))]
        for name in ("slf4j-api", "jcl-over-slf4j", "log4j", "jsr305"):
            jars += map(str, spark.glob(f"{name}-*.jar"))
        rpc, web, *data = _free_ports(5)
        self.root = f"hdfs://127.0.0.1:{rpc}"
        self.environment: dict[str, str] = {}
        self.spark: dict[str, str] = {}
        _write_conf(
            folder,
            {
                "fs.defaultFS": self.root,
                "dfs.namenode.name.dir": f"file://{folder}/name",
                "dfs.datanode.data.dir": f"file://{folder}/data",
                "hadoop.tmp.dir": f"{folder}/tmp",
                "dfs.replication": 1,
                "dfs.namenode.http-address": f"127.0.0.1:{web}",
                "dfs.datanode.address": f"127.0.0.1:{data[0]}",
                "dfs.datanode.ipc.address": f"127.0.0.1:{data[1]}",
                "dfs.datanode.http.address": f"127.0.0.1:{data[2]}",
                "dfs.datanode.hostname": "127.0.0.1",
                "dfs.client.use.datanode.hostname": "true",
                "dfs.permissions.enabled": "false",
                "dfs.namenode.datanode.registration.ip-hostname-check": "false",
                "dfs.namenode.safemode.extension": 0,
            },
        )
        java = ["java", "-Xmx256m", "-cp", ":".join([str(folder), *jars])]
        node = "org.apache.hadoop.hdfs.server"
        name_node = [*java, f"{node}.namenode.NameNode"]
        subprocess.run([*name_node, "-format", "-nonInteractive"], check=True, timeout=PATIENCE)
        self._servers = [
            Daemon(folder, "namenode", name_node, {}),
            Daemon(folder, "datanode", [*java, f"{node}.datanode.DataNode"], {}),
        ]
        state = f"http://127.0.0.1:{web}/jmx?qry=Hadoop:service=NameNode,name=FSNamesystemState"

        def is_ready() -> bool | None:
            said = _answer_of(state) or ""
            return ('"NumLiveDataNodes" : 1' in said and '"Operational"' in said) or None

        try:
            self._servers[0].await_answer(is_ready, "live DataNode")
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End both."""
        for server in self._servers:
            server.close()


def _jars(name: str) -> list[str]:
    jars = sorted(map(str, (BUILD / name).glob("*.jar")))
    if not jars:
        raise FileNotFoundError(f"no jars in {BUILD / name}; run make test-remote")
    return jars


def _write_conf(folder: Path, properties: dict[str, object]) -> None:
    inside = "".join(
        f"<property><name>{name}</name><value>{value}</value></property>"
        for name, value in properties.items()
    )
    for file in ("core-site.xml", "hdfs-site.xml"):
        (folder / file).write_text(f"<configuration>{inside}</configuration>")


def _answer_of(address: str) -> str | None:
    """Return what a server says; None where it does not answer yet."""
    try:
        with urllib.request.urlopen(address, timeout=PATIENCE) as answer:
            return str(answer.read().decode())
    except OSError:
        return None


def _free_ports(number: int) -> list[int]:
    """Return ports that were free a moment ago."""
    sockets = [socket.socket() for _ in range(number)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()
