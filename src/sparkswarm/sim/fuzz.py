"""Fuzzing: many seeds, each a run of its own, and what was wrong with any of them.

Owns the way from a seed to an :class:`Outcome` and from outcomes to a :class:`Summary`. Seeds
are independent, so they may be played on all cores; the summary does not depend on how many.
"""

from __future__ import annotations

import hashlib
import multiprocessing
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TextIO

from sparkswarm.sim.bugs import Bug
from sparkswarm.sim.cluster import World, draw_scenario
from sparkswarm.sim.oracle import describe

CHUNK = 4
"""Seeds that a process plays before it reports."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one seed.

    Attributes
    ----------
    lost, duplicated, partial
        As in :class:`~sparkswarm.sim.oracle.Verdict`.
    violations
        How many things were wrong in all.
    told
        The first of them, in words.
    trace_hash
        The hash of every event.
    happened
        How often what happened, to see that a run was worth its while.
    """

    seed: int
    lost: int
    duplicated: int
    partial: int
    violations: int
    told: tuple[str, ...]
    trace_hash: str
    happened: dict[str, int]


@dataclass(slots=True)
class Summary:
    """What came of many seeds, in their order."""

    bugs: tuple[Bug, ...] = ()
    outcomes: list[Outcome] = field(default_factory=list)

    @property
    def failing(self) -> list[Outcome]:
        """The seeds with which something was wrong."""
        return [outcome for outcome in self.outcomes if outcome.violations]

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-ready form; the trace hash is the hash of all trace hashes."""
        trace = hashlib.blake2b(digest_size=16)
        happened: Counter[str] = Counter()
        for outcome in self.outcomes:
            trace.update(outcome.trace_hash.encode())
            happened.update(outcome.happened)
        return {
            "seeds": len(self.outcomes),
            "lost": sum(outcome.lost for outcome in self.outcomes),
            "duplicated": sum(outcome.duplicated for outcome in self.outcomes),
            "violations": sum(outcome.violations for outcome in self.outcomes),
            "partial": sum(outcome.partial for outcome in self.outcomes),
            "trace_hash": trace.hexdigest(),
            "happened": dict(sorted(happened.items())),
            "failing": [
                {
                    "seed": outcome.seed,
                    "violations": list(outcome.told),
                    "replay": replay_command(outcome.seed, self.bugs),
                }
                for outcome in self.failing
            ],
        }


def replay_command(seed: int, bugs: Sequence[Bug]) -> str:
    """Return the command that plays a seed again and writes its journal."""
    planted = "".join(f" --bug {bug}" for bug in bugs)
    return f"sparkswarm fuzz --seed {seed}{planted} --journal seed-{seed}.jsonl"


def play(seed: int, bugs: Sequence[Bug] = (), journal_to: TextIO | None = None) -> Outcome:
    """Play one seed."""
    world = World(seed, draw_scenario(seed), frozenset(bugs), journal_to)
    verdict = world.play()
    return Outcome(
        seed=seed,
        lost=verdict.lost,
        duplicated=verdict.duplicated,
        partial=verdict.partial,
        violations=len(verdict.violations),
        told=tuple(describe(verdict.violations)),
        trace_hash=world.journal.trace_hash,
        happened=world.happened(),
    )


def play_all(seeds: Sequence[int], bugs: Sequence[Bug] = (), jobs: int = 1) -> Iterator[Outcome]:
    """Play seeds on so many processes; the outcomes come in the order of the seeds."""
    one = partial(play, bugs=tuple(bugs))
    if jobs == 1:
        yield from map(one, seeds)
        return
    # Spawned, not forked: a fork would inherit threads and locks of whoever runs us.
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        yield from pool.imap(one, seeds, CHUNK)


def fuzz(
    seeds: Sequence[int],
    bugs: Sequence[Bug] = (),
    jobs: int = 1,
    on_outcome: Callable[[Outcome], None] = lambda outcome: None,
) -> Summary:
    """Play seeds and sum up; ``on_outcome`` hears of each as it is done."""
    summary = Summary(tuple(bugs))
    for outcome in play_all(seeds, bugs, jobs):
        summary.outcomes.append(outcome)
        on_outcome(outcome)
    return summary
