"""Engines that run a scenario: the simulator, the tasks without Spark, and Spark.

An engine takes a :class:`~tests.support.scenarios.Scenario` and returns which query matched which
point, how often. Each changes its plan on the way, so that queries move while they are matched.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from sparkswarm import MemorySink, Swarm, SwarmConfig

from ..sim.machines import found_by
from ..spark.world import FIRST_TIME, Restless, upset
from ..support.scenarios import SIDE, Scenario
from ..support.tasks import Tasks

Found = Counter[tuple[int, int]]

CONFIG = SwarmConfig(bounds=(0, 0, SIDE, SIDE), grid=(16, 16), executors=3, round_batches=1)


class Engine(Protocol):
    """Runs a scenario."""

    def matches(self, scenario: Scenario) -> Found:
        """Return (query, point) pairs, how often each was reported."""


class SimulatorEngine:
    """Simulated machines with the faults of a seed."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def matches(self, scenario: Scenario) -> Found:
        found, world = found_by(scenario, self._seed)
        assert world.oracle.verdict.violations == []
        happened = world.happened()
        assert happened["split"] + happened["move"] > 0, "queries that stay prove little"
        return found


class TasksEngine:
    """The tasks of the engine in this process; the plan changes with every batch."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def matches(self, scenario: Scenario) -> Found:
        tasks = Tasks(self._folder, config=CONFIG, application=scenario.application)
        tasks.declare(scenario.query_columns, scenario.point_columns)
        found: Found = Counter()
        for number in range(len(scenario.batches)):
            tasks.apply_table(scenario.operations_table(number))
            for point, queries in tasks.match_table(scenario.points_table(number)).items():
                found.update((query, point) for query in queries)
            tasks.commit()
            plan, _ = upset(random.Random(number))(tasks.plan)
            tasks.use_plan(plan)
        return found


class SparkEngine:
    """Spark in this process's JVM; the plan changes with every batch."""

    def __init__(
        self, spark: Any, folder: Path, shared_host: bool, checkpoint: str | None = None
    ) -> None:
        self._spark, self._folder = spark, folder
        self._checkpoint = checkpoint or str(folder / "checkpoint")
        self._config = replace(CONFIG, shared_host=shared_host)

    def matches(self, scenario: Scenario) -> Found:
        numbers = range(len(scenario.batches))
        points = self._stream("points", list(map(scenario.points_table, numbers)))
        queries = self._stream("queries", list(map(scenario.operations_table, numbers)))
        memory = MemorySink()
        sink = Restless(memory, 5)
        handle = Swarm(self._spark, self._config, scenario.application).start(
            points,
            queries,
            sink=sink,
            checkpoint=self._checkpoint,
            results="pairs",
            trigger={"availableNow": True},
        )
        sink.watch(handle)
        handle.await_termination()
        return Counter((row["query_id"], row["id"]) for row in memory.table().to_pylist())

    def _stream(self, name: str, tables: list[pa.Table]) -> Any:
        folder = self._folder / name
        folder.mkdir()
        for i, table in enumerate(tables):
            path = folder / f"{i:05}.parquet"
            pq.write_table(table, path)
            os.utime(path, (FIRST_TIME + i, FIRST_TIME + i))
        schema = self._spark.read.parquet(str(path)).schema
        reader = self._spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
        return reader.parquet(str(folder))
