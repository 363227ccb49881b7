"""Seeds of the fuzzer, and the bugs that it must find."""

from __future__ import annotations

import os

from sparkswarm.sim.bugs import Bug
from sparkswarm.sim.fuzz import fuzz, play_all

from ..sim.test_fuzz import FOUND_BY, RARE
from .trial import Trial

SEEDS = 10_000
AT_ONCE = 100


def seeds(trial: Trial) -> None:
    """Run seeds on virtual machines with faults; find every bug that is planted."""
    for bug in Bug:
        first = RARE.get(bug, 0)
        outcomes = play_all(range(first, first + 200), [bug])
        found = any(FOUND_BY[bug] in told for outcome in outcomes for told in outcome.told)
        trial.check(found, f"the planted bug {bug} was not found")
    for number in trial.repeat(SEEDS // AT_ONCE):
        chunk = range(number * AT_ONCE, (number + 1) * AT_ONCE)
        summary = fuzz(chunk, jobs=os.cpu_count() or 1).to_json()
        trial.tried += summary["seeds"]
        trial.lost += summary["lost"]
        trial.duplicated += summary["duplicated"]
        trial.wrong += summary["violations"]
        for failing in summary["failing"]:
            trial.problems.append(f"{failing['replay']}: {failing['violations'][:2]}")
    trial.notes.append(f"{len(Bug)} planted bugs looked for")
