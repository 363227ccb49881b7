"""The benchmarks on Spark: options and tables of their commands."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, cast

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

Centres = Literal["uniform", "cities"]


def fences(
    polygons: Annotated[int, typer.Option(min=1, help="Polygons of 5 to 200 vertices.")] = 100_000,
    circles: Annotated[int, typer.Option(min=1, help="Number of circles.")] = 1_000,
    countries: Annotated[
        int, typer.Option(min=0, help="Polygons of 10,000 to 20,000 vertices.")
    ] = 20,
    points: Annotated[int, typer.Option(min=1, help="Points per batch.")] = 500_000,
    objects: Annotated[int, typer.Option(min=1, help="Objects of events.")] = 1_000_000,
    step: Annotated[
        float,
        typer.Option(
            min=0,
            help="How far an object moves between two of its points, in a space of 100 by 100; "
            "0: to any other place, which causes the most events.",
        ),
    ] = 0.05,
    cross: Annotated[
        float,
        typer.Option(min=0, help="Longest lines for which crossed fences are told; 0: none are."),
    ] = 0.0,
    queries: Annotated[
        int, typer.Option(min=1, help="Rectangles with whole numbers and with strings.")
    ] = 1_000_000,
    batches: Annotated[int, typer.Option(min=1, help="Measured batches.")] = 3,
    cores: Annotated[int, typer.Option(min=1, help="Cores that Spark uses.")] = 2,
    seed: SeedOption = 0,
    json_to: JsonOption = None,
) -> None:
    """Measure polygons and circles, with shapely in plain Spark beside it; events; named queries.

    The rival is shapely's STRtree in every Python worker, asked with a predicate and for
    candidates of prepared polygons; the faster of the two counts. All give pairs. A sample of
    points is compared with every fence by shapely. Then: the events of the same points, how many
    questions about the nearest objects are answered in a second, and how fast matching is with
    strings as the ids of rectangles, relative to whole numbers.

    Example: sparkswarm bench fences --polygons 10000 --points 50000
    """
    from sparkswarm.bench.fences import STEPS, FenceSettings, run_fences

    settings = FenceSettings(
        polygons=polygons, circles=circles, countries=countries, points=points, batches=batches,
        cores=cores, seed=seed, objects=objects, queries=queries, step=step,
        cross=cross,
    )  # fmt: skip
    with exit_on_error(), progress_steps(STEPS) as on_step:
        found = run_fences(settings, on_step).to_json()
    match, oracle = found["match"], found["oracle"]
    table = Table(title=f"{polygons:,} polygons, batches of {points:,} points", box=box.SIMPLE)
    table.add_column("")
    table.add_column("points/s", justify="right")
    table.add_row("sparkswarm", f"{match['points_per_s']:,}")
    for name, value in match["rivals"].items():
        table.add_row(name, f"{value:,}")
    events = found["events"]
    table.add_row(f"events of {events['objects']:,} objects", f"{events['points_per_s']:,}")
    stderr.print(table)
    stderr.print(f"ratio {match['ratio']}; {oracle['wrong']} of {oracle['checked']} points wrong")
    stderr.print(
        f"events {events['share_of_match']} of matching; strings "
        f"{found['strings']['ratio_to_longs']} of whole numbers; "
        f"{found['nearest']['asks_per_s']} questions about the nearest per second"
    )
    write_json(json_to, found)


def engine(
    batches: Annotated[int, typer.Option(min=6, help="Batches per run.")] = 8,
    points: Annotated[int, typer.Option(min=1000, help="Points per batch.")] = 1_000_000,
    queries: Annotated[int, typer.Option(min=1000, help="Number of queries.")] = 1_000_000,
    many_queries: Annotated[
        int, typer.Option(min=0, help="Number of queries in the memory run; 0 skips it.")
    ] = 8_000_000,
    centres: Annotated[
        Centres,
        typer.Option(
            help="Distribution of queries: uniform (a few results per point) or cities (hundreds)."
        ),
    ] = "uniform",
    repeat: Annotated[int, typer.Option(min=1, help="Measurements per throughput.")] = 2,
    cores: Annotated[int, typer.Option(min=1, help="Number of cores, and of executors.")] = 2,
    only: Annotated[
        str, typer.Option(help="What to measure, by the names in the JSON, separated by commas.")
    ] = "",
    seed: SeedOption = 0,
    json_to: JsonOption = None,
) -> None:
    """Measure the engine on Spark, plain Spark, DuckDB, and the matching kernel alone.

    Takes about 12 minutes. Example: sparkswarm bench engine --repeat 1 --many-queries 0
    """
    from sparkswarm.bench.engine import run_engine
    from sparkswarm.bench.engine_report import MEASUREMENTS, EngineSettings

    chosen = tuple(filter(None, only.replace(" ", "").split(",")))
    with exit_on_error():
        settings = EngineSettings(
            batches, points, queries, many_queries, centres, repeat, cores, seed, chosen
        )
        with progress_steps(settings.steps) as on_step:
            run = run_engine(settings, on_step)
    found = run.to_json()
    table = Table(
        title=f"{queries:,} queries ({centres}), batches of {points:,} points, local[{cores}]",
        box=box.SIMPLE,
    )
    for column in ("", "points/s", "sparkswarm is"):
        table.add_column(column, justify="right" if column else "left", no_wrap=True)
    ratio = found["ratio"]
    for name, what in MEASUREMENTS.items():
        rate = None if name in ("tasks_write", "spark_writes") else run.rate(name)
        if rate is not None:
            beside = {
                "plain_spark": "plain_spark",
                "plain_spark_lists": "plain_spark_lists",
                "plain_spark_churn": "plain_spark_churn",
                "shuffled": "one_host_to_shuffled",
                "empty": "empty_pipeline",
                "duckdb": "duckdb",
            }.get(name, "")
            is_so = f"{ratio[beside]:.2f} x" if ratio.get(beside) is not None else ""
            table.add_row(what, f"{rate:,}", is_so)
    if run.kernel:
        table.add_row("the kernel alone", f"{run.kernel:,.0f}", f"{ratio['kernel'] or 0:.2f} x")
    stderr.print(table)
    for note in [*run.notes, *_engine_notes(found)]:
        stderr.print(note)
    write_json(json_to, found)


def _engine_notes(found: dict[str, Any]) -> Iterator[str]:
    """Yield a line for each figure of the engine's benchmark that is no throughput."""
    ratio = found["ratio"]
    names = {
        "churn_to_calm": "a batch with 1% churn",
        "partitions_300_to_8": "300 partitions instead of 8",
        "partitions_300_to_8_churn": "the same with churn",
        "direct_sink": "40 results per point written by Spark, not by tasks",
    }
    times = [f"{what} {ratio[name]:.2f} x" for name, what in names.items() if ratio.get(name)]
    if times:
        yield f"Time of a batch relative to one without: {', '.join(times)}."
    if found["small_batch_s"]:
        yield (
            f"A batch of 1,000 points on 4 executors: {found['small_batch_s']:.3f} s, with 100 "
            f"operations {found['small_batch_operations_s']:.3f} s."
        )
    if found["move_overhead"]:
        yield f"Moving 100,000 queries adds {found['move_overhead']:+.1%} to a batch."
    if found["oracle"]["checked"]:
        yield f"Of {found['oracle']['checked']:,} points, {found['oracle']['wrong']} wrong."
    if found["memory"]:
        yield (
            f"{found['memory']['queries']:,.0f} queries: {found['bytes_per_query']:.0f} bytes "
            f"each, at most {found['memory']['peak_gb']:.1f} GB for all processes together; "
            f"registered in {found['memory']['load_s']:.0f} s, a batch takes "
            f"{found['memory']['batch_s']:.2f} s."
        )
    if found["profile"]:
        steps = ", ".join(f"{name} {took:.2f} s" for name, took in found["profile"].items())
        yield f"Where a batch's time goes: {steps}."


def latency(
    rates: Annotated[
        str, typer.Option(help="Points per second, separated by commas.")
    ] = "100,1000,10000",
    queries: Annotated[int, typer.Option(min=1000, help="Number of queries.")] = 1_000_000,
    repeat: Annotated[int, typer.Option(min=1, help="Runs for each mode and rate.")] = 5,
    seconds: Annotated[float, typer.Option(min=1, help="Seconds of a run.")] = 10.0,
    warm_up: Annotated[
        float, typer.Option(min=0, help="Seconds before it whose points are left out.")
    ] = 5.0,
    modes: Annotated[
        str, typer.Option(help="micro_batch, one_stage, by_owner, separated by commas.")
    ] = "micro_batch,one_stage,by_owner",
    kafka: Annotated[
        str | None, typer.Option(help="Brokers through which points and results go.")
    ] = None,
    jars: Annotated[
        str, typer.Option(help="Jars of Spark's Kafka connector, separated by commas.")
    ] = "",
    hotspot: Annotated[
        bool, typer.Option(help="Then a hotspot at the last rate, with rebalancing.")
    ] = False,
    seed: SeedOption = 0,
    json_to: JsonOption = None,
) -> None:
    """Measure latency in micro-batches and in Real-time Mode, from when a point is due.

    Example: sparkswarm bench latency --rates 1000 --queries 100000 --repeat 1
    """
    from sparkswarm.bench.latency import run_latency
    from sparkswarm.bench.latency_results import LatencySettings

    with exit_on_error():
        try:
            chosen = tuple(int(rate) for rate in rates.replace(",", " ").split())
        except ValueError as error:
            raise typer.BadParameter(f"{rates}: whole numbers, such as 100,1000") from error
        settings = LatencySettings(
            rates=chosen, queries=queries, repeat=repeat, seconds=seconds, warm_up=warm_up,
            modes=tuple(modes.replace(",", " ").split()), seed=seed, kafka=kafka, jars=jars,
            hotspot=hotspot,
        )  # fmt: skip
        with progress_steps(settings.steps) as on_step:
            found = run_latency(settings, on_step).to_json()
    table = Table(title=f"{queries:,} queries: 50% / 99% of latencies, ms", box=box.SIMPLE)
    table.add_column("points/s", justify="right")
    for mode in found["modes"]:
        table.add_column(mode, justify="right")
    for rate in map(str, settings.rates):
        cells = (found["modes"][mode][rate] for mode in found["modes"])
        table.add_row(f"{int(rate):,}", *(f"{one['p50_ms']} / {one['p99_ms']}" for one in cells))
    stderr.print(table)
    for mode, one in found.get("hotspot", {}).items():
        moves = f"new plans after {', '.join(f'{s:g}' for s in one['moves_s'])} s"
        stderr.print(
            f"{mode}, hotspot: medians by second up to {max(one['p50_ms'], default=0)} ms, "
            f"{one['calm_p50_ms']} ms before it; {moves if one['moves_s'] else 'no new plan'}."
        )
    oracle = found["oracle"]
    stderr.print(
        f"Medians of {repeat} runs of {seconds:g} s; the first {warm_up:g} s of each are left "
        f"out. {oracle['wrong']} of {oracle['checked']:,} points wrong."
    )
    write_json(json_to, found)


def adapt(
    batches: Annotated[
        int,
        typer.Option(min=6, help="Batches; the hotspot is in all but the first quarter."),
    ] = 20,
    points: Annotated[int, typer.Option(min=1000, help="Points per batch.")] = 200_000,
    queries: Annotated[int, typer.Option(min=100, help="Queries before the hotspot.")] = 200_000,
    density: DensityOption = None,
    bounds: BoundsOption = None,
    seed: SeedOption = 0,
    json_to: JsonOption = None,
    picture: Annotated[Path, typer.Option(help="File of the picture.")] = Path(
        "artifacts/adapt.png"
    ),
) -> None:
    """Measure how each policy handles a hotspot, on Spark, every executor a machine of its own.

    Example: sparkswarm bench adapt --batches 14 --points 100000
    """
    from sparkswarm.bench.adapt import run_adapt, total_batches
    from sparkswarm.bench.adapt_stream import AdaptSettings
    from sparkswarm.bench.pictures import draw_adapt
    from sparkswarm.workloads import Hotspot, choose_density

    hotspot = Hotspot(start=round(batches * 0.27), stop=batches - 1)
    settings = AdaptSettings(batches, points, queries, hotspot=hotspot, seed=seed)
    with exit_on_error(), progress_bar() as progress:
        where = choose_density(density, bounds)
        task = progress.add_task("writing the stream", total=total_batches(settings))

        def on_batch(part: str, policy: str, _: int) -> None:
            progress.update(task, advance=1, description=f"{part}: {policy}")

        run = run_adapt(where, settings, on_batch)
        draw_adapt(run, picture)
    table = Table(box=box.SIMPLE, title=f"during the hotspot, {where.name}")
    for column in ("policy", "points/s", "longest task, s", "mean latency, s"):
        table.add_column(column, justify="left" if column == "policy" else "right")
    rate, path, latency = run.throughput(), run.critical_path(), run.latency()
    for name in settings.policies:
        table.add_row(name, f"{rate[name]:,.0f}", f"{path[name]:.3f}", f"{latency[name]:.3f}")
    stderr.print(table)
    stderr.print(
        f"Points per second of wall clock, {settings.wall_executors} executors on as many "
        f"cores. Longest task and latency: {settings.path_executors} executors, run "
        "times by Spark, one task at a time. Each executor stands for a machine of its own. "
        f"Picture: {picture}"
    )
    write_json(json_to, run.to_json())


def replay(
    points: Annotated[
        str,
        typer.Option(
            metavar="FILE",
            help="Parquet file of points in time order; drift generates one.",
        ),
    ],
    executors: Annotated[int, typer.Option(min=1, help="Number of executors.")] = 8,
    queries: Annotated[int, typer.Option(min=1, help="Number of queries.")] = 100_000,
    side: Annotated[
        float,
        typer.Option(min=0, max=1, help="Side of a query, a share of the space's width."),
    ] = 0.0016,
    policies: Annotated[
        list[str] | None,
        typer.Option(help="Policies, separated by commas. Default: all but static_history."),
    ] = None,
    batches: Annotated[int, typer.Option(min=3, help="Batches per run.")] = 12,
    points_per_batch: Annotated[int, typer.Option(min=100, help="Points per batch.")] = 200_000,
    repeat: Annotated[
        int, typer.Option(min=1, help="Runs of each policy, in turns; the median counts.")
    ] = 1,
    churn: Annotated[
        float, typer.Option(min=0, max=1, help="Share of the queries updated in each batch.")
    ] = 0.0,
    cores: Annotated[int, typer.Option(min=1, help="Number of cores.")] = 2,
    x: Annotated[str | None, typer.Option(help="Column of x.")] = None,
    y: Annotated[str | None, typer.Option(help="Column of y.")] = None,
    bounds: Annotated[
        tuple[float, float, float, float] | None,
        typer.Option(
            metavar="MIN_X MIN_Y MAX_X MAX_Y",
            help="The space; points outside are skipped. Default: their extent.",
        ),
    ] = None,
    seed: SeedOption = 0,
    json_to: JsonOption = None,
    picture: Annotated[Path, typer.Option(help="File of the picture.")] = Path(
        "artifacts/replay.png"
    ),
) -> None:
    """Stream a file of points under each policy, on Spark, every executor a machine of its own.

    Example: sparkswarm bench replay --points taxis.parquet --executors 8 --json -
    """
    from sparkswarm.bench.pictures import draw_replay
    from sparkswarm.bench.replay import (
        DEFAULT_POLICIES,
        ReplaySettings,
        run_replay,
        total_batches,
    )
    from sparkswarm.bench.replay_series import balance
    from sparkswarm.config import PolicyName
    from sparkswarm.policies import POLICIES

    wanted = [name for text in policies or () for name in text.replace(",", " ").split()]
    if unknown := set(wanted) - set(POLICIES):
        names = ", ".join(POLICIES)
        raise typer.BadParameter(f"{', '.join(sorted(unknown))}: choose from {names}")
    settings = ReplaySettings(
        points=points,
        x=x,
        y=y,
        bounds=bounds,
        executors=executors,
        cores=cores,
        queries=queries,
        side=side,
        policies=cast("tuple[PolicyName, ...]", tuple(dict.fromkeys(wanted)) or DEFAULT_POLICIES),
        batches=batches,
        points_per_batch=points_per_batch,
        repeat=repeat,
        churn=churn,
        seed=seed,
    )
    with exit_on_error(), progress_bar() as progress:
        task = progress.add_task("reading the points", total=total_batches(settings))
        run = run_replay(
            settings, lambda name, _: progress.update(task, advance=1, description=name)
        )
        draw_replay(run, picture)
    table = Table(
        title=f"{points}: {executors} executors on {cores} cores, {queries:,} queries",
        box=box.SIMPLE,
        padding=(0, 0, 0, 1),
        pad_edge=False,
    )
    columns = ("policy", "points/s", "balance", "of work", "longest s", "tasks s", "lent", "plan")
    for column in columns:
        table.add_column(column, justify="left" if column == "policy" else "right", no_wrap=True)
    for name, series in run.series.items():
        work = series.mean(lambda b: balance(b.work))
        table.add_row(
            name,
            f"{series.points_per_second:,.0f}",
            f"{series.mean(lambda b: balance(b.tasks)):.3f}",
            "" if work is None else f"{work:.3f}",
            f"{series.mean(lambda b: max(b.tasks)):.3f}",
            f"{series.mean(lambda b: sum(b.tasks)):.3f}",
            f"{series.mean(lambda b: b.lent / b.points):.1%}",
            str(series.batches[-1].partitions),
        )
    table.add_row("one shared host", f"{run.one_host.points_per_second:,.0f}")
    stderr.print(table)
    used, skipped = run.facts["batches"], run.facts["rows_skipped"]
    one = run.one_host
    if used < batches:
        stderr.print(f"The file has points for {used} batches only, not {batches}.")
    of_runs = f" of the median of {repeat} runs" if repeat > 1 else ""
    matches = one.mean(lambda b: b.matches / b.points)
    stderr.print(
        f"Means of batches 2 to {used - 1}{of_runs}. Balance: mean / longest of the executors' "
        f"tasks. Plan: its partitions. {matches:.1f} results per point. {skipped:,} rows skipped. "
        f"{run.checked:,} numbers checked, {run.wrong} wrong. Picture: {picture}"
    )
    if firsts := run.hotspot_firsts:
        stderr.print(
            f"Balance of work in the first batches of hotspots ({', '.join(map(str, firsts))}), "
            "the lowest: "
            + ", ".join(
                f"{name} {lowest:.2f}"
                for name, series in run.series.items()
                if (lowest := series.lowest_work_balance(firsts)) is not None
            )
        )
    write_json(json_to, run.to_json())


def apps(
    batches: Annotated[int, typer.Option(min=4, help="Batches per run.")] = 12,
    points: Annotated[int, typer.Option(min=1000, help="Points per batch.")] = 500_000,
    queries: Annotated[int, typer.Option(min=1, help="Number of subscriptions.")] = 500_000,
    aggregates: Annotated[int, typer.Option(min=1, help="Number of aggregates.")] = 200_000,
    asks: Annotated[int, typer.Option(min=2, help="Snapshot queries per batch.")] = 200,
    kinds: Annotated[
        list[str] | None,
        typer.Option(
            "--kind",
            help="subscriptions, aggregates, snapshots or mixed; default: all.",
        ),
    ] = None,
    repeat: Annotated[int, typer.Option(min=1, help="Measurements per kind.")] = 3,
    cores: Annotated[int, typer.Option(min=1, help="Number of cores, and of executors.")] = 2,
    seed: SeedOption = 0,
    json_to: JsonOption = None,
) -> None:
    """Measure every kind of query on the engine, and written by hand in plain Spark.

    Example: sparkswarm bench apps --repeat 1 --kind aggregates
    """
    from sparkswarm.bench.apps import KINDS, AppsSettings, run_apps

    unknown = set(kinds or ()) - set(KINDS)
    if unknown:
        raise typer.BadParameter(f"{', '.join(sorted(unknown))}: choose from {', '.join(KINDS)}")
    wanted = tuple(kind for kind in KINDS if kind in (kinds or KINDS))
    settings = AppsSettings(batches, points, queries, aggregates, asks, repeat, cores, seed, wanted)
    with exit_on_error(), progress_steps(settings.steps) as on_step:
        run = run_apps(settings, on_step)
    found = run.to_json()
    table = Table(
        title=f"{queries:,} subscriptions, {aggregates:,} aggregates, {asks:,} snapshot queries a "
        f"batch of {points:,} points, local[{cores}]",
        box=box.SIMPLE,
    )
    for column in ("", "points/s", "plain Spark", "sparkswarm is", "checked", "wrong"):
        table.add_column(column, justify="right" if column else "left", no_wrap=True)
    for kind, row in found.items():
        numbers = (f"{row['points_per_s']:,}", f"{row['plain_spark']:,}", f"{row['ratio']:.2f} x")
        table.add_row(
            kind, *numbers, *(f"{row['oracle'][name]:,}" for name in ("checked", "wrong"))
        )
    stderr.print(table)
    for kind, row in found.items():
        steps = ", ".join(f"{name} {took:.2f}" for name, took in row["seconds"].items())
        stderr.print(f"Seconds of a batch, {kind}: {steps}.")
    write_json(json_to, found)


def cluster(
    hosts: Annotated[int, typer.Option(min=2, max=200, help="Number of hosts.")] = 4,
    executors: Annotated[int, typer.Option(min=1, help="Executors of each host.")] = 2,
    batches: Annotated[
        int, typer.Option(min=4, help="Batches; the hotspot is in the second half.")
    ] = 16,
    points: Annotated[int, typer.Option(min=1000, help="Points per batch.")] = 100_000,
    queries: Annotated[int, typer.Option(min=1000, help="Number of queries.")] = 1_000_000,
    side: Annotated[
        float, typer.Option(min=0, max=1, help="Side of a query, a share of the space's width.")
    ] = 0.0004,
    churn: Annotated[
        float, typer.Option(min=0, max=1, help="Share of the queries updated in each batch.")
    ] = 0.01,
    limit: Annotated[
        float,
        typer.Option(
            min=0, help="Size of each host's cache, a share of the state; 0 leaves this part out."
        ),
    ] = 0.4,
    seed: SeedOption = 0,
    json_to: JsonOption = None,
) -> None:
    """Measure what each host of a cluster holds and fetches under each policy.

    Starts a cluster on this machine, whose workers look like hosts, and ends it. Takes about 6
    minutes. Example: sparkswarm bench cluster --hosts 4 --json -
    """
    from sparkswarm.bench.cluster import ClusterSettings, run_cluster, total_batches

    settings = ClusterSettings(
        hosts=hosts, executors=executors, batches=batches, points=points, queries=queries,
        side=side, churn=churn, limit=limit, seed=seed,
    )  # fmt: skip
    with exit_on_error(), progress_bar() as progress:
        task = progress.add_task("starting the cluster", total=total_batches(settings))
        run = run_cluster(
            settings, lambda name, _: progress.update(task, advance=1, description=name)
        )
    table = Table(
        title=f"{hosts} hosts with {executors} executors each, {queries:,} queries",
        box=box.SIMPLE,
    )
    fetched = ("fetched, MB/batch", "after warm-up")
    columns = ("policy", "on its host", "largest host", *fetched, "balance", "points/s")
    for column in columns:
        table.add_column(column, justify="left" if column == "policy" else "right")
    for name, one in run.series.items():
        table.add_row(
            name,
            f"{one.on_its_host:.1%}",
            f"{max(one.state_per_host) / one.state:.0%}",
            f"{one.fetched_per_batch / 1e6:.1f}",
            f"{one.fetched_after_warm_up / 1e6:.1f}",
            "" if one.balance is None else f"{one.balance:.3f}",
            f"{one.series.points_per_second:,.0f}",
        )
    stderr.print(table)
    stderr.print(
        f"State: {run.state / 1e6:,.0f} MB. Largest host: the share of it that the host with most "
        "maps; balance: mean / longest of the executors' expected times; means over batches. All "
        "hosts share this machine's cores."
    )
    for name, found in run.limited.items():
        so = found if isinstance(found, str) else "ran, results are right"
        stderr.print(f"With {run.cache_bytes / 1e6:,.0f} MB of cache on each host, {name}: {so}")
    stderr.print(f"{run.checked} numbers checked, {run.wrong} wrong")
    write_json(json_to, run.to_json())
