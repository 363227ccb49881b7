"""The commands of docs/how-to/cluster.md, run one after another, start a run on a cluster."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from ..support.processes import kill_group
from .conftest import ROOT

pytestmark = pytest.mark.remote

GUIDE = Path(ROOT) / "docs" / "how-to" / "cluster.md"
BLOCK = re.compile(r"^```(?:sh|py)\n(.*?)^```", re.MULTILINE | re.DOTALL)

PATIENCE = 900
"""Seconds that all of it may take: pip fetches the packages."""


def results_in(folder: Path) -> dict[int, list[int]]:
    table = pq.read_table(folder, columns=["id", "query_ids"])
    found = zip(*(column.to_pylist() for column in table.columns), strict=True)
    return {point: sorted(queries) for point, queries in found}


def write_run(folder: Path, example: str) -> Path:
    """Write the example of a run file, with all paths in a folder, and return it."""
    folder.mkdir()
    run = folder / "run.toml"
    run.write_text(example.replace('"sparkswarm-example/', f'"{folder}/'))
    return run


def test_the_guide_ships_the_package_and_a_run_has_the_results_of_a_local_one(tmp_path):
    pack, job, submit, spark_home, cluster = BLOCK.findall(GUIDE.read_text())
    example = subprocess.run(
        [sys.executable, "-m", "sparkswarm", "run", "--example"],
        check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    local = write_run(tmp_path / "local", example)
    subprocess.run([sys.executable, "-m", "sparkswarm", "run", str(local)], check=True)

    clone = tmp_path / "clone"
    shutil.copytree(ROOT, clone, ignore=shutil.ignore_patterns(".*", "build", "dist", "site"))
    run = write_run(tmp_path / "cluster", re.sub(r"(?m)^master = .*\n", "", example))
    (clone / "swarm_job.py").write_text(job)
    for name in ("worker", "cache"):
        cluster = cluster.replace(f"/tmp/{name}-$i", f"{tmp_path}/{name}-$i")
    submit = submit.replace("spark://host:7077", "spark://127.0.0.1:7077")
    submit = submit.replace("/var/tmp/numba", f"{tmp_path}/numba").replace("run.toml", str(run))
    script = "\n".join(["set -ex", pack, spark_home, cluster, submit])
    log = tmp_path / "guide.log"
    own = {name: value for name, value in os.environ.items() if not name.startswith("SPARK")}
    path = f"{Path(sys.executable).parent}{os.pathsep}{own['PATH']}"
    with open(log, "wb") as file:
        process = subprocess.Popen(
            ["bash", "-c", script],
            cwd=clone,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**own, "PATH": path},
        )
    try:
        code = process.wait(PATIENCE)
    finally:
        kill_group(process)
    assert code == 0, log.read_text()[-5000:]
    expected = results_in(local.parent / "results")
    assert expected
    assert results_in(run.parent / "results") == expected
    # Both hosts had tasks.
    assert re.search(r"hosts: 127\.0\.0\.2: [1-9].*; 127\.0\.0\.3: [1-9]", log.read_text())
