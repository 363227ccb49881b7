"""What the table of faults counts, and when a row is good; faults are for `make chaos`."""

import json
from collections import Counter
from dataclasses import replace

import pytest

from .__main__ import rows_in, run, run_all
from .rows import ROWS
from .trial import Row, Trial


def no_session():
    raise AssertionError("no Spark is needed")


@pytest.fixture
def trial(tmp_path):
    return Trial(tmp_path, 60.0, no_session, 3)


def test_every_difference_from_the_oracle_is_counted_by_its_kind(trial):
    trial.tried = 1
    trial.compare(Counter(a=1, b=3, x=2), Counter(a=1, b=1, c=4))
    found = trial.result("row")
    assert (found["lost"], found["duplicated"], found["wrong"]) == (4, 2, 2)
    assert not found["ok"]


def test_a_row_is_good_if_it_tried_something_and_nothing_was_wrong(trial):
    trial.compare(Counter(a=2), Counter(a=2))
    assert not trial.result("row")["ok"], "nothing was tried"
    trial.tried = 3
    assert trial.result("row")["ok"]
    trial.recovered(16.0, 15.0)
    found = trial.result("row")
    assert (found["recovered_s"], found["ok"]) == (16.0, False)


def test_without_time_a_fault_is_tried_once(tmp_path):
    trial = Trial(tmp_path, 0.0, no_session, 20)
    assert list(trial.repeat(20)) == [0]


def test_what_a_row_raises_is_a_problem_of_it(trial):
    def fails(trial):
        trial.tried = 1
        raise ValueError("a reason")

    found = run(Row("row", 1, fails, 1), trial)
    assert not found["ok"]
    assert found["problems"] == ["ValueError: a reason"]


def test_the_table_is_written_after_every_row(tmp_path):
    written = []

    def passes(trial):
        trial.tried = 1
        if (tmp_path / "table.json").exists():
            written.append(len(json.loads((tmp_path / "table.json").read_text())["rows"]))

    rows = [replace(row, run=passes) for row in ROWS[:3]]
    results = run_all(rows, 60.0, tmp_path / "rows", str(tmp_path / "table.json"))
    assert [row["ok"] for row in results] == [True] * 3
    assert written == [1, 2]
    needed = {"name", "tried", "lost", "duplicated", "wrong", "recovered_s", "ok"}
    assert all(needed <= row.keys() for row in results)


def test_rows_that_did_not_run_stay_as_they_were_if_told(tmp_path):
    def passes(trial):
        trial.tried = trial.whole = 7

    path = tmp_path / "table.json"
    path.write_text(json.dumps({"rows": [{"name": row.name, "tried": 1} for row in ROWS[1:4]]}))
    rows = [replace(row, run=passes) for row in (ROWS[2], ROWS[0])]
    run_all(rows, 60.0, tmp_path / "rows", str(path), "some", rows_in(str(path)))
    found = json.loads(path.read_text())["rows"]
    assert [(row["name"], row["tried"]) for row in found] == [
        (row.name, tried) for row, tried in zip(ROWS, (7, 1, 7, 1), strict=False)
    ]


def test_the_rows_have_names_of_their_own():
    assert len({row.name for row in ROWS}) == len(ROWS) == 16
    assert all(row.weight > 0 and row.whole > 0 for row in ROWS)
