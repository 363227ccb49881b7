"""Run times of tasks, as Spark reports them.

Reads Spark's own status store, the one behind its web interface, once a batch. The tasks of a stage
come as one JSON text, because a call to the JVM for each field would take longer. Runs on the
driver.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from typing import Any

from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

WAIT_MS = 200
"""How long to wait for Spark's listener to have seen the last tasks, in milliseconds."""


class TaskTimes:
    """Looks up run times of finished tasks."""

    def __init__(self, spark: SparkSession) -> None:
        self._context: Any = spark.sparkContext._jsc.sc()
        jvm: Any = spark.sparkContext._jvm
        self._json = jvm.org.apache.spark.status.api.v1.JacksonMessageWriter().mapper()

    def of_stages(self, stages: Iterable[int]) -> dict[int, float]:
        """Return the seconds of each successful task of some stages, by Spark's task id.

        Empty where Spark cannot tell, which is logged: nothing depends on it but the prices.
        """
        try:
            self._context.listenerBus().waitUntilEmpty(WAIT_MS)
            store = self._context.statusStore()
            found = [
                task
                for stage in stages
                for task in json.loads(
                    self._json.writeValueAsString(store.taskList(stage, 0, 2**31 - 1))
                )
            ]
        except Exception as error:
            logger.debug("Spark does not tell the times of tasks: %s", error)
            return {}
        return {
            task["taskId"]: task["taskMetrics"]["executorRunTime"] / 1000
            for task in found
            if task["status"] == "SUCCESS"
        }
