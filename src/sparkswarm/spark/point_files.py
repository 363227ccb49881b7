"""Points in Parquet files that the tasks read themselves.

Spark finds the new files of each batch, keeps their names in its checkpoint, and divides them among
tasks; the tasks read them (:mod:`sparkswarm.spark.tasks.point_files`). So points need not pass
through Java, where they cost more than the matching. Runs on the driver, once per start.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from sparkswarm.arguments import check_argument
from sparkswarm.errors import ConfigError, InputError
from sparkswarm.spark.columns import POINT_FILE
from sparkswarm.spark.failures import not_found

_ROWS_OF_FILES = "path STRING, modificationTime TIMESTAMP, length BIGINT, content BINARY"
"""The columns of Spark's ``binaryFile``; the content is read only where it is selected."""


class OpenedPoints(NamedTuple):
    """A source of points that was opened."""

    example: DataFrame
    """A static frame without rows that has the columns of the points."""
    files: DataFrame
    """The stream of the names of files."""


@dataclass(frozen=True)
class ParquetPoints:
    """A folder of Parquet files with points, read by the tasks that match them.

    Give it to :meth:`sparkswarm.Swarm.start` as ``points``. As with ``spark.readStream.parquet``,
    which is slower, every file is read once, in a batch after it appears, and must stay until
    that batch is committed. A file is read by one task.

    Parameters
    ----------
    path
        The folder, local or on a filesystem that both Spark and pyarrow support.
    schema
        The columns, as Spark takes them: ``"id BIGINT, x DOUBLE, y DOUBLE"``. By default those of
        the files that are there at the start. All files must have them.
    max_files_per_trigger
        Most files of a batch; by default all that are new.
    glob
        Which files are read, by their name.
    """

    path: str
    schema: str | StructType | None = None
    max_files_per_trigger: int | None = None
    glob: str = "*.parquet"

    def __post_init__(self) -> None:
        check_argument("path of ParquetPoints", self.path, (str, Path), "a folder", optional=False)
        object.__setattr__(self, "path", str(self.path))
        most = self.max_files_per_trigger
        if most is not None and (not isinstance(most, int) or most < 1):
            raise ConfigError(f"max_files_per_trigger must be a positive integer, got {most!r}")

    def open(self, spark: SparkSession) -> OpenedPoints:
        """Return the stream of files and the columns of the points."""
        reader = (
            spark.readStream.schema(_ROWS_OF_FILES)
            .format("binaryFile")
            .option("pathGlobFilter", self.glob)
        )
        if self.max_files_per_trigger is not None:
            reader = reader.option("maxFilesPerTrigger", self.max_files_per_trigger)
        try:
            files = reader.load(self.path).select(F.col("path").alias(POINT_FILE))
        except AnalysisException as error:
            raise not_found(self.path, error) from error
        return OpenedPoints(self._example(spark), files)

    def _example(self, spark: SparkSession) -> DataFrame:
        if self.schema is not None:
            return spark.createDataFrame([], self.schema)
        try:
            found = spark.read.option("pathGlobFilter", self.glob).parquet(self.path)
        except AnalysisException as error:
            raise InputError(
                f"there is no Parquet file {self.glob} in {self.path} yet whose columns could be "
                "looked up; give ParquetPoints a schema"
            ) from error
        return found.limit(0)
