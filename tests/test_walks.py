"""The walks of docs/explanation/architecture.md: they exist, they are short, and they are true.

A walk lists the functions that are handed the rows or decide about them. What runs in tasks, and
the two sides of a rebalancing policy, are run here and traced: the listed functions are called in
the listed order.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from sparkswarm import PairFunction
from sparkswarm.policies import make_policy

from .support.imports import ROOT
from .support.tasks import Tasks, register

PAGE = Path(__file__).parent.parent / "docs" / "explanation" / "architecture.md"
LIMITS = {"a point": (16, 11), "an operation": (20, 14), "a round": (18, 11)}
"""Functions and files of each walk, at most."""


def walk(name: str) -> list[tuple[str, str]]:
    """Return the (file, function) pairs of a walk."""
    text = PAGE.read_text(encoding="utf-8")
    section = text.split(f"## The way of {name}\n")[1].split("\n## ")[0]
    return re.findall(r"^\d+\. `([\w/]+\.py):([\w.]+)`", section, re.MULTILINE)


def resolved(file: str, function: str) -> Any:
    found = importlib.import_module("sparkswarm." + file.removesuffix(".py").replace("/", "."))
    for part in function.split("."):
        found = getattr(found, part)
    return found


def called(action: Callable[[], object]) -> list[tuple[str, str]]:
    """Return the calls of functions of sparkswarm that an action makes, in order."""
    seen: list[tuple[str, str]] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        path = frame.f_code.co_filename
        if event == "call" and path.startswith(str(ROOT)):
            seen.append((str(Path(path).relative_to(ROOT)), frame.f_code.co_qualname))

    sys.setprofile(note)
    try:
        action()
    finally:
        sys.setprofile(None)
    return seen


def assert_in_order(listed: list[tuple[str, str]], seen: list[tuple[str, str]]) -> None:
    """Check that the calls contain the listed functions, one after another."""
    calls = iter(seen)
    for step in listed:
        assert step in calls, f"{step} is not called, or not after the steps before it"


@pytest.mark.parametrize("name", LIMITS)
def test_every_step_exists_and_the_walk_is_short(name: str) -> None:
    steps = walk(name)
    functions, files = LIMITS[name]
    assert 10 <= len(steps) <= functions
    assert len({file for file, _ in steps}) <= files
    for file, function in steps:
        assert callable(resolved(file, function)), (file, function)


def in_tasks(name: str, first: str, last: str) -> list[tuple[str, str]]:
    """Return the steps of a walk from one function to another, but for compiled kernels."""
    steps = walk(name)
    names = [function for _, function in steps]
    chosen = steps[names.index(first) : names.index(last) + 1]
    return [s for s in chosen if not hasattr(resolved(*s), "py_func")]


def test_a_point_goes_this_way(tmp_path: Path) -> None:
    tasks = Tasks(tmp_path, application=PairFunction(lambda point, query: True))
    tasks.apply(register(1, 0.0, 0.0, 8.0, 8.0))
    seen = called(lambda: tasks.match_directly((1, 1.0, 1.0), (2, 7.0, 7.0)))
    # A lot's rows are made on the way out.
    steps = in_tasks("a point", "match_task", "ResultOutput.add")
    assert_in_order([*steps[:-2], steps[-1], steps[-2]], seen)


def test_an_operation_goes_this_way(tmp_path: Path) -> None:
    tasks = Tasks(tmp_path, application=PairFunction(lambda point, query: True))
    seen = called(lambda: tasks.apply(register(1, 0.0, 0.0, 8.0, 8.0)))
    in_driver = ("spark/driver/run.py", "spark/driver/batch.py")
    steps = in_tasks("an operation", "apply_operations", "Manifest.with_delta")
    assert_in_order([step for step in steps if step[0] not in in_driver], seen)


def test_a_round_goes_this_way(tmp_path: Path) -> None:
    tasks = Tasks(tmp_path, policy="swarm")
    tasks.apply(*(register(i, 0.0, 0.0, 2.0, 2.0) for i in range(50)))
    controller = make_policy("swarm").controller(tasks.plan, tasks.input.config)
    assert controller is not None
    points = [(i, (i % 17) / 9, (i % 13) / 7) for i in range(2000)]

    tasks.run_agents(controller)  # in a task, because nobody has statistics
    tasks.commit()

    def batches() -> None:
        while controller.plan.version == tasks.plan.version:
            tasks.input = replace(tasks.input, collect_statistics=True)
            tasks.match(*points)
            tasks.run_agents(controller)
            tasks.commit()

    seen = called(batches)
    in_driver = ("spark/driver/run.py", "spark/driver/batch.py")
    steps = in_tasks("a round", "SwarmController.begin_batch", "Plan.apply")
    assert_in_order([step for step in steps if step[0] not in in_driver], seen)


def test_a_step_out_of_order_is_found() -> None:
    with pytest.raises(AssertionError, match="not called"):
        assert_in_order([("a.py", "f"), ("b.py", "g")], [("b.py", "g"), ("a.py", "f")])
