"""The two commands: they write what they promise, and their folder explains a run."""

import csv
import json
import re

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from sparkswarm.experiments import figures as figures_module
from sparkswarm.experiments.cli import figures, simulate
from sparkswarm.experiments.figures import FIGURES
from sparkswarm.experiments.service import STORED

app = typer.Typer()
app.command()(simulate)
app.command()(figures)

PNG = b"\x89PNG"


@pytest.fixture(scope="module")
def where(tmp_path_factory, density):
    path = tmp_path_factory.mktemp("density") / "small.npy"
    np.save(path, density.weights)
    b = density.bounds
    bounds = [str(v) for v in (b.min_x, b.min_y, b.max_x, b.max_y)]
    return ["--density", str(path), "--bounds", *bounds, "--service", "stored"]


def run(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


def test_simulate_writes_a_folder_and_the_promised_json(where, tmp_path):
    names = "swarm,static_history,replicated"
    done = run(
        "simulate", *where, "--scenario", "step-hotspot", "--minutes", 2, "--policies", names,
        "--out", tmp_path / "run", "--json", "-",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["scenario"] == "step-hotspot"
    assert list(found["policies"]) == names.split(",")
    for of in found["policies"].values():
        assert {"units_of_work", "latency_us", "balance"} <= set(of)
        assert of["units_of_work"] > 0
    assert found["claims"]
    assert all(set(claim) == {"what", "paper", "ours", "holds"} for claim in found["claims"])
    folder = tmp_path / "run"
    assert sorted(path.name for path in folder.iterdir()) == [
        "claims.md", "config.json", "journal.jsonl", "results.csv", "results.json",
        "timeline.png", "traffic.csv", "utilization.csv", "utilization.png",
    ]  # fmt: skip
    config = json.loads((folder / "config.json").read_text())
    assert config["service"] == json.loads(json.dumps(STORED.to_json()))
    assert config["seed"] == 0
    rows = list(csv.DictReader((folder / "results.csv").open()))
    assert len(rows) == 3 * 2
    journal = [json.loads(line) for line in (folder / "journal.jsonl").read_text().splitlines()]
    assert journal
    assert all(entry["reason"] for entry in journal)
    assert (folder / "timeline.png").read_bytes().startswith(PNG)


def test_a_run_can_be_repeated_from_its_config(where, tmp_path):
    options = ("--scenario", "step-hotspot", "--minutes", 1, "--policies", "swarm")
    run("simulate", *where, *options, "--out", tmp_path / "first")
    config = tmp_path / "first" / "config.json"
    run("simulate", *where[:-1], config, *options, "--out", tmp_path / "again")
    for name in ("results.csv", "journal.jsonl", "config.json"):
        first, again = (tmp_path / folder / name for folder in ("first", "again"))
        assert first.read_text() == again.read_text()


def test_the_sweep_reports_each_number_of_queries(where, tmp_path):
    done = run(
        "simulate", *where, "--scenario", "queries-sweep", "--minutes", 1,
        "--policies", "replicated", "--out", tmp_path, "--json", tmp_path / "out.json",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    found = json.loads((tmp_path / "out.json").read_text())["policies"]["replicated"]["queries"]
    assert [int(n) // 1_000_000 for n in found] == [1, 2, 4, 8, 16, 32, 64]
    assert "GB" in found["64000000"]["failed"]
    assert (tmp_path / "sweep.png").read_bytes().startswith(PNG)


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(figures_module, "_ROUNDS", 2)
    monkeypatch.setattr(figures_module, "_TIMES", 3)
    monkeypatch.setattr(figures_module, "_PLAYED", 20_000)


def draw(names, where, folder):
    policies = ("--policies", "swarm,static_history")
    for name in names:
        done = run("figures", name, *where, "--minutes", 1, *policies, "--out", folder)
        assert done.exit_code == 0, done.output
    for name in names if names != ["all"] else FIGURES:
        assert (folder / f"{name}.png").read_bytes().startswith(PNG)
        assert len(list(csv.DictReader((folder / f"{name}.csv").open()))) >= 2


def test_a_figure_is_a_picture_and_a_table(where, tmp_path, quick):
    draw(["overhead-global-index", "overhead-executor", "overhead-network"], where, tmp_path)
    network = list(csv.DictReader((tmp_path / "overhead-network.csv").open()))
    assert float(network[-1]["bytes_a_round"]) == 5 * 8 * 80 * 60
    assert float(network[0]["bytes_a_round"]) < 5_000


@pytest.mark.long
def test_every_figure_is_a_picture_and_a_table(where, tmp_path, quick):
    draw(["all"], where, tmp_path)
    assert "two-overlapping-hotspots" in (tmp_path / "claims.md").read_text()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["simulate", "--scenario", "none"], "one-uniform-hotspot"),
        (["simulate", "--policies", "none", "--service", "stored"], "static_history"),
        (["simulate", "--service", "none.json"], "cannot read service times"),
        (["figures", "none"], "capability"),
    ],
)
def test_wrong_words_are_explained(arguments, said):
    done = run(*arguments)
    assert done.exit_code == 1
    assert said in re.sub(r"\s+", " ", done.output)
