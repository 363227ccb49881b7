"""The Java classes of sparkswarm, for a session that runs already.

Their sources are in folders ``java`` of the package, and the jars beside them are built by
``scripts/build_java.py``. Runs on the driver.
"""

from __future__ import annotations

from importlib.resources import as_file, files
from typing import Any

from pyspark.sql import SparkSession

_loaded: set[tuple[str, str]] = set()


def load_jar(spark: SparkSession, package: str, name: str) -> None:
    """Let the driver and the executors of a session know the classes of a package's jar."""
    context: Any = spark.sparkContext
    if (context.applicationId, name) in _loaded:
        return
    with as_file(files(package) / "java" / name) as jar:
        url = context._jvm.java.io.File(str(jar)).toURI().toURL()
        context._jvm.java.lang.Thread.currentThread().getContextClassLoader().addURL(url)
        context._jsc.addJar(str(jar))
    _loaded.add((context.applicationId, name))
