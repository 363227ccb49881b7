"""One fixture for every engine: the same behaviour everywhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from ..support.spark import spark
from .engines import Engine, SimulatorEngine, SparkEngine, TasksEngine

__all__ = ["engine", "spark"]

SEEDS = {"calm": 0, "ambush": 1, "executor-cut-off": 5, "coordinator-lost": 37}
"""Faults of the simulator: none; many at once; an executor cut off; a Coordinator and an executor
cut off, and a crash."""


@pytest.fixture(params=[*(f"sim-{name}" for name in SEEDS), "tasks", "spark", "spark-one-host"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Engine:
    """Return an engine; what it cannot do, a test says with the reason."""
    if request.param.startswith("spark"):
        shared_host = request.param == "spark-one-host"
        return SparkEngine(request.getfixturevalue("spark"), tmp_path, shared_host)
    if request.param == "tasks":
        return TasksEngine(tmp_path)
    return SimulatorEngine(SEEDS[request.param.removeprefix("sim-")])
