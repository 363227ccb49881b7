"""The protocol is pure: it imports nothing that reaches a clock, a socket, Spark or randomness."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

import sparkswarm.protocol

FOLDER = Path(sparkswarm.protocol.__file__).parent
SOURCES = FOLDER.parent
OTHERS = (
    "geometry",
    "compiled",
    "sim/election",
    "sim/lineage",
    "sim/snapshot_chain",
    "sim/kept_points",
)
"""Modules outside the package that are as pure: what it rests on, and what machines that pass
messages need beside it."""
FILES = sorted([*FOLDER.glob("**/*.py"), *(SOURCES / f"{name}.py" for name in OTHERS)])

PACKAGE = "sparkswarm.protocol"
ALLOWED = {
    "__future__",
    "bisect",
    "collections",
    "collections.abc",
    "dataclasses",
    "enum",
    "functools",
    "heapq",
    "itertools",
    "math",
    "numpy",
    "numpy.typing",
    "operator",
    "sparkswarm.config",
    "sparkswarm.compiled",
    "sparkswarm.errors",
    "sparkswarm.geometry",
    "sparkswarm.sim.election",
    "sparkswarm.sim.kept_points",
    "sparkswarm.sim.lineage",
    "sparkswarm.sim.snapshot_chain",
    "struct",
    "types",
    "typing",
}
ALLOWED_IN = {"compiled.py": {"numba"}}
FORBIDDEN_CALLS = {"open", "print", "input", "eval", "exec", "__import__", "breakpoint"}


def violations(source: str, name: str = "module.py") -> list[str]:
    """Return what is impure about a module of the protocol, one line each."""
    tree = ast.parse(source)
    numpys = _names_of_numpy(tree)
    return [
        f"line {getattr(node, 'lineno', 0)}: {what}"
        for node in ast.walk(tree)
        for what in _wrong_with(node, name, numpys)
    ]


def _wrong_with(node: ast.AST, name: str, numpys: set[str]) -> list[str]:
    allowed = ALLOWED | ALLOWED_IN.get(name, set())
    match node:
        case ast.Import():
            modules = [alias.name for alias in node.names]
            return [f"imports {m}" for m in modules if not _is_allowed(m, allowed)]
        case ast.ImportFrom():
            origin = _absolute(node)
            return [
                f"imports {origin}.{alias.name}"
                for alias in node.names
                if not _may_import_from(origin, alias.name, allowed)
            ]
        case ast.Attribute(value=ast.Name(id=owner), attr="random") if owner in numpys:
            return ["uses numpy.random"]
        case ast.Call(func=ast.Name(id=function)) if function in FORBIDDEN_CALLS:
            return [f"calls {function}"]
        case ast.Global():
            return [f"has the global {', '.join(node.names)}"]
    return []


def _is_allowed(module: str, allowed: set[str]) -> bool:
    return module in allowed or module == PACKAGE or module.startswith(f"{PACKAGE}.")


def _may_import_from(origin: str, name: str, allowed: set[str]) -> bool:
    if (origin, name) == ("numpy", "random"):
        return False
    return _is_allowed(origin, allowed) or _is_allowed(f"{origin}.{name}", allowed)


def _absolute(node: ast.ImportFrom) -> str:
    """Return the module that an import names, relative ones as seen from the package."""
    if not node.level:
        return node.module or ""
    parents = PACKAGE.split(".")
    base = parents[: len(parents) - node.level + 1]
    return ".".join([*base, node.module] if node.module else base)


def _names_of_numpy(tree: ast.AST) -> set[str]:
    """Return the names by which a module calls numpy."""
    aliases = [
        alias for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names
    ]
    return {alias.asname or "numpy" for alias in aliases if alias.name.split(".")[0] == "numpy"}


# -- the protocol ------------------------------------------------------------------------------


def test_there_are_files_to_check() -> None:
    names = {path.name for path in FILES}
    assert {"__init__.py", "geometry.py", "global_index.py", "coordinator.py"} <= names


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_the_protocol_is_pure(path: Path) -> None:
    assert violations(path.read_text(encoding="utf-8"), path.name) == []


def test_importing_the_whole_protocol_loads_no_spark_nor_anything_else_of_the_outside() -> None:
    modules = [
        ".".join(["sparkswarm", *path.relative_to(SOURCES).with_suffix("").parts]).removesuffix(
            ".__init__"
        )
        for path in FILES
    ]
    program = (
        "import importlib, json, sys\n"
        "for module in json.loads(sys.argv[1]):\n"
        "    importlib.import_module(module)\n"
        "print(json.dumps(sorted(sys.modules)))\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program, json.dumps(modules)],
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = set(json.loads(ran.stdout))
    assert set(modules) <= loaded
    assert not loaded & {"pyspark", "py4j", "pandas", "pyarrow", "typer", "rich", "matplotlib"}


# -- the checker itself ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import pyspark", "imports pyspark"),
        ("import pyspark.sql", "imports pyspark.sql"),
        ("from pyspark.sql import SparkSession", "imports pyspark.sql.SparkSession"),
        ("import math, time", "imports time"),
        ("from time import monotonic", "imports time.monotonic"),
        ("import random", "imports random"),
        ("import socket", "imports socket"),
        ("import threading as math", "imports threading"),
        ("import numba", "imports numba"),
        ("import numpy.random", "imports numpy.random"),
        ("import numpy.random as npt", "imports numpy.random"),
        ("from numpy import random", "imports numpy.random"),
        ("from numpy import random as r", "imports numpy.random"),
        ("from numpy.random import default_rng", "imports numpy.random.default_rng"),
        ("import sparkswarm", "imports sparkswarm"),
        ("import sparkswarm.spark", "imports sparkswarm.spark"),
        ("from sparkswarm import spark", "imports sparkswarm.spark"),
        ("from sparkswarm.testing import x", "imports sparkswarm.testing.x"),
        ("from sparkswarm.protocolish import x", "imports sparkswarm.protocolish.x"),
        ("from .. import sim", "imports sparkswarm.sim"),
        ("from ..sim import clock", "imports sparkswarm.sim.clock"),
        ("def f():\n    import os", "imports os"),
        ("if TYPE_CHECKING:\n    from datetime import datetime", "imports datetime.datetime"),
        ("import numpy as np\nx = np.random.rand()", "uses numpy.random"),
        ("import numpy\nx = numpy.random", "uses numpy.random"),
        ("import numpy as n\ndef f():\n    return n.random.default_rng(1)", "uses numpy.random"),
        ("import numpy.typing\nx = numpy.random", "uses numpy.random"),
        ("print('hello')", "calls print"),
        ("def f():\n    with open('x') as g:\n        pass", "calls open"),
        ("x = input()", "calls input"),
        ("t = __import__('time')", "calls __import__"),
        ("exec('import time')", "calls exec"),
        ("x = eval('1')", "calls eval"),
        ("breakpoint()", "calls breakpoint"),
        ("x = 0\ndef f():\n    global x\n    x = 1", "has the global x"),
    ],
)
def test_the_checker_finds_a_planted_violation(source: str, found: str) -> None:
    (line,) = violations(source)
    assert line.endswith(found)


@pytest.mark.parametrize(
    "source",
    [
        "from __future__ import annotations",
        "import heapq, math, struct",
        "from collections import deque\nfrom collections.abc import Iterable",
        "import numpy as np\nimport numpy.typing as npt\nx = np.zeros(3).sum()",
        "from sparkswarm.config import SwarmConfig\nfrom sparkswarm.errors import PlanError",
        "from sparkswarm import config, errors",
        "from sparkswarm import geometry\nfrom sparkswarm.protocol.plan import Plan",
        "from . import plan\nfrom .plan import Plan\nfrom .. import errors\nfrom ..errors import x",
        "def f(rng):\n    return rng.random() + rng.print() + rng.open",
        "def f():\n    x = 1\n    def g():\n        nonlocal x\n        x = 2",
    ],
)
def test_the_checker_lets_pass_what_is_allowed(source: str) -> None:
    assert violations(source) == []


def test_the_checker_allows_the_compiler_in_its_one_place_only() -> None:
    assert violations("import numba", "compiled.py") == []
    assert violations("from numba import njit", "compiled.py") == []
    assert violations("import numba", "statistics.py") == ["line 1: imports numba"]
    assert violations("import time", "_compiled.py") == ["line 1: imports time"]
    assert violations("\nfrom numba import njit", "plan.py") == ["line 2: imports numba.njit"]
