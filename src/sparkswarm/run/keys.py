"""Every table and key of a run's file: one table of names, kinds, ranges and meanings.

Owns what may stand in the file. The settings of ``[swarm]`` and the names of columns are not
stated again: they come from where they are defined.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from sparkswarm.config import SwarmConfig
from sparkswarm.errors import ConfigError
from sparkswarm.spark.columns import PointColumns, QueryColumns

Kind = Literal["text", "texts", "whole", "number", "switch", "table", "setting"]

METRICS_PORT = 9751
CONSOLE_ROWS = 20

INTERVAL = re.compile(r"(\d+\s+(microsecond|millisecond|second|minute|hour|day)s?\s*)+")


@dataclass(frozen=True)
class Key:
    """A key that may stand in a table of the file.

    Attributes
    ----------
    name, kind
        What it is called, and what its value is. A ``setting`` is left to SwarmConfig.
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
            got = "" if isinstance(value, dict) else f", got {_shown(value)}"
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
                return isinstance(value, list) and all(isinstance(v, str) and v for v in value)
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
    required: bool = False

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


def _shown(value: object) -> str:
    """Return a value about as TOML writes it."""
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else str(value)


def _flat(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return a table by dotted names: ``kafka.group.id = "a"`` is one option, not three tables."""
    flat: dict[str, Any] = {}
    for name, value in table.items():
        if isinstance(value, dict) and value:
            flat |= {f"{name}.{rest}": v for rest, v in _flat(value).items()}
        else:
            flat[name] = value
    return flat


_KINDS: Mapping[type, Kind] = {str: "text", bool: "switch", int: "whole", float: "number"}


def _setting_keys() -> Iterator[Key]:
    for field in dataclasses.fields(SwarmConfig):
        default, meta = field.default, field.metadata
        text = repr(list(default)) if isinstance(default, tuple) else _shown(default)
        yield Key(
            field.name,
            _KINDS.get(type(default), "setting"),
            meta["meaning"],
            text,
            low=meta["low"],
            high=meta["high"],
            choices=meta["choices"],
        )


def _column_keys(kind: type[PointColumns] | type[QueryColumns]) -> Iterator[Key]:
    for field in dataclasses.fields(kind):
        if field.name == "keep":
            yield Key("keep", "texts", "Other columns that come back in the results.", "[]")
        else:
            default = "" if field.default is None else _shown(field.default)
            yield Key(field.name, "text", f"What the column `{field.name}` is called.", default)


_SOURCE = (
    Key(
        "format",
        "text",
        "A format that Spark reads: `parquet`, `json`, `csv`, `kafka`, `swarm_cities`, …",
        required=True,
    ),
    Key("path", "text", "Where the files are, for formats of files."),
    Key("schema", "text", 'Columns and types, as in `"id BIGINT, x DOUBLE, y DOUBLE"`.'),
    Key(
        "options",
        "table",
        "The format's own options, also how much a batch may have: `maxFilesPerTrigger`, "
        "`maxOffsetsPerTrigger`, `rowsPerBatch`.",
        "{}",
    ),
    Key("select", "texts", "SQL expressions that make the columns out of what is read.", "[]"),
)

_OUTPUT = (
    Key("path", "text", "Where `parquet` writes; a folder for each batch."),
    Key("rows", "whole", "How many rows `console` prints.", str(CONSOLE_ROWS), low=0),
)

SECTIONS: Mapping[str, Section] = {
    section.name: section
    for section in (
        Section(
            "",
            "At the top of the file, before any table.",
            (
                Key(
                    "checkpoint",
                    "text",
                    "A folder for all that must survive. The same folder goes on with the run.",
                    required=True,
                ),
                Key("name", "text", "The stream's name in Spark's user interface."),
            ),
        ),
        Section("swarm", "How SWARM divides and balances the space.", tuple(_setting_keys())),
        Section(
            "spark",
            "The Spark session.",
            (
                Key("master", "text", "Where Spark runs; without it, what Spark is told elsewhere "
                    "or `local[*]`."),
                Key("app_name", "text", "The application's name.", '"sparkswarm"'),
                Key("conf", "table", "Settings of Spark, by its names.", "{}"),
            ),
        ),
        Section("points", "The stream of points.", _SOURCE),
        Section("queries", "The stream of operations on queries.", _SOURCE),
        Section("preload", "Queries to register before the first batch, read once.", _SOURCE),
        Section("history.points", "Past points, for the policy `static_history`.", _SOURCE),
        Section("history.queries", "Past queries, for the policy `static_history`.", _SOURCE),
        Section(
            "point_columns",
            "What the columns of `[points]` are called.",
            tuple(_column_keys(PointColumns)),
        ),
        Section(
            "query_columns",
            "What the columns of `[queries]` and `[preload]` are called.",
            tuple(_column_keys(QueryColumns)),
        ),
        Section(
            "sink",
            "Where results go.",
            (
                Key(
                    "kind",
                    "text",
                    "`parquet` keeps results, `console` prints some, `noop` computes them only.",
                    required=True,
                    choices=("parquet", "console", "noop"),
                ),
                *_OUTPUT,
                Key(
                    "results",
                    "text",
                    "A row for each point with its queries, or for each pair.",
                    '"points"',
                    choices=("points", "pairs"),
                ),
            ),
            required=True,
        ),
        Section(
            "quarantine",
            "Where bad rows go besides the checkpoint, which always keeps them.",
            (
                Key(
                    "kind",
                    "text",
                    "`parquet` keeps them, `console` prints some.",
                    required=True,
                    choices=("parquet", "console"),
                ),
                *_OUTPUT,
            ),
        ),
        Section(
            "trigger",
            "When batches begin; without it, each as soon as the last is done.",
            (
                Key(
                    "processing_time",
                    "text",
                    "A batch begins so often.",
                    form=(INTERVAL, 'a time such as "10 seconds" or "1 minute"'),
                ),
                Key(
                    "available_now",
                    "switch",
                    "Read what the sources have now, then end.",
                    "false",
                ),
            ),
        ),
        Section(
            "metrics",
            "Numbers for Prometheus; without this table none are served.",
            (
                Key(
                    "port",
                    "whole",
                    "Where they are served; 0 takes any port that is free.",
                    str(METRICS_PORT),
                    low=0,
                    high=65535,
                ),
                Key(
                    "host",
                    "text",
                    "The address to serve at. Others than this machine see what is served at "
                    "another one.",
                    '"127.0.0.1"',
                ),
            ),
        ),
    )
}  # fmt: skip
"""All tables of the file, in the order of the docs."""


def keys_tables() -> str:
    """Return all tables and keys as Markdown, for docs/run.md."""
    parts = []
    for section in SECTIONS.values():
        if section.name == "swarm":
            body = (
                "All settings of [settings.md](settings.md), by their names; `bounds` and `grid` "
                "are lists."
            )
        elif section.keys == _SOURCE and section.name != "points":
            body = "The keys are those of `[points]`."
        else:
            rows = [
                f"| `{key.name}` | {_default(key)} | {key.allowed} | {key.meaning} |"
                for key in section.keys
            ]
            body = "\n".join(["| key | default | allowed | meaning |", "|---|---|---|---|", *rows])
        title = f"`[{section.name}]`" if section.name else "The top"
        parts.append(f"### {title}\n\n{section.meaning}\n\n{body}\n")
    return "\n".join(parts)


def _default(key: Key) -> str:
    if key.required:
        return "**required**"
    return f"`{key.default}`" if key.default else "none"
