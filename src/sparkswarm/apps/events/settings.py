"""Which events are reported, when an object counts as gone, and what standing points ask for."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from sparkswarm.errors import ConfigError, InputError
from sparkswarm.window.durations import microseconds


@dataclass(frozen=True, slots=True)
class Nearest:
    """Continuous k nearest: queries that are points ask for the objects nearest to them.

    A query whose ``geometry`` is a ``POINT`` without a radius gets this one; one with a radius of
    its own asks for the nearest where its column ``k`` is given, and is a circle where it is not.

    Parameters
    ----------
    k
        Maximum number of objects, where a query's own is null.
    within
        Largest distance, included, in units of the coordinates.
    within_m
        Instead of ``within``: largest distance in metres, where x is a longitude and y a latitude.
    """

    k: int = 1
    within: float | None = None
    within_m: float | None = None

    def __post_init__(self) -> None:
        if isinstance(self.k, bool) or not isinstance(self.k, int) or self.k < 1:
            raise ConfigError(f"k must be a whole number of at least 1, got {self.k!r}")
        if self.within is not None and self.within_m is not None:
            raise ConfigError("only one of within and within_m can be given")
        for name, value in (("within", self.within), ("within_m", self.within_m)):
            if value is not None and value != 0 and not _is_length(value):
                raise ConfigError(f"{name} must be a number of at least 0, got {value!r}")


@dataclass(frozen=True)
class Events:
    """Events of objects, which are the ids of points, and fences, which are queries.

    ``enter`` and ``exit`` are always reported.

    Parameters
    ----------
    dwell
        Report ``dwell`` once an object has been in a fence for this long, such as ``"5 minutes"``.
    silent_after
        An object without a fix for longer than this is forgotten, and leaves its fences. It bounds
        what is kept of objects.
    inside
        Report ``inside`` for every fix in a fence that the object was in before.
    nearest
        What queries that are points ask for: their k nearest objects. None for circles without.
    cross
        Report ``cross`` for fences that an object passed through between two fixes of which neither
        is inside, where the straight line between them is at most this long, in units of the
        coordinates. None for no such events; they cost a search for each fix.
    """

    dwell: str | None = None
    silent_after: str = "1 hour"
    inside: bool = False
    nearest: Nearest | None = None
    cross: float | None = None
    dwell_micros: int = field(init=False, repr=False)
    silent_micros: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.inside, bool):
            raise ConfigError(f"inside must be True or False, got {self.inside!r}")
        if self.nearest is not None and not isinstance(self.nearest, Nearest):
            raise ConfigError(f"nearest must be Nearest(...), got {self.nearest!r}")
        if self.cross is not None and not _is_length(self.cross):
            raise ConfigError(
                "cross must be the length of the longest line between two fixes that is looked at, "
                f"in units of the coordinates, got {self.cross!r}"
            )
        dwell = 0 if self.dwell is None else _duration("dwell", self.dwell)
        object.__setattr__(self, "dwell_micros", dwell)
        object.__setattr__(self, "silent_micros", _duration("silent_after", self.silent_after))


def _is_length(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf


def _duration(name: str, text: object) -> int:
    if not isinstance(text, str):
        raise ConfigError(f"{name} must be a duration such as '5 minutes', got {text!r}")
    try:
        return microseconds(text)
    except InputError as error:
        raise ConfigError(f"{name}: {error}") from error
