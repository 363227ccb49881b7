"""SWARM: adaptive load balancing of spatial streams, on Apache Spark."""

from importlib.metadata import version

__version__ = version("sparkswarm")
"""The installed version; pyproject.toml is where it is set."""
