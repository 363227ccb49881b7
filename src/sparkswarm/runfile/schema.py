"""Every table and key of a run's file: one table of names, kinds, ranges and meanings.

Owns what may stand in the file. The settings of ``[swarm]`` and the names of columns are not
stated again: they come from where they are defined.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping

from sparkswarm.config import SwarmConfig
from sparkswarm.runfile.key import Key, Kind, Section, shown
from sparkswarm.spark.columns import PointColumns, QueryColumns

METRICS_PORT = 9751
CONSOLE_ROWS = 20

INTERVAL = re.compile(r"(\d+\s+(microsecond|millisecond|second|minute|hour|day)s?\s*)+")
PLACE = re.compile(r"\w+(\.\w+)*:\w+")

_KINDS: Mapping[type, Kind] = {str: "text", bool: "switch", int: "whole", float: "number"}


def _setting_keys() -> Iterator[Key]:
    for field in dataclasses.fields(SwarmConfig):
        default, meta = field.default, field.metadata
        text = repr(list(default)) if isinstance(default, tuple) else shown(default)
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
            default = "" if field.default is None else shown(field.default)
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
    Key(
        "kind",
        "text",
        "`parquet` keeps them, `console` prints some, `noop` computes them only.",
        required=True,
        choices=("parquet", "console", "noop"),
    ),
    Key("path", "text", "Where `parquet` writes; a folder for each batch."),
    Key("rows", "whole", "How many rows `console` prints.", str(CONSOLE_ROWS), low=0),
)

_APPLICATION = (
    Key(
        "kind",
        "text",
        "Range queries with conditions and keywords, or with windows of numbers.",
        choices=("subscriptions", "aggregates"),
    ),
    Key(
        "columns",
        "columns",
        "Columns of the points: a list of those that `aggregates` may add up, or a table of those "
        "that conditions of `subscriptions` may use, each `number`, `text`, `boolean` or `time`.",
    ),
    Key("keywords", "text", "For `subscriptions`: the column of the points that has their words."),
    Key(
        "delay",
        "duration",
        "For `aggregates`: how long to wait for points that come late.",
        '"0 s"',
    ),
    Key(
        "class",
        "text",
        "Instead of `kind`: an application of your own, a class or an object. Python must find it "
        "here and on every machine, installed or by `PYTHONPATH`.",
        form=(PLACE, 'a place such as "package.module:Name"'),
    ),
    Key("arguments", "arguments", "What that class is called with, by name.", "{}"),
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
            "application",
            "What decides which points in a query's rectangle match it, see "
            "[applications.md](applications.md); without it, all do.",
            _APPLICATION,
        ),
        Section(
            "application.of",
            "What decides which points `aggregates` add up; without it, all in the rectangle.",
            tuple(key for key in _APPLICATION if key.name != "delay"),
        ),
        Section(
            "window",
            "How long points are kept for snapshot queries, operations `range` and `count` in the "
            "stream of queries; one of these keys. Without it, none are kept.",
            (
                Key("sliding", "duration", "The last so long, up to the latest point.", low=1),
                Key("tumbling", "duration", "Since the last multiple of it since 1970.", low=1),
                Key("count", "whole", "So many of the newest points.", low=1),
                Key("bytes", "whole", "The newest points of so many bytes.", low=1),
            ),
        ),
        Section(
            "sink",
            "Where results go: points that match. May be left out where there is another sink.",
            (
                *_OUTPUT,
                Key(
                    "results",
                    "text",
                    "A row for each point with its queries, or for each pair.",
                    '"points"',
                    choices=("points", "pairs"),
                ),
            ),
        ),
        Section("summaries", "Where windows of `aggregates` go, or what your own tells.", _OUTPUT),
        Section("answers", "Where answers to snapshot queries go.", _OUTPUT),
        Section(
            "quarantine",
            "Where bad rows go besides the checkpoint, which always keeps them.",
            (
                dataclasses.replace(
                    _OUTPUT[0],
                    meaning="`parquet` keeps them, `console` prints some.",
                    choices=("parquet", "console"),
                ),
                *_OUTPUT[1:],
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
        elif section.keys == _OUTPUT:
            body = "The keys are those of `[sink]`, without `results`."
        elif section.name == "application.of":
            body = "The keys are those of `[application]`, without `delay`."
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
