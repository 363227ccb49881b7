"""Run times of a batch's tasks, as Spark reports them.

Reads Spark's own status store, which the web interface shows, once after a run: nothing is added to
a batch that is being measured. A stage's tasks come as one JSON text; field by field they would
take a call to the JVM each.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

_BATCH = re.compile(r"^batch = (\d+)$", re.MULTILINE)


@dataclass(frozen=True)
class BatchTasks:
    """Run times (``executorRunTime``) of a batch's tasks, in seconds.

    Attributes
    ----------
    execute
        Of the tasks of the last stage of the last job, by index: one for each executor.
    total
        Of the tasks of all stages of all jobs.
    """

    execute: tuple[float, ...]
    total: float


def batch_tasks(spark: SparkSession, run_id: str) -> dict[int, BatchTasks]:
    """Return the tasks of every batch of a streaming query, by batch number."""
    context: Any = spark.sparkContext._jsc.sc()
    context.listenerBus().waitUntilEmpty()
    store = context.statusStore()
    mapper = spark.sparkContext._jvm.org.apache.spark.status.api.v1.JacksonMessageWriter().mapper()  # type: ignore[union-attr]

    def read(data: Any) -> Any:
        return json.loads(mapper.writeValueAsString(data))

    stages: dict[int, list[int]] = defaultdict(list)
    for job in sorted(read(store.jobsList(None)), key=lambda job: job["jobId"]):
        found = _BATCH.search(job.get("description") or "")
        if found and job.get("jobGroup") == run_id:
            stages[int(found[1])] += sorted(job["stageIds"])
    batches = {}
    for batch, ids in stages.items():
        seconds = [stage_seconds(read(store.taskList(stage, 0, 10**6))) for stage in ids]
        batches[batch] = BatchTasks(seconds[-1], sum(map(sum, seconds)))
    return batches


def stage_seconds(tasks: list[dict[str, Any]]) -> tuple[float, ...]:
    """Return the run time of each task of a stage, by index; of its attempts the one that won."""
    seconds: dict[int, float] = {}
    for task in tasks:
        if task["status"] == "SUCCESS":
            seconds[task["index"]] = task["taskMetrics"]["executorRunTime"] / 1000
    return tuple(seconds[index] for index in sorted(seconds))
