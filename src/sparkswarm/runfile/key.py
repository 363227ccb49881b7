"""A key and a table of a run's file: what a value must be, in words and in fact.

Owns the checks of single values. Which keys there are is in :mod:`sparkswarm.runfile.schema`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from sparkswarm.config import SwarmConfig
from sparkswarm.errors import ConfigError, InputError
from sparkswarm.window.durations import microseconds

Kind = Literal[
    "text",
    "texts",
    "columns",
    "duration",
    "whole",
    "number",
    "switch",
    "table",
    "arguments",
    "setting",
]


@dataclass(frozen=True)
class Key:
    """A key that may stand in a table of the file.

    Attributes
    ----------
    name, kind
        What it is called, and what its value is. A ``setting`` is left to SwarmConfig.
        ``columns`` are a list of names or a table with more about each, ``arguments`` a table
        with anything in it.
    meaning
        For people.
    default
        What holds without it, in TOML's spelling; empty where there is none.
    required
        Whether its table makes no sense without it.
    low, high, choices, form
        What is allowed: a range of numbers, one of some words, or a pattern with its
        description.
    """

    name: str
    kind: Kind
    meaning: str
    default: str = ""
    required: bool = False
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    form: tuple[re.Pattern[str], str] | None = None

    @property
    def allowed(self) -> str:
        """What a value must be, in words."""
        if self.choices:
            return "one of " + ", ".join(f'"{choice}"' for choice in self.choices)
        if self.form:
            return self.form[1]
        match self.kind:
            case "whole" | "number":
                what = "a whole number" if self.kind == "whole" else "a number"
                above = "" if self.low is None else f" of at least {self.low:g}"
                both = f" from {self.low:.15g} to {self.high:.15g}" if self.high is not None else ""
                return what + (both or above)
            case "switch":
                return "true or false"
            case "texts":
                return "a list of strings"
            case "table":
                return "a table of strings, numbers, true and false"
            case "columns":
                return "a list of strings, or a table of strings"
            case "duration":
                return 'a time such as "90 s" or "10 minutes"' + (", more than 0" * bool(self.low))
            case "arguments":
                return "a table"
            case "setting":
                return "see settings"
        return "a string that is not empty"

    def check(self, value: object) -> Any:
        """Return the value as Python has it; ConfigError where it is not allowed."""
        if self.kind == "setting":
            value = tuple(value) if isinstance(value, list) else value
            # Alone, so that the mistake is this setting's.
            SwarmConfig(**{self.name: value})  # type: ignore[arg-type]
            return value
        if self.kind == "table" and isinstance(value, dict):
            value = _flat(value)
        if not self._is_allowed(value):
            # A table may hold a password beside what is wrong with it.
            got = "" if isinstance(value, dict) else f", got {shown(value)}"
            raise ConfigError(f"{self.name} must be {self.allowed}{got}")
        return tuple(value) if isinstance(value, list) else value

    def _is_allowed(self, value: object) -> bool:
        match self.kind:
            case "text":
                return (
                    isinstance(value, str)
                    and bool(value.strip())
                    and (not self.choices or value in self.choices)
                    and (self.form is None or self.form[0].fullmatch(value.strip()) is not None)
                )
            case "texts":
                return _are_texts(value)
            case "columns":
                named = isinstance(value, dict) and _are_texts([*value, *value.values()])
                return named or _are_texts(value)
            case "duration":
                return isinstance(value, str) and _is_duration(value, int(self.low or 0))
            case "arguments":
                return isinstance(value, dict)
            case "switch":
                return isinstance(value, bool)
            case "table":
                scalars = (str, int, float)
                return isinstance(value, dict) and all(
                    isinstance(v, scalars) for v in value.values()
                )
        kinds = (int,) if self.kind == "whole" else (int, float)
        return (
            isinstance(value, kinds)
            and not isinstance(value, bool)
            and (self.low is None or value >= self.low)
            and (self.high is None or value <= self.high)
        )


@dataclass(frozen=True)
class Section:
    """A table of the file; the name of the outermost is empty."""

    name: str
    meaning: str
    keys: tuple[Key, ...]

    @property
    def path(self) -> tuple[str, ...]:
        """The names that lead to it."""
        return tuple(self.name.split(".")) if self.name else ()

    @property
    def title(self) -> str:
        """What it looks like in the file."""
        return f"[{self.name}]" if self.name else "the top of the file"

    def key(self, name: str) -> Key | None:
        """Return a key by its name."""
        return next((key for key in self.keys if key.name == name), None)


def shown(value: object) -> str:
    """Return a value about as TOML writes it."""
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else str(value)


def _are_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(v, str) and v for v in value)


def _is_duration(text: str, least: int) -> bool:
    try:
        microseconds(text, least)
    except InputError:
        return False
    return True


def _flat(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return a table by dotted names: ``kafka.group.id = "a"`` is one option, not three tables."""
    flat: dict[str, Any] = {}
    for name, value in table.items():
        if isinstance(value, dict) and value:
            flat |= {f"{name}.{rest}": v for rest, v in _flat(value).items()}
        else:
            flat[name] = value
    return flat
