"""Reads a run file: from TOML to a :class:`~sparkswarm.runfile.schema.RunFile`.

Owns the checks that concern several keys, and how tables become objects. All mistakes are reported
at once, each with its line. Runs on the driver before Spark is started. An application of the
user's own is checked by making it: its module is imported and its class called.
"""

from __future__ import annotations

import importlib
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sparkswarm.apps.aggregates.application import Aggregates
from sparkswarm.apps.application import Application
from sparkswarm.apps.events.settings import Events, Nearest
from sparkswarm.apps.subscriptions.application import Subscriptions
from sparkswarm.config import SwarmConfig
from sparkswarm.errors import ConfigError
from sparkswarm.options import Option, suggestion
from sparkswarm.runfile.lines import line_numbers
from sparkswarm.runfile.schema import (
    EVENT_KEYS,
    FENCES,
    NEAREST_KEYS,
    SECTIONS,
    SINK_KEYS,
    SOURCE_KEYS,
    MetricsSpec,
    RunFile,
    Section,
    SinkSpec,
    SourceSpec,
    toml,
)
from sparkswarm.spark.columns import PointColumns, QueryColumns
from sparkswarm.window.windows import WINDOWS, Window
from sparkswarm.workloads.synthetic_options import (
    CitiesOptions,
    QueriesOptions,
    SourceOptions,
    parse_options,
)

SINKS = ("sink", "summaries", "answers", "events", "nearest", "positions")

SINK_KEYS_OF: Mapping[str, tuple[str, str]] = {
    "path": ("parquet", "a folder"),
    "rows": ("console", ""),
    "servers": ("kafka", "addresses of brokers"),
    "topic": ("kafka", "a topic"),
    "transactional_id": ("kafka", "a name for its writer"),
    "options": ("kafka", ""),
}
"""Which kind of sink each key is for, and, where it is required, what is missing without it."""

SYNTHETIC: Mapping[str, type[SourceOptions]] = {
    "swarm_cities": CitiesOptions,
    "swarm_queries": QueriesOptions,
}
"""Formats whose options are checked here; Spark checks those of other formats."""

KEYS_BY_KIND: Mapping[str, tuple[str, ...]] = {
    "subscriptions": ("columns", "keywords"),
    "aggregates": ("columns", "watermark_delay"),
    "class": ("arguments",),
}
"""The keys of each kind of application."""


@dataclass(frozen=True)
class Mistake:
    """Something wrong in a file, and its line if there is one."""

    line: int | None
    text: str


class RunFileError(ConfigError):
    """A run file with mistakes; the message has a line for each."""

    def __init__(self, name: str, mistakes: list[Mistake]) -> None:
        self.mistakes = sorted(mistakes, key=lambda m: m.line or 0)
        lines = (f"{name}{f':{m.line}' if m.line else ''}: {m.text}" for m in self.mistakes)
        super().__init__("\n".join(lines))


def read_run_file(path: Path) -> RunFile:
    """Read and check a file; RunFileError reports everything that is wrong with it."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise RunFileError(str(path), [Mistake(None, f"cannot be read: {reason}")]) from error
    return parse_run_file(text, str(path))


def parse_run_file(text: str, name: str = "the file") -> RunFile:
    """Check the text of a file; RunFileError reports everything that is wrong with it."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise RunFileError(name, [_not_toml(text, error)]) from error
    reader = _Reader(data, line_numbers(text))
    run = reader.read()
    if run is None:
        raise RunFileError(name, reader.mistakes)
    return run


def _not_toml(text: str, error: tomllib.TOMLDecodeError) -> Mistake:
    """Return a syntax error with its line, which is at the end of the parser's message."""
    reason, _, where = str(error).rpartition(" (at ")
    digits = "".join(c for c in where.partition(",")[0] if c.isdigit())
    line = int(digits) if digits else text.rstrip("\n").count("\n") + 1
    return Mistake(line, f"this is not TOML: {reason[:1].lower()}{reason[1:]}")


class _Reader:
    """Goes through the tables of one file and collects its mistakes.

    A value that is not allowed is None in ``_values``.
    """

    def __init__(self, data: Mapping[str, Any], lines: Mapping[tuple[str, ...], int]) -> None:
        self._data = data
        self._lines = lines
        self._values: dict[str, dict[str, Any]] = {}
        self.mistakes: list[Mistake] = []

    def read(self) -> RunFile | None:
        """Return the contents of the file; None if it has mistakes."""
        self._read_table((), self._data)
        for section in SECTIONS.values():
            self._check_required(section)
        swarm = self._swarm()
        for name in (*SINKS, "quarantine"):
            self._check_sink(name)
        self._check_sources()
        trigger = self._trigger()
        application, window = self._application("application"), self._window()
        self._check_outputs(application)
        reported = self._events(application)
        if self.mistakes or swarm is None:
            return None
        past = [self._source(f"history.{name}") for name in ("points", "queries")]
        metrics = self._values.get("metrics")
        return RunFile(
            **self._values[""],
            **self._values.get("spark", {}),
            swarm=swarm,
            points=self._source("points"),
            queries=self._source("queries"),
            preload=self._source("preload"),
            history=(past[0], past[1]) if past[0] and past[1] else None,
            point_columns=PointColumns(**self._values.get("point_columns", {})),
            query_columns=QueryColumns(**self._values.get("query_columns", {})),
            application=application,
            window=window,
            trigger=trigger,
            metrics=None if metrics is None else MetricsSpec(**metrics),
            results=self._values.get("sink", {}).pop("results", "points"),
            sink=self._sink("sink"),
            summaries=self._sink("summaries"),
            answers=self._sink("answers"),
            events=self._sink("events"),
            nearest=self._sink("nearest"),
            positions=self._sink("positions"),
            reported=reported,
            quarantine=self._sink("quarantine"),
        )

    # -- one table after another -----------------------------------------------------------

    def _read_table(self, path: tuple[str, ...], data: Mapping[str, Any]) -> None:
        """Check every key of a table and of the tables in it."""
        name = ".".join(path)
        section = SECTIONS.get(name)
        if section:
            self._values[name] = {}
        for key, value in data.items():
            inner = (*path, key)
            known = section.key(key) if section else None
            if known:
                try:
                    self._values[name][key] = known.check(value, toml)
                except ConfigError as error:
                    self._mistake(inner, f"{_prefix(name)}{error}")
                    self._values[name][key] = None
            elif _is_table(inner):
                if isinstance(value, dict):
                    self._read_table(inner, value)
                else:
                    self._mistake(inner, f"{'.'.join(inner)} must be a table, [{'.'.join(inner)}]")
            else:
                self._mistake(inner, _unknown(section, path, key, isinstance(value, dict)))

    def _check_required(self, section: Section) -> None:
        for key in section.keys if section.name in self._values else ():
            if key.is_required and key.name not in self._values[section.name]:
                meaning = key.meaning.replace("`", "")
                text = f"{_prefix(section.name)}{key.name} is missing. {meaning}"
                self._mistake(section.path, text)

    def _swarm(self) -> SwarmConfig | None:
        settings = self._values.get("swarm", {})
        if None in settings.values():
            return None
        try:
            return SwarmConfig(**settings)
        except ConfigError as error:  # each is allowed, but there is no such grid
            key = "bounds" if "bounds" in settings else "grid"
            self._mistake(("swarm", key), f"[swarm] {error}")
            return None

    # -- what several keys must agree on ---------------------------------------------------

    def _check_sink(self, name: str) -> None:
        sink = self._values.get(name, {})
        kind = sink.get("kind")
        for key, (owner, needed) in SINK_KEYS_OF.items():
            if needed and kind == owner and key not in sink:
                text = f'[{name}] {key} is missing: kind "{kind}" needs {needed}'
                self._mistake((name,), text)
            if key in sink and kind not in (owner, None):
                text = f'[{name}] {key} is for kind "{owner}", and kind is "{kind}"'
                self._mistake((name, key), text)

    def _check_outputs(self, application: Application | None) -> None:
        """Check that there is a sink for every output and an output for every sink."""
        tables = self._values.keys()
        if tables.isdisjoint(SINKS):
            self._mistake((), "the table [sink] is missing; it needs kind")
        stateful = application.stateful if application else None
        if stateful and "summaries" not in tables:
            self._mistake(
                ("application",),
                f"[application] {type(application).__name__} has summaries: the table [summaries] "
                'is missing; kind "noop" discards them',
            )
        # An application that could not be made is a mistake already.
        is_known = application is not None or "application" not in tables
        if "summaries" in tables and is_known and not stateful:
            self._mistake(
                ("summaries",),
                '[summaries] needs a stateful application, such as [application] kind "aggregates"',
            )
        for name, missing in (("answers", "window"), ("window", "answers"), ("window", "points")):
            if name in tables and missing not in tables:
                self._mistake((name,), f"[{name}] needs a table [{missing}]")
        has_time = self._values.get("point_columns", {}).get("time")
        if isinstance(application, Aggregates) and "points" in tables and not has_time:
            self._mistake(
                ("application",),
                "[point_columns] time is missing: aggregates need the event time of points",
            )

    def _check_sources(self) -> None:
        if "points" not in self._values and "queries" not in self._values:
            self._mistake((), "there is neither a table [points] nor [queries]; nothing to stream")
        if self._values.get("swarm", {}).get("policy") == "static_history":
            for name in ("history.points", "history.queries"):
                if name not in self._values:
                    text = f'[swarm] policy "static_history" needs a table [{name}]'
                    self._mistake(("swarm", "policy"), text)
        for name, section in SECTIONS.items():
            if section.keys is SOURCE_KEYS and name in self._values:
                self._check_synthetic(section)
                self._check_fences(section)

    def _check_fences(self, section: Section) -> None:
        """Check a source that reads files of fences."""
        values = self._values[section.name]
        if values.get("format") != FENCES:
            return
        if section.name != "preload":
            text = f'[{section.name}] format "{FENCES}" is read once, so it is for [preload] only'
            self._mistake((*section.path, "format"), text)
        if "path" not in values:
            text = f'[{section.name}] path is missing: format "{FENCES}" needs a file'
            self._mistake(section.path, text)
        for name in values.get("options") or {}:
            if name != "id":
                text = f'[{section.name}] format "{FENCES}" has no option {name}, only id'
                self._mistake((*section.path, "options", name), text)

    def _check_synthetic(self, section: Section) -> None:
        """Check the options of the synthetic sources."""
        values = self._values[section.name]
        kind = SYNTHETIC.get(values.get("format") or "")
        if kind is None or values.get("options", {}) is None:
            return
        options = _spark_options(values.get("options", {}))
        is_right = True
        for name, text in options.items():
            try:
                parse_options(kind, {name: text})
            except ConfigError as error:
                self._mistake((*section.path, "options", name), f"[{section.name}] {error}")
                is_right = False
        now = self._values.get("trigger", {}).get("available_now")
        is_static = section.name not in ("points", "queries")
        if is_right and (now or is_static) and parse_options(kind, options).total_rows() is None:
            why = "a table that is read once" if is_static else "[trigger] available_now"
            text = f"[{section.name}] options.limit is missing: {why} needs a stream with an end"
            self._mistake(section.path, text)

    # -- tables to objects -----------------------------------------------------------------

    def _application(self, name: str) -> Application | None:
        """Return the application of a table; None if there is no table or it has a mistake."""
        table, path = self._values.get(name), tuple(name.split("."))
        if table is None:
            return None
        of = f"{name}.of"
        inner = self._application(of)
        wrong = list(_misfits(table, of in self._values))
        for key, text in wrong:
            self._mistake((*path, key) if key else path, f"[{name}] {text}")
        if wrong or None in table.values() or (of in self._values and inner is None):
            return None
        try:
            if "class" in table:
                return _import_application(table["class"], table.get("arguments", {}))
            if table["kind"] == "subscriptions":
                return Subscriptions(table.get("columns", {}), table.get("keywords"))
            return Aggregates(table.get("columns", ()), table.get("watermark_delay", "0 s"), inner)
        except ConfigError as error:
            key = "class" if "class" in table else "columns"
            self._mistake((*path, key), f"[{name}] {error}")
            return None

    def _window(self) -> Window | None:
        table = self._values.get("window")
        if table is None or None in table.values():
            return None
        if len(table) != 1:
            text = f"needs one of {', '.join(WINDOWS)}, got {' and '.join(table) or 'none'}"
            self._mistake(("window",), f"[window] {text}")
            return None
        ((name, length),) = table.items()
        return WINDOWS[name](length)

    def _sink(self, name: str) -> SinkSpec | None:
        values = self._values.get(name)
        if values is None:
            return None
        return SinkSpec(**{key.name: values[key.name] for key in SINK_KEYS if key.name in values})

    def _events(self, application: Application | None) -> Events | None:
        """Return which events are reported; None if there is no table or it has a mistake."""
        table, asked = self._values.get("events"), self._values.get("nearest")
        for name in ("nearest", "positions"):
            if name in self._values and table is None:
                self._mistake((name,), f"[{name}] needs a table [events]")
        if table is None:
            return None
        if "points" not in self._values:
            self._mistake(("events",), "[events] needs a table [points]")
        elif not self._values.get("point_columns", {}).get("time"):
            text = "[point_columns] time is missing: events need the times of points"
            self._mistake(("events",), text)
        if "cross" in table and application is not None:
            text = "[events] cross cannot be reported beside an [application]; leave out either"
            self._mistake(("events", "cross"), text)
        nearest = None
        try:
            if asked is not None:
                nearest = Nearest(**_chosen(asked, NEAREST_KEYS))
        except ConfigError as error:
            self._mistake(("nearest",), f"[nearest] {error}")
        try:
            return Events(**_chosen(table, EVENT_KEYS), nearest=nearest)
        except ConfigError as error:
            self._mistake(("events",), f"[events] {error}")
            return None

    def _source(self, name: str) -> SourceSpec | None:
        values = self._values.get(name)
        if values is None:
            return None
        options = _spark_options(values.get("options", {}))
        return SourceSpec(table=name, **{**values, "options": options})

    def _trigger(self) -> Mapping[str, str | bool] | None:
        trigger = self._values.get("trigger", {})
        interval = trigger.get("processing_time")
        if trigger.get("available_now"):
            if "processing_time" in trigger:
                text = "[trigger] available_now and processing_time exclude each other"
                self._mistake(("trigger", "available_now"), text)
            return {"availableNow": True}
        return {"processingTime": interval.strip()} if interval else None

    def _mistake(self, path: tuple[str, ...], text: str) -> None:
        """Add a mistake, at the line of the innermost name of the path that is in the file."""
        lines = (self._lines[path[:n]] for n in range(len(path), 0, -1) if path[:n] in self._lines)
        self.mistakes.append(Mistake(next(lines, None), text))


def _chosen(values: Mapping[str, Any], keys: Iterable[Option]) -> dict[str, Any]:
    """Return the values of some keys, those that are allowed."""
    given = {key.name: values.get(key.name) for key in keys}
    return {name: value for name, value in given.items() if value is not None}


def _misfits(table: Mapping[str, Any], has_inner: bool) -> Iterator[tuple[str, str]]:
    """Yield what does not fit together in the table of an application: a key, and why.

    ``has_inner`` is whether it has a table ``of``. An empty key is the table itself.
    """
    if "class" in table and "kind" in table:
        yield "class", "kind and class exclude each other"
        return
    kind = "class" if "class" in table else table.get("kind")
    if kind is None:
        if "kind" not in table:
            yield "", 'kind is missing: "subscriptions" or "aggregates"; or a class instead'
        return
    owner = "a class" if kind == "class" else f'kind "{kind}"'
    allowed = KEYS_BY_KIND[kind]
    for key in table:
        if key not in ("kind", "class", *allowed):
            yield key, f"{key} is not for {owner}, which has {' and '.join(allowed)}"
    if has_inner and kind != "aggregates":
        yield "of", f'an inner application is for kind "aggregates", not for {owner}'
    columns = table.get("columns")
    if kind == "aggregates" and isinstance(columns, dict):
        yield "columns", 'columns of kind "aggregates" must be a list of strings'
    if kind == "subscriptions" and isinstance(columns, tuple):
        expected = 'a table of names and kinds, such as { speed = "number" }'
        yield "columns", f'columns of kind "subscriptions" must be {expected}'


def _import_application(place: str, arguments: Mapping[str, Any]) -> Application:
    """Return the application at a place such as ``package.module:Name``."""
    module, _, name = place.partition(":")
    try:
        found = getattr(importlib.import_module(module), name)
    except Exception as error:  # user code
        raise ConfigError(f"{place} was not found: {type(error).__name__}: {error}") from error
    if isinstance(found, Application) and not arguments:
        return found
    if not callable(found):
        raise ConfigError(f"{place} is of type {type(found).__name__}, which cannot be called")
    try:
        made = found(**arguments)
    except Exception as error:  # user code
        raise ConfigError(f"{place} cannot be made: {type(error).__name__}: {error}") from error
    if not isinstance(made, Application):
        raise ConfigError(f"{place} makes a {type(made).__name__}, which is no Application")
    return made


def _prefix(section: str) -> str:
    return f"[{section}] " if section else ""


def _is_table(path: tuple[str, ...]) -> bool:
    """Return whether there is such a table, or one inside of it."""
    name = ".".join(path)
    return any(known == name or known.startswith(f"{name}.") for known in SECTIONS)


def _unknown(section: Section | None, path: tuple[str, ...], name: str, is_table: bool) -> str:
    """Return the message about an unknown name."""
    parent = ".".join(path)
    tables = [
        known for known in SECTIONS if known.startswith(f"{parent}." if path else "") and known
    ]
    if is_table and not path:
        hint = suggestion(name, tables) or f"; there are {', '.join(tables)}"
        return f"there is no table [{name}]{hint}"
    if section and name in section.renamed:
        return f"{_prefix(parent)}{name} was renamed to {section.renamed[name]}"
    names = [known.name for known in section.keys] if section else []
    owners = [s.title for s in SECTIONS.values() if s.key(name) and s is not section]
    hint = suggestion(name, names)
    if not hint and len(owners) == 1:
        hint = f"; it is a key of {owners[0]}"
    if not hint:
        hint = f"; there are {', '.join(names or [f'[{table}]' for table in tables])}"
    return f"{_prefix(parent)}there is no key {name}{hint}"


def _spark_options(options: Mapping[str, Any]) -> dict[str, str]:
    """Return options as text, which Spark takes."""
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in options.items()
    }
