"""The options of the synthetic sources: one table of names, defaults, ranges and meanings.

Owns how the text that Spark hands over becomes checked values. It knows nothing of Spark, and
draws nothing; :mod:`sparkswarm.workloads.synthetic_rows` does.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeVar

from sparkswarm.errors import ConfigError, SparkswarmError
from sparkswarm.geometry import Bounds
from sparkswarm.workloads import CONTIGUOUS_US, QUERY_SIDE, WORLD, Hotspot, cities_density

NAMED_BOUNDS = {"us": CONTIGUOUS_US, "world": WORLD}
MOST_ROWS = 10**12
"""At a row per second their microseconds still fit into 64 bits."""


@dataclass(frozen=True, slots=True)
class MovingHotspot:
    """A square that attracts a share of the rows while virtual time is in [start, stop).

    It begins at ``first.corner`` and glides to ``last.corner``, at an even pace.
    """

    first: Hotspot
    last: Hotspot


def _whole(low: int, high: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        value = int(text)
        if not low <= value <= high:
            raise ValueError
        return value

    return parse


def _real(low: float, high: float, above: bool = False) -> Callable[[str], float]:
    def parse(text: str) -> float:
        value = float(text)
        if not low <= value <= high or (above and value == low):  # also refuses NaN
            raise ValueError
        return value

    return parse


def _switch(text: str) -> bool:
    return {"true": True, "false": False}[text.strip().lower()]


def _limit(text: str) -> int | None:
    return _whole(1, MOST_ROWS)(text) if text.strip() else None


def _start(text: str) -> datetime:
    moment = datetime.fromisoformat(text.strip())
    moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    if not 1970 <= moment.year <= 2999:
        raise ValueError
    return moment


def _bounds(text: str) -> Bounds:
    named = NAMED_BOUNDS.get(text.strip().lower())
    if named is not None:
        return named
    min_x, min_y, max_x, max_y = map(float, text.split(","))
    bounds = Bounds(min_x, min_y, max_x, max_y)
    cities_density(bounds, 1, 1)  # refuses bounds without a city now, not in the first task
    return bounds


def _grid(text: str) -> tuple[int, int]:
    sides = [_whole(1, 4000)(side) for side in text.split(",")]
    columns, rows = sides * 2 if len(sides) == 1 else sides
    return columns, rows


def _hotspots(text: str) -> tuple[MovingHotspot, ...]:
    return tuple(_hotspot(one) for one in text.split(";") if one.strip())


def _hotspot(text: str) -> MovingHotspot:
    numbers = [float(number) for number in text.split(",")]
    if len(numbers) == 6:
        numbers += numbers[:2]
    x, y, side, share, start, stop, last_x, last_y = numbers
    if not (start.is_integer() and stop.is_integer()):
        raise ValueError
    first = Hotspot(int(start), int(stop), side, share, share, corner=(x, y))
    return MovingHotspot(first, dataclasses.replace(first, corner=(last_x, last_y)))


def _option(
    default: str, parse: Callable[[str], Any], allowed: str, meaning: str
) -> dict[str, Any]:
    return {"default": default, "parse": parse, "allowed": allowed, "meaning": meaning}


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """What both sources take. Virtual time starts at ``start`` and passes with the rows."""

    rows_per_second: int = field(
        metadata=_option(
            "10000",
            _whole(1, 10**9),
            "a whole number from 1 to 10^9",
            "Rows per second of virtual time: `ts` is start + row / rowsPerSecond.",
        )
    )
    start: datetime = field(
        metadata=_option(
            "2025-01-01T00:00:00Z",
            _start,
            "an ISO date and time from 1970 to 2999, in UTC unless it says otherwise",
            "The event time of the first row.",
        )
    )
    limit: int | None = field(
        metadata=_option(
            "",
            _limit,
            "empty or a whole number from 1 to 10^12",
            "Rows in all; then the stream idles. Empty: endless.",
        )
    )
    num_partitions: int = field(
        metadata=_option(
            "2",
            _whole(1, 10_000),
            "a whole number from 1 to 10000",
            "Tasks that read a micro-batch. The rows don't depend on it.",
        )
    )
    seed: int = field(
        metadata=_option(
            "0",
            _whole(0, 2**63 - 1),
            "a whole number from 0 to 2^63 - 1",
            "Fixes all that is random.",
        )
    )
    bounds: Bounds = field(
        metadata=_option(
            "us",
            _bounds,
            "us, world, or min_x,min_y,max_x,max_y in degrees with a city inside",
            "The space.",
        )
    )
    grid: tuple[int, int] = field(
        metadata=_option(
            "1000",
            _grid,
            "n or columns,rows, each from 1 to 4000",
            "Resolution of the density of cities; each reading process builds it once.",
        )
    )
    daylight: bool = field(
        metadata=_option(
            "false",
            _switch,
            "true or false",
            "Load follows the sun, hour by hour of virtual time.",
        )
    )
    hotspot: tuple[MovingHotspot, ...] = field(
        metadata=_option(
            "",
            _hotspots,
            "empty or x,y,side,share,start,stop or x,y,side,share,start,stop,last_x,last_y: "
            "corners and side as shares of the bounds and inside them, share from 0 to 1, whole "
            "virtual seconds 0 <= start < stop; several separated by ;",
            "A square with its lower-left corner at x,y attracts this share of the rows from start "
            "to stop, gliding to last_x,last_y meanwhile if given.",
        )
    )

    def batch_size(self, row: int) -> int:
        """Return how many rows the micro-batch that starts at this row has."""
        raise NotImplementedError

    def rows_in_all(self) -> int | None:
        """Return how many rows there are, None if they never end."""
        return self.limit


@dataclass(frozen=True, slots=True, kw_only=True)
class CitiesOptions(SourceOptions):
    """The options of the format ``swarm_cities``."""

    rows_per_batch: int = field(
        metadata=_option(
            "100000",
            _whole(1, 10**9),
            "a whole number from 1 to 10^9",
            "Points of every micro-batch; with realTime the most that one may have.",
        )
    )
    real_time: bool = field(
        metadata=_option(
            "false",
            _switch,
            "true or false",
            "Virtual time waits for the wall clock, counted from when the stream (re)starts.",
        )
    )
    bad_rows: float = field(
        metadata=_option(
            "0",
            _real(0, 1),
            "a share from 0 to 1",
            "Share of points with a NaN, infinite, out-of-bounds or null coordinate.",
        )
    )

    def batch_size(self, row: int) -> int:
        """Return the same for every micro-batch."""
        return self.rows_per_batch


@dataclass(frozen=True, slots=True, kw_only=True)
class QueriesOptions(SourceOptions):
    """The options of the format ``swarm_queries``."""

    queries: int = field(
        metadata=_option(
            "10000",
            _whole(1, 10**9),
            "a whole number from 1 to 10^9",
            "Queries that the first micro-batch registers; as many stay registered.",
        )
    )
    side: float = field(
        metadata=_option(
            str(QUERY_SIDE),
            _real(0, 1, above=True),
            "a share above 0 and at most 1",
            "Side of a query as a share of the sides of the bounds.",
        )
    )
    churn: float = field(
        metadata=_option(
            "0",
            _real(0, 1),
            "a share from 0 to 1",
            "Operations of every later micro-batch, as a share of queries: by turns the oldest is "
            "unregistered, a new one registered, a random one updated. 0: none.",
        )
    )

    def batch_size(self, row: int) -> int:
        """Return what is left to register, and then what the churn asks for."""
        if row < self.queries:
            return self.queries - row
        return math.ceil(self.churn * self.queries)

    def rows_in_all(self) -> int | None:
        """Return how many operations there are: without churn they end with the first."""
        if self.churn:
            return self.limit
        return self.queries if self.limit is None else min(self.queries, self.limit)


_Options = TypeVar("_Options", bound=SourceOptions)


def option_name(attribute: str) -> str:
    """Return the name under which Spark knows an attribute: ``rowsPerBatch`` for rows_per_batch."""
    return re.sub(r"_(.)", lambda match: match[1].upper(), attribute)


def parse_options(kind: type[_Options], given: Mapping[str, str]) -> _Options:
    """Return the checked options; names are taken in any case, as Spark does.

    Raises
    ------
    ConfigError
        At an unknown name or a value that is not allowed: it says which, and what is allowed.
    """
    fields = {option_name(entry.name): entry for entry in dataclasses.fields(kind)}
    by_lower = {name.lower(): name for name in fields}
    for name, text in given.items():
        if name.lower() not in by_lower:
            raise ConfigError(
                f"there is no option {name!r} (its value is {text!r}); "
                f"the options are {', '.join(fields)}"
            )
    texts = {by_lower[name.lower()]: text for name, text in given.items()}
    values = {}
    for name, entry in fields.items():
        text = texts.get(name, entry.metadata["default"])
        try:
            values[entry.name] = entry.metadata["parse"](text)
        except (ValueError, KeyError) as error:  # our own errors are ValueErrors too
            reason = f" ({error})" if isinstance(error, SparkswarmError) else ""
            raise ConfigError(
                f"option {name} must be {entry.metadata['allowed']}; got {text!r}{reason}"
            ) from error
    return kind(**values)


def options_table(kind: type[SourceOptions]) -> str:
    """Return the options that this kind adds to its ancestor's, as a Markdown table."""
    inherited = {
        entry.name
        for base in kind.__mro__[1:]
        if dataclasses.is_dataclass(base)
        for entry in dataclasses.fields(base)
    }
    lines = ["| Option | Default | Allowed | Meaning |", "|---|---|---|---|"]
    for entry in dataclasses.fields(kind):
        if entry.name not in inherited:
            text, allowed = entry.metadata["default"], entry.metadata["allowed"]
            default = f"`{text}`" if text else "empty"
            lines.append(
                f"| `{option_name(entry.name)}` | {default} | {allowed} "
                f"| {entry.metadata['meaning']} |"
            )
    return "\n".join(lines) + "\n"
