"""One word, one meaning: no public class name is defined twice."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Mapping

from .support.imports import modules


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
