"""A package imports only packages below it, and no chain of imports is long."""

from __future__ import annotations

import ast

import pytest

from .support.imports import graph, imports, longest_chain, modules

LAYERS = (
    ("errors",),
    ("arguments", "compiled", "options", "terminal"),
    ("geometry",),
    ("config",),
    ("protocol", "index", "workloads"),
    ("store",),
    ("window",),
    ("apps", "policies"),
    ("observe",),
    ("spark",),
    ("sim", "map", "runfile", "doctor"),
    ("bench",),
    ("experiments", "demo"),
    ("cli",),
    ("__main__",),
)
"""The packages and top-level modules, lowest first; those on one line don't import each other.

``sparkswarm/__init__.py`` is outside: it imports what users name, when they name it.
"""

LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}

LONGEST_IN_SPARK = 7


def package(module: str) -> str:
    return module.partition(".")[0]


def upward(edges: dict[str, set[str]]) -> set[tuple[str, str]]:
    """Return the imports that do not go down."""
    return {
        (module, other)
        for module, others in edges.items()
        for other in others
        if module and other and package(module) != package(other)
        if LEVEL[package(module)] <= LEVEL[package(other)]
    }


def test_every_package_has_a_layer() -> None:
    assert {package(name) for name in modules() if name} == set(LEVEL)


def test_imports_go_down() -> None:
    assert upward(graph()) == set()


def test_an_upward_import_is_found() -> None:
    assert upward({"store.files": {"spark.engine"}}) == {("store.files", "spark.engine")}
    assert upward({"apps.bound": {"policies.policy"}}) == {("apps.bound", "policies.policy")}
    assert upward({"spark.engine": {"store.files"}}) == set()


def test_there_are_no_cycles() -> None:
    edges = graph()
    for name in edges:
        longest_chain(edges, name)


def test_a_cycle_is_found() -> None:
    with pytest.raises(ValueError, match="a imports b imports a"):
        longest_chain({"a": {"b"}, "b": {"a"}}, "a")


def test_chains_inside_spark_are_short() -> None:
    edges = {
        name: {other for other in others if package(other) == "spark"}
        for name, others in graph().items()
        if package(name) == "spark"
    }
    longest = max((longest_chain(edges, name) for name in edges), key=len)
    assert len(longest) <= LONGEST_IN_SPARK, " -> ".join(longest)


def test_tasks_are_free_of_pyspark_but_for_one_module() -> None:
    found = set()
    for name, tree in modules().items():
        if name.startswith("spark.tasks"):
            for node in ast.walk(tree):
                names = (
                    [node.module or ""]
                    if isinstance(node, ast.ImportFrom)
                    else [alias.name for alias in node.names]
                    if isinstance(node, ast.Import)
                    else []
                )
                if any(part.split(".")[0] in ("pyspark", "py4j") for part in names):
                    found.add(name)
    assert found == {"spark.tasks.context"}


def test_imports_for_type_checkers_do_not_count() -> None:
    source = "if TYPE_CHECKING:\n    from sparkswarm.a import b\nfrom sparkswarm.c import d"
    assert imports(ast.parse(source), {"a", "c"}) == {"c"}
