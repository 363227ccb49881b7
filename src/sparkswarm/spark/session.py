"""A Spark session with the settings that matter to SWARM, and a check of anybody else's.

Owns the table of those settings. What the user has set, in whatever way Spark knows, is left as
it is; a setting is in the table only if it was measured to matter or a wrong value breaks us.
"""

from __future__ import annotations

import logging
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from sparkswarm.errors import ConfigError

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class SparkSetting:
    """One setting of Spark that matters to us."""

    name: str
    wanted: str
    default: str
    """What Spark does when nobody sets it."""
    why: str
    """Why it matters, in one sentence."""
    runtime: bool = False
    """Whether it can be changed on a running session; Spark calls the others static."""
    variable: str | None = None
    """An environment variable that sets it too, if Spark has one."""
    on_cluster: bool = True
    """Whether it matters on a cluster too, not only where all of Spark is one process."""


PYTHON = SparkSetting(
    "PYSPARK_PYTHON",
    wanted="the running interpreter",
    default="python3",
    why="Spark starts its Python workers with the first python3 on PATH otherwise, which may lack "
    "our packages.",
)
"""An environment variable; `spark.pyspark.python`, where it is set, goes before it."""

PROPERTIES = (
    SparkSetting(
        "spark.python.unix.domain.socket.enabled",
        wanted="true",
        default="false",
        why="Spark and its Python workers talk over TCP otherwise, which costs every small task "
        "tens of milliseconds.",
        variable="PYSPARK_UDS_MODE",
    ),
    SparkSetting(
        "spark.sql.execution.arrow.maxBytesPerBatch",
        wanted="2147483647",
        default="64MB",
        why="Below this value, which means no limit, Spark adds up the size of what it sends to "
        "Python anew after every row, which takes a third of its time.",
        runtime=True,
    ),
    SparkSetting(
        "spark.buffer.size",
        wanted="1048576",
        default="65536",
        why="Rows travel between Spark and Python in pieces of this size; small pieces cost a "
        "batch some 5%.",
    ),
    SparkSetting(
        "spark.python.worker.reuse",
        wanted="true",
        default="true",
        why="Every task starts a Python worker of its own otherwise, which must import our "
        "packages and build its index anew.",
    ),
    SparkSetting(
        "spark.sql.streaming.checkpointFileManagerClass",
        wanted="org.apache.spark.sql.execution.streaming.checkpointing"
        ".FileSystemBasedCheckpointFileManager",
        default="",
        why="On a local disk Spark starts processes (`chmod`, `readlink`) for every file of a "
        "stream's log otherwise, some 85 ms a batch. Both ways rename a finished file, which a "
        "local disk does at once; on a cluster's filesystem Spark's default is the safer one.",
        runtime=True,
        on_cluster=False,
    ),
)

SPARK_SETTINGS = (PYTHON, *PROPERTIES)
"""The one table of Spark's settings that matter to us."""


@dataclass(frozen=True)
class Finding:
    """A setting of a session that is not as SWARM wants it."""

    setting: str
    found: str
    wanted: str
    why: str
    changeable: bool
    """Whether it can still be changed on the running session."""

    def __str__(self) -> str:
        remedy = "can be changed at once" if self.changeable else "needs a new session"
        return f"{self.setting} is {self.found}, wanted is {self.wanted} ({remedy}). {self.why}"


def session(
    app_name: str = "sparkswarm",
    master: str | None = None,
    config: Mapping[str, str | int | float | bool] | None = None,
) -> SparkSession:
    """Return the running Spark session, or a new one that has what SWARM needs.

    A new session gets every setting of the table that the user has not set: in `config`, in
    ``spark-defaults.conf``, on the command line of ``spark-submit`` or in the environment.
    A running session is returned as it is, with `config` applied as far as Spark allows, and
    `app_name` and `master` without effect. Either way the session is checked as
    :func:`check_session` does, except for what `config` asked for.

    Parameters
    ----------
    app_name
        The application's name, unless `config` has ``spark.app.name``.
    master
        Where Spark runs, unless `config` has ``spark.master``; if neither says, Spark's own
        default, which is ``local[*]``.
    config
        The user's settings, by Spark's names.

    Raises
    ------
    ConfigError
        If this would be a Spark Connect session; SWARM needs a classic one.
    """
    options = {name: _text(value) for name, value in (config or {}).items()}
    remote = os.environ.get("SPARK_REMOTE") or options.get("spark.remote")
    if remote or (master or "").startswith("sc://"):
        raise _not_classic(str(remote or master))
    if SparkContext._active_spark_context is None:
        if master is not None:
            options.setdefault("spark.master", master)
        options.setdefault("spark.app.name", app_name)
        conf = _completed(options)
        spark = SparkSession.builder.config(conf=conf).getOrCreate()
    else:
        spark = SparkSession.builder.config(map=dict(options)).getOrCreate()
    findings = _findings(spark)
    _say(spark, [f for f in findings if options.get(_property_of(f.setting)) != f.found])
    return spark


def check_session(spark: SparkSession) -> list[Finding]:
    """Return the settings of a session that SWARM wants otherwise; an empty list is good.

    The findings are logged as one warning. What was said about a session once is not said again.

    Raises
    ------
    ConfigError
        If `spark` is a Spark Connect session; SWARM needs a classic one.
    """
    findings = _findings(spark)
    _say(spark, findings)
    return findings


@contextmanager
def settings_for_a_while(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """PlanChange settings of a session for a while."""
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
    """Start the JVM with the user's options and return them with ours where there were none."""
    python = options.get("spark.pyspark.python") or os.environ.get(PYTHON.name) or sys.executable
    # The JVM inherits it, and starts the workers of Python data sources with it.
    os.environ[PYTHON.name] = python
    # spark-defaults.conf and spark-submit's arguments are known only once the JVM runs, and what
    # is set before counts for more than they do: so first the JVM, then our settings.
    SparkContext._ensure_initialized(conf=_with(SparkConf(loadDefaults=False), options))
    conf = _with(SparkConf(), options)
    # Python scripts that spark-submit did not start would ignore this property.
    os.environ[PYTHON.name] = conf.get("spark.pyspark.python") or python
    for setting in _properties(conf.get("spark.master", "local[*]")):
        if setting.variable is None or setting.variable not in os.environ:
            conf.setIfMissing(setting.name, setting.wanted)
    return conf


def _properties(master: str | None) -> list[SparkSetting]:
    """Return the properties that matter where Spark runs."""
    is_local = str(master).startswith("local")
    return [setting for setting in PROPERTIES if setting.on_cluster or is_local]


def _with(conf: SparkConf, options: Mapping[str, str]) -> SparkConf:
    return conf.setAll(list(options.items()))


def _findings(spark: SparkSession) -> list[Finding]:
    if not isinstance(getattr(spark, "_sc", None), SparkContext):
        raise _not_classic(type(spark).__module__)
    context = spark.sparkContext
    conf = context.getConf()
    findings = []
    # Where Python lives on a cluster's machines cannot be seen from here.
    if str(context.master).startswith("local") and not _is_running_interpreter(context.pythonExec):
        findings.append(
            Finding(PYTHON.name, context.pythonExec, sys.executable, PYTHON.why, PYTHON.runtime)
        )
    for setting in _properties(context.master):
        default = os.environ.get(setting.variable or "", setting.default)
        # A session may claim a static setting that came too late; its context knows the truth.
        found = (spark.conf if setting.runtime else conf).get(setting.name, default) or default
        if found.lower() != setting.wanted.lower():
            findings.append(
                Finding(setting.name, found, setting.wanted, setting.why, setting.runtime)
            )
    return findings


def _is_running_interpreter(command: str) -> bool:
    """Say whether a command starts this very Python, of this very virtual environment."""
    found = shutil.which(command)
    if found is None:
        return False
    # All virtual environments may link to one file, so the folder must be the same as well.
    same_folder = os.path.samefile(os.path.dirname(found), os.path.dirname(sys.executable))
    return same_folder and os.path.samefile(found, sys.executable)


_said: set[tuple[str, Finding]] = set()


def _say(spark: SparkSession, findings: list[Finding]) -> None:
    application = spark.sparkContext.applicationId
    new = [finding for finding in findings if (application, finding) not in _said]
    if new:
        _said.update((application, finding) for finding in new)
        logger.warning(
            "This Spark session works, but not as well as it could for SWARM:\n%s\n"
            "sparkswarm.session() makes a session that has what is needed.",
            "\n".join(f"  - {finding}" for finding in new),
        )


def _not_classic(what: str) -> ConfigError:
    return ConfigError(
        f"{what} is Spark Connect, and SWARM needs a classic Spark session: unset SPARK_REMOTE, "
        "give a master such as local[2] or spark://host:7077, and run the driver there"
    )
