"""Fill the parts of docs/ that come from the code: ``make docs``.

A page says where: what stands between ``<!-- generated: NAME -->`` and ``<!-- end -->`` is
replaced by the block of that name. A test compares the pages with what this script would write.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from typer.main import get_command

from sparkswarm.cli import app
from sparkswarm.config import settings_table
from sparkswarm.observe.metrics import metrics_table
from sparkswarm.protocol.decision import diagram
from sparkswarm.runfile.schema import keys_tables
from sparkswarm.spark.session import spark_settings_table
from sparkswarm.workloads.synthetic_options import (
    CitiesOptions,
    QueriesOptions,
    SourceOptions,
    options_table,
)

ROOT = Path(__file__).resolve().parent.parent
DOCS, SOURCE = ROOT / "docs", ROOT / "src" / "sparkswarm"
BLOCK = re.compile(r"(<!-- generated: ([\w-]+) -->\n).*?(?=<!-- end -->)", re.DOTALL)


def pages() -> dict[str, str]:
    """Return the text of every page with generated blocks, by its path under docs/."""
    found = {}
    for path in sorted(DOCS.rglob("*.md")):
        text = path.read_text(encoding="utf-8")
        if BLOCK.search(text):
            filled = BLOCK.sub(lambda block: f"{block[1]}\n{BLOCKS[block[2]]().strip()}\n\n", text)
            found[path.relative_to(DOCS).as_posix()] = filled
    return found


# -- commands ----------------------------------------------------------------------------------


USERS = ("demo", "run", "explain", "map", "doctor")
"""The commands whose options are described; those of the others are in their help."""


def commands() -> str:
    """Return a section for each command that users need, a line for others, none for benchmarks."""
    parts, others = [], []
    for name, command in _commands(get_command(app), "sparkswarm"):
        about = _unwrapped(command.help)
        if name.split()[1] == "bench":
            continue
        if name.split()[1] not in USERS:
            others.append(f"- `{name}`: {about.splitlines()[0]}")
            continue
        places = [p for p in command.params if p.param_type_name == "argument"]
        words = [(p.metavar or p.name.upper()).strip("[]").split("|")[0] for p in places]
        usage = [w if p.required else f"[{w}]" for w, p in zip(words, places, strict=True)]
        parts.append(f"\n## `{' '.join([name, *usage])}`\n\n{about}\n")
        parts += [f"- `{w}`: {p.help}" for w, p in zip(words, places, strict=True)]
        parts += [_described(p) for p in command.params if p.param_type_name != "argument"]
    return "\n".join([*parts, "\n## The simulator\n", *others])


def _commands(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    if hasattr(command, "commands"):
        for inner, child in command.commands.items():
            yield from _commands(child, f"{name} {inner}")
    else:
        yield name, command


def _described(option: Any) -> str:
    """Return an option with its values, its default and its meaning."""
    value = f" {option.metavar}" if option.metavar else ""
    names = ", ".join(f"`{name}{value}`" for name in [*option.opts, *option.secondary_opts])
    limits = ", ".join(part for part in (_allowed(option), _default(option)) if part)
    return f"- {names}{f' ({limits})' if limits else ''}: {option.help}"


def _unwrapped(text: str) -> str:
    """Return a help text without the line breaks and marks of a terminal."""
    return "\n\n".join(" ".join(part.split()) for part in text.replace("\b", "").split("\n\n"))


def _allowed(option: Any) -> str:
    """Return the values that an option may have, where it has limits."""
    kind = option.type_descriptor.annotation
    if get_origin(kind) is Literal:
        return ", ".join(f"`{choice}`" for choice in get_args(kind))
    low, high = option.min, option.max
    if low is not None and high is not None:
        return f"{low:g} to {high:g}"
    return "" if low is None else f"at least {low:g}"


def _default(option: Any) -> str:
    """Return the default of an option of a command."""
    if option.default is None or option.default is False:
        return ""
    if option.default is True:
        return f"default `{option.opts[0]}`"
    shown = str(option.default)
    return "default: all" if shown.count(",") > 3 else f"default `{shown}`"


def five_stages() -> str:
    """Return the diagram of the five stages; what the page says in words would crowd it."""
    lines = [line for line in diagram().splitlines() if "beta times" not in line]
    return "\n".join(["```mermaid", *lines, "```"])


# -- modules -----------------------------------------------------------------------------------

ROLE = re.compile(r":\w+:`~?([\w.]+)`")
LISTED = ("spark", "spark/driver", "spark/tasks", "store")
"""Packages whose modules are listed: those that a point and an operation pass on Spark."""


def modules() -> str:
    """Return the first lines of the docstrings of some packages and their modules."""
    parts = []
    for name in LISTED:
        folder = SOURCE / name
        parts.append(f"\n## `{name}`\n\n{_first_line(folder / '__init__.py')}\n")
        for path in sorted(folder.glob("*.py")):
            if not path.name.startswith("__"):
                parts.append(f"- `{path.stem}`: {_without_name(_first_line(path), path.stem)}")
    return "\n".join(parts)


def _without_name(line: str, name: str) -> str:
    """Return a line without a first word that only repeats the module's name."""
    first, colon, rest = line.partition(": ")
    same = colon and first.lower().removeprefix("a ").replace(" ", "_") == name
    return rest[0].upper() + rest[1:] if same else line


def _first_line(path: Path) -> str:
    """Return the first paragraph of a module's docstring, as Markdown."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    text = " ".join(text.split("\n\n")[0].split())
    return ROLE.sub(lambda role: f"`{role[1].rpartition('.')[2]}`", text).replace("``", "`")


ROLES = {
    "experiments · demo": "the paper's evaluation · the demo",
    "bench": "benchmarks",
    "sim · map · runfile · doctor": "virtual machines with faults · live map · runs from a file · "
    "checks of a machine",
    "spark": "the only package that builds DataFrames",
    "observe": "reads records, renders text; never read by the engine",
    "apps · policies": "what matches · who gets which point",
    "window": "which recent points count",
    "store": "every file format, with its version",
    "protocol · index · workloads": "SWARM, pure · rectangles to find · synthetic data",
}


def layers() -> str:
    """Return the packages, highest first, in the order that tests/test_layers.py enforces."""
    tree = ast.parse((ROOT / "tests" / "test_layers.py").read_text(encoding="utf-8"))
    (value,) = (
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "LAYERS"
    )
    lines = [" · ".join(n for n in names if n != "__main__") for names in ast.literal_eval(value)]
    text = "\n".join(f"{line:30}{ROLES.get(line, '')}".rstrip() for line in reversed(lines) if line)
    return f"```text\n{text}\n```"


def reliability() -> str:
    """Return the table of ``make chaos``, with the minutes, the load and the machine of it."""
    found = json.loads((DOCS / "reliability.json").read_text(encoding="utf-8"))
    lines = [
        "| row | tried | lost | twice | wrong | recovered | | minutes | load |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in found["rows"]:
        tried, whole, *counts = (
            f"{row[name]:,}" for name in ("tried", "whole", "lost", "duplicated", "wrong")
        )
        is_whole = row["tried"] >= row["whole"]
        lines.append(
            "| "
            + " | ".join(
                [
                    row["name"],
                    tried if is_whole else f"{tried} of {whole}",
                    *counts,
                    "" if row["recovered_s"] is None else f"{row['recovered_s']} s",
                    ("ok" if is_whole else "ok so far") if row["ok"] else "**open**",
                    f"{row['minutes']:g}",
                    f"{row['load']}",
                ]
            )
            + " |"
        )
    dates = sorted({row["date"] for row in found["rows"]})
    machine = f"*{found['cores']} cores, {found['memory_gb']} GB, {' to '.join(dates)}.*"
    return "\n".join([*lines, "", machine])


BLOCKS: dict[str, Callable[[], str]] = {
    "settings": settings_table,
    "session": spark_settings_table,
    "commands": commands,
    "metrics": metrics_table,
    "reliability": reliability,
    "run-keys": keys_tables,
    "modules": modules,
    "layers": layers,
    "five-stages": five_stages,
    "options-of-both": lambda: options_table(SourceOptions),
    "options-of-cities": lambda: options_table(CitiesOptions),
    "options-of-queries": lambda: options_table(QueriesOptions),
}


if __name__ == "__main__":
    for name, text in pages().items():
        path = DOCS / name
        if path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            print(f"wrote docs/{name}")
