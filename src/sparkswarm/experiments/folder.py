"""The output folder of a simulation: its files and their formats.

``docs/explanation/simulator.md`` explains the folder file by file.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sparkswarm.experiments.claims import Claim, claims
from sparkswarm.experiments.experiment import Experiment, Row
from sparkswarm.experiments.pictures import draw_sweep, draw_timeline, draw_utilization


def write_folder(experiment: Experiment, folder: Path) -> list[Path]:
    """Write the output folder of an experiment and return its files."""
    folder.mkdir(parents=True, exist_ok=True)
    found = claims(experiment)
    config = {"density": experiment.density, **experiment.settings.to_json()}
    results = experiment.to_json() | {"claims": [claim.to_json() for claim in found]}
    files = [
        json_file(config, folder / "config.json"),
        json_file(results, folder / "results.json"),
        write_csv(experiment.timeline(), folder / "results.csv"),
        write_csv(experiment.utilization(), folder / "utilization.csv"),
        write_csv(experiment.traffic(), folder / "traffic.csv"),
        write_lines(experiment.journal(), folder / "journal.jsonl"),
        write_claims(found, folder / "claims.md"),
    ]
    if experiment.scenario.is_sweep:
        files.append(draw_sweep(experiment, folder / "sweep.png"))
    else:
        files.append(draw_timeline(experiment, folder / "timeline.png"))
        files.append(draw_utilization(experiment, folder / "utilization.png"))
    return files


_FORMULAS = ("=", "+", "-", "@", "\t")
"""How a text begins that spreadsheets take for a formula."""


def json_file(data: Any, path: Path) -> Path:
    """Write indented JSON."""
    path.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    return path


def write_lines(rows: Sequence[Row], path: Path) -> Path:
    """Write one JSON object per line."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def write_csv(rows: Sequence[Row], path: Path) -> Path:
    """Write a table with a header."""
    with path.open("w", newline="", encoding="utf-8") as file:
        if rows:
            writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows({name: _cell(value) for name, value in row.items()} for row in rows)
    return path


def _cell(value: Any) -> Any:
    """Return a value as a spreadsheet must see it: no text is a formula, or ends its row."""
    if not isinstance(value, str):
        return value
    # Python's writer does not quote a carriage return, which many readers take for an end.
    text = value.replace("\r", " ")
    return f"'{text}" if text.startswith(_FORMULAS) else text


def write_claims(found: Sequence[Claim], path: Path) -> Path:
    """Write the paper's claims beside the measured values, as a Markdown table."""
    lines = ["| claim | paper | here | holds |", "|---|---|---|---|"]
    words = {True: "yes", False: "no", None: ""}
    lines += [f"| {c.what} | {c.paper} | {c.ours} | {words[c.holds]} |" for c in found]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path
