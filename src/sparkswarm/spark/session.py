"""Creates Spark sessions with the settings that sparkswarm needs, and checks existing ones.

Owns the table of those settings. Settings of the user, made in any way that Spark supports, are not
changed. A setting is in the table only if measurements show that it matters, or if a wrong value
breaks sparkswarm. Runs on the driver, once per session.
"""

from __future__ import annotations

import logging
import os
import shutil
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import pyspark
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from sparkswarm.arguments import check_argument
from sparkswarm.errors import ConfigError

logger = logging.getLogger(__name__)

OLDEST_SPARK = (4, 3)
"""The oldest version of PySpark with which the tests pass."""


@dataclass(frozen=True)
class SparkSetting:
    """A setting of Spark that sparkswarm needs."""

    name: str
    wanted: str
    default: str
    """Spark's own default."""
    why: str
    """Why it matters, in one sentence."""
    runtime: bool = False
    """Whether it can be changed on a running session; others are static."""
    variable: str | None = None
    """Environment variable that also sets it, if there is one."""
    on_cluster: bool = True
    """Whether it is needed on a cluster."""
    on_one_machine: bool = True
    """Whether it is needed in local mode."""


PYTHON = SparkSetting(
    "PYSPARK_PYTHON",
    wanted="the running interpreter",
    default="python3",
    why="Otherwise Spark starts its Python workers with the first python3 on PATH, which may lack "
    "the packages.",
)
"""An environment variable; `spark.pyspark.python` takes precedence over it."""

PROPERTIES = (
    SparkSetting(
        "spark.python.unix.domain.socket.enabled",
        wanted="true",
        default="false",
        why="Otherwise Spark and its Python workers communicate over TCP, which adds tens of "
        "milliseconds to every small task.",
        variable="PYSPARK_UDS_MODE",
    ),
    SparkSetting(
        "spark.sql.execution.arrow.maxBytesPerBatch",
        wanted="2147483647",
        default="64MB",
        why="With a limit, Spark computes the size of the batch for Python after every row, which "
        "takes a third of its time. This value is no limit.",
        runtime=True,
    ),
    SparkSetting(
        "spark.buffer.size",
        wanted="1048576",
        default="65536",
        why="Size of the buffer between Spark and Python; the default makes a batch about 5% "
        "slower.",
    ),
    SparkSetting(
        "spark.python.worker.reuse",
        wanted="true",
        default="true",
        why="Otherwise every task starts a Python worker, which has to import packages and build "
        "its index.",
    ),
    SparkSetting(
        "spark.shuffle.reduceLocality.enabled",
        wanted="false",
        default="true",
        why="Otherwise Spark runs a task where most of its points were read, and not where the "
        "queries of its executor are.",
        on_one_machine=False,
    ),
    SparkSetting(
        "spark.shuffle.io.retryWait",
        wanted="1s",
        default="5s",
        why="Tasks try three more times to fetch from a lost executor: 15 seconds by default.",
        on_one_machine=False,
    ),
    SparkSetting(
        "spark.sql.streaming.checkpointFileManagerClass",
        wanted="org.apache.spark.sql.execution.streaming.checkpointing"
        ".FileSystemBasedCheckpointFileManager",
        default="",
        why="Otherwise Spark starts processes (`chmod`, `readlink`) for every file of a stream's "
        "log on a local disk, about 85 ms per batch. Both managers rename a finished file, which "
        "is atomic on a local disk; for other filesystems Spark's default is safer.",
        runtime=True,
        on_cluster=False,
    ),
)

SPARK_SETTINGS = (PYTHON, *PROPERTIES)
"""All settings of Spark that sparkswarm needs."""


HARDENED: Mapping[str, str] = {
    # Only processes that know the secret of the application connect; what they say is encrypted.
    "spark.authenticate": "true",
    "spark.network.crypto.enabled": "true",
    "spark.network.crypto.authEngineVersion": "2",
    "spark.network.crypto.cipher": "AES/GCM/NoPadding",
    # Shuffle and spill files on local disks.
    "spark.io.encryption.enabled": "true",
    "spark.io.encryption.keySizeBits": "256",
    # The user interface has no passwords. Who enables it gives a filter, and then only the user who
    # started the application sees it.
    "spark.ui.enabled": "false",
    "spark.ui.killEnabled": "false",
    "spark.acls.enable": "true",
}
"""Settings of Spark for a network with others in it: see ``hardened`` of :func:`session`."""


REAL_TIME: Mapping[str, str] = {
    # Otherwise a task takes no results from Python while it waits for a point.
    "spark.python.udf.pipelined.enabled": "true",
    # Spark's list of what is known to work in Real-time Mode has no operator of Python.
    "spark.sql.streaming.realTimeMode.allowlistCheck": "false",
    # What a record waits for others on its way to the task of its executor; by default 50 ms.
    "spark.shuffle.streaming.networkBufferMaxWaitTimeMs": "2",
}
"""Settings of Spark for Real-time Mode: see ``real_time`` of :func:`session`."""


@dataclass(frozen=True)
class Finding:
    """A setting of a session with another value than sparkswarm needs."""

    setting: str
    found: str
    wanted: str
    why: str
    changeable: bool
    """Whether it can be changed on the running session."""

    def __str__(self) -> str:
        remedy = "can be changed now" if self.changeable else "needs a new session"
        return f"{self.setting} is {self.found}, should be {self.wanted} ({remedy}). {self.why}"


def session(
    app_name: str = "sparkswarm",
    master: str | None = None,
    config: Mapping[str, str | int | float | bool] | None = None,
    hardened: bool = False,
    real_time: bool = False,
) -> SparkSession:
    """Return the running Spark session, or a new one with the settings that sparkswarm needs.

    A new session gets every setting of the table that the user has not set in `config`, in
    ``spark-defaults.conf``, on the command line of ``spark-submit`` or in the environment.
    A running session is returned with `config` applied as far as Spark allows; `app_name` and
    `master` then have no effect. In both cases the session is checked as by
    :func:`check_session`, except for the settings in `config`.

    Parameters
    ----------
    app_name
        Name of the application, unless `config` has ``spark.app.name``.
    master
        Where Spark runs, unless `config` has ``spark.master``; without either, Spark's own
        default, which is ``local[*]``.
    config
        Settings of Spark.
    hardened
        Whether processes of Spark authenticate each other, encrypt what they send and what they
        write to local disks, and serve no user interface. A standalone cluster needs its
        ``spark.authenticate.secret`` for that; otherwise Spark makes one. What `config` sets
        otherwise stays so.
    real_time
        Whether a new session can match points in Spark's Real-time Mode. That switches off Spark's
        check of which operators are known to work in it.

    Raises
    ------
    ConfigError
        If this would be a Spark Connect session; sparkswarm needs a classic one. If a hardened
        session is wanted and the one that runs, or ``spark-defaults.conf``, says otherwise.
    """
    check_argument("master", master, str, "a text, such as 'local[2]'")
    check_argument("config", config, Mapping, "a dictionary of Spark's settings")
    options = {name: _text(value) for name, value in (config or {}).items()}
    remote = os.environ.get("SPARK_REMOTE") or options.get("spark.remote")
    if remote or (master or "").startswith("sc://"):
        raise _not_classic(str(remote or master))
    if SparkContext._active_spark_context is None:
        if master is not None:
            options.setdefault("spark.master", master)
        options.setdefault("spark.app.name", app_name)
        wanted = {**(HARDENED if hardened else {}), **(REAL_TIME if real_time else {})}
        conf = _completed({**wanted, **options})
        spark = SparkSession.builder.config(conf=conf).getOrCreate()
    else:
        spark = SparkSession.builder.config(map=dict(options)).getOrCreate()
    if hardened:
        _check_hardened(spark, options)
    findings = _findings(spark)
    _warn_once(spark, [f for f in findings if options.get(_property_of(f.setting)) != f.found])
    return spark


def _check_hardened(spark: SparkSession, options: Mapping[str, str]) -> None:
    conf = spark.sparkContext.getConf()
    weak = [
        f"{name} is {conf.get(name)}, should be {wanted}"
        for name, wanted in HARDENED.items()
        if name not in options and conf.get(name) != wanted
    ]
    if weak:
        raise ConfigError(
            f"the running Spark session is not hardened: {'; '.join(weak)}. Stop it first, so that "
            "session(hardened=True) makes a new one"
        )


def check_session(spark: SparkSession) -> list[Finding]:
    """Return the settings of a session that sparkswarm needs otherwise; ideally none.

    New findings are logged as one warning; a finding is logged once per session.

    Raises
    ------
    ConfigError
        If `spark` is a Spark Connect session; sparkswarm needs a classic one. If PySpark is too
        old.
    """
    findings = _findings(spark)
    _warn_once(spark, findings)
    return findings


def is_local(spark: SparkSession) -> bool:
    """Return whether Spark runs on this machine alone."""
    return str(spark.sparkContext.master).startswith("local")


def executor_hosts(spark: SparkSession) -> dict[str, int]:
    """Return the number of Spark's executors on each host; in local mode, on the driver's."""
    context = spark.sparkContext
    addresses = context._jsc.sc().getExecutorMemoryStatus().keySet().mkString(",").split(",")
    hosts = Counter(address.rpartition(":")[0] for address in addresses)
    if hosts.total() > 1:
        # The driver is listed with the executors, but runs no tasks.
        driver = context.getConf().get("spark.driver.host")
        hosts -= Counter([driver] if driver in hosts else [])
    return dict(hosts)


@contextmanager
def temporary_settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Change settings of a session temporarily."""
    before = {name: str(spark.conf.get(name)) for name in settings}
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, old in before.items():
            spark.conf.set(name, old)


def spark_settings_table() -> str:
    """Return the settings as a Markdown table, for docs/reference/settings.md."""
    lines = ["| setting | wanted | Spark's default | kind | why |", "|---|---|---|---|---|"]
    for setting in SPARK_SETTINGS:
        wanted = setting.wanted if setting is PYTHON else f"`{setting.wanted}`"
        default = f"`{setting.default}`" if setting.default else "by filesystem"
        kind = "runtime" if setting.runtime else "static"
        lines.append(f"| `{setting.name}` | {wanted} | {default} | {kind} | {setting.why} |")
    return "\n".join(lines) + "\n"


def _text(value: str | int | float | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _property_of(setting: str) -> str:
    """Return the property of Spark with which a user would set this."""
    return "spark.pyspark.python" if setting == PYTHON.name else setting


def _completed(options: Mapping[str, str]) -> SparkConf:
    """Start the JVM with the user's options; return them with the settings they lack."""
    python = options.get("spark.pyspark.python") or os.environ.get(PYTHON.name) or sys.executable
    # The JVM inherits it and starts the workers of Python data sources with it.
    os.environ[PYTHON.name] = python
    # spark-defaults.conf and the arguments of spark-submit are known only after the JVM has
    # started, and settings made before take precedence: so first the JVM, then the settings.
    SparkContext._ensure_initialized(conf=_with(SparkConf(loadDefaults=False), options))
    conf = _with(SparkConf(), options)
    # Python scripts that were not started by spark-submit ignore this property.
    os.environ[PYTHON.name] = conf.get("spark.pyspark.python") or python
    for setting in _properties(conf.get("spark.master", "local[*]")):
        if setting.variable is None or setting.variable not in os.environ:
            conf.setIfMissing(setting.name, setting.wanted)
    return conf


def _properties(master: str | None) -> list[SparkSetting]:
    """Return the properties that are needed with this master."""
    is_local = str(master).startswith("local")
    return [one for one in PROPERTIES if (one.on_one_machine if is_local else one.on_cluster)]


def _with(conf: SparkConf, options: Mapping[str, str]) -> SparkConf:
    return conf.setAll(list(options.items()))


def _findings(spark: SparkSession) -> list[Finding]:
    if not isinstance(getattr(spark, "_sc", None), SparkContext):
        raise _not_classic(type(spark).__module__)
    check_version(pyspark.__version__)
    context = spark.sparkContext
    conf = context.getConf()
    findings = []
    # The location of Python on the machines of a cluster is not known here.
    if is_local(spark) and not _is_running_interpreter(context.pythonExec):
        findings.append(
            Finding(PYTHON.name, context.pythonExec, sys.executable, PYTHON.why, PYTHON.runtime)
        )
    for setting in _properties(context.master):
        default = os.environ.get(setting.variable or "", setting.default)
        # A session may report a static setting that was made too late; its context does not.
        found = (spark.conf if setting.runtime else conf).get(setting.name, default) or default
        if found.lower() != setting.wanted.lower():
            findings.append(
                Finding(setting.name, found, setting.wanted, setting.why, setting.runtime)
            )
    return findings


def check_version(version: str) -> None:
    """Refuse a version of PySpark that lacks what sparkswarm needs; ConfigError."""
    number = tuple(int(part) for part in version.split(".")[:2])
    if number < OLDEST_SPARK:
        raise ConfigError(
            f"this is PySpark {version}, but sparkswarm needs "
            f"{'.'.join(map(str, OLDEST_SPARK))} or newer: up to 4.1 there is no "
            "pyspark.sql.streaming.datasource, and with 4.2 Real-time Mode fails"
        )


def _is_running_interpreter(command: str) -> bool:
    """Return whether a command starts this interpreter in this virtual environment."""
    found = shutil.which(command)
    if found is None:
        return False
    # Virtual environments may link to the same file, so the folder must be the same as well.
    same_folder = os.path.samefile(os.path.dirname(found), os.path.dirname(sys.executable))
    return same_folder and os.path.samefile(found, sys.executable)


_warned: set[tuple[str, Finding]] = set()


def _warn_once(spark: SparkSession, findings: list[Finding]) -> None:
    application = spark.sparkContext.applicationId
    new = [finding for finding in findings if (application, finding) not in _warned]
    if new:
        _warned.update((application, finding) for finding in new)
        logger.warning(
            "This Spark session works, but some settings should be changed for sparkswarm:\n%s\n"
            "sparkswarm.session() creates a session with the right settings.",
            "\n".join(f"  - {finding}" for finding in new),
        )


def _not_classic(what: str) -> ConfigError:
    return ConfigError(
        f"{what} is Spark Connect, but sparkswarm needs a classic Spark session: unset "
        "SPARK_REMOTE, give a master such as local[2] or spark://host:7077, and run the driver "
        "there"
    )
