"""Checks of arguments for all workloads."""

from __future__ import annotations

import operator
from numbers import Real

from sparkswarm.errors import WorkloadError


def whole_number(name: str, value: int, least: int) -> int:
    """Return ``value`` as an ``int``, or raise unless it is a whole number from ``least`` up."""
    try:
        number = operator.index(value)
    except TypeError:
        raise WorkloadError(
            f"{name} must be a whole number, got {value!r}; round it first"
        ) from None
    if number < least:
        raise WorkloadError(f"{name} must be at least {least}, got {number}")
    return number


def number(name: str, value: float) -> float:
    """Return ``value`` as a ``float``, or raise unless it is a real number (NaN passes)."""
    if not isinstance(value, Real):
        raise WorkloadError(f"{name} must be a number, got {value!r}")
    return float(value)


def share(name: str, value: float) -> float:
    """Return ``value`` as a ``float``, or raise unless it is from 0 to 1."""
    checked = number(name, value)
    if not 0 <= checked <= 1:  # also refuses NaN
        raise WorkloadError(f"{name} must be between 0 and 1, got {value}; it is a share")
    return checked


def side(name: str, value: float) -> float:
    """Return ``value`` as a ``float``, or raise unless it is above 0 and at most 1."""
    checked = number(name, value)
    if not 0 < checked <= 1:
        raise WorkloadError(
            f"{name} must be above 0 and at most 1, got {value}; "
            "it is a share of the side of the bounds, not a length in their unit"
        )
    return checked
