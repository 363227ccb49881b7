"""The command ``sparkswarm fuzz``: options and output; the work is in :mod:`.fuzz`."""

from __future__ import annotations

import os
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from sparkswarm.sim.bugs import Bug
from sparkswarm.terminal import exit_on_error, progress_bar, stderr, write_json


def fuzz(
    seeds: Annotated[int, typer.Option(min=1, help="Number of seeds to run.")] = 200,
    first: Annotated[int, typer.Option(min=0, help="First seed.")] = 0,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Run only this seed, as --journal needs.")
    ] = None,
    bug: Annotated[
        list[Bug] | None,
        typer.Option(help="Switch on a planted bug, to check that it is found. Repeatable."),
    ] = None,
    journal: Annotated[
        Path | None,
        typer.Option(help="Write every event of --seed to this file, as lines of JSON."),
    ] = None,
    jobs: Annotated[
        int, typer.Option(min=0, help="Number of processes; 0 is one for each core.")
    ] = 0,
    json_to: Annotated[
        str | None,
        typer.Option("--json", metavar="FILE", help="Write JSON to this file; - is stdout."),
    ] = None,
) -> None:
    """Run the protocol on simulated machines with faults, and check every result.

    Delays, lost and duplicated messages, slow machines, crashes and network partitions are
    drawn from the seed. The exit code is 1 if any check failed.
    """
    from sparkswarm.sim.fuzz import FuzzOutcome, Summary, play
    from sparkswarm.sim.fuzz import fuzz as play_many

    bugs = tuple(bug or ())
    if journal is not None and seed is None:
        raise typer.BadParameter("--journal needs --seed")
    with exit_on_error():
        if seed is not None:
            with journal.open("w", encoding="utf-8") if journal else nullcontext() as lines:
                summary = Summary(bugs, [play(seed, bugs, lines)])
        else:
            with progress_bar() as progress:
                task = progress.add_task("fuzz", total=seeds)
                failed = 0

                def on_outcome(outcome: FuzzOutcome) -> None:
                    nonlocal failed
                    failed += bool(outcome.violations)
                    words = "fuzz" if not failed else f"fuzz, {failed} failing"
                    progress.update(task, advance=1, description=words)

                processes = min(jobs or os.cpu_count() or 1, seeds)
                summary = play_many(range(first, first + seeds), bugs, processes, on_outcome)
    result = summary.to_json()
    for failing in result["failing"][:10]:
        stderr.print(f"[bold red]seed {failing['seed']}[/]", highlight=False)
        for violation in failing["violations"]:
            stderr.print(f"  {violation}", highlight=False, markup=False)
        stderr.print(f"  {failing['replay']}", highlight=False, markup=False)
    stderr.print(
        f"{result['seeds']} seeds: {result['lost']} lost, {result['duplicated']} duplicated, "
        f"{result['violations']} violations, {result['partial']} partial answers; "
        f"trace {result['trace_hash']}",
        highlight=False,
    )
    write_json(json_to, result)
    if summary.failing:
        raise typer.Exit(1)
