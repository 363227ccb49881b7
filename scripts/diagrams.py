"""Draw the Mermaid diagrams of the docs as SVG while the site is built.

Mermaid itself is a script that sites load from elsewhere. This knows the few forms that our
pages use and fails on any other: flowcharts, sequences of messages, and state machines, which
are drawn like sequences, a column for each state and a row for each transition. Colours are
the page's own, so that a diagram suits its dark and its light scheme.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import pairwise
from typing import Any, NoReturn

FENCE = re.compile(r"^```mermaid\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CHARACTER, LINE, PAD = 7.0, 17, 12
"""Pixels: the mean width of a character, the height of a line, the room around a text."""
HEAD = (
    '<svg width="0" height="0" class="diagram"><defs><marker id="head" viewBox="0 0 8 8" '
    'refX="7.5" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
    '<path d="M0,0 L8,4 L0,8 z"/></marker></defs></svg>\n\n'
)
"""The head of all arrows of a page."""
ROW, GAP = 34, 44
"""Pixels: the height of a row of messages, the least room between two boxes."""


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replace every Mermaid block of a page by its picture; MkDocs calls this as a hook."""
    once = iter([HEAD])
    return FENCE.sub(lambda found: next(once, "") + draw(found[1]), markdown)


def draw(source: str) -> str:
    """Return a diagram as SVG.

    Raises
    ------
    ValueError
        If a line has a form that this does not know.
    """
    head, *lines = (line.strip() for line in source.strip().splitlines())
    lines = [line for line in lines if line and not line.startswith("direction ")]
    if head == "sequenceDiagram":
        return _draw_columns(*_read_sequence(lines))
    if head == "stateDiagram-v2":
        return _draw_columns(*_read_states(lines))
    if head.startswith("flowchart "):
        return _draw_flowchart(*_read_flowchart(lines))
    return _unknown(head)


def _unknown(line: str) -> NoReturn:
    raise ValueError(f"scripts/diagrams.py cannot draw this line of a Mermaid diagram: {line!r}")


def _lines(text: str) -> list[str]:
    return text.replace("<br/>", "\n").split("\n")


def _width(text: str) -> float:
    return max(len(line) for line in _lines(text)) * CHARACTER


def _text(x: float, y: float, text: str, kind: str = "") -> str:
    """Return a text whose middle is at x, y, of one line or several."""
    lines = _lines(text)
    top = y - LINE * (len(lines) - 1) / 2 + 4.5
    spans = "".join(
        f'<tspan x="{x:.1f}" y="{top + LINE * i:.1f}">{escape(line)}</tspan>'
        for i, line in enumerate(lines)
    )
    return f'<text class="{kind}" text-anchor="middle">{spans}</text>'


def _box(left: float, top: float, width: float, height: float, kind: str) -> str:
    return (
        f'<rect class="{kind}" x="{left:.1f}" y="{top:.1f}" '
        f'width="{width:.1f}" height="{height:.1f}" rx="5"/>'
    )


def _line(points: Iterable[tuple[float, float]], dashed: bool = False, arrow: bool = True) -> str:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    kind = ("dashed " if dashed else "") + ("arrow" if arrow else "lifeline")
    return f'<polyline class="{kind}" points="{path}"/>'


def _picture(width: float, height: float, names: Iterable[str], parts: Sequence[str]) -> str:
    # On one line, because Markdown would take an indented one for code.
    label = ", ".join(" ".join(_lines(name)) for name in names)
    return (
        f'<div class="diagram-frame"><svg class="diagram" role="img" '
        f'aria-label="A diagram of: {escape(label)}" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'style="width:{width:.0f}px" xmlns="http://www.w3.org/2000/svg">'
        + "".join(parts)
        + "</svg></div>\n"
    )


# Columns: participants and their messages, or states and their transitions.


@dataclass(frozen=True)
class Arrow:
    """A message from one column to another, or a note over some columns."""

    first: str
    last: str
    text: str
    note: bool = False


def _read_sequence(lines: Iterable[str]) -> tuple[dict[str, str], list[Arrow]]:
    columns: dict[str, str] = {}
    rows = []
    for line in lines:
        if found := re.fullmatch(r"participant (\w+) as (.+)", line):
            columns[found[1]] = found[2]
        elif found := re.fullmatch(r"(\w+)->>(\w+): (.+)", line):
            rows.append(Arrow(found[1], found[2], found[3]))
        elif found := re.fullmatch(r"Note over (\w+)(?:,(\w+))?: (.+)", line):
            rows.append(Arrow(found[1], found[2] or found[1], found[3], note=True))
        else:
            _unknown(line)
    return columns, rows


def _read_states(lines: Iterable[str]) -> tuple[dict[str, str], list[Arrow]]:
    columns: dict[str, str] = {}
    rows = []
    first = ""
    for line in lines:
        if found := re.fullmatch(r'state "(.+)" as (\w+)', line):
            columns[found[2]] = found[1]
        elif found := re.fullmatch(r"\[\*\] --> (\w+)", line):
            first = found[1]
        elif found := re.fullmatch(r"(\w+) --> (\w+): (.+)", line):
            rows.append(Arrow(found[1], found[2], found[3]))
            for name in found[1], found[2]:
                columns.setdefault(name, name)
        else:
            _unknown(line)
    if first:
        columns[first] = f"● {columns[first]}"
    return columns, rows


def _draw_columns(columns: dict[str, str], rows: list[Arrow]) -> str:
    names = list(columns)
    gaps = [GAP / 2 + (_width(columns[a]) + _width(columns[b])) / 2 + 2 * PAD
            for a, b in pairwise(names)]  # fmt: skip
    start, end = (_width(columns[name]) / 2 + PAD for name in (names[0], names[-1]))
    for row in rows:
        low, high = sorted((names.index(row.first), names.index(row.last)))
        need = _width(row.text) + 2 * PAD + (0 if row.note else 12)
        if low < high:
            gaps[high - 1] += max(0, need - sum(gaps[low:high]))
        elif row.note:
            start = max(start, need / 2) if low == 0 else start
            end = max(end, need / 2) if low == len(gaps) else end
        elif low < len(gaps):
            gaps[low] = max(gaps[low], need + 24)
        else:
            end = max(end, need + 24)
    at = [start + 1]
    for gap in gaps:
        at.append(at[-1] + gap)
    height = LINE * max(len(_lines(label)) for label in columns.values()) + PAD
    parts, y = [], height + 8.0
    for row in rows:
        low, high = sorted((names.index(row.first), names.index(row.last)))
        room = ROW + LINE * (len(_lines(row.text)) - 1)
        if row.note:
            wide = max(_width(row.text) + 2 * PAD, at[high] - at[low] + 2 * PAD)
            middle = (at[low] + at[high]) / 2
            parts.append(_box(middle - wide / 2, y + 3, wide, room - 4, "note"))
            parts.append(_text(middle, y + room / 2, row.text))
        elif low == high:
            x = at[low]
            parts.append(_line([(x, y + 10), (x + 20, y + 10), (x + 20, y + 24), (x + 1, y + 24)]))
            parts.append(_text(x + 28 + _width(row.text) / 2, y + 17, row.text))
        else:
            here, there = at[names.index(row.first)], at[names.index(row.last)]
            parts.append(_line([(here, y + 25), (there, y + 25)]))
            parts.append(_text((here + there) / 2, y + 14, row.text))
        y += room
    heads = []
    for x, label in zip(at, columns.values(), strict=True):
        wide = _width(label) + 2 * PAD
        heads += [
            _line([(x, height), (x, y + 6)], arrow=False),
            _box(x - wide / 2, 1, wide, height, "box"),
            _text(x, 1 + height / 2, label, "name"),
        ]
    return _picture(at[-1] + end + PAD, y + 8, columns.values(), heads + parts)


# Flowcharts: from top to bottom; what a subgraph holds goes from left to right.


@dataclass(eq=False)
class Node:
    """A box with a text, or one that holds others."""

    name: str
    text: str
    inside: list[Node] = field(default_factory=list)
    left: float = 0
    top: float = 0
    width: float = 0
    height: float = 0

    @property
    def middle(self) -> float:
        """Where its centre is, from left to right."""
        return self.left + self.width / 2

    def move(self, right: float, down: float) -> None:
        """Move it with all that it holds."""
        self.left += right
        self.top += down
        for node in self.inside:
            node.move(right, down)

    def all(self) -> list[Node]:
        """Return it and all that it holds."""
        return [self, *(node for child in self.inside for node in child.all())]


@dataclass(frozen=True)
class Edge:
    """An arrow from one node to another."""

    first: str
    last: str
    text: str
    dashed: bool


_NODE = r'(\w+)(?:\(\[(.+?)\]\)|\[\("?(.+?)"?\)\]|\["?(.+?)"?\])?'
_EDGE = re.compile(r'\s*(-->|-\.->)(?:\|"?(.+?)"?\|)?\s*')


def _read_flowchart(lines: Iterable[str]) -> tuple[list[Node], list[Edge]]:
    nodes: dict[str, Node] = {}
    top: list[Node] = []
    open_: list[Node] = []
    edges: list[Edge] = []

    def named(source: str) -> str:
        found = re.fullmatch(_NODE, source) or _unknown(source)
        text = found[2] or found[3] or found[4]
        node = nodes.setdefault(found[1], Node(found[1], found[1]))
        node.text = text or node.text
        if open_ and node in top:  # named before its subgraph was
            top.remove(node)
        if node not in top and not any(node in other.inside for other in nodes.values()):
            (open_[-1].inside if open_ else top).append(node)
        return node.name

    waiting = []
    for line in lines:
        if found := re.fullmatch(r'subgraph (\w+)\["(.+)"\]', line):
            named(found[1])
            nodes[found[1]].text = found[2]
            open_.append(nodes[found[1]])
        elif line == "end":
            open_.pop()
        else:
            parts = _EDGE.split(line)
            chain = [named(part) for part in parts[::3]]
            waiting.append((chain, parts[1::3], parts[2::3]))
    for chain, kinds, texts in waiting:
        for a, b, kind, text in zip(chain, chain[1:], kinds, texts, strict=False):
            edges.append(Edge(a, b, text or "", kind == "-.->"))
    return top, edges


def _ranks(nodes: list[Node], edges: list[Edge]) -> dict[int, list[Node]]:
    """Return the nodes by the length of the longest way to them; what they hold counts as them."""
    home = {inner.name: node.name for node in nodes for inner in node.all()}
    ways = {(home.get(e.first), home.get(e.last)) for e in edges}
    rank = {node.name: 0 for node in nodes}
    for _ in nodes:
        for first, last in ways:
            if first != last and first and last:
                rank[last] = max(rank[last], rank[first] + 1)
    rows: dict[int, list[Node]] = {}
    for node in nodes:
        rows.setdefault(rank[node.name], []).append(node)
    return dict(sorted(rows.items()))


def _measure(node: Node, edges: list[Edge]) -> None:
    """Give a node its size, and those in it their places from left to right."""
    if not node.inside:
        node.width = _width(node.text) + 2 * PAD
        node.height = LINE * len(_lines(node.text)) + PAD
        return
    x, bottom = float(PAD), 0.0
    for column in _ranks(node.inside, edges).values():
        names = {inner.name for inner in column}
        texts = [_width(edge.text) + PAD for edge in edges if edge.text and edge.first in names]
        y = LINE + 1.5 * PAD
        for inner in column:
            _measure(inner, edges)
            inner.move(x - inner.left, y - inner.top)
            y += inner.height + PAD
        gap = max([GAP, *texts])
        x += max(inner.width for inner in column) + gap
        bottom = max(bottom, y)
    node.width = max(x - gap + PAD, _width(node.text) + 2 * PAD)
    node.height = bottom


def _draw_flowchart(top: list[Node], edges: list[Edge]) -> str:
    rows = list(_ranks(top, edges).values())
    for node in top:
        _measure(node, edges)
    wide = max(sum(node.width + GAP for node in row) for row in rows)
    rail = 60.0
    y = 2.0
    for row in rows:
        x = rail + (wide - sum(node.width + GAP for node in row) + GAP) / 2
        for node in row:
            node.move(x, y)
            x += node.width + GAP
        y += max(node.height for node in row) + GAP
    where = {node.name: node for root in top for node in root.all()}
    home = {node.name: root for root in top for node in root.all()}
    level = {node.name: i for i, row in enumerate(rows) for root in row for node in root.all()}
    parts = []
    for root in top:
        for node in root.all():
            parts.append(_box(node.left, node.top, node.width, node.height,
                              "group" if node.inside else "box"))  # fmt: skip
            middle = node.top + (PAD if node.inside else node.height / 2)
            parts.append(_text(node.middle, middle + (4 if node.inside else 0), node.text,
                               "name" if node.inside else ""))  # fmt: skip
    for edge in edges:
        first, last = where[edge.first], where[edge.last]
        if home[edge.first] is home[edge.last]:
            start = first.left + first.width, first.top + first.height / 2
            stop = last.left, last.top + last.height / 2
            parts.append(_line([start, stop], edge.dashed))
            if edge.text:
                parts.append(
                    _text((start[0] + stop[0]) / 2, max(start[1], stop[1]) + 12, edge.text)
                )
            continue
        low, high = home[edge.first], home[edge.last]
        start = first.middle, low.top + low.height
        stop = last.middle, high.top
        if level[edge.last] - level[edge.first] > 1:
            way = [(low.left, low.top + low.height / 2), (rail / 2, low.top + low.height / 2),
                   (rail / 2, high.top + 20), (high.left, high.top + 20)]  # fmt: skip
            parts.append(_line(way, edge.dashed))
            parts.append(
                _text(rail / 2 + 8 + _width(edge.text) / 2, low.top + low.height + 22, edge.text)
            )
        else:
            parts.append(_line([start, stop], edge.dashed))
            if edge.text:
                middle = (start[0] + stop[0]) / 2 + _width(edge.text) / 2 + PAD
                parts.append(_text(middle, (start[1] + stop[1]) / 2, edge.text))
    names = [node.text for root in top for node in root.all()]
    return _picture(wide + rail, y - GAP + 4, names, parts)
