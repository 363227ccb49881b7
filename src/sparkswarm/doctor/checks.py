"""The checks of ``sparkswarm doctor``: Java, packages, compiled code, memory, disk, ports, Spark.

Runs on the machine of the driver, at a user's request. A check never raises: what it cannot find
out is a finding too. Nothing is changed, apart from a Spark that is started and stopped.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

Verdict = Literal["fine", "warning", "wrong"]

WANTED_JAVA = 17
WANTED_BYTES = 4 << 30
"""Memory with which a laptop's stream does not need to be tuned."""

WANTED_DISK_BYTES = 1 << 30
JAVA_SECONDS = 30.0
MAP_PORT, SPARK_UI_PORT = 8765, 4040
PACKAGES = ("pyspark", "pyarrow", "numpy", "numba", "shapely")


@dataclass(frozen=True, slots=True)
class Check:
    """What was looked at, what was found, and what to do where that is not fine."""

    name: str
    verdict: Verdict
    found: str
    remedy: str = ""


def machine_checks() -> Iterator[Check]:
    """Yield the checks that need no Spark; each is made when it is asked for."""
    for check in (java, packages, compiled_code, memory, disk, own_address, ports):
        yield _attempt(check)


def _attempt(check: Callable[[], Check]) -> Check:
    try:
        return check()
    except Exception as error:
        name = check.__name__.replace("_", " ")
        return Check(name, "wrong", f"{type(error).__name__}: {error}", "please report this")


def java() -> Check:
    """Look at the Java that Spark would start."""
    home = os.environ.get("JAVA_HOME")
    command = os.path.join(home, "bin", "java") if home else "java"
    where = f"JAVA_HOME={home}" if home else "java on PATH"
    install = f"install Java {WANTED_JAVA} or newer, such as Debian's openjdk-17-jre-headless"
    install += ", or correct JAVA_HOME" if home else ""
    try:
        done = subprocess.run(
            [command, "-version"], capture_output=True, text=True, timeout=JAVA_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        return Check("java", "wrong", f"{where} does not work: {error}", install)
    said = re.search(r'version "(?:1\.)?(\d+)[^"]*"', done.stderr + done.stdout)
    if said is None:
        return Check("java", "warning", f"{where} does not say its version", install)
    is_new = int(said[1]) >= WANTED_JAVA
    return Check(
        "java", "fine" if is_new else "wrong", f"{said[0]}, {where}", "" if is_new else install
    )


def packages() -> Check:
    """Look at the packages, and whether another Spark would be started than the one installed."""
    found, missing = [f"Python {sys.version.split()[0]}"], []
    for name in PACKAGES:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            missing.append(name)
    if missing:
        return Check("packages", "wrong", f"{', '.join(missing)} missing", "pip install sparkswarm")
    import pyspark

    home, own = os.environ.get("SPARK_HOME"), Path(pyspark.__file__).parent
    if home and Path(home).resolve() != own.resolve():
        return Check(
            "packages",
            "warning",
            f"SPARK_HOME={home} is another Spark than the package {own}",
            "unset SPARK_HOME, or see that both have the same version",
        )
    return Check("packages", "fine", ", ".join(found))


def compiled_code() -> Check:
    """See whether numba can keep compiled code: without, every worker compiles for seconds."""
    from sparkswarm.compiled import hash64

    folder = Path(hash64._cache.cache_path)  # type: ignore[attr-defined]  # it is a dispatcher
    folder.mkdir(parents=True, exist_ok=True)
    if os.access(folder, os.W_OK):
        return Check("compiled code", "fine", f"is kept in {folder}")
    return Check(
        "compiled code",
        "warning",
        f"{folder} cannot be written: each Python worker compiles anew",
        "set NUMBA_CACHE_DIR to a folder that can be written, for executors too",
    )


def memory() -> Check:
    """Look at the size of the memory."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    found = f"{total / (1 << 30):.1f} GB, {os.cpu_count()} cores"
    if total >= WANTED_BYTES:
        return Check("memory", "fine", found)
    remedy = "start with few executors and small batches (maxFilesPerTrigger, maxOffsetsPerTrigger)"
    return Check("memory", "warning", found, remedy)


def disk() -> Check:
    """Look at the folder for temporary files, where Spark shuffles."""
    folder = os.environ.get("SPARK_LOCAL_DIRS", tempfile.gettempdir()).split(",")[0]
    free = shutil.disk_usage(folder).free
    found = f"{free / (1 << 30):.1f} GB free in {folder}"
    if free >= WANTED_DISK_BYTES:
        return Check("disk", "fine", found)
    return Check("disk", "warning", found, "free some, or set SPARK_LOCAL_DIRS to another folder")


def own_address() -> Check:
    """See whether the driver can listen where Spark would have it listen."""
    name = os.environ.get("SPARK_LOCAL_IP") or socket.gethostname()
    remedy = "set SPARK_LOCAL_IP=127.0.0.1 for local runs, or correct /etc/hosts"
    try:
        address = socket.getaddrinfo(name, 0, socket.AF_INET)[0][4]
        with socket.socket() as listener:
            listener.bind((address[0], 0))
    except OSError as error:
        return Check("address", "wrong", f"{name}: {error.strerror}", remedy)
    return Check("address", "fine", f"{name} is {address[0]}")


def ports() -> Check:
    """See whether the usual ports are free; others are taken where they are not."""
    taken = [port for port in (SPARK_UI_PORT, MAP_PORT) if not _is_free(port)]
    if not taken:
        return Check("ports", "fine", f"{SPARK_UI_PORT} (Spark's interface) and {MAP_PORT} (map)")
    return Check(
        "ports",
        "warning",
        f"{', '.join(map(str, taken))} in use",
        "Spark takes the next one by itself; for the map: sparkswarm map --port 0",
    )


def _is_free(port: int) -> bool:
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def spark_checks() -> list[Check]:
    """Start Spark, run a small job in Python workers, look at its settings, and stop it."""
    try:
        return _spark_checks()
    except Exception as error:
        reason = str(error).strip().splitlines() or [type(error).__name__]
        return [Check("spark", "wrong", reason[0], "correct the above first; then see Spark's log")]


def _spark_checks() -> list[Check]:
    from pyspark.sql import SparkSession

    from sparkswarm.spark.session import check_session, session

    running = SparkSession.getActiveSession()
    spark = running or session("sparkswarm doctor", "local[2]", {"spark.log.level": "ERROR"})
    try:
        rows = spark.range(1000, numPartitions=2).mapInArrow(lambda batches: batches, "id BIGINT")
        count = rows.count()
        found = f"{spark.version}: {count} rows went through Python workers as Arrow"
        verdict: Verdict = "fine" if count == 1000 else "wrong"
        checks = [Check("spark", verdict, found)]
        for one in check_session(spark):
            said = f"{one.setting} is {one.found}, should be {one.wanted}"
            checks.append(Check("spark settings", "warning", said, one.why))
        if len(checks) == 1:
            checks.append(Check("spark settings", "fine", "as sparkswarm needs them"))
        return checks
    finally:
        if running is None:
            spark.stop()
