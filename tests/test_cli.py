"""The command line as a user meets it."""

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from sparkswarm import __version__
from sparkswarm.cli import app

SMALL = ["--points", "3000", "--queries", "300"]


@pytest.fixture
def density(tmp_path: Path) -> list[str]:
    """A small grid of counts, so that nothing here takes long."""
    counts = np.random.default_rng(1).integers(0, 50, (40, 40))
    counts[5, 5] = 5_000
    path = tmp_path / "counts.npy"
    np.save(path, counts)
    return ["--density", str(path), "--bounds", "0", "0", "1", "1"]


def run(*words: str):
    return CliRunner().invoke(app, list(words))


def test_the_version_is_told():
    assert run("--version").output.strip() == __version__


def test_without_words_the_help_is_shown():
    result = run()
    for word in ("bench", "demo", "--version"):
        assert word in result.output


def test_overhead_writes_every_operation_of_the_papers_figures(density):
    result = run("bench", "overhead", *SMALL, *density, "--rounds", "3",
                 "--repeat", "5", "--executors", "4", "--json", "-")  # fmt: skip
    assert result.exit_code == 0, result.output
    operations = json.loads(result.stdout)["operations"]
    figures = {f"{where} ({i})" for where in ("GlobalIndex", "executor") for i in range(1, 5)}
    assert {operation["figure"] for operation in operations} == figures
    for operation in operations:
        assert 0 < operation["us_median"] <= operation["us_p99"]
        assert operation["name"]


def test_balance_writes_json_a_table_and_a_picture(density, tmp_path: Path):
    target, picture = tmp_path / "balance.json", tmp_path / "balance.png"
    result = run("bench", "balance", *SMALL, *density, "--rounds", "4",
                 "--executors", "3", "--json", str(target), "--picture", str(picture))  # fmt: skip
    assert result.exit_code == 0, result.output
    data = json.loads(target.read_text())
    assert {run["executors"] for run in data["runs"]} == {3}
    assert all(len(run["efficiency"]) == 4 for run in data["runs"])
    assert picture.exists()
    assert "work, 1 move" in result.output


def test_the_same_seed_gives_the_same_numbers(density, tmp_path: Path):
    outputs = [
        run(
            "bench",
            "balance",
            *SMALL,
            *density,
            "--rounds",
            "3",
            "--executors",
            "3",
            "--json",
            "-",
            "--picture",
            str(tmp_path / "p.png"),
        ).stdout
        for _ in range(2)
    ]
    assert outputs[0] == outputs[1]
    assert json.loads(outputs[0])["runs"]


def test_a_file_that_is_not_there_is_explained_in_one_line():
    result = run("bench", "balance", "--density", "no-such-file.parquet")
    assert result.exit_code == 1
    assert "no-such-file.parquet" in result.output
    assert "Traceback" not in result.output


def test_a_wrong_number_is_a_matter_of_usage():
    assert run("bench", "balance", "--executors", "0").exit_code == 2
