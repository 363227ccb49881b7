"""An object store for tests, a process of this machine that speaks S3."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Self

JARS = Path(__file__).parents[2] / "build" / "s3"
"""Where ``scripts/fetch-jars.sh`` puts Spark's side."""

BUCKET = "swarm"
KEY, SECRET, REGION = "test", "secret", "us-east-1"
PATIENCE = 60


class S3Server:
    """A server of S3 with one bucket; what it has is gone when it ends.

    Attributes
    ----------
    endpoint
        Its address.
    """

    def __init__(self, log: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.endpoint = f"http://127.0.0.1:{port}"
        with open(log, "wb") as file:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
            )
        try:
            self._await()
            request = urllib.request.Request(f"{self.endpoint}/{BUCKET}", method="PUT")
            urllib.request.urlopen(request, timeout=PATIENCE).close()
        except BaseException:
            self.close()
            raise

    def _await(self) -> None:
        end = time.monotonic() + PATIENCE
        while True:
            try:
                urllib.request.urlopen(f"{self.endpoint}/moto-api/", timeout=PATIENCE).close()
                return
            except OSError:
                if self._process.poll() is not None or time.monotonic() > end:
                    raise
                time.sleep(0.1)

    @property
    def environment(self) -> dict[str, str]:
        """What Python needs to know, in the environment of the driver and of the workers."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": REGION,
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    @property
    def spark(self) -> dict[str, str]:
        """What Spark needs to know."""
        jars = sorted(map(str, JARS.glob("*.jar")))
        if not jars:
            raise FileNotFoundError(f"no jars in {JARS}; run make test-remote")
        s3a = "spark.hadoop.fs.s3a."
        return {
            "spark.jars": ",".join(jars),
            f"{s3a}endpoint": self.endpoint,
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
        self._process.terminate()
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
