"""One row of the table of faults: its time, its folder, what it counts, and its verdict."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession


@dataclass
class Trial:
    """A row while it runs.

    Attributes
    ----------
    folder
        An empty folder of its own.
    seconds
        How long it may take. What has begun is brought to its end, so it may take a little longer.
    session
        Gives the Spark session that rows in this process share.
    tried, whole
        How often the fault was made, or how many inputs there were, and that at full length.
    lost, duplicated, wrong
        Rows of the output that are missing, there too often, or not to be there at all.
    recoveries
        Seconds from each fault until the run went on.
    problems
        What does not hold, in words; the row is good where there are none.
    notes
        What else was measured.
    """

    folder: Path
    seconds: float
    session: Callable[[], SparkSession]
    whole: int
    tried: int = 0
    lost: int = 0
    duplicated: int = 0
    wrong: int = 0
    recoveries: list[float] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)

    @property
    def left(self) -> float:
        """Seconds that are left."""
        return self.began + self.seconds - time.monotonic()

    def repeat(self, most: int) -> Iterator[int]:
        """Count to ``most``, or as far as there is time for; the first always comes."""
        longest = 0.0
        for i in range(most):
            if i and longest > self.left:
                return
            before = time.monotonic()
            yield i
            longest = max(longest, time.monotonic() - before)

    def compare(self, got: Counter[Any], wanted: Counter[Any], where: str = "") -> None:
        """Compare the output with the oracle's, as multisets."""
        lost, extra = wanted - got, got - wanted
        twice = sum(count for row, count in extra.items() if row in wanted)
        self.lost += sum(lost.values())
        self.duplicated += twice
        self.wrong += sum(extra.values()) - twice
        if lost or extra:
            some = [*sorted(lost, key=str)[:2], *sorted(extra, key=str)[:2]]
            self.problems.append(f"{where or 'output'} is not the oracle's, such as {some}")

    def check(self, holds: bool, problem: str) -> None:
        """Note a problem unless something holds."""
        if not holds:
            self.problems.append(problem)

    def recovered(self, seconds: float, most: float) -> None:
        """Note how long it took until the run went on, and how long it may take."""
        self.recoveries.append(seconds)
        self.check(seconds <= most, f"went on after {seconds:.1f} s, not within {most:g} s")

    def result(self, name: str) -> dict[str, Any]:
        """Return the row."""
        return {
            "name": name,
            "tried": self.tried,
            "whole": self.whole,
            "lost": self.lost,
            "duplicated": self.duplicated,
            "wrong": self.wrong,
            "recovered_s": round(max(self.recoveries), 1) if self.recoveries else None,
            "ok": not self.problems and self.tried > 0,
            "seconds": round(time.monotonic() - self.began, 1),
            "notes": self.notes,
            "problems": self.problems,
        }


@dataclass(frozen=True)
class Row:
    """A row of the table.

    Attributes
    ----------
    name
        What is done.
    weight
        Its share of the time.
    run
        Does it.
    whole
        ``tried`` at full length, unless only the row knows.
    """

    name: str
    weight: float
    run: Callable[[Trial], None]
    whole: int
