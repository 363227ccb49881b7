"""What all commands share: the console, common options, progress bars, exit codes.

Messages go to standard error, JSON to where ``--json`` says. Needs the extra ``cli``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from sparkswarm.errors import SparkswarmError

stderr = Console(stderr=True)

JsonOption = Annotated[
    str | None,
    typer.Option("--json", metavar="FILE", help="Write the result as JSON; - is stdout."),
]
DensityOption = Annotated[
    Path | None,
    typer.Option(
        help="A grid of counts (parquet or csv with lat_idx, lon_idx and tweets or count; or "
        "npy). Default: built-in cities of the contiguous US."
    ),
]
BoundsOption = Annotated[
    tuple[float, float, float, float] | None,
    typer.Option(
        metavar="MIN_X MIN_Y MAX_X MAX_Y",
        help="The space that --density covers, if the file does not contain it.",
    ),
]
SeedOption = Annotated[int, typer.Option(min=0, help="Seed of the random numbers.")]


@contextmanager
def exit_on_error() -> Iterator[None]:
    """Turn exceptions of sparkswarm into one line and exit code 1, Ctrl-C into 130."""
    try:
        yield
    except SparkswarmError as error:
        stderr.print(f"[bold red]error:[/] {error}", highlight=False)
        raise typer.Exit(1) from error
    except KeyboardInterrupt:
        stderr.print("interrupted")
        raise typer.Exit(130) from None


def progress_bar(console: Console = stderr) -> Progress:
    """Return a progress bar with the steps done and the estimated time left."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
    )


@contextmanager
def progress_steps(total: int) -> Iterator[Callable[[str], None]]:
    """Show the progress of a benchmark; it calls the yielded function before each step."""
    with progress_bar() as progress:
        task = progress.add_task("starting", total=total)
        began = 0

        def on_step(step: str) -> None:
            nonlocal began
            progress.update(task, completed=began, description=step)
            began += 1

        yield on_step
        progress.update(task, completed=total)


def write_json(target: str | None, data: dict[str, Any]) -> None:
    """Write JSON to a file or, for ``-``, to standard output; nothing if there is no target."""
    if target is None:
        return
    text = json.dumps(data, indent=1)
    if target == "-":
        sys.stdout.write(text + "\n")
    else:
        Path(target).write_text(text + "\n", encoding="utf-8")
