"""A run's file: from TOML to a :class:`~sparkswarm.runfile.parts.RunFile`, or to all its mistakes.

Owns the checks. Every mistake is named with its line, all of them at once. Nothing here starts
Spark.
"""

from __future__ import annotations

import dataclasses
import difflib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sparkswarm.apps.aggregates.application import Aggregates
from sparkswarm.apps.application import Application, Stateful
from sparkswarm.config import SwarmConfig
from sparkswarm.errors import ConfigError
from sparkswarm.runfile.application import make_application, make_window, misfits
from sparkswarm.runfile.key import Section
from sparkswarm.runfile.lines import line_numbers
from sparkswarm.runfile.parts import Output, RunFile, Serving, Source
from sparkswarm.runfile.schema import SECTIONS
from sparkswarm.spark.columns import PointColumns, QueryColumns
from sparkswarm.window.windows import Window
from sparkswarm.workloads.synthetic_options import (
    CitiesOptions,
    QueriesOptions,
    SourceOptions,
    option_name,
    parse_options,
)

SINKS = ("sink", "summaries", "answers")

SYNTHETIC: Mapping[str, type[SourceOptions]] = {
    "swarm_cities": CitiesOptions,
    "swarm_queries": QueriesOptions,
}
"""Formats whose options we know."""


@dataclass(frozen=True)
class Mistake:
    """Something wrong in a file, and the line where it stands, if it stands anywhere."""

    line: int | None
    text: str


class RunFileError(ConfigError):
    """A run's file with mistakes; the message has a line for each."""

    def __init__(self, name: str, mistakes: list[Mistake]) -> None:
        self.mistakes = sorted(mistakes, key=lambda m: m.line or 0)
        super().__init__(
            "\n".join(
                f"{name}:{m.line}: {m.text}" if m.line else f"{name}: {m.text}"
                for m in self.mistakes
            )
        )


def read_run_file(path: Path) -> RunFile:
    """Read and check a file; RunFileError names everything that is wrong with it."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise RunFileError(str(path), [Mistake(None, f"cannot be read: {reason}")]) from error
    return parse_run_file(text, str(path))


def parse_run_file(text: str, name: str = "the file") -> RunFile:
    """Check the text of a file; RunFileError names everything that is wrong with it."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise RunFileError(name, [_not_toml(text, error)]) from error
    reader = _Reader(data, line_numbers(text))
    run = reader.read()
    if reader.mistakes or run is None:
        raise RunFileError(name, reader.mistakes)
    return run


def _not_toml(text: str, error: tomllib.TOMLDecodeError) -> Mistake:
    """Say where the text stops being TOML; the reader says so at the end of its message."""
    reason, _, where = str(error).rpartition(" (at ")
    digits = "".join(c for c in where.partition(",")[0] if c.isdigit())
    line = int(digits) if digits else text.rstrip("\n").count("\n") + 1
    return Mistake(line, f"this is not TOML: {reason[:1].lower()}{reason[1:]}")


class _Reader:
    """Goes through the tables of one file and collects its mistakes."""

    def __init__(self, data: Mapping[str, Any], lines: Mapping[tuple[str, ...], int]) -> None:
        self._data = data
        self._lines = lines
        self.mistakes: list[Mistake] = []
        self._values: dict[str, dict[str, Any]] = {}

    def read(self) -> RunFile | None:
        """Return what the file says, None if mistakes leave too little of it."""
        self._tables((), self._data)
        for section in SECTIONS.values():
            self._missing(section)
        swarm = self._swarm()
        for name in (*SINKS, "quarantine"):
            self._check_output(name)
        self._check_sources()
        self._check_trigger()
        application, window = self._application("application"), self._window()
        self._check_sinks(application)
        if self.mistakes or swarm is None:
            return None
        return self._made(swarm, application, window)

    # -- one table after another -----------------------------------------------------------

    def _tables(self, path: tuple[str, ...], data: Mapping[str, Any]) -> None:
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
                    self._values[name][key] = known.check(value)
                except ConfigError as error:
                    self._mistake(inner, f"{_where(name)}{error}")
                    self._values[name].setdefault(key, None)
            elif _is_table(inner):
                if isinstance(value, dict):
                    self._tables(inner, value)
                else:
                    self._mistake(inner, f"{'.'.join(inner)} must be a table, [{'.'.join(inner)}]")
            else:
                self._mistake(inner, _unknown(section, path, key, isinstance(value, dict)))

    def _missing(self, section: Section) -> None:
        found = self._values.get(section.name)
        for key in section.keys if found is not None else ():
            if key.required and key.name not in (found or {}):
                meaning = key.meaning.replace("`", "")
                self._mistake(
                    section.path, f"{_where(section.name)}{key.name} is missing. {meaning}"
                )

    def _swarm(self) -> SwarmConfig | None:
        settings = self._values.get("swarm", {})
        if any(value is None for value in settings.values()):
            return None
        try:
            return SwarmConfig(**settings)
        except ConfigError as error:  # each is fine alone: bounds and grid do not go together
            self._mistake(("swarm", "bounds"), f"[swarm] {error}")
            return None

    # -- what several keys must agree on ---------------------------------------------------

    def _check_output(self, name: str) -> None:
        output = self._values.get(name, {})
        kind = output.get("kind")
        if kind == "parquet" and "path" not in output:
            self._mistake((name,), f'[{name}] path is missing: kind "parquet" needs a folder')
        for key, owner in (("path", "parquet"), ("rows", "console")):
            if key in output and kind not in (owner, None):
                self._mistake(
                    (name, key), f'[{name}] {key} is for kind "{owner}", and kind is "{kind}"'
                )

    def _check_sinks(self, application: Application | None) -> None:
        """See that everything goes somewhere, and that nothing is expected that never comes."""
        there = self._values.keys()
        if there.isdisjoint(SINKS):
            self._mistake((), "the table [sink] is missing; it needs kind")
        if isinstance(application, Stateful) and "summaries" not in there:
            self._mistake(
                ("application",),
                f"[application] {type(application).__name__} tells summaries: the table "
                '[summaries] is missing; if need be with kind "noop"',
            )
        # An application that could not be made is a mistake already.
        is_known = application is not None or "application" not in there
        if "summaries" in there and is_known and not isinstance(application, Stateful):
            self._mistake(
                ("summaries",),
                "[summaries] come from a stateful application only, such as [application] "
                'kind "aggregates"',
            )
        for name, missing in (("answers", "window"), ("window", "answers"), ("window", "points")):
            if name in there and missing not in there:
                self._mistake((name,), f"[{name}] makes no sense without a table [{missing}]")
        has_time = self._values.get("point_columns", {}).get("time")
        if isinstance(application, Aggregates) and "points" in there and not has_time:
            self._mistake(
                ("application",),
                "[point_columns] time is missing: aggregates need to know when points happened",
            )

    def _application(self, name: str) -> Application | None:
        """Return what a table chooses; None where it is missing or has a mistake."""
        table, path = self._values.get(name), tuple(name.split("."))
        if table is None:
            return None
        of = f"{name}.of"
        inner = self._application(of)
        wrong = list(misfits(table, of in self._values))
        for key, text in wrong:
            self._mistake((*path, key) if key else path, f"[{name}] {text}")
        if wrong or None in table.values() or (of in self._values and inner is None):
            return None
        try:
            return make_application(table, inner)
        except ConfigError as error:
            key = "class" if "class" in table else "columns"
            self._mistake((*path, key), f"[{name}] {error}")
            return None

    def _window(self) -> Window | None:
        table = self._values.get("window")
        if table is None or None in table.values():
            return None
        try:
            return make_window(table)
        except ConfigError as error:
            self._mistake(("window",), f"[window] {error}")
            return None

    def _check_sources(self) -> None:
        if "points" not in self._values and "queries" not in self._values:
            self._mistake((), "there is neither a table [points] nor [queries]; nothing to stream")
        if self._values.get("swarm", {}).get("policy") == "static_history":
            for name in ("history.points", "history.queries"):
                if name not in self._values:
                    self._mistake(
                        ("swarm", "policy"),
                        f'[swarm] policy "static_history" needs a table [{name}]',
                    )
        for name, section in SECTIONS.items():
            if section.keys is SECTIONS["points"].keys and name in self._values:
                self._check_synthetic(section)

    def _check_synthetic(self, section: Section) -> None:
        """Check options that we know; those of other formats are Spark's to check."""
        values = self._values[section.name]
        kind = SYNTHETIC.get(values.get("format") or "")
        if kind is None or values.get("options", {}) is None:
            return
        options = _texts(values.get("options", {}))
        before = len(self.mistakes)
        for name, text in options.items():
            try:
                parse_options(kind, {name: text})
            except ConfigError as error:
                said, unknown, _ = str(error).partition("; the options are")
                hint = _nearest(name, _option_names(kind)) if unknown else ""
                text = f"{said}{hint}" if hint else str(error)
                self._mistake((*section.path, "options", name), f"[{section.name}] {text}")
        if len(self.mistakes) > before:
            return
        now = self._values.get("trigger", {}).get("available_now")
        is_static = section.name not in ("points", "queries")
        if (now or is_static) and parse_options(kind, options).rows_in_all() is None:
            why = "a table that is read once" if is_static else "[trigger] available_now"
            self._mistake(
                section.path,
                f"[{section.name}] options.limit is missing: {why} needs a stream with an end",
            )

    def _check_trigger(self) -> None:
        trigger = self._values.get("trigger", {})
        if trigger.get("available_now") and "processing_time" in trigger:
            self._mistake(
                ("trigger", "available_now"),
                "[trigger] available_now and processing_time exclude each other",
            )

    # -- the result ------------------------------------------------------------------------

    def _made(
        self, swarm: SwarmConfig, application: Application | None, window: Window | None
    ) -> RunFile:
        top, spark = self._values.get("", {}), self._values.get("spark", {})
        results = self._values.get("sink", {}).pop("results", "points")
        past = [self._source(f"history.{name}") for name in ("points", "queries")]
        metrics = self._values.get("metrics")
        return RunFile(
            checkpoint=top["checkpoint"],
            results=results,
            name=top.get("name"),
            swarm=swarm,
            points=self._source("points"),
            queries=self._source("queries"),
            preload=self._source("preload"),
            history=(past[0], past[1]) if past[0] and past[1] else None,
            point_columns=PointColumns(**self._values.get("point_columns", {})),
            query_columns=QueryColumns(**self._values.get("query_columns", {})),
            application=application,
            window=window,
            trigger=self._trigger(),
            metrics=None if metrics is None else Serving(**metrics),
            sink=self._output("sink"),
            summaries=self._output("summaries"),
            answers=self._output("answers"),
            quarantine=self._output("quarantine"),
            **spark,
        )

    def _output(self, name: str) -> Output | None:
        values = self._values.get(name)
        return None if values is None else Output(**values)

    def _source(self, name: str) -> Source | None:
        values = self._values.get(name)
        if values is None:
            return None
        return Source(name, **{**values, "options": _texts(values.get("options", {}))})

    def _trigger(self) -> Mapping[str, str | bool] | None:
        trigger = self._values.get("trigger", {})
        if trigger.get("available_now"):
            return {"availableNow": True}
        if "processing_time" in trigger:
            return {"processingTime": trigger["processing_time"].strip()}
        return None

    def _mistake(self, path: tuple[str, ...], text: str) -> None:
        """Note a mistake, at the line of the innermost name that stands in the file."""
        places = (self._lines[path[:n]] for n in range(len(path), 0, -1) if path[:n] in self._lines)
        self.mistakes.append(Mistake(next(places, None), text))


def _where(section: str) -> str:
    return f"[{section}] " if section else ""


def _is_table(path: tuple[str, ...]) -> bool:
    """Say whether there is such a table, or one inside of it."""
    name = ".".join(path)
    return any(known == name or known.startswith(f"{name}.") for known in SECTIONS)


def _unknown(section: Section | None, path: tuple[str, ...], name: str, table: bool) -> str:
    """Say what to do about a name that nobody knows."""
    at = ".".join(path)
    tables = [known for known in SECTIONS if known.startswith(f"{at}." if at else "") and known]
    if table and not path:
        hint = _nearest(name, tables) or f"; there are {', '.join(tables)}"
        return f"there is no table [{name}]{hint}"
    names = [known.name for known in section.keys] if section else []
    owners = [s.title for s in SECTIONS.values() if s.key(name) and s is not section]
    hint = _nearest(name, names)
    if not hint and len(owners) == 1:
        hint = f"; it is a key of {owners[0]}"
    if not hint:
        hint = f"; there are {', '.join(names or [f'[{table}]' for table in tables])}"
    return f"{_where(at)}there is no key {name}{hint}"


def _nearest(name: str, names: list[str]) -> str:
    by_lower = {known.lower(): known for known in names}
    close = difflib.get_close_matches(name.lower(), by_lower, 1, 0.6)
    return f"; did you mean {by_lower[close[0]]}?" if close else ""


def _option_names(kind: type[SourceOptions]) -> list[str]:
    return [option_name(entry.name) for entry in dataclasses.fields(kind)]


def _texts(options: Mapping[str, Any]) -> dict[str, str]:
    """Return options as Spark takes them."""
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in options.items()
    }
