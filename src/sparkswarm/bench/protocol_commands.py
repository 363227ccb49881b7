"""The benchmarks of the protocol, without Spark: options and tables of their commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.table import Table

from sparkswarm.terminal import (
    BoundsOption,
    DensityOption,
    JsonOption,
    SeedOption,
    exit_on_error,
    progress_bar,
    progress_steps,
    stderr,
    write_json,
)


def balance(
    executors: Annotated[int, typer.Option(min=1, help="Number of executors.")] = 22,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds; the hotspot is in 30 to 49.")] = 60,
    density: DensityOption = None,
    bounds: BoundsOption = None,
    points: Annotated[int, typer.Option(min=1, help="Points per round.")] = 1_000_000,
    queries: Annotated[int, typer.Option(min=0, help="Number of queries.")] = 1_000_000,
    seed: SeedOption = 0,
    json_to: JsonOption = None,
    plans: Annotated[
        Path | None,
        typer.Option(
            help="Also draw the plans at the start, settled and in the hotspot, to this file."
        ),
    ] = None,
    picture: Annotated[Path, typer.Option(help="File of the picture.")] = Path(
        "artifacts/balance.png"
    ),
) -> None:
    """Measure how evenly the protocol divides the work, round by round (simulated rounds).

    Example: sparkswarm bench balance --rounds 20 --points 100000
    """
    from sparkswarm.bench.balance import run_balance, variants
    from sparkswarm.bench.pictures import draw_balance, draw_plans
    from sparkswarm.workloads import choose_density

    with exit_on_error(), progress_bar() as progress:
        where = choose_density(density, bounds)
        total = rounds * len(list(variants(executors)))
        task = progress.add_task("balance", total=total)
        runs = run_balance(
            where,
            executors,
            rounds,
            points,
            queries,
            seed,
            lambda variant, _: progress.update(task, advance=1, description=variant.label),
        )
        title = f"{executors} executors, {where.name}, {points:,} points per round (simulated)"
        draw_balance(runs, title, picture)
        if plans:
            best = next(run for run in runs if run.variant.is_default)
            names = ("at the start", "settled", "in the hotspot")
            titles = [
                f"{n}, before round {r}" for n, (r, _) in zip(names, best.plans, strict=False)
            ]
            draw_plans(list(zip(titles, (p for _, p in best.plans), strict=True)), where, plans)
    table = Table(title=title, box=box.SIMPLE, padding=(0, 0, 0, 1), pad_edge=False)
    table.add_column("variant", no_wrap=True)
    for column in ("5", "12-29", "+2", "+5", "last", "changes"):
        table.add_column(column, justify="right", no_wrap=True)
    rows = [("never rebalanced", runs[0].static_efficiency, 0)]
    for run in runs:
        rows.append((run.variant.label, run.efficiency, sum(run.changes)))
        if run.variant.is_default:
            rows.append(("the same, with lending", run.lent_efficiency, sum(run.changes)))
    for label, e, changes in rows:
        cells = [e[5:6], sorted(e[12:30]), e[32:33], e[35:36], e[-1:]]
        table.add_row(label, *(f"{c[0]:.3f}" if c else "" for c in cells), str(changes))
    stderr.print(table)
    stderr.print(
        "Balance efficiency, 1 is perfect: in round 5, the lowest of rounds 12 to 29, two and "
        f"five rounds after the hotspot's start, in the last round. Picture: {picture}"
    )
    settings = {
        "density": where.name,
        "rounds": rounds,
        "points": points,
        "queries": queries,
        "seed": seed,
    }
    write_json(
        json_to,
        settings
        | {
            "never_rebalanced": [round(value, 4) for value in runs[0].static_efficiency],
            "runs": [run.to_json() for run in runs],
        },
    )


def overhead(
    executors: Annotated[int, typer.Option(min=2, help="Number of executors.")] = 22,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds to run before measuring.")] = 15,
    density: DensityOption = None,
    bounds: BoundsOption = None,
    points: Annotated[int, typer.Option(min=1, help="Points per round.")] = 1_000_000,
    queries: Annotated[int, typer.Option(min=0, help="Number of queries.")] = 1_000_000,
    repeat: Annotated[int, typer.Option(min=2, help="Measurements per operation.")] = 300,
    seed: SeedOption = 0,
    json_to: JsonOption = None,
) -> None:
    """Measure each operation of the paper's two overhead figures.

    Example: sparkswarm bench overhead --queries 100000 --repeat 50
    """
    from sparkswarm.bench.overhead import run_overhead
    from sparkswarm.bench.world import RoundWorld, config_of
    from sparkswarm.workloads import choose_density

    with exit_on_error(), progress_bar() as progress:
        where = choose_density(density, bounds)
        config = config_of(where.grid, executors)
        task = progress.add_task("registering queries", total=rounds + 12)
        world = RoundWorld(config, where, None, points, queries, seed)
        for _ in range(rounds):
            world.play()
            progress.update(task, advance=1, description="playing rounds")
        operations = []
        for operation in run_overhead(world, where, repeat, seed):
            operations.append(operation)
            progress.update(task, advance=1, description=operation.name)
    grid = f"{where.grid.columns} x {where.grid.rows} cells"
    table = Table(
        box=box.SIMPLE, title=f"{executors} executors, {grid}, {queries:,} queries, {where.name}"
    )
    for column in ("operation", "figure", "median µs", "p99 µs", "per"):
        numbers = "µs" in column
        table.add_column(column, justify="right" if numbers else "left", no_wrap=numbers)
    for op in operations:
        table.add_row(op.name, op.figure, f"{op.median:.4g}", f"{op.p99:.4g}", op.per)
    stderr.print(table)
    write_json(
        json_to,
        {
            "executors": executors,
            "grid": [where.grid.columns, where.grid.rows],
            "queries": queries,
            "density": where.name,
            "operations": [operation.to_json() for operation in operations],
        },
    )


def control(
    executors: Annotated[int, typer.Option(min=1, help="Number of executors.")] = 1_000,
    partitions: Annotated[int, typer.Option(min=1, help="Number of partitions.")] = 100_000,
    grid: Annotated[int, typer.Option(min=1, help="Columns, and rows, of the grid.")] = 10_000,
    seed: SeedOption = 0,
    json_to: JsonOption = None,
) -> None:
    """Measure what the control of a batch costs beside its points, without Spark.

    batch_ms is the driver's time for a batch before which 1% of the partitions changed: plan and
    manifest made and written, the input of tasks pickled, commit. round_ms: the Coordinator takes
    a report of each executor, asks, and takes the answers. cleaning_ms: old files are deleted.
    briefing_bytes: what is sent with every task of a batch. worker_ms and worker_changed_ms: a new
    Python worker opens its first batch, and the one after it. worker_bytes: its private memory.

    Example: sparkswarm bench control --executors 100 --partitions 10000 --grid 1000
    """
    from sparkswarm.bench.control import ControlSettings, run_control

    settings = ControlSettings(executors=executors, partitions=partitions, grid=grid, seed=seed)
    with exit_on_error(), progress_steps(4) as on_step:
        found = run_control(settings, on_step).to_json()
    title = f"{executors:,} executors, {partitions:,} partitions, {grid:,} x {grid:,} cells"
    table = Table(title=title, box=box.SIMPLE)
    table.add_column("")
    table.add_column("", justify="right")
    for name, value in found.items():
        table.add_row(name, f"{value:,}")
    stderr.print(table)
    settings_json = {"executors": executors, "partitions": partitions, "grid": grid, "seed": seed}
    write_json(json_to, settings_json | found)
