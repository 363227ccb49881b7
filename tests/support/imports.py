"""Reads which module of sparkswarm imports which, from the sources."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import sparkswarm

ROOT = Path(sparkswarm.__file__).parent


@cache
def modules() -> dict[str, ast.Module]:
    """Return every module by its dotted name below the package, parsed."""
    found = {}
    for path in sorted(ROOT.glob("**/*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = ast.parse(path.read_text(encoding="utf-8"))
    return found


def imports(tree: ast.AST, known: set[str]) -> set[str]:
    """Return the modules that a module imports when it is run; not those for type checkers."""
    found = set()
    for node in _executed(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("sparkswarm"):
            origin = (node.module or "").removeprefix("sparkswarm").removeprefix(".")
            for alias in node.names:
                whole = f"{origin}.{alias.name}".removeprefix(".")
                found.add(whole if whole in known else origin)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.startswith("sparkswarm."):
                    found.add(alias.name.removeprefix("sparkswarm."))
    return found


def graph() -> dict[str, set[str]]:
    """Return what each module imports."""
    all_modules = modules()
    return {name: imports(tree, set(all_modules)) - {name} for name, tree in all_modules.items()}


def longest_chain(edges: dict[str, set[str]], start: str) -> list[str]:
    """Return the longest chain of imports that begins with a module; ValueError on a cycle."""
    chains: dict[str, list[str]] = {}

    def chain(name: str, above: tuple[str, ...]) -> list[str]:
        if name in above:
            raise ValueError(" imports ".join([*above[above.index(name) :], name]))
        if name not in chains:
            below = [chain(other, (*above, name)) for other in sorted(edges.get(name, ()))]
            chains[name] = [name, *max(below, key=len, default=[])]
        return chains[name]

    return chain(start, ())


def _executed(tree: ast.AST) -> list[ast.AST]:
    """Return the nodes of a module but for those under ``if TYPE_CHECKING``."""
    found: list[ast.AST] = []
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            for other in node.orelse:
                found += [other, *_executed(other)]
            continue
        found += [node, *_executed(node)]
    return found
