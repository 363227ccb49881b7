"""Words: no public class name is defined twice, and amounts are named, not pointed at."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Mapping

from .support.imports import ROOT, modules

VAGUE = re.compile(r"\bso\s+(?:many|much|long|often|far)\b", re.IGNORECASE)
TEXTS = ("*.py", "*.js", "*.html", "*.toml")


def defined_twice(trees: Mapping[str, ast.Module]) -> dict[str, list[str]]:
    """Return the public class names with more than one definition, and where they are."""
    where = defaultdict(list)
    for module, tree in trees.items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                where[node.name].append(module)
    return {name: found for name, found in where.items() if len(found) > 1}


def test_no_public_class_name_is_defined_twice() -> None:
    assert defined_twice(modules()) == {}


def test_a_name_that_is_defined_twice_is_found() -> None:
    trees = {"a": ast.parse("class X: ..."), "b": ast.parse("class X: ...\nclass Y: ...")}
    assert defined_twice(trees) == {"X": ["a", "b"]}


def test_no_text_of_the_source_says_so_many() -> None:
    found = [
        (path.name, vague.group())
        for pattern in TEXTS
        for path in ROOT.rglob(pattern)
        for vague in VAGUE.finditer(path.read_text(encoding="utf-8"))
    ]
    assert found == []


def test_so_many_is_found_also_across_lines() -> None:
    assert VAGUE.search("at most so\n    many points")
    assert not VAGUE.search("also manyfold")
