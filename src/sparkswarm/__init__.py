"""SWARM: adaptive load balancing of spatial streams, on Apache Spark.

The names here are the public surface; the rest is private by folder.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING

from sparkswarm.config import SwarmConfig
from sparkswarm.errors import (
    ApplicationError,
    ConfigError,
    GeometryError,
    InputError,
    MissingExtraError,
    PlanError,
    ProtocolError,
    SparkswarmError,
    StoreError,
    WorkloadError,
)

if TYPE_CHECKING:
    from sparkswarm.apps.aggregates.application import Aggregates
    from sparkswarm.apps.application import (
        Application,
        PairFunction,
        Pairs,
        Stateful,
        StateUpdate,
        Watermarks,
    )
    from sparkswarm.apps.events.reading import ObjectPosition
    from sparkswarm.apps.events.settings import Events, Nearest
    from sparkswarm.apps.subscriptions.application import Subscriptions
    from sparkswarm.observe.describe import describe
    from sparkswarm.protocol.messages import Decision
    from sparkswarm.spark.columns import PointColumns, QueryColumns
    from sparkswarm.spark.delta_sink import DeltaSink
    from sparkswarm.spark.engine import Swarm
    from sparkswarm.spark.fences import read_fences, split_antimeridian
    from sparkswarm.spark.handle import Handle
    from sparkswarm.spark.kafka_sink import KafkaSink
    from sparkswarm.spark.point_files import ParquetPoints
    from sparkswarm.spark.realtime_sinks import Foreach, KafkaTopic
    from sparkswarm.spark.session import check_session, session
    from sparkswarm.spark.sinks import ConsoleSink, MemorySink, NoopSink, ParquetSink
    from sparkswarm.spark.sources import register_sources
    from sparkswarm.window.windows import Bytes, Count, Sliding, Tumbling

__all__ = [
    "Aggregates",
    "Application",
    "ApplicationError",
    "Bytes",
    "ConfigError",
    "ConsoleSink",
    "Count",
    "Decision",
    "DeltaSink",
    "Events",
    "Foreach",
    "GeometryError",
    "Handle",
    "InputError",
    "KafkaSink",
    "KafkaTopic",
    "MemorySink",
    "MissingExtraError",
    "Nearest",
    "NoopSink",
    "ObjectPosition",
    "PairFunction",
    "Pairs",
    "ParquetPoints",
    "ParquetSink",
    "PlanError",
    "PointColumns",
    "ProtocolError",
    "QueryColumns",
    "Sliding",
    "SparkswarmError",
    "StateUpdate",
    "Stateful",
    "StoreError",
    "Subscriptions",
    "Swarm",
    "SwarmConfig",
    "Tumbling",
    "Watermarks",
    "WorkloadError",
    "__version__",
    "check_session",
    "describe",
    "read_fences",
    "register_sources",
    "session",
    "split_antimeridian",
]

__version__ = version("sparkswarm")
"""The installed version; pyproject.toml is where it is set."""

_LAZY = {
    name: f"sparkswarm.{module}"
    for module, names in {
        "apps.aggregates.application": ("Aggregates",),
        "apps.application": (
            "Application",
            "PairFunction",
            "Pairs",
            "StateUpdate",
            "Stateful",
            "Watermarks",
        ),
        "apps.events.reading": ("ObjectPosition",),
        "apps.events.settings": ("Events", "Nearest"),
        "apps.subscriptions.application": ("Subscriptions",),
        "observe.describe": ("describe",),
        "protocol.messages": ("Decision",),
        "spark.columns": ("PointColumns", "QueryColumns"),
        "spark.delta_sink": ("DeltaSink",),
        "spark.engine": ("Swarm",),
        "spark.fences": ("read_fences", "split_antimeridian"),
        "spark.handle": ("Handle",),
        "spark.session": ("check_session", "session"),
        "spark.kafka_sink": ("KafkaSink",),
        "spark.point_files": ("ParquetPoints",),
        "spark.realtime_sinks": ("Foreach", "KafkaTopic"),
        "spark.sinks": ("ConsoleSink", "MemorySink", "NoopSink", "ParquetSink"),
        "spark.sources": ("register_sources",),
        "window.windows": ("Bytes", "Count", "Sliding", "Tumbling"),
    }.items()
    for name in names
}
"""Where the names are that need pyspark or pyarrow, which are slow to import."""

_RENAMED: dict[str, str] = {
    "Advanced": "StateUpdate",
    "Each": "PairFunction",
    "Moment": "Watermarks",
    "Size": "Bytes",
}
"""Public names of earlier versions, and what they are called now."""

# Type checkers read the imports above; this would let them believe in any name.
if not TYPE_CHECKING:

    def __getattr__(name):
        """Import what needs pyspark when it is first asked for."""
        if name in _RENAMED:
            # Of an AttributeError, `from sparkswarm import ...` would not show the text.
            raise ImportError(f"sparkswarm.{name} was renamed to sparkswarm.{_RENAMED[name]}")
        if name not in _LAZY:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
