"""The command line: ``sparkswarm``.

Owns words, options and progress bars, and nothing that computes. Numbers for machines go to
where ``--json`` says (``-`` is standard output), everything for people to standard error, so
that the two never mix. Exit codes: 0 done, 1 an error that is explained, 2 wrong usage, 130
interrupted.
"""

from __future__ import annotations

from typing import Annotated

import typer

from sparkswarm.bench.cli import bench
from sparkswarm.experiments.cli import figures, simulate
from sparkswarm.map.cli import map_
from sparkswarm.runfile.cli import explain, run
from sparkswarm.sim.fuzz_cli import fuzz
from sparkswarm.terminal import SeedOption, explained, people

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(bench, name="bench")


def _version(wanted: bool) -> None:
    if wanted:
        from sparkswarm import __version__

        print(__version__)
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Say which.")
    ] = False,
) -> None:
    """SWARM: adaptive load balancing of spatial streams, on Apache Spark.

    Start with: sparkswarm demo. Exit codes: 0 done, 1 an error that is explained, 2 wrong usage,
    130 interrupted.
    """


@app.command()
def demo(
    seconds: Annotated[
        int, typer.Option(min=3, help="How long SWARM streams, about; a batch a second.")
    ] = 60,
    executors: Annotated[int, typer.Option(min=2, max=32, help="Executors.")] = 8,
    seed: SeedOption = 0,
    compare: Annotated[
        bool,
        typer.Option(
            "--compare/--no-compare", help="Then stream the same rows without rebalancing."
        ),
    ] = True,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open the live map in a browser.")
    ] = True,
) -> None:
    """Watch the engine follow a hotspot on a local Spark, in the terminal and on a live map.

    A day of a world of cities in a minute: 200,000 points a batch against 100,000 subscriptions; a
    hotspot comes, glides and goes. Then the same rows without rebalancing.

    Example: sparkswarm demo --seconds 40 --no-browser. Ctrl-C ends it, with exit code 130.
    """
    from sparkswarm.demo import run_demo

    with explained():
        run_demo(people, seconds, executors, seed, compare, browser)


app.command()(run)
app.command()(explain)
app.command("map")(map_)
app.command()(fuzz)
app.command()(simulate)
app.command()(figures)
