"""Reads on Spark what a benchmark wrote batch by batch, and counts results of a sample of points.

The names of files begin with the number of their batch, see :mod:`sparkswarm.bench.replay_inputs`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812


@dataclass(frozen=True)
class BatchFiles:
    """The files of the first batches in a folder."""

    spark: SparkSession
    folder: Path
    batches: int

    def stream(self, name: str, schema: str, files: int) -> DataFrame:
        """Return a stream of the files of a subfolder, ``files`` of them in each batch."""
        numbers = "{" + ",".join(f"{batch:05d}*" for batch in range(self.batches)) + "}"
        source = self.spark.readStream.schema(schema).option("maxFilesPerTrigger", files)
        return source.option("pathGlobFilter", numbers).parquet(str(self.folder / name))

    def table(self, name: str, schema: str) -> DataFrame:
        """Return all rows of a file, or of a subfolder."""
        return self.spark.read.schema(schema).parquet(str(self.folder / name))


def count_sample(results: DataFrame, step: int) -> dict[int, int]:
    """Compute all results; return the number of those of points whose id is a multiple of step."""
    some = results.where(F.col("id") % step == 0)
    found = some.select("id", F.size("query_ids").alias("n")).toArrow()
    return dict(zip(*(column.to_pylist() for column in found.columns), strict=True))
