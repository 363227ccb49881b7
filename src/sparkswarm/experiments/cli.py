"""The commands ``sparkswarm simulate`` and ``sparkswarm figures``: options and output."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.table import Table

from sparkswarm.experiments.names import POLICIES, SCENARIOS
from sparkswarm.terminal import (
    BoundsOption,
    DensityOption,
    JsonOption,
    SeedOption,
    exit_on_error,
    progress_bar,
    stderr,
    write_json,
)

if TYPE_CHECKING:
    from sparkswarm.experiments.service import Service
    from sparkswarm.workloads import Density

_STORED = "stored"
_ALL = ",".join(POLICIES)

_Policies = Annotated[
    str, typer.Option(help=f"Policies to compare, separated by commas: {', '.join(POLICIES)}.")
]
_ServiceFile = Annotated[
    str | None,
    typer.Option(
        "--service",
        metavar="FILE",
        help="File with service times, such as the config.json of a run, or 'stored' for built-in "
        "constants. Default: measure this machine, which takes some seconds.",
    ),
]
_Minutes = Annotated[
    int | None, typer.Option(min=1, help="Scale the scenario to this many minutes of virtual time.")
]


def simulate(
    scenario: Annotated[str, typer.Option(help=f"One of {', '.join(SCENARIOS)}.")] = (
        "one-uniform-hotspot"
    ),
    policies: _Policies = _ALL,
    queries: Annotated[
        int | None,
        typer.Option(min=1, help="Queries registered before the run, instead of the scenario's."),
    ] = None,
    minutes: _Minutes = None,
    density: DensityOption = None,
    bounds: BoundsOption = None,
    service: _ServiceFile = None,
    seed: SeedOption = 0,
    out: Annotated[
        Path | None, typer.Option(help="Output folder; default: artifacts/simulate/SCENARIO.")
    ] = None,
    json_to: JsonOption = None,
) -> None:
    """Simulate one of the paper's scenarios on its cluster, and write the results to a folder."""
    from sparkswarm.experiments.claims import claims
    from sparkswarm.experiments.experiment import Settings, run_experiment
    from sparkswarm.experiments.folder import write_folder
    from sparkswarm.experiments.scenarios import find_scenario
    from sparkswarm.workloads import choose_density

    with exit_on_error(), progress_bar() as progress:
        chosen = find_scenario(scenario)
        if minutes is not None:
            chosen = chosen.shortened(minutes)
        if queries is not None:
            chosen = replace(chosen, queries=(queries,))
        where = choose_density(density, bounds)
        task = progress.add_task("measuring this machine", total=None)
        settings = Settings(chosen, _names(policies), _service(service, where, seed), seed=seed)
        progress.update(task, total=settings.minutes, description="starting")

        def on_minute(policy: str, registered: int) -> None:
            label = f"{policy}, {registered:,} queries"
            progress.update(task, advance=1, description=label)

        experiment = run_experiment(settings, where, on_minute)
        folder = out or Path("artifacts") / "simulate" / chosen.name
        write_folder(experiment, folder)
    found = experiment.to_json()
    table = Table(
        box=box.SIMPLE,
        title=f"{chosen.title}, {where.name}, {chosen.minutes} minutes of virtual time",
    )
    for column in ("policy", "units of work/s", "latency, µs", "balance", "changes"):
        table.add_column(column, justify="left" if column == "policy" else "right", no_wrap=True)
    for name, of in found["policies"].items():
        numbers = (of["units_of_work"], of["latency_us"], of["balance"])
        formats = ("{:.3g}", "{:,.0f}", "{:.2f}")
        cells = [
            "failed" if number is None else form.format(number)
            for form, number in zip(formats, numbers, strict=True)
        ]
        table.add_row(name, *cells, str(of["changes"]))
    stderr.print(table)
    for claim in claims(experiment):
        mark = {True: "yes", False: "no ", None: "   "}[claim.holds]
        stderr.print(f"{mark}  {claim.what}: {claim.ours} (paper: {claim.paper})", highlight=False)
    stderr.print(f"Folder: {folder}")
    write_json(
        json_to,
        found
        | {
            "claims": [claim.to_json() for claim in claims(experiment)],
            "folder": str(folder),
            "timeline": str(folder / "results.csv"),
        },
    )


def figures(
    name: Annotated[str, typer.Argument(metavar="[NAME|all]", help="The figure to draw.")] = "all",
    out: Annotated[Path, typer.Option(help="Folder for the pictures and tables.")] = Path(
        "artifacts/figures"
    ),
    policies: _Policies = _ALL,
    minutes: _Minutes = None,
    density: DensityOption = None,
    bounds: BoundsOption = None,
    service: _ServiceFile = None,
    seed: SeedOption = 0,
    json_to: JsonOption = None,
) -> None:
    """Draw the figures of the paper's evaluation, each as PNG and CSV."""
    from sparkswarm.experiments.experiment import Settings
    from sparkswarm.experiments.figures import Figures, chosen, minutes_of
    from sparkswarm.experiments.folder import json_file
    from sparkswarm.experiments.scenarios import find_scenario
    from sparkswarm.workloads import choose_density

    with exit_on_error(), progress_bar() as progress:
        names = chosen(name)
        where = choose_density(density, bounds)
        task = progress.add_task("measuring this machine", total=None)
        first = find_scenario(SCENARIOS[0])
        settings = Settings(first, _names(policies), _service(service, where, seed), seed=seed)
        total = minutes_of(names, settings, minutes)
        progress.update(task, total=total or None, description="starting")

        def on_minute(policy: str, registered: int) -> None:
            label = f"{policy}, {registered:,} queries"
            progress.update(task, advance=1, description=label)

        drawn = Figures(settings, where, out, minutes, on_minute)
        files = drawn.draw(names)
        config = settings.to_json() | {"density": where.name, "minutes": minutes}
        del config["scenario"]
        files.append(json_file(config | {"figures": list(names)}, out / "config.json"))
    for path in files:
        stderr.print(str(path), highlight=False)
    write_json(json_to, {"figures": list(names), "files": [str(path) for path in files]})


def _names(policies: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in policies.split(",") if name.strip())


def _service(wanted: str | None, density: Density, seed: int) -> Service:
    from sparkswarm.experiments.service import STORED, Service, calibrate

    if wanted is None:
        return calibrate(density, seed)
    return STORED if wanted == _STORED else Service.read(Path(wanted))
