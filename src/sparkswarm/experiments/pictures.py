"""Pictures of the experiments, modelled on the paper's figures; needs the extra ``plot``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from sparkswarm.bench.plotting import Axes, FuncFormatter, Line2D, plt, save
from sparkswarm.experiments.experiment import Experiment, Row

_STYLES: dict[str, tuple[str, str, float]] = {
    "swarm": ("#0b6e4f", "-", 2.6),
    "swarm_lending": ("#0b6e4f", ":", 2.2),
    "swarm_paper": ("#58b368", "--", 1.9),
    "static_history": ("#e09f1f", "-", 1.7),
    "static_history_paper": ("#9c5518", "--", 1.5),
    "static_uniform": ("#d1495b", "-", 1.5),
    "replicated": ("#30638e", "-", 1.5),
    "hash_cell": ("#8d7b9c", "-.", 1.5),
    "pkg": ("#222222", ":", 2.0),
}
"""Colour, dashes and width of each policy's line; dashed is the paper's cost model."""

_SHADE = "#f2b134"
_TRILLION = 1e12


def draw_timeline(experiment: Experiment, path: Path) -> Path:
    """Draw units of work and latency per minute, over the hotspots' intensity."""
    scenario = experiment.scenario
    figure, (above, below) = plt.subplots(
        2, 1, figsize=(10, 8.0), layout="constrained", sharex=True, height_ratios=(3, 2)
    )
    _shade(above, experiment, named=True)
    _shade(below, experiment, named=False)
    for o in experiment.outcomes:
        if o.failed or not o.minutes:
            continue
        at = np.arange(len(o.minutes)) + 0.5
        colour, dashes, width = _STYLES[o.policy]
        style = {"color": colour, "ls": dashes, "lw": width, "zorder": 2 + width}
        above.plot(at, [m.work / _TRILLION for m in o.minutes], label=o.policy, **style)
        below.plot(at, [m.latency * 1e3 for m in o.minutes], **style)
    queries = above.twinx()
    _draw_queries(queries, experiment)
    above.set(
        ylabel="units of work per second (trillions)",
        xlim=(0, scenario.minutes),
        title=f"{scenario.title}: {experiment.settings.machines.executors} executors, "
        f"{experiment.density} (virtual time)",
    )
    above.set_ylim(bottom=0)
    below.set(xlabel="minute", ylabel="latency (ms)", yscale="log")
    for axis in (below.yaxis.set_major_formatter, below.yaxis.set_minor_formatter):
        axis(FuncFormatter(lambda value, _: f"{value:g}"))
    handles, labels = above.get_legend_handles_labels()
    handles += [Line2D([], [], color="0.35", ls=(0, (1, 2)), lw=1.4)]
    labels += ["queries in the system"]
    failed = [o.policy for o in experiment.outcomes if o.failed]
    figure.legend(
        handles,
        labels,
        loc="outside lower center",
        ncols=5,
        fontsize=9,
        frameon=False,
        title=f"out of memory: {', '.join(failed)}" if failed else None,
    )
    return save(figure, path)


def _shade(axes: Axes, experiment: Experiment, named: bool) -> None:
    """Shade each hotspot by its share of the points; the top of the axes is all points."""
    scenario = experiment.scenario
    at = np.linspace(0, scenario.minutes, 60 * scenario.minutes + 1)
    behind = axes.twinx()
    behind.set(ylim=(0, 1), yticks=[])
    behind.spines[["top", "right"]].set_visible(False)
    behind.set_zorder(axes.get_zorder() - 1)
    axes.patch.set_visible(False)
    for number, hotspot in enumerate(scenario.hotspots, 1):
        share = [hotspot.point_share(minute * 60) for minute in at]
        behind.fill_between(at, share, color=_SHADE, alpha=0.35, lw=0)
        name = "hotspot" if len(scenario.hotspots) == 1 else f"H{number}"
        if named:
            behind.text(
                (hotspot.start + hotspot.stop) / 120,
                0.012,
                f"{name}, up to {hotspot.share:.0%}",
                ha="center",
                va="bottom",
                fontsize=8.5,
                color="#8a5a00",
            )
    axes.grid(axis="y", alpha=0.3)
    axes.spines["top"].set_visible(False)


def _draw_queries(axes: Axes, experiment: Experiment) -> None:
    first = next((o for o in experiment.outcomes if not o.failed and o.minutes), None)
    if first is not None:
        values = [m.queries / 1e6 for m in first.minutes]
        at = np.arange(len(values)) + 0.5
        axes.plot(at, values, color="0.35", ls=(0, (1, 2)), lw=1.4)
        axes.set_ylim(0, 2.5 * max(values))
    axes.set_ylabel("queries (millions)", color="0.35")
    axes.tick_params(colors="0.35")
    axes.spines["top"].set_visible(False)


def draw_sweep(experiment: Experiment, path: Path) -> Path:
    """Draw units of work and latency against the number of queries."""
    figure, panels = plt.subplots(1, 2, figsize=(12, 5.6), layout="constrained")
    for name in experiment.settings.policies:
        colour, dashes, width = _STYLES[name]
        mine = [o for o in experiment.outcomes if o.policy == name]
        done = [o for o in mine if not o.failed]
        queries = [o.queries / 1e6 for o in done]
        values = (
            [(o.units_of_work() or 0.0) / _TRILLION for o in done],
            [(o.latency_us() or 0.0) for o in done],
        )
        label = name + (" (beyond x: out of memory)" if len(done) < len(mine) else "")
        for axes, series in zip(panels, values, strict=True):
            axes.plot(
                queries,
                series,
                color=colour,
                ls=dashes,
                lw=width,
                marker="o",
                ms=4,
                label=label,
                zorder=2 + width,
            )
            if len(done) < len(mine) and done:
                axes.plot(queries[-1:], series[-1:], "x", color=colour, ms=11, mew=2.4, zorder=9)
    for axes, label, scale in zip(
        panels,
        ("units of work per second (trillions)", "latency (µs)"),
        ("linear", "log"),
        strict=True,
    ):
        axes.set(xlabel="queries (millions)", ylabel=label, xscale="log", yscale=scale)
        ticks = [n / 1e6 for n in experiment.scenario.queries]
        axes.set_xticks(ticks, [f"{n:g}" for n in ticks])
        axes.minorticks_off()
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylim(bottom=0)
    figure.suptitle(
        f"{experiment.scenario.title}: means of {experiment.scenario.minutes} minutes, "
        f"{experiment.density} (virtual time)",
        fontsize=11,
    )
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=9, frameon=False)
    return save(figure, path)


def draw_utilization(experiment: Experiment, path: Path) -> Path:
    """Draw the mean, minimum and maximum CPU and network use of SWARM and its first rival."""
    there = [o.policy for o in experiment.outcomes if o.minutes]
    rival = "static_history" if "static_history" in there else None
    names = [n for n in dict.fromkeys(("swarm", rival, *there)) if n in there][:2]
    rows = experiment.utilization()
    figure, panels = plt.subplots(
        2,
        max(1, len(names)),
        figsize=(6 * max(1, len(names)), 6.6),
        layout="constrained",
        sharex=True,
        sharey="row",
        squeeze=False,
    )
    for column, name in enumerate(names):
        mine = [row for row in rows if row["policy"] == name]
        colour = _STYLES[name][0]
        at = [row["minute"] + 2.5 for row in mine]
        for line, what in enumerate(("cpu", "network")):
            axes = panels[line][column]
            for hotspot in experiment.scenario.hotspots:
                axes.axvspan(hotspot.start / 60, hotspot.stop / 60, color=_SHADE, alpha=0.22, lw=0)
            low, high, mean = (
                [100 * row[f"{what}_{k}"] for row in mine] for k in ("min", "max", "mean")
            )
            axes.fill_between(at, low, high, color=colour, alpha=0.22, lw=0)
            axes.plot(at, mean, color=colour, lw=2.2, marker="o", ms=4)
            axes.set(ylim=(0, 105), xlim=(0, experiment.scenario.minutes))
            axes.grid(axis="y", alpha=0.3)
            axes.spines[["top", "right"]].set_visible(False)
            if line:
                achievable = 100 * experiment.settings.machines.achievable
                axes.axhline(achievable, color="0.3", ls="--", lw=1)
                axes.text(
                    experiment.scenario.minutes,
                    achievable + 2,
                    "achievable",
                    ha="right",
                    fontsize=8,
                    color="0.3",
                )
        panels[0][column].set_title(name)
        panels[1][column].set_xlabel("minute")
    panels[0][0].set_ylabel("CPU of the executors (%)")
    panels[1][0].set_ylabel("network of the hosts (% of 10 Gb/s)")
    figure.suptitle(
        "means of 5 minutes; line: all machines, band: from the least to the most used; "
        "shaded: the hotspot",
        fontsize=10,
    )
    return save(figure, path)


def draw_operations(rows: Sequence[Row], title: str, path: Path) -> Path:
    """Draw the median and 99th percentile of each operation."""
    figure, axes = plt.subplots(figsize=(9, 0.6 * len(rows) + 1.8), layout="constrained")
    at = range(len(rows))
    axes.barh(at, [row["us_median"] for row in rows], color="#0b6e4f", height=0.55)
    axes.plot([row["us_p99"] for row in rows], at, "|", color="#d1495b", ms=14, mew=2.4)
    for y, row in zip(at, rows, strict=True):
        axes.text(row["us_p99"] * 1.35, y, _microseconds(row["us_median"]), va="center", fontsize=9)
    axes.set_yticks(at, [f"{row['figure']}: {row['name']}" for row in rows], fontsize=9)
    axes.invert_yaxis()
    axes.set(xscale="log", xlabel="microseconds (bar: median, mark: 99th percentile)", title=title)
    axes.set_xlim(right=8 * max(row["us_p99"] for row in rows))
    axes.grid(axis="x", alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    return save(figure, path)


def _microseconds(value: float) -> str:
    return f"{value:,.0f} µs" if value >= 100 else f"{value:.3g} µs"


def draw_statistics(rows: Sequence[Row], path: Path) -> Path:
    """Draw the bytes of statistics per round, of SWARM and of a centralised balancer."""
    figure, axes = plt.subplots(figsize=(7.4, 4.4), layout="constrained")
    at = range(len(rows))
    values = [row["bytes_a_round"] for row in rows]
    axes.bar(at, values, color=["#0b6e4f", "#58b368", "#d1495b"][: len(rows)], width=0.55)
    for x, value in zip(at, values, strict=True):
        axes.text(x, value * 1.25, f"{value:,.0f} bytes", ha="center", fontsize=9)
    axes.set_xticks(at, [row["way"].replace(", ", ",\n") for row in rows], fontsize=9)
    axes.set(
        yscale="log",
        ylabel="bytes per round to and from the Coordinator",
        ylim=(1, 20 * max(values)),
    )
    axes.grid(axis="y", alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    return save(figure, path)
