"""SWARM: adaptive load balancing of spatial streams, on Apache Spark.

The names here are the public surface; the rest is private by folder.
"""

from importlib.metadata import version

from sparkswarm.config import SwarmConfig
from sparkswarm.errors import (
    ConfigError,
    GeometryError,
    PlanError,
    ProtocolError,
    SparkswarmError,
    WorkloadError,
)

__all__ = [
    "ConfigError",
    "GeometryError",
    "PlanError",
    "ProtocolError",
    "SparkswarmError",
    "SwarmConfig",
    "WorkloadError",
    "__version__",
]

__version__ = version("sparkswarm")
"""The installed version; pyproject.toml is where it is set."""
