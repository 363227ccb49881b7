"""The exceptions that sparkswarm raises.

Each message says what was wrong, with which value, and what to do about it. Catch
:class:`SparkswarmError` to catch them all.
"""

from __future__ import annotations


class SparkswarmError(Exception):
    """Base class of all exceptions of sparkswarm."""


class ConfigError(SparkswarmError, ValueError):
    """A setting, an option or a run file with a value that is not allowed."""


class GeometryError(SparkswarmError, ValueError):
    """Invalid bounds, an invalid grid or an invalid rectangle of cells."""


class PlanError(SparkswarmError, ValueError):
    """A change of the plan after which the partitions would not tile the grid exactly."""


class ProtocolError(SparkswarmError, RuntimeError):
    """A message that the state machine does not accept in its current state."""


class WorkloadError(SparkswarmError, ValueError):
    """An invalid workload: a density file, a hotspot, a number of points."""


class StoreError(SparkswarmError, RuntimeError):
    """A stored file that is missing, damaged or of another format."""


class TakenOverError(StoreError):
    """Another driver has taken over the checkpoint of this one."""


class InputError(SparkswarmError, ValueError):
    """A DataFrame of points or queries that cannot be used."""


class ApplicationError(SparkswarmError, RuntimeError):
    """A user's application that failed or returned an invalid result."""


class MissingExtraError(SparkswarmError, ImportError):
    """A feature whose optional package is not installed."""


def missing_extra(package: str, extra: str) -> MissingExtraError:
    """Return the error to raise where an optional package cannot be imported.

    Raise it ``from`` the ImportError; ``extra`` is the one of pyproject.toml that installs it.
    """
    return MissingExtraError(
        f"{package} is not installed; run: pip install 'sparkswarm[{extra}]'", name=package
    )
