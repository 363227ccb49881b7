"""What a run's file says, once it is checked: all that :meth:`sparkswarm.Swarm.start` needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from sparkswarm.apps.application import Application
from sparkswarm.config import SwarmConfig
from sparkswarm.runfile.schema import CONSOLE_ROWS, METRICS_PORT
from sparkswarm.spark.columns import PointColumns, QueryColumns
from sparkswarm.window.windows import Window


@dataclass(frozen=True)
class Source:
    """Something that Spark reads; the name is that of its table in the file."""

    name: str
    format: str
    path: str | None = None
    schema: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    select: tuple[str, ...] = ()


@dataclass(frozen=True)
class Output:
    """Where rows go."""

    kind: Literal["parquet", "console", "noop"]
    path: str | None = None
    rows: int = CONSOLE_ROWS


@dataclass(frozen=True)
class Serving:
    """Where numbers are served."""

    port: int = METRICS_PORT
    host: str = "127.0.0.1"


@dataclass(frozen=True)
class RunFile:
    """All that a file says about a run, checked."""

    checkpoint: str
    sink: Output | None = None
    summaries: Output | None = None
    answers: Output | None = None
    results: Literal["points", "pairs"] = "points"
    name: str | None = None
    swarm: SwarmConfig = field(default_factory=SwarmConfig)
    master: str | None = None
    app_name: str = "sparkswarm"
    conf: Mapping[str, str | int | float | bool] = field(default_factory=dict)
    points: Source | None = None
    queries: Source | None = None
    preload: Source | None = None
    history: tuple[Source, Source] | None = None
    point_columns: PointColumns = field(default_factory=PointColumns)
    query_columns: QueryColumns = field(default_factory=QueryColumns)
    application: Application | None = None
    window: Window | None = None
    quarantine: Output | None = None
    trigger: Mapping[str, str | bool] | None = None
    metrics: Serving | None = None
