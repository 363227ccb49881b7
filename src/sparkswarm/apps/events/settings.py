"""Which events are reported, and when an object counts as gone."""

from __future__ import annotations

from dataclasses import dataclass, field

from sparkswarm.errors import ConfigError, InputError
from sparkswarm.window.durations import microseconds


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
    """

    dwell: str | None = None
    silent_after: str = "1 hour"
    inside: bool = False
    dwell_micros: int = field(init=False, repr=False)
    silent_micros: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.inside, bool):
            raise ConfigError(f"inside must be True or False, got {self.inside!r}")
        dwell = 0 if self.dwell is None else _duration("dwell", self.dwell)
        object.__setattr__(self, "dwell_micros", dwell)
        object.__setattr__(self, "silent_micros", _duration("silent_after", self.silent_after))


def _duration(name: str, text: object) -> int:
    if not isinstance(text, str):
        raise ConfigError(f"{name} must be a duration such as '5 minutes', got {text!r}")
    try:
        return microseconds(text)
    except InputError as error:
        raise ConfigError(f"{name}: {error}") from error
