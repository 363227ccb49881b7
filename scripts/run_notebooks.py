"""Run the notebooks of the docs and keep what their cells show: ``make notebooks``.

What goes to standard error is not kept: it is Spark's log, with names of the machine.
"""

from __future__ import annotations

from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

DOCS = Path(__file__).resolve().parent.parent / "docs"
SECONDS = 600
"""Longest time of a cell, and of the start of the kernel."""


def run(notebook: Path, folder: Path) -> NotebookNode:
    """Return a notebook with the output of a run in a folder."""
    found = nbformat.read(notebook, as_version=4)
    NotebookClient(
        found,
        timeout=SECONDS,
        startup_timeout=SECONDS,
        kernel_name="python3",
        record_timing=False,
        resources={"metadata": {"path": str(folder)}},
    ).execute()
    for cell in found.cells:
        if cell.cell_type == "code":
            cell.outputs = [one for one in cell.outputs if one.get("name") != "stderr"]
    found.metadata["language_info"] = {"name": "python"}
    return found


if __name__ == "__main__":
    for path in sorted(DOCS.rglob("*.ipynb")):
        print(f"Running {path.relative_to(DOCS)}")
        nbformat.write(run(path, path.parent), path)
