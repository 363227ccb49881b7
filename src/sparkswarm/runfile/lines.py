"""Line numbers of the tables and keys of a TOML file, for error messages.

``tomllib`` does not give them. The text must have been accepted by ``tomllib`` before.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping

Path = tuple[str, ...]
"""The names that lead to a value, such as ``("swarm", "grid")``."""

_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_NAME = re.compile(r'[A-Za-z0-9_-]+|"(?:[^"\\]|\\.)*"|\'[^\']*\'')
_TEXT = re.compile(
    r'"""(?:[^\\]|\\.)*?"""+|\'\'\'.*?\'\'\'+|"(?:[^"\\]|\\.)*"|\'[^\']*\'', re.DOTALL
)
_BARE = re.compile(r"[^,\]}#\n]*")


def line_numbers(text: str) -> Mapping[Path, int]:
    """Return the line of each table and key, counted from 1.

    A table that appears only as part of longer names has the line of the first of them. Values
    inside of arrays have no lines.
    """
    return _Scanner(text).scan()


class _Scanner:
    """Scans the text once, from name to name."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._found: dict[Path, int] = {}

    def scan(self) -> Mapping[Path, int]:
        table: Path = ()
        while self._next():
            if self._text[self._at] == "[":
                brackets = 2 if self._text.startswith("[[", self._at) else 1
                self._at += brackets
                table = self._names(())
                self._next()
                self._at += brackets
            else:
                self._pair(table)
        return self._found

    def _next(self) -> bool:
        """Skip blanks, line ends and comments; return whether anything follows."""
        self._at = self._match(_BLANK).end()
        return self._at < len(self._text)

    def _match(self, pattern: re.Pattern[str]) -> re.Match[str]:
        found = pattern.match(self._text, self._at)
        if found is None:
            raise ValueError(f"not TOML at {self._at}")
        return found

    def _names(self, table: Path) -> Path:
        """Read a name, which may be dotted, and record its line."""
        path = table
        while True:
            self._next()
            found = self._match(_NAME)
            name = found[0]
            path = (*path, _plain(name) if name[0] in "\"'" else name)
            line = self._text.count("\n", 0, self._at) + 1
            self._found.setdefault(path, line)
            self._at = found.end()
            self._next()
            if self._text[self._at] != ".":
                return path
            self._at += 1

    def _pair(self, table: Path) -> None:
        path = self._names(table)
        self._at += 1  # the equals sign, where _names stopped
        self._next()
        self._value(path)

    def _value(self, path: Path | None) -> None:
        """Skip a value; record the names in an inline table unless it is in an array."""
        first = self._text[self._at]
        if first in "\"'":
            self._at = self._match(_TEXT).end()
        elif first == "[":
            self._items("]", lambda: self._value(None))
        elif first == "{":
            self._items("}", lambda: self._pair(path) if path is not None else self._unrecorded())
        else:
            self._at = self._match(_BARE).end()

    def _items(self, end: str, item: Callable[[], None]) -> None:
        self._at += 1
        while self._next() and self._text[self._at] != end:
            item()
            self._next()
            if self._text[self._at] == ",":
                self._at += 1
        self._at += 1

    def _unrecorded(self) -> None:
        found = self._found
        self._found = {}
        self._pair(())
        self._found = found


def _plain(quoted: str) -> str:
    """Return a quoted name without its quotes."""
    return str(tomllib.loads(f"name = {quoted}")["name"])
