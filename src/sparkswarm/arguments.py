"""Checks of what users give by hand: a wrong kind of object is refused where it is given.

Without them, Python's own error would name an attribute that the object lacks, at a place that the
user has never seen. Runs anywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from sparkswarm.errors import ConfigError

NUMBERS = (int, float, np.integer, np.floating)
"""Types of numbers, those of an array included."""

_REPEATED = (str, int, float, bytes, type(None))
"""Types of values that an error repeats."""


def check_argument(
    name: str, value: object, kind: type | tuple[type, ...], wanted: str, optional: bool = True
) -> None:
    """Refuse an argument that is not of a kind; ``wanted`` completes "must be …"."""
    if not isinstance(value, kind) and not (optional and value is None):
        raise ConfigError(f"{name} must be {wanted}, got {brief(value)}")


def check_function(name: str, value: object, arguments: str, optional: bool = True) -> None:
    """Refuse an argument that cannot be called."""
    if not callable(value) and not (optional and value is None):
        raise ConfigError(f"{name} must be a function of {arguments}, got {brief(value)}")


def check_columns(name: str, value: object) -> None:
    """Refuse what is no tuple or list of names of columns."""
    if isinstance(value, str):
        raise ConfigError(f"{name} must be a tuple of names, got {value!r}: write ({value!r},)")
    check_argument(name, value, (tuple, list), "a tuple of names", optional=False)
    for one in value:  # type: ignore[attr-defined]  # a tuple, or a list
        if not isinstance(one, str) or not one:
            raise ConfigError(f"{name} must be a tuple of names, but {brief(one)} is none")


def check_table(name: str, value: object, example: str) -> None:
    """Refuse what is no dictionary from names to text."""
    texts = isinstance(value, Mapping) and all(
        isinstance(one, str) for pair in value.items() for one in pair
    )
    if not texts:
        raise ConfigError(f"{name} must be a dictionary such as {example}, got {brief(value)}")


def brief(value: Any) -> str:
    """Return a value as an error shows it: to show a frame may run a job."""
    if isinstance(value, type):
        return f"the class {value.__name__}; write {value.__name__}(...)"
    return repr(value)[:100] if isinstance(value, _REPEATED) else f"a {type(value).__name__}"
