"""Durations: text is read, and what is not a duration is rejected."""

from __future__ import annotations

import pytest

from sparkswarm.errors import InputError
from sparkswarm.window.durations import LONGEST, microseconds

SECOND = 1_000_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("90 s", 90 * SECOND),
        ("90s", 90 * SECOND),
        ("1 second", SECOND),
        ("5 minutes", 300 * SECOND),
        ("5 Min", 300 * SECOND),
        ("1 hour", 3600 * SECOND),
        ("1 day", 86_400 * SECOND),
        ("2 weeks", 14 * 86_400 * SECOND),
        ("1 day 12 hours", 129_600 * SECOND),
        ("  1h30m ", 5400 * SECOND),
        ("250 ms", SECOND // 4),
        ("3 microseconds", 3),
        ("0 hours 1 us", 1),
        ("0" * 40 + "5 s", 5 * SECOND),
        (f"{LONGEST} us", LONGEST),
    ],
)
def test_durations_are_read(text, expected):
    assert microseconds(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "5", "minutes", "five minutes", "-5 minutes", "1.5 hours", "1 month", "1 year"),
        *(
            "5 minutes!",
            "1 hour and 2 minutes",
            "5 minutess",
            "\N{ARABIC-INDIC DIGIT FIVE} minutes",
        ),
        *("5 minutes 3", "1" * 50_000, " " * 50_000, "1s" * 50_000),
    ],
)
def test_what_is_no_duration_is_refused(text):
    with pytest.raises(InputError, match="is no duration"):
        microseconds(text)


@pytest.mark.parametrize("text", ["0 s", "0 s 0 ms", f"{LONGEST + 1} us", "9" * 80 + " days"])
def test_a_duration_is_neither_nothing_nor_endless(text):
    with pytest.raises(InputError, match="longer than nothing and at most 285 years"):
        microseconds(text)
