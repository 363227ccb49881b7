"""Fuzzing: runs many seeds and sums up what was wrong with them.

Turns a seed into a :class:`FuzzOutcome` and outcomes into a :class:`Summary`. Seeds are
independent and may run in parallel; the summary does not depend on the number of processes.
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
"""Seeds that a process runs before it reports."""


@dataclass(frozen=True, slots=True)
class FuzzOutcome:
    """The outcome of one seed.

    Attributes
    ----------
    lost, duplicated, partial
        As in :class:`~sparkswarm.sim.oracle.OracleVerdict`.
    violations
        Number of violations.
    told
        The first violations, as text.
    trace_hash
        Hash over all events.
    happened
        Number of events of each kind, to judge how much a run tested.
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
    """The outcomes of many seeds, in the order of the seeds."""

    bugs: tuple[Bug, ...] = ()
    outcomes: list[FuzzOutcome] = field(default_factory=list)

    @property
    def failing(self) -> list[FuzzOutcome]:
        """The outcomes with violations."""
        return [outcome for outcome in self.outcomes if outcome.violations]

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-ready form; the trace hash covers the trace hashes of all seeds."""
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
    """Return the command that runs a seed again and writes its journal."""
    planted = "".join(f" --bug {bug}" for bug in bugs)
    return f"sparkswarm fuzz --seed {seed}{planted} --journal seed-{seed}.jsonl"


def play(seed: int, bugs: Sequence[Bug] = (), journal_to: TextIO | None = None) -> FuzzOutcome:
    """Run one seed; every other one has the default settings."""
    scenario = draw_scenario(seed, defaults=seed % 2 == 1)
    world = World(seed, scenario, frozenset(bugs), journal_to)
    verdict = world.play()
    return FuzzOutcome(
        seed=seed,
        lost=verdict.lost,
        duplicated=verdict.duplicated,
        partial=verdict.partial,
        violations=len(verdict.violations),
        told=tuple(describe(verdict.violations)),
        trace_hash=world.journal.trace_hash,
        happened=world.happened(),
    )


def play_all(
    seeds: Sequence[int], bugs: Sequence[Bug] = (), jobs: int = 1
) -> Iterator[FuzzOutcome]:
    """Run seeds on ``jobs`` processes; yield the outcomes in the order of the seeds."""
    one = partial(play, bugs=tuple(bugs))
    if jobs == 1:
        yield from map(one, seeds)
        return
    # Spawned, not forked: a fork would inherit the threads and locks of the calling process.
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        yield from pool.imap(one, seeds, CHUNK)


def fuzz(
    seeds: Sequence[int],
    bugs: Sequence[Bug] = (),
    jobs: int = 1,
    on_outcome: Callable[[FuzzOutcome], None] = lambda outcome: None,
) -> Summary:
    """Run seeds and sum up; ``on_outcome`` is called after each."""
    summary = Summary(tuple(bugs))
    for outcome in play_all(seeds, bugs, jobs):
        summary.outcomes.append(outcome)
        on_outcome(outcome)
    return summary
