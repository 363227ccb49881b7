"""Tables that spreadsheets open."""

import csv

from sparkswarm.experiments.folder import write_csv


def test_no_text_is_a_formula(tmp_path):
    hostile = ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", '=HYPERLINK("http://x")']
    rows = [{"name": text, "value": -1.5} for text in [*hostile, "swarm\r=1"]]
    path = write_csv(rows, tmp_path / "table.csv")
    with path.open(newline="", encoding="utf-8") as file:
        found = list(csv.DictReader(file))
    assert [row["name"] for row in found] == [*(f"'{text}" for text in hostile), "swarm =1"]
    assert {row["value"] for row in found} == {"-1.5"}
