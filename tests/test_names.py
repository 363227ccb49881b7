"""One word, one meaning: no public class name is defined twice."""

from __future__ import annotations

import ast
from collections import defaultdict

from .support.imports import modules

TWICE: set[str] = {
    "Swarm",
}
"""Names that are defined more than once, known and to be removed."""


def defined_twice() -> dict[str, list[str]]:
    """Return the public class names with more than one definition, and where they are."""
    where = defaultdict(list)
    for module, tree in modules().items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                where[node.name].append(module)
    return {name: found for name, found in where.items() if len(found) > 1}


def test_no_public_class_name_is_defined_twice() -> None:
    assert {name: where for name, where in defined_twice().items() if name not in TWICE} == {}


def test_the_list_of_exceptions_only_shrinks() -> None:
    assert set(defined_twice()) >= TWICE, "a name is no longer defined twice: take it off the list"
