"""Every error that sparkswarm raises on purpose.

Each message says what was wrong, with which value, and what to do about it. Catch
:class:`SparkswarmError` to catch them all.
"""

from __future__ import annotations


class SparkswarmError(Exception):
    """The common ancestor of all errors raised by sparkswarm."""


class ConfigError(SparkswarmError, ValueError):
    """A setting has a value that is not allowed."""


class GeometryError(SparkswarmError, ValueError):
    """Bounds, a grid or a rectangle of cells that cannot exist."""


class PlanError(SparkswarmError, ValueError):
    """A change that does not fit the index: the tiling would not stay exact."""


class ProtocolError(SparkswarmError, RuntimeError):
    """A message that the state machine cannot accept in its present state."""


class WorkloadError(SparkswarmError, ValueError):
    """A workload (density file, hotspot) that cannot be used."""


class StoreError(SparkswarmError, RuntimeError):
    """A stored file that is missing, damaged or not ours."""


class InputError(SparkswarmError, ValueError):
    """A DataFrame of points or queries that cannot be used."""


class ApplicationError(SparkswarmError, RuntimeError):
    """A user's application that failed, or answered what it was not asked."""
