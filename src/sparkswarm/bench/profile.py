"""Profile of a batch: the time that each of its steps adds.

Reads one batch of the inputs as a static DataFrame and runs longer and longer prefixes of the
engine's stages, so the numbers are those of the real tasks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from statistics import median

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import ArrayType, LongType, StructType

from sparkswarm.bench.inputs import POINTS_SCHEMA, Inputs
from sparkswarm.spark.columns import QUERY_IDS, PointColumns
from sparkswarm.spark.driver.batch import OutputCollector, Stages
from sparkswarm.spark.driver.layout import StreamLayout
from sparkswarm.spark.driver.selection import select_points
from sparkswarm.spark.handle import Handle
from sparkswarm.spark.task_input import TaskInput
from sparkswarm.spark.task_output import OutputKind
from sparkswarm.store.epochs import Epoch
from sparkswarm.store.queries import ID

REPEAT = 7
"""Number of measurements of each step."""


def profile_batch(spark: SparkSession, handle: Handle, inputs: Inputs) -> dict[str, float]:
    """Return the seconds that each step adds to one batch of a run's inputs."""
    run = handle._run
    commit = run.epochs.last_commit()
    assert commit is not None
    # A policy without a load-balancing unit leaves no files behind.
    config = replace(run.config, policy="static_uniform")
    epoch = Epoch(batch=10**6, clock=0, plan=commit.plan, manifest=commit.manifest)
    fields = StructType().add(ID, LongType()).add(QUERY_IDS, ArrayType(LongType()))
    layout = StreamLayout(results=fields, has_operations=False, has_time=False)
    task_input = TaskInput(
        files=run.files,
        config=config,
        epoch=epoch,
        attempt="profile",
        outputs=frozenset({OutputKind.RESULTS}),
        output_schema=layout.output_schema(True),
    )
    stages = Stages(task_input, OutputCollector(spark.sparkContext))
    files = [str(inputs.points_file(0, part)) for part in range(inputs.files_per_batch)]
    points = select_points(spark.read.schema(POINTS_SCHEMA).parquet(*files), PointColumns())
    routed = stages.route(points)
    results = stages.execute(routed, layout.output_fields(True))
    steps: dict[str, DataFrame] = {
        "read the files": points,
        "rows to Python": points.mapInArrow(_drop, points.schema),
        "route to the executors": routed.mapInArrow(_drop, routed.schema),
        "match": results.mapInArrow(_drop, results.schema),
        "results to Spark": results,
    }
    seconds = _medians({name: _noop(frame) for name, frame in steps.items()})
    added = {}
    before = 0.0
    for name, took in seconds.items():
        added[name] = max(0.0, took - before)
        before = max(before, took)
    return added


def _drop(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch.slice(0, 0)


def _noop(frame: DataFrame) -> Callable[[], None]:
    return lambda: frame.write.format("noop").mode("overwrite").save()


def _medians(actions: dict[str, Callable[[], None]]) -> dict[str, float]:
    """Return the median time of each action, run in turns after two warm-up turns."""
    seconds: dict[str, list[float]] = {name: [] for name in actions}
    for turn in range(REPEAT + 2):
        for name, action in actions.items():
            began = time.monotonic()
            action()
            if turn >= 2:
                seconds[name].append(time.monotonic() - began)
    return {name: median(times) for name, times in seconds.items()}
