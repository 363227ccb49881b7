"""What is released installs into an empty environment, without the lock, and works there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import venv
from pathlib import Path

import pytest

import sparkswarm

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
PATIENCE = 1500
"""Seconds that an installation may take."""


def run(*command: object, **environment: str) -> str:
    done = subprocess.run(
        list(map(str, command)),
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], **environment},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def released(tmp_path_factory):
    """Return the folder with wheel and sdist."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-t", "wheel", "-d", folder)
    return folder


@pytest.mark.long
@pytest.mark.parametrize("kind", ["*.whl", "*.tar.gz"])
def test_the_first_example_runs_where_only_the_release_is_installed(released, tmp_path, kind):
    (package,) = released.glob(kind)
    assert sparkswarm.__version__ in package.name
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    pip = [python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    run(*pip, f"{package}[cli]")
    example = tmp_path / "example.py"
    example.write_text(EXAMPLE.search((ROOT / "README.md").read_text(encoding="utf-8"))[1])
    said = run(python, example)
    assert "|query_ids|" in re.sub(" ", "", said)
    assert "20,000 points" in said
    where = run(python, "-c", "import sparkswarm; print(sparkswarm.__file__)")
    assert where.startswith(str(tmp_path))
    checks = run(tmp_path / "venv" / "bin" / "sparkswarm", "doctor", "--no-spark", "--json", "-")
    assert '"compiled code"' in checks
