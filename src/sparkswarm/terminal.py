"""What all commands share: where words go, common options, progress bars, errors in one line."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from sparkswarm.errors import SparkswarmError

if TYPE_CHECKING:
    from sparkswarm.workloads import Density

people = Console(stderr=True)

JsonOption = Annotated[
    str | None, typer.Option("--json", metavar="FILE", help="Write JSON here; - is stdout.")
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
        help="The space that --density covers, where the file does not say.",
    ),
]
SeedOption = Annotated[int, typer.Option(min=0, help="Fixes everything random.")]


def chosen_density(path: Path | None, bounds: tuple[float, float, float, float] | None) -> Density:
    """Return the density that the options name."""
    from sparkswarm.geometry import Bounds
    from sparkswarm.workloads import CONTIGUOUS_US, cities_density, load_density

    if path is None:
        return cities_density(Bounds(*bounds) if bounds else CONTIGUOUS_US)
    return load_density(path, Bounds(*bounds) if bounds else None)


@contextmanager
def explained() -> Iterator[None]:
    """Turn our own errors into one line and an exit code."""
    try:
        yield
    except SparkswarmError as error:
        people.print(f"[bold red]error:[/] {error}", highlight=False)
        raise typer.Exit(1) from error
    except KeyboardInterrupt:
        people.print("interrupted")
        raise typer.Exit(130) from None


def progress_bar(console: Console = people) -> Progress:
    """Return a bar that says how much of something is done and how long the rest will take."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
    )


def write_json(where: str | None, data: dict[str, Any]) -> None:
    """Write what machines read to where ``--json`` says."""
    if where is None:
        return
    text = json.dumps(data, indent=1)
    if where == "-":
        sys.stdout.write(text + "\n")
    else:
        Path(where).write_text(text + "\n", encoding="utf-8")
