"""Seeds are right, and every planted bug is found."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from sparkswarm.config import SwarmConfig
from sparkswarm.policies.swarm import effective
from sparkswarm.sim.bugs import Bug
from sparkswarm.sim.cluster import World, draw_scenario
from sparkswarm.sim.fuzz import fuzz, play, play_all
from sparkswarm.sim.fuzz_cli import fuzz as command

FOUND_BY = {
    Bug.NO_FORWARDING: "had to be sent again",
    Bug.FORWARDING_STOPS_EARLY: "had to be sent again",
    Bug.INDEX_BEFORE_TAKEOVER: "lost: the result",
    Bug.STATE_LEFT_BEHIND: "running count",
    Bug.ALGORITHM_1_AS_PRINTED: "Operation",
    Bug.ACKNOWLEDGED_WITHOUT_COUNT: "in the answer to",
    Bug.TWO_COORDINATORS: "publishes in term",
    Bug.ID_REUSE: "is not a fresh id",
    Bug.BORDER_CELL_TWICE: "duplicated",
    Bug.TOMBSTONE_LOST: "possible are versions",
    Bug.SEEN_NOT_MOVED: "duplicated",
    Bug.FENCE_IGNORED: "lost: the result",
    Bug.DETAILS_LEFT_BEHIND: "which that version does not match",
}
"""What the oracle must say about a bug: that it is found is not enough, it must be understood."""


@pytest.mark.parametrize("seeds", [60, pytest.param(200, marks=pytest.mark.long)])
def test_the_first_seeds_are_right(seeds: int) -> None:
    summary = fuzz(range(seeds))
    assert [(o.seed, o.told) for o in summary.failing] == []
    happened = summary.to_json()["happened"]
    # A harness that tests nothing would pass as well: everything must have occurred.
    assert all(count > 0 for count in happened.values()), happened


@pytest.mark.long
def test_ten_thousand_seeds_are_right() -> None:
    summary = fuzz(range(10_000), jobs=os.cpu_count() or 1)
    assert [(o.seed, o.told) for o in summary.failing] == []


def test_every_other_seed_has_the_settings_that_people_run() -> None:
    for seed in (1, 2):
        scenario = draw_scenario(seed, defaults=seed == 1)
        world = World(seed, scenario)
        world.play()
        assert play(seed).trace_hash == world.journal.trace_hash
        given = SwarmConfig(
            bounds=scenario.config.bounds,
            grid=scenario.config.grid,
            executors=scenario.config.executors,
            lending=scenario.config.lending,
        )
        assert (scenario.config == effective(given)) == (seed == 1)


def test_every_bug_has_a_meaning_and_a_way_to_be_found() -> None:
    assert all(bug.meaning for bug in Bug)
    assert set(FOUND_BY) == set(Bug)


RARE = {Bug.FENCE_IGNORED: 80, Bug.SEEN_NOT_MOVED: 40}
"""Bugs that bite in one of a hundred seeds, and where to begin so as not to wait for it."""


@pytest.mark.parametrize("bug", list(Bug))
def test_a_planted_bug_is_found(bug: Bug) -> None:
    first = RARE.get(bug, 0)
    for outcome in play_all(range(first, first + 200), [bug]):
        if any(FOUND_BY[bug] in violation for violation in outcome.told):
            return
    pytest.fail(f"{bug} was not found in 200 seeds")


def test_the_same_seed_is_the_same_run_whatever_the_hash_seed() -> None:
    program = (
        "from sparkswarm.sim.fuzz import play\n"
        "print([play(seed).trace_hash for seed in (1, 3, 5, 37)])"
    )
    traces = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert traces == {f"{[play(seed).trace_hash for seed in (1, 3, 5, 37)]}\n"}


def test_another_seed_or_a_bug_is_another_run() -> None:
    hashes = [play(0).trace_hash, play(1).trace_hash, play(0, [Bug.STATE_LEFT_BEHIND]).trace_hash]
    assert len(set(hashes)) == 3


def test_the_summary_does_not_depend_on_the_number_of_processes() -> None:
    assert fuzz(range(6)).to_json() == fuzz(range(6), jobs=2).to_json()


@pytest.fixture
def app() -> typer.Typer:
    made = typer.Typer()
    made.command()(command)
    return made


def test_the_command_writes_what_it_found(app: typer.Typer) -> None:
    result = CliRunner().invoke(app, ["--seeds", "3", "--jobs", "1", "--json", "-"])
    assert result.exit_code == 0
    data = json.loads(result.stdout)
    assert data["seeds"] == 3
    assert (data["lost"], data["duplicated"], data["violations"]) == (0, 0, 0)
    assert data["failing"] == []
    assert data["trace_hash"] == fuzz(range(3)).to_json()["trace_hash"]


def test_a_bug_is_an_error_and_its_seed_can_be_replayed(app: typer.Typer, tmp_path: Path) -> None:
    arguments = ["--seeds", "2", "--jobs", "1", "--bug", "border-cell-twice", "--json", "-"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 1
    failing = json.loads(result.stdout)["failing"][0]
    words = failing["replay"].split()
    assert words[:2] == ["sparkswarm", "fuzz"]
    journal = tmp_path / "journal.jsonl"
    words[words.index("--journal") + 1] = str(journal)
    again = CliRunner().invoke(app, [*words[2:], "--json", "-"])
    assert again.exit_code == 1
    assert json.loads(again.stdout)["failing"][0]["violations"] == failing["violations"]
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    assert len(lines) > 1000
    assert [line["time"] for line in lines] == sorted(line["time"] for line in lines)


def test_a_journal_needs_a_seed(app: typer.Typer) -> None:
    assert CliRunner().invoke(app, ["--journal", "somewhere.jsonl"]).exit_code == 2
