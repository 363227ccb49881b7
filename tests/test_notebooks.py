"""The notebooks of the docs run, and what they show was kept."""

import importlib.util
import re
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = sorted((ROOT / "docs").rglob("*.ipynb"))
LARGEST = 350_000
"""Bytes of a notebook with its pictures."""

SHOWN = {
    "quickstart.ipynb": ("120,000 points", "query_ids", "round "),
    "replay-your-data.ipynb": ("'wrong': 0", "static_uniform"),
}


def outputs(notebook):
    """Return the text and the number of pictures that the cells show."""
    shown = [one for cell in notebook.cells for one in cell.get("outputs", [])]
    data = [one.get("data", {}) for one in shown]
    text = [one.get("text", "") for one in shown] + [one.get("text/plain", "") for one in data]
    return "\n".join(text), sum("image/png" in one for one in data)


def runner():
    script = ROOT / "scripts" / "run_notebooks.py"
    spec = importlib.util.spec_from_file_location("run_notebooks", script)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.run


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_what_was_kept_of_a_run_is_small_and_tells_nothing_of_the_machine(path):
    assert path.stat().st_size < LARGEST
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    text, pictures = outputs(notebook)
    assert pictures == 2
    assert all(wanted in text for wanted in SHOWN[path.name])
    assert not re.search(r"/(tmp|home|root|Users)/|Traceback|WARN", text)


def run_and_check(name, tmp_path):
    (path,) = (path for path in NOTEBOOKS if path.name == name)
    text, pictures = outputs(runner()(path, tmp_path))
    assert pictures == 2
    assert all(wanted in text for wanted in SHOWN[name])


def test_the_quickstart_runs(tmp_path):
    run_and_check("quickstart.ipynb", tmp_path)


@pytest.mark.long
def test_the_replay_of_a_file_runs(tmp_path):
    run_and_check("replay-your-data.ipynb", tmp_path)
