"""Creates files of remote stores that replace none, which pyarrow's filesystems cannot.

Where Spark's Hadoop filesystem can create conditionally (S3A), the store decides when the object is
complete; elsewhere a temporary file is renamed, which HDFS, ABFS and GCS do atomically and never
onto another file. Runs on the driver, twice a batch.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from sparkswarm.errors import StoreError

CONDITIONAL = "fs.option.create.conditional.overwrite"
"""Hadoop's name for creating a file when it is closed, and only if there is none then."""


def hadoop_creator(spark: SparkSession) -> Callable[[str, bytes], None]:
    """Return a function that creates a file with a URI and a content, unless there is one."""
    jvm: Any = spark._jvm
    gateway: Any = spark.sparkContext._gateway
    hadoop, configuration = jvm.org.apache.hadoop.fs, spark._jsc.hadoopConfiguration()

    def create(uri: str, content: bytes) -> None:
        path = hadoop.Path(uri)
        system = path.getFileSystem(configuration)
        temporary = hadoop.Path(path.getParent(), f".{uuid.uuid4().hex}")
        try:
            if system.hasPathCapability(path, CONDITIONAL):
                _write(system.createFile(path).must(CONDITIONAL, True).build(), content)
                return
            _write(system.create(temporary, True), content)
            try:
                context = hadoop.FileContext.getFileContext(path.toUri(), configuration)
                none = gateway.new_array(hadoop.Options.Rename, 0)
                context.rename(temporary, path, none)
            finally:
                system.delete(temporary, False)
        except Py4JJavaError as error:
            if not system.exists(path):
                reason = error.java_exception.toString()
                raise StoreError(f"cannot create {uri}: {reason}") from error

    return create


def _write(stream: Any, content: bytes) -> None:
    try:
        stream.write(content)
    finally:
        stream.close()
