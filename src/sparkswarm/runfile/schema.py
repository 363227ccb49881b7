"""The tables and keys of a run file, and the objects that its tables become.

Owns what may stand in the file. A table that becomes an object is declared by the fields of its
dataclass; the settings of ``[swarm]``, the names of columns and the windows come from where they
are defined.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from sparkswarm.apps.application import Application
from sparkswarm.apps.events.settings import Events, Nearest
from sparkswarm.config import RENAMED_SETTINGS, SwarmConfig
from sparkswarm.errors import InputError
from sparkswarm.options import (
    BOOLEAN,
    REQUIRED,
    Option,
    ValueKind,
    choice,
    markdown,
    number,
    option,
    options_of,
    whole,
)
from sparkswarm.spark.columns import RENAMED_COLUMNS, PointColumns, QueryColumns
from sparkswarm.window.durations import microseconds
from sparkswarm.window.windows import WINDOWS, Window

METRICS_PORT = 9751

FENCES = "fences"
"""Format of files that :func:`sparkswarm.read_fences` reads."""

# -- kinds of values ---------------------------------------------------------------------------


def _text(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError
    return value


def _texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise ValueError
    return tuple(map(_text, value))


def _columns(value: object) -> tuple[str, ...] | dict[str, str]:
    if isinstance(value, dict):
        return {_text(name): _text(kind) for name, kind in value.items()}
    return _texts(value)


def _table(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError
    return value


def _flat(value: object) -> dict[str, str | int | float | bool]:
    """Return a table by dotted names: ``kafka.group.id = "a"`` is one option, not three tables."""
    flat: dict[str, str | int | float | bool] = {}
    for name, inner in _table(value).items():
        if isinstance(inner, dict) and inner:
            flat |= {f"{name}.{rest}": v for rest, v in _flat(inner).items()}
        elif isinstance(inner, str | int | float):
            flat[name] = inner
        else:
            raise ValueError
    return flat


def _pattern(regex: str, allowed: str) -> ValueKind:
    compiled = re.compile(regex)

    def check(value: object) -> str:
        if not compiled.fullmatch(_text(value).strip()):
            raise ValueError
        return _text(value)

    return ValueKind(allowed, check)


def _duration(least: int = 0) -> ValueKind:
    def check(value: object) -> str:
        text = _text(value)
        try:
            microseconds(text, least)
        except InputError:
            raise ValueError from None
        return text

    allowed = 'a time such as "90 s" or "10 minutes"' + ", more than 0" * least
    return ValueKind(allowed, check, brief="time" + ", > 0" * least)


TEXT = ValueKind("a string that is not empty", _text, brief="string")
TEXTS = ValueKind("a list of strings", _texts, brief="strings")
COLUMNS = ValueKind(
    "a list of strings, or a table of strings", _columns, brief="list or table of strings"
)
VALUES = ValueKind("a table of strings, numbers, true and false", _flat, brief="table")
TABLE = ValueKind("a table", _table, brief="table")
CLASS = _pattern(r"\w+(\.\w+)*:\w+", 'a place such as "package.module:Name"')
INTERVAL = _pattern(
    r"(\d+\s+(microsecond|millisecond|second|minute|hour|day)s?\s*)+",
    'a time such as "10 seconds" or "1 minute"',
)

# -- the objects that tables become ------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class SourceSpec:
    """What Spark reads; ``table`` is the name of its table in the file."""

    table: str
    format: str = option(
        REQUIRED,
        TEXT,
        "A format that Spark reads: `parquet`, `json`, `csv`, `kafka`, `swarm_cities`, …; for "
        "`[preload]` also `fences`: GeoJSON, GeoParquet or a shapefile, with the option `id`, the "
        "property or column with the ids.",
    )
    path: str | None = option(None, TEXT, "Folder of the files, for formats of files.")
    schema: str | None = option(
        None, TEXT, 'Columns and types, as in `"id BIGINT, x DOUBLE, y DOUBLE"`.'
    )
    options: Mapping[str, str] = option(
        {},
        VALUES,
        "Options of the format, among them the size of a batch: `maxFilesPerTrigger`, "
        "`maxOffsetsPerTrigger`, `rowsPerBatch`.",
    )
    select: tuple[str, ...] = option(
        (), TEXTS, "SQL expressions that make the columns from what is read."
    )


@dataclass(frozen=True)
class SinkSpec:
    """Where rows are written."""

    kind: Literal["parquet", "kafka", "console", "noop"] = option(
        REQUIRED,
        choice("parquet", "kafka", "console", "noop"),
        "`parquet` writes files, `kafka` writes JSON to a topic, `console` prints some rows, "
        "`noop` computes and discards them.",
    )
    path: str | None = option(None, TEXT, "Folder of `parquet`; each batch gets a subfolder.")
    rows: int = option(20, whole(0), "Maximum number of rows that `console` prints.")
    servers: str | None = option(None, TEXT, "Addresses of the brokers of `kafka`, `host:port`.")
    topic: str | None = option(None, TEXT, "Topic of `kafka`.")
    transactional_id: str | None = option(
        None, TEXT, "Name of the writer of `kafka`: one for each sink of each run, never changed."
    )
    options: Mapping[str, str | int | float | bool] = option(
        {}, VALUES, "More settings of the producer of `kafka`, such as `security.protocol`."
    )


@dataclass(frozen=True)
class MetricsSpec:
    """Where metrics are served."""

    port: int = option(METRICS_PORT, whole(0, 65535), "Port of the server; 0 is any free port.")
    host: str = option(
        "127.0.0.1",
        TEXT,
        "Address of the server. Metrics at an address other than the default are visible to "
        "other machines.",
    )


@dataclass(frozen=True, kw_only=True)
class RunFile:
    """The contents of a run file, checked: the arguments of :meth:`sparkswarm.Swarm.start`."""

    checkpoint: str = option(
        REQUIRED,
        TEXT,
        "A folder for everything that must survive a restart. A run with the same folder continues "
        "where the last one stopped.",
    )
    name: str | None = option(None, TEXT, "Name of the stream in Spark's user interface.")
    sink: SinkSpec | None = None
    summaries: SinkSpec | None = None
    answers: SinkSpec | None = None
    quarantine: SinkSpec | None = None
    events: SinkSpec | None = None
    nearest: SinkSpec | None = None
    positions: SinkSpec | None = None
    results: Literal["points", "pairs"] = "points"
    swarm: SwarmConfig = field(default_factory=SwarmConfig)
    master: str | None = None
    app_name: str = "sparkswarm"
    conf: Mapping[str, str | int | float | bool] = field(default_factory=dict)
    points: SourceSpec | None = None
    queries: SourceSpec | None = None
    preload: SourceSpec | None = None
    history: tuple[SourceSpec, SourceSpec] | None = None
    point_columns: PointColumns = field(default_factory=PointColumns)
    query_columns: QueryColumns = field(default_factory=QueryColumns)
    application: Application | None = None
    window: Window | None = None
    reported: Events | None = None
    """Which events are reported."""
    trigger: Mapping[str, str | bool] | None = None
    metrics: MetricsSpec | None = None


# -- the tables --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Section:
    """A table of the file; the name of the outermost is empty."""

    name: str
    meaning: str
    keys: tuple[Option, ...]
    renamed: Mapping[str, str] = field(default_factory=dict)
    """Former names of keys, and the present ones."""

    @property
    def path(self) -> tuple[str, ...]:
        """The names that lead to it."""
        return tuple(self.name.split(".")) if self.name else ()

    @property
    def title(self) -> str:
        """How the file writes it."""
        return f"[{self.name}]" if self.name else "the top of the file"

    def key(self, name: str) -> Option | None:
        """Return a key by its name."""
        return next((key for key in self.keys if key.name == name), None)


def _key(name: str, kind: ValueKind, meaning: str, default: object = None) -> Option:
    return Option(name=name, kind=kind, meaning=meaning, default=default)


def _keys(owner: type) -> tuple[Option, ...]:
    return tuple(options_of(owner).values())


def _column_keys(owner: type[PointColumns] | type[QueryColumns]) -> Iterator[Option]:
    for column in dataclasses.fields(owner):
        if column.name == "include":
            kind, meaning = TEXTS, "Other columns to include in the results."
        else:
            kind, meaning = TEXT, f"Name of the column `{column.name}`."
        yield Option(name=column.name, kind=kind, meaning=meaning, default=column.default)


WINDOW_VALUES: Mapping[str, ValueKind] = {"duration": _duration(1), "whole": whole(1)}

SOURCE_KEYS, SINK_KEYS = _keys(SourceSpec), _keys(SinkSpec)

APPLICATION_KEYS = (
    _key(
        "kind",
        choice("subscriptions", "aggregates"),
        "Range queries with conditions and keywords, or with numbers over windows of time.",
    ),
    _key(
        "columns",
        COLUMNS,
        "Columns of the points. For `aggregates` a list of the columns to aggregate. For "
        "`subscriptions` a table of the columns that conditions may use, each `number`, `text`, "
        "`boolean` or `time`.",
    ),
    _key(
        "keywords",
        TEXT,
        "For `subscriptions`: the column of the points that contains their keywords.",
    ),
    _key(
        "watermark_delay",
        _duration(),
        "For `aggregates`: how long to wait for points that arrive late.",
        "0 s",
    ),
    _key(
        "class",
        CLASS,
        "Instead of `kind`: an application of your own, a class or an object. Python must "
        "find it here and on every machine, installed or on `PYTHONPATH`.",
    ),
    _key("arguments", TABLE, "Keyword arguments for that class.", {}),
)

EVENT_KEYS = (
    _key("dwell", _duration(1), "Report `dwell` after this time in a query."),
    _key(
        "silent_after",
        _duration(1),
        "An object without a point for longer than this leaves its queries and is forgotten.",
        Events().silent_after,
    ),
    _key("inside", BOOLEAN, "Report `inside` for every further point in a query.", False),
    _key(
        "cross",
        number(0),
        "Report `cross` for queries that an object passed through between two points, which are "
        "at most this far apart, in units of the coordinates.",
    ),
)

NEAREST_KEYS = (
    _key("k", whole(1), "Maximum number of objects, where a query's own is null.", Nearest().k),
    _key("within", number(0), "Largest distance, in units of the coordinates."),
    _key("within_m", number(0), "Instead of `within`: largest distance in metres, for degrees."),
)

SECTIONS: Mapping[str, Section] = {
    section.name: section
    for section in (
        Section("", "At the top of the file, before any table.", _keys(RunFile)),
        Section(
            "swarm",
            "How SWARM divides and balances the space.",
            _keys(SwarmConfig),
            RENAMED_SETTINGS,
        ),
        Section(
            "spark",
            "The Spark session.",
            (
                _key(
                    "master",
                    TEXT,
                    "Where Spark runs; by default what Spark is configured with, or `local[*]`.",
                ),
                _key("app_name", TEXT, "Name of the application.", "sparkswarm"),
                _key("conf", VALUES, "Configuration of Spark.", {}),
            ),
        ),
        Section("points", "The stream of points.", SOURCE_KEYS),
        Section("queries", "The stream of operations on queries.", SOURCE_KEYS),
        Section("preload", "Queries to register before the first batch, read once.", SOURCE_KEYS),
        Section("history.points", "Past points, for the policy `static_history`.", SOURCE_KEYS),
        Section("history.queries", "Past queries, for the policy `static_history`.", SOURCE_KEYS),
        Section(
            "point_columns",
            "Names of the columns of `[points]`.",
            tuple(_column_keys(PointColumns)),
            RENAMED_COLUMNS,
        ),
        Section(
            "query_columns",
            "Names of the columns of `[queries]` and `[preload]`.",
            tuple(_column_keys(QueryColumns)),
        ),
        Section(
            "application",
            "Which points in a query's rectangle match it, see "
            "[queries.md](queries.md); by default all do.",
            APPLICATION_KEYS,
            {"delay": "watermark_delay"},
        ),
        Section(
            "application.of",
            "Which points `aggregates` aggregate; by default all in the rectangle.",
            tuple(key for key in APPLICATION_KEYS if key.name != "watermark_delay"),
        ),
        Section(
            "window",
            "Which recent points are kept for snapshot queries (operations `range` and `count` in "
            "the stream of queries); exactly one of these keys. By default none are kept.",
            tuple(_key(w.name, WINDOW_VALUES[w.takes], w.meaning) for w in WINDOWS.values()),
        ),
        Section(
            "sink",
            "Where results are written: points that match. Optional if there is another sink.",
            (
                *SINK_KEYS,
                _key(
                    "results",
                    choice("points", "pairs"),
                    "A row per point with all its queries, or per pair of point and query.",
                    "points",
                ),
            ),
        ),
        Section(
            "summaries",
            "Where the output of a stateful application, such as `aggregates`, is written.",
            SINK_KEYS,
        ),
        Section("answers", "Where answers to snapshot queries are written.", SINK_KEYS),
        Section(
            "events",
            "Which [events](events.md) between objects and queries are reported, and where they "
            "are written. `[point_columns]` must name the `time`.",
            (*SINK_KEYS, *EVENT_KEYS),
        ),
        Section(
            "nearest",
            "What queries that are a `POINT` ask for: the objects [nearest](events.md#nearest) to "
            "them, and where answers are written when they change.",
            (*SINK_KEYS, *NEAREST_KEYS),
        ),
        Section(
            "positions",
            "Where answers to questions about objects are written: operations `inside`, `where` "
            "and `nearest` in the stream of queries.",
            SINK_KEYS,
        ),
        Section(
            "quarantine",
            "Where rejected rows are written in addition to the checkpoint, which always has them.",
            (
                dataclasses.replace(
                    SINK_KEYS[0],
                    kind=choice("parquet", "console"),
                    meaning="`parquet` writes files, `console` prints some rows.",
                ),
                *(key for key in SINK_KEYS if key.name in ("path", "rows")),
            ),
        ),
        Section(
            "trigger",
            "When batches start; by default each as soon as the previous one is done.",
            (
                _key("processing_time", INTERVAL, "Time between starts of batches."),
                _key("available_now", BOOLEAN, "Read what the sources have now, then stop.", False),
            ),
        ),
        Section(
            "metrics",
            "A server of metrics for Prometheus; without this table there is none.",
            _keys(MetricsSpec),
        ),
    )
}
"""All tables of the file, in the order of the docs."""


def toml(value: object) -> str:
    """Return a value about as TOML writes it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return str(list(value))
    return f'"{value}"' if isinstance(value, str) else str(value)


def keys_tables() -> str:
    """Return all tables and keys as Markdown, for docs/reference/run-file.md."""
    parts = []
    for section in SECTIONS.values():
        if section.name == "swarm":
            body = "All [settings](settings.md) by their names; `bounds` and `grid` are lists.\n"
        elif section.name in ("point_columns", "query_columns"):
            name = section.name.title().replace("_", "")
            body = f"The fields of [`{name}`](engine.md#points-and-queries), as strings.\n"
        elif section.keys == SOURCE_KEYS and section.name != "points":
            body = "The keys are those of `[points]`.\n"
        elif section.name in ("events", "nearest"):
            fields = ", ".join(f"`{key.name}`" for key in section.keys[len(SINK_KEYS) :])
            owner = section.name.title()
            body = "The keys are those of `[sink]`, without `results`, and the fields of "
            body += f"[`{owner}`](api.md#events): {fields}.\n"
        elif section.keys == SINK_KEYS:
            body = "The keys are those of `[sink]`, without `results`.\n"
        elif section.name == "application.of":
            body = "The keys are those of `[application]`, without `watermark_delay`.\n"
        else:
            body = markdown("key", section.keys, toml)
        title = f"`[{section.name}]`" if section.name else "The top"
        parts.append(f"### {title}\n\n{section.meaning}\n\n{body}")
    return "\n".join(parts)
