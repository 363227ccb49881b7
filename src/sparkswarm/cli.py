"""The command ``sparkswarm`` with its subcommands.

Owns the list of commands; their modules own options and output, and compute nothing. JSON goes to
where ``--json`` says (``-`` is standard output), messages and tables to standard error, so that
the two never mix. Exit codes: 0 success, 1 an error, 2 wrong usage, 130 interrupted.
"""

from __future__ import annotations

from typing import Annotated

import typer

from sparkswarm.bench.cli import bench
from sparkswarm.doctor.cli import doctor
from sparkswarm.experiments.cli import figures, simulate
from sparkswarm.map.cli import map_
from sparkswarm.runfile.cli import explain, run
from sparkswarm.sim.fuzz_cli import fuzz
from sparkswarm.terminal import SeedOption, exit_on_error, stderr

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(bench, name="bench")


def _version(is_given: bool) -> None:
    if is_given:
        from sparkswarm import __version__

        print(__version__)
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """SWARM: adaptive load balancing of spatial streams, on Apache Spark.

    Start with: sparkswarm demo. Exit codes: 0 success, 1 an error, 2 wrong usage, 130 interrupted.
    """


@app.command()
def demo(
    seconds: Annotated[
        int, typer.Option(min=3, help="Approximate length: a second for each batch.")
    ] = 60,
    executors: Annotated[int, typer.Option(min=2, max=32, help="Number of executors.")] = 8,
    seed: SeedOption = 0,
    compare: Annotated[
        bool,
        typer.Option(
            "--compare/--no-compare", help="Stream the same rows without rebalancing too, in turn."
        ),
    ] = True,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open the live map in a browser.")
    ] = True,
) -> None:
    """Show the engine following a hotspot on a local Spark, in the terminal and on a live map.

    Simulates city traffic, a day in 60 batches: 200,000 points a batch against 100,000
    subscriptions, while a hotspot appears, moves and disappears. Each batch also runs without
    rebalancing, for comparison.

    Example: sparkswarm demo --seconds 40 --no-browser. Ctrl-C stops it, with exit code 130.
    """
    from sparkswarm.demo import run_demo

    with exit_on_error():
        run_demo(stderr, seconds, executors, seed, compare, browser)


app.command()(run)
app.command()(explain)
app.command("map")(map_)
app.command()(doctor)
app.command()(fuzz)
app.command()(simulate)
app.command()(figures)
