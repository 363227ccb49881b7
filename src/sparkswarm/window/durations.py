"""Durations as text: ``90 s``, ``5 minutes``, ``1 day 12 hours``."""

from __future__ import annotations

import re

from sparkswarm.errors import InputError

LONGEST = 2**53
"""Longest duration, 285 years in microseconds: sums of a time and a duration fit 64 bits."""

_MICROSECONDS = {
    ("us", "microsecond"): 1,
    ("ms", "millisecond"): 1_000,
    ("s", "sec", "second"): 1_000_000,
    ("m", "min", "minute"): 60_000_000,
    ("h", "hour"): 3_600_000_000,
    ("d", "day"): 86_400_000_000,
    ("w", "week"): 604_800_000_000,
}
_UNITS = {name: micros for names, micros in _MICROSECONDS.items() for name in names} | {
    names[-1] + "s": micros for names, micros in _MICROSECONDS.items()
}
_LONGEST_TEXT = 100
_TERM = re.compile(r"\s*(\d+)\s*([a-z]+)\s*", re.ASCII)
_TERMS = re.compile(f"(?:{_TERM.pattern})+", re.ASCII)


def microseconds(text: str, least: int = 1) -> int:
    """Return a duration in microseconds.

    The text is one or more whole numbers with units. Months and years have no fixed length and
    are not supported.

    Raises
    ------
    InputError
        If the text is malformed, or the duration is shorter than ``least`` (0 or 1) or longer
        than :data:`LONGEST`.
    """
    lowered = text.lower()
    # The length first: it takes very long to see that a very long text does not match.
    matches = len(text) <= _LONGEST_TEXT and _TERMS.fullmatch(lowered)
    terms = _TERM.findall(lowered) if matches else []
    if not terms or any(unit not in _UNITS for _, unit in terms):
        raise InputError(
            f"{text[:_LONGEST_TEXT]!r} is no duration: write whole numbers with units, such as "
            f"'90 s', '5 minutes' or '1 day'"
        )
    total = sum(int(number) * _UNITS[unit] for number, unit in terms)
    if not least <= total <= LONGEST:
        raise InputError(f"{text!r} must be longer than nothing and at most 285 years")
    return total
