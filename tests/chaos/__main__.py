"""The table of faults on real Spark: ``make chaos``.

Runs every row in turn, each with its share of the time, on loopback only, and ends by itself. A row
that is not at full length says how often its fault was made. The exit code is 1 if a row failed.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any

from pyspark.sql import SparkSession

import sparkswarm

from .rows import ROWS
from .trial import Row, Trial

MOST_SECONDS = 300.0
"""What a row may take beyond its share until it is given up."""


def main() -> int:
    """Run the table; return the exit code."""
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0, help="time for all rows, about")
    parser.add_argument("--json", metavar="FILE", help="write the table as JSON")
    parser.add_argument("--only", default="", help="rows whose names contain one of these, a|b")
    parser.add_argument(
        "--update", action="store_true", help="leave the other rows of FILE as they are"
    )
    parser.add_argument("--keep", metavar="FOLDER", help="keep what the rows left")
    given = parser.parse_args()
    rows = [row for row in ROWS if any(part in row.name for part in given.only.split("|"))]
    if not rows:
        parser.error(f"no row has {given.only!r} in its name")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    folder = Path(given.keep or tempfile.mkdtemp(prefix="sparkswarm-chaos-"))
    folder.mkdir(parents=True, exist_ok=True)
    try:
        others = rows_in(given.json) if given.update else []
        results = run_all(rows, 60 * given.minutes, folder, given.json, given.only, others)
    finally:
        if not given.keep:
            shutil.rmtree(folder, ignore_errors=True)
    return 0 if all(row["ok"] for row in results) else 1


def run_all(
    rows: list[Row],
    seconds: float,
    folder: Path,
    json_to: str | None,
    only: str = "",
    others: Sequence[dict[str, Any]] = (),
) -> list[dict[str, Any]]:
    """Run rows one after the other; time that one leaves is for those behind it.

    The table is written after every row, together with others that ran before.
    """
    end, session = time.monotonic() + seconds, Session()
    results = []
    try:
        for number, row in enumerate(rows):
            left = max(1.0, end - time.monotonic())
            share = left * row.weight / sum(one.weight for one in rows[number:])
            place = folder / f"{number:02d}"
            place.mkdir(parents=True, exist_ok=True)
            result = run(row, Trial(place, share, session, row.whole))
            results.append({**result, "minutes": round(seconds / 60, 1), "only": only, **when()})
            print(line(results[-1]), flush=True)
            if json_to:
                table = {"rows": in_order([*others, *results]), **where()}
                Path(json_to).write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")
    finally:
        session.stop()
    return results


def rows_in(table: str) -> list[dict[str, Any]]:
    """Return the rows of a table that was written before; none where there is none."""
    path = Path(table)
    return json.loads(path.read_text(encoding="utf-8"))["rows"] if path.exists() else []


def in_order(results: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return results in the order of the table; of those of one row the last."""
    found = {result["name"]: result for result in results}
    return [found[row.name] for row in ROWS if row.name in found]


def run(row: Row, trial: Trial) -> dict[str, Any]:
    """Run a row; whatever it raises is a problem of it, and so is a row that does not end."""

    def give_up(signum: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"given up after {trial.seconds + MOST_SECONDS:.0f} s")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(int(trial.seconds + MOST_SECONDS))
    try:
        row.run(trial)
    except Exception as error:
        trial.problems.append(f"{type(error).__name__}: {str(error)[:1000]}")
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    return trial.result(row.name)


class Session:
    """The Spark session that rows share, started by the first that needs it."""

    def __init__(self) -> None:
        self._spark: SparkSession | None = None

    def __call__(self) -> SparkSession:
        if self._spark is None:
            self._spark = sparkswarm.session(
                "chaos",
                "local[2]",
                {
                    "spark.ui.enabled": False,
                    "spark.ui.showConsoleProgress": False,
                    "spark.log.level": "OFF",
                    "spark.driver.bindAddress": "127.0.0.1",
                    "spark.driver.host": "127.0.0.1",
                    "spark.driver.memory": "2g",
                    "spark.sql.shuffle.partitions": 2,
                    "spark.sql.session.timeZone": "UTC",
                },
            )
        return self._spark

    def stop(self) -> None:
        """Stop it, if it was started."""
        if self._spark is not None:
            self._spark.stop()


def line(result: dict[str, Any]) -> str:
    """Return a row as a line of text, and what is wrong or was measured below it."""
    counts = ", ".join(f"{result[name]} {name}" for name in ("lost", "duplicated", "wrong"))
    recovered = "" if result["recovered_s"] is None else f", on after {result['recovered_s']} s"
    first = (
        f"{'ok    ' if result['ok'] else 'FAILED'} {result['name']}: tried {result['tried']} of "
        f"{result['whole']}, {counts}{recovered} ({result['seconds']} s)"
    )
    below = [*result["problems"][:5], *result["notes"]]
    return "\n".join([first, *(f"       {text}" for text in below)])


def when() -> dict[str, Any]:
    """Return the date, and how busy the machine was."""
    return {"date": datetime.now(UTC).date().isoformat(), "load": round(os.getloadavg()[1], 1)}


def where() -> dict[str, Any]:
    """Return on what machine this ran."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cores": os.cpu_count(),
        "memory_gb": math.ceil(memory / 2**30),
        "python": platform.python_version(),
    }


if __name__ == "__main__":
    sys.exit(main())
