"""The options of the synthetic sources.

Owns what the text that Spark passes to a source means. The rows are made in
:mod:`sparkswarm.workloads.synthetic_rows`. Runs on the driver and in tasks; needs no Spark.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar

from sparkswarm.errors import ConfigError
from sparkswarm.geometry import NAMED_BOUNDS, Bounds
from sparkswarm.options import (
    BOOLEAN,
    ValueKind,
    markdown,
    number,
    options_of,
    suggestion,
    text_option,
    whole,
)
from sparkswarm.workloads import QUERY_SIDE, Hotspot, cities_density

MAX_ROWS = 10**12
"""At a row per second their microseconds still fit into 64 bits."""


@dataclass(frozen=True, slots=True)
class MovingHotspot:
    """A square that attracts a share of the rows while virtual time is in [start, stop).

    It moves from ``first.corner`` to ``last.corner`` at constant speed.
    """

    first: Hotspot
    last: Hotspot


def _limit(text: str) -> int | None:
    return int(text) if text.strip() else None


def _check_limit(value: int | None) -> int | None:
    return value if value is None else whole(1, MAX_ROWS).check(value)


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
    cities_density(bounds, 1, 1)  # fails here, not in the first task, if they contain no city
    return bounds


def _grid(text: str) -> tuple[int, int]:
    sides = [whole(1, 4000).check(int(side)) for side in text.split(",")]
    columns, rows = sides * 2 if len(sides) == 1 else sides
    return columns, rows


def _hotspots(text: str) -> tuple[MovingHotspot, ...]:
    return tuple(_hotspot(one) for one in text.split(";") if one.strip())


def _hotspot(text: str) -> MovingHotspot:
    values = [float(value) for value in text.split(",")]
    if len(values) == 6:
        values += values[:2]
    x, y, side, share, start, stop, last_x, last_y = values
    if not (start.is_integer() and stop.is_integer()):
        raise ValueError
    first = Hotspot(int(start), int(stop), side, share, share, corner=(x, y))
    return MovingHotspot(first, dataclasses.replace(first, corner=(last_x, last_y)))


def _side(value: Any) -> Any:
    if value <= 0:
        raise ValueError
    return number(0, 1).check(value)


def _same(value: Any) -> Any:
    """Return a value that reading it from text has checked already."""
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """The options of both sources. Virtual time starts at ``start`` and advances with the rows."""

    rows_per_second: int = text_option(
        "10000",
        whole(1, 10**9),
        "Rows per second of virtual time: `ts` is start + row / rowsPerSecond.",
    )
    start: datetime = text_option(
        "2025-01-01T00:00:00Z",
        ValueKind(
            "an ISO date and time from 1970 to 2999, in UTC without an offset", _same, _start
        ),
        "The event time of the first row.",
    )
    limit: int | None = text_option(
        "",
        ValueKind("empty or a whole number from 1 to 10^12", _check_limit, _limit),
        "Total number of rows; the stream is idle afterwards. Empty: endless.",
    )
    num_partitions: int = text_option(
        "2",
        whole(1, 10_000),
        "Number of tasks that read a micro-batch. The rows do not depend on it.",
    )
    seed: int = text_option("0", whole(0, 2**63 - 1), "Seed of the random numbers.")
    bounds: Bounds = text_option(
        "us",
        ValueKind(
            "us, world, or min_x,min_y,max_x,max_y in degrees with a city inside", _same, _bounds
        ),
        "The space.",
    )
    grid: tuple[int, int] = text_option(
        "1000",
        ValueKind("n or columns,rows, each from 1 to 4000", _same, _grid),
        "Resolution of the density of cities; each reading process builds it once.",
    )
    daylight: bool = text_option(
        "false", BOOLEAN, "Whether activity follows the sun, hour by hour of virtual time."
    )
    hotspot: tuple[MovingHotspot, ...] = text_option(
        "",
        ValueKind(
            "empty or x,y,side,share,start,stop or x,y,side,share,start,stop,last_x,last_y: "
            "corners and side as shares of the bounds and inside them, share from 0 to 1, whole "
            "virtual seconds 0 <= start < stop; several separated by semicolons",
            _same,
            _hotspots,
        ),
        "A square with its lower-left corner at x,y attracts this share of the rows from start "
        "to stop, and moves to last_x,last_y meanwhile if given.",
    )

    def batch_size(self, row: int) -> int:
        """Return the number of rows of the micro-batch that starts at this row."""
        raise NotImplementedError

    def total_rows(self) -> int | None:
        """Return the number of rows of the whole stream, None if it is endless."""
        return self.limit


@dataclass(frozen=True, slots=True, kw_only=True)
class CitiesOptions(SourceOptions):
    """The options of the format ``swarm_cities``."""

    rows_per_batch: int = text_option(
        "100000",
        whole(1, 10**9),
        "Points per micro-batch; with realTime the maximum.",
    )
    real_time: bool = text_option(
        "false",
        BOOLEAN,
        "Whether virtual time keeps to the wall clock, counted from each start of the stream.",
    )
    bad_rows: float = text_option(
        "0",
        number(0, 1),
        "Share of points with a NaN, infinite, out-of-bounds or null coordinate.",
    )

    def batch_size(self, row: int) -> int:
        """Return the same for every micro-batch."""
        return self.rows_per_batch


@dataclass(frozen=True, slots=True, kw_only=True)
class QueriesOptions(SourceOptions):
    """The options of the format ``swarm_queries``."""

    queries: int = text_option(
        "10000",
        whole(1, 10**9),
        "Queries that the first micro-batch registers; the number registered stays the same.",
    )
    side: float = text_option(
        str(QUERY_SIDE),
        ValueKind("a number above 0 and at most 1", _side, float),
        "Side of a query as a share of the sides of the bounds.",
    )
    churn: float = text_option(
        "0",
        number(0, 1),
        "Operations per later micro-batch, as a share of queries: in turn the oldest is "
        "unregistered, a new one registered, a random one updated. 0: none.",
    )

    def batch_size(self, row: int) -> int:
        """Return what is left to register at first, afterwards the number of changes."""
        if row < self.queries:
            return self.queries - row
        return math.ceil(self.churn * self.queries)

    def total_rows(self) -> int | None:
        """Return the number of operations; without churn the stream ends with the first batch."""
        if self.churn:
            return self.limit
        return self.queries if self.limit is None else min(self.queries, self.limit)


_Options = TypeVar("_Options", bound=SourceOptions)


def option_name(attribute: str) -> str:
    """Return the name of an option in Spark: ``rowsPerBatch`` for ``rows_per_batch``."""
    return re.sub(r"_(.)", lambda match: match[1].upper(), attribute)


def parse_options(kind: type[_Options], given: Mapping[str, str]) -> _Options:
    """Return the checked options; upper and lower case do not matter, as in Spark.

    Raises
    ------
    ConfigError
        If a name is unknown or a value not allowed; the message says what is allowed.
    """
    options = options_of(kind, option_name)
    attributes = {one.name.lower(): attribute for attribute, one in options.items()}
    values = {}
    for name, text in given.items():
        if name.lower() not in attributes:
            names = [one.name for one in options.values()]
            hint = suggestion(name, names) or f"; the options are {', '.join(names)}"
            raise ConfigError(f"there is no option {name!r} (its value is {text!r}){hint}")
        attribute = attributes[name.lower()]
        try:
            values[attribute] = options[attribute].parse(text)
        except ConfigError as error:
            raise ConfigError(f"option {error}") from error
    return kind(**values)


def options_table(kind: type[SourceOptions]) -> str:
    """Return the options that this class adds to its base class as a Markdown table."""
    inherited = options_of(SourceOptions) if kind is not SourceOptions else {}
    own = (one for name, one in options_of(kind, option_name).items() if name not in inherited)
    return markdown("option", own)
