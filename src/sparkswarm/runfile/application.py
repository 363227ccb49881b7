"""The application and the window that a run's file chooses.

Owns the way from their tables to the objects. To see whether an application can be made is to make
it: the module of a class is imported, and the class is called.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from typing import Any

from sparkswarm.apps.aggregates.application import Aggregates
from sparkswarm.apps.application import Application
from sparkswarm.apps.subscriptions.application import Subscriptions
from sparkswarm.errors import ConfigError
from sparkswarm.window.windows import Count, Size, Sliding, Tumbling, Window

KEYS_OF: Mapping[str, tuple[str, ...]] = {
    "subscriptions": ("columns", "keywords"),
    "aggregates": ("columns", "delay"),
    "class": ("arguments",),
}
"""What each kind of application may be told."""

WINDOWS: Mapping[str, type[Sliding | Tumbling | Count | Size]] = {
    "sliding": Sliding,
    "tumbling": Tumbling,
    "count": Count,
    "bytes": Size,
}


def misfits(table: Mapping[str, Any], has_inner: bool = False) -> Iterator[tuple[str, str]]:
    """Yield what does not go together in the table of an application: a key, and why.

    ``has_inner`` says whether another application stands within it. An empty key is the table.
    """
    if "class" in table and "kind" in table:
        yield "class", "kind and class exclude each other"
        return
    kind = "class" if "class" in table else table.get("kind")
    if kind is None:
        if "kind" not in table:
            yield "", 'kind is missing: "subscriptions" or "aggregates"; or a class instead'
        return
    whose = "a class" if kind == "class" else f'kind "{kind}"'
    for key in table:
        if key not in ("kind", "class", *KEYS_OF[kind]):
            yield key, f"{key} is not for {whose}, which has {' and '.join(KEYS_OF[kind])}"
    if has_inner and kind != "aggregates":
        yield "of", f'an inner application is for kind "aggregates", not for {whose}'
    columns = table.get("columns")
    if kind == "aggregates" and isinstance(columns, dict):
        yield "columns", 'columns of kind "aggregates" must be a list of strings'
    if kind == "subscriptions" and isinstance(columns, tuple):
        yield (
            "columns",
            (
                'columns of kind "subscriptions" must be a table of names and kinds, such as '
                '{ speed = "number" }'
            ),
        )


def make_application(table: Mapping[str, Any], inner: Application | None = None) -> Application:
    """Return the application that a table without misfits describes.

    Raises
    ------
    ConfigError
        If it cannot be made; where the reason is in somebody's own code, it names that.
    """
    if "class" in table:
        return _found(table["class"], table.get("arguments", {}))
    if table["kind"] == "subscriptions":
        return Subscriptions(table.get("columns", {}), table.get("keywords"))
    return Aggregates(table.get("columns", ()), table.get("delay", "0 s"), inner)


def make_window(table: Mapping[str, Any]) -> Window:
    """Return the window of a table; ConfigError where it has not exactly one."""
    if len(table) != 1:
        raise ConfigError(f"needs one of {', '.join(WINDOWS)}, got {' and '.join(table) or 'none'}")
    ((name, length),) = table.items()
    return WINDOWS[name](length)


def _found(place: str, arguments: Mapping[str, Any]) -> Application:
    """Return the application at a place such as ``package.module:Name``."""
    module, _, name = place.partition(":")
    try:
        found = getattr(importlib.import_module(module), name)
    except Exception as error:  # whatever a module does when it is imported
        raise ConfigError(f"{place} was not found: {type(error).__name__}: {error}") from error
    if isinstance(found, Application) and not arguments:
        return found
    if not callable(found):
        raise ConfigError(f"{place} is {type(found).__name__}, and no class that could be called")
    try:
        made = found(**arguments)
    except Exception as error:
        raise ConfigError(f"{place} cannot be made: {type(error).__name__}: {error}") from error
    if not isinstance(made, Application):
        raise ConfigError(f"{place} makes a {type(made).__name__}, which is no Application")
    return made
