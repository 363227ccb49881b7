"""Typed options: one table holds the name, default, range, unit and meaning of each.

Owns the checks of single values, the wording of their errors and the Markdown tables in the docs.
The settings (:mod:`sparkswarm.config`), the options of the synthetic sources and the keys of a run
file are declared with it, mostly as fields of dataclasses. Runs anywhere.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from sparkswarm.errors import ConfigError, SparkswarmError

REQUIRED: Any = dataclasses.MISSING
"""Default of an option that has to be given."""


@dataclass(frozen=True, slots=True)
class ValueKind:
    """A type of value.

    Attributes
    ----------
    allowed
        Completes the sentence "must be …".
    check
        Returns the value to use; raises ValueError, KeyError or TypeError if it is not allowed.
    from_text
        Converts text to a value for ``check``, for options that are always text.
    brief
        What tables show instead of ``allowed``.
    """

    allowed: str
    check: Callable[[Any], Any]
    from_text: Callable[[str], object] = str
    brief: str = ""


def whole(low: int | None = None, high: int | None = None) -> ValueKind:
    """Return the kind of integers within a range, both ends included."""
    allowed = "a whole number" + _range(low, high)
    check = functools.partial(_number, (int,), low, high)
    return ValueKind(allowed, check, int, _brief_range(low, high) or "integer")


def number(low: float | None = None, high: float | None = None) -> ValueKind:
    """Return the kind of numbers within a range, both ends included; never NaN."""
    allowed = "a number" + _range(low, high)
    check = functools.partial(_number, (int, float), low, high)
    return ValueKind(allowed, check, float, _brief_range(low, high) or "number")


def numbers(count: int, of_integers: bool = False) -> ValueKind:
    """Return the kind of sequences with this many numbers."""
    kinds = (int,) if of_integers else (int, float)

    def check(value: object) -> tuple[float, ...]:
        if not isinstance(value, tuple | list) or len(value) != count:
            raise ValueError
        if not all(isinstance(v, kinds) and not isinstance(v, bool) for v in value):
            raise ValueError
        return tuple(value)

    return ValueKind(f"{count} {'whole numbers' if of_integers else 'numbers'}", check)


def choice(*names: str) -> ValueKind:
    """Return the kind of strings that are one of these."""

    def check(value: object) -> str:
        if not isinstance(value, str) or value not in names:
            raise ValueError
        return value

    quoted = ", ".join(f'"{name}"' for name in names)
    return ValueKind(f"one of {quoted}", check, brief=quoted)


def _boolean(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError
    return value


BOOLEAN = ValueKind(
    "true or false", _boolean, lambda text: {"true": True, "false": False}[text.strip().lower()]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """A named value that a user may set; ``default`` is written as the user would write it."""

    name: str = ""
    kind: ValueKind
    meaning: str
    default: object = None
    unit: str = ""

    @property
    def is_required(self) -> bool:
        """Whether it has to be given."""
        return self.default is REQUIRED

    def check(self, value: Any, written: Callable[[object], str] = repr) -> Any:
        """Return the value to use; ConfigError gives the name, the value and what is allowed."""
        try:
            return self.kind.check(value)
        except (ValueError, KeyError, TypeError) as error:
            raise self._refusal(value, error, written) from error

    def parse(self, text: str) -> Any:
        """Return the value of a text; ConfigError as in :meth:`check`."""
        try:
            return self.kind.check(self.kind.from_text(text))
        except (ValueError, KeyError, TypeError) as error:
            raise self._refusal(text, error, repr) from error

    def _refusal(
        self, value: object, error: Exception, written: Callable[[object], str]
    ) -> ConfigError:
        # A table may hold a password beside what is wrong with it.
        got = "" if isinstance(value, Mapping) else f", got {written(value)}"
        reason = f" ({error})" if isinstance(error, SparkswarmError) else ""
        return ConfigError(f"{self.name} must be {self.kind.allowed}{got}{reason}")


def option(default: Any, kind: ValueKind, meaning: str, unit: str = "") -> Any:
    """Return a dataclass field that is an option; ``default`` may be :data:`REQUIRED`."""
    metadata = {"option": Option(kind=kind, meaning=meaning, default=default, unit=unit)}
    if isinstance(default, dict):
        return dataclasses.field(default_factory=default.copy, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def text_option(default: str, kind: ValueKind, meaning: str) -> Any:
    """Return a dataclass field that is an option whose values, as its default, are text."""
    value = kind.check(kind.from_text(default))
    metadata = {"option": Option(kind=kind, meaning=meaning, default=default)}
    return dataclasses.field(default=value, metadata=metadata)


def options_of(owner: type, name_of: Callable[[str], str] = str) -> Mapping[str, Option]:
    """Return the options among the fields of a dataclass, by the fields' names."""
    return {
        field.name: dataclasses.replace(field.metadata["option"], name=name_of(field.name))
        for field in dataclasses.fields(owner)
        if "option" in field.metadata
    }


_Class = TypeVar("_Class", bound=type)


def renamed_fields(names: Mapping[str, str]) -> Callable[[_Class], _Class]:
    """Make a dataclass refuse former names of its fields with an error that gives the new one."""

    def decorate(owner: _Class) -> _Class:
        init = owner.__init__  # type: ignore[misc]

        @functools.wraps(init)
        def __init__(self: object, *args: Any, **values: Any) -> None:  # noqa: N807
            for name in values:
                if name in names:
                    raise ConfigError(f"{name} was renamed to {names[name]}")
            init(self, *args, **values)

        owner.__init__ = __init__  # type: ignore[misc]
        return owner

    return decorate


def suggestion(name: str, names: Iterable[str]) -> str:
    """Return "; did you mean …?" with the most similar name; empty if none is similar."""
    by_lower = {known.lower(): known for known in names}
    close = difflib.get_close_matches(name.lower(), by_lower, 1, 0.6)
    return f"; did you mean {by_lower[close[0]]}?" if close else ""


def markdown(
    title: str,
    options: Iterable[Option],
    written: Callable[[object], str] = str,
) -> str:
    """Return options as a Markdown table; ``title`` heads the column of their names."""
    head = [title, "default", "allowed", "meaning"]
    rows = [head, ["---"] * len(head)]
    for one in options:
        default = written(one.default) if one.default not in (None, "") else ""
        shown = "**required**" if one.is_required else f"`{default}`" if default else "none"
        allowed = one.kind.brief or one.kind.allowed
        rows.append([f"`{one.name}`", f"{shown} {one.unit}".strip(), allowed, one.meaning])
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _number(types: Any, low: float | None, high: float | None, value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, types):
        raise ValueError
    least = -math.inf if low is None else low
    if not least <= value <= (math.inf if high is None else high):  # NaN is not either
        raise ValueError
    return value


def _range(low: float | None, high: float | None) -> str:
    if high is None:
        return "" if low is None else f" of at least {_short(low)}"
    return f" from {_short(low or 0)} to {_short(high)}"


def _brief_range(low: float | None, high: float | None) -> str:
    if high is None:
        return "" if low is None else f"≥ {_short(low)}"
    return f"{_short(low or 0)} to {_short(high)}"


def _short(value: float) -> str:
    digits = len(str(value)) - 1
    if isinstance(value, int):
        return f"10^{digits}" if digits > 5 and value == 10**digits else str(value)
    return f"{value:g}"
